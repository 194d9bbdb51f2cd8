//! Sends deliveries to their endpoints: at once, and up to three times more.
//!
//! Endpoints are served side by side, each by itself. Those that fail or are slow have places of
//! their own, and of all places an organization has a share: its endpoints wait for its own alone.
//! A few of its endpoints wait at a time: each look passes on behind the others, so that it sees
//! whatever is due of everybody, and the next look begins at the first that it passed over. The
//! writer of deliveries names their endpoints, which wait for no look.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use charter_engine::EgressError;
use charter_kernel::audit::AuditRow;
use charter_kernel::id::FactId;
use charter_kernel::time::Instant;
use charter_kernel::unit::{Fact, Guard, Reach, Rejection, Take, Taken, Unit, Write};
use charter_store::{CommitError, Lobby, ReadError, Seat, Store, Waiter, audit_fact};
use charter_tenancy::records::Record as _;
use charter_tenancy::records::webhook::{Attempt, Delivery, DeliveryOutcome, ENDED, Webhook};
use charter_tenancy::stored;
use futures::future::join_all;
use http::header::RETRY_AFTER;
use serde_json::json;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::Adapters;
use crate::webhooks;

/// How often due deliveries are looked for, although something wakes the sender.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Endpoints served at one time, and apart from them those whose last delivery failed or was slow.
const ENDPOINTS_MAX: usize = 256;
/// Of each kind, endpoints of one organization that wait for a place at one time.
const WAITING_EACH: usize = 4;
/// Of each kind, endpoints that wait for a place at one time.
const WAITING_MAX: usize = 10_000;
/// Endpoints that something was just written for, of which that is remembered; a look finds the
/// others.
const WANTED_MAX: usize = 10_000;
/// Endpoints that are remembered to fail or to be slow; beyond it all are forgotten, and found out
/// again.
const FAILING_MAX: usize = 100_000;
/// Deliveries to one endpoint at one time.
const PARALLEL: usize = 8;
/// Endpoints read at once.
const PAGE: u32 = 1_000;
/// A look at many endpoints takes its time: so many times as long, the next one waits.
const REST: u32 = 4;
/// How long one try may take.
const TRY: Duration = Duration::from_secs(15);
/// An answer that takes longer is slow.
const SLOW_MS: u64 = 3_000;
/// How long the work on one may take before another host may take it up.
const LEASE_MS: i64 = 60_000;
/// Between the tries.
const BACKOFF_MS: [i64; 3] = [5_000, 60_000, 600_000];
/// The longest wait that an endpoint can ask for.
const RETRY_AFTER_MS_MAX: i64 = 3_600_000;
/// Deliveries in a row that fail for good before a webhook is switched off.
const FAILURES_MAX: u32 = 20;

/// Endpoints that something was just written for, each with its organization's reach: they are
/// served at once, however many others are due.
#[derive(Default)]
pub struct Wanted {
    endpoints: Mutex<HashMap<String, Reach>>,
    named: Notify,
}

impl Wanted {
    /// Something is due to the endpoints of these webhooks of an organization.
    pub fn name<'a>(&self, organization: &Reach, webhooks: impl IntoIterator<Item = &'a String>) {
        let mut wanted = lock(&self.endpoints);
        for endpoint in webhooks {
            if wanted.len() < WANTED_MAX {
                wanted.insert(endpoint.clone(), organization.clone());
            }
        }
        drop(wanted);
        self.named.notify_one();
    }

    /// Those that were named since, once there are any.
    async fn next(&self) -> HashMap<String, Reach> {
        loop {
            let named = std::mem::take(&mut *lock(&self.endpoints));
            if !named.is_empty() {
                return named;
            }
            self.named.notified().await;
        }
    }
}

/// Endpoints that are served now, and those whose last try failed or was slow.
#[derive(Default)]
struct Serving {
    /// Each with whether more was written for it meanwhile.
    endpoints: HashMap<String, bool>,
    failing: HashSet<String>,
}

impl Serving {
    fn note_end(&mut self, endpoint: &str, good: bool) {
        if good {
            self.failing.remove(endpoint);
        } else {
            if self.failing.len() >= FAILING_MAX {
                self.failing.clear();
            }
            self.failing.insert(endpoint.to_owned());
        }
    }
}

