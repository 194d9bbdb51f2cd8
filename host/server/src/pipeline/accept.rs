//! The request as it came in: bounded, decoded once, its body not yet read.

use bytes::Bytes;
use charter_kernel::fault::Fault;
use charter_kernel::refusal::{Code, Refusal};
use charter_kernel::route::Path;
use charter_kernel::schema::parse_query;
use http::request::Parts;
use http::uri::Authority;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Version, header};
use hyper::body::Incoming;

use super::trail::Trail;
use crate::app::App;
use crate::http::Peer;

/// Names the project.
pub const PROJECT: HeaderName = HeaderName::from_static("x-service-project-id");
/// Names the tenant user.
pub const USER: HeaderName = HeaderName::from_static("x-service-user-id");
/// The key under which a change is made once.
pub const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// Bytes that a header field costs beside its name and value, as HTTP/2 counts them (RFC 9113,
/// section 6.5.2).
const FIELD_COST_BYTES: usize = 32;

/// Fields that stand once (RFC 9110, section 5.3; Host: RFC 9112, section 3.2).
const SINGLE: [HeaderName; 6] =
    [header::HOST, header::AUTHORIZATION, header::CONTENT_TYPE, IDEMPOTENCY_KEY, PROJECT, USER];

/// A request that may be looked at.
pub struct Accepted {
    /// The other side of the connection.
    pub peer: Peer,
    /// The method, `HEAD` read as `GET`.
    pub method: Method,
    /// The path as it was sent.
    pub raw_path: String,
    /// The path, decoded.
    pub path: Path,
    /// The query's pairs, decoded.
    pub query: Vec<(String, String)>,
    /// The headers.
    pub headers: HeaderMap,
    /// The body, or what was read of it.
    pub body: Body,
}

/// A request's body: read once, and then kept for a second run.
pub enum Body {
    /// Still on the connection.
    Unread(Incoming),
    /// Read.
    Read(Bytes),
}

/// Bounds and decodes the head.
pub fn accept(
    app: &App,
    trail: &mut Trail,
    peer: Peer,
    request: Request<Incoming>,
) -> Result<Accepted, Refusal> {
    let (mut head, body) = request.into_parts();
    // HTTP/2 names the host beside the headers; nothing behind this cares which version brought it.
    if !head.headers.contains_key(header::HOST)
        && let Some(Ok(host)) =
            head.uri.authority().map(|authority| HeaderValue::from_str(authority.as_str()))
    {
        head.headers.insert(header::HOST, host);
    }
    trail.problem = wants_problem(&head.headers);
    if !is_framed_once(&head.headers) {
        // Ahead of every other refusal: whatever is wrong beside it, nothing behind this request
        // may be heard.
        trail.closes = true;
        return Err(Refusal::invalid(
            "Transfer-Encoding",
            "must be chunked, once and alone: no other coding is undone here",
        ));
    }
    let other_host =
        names_another_host(&head).then(|| Fault::new("host", "must be what :authority names"));
    if let Some(fault) = other_host.or_else(|| ambiguous(&head.headers, head.version)) {
        return Err(Refusal::faults(vec![fault]));
    }
    let limits = &app.config.http;
    let bytes: usize = head
        .headers
        .iter()
        .map(|(name, value)| name.as_str().len() + value.len() + FIELD_COST_BYTES)
        .sum();
    if head.headers.len() > limits.headers_max || bytes > limits.head_bytes_max {
        let message = format!(
            "At most {} header fields of {} bytes together.",
            limits.headers_max, limits.head_bytes_max
        );
        return Err(Refusal::new(Code::HeadersTooLarge, message));
    }
    let raw_path = head.uri.path().to_owned();
    let path = Path::parse(&raw_path).map_err(|fault| match fault {
        charter_kernel::route::PathFault::Empty => Refusal::not_found(),
        fault => Refusal::invalid("path", fault.to_string()),
    })?;
    let query = parse_query(head.uri.query().unwrap_or_default())
        .map_err(|fault| Refusal::faults(vec![fault]))?;
    let method = if head.method == Method::HEAD { Method::GET } else { head.method };
    Ok(Accepted {
        peer,
        method,
        raw_path,
        path,
        query,
        headers: head.headers,
        body: Body::Unread(body),
    })
}

/// Whether a request of HTTP/2 names one host beside the headers, and another in them (RFC 9113, section
/// 8.3.1).
fn names_another_host(head: &Parts) -> bool {
    let named = head.uri.authority().filter(|_| head.version == Version::HTTP_2);
    named.is_some_and(|named| {
        let is_same =
            |host: &HeaderValue| host.as_bytes().eq_ignore_ascii_case(named.as_str().as_bytes());
        !head.headers.get_all(header::HOST).iter().all(is_same)
    })
}

/// Finds a header that says two things where one counts: of two values somebody in front of us may
/// have looked at the other.
fn ambiguous(headers: &HeaderMap, version: Version) -> Option<Fault> {
    for name in SINGLE {
        if headers.get_all(&name).iter().nth(1).is_some() {
            return Some(Fault::new(name.as_str(), "must be given once"));
        }
    }
    let host = headers.get(header::HOST).map(|host| Authority::try_from(host.as_bytes()));
    match host {
        None if version >= Version::HTTP_11 => Some(Fault::new("host", "is required")),
        Some(Err(_)) => Some(Fault::new("host", "must be a host name, with or without a port")),
        _ => None,
    }
}

/// Whether the body ends where everybody in front of us says that it does. The HTTP library looks
/// at the last coding only: a proxy that undoes one more, or knows one less, would find the next
/// request elsewhere.
fn is_framed_once(headers: &HeaderMap) -> bool {
    let mut codings = headers.get_all(header::TRANSFER_ENCODING).iter();
    let first = codings.next();
    codings.next().is_none()
        && first.is_none_or(|coding| coding.as_bytes().eq_ignore_ascii_case(b"chunked"))
}

/// Whether errors are wanted in the format of RFC 9457: it is asked for by name, and plain JSON not
/// rather (RFC 9110, section 12.5.1).
pub fn wants_problem(headers: &HeaderMap) -> bool {
    let lines = headers.get_all(header::ACCEPT).iter().filter_map(|line| line.to_str().ok());
    let (mut problem, mut json) = (0.0, 0.0);
    for range in lines.flat_map(|line| line.split(',')) {
        let mut parts = range.split(';').map(str::trim);
        let media = parts.next().unwrap_or_default();
        let quality = parts.find_map(|part| part.strip_prefix("q=").or(part.strip_prefix("Q=")));
        let quality: f32 = quality.map_or(Ok(1.0), str::parse).unwrap_or(0.0);
        if media.eq_ignore_ascii_case("application/problem+json") {
            problem = quality;
        } else if media.eq_ignore_ascii_case("application/json") {
            json = quality;
        }
    }
    problem > 0.0 && problem >= json
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_request_of_http2_names_one_host() {
        for (version, hosts, contradicts) in [
            (Version::HTTP_2, &[][..], false),
            (Version::HTTP_2, &["A.test:80"], false),
            (Version::HTTP_2, &["b.test"], true),
            (Version::HTTP_2, &["a.test:80", "b.test"], true),
            (Version::HTTP_11, &["b.test"], false),
        ] {
            let request = Request::builder().version(version).uri("http://a.test:80/v1");
            let request = hosts.iter().fold(request, |request, host| request.header("host", *host));
            let (head, ()) = request.body(()).unwrap().into_parts();
            assert_eq!(names_another_host(&head), contradicts, "{version:?} {hosts:?}");
        }
    }
}
