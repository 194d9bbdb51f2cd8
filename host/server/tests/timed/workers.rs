//! The workers' deeds beside requests, in a whole server of this process whose time the test moves.

use std::time::Duration;

use charter_engine::hook::{HookRecord, Scheme};
use charter_engine::job::{Owner, ScheduleRecord, jobs, schedules};
use charter_governance::lifecycle;
use charter_kernel::governance::hold::{self, CREDIT, accounts_space};
use charter_kernel::lease;
use charter_kernel::ledger::{Account, Normal, Phase};
use charter_kernel::time::Instant;
use charter_kernel::unit::{Draft, Fact, FactKind, Key, LogKey, Reach, Space, Take, Unit, Write};
use charter_store::Store;
use charter_tenancy::records::Record as _;
use charter_tenancy::records::erasure::{ERASURES, Erasure};

use crate::bed::Timed;

/// No worker takes longer.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between looks at what nothing announces.
const LOOK: Duration = Duration::from_millis(50);
const HOUR_MS: i64 = 3_600_000;
const ORGANIZATION: &str = "018f0000-0000-7000-8000-000000000001";

/// The server, and the store behind it.
struct Bed {
    timed: Timed,
    store: Store,
}

impl Bed {
    async fn new() -> Self {
        let timed = Timed::start(&[]).await;
        let store = timed.running().app.store.clone();
        Self { timed, store }
    }

    async fn commit(&self, writes: Vec<Write>) {
        let unit = Unit { organization: ORGANIZATION.into(), writes, ..Unit::default() };
        self.store.commit(unit).await.expect("the store takes it");
    }

    /// Begins to erase what a reach has, once those jobs are done: the erasure's row.
    async fn erase(&self, reach: &Reach, told: &[&str]) -> Key {
        let mut txn = self.store.begin(ORGANIZATION);
        let told = told.iter().map(|id| (*id).to_owned()).collect();
        lifecycle::erase(&mut txn, ORGANIZATION, reach, told, self.timed.now())
            .await
            .expect("an erasure is noted");
        txn.commit().await.expect("and committed");
        Key::new(&Reach::organization(ORGANIZATION), &Erasure::all(), reach.as_str())
    }

    async fn is_there(&self, key: &Key) -> bool {
        self.store.get(key).await.expect("the store answers").is_some()
    }

    /// The posted balance of an account.
    async fn has(&self, account: &Key) -> i64 {
        let row = self.store.get(account).await.expect("the store answers").expect("an account");
        let account: Account = serde_json::from_str(&row.body).expect("it can be read");
        account.balance().posted
    }

    async fn version(&self, key: &Key) -> u64 {
        self.store.get(key).await.expect("the store answers").map_or(0, |row| row.version)
    }

    async fn held(&self, reach: &Reach) -> usize {
        self.store.reach_keys(reach, "", 1_000).await.expect("the store answers").len()
    }

    async fn events(&self) -> usize {
        self.store
            .facts(FactKind::Event, ORGANIZATION, 0, 10)
            .await
            .expect("the store answers")
            .len()
    }

    async fn end(mut self) {
        self.timed.stop().await;
    }
}

/// Looks until it is so; the clock goes on meanwhile, as clocks do.
async fn until(bed: &Bed, what: &str, so: impl AsyncFn() -> bool) {
    let looks = async {
        while !so().await {
            bed.timed.pass(1_000);
            tokio::time::sleep(LOOK).await;
        }
    };
    assert!(tokio::time::timeout(PATIENCE, looks).await.is_ok(), "{what} in time");
}

fn put(key: Key, body: &str) -> Write {
    Write::Put { key, draft: Draft { body: body.into(), ..Draft::default() } }
}

