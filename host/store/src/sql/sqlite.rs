//! SQLite through its driver, in place.
//!
//! Invariant: no read takes longer than [`READ_MS_MAX`], and none that takes long or copies much
//! keeps a thread of the runtime: a read that has not ended after a moment is given up and made
//! again on one of a few threads that give way to the others and have connections of their own.
//! These are places that organizations share: none waits for all of another's reads.

mod snapshot;

use std::borrow::Cow;
use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

use rusqlite::limits::Limit;
use rusqlite::types::{ToSql, ToSqlOutput, Value as Cell, ValueRef};
use rusqlite::{OpenFlags, Statement, ffi};
use sqlx::error::{DatabaseError, ErrorKind};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::Instant;

use self::snapshot::Snapshot;
use super::seats::Seats;
use super::{Filled, Lent, Query, READ_MS_MAX, Row, Value};
use crate::at_work;
use crate::lobby::Seat;
use crate::priority::give_way;
use crate::query::PAGE_BYTES_MAX;

/// Statements that a connection keeps prepared.
const KEPT_MAX: usize = 256;
/// How long a read may hold up the runtime's thread.
const IN_PLACE: Duration = Duration::from_millis(1);
/// How many bytes a read may copy there before its last row, and the longest value that it may read.
const IN_PLACE_BYTES: usize = 256 << 10;
/// Steps of SQLite's machine between looks at the time; about a tenth of a millisecond.
const STEPS: i32 = 2_000;
/// How long a statement waits for a lock, in looks: ten seconds.
const BUSY_LOOKS: i32 = 10_000;
/// The first of them come sooner: the committer waits while the log is begun anew, which takes some
/// milliseconds.
const BUSY_SOON: i32 = 100;
/// Result codes of reads that are not for in place: the statement was told to end, or came to a value
/// that is longer than it may be there.
const GIVEN_UP: [&str; 2] = ["9", "18"];

/// A connection of its own.
pub(crate) struct SqliteConnection {
    connection: rusqlite::Connection,
    /// When the running statement must end, in nanoseconds after `opened`; 0 for never.
    until: Arc<AtomicU64>,
    opened: Instant,
    snapshot: Snapshot,
}

