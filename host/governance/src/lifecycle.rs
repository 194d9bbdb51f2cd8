//! Signals to primitives about a tenant user: that it was made, revoked, restored or deleted; the
//! removal of what a deleted one leaves behind; and signals to the biller about an organization:
//! that it registered, and was given credit.
//!
//! A signal is a job of the same commit as the change, so that it is told of every change that
//! happened and of none that did not. Knows primitives by what their manifests ask for only.

use charter_engine::hook::HookRecord;
use charter_engine::job::{self, JobRecord, Owner, Payload, jobs};
use charter_kernel::governance::hold::{Hold, Subject};
use charter_kernel::id::{OrganizationId, uuid_v7};
use charter_kernel::lease;
use charter_kernel::refusal::Refusal;
use charter_kernel::scope::Behind;
use charter_kernel::time::Instant;
use charter_kernel::unit::{Draft, Key, Reach, Write};
use charter_store::Txn;
use charter_tenancy::records::Record as _;
use charter_tenancy::records::approval::Approval;
use charter_tenancy::records::erasure::{ERASURES, Erasure};
use charter_tenancy::records::project::{Mode, Project};
use charter_tenancy::records::user::User;
use charter_tenancy::stored;
use serde_json::{Value, json};

use crate::{Governance, aside};

/// Runs of one signal: with the doubling waits between them, most of an hour.
const ATTEMPTS_MAX: u32 = 12;

/// A change of a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It was made.
    Created,
    /// It was revoked.
    Revoked,
    /// Its revocation was lifted.
    Restored,
    /// It was deleted; what it owns is still there when the signal arrives, and goes afterwards.
    /// Told again when money of it comes free that was set aside, and while a primitive that failed
    /// holds some.
    Deleted,
}

impl Change {
    const ALL: [Self; 4] = [Self::Created, Self::Revoked, Self::Restored, Self::Deleted];

    /// The kind of the signal, as manifests name it.
    pub fn signal(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Revoked => "revoked",
            Self::Restored => "restored",
            Self::Deleted => "deleted",
        }
    }

    /// The change that a signal of this kind tells of.
    pub fn of(signal: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|change| change.signal() == signal)
    }
}

/// A change of one user within a commit.
pub struct Told<'a> {
    /// The user, as it is afterwards.
    pub user: &'a User,
    /// Whether its project reaches sandboxes only.
    pub test: bool,
    /// When.
    pub now: Instant,
    /// The request that made it, for the logs.
    pub request: &'a str,
    /// The one who made it, as far as that bounds what waits.
    pub behind: Behind,
}

impl Told<'_> {
    /// Tells every primitive of which an installed version's manifest asks for it, whatever the kit
    /// says: a kit governs what the user does, and this is done to it. Answers the jobs' ids.
    ///
    /// # Errors
    /// When the store cannot be asked.
    pub async fn tell(
        &self,
        governance: &Governance,
        txn: &mut Txn,
        change: Change,
    ) -> Result<Vec<String>, Refusal> {
        let live = governance.registry.current();
        let mut ids = Vec::new();
        for primitive in live.listeners(change.signal()) {
            ids.push(self.enqueue(txn, change, primitive).await?);
        }
        Ok(ids)
    }

    async fn enqueue(
        &self,
        txn: &mut Txn,
        change: Change,
        primitive: &str,
    ) -> Result<String, Refusal> {
        let user = self.user;
        let news = News {
            change,
            organization: user.organization.as_str(),
            project: user.project.as_str(),
            user: user.id.as_str(),
            external_id: user.external_id.as_deref(),
            reason: user.revoked.as_ref().and_then(|revocation| revocation.reason.as_deref()),
            test: self.test,
            at: self.now,
        };
        let mut signal = news.to(primitive, self.now, self.request);
        signal.pinned = self.behind != Behind::Organization;
        // The user's own rows go with it, and with its project's: the word of its end must outlive
        // both.
        let reach = match change {
            Change::Deleted => Reach::organization(user.organization.as_str()),
            _ => Reach::user(user.id.as_str()),
        };
        signal.enqueue(txn, &reach).await
    }

    /// Removes the user, tells of it, and leaves the rest to the workers: what it owns may be more
    /// than one commit takes.
    ///
    /// # Errors
    /// When the store cannot be asked.
    pub async fn delete(
        &self,
        governance: &Governance,
        txn: &mut Txn,
    ) -> Result<Vec<String>, Refusal> {
        let signals = self.tell(governance, txn, Change::Deleted).await?;
        stored::remove(txn, self.user).await?;
        let reach = Reach::user(self.user.id.as_str());
        let aside = aside::set_aside(txn.store(), &reach).await.map_err(stored::reading)?;
        let erasure = Erasure {
            organization: self.user.organization.to_string(),
            reach: reach.as_str().to_owned(),
            after: signals.clone(),
            aside,
            project: self.user.project.to_string(),
            test: self.test,
            since: self.now,
            ..Erasure::default()
        };
        note(txn, &erasure).await?;
        Ok(signals)
    }
}

