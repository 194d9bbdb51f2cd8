//! The last step of a hold whose request ends without a commit.

use super::*;
use crate::bindings::charter::primitive::governance::{Host as _, HostPermit as _};
use crate::run::bed::{Bed, proposal, user};

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
