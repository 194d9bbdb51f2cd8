//! The rules of leave, over a real store: what becomes of each hold, what is captured of it, who
//! settles it later, and caps of a primitive's own.

use std::sync::atomic::Ordering::SeqCst;

use charter_kernel::governance::hold::State as At;
use charter_kernel::role::Role;
use charter_kernel::scope::{Actor, ActorKind, Principal, Scope};
use charter_kernel::time::Clock as _;

use super::*;
use crate::bindings::charter::primitive::documents::Host as _;
use crate::call::{Call, Entry, Signal};
use crate::run::bed::{Bed, handle, id, key, long, proposal, scope, shop, user};

/// The same handle once more: the guest keeps it, and names it with each call.
fn again(permit: &Resource<Permit>) -> Resource<Permit> {
    Resource::new_borrow(permit.rep())
}

/// A hold as it is committed, by the call that it was given to.
async fn hold_of(bed: &Bed, id: &str) -> Option<Hold> {
    let row = bed.row(&hold::key(user(3).lane(), id)).await?;
    Some(serde_json::from_str(&row.body).unwrap())
}

/// The end that a guest gives its permit before its request ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Do {
    Dispatch,
    Capture(i64),
    Cancel,
    Keep,
}

use Do::{Cancel, Capture, Dispatch, Keep};

async fn act(guest: &mut State, permit: &Resource<Permit>, acts: &[Do]) -> Result<(), Failure> {
    for act in acts {
        match act {
            Dispatch => guest.dispatched(again(permit)).await?,
            Capture(amount) => guest.capture(again(permit), *amount).await?,
            Cancel => guest.cancel(again(permit)).await?,
            Keep => {
                let until = guest.work()?.now.plus_ms(60_000);
                guest.keep(again(permit), until.0).await?;
            }
        }
    }
    Ok(())
}

/// A request that is given leave for a thousand, does so with it, and is answered or refused.
/// Whether its hold is taken when it asks, and not with its commit, is told.
async fn request(bed: &Bed, acts: &[Do], answered: bool, at_once: bool) -> Option<Hold> {
    let call = bed.call(user(3));
    let id = format!("{}-0", call.request_id);
    let mut guest = bed.attempt(call);
    if at_once {
        guest.work().unwrap().story.marks.take_at_once();
    }
    let permit = guest.authorize(proposal(1_000)).await.unwrap();
    assert_eq!(guest.id(again(&permit)).await, id);
    assert_eq!(guest.idempotency_key(again(&permit)).await, id, "the same on every retry");
    act(&mut guest, &permit, acts).await.unwrap();
    bed.end(guest, answered).await.unwrap();
    hold_of(bed, &id).await
}

#[tokio::test]
async fn no_hold_outlives_its_request_but_what_is_kept_or_in_doubt() {
    let bed = Bed::new().await;
    for (acts, answered, state) in [
        (&[][..], true, At::Voided),
        (&[], false, At::Voided),
        (&[Cancel], true, At::Voided),
        (&[Cancel], false, At::Voided),
        (&[Capture(700)], true, At::Captured),
        (&[Capture(700)], false, At::Voided),
        (&[Keep], true, At::Held),
        (&[Keep], false, At::Voided),
        // Something has left the host: a refusal takes none of it back.
        (&[Dispatch], true, At::InDoubt),
        (&[Dispatch], false, At::InDoubt),
        (&[Dispatch, Capture(700)], false, At::Captured),
        (&[Dispatch, Cancel], false, At::Voided),
        (&[Dispatch, Keep], false, At::InDoubt),
    ] {
        let hold = request(&bed, acts, answered, true).await.unwrap();
        assert_eq!(hold.state, state, "{acts:?}, answered: {answered}");
        let captured = state == At::Captured;
        assert_eq!(hold.actual, captured.then_some(700), "{acts:?}, answered: {answered}");
        assert_eq!(hold.kept, acts == [Keep] && answered, "{acts:?}, answered: {answered}");
        // The same where holds are taken with the commit; of nothing done nothing is left.
        let later = request(&bed, acts, answered, false).await.map(|hold| hold.state);
        let left = acts.contains(&Dispatch) || matches!(state, At::Captured | At::Held);
        assert_eq!(later, left.then_some(state), "{acts:?}, answered: {answered}");
    }
}

