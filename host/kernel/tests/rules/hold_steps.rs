//! Each step of a hold as data: the state that it needs, and the rows that it writes.

use charter_kernel::governance::hold::{
    BOOKS, Charge, Counted, DOUBT, Hold, KEPT_MS, OPEN, Settler, State, Step, Subject, Word,
    entries_of, is_book, key, own_record_at, own_spend_space, space,
};
use charter_kernel::governance::settle::{End, Wish};
use charter_kernel::lease::group;
use charter_kernel::ledger::Phase;
use charter_kernel::meter::{Admission, Tally};
use charter_kernel::unit::{Draft, Guard, Reach, Space, Write};

use crate::bed::NOW;
use crate::holds::{charge, day, free, paid};

fn guard(hold: &Hold) -> Guard {
    let (field, value) = ("state".to_owned(), hold.state.as_str().to_owned());
    Guard::Entry { key: key("o", "h"), field, value }
}

/// The guards of a step from memory.
fn guards(hold: &Hold) -> Vec<Guard> {
    let (field, value) = ("turn".to_owned(), hold.turn.to_string());
    vec![guard(hold), Guard::Entry { key: key("o", "h"), field, value }]
}

/// The draft of the hold's own row in a step.
fn own(step: &Step) -> Draft {
    let mut drafts = step.writes.iter().filter_map(|write| match write {
        Write::Replace { key: at, draft, expected: None } if *at == key("o", "h") => Some(draft),
        _ => None,
    });
    let draft = drafts.next().unwrap().clone();
    assert_eq!(drafts.next(), None, "the row is written once");
    assert_eq!(serde_json::from_str::<Hold>(&draft.body).unwrap(), step.hold);
    draft
}

fn tallies(writes: &[Write]) -> Vec<(String, String, Tally)> {
    let of = |write: &Write| match write {
        Write::Tally { meter, slot, tally } => {
            Some((meter.id.clone(), slot.as_str().to_owned(), *tally))
        }
        _ => None,
    };
    writes.iter().filter_map(of).collect()
}

fn transfers(writes: &[Write]) -> Vec<(i64, Phase)> {
    let of = |write: &Write| match write {
        Write::Transfer { amount, phase, .. } => Some((*amount, *phase)),
        _ => None,
    };
    writes.iter().filter_map(of).collect()
}

fn capture(hold: &Hold, actual: i64) -> Step {
    hold.capture("h", hold.admit_capture(actual, Word::Asker).unwrap(), NOW)
}

#[test]
fn what_a_provider_signs_of_a_hold_that_was_given_back_counts_where_it_was_given_and_releases_nothing()
 {
    let held = paid(30);
    assert!(!held.is_contradicted(Word::Provider));
    let voided = held.void("h", NOW).hold;
    assert!(voided.is_contradicted(Word::Provider) && !voided.is_contradicted(Word::Asker));
    let settler = Settler { request: "r".into(), until: NOW.plus_ms(1) };
    let step = voided.contradict("h", 4, settler);
    assert_eq!(step.guards, [Guard::Version { key: key("o", "h"), version: Some(4) }]);
    assert_eq!(own(&step).lease, Some((group("o", DOUBT), NOW.plus_ms(1))));
    let told = step.hold.admit_capture(30, Word::Provider).unwrap();
    let captured = step.hold.capture("h", told, NOW);
    let counted = tallies(&captured.writes);
    assert_eq!(counted.len(), tallies(&capture(&held, 30).writes).len(), "in each of its scopes");
    assert!(counted.iter().all(|(_, _, tally)| tally.spent > 0 && tally.released == 0));
    assert!(counted.iter().any(|(_, _, tally)| tally.freezes), "nobody had leave for it any more");
    assert_eq!(transfers(&captured.writes), [(30, Phase::Settle { reserved: 0 })]);
    // In parts likewise, and nobody but the provider says more of it.
    let told = step.hold.admit_capture(10, Word::Provider).unwrap();
    let part = step.hold.capture_part("h", told, NOW.plus_ms(9), NOW);
    assert_eq!(transfers(&part.writes), [(10, Phase::Settle { reserved: 0 })]);
    assert_eq!((part.hold.state, part.hold.capture_max()), (State::Held, 0));
    assert!(part.hold.admit_capture(1, Word::Asker).is_err());
    assert_eq!(transfers(&part.hold.void("h", NOW).writes), [(0, Phase::Void)]);
    let rest = part.hold.capture("h", part.hold.capture_told(20), NOW);
    assert_eq!(
        (rest.hold.actual, transfers(&rest.writes)),
        (Some(30), vec![(20, Phase::Settle { reserved: 0 })])
    );
}

