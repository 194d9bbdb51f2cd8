//! The audit log as a Merkle tree (RFC 6962): checkpoints that are signed as rows come, and proofs
//! against them.
//!
//! A leaf is the public half of a row as it was committed, so everything here is derived and can be
//! derived again. Kept is only what would be dear to derive: full tiles of 256 hashes, and with
//! each checkpoint the roots that it takes to go on.

use charter_kernel::merkle::{self, Frontier, Hash, Node};
use charter_kernel::note::{Checkpoint, Verifier};
use charter_kernel::refusal::Refusal;
use charter_kernel::time::Instant;
use charter_kernel::unit::{
    Draft, Fact, FactKind, Key, Reach, Refused, Rejection, Space, Unit, Write,
};
use charter_store::{CommitError, PAGE_ROWS_MAX, Query, Store};
use charter_tenancy::stored::{reading, unreadable};
use ed25519_dalek::{Signer as _, SigningKey};
use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};

pub mod check;
pub mod export;
pub mod text;

/// The actions of the rows that say why a user's other rows have no private half any more, and
/// where their private half names the user: a project goes with its default profile.
pub const REMOVALS: [(&str, &str); 2] =
    [("users.delete", "/entity_id"), ("projects.delete", "/details/before/default_user_id")];
/// Hashes of a tile; a tile's root is one hash of the level above.
const TILE: u64 = 256;
/// Levels of the tree between two levels of tiles.
const TILE_LEVELS: u32 = 8;
/// Rows that one checkpoint adds at most.
const STEP_ROWS: u64 = 20_000;
/// Attempts beside other hosts that seal the same rows.
const ATTEMPTS_MAX: u32 = 64;

/// Writes a row in a commit of its own, where nothing else was done: it has the room that is kept
/// for what settles, so that a full queue hides no refusal.
///
/// # Errors
/// 503 where it cannot be written.
pub async fn commit_alone(store: &Store, organization: &str, fact: Fact) -> Result<(), Refusal> {
    let unit = Unit { organization: organization.to_owned(), facts: vec![fact], ..Unit::default() };
    store.commit_settling(unit).await.map(drop).map_err(|error| {
        tracing::error!(%error, "the audit row of a refusal could not be written");
        Refusal::overloaded(1)
    })
}

/// The audit log of one organization; of the deployment itself where the organization is empty.
#[derive(Clone, Debug)]
pub struct Log {
    store: Store,
    organization: String,
}

/// A checkpoint as it is kept.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Sealed {
    /// Rows.
    pub size: u64,
    /// When it was signed.
    pub at: Instant,
    /// The signed note.
    pub note: String,
    /// Roots of the complete subtrees, largest first.
    roots: Vec<String>,
}

impl Sealed {
    fn frontier(&self) -> Result<Frontier, Refusal> {
        let roots: Option<Vec<Hash>> = self.roots.iter().map(|root| text::hash(root)).collect();
        roots.and_then(|roots| Frontier::of(self.size, roots)).ok_or_else(|| {
            tracing::error!(size = self.size, "a checkpoint cannot be read");
            Refusal::internal()
        })
    }
}

fn checkpoints() -> Space {
    Space::host("audit_checkpoints")
}

fn tiles() -> Space {
    Space::host("audit_tiles")
}

impl Log {
    /// The log of an organization.
    pub fn of(store: &Store, organization: &str) -> Self {
        Self { store: store.clone(), organization: organization.to_owned() }
    }

    fn reach(&self) -> Reach {
        Reach::organization(&self.organization)
    }

    fn at(&self, size: u64) -> Key {
        Key::new(&self.reach(), &checkpoints(), format!("{size:016x}"))
    }

    fn tile(&self, level: u32, index: u64) -> Key {
        Key::new(&self.reach(), &tiles(), format!("{level}/{index:016x}"))
    }

    /// The log's name, which is its key's too.
    pub fn origin(&self) -> String {
        let name = if self.organization.is_empty() { "deployment" } else { &self.organization };
        format!("charter/audit/{name}")
    }

    fn key(&self) -> SigningKey {
        SigningKey::from_bytes(&self.store.derive("audit-checkpoints"))
    }

