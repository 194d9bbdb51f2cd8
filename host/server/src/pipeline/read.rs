//! The body of a request over HTTP: read once, within the route's bounds, and of the declared type.

use std::time::Duration;

use bytes::Bytes;
use charter_kernel::refusal::{Code, Refusal};
use charter_registry::served::{Auth, BodyRule};
use charter_tenancy::identity::Identity;
use http::{HeaderMap, header};
use http_body::Body as _;

use super::accept::{Accepted, Body};
use super::matched::Matched;
use super::trail::Trail;
use crate::app::App;
use crate::bounds::bodies::Sender;
use crate::bounds::memory::Full;
use crate::bounds::strangers;
use crate::html::FORM;
use crate::http::body::{self as wire, Unread};

/// Bytes of a body that comes from nobody in particular, or that nobody asked for.
const SMALL_BODY_BYTES_MAX: usize = 64 << 10;

/// How long a body may take for its request to be run as it was admitted.
const PROMPT: Duration = Duration::from_millis(50);

/// When a body that found no room in its sender's share may come again.
const RETRY_SECONDS: u32 = 1;

/// A body that was read.
pub struct ReadBody {
    /// Its bytes.
    pub bytes: Bytes,
    /// Whether it took its time: what the request was admitted under may have changed since.
    pub late: bool,
}

/// Reads the body within the route's bounds, once; a second run of the request finds it read.
///
/// # Errors
/// 408, 413 or 415, and where there is no room for it.
pub async fn read(
    app: &App,
    trail: &mut Trail,
    matched: &Matched,
    accepted: &mut Accepted,
) -> Result<ReadBody, Refusal> {
    let began = tokio::time::Instant::now();
    let limits = &app.config.http;
    let (size_max, media) = match &matched.operation().contract().body {
        BodyRule::None => (limits.body_bytes_max, None),
        BodyRule::Json(_) => (limits.body_bytes_max, Some("application/json".to_owned())),
        BodyRule::Raw { media_type, size_max } => {
            (size_max.unwrap_or(limits.body_bytes_max), Some(media_type.clone()))
        }
    };
    // Nobody has shown who they are, or nothing is to be read: either way little has to be held for
    // it.
    let contract = matched.operation().contract();
    let small = match contract.body {
        BodyRule::None => true,
        BodyRule::Json(_) => contract.auth == Auth::Open,
        // Declared with a limit of its own.
        BodyRule::Raw { .. } => false,
    };
    let size_max = if small { size_max.min(SMALL_BODY_BYTES_MAX) } else { size_max };
    let bytes = match &mut accepted.body {
        Body::Read(bytes) => bytes.clone(),
        Body::Unread(incoming) => {
            let time_max = Duration::from_millis(limits.body_timeout_ms);
            // The operator uploads components, which are larger than any body of a tenant's.
            let caller = matched.caller();
            let counts = !matches!(caller.identity(), Identity::Operator { .. });
            let client = strangers::client(accepted.peer.address);
            // A caller of an inbound URL may send much more than a caller that signs in.
            let large = size_max > SMALL_BODY_BYTES_MAX;
            let group = if large { "inbound" } else { "anonymous" };
            let sender = match caller.place() {
                Some(_) => Sender::Credential {
                    organization: caller.organization(),
                    identity: caller.identity(),
                },
                None => Sender::Client { group, client: &client },
            };
            let counts = counts && !incoming.is_end_stream();
            trail.hold = counts.then(|| app.bounds.room.hold(sender));
            let reading = wire::read(incoming, size_max, time_max, trail.hold.as_ref());
            let read = app.cut.run_until_cancelled(reading).await.ok_or_else(Refusal::stopping)?;
            let bytes = match read {
                Ok(bytes) => bytes,
                Err(unread) => {
                    // The bytes that were read make room for others meanwhile.
                    trail.hold = None;
                    let pause = tokio::time::sleep(pause_after(unread));
                    app.cut.run_until_cancelled(pause).await.ok_or_else(Refusal::stopping)?;
                    return Err(word_unread(unread, size_max));
                }
            };
            accepted.body = Body::Read(bytes.clone());
            bytes
        }
    };
    if let Some(media) = media.filter(|_| !bytes.is_empty()) {
        coding(&accepted.headers)?;
        media_type(&accepted.headers, &media)?;
    }
    Ok(ReadBody { bytes, late: began.elapsed() > PROMPT })
}

/// How long a client waits for the refusal of a body. One that sends more at once than its share has room
/// for waits as long as the refusal tells it to: or it would send the next one at once, and megabytes of
/// bodies that nobody reads would take the machine from others.
fn pause_after(unread: Unread) -> Duration {
    match unread {
        Unread::NoRoom(Full::Owner) => Duration::from_secs(RETRY_SECONDS.into()),
        _ => Duration::ZERO,
    }
}

fn word_unread(unread: Unread, size_max: usize) -> Refusal {
    match unread {
        Unread::TooLarge => Refusal::new(
            Code::PayloadTooLarge,
            format!("The body must be at most {size_max} bytes."),
        ),
        Unread::TooSlow => {
            Refusal::new(Code::RequestTimeout, "The body did not arrive in time; nothing was done.")
        }
        Unread::GaveWay => gave_way(),
        Unread::NoRoom(Full::Process) => Refusal::overloaded(1),
        Unread::NoRoom(Full::Owner) => {
            Refusal::rate_limited(RETRY_SECONDS).hint("Send fewer large bodies at once.")
        }
        Unread::Broken => Refusal::invalid("body", "The body broke off."),
    }
}

