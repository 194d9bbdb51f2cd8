//! What a host route answers: a status, headers and a body. Knows nothing of sockets.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use serde::Serialize;
use tokio::sync::mpsc;

use crate::pipeline::follow::Source;

/// A successful answer of a host route.
#[derive(Debug)]
pub struct Reply {
    /// Its status.
    pub status: StatusCode,
    /// Headers beside those that the pipeline adds to every answer.
    pub headers: HeaderMap,
    /// Its body.
    pub body: ReplyBody,
    /// What the audit row names as the entity: its type and id.
    pub entity: Option<(&'static str, String)>,
    /// Further details of the audit row; never a secret or a body.
    pub details: Option<serde_json::Value>,
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
    /// A JSON body under this status. The host's own records serialize without failure: their maps have text keys.
    pub fn json<T: Serialize + ?Sized>(status: StatusCode, body: &T) -> Self {
        let text = serde_json::to_vec(body).unwrap_or_else(|_| b"null".to_vec());
        Self { status, headers: HeaderMap::new(), body: ReplyBody::Json(text.into()), entity: None, details: None }
    }
    /// 204.
    pub fn empty() -> Self {
        Self { status: StatusCode::NO_CONTENT, headers: HeaderMap::new(), body: ReplyBody::Empty, entity: None, details: None }
    }
    /// 200 with a body that is not JSON.
    pub fn text(content_type: &'static str, body: impl Into<Bytes>) -> Self {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
        Self { status: StatusCode::OK, headers, body: ReplyBody::Bytes(body.into()), entity: None, details: None }
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
    /// The same, and the audit row carries these details.
    #[must_use]
    pub fn noting(mut self, details: serde_json::Value) -> Self {
        self.details = Some(details);
        self
    }
}
