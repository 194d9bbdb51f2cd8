//! The last step of a hold whose request ends without a commit, and the rows that tell of leave.

use charter_kernel::audit::AuditRow;
use charter_kernel::unit::FactKind;
use wasmtime::component::Resource;

use super::*;
use crate::bindings::charter::primitive::governance::{Host as _, HostPermit as _};
use crate::run::bed::{Bed, call_of, proposal, user};
use crate::state::State;

/// The action of the row that names a hold, and of the one in its place.
const ROWS: [&str; 2] = ["named", "unnamed"];

fn row(action: &str) -> Vec<Fact> {
    let scope = user(3);
    let row = AuditRow { organization: scope.lane(), action, ..AuditRow::default() };
    vec![charter_store::audit_fact(&row).unwrap()]
}

/// Asks for leave whose hold is taken later, with a row for either case.
async fn defer(guest: &mut State) -> Resource<crate::handles::Permit> {
    let permit = guest.authorize(proposal(10)).await.unwrap();
    let marks = call_of(guest).2;
    let mut untaken = marks.untaken.lock().await;
    let last = untaken.last_mut().unwrap();
    (last.unit.facts, last.facts) = (row(ROWS[0]), row(ROWS[1]));
    permit
}

/// The actions of a unit's rows.
fn actions(txn: &Txn) -> Vec<&str> {
    txn.unit().facts.iter().map(|fact| fact.name.as_str()).collect()
}

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

#[tokio::test]
async fn a_row_names_a_hold_only_where_the_hold_is_taken() {
    let bed = Bed::new().await;
    for (end, answered, is_taken) in [
        ("capture", true, true),
        ("capture", false, false),
        ("part", true, true),
        ("part", false, false),
        ("keep", true, true),
        ("keep", false, false),
        ("cancel", true, false),
        ("cancel", false, false),
        ("drop", true, false),
        ("drop", false, false),
    ] {
        let mut guest = bed.attempt(bed.call(user(3)));
        let permit = defer(&mut guest).await;
        let said = match end {
            "capture" => guest.capture(permit, 4).await,
            "part" => guest.capture_part(permit, 4, i64::MAX).await,
            "keep" => guest.keep(permit, i64::MAX).await,
            "cancel" => guest.cancel(permit).await,
            _ => Ok(()),
        };
        said.unwrap();
        let story = &guest.work().unwrap().story;
        let untaken = story.marks.untaken.lock().await;
        let mut txn = bed.store().begin(user(3).lane());
        let now = bed.store().now();
        settle(&story.permits, &untaken, &mut txn, answered, story.attempt, now);
        let told = if is_taken { ROWS[0] } else { ROWS[1] };
        assert_eq!(actions(&txn), [told], "{end}, answered: {answered}");
        assert_eq!(txn.unit().writes.is_empty(), !is_taken, "{end}, answered: {answered}");
    }
}

#[tokio::test]
async fn a_hold_that_is_taken_ahead_of_the_end_is_named() {
    let bed = Bed::new().await;
    let mut guest = bed.attempt(bed.call(user(3)));
    defer(&mut guest).await;
    let (shared, call, marks) = call_of(&mut guest);
    shared.take_untaken(&call, &marks).await.unwrap();
    bed.end(guest, false).await.unwrap();
    let rows = bed.store().facts(FactKind::Audit, user(3).lane(), 0, 10).await.unwrap();
    assert_eq!(rows.iter().map(|row| row.fact.name.as_str()).collect::<Vec<_>>(), [ROWS[0]]);
}

#[tokio::test]
async fn a_request_that_waits_names_no_hold_of_the_leave_before() {
    let bed = Bed::new().await;
    let mut guest = bed.attempt(bed.call(user(3)));
    defer(&mut guest).await;
    guest.authorize(proposal(20)).await.unwrap();
    let waiting = bed.till.asked.lock().unwrap()[1].waiting.clone().unwrap();
    let mut txn = bed.store().begin(user(3).lane());
    waiting.note(&mut txn, "a-1", "{}").await.unwrap();
    assert_eq!(actions(&txn), [ROWS[1]]);
}