#[tokio::test]
async fn no_more_is_captured_than_was_held_and_once() {
    let bed = Bed::new().await;
    for (action, amount, word) in [
        ("shop.buy", 0, Ok(())),
        ("shop.buy", 1_000, Ok(())),
        ("shop.buy", 1_001, Err("state_conflict:over_held")),
        ("shop.buy", AMOUNT_MAX, Err("state_conflict:over_held")),
        ("shop.buy", -1, Err("invalid_input:actual")),
        ("shop.buy", AMOUNT_MAX + 1, Err("invalid_input:actual")),
        ("shop.buy", i64::MIN, Err("invalid_input:actual")),
        ("shop.guess", 1_500, Ok(())),
        ("shop.guess", 1_501, Err("state_conflict:over_held")),
    ] {
        let said = bed.by(user(3), async |guest| {
            let proposal = Proposed { action: action.into(), ..proposal(1_000) };
            let permit = guest.authorize(proposal).await?;
            act(guest, &permit, &[Capture(amount)]).await
        });
        assert_eq!(said.await, word.map_err(str::to_owned), "{action}: {amount}");
    }
    for second in [Capture(1), Cancel, Keep, Dispatch] {
        let said = bed.by(user(3), async |guest| {
            let permit = guest.authorize(proposal(1_000)).await?;
            act(guest, &permit, &[Capture(1)]).await?;
            act(guest, &permit, &[second]).await
        });
        let settled = Err("internal_error:UNDECLARED".into());
        let expected = if second == Dispatch { Ok(()) } else { settled };
        assert_eq!(said.await, expected, "{second:?}");
    }
}

#[tokio::test]
async fn who_captures_too_much_learns_what_is_left_and_may_capture_that() {
    let bed = Bed::new().await;
    let call = bed.call(user(3));
    let id = format!("{}-0", call.request_id);
    let said = bed.play(call, async |guest| {
        let permit = guest.authorize(proposal(1_000)).await?;
        let over = guest.capture(again(&permit), 1_001).await.unwrap_err();
        let told: Value = serde_json::from_str(&over.details.unwrap_or_default()).unwrap();
        assert_eq!(told, json!({ "left_micro_usd": 1_000, "amount_micro_usd": 1_001 }));
        guest.capture(permit, 1_000).await
    });
    assert_eq!(said.await, Ok(()));
    assert_eq!(hold_of(&bed, &id).await.unwrap().actual, Some(1_000));
}

/// A signal that a hook is told of, by this actor.
fn signal_call(bed: &Bed, kind: ActorKind, signal: &str, payload: &str) -> Call {
    let principal = Principal::of(Actor::new(kind, "a"));
    let signal = Signal { kind: signal.into(), payload: payload.into(), blob: None };
    let by = scope(principal, 1, Some(2), Some(3));
    Call { entry: Entry::React(signal), ..bed.call(by) }
}

