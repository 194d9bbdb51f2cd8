//! Requests that wait for people: how they begin, how they are told of, and how they end.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use charter_engine::Claiming;
use charter_engine::job::room::RETRY_SECONDS;
use charter_engine::job::{JobRecord, NEVER};
use charter_engine::{Leave, Nested, Proposal};
use charter_kernel::governance::hold::{Hold, State};
use charter_kernel::hex::{hex, sha256};
use charter_kernel::id::{FactId, OrganizationId};
use charter_kernel::idempotency::Lineage;
use charter_kernel::refusal::Refusal;
use charter_kernel::role::Role;
use charter_kernel::scope::{Actor, ActorKind, Naming, Principal, Scope};
use charter_kernel::share;
use charter_kernel::time::Instant;
use charter_kernel::unit::{Draft, Fact, Guard, Key, Reach, Row, Write};
use charter_store::{Patience, Query, Store, Txn};
use charter_tenancy::directory::Directory;
use charter_tenancy::place::{Owner, Unplaced};
use charter_tenancy::records::Record as _;
use charter_tenancy::records::approval::{Approval, BY, KEPT_MS, MARKS, Status};
use charter_tenancy::stored;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::Governance;
use crate::lifecycle;

/// How long people have to decide, in milliseconds: a day.
pub const DECIDE_MS: i64 = 86_400_000;
/// How many approvals of an organization may wait.
pub const WAITING_MAX: u64 = 10_000;
/// Bytes of an answer that an approval keeps.
const RESULT_BYTES_MAX: usize = 256 << 10;
/// The shortest wait between two looks at the job that answers a request, in milliseconds.
const LOOK_MS_MIN: i64 = 1_000;
/// The longest.
const LOOK_MS_MAX: i64 = 60_000;

/// The origin of a call, and how the call is made again.
pub enum Origin {
    /// A client's request, which can be made again.
    Request(Box<Request>),
    /// An approved request that is made again.
    Approved(Arc<Run>),
    /// A job under way, which can be run again.
    Job(Box<Job>),
}

/// A job under way: what of it waits for people waits with the job's own row.
pub struct Job {
    /// Its row.
    pub key: Key,
    /// The content of the row.
    pub record: JobRecord,
    /// Values that nobody else of its reach may have.
    pub unique: Vec<(String, String)>,
    /// The lease under which it runs.
    pub token: String,
    /// The address of this deployment.
    pub base: String,
    /// Its primitive, where that wants to be told what became of it.
    pub tells: Option<String>,
}

/// A request as it can be made again, as the same caller.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Request {
    /// The operation's id.
    pub operation: String,
    /// The path's parameters and the query's.
    pub parameters: Vec<(String, String)>,
    /// The JSON body.
    pub body: Option<String>,
    /// The headers that the operation sees.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<(String, String)>,
    /// The organization.
    pub organization: String,
    /// The project, and whether it is a test project.
    pub project: (String, bool),
    /// The tenant user.
    pub user: Option<String>,
    /// How it named the two; requests of before this was kept are made as if they had named the
    /// user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub naming: Option<Naming>,
    /// Kind and id of the actor.
    pub actor: (String, String),
    /// The account behind a session.
    pub account: Option<String>,
    /// The actor's role.
    pub role: Option<Role>,
    /// The principal that asked, with pins and the person behind it; requests of before those were
    /// kept have the members above alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub principal: Option<Principal>,
    /// The address of this deployment.
    pub base: String,
    /// The primitive that made it, where it wants to be told what became of it.
    #[serde(default)]
    pub tells: Option<String>,
    /// The primitive that made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nested: Option<String>,
    /// The job that it is a run of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<Key>,
    /// Random, from when it waits: nobody who sees its digest can try out what it says. Absent in
    /// requests of earlier builds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub salt: Option<String>,
}

/// The body of the answer that an approved request got.
#[derive(Clone, Copy, Debug)]
pub enum Content<'a> {
    /// These bytes; none where the answer has no content.
    Whole(&'a [u8]),
    /// It is not to be kept: it shows a secret, or it is a stream.
    Withheld,
}