/// Places of one kind. An organization takes one more only while it has fewer than are free.
struct Places {
    places: Arc<Lobby>,
    /// Places in the queue: whoever waits holds one.
    queue: Arc<Lobby>,
}

/// A place, or a turn to wait for one.
enum Turn {
    Now(Seat),
    Later { waiter: Waiter, _queued: Seat },
}

impl Places {
    fn new() -> Self {
        Self { places: Lobby::with_reserve(ENDPOINTS_MAX), queue: Lobby::with_reserve(WAITING_MAX) }
    }

    /// A place for an endpoint of this organization, or a turn; neither where as many wait as may.
    fn ask(&self, organization: &Arc<str>) -> Option<Turn> {
        if self.places.count_waiting(organization) >= WAITING_EACH {
            return None;
        }
        match self.places.enter(organization) {
            Ok(seat) => Some(Turn::Now(seat)),
            Err(waiter) => {
                let queued = self.queue.try_enter(organization)?;
                Some(Turn::Later { waiter, _queued: queued })
            }
        }
    }
}

impl Turn {
    /// The place, once there is one.
    async fn seat(self) -> Seat {
        match self {
            Self::Now(seat) => seat,
            Self::Later { waiter, .. } => waiter.await,
        }
    }
}

/// An endpoint's part of a look: it is served in its turn.
struct Begun {
    served: ServedEndpoint,
    organization: Arc<str>,
    turn: Turn,
}

/// The endpoints of this process: who is served, who may be, and where the next look begins.
struct Endpoints {
    serving: Arc<Mutex<Serving>>,
    /// Places for those that soon take what they are sent.
    healthy: Places,
    /// Places for those that do not.
    failing: Places,
    /// The endpoint before the first that the last look passed over.
    after: Mutex<String>,
    /// An endpoint had to leave its place: it is looked for at once.
    look_wanted: Notify,
}

impl Endpoints {
    fn new() -> Self {
        Self {
            serving: Arc::default(),
            healthy: Places::new(),
            failing: Places::new(),
            after: Mutex::default(),
            look_wanted: Notify::new(),
        }
    }

    fn places(&self, endpoint: &str) -> &Places {
        let failing = lock(&self.serving).failing.contains(endpoint);
        if failing { &self.failing } else { &self.healthy }
    }

    /// Begins with each endpoint that something is due to, as far as it may; when the next one is.
    async fn look(
        &self,
        store: &Store,
        begin: impl Fn(Begun),
    ) -> Result<Option<Instant>, ReadError> {
        let first = std::mem::take(&mut *lock(&self.after));
        let behind = (!first.is_empty()).then(|| (String::new(), Some(first.clone())));
        let mut next: Option<Instant> = None;
        let mut passed_over = None;
        for (mut after, until) in std::iter::once((first, None)).chain(behind) {
            let is_within = |name: &String| until.as_ref().is_none_or(|until| name <= until);
            let mut before = after.clone();
            loop {
                let page = store.groups_due(&Delivery::all(), (&after, None), PAGE).await?;
                for group in page.due.into_iter().filter(|group| is_within(&group.name)) {
                    if !self.ask(&group.name, &group.reach, &begin) {
                        passed_over.get_or_insert(before);
                    }
                    before = group.name;
                }
                next = next.into_iter().chain(page.next).min();
                match page.last.filter(is_within) {
                    Some(last) => after = last,
                    None => break,
                }
            }
        }
        *lock(&self.after) = passed_over.unwrap_or_default();
        Ok(next)
    }

    /// Begins with an endpoint that is not served yet; false where as many wait as may.
    fn ask(&self, endpoint: &str, reach: &Reach, begin: &impl Fn(Begun)) -> bool {
        if endpoint == ENDED || lock(&self.serving).endpoints.contains_key(endpoint) {
            return true;
        }
        let organization: Arc<str> = reach.of_organization().unwrap_or_default().into();
        let Some(turn) = self.places(endpoint).ask(&organization) else { return false };
        lock(&self.serving).endpoints.insert(endpoint.to_owned(), false);
        let serving = self.serving.clone();
        let served = ServedEndpoint { serving, endpoint: endpoint.to_owned(), ended: false };
        begin(Begun { served, organization, turn });
        true
    }

