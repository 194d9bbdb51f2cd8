//! `streams`: append-only logs of the caller's scope, named by the primitive.

use charter_kernel::limits::UNIT_BYTES_MAX;
use charter_kernel::manifest::CollectionReach;
use charter_kernel::unit::LogKey;

use crate::bindings::charter::primitive::streams::{Entry, Host};
use crate::bindings::charter::primitive::types::Failure;
use crate::failure::{failure, invalid, unread};
use crate::state::{State, Work};

/// Entries of one read.
const READ_MAX: u32 = 1_000;
/// Bytes of a log's name.
const NAME_BYTES_MAX: usize = 200;

impl Work {
    /// The log of that name in the narrowest reach of the caller.
    pub(crate) fn log(&self, name: &str) -> Result<LogKey, Failure> {
        if name.is_empty() || name.len() > NAME_BYTES_MAX || name.contains('\0') {
            return Err(
                invalid("log", format!("a log's name has 1 to {NAME_BYTES_MAX} bytes")).into()
            );
        }
        let narrowest =
            [CollectionReach::User, CollectionReach::Project, CollectionReach::Organization];
        let reach = narrowest.into_iter().find_map(|reach| self.call.scope.reach(reach));
        let reach = reach.ok_or_else(|| {
            failure("invalid_input", "a log needs a caller that belongs to an organization")
        })?;
        Ok(LogKey { reach, log: format!("{}.{name}", self.component.manifest.name) })
    }
}

impl Host for State {
    async fn append(&mut self, log: String, name: String, payload: String) -> Result<(), Failure> {
        self.hold(log.len() + name.len() + payload.len())?;
        let work = self.mutation()?;
        let log = work.log(&log)?;
        super::check_key("name", &name)?;
        if name.is_empty() {
            return Err(invalid("name", "an entry has a name").into());
        }
        // A text becomes many times as large as a value.
        if payload.len() > UNIT_BYTES_MAX {
            let told = format!("an entry's payload has at most {UNIT_BYTES_MAX} bytes");
            return Err(failure("payload_too_large", told).into());
        }
        super::events::json("payload", &payload)?;
        work.txn.append(&log, &name, payload);
        Ok(())
    }

    async fn read(&mut self, log: String, after: u64, limit: u32) -> Result<Vec<Entry>, Failure> {
        self.make_room()?;
        let work = self.work()?;
        let log = work.log(&log)?;
        let page = work
            .txn
            .log_read(&log, after, limit.clamp(1, READ_MAX))
            .await
            .map_err(|error| unread(&error))?;
        self.hold(page.entries.iter().map(|entry| entry.payload.len()).sum())?;
        let entry = |entry: charter_store::LogEntry| Entry {
            sequence: entry.sequence,
            at: entry.at.0,
            name: entry.name,
            payload: entry.payload,
        };
        Ok(page.entries.into_iter().map(entry).collect())
    }

    async fn head(&mut self, log: String) -> Result<u64, Failure> {
        let work = self.work()?;
        let log = work.log(&log)?;
        Ok(work.txn.log_head(&log).await.map_err(|error| unread(&error))?.head)
    }

    async fn close(&mut self, log: String) -> Result<(), Failure> {
        self.hold(log.len())?;
        let work = self.mutation()?;
        let log = work.log(&log)?;
        work.txn.close(&log);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