impl Content<'_> {
    /// The body as an approval keeps it. Nothing where it is none, and where it is not kept.
    fn keep(self) -> Option<Value> {
        match self {
            Self::Whole(body) if body.len() <= RESULT_BYTES_MAX => {
                serde_json::from_slice(body).ok()
            }
            Self::Whole(_) | Self::Withheld => None,
        }
    }
}

/// An approval that a worker holds: its request is made, or the job that answers it is looked at.
#[derive(Debug)]
pub struct Run {
    /// The approval.
    pub approval: Approval,
    /// The lease under which it is made: one host at a time.
    pub token: String,
}

impl Request {
    /// The digest that people decide on: nothing of the request changes without it.
    pub fn sha256(&self) -> String {
        sha256(&json!(self).to_string())
    }

    /// The call that makes it again, with what is left by now of the authority that it was asked
    /// with.
    ///
    /// # Errors
    /// 401 where the credential was revoked since, 404 where its project or user is gone.
    pub async fn repetition(
        &self,
        directory: &Directory,
        approval: &Approval,
        deadline_ms: u32,
    ) -> Result<Nested, Refusal> {
        let organization = OrganizationId::parse(&self.organization);
        let organization = organization.ok_or_else(Refusal::internal)?;
        let left = directory.cut(&self.principal()?, &organization).await?;
        let owner = Owner {
            organization: &self.organization,
            project: &self.project.0,
            user: self.user.as_deref(),
        };
        let naming = self.naming.unwrap_or(Naming::PROFILE);
        let party = directory.party_of_request(left.principal, owner, naming).await;
        let party = party.map_err(|why| match why {
            Unplaced::Gone(_) => Refusal::not_found(),
            Unplaced::Unread => Refusal::overloaded(1),
        })?;
        Ok(Nested {
            request: approval.request_id.clone(),
            scope: party.into_scope(),
            credential: left.guards,
            primitive: self.nested.clone().unwrap_or_default(),
            operation: self.operation.clone(),
            parameters: self.parameters.clone(),
            body: self.body.clone(),
            headers: self.headers.clone(),
            idempotency_key: approval.id.clone(),
            // Its own keys, not those of the request that asked: other calls of that one have them.
            lineage: Lineage::outermost(&approval.id),
            deadline_ms,
            repeatable: false,
        })
    }

    fn principal(&self) -> Result<Principal, Refusal> {
        if let Some(principal) = &self.principal {
            return Ok(principal.clone());
        }
        let kind = match self.actor.0.as_str() {
            "key" => ActorKind::Key,
            "session" => ActorKind::Session,
            "system" => ActorKind::System,
            _ => return Err(Refusal::internal()),
        };
        let actor = Actor::new(kind, self.actor.1.clone());
        let (role, root) = (self.role, self.account.clone());
        Ok(Principal { role, root, ..Principal::of(actor) })
    }
}

impl Job {
    /// The request that people decide on: this job with this payload.
    pub fn request(&self, scope: &Scope) -> Request {
        let id = |id: &dyn ToString| id.to_string();
        let actor = scope.actor();
        Request {
            operation: format!("{}:{}", self.record.primitive, self.record.name),
            parameters: Vec::new(),
            body: Some(self.record.payload.text().to_owned()),
            headers: Vec::new(),
            organization: scope.lane().to_owned(),
            project: (
                scope.project().map(|project| id(project)).unwrap_or_default(),
                scope.is_test(),
            ),
            user: scope.user().map(|user| id(user)),
            naming: Some(scope.naming()),
            actor: (actor.kind.as_str().to_owned(), actor.id.clone()),
            account: scope.principal().root.clone(),
            role: scope.role(),
            principal: Some(scope.principal().clone()),
            base: self.base.clone(),
            tells: self.tells.clone(),
            nested: None,
            job: Some(self.key.clone()),
            salt: None,
        }
    }

