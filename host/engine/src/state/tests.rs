//! An attempt's memory for the next one, and the moment when it may go on.

use super::*;
use crate::call::Call;
use crate::run::bed::{Bed, handle, user};

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
    marks.take_at_once();
    marks.claimed.set(()).unwrap();
    marks.dispatch();
    let next = marks.again();
    assert!(!next.defers() && next.claimed.initialized());
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

#[tokio::test]
async fn an_attempt_that_is_over_does_nothing_more() {
    let bed = Bed::new().await;
    let mut guest = bed.attempt(bed.call(user(3)));
    assert!(guest.work().is_ok() && guest.mutation().is_ok() && guest.mutation_of_money().is_ok());
    guest.work().unwrap().story.marks.abort(conflict());
    for said in [
        guest.work().map(drop),
        guest.mutation().map(drop),
        guest.mutation_of_money().map(drop),
        guest.work_that_changes().map(drop),
    ] {
        assert_eq!(said.unwrap_err().code, "state_conflict");
    }
    assert!(!guest.unsealed, "a call is no description");
}

#[tokio::test]
async fn a_read_reads_and_changes_nothing() {
    let bed = Bed::new().await;
    let call = Call { mutates: false, entry: handle("shop.look"), ..bed.call(user(3)) };
    let mut guest = bed.attempt(call);
    assert!(guest.work().is_ok());
    for said in [guest.mutation().map(drop), guest.work_that_changes().map(drop)] {
        assert_eq!(said.unwrap_err().reason.as_deref(), Some("UNDECLARED"));
    }
}

#[tokio::test]
async fn a_call_holds_so_many_handles() {
    let bed = Bed::new().await;
    let mut guest = bed.attempt(bed.call(user(3)));
    for _ in 0..TABLE_ENTRIES_MAX {
        guest.table.push(0_u8).unwrap();
    }
    assert!(guest.table.push(0_u8).is_err());
}
