//! Approvals, which wait for people and their word: `/v1/approvals`.
//!
//! Only people decide: a session whose role decides, and never on what that very person asked for,
//! unless nobody else could.

use charter_governance::decide::{self, Decision, Person};
use charter_kernel::authority::Class;
use charter_kernel::id::{AccountId, UserId};
use charter_kernel::manifest::Paging;
use charter_kernel::refusal::Refusal;
use charter_kernel::scope::Level;
use charter_kernel::time::Instant;
use charter_kernel::unit::{Key, Reach, Row, Space};
use charter_store::{Query, Txn};
use charter_tenancy::identity::Identity;
use charter_tenancy::records::Record as _;
use charter_tenancy::records::approval::{Approval, Status, Word};
use charter_tenancy::records::link::{self, Link, Mailed, Purpose};
use charter_tenancy::stored::{self, Versioned};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::gather::{LOOK_ROWS, gather};
use super::shape::{Actor, Cursor, Id, Optional};
use crate::app::App;
use crate::handler;
use crate::reply::AuditLog;
use crate::request::HostRequest;
use crate::route::HostRoute;
use crate::serve::{Answer, Body, Params};

/// Links of one approval that are shown.
const LINKS_MAX: u32 = 200;

/// The rows of approvals.
pub fn routes() -> Vec<HostRoute> {
    vec![
        HostRoute::get(Class::DeskRead, "approvals.list", "/approvals", handler!(list_approvals))
            .summary("What waits for people, and what became of it, newest first")
            .paging(Paging::Cursor),
        HostRoute::get(Class::DeskRead, "approvals.get", "/approvals/{id}", handler!(get_approval))
            .summary("One approval"),
        HostRoute::post(
            Class::Deciding,
            "approvals.approve",
            "/approvals/{id}/approve",
            handler!(approve),
        )
        .summary("Approve: the request is made, once, as who asked for it"),
        HostRoute::post(Class::Deciding, "approvals.deny", "/approvals/{id}/deny", handler!(deny))
            .summary("Deny: the request is not made, and its funds are free again"),
    ]
}

/// The state of one person's mail.
#[derive(Serialize, JsonSchema)]
struct MailItem {
    /// The person's account.
    #[schemars(with = "AccountId")]
    account_id: Option<AccountId>,
    /// How far the mail has come.
    status: Mailed,
    /// The reason why it has not arrived.
    reason: Option<String>,
}

/// A regulated action that waits for people, or waited.
#[derive(Serialize, JsonSchema)]
struct ApprovalItem {
    /// The approval's id.
    id: Id,
    /// How far it has come.
    status: Status,
    /// `<primitive>.<verb>`.
    action: String,
    /// The primitive whose action it is.
    primitive: String,
    /// The recipient, the merchant, the card: whatever it is done to.
    entity: String,
    /// A line for the person who decides.
    title: String,
    /// A few sentences for the person who decides.
    message: String,
    /// Anything else that this person should see.
    context: Value,
    /// The amount, in micro-US-dollars.
    amount_micro_usd: Option<i64>,
    /// The tenant user.
    user_id: Option<Id>,
    /// The account or the key that asked.
    requested_by: Actor,
    /// The request that asked.
    request_id: String,
    /// SHA-256 of the request.
    request_sha256: String,
    /// The rules that ask for a person.
    policy_ids: Vec<String>,
    /// How many distinct people must approve.
    approvals_required: u8,
    /// The words of people so far.
    decisions: Vec<Word>,
    /// The moment from which nobody's word counts.
    expires_at: Instant,
    /// The moment of the request.
    created_at: Instant,
    /// The moment of its end.
    resolved_at: Option<Instant>,
    /// The reason of its end.
    reason: Option<String>,
    /// The answer of the request that was made.
    #[schemars(with = "Value")]
    result: Option<Value>,
    /// Whether `result` is all of that answer, once there is one: false where it was too large to
    /// keep, or shows a secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "bool")]
    result_kept: Option<bool>,
    /// The refusal of the request that was made.
    #[schemars(with = "Option<Map<String, Value>>")]
    error: Option<Value>,
    /// Its version.
    version: u64,
    /// The mails that tell people of it, where one approval is asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<MailItem>")]
    mails: Option<Vec<MailItem>>,
}