/// The jobs that tell of the end of a user again: money of it came free that was set aside when it
/// was told last, or a primitive failed that holds money of it. Of its record nothing is left by
/// now, and of the erasure of anything else nobody is told.
///
/// # Errors
/// If the operating system has no randomness.
pub fn tell_again(
    governance: &Governance,
    erasure: &Erasure,
    now: Instant,
) -> Result<Vec<(Key, Draft)>, Refusal> {
    let Some(user) = erasure.user() else { return Ok(Vec::new()) };
    let news = News {
        change: Change::Deleted,
        organization: &erasure.organization,
        project: &erasure.project,
        user,
        external_id: None,
        reason: None,
        test: erasure.test,
        at: erasure.since,
    };
    let reach = Reach::organization(&erasure.organization);
    let live = governance.registry.current();
    live.listeners(news.change.signal())
        .map(|primitive| news.to(primitive, now, "").job(&reach))
        .collect()
}

/// A change of a user, in the words of its signal.
struct News<'a> {
    change: Change,
    organization: &'a str,
    project: &'a str,
    user: &'a str,
    external_id: Option<&'a str>,
    reason: Option<&'a str>,
    test: bool,
    at: Instant,
}

impl News<'_> {
    /// The signal to one primitive.
    fn to<'a>(&self, primitive: &'a str, now: Instant, request: &'a str) -> Sent<'a> {
        let payload = json!({
            "user_id": self.user,
            "project_id": self.project,
            "external_id": self.external_id,
            "reason": self.reason,
            "test": self.test,
            "at": self.at,
        });
        let owner = Owner {
            organization: self.organization.to_owned(),
            project: self.project.to_owned(),
            user: Some(self.user.to_owned()),
            root: None,
        };
        let kind = self.change.signal();
        let (attempts, pinned) = (ATTEMPTS_MAX, false);
        Sent { primitive, kind, payload, owner, now, request, attempts, pinned }
    }
}

/// News of an organization for its biller.
pub struct Billed<'a> {
    /// The organization.
    pub organization: &'a OrganizationId,
    /// The kind of the signal, as manifests name it.
    pub kind: &'static str,
    /// Its content.
    pub payload: Value,
    /// When.
    pub now: Instant,
    /// The request that it happened in, for the logs.
    pub request: &'a str,
}

impl Billed<'_> {
    /// Tells the primitive that bills, where one is named, installed, and asks for it. It is told
    /// in the scope of the whole organization: no user's end takes what it then plans with it.
    ///
    /// # Errors
    /// When the store cannot be asked.
    pub async fn tell(self, governance: &Governance, txn: &mut Txn) -> Result<(), Refusal> {
        let primitive = &governance.biller;
        if !governance.registry.current().listens(self.kind, primitive) {
            return Ok(());
        }
        let owner = Owner { organization: self.organization.to_string(), ..Owner::default() };
        let reach = Reach::organization(self.organization.as_str());
        let Self { kind, payload, now, request, .. } = self;
        let (attempts, pinned) = (ATTEMPTS_MAX, false);
        Sent { primitive, kind, payload, owner, now, request, attempts, pinned }
            .enqueue(txn, &reach)
            .await
            .map(drop)
    }
}

