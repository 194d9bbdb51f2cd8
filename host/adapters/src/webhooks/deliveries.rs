//! Sends deliveries to their endpoints: at once, and up to three times more.
//!
//! Endpoints are served side by side, each by itself. Those that fail or are slow have places of
//! their own, and of all places an organization has a share: its endpoints wait for its own alone.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use charter_engine::EgressError;
use charter_kernel::audit::AuditRow;
use charter_kernel::id::FactId;
use charter_kernel::time::Instant;
use charter_kernel::unit::{Fact, Guard, Rejection, Take, Taken, Unit, Write};
use charter_store::{CommitError, Lobby, Seat, audit_fact};
use charter_tenancy::records::Record as _;
use charter_tenancy::records::webhook::{Attempt, Delivery, DeliveryOutcome, ENDED, Webhook};
use charter_tenancy::stored;
use futures::future::join_all;
use http::header::RETRY_AFTER;
use serde_json::json;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::Adapters;
use crate::webhooks;

/// How often due deliveries are looked for, although something wakes the sender.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Endpoints served at one time, and apart from them those whose last delivery failed or was slow.
const ENDPOINTS_MAX: usize = 256;
/// Endpoints that are remembered to fail or to be slow; beyond it all are forgotten, and found out
/// again.
const FAILING_MAX: usize = 100_000;
/// Deliveries to one endpoint at one time.
const PARALLEL: usize = 8;
/// Due endpoints looked at in one turn.
const TURN_MAX: u32 = 10_000;
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

/// Endpoints that are served now, and those whose last try failed or was slow.
#[derive(Default)]
struct Serving {
    endpoints: HashSet<String>,
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

/// Places for those that soon take what they are sent, and for those that do not. In either an
/// organization takes one more only while it has fewer than are free.
struct Places {
    healthy: Arc<Lobby>,
    failing: Arc<Lobby>,
}

impl Places {
    fn new() -> Self {
        Self {
            healthy: Lobby::with_reserve(ENDPOINTS_MAX),
            failing: Lobby::with_reserve(ENDPOINTS_MAX),
        }
    }

    /// A place for an endpoint of this organization, once there is one.
    async fn seat(&self, organization: &Arc<str>, failing: bool) -> Seat {
        let places = if failing { &self.failing } else { &self.healthy };
        places.seat(organization).await
    }
}

/// Never ends by itself.
pub async fn run(adapters: Arc<Adapters>, tasks: TaskTracker, draining: CancellationToken) {
    let serving = Arc::new(Mutex::new(Serving::default()));
    let places = Arc::new(Places::new());
    loop {
        let (due, next) = match adapters.store.groups_due(&Delivery::all(), TURN_MAX).await {
            Ok(found) => found,
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "due deliveries could not be looked for"
                );
                (Vec::new(), None)
            }
        };
        for endpoint in due.into_iter().filter(|group| group != ENDED) {
            if !lock(&serving).endpoints.insert(endpoint.clone()) {
                continue;
            }
            let served = ServedEndpoint { serving: serving.clone(), endpoint };
            let (adapters, places) = (adapters.clone(), places.clone());
            let draining = draining.clone();
            tasks.spawn(async move {
                let _ = draining.run_until_cancelled(serve(&adapters, &served, &places)).await;
            });
        }
        let wait = next.map_or(LOOK_EVERY, |next| {
            Duration::from_millis(u64::try_from(next.0 - adapters.store.now().0).unwrap_or(0))
                .clamp(Duration::from_millis(20), LOOK_EVERY)
        });
        let _ = tokio::time::timeout(wait, adapters.delivery_wanted.notified()).await;
    }
}

fn lock(serving: &Mutex<Serving>) -> std::sync::MutexGuard<'_, Serving> {
    serving.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An endpoint that is served; dropped, it can be again.
struct ServedEndpoint {
    serving: Arc<Mutex<Serving>>,
    endpoint: String,
}

impl Drop for ServedEndpoint {
    fn drop(&mut self) {
        lock(&self.serving).endpoints.remove(&self.endpoint);
    }
}

/// Sends what is due to one endpoint.
async fn serve(adapters: &Adapters, served: &ServedEndpoint, places: &Places) {
    let organization: Arc<str> =
        match adapters.store.next_reach(&Delivery::all(), &served.endpoint).await {
            Ok(Some(reach)) => reach.as_str().into(),
            Ok(None) => return,
            Err(error) => {
                return tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "an endpoint's organization cannot be read; its deliveries wait"
                );
            }
        };
    loop {
        let failing = lock(&served.serving).failing.contains(&served.endpoint);
        let _place = places.seat(&organization, failing).await;
        let take = Take {
            reach: None,
            space: Delivery::all(),
            group: served.endpoint.clone(),
            until: adapters.store.now().plus_ms(LEASE_MS),
            tokens: (0..PARALLEL).map(|_| uuid::Uuid::now_v7().to_string()).collect(),
        };
        let taken = match adapters.store.commit(Unit { takes: vec![take], ..Unit::default() }).await
        {
            Ok(applied) => applied.taken.into_iter().flatten().collect::<Vec<_>>(),
            Err(error) => return tracing::warn!(%error, "due deliveries could not be taken"),
        };
        if taken.is_empty() {
            return;
        }
        let sent = join_all(taken.into_iter().map(|taken| deliver_one(adapters, taken))).await;
        lock(&served.serving).note_end(&served.endpoint, sent.into_iter().all(|good| good));
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
    let body = json!({ "user": webhook.tenant_user_id, "payload": payload });
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
    use futures::FutureExt as _;

    use super::*;

    #[test]
    fn slow_endpoints_of_some_organizations_leave_a_place_to_the_next_one() {
        for failing in [false, true] {
            let places = Places::new();
            let seat =
                |organization: &str| places.seat(&organization.into(), failing).now_or_never();
            let fill = |organization| std::iter::from_fn(|| seat(organization)).collect::<Vec<_>>();
            let slow = ["o/a", "o/b", "o/c", "o/d", "o/e", "o/f"].map(fill);
            assert_eq!(slow[0].len(), ENDPOINTS_MAX / 2);
            assert!(slow.iter().all(|held| !held.is_empty()));
            assert!(seat("o/a").is_none(), "its share is used");
            assert!(seat("o/neighbour").is_some());
        }
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
