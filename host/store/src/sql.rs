//! One way to ask either database: a statement with what is bound to it, and rows.
//!
//! The only file, with those beside it, that knows the drivers. SQLite is asked in place, on the
//! caller's thread: most reads take some microseconds, and handing one to another thread and back
//! costs several times that. It must not know what the statements are about.

mod postgres;
mod seats;
mod sqlite;

use rusqlite::types::Value as Cell;
use sqlx::postgres::PgRow;
use sqlx::{Postgres, Row as _, SqlSafeStr, SqlStr};

use crate::dialect::PAGE_ROWS;

pub(crate) use postgres::{PostgresConnection, PostgresPool};
#[cfg(test)]
pub(crate) use sqlite::Fault;
pub(crate) use sqlite::{SqliteConnection, SqlitePool};

/// Milliseconds that a read may take before the database or the store gives it up: no read may hold
/// up checkpoints for ever.
pub(crate) const READ_MS_MAX: u64 = 10_000;

/// A value for a place of a statement.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Text(Option<String>),
    Number(Option<i64>),
    Bytes(Vec<u8>),
    /// A column of texts, for PostgreSQL.
    Texts(Vec<Option<String>>),
    /// A column of numbers, for PostgreSQL.
    Numbers(Vec<Option<i64>>),
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(Some(text.to_owned()))
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(Some(text))
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Number(Some(number))
    }
}

impl From<Vec<u8>> for Value {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Bytes(bytes)
    }
}

/// The same, borrowed, for a statement that runs over many rows in place.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Lent<'a> {
    Text(Option<&'a str>),
    Number(Option<i64>),
}

/// A statement and what is bound to it.
#[derive(Clone, Debug)]
pub(crate) struct Query {
    sql: SqlStr,
    values: Vec<Value>,
    kept: bool,
    long: bool,
}

/// A statement without anything bound to it yet. It stays prepared.
pub(crate) fn query(sql: impl SqlSafeStr) -> Query {
    Query { sql: sql.into_sql_str(), values: Vec::new(), kept: true, long: false }
}

impl Query {
    /// Binds the next place.
    pub(crate) fn bind(mut self, value: impl Into<Value>) -> Self {
        self.values.push(value.into());
        self
    }

    /// Of a text that will not come again: not worth keeping prepared.
    pub(crate) fn fleeting(mut self) -> Self {
        self.kept = false;
        self
    }

    /// Known to take its time: not tried on the runtime's thread first.
    pub(crate) fn long(mut self) -> Self {
        self.long = true;
        self
    }

    /// All rows.
    pub(crate) async fn fetch_all(self, on: impl Ask) -> sqlx::Result<Vec<Row>> {
        on.rows(self).await
    }

    /// The first rows, as many as [`PAGE_BYTES_MAX`](crate::query::PAGE_BYTES_MAX) hold, and at least one. On PostgreSQL the
    /// statement sees to it itself: its text begins with `{within:…}`.
    pub(crate) async fn fetch_page(self, on: impl Ask) -> sqlx::Result<Filled> {
        on.page(self).await
    }

    /// The first row, if there is any.
    pub(crate) async fn fetch_optional(self, on: impl Ask) -> sqlx::Result<Option<Row>> {
        Ok(on.rows(self).await?.into_iter().next())
    }

    /// The first row, which is there.
    pub(crate) async fn fetch_one(self, on: impl Ask) -> sqlx::Result<Row> {
        self.fetch_optional(on).await?.ok_or(sqlx::Error::RowNotFound)
    }

    /// Runs it; says how many rows it changed.
    pub(crate) async fn execute(self, on: &mut Connection) -> sqlx::Result<u64> {
        match on {
            Connection::Sqlite(connection) => connection.execute(&self),
            Connection::Postgres(connection) => connection.execute(self).await,
        }
    }
}

/// Statements without parameters and without answers: settings, transactions, migrations.
pub(crate) async fn run(on: &mut Connection, sql: impl SqlSafeStr) -> sqlx::Result<()> {
    let sql = sql.into_sql_str();
    match on {
        Connection::Sqlite(connection) => connection.run(sql.as_str()),
        Connection::Postgres(connection) => connection.run(sql).await,
    }
}

/// A source of rows.
pub(crate) trait Ask {
    fn rows(self, query: Query) -> impl Future<Output = sqlx::Result<Vec<Row>>> + Send;
    fn page(self, query: Query) -> impl Future<Output = sqlx::Result<Filled>> + Send;
}

/// Rows that fit into a page's bytes.
#[derive(Default)]
pub(crate) struct Filled {
    pub(crate) rows: Vec<Row>,
    /// Whether there are more, for which there was no room.
    pub(crate) cut: bool,
}

impl Filled {
    /// Of a statement that says in each row how many there would have been.
    fn of(rows: Vec<Row>) -> sqlx::Result<Self> {
        let found: i64 = match rows.first() {
            Some(Row::Postgres(row)) => row.try_get(PAGE_ROWS)?,
            _ => 0,
        };
        Ok(Self { cut: found > rows.len() as i64, rows })
    }
}