    /// Nothing hands it out while people decide, and this run of it is over.
    ///
    /// # Errors
    /// Never: its maps have text keys.
    pub fn park(&self, txn: &mut Txn, approval: &str) -> Result<(), Refusal> {
        let record = JobRecord { approval: Some(approval.to_owned()), ..self.record.clone() };
        let draft = Draft {
            body: serde_json::to_string(&record).map_err(|_| Refusal::internal())?,
            index: record.index(),
            unique: self.unique.clone(),
            lease: Some((record.parked_group(), NEVER)),
            ..Draft::default()
        };
        let (key, token) = (self.key.clone(), self.token.clone());
        let guard = Guard::Lease { key: key.clone(), token: token.clone() };
        let writes = vec![
            Write::Release { key: key.clone(), token, due_at: NEVER, undo: false },
            Write::Replace { key, draft, expected: None },
        ];
        txn.step(vec![guard], writes);
        Ok(())
    }
}

/// Ends the job that waits by an approval, where one does: what it wanted to do is not to be.
///
/// # Errors
/// When the store cannot be asked.
pub async fn unpark(txn: &mut Txn, approval: &Approval, now: Instant) -> Result<(), Refusal> {
    let Some(key) = &approval.job else { return Ok(()) };
    let Some(row) = txn.get(key).await.map_err(stored::reading)? else { return Ok(()) };
    let Ok(mut job) = serde_json::from_str::<JobRecord>(&row.body) else { return Ok(()) };
    if job.approval.as_ref() != Some(&approval.id) || job.state != "queued" {
        return Ok(());
    }
    let told = "What the job wanted to do was not approved.";
    let refusal = approval.status.reason().map(|reason| Refusal::forbidden(reason, told));
    job.error = approval.error.clone().or_else(|| refusal.map(|refusal| refusal.to_rest()));
    job.state = "failed".into();
    let draft = job.end(row.user, now).map_err(|_| Refusal::internal())?;
    txn.replace(key.clone(), draft, None).await.map_err(stored::breaking).map(drop)
}

/// Cancels the approval that a job waits by which is cancelled: its hold ends, and its end is told.
/// One that people have decided on already finds the job cancelled when its request is to be made.
///
/// # Errors
/// When the store cannot be asked, or the operating system has no randomness.
pub async fn cancel_of_job(
    txn: &mut Txn,
    (key, job): (&Key, &JobRecord),
    now: Instant,
) -> Result<(), Refusal> {
    let Some(id) = &job.approval else { return Ok(()) };
    let address = Approval::address(&job.owner.organization, id);
    let Some(found) = stored::get::<Approval>(txn, &address).await? else { return Ok(()) };
    let (approval, version) = (found.record, found.version);
    if approval.status != Status::PendingApproval || approval.job.as_ref() != Some(key) {
        return Ok(());
    }
    let approval = Approval { status: Status::Canceled, resolved_at: Some(now), ..approval };
    release(txn, &approval, now).await?;
    tell(txn, &approval, now)?;
    let draft = approval.due(now.plus_ms(KEPT_MS)).map_err(stored::unreadable)?;
    txn.write(Write::Replace { key: address, draft, expected: Some(version) });
    Ok(())
}

/// Asks whether one more approval of who acts may wait. Those that are asked for at the same time may
/// come to more, by one for each call.
///
/// # Errors
/// 429 where as many wait as leave room for it.
pub async fn check_room(governance: &Governance, scope: &Scope) -> Result<(), Refusal> {
    let by = scope.asker();
    let [own, of_sharer, within] = share::names_of(&by);
    let counted = |field, name| count_waiting(governance, scope.lane(), (field, name));
    let (all, own, of_sharer, within) = tokio::try_join!(
        counted("status", Status::PendingApproval.as_str()),
        counted(BY[0], own),
        counted(BY[1], of_sharer),
        counted(BY[2], within),
    )?;
    let max = governance.approvals_waiting_max;
    if (share::Held { max, all, of: [own, of_sharer, within] }).leaves_one_to(&by) {
        return Ok(());
    }
    let told = format!(
        "Of the {max} approvals that may wait, those of who asks are as many as leave room for the next \
         one. Have some decided, or cancel the jobs that wait by them."
    );
    Err(Refusal::rate_limited(RETRY_SECONDS).reason("approvals_full").hint(told))
}

/// Approvals of the organization that have this entry.
async fn count_waiting(
    governance: &Governance,
    organization: &str,
    (field, value): (&str, &str),
) -> Result<u64, Refusal> {
    let reach = Reach::organization(organization);
    let mut query = Query::all(&reach, &Approval::space()).equal(field, value);
    query.relaxed = true;
    governance.store.begin(organization).count(&query).await.map_err(stored::reading)
}

