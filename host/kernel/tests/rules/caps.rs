//! A cap from its rule to its row: no interleaving of decisions and commits overshoots it, and its
//! meter equals the sum of the records.

use charter_kernel::calendar::{Calendar, Slot};
use charter_kernel::governance::gauge::{
    Cap, Gauge, Look, grant_meter, grant_scope, is_grants, limit_scope,
};
use charter_kernel::governance::hold::{Counted, Hold, State, Word, meters_space};
use charter_kernel::governance::policy::Grant;
use charter_kernel::kit::Period;
use charter_kernel::meter::{Admission, Meter};
use charter_kernel::time::Instant;
use charter_kernel::unit::{Guard, Key, Reach, Unit, Write};
use proptest::prelude::*;

use crate::bed::{Database, NOW, draft, unit};
use crate::holds::{free, paid};

const MOST: i64 = 100;

fn cap(scope: &str, unit: Counted, most: Option<i64>, hard: bool) -> Cap {
    Cap {
        scope: scope.to_owned(),
        unit,
        meter: Key::new(&Reach::user("u"), &meters_space(), scope),
        most,
        hard,
        calendar: Calendar::new(Period::Day, "UTC").unwrap(),
        guards: Vec::new(),
    }
}

/// The cap as a request finds it: by its row, or by the spend records where the row does not know.
fn look(database: &Database, cap: Cap, now: Instant) -> Gauge {
    let row = database.rows.get(&cap.meter);
    let known =
        row.map(|stored| (serde_json::from_str(&stored.row.body).unwrap(), stored.row.version));
    match cap.look(known, now) {
        Look::Counted(gauge) => gauge,
        Look::Unsummed(unsummed) => {
            let sum =
                if unsummed.cap().is_recorded() { recorded(database, unsummed.since()) } else { 0 };
            unsummed.sum_up(sum)
        }
    }
}

/// The sum of the spend records since a moment.
fn recorded(database: &Database, since: Instant) -> i64 {
    let records = database.rows.iter().filter(|(key, _)| key.space.as_str() == "host.spend");
    records
        .map(|(_, stored)| serde_json::from_str::<serde_json::Value>(&stored.row.body).unwrap())
        .filter(|body| Instant::parse(body["at"].as_str().unwrap()).unwrap() >= since)
        .map(|body| body["spent_micro_usd"].as_i64().unwrap())
        .sum()
}

/// A hold by the gauge that its request saw, and the unit that takes it.
fn taking(id: &str, gauge: &Gauge, amount: i64, at: Instant) -> (Hold, Unit) {
    let hold = Hold {
        amount: Some(amount),
        capturable: Some(amount),
        reported: false,
        charges: vec![gauge.charge(amount, false)],
        at,
        ..free()
    };
    let writes = gauge.opening().into_iter().chain(hold.take(id)).collect();
    let guards = gauge.guards().collect();
    (hold, Unit { guards, ..unit(writes) })
}

fn user() -> Cap {
    cap("user", Counted::Money, Some(MOST), true)
}

#[test]
fn scopes_of_grants_and_limits_are_told_by_their_beginnings() {
    let limit = cap(&limit_scope("l"), Counted::Times, Some(1), true);
    assert_eq!(
        (limit.scope.as_str(), limit.limit(), limit.is_recorded()),
        ("limit:l", Some("l"), false)
    );
    let grant = cap(&grant_scope("g"), Counted::Times, Some(1), true);
    assert_eq!(
        (grant.scope.as_str(), grant.limit(), grant.is_recorded()),
        ("grant:g", None, false)
    );
    for (scope, recorded) in
        [("organization", true), ("project", true), ("user", true), ("kit", true), ("card", false)]
    {
        let cap = cap(scope, Counted::Money, None, true);
        assert_eq!((cap.is_recorded(), cap.limit()), (recorded, None), "{scope}");
    }
    let given: Grant = serde_json::from_value(serde_json::json!({
        "id": "g", "user_id": "u", "actions": ["*"], "until": "2030-01-01T00:00:00Z", "reason": "r",
    }))
    .unwrap();
    let meter = grant_meter(&given, "count");
    assert_eq!((meter.id.as_str(), meter.reach.as_str()), ("grant:g:count", "u/u"));
    assert!(is_grants(&meter) && !is_grants(&user().meter));
}

#[test]
fn a_soft_cap_and_a_grant_give_way_and_a_hard_cap_does_not() {
    let database = Database::default();
    let gives = |scope: &str, hard| {
        look(&database, cap(scope, Counted::Money, Some(1), hard), NOW).gives_way()
    };
    assert!(gives("user", false) && gives("grant:g", true));
    assert!(!gives("user", true) && !gives("limit:l", true));
}

