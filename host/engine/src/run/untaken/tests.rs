//! When holds that were put off are taken, and what becomes of a request whose holds a rule refuses.

use charter_kernel::governance::hold::key;
use charter_kernel::unit::{Guard, Key, Reach, Space};

use super::*;
use crate::bindings::charter::primitive::governance::Host as _;
use crate::run::bed::{Bed, call_of, proposal, user};

async fn is_there(bed: &Bed, id: &str) -> bool {
    bed.row(&key(user(3).lane(), id)).await.is_some()
}

#[tokio::test]
async fn a_hold_that_was_put_off_is_taken_before_anything_leaves_and_once() {
    let bed = Bed::new().await;
    let mut guest = bed.attempt(bed.call(user(3)));
    guest.authorize(proposal(10)).await.unwrap();
    assert!(!is_there(&bed, "r0-0").await);
    let (shared, call, marks) = call_of(&mut guest);
    // Two requests to the outside at once: both wait until it is taken, and one takes it.
    let both = tokio::join!(shared.take_untaken(&call, &marks), shared.take_untaken(&call, &marks));
    assert!(both.0.is_ok() && both.1.is_ok());
    assert!(is_there(&bed, "r0-0").await);
    assert!(marks.untaken.lock().await.is_empty() && !marks.defers());
    guest.authorize(proposal(20)).await.unwrap();
    assert!(is_there(&bed, "r0-1").await, "from here on holds are taken when they are asked for");
    bed.end(guest, true).await.unwrap();
}

#[tokio::test]
async fn where_a_rule_refuses_what_was_put_off_the_guest_asks_again_at_once() {
    let bed = Bed::new().await;
    let mut guest = bed.attempt(bed.call(user(3)));
    guest.authorize(proposal(10)).await.unwrap();
    let (shared, call, marks) = call_of(&mut guest);
    let absent = Key::new(&Reach::user("u"), &Space::host("things"), "absent");
    let guard = Guard::Lease { key: absent, token: "t".into() };
    marks.untaken.lock().await[0].unit.guards.push(guard);
    assert!(shared.take_untaken(&call, &marks).await.is_err());
    assert_eq!(marks.abort_cause(), Some(&Abort::Conflict(Vec::new())));
    assert!(!marks.again().defers(), "so that it hears the refusal");
    assert!(!is_there(&bed, "r0-0").await);
    let said = shared.take_untaken(&call, &marks).await.unwrap_err();
    assert_eq!(said.code, "state_conflict", "an attempt that is over takes nothing");
}

#[tokio::test]
async fn leave_under_which_nothing_was_taken_is_forgotten_between_two_runs() {
    let bed = Bed::new().await;
    let mut guest = bed.attempt(bed.call(user(3)));
    guest.authorize(proposal(10)).await.unwrap();
    let (shared, call, marks) = call_of(&mut guest);
    shared.take_untaken(&call, &marks).await.unwrap();
    let mut later = bed.attempt(bed.call(user(3)));
    later.authorize(proposal(10)).await.unwrap();
    for (mut guest, left) in [(guest, 1), (later, 0)] {
        let story = &mut guest.work().unwrap().story;
        story.forget_untaken().await;
        assert_eq!(story.permits.len(), left);
        assert!(story.marks.untaken.lock().await.is_empty());
    }
}
