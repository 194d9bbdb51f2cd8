//! Words of people on what waits: whose counts, how many it takes, and what a no gives back.

use charter_governance::decide::{self, Decision, Person, Said};
use charter_kernel::governance::hold::State;
use charter_kernel::refusal::Refusal;
use charter_kernel::role::Role;
use charter_kernel::unit::{Reach, Unit, Write};
use charter_store::CommitError;
use charter_tenancy::records::Record as _;
use charter_tenancy::records::approval::{APPROVED, Approval, Status};
use charter_tenancy::records::erasure::Erasure;
use charter_tenancy::records::member::Member;
use charter_tenancy::stored;
use serde_json::json;

use crate::bed::{Bed, on_both};
use crate::waiting::take;
use crate::words::{
    CENT, account, asking, fund, id, leave, member, organization, organization_reach, payment,
};

on_both!(
    one_yes_has_the_request_made,
    a_no_gives_back_what_was_held,
    two_people_are_two_people,
    who_asked_decides_only_where_nobody_else_could,
    who_asked_counts_no_more_once_somebody_else_could,
    words_of_who_left_or_was_demoted_count_no_more,
    who_came_back_speaks_again,
    of_two_words_at_once_each_counts_once,
    somebody_who_could_decide_is_found_among_many,
);

/// The nth person says a word, as a member of this role.
async fn say_as(
    bed: &Bed,
    (n, role): (u8, Role),
    approval: &str,
    decision: Decision,
) -> Result<Said, Refusal> {
    let mut txn = bed.begin();
    let key = Approval::address(&id(1), approval);
    let found = stored::get::<Approval>(&mut txn, &key).await.unwrap().unwrap();
    let (organization, who) = (organization(), account(n).into_string());
    let person = Person { organization: &organization, account: &who, role, via: "mail_link" };
    let (now, why) = (bed.now(), Some("because".to_owned()));
    let said = decide::decide(&mut txn, &person, found, decision, why, now).await?;
    txn.commit().await.unwrap();
    Ok(said)
}

async fn say(bed: &Bed, n: u8, approval: &str, decision: Decision) -> Result<Said, Refusal> {
    say_as(bed, (n, Role::Approver), approval, decision).await
}

fn why(refused: Result<Said, Refusal>) -> String {
    match refused {
        Err(refusal) => refusal.reason.unwrap_or_default(),
        Ok(said) => panic!("it counts: {:?}", said.approval.status),
    }
}

async fn one_yes_has_the_request_made(bed: Bed) {
    bed.set_organization(asking(1)).await;
    bed.members(&[Role::Approver]).await;
    let approval = bed.wait(leave(CENT)).await;
    let said = say(&bed, 1, &approval.id, Decision::Approve).await.unwrap();
    let kept = bed.approval(&approval.id).await;
    assert_eq!((kept.status, said.approval.status), (Status::Approved, Status::Approved));
    assert_eq!(bed.row(&approval.key()).await.unwrap().version, said.version);
    let word = &kept.decisions[0];
    assert_eq!((word.by.as_str(), word.decision.as_str()), (account(1).as_str(), "approve"));
    assert_eq!((word.reason.as_deref(), word.self_approved), (Some("because"), false));
    let note = said.note.unwrap();
    assert_eq!((&note["decision"], &note["via"]), (&json!("approve"), &json!("mail_link")));
    assert_eq!(note["request_sha256"], approval.request_sha256);
    assert_eq!(
        (&note["before"], &note["after"]),
        (&json!({"status": "pending_approval"}), &json!({"status": "approved"}))
    );
    assert!(take(&bed, APPROVED).await.is_some());
    assert_eq!(bed.hold(&approval.hold).await.state, State::Pending, "until it is made");
}