#[tokio::test]
async fn only_a_providers_signed_word_is_posted_beyond_what_was_held() {
    let bed = Bed::new().await;
    let signed = json!({ "provider": "shop.peer" }).to_string();
    for (kind, signal, payload, is_posted) in [
        (ActorKind::Hook, "hook", signed.as_str(), true),
        (ActorKind::Hook, "hook", "{}", false),
        (ActorKind::Hook, "hook", r#"{"provider":null}"#, false),
        (ActorKind::Hook, "hook", r#"{"body":{"provider":"shop.peer"}}"#, false),
        (ActorKind::Hook, "hook", "not JSON", false),
        (ActorKind::Hook, "question", &signed, false),
        (ActorKind::Key, "hook", &signed, false),
        (ActorKind::System, "job", &signed, false),
    ] {
        let call = signal_call(&bed, kind, signal, payload);
        let said = bed.play(call, async |guest| {
            let permit = guest.authorize(proposal(10)).await?;
            act(guest, &permit, &[Capture(5_000)]).await
        });
        assert_eq!(said.await.is_ok(), is_posted, "{kind:?} {signal} {payload}");
        let call = signal_call(&bed, kind, signal, payload);
        let id = format!("{}-0", call.request_id);
        let said = bed.play(call, async |guest| {
            for amount in [None, Some(0), Some(-1), Some(AMOUNT_MAX + 1)] {
                assert!(guest.report(Proposed { amount, ..proposal(1) }).await.is_err());
            }
            // The biller alone says what has come to what is everybody's.
            let pay = Some(("till".into(), "credit".into()));
            assert!(guest.report(Proposed { pay, ..proposal(1) }).await.is_err());
            guest.report(proposal(5_000)).await
        });
        assert_eq!(said.await.is_ok(), is_posted, "reported: {kind:?} {signal} {payload}");
        let reported = hold_of(&bed, &id).await;
        let told = reported.map(|hold| (hold.state, hold.reported, hold.actual));
        let expected = is_posted.then_some((Stand::Captured, true, Some(5_000)));
        assert_eq!(told, expected, "{kind:?} {signal} {payload}");
    }
}

#[tokio::test]
async fn a_proposal_beyond_its_bounds_asks_nobody() {
    let bed = Bed::new().await;
    let base = || proposal(10);
    let scopes = |n: usize| vec![("box".to_owned(), "1".to_owned()); n];
    for (proposal, word) in [
        (Proposed { action: "shop.steal".into(), ..base() }, "internal_error:UNDECLARED"),
        (Proposed { action: "other.buy".into(), ..base() }, "internal_error:UNDECLARED"),
        (Proposed { amount: None, ..base() }, "internal_error:UNDECLARED"),
        (proposal(-1), "invalid_input:amount"),
        (proposal(AMOUNT_MAX + 1), "invalid_input:amount"),
        (Proposed { component: String::new(), ..base() }, "invalid_input:component"),
        (Proposed { component: "a\nb".into(), ..base() }, "invalid_input:component"),
        (Proposed { component: long(101), ..base() }, "invalid_input:component"),
        (Proposed { scopes: scopes(5), ..base() }, "invalid_input:scopes"),
        (Proposed { entity: long(2_001), ..base() }, "invalid_input:entity"),
        (Proposed { title: long(2_001), ..base() }, "invalid_input:title"),
        (Proposed { message: long(2_001), ..base() }, "invalid_input:message"),
        (Proposed { context: "{".into(), ..base() }, "invalid_input:context"),
        (
            Proposed { context: format!("\"{}\"", long(64 << 10)), ..base() },
            "invalid_input:context",
        ),
        (Proposed { scopes: vec![("box".into(), long(198))], ..base() }, "invalid_input:scopes"),
        (Proposed { scopes: vec![("box:1".into(), "1".into())], ..base() }, "invalid_input:scopes"),
        (Proposed { pay: Some((String::new(), "a".into())), ..base() }, "invalid_input:account"),
    ] {
        let words = format!("{proposal:?}");
        let said = bed.by(user(3), async |guest| guest.authorize(proposal).await.map(drop)).await;
        assert_eq!(said, Err(word.into()), "{words}");
    }
    assert!(bed.till.asked.lock().unwrap().is_empty());
    let send = Proposed { action: "shop.send".into(), amount: None, scopes: scopes(4), ..base() };
    let said = bed.by(user(3), async |guest| guest.authorize(send).await.map(drop)).await;
    assert_eq!(said, Ok(()), "what does not spend need not name an amount");
}

#[tokio::test]
async fn leave_is_for_who_may_change_things_where_somebody_gives_it() {
    let bed = Bed::new().await;
    let viewer = scope(key(Role::Viewer), 1, Some(2), Some(3));
    for (call, word) in [
        (bed.call(viewer), "forbidden:role_insufficient"),
        (
            Call { mutates: false, entry: handle("shop.look"), ..bed.call(user(3)) },
            "internal_error:UNDECLARED",
        ),
        (Call { gateway: None, ..bed.call(user(3)) }, "not_configured"),
    ] {
        let ask = async |guest: &mut State| guest.authorize(proposal(1)).await.map(drop);
        assert_eq!(bed.play(call, ask).await, Err(word.into()));
    }
    assert!(bed.till.asked.lock().unwrap().is_empty());
}

#[tokio::test]
async fn one_request_is_given_leave_a_hundred_times_at_most_and_none_after_it_acted() {
    let bed = Bed::new().await;
    let said = bed.by(user(3), async |guest| {
        for _ in 0..PERMITS_MAX {
            guest.authorize(proposal(1)).await?;
        }
        guest.authorize(proposal(1)).await.map(drop)
    });
    assert_eq!(said.await, Err("payload_too_large".into()));
    let said = bed.by(user(3), async |guest| {
        let permit = guest.authorize(proposal(1)).await?;
        guest.dispatched(again(&permit)).await?;
        guest.authorize(proposal(1)).await.map(drop)
    });
    assert_eq!(said.await, Err("internal_error:UNDECLARED".into()));
}

#[tokio::test]
async fn a_second_run_is_given_the_same_leave_for_the_same_proposal_and_new_for_another() {
    let bed = Bed::new().await;
    let mut guest = bed.attempt(bed.call(user(3)));
    guest.authorize(proposal(1)).await.unwrap();
    guest.authorize(proposal(2)).await.unwrap();
    let rerun = |guest: &mut State| {
        let work = guest.work().unwrap();
        work.story.attempt += 1;
        work.permits = 0;
    };
    rerun(&mut guest);
    let first = guest.authorize(proposal(1)).await.unwrap();
    let second = guest.authorize(proposal(3)).await.unwrap();
    assert_eq!(guest.id(again(&first)).await, "r0-0");
    assert_eq!(bed.till.asked.lock().unwrap().len(), 3, "the first was not asked for again");
    act(&mut guest, &first, &[Capture(1)]).await.unwrap();
    act(&mut guest, &second, &[Capture(3)]).await.unwrap();
    rerun(&mut guest);
    // A permit of an earlier run that this one did not ask for settles nothing.
    let stale = act(&mut guest, &second, &[Cancel]).await;
    assert!(stale.is_err(), "{stale:?}");
}

#[tokio::test]
async fn a_checkpoint_before_it_is_another_course() {
    let bed = Bed::new().await;
    let mut guest = bed.attempt(bed.call(user(3)));
    guest.work().unwrap().story.marks.take_at_once();
    guest.authorize(proposal(1)).await.unwrap();
    let work = guest.work().unwrap();
    work.story.attempt += 1;
    work.permits = 0;
    work.checkpoint().await.unwrap();
    let row = bed.row(&hold::key(user(3).lane(), "r0-0")).await.unwrap();
    assert_eq!(serde_json::from_str::<Hold>(&row.body).unwrap().state, Stand::Voided);
}

#[tokio::test]
async fn holds_of_an_earlier_run_give_way_to_another_course() {
    let bed = Bed::new().await;
    let mut guest = bed.attempt(bed.call(user(3)));
    guest.work().unwrap().story.marks.take_at_once();
    for place in 1..=3 {
        guest.authorize(proposal(place)).await.unwrap();
    }
    let work = guest.work().unwrap();
    work.story.attempt += 1;
    work.permits = 0;
    guest.authorize(proposal(1)).await.unwrap();
    // The next one is refused, and yet nothing was done under those that stood there and after.
    bed.till.refuses.store(true, SeqCst);
    assert!(guest.authorize(proposal(4)).await.is_err());
    for (hold, stands) in [("r0-0", Stand::Held), ("r0-1", Stand::Voided), ("r0-2", Stand::Voided)]
    {
        let row = bed.row(&hold::key(user(3).lane(), hold)).await.unwrap();
        let found: Hold = serde_json::from_str(&row.body).unwrap();
        assert_eq!(found.state, stands, "{hold}");
    }
    assert_eq!(guest.work().unwrap().story.permits.len(), 1);
}

/// A hold of the third user's that outlived its request.
async fn keep_hold(bed: &Bed, amount: i64) -> String {
    let call = bed.call(user(3));
    let id = format!("{}-0", call.request_id);
    let said = bed.play(call, async |guest| {
        let permit = guest.authorize(proposal(amount)).await?;
        act(guest, &permit, &[Keep]).await
    });
    said.await.unwrap();
    id
}

async fn reopen(bed: &Bed, by: &Scope, id: &str, acts: &[Do]) -> Result<(), String> {
    bed.by(by.clone(), async |guest| {
        let permit = guest.reopen(id.to_owned()).await?;
        act(guest, &permit, acts).await
    })
    .await
}

#[tokio::test]
async fn a_hold_is_reopened_by_its_own_primitive_and_user_and_by_nobody_else() {
    let mut bed = Bed::new().await;
    let id = keep_hold(&bed, 100).await;
    let elsewhere = scope(key(Role::Developer), 9, Some(8), Some(7));
    let above = scope(key(Role::Admin), 1, Some(2), None);
    for (by, asked) in
        [(user(3), "r99-0"), (user(3), ""), (user(4), &id), (elsewhere, &id), (above, &id)]
    {
        assert_eq!(reopen(&bed, &by, asked, &[]).await, Err("not_found".into()), "{by:?}");
    }
    let viewer = scope(key(Role::Viewer), 1, Some(2), Some(3));
    let said = reopen(&bed, &viewer, &id, &[Capture(1)]).await;
    assert_eq!(said, Err("forbidden:role_insufficient".into()));
    let mut other = shop();
    other["name"] = "other".into();
    bed.beside(other);
    assert_eq!(reopen(&bed, &user(3), &id, &[Capture(1)]).await, Err("not_found".into()));
    bed.beside(shop());
    assert_eq!(
        reopen(&bed, &user(3), &id, &[Capture(101)]).await,
        Err("state_conflict:over_held".into())
    );
    assert_eq!(reopen(&bed, &user(3), &id, &[Capture(60)]).await, Ok(()));
    assert_eq!(hold_of(&bed, &id).await.unwrap().actual, Some(60));
    for acts in [&[Capture(1)][..], &[Cancel], &[Keep]] {
        let said = reopen(&bed, &user(3), &id, acts).await;
        assert_eq!(said, Err("state_conflict:PERMIT_SETTLED".into()), "{acts:?}");
    }
}

#[tokio::test]
async fn a_hold_that_a_second_run_reopens_again_has_its_place_again() {
    let bed = Bed::new().await;
    let id = keep_hold(&bed, 100).await;
    let mut guest = bed.attempt(bed.call(user(3)));
    let run = async |guest: &mut State| {
        guest.reopen(id.clone()).await.unwrap();
        let permit = guest.authorize(proposal(1)).await.unwrap();
        guest.id(permit).await
    };
    let first = run(&mut guest).await;
    let work = guest.work().unwrap();
    work.story.attempt += 1;
    work.permits = 0;
    assert_eq!(run(&mut guest).await, first);
}

/// A hook's word to the whole of an organization.
fn told(bed: &Bed, payload: &str, organization: u8) -> Call {
    let signal = Signal { kind: "hook".into(), payload: payload.into(), blob: None };
    let principal = Principal::of(Actor::new(ActorKind::Hook, "a"));
    let by = scope(principal, organization, None, None);
    Call { entry: Entry::React(signal), ..bed.call(by) }
}

#[tokio::test]
async fn a_hold_that_is_over_is_captured_anew_by_a_providers_word_alone_and_counted_once() {
    let bed = Bed::new().await;
    let id = keep_hold(&bed, 100).await;
    assert_eq!(reopen(&bed, &user(3), &id, &[Cancel]).await, Ok(()));
    let over = || Err("state_conflict:PERMIT_SETTLED".to_owned());
    assert_eq!(reopen(&bed, &user(3), &id, &[Capture(1)]).await, over());
    let signed = json!({ "provider": "shop.peer" }).to_string();
    let hear = async |acts: &[Do]| {
        let heard = bed.play(told(&bed, &signed, 1), async |guest| {
            let permit = guest.reopen(id.clone()).await?;
            act(guest, &permit, acts).await
        });
        heard.await
    };
    // A run that does nothing leaves it in doubt, with nothing set aside.
    assert_eq!(hear(&[]).await, Ok(()));
    let doubted = hold_of(&bed, &id).await.unwrap();
    assert_eq!((doubted.state, doubted.reported), (At::InDoubt, true));
    assert_eq!(hear(&[Capture(100)]).await, Ok(()));
    let captured = hold_of(&bed, &id).await.unwrap();
    assert_eq!((captured.state, captured.actual), (At::Captured, Some(100)));
    // Told again it is the same, and more is more.
    for (total, actual) in [(100, 100), (130, 130), (100, 130)] {
        assert_eq!(hear(&[Capture(total)]).await, Ok(()));
        let captured = hold_of(&bed, &id).await.unwrap();
        assert_eq!((captured.state, captured.actual), (At::Captured, Some(actual)));
    }
    assert_eq!(reopen(&bed, &user(3), &id, &[Capture(1)]).await, over());
}

#[tokio::test]
async fn a_providers_word_to_the_whole_organization_settles_the_hold_of_any_user() {
    let bed = Bed::new().await;
    let id = keep_hold(&bed, 100).await;
    let signed = json!({ "provider": "shop.peer" }).to_string();
    for (call, said) in [
        (told(&bed, "{}", 1), Err("not_found".to_owned())),
        (told(&bed, &signed, 9), Err("not_found".to_owned())),
        (told(&bed, &signed, 1), Ok(())),
    ] {
        let settled = bed.play(call, async |guest| {
            let permit = guest.reopen(id.clone()).await?;
            act(guest, &permit, &[Capture(100)]).await
        });
        assert_eq!(settled.await, said);
    }
    assert_eq!(hold_of(&bed, &id).await.unwrap().actual, Some(100));
}

#[tokio::test]
async fn a_hold_that_a_request_reopens_and_leaves_is_there_for_the_next() {
    let bed = Bed::new().await;
    let id = keep_hold(&bed, 100).await;
    for (answered, acts) in [(true, &[][..]), (false, &[]), (false, &[Capture(1)]), (true, &[Keep])]
    {
        let mut guest = bed.attempt(bed.call(user(3)));
        let permit = guest.reopen(id.clone()).await.unwrap();
        act(&mut guest, &permit, acts).await.unwrap();
        bed.end(guest, answered).await.unwrap();
        let hold = hold_of(&bed, &id).await.unwrap();
        assert_eq!((hold.state, hold.settler), (At::Held, None), "{acts:?}, answered: {answered}");
    }
    assert_eq!(reopen(&bed, &user(3), &id, &[Cancel]).await, Ok(()));
}

#[tokio::test]
async fn a_hold_that_a_refused_checkpoint_was_to_settle_is_there_for_the_next() {
    let bed = Bed::new().await;
    let id = keep_hold(&bed, 100).await;
    let note = bed.by(user(3), async |guest| guest.insert("notes".into(), "{}".into(), None).await);
    let note = note.await.unwrap().id;
    let changed = async |guest: &mut State| {
        guest.replace("notes".into(), note.clone(), "{}".into(), None).await.map(drop)
    };
    for acts in [Cancel, Capture(1)] {
        let mut guest = bed.attempt(bed.call(user(3)));
        guest.checkpoint().await.unwrap();
        changed(&mut guest).await.unwrap();
        let permit = guest.reopen(id.clone()).await.unwrap();
        act(&mut guest, &permit, &[acts]).await.unwrap();
        bed.by(user(3), changed).await.unwrap();
        assert!(guest.checkpoint().await.is_err(), "{acts:?}: the note is another by now");
        bed.refuse(guest).await.unwrap();
        let hold = hold_of(&bed, &id).await.unwrap();
        assert_eq!((hold.state, hold.settler), (At::Held, None), "{acts:?}");
    }
    assert_eq!(reopen(&bed, &user(3), &id, &[Cancel]).await, Ok(()));
}

async fn give_back(guest: &mut State, ids: &[String]) -> Result<(), Failure> {
    for id in ids {
        let permit = guest.reopen(id.clone()).await?;
        guest.cancel(again(&permit)).await?;
    }
    Ok(())
}

#[tokio::test]
async fn one_commit_settles_a_hundred_holds_at_most_and_a_checkpoint_begins_the_next() {
    let bed = Bed::new().await;
    let mut held = Vec::new();
    for _ in 0..=PERMITS_MAX {
        held.push(keep_hold(&bed, 1).await);
    }
    let said = bed.by(user(3), async |guest| give_back(guest, &held).await);
    assert_eq!(said.await, Err("payload_too_large".into()));
    assert_eq!(hold_of(&bed, &held[0]).await.unwrap().state, At::Held, "none of it counts");
    let said = bed.by(user(3), async |guest| {
        give_back(guest, &held[..PERMITS_MAX]).await?;
        guest.work()?.checkpoint().await?;
        assert_eq!(guest.work()?.permits, 0);
        give_back(guest, &held[PERMITS_MAX..]).await
    });
    assert_eq!(said.await, Ok(()));
    for id in [&held[0], &held[PERMITS_MAX]] {
        let said = reopen(&bed, &user(3), id, &[]).await;
        assert_eq!(said, Err("state_conflict:PERMIT_SETTLED".into()));
    }
}

#[tokio::test]
async fn one_request_settles_a_hold_at_a_time_until_its_time_is_over() {
    let bed = Bed::new().await;
    let id = keep_hold(&bed, 100).await;
    let mut first = bed.attempt(bed.call(user(3)));
    let permit = first.reopen(id.clone()).await.unwrap();
    let said = reopen(&bed, &user(3), &id, &[Capture(1)]).await;
    assert_eq!(said, Err("job_not_ready".into()));
    // The first never came back; its deadline and the grace behind it have passed.
    bed.hands.turn(5_000 + GRACE_MS + 1_000);
    assert_eq!(reopen(&bed, &user(3), &id, &[Capture(2)]).await, Ok(()));
    act(&mut first, &permit, &[Capture(3)]).await.unwrap();
    assert!(bed.end(first, true).await.is_err(), "it has been settled meanwhile");
    assert_eq!(hold_of(&bed, &id).await.unwrap().actual, Some(2));
}

#[tokio::test]
async fn a_hold_of_a_request_under_way_is_not_anothers_and_one_in_doubt_is() {
    let bed = Bed::new().await;
    let call = bed.call(user(3));
    let id = format!("{}-0", call.request_id);
    let mut guest = bed.attempt(call);
    guest.work().unwrap().story.marks.take_at_once();
    let permit = guest.authorize(proposal(10)).await.unwrap();
    let said = reopen(&bed, &user(3), &id, &[Cancel]).await;
    assert_eq!(said, Err("state_conflict:PERMIT_SETTLED".into()), "it is not kept");
    act(&mut guest, &permit, &[Dispatch]).await.unwrap();
    bed.end(guest, true).await.unwrap();
    assert_eq!(hold_of(&bed, &id).await.unwrap().state, At::InDoubt);
    assert_eq!(reopen(&bed, &user(3), &id, &[Capture(10)]).await, Ok(()));
}

#[tokio::test]
async fn a_hold_is_kept_for_a_month_at_most() {
    let bed = Bed::new().await;
    for (until, bounded) in [(i64::MAX, true), (0, false), (i64::MIN, false)] {
        let call = bed.call(user(3));
        let id = format!("{}-0", call.request_id);
        let said = bed.play(call, async |guest| {
            let permit = guest.authorize(proposal(1)).await?;
            guest.keep(permit, until).await
        });
        assert_eq!(said.await, Ok(()));
        let latest = bed.hands.now().plus_ms(KEEP_MAX_MS);
        let kept = hold_of(&bed, &id).await.unwrap().until;
        assert!(kept < latest, "{until}");
        assert_eq!(kept.plus_ms(1_000) > latest, bounded, "{until}");
    }
}

#[tokio::test]
async fn what_pays_names_accounts_that_the_caller_may_take_from() {
    let bed = Bed::new().await;
    bed.desk.users.lock().unwrap().push(id(4));
    let pays = |from: &str| {
        let pay = Some((from.to_owned(), "credit".to_owned()));
        Proposed { pay, ..proposal(1) }
    };
    let theirs = format!("@{}/till", id(4));
    let pinned = Principal { user: user(3).user().cloned(), ..key(Role::Developer) };
    let pinned = scope(pinned, 1, Some(2), Some(3));
    let said = bed.by(pinned, async |guest| guest.authorize(pays(&theirs)).await.map(drop)).await;
    assert_eq!(said, Err("forbidden:pinned_to_user".into()));
    let said = bed.by(user(3), async |guest| guest.authorize(pays(&theirs)).await.map(drop)).await;
    assert_eq!(said, Ok(()), "by leave, and from whoever is there");
    let gone = format!("@{}/till", id(5));
    let said = bed.by(user(3), async |guest| guest.authorize(pays(&gone)).await.map(drop)).await;
    assert_eq!(said, Err("not_found".into()));
    let asked = bed.till.asked.lock().unwrap();
    let (from, to) = asked[0].proposal.pay.clone().unwrap();
    assert_eq!((from.reach.as_str(), from.id.as_str()), (&*format!("u/{}", id(4)), "shop.till"));
    assert_eq!((to.reach.as_str(), to.id.as_str()), (&*format!("o/{}", id(1)), "credit"));
}

/// Sets a cap of the primitive's own, and answers what is said of it.
async fn cap(
    bed: &Bed,
    by: &Scope,
    (name, id): (&str, &str),
    cap: Option<i64>,
    (period, zone): (&str, &str),
) -> Result<(), String> {
    let set = async |guest: &mut State| {
        guest.set_cap(name.into(), id.into(), cap, period.into(), zone.into()).await
    };
    bed.by(by.clone(), set).await
}

#[tokio::test]
async fn a_cap_of_a_primitives_own_is_within_bounds_and_lies_with_its_caller() {
    let bed = Bed::new().await;
    let over = long(200);
    for (of, amount, period, word) in [
        (("", "1"), Some(1), ("day", "UTC"), "invalid_input:scope"),
        (("box", ""), Some(1), ("day", "UTC"), "invalid_input:scope"),
        (("box:1", "1"), Some(1), ("day", "UTC"), "invalid_input:scope"),
        (("box", over.as_str()), Some(1), ("day", "UTC"), "invalid_input:scope"),
        (("box", "1"), Some(-1), ("day", "UTC"), "invalid_input:cap"),
        (("box", "1"), Some(AMOUNT_MAX + 1), ("day", "UTC"), "invalid_input:cap"),
        (("box", "1"), Some(1), ("hour", "UTC"), "invalid_input:period"),
        (("box", "1"), Some(1), ("", "UTC"), "invalid_input:period"),
        (("box", "1"), Some(1), ("day", "Mars/Olympus"), "invalid_input:time_zone"),
    ] {
        let said = cap(&bed, &user(3), of, amount, period).await;
        assert_eq!(said, Err(word.into()), "{of:?} {amount:?} {period:?}");
    }
    let viewer = scope(key(Role::Viewer), 1, Some(2), Some(3));
    let said = cap(&bed, &viewer, ("box", "1"), Some(1), ("day", "UTC")).await;
    assert_eq!(said, Err("forbidden:role_insufficient".into()));
    let row = async |of: &Scope| {
        let key = Key::new(&of.narrowest(), &caps_space(), "shop.box:1");
        bed.row(&key).await.map(|row| row.body)
    };
    for period in ["total", "day", "week", "month", "year"] {
        for zone in ["", "UTC", "Europe/Berlin"] {
            cap(&bed, &user(3), ("box", "1"), Some(0), (period, zone)).await.unwrap();
            let body: Value = serde_json::from_str(&row(&user(3)).await.unwrap()).unwrap();
            assert_eq!(body, json!({ "cap_micro_usd": 0, "period": period, "time_zone": zone }));
        }
    }
    assert_eq!(row(&user(4)).await, None);
    // To take away what is not there is none of anybody's business.
    cap(&bed, &user(4), ("box", "1"), None, ("", "")).await.unwrap();
    assert!(row(&user(3)).await.is_some());
    cap(&bed, &user(3), ("box", "1"), None, ("", "")).await.unwrap();
    assert_eq!(row(&user(3)).await, None);
}

#[tokio::test]
async fn what_was_spent_of_a_cap_is_told_to_its_own_caller() {
    let bed = Bed::new().await;
    cap(&bed, &user(3), ("box", "1"), Some(500), ("total", "")).await.unwrap();
    let spent = async |by: &Scope| {
        let told = bed.by(by.clone(), async |guest| {
            guest.spent("box".into(), "1".into(), String::new()).await
        });
        serde_json::from_str::<Value>(&told.await.unwrap()).unwrap()[0].clone()
    };
    let own = spent(&user(3)).await;
    let told = json!([own["key"], own["cap"], own["spent"], own["reserved"]]);
    assert_eq!(told, json!(["1", 500, 0, 0]));
    assert_eq!(spent(&user(4)).await["cap"], Value::Null);
}
