//! Everything as of one moment: what a check of the whole reads, while others write.
//!
//! Holds a connection of its own for as long as it lives. Not for requests: it crosses tenants.

use charter_kernel::unit::{Key, LogKey, Row, Space};

use super::Store;
use super::log::entries;
use super::scan::rows_of;
use crate::connection::{Database, reading};
use crate::dialect::Dialect;
use crate::error::ReadError;
use crate::query::LogPage;
use crate::sql::{Connection, run};

/// A moment of the database.
pub struct Snapshot {
    dialect: Dialect,
    connection: Connection,
}

/// A connection that sees the database as it is now, whatever is committed later.
pub(crate) async fn standing_still(database: &Database) -> sqlx::Result<Connection> {
    let mut connection = database.reader().await?;
    let begin = match database.dialect {
        Dialect::Sqlite => "BEGIN",
        Dialect::Postgres => {
            "SET statement_timeout = 0; BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
        }
    };
    run(&mut connection, begin).await?;
    Ok(connection)
}

impl Store {
    /// The database as of the first read.
    pub async fn snapshot(&self) -> Result<Snapshot, ReadError> {
        let database = &self.inner.database;
        Ok(Snapshot {
            dialect: database.dialect,
            connection: reading(standing_still(database)).await?,
        })
    }
}

impl Snapshot {
    /// See [`Store::scan`].
    pub async fn scan(
        &mut self,
        space: &Space,
        after: Option<&Key>,
        limit: u32,
    ) -> Result<Vec<(Key, Row)>, ReadError> {
        rows_of(&mut self.connection, self.dialect, space, after, limit).await
    }

    /// See [`Store::log_read`].
    pub async fn log_read(
        &mut self,
        log: &LogKey,
        after: u64,
        limit: u32,
    ) -> Result<LogPage, ReadError> {
        entries(&mut self.connection, self.dialect, log, after, limit).await
    }
}
