//! The signatures that any sender can make: Standard Webhooks, and a plain HMAC of the body.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use charter_kernel::hex::unhex;
use charter_kernel::time::Instant;
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::HeaderMap;
use sha2::Sha256;
use subtle::ConstantTimeEq as _;

use super::is_fresh;

/// The beginning of each secret.
const PREFIX: &str = "whsec_";
/// Bytes of an event's id.
const ID_BYTES_MAX: usize = 200;
/// Signatures of one call that are looked at.
const SIGNATURES_MAX: usize = 10;

/// A call that is signed, and what its event is called.
#[derive(Debug, PartialEq, Eq)]
pub struct Signed {
    /// The event's id, where the sender gives one.
    pub event: Option<String>,
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// Whether one of these is the HMAC-SHA256 of the parts, one after another. It is computed once,
/// however many are presented, and each comparison takes the same time.
pub fn is_mac(key: &[u8], parts: &[&[u8]], presented: impl IntoIterator<Item = Vec<u8>>) -> bool {
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key) else { return false };
    parts.iter().for_each(|part| mac.update(part));
    let mac = mac.finalize().into_bytes();
    presented.into_iter().any(|one| mac.as_slice().ct_eq(&one).into())
}

/// The headers of Standard Webhooks (<https://www.standardwebhooks.com>): `webhook-id`,
/// `webhook-timestamp` and `webhook-signature`.
pub fn standard(headers: &HeaderMap, body: &[u8], secret: &str, now: Instant) -> Option<Signed> {
    let id = text(headers, "webhook-id").filter(|id| !id.is_empty() && id.len() <= ID_BYTES_MAX)?;
    let timestamp = text(headers, "webhook-timestamp")?;
    if !is_fresh(timestamp.parse().ok()?, now) {
        return None;
    }
    let key = STANDARD.decode(secret.trim_start_matches(PREFIX)).ok()?;
    let parts = [id.as_bytes(), b".", timestamp.as_bytes(), b".", body];
    let presented =
        text(headers, "webhook-signature")?.split(' ').filter_map(|one| one.strip_prefix("v1,"));
    let decoded = presented.take(SIGNATURES_MAX).filter_map(|one| STANDARD.decode(one).ok());
    is_mac(&key, &parts, decoded).then(|| Signed { event: Some(id.to_owned()) })
}

/// `X-Service-Signature`: hexadecimal HMAC-SHA256 of the body, keyed with the secret as it is
/// shown.
pub fn plain(headers: &HeaderMap, body: &[u8], secret: &str) -> Option<Signed> {
    let presented = unhex(text(headers, "x-service-signature")?)?;
    is_mac(secret.as_bytes(), &[body], [presented]).then_some(Signed { event: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

    fn headers(all: &[(&'static str, &str)]) -> HeaderMap {
        all.iter()
            .map(|(name, value)| (http::HeaderName::from_static(name), value.parse().unwrap()))
            .collect()
    }

    /// The example of the standard's own documents.
    #[test]
    fn the_standards_own_example_is_signed() {
        let body = br#"{"test": 2432232314}"#;
        let sent = |signature: &str, at: &str| {
            headers(&[
                ("webhook-id", "msg_p5jXN8AQM9LWM0D4loKWxJek"),
                ("webhook-timestamp", at),
                ("webhook-signature", signature),
            ])
        };
        let good = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
        let now = Instant(1_614_265_330_000);
        let check = |headers: HeaderMap, now| standard(&headers, body, SECRET, now);
        assert_eq!(
            check(sent(good, "1614265330"), now).unwrap().event.as_deref(),
            Some("msg_p5jXN8AQM9LWM0D4loKWxJek")
        );
        assert!(
            check(sent(&format!("v1,AAAA v2,x {good}"), "1614265330"), now).is_some(),
            "one of several counts"
        );
        assert!(check(sent(good, "1614265330"), now.plus_ms(300_001)).is_none(), "stale");
        assert!(check(sent(good, "1614265331"), now).is_none(), "another time than was signed");
        assert!(check(sent("v1,AAAA", "1614265330"), now).is_none());
        let behind = |others: usize| format!("{}{good}", "v1,AAAA ".repeat(others));
        assert!(check(sent(&behind(9), "1614265330"), now).is_some());
        assert!(check(sent(&behind(10), "1614265330"), now).is_none(), "ten are looked at");
        assert!(check(HeaderMap::new(), now).is_none());
        assert!(standard(&sent(good, "1614265330"), b"{}", SECRET, now).is_none());
    }

    #[test]
    fn a_plain_signature_is_of_the_body_under_the_secret() {
        // RFC 4231, test case 2.
        let signature = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
        let sent = headers(&[("x-service-signature", signature)]);
        assert!(plain(&sent, b"what do ya want for nothing?", "Jefe").is_some());
        assert!(plain(&sent, b"what do ya want for nothing", "Jefe").is_none());
        assert!(plain(&headers(&[("x-service-signature", "zz")]), b"", "Jefe").is_none());
    }
}
