//! The operator's token: made or given at start, kept as a hash, compared in constant time.
//!
//! Knows nothing of HTTP. The token itself is shown once, by whoever made it, and never again. Each
//! change that a token was admitted to requires at its commit that the token is the same still, so
//! that one which was replaced does nothing more on any replica; nor does a start bring it back.

use std::sync::{Arc, PoisonError, RwLock};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use charter_kernel::audit::AuditRow;
use charter_kernel::unit::{Draft, Fact, Guard, Key, Reach, Space};
use charter_store::{Store, TransactError, Txn, audit_fact};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::records::require_version;
use crate::secret::Secret;

/// The beginning of each token, so that a secret scanner finds one that leaked.
const PREFIX: &str = "op_";
/// Random bytes of a token.
const TOKEN_BYTES: usize = 32;
/// 128 bits of base64.
const LENGTH_MIN: usize = 22;
/// Tokens that were replaced, the newest: none of them counts again.
const FORMER_MAX: usize = 100;

/// The row that the hash is kept in.
#[derive(Serialize, Deserialize)]
struct Record {
    /// SHA-256 of the token, base64. A token has 128 bits at least, so that a slow hash would add
    /// nothing.
    hash: String,
    /// The same of those before it, the oldest first; none in rows of earlier builds.
    #[serde(default)]
    former: Vec<String>,
}

/// The token as its row keeps it.
#[derive(Clone, Copy)]
struct Kept {
    hash: [u8; 32],
    /// The version of the row.
    version: u64,
}

/// An act of the operator's that commits on its own: its audit row, and what must still hold then.
#[derive(Clone, Debug)]
pub struct Act {
    /// The audit row.
    pub row: Fact,
    /// The guards of the credential; none where who acts has no token, but the database itself.
    pub guards: Vec<Guard>,
}

impl Act {
    /// Adds both to the commit of what is done.
    pub fn join(self, txn: &mut Txn) {
        self.guards.into_iter().for_each(|guard| txn.guard(guard));
        txn.fact(self.row);
    }
}

impl From<Fact> for Act {
    fn from(row: Fact) -> Self {
        Self { row, guards: Vec::new() }
    }
}

/// The check that guards the operator's routes. Cheap to clone.
#[derive(Clone)]
pub struct Operator {
    store: Store,
    /// As it was read last.
    kept: Arc<RwLock<Kept>>,
}

impl Operator {
    /// Reads the hash that the deployment keeps, or makes the first token, which is returned to be
    /// shown once. A token given by the configuration replaces what was kept, and leaves a row that
    /// says so.
    ///
    /// # Errors
    /// For a given token that was replaced before, and when the store cannot be read or written.
    pub async fn open(
        store: Store,
        given: Option<&Secret>,
    ) -> anyhow::Result<(Self, Option<Secret>)> {
        let found = read(&store).await?;
        if let Some(given) = given {
            let hash = digest(given.reveal());
            let kept = match found {
                Some(kept) if kept.hash == hash => kept,
                _ => set(&store, hash).await?,
            };
            return Ok((Self::with(store, kept), None));
        }
        if let Some(kept) = found {
            return Ok((Self::with(store, kept), None));
        }
        let token = new_token()?;
        let hash = digest(token.reveal());
        let mut txn = store.begin("");
        let version = put(&mut txn, hash).await?;
        txn.commit().await?;
        Ok((Self::with(store, Kept { hash, version }), Some(token)))
    }

    fn with(store: Store, kept: Kept) -> Self {
        Self { store, kept: Arc::new(RwLock::new(kept)) }
    }

    /// The version of the token, for [`guard`], where this is it by the database's word; as long as
    /// that cannot be read, by what was read last. Compares in the same time whatever was
    /// presented.
    pub async fn admit(&self, presented: &str) -> Option<u64> {
        let kept = match read(&self.store).await {
            Ok(kept) => kept.inspect(|kept| self.note(*kept))?,
            Err(error) => {
                tracing::warn!(
                    error = %format!("{error:#}"),
                    "the operator's token cannot be read: the one that was read last counts"
                );
                *self.kept.read().unwrap_or_else(PoisonError::into_inner)
            }
        };
        bool::from(digest(presented).ct_eq(&kept.hash)).then_some(kept.version)
    }

