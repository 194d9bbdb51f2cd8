//! How calls of inbound URLs are signed, and how providers word theirs: one file a kind.
//!
//! Knows no hook, no tenant and no primitive: bytes and secrets come in, and what they say goes
//! out.

use std::borrow::Cow;

use charter_engine::hook::Scheme;
use charter_kernel::route::Path;
use charter_kernel::time::Instant;
use charter_kernel::unit::beginning;

pub mod signature;
pub mod stripe;

/// How far a sender's clock may be from ours.
pub const TOLERANCE_MS: i64 = 300_000;

/// Whether a moment in seconds is within [`TOLERANCE_MS`] of now.
pub fn is_fresh(seconds: i64, now: Instant) -> bool {
    seconds
        .checked_mul(1_000)
        .and_then(|ms| now.0.checked_sub(ms))
        .is_some_and(|apart| apart.abs() <= TOLERANCE_MS)
}

/// The path at which providers call a hook, below the address that clients use.
pub fn path(id: &str, scheme: &Scheme) -> String {
    match scheme {
        Scheme::Binding(name) => provider_path(name),
        _ => format!("/v1/hooks/{id}"),
    }
}

/// The path at which a provider calls for all hooks of its binding.
pub fn provider_path(binding: &str) -> String {
    format!("/v1/hooks/providers/{binding}")
}

/// A path as logs show it: the id of a hook is all that a call of it needs where its scheme is
/// `none`, so only its beginning is shown.
pub fn redact_path(path: &str) -> Cow<'_, str> {
    let decoded = match path.contains('%') {
        true => Path::parse(path).map_or(Cow::Borrowed(path), |path| {
            Cow::Owned(format!("/{}", path.segments().join("/")))
        }),
        false => Cow::Borrowed(path),
    };
    match decoded.split_once("/hooks/") {
        Some((_, "providers")) => Cow::Borrowed(path),
        Some((_, id)) if id.starts_with("providers/") => Cow::Borrowed(path),
        Some((mount, id)) => Cow::Owned(format!("{mount}/hooks/{}", beginning(id))),
        // A misspelled path has it, too.
        None if decoded.split('/').any(is_id) => {
            let shown = |part| if is_id(part) { beginning(part) } else { String::from(part) };
            Cow::Owned(decoded.split('/').map(shown).collect::<Vec<_>>().join("/"))
        }
        None => Cow::Borrowed(path),
    }
}

/// Whether a segment of a path may be the id of an inbound URL.
fn is_id(part: &str) -> bool {
    part.len() >= 32 && part.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_log_line_shows_what_a_call_needs() {
        let id = "0123456789abcdef0123456789abcdef";
        for path in [
            format!("/v1/hooks/{id}"),
            format!("/v1/projects/p/hooks/{id}"),
            format!("/v1/h%6fok%73/{id}"),
            "/v1/hooks/%30123456789abcdef0123456789abcdef".to_string(),
            format!("/v1/hooks//{id}"),
            format!("/v1/Hooks/{id}"),
            format!("/v1/hook/{id}/x"),
        ] {
            let shown = redact_path(&path);
            assert!(!shown.contains("9abcdef"), "{path}: {shown}");
        }
        assert_eq!(redact_path(&format!("/v1/hooks/{id}")), "/v1/hooks/01234567…");
        for path in ["/v1/hooks/providers/stripe", "/v1/webhooks/1", "/v1/users/a%20b"] {
            assert_eq!(redact_path(path), path);
        }
    }
}