/// The approval that a proposal waits by; its hold is in the same unit.
///
/// # Errors
/// When the request cannot be sealed.
pub async fn new_approval(
    governance: &Governance,
    leave: &Leave,
    hold: &Hold,
    hold_id: &str,
    request: &Request,
) -> Result<Approval, Refusal> {
    let (now, proposal) = (hold.at, &leave.proposal);
    let id = charter_kernel::id::uuid_v7(now, stored::random()?);
    let organization =
        OrganizationId::parse(&hold.subject.organization).ok_or_else(Refusal::internal)?;
    let salt = Some(hex(&stored::random()?));
    let request = Request { salt, ..request.clone() };
    let sealed = governance
        .store
        .seal(organization.as_str(), &id, json!(request).to_string().as_bytes())
        .await;
    let sealed = sealed.map_err(|error| {
        tracing::error!(
            error = &error as &dyn std::error::Error,
            "a request that waits for approval cannot be sealed"
        );
        Refusal::internal()
    })?;
    Ok(Approval {
        id,
        organization,
        status: Status::PendingApproval,
        action: proposal.action.clone(),
        primitive: leave.primitive.clone(),
        entity: proposal.entity.clone(),
        title: title(proposal).to_owned(),
        message: proposal.message.clone(),
        context: proposal.context.clone(),
        amount_micro_usd: proposal.amount,
        accounts: Some(accounts(&proposal.pay).cloned().collect()),
        subject: hold.subject.clone(),
        asked_by: request.account.clone(),
        pinned: request.principal.as_ref().is_some_and(|by| by.behind().is_pinned()),
        by: Some(leave.scope.asker()),
        policy_ids: hold.decision.rules.clone(),
        approvals_required: hold.decision.approvals_required.max(1),
        decisions: Vec::new(),
        hold: hold_id.to_owned(),
        request_id: leave.request.clone(),
        ordinal: leave.ordinal,
        request_sha256: request.sha256(),
        request: STANDARD.encode(sealed),
        base: request.base.clone(),
        tells: request.tells.clone(),
        job: request.job.clone(),
        worded: true,
        begun: false,
        marks: 0,
        answered_by: None,
        expires_at: now.plus_ms(DECIDE_MS),
        created_at: now,
        resolved_at: None,
        result: None,
        result_not_kept: false,
        result_status: None,
        error: None,
        reason: None,
    })
}

/// The line for the person who decides.
fn title(proposal: &Proposal) -> &str {
    if proposal.title.is_empty() { &proposal.action } else { &proposal.title }
}

fn accounts(pay: &Option<(Key, Key)>) -> impl Iterator<Item = &Key> {
    pay.iter().flat_map(|(from, to)| [from, to])
}

/// The request behind an approval.
///
/// # Errors
/// 404 where its user is erased; when it cannot be unsealed, or is not the one that was decided on.
pub async fn request(store: &Store, approval: &Approval) -> Result<Request, Refusal> {
    if approval.is_forgotten() {
        return Err(Refusal::not_found());
    }
    let broken = |error: &(dyn std::error::Error + 'static)| {
        tracing::error!(
            error,
            approval = approval.id,
            "the request behind an approval cannot be read"
        );
        Refusal::internal()
    };
    let sealed = STANDARD.decode(&approval.request).map_err(|error| broken(&error))?;
    let text = store
        .unseal(approval.organization.as_str(), &approval.id, &sealed)
        .await
        .map_err(|error| broken(&error))?;
    let request: Request = serde_json::from_slice(&text).map_err(|error| broken(&error))?;
    if request.sha256() != approval.request_sha256 {
        return Err(Refusal::state_conflict(
            "proposal_changed",
            "The request is not the one that was approved.",
        ));
    }
    Ok(request)
}

