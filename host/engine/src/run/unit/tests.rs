//! The end of a request whose commit was rejected, and of the claim and the guards that ride in its
//! units.

use charter_kernel::unit::{Claim, Draft, Reach, Space, Write};

use super::*;
use crate::call::Claiming;
use crate::run::bed::{Bed, call_of, proposal, user};
use crate::state::State;

fn row(id: &str) -> Key {
    Key::new(&Reach::user("u"), &Space::host("things"), id)
}

fn entry(id: &str) -> Guard {
    Guard::Entry { key: row(id), field: "status".into(), value: "active".into() }
}

/// The claim of an idempotency key, whose row is leased to this request.
fn claiming(id: &str) -> Claiming {
    let draft = Draft {
        body: "{}".into(),
        index: vec![("status".into(), "active".into())],
        ..Draft::default()
    };
    Claiming {
        key: row(id),
        writes: vec![Write::Insert { key: row(id), draft }],
        undo: Vec::new(),
        guards: Vec::new(),
        fence: entry(id),
    }
}

#[tokio::test]
async fn a_rejection_of_what_the_caller_gave_begins_from_the_top_and_of_the_guests_runs_again() {
    let bed = Bed::new().await;
    let lease = Guard::Lease { key: row("job"), token: "t".into() };
    let revision = |space: &str| Guard::Revision {
        reach: Reach::user("u"),
        space: Space::host(space),
        revision: 1,
    };
    let guards = vec![
        Guard::Version { key: row("version"), version: None },
        Guard::Unchanged { key: row("kit"), version: 1 },
        Guard::Inserted { key: row("member"), at: charter_kernel::time::Instant(1) },
        Guard::Stamp { key: row("stamp"), stamp: 1 },
        entry("user"),
        lease,
        revision("keys"),
    ];
    let call = Call { guards, claim: Some(claiming("claim")), ..bed.call(user(3)) };
    let marks = Marks::default();
    marks.require(vec![Guard::Unchanged { key: row("root"), version: 1 }]);
    let conflict = |keys: &[Key]| Rejection::Conflict { keys: keys.to_vec() };
    let whole = |space: &str| Key::new(&Reach::user("u"), &Space::host(space), "");
    let guests = |key: Key| Abort::Conflict(vec![key]);
    for (rejection, abort) in [
        (conflict(&[row("version")]), Abort::Restart),
        (conflict(&[row("kit")]), Abort::Restart),
        (conflict(&[row("member")]), Abort::Restart),
        (conflict(&[row("root")]), Abort::Restart),
        (conflict(&[row("stamp")]), Abort::Restart),
        (conflict(&[row("user")]), Abort::Restart),
        (conflict(&[row("job")]), Abort::Restart),
        (conflict(&[row("claim")]), Abort::Restart),
        (conflict(&[row("guests"), row("kit")]), Abort::Restart),
        (conflict(&[whole("keys")]), Abort::Restart),
        (conflict(&[whole("things")]), guests(whole("things"))),
        (conflict(&[row("guests")]), guests(row("guests"))),
        // Nobody knows what of: the caller has asked for a revision, which names no row.
        (conflict(&[]), Abort::Restart),
        (Refused::Inactive { key: row("user"), field: "status".into() }.into(), Abort::Inactive),
        (Refused::Exists { key: row("claim") }.into(), Abort::Restart),
        (Refused::Missing { key: row("claim") }.into(), Abort::Restart),
        (Refused::Stale { key: row("claim"), current: 2 }.into(), Abort::Restart),
        (Refused::LeaseLost { key: row("claim") }.into(), Abort::Restart),
        (Refused::LeaseLost { key: row("job") }.into(), Abort::Restart),
    ] {
        let error = CommitError::Rejected(rejection.clone());
        assert_eq!(Abort::of(error, &call, &marks), abort, "{rejection:?}");
    }
    for refused in [
        Refused::Exists { key: row("guests") },
        Refused::Missing { key: row("guests") },
        Refused::Stale { key: row("guests"), current: 2 },
        Refused::LeaseLost { key: row("guests") },
        Refused::TooLarge { limit: "much" },
    ] {
        let error = CommitError::Rejected(refused.clone().into());
        assert_eq!(Abort::of(error, &call, &marks), Abort::Refused(refused));
    }
}

#[tokio::test]
async fn a_call_without_guards_or_claim_blames_its_guest_alone() {
    let bed = Bed::new().await;
    let (call, marks) = (bed.call(user(3)), Marks::default());
    for keys in [vec![], vec![row("a")]] {
        let error = CommitError::Rejected(Rejection::Conflict { keys: keys.clone() });
        assert_eq!(Abort::of(error, &call, &marks), Abort::Conflict(keys));
    }
    let exists = Refused::Exists { key: row("claim") };
    let error = CommitError::Rejected(exists.clone().into());
    assert_eq!(Abort::of(error, &call, &marks), Abort::Refused(exists));
    let claim = Guard::Claim { claim: Claim::name("domain", "a.test"), holder: None };
    let call = Call { guards: vec![claim], ..bed.call(user(3)) };
    let unknown = CommitError::Rejected(Rejection::Conflict { keys: Vec::new() });
    assert_eq!(Abort::of(unknown, &call, &marks), Abort::Restart, "a name is no row");
}

