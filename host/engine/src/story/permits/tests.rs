//! The last step of a hold whose request ends without a commit.

use wasmtime::component::Resource;

use super::*;
use crate::bindings::charter::primitive::governance::{Host as _, HostPermit as _};
use crate::run::bed::{Bed, proposal, user};

#[tokio::test]
async fn a_part_is_captured_and_what_is_left_bounds_the_next() {
    let bed = Bed::new().await;
    let mut guest = bed.attempt(bed.call(user(3)));
    let permit = guest.authorize(proposal(10)).await.unwrap();
    let again = || Resource::new_borrow(permit.rep());
    let over = guest.capture_part(again(), 11, i64::MAX).await.unwrap_err();
    assert_eq!((over.code.as_str(), over.reason.as_deref()), ("state_conflict", Some("over_held")));
    guest.capture_part(again(), 4, i64::MAX).await.unwrap();
    assert!(guest.capture(again(), 1).await.is_err(), "settled by this request already");
    let permits = std::mem::take(&mut guest.work().unwrap().story.permits);
    let step = permits[0].end(true, permits[0].attempt, bed.store().now());
    let latest = bed.store().now().plus_ms(31 * 86_400_000);
    assert_eq!((step.hold.amount, step.hold.actual, step.hold.kept), (Some(6), Some(4), true));
    assert!(step.hold.until <= latest, "31 days at most");
    assert_eq!(step.hold.capture_max(), 6);
}

#[tokio::test]
async fn a_request_that_ends_without_a_commit_voids_what_it_took_and_doubts_what_it_sent() {
    let bed = Bed::new().await;
    let mut guest = bed.attempt(bed.call(user(3)));
    guest.work().unwrap().story.marks.take_at_once();
    let kept = guest.authorize(proposal(10)).await.unwrap();
    let sent = guest.authorize(proposal(20)).await.unwrap();
    let until = i64::MAX;
    guest.keep(kept, until).await.unwrap();
    guest.dispatched(sent).await.unwrap();
    let permits = std::mem::take(&mut guest.work().unwrap().story.permits);
    let states = abandon_holds(permits, bed.store().now()).map(|step| step.hold.state.as_str());
    assert_eq!(states.collect::<Vec<_>>(), ["voided", "in_doubt"]);
}
