//! Append-only, gap-free logs, served by the host as pages or event streams: answer
//! [`crate::Answer::follow`].

use serde::Serialize;
use serde_json::Value;

use crate::failure::Result;
use crate::host::streams as host;
use crate::time::Instant;

/// One entry of a log.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// From 1, without gaps.
    pub sequence: u64,
    /// When it was committed.
    pub at: Instant,
    /// The kind of entry.
    pub name: String,
    /// Its content.
    pub payload: Value,
}

/// Appends with the request's commit, which gives the sequence. Commutes.
pub fn append<T: Serialize>(log: &str, name: &str, payload: &T) -> Result<()> {
    Ok(host::append(log, name, &serde_json::to_string(payload)?)?)
}

/// Up to `limit` entries after a sequence, oldest first: fewer where a page's bytes are full. The
/// last one has come when [`head`] says its sequence.
pub fn read(log: &str, after: u64, limit: u32) -> Result<Vec<Entry>> {
    let entries = host::read(log, after, limit)?.into_iter();
    entries
        .map(|entry| {
            let payload = serde_json::from_str(&entry.payload)?;
            Ok(Entry {
                sequence: entry.sequence,
                at: Instant::from_ms(entry.at),
                name: entry.name,
                payload,
            })
        })
        .collect()
}

/// The last sequence given; 0 if there is none.
pub fn head(log: &str) -> Result<u64> {
    Ok(host::head(log)?)
}

/// Refuses every later append; a reader that has followed to the end is told so.
pub fn close(log: &str) -> Result<()> {
    Ok(host::close(log)?)
}
