//! Actions that wait for people: how they begin, what is held meanwhile, and how the request is
//! made once people have said yes.

use std::sync::Arc;

use base64::Engine as _;
use charter_engine::job::jobs;
use charter_engine::{Claiming, Leave, Proposal, Ungranted};
use charter_governance::approvals::{self, Content, DECIDE_MS, Origin, Run};
use charter_kernel::governance::hold::State;
use charter_kernel::lease;
use charter_kernel::role::Role;
use charter_kernel::scope::{Principal, Subject};
use charter_kernel::unit::{Draft, Fact, FactKind, Key, Take, Unit, Write};
use charter_tenancy::records::Record as _;
use charter_tenancy::records::approval::{APPROVED, Approval, PENDING, Status, Word};
use charter_tenancy::records::member::Member;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::bed::{Bed, WAITING_MAX, on_both, reason};
use crate::words::{
    CENT, DAY_MS, account, asker, asking, budget, card, credit, fund, id, leave, leave_for, member,
    organization, organization_reach, payment, policy, principal, project, proof, proposal,
    request, soft_budget, user, user_reach,
};

on_both!(
    what_waits_is_held_told_and_kept_sealed,
    what_waits_has_its_room_already,
    nobodys_approvals_keep_those_of_others_from_waiting,
    what_is_approved_is_held_anew_in_the_window_that_counts_now,
    what_is_approved_is_decided_anew,
    what_people_have_approved_uses_up_no_grant,
    words_of_who_has_left_since_carry_no_later_run,
    words_of_who_leaves_carry_nothing_behind_that_commit,
    a_run_that_broke_off_makes_room_for_the_next,
    a_run_again_that_proposes_otherwise_takes_the_place_of_the_first,
    a_hold_under_which_something_left_outlives_the_runs_of_its_approval,
    a_hold_that_was_kept_for_later_outlives_the_runs_of_its_approval,
    an_answer_ends_what_was_approved_once,
    before_its_first_effect_a_request_is_marked_as_begun,
    a_request_that_a_job_answers_ends_as_the_job_does,
);

async fn nobodys_approvals_keep_those_of_others_from_waiting(bed: Bed) {
    bed.set_organization(asking(1)).await;
    let by = |is_pinned: bool, root: &str| {
        let principal = Principal {
            user: is_pinned.then(user),
            project: is_pinned.then(project),
            root: Some(root.to_owned()),
            ..principal(Role::Developer)
        };
        proof(principal).user(user(), Subject::Path).scope()
    };
    let mut waiting = 0;
    for (by, expected) in [
        (by(true, &asker()), WAITING_MAX * 3 / 8),
        (by(false, &asker()), WAITING_MAX * 3 / 16),
        (by(false, "somebody else"), WAITING_MAX * 3 / 32),
    ] {
        let mut taken = 0;
        let refused = loop {
            let leave = Leave { scope: by.clone(), ..leave(0) };
            match bed.ask_from(Some(crate::words::client()), leave).await {
                Err(Ungranted::Pending { .. }) => taken += 1,
                other => break reason(other),
            }
        };
        assert_eq!(refused, "approvals_full");
        assert_eq!(taken, expected, "beside {waiting}");
        waiting += taken;
    }
}

