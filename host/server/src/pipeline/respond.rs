//! The one place where answers and refusals become HTTP: envelope, status, and the headers that
//! every answer carries.

use charter_kernel::id::RequestId;
use charter_kernel::manifest::Catalogue;
use charter_kernel::refusal::{Code, Refusal};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};

use super::trail::Trail;
use crate::html;
use crate::http::body::Body;
use crate::reply::{Reply, ReplyBody};

/// `x-request-id`.
pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");
const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");
const RATE: HeaderName = HeaderName::from_static("ratelimit");
const RATE_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
/// The media type of most answers.
pub const JSON: HeaderValue = HeaderValue::from_static("application/json");
const PROBLEM: HeaderValue = HeaderValue::from_static("application/problem+json");
const CHALLENGE: HeaderValue = HeaderValue::from_static("Bearer");
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");
const NO_SNIFF: HeaderValue = HeaderValue::from_static("nosniff");
/// An answer is data: shown by a browser it has an origin of its own, runs nothing and loads nothing.
const SANDBOX: HeaderValue = HeaderValue::from_static("sandbox; default-src 'none'");
const CLOSE: HeaderValue = HeaderValue::from_static("close");

/// An answer before the headers that all of them share.
#[derive(Debug)]
pub struct Answered {
    /// The status.
    pub status: StatusCode,
    /// Its own headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Body,
}

impl Answered {
    /// JSON text under this status.
    pub fn json(status: StatusCode, text: impl Into<bytes::Bytes>) -> Self {
        let mut headers = HeaderMap::with_capacity(12);
        headers.insert(header::CONTENT_TYPE, JSON);
        Self { status, headers, body: Body::whole(text) }
    }
    /// Whether it was kept under an idempotency key.
    pub fn is_replayed(&self) -> bool {
        self.headers.contains_key(REPLAYED)
    }
    /// Marks an answer that was kept under an idempotency key.
    #[must_use]
    pub fn mark_replayed(mut self) -> Self {
        self.headers.insert(REPLAYED, HeaderValue::from_static("true"));
        self
    }
}

impl From<Reply> for Answered {
    fn from(reply: Reply) -> Self {
        let mut headers = reply.headers;
        let body = match reply.body {
            ReplyBody::Empty => Body::empty(),
            ReplyBody::Json(text) => {
                headers.insert(header::CONTENT_TYPE, JSON);
                Body::whole(text)
            }
            ReplyBody::Bytes(bytes) => Body::whole(bytes),
            ReplyBody::Pieces(pieces) => Body::pieces(pieces),
            // Streams are opened where they are read: a change answers with none.
            ReplyBody::Follow(_) => Body::empty(),
        };
        Self { status: reply.status, headers, body }
    }
}

/// The answer as it leaves.
pub fn answer(trail: &Trail, answered: Answered) -> Response<Body> {
    let mut headers = answered.headers;
    set_shared_headers(trail, &mut headers);
    let mut response = Response::new(answered.body);
    *response.status_mut() = answered.status;
    *response.headers_mut() = headers;
    response
}

/// Leaves of an answer what HEAD asks for: its head, with the length of the body that GET would get
/// (RFC 9110, 9.3.2). Over HTTP/2 nothing else does.
pub fn drop_body(response: &mut Response<Body>) {
    let body = std::mem::replace(response.body_mut(), Body::empty());
    if let Some(bytes) = body.as_whole() {
        let length = HeaderValue::from(bytes.len());
        response.headers_mut().entry(header::CONTENT_LENGTH).or_insert(length);
    }
}

/// How a request's refusals are worded.
#[derive(Clone, Debug)]
pub struct Wording {
    /// The request's id.
    pub id: RequestId,
    /// The error catalogue.
    pub catalogue: Catalogue,
    /// Whether the client asked for RFC 9457.
    pub problem: bool,
    /// Whether a person's browser shows it.
    pub page: bool,
}

/// A refusal as it leaves.
pub fn refusal(trail: &Trail, refusal: &Refusal) -> Response<Body> {
    let mut answered = render_refusal(&trail.wording(), refusal);
    if refusal.code == Code::MethodNotAllowed {
        put(&mut answered.headers, header::ALLOW, trail.allow.as_deref());
    }
    // A request that is refused now may be admitted the next time.
    answered.headers.insert(header::CACHE_CONTROL, NO_STORE);
    answer(trail, answered)
}

/// A refusal's envelope and its own headers.
pub fn render_refusal(wording: &Wording, refusal: &Refusal) -> Answered {
    let id = wording.id.as_str();
    let (status, body) = match wording.problem {
        true => refusal.problem(wording.catalogue, id),
        false => refusal.render(wording.catalogue, id),
    };
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut answered = match wording.page {
        true => Answered::from(html::refusal_page(status, refusal)),
        false => Answered::json(status, body.to_string()),
    };
    let headers = &mut answered.headers;
    if wording.problem && !wording.page {
        headers.insert(header::CONTENT_TYPE, PROBLEM);
    }
    headers.insert(
        SHOULD_RETRY,
        HeaderValue::from_static(if refusal.should_retry() { "true" } else { "false" }),
    );
    if let Some(seconds) = refusal.retry_after_seconds {
        headers.insert(header::RETRY_AFTER, seconds.into());
    }
    if let Some(rate) = &refusal.rate {
        put(headers, RATE_POLICY, Some(&rate.policy));
        put(headers, RATE, Some(&rate.left));
    }
    if status == StatusCode::UNAUTHORIZED {
        headers.insert(header::WWW_AUTHENTICATE, CHALLENGE);
    }
    answered
}

/// Sets the headers that every answer carries.
fn set_shared_headers(trail: &Trail, headers: &mut HeaderMap) {
    headers.insert(REQUEST_ID, trail.id_header.clone());
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, NO_SNIFF);
    // The host's own pages say what they may do; no guest does.
    headers.entry(header::CONTENT_SECURITY_POLICY).or_insert(SANDBOX);
    // The answer to a change may hold a secret that is shown once, whoever asked.
    if trail.private || trail.mutates {
        headers.insert(header::CACHE_CONTROL, NO_STORE);
    }
    if trail.closes {
        headers.insert(header::CONNECTION, CLOSE);
    }
    if let Some(rate) = &trail.rate {
        put(headers, RATE_POLICY, Some(&rate.policy));
        put(headers, RATE, Some(&rate.left));
    }
    if let Some(deprecated) = &trail.deprecated {
        for (name, value) in deprecated.headers() {
            put(headers, HeaderName::from_static(name), Some(value));
        }
    }
}

fn put(headers: &mut HeaderMap, name: HeaderName, value: Option<&str>) {
    if let Some(Ok(value)) = value.map(HeaderValue::from_str) {
        headers.insert(name, value);
    }
}
