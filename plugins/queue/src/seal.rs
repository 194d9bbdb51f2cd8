//! The seal of a receipt: a queue knows its own receipts by it, to the letter.
//!
//! A lease's token says who holds a message, and not which message or which delivery it is: the
//! seal binds the three, so nothing of a receipt can be exchanged or invented. The key is the
//! queue's own and never leaves it. Knows nothing of what it seals.

use charter_sdk::prelude::*;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

/// Bytes of a key.
const KEY_BYTES: usize = 32;
/// Bytes of a seal: half of a SHA-256.
const SEAL_BYTES: usize = 16;

/// A fresh key, as a queue keeps it.
pub(crate) fn fresh_key() -> Result<String> {
    let mut key = [0; KEY_BYTES];
    getrandom::fill(&mut key)
        .map_err(|error| Failure::internal(format!("no randomness: {error}")))?;
    Ok(hex(&key))
}

/// The text with its seal behind it.
pub(crate) fn seal(key: &str, text: &str) -> Result<String> {
    let seal = mac(key, text)?.finalize().into_bytes();
    Ok(format!("{text}.{}", hex(&seal[..SEAL_BYTES])))
}

/// The text before the seal, if the seal is this key's; compared in constant time.
pub(crate) fn open<'a>(key: &str, sealed: &'a str) -> Option<&'a str> {
    let (text, seal) = sealed.rsplit_once('.')?;
    let seal = unhex(seal).filter(|seal| seal.len() == SEAL_BYTES)?;
    mac(key, text).ok()?.verify_truncated_left(&seal).ok()?;
    Some(text)
}

fn mac(key: &str, text: &str) -> Result<Hmac<Sha256>> {
    let mac = Hmac::<Sha256>::new_from_slice(key.as_bytes());
    let mac =
        mac.map_err(|error| Failure::internal(format!("a queue's key cannot be used: {error}")))?;
    Ok(mac.chain_update(text))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> =
        text.chars().map(|digit| u8::try_from(digit.to_digit(16)?).ok()).collect();
    let digits = digits.filter(|digits| digits.len() % 2 == 0)?;
    Some(digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_key_sealed_opens() {
        let (key, other) = (fresh_key().unwrap(), fresh_key().unwrap());
        let text = seal(&key, "m.1.a.b").unwrap();
        assert_eq!(open(&key, &text), Some("m.1.a.b"));
        assert_eq!(open(&other, &text), None);
        let (_, seal) = text.rsplit_once('.').unwrap();
        for forged in [
            "",
            ".",
            "m.1.a.b",
            "m.1.a.b.",
            "m.1.a.b.é",
            &text[..text.len() - 2],
            &format!("m.2.a.b.{seal}"),
        ] {
            assert_eq!(open(&key, forged), None, "{forged}");
        }
    }
}
