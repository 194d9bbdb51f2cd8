//! A batch decided at once against the same units decided one by one, each on a database of its own
//! making.

use std::collections::BTreeMap;

use proptest::prelude::*;

mod holds;

use super::{Head, State, Stored, Touches, add_to_body, apply, check, merge};
use crate::calendar::Slot;
use crate::governance::hold::is_book;
use crate::ledger::{Account, Normal, Phase};
use crate::limits::TAKEN_BYTES_MAX;
use crate::meter::{Admission, Meter, Tally};
use crate::time::Instant;
use crate::unit::{
    Applied, Claim, Draft, Guard, Key, LogKey, Reach, Refused, Rejection, Space, Take, Unit, Write,
};

/// A database, as plainly as one can be written down.
#[derive(Clone, Debug, Default, PartialEq)]
struct Model {
    rows: BTreeMap<Key, Stored>,
    claims: BTreeMap<Claim, Key>,
    spaces: BTreeMap<(Reach, Space), u64>,
    logs: BTreeMap<LogKey, Head>,
    groups: BTreeMap<(Space, String), i64>,
    entries: usize,
}

impl Model {
    /// The part of it that a prefetch would know.
    fn prefetch<'a>(&self, units: impl Iterator<Item = &'a Unit>) -> State {
        let mut touches = Touches::default();
        units.for_each(|unit| touches.add(unit, true));
        let mut state = State::new(true);
        for key in touches.rows.keys() {
            state.know_row(key.clone(), self.rows.get(key).cloned());
        }
        for wanted in touches.groups.keys() {
            for (key, stored) in &self.rows {
                let lease = stored.row.lease.as_ref();
                if key.space == wanted.space
                    && lease.is_some_and(|lease| lease.group == wanted.group && lease.due_at <= NOW)
                {
                    state.know_row(key.clone(), Some(stored.clone()));
                    touches.spaces.insert((key.reach.clone(), key.space.clone()));
                }
            }
        }
        for claim in touches.claims {
            let holder = self.claims.get(&claim).cloned();
            state.know_claim(claim, holder);
        }
        for (reach, space) in touches.spaces {
            let revision = self.spaces.get(&(reach.clone(), space.clone())).copied();
            state.know_space(reach, space, revision);
        }
        for log in touches.logs {
            let head = self.logs.get(&log).copied();
            state.know_log(log, head);
        }
        state
    }

    /// Writes what a batch decided, holding each guard as the database would.
    fn write(&mut self, state: &State) {
        let changes = state.changes();
        for change in &changes.rows {
            assert_eq!(
                self.rows.get(change.key).map(|row| row.stamp),
                change.before.map(|row| row.stamp)
            );
            match change.after {
                Some(after) => self.rows.insert(change.key.clone(), after.clone()),
                None => self.rows.remove(change.key),
            };
        }
        for change in &changes.claims {
            assert_eq!(self.claims.get(change.claim), change.before);
            match change.after {
                Some(after) => self.claims.insert(change.claim.clone(), after.clone()),
                None => self.claims.remove(change.claim),
            };
        }
        for change in &changes.spaces {
            let at = (change.reach.clone(), change.space.clone());
            assert_eq!(self.spaces.get(&at).copied(), change.before);
            self.spaces.insert(at, change.after);
        }
        for change in &changes.logs {
            self.logs.insert(change.log.clone(), change.after);
        }
        for change in &changes.groups {
            *self.groups.entry((change.space.clone(), change.group.into())).or_default() +=
                change.by;
        }
        self.groups.retain(|_, n| *n != 0);
        self.entries += changes.entries.len();
    }

    fn run(&mut self, units: &[Unit]) -> Vec<Result<Applied, Rejection>> {
        let mut state = self.prefetch(units.iter());
        let answers = units.iter().map(|unit| apply(&mut state, unit, NOW)).collect();
        self.write(&state);
        answers
    }

    /// The invariants of every database.
    fn holds(&self) {
        let mut claims = BTreeMap::new();
        let mut groups: BTreeMap<(Space, String), i64> = BTreeMap::new();
        for (key, stored) in &self.rows {
            for (field, value) in &stored.row.unique {
                let claim = Claim::unique(&key.reach, &key.space, field, value);
                assert_eq!(
                    claims.insert(claim, key.clone()),
                    None,
                    "two rows have one unique value"
                );
            }
            for name in &stored.names {
                assert_eq!(
                    claims.insert(name.clone(), key.clone()),
                    None,
                    "two rows have one name"
                );
            }
            if let Some(lease) = stored.row.lease.as_ref().filter(|_| !is_book(&key.space)) {
                *groups.entry((key.space.clone(), lease.group.clone())).or_default() += 1;
            }
        }
        assert_eq!(self.claims, claims, "claims and rows agree");
        assert_eq!(self.groups, groups, "group sizes and rows agree");
        let accounts = self.rows.iter().filter(|(key, _)| key.space == account(0).space);
        let sums =
            accounts.map(|(_, stored)| serde_json::from_str::<Account>(&stored.row.body).unwrap());
        assert_eq!(
            sums.map(|account| account.debits - account.credits).sum::<i64>(),
            0,
            "debits and credits agree"
        );
    }
}