/// The answer to the caller while people decide.
pub fn pending(approval: &Approval) -> Value {
    let look = format!(
        "curl -s {}/v1/approvals/{} -H \"Authorization: Bearer $CHARTER_API_KEY\"",
        approval.base, approval.id
    );
    json!({
        "status": Status::PendingApproval.as_str(),
        "approval_id": approval.id,
        "action": approval.action,
        "primitive": approval.primitive,
        "title": approval.title,
        "message": approval.message,
        "next_steps": [{ "command": look, "description": "See what was decided; the request's answer is its `result`." }],
    })
}

/// The end of the hold behind an approval, where nothing was done under it, with what must still be
/// so.
///
/// # Errors
/// When the store cannot be asked.
pub async fn release(txn: &mut Txn, approval: &Approval, now: Instant) -> Result<(), Refusal> {
    let (key, mut patience) = (hold_key(approval), Patience::default());
    let row = loop {
        match txn.get_relaxed(&key).await {
            Ok(row) => break row,
            Err(error) => patience.wait(error).await.map_err(stored::reading)?,
        }
    };
    if let Some(hold) = as_unused(row)? {
        let step = hold.void(&approval.hold, now).in_any_turn();
        txn.step(step.guards, step.writes);
    }
    Ok(())
}

/// The hold behind an approval, as long as nothing was done under it and it was not kept for a later
/// request: the one that waits, or that of a run which broke off.
///
/// # Errors
/// When the store cannot be asked.
pub async fn unused_hold(txn: &Txn, approval: &Approval) -> Result<Option<Hold>, Refusal> {
    as_unused(txn.get_relaxed(&hold_key(approval)).await.map_err(stored::reading)?)
}

fn hold_key(approval: &Approval) -> Key {
    charter_kernel::governance::hold::key(&approval.subject.organization, &approval.hold)
}

fn as_unused(row: Option<Row>) -> Result<Option<Hold>, Refusal> {
    let Some(row) = row else { return Ok(None) };
    let hold: Hold = serde_json::from_str(&row.body).map_err(|_| Refusal::internal())?;
    let is_unused = |hold: &Hold| matches!(hold.state, State::Pending | State::Held) && !hold.kept;
    Ok(Some(hold).filter(is_unused))
}

/// Ends an approval that is not to be made: its hold, the job that waits by it, and the news of the
/// end. Its own row is the caller's to write.
///
/// # Errors
/// When the store cannot be asked, or the operating system has no randomness.
pub async fn drop_request(txn: &mut Txn, approval: &Approval, now: Instant) -> Result<(), Refusal> {
    release(txn, approval, now).await?;
    unpark(txn, approval, now).await?;
    tell(txn, approval, now)
}

/// The event of an end. An approval that expired or was canceled reads as denied,
/// with its reason.
///
/// # Errors
/// If the operating system has no randomness.
fn resolution(approval: &Approval, now: Instant) -> Result<Fact, Refusal> {
    let (status, reason) = match approval.status {
        Status::Succeeded => ("approved", None),
        Status::Failed => (
            "failed",
            approval.error.as_ref().and_then(|error| error["reason"].as_str()).map(str::to_owned),
        ),
        Status::Denied => ("denied", approval.reason.clone()),
        other => ("denied", Some(other.as_str().to_owned())),
    };
    let body = json!({
        "project": approval.subject.project,
        "user": approval.subject.user,
        "actor": { "type": approval.subject.actor.0, "id": approval.subject.actor.1 },
        "primitive": approval.primitive,
        "request_id": approval.request_id,
        "payload": { "approval_id": approval.id, "status": status, "reason": reason, "action": approval.action },
    });
    let id = FactId::new(now, stored::random()?).into_string();
    Ok(Fact::event(id, approval.organization.as_str(), now, "approval.resolved", &body))
}

impl Run {
    /// Whether a proposal is the one that was approved: the same action on the same thing, no
    /// larger, between the same accounts, and worded as people have read it.
    pub fn covers(&self, leave: &Leave) -> bool {
        let (approved, proposal) = (&self.approval, &leave.proposal);
        let amount = match (approved.amount_micro_usd, proposal.amount) {
            (Some(approved), Some(asked)) => asked <= approved,
            (None, None) => true,
            _ => false,
        };
        let noted = approved.accounts.as_ref();
        amount
            && noted.is_none_or(|noted| noted.iter().eq(accounts(&proposal.pay)))
            && approved.action == proposal.action
            && approved.entity == proposal.entity
            && approved.primitive == leave.primitive
            && (!approved.worded
                || approved.title == title(proposal)
                    && approved.message == proposal.message
                    && approved.context == proposal.context)
    }

