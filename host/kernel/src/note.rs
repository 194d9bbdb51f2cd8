//! Signed notes and the checkpoints in them, as c2sp.org/signed-note and c2sp.org/tlog-checkpoint
//! write them. Text only: who holds a key signs and verifies.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest as _, Sha256};

use crate::merkle::Hash;

/// The mark before a signature.
const DASH: &str = "\u{2014} ";
/// The algorithm's byte of Ed25519.
const ED25519: u8 = 1;
/// Bytes of a note that is read.
pub const NOTE_BYTES_MAX: usize = 64 << 10;

/// A log as a checkpoint has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// The log.
    pub origin: String,
    /// How many leaves.
    pub size: u64,
    /// Their root.
    pub root: Hash,
}

impl Checkpoint {
    /// The note's text, which is what is signed.
    pub fn text(&self) -> String {
        format!("{}\n{}\n{}\n", self.origin, self.size, STANDARD.encode(self.root))
    }

    /// Reads a note's text. Lines after the third are extensions.
    pub fn parse(text: &str) -> Option<Self> {
        let mut lines = text.split_terminator('\n');
        let (origin, size, root) = (lines.next()?, lines.next()?, lines.next()?);
        let canonical = !origin.is_empty() && (size == "0" || !size.starts_with(['0', '+']));
        let root = STANDARD.decode(root).ok()?.try_into().ok()?;
        canonical.then_some(Self { origin: origin.to_owned(), size: size.parse().ok()?, root })
    }
}

/// An Ed25519 key by name, as those who verify with it write it down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verifier {
    /// The key's name.
    pub name: String,
    /// Its bytes (RFC 8032).
    pub key: [u8; 32],
}

impl Verifier {
    /// The first bytes of each of its signatures.
    pub fn id(&self) -> [u8; 4] {
        let hash = Sha256::new()
            .chain_update(&self.name)
            .chain_update([b'\n', ED25519])
            .chain_update(self.key)
            .finalize();
        [hash[0], hash[1], hash[2], hash[3]]
    }

    /// `name+id+key`.
    pub fn text(&self) -> String {
        let key: Vec<u8> = std::iter::once(ED25519).chain(self.key).collect();
        format!("{}+{:08x}+{}", self.name, u32::from_be_bytes(self.id()), STANDARD.encode(key))
    }

    /// Reads `name+id+key`.
    pub fn parse(text: &str) -> Option<Self> {
        let (name, rest) = text.trim().split_once('+')?;
        let (id, key) = rest.split_once('+')?;
        let key = STANDARD.decode(key).ok()?;
        let (algorithm, key) = key.split_first()?;
        let found = Self { name: name.to_owned(), key: key.try_into().ok()? };
        (*algorithm == ED25519 && id == format!("{:08x}", u32::from_be_bytes(found.id())))
            .then_some(found)
    }

    /// The note with this key's signature.
    pub fn write_note(&self, text: &str, signature: &[u8; 64]) -> String {
        let bytes: Vec<u8> = self.id().into_iter().chain(*signature).collect();
        format!("{text}\n{DASH}{} {}\n", self.name, STANDARD.encode(bytes))
    }

    /// The text and this key's signature of a note; `None` where the key did not sign it.
    pub fn signature_of<'a>(&self, note: &'a str) -> Option<(&'a str, [u8; 64])> {
        let (text, signatures) =
            (note.len() <= NOTE_BYTES_MAX).then(|| note.rsplit_once("\n\n"))??;
        let text = &note[..=text.len()];
        signatures.lines().find_map(|line| {
            let (name, signature) = line.strip_prefix(DASH)?.split_once(' ')?;
            let bytes = STANDARD.decode(signature).ok()?;
            let (id, signature) = bytes.split_at_checked(4)?;
            let own = name == self.name && id == self.id();
            own.then(|| signature.try_into().ok()).flatten().map(|signature| (text, signature))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_written_as_the_specification_has_it() {
        let text = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW";
        assert_eq!(Verifier::parse(text).unwrap().text(), text);
        let key = Verifier { name: "charter/log".into(), key: [7; 32] };
        assert_eq!(Verifier::parse(&key.text()), Some(key.clone()));
        assert_eq!(Verifier::parse(&key.text().replace("charter/log", "charter/gol")), None);
    }

    #[test]
    fn a_checkpoint_is_three_lines_under_a_signature() {
        let checkpoint = Checkpoint { origin: "charter/log".into(), size: 20, root: [3; 32] };
        let key = Verifier { name: "charter/log".into(), key: [7; 32] };
        let note = key.write_note(&checkpoint.text(), &[9; 64]);
        let (text, signature) = key.signature_of(&note).unwrap();
        assert_eq!((Checkpoint::parse(text).unwrap(), signature), (checkpoint, [9; 64]));
        let other = Verifier { key: [8; 32], ..key };
        assert_eq!(other.signature_of(&note), None);
        for bad in ["", "a\n01\n", "\n1\nAAAA\n", "a\n+1\nAAAA\n"] {
            assert_eq!(Checkpoint::parse(bad), None, "{bad:?}");
        }
    }
}