const NOW: Instant = Instant(1_000);

fn key(n: u8) -> Key {
    Key::new(&Reach::user("u"), &Space::of("p", "c"), format!("k{n}"))
}

fn name(n: u8) -> Claim {
    Claim::name("host", &format!("n{n}"))
}

fn log(n: u8) -> LogKey {
    LogKey { reach: Reach::user("u"), log: format!("p.l{n}") }
}

fn draft() -> impl Strategy<Value = Draft> {
    (0..50_i64, prop::option::of(0..3_u8), prop::option::of((0..2_u8, 990..1_010_i64))).prop_map(
        |(n, unique, lease)| Draft {
            body: format!("{{\"n\":{n}}}"),
            index: vec![("n".into(), n.to_string())],
            unique: unique.map(|value| ("v".into(), value.to_string())).into_iter().collect(),
            lease: lease.map(|(group, due)| (format!("g{group}"), Instant(due))),
            ..Draft::default()
        },
    )
}

fn write() -> impl Strategy<Value = Write> {
    let token = (0..4_u8).prop_map(|n| format!("t{n}"));
    prop_oneof![
        3 => (0..5_u8, draft()).prop_map(|(k, draft)| Write::Insert { key: key(k), draft }),
        2 => (0..5_u8, draft(), prop::option::of(1..4_u64))
            .prop_map(|(k, draft, expected)| Write::Replace { key: key(k), draft, expected }),
        2 => (0..5_u8, draft()).prop_map(|(k, draft)| Write::Put { key: key(k), draft }),
        2 => (0..5_u8).prop_map(|k| Write::Remove { key: key(k), expected: None }),
        2 => (0..5_u8, -3..3_i64).prop_map(|(k, amount)| Write::Add { key: key(k), field: "n".into(), amount }),
        1 => (0..2_u8, 0..5_u8).prop_map(|(n, k)| Write::Claim { claim: name(n), holder: key(k) }),
        1 => (0..2_u8, 0..5_u8).prop_map(|(n, k)| Write::Unclaim { claim: name(n), holder: key(k) }),
        1 => (0..2_u8).prop_map(|n| Write::Append { log: log(n), name: "e".into(), payload: "{}".into() }),
        1 => (0..2_u8).prop_map(|n| Write::Close { log: log(n) }),
        1 => (0..5_u8, token.clone()).prop_map(|(k, token)| Write::Settle { key: key(k), token }),
        1 => (0..5_u8, token.clone()).prop_map(|(k, token)| Write::Extend { key: key(k), token, until: Instant(2_000) }),
        1 => (0..5_u8, token, any::<bool>())
            .prop_map(|(k, token, undo)| Write::Release { key: key(k), token, due_at: Instant(995), undo }),
        1 => (0..5_u8).prop_map(|k| Write::Defer { key: key(k), due_at: Instant(1_500) }),
        2 => money(),
    ]
}

fn meter(n: u8) -> Key {
    Key::new(&Reach::user("u"), &Space::host("meters"), format!("m{n}"))
}

fn account(n: u8) -> Key {
    Key::new(&Reach::user("u"), &Space::host("ledger"), format!("a{n}"))
}

fn day(n: u8) -> Slot {
    Slot::new("day UTC", &format!("2026-11-0{n}"))
}

/// The row is made by whoever comes first.
fn ensured<T: serde::Serialize>(key: Key, row: &T) -> Write {
    Write::Ensure {
        key,
        draft: Draft { body: serde_json::to_string(row).unwrap(), ..Draft::default() },
    }
}

