//! An audit log for somebody who is not here: one line that says what it is, then a line a row.
//!
//! A line has the leaf as the exact text whose hash is in the tree, so that whoever verifies needs
//! no rules of writing JSON.

use std::time::Duration;

use bytes::Bytes;
use charter_kernel::merkle;
use charter_kernel::refusal::Refusal;
use charter_kernel::unit::FactKind;
use charter_store::{PAGE_ROWS_MAX, SequencedFact};
use charter_tenancy::stored::reading;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::mpsc;

use super::{Log, Sealed, text};

/// The format that the first line names.
pub const FORMAT: &str = "charter-audit/1";
/// Checkpoints of one export: between two of them a fault can be located.
const CHECKPOINTS_MAX: u32 = 200;
/// Rows read at once.
const STEP: u32 = 200;
/// How long a reader may take nothing.
const PATIENCE: Duration = Duration::from_secs(30);

/// The first line.
#[derive(Debug, Serialize, Deserialize)]
pub struct Head {
    /// [`FORMAT`].
    pub format: String,
    /// The log.
    pub origin: String,
    /// `name+id+key`: what verifies the checkpoints.
    pub public_key: String,
    /// Rows that lie before the first one here.
    pub after: u64,
    /// Roots of the complete subtrees of those, largest first.
    pub frontier: Vec<String>,
    /// Signed notes, oldest first; the last one is of all rows.
    pub checkpoints: Vec<String>,
}

/// A row's line.
#[derive(Debug, Serialize, Deserialize)]
pub struct Line {
    /// Its number, from 1 on.
    pub seq: u64,
    /// The leaf's hash.
    pub hash: String,
    /// The public half, whose hash it is.
    pub leaf: String,
    /// The private half; absent where it was erased.
    pub private: Option<String>,
}

impl Line {
    /// The line of a row.
    pub fn of(row: SequencedFact) -> Self {
        let hash = text::base64(&merkle::leaf(row.fact.body.as_bytes()));
        Self { seq: row.sequence, hash, leaf: row.fact.body, private: row.fact.private }
    }
}

fn line<T: Serialize>(value: &T) -> String {
    let mut text = serde_json::to_string(value).unwrap_or_default();
    text.push('\n');
    text
}

/// Room for a page, which its text takes up until it is dropped.
pub type Fill = Box<dyn FnOnce(String) -> Bytes + Send>;

/// An export that is about to be written.
#[derive(Debug)]
pub struct Export {
    log: Log,
    head: Head,
    to: u64,
}

impl Log {
    /// Everything after the first `after` rows, up to a checkpoint of now.
    ///
    /// # Errors
    /// 400 for more rows than there are.
    pub async fn export(&self, after: u64) -> Result<Export, Refusal> {
        let sealed = self.checkpoint().await?;
        if after > sealed.size {
            return Err(Refusal::invalid("after", format!("the log has {} rows", sealed.size)));
        }
        let mut notes: Vec<Sealed> = self.newest(CHECKPOINTS_MAX).await?;
        notes.retain(|found| found.size > after && found.size < sealed.size);
        notes.reverse();
        let checkpoints = notes.into_iter().map(|found| found.note).chain([sealed.note]).collect();
        let frontier = self.subtrees(&(0..after)).await?.iter().map(text::base64).collect();
        let (format, origin, public_key) =
            (FORMAT.to_owned(), self.origin(), self.verifier().text());
        let head = Head { format, origin, public_key, after, frontier, checkpoints };
        Ok(Export { log: self.clone(), head, to: sealed.size })
    }
}

impl Export {
    /// Writes it piece by piece, until all is written or the reader is gone, or takes nothing for
    /// too long, or may read no more, which is asked before each page of rows. A page is read once
    /// the one before is taken and there is room for it.
    pub async fn write<F, G>(
        self,
        pieces: mpsc::Sender<Bytes>,
        may_read: impl Fn() -> F + Send + Sync,
        room: impl Fn() -> G + Send + Sync,
    ) where
        F: Future<Output = bool> + Send,
        G: Future<Output = Fill> + Send,
    {
        let slot = async || tokio::time::timeout(PATIENCE, pieces.reserve()).await.ok()?.ok();
        let mut at = self.head.after;
        let Some(first) = slot().await else { return };
        first.send(line(&self.head).into());
        while at < self.to {
            let Some(slot) = slot().await else { return };
            let fill = tokio::select! {
                () = pieces.closed() => return,
                fill = room() => fill,
            };
            if !may_read().await {
                return;
            }
            let limit = u32::try_from(self.to - at).unwrap_or(STEP).min(STEP.min(PAGE_ROWS_MAX));
            let rows = self
                .log
                .store
                .facts(FactKind::Audit, &self.log.organization, at, limit)
                .await
                .map_err(reading);
            // A reader finds out that an export ended early: the checkpoint says how many rows
            // there are.
            let Ok(rows) = rows else { return };
            let Some(last) = rows.last() else { return };
            at = last.sequence;
            slot.send(fill(rows.into_iter().map(|row| line(&Line::of(row))).collect()));
        }
    }
}

/// A leaf's member.
pub(super) fn member(leaf: &str, name: &str) -> Option<String> {
    let leaf: Value = serde_json::from_str(leaf).ok()?;
    leaf.get(name).and_then(Value::as_str).map(str::to_owned)
}