/// A job of a primitive that is not installed, so that nobody runs it.
fn record(name: &str) -> serde_json::Value {
    serde_json::json!({
        "primitive": "shelf", "signal": name, "name": name, "payload": {}, "attempts_max": 1, "public": false,
        "owner": {"organization": ORGANIZATION, "project": ""}, "run_at": Instant(0), "state": "queued",
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_deleted_user_owned_goes_once_those_who_were_told_are_done() {
    let bed = Bed::new().await;
    let (gone, stays) = (Reach::user("gone"), Reach::user("stays"));
    let row = |reach: &Reach, n: u32| {
        Key::new(reach, &Space::of("shelf", "books"), format!("book-{n:04}"))
    };
    // More than one batch of it.
    bed.commit((0..450).map(|n| put(row(&gone, n), "{}")).collect()).await;
    let log = LogKey { reach: gone.clone(), log: "shelf.history".into() };
    let append = Write::Append { log: log.clone(), name: "put".into(), payload: "{}".into() };
    bed.commit(vec![put(row(&stays, 0), "{}"), append]).await;
    let job = Key::new(&Reach::organization(ORGANIZATION), &jobs(), "told");
    let told = |state: &str| {
        let mut told = record("deleted");
        told["state"] = state.into();
        told["owner"]["user"] = "gone".into();
        told.to_string()
    };
    bed.commit(vec![put(job.clone(), &told("queued"))]).await;
    let erasure = bed.erase(&gone, &["told"]).await;
    let before = bed.version(&erasure).await;
    until(&bed, "two looks at it", async || bed.version(&erasure).await >= before + 4).await;
    assert_eq!(bed.held(&gone).await, 450, "who was told still reads it");
    bed.commit(vec![put(job, &told("succeeded"))]).await;
    until(&bed, "all of it goes", async || bed.held(&gone).await == 0).await;
    let head = async || bed.store.log_head(&log).await.expect("the store answers").head;
    until(&bed, "its logs go", async || head().await == 0).await;
    assert_eq!(bed.held(&stays).await, 1);
    // A request that began before the end is written down after it, and goes as well.
    let fact = Fact {
        id: "late".into(),
        kind: FactKind::Audit,
        organization: ORGANIZATION.into(),
        at: bed.timed.now(),
        name: "book.put".into(),
        body: "{}".into(),
        private: Some("{}".into()),
        user: Some("gone".into()),
    };
    let unit = Unit { organization: ORGANIZATION.into(), facts: vec![fact], ..Unit::default() };
    bed.store.commit(unit).await.expect("facts are taken");
    bed.commit(vec![put(row(&gone, 0), "{}")]).await;
    let private = async || {
        let rows = bed.store.facts(FactKind::Audit, ORGANIZATION, 0, 10).await;
        rows.expect("the store answers").iter().any(|row| row.fact.private.is_some())
    };
    until(&bed, "the late row goes", async || bed.held(&gone).await == 0).await;
    until(&bed, "the private half of the late one goes", async || !private().await).await;
    assert!(bed.is_there(&erasure).await, "it is looked after");
    bed.timed.pass(401 * 86_400_000);
    until(&bed, "the erasure ends", async || !bed.is_there(&erasure).await).await;
    bed.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_primitive_has_of_a_deleted_user_stays_while_a_provider_may_tell_it_more() {
    let bed = Bed::new().await;
    let gone = Reach::user("gone");
    let row = |primitive: &str, n: u32| {
        Key::new(&gone, &Space::of(primitive, "books"), format!("book-{n:04}"))
    };
    // More than one batch on each side of those that stay.
    for primitive in ["desk", "shelf", "shelf-two"] {
        bed.commit((0..250).map(|n| put(row(primitive, n), "{}")).collect()).await;
    }
    let hook = |id: &str, primitive: &str, scheme: &str| {
        let owner = Owner {
            organization: ORGANIZATION.into(),
            project: "p".into(),
            user: Some("gone".into()),
            root: None,
        };
        let document = (gone.as_str().to_owned(), "book-0000".to_owned());
        let hook = HookRecord {
            id: id.into(),
            owner,
            primitive: primitive.into(),
            collection: "books".into(),
            document,
            scheme: Scheme::parse(scheme).expect("a scheme"),
            secret: None,
            reference: None,
            by: None,
            opened_at: Instant(0),
        };
        let draft = hook.draft().expect("text");
        (hook.key(), Write::Insert { key: hook.key(), draft })
    };
    let (told, told_row) = hook("told", "shelf", "binding:shelf.press");
    let (plain, plain_row) = hook("plain", "shelf-two", "none");
    bed.commit(vec![told_row, plain_row]).await;
    let erasure = bed.erase(&gone, &[]).await;
    // The end of its project ends nothing that a provider tells of its user.
    let project = bed.erase(&Reach::project("p"), &[]).await;
    until(&bed, "the project's is over", async || !bed.is_there(&project).await).await;
    until(&bed, "the others' rows go", async || bed.held(&gone).await == 250).await;
    assert!(bed.is_there(&row("shelf", 249)).await);
    assert_eq!((bed.is_there(&told).await, bed.is_there(&plain).await), (true, false));
    bed.timed.pass(180 * 24 * HOUR_MS);
    until(&bed, "all of it goes", async || bed.held(&gone).await == 0).await;
    assert!(!bed.is_there(&told).await && bed.is_there(&erasure).await);
    bed.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_deleted_user_owned_stays_while_its_money_is_set_aside_and_the_host_moves_none() {
    let bed = Bed::new().await;
    let (gone, organization) = (Reach::user("gone"), Reach::organization(ORGANIZATION));
    let account = |reach: &Reach, name: &str| Key::new(reach, &accounts_space(), name);
    let (balance, takings) = (account(&gone, "shelf.balance"), account(&gone, "shelf.takings"));
    let (credit, source) = (account(&organization, CREDIT), account(&organization, "shelf.source"));
    let transfer = |from: &Key, to: &Key, amount, phase| Write::Transfer {
        from: from.clone(),
        to: to.clone(),
        amount,
        phase,
    };
    let book = Key::new(&gone, &Space::of("shelf", "books"), "book");
    bed.commit(vec![
        put(book, "{}"),
        // It goes at once: nobody is left to run it for.
        put(Key::new(&gone, &schedules(), "shelf/daily"), "{}"),
        Account::new(Normal::Debit, true).open(&source),
        Account::credit().open(&credit),
        Account::credit().open(&balance),
        Account::credit().open(&takings),
        transfer(&source, &balance, 20, Phase::Post),
        transfer(&source, &takings, 30, Phase::Post),
        // A payment that waits, and a refund of all that was taken.
        transfer(&balance, &takings, 20, Phase::Reserve),
        transfer(&takings, &balance, 30, Phase::Reserve),
    ])
    .await;
    let erasure = bed.erase(&gone, &[]).await;
    let aside = async || {
        let row = bed.store.get(&erasure).await.expect("the store answers").expect("an erasure");
        let erasure = Erasure::read(&row).expect("it can be read");
        [&balance, &takings].map(|account| erasure.aside.get(&account.id).copied())
    };
    until(&bed, "it is noted", async || aside().await == [Some(20), Some(30)]).await;
    // Its look is never far while money is set aside, however old the end is.
    bed.timed.pass(30 * 86_400_000);
    let before = bed.version(&erasure).await;
    let looks = async || {
        bed.timed.pass(30_000);
        bed.version(&erasure).await >= before + 4
    };
    until(&bed, "two looks at it", looks).await;
    assert_eq!(bed.held(&gone).await, 1);
    bed.commit(vec![transfer(&takings, &balance, 30, Phase::Void)]).await;
    let told = async || {
        bed.timed.pass(30_000);
        aside().await == [Some(20), None]
    };
    until(&bed, "those who ask are told", told).await;
    assert_eq!(bed.held(&gone).await, 1, "some is set aside still");
    bed.commit(vec![transfer(&balance, &takings, 20, Phase::Void)]).await;
    let goes = async || {
        bed.timed.pass(30_000);
        bed.held(&gone).await == 0
    };
    until(&bed, "the rest goes", goes).await;
    let posted = (bed.has(&credit).await, bed.has(&balance).await, bed.has(&takings).await);
    assert_eq!(posted, (0, 20, 30), "whose it is only primitives know");
    bed.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_deleted_user_owned_stays_while_a_primitive_that_failed_holds_its_money() {
    let bed = Bed::new().await;
    let organization = Reach::organization(ORGANIZATION);
    let (rich, poor) = (Reach::user("rich"), Reach::user("poor"));
    let account = |reach: &Reach, name: &str| Key::new(reach, &accounts_space(), name);
    let (credit, source) = (account(&organization, CREDIT), account(&organization, "shelf.source"));
    let (of_rich, of_poor) = (account(&rich, "shelf.balance"), account(&poor, "shelf.balance"));
    let of_another = account(&poor, "lamp.balance");
    let transfer = |from: &Key, to: &Key, amount| Write::Transfer {
        from: from.clone(),
        to: to.clone(),
        amount,
        phase: Phase::Post,
    };
    let book = |reach: &Reach| put(Key::new(reach, &Space::of("shelf", "books"), "book"), "{}");
    let told = |id: &str| {
        let mut told = record("deleted");
        told["state"] = "failed".into();
        put(Key::new(&organization, &jobs(), id), &told.to_string())
    };
    bed.commit(vec![
        book(&rich),
        book(&poor),
        told("told-of-rich"),
        told("told-of-poor"),
        Account::new(Normal::Debit, true).open(&source),
        Account::credit().open(&credit),
        Account::credit().open(&of_rich),
        Account::credit().open(&of_poor),
        Account::credit().open(&of_another),
        transfer(&source, &of_rich, 20),
        // It is on an account of a primitive that has not failed.
        transfer(&source, &of_another, 5),
    ])
    .await;
    let erasure = bed.erase(&rich, &["told-of-rich"]).await;
    bed.erase(&poor, &["told-of-poor"]).await;
    let due_at = async || {
        let row = bed.store.get(&erasure).await.expect("the store answers").expect("an erasure");
        Erasure::read(&row).expect("it can be read").failed.get("shelf").copied()
    };
    until(&bed, "without money all of it goes", async || bed.held(&poor).await == 0).await;
    until(&bed, "the failure is noted", async || due_at().await.is_some()).await;
    let first = due_at().await;
    // Nobody who could be told is installed; it is looked for again each day.
    bed.timed.pass(86_400_000);
    until(&bed, "the next day's look", async || due_at().await > first).await;
    assert_eq!(bed.held(&rich).await, 1);
    bed.commit(vec![transfer(&of_rich, &credit, 20)]).await;
    let goes = async || {
        bed.timed.pass(3_600_000);
        bed.held(&rich).await == 0
    };
    until(&bed, "the rest goes", goes).await;
    bed.end().await;
}

/// A hold that its request left open.
fn open_hold(organization: &str, id: &str, body: String, due_at: Instant) -> Write {
    let draft = Draft {
        body,
        index: vec![("state".into(), "held".into())],
        lease: Some((lease::group(organization, hold::OPEN), due_at)),
        ..Draft::default()
    };
    Write::Insert { key: hold::key(organization, id), draft }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_that_falls_due_delays_no_other_organizations() {
    let bed = Bed::new().await;
    let (other, due_at) = ("018f0000-0000-7000-8000-000000000002", bed.timed.now());
    // Nobody can read these: they are taken up again and again.
    for part in 0..12 {
        let flood = (0..500).map(|n| format!("hold-{part:02}-{n:03}"));
        let flood = flood.map(|id| open_hold(ORGANIZATION, &id, "{}".into(), due_at));
        bed.commit(flood.collect()).await;
    }
    let due_at = due_at.plus_ms(1);
    let hold = serde_json::json!({
        "state": "held", "primitive": "shelf", "action": "shelf.buy", "entity": "", "component": "", "title": "",
        "amount": null, "charges": [], "decision": {"verdict": "allow", "rules": []}, "request": "request", "ordinal": 0,
        "subject": {"organization": other, "project": null, "user": null, "kit": null, "actor": ["key", "k"]},
        "at": due_at, "until": due_at,
    });
    bed.commit(vec![open_hold(other, "hold", hold.to_string(), due_at)]).await;
    let open = async |organization: &str| {
        let (space, groups) = (hold::space(), lease::groups_of(organization));
        bed.store.in_groups(&space, &groups, 10_000).await.expect("the store answers")
    };
    bed.timed.pass(1);
    until(&bed, "the other organization's is closed", async || open(other).await == 0).await;
    assert_eq!(open(ORGANIZATION).await, 6_000);
    bed.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_past_its_time_is_swept_and_nothing_before() {
    let bed = Bed::new().await;
    let at = bed.timed.now();
    let fact = |kind, id: &str| Fact {
        id: id.into(),
        kind,
        organization: ORGANIZATION.into(),
        at,
        name: "book.put".into(),
        body: "{}".into(),
        private: None,
        user: None,
    };
    let facts = vec![fact(FactKind::Event, "event"), fact(FactKind::Audit, "row")];
    let unit = Unit { organization: ORGANIZATION.into(), facts, ..Unit::default() };
    bed.store.commit(unit).await.expect("facts are taken");
    assert_eq!(bed.events().await, 1);
    let hours = |n: i64| at.plus_ms(n * 3_600_000);
    let mut past = Vec::new();
    for (collection, field, ends) in [
        ("sessions", "expires_at", hours(1)),
        ("invitations", "expires_at", hours(1)),
        ("idempotency", "expires_at", hours(24)),
        ("jobs", "ended_at", at),
        ("links", "expires_at", hours(24 * 365 * 9)),
    ] {
        let key = Key::new(&Reach::deployment(), &Space::host(collection), "one");
        let draft = Draft {
            body: "{}".into(),
            index: vec![(field.into(), ends.to_string())],
            ..Draft::default()
        };
        bed.commit(vec![Write::Insert { key: key.clone(), draft }]).await;
        past.push(key);
    }
    let kept = past.pop().expect("a link");
    bed.timed.pass(24 * 8 * 3_600_000);
    for key in &past {
        until(&bed, key.space.as_str(), async || !bed.is_there(key).await).await;
    }
    until(&bed, "events go", async || bed.events().await == 0).await;
    let rows =
        bed.store.facts(FactKind::Audit, ORGANIZATION, 0, 10).await.expect("the store answers");
    assert_eq!(rows.len(), 1, "audit rows stay");
    assert!(bed.is_there(&kept).await, "its time has not come");
    bed.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_schedule_missed_is_enqueued_once_and_the_next_occurrence_again() {
    let bed = Bed::new().await;
    let reach = Reach::organization(ORGANIZATION);
    let key = Key::new(&reach, &schedules(), "shelf/hourly");
    let schedule =
        serde_json::json!({ "key": "hourly", "cron": "0 * * * *", "time_zone": "UTC", "job": record("tidy") }).to_string();
    let first = Instant((bed.timed.now().0 / HOUR_MS + 1) * HOUR_MS);
    let draft = Draft {
        lease: Some((format!("{ORGANIZATION}/shelf"), first)),
        body: schedule,
        ..Draft::default()
    };
    bed.commit(vec![Write::Insert { key: key.clone(), draft }]).await;
    let enqueued = async || {
        let keys = bed.store.reach_keys(&reach, "", 1_000).await.expect("the store answers");
        keys.into_iter().filter(|key| key.space == jobs()).count()
    };
    let next = async || {
        let row =
            bed.store.get(&key).await.expect("the store answers").expect("the schedule stays");
        let record: ScheduleRecord = serde_json::from_str(&row.body).expect("it can be read");
        record.job.run_at
    };
    // Three occurrences pass at once.
    bed.timed.pass(first.0 - bed.timed.now().0 + 2 * HOUR_MS);
    until(&bed, "a job is enqueued", async || enqueued().await > 0).await;
    assert_eq!((enqueued().await, next().await), (1, first.plus_ms(3 * HOUR_MS)));
    bed.timed.pass(HOUR_MS);
    until(&bed, "the next one is enqueued", async || enqueued().await > 1).await;
    assert_eq!((enqueued().await, next().await), (2, first.plus_ms(4 * HOUR_MS)));
    bed.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_group_of_an_organization_that_has_thousands_comes_to_its_turn_and_others_beside_it()
{
    const GROUPS: usize = 1_500;
    let bed = Bed::new().await;
    let due_at = bed.timed.now().plus_ms(1);
    let schedule = |organization: &str, n: usize| {
        let mut job = record("tidy");
        job["owner"]["organization"] = organization.into();
        let body =
            serde_json::json!({ "key": "k", "cron": "0 0 1 1 *", "time_zone": "UTC", "job": job });
        let group = lease::group(organization, &format!("shelf/pinned/project/{n:04}"));
        let draft =
            Draft { lease: Some((group, due_at)), body: body.to_string(), ..Draft::default() };
        let reach = Reach::organization(organization);
        Write::Insert { key: Key::new(&reach, &schedules(), format!("{n:04}")), draft }
    };
    for at in (0..GROUPS).step_by(500) {
        bed.commit((at..at + 500).map(|n| schedule(ORGANIZATION, n)).collect()).await;
    }
    // One before it by name, and one behind it.
    let others = ["018f0000-0000-7000-8000-000000000000", "018f0000-0000-7000-8000-000000000002"];
    bed.commit(others.map(|other| schedule(other, 0)).into()).await;
    let told = async |organization: &str| {
        let groups = lease::groups_of(organization);
        bed.store.in_groups(&jobs(), &groups, 10_000).await.expect("the store answers")
    };
    bed.timed.pass(1);
    for other in others {
        until(&bed, "the other organization's has fired", async || told(other).await == 1).await;
    }
    until(&bed, "all have fired", async || told(ORGANIZATION).await == GROUPS as u64).await;
    bed.end().await;
}

fn shelf(due_at: Instant, body: String) -> Draft {
    let lease = Some((format!("{ORGANIZATION}/shelf"), due_at));
    Draft { lease, body, ..Draft::default() }
}

async fn due(bed: &Bed, key: &Key) -> Instant {
    let row = bed.store.get(key).await.expect("the store answers").expect("it stays");
    row.lease.expect("it is leased").due_at
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_schedule_that_a_clock_has_planned_which_was_ahead_is_due_at_its_next_occurrence() {
    let mut bed = Bed::new().await;
    let began = bed.timed.now();
    let [hourly, yearly] = ["hourly", "yearly"]
        .map(|id| Key::new(&Reach::organization(ORGANIZATION), &schedules(), id));
    let of_year = Instant::parse("2028-01-01T00:00:00.000Z").expect("a moment");
    let planned = [(&hourly, "0 * * * *", began.plus_ms(HOUR_MS)), (&yearly, "0 0 1 1 *", of_year)];
    let insert = |(key, cron, at): (&Key, &str, Instant)| {
        let body = serde_json::json!({ "key": key.id, "cron": cron, "time_zone": "UTC", "job": record("tidy") });
        Write::Insert { key: key.clone(), draft: shelf(at, body.to_string()) }
    };
    bed.commit(planned.into_iter().map(insert).collect()).await;
    for restarts in [false, true] {
        bed.timed.pass(48 * HOUR_MS);
        let ahead = bed.timed.now();
        until(&bed, "it fires", async || due(&bed, &hourly).await > ahead).await;
        let back = began.0 - bed.timed.now().0;
        if restarts {
            bed.timed.stop().await;
            bed.timed.pass(back);
            bed.timed.restart().await;
            bed.store = bed.timed.running().app.store.clone();
        } else {
            bed.timed.pass(back);
        }
        until(&bed, "it is planned anew", async || due(&bed, &hourly).await < ahead).await;
        assert_eq!(due(&bed, &hourly).await, began.plus_ms(HOUR_MS));
        assert_eq!(due(&bed, &yearly).await, of_year, "its next occurrence all the same");
    }
    bed.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_clock_that_was_ahead_has_put_off_is_brought_forward_when_it_is_set_back() {
    let bed = Bed::new().await;
    let [chosen, asked, tried, held] = ["chosen", "asked", "tried", "held"]
        .map(|id| Key::new(&Reach::organization(ORGANIZATION), &jobs(), id));
    let insert = |key: &Key, at: Instant| Write::Insert {
        key: key.clone(),
        draft: shelf(at, record(&key.id).to_string()),
    };
    let began = bed.timed.now();
    bed.commit(vec![insert(&chosen, began.plus_ms(100 * HOUR_MS))]).await;
    bed.timed.pass(48 * HOUR_MS);
    let ahead = bed.timed.now();
    bed.commit(vec![insert(&tried, ahead), insert(&held, ahead)]).await;
    let take = Take {
        reach: None,
        space: jobs(),
        group: format!("{ORGANIZATION}/shelf"),
        until: ahead.plus_ms(HOUR_MS),
        tokens: vec!["one".into(), "other".into()],
    };
    let unit = Unit { takes: vec![take], ..Unit::default() };
    let taken = bed.store.commit(unit).await.expect("both are due").taken.concat();
    let token = |key: &Key| {
        let taken = taken.iter().find(|taken| taken.key == *key);
        taken.expect("it was handed out").token.clone()
    };
    let due_at = ahead.plus_ms(HOUR_MS);
    let release = Write::Release { key: tried.clone(), token: token(&tried), due_at, undo: false };
    bed.commit(vec![release, insert(&asked, due_at)]).await;

    bed.timed.pass(-48 * HOUR_MS);
    for (key, within_ms) in [(&asked, HOUR_MS), (&tried, 2 * HOUR_MS), (&held, 2 * HOUR_MS)] {
        until(&bed, &key.id, async || due(&bed, key).await < ahead).await;
        assert!(due(&bed, key).await <= bed.timed.now().plus_ms(within_ms), "{}", key.id);
    }
    assert_eq!(due(&bed, &chosen).await, began.plus_ms(100 * HOUR_MS), "as it was asked for");
    let row = bed.store.get(&held).await.expect("the store answers").expect("it stays");
    assert_eq!(row.lease.expect("it is leased").token, Some(token(&held)), "it is held still");
    bed.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_erasure_that_a_clock_has_put_off_which_was_ahead_is_gone_on_with_at_once() {
    let bed = Bed::new().await;
    let erasure = Erasure {
        organization: ORGANIZATION.into(),
        reach: "k/gone".into(),
        since: bed.timed.now(),
        ..Erasure::default()
    };
    let lease = Some((format!("{ORGANIZATION}/{ERASURES}"), bed.timed.now().plus_ms(30 * HOUR_MS)));
    let body = serde_json::to_string(&erasure).expect("text");
    let draft = Draft { lease, body, ..Draft::default() };
    bed.commit(vec![Write::Insert { key: erasure.key(), draft }]).await;
    bed.timed.pass(HOUR_MS);
    // Somebody is told the time of a clock that is ahead.
    bed.store.now();
    bed.timed.pass(-HOUR_MS);
    until(&bed, "it is looked at", async || {
        let row = bed.store.get(&erasure.key()).await.expect("the store answers");
        row.and_then(|row| row.lease).is_none_or(|lease| lease.due_at <= bed.timed.now())
    })
    .await;
    bed.end().await;
}
