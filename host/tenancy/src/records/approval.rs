//! A regulated action that waits for people to decide, its funds held, its request kept sealed.

use charter_kernel::governance::hold::Subject;
use charter_kernel::id::OrganizationId;
use charter_kernel::lease;
use charter_kernel::scope::Asker;
use charter_kernel::share;
use charter_kernel::time::Instant;
use charter_kernel::unit::{Draft, Key, Reach, Space};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Record, USER, Unreadable, entry};

/// The kind of approvals that fall due when nobody has decided.
pub const PENDING: &str = "pending";
/// The kind of approvals whose request is to be made.
pub const APPROVED: &str = "approved";
/// The group of approvals that are over, whoever's they are: nobody waits for their end.
pub const RESOLVED: &str = "resolved";
/// How long one that is over is kept, in milliseconds: 400 days.
pub const KEPT_MS: i64 = 400 * 86_400_000;

/// The state of an approval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Nobody, or too few, have decided.
    PendingApproval,
    /// Approved; its request is about to be made.
    Approved,
    /// Its request runs, or the job that answers it is at work.
    Executing,
    /// Its request was answered.
    Succeeded,
    /// Its request was refused or made otherwise than it was approved, or the job that answers it has
    /// failed.
    Failed,
    /// Somebody said no.
    Denied,
    /// Nobody decided in time.
    Expired,
    /// The request behind it is gone.
    Canceled,
}

impl Status {
    /// Its name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Status::PendingApproval => "pending_approval",
            Status::Approved => "approved",
            Status::Executing => "executing",
            Status::Succeeded => "succeeded",
            Status::Failed => "failed",
            Status::Denied => "denied",
            Status::Expired => "expired",
            Status::Canceled => "canceled",
        }
    }

    /// Whether nothing more comes of it.
    pub fn is_over(self) -> bool {
        !matches!(self, Status::PendingApproval | Status::Approved | Status::Executing)
    }

    /// The reason for which it ended without its request being made; absent where it did not.
    pub fn reason(self) -> Option<&'static str> {
        match self {
            Status::Denied => Some("approval_denied"),
            Status::Expired => Some("approval_expired"),
            Status::Canceled => Some("approval_canceled"),
            _ => None,
        }
    }
}

/// One person's word.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Word {
    /// The account.
    pub by: String,
    /// `approve` or `deny`.
    pub decision: String,
    /// Why.
    pub reason: Option<String>,
    /// Whether the same person had made the request, because nobody else could decide.
    #[serde(default)]
    pub self_approved: bool,
    /// When.
    pub at: Instant,
}

/// A regulated action that waits for people.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Approval {
    /// Its id.
    pub id: String,
    /// The organization that owns it.
    pub organization: OrganizationId,
    /// Its state.
    pub status: Status,
    /// `<primitive>.<verb>`.
    pub action: String,
    /// The primitive that declares the action.
    pub primitive: String,
    /// The thing that the action is done to; empty once its user is erased, as all that the
    /// request said.
    pub entity: String,
    /// A line for the person who decides.
    pub title: String,
    /// A few sentences.
    pub message: String,
    /// Further facts for that person, as JSON.
    pub context: Value,
    /// Whether what is made has to be worded so. Absent in rows of builds that did not ask it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub worded: bool,
    /// In micro-US-dollars.
    pub amount_micro_usd: Option<i64>,
    /// The accounts that it pays from and to: none where it moves no money. Absent in rows of
    /// builds that did not note them.
    #[serde(default)]
    pub accounts: Option<Vec<Key>>,
    /// On whose behalf.
    pub subject: Subject,
    /// The account of the session that asked, where one did.
    pub asked_by: Option<String>,
    /// Whether a pinned credential has asked: news of it wait among those of whom it is about.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pinned: bool,
    /// The one who asked, as it counts among those who share the organization's mails. Absent in rows of
    /// builds that counted the user.
    #[serde(default)]
    pub by: Option<Asker>,
    /// The rules that ask for a person.
    pub policy_ids: Vec<String>,
    /// How many distinct people must approve.
    pub approvals_required: u8,
    /// The words of people so far.
    #[serde(default)]
    pub decisions: Vec<Word>,
    /// The hold behind it.
    pub hold: String,
    /// The request that asked, and the action's place in it.
    pub request_id: String,
    /// See above.
    pub ordinal: u32,
    /// SHA-256 of the request: what is decided is this request and no other.
    pub request_sha256: String,
    /// The request, sealed; empty once its user is erased.
    pub request: String,
    /// The address of this deployment, for what who asked is told to do next.
    pub base: String,
    /// The primitive that made the request, where it wants to be told what became of it.
    #[serde(default)]
    pub tells: Option<String>,
    /// The job whose action it is, where a job asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<Key>,
    /// Whether the request has been made as far as its first effect: it is not made again then. Rows
    /// of earlier builds have it while the request is made, too.
    #[serde(default)]
    pub begun: bool,
    /// The same while the request is made: one before its first effect, and less that where nothing
    /// was done after all. It is added to, so that nobody else's change of the row is lost.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub marks: i64,
    /// The job whose end is the request's answer, once the request was made and left it to one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered_by: Option<Key>,
    /// When nobody's word counts any more.
    pub expires_at: Instant,
    /// When it was asked.
    pub created_at: Instant,
    /// When it was over.
    #[serde(default)]
    pub resolved_at: Option<Instant>,
    /// The answer that the request got.
    #[serde(default)]
    pub result: Option<Value>,
    /// Whether that answer was too large to keep, or shows a secret.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub result_not_kept: bool,
    /// Status and media of that answer.
    #[serde(default)]
    pub result_status: Option<u16>,
    /// Why it failed.
    #[serde(default)]
    pub error: Option<Value>,
    /// Why it was denied, expired or canceled.
    #[serde(default)]
    pub reason: Option<String>,
}

