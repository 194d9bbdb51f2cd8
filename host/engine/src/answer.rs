//! How a call ends: the guest's answer, its refusal, or what the host made of it.
//!
//! Knows nothing of HTTP statuses: the server's one exhaustive function maps an [`Outcome`] to the
//! wire.

use bytes::Bytes;
use charter_kernel::unit::LogKey;

use charter_kernel::refusal::Failure;

/// A guest's answer, committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The operation's declared status where absent.
    pub status: Option<u16>,
    /// Further response headers; names are lower case, hop-by-hop ones are left out.
    pub headers: Vec<(String, String)>,
    /// The content.
    pub body: AnswerBody,
}

impl Answer {
    /// An answer without content.
    pub fn empty() -> Self {
        Self { status: None, headers: Vec::new(), body: AnswerBody::None }
    }
}

/// The content of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnswerBody {
    /// No content.
    None,
    /// UTF-8 JSON text, checked to be well formed.
    Json(String),
    /// Bytes of this media type.
    Bytes {
        /// The media type.
        content_type: String,
        /// The content.
        bytes: Bytes,
    },
    /// An object of the store.
    Blob(String),
    /// A job that was committed: the server runs it at once and answers its result.
    Job(String),
    /// The server serves this log as an event stream from the sequence after `after`.
    Follow {
        /// The log.
        log: LogKey,
        /// The last sequence that the client has.
        after: u64,
    },
}

/// How a call ended.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// The guest answered and everything is committed.
    Answered(Answer),
    /// The guest, or a rule at the commit, refused: documents rolled back, facts committed.
    Refused(Failure),
    /// A person decides: nothing of the guest's was committed.
    Pending {
        /// The approval's id.
        approval: String,
    },
    /// A guard that the caller gave no longer holds (or the idempotency claim is another's now):
    /// begin from the top.
    Restart,
    /// The user, key or organization was revoked while the call ran; nothing of it was committed.
    Inactive,
    /// The guest trapped. The operator's log has the message and backtrace under this id.
    Trapped {
        /// An opaque incident id for the caller.
        id: String,
    },
    /// The wall or CPU deadline passed; provably nothing was committed unless something had been
    /// dispatched.
    Deadline,
    /// The guest wanted more memory than a call may have.
    OutOfMemory,
    /// Not admitted; nothing ran.
    Shed {
        /// When to try again.
        retry_after_s: u32,
        /// True where the tenant's own share was used up (429), false where the deployment's was
        /// (503).
        tenant: bool,
    },
    /// The client left before anything was dispatched; nothing was committed.
    ClientGone,
    /// The store takes no writes, or failed: nothing is known to be committed.
    Unavailable {
        /// When to try again.
        retry_after_s: u32,
    },
}