#[tokio::test]
async fn a_store_that_takes_nothing_is_told_with_a_time_to_come_back() {
    let bed = Bed::new().await;
    let (call, marks) = (bed.call(user(3)), Marks::default());
    for (error, wait) in [
        (CommitError::Overloaded { retry_after_s: 7 }, 7),
        (CommitError::ReadOnly { reason: "full".into() }, 30),
        (CommitError::Failed, 1),
    ] {
        assert_eq!(Abort::of(error.clone(), &call, &marks), Abort::Unavailable(wait), "{error:?}");
    }
}

#[test]
fn a_guest_whose_attempt_is_over_hears_of_the_rule_or_that_it_is_over() {
    let refused = Abort::Refused(Refused::Frozen { key: row("a") });
    assert_eq!(refused.failure().reason.as_deref(), Some("FROZEN"));
    for abort in [
        Abort::Restart,
        Abort::Inactive,
        Abort::Unavailable(1),
        Abort::Conflict(vec![row("a")]),
        Abort::Pending("a-1".into()),
    ] {
        let told = abort.failure();
        assert_eq!((told.code.as_str(), told.reason), ("state_conflict", None), "{abort:?}");
    }
}

/// Writes a row that says whether something is active.
async fn put(bed: &Bed, id: &str, status: &str) {
    let index = vec![("status".to_owned(), status.to_owned())];
    let mut txn = bed.store().begin("");
    let draft = Draft { body: "{}".into(), index, ..Draft::default() };
    txn.put(row(id), draft).await.unwrap();
    txn.commit().await.unwrap();
}

async fn force(guest: &mut State) -> Result<(), Failure> {
    guest.work()?;
    let (shared, call, marks) = call_of(guest);
    shared.force_claim(&call, &marks).await
}

#[tokio::test]
async fn a_claim_is_committed_once_before_an_effect_and_fences_what_follows() {
    let bed = Bed::new().await;
    put(&bed, "user", "active").await;
    let call = || Call {
        claim: Some(claiming("claim")),
        guards: vec![entry("user")],
        ..bed.call(user(3))
    };
    let mut guest = bed.attempt(call());
    force(&mut guest).await.unwrap();
    force(&mut guest).await.unwrap();
    assert!(bed.row(&row("claim")).await.is_some(), "it stands before the request's own commit");
    // Another request with the same key meets it, and the attempt is over whatever its guest says.
    let mut second = bed.attempt(call());
    assert!(force(&mut second).await.is_err());
    assert_eq!(second.work().map(drop).unwrap_err().code, "state_conflict");
    assert_eq!(bed.end(second, true).await, Err("commit:Restart".into()));
    // A request that loses it afterwards commits nothing.
    put(&bed, "claim", "another's").await;
    let work = guest.work().unwrap();
    let marks = work.story.marks.clone();
    fence(&mut work.txn, &work.call, &marks);
    work.txn.put(row("written"), Draft { body: "{}".into(), ..Draft::default() }).await.unwrap();
    assert_eq!(bed.end(guest, true).await, Err("commit:Inactive".into()));
    assert_eq!(bed.row(&row("written")).await, None);
}

#[tokio::test]
async fn a_claim_is_made_with_the_first_portion_and_not_without_it() {
    use crate::bindings::charter::primitive::documents::Host as _;
    let bed = Bed::new().await;
    let call = || Call { claim: Some(claiming("claim")), ..bed.call(user(3)) };
    for comes in [false, true] {
        let mut guest = bed.attempt(call());
        let marks = call_of(&mut guest).2;
        let work = guest.work().unwrap();
        let draft = Draft { body: "{}".into(), ..Draft::default() };
        work.txn.put(row("written"), draft).await.unwrap();
        if !comes {
            work.txn.guard(Guard::Version { key: row("other"), version: Some(1) });
        }
        assert_eq!(guest.checkpoint().await.is_ok(), comes);
        let is_there = async |id| bed.row(&row(id)).await.is_some();
        assert_eq!(
            (marks.claimed.initialized(), is_there("claim").await, is_there("written").await),
            (comes, comes, comes)
        );
    }
    // The next request under the key meets it.
    let mut second = bed.attempt(call());
    assert!(force(&mut second).await.is_err());
}

