//! A guest's token of a lease: the lease's random half, and the row that it is of.
//!
//! Not a secret of the host: the reach is not in it, so a token of another tenant leads to a row
//! that is not there.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::bindings::charter::primitive::types::Failure;
use crate::failure::invalid;
use crate::shared::Shared;

/// Characters of a token.
const TOKEN_CHARS_MAX: usize = 1_024;

/// The parts of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) random: String,
    pub(super) collection: String,
    pub(super) id: String,
}

impl Token {
    /// A fresh random half.
    pub(super) fn random(shared: &Shared) -> Result<String, Failure> {
        Ok(URL_SAFE_NO_PAD.encode(shared.random::<15>()?))
    }

    /// The text that the guest holds.
    pub(super) fn text(&self) -> String {
        URL_SAFE_NO_PAD.encode(format!("{}\0{}\0{}", self.random, self.collection, self.id))
    }

    /// Reads a token; one that this host did not make reads as a lease that has ended.
    pub(super) fn parse(text: &str) -> Result<Self, Failure> {
        let parse = || {
            let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
            let text = String::from_utf8(bytes).ok()?;
            let mut parts = text.splitn(3, '\0');
            Some(Self {
                random: parts.next()?.into(),
                collection: parts.next()?.into(),
                id: parts.next()?.into(),
            })
        };
        if text.len() > TOKEN_CHARS_MAX {
            return Err(invalid("token", "this is no token of a lease").into());
        }
        parse().ok_or_else(|| invalid("token", "this is no token of a lease").into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_reads_back_and_anything_else_is_refused() {
        let token = Token { random: "r".into(), collection: "c".into(), id: "i\0d".into() };
        assert_eq!(Token::parse(&token.text()).unwrap(), token);
        for text in ["", "x", "!!", &"A".repeat(2_000)] {
            assert!(Token::parse(text).is_err(), "{text}");
        }
    }
}
