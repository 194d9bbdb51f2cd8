//! Whether the request is well formed: path, query, media type, size, body. All faults are named at
//! once.
//!
//! Schemas were compiled when the route was loaded. A JSON body goes on as the text that was sent;
//! nothing is written again.

use std::time::Duration;

use bytes::Bytes;
use charter_kernel::fault::Fault;
use charter_kernel::refusal::{Code, Refusal};
use charter_kernel::schema::{coerce_query, parse_json};
use http::{HeaderMap, header};
use serde_json::{Map, Value};

use super::accept::Body;
use super::admit::Admitted;
use super::claim;
use super::page::{self, Page, Seal};
use super::trail::Trail;
use crate::app::App;
use crate::http::body::{self as wire, Unread};
use crate::http::room::{Full, Owner};
use crate::request::Identity;
use crate::routes::pages::FORM;
use crate::served::{Auth, BodyRule, Contract};
use crate::strangers;

/// Bytes of a body that comes from nobody in particular, or that nobody asked for.
const SMALL_BODY_BYTES_MAX: usize = 64 << 10;

/// Bytes of a body that is parsed at once, on the thread that serves others.
const QUICK_BODY_BYTES_MAX: usize = 256 << 10;

/// How long a body may take for its request to be run as it was admitted.
const PROMPT: Duration = Duration::from_millis(50);

/// A request that is well formed.
pub struct Validated {
    /// The stage before.
    pub admitted: Admitted,
    /// The query, coerced; without the words of paging.
    pub query: Map<String, Value>,
    /// The page that is asked for.
    pub page: Page,
    /// The body as it was sent.
    pub bytes: Bytes,
    /// The body, parsed; `Null` where no JSON is declared.
    pub body: Value,
    /// Whether the body took its time: what the request was admitted under may have changed since.
    pub late: bool,
}

/// Reads and checks everything.
pub async fn validate(
    app: &App,
    trail: &mut Trail,
    mut admitted: Admitted,
) -> Result<Validated, Refusal> {
    let began = tokio::time::Instant::now();
    let bytes = read(app, trail, &mut admitted).await?;
    let late = began.elapsed() > PROMPT;
    let matched = &admitted.matched;
    let contract = matched.operation.contract();
    let accepted = &matched.gated.scoped.identified.located.accepted;
    let mut faults = Vec::new();
    path(contract, &matched.parameters, &mut faults);
    let seal = || Seal::new(app.cursor_key, &tenant(trail), &contract.id, &accepted.query);
    let page = Page::read(contract.paging, &accepted.query, seal).unwrap_or_else(|found| {
        faults.extend(found);
        Page::default()
    });
    let query = query(contract, &accepted.query, &mut faults);
    let body = body(app, trail, contract, &bytes, &mut faults).await?;
    faults.extend(claim::client_key(trail, &accepted.headers).err());
    if faults.is_empty() {
        Ok(Validated { admitted, query, page, bytes, body, late })
    } else {
        Err(Refusal::faults(faults))
    }
}

/// A body that is not there counts as an empty object. One that takes long to read or to check is
/// read and checked off the threads that serve others.
pub(super) async fn body(
    app: &App,
    trail: &Trail,
    contract: &Contract,
    bytes: &Bytes,
    faults: &mut Vec<Fault>,
) -> Result<Value, Refusal> {
    let BodyRule::Json(schema) = &contract.body else { return Ok(Value::Null) };
    let owner = trail.place.as_ref().map_or("", |place| place.organization.id.as_str());
    let parsed = if bytes.len() > QUICK_BODY_BYTES_MAX {
        let bytes = bytes.clone();
        app.checks.run(owner, move || parse_json(&bytes)).await?
    } else {
        parse_json(if bytes.is_empty() { b"{}" } else { bytes })
    };
    let value = match parsed {
        Ok(value) => value,
        Err(fault) => {
            faults.push(fault);
            return Ok(Value::Null);
        }
    };
    let (value, checked) = match schema.validate_quickly(&value) {
        Some(checked) => (value, checked),
        None => {
            let schema = schema.clone();
            let check = move || {
                let checked = schema.validate(&value);
                (value, checked)
            };
            app.checks.run(owner, check).await?
        }
    };
    faults.extend(checked.err().into_iter().flatten());
    Ok(value)
}

/// Whose lists the cursors are of.
pub(super) fn tenant(trail: &Trail) -> String {
    match &trail.place {
        Some(place) => {
            let user = place.user.as_ref().map_or("", |user| user.id.as_str());
            format!("{}/{}/{user}", place.organization.id, place.project.id)
        }
        None => String::new(),
    }
}