async fn what_waits_is_held_told_and_kept_sealed(bed: Bed) {
    bed.set_organization(asking(2)).await;
    fund(&bed, 10 * CENT).await;
    let approval = bed.wait(payment(4 * CENT)).await;
    assert_eq!(approval.status, Status::PendingApproval);
    assert_eq!(
        (approval.approvals_required, approval.policy_ids.as_slice()),
        (2, ["r".to_owned()].as_slice())
    );
    assert_eq!(
        (approval.amount_micro_usd, approval.asked_by.clone()),
        (Some(4 * CENT), Some(asker()))
    );
    assert_eq!((approval.title.as_str(), approval.message.as_str()), ("A book", "For the shelf"));
    assert_eq!(approval.expires_at, bed.now().plus_ms(DECIDE_MS));
    let hold = bed.hold(&approval.hold).await;
    assert_eq!((hold.state, hold.until), (State::Pending, approval.expires_at));
    let asked = bed.ask_from(Some(crate::words::client()), payment(6 * CENT + 1)).await;
    assert_eq!(reason(asked), "insufficient_credits", "its money is set aside");
    assert_eq!(bed.told().await, 1);
    let (row, _) = bed.audit().await.remove(0);
    assert_eq!(
        (&row["decision"], &row["action"]),
        (&json!("pending_approval"), &json!("shop.buy"))
    );
    // The request can hold secrets: its row has none of it to be read.
    let row = bed.row(&approval.key()).await.unwrap();
    assert!(!row.body.contains("for Ada"));
    let sealed = approvals::request(bed.store(), &approval).await.unwrap();
    assert_eq!(json!(approvals::Request { salt: None, ..sealed.clone() }), json!(request()));
    // Nor can it be tried out by its digest, which all see who see the approval.
    assert_ne!(approval.request_sha256, request().sha256());
    assert_eq!(approval.request_sha256, sealed.sha256());
}