#[test]
fn a_cap_that_was_read_from_a_row_requires_it_unchanged() {
    let own = Guard::Unchanged { key: crate::bed::key("cap"), version: 3 };
    let guarded = Cap { guards: vec![own.clone()], ..cap("card", Counted::Money, Some(1), true) };
    let gauge = look(&Database::default(), guarded, NOW);
    assert_eq!(gauge.guards().collect::<Vec<_>>(), [own]);
    // A row that is there and counts by another period has to be the one that was summed up.
    let week = Meter::new(Slot::new("week UTC", "2026-10-26"), 5);
    let found = match user().look(Some((week, 9)), NOW) {
        Look::Unsummed(unsummed) => unsummed.sum_up(7),
        Look::Counted(gauge) => panic!("{gauge:?}"),
    };
    let same = Guard::Version { key: user().meter, version: Some(9) };
    assert_eq!(found.guards().collect::<Vec<_>>(), [same]);
    assert!(matches!(found.opening(), Some(Write::Open { spent: 7, .. })));
}

#[test]
fn an_amount_is_charged_as_the_cap_counts() {
    let database = Database::default();
    let money = look(&database, user(), NOW);
    let times = look(&database, cap("limit:l", Counted::Times, Some(2), true), NOW);
    let uncapped = look(&database, cap("kit", Counted::Money, None, true), NOW);
    assert_eq!(money.charge(40, false).admission, Admission::Within(MOST));
    assert_eq!(
        (money.charge(40, true).admission, money.charge(40, false).amount),
        (Admission::Beyond(MOST), 40)
    );
    assert_eq!((times.charge(40, false).amount, times.charge(0, false).amount), (1, 1));
    assert_eq!(uncapped.charge(40, false).admission, Admission::Within(i64::MAX));
    assert_eq!(money.charge(40, false).slot, money.window.slot);
    assert!(times.admits(1_000) && money.admits(MOST) && !money.admits(MOST + 1));
}

#[test]
fn a_first_cap_begins_with_what_was_spent_in_its_window() {
    let mut database = Database::default();
    let spent = Hold { charges: Vec::new(), pay: None, ..paid(60) };
    let capture = spent.admit_capture(60, Word::Asker).unwrap();
    database.run(spent.take_with("h", spent.capture("h", capture, NOW))).unwrap();
    let gauge = look(&database, user(), NOW);
    assert_eq!((gauge.count.spent, gauge.admits(40), gauge.admits(41)), (60, true, false));
    let tomorrow = look(&database, user(), NOW.plus_ms(86_400_000));
    assert_eq!(tomorrow.count.spent, 0);
}

#[test]
fn two_first_uses_at_once_sum_up_one_after_the_other() {
    let mut database = Database::default();
    let gauge = look(&database, user(), NOW);
    let (_, first) = taking("a", &gauge, 70, NOW);
    let (_, second) = taking("b", &gauge, 70, NOW);
    let answers = database.batch(&[first, second]);
    assert!(answers[0].is_ok() && answers[1].is_err());
    let again = look(&database, user(), NOW);
    assert_eq!((again.count.reserved, again.admits(30), again.admits(31)), (70, true, false));
}

/// A step of one of several requests, which see what was committed when they looked.
#[derive(Clone, Debug)]
enum Turn {
    Look(usize),
    Take(usize, i64),
    End(usize, i64),
    Begin,
}

fn turns() -> impl Strategy<Value = Vec<Turn>> {
    let one = prop_oneof![
        2 => (0..4_usize).prop_map(Turn::Look),
        4 => (0..4_usize, 1..70_i64).prop_map(|(who, amount)| Turn::Take(who, amount)),
        3 => (0..16_usize, 0..90_i64).prop_map(|(which, actual)| Turn::End(which, actual)),
        1 => Just(Turn::Begin),
    ];
    prop::collection::vec(one, 0..40)
}

/// The host begins a cap anew: its row does not know any more what was spent.
fn begin(database: &mut Database) {
    let meter = user().meter;
    let before =
        database.rows.get(&meter).map(|stored| serde_json::from_str(&stored.row.body).unwrap());
    let body = serde_json::to_string(&Meter::begin(before)).unwrap();
    database.run(vec![Write::Put { key: meter, draft: draft(&body) }]).unwrap();
}

