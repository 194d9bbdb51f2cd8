//! The rules of calls between primitives: depth, keys, what counts as an effect, and whose word the
//! organization's standing is.

use charter_kernel::idempotency::Lineage;
use charter_kernel::role::Role;
use charter_kernel::unit::{Guard, Key, Reach, Space};

use super::*;
use crate::call::Call;
use crate::run::bed::{Bed, alone, handle, key, long, scope, user, word};

async fn nest(guest: &mut State, operation: &str, key: Option<&str>) -> Result<Reply, Failure> {
    let key = key.map(str::to_owned);
    guest.call(operation.into(), Vec::new(), None, key, Vec::new()).await
}

fn keys(bed: &Bed) -> Vec<String> {
    bed.desk.nested.lock().unwrap().drain(..).map(|nested| nested.idempotency_key).collect()
}

#[tokio::test]
async fn changes_are_numbered_and_reads_are_not() {
    let bed = Bed::new().await;
    let run = async |request: &str| {
        let call = Call { lineage: Lineage::outermost(request), ..bed.call(user(3)) };
        let nested = async |guest: &mut State| {
            for operation in ["other.echo", "other.read", "other.echo", "other.read"] {
                nest(guest, operation, None).await?;
            }
            nest(guest, "other.echo", Some("mine")).await.map(drop)
        };
        bed.play(call, nested).await.unwrap();
        let keys = keys(&bed);
        [keys[0].clone(), keys[2].clone(), keys[4].clone()]
    };
    let first = run("a").await;
    assert_eq!(first, ["a/1", "a/2", "mine"], "what its caller names is called so");
    assert_eq!(run("a").await, first, "the same request finds what it did");
    let other = run("b").await;
    assert!(first[..2].iter().all(|key| !other.contains(key)), "another request does not");
}

#[tokio::test]
async fn calls_nest_so_deep_and_no_deeper() {
    let bed = Bed::new().await;
    for depth in 0..=NESTED_DEPTH_MAX {
        let lineage = (0..depth).fold(Lineage::outermost("r"), |lineage, _| lineage.child(1));
        let call = Call { lineage, ..bed.call(user(3)) };
        let said = bed.play(call, async |guest| nest(guest, "other.read", None).await).await;
        assert_eq!(said.is_ok(), depth < NESTED_DEPTH_MAX, "{depth}: {said:?}");
    }
}

#[tokio::test]
async fn only_what_may_change_things_has_others_change_them() {
    let bed = Bed::new().await;
    let reads = || Call { mutates: false, entry: handle("shop.look"), ..bed.call(user(3)) };
    let said = bed.play(reads(), async |guest| nest(guest, "other.echo", None).await).await;
    assert_eq!(said.map(drop), Err("internal_error:UNDECLARED".into()));
    assert!(keys(&bed).is_empty(), "it was not asked");
    let said = bed.play(reads(), async |guest| nest(guest, "other.read", None).await).await;
    assert!(said.is_ok());
    for (operation, is_effect) in [("other.read", false), ("other.echo", true)] {
        let mut guest = bed.attempt(bed.call(user(3)));
        nest(&mut guest, operation, None).await.unwrap();
        let dispatched = guest.work().unwrap().story.marks.is_dispatched();
        assert_eq!(dispatched, is_effect, "{operation}");
    }
}

#[tokio::test]
async fn a_nested_call_bears_the_outer_scope_and_no_more_time_than_it_has() {
    let bed = Bed::new().await;
    let call = Call { deadline_ms: 700, ..bed.call(user(3)) };
    bed.play(call, async |guest| nest(guest, "other.read", None).await).await.unwrap();
    let nested = bed.desk.nested.lock().unwrap().pop().unwrap();
    assert_eq!((nested.scope, nested.primitive.as_str()), (user(3), "shop"));
    assert!(nested.deadline_ms <= 700 && nested.repeatable);
    let call = Call { gateway: None, ..bed.call(user(3)) };
    bed.play(call, async |guest| nest(guest, "other.read", None).await).await.unwrap();
    assert!(!bed.desk.nested.lock().unwrap().pop().unwrap().repeatable);
}

#[tokio::test]
async fn a_call_that_was_shown_a_secret_says_so_at_its_end() {
    let bed = Bed::new().await;
    for (operation, is_shown) in [("other.echo", false), ("other.reveal", true)] {
        let call = bed.call(user(3));
        let shown = call.shown.clone();
        bed.play(call, async |guest| nest(guest, operation, None).await).await.unwrap();
        assert_eq!(shown.is_set(), is_shown, "{operation}");
    }
}

