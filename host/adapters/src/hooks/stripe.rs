//! Providers of the kind `stripe`: how one signs its events, and where in an event the id of a hook
//! stands.
//!
//! All that the host knows of Stripe's shapes stands here. It does not know what an event means:
//! that is the primitive's, which had put the hook's id into the object that the event is about.

use charter_engine::hook::REFERENCE_BYTES_MAX;
use charter_kernel::hex::unhex;
use charter_kernel::time::Instant;
use http::{HeaderMap, HeaderName};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::{is_fresh, signature};

/// The kind of such bindings.
pub const KIND: &str = "stripe";

/// The type of the one event that is answered by more than that it came.
const AUTHORIZATION_REQUEST: &str = "issuing_authorization.request";
/// The header that says in which version of the API something is said.
const VERSION: HeaderName = HeaderName::from_static("stripe-version");
/// Parts of a signature's header that are looked at.
const PARTS_MAX: usize = 20;
/// Hooks that an event may name: its object's, and that of what it is of. Each is looked up before
/// anybody knows who sent it.
const HOOKS_MAX: usize = 2;
/// Bytes of an event's id.
const ID_BYTES_MAX: usize = 200;

/// The parts of `Stripe-Signature` (`t=<seconds>,v1=<hex>[,v1=<hex>…]`), where it was not made long
/// ago.
#[derive(Debug)]
pub struct Presented {
    at: String,
    signatures: Vec<Vec<u8>>,
}

impl Presented {
    /// Reads it; `None` where nothing is signed that counts.
    pub fn read(headers: &HeaderMap, now: Instant) -> Option<Self> {
        let header = headers.get("stripe-signature")?.to_str().ok()?;
        let parts: Vec<(&str, &str)> = header
            .split(',')
            .take(PARTS_MAX)
            .filter_map(|part| part.trim().split_once('='))
            .collect();
        let (_, at) = parts.iter().find(|(name, _)| *name == "t")?;
        if !is_fresh(at.parse().ok()?, now) {
            return None;
        }
        let signatures = parts.iter().filter(|(name, _)| *name == "v1");
        let signatures: Vec<_> = signatures.filter_map(|(_, signature)| unhex(signature)).collect();
        (!signatures.is_empty()).then(|| Self { at: (*at).to_owned(), signatures })
    }

    /// Whether one of its signatures is of the body under this secret.
    pub fn signs(&self, body: &[u8], secret: &str) -> bool {
        let signed = [self.at.as_bytes(), b".", body];
        signature::is_mac(secret.as_bytes(), &signed, self.signatures.iter().cloned())
    }
}

/// An event, as far as the host looks at it.
#[derive(Debug, PartialEq, Eq)]
pub struct Event {
    /// Its id, the same whenever it is sent again.
    pub id: String,
    /// Hooks that it may be for, the likeliest first.
    pub hooks: Vec<String>,
    /// Stripe's own name of the object that it is about, where it names no hook.
    pub reference: Option<String>,
    /// Its sender waits for what it is answered.
    pub question: Option<Question>,
}

/// A payment with an issued card that waits for a yes, about two seconds long.
#[derive(Debug, PartialEq, Eq)]
pub struct Question {
    /// The version of the API that it was asked in.
    version: String,
}

impl Question {
    /// The body that Stripe is answered; no answer is a no.
    pub fn reply(&self, answer: Option<Value>) -> Value {
        answer.unwrap_or_else(|| json!({ "approved": false }))
    }

    /// The header of that answer: the version of the API that the question was asked in.
    pub fn header(&self) -> (HeaderName, &str) {
        (VERSION, &self.version)
    }
}

/// An event as it is sent. Members stay as they are written until they are looked at: nobody may
/// have signed the body yet, and to read all of it costs many times as much.
#[derive(Deserialize)]
struct Sent<'a> {
    #[serde(borrow)]
    id: &'a RawValue,
    #[serde(borrow)]
    r#type: Option<&'a RawValue>,
    #[serde(borrow)]
    api_version: Option<&'a RawValue>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Data<'a> {
    #[serde(borrow)]
    object: Option<&'a RawValue>,
}

/// The object of an event, or one that it is of, as far as it names a hook.
#[derive(Default, Deserialize)]
struct Object<'a> {
    #[serde(borrow)]
    metadata: Option<&'a RawValue>,
    #[serde(borrow)]
    card: Option<&'a RawValue>,
    #[serde(borrow)]
    client_reference_id: Option<&'a RawValue>,
    #[serde(borrow)]
    subscription_details: Option<&'a RawValue>,
    #[serde(borrow)]
    parent: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Metadata<'a> {
    #[serde(borrow)]
    charter_hook: Option<&'a RawValue>,
}

/// A member, where it is of this type.
fn read<'a, T: Deserialize<'a>>(member: Option<&'a RawValue>) -> Option<T> {
    serde_json::from_str(member?.get()).ok()
}