async fn a_no_gives_back_what_was_held(bed: Bed) {
    bed.set_organization(asking(2)).await;
    fund(&bed, 5 * CENT).await;
    bed.members(&[Role::Admin]).await;
    let approval = bed.wait(payment(5 * CENT)).await;
    let said = say_as(&bed, (1, Role::Admin), &approval.id, Decision::Deny).await.unwrap();
    assert_eq!(said.note.unwrap()["after"]["status"], "denied");
    let kept = bed.approval(&approval.id).await;
    assert_eq!((kept.status, kept.reason.as_deref()), (Status::Denied, Some("because")));
    assert_eq!(kept.resolved_at, Some(bed.now()));
    assert_eq!(bed.hold(&approval.hold).await.state, State::Voided);
    bed.wait(payment(5 * CENT)).await;
    let (name, event) = bed.events().await.remove(0);
    assert_eq!(name, "approval.resolved");
    assert_eq!(
        (&event["payload"]["status"], &event["payload"]["reason"]),
        (&json!("denied"), &json!("because"))
    );
    assert_eq!(event["payload"]["approval_id"], approval.id);
}

#[tokio::test(flavor = "multi_thread")]
async fn roles_that_decide_are_those_of_owners_admins_and_approvers() {
    for role in Role::ALL {
        let decides = matches!(role, Role::Owner | Role::Admin | Role::Approver);
        assert_eq!(decide::may_decide(role).is_ok(), decides, "{role}");
    }
    let bed = Bed::sqlite().await;
    bed.set_organization(asking(1)).await;
    let approval = bed.wait(leave(1)).await;
    for role in [Role::Viewer, Role::Developer] {
        let refused = say_as(&bed, (1, role), &approval.id, Decision::Deny).await;
        assert_eq!(why(refused), "role_insufficient");
    }
    assert!(bed.approval(&approval.id).await.decisions.is_empty());
}

async fn two_people_are_two_people(bed: Bed) {
    bed.set_organization(asking(2)).await;
    bed.members(&[Role::Approver, Role::Approver]).await;
    let approval = bed.wait(leave(1)).await;
    let first = say(&bed, 1, &approval.id, Decision::Approve).await.unwrap();
    assert_eq!(first.approval.status, Status::PendingApproval);
    // Said again it changes nothing, and is no row of the audit log.
    let again = say(&bed, 1, &approval.id, Decision::Approve).await.unwrap();
    assert!(again.note.is_none());
    assert_eq!(bed.approval(&approval.id).await.decisions.len(), 1);
    // And is not taken back.
    assert_eq!(why(say(&bed, 1, &approval.id, Decision::Deny).await), "approval_decided");
    let second = say(&bed, 2, &approval.id, Decision::Approve).await.unwrap();
    assert_eq!(second.approval.status, Status::Approved);
}

async fn who_asked_decides_only_where_nobody_else_could(bed: Bed) {
    bed.set_organization(asking(1)).await;
    bed.insert(&member(9, Role::Owner)).await;
    bed.insert(&member(1, Role::Approver)).await;
    let approval = bed.wait(leave(1)).await;
    let mine = || say_as(&bed, (9, Role::Owner), &approval.id, Decision::Approve);
    assert_eq!(why(mine().await), "own_request");
    // Not even to say no.
    let no = say_as(&bed, (9, Role::Owner), &approval.id, Decision::Deny).await;
    assert_eq!(why(no), "own_request");
    bed.remove(&member(1, Role::Approver).key()).await;
    bed.insert(&member(1, Role::Developer)).await;
    let said = mine().await.unwrap();
    assert_eq!(said.note.unwrap()["self_approved"], true);
    assert!(bed.approval(&approval.id).await.decisions[0].self_approved);
}

async fn who_asked_counts_no_more_once_somebody_else_could(bed: Bed) {
    bed.set_organization(asking(2)).await;
    bed.insert(&member(9, Role::Owner)).await;
    let approval = bed.wait(leave(1)).await;
    say_as(&bed, (9, Role::Owner), &approval.id, Decision::Approve).await.unwrap();
    bed.members(&[Role::Approver, Role::Approver]).await;
    for (n, status) in [(1, Status::PendingApproval), (2, Status::Approved)] {
        let said = say(&bed, n, &approval.id, Decision::Approve).await.unwrap();
        assert_eq!(said.approval.status, status);
    }
}

