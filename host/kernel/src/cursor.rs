//! Opaque page positions that only this deployment can make.
//!
//! A cursor is base64url of a tag and a position; the tag is HMAC-SHA256 over the position and
//! everything it is bound to (tenant, operation, filters). A cursor of another tenant, operation or
//! filter does not verify, and reads exactly like a forged one.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use crate::limits::CURSOR_BYTES_MAX;

const TAG_BYTES: usize = 16;

/// The list that a cursor belongs to: a cursor verifies under the same binding only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Binding<'a> {
    /// The reach (or organization) that the list is of.
    pub tenant: &'a str,
    /// The operation's id, or the host route's.
    pub operation: &'a str,
    /// The filters of the list, in any canonical text.
    pub filters: &'a str,
}

/// The cursor does not verify: it is forged, damaged, or was made for another tenant, operation or
/// filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be one that this list handed out; leave it out to start over")]
pub struct Unverified;

/// Makes the cursor of a position; `None` if the position is too long for one.
pub fn seal(key: &[u8; 32], binding: Binding<'_>, position: &str) -> Option<String> {
    let mut bytes = tag(key, binding, position.as_bytes()).to_vec();
    bytes.extend_from_slice(position.as_bytes());
    let cursor = URL_SAFE_NO_PAD.encode(bytes);
    (cursor.len() <= CURSOR_BYTES_MAX).then_some(cursor)
}

/// Reads the position of a cursor.
///
/// # Errors
/// [`Unverified`], whatever is wrong with it.
pub fn open(key: &[u8; 32], binding: Binding<'_>, cursor: &str) -> Result<String, Unverified> {
    if cursor.len() > CURSOR_BYTES_MAX {
        return Err(Unverified);
    }
    let bytes = URL_SAFE_NO_PAD.decode(cursor).map_err(|_| Unverified)?;
    let (given, position) = bytes.split_at_checked(TAG_BYTES).ok_or(Unverified)?;
    if !bool::from(subtle::ConstantTimeEq::ct_eq(given, &tag(key, binding, position)[..])) {
        return Err(Unverified);
    }
    String::from_utf8(position.to_vec()).map_err(|_| Unverified)
}

fn tag(key: &[u8; 32], binding: Binding<'_>, position: &[u8]) -> [u8; TAG_BYTES] {
    let mut mac = match Hmac::<Sha256>::new_from_slice(key) {
        Ok(mac) => mac,
        Err(_) => unreachable!("HMAC takes keys of any length"),
    };
    mac.update(b"charter cursor 1");
    // Each part is preceded by its length: no two bindings share a byte string.
    for part in [
        binding.tenant.as_bytes(),
        binding.operation.as_bytes(),
        binding.filters.as_bytes(),
        position,
    ] {
        mac.update(&(part.len() as u64).to_be_bytes());
        mac.update(part);
    }
    let full: [u8; 32] = mac.finalize().into_bytes().into();
    let mut short = [0; TAG_BYTES];
    short.copy_from_slice(&full[..TAG_BYTES]);
    short
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const KEY: [u8; 32] = [7; 32];

    fn binding() -> Binding<'static> {
        Binding { tenant: "u/1", operation: "a.list", filters: "status=open" }
    }

    #[test]
    fn a_cursor_holds_for_its_own_list_only() {
        let cursor = seal(&KEY, binding(), "42").unwrap();
        assert_eq!(open(&KEY, binding(), &cursor).as_deref(), Ok("42"));
        for foreign in [
            Binding { tenant: "u/2", ..binding() },
            Binding { operation: "b.list", ..binding() },
            Binding { filters: "", ..binding() },
            Binding { tenant: "u/1a", operation: ".list", ..binding() },
        ] {
            assert_eq!(open(&KEY, foreign, &cursor), Err(Unverified));
        }
        assert_eq!(open(&[8; 32], binding(), &cursor), Err(Unverified));
    }

    #[test]
    fn cursors_have_a_bounded_length() {
        assert_eq!(seal(&KEY, binding(), &"x".repeat(CURSOR_BYTES_MAX)), None);
        assert_eq!(open(&KEY, binding(), &"A".repeat(CURSOR_BYTES_MAX + 1)), Err(Unverified));
        assert!(seal(&KEY, binding(), &"x".repeat(700)).is_some());
    }

    proptest! {
        #[test]
        fn positions_come_back(position in "\\PC{0,200}", tenant in "\\PC{0,20}", filters in "\\PC{0,20}") {
            let binding = Binding { tenant: &tenant, operation: "a.list", filters: &filters };
            if let Some(cursor) = seal(&KEY, binding, &position) {
                prop_assert_eq!(open(&KEY, binding, &cursor), Ok(position));
            }
        }

        #[test]
        fn any_change_is_refused(position in "[a-z0-9]{1,40}", at in any::<prop::sample::Index>(), to in "[A-Za-z0-9_=-]") {
            let cursor = seal(&KEY, binding(), &position).unwrap();
            let at = at.index(cursor.len());
            let changed = format!("{}{}{}", &cursor[..at], to, &cursor[at + 1..]);
            prop_assume!(changed != cursor);
            prop_assert_eq!(open(&KEY, binding(), &changed), Err(Unverified));
        }

        #[test]
        fn no_text_at_all_verifies_or_panics(text in "\\PC*") {
            prop_assert_eq!(open(&KEY, binding(), &text), Err(Unverified));
        }
    }
}