/// The member of an approval's row that marks are added to.
pub const MARKS: &str = "marks";

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_zero(marks: &i64) -> bool {
    *marks == 0
}

impl Approval {
    /// Whether something of its request may have left the host: also where it was given up more often
    /// than marked, because an answer of the database was lost.
    pub fn has_begun(&self) -> bool {
        self.begun || self.marks != 0
    }

    /// The address of the approval of this id.
    pub fn address(organization: &str, id: &str) -> Key {
        Key::new(&Reach::organization(organization), &Space::host(Self::COLLECTION), id)
    }

    /// The same without what was asked, said and answered: its user is erased. That it was, its
    /// times, its amount, its action and the decisions stay.
    #[must_use]
    pub fn forget(self) -> Self {
        let wordless = |word: Word| Word { reason: None, ..word };
        Self {
            entity: String::new(),
            title: self.action.clone(),
            message: String::new(),
            context: Value::Null,
            decisions: self.decisions.into_iter().map(wordless).collect(),
            request_sha256: String::new(),
            request: String::new(),
            result: None,
            error: self
                .error
                .map(|error| json!({"code": error["code"], "reason": error["reason"]})),
            reason: None,
            ..self
        }
    }

    /// Whether its request went with its user.
    pub fn is_forgotten(&self) -> bool {
        self.request.is_empty()
    }

    /// The row's content, due then in its group.
    ///
    /// # Errors
    /// Never: its maps have text keys.
    pub fn due(&self, at: Instant) -> Result<Draft, Unreadable> {
        let group = |kind| lease::group(self.organization.as_str(), kind);
        let group = match self.status {
            Status::PendingApproval => group(PENDING),
            Status::Approved | Status::Executing => group(APPROVED),
            _ => RESOLVED.to_owned(),
        };
        Ok(Draft { lease: Some((group, at)), ..self.draft()? })
    }
}

/// The indexed project of who asked.
pub const PROJECT: &str = "project";
/// The indexed names under which one that waits counts as who asked: see [`share::names_of`].
pub const BY: [&str; 3] = ["by", "by_sharer", "by_within"];

impl Record for Approval {
    const COLLECTION: &'static str = "approvals";

    fn key(&self) -> Key {
        Self::address(self.organization.as_str(), &self.id)
    }

    fn index(&self) -> Vec<(String, String)> {
        let mut index = vec![entry("status", self.status.as_str())];
        // A forgotten one is found by its user no more, so that it is forgotten once.
        let user = self.subject.user.iter().filter(|_| !self.is_forgotten());
        index.extend(user.map(|user| entry(USER, user)));
        index.extend(self.subject.project.iter().map(|project| entry(PROJECT, project)));
        let by = self.by.iter().filter(|_| self.status == Status::PendingApproval);
        let names = by.flat_map(|by| BY.into_iter().zip(share::names_of(by)));
        index.extend(names.map(|(field, name)| entry(field, name)));
        index
    }
}
