//! The limits of one unit: what fits in every database is taken, and nothing else.

use charter_kernel::apply::{check, claim_fits, key_fits, size, text_fits};
use charter_kernel::calendar::Slot;
use charter_kernel::ledger::Phase;
use charter_kernel::limits::{KEY_BYTES_MAX, UNIT_BYTES_MAX, UNIT_ROWS_MAX};
use charter_kernel::meter::{Admission, Tally};
use charter_kernel::unit::{
    Claim, Draft, Fact, FactKind, Guard, Key, LogKey, Reach, Refused, Space, Take, Unit, Write,
};

use crate::bed::{NOW, draft, insert, key, reach, space, take, unit};

const KEYS: &str = "keys of 1 to 512 bytes without NUL";

fn limit(unit: &Unit) -> Option<&'static str> {
    match check(unit) {
        Ok(()) => None,
        Err(Refused::TooLarge { limit }) => Some(limit),
        Err(other) => panic!("{other:?}"),
    }
}

fn long() -> String {
    "x".repeat(KEY_BYTES_MAX + 1)
}

fn fact() -> Fact {
    Fact {
        id: "f".into(),
        kind: FactKind::Audit,
        organization: "o".into(),
        at: NOW,
        name: "shelf.sort".into(),
        body: "{}".into(),
        private: Some("{}".into()),
        user: Some("u".into()),
    }
}

#[test]
fn a_text_fits_up_to_its_last_byte_and_without_nul() {
    assert!(text_fits("") && text_fits(&"x".repeat(KEY_BYTES_MAX)));
    assert!(!text_fits(&long()) && !text_fits("a\0b"));
    let at = |id: &str| Key { id: id.into(), ..key("") };
    assert!(key_fits(&at("a")) && !key_fits(&at("")) && !key_fits(&at(&long())));
    assert!(!key_fits(&Key { space: Space::from_store(String::new()), ..key("a") }));
    assert!(!key_fits(&Key { reach: Reach::from_store("u/\0".into()), ..key("a") }));
    assert!(claim_fits(&Claim::name("n", "")) && !claim_fits(&Claim::name("n", &long())));
    let nowhere = Claim { space: String::new(), ..Claim::name("n", "a") };
    assert!(!claim_fits(&nowhere));
}

#[test]
fn rows_written_and_rows_read_are_counted_apart() {
    let many = |n: usize| (0..n).map(|n| insert(&n.to_string(), "{}")).collect::<Vec<_>>();
    assert_eq!(limit(&unit(many(UNIT_ROWS_MAX))), None);
    assert_eq!(limit(&unit(many(UNIT_ROWS_MAX + 1))), Some("1,000 rows written"));
    let with_fact = Unit { facts: vec![fact()], ..unit(many(UNIT_ROWS_MAX)) };
    assert_eq!(limit(&with_fact), Some("1,000 rows written"));
    let tokens: Vec<&str> = vec!["t"; UNIT_ROWS_MAX];
    let taking = take("g", NOW, &tokens);
    assert_eq!(limit(&taking), None);
    let one_more = Unit { writes: many(1), ..taking };
    assert_eq!(limit(&one_more), Some("1,000 rows written"), "each row handed out is written");
    let takes = take("g", NOW, &[]).takes;
    let many_takes = |n| Unit { takes: vec![takes[0].clone(); n], ..unit(Vec::new()) };
    assert_eq!(limit(&many_takes(UNIT_ROWS_MAX)), None);
    assert_eq!(limit(&many_takes(UNIT_ROWS_MAX + 1)), Some("1,000 rows read"));
    let guard = Guard::Version { key: key("a"), version: None };
    let guarded = |n| Unit { guards: vec![guard.clone(); n], ..unit(many(UNIT_ROWS_MAX)) };
    assert_eq!(limit(&guarded(UNIT_ROWS_MAX)), None);
    assert_eq!(limit(&guarded(UNIT_ROWS_MAX + 1)), Some("1,000 rows read"));
}