/// Runs of the signal that tells of a call: who called is answered already, and does not call
/// again.
const CALL_ATTEMPTS_MAX: u32 = 100;

/// A call of an inbound URL that was checked.
pub struct Called<'a> {
    /// The hook.
    pub hook: &'a HookRecord,
    /// The news for its primitive.
    pub payload: Value,
    /// When.
    pub now: Instant,
    /// The request that brought it, for the logs.
    pub request: &'a str,
}

impl Called<'_> {
    /// Tells the primitive in the hook's scope.
    ///
    /// # Errors
    /// When the store cannot be asked.
    pub async fn tell(self, txn: &mut Txn) -> Result<(), Refusal> {
        let Self { hook, payload, now, request } = self;
        let owner = hook.owner.clone();
        let reach = match (&owner.user, owner.project.as_str()) {
            // A provider's word outlives the user whom it is about.
            _ if hook.provider().is_some() => Reach::organization(&owner.organization),
            (Some(user), _) => Reach::user(user),
            (None, "") => Reach::organization(&owner.organization),
            (None, project) => Reach::project(project),
        };
        let (primitive, kind, attempts) =
            (&hook.primitive, charter_engine::hook::SIGNAL, CALL_ATTEMPTS_MAX);
        // Anybody calls a URL of the owner's own.
        let pinned = hook.provider().is_none();
        Sent { primitive, kind, payload, owner, now, request, attempts, pinned }
            .enqueue(txn, &reach)
            .await
            .map(drop)
    }
}

/// The kind of the signal that asks a primitive what became of a hold in doubt.
pub const DOUBT: &str = "doubt";

/// The kind of the signal that tells a primitive what became of a call of its own that waited for a
/// person.
pub const APPROVAL: &str = "approval";

/// The primitive, where it wants to be told what became of a call of its own that waits for a
/// person.
pub fn approval_listener(governance: &Governance, primitive: &str) -> Option<String> {
    let listens = governance.registry.current().listens(APPROVAL, primitive);
    listens.then(|| primitive.to_owned())
}

/// Whether a signal is of what is done to a user rather than by it, or of what a provider says has
/// happened: neither its standing nor its kit keeps it from arriving, and there is nothing for a
/// person to approve.
pub fn is_told(signal: &str, payload: &Payload) -> bool {
    let is_of_provider = || {
        let [provider] = payload.members(["provider"]);
        provider.is_string()
    };
    signal == charter_engine::hook::SIGNAL && is_of_provider()
        || Change::of(signal).is_some()
        || [DOUBT, APPROVAL].contains(&signal)
}

/// The owner of a signal about a hold or an approval.
fn owner_of(subject: &Subject) -> Owner {
    Owner {
        organization: subject.organization.clone(),
        project: subject.project.clone().unwrap_or_default(),
        user: subject.user.clone(),
        root: None,
    }
}

/// The signal to the primitive that made an approved call, about its end; `None` where a client
/// made it, or the primitive does not want to know.
///
/// # Errors
/// If the operating system has no randomness.
pub fn answer(approval: &Approval, now: Instant) -> Result<Option<Write>, Refusal> {
    let Some(primitive) = &approval.tells else { return Ok(None) };
    let subject = &approval.subject;
    let payload = json!({
        "approval_id": approval.id,
        "status": approval.status,
        "action": approval.action,
        "request_id": approval.request_id,
        "result": approval.result,
        "error": approval.error,
        "reason": approval.reason,
    });
    let owner = owner_of(subject);
    let request = &approval.request_id;
    let (attempts, pinned) = (ATTEMPTS_MAX, approval.pinned);
    let signal = Sent { primitive, kind: APPROVAL, payload, owner, now, request, attempts, pinned };
    signal.job(&subject.reach()).map(|(key, draft)| Some(Write::Insert { key, draft }))
}