/// The refusal of a body that was slow and has given way to others.
pub fn gave_way() -> Refusal {
    Refusal::overloaded(1).hint("The body took long while others found no room. Send it again.")
}

/// Refuses a body that is compressed: it is taken as it is sent (RFC 9110, section 15.5.16).
fn coding(headers: &HeaderMap) -> Result<(), Refusal> {
    let sent = headers.get_all(header::CONTENT_ENCODING);
    match sent.iter().all(|coding| coding.as_bytes().eq_ignore_ascii_case(b"identity")) {
        true => Ok(()),
        false => Err(Refusal::new(Code::UnsupportedMediaType, "The body must not be compressed.")
            .param("Content-Encoding")),
    }
}

/// Whether the body is of the declared type; `image/*` and `*/*` are ranges. A missing type is
/// taken for JSON where JSON is declared, and refused elsewhere.
fn media_type(headers: &HeaderMap, declared: &str) -> Result<(), Refusal> {
    let sent = match headers.get(header::CONTENT_TYPE) {
        None if declared == "application/json" => return Ok(()),
        None => "",
        Some(value) => {
            value.to_str().unwrap_or_default().split(';').next().unwrap_or_default().trim()
        }
    };
    let fits = match declared.strip_suffix("/*") {
        Some("*") => true,
        Some(kind) => sent.split_once('/').is_some_and(|(main, _)| main.eq_ignore_ascii_case(kind)),
        None => {
            sent.eq_ignore_ascii_case(declared)
                || declared == "application/json" && json_suffix(sent)
        }
    };
    if !fits {
        let told = format!("The body must be {declared}.");
        return Err(Refusal::new(Code::UnsupportedMediaType, told).param("Content-Type"));
    }
    // Bodies that are read as text here are read as UTF-8 (RFC 8259, section 8.1).
    let text = ["application/json", FORM].contains(&declared);
    match charset(headers).filter(|_| text) {
        Some(name) if !["utf-8", "utf8"].contains(&name.to_ascii_lowercase().as_str()) => {
            let told = format!("The body must be {declared} in UTF-8.");
            Err(Refusal::new(Code::UnsupportedMediaType, told).param("Content-Type"))
        }
        _ => Ok(()),
    }
}

/// The coding of characters that the media type names.
fn charset(headers: &HeaderMap) -> Option<&str> {
    let sent = headers.get(header::CONTENT_TYPE)?.to_str().unwrap_or_default();
    let parameters = sent.split(';').skip(1).filter_map(|parameter| parameter.split_once('='));
    let mut named = parameters.filter(|(name, _)| name.trim().eq_ignore_ascii_case("charset"));
    named.next().map(|(_, value)| value.trim().trim_matches('"'))
}

/// `application/merge-patch+json` and the like are JSON as well (RFC 6839).
fn json_suffix(sent: &str) -> bool {
    sent.len() > 5 && sent.as_bytes()[sent.len() - 5..].eq_ignore_ascii_case(b"+json")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(media: &str) -> HeaderMap {
        [(header::CONTENT_TYPE, media.parse().unwrap())].into_iter().collect()
    }

    #[test]
    fn who_has_no_room_of_its_own_left_waits_for_the_refusal_as_long_as_that_says() {
        for (unread, waits) in [
            (Unread::NoRoom(Full::Owner), true),
            (Unread::NoRoom(Full::Process), false),
            (Unread::TooLarge, false),
            (Unread::GaveWay, false),
        ] {
            let told = word_unread(unread, 1).retry_after_seconds.unwrap_or_default();
            let wait = if waits { Duration::from_secs(told.into()) } else { Duration::ZERO };
            assert_eq!((pause_after(unread), wait.is_zero()), (wait, !waits), "{unread:?}");
        }
    }

    #[test]
    fn a_compressed_body_is_refused() {
        for (coded, fits) in [("identity", true), ("IDENTITY", true), ("gzip", false), ("", false)]
        {
            let headers =
                [(header::CONTENT_ENCODING, coded.parse().unwrap())].into_iter().collect();
            assert_eq!(coding(&headers).is_ok(), fits, "{coded}");
        }
        assert!(coding(&HeaderMap::new()).is_ok());
    }

    #[test]
    fn the_media_type_must_be_the_declared_one() {
        for (media, declared) in [
            ("application/json", "application/json"),
            ("Application/JSON; charset=utf-8", "application/json"),
            ("application/merge-patch+json", "application/json"),
            ("image/png", "image/*"),
            ("text/plain", "*/*"),
            ("text/plain; charset=utf-16", "*/*"),
            ("application/json;CHARSET=\"UTF-8\"", "application/json"),
            ("application/json; profile=x; charset=utf8", "application/json"),
        ] {
            assert!(media_type(&sent(media), declared).is_ok(), "{media} {declared}");
        }
        for (media, declared) in [
            ("text/plain", "application/json"),
            ("audio/mpeg", "image/*"),
            ("json", "application/json"),
            ("application/json; charset=utf-16", "application/json"),
            ("application/json; q=1;charset=\"iso-8859-1\"", "application/json"),
            ("application/x-www-form-urlencoded; charset=utf-16", FORM),
        ] {
            assert_eq!(
                media_type(&sent(media), declared).unwrap_err().code,
                Code::UnsupportedMediaType,
                "{media} {declared}"
            );
        }
        assert!(media_type(&HeaderMap::new(), "application/json").is_ok());
        assert!(media_type(&HeaderMap::new(), "application/wasm").is_err());
    }
}