    /// One host makes it at a time, and commits only while it does.
    pub fn fence(&self) -> Guard {
        Guard::Lease { key: self.address(), token: self.token.clone() }
    }

    fn address(&self) -> Key {
        Approval::address(self.approval.organization.as_str(), &self.approval.id)
    }

    /// The mark that is written before the first effect of the request leaves the host: from then
    /// on it is not made again, whatever becomes of this host.
    pub fn claiming(&self) -> Claiming {
        let (writes, undo) = (vec![self.mark(1)], vec![self.mark(-1)]);
        let (key, fence) = (self.address(), self.fence());
        Claiming { writes, undo, guards: vec![fence.clone()], fence, key }
    }

    /// The rest of the row stays as it is by now.
    fn mark(&self, by: i64) -> Write {
        Write::Add { key: self.address(), field: MARKS.to_owned(), amount: by }
    }

    /// Takes the mark back in the unit that records that nothing was done after all: what was
    /// approved is there to be made.
    pub fn give_up(&self, txn: &mut Txn) {
        txn.write(self.mark(-1));
    }

    /// Gives up the hold of the run before, or the one that waited, in the unit that takes another,
    /// and notes that one for the run after.
    ///
    /// # Errors
    /// When the store cannot be asked.
    pub async fn take_anew(&self, txn: &mut Txn, hold: &str, now: Instant) -> Result<(), Refusal> {
        let (approval, version) = self.look(txn).await?;
        release(txn, &approval, now).await?;
        let approval = Approval { hold: hold.to_owned(), ..approval };
        let draft = approval.due(now).map_err(stored::unreadable)?;
        let write = Write::Replace { key: self.address(), draft, expected: Some(version) };
        txn.step(vec![self.fence()], vec![write]);
        Ok(())
    }

    /// The hold behind the approval by now, which the next one takes the place of.
    ///
    /// # Errors
    /// When the store cannot be asked.
    pub async fn unused_hold(&self, txn: &Txn) -> Result<Option<Hold>, Refusal> {
        unused_hold(txn, &self.look(txn).await?.0).await
    }

    /// The approval as it is by now, with its version: an earlier run of the request may have marked
    /// it and taken another hold.
    async fn look(&self, txn: &Txn) -> Result<(Approval, u64), Refusal> {
        let row = txn.get_relaxed(&self.address()).await.map_err(stored::reading)?;
        let row = row.ok_or_else(Refusal::not_found)?;
        Ok((Approval::read(&row).map_err(stored::unreadable)?, row.version))
    }