/// Asks the primitive that took a hold what became of it, where it wants to be asked.
///
/// # Errors
/// When the store cannot be asked.
pub async fn ask(
    governance: &Governance,
    txn: &mut Txn,
    id: &str,
    hold: &Hold,
    now: Instant,
) -> Result<(), Refusal> {
    let primitive = &hold.primitive;
    if !governance.registry.current().listens(DOUBT, primitive) {
        return Ok(());
    }
    let subject = &hold.subject;
    let payload = json!({
        "permit": id,
        "action": hold.action,
        "entity": hold.entity,
        "amount_micro_usd": hold.amount,
        "request_id": hold.request,
        "at": hold.at,
    });
    let owner = owner_of(subject);
    // Asked again in time, whatever becomes of this. It waits in its user's line: whoever has many
    // holds in doubt delays nobody else.
    let (request, attempts, pinned) = (&hold.request, 1, true);
    let signal = Sent { primitive, kind: DOUBT, payload, owner, now, request, attempts, pinned };
    signal.enqueue(txn, &subject.reach()).await.map(drop)
}

/// The line in which questions about a hold wait: the beginning of their groups' names.
pub fn line_of(hold: &Hold) -> String {
    job::line_of(&hold.primitive, &owner_of(&hold.subject))
}

/// A signal on its way.
struct Sent<'a> {
    primitive: &'a str,
    kind: &'static str,
    payload: Value,
    owner: Owner,
    now: Instant,
    request: &'a str,
    attempts: u32,
    /// Whether it waits in its user's line, beside the organization's own.
    pinned: bool,
}

impl Sent<'_> {
    /// Writes its job; answers the job's id.
    async fn enqueue(self, txn: &mut Txn, reach: &Reach) -> Result<String, Refusal> {
        insert(txn, self.job(reach)?).await
    }

    fn job(self, reach: &Reach) -> Result<(Key, Draft), Refusal> {
        row(self.record(), reach)
    }

    fn record(self) -> JobRecord {
        JobRecord {
            payload: self.payload.into(),
            attempts_max: self.attempts,
            pinned: self.pinned,
            request: Some(self.request.to_owned()),
            ..JobRecord::of_signal(self.primitive, self.kind, self.owner, self.now)
        }
    }
}

/// Writes a job; answers its id.
async fn insert(txn: &mut Txn, (key, draft): (Key, Draft)) -> Result<String, Refusal> {
    let id = key.id.clone();
    txn.insert(key, draft).await.map_err(stored::breaking)?;
    Ok(id)
}

/// The row of a job that is due at once.
fn row(job: JobRecord, reach: &Reach) -> Result<(Key, Draft), Refusal> {
    let id = uuid_v7(job.run_at, stored::random()?);
    let draft = Draft {
        user: job.owner.user.clone(),
        index: job.index(),
        lease: Some((job.group(), job.run_at)),
        body: serde_json::to_string(&job).map_err(|_| Refusal::internal())?,
        ..Draft::default()
    };
    Ok((Key::new(reach, &jobs(), &*id), draft))
}

/// Whether a project reaches sandboxes only.
pub fn is_test(project: &Project) -> bool {
    project.mode == Mode::Test
}

/// Has everything within a reach removed, once these jobs have ended.
///
/// # Errors
/// When the store cannot be asked.
pub async fn erase(
    txn: &mut Txn,
    organization: &str,
    reach: &Reach,
    after: Vec<String>,
    now: Instant,
) -> Result<(), Refusal> {
    let erasure = Erasure {
        organization: organization.to_owned(),
        reach: reach.as_str().to_owned(),
        after,
        since: now,
        ..Erasure::default()
    };
    note(txn, &erasure).await
}

/// Has this removed, from its own time on.
///
/// # Errors
/// When the store cannot be asked.
pub async fn note(txn: &mut Txn, erasure: &Erasure) -> Result<(), Refusal> {
    let lease = Some((lease::group(&erasure.organization, ERASURES), erasure.since));
    let draft = Draft { lease, ..erasure.draft().map_err(stored::unreadable)? };
    txn.insert(erasure.key(), draft).await.map_err(stored::breaking)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_known_by_its_signal() {
        for change in Change::ALL {
            assert_eq!(Change::of(change.signal()), Some(change));
        }
        assert_eq!(Change::of("job"), None);
    }
}