#[tokio::test]
async fn no_claim_is_made_for_who_was_revoked() {
    let bed = Bed::new().await;
    put(&bed, "user", "revoked").await;
    let call =
        Call { claim: Some(claiming("claim")), guards: vec![entry("user")], ..bed.call(user(3)) };
    let mut guest = bed.attempt(call);
    assert!(force(&mut guest).await.is_err());
    assert_eq!(bed.end(guest, true).await, Err("commit:Inactive".into()));
    assert_eq!(bed.row(&row("claim")).await, None);
}

#[tokio::test]
async fn once_it_has_acted_a_request_is_committed_unless_somebody_is_revoked() {
    let bed = Bed::new().await;
    let kit = || Guard::Unchanged { key: row("kit"), version: 1 };
    let root = || Guard::Unchanged { key: row("root"), version: 1 };
    let armed = |is_dispatched: bool, is_claimed: bool| {
        let call = Call {
            claim: Some(claiming("claim")),
            guards: vec![entry("user"), kit()],
            ..bed.call(user(3))
        };
        let marks = Marks::default();
        marks.require(vec![entry("key"), root()]);
        if is_dispatched {
            marks.dispatch();
        }
        if is_claimed {
            marks.claimed.set(()).unwrap();
        }
        let mut txn = bed.store().begin("");
        arm(&mut txn, &call, &marks);
        txn.unit().guards.clone()
    };
    let all = [entry("user"), kit(), entry("key"), root()];
    assert_eq!(armed(false, false), all);
    assert_eq!(armed(false, true), [&all[..], &[entry("claim")]].concat());
    assert_eq!(armed(true, true), [entry("user"), entry("key"), entry("claim")]);
    assert_eq!(armed(true, false), [entry("user"), entry("key")]);
}

#[tokio::test]
async fn leave_is_used_only_while_it_counts_under_which_it_was_given() {
    use crate::bindings::charter::primitive::documents::Host as _;
    use crate::bindings::charter::primitive::governance::{Host as _, HostPermit as _};
    let bed = Bed::new().await;
    for counts in [true, false] {
        for step in ["dispatch", "checkpoint", "effect", "end"] {
            put(&bed, "key", "active").await;
            *bed.till.conditions.lock().unwrap() = vec![entry("key")];
            let mut guest = bed.attempt(bed.call(user(3)));
            let permit = guest.authorize(proposal(10)).await.unwrap();
            let (shared, call, marks) = call_of(&mut guest);
            shared.take_untaken(&call, &marks).await.unwrap();
            if !counts {
                put(&bed, "key", "revoked").await;
            }
            let draft = Draft { body: "{}".into(), ..Draft::default() };
            guest.work().unwrap().txn.put(row("written"), draft).await.unwrap();
            let done = match step {
                "dispatch" => guest.dispatched(permit).await.is_ok(),
                "checkpoint" => guest.checkpoint().await.is_ok(),
                "effect" => shared.admit_effect(&call, &marks).await.is_ok(),
                _ => bed.end(guest, true).await.is_ok(),
            };
            assert_eq!(done, counts, "{step}");
        }
    }
}

#[tokio::test]
async fn a_checkpoint_keeps_what_there_is_and_lets_nothing_be_run_again() {
    use crate::bindings::charter::primitive::documents::Host as _;
    let bed = Bed::new().await;
    let mut guest = bed.attempt(bed.call(user(3)));
    let first = guest.insert("notes".into(), "{\"n\":1}".into(), None).await.unwrap().id;
    guest.checkpoint().await.unwrap();
    let second = guest.insert("notes".into(), "{\"n\":2}".into(), None).await.unwrap().id;
    let marks = guest.work().unwrap().story.marks.clone();
    assert!(marks.is_dispatched());
    bed.end(guest, false).await.unwrap();
    let kept = |id: String| Key::new(&user(3).narrowest(), &Space::of("shop", "notes"), id);
    assert!(bed.row(&kept(first)).await.is_some());
    assert_eq!(bed.row(&kept(second)).await, None);
}

#[tokio::test]
async fn a_checkpoint_under_a_lost_claim_or_a_revocation_commits_nothing() {
    use crate::bindings::charter::primitive::documents::Host as _;
    let bed = Bed::new().await;
    for (status, taken) in [("revoked", false), ("active", true)] {
        put(&bed, "user", status).await;
        if taken {
            put(&bed, "claim", "another's").await;
        }
        let call = Call {
            claim: Some(claiming("claim")),
            guards: vec![entry("user")],
            ..bed.call(user(3))
        };
        let mut guest = bed.attempt(call);
        let id = guest.insert("notes".into(), "{}".into(), None).await.unwrap().id;
        assert!(guest.checkpoint().await.is_err(), "{status}");
        assert!(bed.end(guest, true).await.is_err());
        let key = Key::new(&user(3).narrowest(), &Space::of("shop", "notes"), id);
        assert_eq!(bed.row(&key).await, None, "{status}");
    }
}