fn money() -> impl Strategy<Value = Write> {
    let phase = prop_oneof![
        Just(Phase::Post),
        Just(Phase::Reserve),
        Just(Phase::Settle { reserved: 2 }),
        Just(Phase::Void)
    ];
    let tally = (0..3_i64, 0..3_i64, any::<bool>()).prop_map(|(released, spent, beyond)| Tally {
        released,
        spent,
        beyond,
        freezes: false,
        at: NOW,
    });
    prop_oneof![
        (0..2_u8).prop_map(|n| ensured(meter(n), &Meter::new(day(1), 0))),
        (0..3_u8).prop_map(|n| ensured(account(n), &Account::new(Normal::Credit, n == 0))),
        (0..2_u8, 1..3_u8, 0..4_i64).prop_map(|(n, date, spent)| Write::Open {
            meter: meter(n),
            slot: day(date),
            spent,
            since: None
        }),
        (0..2_u8, 1..3_u8, 0..4_i64).prop_map(|(n, date, amount)| Write::Reserve {
            meter: meter(n),
            slot: day(date),
            amount,
            admission: Admission::Within(7)
        }),
        (0..2_u8, 1..3_u8, tally).prop_map(|(n, date, tally)| Write::Tally {
            meter: meter(n),
            slot: day(date),
            tally
        }),
        (0..3_u8, 0..3_u8, 0..4_i64, phase).prop_map(|(from, to, amount, phase)| Write::Transfer {
            from: account(from),
            to: account(to),
            amount,
            phase
        }),
    ]
}

fn guard() -> impl Strategy<Value = Guard> {
    prop_oneof![
        (0..5_u8, prop::option::of(1..3_u64))
            .prop_map(|(k, version)| Guard::Version { key: key(k), version }),
        (0..5_u8, 1..3_u64).prop_map(|(k, version)| Guard::Unchanged { key: key(k), version }),
        (0..5_u8, 0..3_i64).prop_map(|(k, at)| Guard::Inserted { key: key(k), at: Instant(at) }),
        (0..5_u8, 1..6_u64).prop_map(|(k, stamp)| Guard::Stamp { key: key(k), stamp }),
        (0..6_u64).prop_map(|revision| Guard::Revision {
            reach: key(0).reach,
            space: key(0).space,
            revision
        }),
        (0..2_u8, prop::option::of(0..5_u8))
            .prop_map(|(n, k)| Guard::Claim { claim: name(n), holder: k.map(|k| key(k).id) }),
        (0..5_u8, 0..5_i64).prop_map(|(k, n)| Guard::Entry {
            key: key(k),
            field: "n".into(),
            value: n.to_string()
        }),
    ]
}