async fn words_of_who_left_or_was_demoted_count_no_more(bed: Bed) {
    bed.set_organization(asking(2)).await;
    bed.members(&[Role::Approver; 4]).await;
    for change in ["left", "demoted"] {
        let approval = bed.wait(leave(1)).await;
        say(&bed, 1, &approval.id, Decision::Approve).await.unwrap();
        bed.remove(&member(1, Role::Approver).key()).await;
        if change == "demoted" {
            bed.insert(&member(1, Role::Viewer)).await;
        }
        let second = say(&bed, 2, &approval.id, Decision::Approve).await.unwrap();
        assert_eq!(second.approval.status, Status::PendingApproval, "{change}");
        let third = say(&bed, 3, &approval.id, Decision::Approve).await.unwrap();
        assert_eq!(third.approval.status, Status::Approved, "{change}");
        if change == "left" {
            bed.insert(&member(1, Role::Approver)).await;
        }
    }
}

async fn who_came_back_speaks_again(bed: Bed) {
    bed.set_organization(asking(2)).await;
    bed.members(&[Role::Approver, Role::Approver, Role::Approver]).await;
    let first = member(1, Role::Approver);
    for change in ["left", "demoted"] {
        let approval = bed.wait(leave(1)).await;
        say(&bed, 1, &approval.id, Decision::Approve).await.unwrap();
        bed.clock.forward_ms(1_000);
        bed.remove(&first.key()).await;
        let again = match change {
            "left" => Member { created_at: bed.now(), ..first.clone() },
            _ => first.clone().in_role(Role::Viewer, bed.now()).in_role(Role::Approver, bed.now()),
        };
        bed.insert(&again).await;
        let other = say(&bed, 2, &approval.id, Decision::Approve).await.unwrap();
        assert_eq!(other.approval.status, Status::PendingApproval, "{change}");
        let second = say(&bed, 1, &approval.id, Decision::Approve).await.unwrap();
        assert_eq!(second.approval.status, Status::Approved, "{change}");
        assert_eq!(second.approval.decisions.len(), 3, "{change}");
    }
}

