//! The answer of a host route: a status, headers and a body. Knows nothing of sockets.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use bytes::Bytes;
use charter_kernel::id::ProjectId;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use serde::Serialize;
use tokio::sync::mpsc;

use crate::events::Source;

/// A successful answer of a host route.
#[derive(Debug)]
pub struct Reply {
    /// Its status.
    pub status: StatusCode,
    /// Headers beside those that the pipeline adds to every answer.
    pub headers: HeaderMap,
    /// Its body.
    pub body: ReplyBody,
    /// The entity that the audit row names: its type and id.
    pub entity: Option<(&'static str, String)>,
    /// The log that the audit row belongs to, if the place of the request does not say it.
    pub log: Option<AuditLog>,
    /// Further details of the audit row; never a secret or a body.
    pub details: Option<serde_json::Value>,
    /// Whether its audit row is committed already, with what it did.
    pub audited: bool,
    /// The counter of the request, once it is committed: however often it had to be run, it is one.
    pub counted: Option<Arc<AtomicU64>>,
}

/// The log that an audit row belongs to: a credential that is pinned to a project reads its
/// project's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuditLog {
    /// The organization's alone.
    Organization,
    /// This project's.
    Project(ProjectId),
    /// This tenant user's, with whom the row is forgotten, in their project.
    User {
        /// The user.
        user: String,
        /// Their project; records of earlier builds do not all name it.
        project: Option<ProjectId>,
    },
}

impl AuditLog {
    /// The log of a thing of this project and this tenant user, or of as much of them as there is.
    pub fn of(project: Option<&str>, user: Option<&str>) -> Self {
        let project = project.and_then(ProjectId::parse);
        match (user, project) {
            (Some(user), project) => Self::User { user: user.to_owned(), project },
            (None, Some(project)) => Self::Project(project),
            (None, None) => Self::Organization,
        }
    }
}

/// The body of a [`Reply`].
#[derive(Debug)]
pub enum ReplyBody {
    /// None at all.
    Empty,
    /// JSON text.
    Json(Bytes),
    /// Anything else; the content type stands in the headers.
    Bytes(Bytes),
    /// The same, written piece by piece.
    Pieces(mpsc::Receiver<Bytes>),
    /// An event stream.
    Follow(Source),
}

impl Reply {
    /// 200 with a JSON body.
    pub fn ok<T: Serialize + ?Sized>(body: &T) -> Self {
        Self::json(StatusCode::OK, body)
    }
    /// 201 with a JSON body.
    pub fn created<T: Serialize + ?Sized>(body: &T) -> Self {
        Self::json(StatusCode::CREATED, body)
    }
    /// 202 with a JSON body.
    pub fn accepted<T: Serialize + ?Sized>(body: &T) -> Self {
        Self::json(StatusCode::ACCEPTED, body)
    }
    /// A JSON body under this status. The host's own records serialize without failure: their maps
    /// have text keys.
    pub fn json<T: Serialize + ?Sized>(status: StatusCode, body: &T) -> Self {
        let text = serde_json::to_vec(body).unwrap_or_else(|_| b"null".to_vec());
        Self { status, ..Self::of(ReplyBody::Json(text.into())) }
    }
    /// 204.
    pub fn empty() -> Self {
        Self { status: StatusCode::NO_CONTENT, ..Self::of(ReplyBody::Empty) }
    }
    /// 200 with a body that is not JSON.
    pub fn text(content_type: &'static str, body: impl Into<Bytes>) -> Self {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
        Self { headers, ..Self::of(ReplyBody::Bytes(body.into())) }
    }
    /// 200 with this body, and nothing else.
    fn of(body: ReplyBody) -> Self {
        Self {
            status: StatusCode::OK,
            headers: HeaderMap::new(),
            body,
            entity: None,
            log: None,
            details: None,
            audited: false,
            counted: None,
        }
    }
    /// 200 with a body that is written piece by piece.
    pub fn pieces(content_type: &'static str, pieces: mpsc::Receiver<Bytes>) -> Self {
        Self { body: ReplyBody::Pieces(pieces), ..Self::text(content_type, Bytes::new()) }
    }
    /// 200 with an event stream.
    pub fn follow(source: Source) -> Self {
        Self { body: ReplyBody::Follow(source), ..Self::ok(&()) }
    }
    /// The same with a header. A value that is no header value is left out.
    #[must_use]
    pub fn header(mut self, name: HeaderName, value: &str) -> Self {
        if let Ok(value) = HeaderValue::from_str(value) {
            self.headers.append(name, value);
        }
        self
    }
    /// The same, and the audit row names this entity.
    #[must_use]
    pub fn about(mut self, kind: &'static str, id: impl Into<String>) -> Self {
        self.entity = Some((kind, id.into()));
        self
    }
    /// The same, and the audit row belongs to this log, whatever the request was placed in.
    #[must_use]
    pub fn with_log(mut self, log: AuditLog) -> Self {
        self.log = Some(log);
        self
    }
    /// The same, and its audit row was committed with what it did.
    #[must_use]
    pub fn mark_audited(mut self) -> Self {
        self.audited = true;
        self
    }
    /// The same, counted there once it is committed.
    #[must_use]
    pub fn counting(mut self, counter: &Arc<AtomicU64>) -> Self {
        self.counted = Some(counter.clone());
        self
    }
    /// The same, and the audit row carries these details.
    #[must_use]
    pub fn noting(mut self, details: serde_json::Value) -> Self {
        self.details = Some(details);
        self
    }
}