#[test]
fn bytes_are_those_of_bodies_entries_texts_and_facts() {
    let body = |bytes: usize| "x".repeat(bytes);
    let with = |draft: Draft| unit(vec![Write::Put { key: key("a"), draft }]);
    let entry = |value: usize| vec![("f".to_owned(), body(value))];
    assert_eq!(limit(&with(draft(&body(UNIT_BYTES_MAX)))), None);
    let full = || draft(&body(UNIT_BYTES_MAX - 10));
    for more in [
        Draft { text: Some(body(11)), ..full() },
        Draft { index: entry(10), ..full() },
        Draft { unique: entry(10), ..full() },
    ] {
        assert_eq!(limit(&with(more)), Some("4 MiB"));
    }
    let log = LogKey { reach: reach(), log: "l".into() };
    let append = Write::Append { log, name: "e".into(), payload: body(UNIT_BYTES_MAX) };
    assert_eq!(limit(&unit(vec![append])), Some("4 MiB"));
    // Ten bytes of a name, two of a body and one of a row beside it.
    let told = |private: usize| {
        let heavy = Fact { private: Some(body(private)), ..fact() };
        limit(&Unit { facts: vec![heavy], ..with(draft("1")) })
    };
    assert_eq!(told(UNIT_BYTES_MAX - 13), None);
    assert_eq!(told(UNIT_BYTES_MAX - 12), Some("4 MiB"));
}

#[test]
fn the_size_of_a_unit_bounds_queues() {
    assert_eq!(size(&unit(Vec::new())), (0, 0));
    assert_eq!(size(&unit(vec![insert("a", "{\"n\":1}")])), (1, 7 + 128));
    let guard = Guard::Version { key: key("a"), version: None };
    assert_eq!(size(&Unit { guards: vec![guard], ..unit(Vec::new()) }), (1, 128));
    assert_eq!(size(&take("g", NOW, &["a", "b"])), (2, 256));
    let fact = Fact { private: Some("{ }".into()), ..fact() };
    let told = Unit { facts: vec![fact], ..unit(Vec::new()) };
    assert_eq!(size(&told), (1, 1 + 10 + 2 + 3 + 128));
}

/// Every guard, with one text in the place where a key stands.
fn guards(text: &str) -> Vec<Guard> {
    let key = key(text);
    vec![
        Guard::Version { key: key.clone(), version: None },
        Guard::Unchanged { key: key.clone(), version: 1 },
        Guard::Inserted { key: key.clone(), at: NOW },
        Guard::Stamp { key: key.clone(), stamp: 1 },
        Guard::Lease { key: key.clone(), token: "t".into() },
        Guard::Entry { key, field: "f".into(), value: "v".into() },
        Guard::Revision { reach: reach(), space: Space::from_store(text.to_owned()), revision: 0 },
        Guard::Claim {
            claim: Claim { space: text.to_owned(), ..Claim::name("n", "a") },
            holder: None,
        },
    ]
}

/// Every write, with one text in the place where a key stands.
fn writes(text: &str) -> Vec<Write> {
    let (key, slot, draft) = (key(text), Slot::without_cap(), draft("{}"));
    let log = LogKey { reach: reach(), log: text.to_owned() };
    let claim = Claim::name("n", "a");
    let tally = Tally { released: 0, spent: 0, beyond: false, freezes: false, at: NOW };
    let at = || key.clone();
    vec![
        Write::Insert { key: at(), draft: draft.clone() },
        Write::Replace { key: at(), draft: draft.clone(), expected: None },
        Write::Put { key: at(), draft: draft.clone() },
        Write::Ensure { key: at(), draft },
        Write::Remove { key: at(), expected: None },
        Write::Add { key: at(), field: "f".into(), amount: 1 },
        Write::Open { meter: at(), slot: slot.clone(), spent: 0, since: None },
        Write::Reserve {
            meter: at(),
            slot: slot.clone(),
            amount: 0,
            admission: Admission::Beyond(0),
        },
        Write::Tally { meter: at(), slot, tally },
        Write::Transfer { from: at(), to: crate::bed::key("b"), amount: 1, phase: Phase::Post },
        Write::Transfer { from: crate::bed::key("b"), to: at(), amount: 1, phase: Phase::Post },
        Write::Freeze { account: at(), frozen: true },
        Write::Claim { claim: claim.clone(), holder: at() },
        Write::Unclaim { claim, holder: at() },
        Write::Append { log: log.clone(), name: "e".into(), payload: "{}".into() },
        Write::Close { log },
        Write::Extend { key: at(), token: "t".into(), until: NOW },
        Write::Release { key: at(), token: "t".into(), due_at: NOW, undo: false },
        Write::Settle { key: at(), token: "t".into() },
        Write::Defer { key: at(), due_at: NOW },
    ]
}