impl SqliteConnection {
    pub(crate) fn open(file: &Path, words: &str) -> sqlx::Result<Self> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut connection = rusqlite::Connection::open_with_flags(file, flags).map_err(fault)?;
        connection.set_prepared_statement_cache_capacity(KEPT_MAX);
        connection.busy_handler(Some(wait)).map_err(fault)?;
        connection.execute_batch(words).map_err(fault)?;
        let (until, opened) = (Arc::new(AtomicU64::new(0)), Instant::now());
        let watched = until.clone();
        let late = move || {
            let until = watched.load(Ordering::Relaxed);
            until > 0 && opened.elapsed().as_nanos() as u64 > until
        };
        connection.progress_handler(STEPS, Some(late)).map_err(fault)?;
        Ok(Self { connection, until, opened, snapshot: Snapshot::default() })
    }

    /// For a connection that writes: those that read keep what they see until it has committed.
    pub(crate) fn tell_readers(mut self) -> sqlx::Result<Self> {
        snapshot::count_commits(&mut self.connection).map_err(fault)?;
        Ok(self)
    }

    /// Has its next reads see the database as it is now, and those behind it too until somebody
    /// commits, where that is kept.
    fn look(&self, keep: bool) -> sqlx::Result<()> {
        let look = if keep { Snapshot::renew } else { Snapshot::end };
        look(&self.snapshot, &self.connection).map_err(fault)
    }

    /// Has it give up at values that are longer, before it reads them.
    fn bound_values(self, bytes: usize) -> sqlx::Result<Self> {
        let bytes = i32::try_from(bytes).unwrap_or(i32::MAX);
        self.connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, bytes).map_err(fault)?;
        Ok(self)
    }

    pub(super) fn rows(&self, query: &Query) -> sqlx::Result<Vec<Row>> {
        self.fill(query, Bounds::default()).map(|filled| filled.rows)
    }

    pub(super) fn page(&self, query: &Query) -> sqlx::Result<Filled> {
        self.fill(query, Bounds { page: PAGE_BYTES_MAX, ..Bounds::default() })
    }

    fn fill(&self, query: &Query, bounds: Bounds) -> sqlx::Result<Filled> {
        self.with(query, |statement| {
            let mut filled = Filled::default();
            filled.cut = answer(statement, &mut filled.rows, bounds)?;
            Ok(filled)
        })
    }

    /// The rows of a statement that is run with each of these, all together: of each as many as fit
    /// into so many bytes.
    pub(crate) fn rows_each<'a, R>(
        &self,
        sql: &str,
        bound: impl IntoIterator<Item = R>,
        bytes_max: usize,
    ) -> sqlx::Result<Vec<Row>>
    where
        R: Iterator<Item = Lent<'a>>,
    {
        let mut all = Vec::new();
        let bounds = Bounds { page: bytes_max, ..Bounds::default() };
        self.each(sql, bound, |statement| answer(statement, &mut all, bounds).map(drop))?;
        Ok(all)
    }

    /// Runs a statement with each of these; says how many rows it changed.
    pub(crate) fn execute_each<'a, R>(
        &self,
        sql: &str,
        bound: impl IntoIterator<Item = R>,
    ) -> sqlx::Result<u64>
    where
        R: Iterator<Item = Lent<'a>>,
    {
        let mut changed = 0;
        self.each(sql, bound, |statement| {
            changed += statement.raw_execute()? as u64;
            Ok(())
        })?;
        Ok(changed)
    }

    /// Looks the statement up once.
    fn each<'a, R>(
        &self,
        sql: &str,
        bound: impl IntoIterator<Item = R>,
        mut run: impl FnMut(&mut Statement<'_>) -> rusqlite::Result<()>,
    ) -> sqlx::Result<()>
    where
        R: Iterator<Item = Lent<'a>>,
    {
        let work = |statement: &mut Statement<'_>| {
            let mut values = Vec::new();
            for row in bound {
                values.clear();
                values.extend(row);
                bind(statement, &values)?;
                run(statement)?;
            }
            Ok(())
        };
        self.connection
            .prepare_cached(sql)
            .and_then(|mut statement| work(&mut statement))
            .map_err(fault)
    }

    /// The same, and given up when it takes longer.
    fn fill_within(&self, query: &Query, bounds: Bounds, time: Duration) -> sqlx::Result<Filled> {
        self.until.store((self.opened.elapsed() + time).as_nanos() as u64, Ordering::Relaxed);
        let filled = self.fill(query, bounds);
        self.until.store(0, Ordering::Relaxed);
        filled
    }

    pub(super) fn execute(&self, query: &Query) -> sqlx::Result<u64> {
        self.with(query, |statement| statement.raw_execute()).map(|changed| changed as u64)
    }

    pub(super) fn run(&self, sql: &str) -> sqlx::Result<()> {
        self.connection.execute_batch(sql).map_err(fault)
    }

    fn with<T>(
        &self,
        query: &Query,
        work: impl FnOnce(&mut Statement<'_>) -> rusqlite::Result<T>,
    ) -> sqlx::Result<T> {
        let sql = query.sql.as_str();
        let work = |statement: &mut Statement<'_>| {
            bind(statement, &query.values)?;
            work(statement)
        };
        let done = if query.kept {
            self.connection.prepare_cached(sql).and_then(|mut statement| work(&mut statement))
        } else {
            self.connection.prepare(sql).and_then(|mut statement| work(&mut statement))
        };
        done.map_err(fault)
    }
}

/// Whether a statement goes on waiting for a lock, after so many looks.
fn wait(looks: i32) -> bool {
    std::thread::sleep(Duration::from_micros(if looks < BUSY_SOON { 200 } else { 1_000 }));
    looks < BUSY_LOOKS
}

fn bind<T: ToSql>(statement: &mut Statement<'_>, values: &[T]) -> rusqlite::Result<()> {
    // A place that nothing is bound to would be null.
    let places = statement.parameter_count();
    if values.len() != places {
        return Err(rusqlite::Error::InvalidParameterCount(values.len(), places));
    }
    for (n, value) in values.iter().enumerate() {
        statement.raw_bind_parameter(n + 1, value)?;
    }
    Ok(())
}

/// How many bytes an answer's rows may have.
#[derive(Clone, Copy)]
struct Bounds {
    /// It ends before the row that does not fit any more.
    page: usize,
    /// It is given up where there is a row behind these.
    patience: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { page: usize::MAX, patience: usize::MAX }
    }
}