/// The event of a body; `None` where it is none.
pub fn event(body: &[u8]) -> Option<Event> {
    let event: Sent<'_> = serde_json::from_slice(body).ok()?;
    let id: String = read(Some(event.id))?;
    if id.is_empty() || id.len() > ID_BYTES_MAX {
        return None;
    }
    let object = read::<Data<'_>>(event.data).and_then(|data| read::<Object<'_>>(data.object));
    let object = object.unwrap_or_default();
    let hook = |of: &Object<'_>| read(read::<Metadata<'_>>(of.metadata)?.charter_hook);
    let hook_of = |member: Option<_>| hook(&read::<Object<'_>>(member)?);
    // An object's own metadata; that of the card that an authorization is of; a Checkout Session's
    // reference; the subscription's, as its invoices bear it, in the places of older and newer
    // versions of the API.
    let parent = read::<Object<'_>>(object.parent).unwrap_or_default();
    let places: [Option<String>; 5] = [
        hook(&object),
        hook_of(object.card),
        read(object.client_reference_id),
        hook_of(object.subscription_details),
        hook_of(parent.subscription_details),
    ];
    let mut hooks: Vec<String> = Vec::new();
    for hook in places.into_iter().flatten() {
        if hooks.len() < HOOKS_MAX && !hooks.contains(&hook) {
            hooks.push(hook);
        }
    }
    // An object that was captured or refunded names the card that it is of, and nothing of the
    // card's.
    let reference = read(object.card).filter(|id: &String| id.len() <= REFERENCE_BYTES_MAX);
    let asks = read::<String>(event.r#type).is_some_and(|kind| kind == AUTHORIZATION_REQUEST);
    let question = asks.then(|| Question { version: read(event.api_version).unwrap_or_default() });
    Some(Event { id, hooks, reference, question })
}

#[cfg(test)]
mod tests {
    use super::*;

    // printf '1492774577.{"id":"evt_1"}' | openssl dgst -sha256 -hmac whsec_test_secret
    const BODY: &[u8] = br#"{"id":"evt_1"}"#;
    const AT: i64 = 1_492_774_577;

    fn signature() -> String {
        use hmac::{Hmac, KeyInit as _, Mac as _};
        let mut mac = Hmac::<sha2::Sha256>::new_from_slice(b"whsec_test_secret").unwrap();
        mac.update(b"1492774577.");
        mac.update(BODY);
        charter_kernel::hex::hex(&mac.finalize().into_bytes())
    }

    #[test]
    fn an_event_is_signed_by_one_of_the_secrets_and_not_long_ago() {
        let sent = |header: &str| {
            HeaderMap::from_iter([(
                http::HeaderName::from_static("stripe-signature"),
                header.parse().unwrap(),
            )])
        };
        let (good, now) =
            (format!("t={AT},v1={},v0=ff", signature()), Instant(AT * 1_000 + 299_000));
        let check = |header: &str, secrets: &[&str], now| {
            Presented::read(&sent(header), now)
                .is_some_and(|found| secrets.iter().any(|secret| found.signs(BODY, secret)))
        };
        assert!(check(&good, &["whsec_new", "whsec_test_secret"], now));
        assert!(check(
            &format!("t={AT}, v1=00ff, v1={}", signature()),
            &["whsec_test_secret"],
            now
        ));
        for (header, secret) in [
            (good.as_str(), "whsec_other"),
            (&format!("t={},v1={}", AT + 1, signature()), "whsec_test_secret"),
            (&format!("v1={}", signature()), "whsec_test_secret"),
            (&format!("t={AT},v0={}", signature()), "whsec_test_secret"),
            ("t=,v1=", "whsec_test_secret"),
        ] {
            assert!(!check(header, &[secret], now), "{header} {secret}");
        }
        assert!(!check(&good, &["whsec_test_secret"], Instant(AT * 1_000 + 301_000)), "too late");
        assert!(
            !check(&good, &["whsec_test_secret"], Instant(AT * 1_000 - 301_000)),
            "from the future"
        );
        assert!(!check(&good, &[], now));
        assert!(Presented::read(&HeaderMap::new(), now).is_none());
        // So many parts of the header are looked at: the moment, and nineteen signatures.
        let behind =
            |others: usize| format!("t={AT}{},v1={}", ",v1=00".repeat(others), signature());
        assert!(check(&behind(18), &["whsec_test_secret"], now));
        assert!(!check(&behind(19), &["whsec_test_secret"], now), "nobody reads on without end");
    }

    #[test]
    fn a_hook_is_named_by_the_object_or_by_what_it_is_of() {
        let hooks = |object: Value| {
            event(
                serde_json::json!({ "id": "evt_1", "data": { "object": object } })
                    .to_string()
                    .as_bytes(),
            )
        };
        let found = hooks(
            serde_json::json!({ "metadata": { "charter_hook": "a" }, "client_reference_id": "b" }),
        )
        .unwrap();
        assert_eq!(
            (found.id.as_str(), found.hooks),
            ("evt_1", vec!["a".to_owned(), "b".to_owned()])
        );
        let invoice = serde_json::json!({ "metadata": {}, "parent": { "subscription_details": { "metadata": { "charter_hook": "c" } } } });
        assert_eq!(hooks(invoice).unwrap().hooks, ["c"]);
        assert_eq!(hooks(serde_json::json!({})).unwrap().hooks, Vec::<String>::new());
        let odd = serde_json::json!({ "metadata": "of no members", "card": { "metadata": [] }, "client_reference_id": 7, "parent": "of no members", "subscription_details": { "metadata": { "charter_hook": "d" } } });
        let found = hooks(odd).unwrap();
        assert_eq!((found.hooks, found.reference), (vec!["d".to_owned()], None));
        let many = serde_json::json!({ "metadata": { "charter_hook": "e" }, "card": { "metadata": { "charter_hook": "f" } }, "client_reference_id": "g" });
        assert_eq!(hooks(many).unwrap().hooks, ["e", "f"], "a stranger has no more looked up");
        let of_a_card = serde_json::json!({ "card": "ic_1", "client_reference_id": null });
        let found = hooks(of_a_card).unwrap();
        assert_eq!((found.hooks, found.reference.as_deref()), (Vec::new(), Some("ic_1")));
        assert_eq!(event(br#"{"id":"evt_1","data":[]}"#).unwrap().hooks, Vec::<String>::new());
        assert_eq!(event(b"[]"), None);
        assert_eq!(event(b"{"), None);
    }
}