    /// Reads what another replica or the command line has kept since, for when the database cannot
    /// be read.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn refresh(&self) -> anyhow::Result<()> {
        if let Some(kept) = read(&self.store).await? {
            self.note(kept);
        }
        Ok(())
    }

    /// Remembers what was read, unless something later was.
    fn note(&self, read: Kept) {
        let mut kept = self.kept.write().unwrap_or_else(PoisonError::into_inner);
        if read.version >= kept.version {
            *kept = read;
        }
    }
}

/// Replaces the token in this commit; the old one ends with it on every replica.
///
/// # Errors
/// When the store cannot be read, or the operating system has no randomness.
pub async fn rotate(txn: &mut Txn) -> anyhow::Result<Secret> {
    let token = new_token()?;
    put(txn, digest(token.reveal())).await?;
    Ok(token)
}

/// Requires that the token is the one that was admitted, by the version that [`Operator::admit`]
/// answers.
pub fn guard(version: u64) -> Guard {
    require_version(key(), version)
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

async fn read(store: &Store) -> anyhow::Result<Option<Kept>> {
    let Some(row) = store.begin("").get_relaxed(&key()).await? else { return Ok(None) };
    let record: Record = serde_json::from_str(&row.body)?;
    let bytes = URL_SAFE_NO_PAD.decode(record.hash)?;
    Ok(bytes.try_into().ok().map(|hash| Kept { hash, version: row.version }))
}

/// Keeps the token that the configuration gives, unless it was replaced before: of replicas that
/// start at once one may have the configuration of yesterday.
async fn set(store: &Store, hash: [u8; 32]) -> anyhow::Result<Kept> {
    let kept = store.transact("", async |txn: &mut Txn| {
        let before = record(txn).await?;
        let text = URL_SAFE_NO_PAD.encode(hash);
        if before.as_ref().is_some_and(|before| before.former.contains(&text)) {
            anyhow::bail!(
                "the operator's token that the configuration gives (CHARTER_OPERATOR_TOKEN in the \
                 environment, or [operator] token or token_file in the file) was replaced, and \
                 counts no more: take it out there, and the one that replaced it counts; or give a \
                 new one (`openssl rand -base64 24` makes one)"
            );
        }
        // The first token replaces none, and another replica may just have set this one.
        if before.is_some_and(|before| before.hash != text) {
            let row = row_of_set(txn)?;
            txn.fact(row);
        }
        Ok(Kept { hash, version: put(txn, hash).await? })
    });
    kept.await.map_err(TransactError::flatten)
}

/// The row of a start that has replaced the token.
fn row_of_set(txn: &Txn) -> anyhow::Result<Fact> {
    let row = AuditRow {
        at: txn.store().now(),
        actor: ("operator", "configuration"),
        action: "operator.token.set",
        entity_type: Some("operator"),
        entity_id: Some("token"),
        decision: "allowed",
        ..AuditRow::default()
    };
    Ok(audit_fact(&row)?)
}

async fn record(txn: &mut Txn) -> anyhow::Result<Option<Record>> {
    let row = txn.get(&key()).await?;
    Ok(row.map(|row| serde_json::from_str(&row.body)).transpose()?)
}

/// Writes the row, and answers its version.
async fn put(txn: &mut Txn, hash: [u8; 32]) -> anyhow::Result<u64> {
    let hash = URL_SAFE_NO_PAD.encode(hash);
    let mut former = Vec::new();
    if let Some(before) = record(txn).await? {
        former = before.former;
        if before.hash != hash {
            former.push(before.hash);
        }
        former.drain(..former.len().saturating_sub(FORMER_MAX));
    }
    let body = serde_json::to_string(&Record { hash, former })?;
    Ok(txn.put(key(), Draft { body, ..Draft::default() }).await?.version)
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