#[test]
fn a_hold_is_taken_with_all_its_charges_and_its_account() {
    let hold = paid(30);
    let writes = hold.take("h");
    let reserved: Vec<(&str, i64)> = writes
        .iter()
        .filter_map(|write| match write {
            Write::Reserve { meter, amount, .. } => Some((meter.id.as_str(), *amount)),
            _ => None,
        })
        .collect();
    assert_eq!(reserved, [("organization", 30), ("user", 30), ("limit:l:count", 1)]);
    assert_eq!(transfers(&writes), [(30, Phase::Reserve)]);
    match writes.last().unwrap() {
        Write::Insert { key: at, draft } => {
            assert_eq!(*at, key("o", "h"));
            let entries = [("state", "held"), ("turn", "0")];
            assert_eq!(draft.index, entries.map(|(field, value)| (field.into(), value.into())));
            assert_eq!(draft.lease, Some((group("o", OPEN), hold.until)));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn who_takes_up_a_hold_is_the_one_that_settles_it() {
    let kept = Hold { kept: true, ..paid(30) };
    let settler = |request: &str| Settler { request: request.into(), until: NOW.plus_ms(1) };
    let version = |version| Guard::Version { key: key("o", "h"), version: Some(version) };
    let step = kept.reopen("h", 4, settler("one"));
    assert_eq!(step.guards, [guard(&kept), version(4)]);
    let reopened = step.hold;
    assert_eq!((kept.turn, reopened.turn), (0, 1));
    for step in [
        reopened.dispatch("h"),
        reopened.keep("h", NOW),
        reopened.hand_back("h"),
        reopened.void("h", NOW),
        capture(&reopened, 10),
    ] {
        assert_eq!(step.guards, guards(&reopened));
    }
    assert_eq!(reopened.hand_back("h").hold.turn, 2, "it is nobody's again");
    assert_eq!(kept.keep("h", NOW).hold.turn, 0, "it was nobody's");
    // The row's version is enough, and takes up what an earlier build has left as well.
    assert_eq!(reopened.reopen("h", 5, settler("other")).guards, [guard(&reopened), version(5)]);
    assert_eq!(
        reopened.void("h", NOW).of_row(&key("o", "h"), 6).guards,
        [guard(&reopened), version(6)]
    );
}

#[test]
fn a_dispatch_falls_due_with_its_request_or_its_settler() {
    let hold = paid(30);
    let step = hold.dispatch("h");
    assert_eq!((step.guards.clone(), step.hold.state), (guards(&hold), State::Dispatched));
    assert_eq!(own(&step).lease, Some((group("o", OPEN), hold.until)));
    let settler = Settler { request: "later".into(), until: NOW.plus_ms(7) };
    let settled = Hold { settler: Some(settler), ..hold };
    assert_eq!(own(&settled.dispatch("h")).lease, Some((group("o", OPEN), NOW.plus_ms(7))));
}

#[test]
fn a_kept_hold_is_settled_by_one_later_request() {
    let hold = paid(30);
    let kept = hold.keep("h", NOW.plus_ms(99));
    assert_eq!((kept.hold.kept, kept.hold.until), (true, NOW.plus_ms(99)));
    assert_eq!(own(&kept).lease, Some((group("o", OPEN), NOW.plus_ms(99))));
    let settler = Settler { request: "later".into(), until: NOW.plus_ms(5) };
    let opened = kept.hold.reopen("h", 4, settler.clone());
    let alone = Guard::Version { key: key("o", "h"), version: Some(4) };
    assert_eq!(opened.guards, [guard(&kept.hold), alone]);
    assert_eq!(opened.hold.settler, Some(settler));
    let back = opened.hold.hand_back("h");
    let as_it_was = Hold { turn: 2, ..kept.hold.clone() };
    assert_eq!(back.hold, as_it_was, "the settler leaves it as it was");
    assert_eq!(opened.hold.keep("h", NOW).hold.settler, None, "kept anew, it is nobody's");
}

#[test]
fn a_part_is_counted_and_the_rest_stays_set_aside_under_the_same_leave() {
    let part = |hold: &Hold, actual| {
        let part = hold.admit_capture(actual, Word::Asker).unwrap();
        hold.capture_part("h", part, NOW.plus_ms(99), NOW)
    };
    let counted = |step: &Step| {
        let tallies = tallies(&step.writes).into_iter().take(3);
        tallies.map(|(_, _, tally)| (tally.released, tally.spent)).collect::<Vec<_>>()
    };
    let hold = Hold { capturable: Some(33), ..paid(30) };
    let first = part(&hold, 10);
    assert_eq!(first.guards, guards(&hold));
    assert_eq!(
        (first.hold.state, first.hold.kept, first.hold.settler.clone()),
        (State::Held, true, None)
    );
    assert_eq!(
        (first.hold.amount, first.hold.actual, first.hold.capture_max()),
        (Some(20), Some(10), 23)
    );
    assert_eq!(own(&first).lease, Some((group("o", OPEN), NOW.plus_ms(99))));
    assert_eq!(counted(&first), [(10, 10), (10, 10), (1, 1)]);
    assert_eq!(transfers(&first.writes), [(10, Phase::Settle { reserved: 10 })]);
    let second = part(&first.hold, 5);
    assert_eq!(counted(&second), [(5, 5), (5, 5), (0, 0)], "how often is counted once");
    // The last may be more than is left, as far as the leave goes.
    let last = capture(&second.hold, 18);
    assert_eq!(counted(&last), [(15, 18), (15, 18), (0, 0)]);
    assert_eq!(transfers(&last.writes), [(18, Phase::Settle { reserved: 15 })]);
    assert_eq!((last.hold.state, last.hold.actual), (State::Captured, Some(33)));
    assert_eq!(second.hold.admit_capture(19, Word::Asker).map(drop).unwrap_err().left, 18);
    // The rest did not happen: the parts did.
    let voided = second.hold.void("h", NOW);
    assert_eq!((voided.hold.state, voided.hold.actual), (State::Captured, Some(15)));
    assert_eq!(counted(&voided), [(15, 0), (15, 0), (0, 0)]);
    assert_eq!(transfers(&voided.writes), [(15, Phase::Void)]);
    assert_eq!(part(&hold, 0), hold.keep("h", NOW.plus_ms(99)), "nothing happened yet");
    for whole in [30, 33] {
        assert_eq!(part(&hold, whole), capture(&hold, whole), "nothing would be left");
    }
}

#[test]
fn what_a_provider_signs_beyond_a_capture_counts_where_it_was_given_and_no_more() {
    let said = capture(&paid(30), 10).hold;
    assert!(said.is_contradicted(Word::Provider) && !said.is_contradicted(Word::Asker));
    let told = |total: i64| {
        let settler = Settler { request: "r".into(), until: NOW.plus_ms(1) };
        let again = said.contradict("h", 4, settler).hold;
        again.capture("h", again.capture_told(total), NOW)
    };
    let more = told(30);
    assert_eq!((more.hold.state, more.hold.actual), (State::Captured, Some(30)));
    let tally = |spent, freezes| Tally { released: 0, spent, beyond: false, freezes, at: NOW };
    let counted: Vec<_> =
        tallies(&more.writes).into_iter().map(|(meter, _, tally)| (meter, tally)).collect();
    let expected = [
        ("organization", tally(20, false)),
        ("user", tally(20, true)),
        ("limit:l:count", tally(0, false)),
    ];
    assert_eq!(counted[..3], expected.map(|(meter, tally)| (meter.to_owned(), tally)));
    assert_eq!(transfers(&more.writes), [(20, Phase::Settle { reserved: 0 })]);
    // As much, or less, says nothing new.
    for total in [10, 3] {
        let same = told(total);
        assert_eq!(
            (same.hold.state, same.hold.actual, same.writes.len()),
            (State::Captured, Some(10), 1)
        );
    }
    // In parts, the first of them includes what was captured before.
    let again =
        said.contradict("h", 4, Settler { request: "r".into(), until: NOW.plus_ms(1) }).hold;
    let part = again.capture_part("h", again.capture_told(15), NOW.plus_ms(9), NOW).hold;
    assert_eq!((part.state, part.actual, part.capture_max()), (State::Held, Some(15), 0));
    assert_eq!(part.capture("h", part.capture_told(5), NOW).hold.actual, Some(20));
    let whole = again.capture_part("h", again.capture_told(40), NOW.plus_ms(9), NOW).hold;
    assert_eq!((whole.state, whole.actual), (State::Captured, Some(40)));
    // Of one that was captured in parts, it is a further part, and counts in full.
    let held = paid(30);
    let part = held.admit_capture(10, Word::Asker).unwrap();
    let part = held.capture_part("h", part, NOW.plus_ms(9), NOW).hold;
    let ended = part.void("h", NOW).hold;
    let again =
        ended.contradict("h", 4, Settler { request: "r".into(), until: NOW.plus_ms(1) }).hold;
    let last = again.capture("h", again.capture_told(5), NOW);
    assert_eq!((last.hold.state, last.hold.actual), (State::Captured, Some(15)));
    let counted: Vec<_> =
        tallies(&last.writes).into_iter().map(|(meter, _, tally)| (meter, tally)).collect();
    let expected = [
        ("organization", tally(5, false)),
        ("user", tally(5, true)),
        ("limit:l:count", tally(0, false)),
    ];
    assert_eq!(counted[..3], expected.map(|(meter, tally)| (meter.to_owned(), tally)));
    let further = again.capture_part("h", again.capture_told(5), NOW.plus_ms(9), NOW).hold;
    assert_eq!((further.state, further.actual), (State::Held, Some(15)));
    // It is never taken back by who took it up and left it.
    let settler = Settler { request: "r".into(), until: NOW.plus_ms(1) };
    let left = said.contradict("h", 4, settler).hold.doubt("h").hold.void("h", NOW);
    assert_eq!((left.hold.state, left.hold.actual), (State::Captured, Some(10)));
    assert!(tallies(&left.writes).iter().all(|(.., tally)| tally.released + tally.spent == 0));
}

#[test]
fn a_capture_counts_money_as_spent_and_times_once() {
    let hold = paid(30);
    let step = capture(&hold, 25);
    assert_eq!((step.hold.state, step.hold.actual), (State::Captured, Some(25)));
    assert_eq!(step.hold.ended_at, Some(NOW));
    let tally = |released, spent| Tally { released, spent, beyond: false, freezes: false, at: NOW };
    let window = day().as_str().to_owned();
    let expected = [
        ("organization".to_owned(), window.clone(), tally(30, 25)),
        ("user".to_owned(), window.clone(), tally(30, 25)),
        ("limit:l:count".to_owned(), window, tally(1, 1)),
    ];
    assert_eq!(tallies(&step.writes)[..3], expected);
    assert_eq!(transfers(&step.writes), [(25, Phase::Settle { reserved: 30 })]);
    let draft = own(&step);
    assert_eq!((draft.lease, draft.unleased, draft.index), (None, true, Vec::new()));
}

#[test]
fn a_capture_writes_both_accounts_entries_and_the_spend_record() {
    let hold = paid(30);
    let step = capture(&hold, 25);
    let pay = hold.pay.clone().unwrap();
    let entries: Vec<_> = step
        .writes
        .iter()
        .filter_map(|write| match write {
            Write::Append { log, name, payload } => Some((log.clone(), name.as_str(), payload)),
            _ => None,
        })
        .collect();
    assert_eq!((entries[0].0.clone(), entries[0].1), (entries_of(&pay.from), "debit"));
    assert_eq!((entries[1].0.clone(), entries[1].1), (entries_of(&pay.to), "credit"));
    let told: serde_json::Value = serde_json::from_str(entries[0].2).unwrap();
    let expected = serde_json::json!({
        "transfer": "h", "amount_micro_usd": 25, "counter_account": "shop", "memo": "a book",
        "reference": "shop",
    });
    assert_eq!(told, expected);
    assert_eq!(added(&step), [("spent_micro_usd", 25), ("count", 1)]);
}

/// The additions of a step to its spend record.
fn added(step: &Step) -> Vec<(&str, i64)> {
    let added = step.writes.iter().filter_map(|write| match write {
        Write::Add { field, amount, .. } => Some((field.as_str(), *amount)),
        _ => None,
    });
    added.collect()
}

#[test]
fn what_happens_in_parts_has_happened_once() {
    let held = paid(30);
    let part = held.admit_capture(10, Word::Asker).unwrap();
    let first = held.capture_part("h", part, NOW.plus_ms(1), NOW);
    assert_eq!(added(&first), [("spent_micro_usd", 10), ("count", 1)]);
    let rest = first.hold.admit_capture(20, Word::Asker).unwrap();
    let last = first.hold.capture("h", rest, NOW);
    assert_eq!(added(&last), [("spent_micro_usd", 20), ("count", 0)]);
    let told = last.hold.contradict("h", 1, Settler { request: "r".into(), until: NOW }).hold;
    let more = told.capture("h", told.capture_told(15), NOW);
    assert_eq!(added(&more), [("spent_micro_usd", 15), ("count", 0)]);
}

#[test]
fn a_spend_record_is_of_a_quarter_of_an_hour_an_action_and_a_component() {
    let of = |at| {
        let hold = paid(30);
        let one = hold.admit_capture(1, Word::Asker).unwrap();
        let record = hold.capture("h", one, at).writes.into_iter().find_map(|write| match write {
            Write::Ensure { key, draft } => Some((key, draft)),
            _ => None,
        });
        let (key, draft) = record.unwrap();
        assert_eq!(draft.user, hold.subject.user, "it goes with its user");
        (key.id, key.reach.as_str().to_owned(), draft.index)
    };
    let quarter = NOW.plus_ms(-NOW.0.rem_euclid(900_000));
    let id = format!("{quarter} shop.buy shop");
    let found = vec![("found".to_owned(), format!("o {quarter}"))];
    assert_eq!(of(quarter), (id.clone(), "u/u".to_owned(), found));
    assert_eq!(of(quarter.plus_ms(899_999)).0, id);
    assert_ne!(of(quarter.plus_ms(900_000)).0, id);
}

#[test]
fn a_scope_of_a_primitives_own_has_records_of_its_own() {
    let own = charge("shop.card:c 1", 30, Counted::Money);
    let meter = own.meter.clone();
    let hold = Hold { charges: vec![charge("user", 30, Counted::Money), own], ..paid(30) };
    let writes = capture(&hold, 25).writes;
    let of_own = |write: &Write| match write {
        Write::Ensure { key, draft } if key.space == own_spend_space() => {
            assert_eq!((draft.user.as_deref(), draft.body.as_str()), (Some("u"), "{}"));
            Some((key.clone(), 0))
        }
        Write::Add { key, amount, .. } if key.space == own_spend_space() => {
            Some((key.clone(), *amount))
        }
        _ => None,
    };
    let written: Vec<_> = writes.iter().filter_map(of_own).collect();
    let key = written[0].0.clone();
    assert_eq!(written, [(key.clone(), 0), (key.clone(), 25)]);
    let quarter = NOW.plus_ms(-NOW.0.rem_euclid(900_000));
    assert_eq!((&key.reach, own_record_at(&meter, &key.id)), (&meter.reach, Some(quarter)));
    // The scope `c` has a record neither of `c 1` nor of `c1`.
    let shorter = charge("shop.card:c", 30, Counted::Money).meter;
    let longer = format!("shop.card:c1 {quarter}");
    assert_eq!([&key.id, &longer].map(|id| own_record_at(&shorter, id)), [None, None]);
}

#[test]
fn a_void_releases_everything_and_spends_nothing() {
    let hold = paid(30);
    let step = hold.void("h", NOW);
    assert_eq!((step.hold.state, step.hold.actual), (State::Voided, None));
    assert_eq!((step.hold.ended_at, own(&step).user.as_deref()), (Some(NOW), Some("u")));
    let released: Vec<(i64, i64)> =
        tallies(&step.writes).iter().map(|(.., tally)| (tally.released, tally.spent)).collect();
    assert_eq!(released, [(30, 0), (30, 0), (1, 0)]);
    assert_eq!(transfers(&step.writes), [(30, Phase::Void)]);
    assert!(own(&step).unleased);
}

#[test]
fn an_end_is_kept_for_ninety_days() {
    assert_eq!(KEPT_MS, 7_776_000_000);
}

#[test]
fn a_doubt_releases_nothing_and_is_asked_about() {
    let hold = Hold { state: State::Dispatched, ..paid(30) };
    let step = hold.doubt("h");
    assert_eq!((step.hold.state, step.guards.clone()), (State::InDoubt, guards(&hold)));
    assert_eq!(step.writes.len(), 1);
    assert_eq!(own(&step).lease, Some((group("o", DOUBT), hold.until)));
}

#[test]
fn a_kept_hold_in_doubt_is_asked_about_when_its_settler_is_over_and_then_ever_more_rarely() {
    let over = NOW.plus_ms(1_000);
    let settler = Some(Settler { request: "r".into(), until: over });
    let kept = Hold { kept: true, until: NOW.plus_ms(86_400_000), settler, ..paid(30) };
    let step = Hold { state: State::Dispatched, ..kept.clone() }.doubt("h");
    assert_eq!((step.hold.until, &step.hold.settler), (over, &None), "another may settle it");
    assert_eq!(own(&step).lease, Some((group("o", DOUBT), over)));
    // Somebody who was asked and does not know is asked once its own time is over.
    let began = NOW.plus_ms(-5_000);
    let step = Hold { state: State::InDoubt, until: began, ..kept }.doubt("h");
    assert_eq!((step.hold.until, step.hold.settler.clone()), (began, None));
    assert_eq!(own(&step).lease, Some((group("o", DOUBT), over)));
}

#[test]
fn a_hold_is_settled_by_its_own_and_by_a_providers_word_to_the_whole_organization() {
    let hold = free();
    let own = hold.subject.reach();
    let (whole, other) = (Reach::organization("o"), Reach::organization("other"));
    for word in [Word::Asker, Word::Provider] {
        assert!(hold.is_settled_by("shop", &own, word));
        assert!(!hold.is_settled_by("cards", &own, word));
        assert!(!hold.is_settled_by("shop", &Reach::user("somebody else"), word));
        assert!(!hold.is_settled_by("shop", &other, word));
        assert!(!hold.is_settled_by("cards", &whole, word));
        assert_eq!(hold.is_settled_by("shop", &whole, word), word == Word::Provider);
    }
}

#[test]
fn what_a_settler_has_dispatched_is_not_over_for_others_and_not_theirs_yet() {
    let settler = Some(Settler { request: "r".into(), until: NOW.plus_ms(1) });
    for (state, kept, is_left, is_busy) in [
        (State::Pending, false, false, false),
        (State::Held, false, false, false),
        (State::Held, true, true, false),
        (State::Dispatched, false, false, true),
        (State::Dispatched, true, true, true),
        (State::InDoubt, false, true, false),
        (State::InDoubt, true, true, false),
        (State::Captured, true, false, false),
        (State::Voided, true, false, false),
    ] {
        let hold = Hold { state, kept, ..free() };
        assert_eq!((hold.is_left(), hold.has_settler(NOW)), (is_left, is_busy), "{state:?} {kept}");
        let taken = Hold { settler: settler.clone(), ..hold };
        assert!(taken.has_settler(NOW));
        assert_eq!(taken.has_settler(NOW.plus_ms(1)), is_busy);
    }
}

#[test]
fn a_hold_that_is_taken_and_captured_at_once_is_inserted_as_it_ends() {
    let hold = paid(30);
    let writes = hold.take_with("h", capture(&hold, 25));
    let inserted: Vec<&Draft> = writes
        .iter()
        .filter_map(|write| match write {
            Write::Insert { key: at, draft } if *at == key("o", "h") => Some(draft),
            Write::Replace { .. } => panic!("nothing is there to be replaced"),
            _ => None,
        })
        .collect();
    assert_eq!(inserted.len(), 1);
    let ended: Hold = serde_json::from_str(&inserted[0].body).unwrap();
    assert_eq!(ended.state, State::Captured);
    assert_eq!(transfers(&writes), [(30, Phase::Reserve), (25, Phase::Settle { reserved: 30 })]);
}

#[test]
fn a_scope_that_had_no_cap_hears_of_what_was_spent() {
    let bare = Hold { charges: vec![charge("user", 30, Counted::Money)], ..paid(30) };
    let late: Vec<(String, i64)> = tallies(&capture(&bare, 25).writes)
        .into_iter()
        .filter(|(_, slot, _)| slot == "uncapped ever")
        .map(|(meter, _, tally)| (meter, tally.spent))
        .collect();
    assert_eq!(late, [("organization".to_owned(), 25), ("project".to_owned(), 25)]);
}

#[test]
fn an_amount_that_does_not_count_is_in_no_meter_and_no_record() {
    let mail = Hold { spends: Some(false), charges: Vec::new(), ..free() };
    let step = capture(&mail, 0);
    assert_eq!(step.writes.len(), 1, "its own row alone");
    assert_eq!(step.hold.actual, None, "no money moved");
    // A row of an earlier build does not say; the kit's charge does.
    let earlier = |scope: &str| Hold {
        spends: None,
        pay: None,
        charges: vec![charge(scope, 30, Counted::Money)],
        ..paid(30)
    };
    let records = |hold: &Hold| {
        let is_record = |write: &&Write| matches!(write, Write::Ensure { .. });
        capture(hold, 5).writes.iter().filter(is_record).count()
    };
    assert_eq!((records(&earlier("kit")), records(&earlier("user"))), (1, 0));
}

#[test]
fn only_an_over_capture_by_a_provider_freezes_and_only_the_narrowest_money() {
    let frozen = |actual, word, scopes: &[&str]| {
        let charges: Vec<Charge> =
            scopes.iter().map(|scope| charge(scope, 30, Counted::Money)).collect();
        let hold = Hold { charges, ..paid(30) };
        let step = hold.capture("h", hold.admit_capture(actual, word).unwrap(), NOW);
        let freezes = |(meter, _, tally): (String, String, Tally)| tally.freezes.then_some(meter);
        tallies(&step.writes).into_iter().filter_map(freezes).collect::<Vec<_>>()
    };
    let scopes = ["organization", "kit", "user"];
    assert_eq!(frozen(30, Word::Provider, &scopes), Vec::<String>::new());
    assert_eq!(frozen(31, Word::Provider, &scopes), ["user"]);
    assert_eq!(frozen(31, Word::Provider, &["organization"]), Vec::<String>::new());
    assert_eq!(frozen(30, Word::Asker, &scopes), Vec::<String>::new());
}

#[test]
fn what_a_provider_reports_sets_nothing_aside_and_all_of_it_counts() {
    let charges = vec![charge("kit", 30, Counted::Money), charge("limit:l", 1, Counted::Times)];
    let hold = Hold { reported: true, capturable: Some(0), charges, ..paid(30) };
    let told = hold.admit_capture(30, Word::Provider).unwrap();
    let writes = hold.take_with("h", hold.capture("h", told, NOW));
    assert!(!writes.iter().any(|write| matches!(write, Write::Reserve { .. })));
    assert_eq!(transfers(&writes), [(30, Phase::Settle { reserved: 0 })]);
    let ends = tallies(&writes).into_iter().map(|(meter, _, tally)| (meter, tally));
    let tally = |spent, freezes| Tally { released: 0, spent, beyond: false, freezes, at: NOW };
    let expected = [("kit", tally(30, true)), ("limit:l:count", tally(1, false))];
    assert_eq!(ends.collect::<Vec<_>>(), expected.map(|(meter, tally)| (meter.to_owned(), tally)));
    let dropped = hold.void("h", NOW);
    assert_eq!(transfers(&dropped.writes), [(0, Phase::Void)]);
    assert!(tallies(&dropped.writes).iter().all(|(.., tally)| tally.released + tally.spent == 0));
}

#[test]
fn an_over_capture_freezes_a_scope_of_a_primitives_own_where_it_has_a_cap() {
    let frozen = |admission| {
        let own = Charge { admission, ..charge("shop.card:c1", 30, Counted::Money) };
        let hold = Hold { charges: vec![charge("kit", 30, Counted::Money), own], ..paid(30) };
        let step = hold.capture("h", hold.admit_capture(31, Word::Provider).unwrap(), NOW);
        let freezes = |(meter, _, tally): (String, String, Tally)| tally.freezes.then_some(meter);
        tallies(&step.writes).into_iter().filter_map(freezes).collect::<Vec<_>>()
    };
    assert_eq!(frozen(Admission::Within(100)), ["shop.card:c1"]);
    assert_eq!(frozen(Admission::Within(i64::MAX)), ["kit"]);
}

#[test]
fn an_over_capture_of_the_organizations_own_freezes_nothing() {
    let freezes = |user: Option<&str>| {
        let subject = Subject { project: None, user: user.map(str::to_owned), ..free().subject };
        let charges = vec![charge("limit:l", 30, Counted::Money)];
        let hold = Hold { charges, subject, ..paid(30) };
        let step = hold.capture("h", hold.admit_capture(31, Word::Provider).unwrap(), NOW);
        tallies(&step.writes).iter().any(|(.., tally)| tally.freezes)
    };
    assert!(freezes(Some("u")));
    assert!(!freezes(None), "nobody could let the organization's limit admit again");
}

#[test]
fn what_is_told_of_a_user_who_is_gone_stops_nobody() {
    let frozen = |gone| {
        let subject = Subject { user: None, gone, ..free().subject };
        let charges = vec![charge("project", 30, Counted::Money)];
        let hold = Hold { charges, subject, reported: true, capturable: Some(0), ..paid(30) };
        let step = hold.capture("h", hold.capture_told(1), NOW);
        let told = &tallies(&step.writes)[0].2;
        (told.spent, told.freezes)
    };
    assert_eq!((frozen(false), frozen(true)), ((1, true), (1, false)));
}

#[test]
fn what_was_admitted_beyond_a_soft_cap_ends_beyond_it() {
    let charges =
        vec![Charge { admission: Admission::Beyond(30), ..charge("user", 30, Counted::Money) }];
    let hold = Hold { charges, ..paid(30) };
    assert!(tallies(&capture(&hold, 25).writes)[0].2.beyond);
    assert!(tallies(&hold.void("h", NOW).writes)[0].2.beyond);
}

#[test]
fn the_books_are_named_and_nothing_else_is_one() {
    for name in BOOKS {
        assert!(is_book(&Space::from_store(name.to_owned())), "{name}");
    }
    assert!(
        is_book(&space()) && !is_book(&Space::host("jobs")) && !is_book(&Space::of("a", "holds"))
    );
}

#[test]
fn a_hold_is_over_with_its_request_unless_it_was_kept_or_sent() {
    let held = paid(30);
    let dispatched = held.dispatch("h").hold;
    let capture = held.admit_capture(1, Word::Asker).unwrap();
    let until = NOW.plus_ms(1);
    let (captures, keeps) = (Some(Wish::Capture(capture)), Some(Wish::Keep(until)));
    let parts = Some(Wish::Part(capture, until));
    let end = |answered, asked| End { answered, asked, reopened: false };
    let (answered, refused, again) = (end(true, true), end(false, true), end(true, false));
    let reopened = |end| End { reopened: true, ..end };
    for (hold, wish, end, expected) in [
        (&held, captures, answered, held.capture("h", capture, NOW)),
        (&held, captures, refused, held.void("h", NOW)),
        (&held, captures, again, held.void("h", NOW)),
        (&held, Some(Wish::Cancel), answered, held.void("h", NOW)),
        (&held, Some(Wish::Cancel), reopened(answered), held.void("h", NOW)),
        (&held, keeps, answered, held.keep("h", until)),
        (&held, parts, answered, held.capture_part("h", capture, until, NOW)),
        (&held, parts, refused, held.void("h", NOW)),
        (&dispatched, parts, refused, dispatched.capture_part("h", capture, until, NOW)),
        (&held, keeps, refused, held.void("h", NOW)),
        (&held, None, answered, held.void("h", NOW)),
        // An effect has left the host, however the request ends.
        (&dispatched, captures, answered, dispatched.capture("h", capture, NOW)),
        (&dispatched, captures, refused, dispatched.capture("h", capture, NOW)),
        (&dispatched, captures, again, dispatched.doubt("h")),
        (&dispatched, captures, end(false, false), dispatched.doubt("h")),
        (&dispatched, Some(Wish::Cancel), refused, dispatched.void("h", NOW)),
        (&dispatched, keeps, answered, dispatched.keep("h", until)),
        (&dispatched, keeps, refused, dispatched.doubt("h")),
        (&dispatched, None, answered, dispatched.doubt("h")),
        (&dispatched, None, reopened(answered), dispatched.doubt("h")),
        // A later request that says nothing hands it back to its keeper.
        (&held, None, reopened(answered), held.hand_back("h")),
        (&held, captures, reopened(refused), held.hand_back("h")),
    ] {
        let step = hold.settle("h", wish, end, NOW);
        assert_eq!(step, expected, "{:?} {wish:?} {end:?}", hold.state);
    }
}