/// Adds the rows that a statement answers with what is bound to it; says whether there are more
/// than the bounds admit.
fn answer(
    statement: &mut Statement<'_>,
    all: &mut Vec<Row>,
    bounds: Bounds,
) -> rusqlite::Result<bool> {
    let columns = statement.column_count();
    let mut rows = statement.raw_query();
    let mut bytes = 0_usize;
    while let Some(row) = rows.next()? {
        if bytes > bounds.patience {
            return Err(rusqlite::Error::SqliteFailure(
                ffi::Error::new(ffi::SQLITE_INTERRUPT),
                None,
            ));
        }
        let more: usize =
            (0..columns).map(|n| row.get_ref(n).map(bytes_of)).sum::<rusqlite::Result<_>>()?;
        if bytes > 0 && bytes.saturating_add(more) > bounds.page {
            return Ok(true);
        }
        bytes += more;
        let cell = |n| {
            let cell = Cell::try_from(row.get_ref(n)?);
            cell.map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))
        };
        all.push(Row::Sqlite((0..columns).map(cell).collect::<rusqlite::Result<_>>()?));
    }
    Ok(false)
}

fn bytes_of(cell: ValueRef<'_>) -> usize {
    match cell {
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => bytes.len(),
        ValueRef::Null | ValueRef::Integer(_) | ValueRef::Real(_) => 8,
    }
}

impl ToSql for Lent<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Text(Some(text)) => ValueRef::Text(text.as_bytes()),
            Self::Number(Some(number)) => ValueRef::Integer(*number),
            Self::Text(None) | Self::Number(None) => ValueRef::Null,
        }))
    }
}

impl ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Text(Some(text)) => ValueRef::Text(text.as_bytes()),
            Self::Number(Some(number)) => ValueRef::Integer(*number),
            Self::Text(None) | Self::Number(None) => ValueRef::Null,
            Self::Bytes(bytes) => ValueRef::Blob(bytes),
            Self::Texts(_) | Self::Numbers(_) => {
                return Err(rusqlite::Error::ToSqlConversionFailure("SQLite has no arrays".into()));
            }
        }))
    }
}

/// Connections that only read. Cheap to clone.
#[derive(Clone)]
pub(crate) struct SqlitePool(Arc<Readers>);

struct Readers {
    open: Box<dyn Fn() -> sqlx::Result<SqliteConnection> + Send + Sync>,
    idle: Mutex<Vec<SqliteConnection>>,
    /// Whether reads in place see what the one before on their connection saw, while nobody commits.
    keeps: AtomicBool,
    /// Reads in place. Nobody waits in the middle of one, so that they are as many as the threads.
    turns: Semaphore,
    idle_long: Mutex<Vec<LongReader>>,
    /// Reads that take their time, with threads and connections beside those.
    long: Seats,
}

/// A thread that gives way, with a connection of its own. It ends with the last of its senders.
struct LongReader(mpsc::Sender<LongRead>);

/// A read by such a thread.
struct LongRead {
    query: Query,
    bounds: Bounds,
    /// The caller may leave; the read goes on, and its place with it.
    seat: Seat,
    tell: oneshot::Sender<sqlx::Result<Filled>>,
    /// The thread itself, to be put back.
    reader: LongReader,
}

impl SqlitePool {
    /// At most so many connections for reads in place, and as many for long ones, of which one
    /// organization alone gets half, opened as they are needed.
    pub(crate) fn new(
        connections: u32,
        open: impl Fn() -> sqlx::Result<SqliteConnection> + Send + Sync + 'static,
    ) -> sqlx::Result<Self> {
        let first = open()?.bound_values(IN_PLACE_BYTES)?;
        Ok(Self(Arc::new(Readers {
            open: Box::new(open),
            idle: Mutex::new(vec![first]),
            keeps: AtomicBool::new(false),
            turns: Semaphore::new(connections as usize),
            idle_long: Mutex::default(),
            long: Seats::new(connections),
        })))
    }

    pub(super) async fn rows(&self, query: Query, organization: &str) -> sqlx::Result<Vec<Row>> {
        self.fill(query, Bounds::default(), organization).await.map(|filled| filled.rows)
    }

    pub(super) async fn page(&self, query: Query, organization: &str) -> sqlx::Result<Filled> {
        let bounds = Bounds { page: PAGE_BYTES_MAX, ..Bounds::default() };
        self.fill(query, bounds, organization).await
    }