    /// Begins with an endpoint that something was just written for; a look finds it where it has to
    /// wait.
    fn serve_anew(&self, endpoint: &str, reach: &Reach, begin: &impl Fn(Begun)) {
        if let Some(more) = lock(&self.serving).endpoints.get_mut(endpoint) {
            *more = true;
            return;
        }
        self.ask(endpoint, reach, begin);
    }
}

/// Never ends by itself.
pub async fn run(adapters: Arc<Adapters>, tasks: TaskTracker, draining: CancellationToken) {
    let endpoints = Arc::new(Endpoints::new());
    let begin = |begun: Begun| {
        let (adapters, endpoints) = (adapters.clone(), endpoints.clone());
        let draining = draining.clone();
        tasks.spawn(async move {
            if serve(&adapters, begun, &endpoints, &draining).await == Served::NoPlace {
                endpoints.look_wanted.notify_one();
            }
        });
    };
    let looks = async {
        loop {
            look_and_rest(&adapters.store, &endpoints, &begin).await;
        }
    };
    let names = async {
        loop {
            for (endpoint, reach) in adapters.deliveries_wanted.next().await {
                endpoints.serve_anew(&endpoint, &reach, &begin);
            }
        }
    };
    tokio::join!(looks, names);
}

/// One look at whatever is due, and the rest until the next one.
async fn look_and_rest(store: &Store, endpoints: &Endpoints, begin: impl Fn(Begun)) {
    let began = tokio::time::Instant::now();
    let next = match endpoints.look(store, begin).await {
        Ok(next) => next,
        Err(error) => {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "due deliveries could not be looked for"
            );
            None
        }
    };
    let rest = (REST * began.elapsed()).min(LOOK_EVERY);
    let wait = next.map_or(LOOK_EVERY, |next| {
        Duration::from_millis(u64::try_from(next.0 - store.now().0).unwrap_or(0))
            .clamp(Duration::from_millis(20), LOOK_EVERY)
    });
    tokio::time::sleep(rest).await;
    let wanted = endpoints.look_wanted.notified();
    let _ = tokio::time::timeout(wait.saturating_sub(rest), wanted).await;
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An endpoint that is served; dropped, it can be again.
struct ServedEndpoint {
    serving: Arc<Mutex<Serving>>,
    endpoint: String,
    ended: bool,
}

impl ServedEndpoint {
    /// Serves it no longer; false where more was written for it meanwhile.
    fn end(&mut self) -> bool {
        let mut serving = lock(&self.serving);
        if let Some(more @ true) = serving.endpoints.get_mut(&self.endpoint) {
            *more = false;
            return false;
        }
        serving.endpoints.remove(&self.endpoint);
        self.ended = true;
        true
    }
}

impl Drop for ServedEndpoint {
    fn drop(&mut self) {
        if !self.ended {
            lock(&self.serving).endpoints.remove(&self.endpoint);
        }
    }
}

/// Why an endpoint is served no longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Served {
    /// Nothing is due to it, or it cannot be known.
    Nothing,
    /// It has to wait for a place once more.
    NoPlace,
}

/// Sends what is due to one endpoint.
async fn serve(
    adapters: &Adapters,
    begun: Begun,
    endpoints: &Endpoints,
    draining: &CancellationToken,
) -> Served {
    let Begun { mut served, organization, turn } = begun;
    let Some(mut place) = draining.run_until_cancelled(turn.seat()).await else {
        return Served::Nothing;
    };
    loop {
        // The tries that are under way are the last of this host.
        if draining.is_cancelled() {
            return Served::Nothing;
        }
        let take = Take {
            reach: None,
            space: Delivery::all(),
            group: served.endpoint.clone(),
            until: adapters.store.now().plus_ms(LEASE_MS),
            tokens: (0..PARALLEL).map(|_| uuid::Uuid::now_v7().to_string()).collect(),
        };
        let unit =
            Unit { organization: (*organization).into(), takes: vec![take], ..Unit::default() };
        let taken = match adapters.store.commit(unit).await {
            Ok(applied) => applied.taken.into_iter().flatten().collect::<Vec<_>>(),
            Err(error) => {
                tracing::warn!(%error, "due deliveries could not be taken");
                return Served::Nothing;
            }
        };
        if taken.is_empty() {
            if served.end() {
                return Served::Nothing;
            }
            continue;
        }
        let sent = join_all(taken.into_iter().map(|taken| deliver_one(adapters, taken))).await;
        lock(&served.serving).note_end(&served.endpoint, sent.into_iter().all(|good| good));
        drop(place);
        match endpoints.places(&served.endpoint).places.try_enter(&organization) {
            Some(seat) => place = seat,
            None => return Served::NoPlace,
        }
    }
}