/// A connection to either database. SQLite's keeps its thread busy for as long as a statement
/// takes.
pub(crate) enum Connection {
    Sqlite(SqliteConnection),
    Postgres(PostgresConnection),
}

impl Ask for &mut Connection {
    async fn rows(self, query: Query) -> sqlx::Result<Vec<Row>> {
        match self {
            Connection::Sqlite(connection) => connection.rows(&query),
            Connection::Postgres(connection) => connection.rows(query).await,
        }
    }

    async fn page(self, query: Query) -> sqlx::Result<Filled> {
        match self {
            Connection::Sqlite(connection) => connection.page(&query),
            Connection::Postgres(connection) => Filled::of(connection.rows(query).await?),
        }
    }
}

/// Connections that only read. Cheap to clone.
#[derive(Clone)]
pub(crate) enum Pool {
    Sqlite(SqlitePool),
    Postgres(PostgresPool),
}

impl Pool {
    pub(crate) async fn close(&self) {
        match self {
            Self::Sqlite(pool) => pool.close(),
            Self::Postgres(pool) => pool.close().await,
        }
    }

    /// Those to SQLite.
    pub(crate) fn of_sqlite(&self) -> Option<&SqlitePool> {
        match self {
            Self::Sqlite(pool) => Some(pool),
            Self::Postgres(_) => None,
        }
    }
}

/// The connections, as an organization asks them: long reads wait for places of its own. The host's
/// own reads name none.
#[derive(Clone, Copy)]
pub(crate) struct Asker<'a> {
    pub(crate) pool: &'a Pool,
    pub(crate) organization: &'a str,
}

impl Ask for Asker<'_> {
    async fn rows(self, query: Query) -> sqlx::Result<Vec<Row>> {
        match self.pool {
            Pool::Sqlite(pool) => pool.rows(query, self.organization).await,
            Pool::Postgres(pool) => pool.rows(query, self.organization).await,
        }
    }

    async fn page(self, query: Query) -> sqlx::Result<Filled> {
        match self.pool {
            Pool::Sqlite(pool) => pool.page(query, self.organization).await,
            Pool::Postgres(pool) => Filled::of(pool.rows(query, self.organization).await?),
        }
    }
}

impl Ask for &Pool {
    async fn rows(self, query: Query) -> sqlx::Result<Vec<Row>> {
        Asker { pool: self, organization: "" }.rows(query).await
    }

    async fn page(self, query: Query) -> sqlx::Result<Filled> {
        Asker { pool: self, organization: "" }.page(query).await
    }
}

/// A row of an answer.
pub(crate) enum Row {
    Sqlite(Vec<Cell>),
    Postgres(PgRow),
}

impl Row {
    /// The value of a column, counted from 0.
    pub(crate) fn try_get<T: Column>(&self, n: usize) -> sqlx::Result<T> {
        match self {
            Self::Sqlite(cells) => cells.get(n).and_then(T::of).ok_or_else(|| unfit(n)),
            Self::Postgres(row) => row.try_get(n),
        }
    }

    /// A text that nobody asks for again.
    pub(crate) fn take_text(&mut self, n: usize) -> sqlx::Result<String> {
        match self {
            Self::Sqlite(cells) => {
                match cells.get_mut(n).map(|cell| std::mem::replace(cell, Cell::Null)) {
                    Some(Cell::Text(text)) => Ok(text),
                    _ => Err(unfit(n)),
                }
            }
            Self::Postgres(row) => row.try_get(n),
        }
    }
}

fn unfit(n: usize) -> sqlx::Error {
    sqlx::Error::ColumnDecode {
        index: n.to_string(),
        source: "the column is missing or of another type".into(),
    }
}

/// A type that a column can be read as.
pub(crate) trait Column: for<'r> sqlx::Decode<'r, Postgres> + sqlx::Type<Postgres> {
    fn of(cell: &Cell) -> Option<Self>;
}

impl Column for String {
    fn of(cell: &Cell) -> Option<Self> {
        match cell {
            Cell::Text(text) => Some(text.clone()),
            _ => None,
        }
    }
}

impl Column for i64 {
    fn of(cell: &Cell) -> Option<Self> {
        match cell {
            Cell::Integer(number) => Some(*number),
            _ => None,
        }
    }
}

impl Column for bool {
    fn of(cell: &Cell) -> Option<Self> {
        i64::of(cell).map(|number| number != 0)
    }
}

impl Column for Vec<u8> {
    fn of(cell: &Cell) -> Option<Self> {
        match cell {
            Cell::Blob(bytes) => Some(bytes.clone()),
            _ => None,
        }
    }
}

impl<T: Column> Column for Option<T>
where
    Option<T>: for<'r> sqlx::Decode<'r, Postgres> + sqlx::Type<Postgres>,
{
    fn of(cell: &Cell) -> Option<Self> {
        match cell {
            Cell::Null => Some(None),
            cell => T::of(cell).map(Some),
        }
    }
}