    async fn fill(&self, query: Query, bounds: Bounds, organization: &str) -> sqlx::Result<Filled> {
        if !query.long {
            let filled = self.fill_in_place(&query, bounds).await;
            if !filled.as_ref().is_err_and(is_given_up) {
                return filled;
            }
        }
        let seat = self.0.long.take(organization).await?;
        if self.0.turns.is_closed() {
            return Err(sqlx::Error::PoolClosed);
        }
        let idle = lock(&self.0.idle_long).pop();
        let reader = idle.map_or_else(|| self.long_reader(), Ok)?;
        let (tell, told) = oneshot::channel();
        let thread = reader.0.clone();
        let _ = thread.send(LongRead { query, bounds, seat, tell, reader });
        at_work::wait(told).await.unwrap_or(Err(sqlx::Error::WorkerCrashed))
    }

    async fn fill_in_place(&self, query: &Query, bounds: Bounds) -> sqlx::Result<Filled> {
        let Ok(_turn) = self.0.turns.acquire().await else {
            return Err(sqlx::Error::PoolClosed);
        };
        let idle = lock(&self.0.idle).pop();
        let open = || (self.0.open)()?.bound_values(IN_PLACE_BYTES);
        let connection = idle.map_or_else(open, Ok)?;
        let in_place = Bounds { patience: IN_PLACE_BYTES, ..bounds };
        let keeps = || self.0.keeps.load(Ordering::SeqCst);
        connection.look(keeps())?;
        let filled = connection.fill_within(query, in_place, IN_PLACE);
        if !keeps() {
            connection.look(false)?;
        }
        self.put_back(&self.0.idle, connection);
        filled
    }

    /// Whether connections keep what they see from one read in place to the next, for as long as
    /// nobody commits. SQLite's log cannot begin anew while they do, so whoever sees to the log says
    /// when; and no other process may commit meanwhile.
    pub(crate) fn keep_snapshots(&self, keep: bool) {
        self.0.keeps.store(keep, Ordering::SeqCst);
        self.release_snapshots();
    }

    /// Has connections that nobody reads from keep nothing. One that cannot let go is closed.
    pub(crate) fn release_snapshots(&self) {
        lock(&self.0.idle).retain(|connection| connection.look(false).is_ok());
    }

    fn long_reader(&self) -> sqlx::Result<LongReader> {
        let connection = (self.0.open)()?;
        let pool = Arc::downgrade(&self.0);
        let (send, reads) = mpsc::channel::<LongRead>();
        let read = move || {
            give_way();
            for LongRead { query, bounds, seat, tell, reader } in reads {
                let time = Duration::from_millis(READ_MS_MAX);
                let filled = connection.fill_within(&query, bounds, time);
                if let Some(pool) = pool.upgrade().map(Self) {
                    pool.put_back(&pool.0.idle_long, reader);
                }
                drop(seat);
                let _ = tell.send(filled);
            }
        };
        std::thread::Builder::new().name("charter-reader".into()).spawn(read)?;
        Ok(LongReader(send))
    }

    fn put_back<T>(&self, idle: &Mutex<Vec<T>>, one: T) {
        if !self.0.turns.is_closed() {
            lock(idle).push(one);
        }
    }

    pub(super) fn close(&self) {
        self.0.turns.close();
        lock(&self.0.idle).clear();
        lock(&self.0.idle_long).clear();
    }
}

fn lock<T>(idle: &Mutex<T>) -> MutexGuard<'_, T> {
    idle.lock().unwrap_or_else(PoisonError::into_inner)
}

fn is_given_up(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(|error| error.code());
    code.is_some_and(|code| GIVEN_UP.contains(&&*code))
}

/// SQLite's own words: its extended result code and its message.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) code: String,
    pub(crate) message: String,
}

fn fault(error: rusqlite::Error) -> sqlx::Error {
    match &error {
        rusqlite::Error::SqliteFailure(inner, _) => sqlx::Error::Database(Box::new(Fault {
            code: inner.extended_code.to_string(),
            message: error.to_string(),
        })),
        _ => sqlx::Error::Decode(error.into()),
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SQLite ({}): {}", self.code, self.message)
    }
}

impl std::error::Error for Fault {}

impl DatabaseError for Fault {
    fn message(&self) -> &str {
        &self.message
    }
    fn code(&self) -> Option<Cow<'_, str>> {
        Some(self.code.as_str().into())
    }
    fn as_error(&self) -> &(dyn std::error::Error + Send + Sync + 'static) {
        self
    }
    fn as_error_mut(&mut self) -> &mut (dyn std::error::Error + Send + Sync + 'static) {
        self
    }
    fn into_error(self: Box<Self>) -> Box<dyn std::error::Error + Send + Sync + 'static> {
        self
    }
    fn kind(&self) -> ErrorKind {
        ErrorKind::Other
    }
}

#[cfg(test)]
mod tests;
