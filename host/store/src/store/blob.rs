//! Component binaries by digest, in parts of a megabyte. They are written once and never changed,
//! so they need no committer: a blob is complete or absent because all of its parts are one
//! transaction.

use super::Store;
use crate::connection::reading;
use crate::error::{CommitError, ReadError};
use crate::sql::{query, run};

/// Bytes of the largest blob.
pub const BLOB_BYTES_MAX: usize = 128 * 1024 * 1024;
/// Bytes of one part.
const PART_BYTES: usize = 1024 * 1024;

impl Store {
    /// Keeps bytes under their digest; doing it again changes nothing.
    pub async fn blob_put(&self, digest: &str, bytes: &[u8]) -> Result<(), CommitError> {
        if bytes.len() > BLOB_BYTES_MAX {
            return Err(CommitError::Failed);
        }
        self.inner.committer.admits()?;
        let (database, digest) = (self.inner.database.clone(), digest.to_owned());
        let parts: Vec<_> = bytes.chunks(PART_BYTES).map(<[u8]>::to_vec).collect();
        let kept = self.inner.database.apart(async move {
            let mut connection = database.writer().await?;
            database.answer(run(&mut connection, database.dialect.begin())).await?;
            let sql =
                database.dialect.sql("INSERT INTO blobs (digest, part, bytes) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING");
            for (n, part) in parts.into_iter().enumerate() {
                let put = query(sql.clone()).bind(digest.as_str()).bind(n as i64).bind(part);
                database.answer(put.execute(&mut connection)).await?;
            }
            database.answer(run(&mut connection, "COMMIT")).await
        });
        kept.await.map_err(|error: sqlx::Error| write_failure(&error))
    }

    /// The bytes of a digest.
    pub async fn blob_get(&self, digest: &str) -> Result<Option<Vec<u8>>, ReadError> {
        let sql = self
            .inner
            .database
            .dialect
            .sql("SELECT bytes FROM blobs WHERE digest = $1 ORDER BY part");
        let rows = reading(query(sql).bind(digest.to_owned()).fetch_all(self.readers())).await?;
        if rows.is_empty() {
            return Ok(None);
        }
        let parts =
            rows.iter().map(|row| row.try_get::<Vec<u8>>(0)).collect::<sqlx::Result<Vec<_>>>();
        Ok(Some(parts.map_err(|error| ReadError::Failed(Some(error)))?.concat()))
    }

    /// Whether the bytes are here.
    pub async fn blob_exists(&self, digest: &str) -> Result<bool, ReadError> {
        let sql = self
            .inner
            .database
            .dialect
            .sql("SELECT part FROM blobs WHERE digest = $1 AND part = 0");
        Ok(reading(query(sql).bind(digest.to_owned()).fetch_optional(self.readers()))
            .await?
            .is_some())
    }

    /// Forgets the bytes of a digest; false where there are none.
    pub async fn blob_remove(&self, digest: &str) -> Result<bool, CommitError> {
        self.inner.committer.admits()?;
        let (database, digest) = (self.inner.database.clone(), digest.to_owned());
        let removed = self.inner.database.apart(async move {
            let mut connection = database.writer().await?;
            let gone = query(database.dialect.sql("DELETE FROM blobs WHERE digest = $1"));
            database.answer(gone.bind(digest).execute(&mut connection)).await
        });
        removed.await.map(|rows| rows > 0).map_err(|error: sqlx::Error| write_failure(&error))
    }
}

fn write_failure(error: &sqlx::Error) -> CommitError {
    tracing::error!(
        error = error as &dyn std::error::Error,
        "a component's bytes could not be written"
    );
    CommitError::Failed
}