impl ApprovalItem {
    fn of(approval: &Approval, version: u64) -> Self {
        let is_answered = approval.status == Status::Succeeded && !approval.is_forgotten();
        Self {
            id: approval.id.as_str().into(),
            status: approval.status,
            action: approval.action.clone(),
            primitive: approval.primitive.clone(),
            entity: approval.entity.clone(),
            title: approval.title.clone(),
            message: approval.message.clone(),
            context: approval.context.clone(),
            amount_micro_usd: approval.amount_micro_usd,
            user_id: approval.subject.user.as_deref().map(Id::from),
            requested_by: (&approval.subject.actor).into(),
            request_id: approval.request_id.clone(),
            request_sha256: approval.request_sha256.clone(),
            policy_ids: approval.policy_ids.clone(),
            approvals_required: approval.approvals_required,
            decisions: approval.decisions.clone(),
            expires_at: approval.expires_at,
            created_at: approval.created_at,
            resolved_at: approval.resolved_at,
            reason: approval.reason.clone(),
            result: approval.result.clone(),
            result_kept: is_answered.then_some(!approval.result_not_kept),
            error: approval.error.clone(),
            version,
            mails: None,
        }
    }
}

/// One approval.
#[derive(Serialize, JsonSchema)]
pub struct ApprovalAnswer {
    approval: ApprovalItem,
}

/// The query of the list.
#[derive(Deserialize, JsonSchema)]
pub struct ApprovalQuery {
    /// Those of this status alone.
    status: Optional<Status>,
}

/// A page of approvals.
#[derive(Serialize, JsonSchema)]
pub struct ApprovalPage {
    approvals: Vec<ApprovalItem>,
    #[serde(flatten)]
    page: Cursor,
}

/// The body of a decision.
#[derive(Deserialize, JsonSchema)]
pub struct Verdict {
    /// The reason, which the audit log keeps.
    #[schemars(length(max = 1_000))]
    reason: Option<String>,
}

async fn find(request: &HostRequest, txn: &mut Txn) -> Result<Versioned<Approval>, Refusal> {
    let place = request.place()?;
    let key = Approval::address(place.organization().id.as_str(), request.parameter("id"));
    let found = stored::get::<Approval>(txn, &key).await?.ok_or_else(Refusal::not_found)?;
    let subject = &found.record.subject;
    let within = match place.scope().level() {
        Level::User => subject.user.as_deref() == place.scope().user_named().map(UserId::as_str),
        Level::Project => subject.project.as_deref() == Some(place.project().id.as_str()),
        Level::Organization => true,
    };
    if within { Ok(found) } else { Err(Refusal::not_found()) }
}

/// `GET /v1/approvals`, newest first; a key that is pinned to a user sees that user's.
///
/// # Errors
/// When the store cannot be asked.
pub async fn list_approvals(
    _: &App,
    request: &HostRequest,
    txn: &mut Txn,
    Params(asked): Params<ApprovalQuery>,
) -> Result<Answer<ApprovalPage>, Refusal> {
    let place = request.place()?;
    let reach = Reach::organization(place.organization().id.as_str());
    let mut query = Query::all(&reach, &Space::host(Approval::COLLECTION)).relax();
    query.limit = request.page.limit + 1;
    query.after.clone_from(&request.page.position);
    if let Some(status) = asked.status.0 {
        query = query.equal("status", status.as_str());
    }
    let mut project = None;
    match place.scope().level() {
        Level::User => {
            let user = place.scope().user_named().map(UserId::as_str).unwrap_or_default();
            query = query.equal("user", user);
        }
        // Those of earlier builds are not indexed by their project.
        Level::Project => {
            project = Some(place.project().id.as_str());
            query.limit = LOOK_ROWS;
        }
        Level::Organization => {}
    }
    let show = |_: &Key, row: &Row| {
        let approval = Approval::read(row).map_err(stored::unreadable)?;
        let is_shown = project.is_none_or(|own| approval.subject.project.as_deref() == Some(own));
        Ok(is_shown.then(|| ApprovalItem::of(&approval, row.version)))
    };
    let (approvals, next) = gather(txn, query, request.page.limit, show).await?;
    Ok(Answer::of(&ApprovalPage { approvals, page: Cursor::of(&request.page, next.as_deref()) }))
}