fn check(database: &Database) -> Result<(), TestCaseError> {
    let holds: Vec<Hold> = database
        .rows
        .iter()
        .filter(|(key, _)| key.space.as_str() == "host.holds")
        .map(|(_, stored)| serde_json::from_str(&stored.row.body).unwrap())
        .collect();
    let sum = |of: fn(&Hold) -> Option<i64>| holds.iter().filter_map(of).sum::<i64>();
    let held = sum(|hold| (!hold.state.is_over()).then_some(hold.amount?));
    let spent = sum(|hold| hold.actual);
    prop_assert_eq!(recorded(database, Instant(0)), spent, "records are what was captured");
    if let Some(stored) = database.rows.get(&user().meter) {
        let meter: Meter = serde_json::from_str(&stored.row.body).unwrap();
        prop_assert_eq!(meter.counts.values().map(|count| count.reserved).sum::<i64>(), held);
        if meter.whole {
            prop_assert_eq!(meter.now().spent, spent, "the meter is what the records are");
        }
    }
    prop_assert!(held + spent <= MOST, "{} held and {} spent", held, spent);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_interleaving_overshoots_a_cap(turns in turns()) {
        let mut database = Database::default();
        let mut seen: Vec<Gauge> = (0..4).map(|_| look(&database, user(), NOW)).collect();
        let mut taken: Vec<String> = Vec::new();
        for turn in turns {
            match turn {
                Turn::Look(who) => seen[who] = look(&database, user(), NOW),
                Turn::Take(who, amount) => {
                    let id = format!("h{}", taken.len());
                    let (_, unit) = taking(&id, &seen[who], amount, NOW);
                    if database.commit(unit).is_ok() {
                        taken.push(id);
                    }
                }
                Turn::End(which, actual) if !taken.is_empty() => {
                    let id = taken[which % taken.len()].clone();
                    let key = charter_kernel::governance::hold::key("o", &id);
                    let hold: Hold = serde_json::from_str(&database.row(&key).body).unwrap();
                    if hold.state != State::Held {
                        continue;
                    }
                    let step = match hold.admit_capture(actual, Word::Asker) {
                        Ok(capture) => hold.capture(&id, capture, NOW),
                        Err(_) => hold.void(&id, NOW),
                    };
                    let ended = Unit { guards: step.guards, ..unit(step.writes) };
                    prop_assert!(database.commit(ended).is_ok());
                }
                Turn::End(..) => {}
                Turn::Begin => begin(&mut database),
            }
            check(&database)?;
        }
    }
}

/// A change of what is capped, or of the time, between the steps of holds.
#[derive(Clone, Debug)]
enum Change {
    Hours(i64),
    Cap(Option<usize>),
    Take(i64),
    End(usize, i64),
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let one = prop_oneof![
        2 => (1..40_i64).prop_map(Change::Hours),
        2 => prop::option::weighted(0.8, 0..Period::ALL.len()).prop_map(Change::Cap),
        4 => (1..100_i64).prop_map(Change::Take),
        3 => (0..8_usize, 0..90_i64).prop_map(|(which, actual)| Change::End(which, actual)),
    ];
    prop::collection::vec(one, 0..60)
}

/// A hold, as the plainest book keeps it.
struct Booked {
    id: String,
    slot: Option<Slot>,
    amount: i64,
    captured: Option<(Instant, i64)>,
}

impl Booked {
    /// Its amount in a window: what is held of another period counts too, and what was captured in
    /// it, but not what counts in an earlier window of the same period.
    fn stands_in(&self, slot: &Slot, starts: Instant) -> i64 {
        let is_earlier = self.slot.as_ref().is_some_and(|own| own.is_alike(slot) && own != slot);
        match self.captured {
            _ if is_earlier => 0,
            Some((at, actual)) if at >= starts => actual,
            None if self.slot.is_some() => self.amount,
            _ => 0,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// Nothing is admitted for which the window has no room, whatever cap comes and goes or changes
    /// its period, and whenever a hold is captured.
    #[test]
    fn no_change_of_a_cap_or_its_period_makes_room(changes in changes()) {
        let mut database = Database::default();
        let (mut now, mut period, mut book) = (NOW, None, Vec::<Booked>::new());
        for change in changes {
            match change {
                Change::Hours(hours) => now = now.plus_ms(hours * 3_600_000),
                Change::Cap(next) => {
                    if period.is_none() && next.is_some() {
                        begin(&mut database);
                    }
                    period = next;
                }
                Change::Take(amount) => {
                    let id = format!("h{}", book.len());
                    let Some(period) = period else {
                        let hold = Hold { amount: Some(amount), capturable: Some(amount), charges: Vec::new(), at: now, ..free() };
                        prop_assert!(database.commit(unit(hold.take(&id))).is_ok());
                        book.push(Booked { id, slot: None, amount, captured: None });
                        continue;
                    };
                    let calendar = Calendar::new(Period::ALL[period], "UTC").unwrap();
                    let gauge = look(&database, Cap { calendar, ..user() }, now);
                    let (_, taken) = taking(&id, &gauge, amount, now);
                    let (slot, starts) = (gauge.window.slot.clone(), gauge.window.starts);
                    let stands: i64 = book.iter().map(|one| one.stands_in(&slot, starts)).sum();
                    if database.commit(taken).is_ok() {
                        prop_assert!(stands + amount <= MOST, "{} beside {} in {:?}", amount, stands, slot);
                        book.push(Booked { id, slot: Some(slot), amount, captured: None });
                    }
                }
                Change::End(which, actual) => {
                    let open: Vec<&mut Booked> = book.iter_mut().filter(|one| one.captured.is_none()).collect();
                    let count = open.len();
                    let Some(one) = open.into_iter().nth(which % count.max(1)) else { continue };
                    let key = charter_kernel::governance::hold::key("o", &one.id);
                    let hold: Hold = serde_json::from_str(&database.row(&key).body).unwrap();
                    let actual = actual.min(one.amount);
                    let step = hold.capture(&one.id, hold.admit_capture(actual, Word::Asker).unwrap(), now);
                    let ended = Unit { guards: step.guards, ..unit(step.writes) };
                    prop_assert!(database.commit(ended).is_ok());
                    one.captured = Some((now, actual));
                }
            }
        }
    }
}