pub(super) fn path(contract: &Contract, parameters: &[(String, String)], faults: &mut Vec<Fault>) {
    let Some(schema) = &contract.path_schema else { return };
    if let Err(found) = coerce_query(Some(schema), parameters, &[]) {
        faults.extend(found);
    }
}

pub(super) fn query(
    contract: &Contract,
    pairs: &[(String, String)],
    faults: &mut Vec<Fault>,
) -> Map<String, Value> {
    let words = page::words(contract.paging);
    let rest: Vec<(String, String)> =
        pairs.iter().filter(|(name, _)| !words.contains(&name.as_str())).cloned().collect();
    // Whoever probes an open route (a load balancer, a browser) may say more than it knows.
    if contract.query.is_none() && (rest.is_empty() || contract.auth == Auth::Open) {
        return Map::new();
    }
    match coerce_query(contract.query.as_ref(), &rest, words) {
        Ok(Value::Object(mut members)) => {
            // Defaults of words that the schema repeats are the page's business.
            words.iter().for_each(|word| drop(members.remove(*word)));
            members
        }
        Ok(_) => Map::new(),
        Err(found) => {
            faults.extend(found.into_iter().filter(|fault| !words.contains(&fault.path.as_str())));
            Map::new()
        }
    }
}

/// Reads the body within the route's bounds, once; a second run of the request finds it read.
async fn read(app: &App, trail: &mut Trail, admitted: &mut Admitted) -> Result<Bytes, Refusal> {
    let limits = &app.config.http;
    let (size_max, media) = match &admitted.matched.operation.contract().body {
        BodyRule::None => (limits.body_bytes_max, None),
        BodyRule::Json(_) => (limits.body_bytes_max, Some("application/json".to_owned())),
        BodyRule::Raw { media_type, size_max } => {
            (size_max.unwrap_or(limits.body_bytes_max), Some(media_type.clone()))
        }
    };
    // Nobody has shown who they are, or nothing is to be read: either way little has to be held for
    // it.
    let contract = admitted.matched.operation.contract();
    let small = match contract.body {
        BodyRule::None => true,
        BodyRule::Json(_) => contract.auth == Auth::Open,
        // Declared with a limit of its own.
        BodyRule::Raw { .. } => false,
    };
    let size_max = if small { size_max.min(SMALL_BODY_BYTES_MAX) } else { size_max };
    let accepted = &mut admitted.matched.gated.scoped.identified.located.accepted;
    let bytes = match &mut accepted.body {
        Body::Read(bytes) => bytes.clone(),
        Body::Unread(incoming) => {
            let time_max = Duration::from_millis(limits.body_timeout_ms);
            // Whoever runs the deployment uploads components, which are larger than any body of a
            // tenant's.
            let counts = !matches!(trail.identity, Identity::Operator);
            let client = strangers::client(accepted.peer.address);
            // Who calls an inbound URL may say much more than who signs in.
            let large = size_max > SMALL_BODY_BYTES_MAX;
            let group = if large { "inbound" } else { "anonymous" };
            let owner = match &trail.place {
                Some(place) => Owner::Organization(place.organization.id.as_str()),
                None => Owner::Client { group, client: &client },
            };
            trail.hold = counts.then(|| app.room.hold(owner));
            let read = wire::read(incoming, size_max, time_max, trail.hold.as_mut()).await;
            let bytes = read.map_err(|unread| refused(unread, size_max))?;
            accepted.body = Body::Read(bytes.clone());
            bytes
        }
    };
    if let Some(media) = media.filter(|_| !bytes.is_empty()) {
        media_type(&accepted.headers, &media)?;
    }
    Ok(bytes)
}

fn refused(unread: Unread, size_max: usize) -> Refusal {
    match unread {
        Unread::TooLarge => Refusal::new(
            Code::PayloadTooLarge,
            format!("The body must be at most {size_max} bytes."),
        ),
        Unread::TooSlow => {
            Refusal::new(Code::RequestTimeout, "The body did not arrive in time; nothing was done.")
        }
        Unread::NoRoom(Full::Process) => Refusal::overloaded(1),
        Unread::NoRoom(Full::Owner) => {
            Refusal::rate_limited(1).hint("Send fewer large bodies at once.")
        }
        Unread::Broken => Refusal::invalid("body", "The body broke off."),
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
    // What is read as text here is read as UTF-8 (RFC 8259, section 8.1).
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
