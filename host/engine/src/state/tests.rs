//! The moment when an attempt may go on, and what it may do.

use super::*;
use crate::call::Call;
use crate::run::bed::{Bed, handle, user};
use crate::story::Abort;

#[tokio::test]
async fn an_attempt_that_is_over_does_nothing_more() {
    let bed = Bed::new().await;
    let mut guest = bed.attempt(bed.call(user(3)));
    assert!(guest.work().is_ok() && guest.mutation().is_ok() && guest.mutation_of_money().is_ok());
    guest.work().unwrap().story.marks.abort(Abort::Conflict(Vec::new()));
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
