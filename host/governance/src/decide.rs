//! A person's word on what waits: the one place where an approval is decided, whichever way the
//! word came.
//!
//! The speaker was proven before, by a session or by a mailed link, and is still a member whose
//! role decides: that was read within the unit, so that a member who loses it meanwhile decides
//! nothing.

use charter_kernel::governance::hold::Subject;
use charter_kernel::id::{AccountId, OrganizationId};
use charter_kernel::refusal::Refusal;
use charter_kernel::role::Role;
use charter_kernel::time::Instant;
use charter_kernel::unit::{Reach, Write};
use charter_store::Txn;
use charter_tenancy::records::Record as _;
use charter_tenancy::records::approval::{Approval, KEPT_MS, Status, Word};
use charter_tenancy::records::erasure::Erasure;
use charter_tenancy::records::member::Member;
use charter_tenancy::stored::{self, Versioned};
use serde_json::{Value, json};

use super::approvals;

/// Members of a role that are looked at: of two one is somebody else.
const MEMBERS_OF_A_ROLE: u32 = 2;

/// The decision's direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The request is made.
    Approve,
    /// It is not.
    Deny,
}

impl Decision {
    /// Its name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Approve => "approve",
            Self::Deny => "deny",
        }
    }
}

/// The speaker.
pub struct Person<'a> {
    /// The organization in which they do.
    pub organization: &'a OrganizationId,
    /// The account.
    pub account: &'a str,
    /// Their role there.
    pub role: Role,
    /// The way by which the word came: `session` or `mail_link`.
    pub via: &'static str,
}

/// A word that counts.
pub struct Said {
    /// The approval after it.
    pub approval: Approval,
    /// Its version.
    pub version: u64,
    /// Its row for the audit log; nothing where the same was said before.
    pub note: Option<Value>,
}

/// Refuses whose role does not decide.
///
/// # Errors
/// 403.
pub fn may_decide(role: Role) -> Result<(), Refusal> {
    let person = "Only people decide: it takes an owner, admin or approver.";
    if role.decides() { Ok(()) } else { Err(Refusal::forbidden("role_insufficient", person)) }
}

/// The refusal of a word on an approval that nobody decides on any more.
pub fn refuse_decided(approval: &Approval, now: Instant) -> Option<Refusal> {
    if approval.status != Status::PendingApproval {
        return Some(conflict(approval.status));
    }
    (now >= approval.expires_at).then(|| conflict(Status::Expired))
}

fn conflict(status: Status) -> Refusal {
    let told = match status {
        // Its time is over, and nobody has written that yet.
        Status::Expired => "The approval has expired.".to_owned(),
        status => format!("The approval is {} already.", status.as_str().replace('_', " ")),
    };
    Refusal::state_conflict("approval_decided", told).detail("status", status.as_str())
}

/// The refusal of another word from somebody who has spoken.
fn already(said: &Word) -> Refusal {
    let told = format!("You have said {} already, and a word is not taken back.", said.decision);
    Refusal::state_conflict("approval_decided", told).detail("decision", said.decision.as_str())
}

