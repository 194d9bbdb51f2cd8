//! The operator's token: made or given at start, kept as a hash, compared in constant time.
//!
//! Knows nothing of HTTP. The token itself is shown once, by whoever made it, and never again.

use std::sync::{Arc, RwLock};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use charter_kernel::unit::{Draft, Fact, Key, Reach, Space};
use charter_store::Store;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::secret::Secret;

/// The beginning of each token, so that a secret scanner finds one that leaked.
const PREFIX: &str = "op_";
/// Random bytes of a token.
const TOKEN_BYTES: usize = 32;
/// 128 bits of base64.
const LENGTH_MIN: usize = 22;

/// The row that the hash is kept in.
#[derive(Serialize, Deserialize)]
struct Record {
    /// SHA-256 of the token, base64. A token has 128 bits at least, so that a slow hash would add
    /// nothing.
    hash: String,
}

/// The check that guards the operator's routes. Cheap to clone.
#[derive(Clone)]
pub struct Operator {
    store: Store,
    hash: Arc<RwLock<[u8; 32]>>,
}

impl Operator {
    /// Reads the hash that the deployment keeps, or makes the first token, which is returned to be
    /// shown once. A token given by the configuration replaces what was kept.
    ///
    /// # Errors
    /// When the store cannot be read or written.
    pub async fn open(
        store: Store,
        given: Option<&Secret>,
    ) -> anyhow::Result<(Self, Option<Secret>)> {
        if let Some(given) = given {
            let hash = digest(given.reveal());
            if read_hash(&store).await? != Some(hash) {
                keep(&store, hash, None).await?;
            }
            return Ok((Self::with(store, hash), None));
        }
        if let Some(hash) = read_hash(&store).await? {
            return Ok((Self::with(store, hash), None));
        }
        let token = new_token()?;
        let hash = digest(token.reveal());
        keep(&store, hash, None).await?;
        Ok((Self::with(store, hash), Some(token)))
    }

    fn with(store: Store, hash: [u8; 32]) -> Self {
        Self { store, hash: Arc::new(RwLock::new(hash)) }
    }

    /// Whether this is the token. Takes the same time whatever was presented.
    pub fn admits(&self, presented: &str) -> bool {
        let hash = *self.hash.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        digest(presented).ct_eq(&hash).into()
    }

    /// Replaces the token, in one commit with the audit row of that; the old one ends with the next
    /// request, on other replicas within a second.
    ///
    /// # Errors
    /// When the store cannot be written.
    pub async fn rotate(&self, row: Fact) -> anyhow::Result<Secret> {
        let token = new_token()?;
        let hash = digest(token.reveal());
        keep(&self.store, hash, Some(row)).await?;
        self.set(hash);
        Ok(token)
    }

    /// Reads what another replica or the command line has kept since.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn refresh(&self) -> anyhow::Result<()> {
        if let Some(hash) = read_hash(&self.store).await? {
            self.set(hash);
        }
        Ok(())
    }

    fn set(&self, hash: [u8; 32]) {
        *self.hash.write().unwrap_or_else(std::sync::PoisonError::into_inner) = hash;
    }
}

/// Whether a given token has 128 bits: long enough, and not one character over and over.
pub fn is_strong(token: &str) -> bool {
    let mut characters: Vec<char> = token.chars().collect();
    let length = characters.len();
    characters.sort_unstable();
    characters.dedup();
    length >= LENGTH_MIN && characters.len() >= 8 && token.chars().all(|c| c.is_ascii_graphic())
}

fn new_token() -> anyhow::Result<Secret> {
    let mut bytes = zeroize::Zeroizing::new([0u8; TOKEN_BYTES]);
    getrandom::fill(bytes.as_mut())
        .map_err(|error| anyhow::anyhow!("the operating system has no randomness: {error}"))?;
    Ok(Secret::new(format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes.as_ref()))))
}

fn digest(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

fn key() -> Key {
    Key::new(&Reach::deployment(), &Space::host("operator"), "token")
}

async fn read_hash(store: &Store) -> anyhow::Result<Option<[u8; 32]>> {
    let Some(row) = store.begin("").get_relaxed(&key()).await? else { return Ok(None) };
    let record: Record = serde_json::from_str(&row.body)?;
    let bytes = URL_SAFE_NO_PAD.decode(record.hash)?;
    Ok(bytes.try_into().ok())
}

async fn keep(store: &Store, hash: [u8; 32], row: Option<Fact>) -> anyhow::Result<()> {
    let body = serde_json::to_string(&Record { hash: URL_SAFE_NO_PAD.encode(hash) })?;
    let mut txn = store.begin("");
    txn.put(key(), Draft { body, ..Draft::default() }).await?;
    row.into_iter().for_each(|row| txn.fact(row));
    txn.commit().await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_or_monotonous_token_is_weak() {
        assert!(!is_strong("hunter2"));
        assert!(!is_strong(&"a".repeat(64)));
        assert!(!is_strong("with space and long enough 123"));
        assert!(is_strong("9f8e7d6c5b4a39281706f5e4"));
        assert!(is_strong(new_token().expect("randomness").reveal()));
    }
}