#[test]
fn a_key_that_no_database_holds_is_refused_wherever_it_stands() {
    for guard in guards("fits") {
        let unit = Unit { guards: vec![guard.clone()], ..unit(Vec::new()) };
        assert_eq!(limit(&unit), None, "{guard:?}");
    }
    for write in writes("fits") {
        assert_eq!(limit(&unit(vec![write.clone()])), None, "{write:?}");
    }
    for text in ["", "a\0b", &long()] {
        for guard in guards(text) {
            let unit = Unit { guards: vec![guard.clone()], ..unit(Vec::new()) };
            assert_eq!(limit(&unit), Some(KEYS), "{guard:?}");
        }
        for write in writes(text) {
            assert_eq!(limit(&unit(vec![write.clone()])), Some(KEYS), "{write:?}");
        }
    }
}

#[test]
fn a_draft_holds_no_nul_and_no_long_entry() {
    let pair = |field: &str, value: &str| vec![(field.to_owned(), value.to_owned())];
    let drafts = [
        draft("a\0"),
        Draft { index: pair("", "v"), ..draft("{}") },
        Draft { index: pair("f", &long()), ..draft("{}") },
        Draft { unique: pair("f", "\0"), ..draft("{}") },
        Draft { lease: Some((long(), NOW)), ..draft("{}") },
        Draft { user: Some(long()), ..draft("{}") },
    ];
    for draft in drafts {
        let write = Write::Put { key: key("a"), draft: draft.clone() };
        assert_eq!(limit(&unit(vec![write])), Some(KEYS), "{draft:?}");
    }
    let empty = Draft { index: pair("f", ""), ..draft("{}") };
    assert_eq!(limit(&unit(vec![Write::Put { key: key("a"), draft: empty }])), None);
}

#[test]
fn texts_beside_keys_are_bounded_too() {
    let add = Write::Add { key: key("a"), field: long(), amount: 1 };
    let settle = Write::Settle { key: key("a"), token: long() };
    let log = LogKey { reach: reach(), log: "l".into() };
    let name = Write::Append { log: log.clone(), name: long(), payload: "{}".into() };
    let payload = Write::Append { log, name: "e".into(), payload: "\0".into() };
    for write in [add, settle, name, payload] {
        assert_eq!(limit(&unit(vec![write.clone()])), Some(KEYS), "{write:?}");
    }
    let entry = Guard::Entry { key: key("a"), field: String::new(), value: String::new() };
    assert_eq!(limit(&Unit { guards: vec![entry], ..unit(Vec::new()) }), Some(KEYS));
    assert_eq!(limit(&Unit { organization: long(), ..Unit::default() }), Some(KEYS));
}

#[test]
fn takes_and_facts_are_checked_like_rows() {
    let asked = |change: fn(&mut Take)| {
        let mut unit = take("g", NOW, &["t"]);
        change(&mut unit.takes[0]);
        limit(&unit)
    };
    assert_eq!(asked(|take| take.reach = None), None);
    assert_eq!(asked(|take| take.reach = Some(Reach::from_store(String::new()))), Some(KEYS));
    assert_eq!(asked(|take| take.space = Space::from_store(String::new())), Some(KEYS));
    assert_eq!(asked(|take| take.group = "\0".into()), Some(KEYS));
    assert_eq!(asked(|take| take.tokens.push(String::new())), Some(KEYS));
    let told = |change: fn(&mut Fact)| {
        let mut fact = fact();
        change(&mut fact);
        limit(&Unit { facts: vec![fact], ..unit(Vec::new()) })
    };
    assert_eq!(told(|_| {}), None);
    assert_eq!(told(|fact| fact.id.clear()), Some(KEYS));
    assert_eq!(told(|fact| fact.name.clear()), Some(KEYS));
    assert_eq!(told(|fact| fact.organization = "\0".into()), Some(KEYS));
    assert_eq!(told(|fact| fact.organization.clear()), None, "the deployment's own");
    assert_eq!(told(|fact| fact.user = Some(String::new())), Some(KEYS));
    assert_eq!(told(|fact| fact.body = "\0".into()), Some(KEYS));
    assert_eq!(told(|fact| fact.private = Some("\0".into())), Some(KEYS));
    let spaces = vec![take("g", NOW, &[]).takes[0].clone(); UNIT_ROWS_MAX + 1];
    assert_eq!(limit(&Unit { takes: spaces, ..unit(Vec::new()) }), Some("1,000 rows read"));
    assert_eq!(space().as_str(), "shelf.books");
}