/// Adds the word to the unit.
///
/// # Errors
/// 403 for whoever may not decide, 409 where it is decided otherwise already.
pub async fn decide(
    txn: &mut Txn,
    person: &Person<'_>,
    found: Versioned<Approval>,
    decision: Decision,
    reason: Option<String>,
    now: Instant,
) -> Result<Said, Refusal> {
    may_decide(person.role)?;
    let (mut approval, version) = (found.record, found.version);
    let said = approval.decisions.iter().rfind(|word| word.by == person.account);
    if let Some(said) = said
        && stands(txn, person.organization, said).await?
    {
        // The same word again changes nothing; another one does not take it back.
        return match said.decision == decision.as_str() {
            true => Ok(Said { approval, version, note: None }),
            false => Err(already(said)),
        };
    }
    if let Some(refusal) = refuse_decided(&approval, now) {
        return Err(refusal);
    }
    // It is canceled in a moment.
    if is_orphaned(txn, &approval).await? {
        return Err(conflict(Status::Canceled));
    }
    let own = is_own(txn, person, approval.asked_by.as_deref()).await?;
    // Earlier builds let it wait on when its user was erased: nothing more is said of that user.
    let reason = reason.filter(|_| !approval.is_forgotten());
    let word = Word {
        by: person.account.to_owned(),
        decision: decision.as_str().into(),
        reason: reason.clone(),
        self_approved: own,
        at: now,
    };
    approval.decisions.push(word);
    let due_at = if decision == Decision::Deny {
        (approval.status, approval.reason, approval.resolved_at) =
            (Status::Denied, reason, Some(now));
        approvals::drop_request(txn, &approval, now).await?;
        now.plus_ms(KEPT_MS)
    } else if count_words(txn, person.organization, &approval.decisions).await?
        >= usize::from(approval.approvals_required)
    {
        approval.status = Status::Approved;
        now
    } else {
        approval.expires_at
    };
    let draft = approval.due(due_at).map_err(stored::unreadable)?;
    txn.write(Write::Replace { key: approval.key(), draft, expected: Some(version) });
    let note = json!({
        "decision": decision.as_str(), "action": approval.action, "request_sha256": approval.request_sha256,
        "self_approved": own, "via": person.via,
        "before": {"status": "pending_approval"}, "after": {"status": approval.status},
    });
    Ok(Said { approval, version: version + 1, note: Some(note) })
}

/// Whether the user is deleted for whom the request was to be made.
async fn is_orphaned(txn: &mut Txn, approval: &Approval) -> Result<bool, Refusal> {
    let Subject { organization, user, .. } = &approval.subject;
    let Some(user) = user else { return Ok(false) };
    let gone = Erasure::of_user(organization, user);
    Ok(txn.get(&gone).await.map_err(stored::reading)?.is_some())
}

/// Whether somebody speaks on what they have asked for themselves, by a key or in person: they do
/// only where nobody else could.
///
/// # Errors
/// 403 `own_request` where somebody else could.
pub async fn is_own(
    txn: &mut Txn,
    person: &Person<'_>,
    root: Option<&str>,
) -> Result<bool, Refusal> {
    let own = root == Some(person.account);
    if own && others_decide(txn, person.organization, person.account).await? {
        let told = "Nobody decides on what they have asked for themselves.";
        return Err(Refusal::forbidden("own_request", told));
    }
    Ok(own)
}

/// Whether a word's speaker is a member who decides, and has ever since.
async fn stands(
    txn: &mut Txn,
    organization: &OrganizationId,
    word: &Word,
) -> Result<bool, Refusal> {
    let Some(account) = AccountId::parse(&word.by) else { return Ok(false) };
    let member = stored::get::<Member>(txn, &Member::address(organization, &account)).await?;
    Ok(member.is_some_and(|member| member.record.speaks_since(word.at)))
}

/// How many words count: those of members who have decided ever since. A word on what its speaker
/// has asked for counts only while nobody else could.
///
/// # Errors
/// When the store cannot be asked.
pub async fn count_words(
    txn: &mut Txn,
    organization: &OrganizationId,
    words: &[Word],
) -> Result<usize, Refusal> {
    let mut count = 0;
    for word in words {
        let is_heard = stands(txn, organization, word).await?
            && !(word.self_approved && others_decide(txn, organization, &word.by).await?);
        count += usize::from(is_heard);
    }
    Ok(count)
}

/// Whether anybody else of the organization could decide.
async fn others_decide(
    txn: &mut Txn,
    organization: &OrganizationId,
    account: &str,
) -> Result<bool, Refusal> {
    let reach = Reach::organization(organization.as_str());
    for role in Role::ALL.into_iter().filter(|role| role.decides()) {
        let of_role = [("role", role.as_str())];
        let (members, _) =
            stored::list::<Member>(txn, &reach, &of_role, MEMBERS_OF_A_ROLE, 0).await?;
        if members.iter().any(|member| member.record.account.as_str() != account) {
            return Ok(true);
        }
    }
    Ok(false)
}
