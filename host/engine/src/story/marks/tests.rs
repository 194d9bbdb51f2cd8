//! An attempt's marks that the next one begins with.

use charter_kernel::unit::{Reach, Space};

use super::*;

fn conflict() -> Abort {
    Abort::Conflict(Vec::new())
}

#[test]
fn the_first_reason_ends_an_attempt_and_the_next_one_begins_without_it() {
    let marks = Marks::default();
    assert_eq!(marks.abort_cause(), None);
    marks.abort(conflict());
    marks.abort(Abort::Inactive);
    assert_eq!(marks.abort_cause(), Some(&conflict()));
    assert_eq!(marks.again().abort_cause(), None);
}

#[tokio::test]
async fn a_claim_that_was_made_and_that_holds_are_taken_at_once_outlive_an_attempt() {
    let marks = Marks::default();
    assert!(marks.defers() && !marks.claimed.initialized());
    let fresh = marks.again();
    assert!(fresh.defers() && !fresh.claimed.initialized());
    let key = Key::new(&Reach::user("u"), &Space::host("keys"), "k");
    let condition = Guard::Unchanged { key, version: 1 };
    marks.take_at_once();
    marks.claimed.set(()).unwrap();
    marks.require(vec![condition.clone()]);
    marks.dispatch();
    let next = marks.again();
    assert!(!next.defers() && next.claimed.initialized());
    assert_eq!(next.conditions(), [condition], "leave that stays given counts under it still");
    assert!(!next.is_dispatched(), "only what has done nothing is run again");
    assert!(next.untaken.lock().await.is_empty());
}

#[test]
fn an_effect_that_came_to_nothing_takes_back_itself_alone() {
    let marks = Marks::default();
    assert!(!marks.has_acted());
    marks.dispatch();
    marks.deny_effect();
    assert_eq!((marks.has_acted(), marks.is_dispatched()), (false, true));
    marks.dispatch();
    marks.dispatch();
    marks.deny_effect();
    assert!(marks.has_acted());
}

#[test]
fn only_a_rules_refusal_is_asked_again_at_once() {
    let key = Key::new(&Reach::user("u"), &Space::host("things"), "a");
    for (abort, after, defers) in [
        (Abort::Refused(Refused::Frozen { key }), Abort::Conflict(Vec::new()), false),
        (Abort::Restart, Abort::Restart, true),
        (Abort::Inactive, Abort::Inactive, true),
        (Abort::Unavailable(3), Abort::Unavailable(3), true),
        (Abort::Pending("a".into()), Abort::Pending("a".into()), true),
    ] {
        let marks = Marks::default();
        assert_eq!((marks.again_at_once(abort), marks.defers()), (after, defers));
    }
}