/// `GET /v1/approvals/{id}`
///
/// # Errors
/// 404 for another organization's, and to a pinned key for another user's.
pub async fn get_approval(
    _: &App,
    request: &HostRequest,
    txn: &mut Txn,
) -> Result<Answer<ApprovalAnswer>, Refusal> {
    let found = find(request, txn).await?;
    let mails = Some(mails(txn, &found.record).await?);
    let approval = ApprovalItem { mails, ..ApprovalItem::of(&found.record, found.version) };
    Ok(Answer::of(&ApprovalAnswer { approval }))
}

/// The mails that tell people of an approval, and whether they arrived at the relay.
async fn mails(txn: &mut Txn, approval: &Approval) -> Result<Vec<MailItem>, Refusal> {
    let (links, _) = stored::list::<Link>(
        txn,
        &Reach::deployment(),
        &[(link::APPROVAL, &approval.id)],
        LINKS_MAX,
        0,
    )
    .await?;
    let own = |link: &Link| matches!(&link.purpose, Purpose::Approval { organization, .. } if *organization == approval.organization.as_str());
    let links = links.into_iter().map(|link| link.record).filter(own);
    let items = links.map(|link| MailItem {
        account_id: link.account,
        status: link.mailed,
        reason: link.reason,
    });
    Ok(items.collect())
}

/// `POST /v1/approvals/{id}/approve`
///
/// # Errors
/// 403 for whoever may not decide, 409 where it is decided otherwise already.
pub async fn approve(
    _: &App,
    request: &HostRequest,
    txn: &mut Txn,
    Body(verdict): Body<Verdict>,
) -> Result<Answer<ApprovalAnswer>, Refusal> {
    decide(request, txn, (Decision::Approve, verdict.reason)).await
}

/// `POST /v1/approvals/{id}/deny`
///
/// # Errors
/// The same.
pub async fn deny(
    _: &App,
    request: &HostRequest,
    txn: &mut Txn,
    Body(verdict): Body<Verdict>,
) -> Result<Answer<ApprovalAnswer>, Refusal> {
    decide(request, txn, (Decision::Deny, verdict.reason)).await
}

async fn decide(
    request: &HostRequest,
    txn: &mut Txn,
    (decision, reason): (Decision, Option<String>),
) -> Result<Answer<ApprovalAnswer>, Refusal> {
    let Identity::Session(session) = &request.identity else { return Err(Refusal::internal()) };
    let found = find(request, txn).await?;
    let organization = &request.place()?.organization().id;
    let person = Person {
        organization,
        account: session.account.as_str(),
        role: session.membership.role,
        via: "session",
    };
    let said = decide::decide(txn, &person, found, decision, reason, request.now).await?;
    let approval = ApprovalItem::of(&said.approval, said.version);
    let answer = Answer::of(&ApprovalAnswer { approval });
    let subject = &said.approval.subject;
    let log = AuditLog::of(subject.project.as_deref(), subject.user.as_deref());
    Ok(match said.note {
        Some(note) => answer.with_log(log).about("approval", said.approval.id).noting(note),
        None => answer,
    })
}
