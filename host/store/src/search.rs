//! The words by which a text is found.
//!
//! Both databases index the same words, split here, so that they find the same rows. Beside the
//! words each row's text has one token of its tenant's space: a search reads that tenant's postings
//! and no other's.

use charter_kernel::limits::SEARCH_TEXT_BYTES_MAX;
use charter_kernel::unit::{Reach, Space};
use sha2::{Digest, Sha256};

/// Bytes of one word in the index; PostgreSQL takes no more than two thousand.
const WORD_BYTES_MAX: usize = 128;

/// Lower-case words, one space apart.
pub(crate) fn words(text: &str) -> String {
    let lower = text.to_lowercase();
    let words = lower.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    words
        .map(|word| &word[..word.floor_char_boundary(WORD_BYTES_MAX)])
        .collect::<Vec<_>>()
        .join(" ")
}

/// The words of a row's text that the index holds: those of its beginning.
pub(crate) fn index_words(text: &str) -> String {
    words(&text[..text.floor_char_boundary(SEARCH_TEXT_BYTES_MAX)])
}

/// The token of a tenant's space. No word of a text is as long and begins so by chance, and a
/// scope's words are in its own rows.
pub(crate) fn scope_token(reach: &Reach, space: &Space) -> String {
    let digest = Sha256::new()
        .chain_update(reach.as_str())
        .chain_update([0])
        .chain_update(space.as_str())
        .finalize();
    digest[..16].iter().fold("scope".to_owned(), |token, byte| format!("{token}{byte:02x}"))
}