async fn what_waits_has_its_room_already(bed: Bed) {
    bed.set_organization(asking(1)).await;
    bed.set_user(budget(10)).await;
    bed.wait(leave(7 * CENT)).await;
    // Nobody is asked for what no cap admits.
    let asked = bed.ask_from(Some(crate::words::client()), leave(4 * CENT)).await;
    assert_eq!(reason(asked), "budget_exceeded");
    bed.wait(leave(3 * CENT)).await;
    assert_eq!(bed.told().await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_request_than_the_one_that_waits_is_not_made() {
    let bed = Bed::sqlite().await;
    bed.set_organization(asking(1)).await;
    let approval = bed.wait(leave(1)).await;
    let other = Approval { request_sha256: "0".repeat(64), ..approval.clone() };
    let refused = approvals::request(bed.store(), &other).await.unwrap_err();
    assert_eq!(refused.reason.as_deref(), Some("proposal_changed"));
    let forgotten = approvals::request(bed.store(), &approval.clone().forget()).await.unwrap_err();
    assert_eq!(forgotten.code.own_name(), "not_found", "as where its user is gone");
    // Sealed for this approval, and for no other.
    for broken in [
        Approval { id: id(77), ..approval.clone() },
        Approval { request: "no base64".into(), ..approval.clone() },
        Approval {
            request: base64::engine::general_purpose::STANDARD.encode("not sealed"),
            ..approval.clone()
        },
    ] {
        let refused = approvals::request(bed.store(), &broken).await.unwrap_err();
        assert_eq!(refused.code.own_name(), "internal_error");
    }
}

#[test]
fn nothing_of_a_request_changes_without_its_digest() {
    let whole = request();
    let digest = whole.sha256();
    let changed = [
        approvals::Request { operation: "shop.sell".into(), ..whole.clone() },
        approvals::Request { parameters: Vec::new(), ..whole.clone() },
        approvals::Request { body: Some("{ }".into()), ..whole.clone() },
        approvals::Request { user: Some(id(5)), ..whole.clone() },
        approvals::Request { project: (id(2), true), ..whole.clone() },
        approvals::Request { naming: None, ..whole.clone() },
        approvals::Request { principal: None, ..whole.clone() },
        approvals::Request { base: "https://elsewhere.example".into(), ..whole.clone() },
        approvals::Request { tells: Some("shop".into()), ..whole.clone() },
    ];
    for other in changed {
        assert_ne!(other.sha256(), digest, "{other:?}");
    }
    assert_eq!(request().sha256(), digest);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_is_told_how_to_look() {
    let bed = Bed::sqlite().await;
    bed.set_organization(asking(1)).await;
    let untitled = Proposal { title: String::new(), ..proposal(Some(1)) };
    let approval = bed.wait(leave_for(untitled)).await;
    let told = approvals::pending(&approval);
    assert_eq!(
        (&told["status"], &told["approval_id"]),
        (&json!("pending_approval"), &json!(approval.id))
    );
    assert_eq!(told["title"], "shop.buy", "an action without a title has its name");
    let command = told["next_steps"][0]["command"].as_str().unwrap();
    assert!(
        command.contains(&format!("https://charter.example/v1/approvals/{}", approval.id)),
        "{command}"
    );
}

/// Takes what is due of a kind of approvals.
pub async fn take(bed: &Bed, kind: &str) -> Option<Run> {
    let take = Take {
        reach: None,
        space: Approval::space(),
        group: lease::group(&id(1), kind),
        until: bed.now().plus_ms(60_000),
        tokens: vec![format!("token of {kind}")],
    };
    let taken = bed.begin().take(take).await.unwrap().pop()?;
    Some(Run { approval: Approval::read(&taken.row).unwrap(), token: taken.token })
}

/// Has an approver say yes to what waits, and takes it to be made.
async fn approve(bed: &Bed, approval: &Approval) -> Arc<Run> {
    let yes = Word {
        by: account(1).into_string(),
        decision: "approve".into(),
        reason: None,
        self_approved: false,
        at: bed.now(),
    };
    let (status, decisions) = (Status::Approved, vec![yes]);
    let approved = Approval { status, decisions, ..approval.clone() };
    let approver = member(1, Role::Approver);
    let writes = vec![
        Write::Put { key: approver.key(), draft: approver.draft().unwrap() },
        Write::Put { key: approved.key(), draft: approved.due(bed.now()).unwrap() },
    ];
    bed.commit(Unit { writes, ..Unit::default() }).await.unwrap();
    Arc::new(take(bed, APPROVED).await.unwrap())
}

fn again(run: &Arc<Run>) -> Option<Origin> {
    Some(Origin::Approved(run.clone()))
}

async fn what_is_approved_is_held_anew_in_the_window_that_counts_now(bed: Bed) {
    bed.set_organization(asking(1)).await;
    bed.set_organization(budget(10)).await;
    let approval = bed.wait(leave(6 * CENT)).await;
    bed.clock.forward_ms(DAY_MS - 1);
    let run = approve(&bed, &approval).await;
    let granted = bed.ask_from(again(&run), leave(5 * CENT)).await.unwrap();
    assert_eq!(bed.hold(&approval.hold).await.state, State::Voided, "given up in the same unit");
    let meter = bed.meter("organization", &organization_reach()).await;
    assert_eq!(meter.now().reserved, 5 * CENT);
    let held: i64 = meter.counts.values().map(|count| count.reserved).sum();
    assert_eq!(held, 5 * CENT, "nothing is held in yesterday's window");
    bed.capture(&granted.id, 5 * CENT).await;
    let books = charter_governance::verify::verify(bed.store()).await.unwrap();
    assert_eq!(books.faults, Vec::<String>::new());
}

async fn what_is_approved_is_decided_anew(bed: Bed) {
    bed.set_organization(asking(1)).await;
    let approval = bed.wait(leave(6 * CENT)).await;
    let run = approve(&bed, &approval).await;
    // Something else than what was approved.
    let asked = bed.ask_from(again(&run), leave(6 * CENT + 1)).await;
    assert_eq!(reason(asked), "proposal_changed");
    // Another action of the same request was not approved with it.
    let other = Leave { ordinal: 1, ..leave(CENT) };
    assert_eq!(reason(bed.ask_from(again(&run), other).await), "approval_required");
    bed.set_organization(policy(&json!({}))).await;
    assert_eq!(reason(bed.ask_from(again(&run), leave(CENT)).await), "policy_denied");
    bed.set_organization(json!({ "policy": { "rules": [] } })).await;
    bed.set_organization(budget(5)).await;
    assert_eq!(reason(bed.ask_from(again(&run), leave(6 * CENT)).await), "budget_exceeded");
    assert_eq!(bed.hold(&approval.hold).await.state, State::Pending);
    // Beyond a soft cap a person's word is enough, as far as the cap goes once more.
    bed.spend(CENT).await;
    bed.set_organization(soft_budget(5)).await;
    assert_eq!(reason(bed.ask_from(again(&run), leave(6 * CENT)).await), "budget_exceeded");
    bed.set_organization(soft_budget(6)).await;
    let granted = bed.ask_from(again(&run), leave(6 * CENT)).await.unwrap();
    assert_eq!(granted.hold.state, State::Held);
    bed.set_user(json!({ "revoked": { "at": bed.now(), "reason": null } })).await;
    assert_eq!(reason(bed.ask_from(again(&run), leave(CENT)).await), "profile_revoked");
}

async fn what_people_have_approved_uses_up_no_grant(bed: Bed) {
    bed.set_organization(asking(1)).await;
    let approval = bed.wait(leave(CENT)).await;
    bed.insert(&crate::words::given(&json!({ "max_uses": 1 }))).await;
    let run = approve(&bed, &approval).await;
    let granted = bed.ask_from(again(&run), leave(CENT)).await.unwrap();
    assert_eq!((granted.hold.state, granted.hold.decision.grant), (State::Held, None));
    let next = bed.grant(leave(CENT)).await;
    assert_eq!(next.hold.decision.grant.as_deref(), Some("g"), "it is left");
}

async fn words_of_who_has_left_since_carry_no_later_run(bed: Bed) {
    bed.set_organization(asking(1)).await;
    let approval = bed.wait(leave(CENT)).await;
    let run = approve(&bed, &approval).await;
    bed.remove(&Member::address(&organization(), &account(1))).await;
    assert_eq!(reason(bed.ask_from(again(&run), leave(CENT)).await), "approval_required");
    // Nobody is asked by now.
    bed.set_organization(json!({ "policy": { "rules": [] } })).await;
    assert!(bed.ask_from(again(&run), leave(CENT)).await.is_ok());
}

/// At the very moment at which they are counted.
async fn words_of_who_leaves_carry_nothing_behind_that_commit(bed: Bed) {
    bed.set_organization(asking(1)).await;
    for round in 0..30 {
        let approval = bed.wait(leave(1)).await;
        let run = approve(&bed, &approval).await;
        let left = json!({ "action": format!("left-{round}") });
        let left = Fact::event(format!("left-{round}"), id(1), bed.now(), "left", &left);
        let approver = Member::address(&organization(), &account(1));
        let leaves = Unit {
            organization: id(1),
            writes: vec![Write::Remove { key: approver, expected: None }],
            facts: vec![Fact { kind: FactKind::Audit, ..left }],
            ..Unit::default()
        };
        let (asked, done) = tokio::join!(bed.ask_from(again(&run), leave(1)), bed.commit(leaves));
        done.unwrap();
        if let Err(Ungranted::Uncommitted(error)) = &asked {
            panic!("round {round}: {error}");
        }
        let rows = bed.audit().await;
        let (last, _) = rows.last().unwrap();
        let is_behind = last["decision"] == "allowed";
        assert!(!is_behind, "round {round}: leave was taken behind it: {last}");
    }
}

async fn a_run_that_broke_off_makes_room_for_the_next(bed: Bed) {
    bed.set_organization(asking(1)).await;
    bed.set_organization(budget(6)).await;
    let approval = bed.wait(leave(6 * CENT)).await;
    let run = approve(&bed, &approval).await;
    let first = bed.ask_from(again(&run), leave(6 * CENT)).await.unwrap();
    assert_eq!(bed.hold(&approval.hold).await.state, State::Voided);
    assert_eq!(bed.approval(&approval.id).await.hold, first.id, "it is the approval's now");
    // Its host is gone, and another takes it up.
    bed.clock.forward_ms(60_001);
    let run = Arc::new(take(&bed, APPROVED).await.unwrap());
    let second = bed.ask_from(again(&run), leave(6 * CENT)).await.unwrap();
    assert_eq!(bed.hold(&first.id).await.state, State::Voided, "given up in the same unit");
    assert_eq!(bed.hold(&second.id).await.state, State::Held);
    let meter = bed.meter("organization", &organization_reach()).await;
    assert_eq!(meter.now().reserved, 6 * CENT);
    bed.capture(&second.id, 6 * CENT).await;
    let books = charter_governance::verify::verify(bed.store()).await.unwrap();
    assert_eq!(books.faults, Vec::<String>::new());
}

async fn a_run_again_that_proposes_otherwise_takes_the_place_of_the_first(bed: Bed) {
    bed.set_organization(asking(1)).await;
    bed.set_organization(budget(6)).await;
    let approval = bed.wait(leave(6 * CENT)).await;
    let run = approve(&bed, &approval).await;
    let first = bed.ask_from(again(&run), leave(6 * CENT)).await.unwrap();
    // Its first commit met a conflict.
    let Claiming { guards, writes, .. } = run.claiming();
    bed.commit(Unit { guards, writes, ..Unit::default() }).await.unwrap();
    let second = bed.ask_from(again(&run), leave(5 * CENT)).await.unwrap();
    assert_eq!(bed.hold(&first.id).await.state, State::Voided);
    assert_eq!(bed.hold(&second.id).await.state, State::Held);
    assert!(bed.approval(&approval.id).await.has_begun(), "the mark stays");
}

async fn a_hold_under_which_something_left_outlives_the_runs_of_its_approval(bed: Bed) {
    bed.set_organization(asking(1)).await;
    let approval = bed.wait(leave(6 * CENT)).await;
    let run = approve(&bed, &approval).await;
    let first = bed.ask_from(again(&run), leave(6 * CENT)).await.unwrap();
    bed.step(bed.hold(&first.id).await.dispatch(&first.id)).await.unwrap();
    bed.clock.forward_ms(60_001);
    let run = take(&bed, APPROVED).await.unwrap();
    assert_eq!(run.approval.hold, first.id);
    let mut txn = bed.begin();
    run.take_anew(&mut txn, &id(90), bed.now()).await.unwrap();
    txn.commit().await.unwrap();
    assert_eq!(bed.approval(&approval.id).await.hold, id(90));
    assert_eq!(bed.hold(&first.id).await.state, State::Dispatched);
    let mut txn = bed.begin();
    run.end(&mut txn, Err(json!({ "code": "conflict" }))).await.unwrap();
    txn.commit().await.unwrap();
    assert_eq!(bed.approval(&approval.id).await.status, Status::Failed);
    assert_eq!(bed.hold(&first.id).await.state, State::Dispatched, "nor does the end void it");
}

async fn a_hold_that_was_kept_for_later_outlives_the_runs_of_its_approval(bed: Bed) {
    bed.set_organization(asking(1)).await;
    let approval = bed.wait(leave(6 * CENT)).await;
    let run = approve(&bed, &approval).await;
    let first = bed.ask_from(again(&run), leave(6 * CENT)).await.unwrap();
    let until = bed.now().plus_ms(3_600_000);
    bed.step(bed.hold(&first.id).await.keep(&first.id, until)).await.unwrap();
    bed.clock.forward_ms(60_001);
    let run = take(&bed, APPROVED).await.unwrap();
    let mut txn = bed.begin();
    run.end(&mut txn, Err(json!({ "code": "conflict" }))).await.unwrap();
    txn.commit().await.unwrap();
    assert_eq!(bed.hold(&first.id).await.state, State::Held);
}

async fn an_answer_ends_what_was_approved_once(bed: Bed) {
    bed.set_organization(asking(1)).await;
    let approval = bed.wait(leave(1)).await;
    let run = approve(&bed, &approval).await;
    let stranger = Run { token: "another host".into(), approval: run.approval.clone() };
    let mut txn = bed.begin();
    stranger.end(&mut txn, Err(json!({ "code": "conflict" }))).await.unwrap();
    assert!(txn.commit().await.is_err(), "its lease is another's");
    let mut txn = bed.begin();
    run.end(&mut txn, Ok((201, Content::Whole(br#"{"id":"b1"}"#)))).await.unwrap();
    txn.commit().await.unwrap();
    let over = bed.approval(&approval.id).await;
    assert_eq!((over.status, over.result_status), (Status::Succeeded, Some(201)));
    assert!(!over.result_not_kept);
    assert_eq!((over.result, over.resolved_at), (Some(json!({ "id": "b1" })), Some(bed.now())));
    let events = bed.events().await;
    let [(name, event)] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!(
        (name.as_str(), &event["payload"]["status"]),
        ("approval.resolved", &json!("approved"))
    );
    let mut txn = bed.begin();
    run.end(&mut txn, Err(json!({}))).await.unwrap();
    assert!(txn.commit().await.is_err(), "it is over");
    assert!(take(&bed, APPROVED).await.is_none(), "nobody makes it again");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_says_what_became_of_the_request() {
    let large = format!("\"{}\"", "x".repeat(256 << 10));
    let denied = json!({ "code": "forbidden", "reason": "policy_denied" });
    let refused = Some("policy_denied");
    for (result, status, answer, told, why) in [
        (Ok((200, Content::Whole(b"[1]"))), Status::Succeeded, Some(json!([1])), "approved", None),
        (Ok((204, Content::Whole(b""))), Status::Succeeded, None, "approved", None),
        (Ok((200, Content::Whole(b"no json"))), Status::Succeeded, None, "approved", None),
        // An answer that is too large or shows a secret is not kept: its status is.
        (Ok((200, Content::Whole(large.as_bytes()))), Status::Succeeded, None, "approved", None),
        (Ok((200, Content::Withheld)), Status::Succeeded, None, "approved", None),
        (Err(denied.clone()), Status::Failed, None, "failed", refused),
        (Err(json!({ "code": "conflict" })), Status::Failed, None, "failed", None),
    ] {
        let bed = Bed::sqlite().await;
        bed.set_organization(asking(1)).await;
        let approval = bed.wait(leave(1)).await;
        let run = approve(&bed, &approval).await;
        let mut txn = bed.begin();
        run.end(&mut txn, result).await.unwrap();
        txn.commit().await.unwrap();
        let over = bed.approval(&approval.id).await;
        let is_kept = answer.is_some() || over.result_status.is_none_or(|status| status == 204);
        assert_eq!((over.status, over.result), (status, answer));
        assert_eq!(over.result_not_kept, !is_kept);
        assert_eq!(bed.hold(&approval.hold).await.state, State::Voided, "nothing has used it");
        let (_, event) = bed.events().await.remove(0);
        let payload = &event["payload"];
        assert_eq!((&payload["status"], &payload["reason"]), (&json!(told), &json!(why)));
        assert_eq!((&event["user"], &event["primitive"]), (&json!(id(3)), &json!("shop")));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approval_that_nobody_decided_falls_due_and_reads_as_denied() {
    let bed = Bed::sqlite().await;
    bed.set_organization(asking(1)).await;
    let approval = bed.wait(leave(1)).await;
    bed.clock.forward_ms(DECIDE_MS - 1);
    assert!(take(&bed, PENDING).await.is_none());
    bed.clock.forward_ms(1);
    let due = take(&bed, PENDING).await.unwrap();
    for (status, reason) in [(Status::Expired, "expired"), (Status::Canceled, "canceled")] {
        let over = Approval { status, ..due.approval.clone() };
        let mut txn = bed.begin();
        approvals::release(&mut txn, &over, bed.now()).await.unwrap();
        approvals::settle(&mut txn, &over, &due.token, bed.now()).unwrap();
        let event = &txn.unit().facts[0];
        let payload = event.payload(&serde_json::from_str(&event.body).unwrap()).unwrap();
        assert_eq!((&payload["status"], &payload["reason"]), (&json!("denied"), &json!(reason)));
        if status == Status::Canceled {
            txn.commit().await.unwrap();
        }
    }
    assert_eq!(bed.hold(&approval.hold).await.state, State::Voided);
    assert_eq!(bed.approval(&approval.id).await.status, Status::Canceled);
}

async fn before_its_first_effect_a_request_is_marked_as_begun(bed: Bed) {
    bed.set_organization(asking(1)).await;
    let approval = bed.wait(leave(1)).await;
    let run = approve(&bed, &approval).await;
    let claiming = run.claiming();
    assert_eq!(claiming.guards, [run.fence()]);
    let unit = |writes| Unit { guards: vec![run.fence()], writes, ..Unit::default() };
    bed.commit(unit(claiming.writes.clone())).await.unwrap();
    assert!(bed.approval(&approval.id).await.has_begun());
    // Nothing left after all: it is there to be made.
    bed.commit(unit(claiming.undo)).await.unwrap();
    assert!(!bed.approval(&approval.id).await.has_begun());
    bed.commit(unit(claiming.writes)).await.unwrap();
    // It is still this host's, until its lease has ended.
    let fenced = Unit { guards: vec![run.fence()], ..Unit::default() };
    bed.commit(fenced.clone()).await.unwrap();
    bed.clock.forward_ms(60_001);
    let next = take(&bed, APPROVED).await.unwrap();
    assert!(next.approval.has_begun(), "whoever takes it over knows");
}

/// Puts a job of the user's in this state; answers its address.
async fn put_job(bed: &Bed, n: u8, state: &str) -> Key {
    let key = Key::new(&user_reach(), &jobs(), id(n));
    let job = json!({
        "primitive": "shop", "signal": "job", "name": "buy", "payload": {}, "attempts_max": 3,
        "owner": { "organization": id(1), "project": id(2) }, "public": false,
        "run_at": bed.now(), "state": state, "result": { "id": "b1" },
        "error": { "code": "card_declined" },
    });
    let draft = Draft { body: job.to_string(), ..Draft::default() };
    let write = Write::Put { key: key.clone(), draft };
    bed.commit(Unit { writes: vec![write], ..Unit::default() }).await.unwrap();
    key
}

/// Has the approval of a request that was made wait for the job that answers it.
async fn await_job(bed: &Bed, job: &Key) -> Approval {
    let approval = bed.wait(leave(1)).await;
    let run = approve(bed, &approval).await;
    let mut txn = bed.begin();
    run.await_job(&mut txn, job.clone(), 201).await.unwrap();
    txn.commit().await.unwrap();
    bed.approval(&approval.id).await
}

/// Looks at the job behind the approval that is due next.
async fn follow(bed: &Bed) {
    bed.clock.forward_ms(1_000);
    let run = take(bed, APPROVED).await.unwrap();
    let mut txn = bed.begin();
    run.follow_job(&mut txn).await.unwrap();
    txn.commit().await.unwrap();
}

async fn a_request_that_a_job_answers_ends_as_the_job_does(bed: Bed) {
    bed.set_organization(asking(1)).await;
    for (n, state, reason) in [
        (80, "succeeded", Value::Null),
        (81, "failed", Value::Null),
        (82, "cancelled", json!("job_cancelled")),
        (83, "gone", json!("job_gone")),
    ] {
        let told = bed.events().await.len();
        let job = put_job(&bed, n, "queued").await;
        let waits = await_job(&bed, &job).await;
        assert_eq!((waits.status, waits.begun, waits.resolved_at), (Status::Executing, true, None));
        assert_eq!(bed.hold(&waits.hold).await.state, State::Voided, "it was not used");
        assert!(take(&bed, APPROVED).await.is_none(), "not at once");
        follow(&bed).await;
        assert_eq!(bed.approval(&waits.id).await.status, Status::Executing, "{state}");
        assert_eq!(bed.events().await.len(), told, "nothing is resolved yet");
        match state {
            "gone" => bed.remove(&job).await,
            _ => drop(put_job(&bed, n, state).await),
        }
        follow(&bed).await;
        let over = bed.approval(&waits.id).await;
        if state == "succeeded" {
            assert_eq!((over.status, over.result_status), (Status::Succeeded, Some(201)));
            assert_eq!((over.result, over.error), (Some(json!({ "id": "b1" })), None));
        } else {
            assert_eq!((over.status, over.result), (Status::Failed, None), "{state}");
            let error = over.error.unwrap();
            assert_eq!(error["reason"], reason, "{state}");
            assert_eq!(error["code"] == "card_declined", state == "failed");
        }
        assert_eq!(bed.events().await.len(), told + 1);
        assert!(take(&bed, APPROVED).await.is_none(), "it is over");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_answers_for_an_erased_user_leaves_nothing_of_it_in_the_approval() {
    let bed = Bed::sqlite().await;
    bed.set_organization(asking(1)).await;
    let job = put_job(&bed, 80, "queued").await;
    let forgotten = await_job(&bed, &job).await.forget();
    let draft = forgotten.draft().unwrap();
    let write = Write::Replace { key: forgotten.key(), draft, expected: None };
    bed.commit(Unit { writes: vec![write], ..Unit::default() }).await.unwrap();
    put_job(&bed, 80, "succeeded").await;
    follow(&bed).await;
    let over = bed.approval(&forgotten.id).await;
    assert_eq!((over.status, over.result.as_ref()), (Status::Succeeded, None));
    assert!(over.is_forgotten());
}

proptest! {
    #[test]
    fn an_approval_covers_the_same_action_on_the_same_thing_and_no_more_of_it(
        approved in proptest::option::of(0..1_000_i64),
        asked in proptest::option::of(0..1_000_i64),
        same in proptest::array::uniform7(proptest::bool::weighted(0.9)),
        noted in proptest::bool::ANY,
    ) {
        let [action, entity, primitive, accounts, title, message, context] = same;
        let pick = |same: bool, own: &str| if same { own.to_owned() } else { "other".to_owned() };
        let mut run = run_of(approved);
        // Rows of earlier builds do not say.
        run.approval.accounts = noted.then(|| vec![card(), credit()]);
        run.approval.worded = noted;
        let pay = if accounts { (card(), credit()) } else { (credit(), card()) };
        let wanted = Leave {
            primitive: pick(primitive, "shop"),
            ..leave_for(Proposal {
                action: pick(action, "shop.buy"),
                entity: pick(entity, "card-1"),
                title: pick(title, "A book"),
                message: pick(message, "For the shelf"),
                context: json!({ "isbn": pick(context, "1") }),
                pay: Some(pay),
                ..proposal(asked)
            })
        };
        let fits = match (approved, asked) {
            (Some(approved), Some(asked)) => asked <= approved,
            (approved, asked) => approved == asked,
        };
        prop_assert_eq!(run.covers(&wanted), fits && action && entity && primitive && (title && message && context && accounts || !noted));
    }
}

proptest! {
    #[test]
    fn a_number_that_people_have_read_is_the_same_number_in_the_row(number in proptest::num::f64::NORMAL) {
        let context = json!({ "at": number });
        let mut run = run_of(Some(1));
        (run.approval.context, run.approval.worded) = (context.clone(), true);
        run.approval = serde_json::from_str(&json!(run.approval).to_string()).unwrap();
        let wanted = Proposal { context, pay: Some((card(), credit())), ..proposal(Some(1)) };
        prop_assert!(run.covers(&leave_for(wanted)), "{number}");
    }
}

/// A request that was approved for so much.
fn run_of(amount: Option<i64>) -> Run {
    let approval = json!({
        "id": id(70), "organization": id(1), "status": "approved", "action": "shop.buy", "primitive": "shop",
        "entity": "card-1", "title": "A book", "message": "For the shelf", "context": { "isbn": "1" }, "amount_micro_usd": amount,
        "subject": { "organization": id(1), "actor": ["key", "k"] }, "policy_ids": [],
        "approvals_required": 1, "hold": id(71), "request_id": id(50), "ordinal": 0,
        "request_sha256": "", "request": "", "base": "", "expires_at": crate::bed::START,
        "created_at": crate::bed::START,
    });
    Run { approval: serde_json::from_value(approval).unwrap(), token: "t".into() }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_request_without_a_way_back_nobody_is_asked() {
    let bed = Bed::sqlite().await;
    use charter_governance::gateway::CallGateway;
    assert!(!CallGateway::open(&bed.governance, None).is_repeatable());
    assert!(CallGateway::open(&bed.governance, Some(crate::words::client())).is_repeatable());
    bed.set_organization(soft_budget(1)).await;
    let asked = bed.ask(leave(2 * CENT)).await;
    assert!(matches!(asked, Err(Ungranted::Refused(_))));
    assert_eq!(bed.told().await, 0);
}
