//! Hashes as text.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use charter_kernel::merkle::Hash;

/// A hash in base64.
pub fn base64(hash: &Hash) -> String {
    STANDARD.encode(hash)
}

/// A hash of base64.
pub fn hash(text: &str) -> Option<Hash> {
    STANDARD.decode(text).ok()?.try_into().ok()
}

/// Hashes behind each other, as the body of a row.
pub(super) fn tile(hashes: &[Hash]) -> String {
    format!("\"{}\"", STANDARD.encode(hashes.as_flattened()))
}

pub(super) fn untile(body: &str) -> Option<Vec<Hash>> {
    let bytes = STANDARD.decode(body.trim_matches('"')).ok()?;
    bytes.chunks(32).map(|hash| hash.try_into().ok()).collect()
}
