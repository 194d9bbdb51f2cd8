//! Secrets: those that the deployment hands out (API keys, session tokens, invitation tokens), and
//! text that the operator has set.
//!
//! A plain secret exists once, in the answer that hands it out; what is stored is its SHA-256. 256
//! random bits need no slow hash. No type of this file prints itself.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

/// How many characters of a key are shown in lists, the `sk_live_` in front included.
const SHOWN_CHARACTERS: usize = 14;

/// Text that must not be shown. It does not print itself and is wiped when dropped.
#[derive(Clone, Default)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// Wraps a secret.
    pub fn new(text: String) -> Self {
        Self(Zeroizing::new(text))
    }
    /// The secret itself; name the reason where this is called.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// A secret as its holder presents it.
#[derive(Clone)]
pub struct Plain(String);

impl Plain {
    /// A fresh secret of 256 random bits behind `prefix`.
    ///
    /// # Errors
    /// When the operating system gives no randomness.
    pub fn generate(prefix: &str) -> Result<Self, getrandom::Error> {
        let mut bytes = [0u8; 32];
        getrandom::fill(&mut bytes)?;
        Ok(Self(format!("{prefix}{}", URL_SAFE_NO_PAD.encode(bytes))))
    }

    /// A secret that a client sent.
    pub fn from_client(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// The text, for the one answer that shows it.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// The beginning that lists show.
    pub fn prefix(&self) -> String {
        self.0.chars().take(SHOWN_CHARACTERS).collect()
    }

    /// The digest that is stored.
    pub fn digest(&self) -> Digest {
        Digest(Sha256::digest(self.0.as_bytes()).into())
    }

    /// A second secret that only the holder of this one can know: a session's CSRF token.
    pub fn derive(&self, purpose: &str) -> Self {
        let mut hash = Sha256::new();
        hash.update(purpose.as_bytes());
        hash.update([0]);
        hash.update(self.0.as_bytes());
        Self(URL_SAFE_NO_PAD.encode(hash.finalize()))
    }

    /// Whether `other` is the same text, in constant time.
    pub fn is(&self, other: &str) -> bool {
        self.0.as_bytes().ct_eq(other.as_bytes()).into()
    }
}

impl fmt::Debug for Plain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Plain(…)")
    }
}

/// The SHA-256 of a secret.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest([u8; 32]);

impl Digest {
    /// As the store keeps it: 64 hexadecimal digits.
    pub fn hex(&self) -> String {
        use fmt::Write as _;
        self.0.iter().fold(String::with_capacity(64), |mut text, byte| {
            // Writing to a string cannot fail.
            let _ = write!(text, "{byte:02x}");
            text
        })
    }

    /// Whether `stored` is this digest, in constant time.
    pub fn is(&self, stored: &str) -> bool {
        same(&self.hex(), stored)
    }
}

/// Whether two stored digests are equal, in constant time.
pub fn same(one: &str, other: &str) -> bool {
    one.as_bytes().ct_eq(other.as_bytes()).into()
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Digest(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_256_random_bits_behind_its_prefix() {
        let one = Plain::generate("sk_live_").unwrap();
        let two = Plain::generate("sk_live_").unwrap();
        assert_ne!(one.reveal(), two.reveal());
        let random = one.reveal().strip_prefix("sk_live_").unwrap();
        assert_eq!(URL_SAFE_NO_PAD.decode(random).unwrap().len(), 32);
        assert!(one.reveal().starts_with(&one.prefix()));
        assert_eq!(one.prefix().len(), SHOWN_CHARACTERS);
    }

    #[test]
    fn only_the_presented_secret_matches_its_stored_digest() {
        let secret = Plain::generate("").unwrap();
        let stored = secret.digest().hex();
        assert!(Plain::from_client(secret.reveal()).digest().is(&stored));
        assert!(!Plain::from_client("other").digest().is(&stored));
        assert_eq!(stored.len(), 64);
    }

    #[test]
    fn nothing_prints_a_secret() {
        let secret = Plain::from_client("sk_live_hunter2");
        assert!(!format!("{secret:?} {:?}", secret.digest()).contains("hunter2"));
    }

    #[test]
    fn a_derived_secret_depends_on_holder_and_purpose() {
        let secret = Plain::from_client("token");
        assert!(secret.derive("csrf").is(secret.derive("csrf").reveal()));
        assert_ne!(secret.derive("csrf").reveal(), secret.derive("other").reveal());
        assert_ne!(
            secret.derive("csrf").reveal(),
            Plain::from_client("tokem").derive("csrf").reveal()
        );
    }
}