    /// Adds the end to the unit that makes it true: once, by whoever holds the lease. A hold that was
    /// not used ends with it.
    ///
    /// # Errors
    /// When the store cannot be asked for ten seconds, or the operating system has no randomness.
    pub async fn end(
        &self,
        txn: &mut Txn,
        result: Result<(u16, Content<'_>), Value>,
    ) -> Result<(), Refusal> {
        let now = txn.store().now();
        release(txn, &self.approval, now).await?;
        let mut approval = self.approval.clone();
        approval.resolved_at = Some(now);
        match result {
            Ok((status, content)) => {
                approval.result = content.keep();
                let has_none = matches!(content, Content::Whole([]));
                approval.result_not_kept = approval.result.is_none() && !has_none;
                approval.result_status = Some(status);
                approval.status = Status::Succeeded;
            }
            Err(error) => {
                approval.error = Some(error);
                approval.status = Status::Failed;
            }
        }
        if approval.is_forgotten() {
            // Its user was erased while a job was at work: what that says of the user goes too.
            approval = approval.forget();
        }
        settle(txn, &approval, &self.token, now)
    }

    /// Adds to the unit of a request that a job answers that the approval ends as the job does. The
    /// request is not made again, and a hold that was not used ends with it.
    ///
    /// # Errors
    /// When the store cannot be asked for ten seconds.
    pub async fn await_job(&self, txn: &mut Txn, job: Key, status: u16) -> Result<(), Refusal> {
        let now = txn.store().now();
        release(txn, &self.approval, now).await?;
        let approval = Approval {
            status: Status::Executing,
            begun: true,
            answered_by: Some(job),
            result_status: Some(status),
            ..self.approval.clone()
        };
        put(txn, &approval, &self.token, now.plus_ms(LOOK_MS_MIN))
    }

    /// Ends the approval as the job has ended that answers its request. Until then it is looked at
    /// again: often at first, then more seldom. So the ways in which a job ends or goes need to
    /// know nothing of approvals.
    ///
    /// # Errors
    /// When the store cannot be asked.
    pub async fn follow_job(&self, txn: &mut Txn) -> Result<(), Refusal> {
        let Some(job) = &self.approval.answered_by else { return Ok(()) };
        let row = txn.get_relaxed(job).await.map_err(stored::reading)?;
        match outcome(row.as_ref()) {
            Some(Ok(result)) => {
                let status = self.approval.result_status;
                let text = result.map(|result| result.to_string());
                let content = text.as_ref().map(|text| Content::Whole(text.as_bytes()));
                let content = content.unwrap_or(Content::Withheld);
                self.end(txn, Ok((status.unwrap_or(200), content))).await
            }
            Some(Err(error)) => self.end(txn, Err(error)).await,
            None => {
                let now = txn.store().now();
                let since = row.map_or(now, |row| row.created_at);
                let wait_ms = ((now.0 - since.0) / 4).clamp(LOOK_MS_MIN, LOOK_MS_MAX);
                let (key, token) = (self.address(), self.token.clone());
                let due_at = now.plus_ms(wait_ms);
                txn.write(Write::Release { key, token, due_at, undo: true });
                Ok(())
            }
        }
    }
}

/// The end of the job in this row, once it has one; no result where that is kept nowhere. One that
/// was removed, or that nobody can read, answers nothing any more.
fn outcome(row: Option<&Row>) -> Option<Result<Option<Value>, Value>> {
    let Some(row) = row else {
        let gone = Refusal::state_conflict("job_gone", "The job that was to answer is gone.");
        return Some(Err(gone.to_rest()));
    };
    match serde_json::from_str::<JobRecord>(&row.body) {
        Ok(job) => {
            let ended = job.outcome()?;
            Some(ended.map(|result| Some(result).filter(|_| !job.result_not_kept)))
        }
        Err(_) => Some(Err(Refusal::internal().to_rest())),
    }
}

/// Writes an approval that is over, under the lease that was held for it, and tells of its end.
///
/// # Errors
/// If the operating system has no randomness.
pub fn settle(
    txn: &mut Txn,
    approval: &Approval,
    token: &str,
    now: Instant,
) -> Result<(), Refusal> {
    keep(txn, approval, token, now)?;
    tell(txn, approval, now)
}

/// Writes an approval that is over, under the lease that was held for it.
///
/// # Errors
/// Never: its maps have text keys.
pub fn keep(txn: &mut Txn, approval: &Approval, token: &str, now: Instant) -> Result<(), Refusal> {
    put(txn, approval, token, now.plus_ms(KEPT_MS))
}

/// Writes an approval under the lease that was held for it, and gives that up: it is due then.
fn put(txn: &mut Txn, approval: &Approval, token: &str, due_at: Instant) -> Result<(), Refusal> {
    let key = Approval::address(approval.organization.as_str(), &approval.id);
    let draft = approval.due(due_at).map_err(stored::unreadable)?;
    let writes = vec![
        Write::Replace { key: key.clone(), draft, expected: None },
        Write::Release { key: key.clone(), token: token.to_owned(), due_at, undo: false },
    ];
    txn.step(vec![Guard::Lease { key, token: token.to_owned() }], writes);
    Ok(())
}

/// Tells of an end: by the event, and by the signal where a primitive had asked.
///
/// # Errors
/// If the operating system has no randomness.
pub fn tell(txn: &mut Txn, approval: &Approval, now: Instant) -> Result<(), Refusal> {
    txn.fact(resolution(approval, now)?);
    if let Some(signal) = lifecycle::answer(approval, now)? {
        txn.write(signal);
    }
    Ok(())
}