fn unit() -> impl Strategy<Value = Unit> {
    let take =
        (0..2_u8, 1..3_usize, 0..4_u8, any::<bool>()).prop_map(|(group, n, token, within)| Take {
            reach: within.then(|| Reach::user("u")),
            space: Space::of("p", "c"),
            group: format!("g{group}"),
            until: Instant(2_000),
            tokens: (0..n).map(|at| format!("t{}", (usize::from(token) + at) % 4)).collect(),
        });
    (
        prop::collection::vec(guard(), 0..2),
        prop::collection::vec(write(), 0..4),
        prop::collection::vec(take, 0..2),
    )
        .prop_map(|(guards, writes, takes)| Unit {
            organization: "o".into(),
            guards,
            writes,
            takes,
            ..Unit::default()
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_batch_decides_as_its_units_one_by_one_would(units in prop::collection::vec(unit(), 1..16), cut in 0..16_usize) {
        let mut alone = Model::default();
        // The revision of a space that is taken from must be known, even before its first write.
        alone.spaces.insert((key(0).reach, key(0).space), 0);
        let mut batched = alone.clone();
        let expected: Vec<_> = units.iter().flat_map(|unit| alone.run(std::slice::from_ref(unit))).collect();
        alone.holds();
        let (first, second) = units.split_at(cut.min(units.len()));
        let mut answers = batched.run(first);
        answers.extend(batched.run(second));
        batched.holds();
        prop_assert_eq!(answers, expected);
        prop_assert_eq!(batched, alone);
    }

    #[test]
    fn adding_keeps_every_other_member_as_it_is(n in any::<i64>(), by in any::<i64>()) {
        let body = format!(r#"{{"z":1.50,"n":{n},"a":"\u00e9 é"}}"#);
        match n.checked_add(by) {
            Some(sum) => prop_assert_eq!(
                add_to_body(&key(0), &body, "n", by).ok(),
                Some(format!(r#"{{"z":1.50,"n":{sum},"a":"\u00e9 é"}}"#))
            ),
            None => prop_assert!(add_to_body(&key(0), &body, "n", by).is_err()),
        }
    }
}

fn one(writes: Vec<Write>) -> Unit {
    Unit { writes, ..Unit::default() }
}

#[test]
fn a_refused_unit_leaves_no_trace() {
    let mut model = Model::default();
    let insert = |n| Write::Insert { key: key(n), draft: Draft::default() };
    let append = Write::Append { log: log(0), name: "e".into(), payload: "{}".into() };
    let answers =
        model.run(&[one(vec![append.clone(), insert(0)]), one(vec![append, insert(1), insert(0)])]);
    assert!(answers[0].is_ok());
    assert_eq!(answers[1], Err(Refused::Exists { key: key(0) }.into()));
    assert_eq!((model.rows.len(), model.entries), (1, 1));
    assert_eq!(model.logs[&log(0)].head, 1);
}

#[test]
fn a_batch_never_hands_out_one_row_twice() {
    let mut model = Model::default();
    let leased = |n| Write::Insert {
        key: key(n),
        draft: Draft { lease: Some(("g".into(), Instant(10))), ..Draft::default() },
    };
    model.run(&[one((0..3).map(leased).collect())]);
    let take = |token: &str, until| Unit {
        takes: vec![Take {
            reach: Some(key(0).reach),
            space: key(0).space,
            group: "g".into(),
            until: Instant(until),
            tokens: vec![format!("{token}1"), format!("{token}2")],
        }],
        ..Unit::default()
    };
    // The first asks for leases that end before they begin.
    let answers = model.run(&[take("a", 0), take("b", 5_000), take("c", 5_000)]);
    let keys: Vec<_> = answers
        .into_iter()
        .flatten()
        .flat_map(|applied| applied.taken)
        .flatten()
        .map(|t| t.key.id)
        .collect();
    assert_eq!(keys, ["k0", "k1", "k2"]);
}

#[test]
fn a_take_ends_when_its_bytes_are_full_and_hands_out_one_row_in_any_case() {
    let mut model = Model::default();
    let leased = |n: u8, bytes| Write::Insert {
        key: key(n),
        draft: Draft {
            lease: Some(("g".into(), Instant(10))),
            body: "x".repeat(bytes),
            ..Draft::default()
        },
    };
    let half = TAKEN_BYTES_MAX / 2;
    for (n, bytes) in (0..).zip([TAKEN_BYTES_MAX - 1, 2, half, half, half]) {
        model.run(&[one(vec![leased(n, bytes)])]);
    }
    let take = Unit {
        takes: vec![Take {
            reach: Some(key(0).reach),
            space: key(0).space,
            group: "g".into(),
            until: Instant(5_000),
            tokens: (0..5).map(|n| format!("t{n}")).collect(),
        }],
        ..Unit::default()
    };
    let mut handed_out = || -> Vec<String> {
        let answer = model.run(std::slice::from_ref(&take)).remove(0).unwrap();
        answer.taken.into_iter().flatten().map(|taken| taken.key.id).collect()
    };
    assert_eq!(handed_out(), ["k0"]);
    assert_eq!(handed_out(), ["k1", "k2"]);
    assert_eq!(handed_out(), ["k3", "k4"]);
    assert!(handed_out().is_empty());
}

#[test]
fn a_replace_does_not_end_a_lease_that_somebody_holds() {
    let lease = crate::unit::Lease {
        group: "g".into(),
        due_at: Instant(2_000),
        token: Some("t".into()),
        count: 3,
    };
    let leased = Draft { lease: Some(("g".into(), Instant(1))), ..Draft::default() };
    let mut old = merge(None, &leased, NOW, NOW);
    old.lease = Some(lease.clone());
    assert_eq!(merge(Some(&old), &leased, NOW, NOW).lease, Some(lease));
}

#[test]
fn the_limits_of_a_unit_are_checked() {
    let insert = |id: String| Write::Insert { key: Key { id, ..key(0) }, draft: Draft::default() };
    assert!(check(&one((0..1_000).map(|n| insert(n.to_string())).collect())).is_ok());
    assert!(check(&one((0..1_001).map(|n| insert(n.to_string())).collect())).is_err());
    assert!(check(&one(vec![insert("x".repeat(512))])).is_ok());
    assert!(check(&one(vec![insert("x".repeat(513))])).is_err());
    assert!(check(&one(vec![insert("a\0".into())])).is_err());
    let large = |bytes| {
        let draft = Draft { body: "x".repeat(bytes), ..Draft::default() };
        one(vec![Write::Insert { key: key(0), draft }])
    };
    assert!(check(&large(4 * 1024 * 1024)).is_ok());
    assert!(check(&large(4 * 1024 * 1024 + 1)).is_err());
}

#[test]
fn what_requests_are_decided_by_is_held_by_many_and_must_be_as_it_was() {
    let mut model = Model::default();
    let insert = Write::Insert { key: key(1), draft: Draft::default() };
    let by = |version: u64| Unit {
        guards: vec![Guard::Unchanged { key: key(1), version }],
        ..one(vec![])
    };
    let answers = model.run(&[one(vec![insert]), by(1), by(2)]);
    assert!(answers[1].is_ok());
    assert_eq!(answers[2], Err(Rejection::Conflict { keys: vec![key(1)] }));
    let mut touches = Touches::default();
    touches.add(&by(1), true);
    assert_eq!(touches.rows[&key(1)], super::RowLock::Shared);
}