    /// The key that its checkpoints are verified with.
    pub fn verifier(&self) -> Verifier {
        Verifier { name: self.origin(), key: self.key().verifying_key().to_bytes() }
    }

    fn sign(&self, tree: &Frontier) -> Sealed {
        let text =
            Checkpoint { origin: self.origin(), size: tree.size(), root: tree.root() }.text();
        let note = self.verifier().write_note(&text, &self.key().sign(text.as_bytes()).to_bytes());
        let roots = tree.roots().iter().map(text::base64).collect();
        Sealed { size: tree.size(), at: self.store.now(), note, roots }
    }

    /// The latest checkpoint.
    ///
    /// # Errors
    /// When the store cannot be asked.
    pub async fn latest(&self) -> Result<Option<Sealed>, Refusal> {
        Ok(self.newest(1).await?.pop())
    }

    /// The latest checkpoints, newest first.
    ///
    /// # Errors
    /// When the store cannot be asked.
    pub async fn newest(&self, limit: u32) -> Result<Vec<Sealed>, Refusal> {
        let query = Query::all(&self.reach(), &checkpoints()).limit(limit).relax();
        let found = self.store.find(&query).await.map_err(reading)?;
        found.items.iter().map(|(_, row)| read(&row.body)).collect()
    }

    /// The checkpoint of this size.
    ///
    /// # Errors
    /// 404 where there is none.
    pub async fn checkpoint_at(&self, size: u64) -> Result<Sealed, Refusal> {
        let found = self.store.get(&self.at(size)).await.map_err(reading)?;
        let found =
            found.ok_or_else(|| Refusal::resource_not_found("checkpoint").detail("size", size))?;
        read(&found.body)
    }

    /// The checkpoint of all rows, signed now where rows have come since the latest.
    ///
    /// # Errors
    /// When the store cannot be asked, or takes no changes.
    pub async fn checkpoint(&self) -> Result<Sealed, Refusal> {
        // No `Store::transact`: each run commits a step and another follows, until none is left.
        for _ in 0..ATTEMPTS_MAX {
            let latest = self.latest().await?;
            let mut tree = match &latest {
                Some(latest) => latest.frontier()?,
                None => Frontier::default(),
            };
            let head = self
                .store
                .facts_head(FactKind::Audit, &self.organization)
                .await
                .map_err(reading)?;
            match latest {
                Some(latest) if latest.size >= head => return Ok(latest),
                None if head == 0 => return Ok(self.sign(&tree)),
                _ => {}
            }
            let (from, to) = (tree.size(), head.min(tree.size() + STEP_ROWS));
            // Also the hashes of the tile that is not full yet.
            let first = from - from % TILE;
            let hashes = self.leaves(first, to).await?;
            hashes
                .iter()
                .skip(usize::try_from(from - first).unwrap_or(0))
                .for_each(|hash| tree.push(*hash));
            let full = hashes.chunks_exact(TILE as usize).zip(first / TILE..);
            let mut writes: Vec<Write> = full
                .map(|(hashes, index)| insert(self.tile(0, index), text::tile(hashes)))
                .collect();
            let sealed = self.sign(&tree);
            writes.push(insert(
                self.at(sealed.size),
                serde_json::to_string(&sealed).unwrap_or_default(),
            ));
            let unit = Unit { organization: self.organization.clone(), writes, ..Unit::default() };
            match self.store.commit_settling(unit).await {
                Ok(_) => self.pile(from, sealed.size).await?,
                // Another host was faster.
                Err(CommitError::Rejected(
                    Rejection::Refused(Refused::Exists { .. }) | Rejection::Conflict { .. },
                )) => {}
                Err(error) => return Err(charter_tenancy::stored::commit_refusal(&error)),
            }
        }
        Err(Refusal::overloaded(1))
    }

