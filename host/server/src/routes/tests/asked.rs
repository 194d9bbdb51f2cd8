//! The people who are mailed, or not. Those who asked for something by a session of their own are
//! not, and no link of theirs decides it.

use charter_adapters::mail;
use charter_adapters::mail::links;
use charter_adapters::providers::BindingInput;
use charter_kernel::governance::hold::Subject;
use charter_kernel::id::uuid_v7;
use charter_kernel::unit::Reach;
use charter_store::Query;
use charter_tenancy::records::approval::{Approval, Status};
use charter_tenancy::records::link::Purpose;
use charter_tenancy::records::mail::{About, Mail, Notice};
use charter_tests::relay::Relay;
use http::StatusCode;

use super::*;
use crate::routes::{addresses, pages};

impl Bed {
    /// A relay that the deployment mails by.
    async fn bind_relay(&self) -> Relay {
        let relay = Relay::start();
        let input: BindingInput = serde_json::from_value(relay.binding()).unwrap();
        let row = AuditRow { action: "operator.providers.put", ..AuditRow::default() };
        let row = charter_store::audit_fact(&row).unwrap();
        self.app().adapters.providers.set(mail::relay::BINDING, input, row.into()).await.unwrap();
        relay
    }

    /// An approval that the owner's own session has asked for; its id. People are told of it.
    async fn put_approval(&self) -> String {
        let id = uuid_v7(NOW, stored::random().unwrap());
        let approval = Approval {
            id: id.clone(),
            organization: self.organization.clone(),
            status: Status::PendingApproval,
            action: "thing.spend".into(),
            primitive: "thing".into(),
            entity: "one".into(),
            title: "Spend".into(),
            message: String::new(),
            context: Value::Null,
            amount_micro_usd: None,
            accounts: None,
            subject: Subject {
                organization: self.organization.to_string(),
                project: None,
                user: None,
                kit: None,
                actor: ("session".into(), "s".into()),
                root: None,
                gone: false,
            },
            asked_by: Some(self.owner.to_string()),
            pinned: false,
            by: None,
            policy_ids: Vec::new(),
            approvals_required: 1,
            decisions: Vec::new(),
            hold: "none".into(),
            request_id: "r".into(),
            ordinal: 0,
            request_sha256: "digest".into(),
            request: "sealed".into(),
            base: String::new(),
            tells: None,
            job: None,
            worded: true,
            begun: false,
            marks: 0,
            answered_by: None,
            expires_at: NOW.plus_ms(60_000),
            created_at: NOW,
            resolved_at: None,
            result: None,
            result_not_kept: false,
            result_status: None,
            error: None,
            reason: None,
        };
        let mut txn = self.app().store.begin(self.organization.as_str());
        let draft = approval.due(approval.expires_at).unwrap();
        txn.insert(approval.key(), draft).await.unwrap();
        let about =
            About::Approval { organization: self.organization.to_string(), approval: id.clone() };
        mail::notice(&self.app().adapters, about, NOW)
            .unwrap()
            .into_iter()
            .for_each(|write| txn.write(write));
        txn.commit().await.unwrap();
        id
    }

    /// The owner's word on it, by a link.
    async fn by_link(&self, id: &str, decision: &str) -> Result<StatusCode, Refusal> {
        let purpose = Purpose::Approval {
            organization: self.organization.to_string(),
            approval: id.to_owned(),
            request_sha256: "digest".into(),
        };
        let (link, token) = links::make(
            purpose,
            Some((&self.owner, 0)),
            "founder@example.com",
            NOW,
            NOW.plus_ms(60_000),
        )
        .unwrap();
        let mut txn = self.app().store.begin(self.organization.as_str());
        stored::insert(&mut txn, &link, "link").await.unwrap();
        txn.commit().await.unwrap();
        let form = format!("token={}&decision={decision}", token.reveal());
        let parameters = vec![("id".to_owned(), id.to_owned())];
        let request = HostRequest { parameters, bytes: form.into(), ..anonymous(Value::Null) };
        let mut txn = self.app().store.begin("");
        let reply = pages::approval::decide_approval(self.app(), &request, &mut txn).await?;
        txn.commit().await.unwrap();
        Ok(reply.status)
    }

    async fn approval(&self, id: &str) -> Approval {
        let mut txn = self.app().store.begin("");
        stored::get::<Approval>(&mut txn, &Approval::address(self.organization.as_str(), id))
            .await
            .unwrap()
            .unwrap()
            .record
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn who_asked_is_neither_asked_nor_heard_unless_nobody_else_could() {
    let bed = Bed::new().await;
    let relay = bed.bind_relay().await;
    let approver = bed.put_member(1, Role::Approver, NOW).await;
    bed.put_member(2, Role::Developer, NOW).await;
    let id = bed.put_approval().await;
    tokio::task::block_in_place(|| relay.hears("member1@example.com", 1));
    let refused = bed.by_link(&id, "deny").await.unwrap_err();
    assert_eq!((refused.code, refused.reason.as_deref()), (Code::Forbidden, Some("own_request")));
    assert_eq!(bed.approval(&id).await.status, Status::PendingApproval);
    // Nobody else could any more: the owner is asked, and the record says whose request it was.
    let mut txn = bed.app().store.begin(bed.organization.as_str());
    txn.remove(&Member::address(&bed.organization, &approver), None).await.unwrap();
    txn.commit().await.unwrap();
    let alone = bed.put_approval().await;
    tokio::task::block_in_place(|| relay.hears("founder@example.com", 1));
    assert_eq!(bed.by_link(&alone, "deny").await.unwrap(), StatusCode::OK);
    let decided = bed.approval(&alone).await;
    assert_eq!((decided.status, decided.decisions[0].self_approved), (Status::Denied, true));
    assert_eq!(relay.mails().len(), 2, "the developer, and who asked, were told of nothing");
    bed.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_address_that_an_earlier_build_took_is_mailed() {
    let bed = Bed::new().await;
    let relay = bed.bind_relay().await;
    let email = "jo@xn--mnchen-3ya.example";
    let account = Account { email: email.into(), ..bed.account(&bed.owner).await };
    let mut txn = bed.app().store.begin("");
    stored::replace(&mut txn, &account, "email").await.unwrap();
    txn.commit().await.unwrap();
    let asks = anonymous(json!({"email": email}));
    called(bed.app(), &asks, crate::handler!(addresses::mail_proof)).await.unwrap();
    tokio::task::block_in_place(|| relay.hears(email, 1));
    // Of a mailbox that no account has, one spelling is mailed: the one that an account could have.
    for email in ["\"an\"@example.com", "an@\u{ff45}xample.com", "an@example.com"] {
        let asks = anonymous(json!({"email": email}));
        called(bed.app(), &asks, crate::handler!(addresses::mail_proof)).await.unwrap();
    }
    tokio::task::block_in_place(|| relay.hears("an@example.com", 1));
    for space in [Notice::space(), Mail::space()] {
        let left = Query::all(&Reach::deployment(), &space);
        while !bed.app().store.find(&left).await.unwrap().items.is_empty() {
            tokio::task::yield_now().await;
        }
    }
    assert_eq!(relay.mails().len(), 2);
    bed.end().await;
}
