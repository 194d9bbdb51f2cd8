//! The body of a webhook's delivery, and its signature.
//!
//! Twice: `X-Service-Signature` is the hexadecimal HMAC-SHA256 of the body under the secret as it
//! is shown, and beside it stand the headers of Standard Webhooks
//! (<https://www.standardwebhooks.com>), keyed with the bytes that the secret encodes.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use charter_kernel::hex::hex;
use charter_kernel::time::Instant;
use charter_store::Store;
use charter_tenancy::records::webhook::Webhook;
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::{HeaderMap, HeaderName, HeaderValue, header};
use serde_json::{Value, json};
use sha2::Sha256;

pub mod deliveries;

/// The beginning of each secret.
const PREFIX: &str = "whsec_";
/// A webhook was switched off by the host.
pub const DISABLED: &str = "webhook.disabled";
/// The event of a test delivery.
pub const TEST: &str = "webhook.test";

/// A new secret: `whsec_` and 32 bytes in base64.
///
/// # Errors
/// When the operating system has no randomness.
pub fn secret() -> Result<String, getrandom::Error> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes)?;
    Ok(format!("{PREFIX}{}", STANDARD.encode(bytes)))
}

/// The body: `{event, primitive, data: {…, tenant_user_id}, ts}`. `primitive` is null where the host
/// tells of it.
pub fn body(
    event: &str,
    primitive: Option<&str>,
    payload: Value,
    user: Option<&str>,
    at: Instant,
) -> String {
    let mut data = match payload {
        Value::Object(members) => members,
        Value::Null => serde_json::Map::new(),
        other => serde_json::Map::from_iter([("value".to_owned(), other)]),
    };
    data.insert("tenant_user_id".to_owned(), json!(user));
    json!({ "event": event, "primitive": primitive, "data": data, "ts": at.0 }).to_string()
}

fn mac(key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
    // HMAC takes keys of any length.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key) else { return Vec::new() };
    parts.iter().for_each(|part| mac.update(part));
    mac.finalize().into_bytes().to_vec()
}

/// The headers of one try. `secrets` are those that count now, the newest first.
pub fn headers(event: &str, id: &str, now: Instant, body: &str, secrets: &[String]) -> HeaderMap {
    let seconds = now.0.div_euclid(1_000).to_string();
    let standard = secrets.iter().map(|secret| {
        let key = STANDARD.decode(secret.trim_start_matches(PREFIX)).unwrap_or_default();
        let signed = mac(&key, &[id.as_bytes(), b".", seconds.as_bytes(), b".", body.as_bytes()]);
        format!("v1,{}", STANDARD.encode(signed))
    });
    let standard = standard.collect::<Vec<_>>().join(" ");
    let own = |secret: &String| hex(&mac(secret.as_bytes(), &[body.as_bytes()]));
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(
        header::USER_AGENT,
        HeaderValue::from_static(concat!("charter/", env!("CARGO_PKG_VERSION"))),
    );
    let mut set = |name: &'static str, value: &str| {
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.insert(HeaderName::from_static(name), value);
        }
    };
    set("x-service-event", event);
    set("webhook-id", id);
    set("webhook-timestamp", &seconds);
    set("webhook-signature", &standard);
    if let Some((newest, former)) = secrets.split_first() {
        set("x-service-signature", &own(newest));
        let former = former.iter().map(own).collect::<Vec<_>>().join(" ");
        if !former.is_empty() {
            set("x-service-signature-previous", &former);
        }
    }
    headers
}

/// The secrets of a webhook that count now, the newest first; `None` where they cannot be opened.
pub async fn secrets(store: &Store, webhook: &Webhook, now: Instant) -> Option<Vec<String>> {
    let previous =
        webhook.previous.iter().filter(|(_, until)| *until > now).map(|(sealed, _)| sealed);
    let mut opened = Vec::new();
    for sealed in std::iter::once(&webhook.secret).chain(previous) {
        let sealed = STANDARD.decode(sealed).ok()?;
        let bytes = store.unseal(webhook.organization.as_str(), &webhook.id, &sealed).await.ok()?;
        opened.push(String::from_utf8(bytes).ok()?);
    }
    Some(opened)
}

/// A secret as it is kept.
///
/// # Errors
/// When it cannot be sealed.
pub async fn seal(
    store: &Store,
    organization: &str,
    id: &str,
    secret: &str,
) -> Result<String, charter_kernel::refusal::Refusal> {
    let sealed = store.seal(organization, id, secret.as_bytes()).await.map_err(|error| {
        tracing::error!(
            error = &error as &dyn std::error::Error,
            "a webhook's secret cannot be sealed"
        );
        charter_kernel::refusal::Refusal::internal()
    })?;
    Ok(STANDARD.encode(sealed))
}
