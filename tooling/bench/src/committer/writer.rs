//! The writer that the committer is compared with: it keeps the same rows in tables of the same
//! shape (the document, its space's revision, the log's head and its entry), reads what it must
//! know, as the committer does, and spends a transaction on each unit.

use std::path::Path;

use anyhow::{Context, Result};
use charter_kernel::time::Clock as _;
use rusqlite::OptionalExtension;
use sqlx::postgres::PgRow;
use sqlx::{Connection, PgConnection, Row};
use tokio::sync::{Mutex, mpsc, oneshot};

use super::{body, organization};
use crate::clock::Wall;

/// Connections on PostgreSQL.
const CONNECTIONS: u64 = 32;
/// Attempts at a unit that another connection came before.
const ATTEMPTS_MAX: u32 = 32;

const READ_ROW: &str = "SELECT version, stamp, created_at FROM one_documents WHERE reach = $1 AND space = 'bench.rows' AND id = 'row'";
const READ_SPACE: &str =
    "SELECT revision FROM one_revisions WHERE reach = $1 AND space = 'bench.rows'";
const READ_LOG: &str = "SELECT head FROM one_logs WHERE reach = $1 AND log = 'bench.log'";
const PUT_ROW: &str = "INSERT INTO one_documents (reach, space, id, organization, body, entries, version, stamp, created_at, updated_at) \
     VALUES ($1, 'bench.rows', 'row', $2, $3, '', $4, $5, $6, $6) ON CONFLICT (reach, space, id) DO UPDATE SET \
     version = excluded.version, stamp = excluded.stamp, body = excluded.body, updated_at = excluded.updated_at";
const PUT_SPACE: &str = "INSERT INTO one_revisions (reach, space, revision, was) VALUES ($1, 'bench.rows', $2, 0) \
     ON CONFLICT (reach, space) DO UPDATE SET revision = excluded.revision";
const PUT_LOG: &str = "INSERT INTO one_logs (reach, log, head, was, closed) VALUES ($1, 'bench.log', $2, 0, 0) \
     ON CONFLICT (reach, log) DO UPDATE SET head = excluded.head";
const ADD_ENTRY: &str = "INSERT INTO one_log_entries (reach, log, sequence, at, name, payload) \
     VALUES ($1, 'bench.log', $2, $3, 'put', '{}')";
const TABLES: [&str; 4] = ["documents", "revisions", "logs", "log_entries"];

/// A unit that waits for SQLite's one writer, and its answer.
type Waiting = (bool, u64, oneshot::Sender<rusqlite::Result<()>>);

/// A writer that spends a transaction on each unit.
pub(super) enum Writer {
    /// SQLite has one writer: a thread that takes one unit after another, and answers it when it is
    /// on disk.
    Alone(mpsc::Sender<Waiting>),
    /// As many connections as there are units in flight.
    Together(Vec<Mutex<PgConnection>>),
}

impl Writer {
    /// Opens it beside the store's own database, with tables of the same shape.
    pub(super) async fn open(address: Option<&str>, folder: &Path) -> Result<Self> {
        match address {
            Some(address) => Self::together(address).await,
            None => Self::alone(folder),
        }
    }

    fn alone(folder: &Path) -> Result<Self> {
        // The store's own tables, renamed, in a file beside its own.
        let schema = rusqlite::Connection::open(folder.join("charter.db"))?;
        let connection = rusqlite::Connection::open(folder.join("one_by_one.db"))?;
        connection.execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL")?;
        for table in TABLES {
            let sql = "SELECT sql FROM sqlite_schema WHERE tbl_name = $1 AND sql IS NOT NULL ORDER BY type DESC";
            let mut statement = schema.prepare(sql)?;
            for sql in statement.query_map([table], |row| row.get::<_, String>(0))? {
                let renamed =
                    sql?.replacen(&format!("TABLE {table} "), &format!("TABLE one_{table} "), 1);
                let renamed =
                    renamed.replace(&format!(" ON {table} "), &format!(" ON one_{table} "));
                connection.execute_batch(&renamed)?;
            }
        }
        let (units, mut waiting) = mpsc::channel::<Waiting>(1_024);
        std::thread::spawn(move || {
            while let Some((hot, n, answer)) = waiting.blocking_recv() {
                // Nobody waits any more once the race is over.
                drop(answer.send(write_alone(&connection, hot, n)));
            }
        });
        Ok(Self::Alone(units))
    }