    /// Keeps the tiles above the leaves that have become full between two sizes.
    async fn pile(&self, from: u64, to: u64) -> Result<(), Refusal> {
        for level in 1..=u64::BITS / TILE_LEVELS - 2 {
            let full = |size: u64| size >> (TILE_LEVELS * (level + 1));
            for index in full(from)..full(to) {
                let hashes = self.hashes(level, index * TILE, TILE).await?;
                let unit = Unit {
                    organization: self.organization.clone(),
                    writes: vec![insert(self.tile(level, index), text::tile(&hashes))],
                    ..Unit::default()
                };
                // One that is there already says the same; one that is missing is derived where it
                // is asked for.
                if let Err(error) = self.store.commit_settling(unit).await
                    && error.refusal().is_none()
                {
                    tracing::warn!(%error, "a tile of an audit log could not be kept");
                }
            }
            if full(to) == 0 {
                break;
            }
        }
        Ok(())
    }

    /// Hashes of the leaves from `from` on, below `to`.
    async fn leaves(&self, from: u64, to: u64) -> Result<Vec<Hash>, Refusal> {
        let mut hashes = Vec::new();
        let mut at = from;
        while at < to {
            let limit = u32::try_from(to - at).unwrap_or(PAGE_ROWS_MAX).min(PAGE_ROWS_MAX);
            let rows = self
                .store
                .facts(FactKind::Audit, &self.organization, at, limit)
                .await
                .map_err(reading)?;
            let whole =
                !rows.is_empty() && rows.iter().zip(at + 1..).all(|(row, seq)| row.sequence == seq);
            if !whole {
                tracing::error!(
                    organization = self.organization,
                    after = at,
                    "rows of an audit log are missing"
                );
                return Err(Refusal::internal());
            }
            hashes.extend(rows.iter().map(|row| merkle::leaf(row.fact.body.as_bytes())));
            at += rows.len() as u64;
        }
        Ok(hashes)
    }

    /// `count` hashes of a level of tiles from `from` on, all of one tile.
    fn hashes(
        &self,
        level: u32,
        from: u64,
        count: u64,
    ) -> BoxFuture<'_, Result<Vec<Hash>, Refusal>> {
        Box::pin(async move {
            let kept = self.store.get(&self.tile(level, from / TILE)).await.map_err(reading)?;
            if let Some(hashes) = kept.and_then(|row| text::untile(&row.body)) {
                let first = usize::try_from(from % TILE).unwrap_or(0);
                return Ok(hashes
                    .into_iter()
                    .skip(first)
                    .take(usize::try_from(count).unwrap_or(0))
                    .collect());
            }
            if level == 0 {
                return self.leaves(from, from + count).await;
            }
            let mut hashes = Vec::new();
            for index in from..from + count {
                hashes.push(tree(&self.hashes(level - 1, index * TILE, TILE).await?));
            }
            Ok(hashes)
        })
    }

    /// The hash of a complete subtree.
    async fn node(&self, node: Node) -> Result<Hash, Refusal> {
        let count = 1 << (node.level % TILE_LEVELS);
        Ok(tree(&self.hashes(node.level / TILE_LEVELS, node.index * count, count).await?))
    }

    /// The hashes that a proof names.
    ///
    /// # Errors
    /// When the store cannot be asked.
    pub async fn proof(&self, ranges: &[std::ops::Range<u64>]) -> Result<Vec<Hash>, Refusal> {
        let mut hashes = Vec::new();
        for range in ranges {
            hashes.push(merkle::root(&self.subtrees(range).await?));
        }
        Ok(hashes)
    }

    async fn subtrees(&self, range: &std::ops::Range<u64>) -> Result<Vec<Hash>, Refusal> {
        let mut hashes = Vec::new();
        for node in merkle::subtrees(range) {
            hashes.push(self.node(node).await?);
        }
        Ok(hashes)
    }
}

/// The root of a complete tree.
fn tree(hashes: &[Hash]) -> Hash {
    let mut tree = Frontier::default();
    hashes.iter().for_each(|hash| tree.push(*hash));
    tree.root()
}

fn insert(key: Key, body: String) -> Write {
    Write::Insert { key, draft: Draft { body, ..Draft::default() } }
}

fn read(body: &str) -> Result<Sealed, Refusal> {
    serde_json::from_str(body).map_err(|_| {
        unreadable(charter_tenancy::records::Unreadable { collection: "audit_checkpoints" })
    })
}