/// Tries one delivery; whether the endpoint took it, and soon.
async fn deliver_one(adapters: &Adapters, taken: Taken) -> bool {
    let Ok(mut delivery) = Delivery::read(&taken.row) else { return false };
    let key = Webhook::address(&delivery.organization, &delivery.webhook);
    let found = match adapters.store.get(&key).await {
        Ok(row) => row.and_then(|row| Webhook::read(&row).ok()),
        Err(error) => {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "a webhook cannot be read; its delivery waits"
            );
            return false;
        }
    };
    let Some(webhook) = found.filter(|webhook| webhook.active || delivery.event == webhooks::TEST)
    else {
        delivery.status = DeliveryOutcome::Dropped;
        end(adapters, &taken, delivery, None).await;
        return true;
    };
    let began = tokio::time::Instant::now();
    let at = adapters.store.now();
    let answer = send(adapters, &webhook, &delivery, at).await;
    let (status, error, asked) = match answer {
        Ok((status, asked)) => (Some(status), None, asked),
        Err(error) => (None, Some(error), None),
    };
    let duration_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    delivery.attempts.push(Attempt { at, status, error, duration_ms });
    let took = status.is_some_and(|status| (200..300).contains(&status));
    let good = took && duration_ms <= SLOW_MS;
    let gone = status == Some(410);
    let again = BACKOFF_MS.get(delivery.attempts.len() - 1).filter(|_| !took && !gone);
    let Some(backoff) = again else {
        delivery.status = if took { DeliveryOutcome::Succeeded } else { DeliveryOutcome::Failed };
        end(adapters, &taken, delivery, Some((took, gone))).await;
        return good;
    };
    let wait = jitter(*backoff).max(asked.unwrap_or(0));
    again_at(adapters, &taken, &delivery, adapters.store.now().plus_ms(wait)).await;
    false
}

/// Up to a fifth longer, so that what failed together does not come back together.
fn jitter(ms: i64) -> i64 {
    let mut random = [0; 2];
    // Without randomness it comes back together.
    let _ = getrandom::fill(&mut random);
    ms + ms * i64::from(u16::from_le_bytes(random)) / i64::from(u16::MAX) / 5
}

/// One try: the status and for how long the endpoint asked to wait.
async fn send(
    adapters: &Adapters,
    webhook: &Webhook,
    delivery: &Delivery,
    now: Instant,
) -> Result<(u16, Option<i64>), String> {
    let secrets = webhooks::secrets(&adapters.store, webhook, now)
        .await
        .ok_or("its secret cannot be opened")?;
    let gate = adapters.gate.get().ok_or("the host is starting")?;
    let mut request = http::Request::post(&webhook.url)
        .body(Bytes::from(delivery.body.clone()))
        .map_err(|error| error.to_string())?;
    *request.headers_mut() =
        webhooks::headers(&delivery.event, &delivery.event_id, now, &delivery.body, &secrets);
    let answer = gate.post(request, TRY).await.map_err(|error: EgressError| error.to_string())?;
    let asked = answer.headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok());
    let asked = asked
        .and_then(|text| text.parse::<i64>().ok())
        .map(|s| s.saturating_mul(1_000).clamp(0, RETRY_AFTER_MS_MAX));
    Ok((answer.status.as_u16(), asked))
}

