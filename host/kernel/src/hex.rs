//! Bytes as hexadecimal text, and the digests that are written so.

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

/// Lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// SHA-256 of a text, in hexadecimal.
pub fn sha256(text: &str) -> String {
    hex(&Sha256::digest(text))
}