#[tokio::test]
async fn a_nested_call_is_under_the_guards_of_the_outer_credential() {
    let bed = Bed::new().await;
    let key = Key::new(&Reach::deployment(), &Space::of("shop", "keys"), "k");
    let guard = Guard::Unchanged { key, version: 1 };
    let call = Call { credential: vec![guard.clone()], ..bed.call(user(3)) };
    bed.play(call, async |guest| nest(guest, "other.echo", None).await).await.unwrap();
    assert_eq!(bed.desk.nested.lock().unwrap().pop().unwrap().credential, [guard]);
}

#[tokio::test]
async fn the_organizations_standing_is_the_billers_word() {
    let bed = Bed::new().await;
    let stand = async |reason: Option<&str>| {
        let reason = reason.map(str::to_owned);
        bed.by(user(3), async |guest| guest.set_standing(reason).await).await
    };
    let standing = async || {
        let row = bed.row(&Standing::address(user(3).lane())).await?;
        Some(serde_json::from_str::<Standing>(&row.body).unwrap())
    };
    assert_eq!(stand(Some("trial_expired")).await, Err("forbidden".into()));
    assert_eq!(stand(None).await, Err("forbidden".into()));
    bed.desk.let_bill("shop");
    for reason in ["", "paid", "TRIAL_EXPIRED"] {
        assert_eq!(stand(Some(reason)).await, Err("invalid_input:reason".into()), "{reason}");
    }
    assert_eq!(stand(Some("trial_expired")).await, Ok(()));
    let first = standing().await.unwrap();
    assert_eq!(first.reason, Reason::TrialExpired);
    bed.hands.turn(1_000);
    assert_eq!(stand(Some("trial_expired")).await, Ok(()));
    assert_eq!(standing().await.unwrap().since, first.since, "what is so keeps its time");
    assert_eq!(stand(Some("credits_exhausted")).await, Ok(()));
    let second = standing().await.unwrap();
    assert!(second.reason == Reason::CreditsExhausted && second.since > first.since);
    assert_eq!(stand(None).await, Ok(()));
    assert_eq!(standing().await.map(|standing| standing.reason), None);
    let nobodys = alone(key(Role::Admin));
    let said = async |guest: &mut State| guest.set_standing(Some("trial_expired".into())).await;
    assert_eq!(bed.by(nobodys, said).await, Err("invalid_input:reason".into()));
    let viewer = scope(key(Role::Viewer), 1, Some(2), Some(3));
    let said = bed.by(viewer, async |guest| guest.set_standing(None).await).await;
    assert_eq!(said, Err("forbidden:role_insufficient".into()));
}

#[tokio::test]
async fn a_list_of_tools_is_the_calls_own_memory() {
    let bed = Bed::new().await;
    let tools = async |bytes| {
        let tools = bed.attempt_within(&user(3), bytes).tools().await;
        tools.map_err(|failure| word(&failure))
    };
    assert_eq!(tools(4).await, Err("payload_too_large:too_much_held".into()));
    assert_eq!(tools(1 << 20).await, Ok(r#"["other.echo"]"#.into()));
}

#[tokio::test]
async fn what_another_is_asked_is_the_calls_own_memory() {
    let bed = Bed::new().await;
    for large in ["parameters", "body"] {
        let text = |of: &str| if of == large { long(100 << 10) } else { String::new() };
        let pairs = |of: &str| vec![("a".to_owned(), text(of))];
        let ask = async |bytes: usize| {
            let mut guest = bed.attempt_within(&user(3), bytes);
            let (operation, body) = ("other.echo".to_owned(), Some(text("body")));
            let said = guest.call(operation, pairs("parameters"), body, None, Vec::new()).await;
            said.map(drop).map_err(|failure| word(&failure))
        };
        assert_eq!(ask(64 << 10).await, Err("payload_too_large:too_much_held".into()), "{large}");
        assert!(keys(&bed).is_empty(), "it was not asked");
        assert_eq!(ask(1 << 20).await, Ok(()), "{large}");
        assert_eq!(keys(&bed).len(), 1);
    }
}

#[tokio::test]
async fn a_call_that_is_to_count_in_a_scope_is_not_made() {
    let bed = Bed::new().await;
    let mut guest = bed.attempt_within(&user(3), 1 << 20);
    let scopes = vec![("box".to_owned(), "c".to_owned())];
    let said = guest.call("other.echo".to_owned(), Vec::new(), None, None, scopes).await;
    assert_eq!(
        said.map(drop).map_err(|failure| word(&failure)),
        Err("invalid_input:scopes".into())
    );
    assert!(keys(&bed).is_empty(), "nobody is asked what would count nowhere");
}
