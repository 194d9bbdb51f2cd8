//! Index entries for documents that were written before their index was declared.
//!
//! Runs before an activation, and before a kit can pin what is staged: in bounded batches, each
//! document re-validated by version at its commit; a document that changes meanwhile is simply read
//! again. Knows documents as bodies only.

use charter_kernel::index::{self, Further};
use charter_kernel::manifest::{Collection, Manifest};
use charter_kernel::unit::{Draft, Guard, Key, Row, Space, Unit, Write};
use charter_store::CommitError;
use serde_json::Value;

use super::{LifeCycleError, Registry, fault};

/// Documents of one commit.
const BATCH_ROWS: u32 = 200;
/// Attempts at a batch that others keep changing.
const ATTEMPTS_MAX: u32 = 20;

impl Registry {
    /// Builds what `next` declares and `former` did not, beside what `others` that are live look
    /// for.
    pub(super) async fn backfill(
        &self,
        former: Option<&Manifest>,
        next: &Manifest,
        others: &[&Manifest],
    ) -> Result<(), LifeCycleError> {
        for collection in further_indexed(former, next) {
            let further =
                Further::of(collection, others.iter().flat_map(|other| &other.collections));
            self.rebuild(&Space::of(&next.name, &collection.name), collection, &further).await?;
        }
        Ok(())
    }

    async fn rebuild(
        &self,
        space: &Space,
        collection: &Collection,
        further: &Further,
    ) -> Result<(), LifeCycleError> {
        let mut after: Option<Key> = None;
        let mut rebuilt = 0_u64;
        let mut attempts = 0;
        // No `Store::transact`: a transaction scans no space, and a batch of documents, whatever it
        // was refused for, is read again.
        loop {
            let rows = self.inner.store.scan(space, after.as_ref(), BATCH_ROWS).await?;
            let Some((last, _)) = rows.last() else { break };
            let last = last.clone();
            let mut unit = Unit::default();
            for (key, row) in &rows {
                add(&mut unit, (collection, further), key, row)?;
            }
            match self.inner.store.commit(unit).await {
                Ok(_) => {
                    rebuilt += rows.len() as u64;
                    after = Some(last);
                    attempts = 0;
                }
                Err(CommitError::Rejected(_)) if attempts < ATTEMPTS_MAX => attempts += 1,
                Err(error) => return Err(error.into()),
            }
        }
        tracing::info!(space = space.as_str(), rebuilt, "index entries were built");
        Ok(())
    }
}

/// The collections of `next` that declare what `former` did not.
pub(super) fn further_indexed<'n>(
    former: Option<&Manifest>,
    next: &'n Manifest,
) -> impl Iterator<Item = &'n Collection> {
    next.collections.iter().filter(move |collection| {
        let old = former.into_iter().flat_map(|former| &former.collections);
        old.filter(|old| old.name == collection.name).any(|old| {
            collection.indexes.iter().any(|index| !old.indexes.contains(index))
                || collection.searchable.iter().any(|field| !old.searchable.contains(field))
        })
    })
}

/// The write that gives a document its entries, if it lacks any.
fn add(
    unit: &mut Unit,
    (collection, further): (&Collection, &Further),
    key: &Key,
    row: &Row,
) -> Result<(), LifeCycleError> {
    let body: Value = serde_json::from_str(&row.body).unwrap_or_default();
    let entries = index::entries_beside(collection, further, &body).map_err(|wrong| {
        LifeCycleError::Unfit(vec![fault(format!(
            "the document {} does not fit the new index: {wrong}",
            key.id
        ))])
    })?;
    if entries.index == row.index && entries.text == row.text {
        return Ok(());
    }
    let draft = Draft {
        user: row.user.clone(),
        body: row.body.clone(),
        index: entries.index,
        unique: row.unique.clone(),
        text: entries.text,
        ..Draft::default()
    };
    unit.guards.push(Guard::Version { key: key.clone(), version: Some(row.version) });
    unit.writes.push(Write::Replace { key: key.clone(), draft, expected: Some(row.version) });
    Ok(())
}