async fn of_two_words_at_once_each_counts_once(bed: Bed) {
    bed.set_organization(asking(2)).await;
    bed.members(&[Role::Approver, Role::Approver]).await;
    let approval = bed.wait(leave(1)).await;
    let key = approval.key();
    let word = async |n: u8| {
        loop {
            let mut txn = bed.begin();
            let found = stored::get::<Approval>(&mut txn, &key).await.unwrap().unwrap();
            let (organization, who) = (organization(), account(n).into_string());
            let role = Role::Approver;
            let person =
                Person { organization: &organization, account: &who, role, via: "session" };
            let (yes, now) = (Decision::Approve, bed.now());
            decide::decide(&mut txn, &person, found, yes, None, now).await.unwrap();
            match txn.commit().await {
                Ok(_) => return,
                Err(error @ CommitError::Rejected(_)) => assert!(error.is_conflict()),
                Err(error) => panic!("{error:?}"),
            }
        }
    };
    futures::join!(word(1), word(2));
    let kept = bed.approval(&approval.id).await;
    assert_eq!((kept.status, kept.decisions.len()), (Status::Approved, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_over_is_decided_no_more() {
    let bed = Bed::sqlite().await;
    bed.set_organization(asking(1)).await;
    bed.members(&[Role::Approver, Role::Approver]).await;
    let approval = bed.wait(leave(1)).await;
    say(&bed, 1, &approval.id, Decision::Deny).await.unwrap();
    let refused = say(&bed, 2, &approval.id, Decision::Approve).await;
    let Err(refusal) = refused else { panic!("it counts") };
    assert_eq!(refusal.details["status"], "denied");
    assert_eq!(refusal.message, "The approval is denied already.");
    // The same person may say it again.
    assert!(say(&bed, 1, &approval.id, Decision::Deny).await.unwrap().note.is_none());
    let approval = bed.wait(leave(1)).await;
    bed.clock.forward_ms(approval.expires_at.0 - bed.now().0);
    let Err(refusal) = say(&bed, 1, &approval.id, Decision::Approve).await else {
        panic!("it counts")
    };
    assert_eq!(
        (&refusal.details["status"], refusal.message.as_str()),
        (&json!("expired"), "The approval has expired.")
    );
    // Its user is deleted, and nobody has canceled it yet.
    let approval = bed.wait(leave(1)).await;
    let (organization, user) = (id(1), approval.subject.user.clone().unwrap());
    let gone =
        Erasure { organization, reach: Reach::user(&user).as_str().into(), ..Erasure::default() };
    let key = Erasure::of_user(&gone.organization, &user);
    let draft = gone.draft().unwrap();
    let organization = gone.organization.clone();
    bed.store()
        .commit(Unit {
            organization,
            writes: vec![Write::Insert { key, draft }],
            ..Unit::default()
        })
        .await
        .unwrap();
    let Err(refusal) = say(&bed, 1, &approval.id, Decision::Approve).await else {
        panic!("it counts")
    };
    assert_eq!(refusal.message, "The approval is canceled already.");
}

#[test]
fn an_approval_is_decided_while_it_waits_and_has_time() {
    use charter_kernel::time::Instant;
    let at = |status: &str| -> Approval {
        let approval = json!({
            "id": id(70), "organization": id(1), "status": status, "action": "shop.buy", "primitive": "shop",
            "entity": "", "title": "", "message": "", "context": null, "amount_micro_usd": null,
            "subject": { "organization": id(1), "actor": ["key", "k"] }, "policy_ids": [],
            "approvals_required": 1, "hold": id(71), "request_id": id(50), "ordinal": 0,
            "request_sha256": "", "request": "", "base": "", "expires_at": Instant(1_000),
            "created_at": Instant(0),
        });
        serde_json::from_value(approval).unwrap()
    };
    let status = |name: &str, now: i64| {
        let refusal = decide::refuse_decided(&at(name), Instant(now))?;
        refusal.details["status"].as_str().map(str::to_owned)
    };
    assert_eq!(status("pending_approval", 999), None);
    assert_eq!(status("pending_approval", 1_000).as_deref(), Some("expired"));
    for over in ["approved", "executing", "succeeded", "failed", "denied", "expired", "canceled"] {
        assert_eq!(status(over, 0).as_deref(), Some(over));
    }
    assert_eq!((Decision::Approve.as_str(), Decision::Deny.as_str()), ("approve", "deny"));
}

async fn somebody_who_could_decide_is_found_among_many(bed: Bed) {
    bed.insert(&member(9, Role::Owner)).await;
    // More viewers than any list holds, and the approver behind them.
    let write = |n: u32, role: Role| {
        let account = format!("018bcfe5-6800-7000-8000-{n:012x}");
        let account = charter_kernel::id::AccountId::parse(&account).unwrap();
        let member = Member { account, role, ..member(1, role) };
        Write::Insert { key: member.key(), draft: member.draft().unwrap() }
    };
    for page in 0..3 {
        let writes = (page * 400..(page + 1) * 400).map(|n| write(n, Role::Viewer)).collect();
        bed.commit(charter_kernel::unit::Unit { writes, ..Default::default() }).await.unwrap();
    }
    bed.set_organization(asking(1)).await;
    let approval = bed.wait(leave(1)).await;
    let mine = || say_as(&bed, (9, Role::Owner), &approval.id, Decision::Approve);
    let writes = vec![write(9_999, Role::Approver)];
    bed.commit(charter_kernel::unit::Unit { writes, ..Default::default() }).await.unwrap();
    assert_eq!(why(mine().await), "own_request");
    let (mut txn, reach) = (bed.begin(), organization_reach());
    let listed = stored::list::<Member>(&mut txn, &reach, &[], 2_000, 0).await;
    assert!(listed.unwrap().1, "they do not fit on one page");
}