/// The webhook after a delivery that is over, and what is told of it; `None` where it stays as it
/// is.
fn tally(
    adapters: &Adapters,
    webhook: &Webhook,
    took: bool,
    gone: bool,
) -> Option<(Webhook, Vec<Fact>)> {
    if !webhook.active {
        return None;
    }
    if took {
        return (webhook.failures > 0)
            .then(|| (Webhook { failures: 0, ..webhook.clone() }, Vec::new()));
    }
    let failures = webhook.failures + 1;
    let reason = match (gone, failures >= FAILURES_MAX) {
        (true, _) => "The endpoint answered 410: it is gone.".to_owned(),
        (false, true) => format!("{failures} deliveries in a row failed, each with all its tries."),
        (false, false) => return Some((Webhook { failures, ..webhook.clone() }, Vec::new())),
    };
    let now = adapters.store.now();
    tracing::warn!(
        webhook = webhook.id,
        organization = webhook.organization.as_str(),
        reason,
        "a webhook was switched off"
    );
    let payload = json!({ "webhook_id": webhook.id, "url": webhook.url, "reason": reason });
    let body = json!({ "project": webhook.project_id, "user": webhook.tenant_user_id, "payload": payload });
    let fact = stored::random().map(|random| {
        Fact::event(
            FactId::new(now, random).into_string(),
            webhook.organization.as_str(),
            now,
            webhooks::DISABLED,
            &body,
        )
    });
    let row = disable_row(webhook, &reason, now);
    let off = Webhook { failures, active: false, disabled_reason: Some(reason), ..webhook.clone() };
    Some((off, fact.into_iter().chain(row).collect()))
}

/// The audit row of a webhook that the host switched off.
fn disable_row(webhook: &Webhook, reason: &str, now: Instant) -> Option<Fact> {
    let details = json!({ "url": webhook.url, "reason": reason });
    let row = AuditRow {
        organization: webhook.organization.as_str(),
        at: now,
        actor: ("system", "webhooks"),
        on_behalf_of: webhook.tenant_user_id.as_deref(),
        project: webhook.project_id.as_deref(),
        action: "webhooks.disable",
        entity_type: Some("webhook"),
        entity_id: Some(&webhook.id),
        decision: "allowed",
        details: Some(&details),
        ..AuditRow::default()
    };
    audit_fact(&row).ok()
}

async fn again_at(adapters: &Adapters, taken: &Taken, delivery: &Delivery, at: Instant) {
    let Ok(draft) = delivery.due(at) else { return };
    let (key, token) = (taken.key.clone(), taken.token.clone());
    let writes = vec![
        Write::Replace { key: key.clone(), draft, expected: None },
        Write::Release { key: key.clone(), token: token.clone(), due_at: at, undo: false },
    ];
    let (organization, guards) = (delivery.organization.clone(), vec![Guard::Lease { key, token }]);
    commit(adapters, Unit { organization, guards, writes, ..Unit::default() }).await;
}

/// Writes how a delivery ended, and what its end makes of its webhook: read anew where somebody
/// changes that at the same moment.
async fn end(
    adapters: &Adapters,
    taken: &Taken,
    mut delivery: Delivery,
    took: Option<(bool, bool)>,
) {
    let now = adapters.store.now();
    delivery.ended_at = Some(now);
    let Ok(draft) = delivery.due(now) else { return };
    let (key, token) = (taken.key.clone(), taken.token.clone());
    let webhook = Webhook::address(&delivery.organization, &delivery.webhook);
    let unit = Unit {
        organization: delivery.organization,
        guards: vec![Guard::Lease { key: key.clone(), token: token.clone() }],
        writes: vec![
            Write::Replace { key: key.clone(), draft, expected: None },
            Write::Release { key, token, due_at: Instant(i64::MAX), undo: false },
        ],
        ..Unit::default()
    };
    let mut attempts = adapters.store.attempts(&unit.organization);
    while let Some((took, gone)) = took
        && let Some(mut txn) = attempts.begin()
    {
        let found = txn.get(&webhook).await.ok().flatten();
        let Some(found) = found.and_then(|row| Webhook::read(&row).ok()) else { break };
        let Some((after, facts)) = tally(adapters, &found, took, gone) else { break };
        let Ok(draft) = after.draft() else { break };
        if txn.replace(webhook.clone(), draft, None).await.is_err() {
            break;
        }
        txn.step(unit.guards.clone(), unit.writes.clone());
        facts.into_iter().for_each(|fact| txn.fact(fact));
        match txn.commit_settling().await {
            Err(CommitError::Rejected(Rejection::Conflict { keys })) => {
                attempts.wait_turn(&keys).await;
            }
            Err(CommitError::Rejected(Rejection::Refused(_))) => break,
            Err(error) => {
                return tracing::warn!(%error, "what became of a delivery could not be written; it is tried again");
            }
            Ok(_) => return,
        }
    }
    commit(adapters, unit).await;
}