    async fn together(address: &str) -> Result<Self> {
        let mut connections = Vec::new();
        for _ in 0..CONNECTIONS {
            connections.push(Mutex::new(PgConnection::connect(address).await?));
        }
        for table in TABLES {
            let sql = format!(
                "DROP TABLE IF EXISTS one_{table}; CREATE TABLE one_{table} (LIKE {table} INCLUDING ALL)"
            );
            let mut first = connections[0].lock().await;
            sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(&mut *first).await?;
        }
        Ok(Self::Together(connections))
    }

    /// Writes one unit; it is on disk then.
    pub(super) async fn write(&self, task: u64, hot: bool, n: u64) -> Result<()> {
        match self {
            Self::Alone(units) => {
                let (answer, answered) = oneshot::channel();
                units.send((hot, n, answer)).await.context("the writer has ended")?;
                Ok(answered.await??)
            }
            Self::Together(connections) => {
                let mut connection = connections[task as usize % connections.len()].lock().await;
                let mut attempts = 0;
                while let Err(error) = write_together(&mut connection, hot, n).await {
                    sqlx::raw_sql("ROLLBACK").execute(&mut *connection).await?;
                    attempts += 1;
                    if attempts == ATTEMPTS_MAX || !came_too_late(&error) {
                        return Err(error.into());
                    }
                }
                Ok(())
            }
        }
    }
}

fn write_alone(connection: &rusqlite::Connection, hot: bool, n: u64) -> rusqlite::Result<()> {
    let organization = organization(hot, n);
    let reach = format!("o/{organization}");
    let now = Wall.now().0;
    connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
    let three = |row: &rusqlite::Row<'_>| {
        Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?, row.get::<_, i64>(2)?))
    };
    let row = connection.prepare_cached(READ_ROW)?.query_row([&reach], three).optional()?;
    let one = |sql| {
        connection.prepare_cached(sql)?.query_row([&reach], |row| row.get::<_, i64>(0)).optional()
    };
    let (revision, head) = (one(READ_SPACE)?.unwrap_or(0) + 1, one(READ_LOG)?.unwrap_or(0) + 1);
    let (version, _, created) = row.unwrap_or((0, 0, now));
    connection.prepare_cached(PUT_ROW)?.execute((
        &reach,
        &organization,
        body(n),
        version + 1,
        revision,
        created,
    ))?;
    connection.prepare_cached(PUT_SPACE)?.execute((&reach, revision))?;
    connection.prepare_cached(PUT_LOG)?.execute((&reach, head))?;
    connection.prepare_cached(ADD_ENTRY)?.execute((&reach, head, now))?;
    connection.prepare_cached("COMMIT")?.execute([]).map(drop)
}

async fn write_together(connection: &mut PgConnection, hot: bool, n: u64) -> sqlx::Result<()> {
    let organization = organization(hot, n);
    let reach = format!("o/{organization}");
    let now = Wall.now().0;
    sqlx::raw_sql("BEGIN").execute(&mut *connection).await?;
    let locked = |sql: &str| sqlx::AssertSqlSafe(format!("{sql} FOR NO KEY UPDATE"));
    let row = sqlx::query(locked(READ_ROW)).bind(&reach).fetch_optional(&mut *connection).await?;
    let revision =
        sqlx::query(locked(READ_SPACE)).bind(&reach).fetch_optional(&mut *connection).await?;
    let head = sqlx::query(locked(READ_LOG)).bind(&reach).fetch_optional(&mut *connection).await?;
    let number = |row: &Option<PgRow>, n: usize| row.as_ref().map_or(0, |row| row.get::<i64, _>(n));
    let (version, created) =
        (number(&row, 0) + 1, if row.is_some() { number(&row, 2) } else { now });
    let (revision, head) = (number(&revision, 0) + 1, number(&head, 0) + 1);
    let put = sqlx::query(PUT_ROW)
        .bind(&reach)
        .bind(&organization)
        .bind(body(n))
        .bind(version)
        .bind(revision)
        .bind(created);
    put.execute(&mut *connection).await?;
    sqlx::query(PUT_SPACE).bind(&reach).bind(revision).execute(&mut *connection).await?;
    sqlx::query(PUT_LOG).bind(&reach).bind(head).execute(&mut *connection).await?;
    sqlx::query(ADD_ENTRY).bind(&reach).bind(head).bind(now).execute(&mut *connection).await?;
    sqlx::raw_sql("COMMIT").execute(&mut *connection).await.map(drop)
}

/// Whether another connection made a row first that this one had found absent: a second entry of
/// one number, or each waits for the other.
fn came_too_late(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(|error| error.code());
    code.is_some_and(|code| ["23505", "40P01"].contains(&code.as_ref()))
}
