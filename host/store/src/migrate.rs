//! Brings the schema up to date, once, under a lock.
//!
//! Each migration is recorded with its digest. A database that a newer binary has migrated is
//! refused: this one would not know what it must keep.

use std::cmp::Ordering;

use sha2::{Digest, Sha256};
use sqlx::AssertSqlSafe;

use crate::connection::Database;
use crate::dialect::Dialect;
use crate::error::OpenError;
use crate::sql::{self, Connection, query};

/// Number, name and text, in order. Numbers are never given twice; texts never change once
/// released.
const MIGRATIONS: &[(i64, &str, &str)] = &[
    (1, "rows", include_str!("../../../migrations/0001_rows.sql")),
    (2, "logs, facts, blobs", include_str!("../../../migrations/0002_logs_facts_blobs.sql")),
    (3, "the age of events", include_str!("../../../migrations/0003_facts_age.sql")),
    (
        4,
        "the private half of audit rows",
        include_str!("../../../migrations/0004_facts_private.sql"),
    ),
    (5, "holds beside each other", include_str!("../../../migrations/0005_books.sql")),
    (6, "entries by row", include_str!("../../../migrations/0006_log_entries.sql")),
    (7, "grants by their users", include_str!("../../../migrations/0007_grants_by_user.sql")),
];

/// The key of PostgreSQL's advisory lock: "charter" as bytes.
const LOCK: i64 = 0x63_68_61_72_74_65_72;

/// The schema this binary knows.
pub(crate) fn newest() -> i64 {
    MIGRATIONS.last().map_or(0, |(number, ..)| *number)
}

/// Whether the database was ever migrated, by whichever version.
pub(crate) async fn is_migrated(database: &Database) -> Result<bool, OpenError> {
    let mut connection = database.reader().await.map_err(OpenError::Database)?;
    let table = match database.dialect {
        Dialect::Sqlite => {
            "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'migrations'"
        }
        Dialect::Postgres => {
            "SELECT 1 FROM pg_tables WHERE schemaname = ANY (current_schemas(false)) AND tablename = 'migrations'"
        }
    };
    let found = query(table).fetch_all(&mut connection).await.map_err(OpenError::Database)?;
    Ok(!found.is_empty())
}

/// Refuses a database of another schema than this binary's, and changes nothing.
pub(crate) async fn check(database: &Database) -> Result<(), OpenError> {
    let mut connection = database.reader().await.map_err(OpenError::Database)?;
    let row =
        query("SELECT coalesce(max(number), 0) FROM migrations").fetch_one(&mut connection).await;
    let number: i64 = row.and_then(|row| row.try_get(0)).map_err(OpenError::Database)?;
    match number.cmp(&newest()) {
        Ordering::Equal => Ok(()),
        Ordering::Greater => Err(newer(number)),
        Ordering::Less => Err(OpenError::Configuration(format!(
            "the database has schema {number}, this binary knows {}: the next start of this version brings it up to date; until \
             then use the version that runs on it",
            newest()
        ))),
    }
}

pub(crate) async fn migrate(database: &Database) -> Result<(), OpenError> {
    let mut connection = begin(database).await?;
    bring_to(&mut connection, database.dialect, newest()).await?;
    run(&mut connection, "COMMIT").await
}

/// A connection whose transaction alone migrates the database.
pub(crate) async fn begin(database: &Database) -> Result<Connection, OpenError> {
    database.make_file()?;
    let mut connection = database.writer().await.map_err(OpenError::Database)?;
    if database.is_postgres() {
        // A migration of large tables takes the time it takes; so does waiting for another replica
        // that runs it, and for a backup whose file comes slowly.
        let patient = "SET statement_timeout = 0; SET lock_timeout = 0; SET idle_in_transaction_session_timeout = 0";
        run(&mut connection, patient).await?;
    }
    run(&mut connection, database.dialect.begin()).await?;
    if database.is_postgres() {
        let lock = format!("SELECT pg_advisory_xact_lock({LOCK})");
        run(&mut connection, &lock).await?;
    }
    Ok(connection)
}

/// Brings the schema to this number within the transaction: what else that writes is there with the
/// schema, or neither is. Answers the number that it has then, which may be a later one.
pub(crate) async fn bring_to(
    connection: &mut Connection,
    dialect: Dialect,
    schema: i64,
) -> Result<i64, OpenError> {
    let table = "CREATE TABLE IF NOT EXISTS migrations (number BIGINT PRIMARY KEY, name TEXT NOT NULL, digest TEXT NOT NULL)";
    run(connection, table).await?;
    let applied = query("SELECT number, digest FROM migrations ORDER BY number");
    let applied = applied.fetch_all(&mut *connection).await.map_err(OpenError::Database)?;
    for row in &applied {
        let number: i64 = row.try_get(0).map_err(OpenError::Database)?;
        let digest: String = row.try_get(1).map_err(OpenError::Database)?;
        match MIGRATIONS.iter().find(|(known, ..)| *known == number) {
            None => return Err(newer(number)),
            Some((_, name, text)) if digest_of(text) != digest => {
                return Err(OpenError::Configuration(format!(
                    "the database was made by another build: migration {number} ({name}) has another text there"
                )));
            }
            Some(_) => {}
        }
    }
    let missing = MIGRATIONS.iter().skip(applied.len());
    for (number, name, text) in missing.filter(|(number, ..)| *number <= schema) {
        tracing::info!(number, name, "migrating the database");
        run(connection, &dialect.words(text)).await?;
        let record = query("INSERT INTO migrations (number, name, digest) VALUES ($1, $2, $3)");
        let record = record.bind(*number).bind(*name).bind(digest_of(text));
        record.execute(&mut *connection).await.map_err(OpenError::Database)?;
    }
    let before = i64::try_from(applied.len()).unwrap_or(i64::MAX);
    Ok(before.max(schema))
}

fn newer(number: i64) -> OpenError {
    OpenError::Configuration(format!(
        "the database has schema {number}, this binary knows {}: a newer version has used it; run that version, or restore a backup",
        newest()
    ))
}

fn digest_of(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

async fn run(connection: &mut Connection, text: &str) -> Result<(), OpenError> {
    sql::run(connection, AssertSqlSafe(text)).await.map_err(OpenError::Database)
}