async fn commit(adapters: &Adapters, unit: Unit) {
    // Refused: another host has taken it up meanwhile, and tries it once more.
    if let Err(error) = adapters.store.commit_settling(unit).await
        && error.refusal().is_none()
    {
        tracing::warn!(%error, "what became of a delivery could not be written; it is tried again");
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use charter_kernel::time::Clock;
    use charter_kernel::unit::{Draft, Key};
    use charter_store::StoreConfig;

    use super::*;

    struct Still;

    impl Clock for Still {
        fn now(&self) -> Instant {
            Instant(1_800_000_000_000)
        }
    }

    /// A store on a folder of its own, which goes with the bed.
    struct Bed {
        store: Store,
        folder: std::path::PathBuf,
    }

    impl Bed {
        async fn new() -> Self {
            let name = format!("charter-deliveries-{}", uuid::Uuid::now_v7());
            let folder = std::env::temp_dir().join(name);
            std::fs::create_dir_all(&folder).unwrap();
            let mut config = StoreConfig::new(folder.clone(), Arc::new(Still));
            config.ballast_bytes = 1024 * 1024;
            Self { store: Store::open(config).await.unwrap(), folder }
        }
    }

    impl Drop for Bed {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }

    /// A delivery to each of these endpoints is due.
    async fn deliver(store: &Store, organization: &str, endpoints: impl Iterator<Item = String>) {
        let write = |endpoint: String| Write::Insert {
            key: Key::new(&Reach::organization(organization), &Delivery::all(), endpoint.clone()),
            draft: Draft { lease: Some((endpoint, store.now())), ..Draft::default() },
        };
        let writes = endpoints.map(write).collect();
        let organization = organization.into();
        store.commit(Unit { organization, writes, ..Unit::default() }).await.unwrap();
    }

    async fn look(endpoints: &Endpoints, store: &Store) -> Vec<Begun> {
        let all = Mutex::<Vec<Begun>>::default();
        endpoints.look(store, |begun| lock(&all).push(begun)).await.unwrap();
        all.into_inner().unwrap()
    }

    #[tokio::test]
    async fn an_endpoint_is_served_at_once_however_many_of_others_wait_for_places() {
        let (bed, endpoints) = (Bed::new().await, Endpoints::new());
        let (organizations, each) = (120, 100);
        for organization in 0..organizations {
            let names = (0..each).map(|n| format!("{n:03}-{organization:03}"));
            names.clone().for_each(|name| lock(&endpoints.serving).note_end(&name, false));
            deliver(&bed.store, &format!("org-{organization:03}"), names).await;
        }
        let held = look(&endpoints, &bed.store).await;
        let mut waiting = BTreeMap::<_, usize>::new();
        for begun in held.iter().filter(|begun| matches!(begun.turn, Turn::Later { .. })) {
            *waiting.entry(begun.organization.clone()).or_default() += 1;
        }
        assert_eq!(waiting.len(), organizations);
        assert!(waiting.values().all(|waiting| *waiting == WAITING_EACH));
        assert!(held.len() <= ENDPOINTS_MAX + organizations * WAITING_EACH);
        assert!(look(&endpoints, &bed.store).await.is_empty(), "nobody is begun with twice");

        // Behind all others by its name, and due the latest.
        deliver(&bed.store, "new", std::iter::once("new".to_owned())).await;
        let begun = look(&endpoints, &bed.store).await;
        let [Begun { served, organization, turn: Turn::Now(_) }] = &begun[..] else {
            panic!("{} were begun with", begun.len());
        };
        assert_eq!((&*served.endpoint, &**organization), ("new", "new"));
    }

    #[tokio::test]
    async fn an_endpoint_that_is_named_is_served_without_a_look_and_again_where_more_came() {
        let (endpoints, wanted) = (Endpoints::new(), Wanted::default());
        let begun = Mutex::<Vec<Begun>>::default();
        let own = Reach::organization("own");
        wanted.name(&own, &["hook", "other"].map(str::to_owned));
        let named = wanted.next().await;
        assert_eq!(named.len(), 2);
        let serve = |endpoint: &str| {
            endpoints.serve_anew(endpoint, &own, &|one: Begun| lock(&begun).push(one));
        };
        named.keys().for_each(|endpoint| serve(endpoint));
        let mut both = std::mem::take(&mut *lock(&begun));
        assert!(both.iter().all(|one| matches!(one.turn, Turn::Now(_))));
        both.retain(|one| one.served.endpoint == "hook");
        serve("hook");
        assert!(lock(&begun).is_empty(), "nobody is begun with twice");
        // The new one may have come behind the last take.
        assert!(!both[0].served.end(), "it takes once more");
        assert!(both[0].served.end());
        serve("hook");
        assert_eq!(lock(&begun).len(), 1);
        drop(both);
        assert!(lock(&endpoints.serving).endpoints.contains_key("hook"), "it is another's now");
    }

    #[tokio::test]
    async fn no_more_endpoints_are_named_than_are_remembered() {
        let (wanted, own) = (Wanted::default(), Reach::organization("own"));
        let names: Vec<_> = (0..=WANTED_MAX).map(|n| n.to_string()).collect();
        wanted.name(&own, &names);
        assert_eq!(wanted.next().await.len(), WANTED_MAX);
    }

    #[tokio::test]
    async fn each_endpoint_of_an_organization_has_its_turn() {
        let (bed, endpoints) = (Bed::new().await, Endpoints::new());
        deliver(&bed.store, "org", (0..300).map(|n| format!("{n:03}"))).await;
        let mut seen = HashSet::new();
        for _ in 0..3 {
            let begun = look(&endpoints, &bed.store).await;
            assert_eq!(begun.len(), ENDPOINTS_MAX * 7 / 16 + WAITING_EACH);
            seen.extend(begun.iter().map(|begun| begun.served.endpoint.clone()));
        }
        assert_eq!(seen.len(), 300);
    }

    #[test]
    fn slow_endpoints_of_some_organizations_leave_a_place_to_the_next_one() {
        let places = Places::new();
        let seat = |organization: &str| match places.ask(&organization.into()) {
            Some(Turn::Now(seat)) => Some(seat),
            _ => None,
        };
        let fill = |organization| std::iter::from_fn(|| seat(organization)).collect::<Vec<_>>();
        let slow = ["o/a", "o/b", "o/c", "o/d", "o/e", "o/f"].map(fill);
        assert_eq!(slow[0].len(), ENDPOINTS_MAX * 7 / 16);
        assert!(slow.iter().all(|held| !held.is_empty()));
        assert!(seat("o/a").is_none(), "its share is used");
        assert!(seat("o/neighbour").is_some());
    }

    #[test]
    fn the_row_of_a_webhook_that_is_switched_off_is_read_in_its_project() {
        let id = "0197a000-0000-7000-8000-000000000001";
        let webhook = Webhook {
            id: id.into(),
            organization: charter_kernel::id::OrganizationId::parse(id).unwrap(),
            project_id: Some("project".into()),
            tenant_user_id: Some("user".into()),
            url: "https://example.com/".into(),
            event_types: vec!["*".into()],
            secret: String::new(),
            previous: Vec::new(),
            active: true,
            disabled_reason: None,
            failures: 0,
            since: 0,
            resumed_at: None,
            created_at: Instant(0),
        };
        let row = disable_row(&webhook, "it is gone", Instant(0)).unwrap();
        let body: serde_json::Value = serde_json::from_str(&row.body).unwrap();
        assert_eq!(
            (&body["project_id"], &body["on_behalf_of"]),
            (&json!("project"), &json!("user"))
        );
    }
}
