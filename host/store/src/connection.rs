//! The address of the database, and how each kind of connection to it is set up.

use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use sqlx::ConnectOptions;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use crate::config::StoreConfig;
use crate::dialect::Dialect;
use crate::error::{OpenError, ReadError};
use crate::sql::{
    Connection, Pool, PostgresConnection, PostgresPool, READ_MS_MAX, SqliteConnection, SqlitePool,
    run,
};

/// How long a connection attempt may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The end of the name under which a restore fills an embedded database.
const RESTORING: &str = ".restoring";
/// The end of the name of a file with its first page only.
const NEW: &str = ".new";

/// The ends of the names of a database file, and of what SQLite puts beside it.
const FILES: [&str; 4] = ["", "-journal", "-wal", "-shm"];

/// An address and its dialect. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Database {
    address: Address,
    pub(crate) dialect: Dialect,
    answer_in: Duration,
}

#[derive(Clone, Debug)]
enum Address {
    Sqlite { file: PathBuf, pages_max: Option<u64> },
    Postgres(Box<PgConnectOptions>),
}

impl Database {
    pub(crate) fn new(config: &StoreConfig) -> Result<Self, OpenError> {
        let (url, answer_in) = (config.url.as_str(), Duration::from_millis(config.answer_ms_max));
        if url.starts_with("postgres://") || url.starts_with("postgresql://") {
            let fault = |_| {
                OpenError::Configuration(
                    "the database address is no URL of the form postgres://…".into(),
                )
            };
            // Statements are not logged: they carry tenants' data.
            let options =
                PgConnectOptions::from_str(url).map_err(fault)?.disable_statement_logging();
            return Ok(Self {
                address: Address::Postgres(Box::new(options)),
                dialect: Dialect::Postgres,
                answer_in,
            });
        }
        let file = match url.strip_prefix("sqlite:") {
            Some(rest) => PathBuf::from(rest.trim_start_matches("//")),
            None if url.is_empty() => config.data_dir.join("charter.db"),
            None => {
                return Err(OpenError::Configuration(
                    "the database address is neither postgres://… nor sqlite://path".into(),
                ));
            }
        };
        if file.as_os_str().is_empty() {
            return Err(OpenError::Configuration(
                "the database address sqlite:// names no file".into(),
            ));
        }
        let pages_max = config.size_bytes_max.map(|bytes| (bytes / 4096).max(1));
        Ok(Self {
            address: Address::Sqlite { file, pages_max },
            dialect: Dialect::Sqlite,
            answer_in,
        })
    }

    /// Waits for what a connection was asked, on PostgreSQL no longer than it may take by its own
    /// limits: of a machine that died and whose address another one has, no word comes. The
    /// connection is of no use then.
    pub(crate) async fn answer<T, E: From<sqlx::Error>>(
        &self,
        asked: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        if !self.is_postgres() {
            return asked.await;
        }
        let answered = tokio::time::timeout(self.answer_in, asked).await;
        answered.unwrap_or_else(|_| Err(sqlx::Error::Io(ErrorKind::TimedOut.into()).into()))
    }

    pub(crate) fn is_postgres(&self) -> bool {
        self.dialect == Dialect::Postgres
    }

    /// The file of the embedded database.
    pub(crate) fn file(&self) -> Option<&PathBuf> {
        match &self.address {
            Address::Sqlite { file, .. } => Some(file),
            Address::Postgres(_) => None,
        }
    }

    /// Makes the folder of the embedded database, where it is missing, for us alone.
    pub(crate) fn make_folder(&self) -> Result<(), OpenError> {
        let Some(folder) = self
            .file()
            .and_then(|file| file.parent())
            .filter(|folder| !folder.as_os_str().is_empty())
        else {
            return Ok(());
        };
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
        made.map_err(|source| OpenError::File { path: folder.display().to_string(), source })
    }

    /// Makes the embedded database's file, where it is missing, and in any case ours alone to read:
    /// SQLite gives the files that it puts beside it the same mode.
    pub(crate) fn make_file(&self) -> Result<(), OpenError> {
        let Some(file) = self.file() else { return Ok(()) };
        self.make_folder()?;
        if !self.has_file()? {
            return self.make_first(file);
        }
        // By their paths: to close a file of SQLite's gives up the locks that this process has on
        // it.
        for path in self.files() {
            let open_to_others =
                std::fs::metadata(&path).is_ok_and(|found| found.permissions().mode() & 0o077 != 0);
            if open_to_others {
                let closed =
                    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600));
                closed.map_err(|source| OpenError::File {
                    path: path.display().to_string(),
                    source,
                })?;
            }
        }
        Ok(())
    }

    /// Whether the embedded database's file is there; PostgreSQL has none to miss. Refuses what no
    /// host starts on, and makes nothing.
    pub(crate) fn has_file(&self) -> Result<bool, OpenError> {
        let Some(file) = self.file() else { return Ok(true) };
        match std::fs::symlink_metadata(file) {
            Ok(_) => self.is_written().map(|()| true),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.has_no_log()?;
                let half = beside(file, RESTORING);
                let begun = beside(&half, NEW);
                if let Some(half) = [half, begun].iter().find(|left| left.exists()) {
                    return Err(OpenError::Configuration(format!(
                        "{} is what a restore that was cut short has left: restore the backup \
                         again, or remove the file, and those beside it, to begin a new deployment",
                        half.display()
                    )));
                }
                Ok(false)
            }
            Err(source) => Err(OpenError::File { path: file.display().to_string(), source }),
        }
    }

    /// Makes the file with SQLite's first page in it, under another name first: a start that is
    /// killed in between leaves no empty file in the database's place. The process holds the folder.
    fn make_first(&self, file: &Path) -> Result<(), OpenError> {
        let new = beside(file, NEW);
        let fault = |source| OpenError::File { path: new.display().to_string(), source };
        // A start that was killed here may have left one.
        remove(&new).map_err(fault)?;
        let mut options = std::fs::OpenOptions::new();
        options.write(true).create_new(true).mode(0o600).open(&new).map_err(fault)?;
        // The words set SQLite's log, which the first page says; to close the connection removes it.
        let made = SqliteConnection::open(&new, self.dialect.words_for_writers())
            .map(drop)
            .map_err(OpenError::Database)
            .and_then(|()| rename(&new, file).map_err(fault));
        if made.is_err() {
            let _ = remove(&new);
        }
        made
    }

    /// The embedded database, which is not there yet, under the name that a restore fills it under.
    /// Removes what a restore that was killed has left. The process holds the folder.
    pub(crate) fn set_aside(&self) -> Result<Self, OpenError> {
        let Address::Sqlite { file, pages_max } = &self.address else { return Ok(self.clone()) };
        self.has_no_log()?;
        let address = Address::Sqlite { file: beside(file, RESTORING), pages_max: *pages_max };
        let half = Self { address, ..self.clone() };
        half.remove()?;
        Ok(half)
    }

    /// Gives an embedded database, which is whole and closed, the name of one that is not there.
    pub(crate) fn take_place_of(&self, other: &Self) -> Result<(), OpenError> {
        let (Some(from), Some(to)) = (self.file(), other.file()) else { return Ok(()) };
        let fault = |source| OpenError::File { path: from.display().to_string(), source };
        // SQLite removes the log as it closes, once the file has all of it.
        if beside(from, "-wal").exists() {
            let why = "its log could not be written into it: is the disk full?";
            return Err(fault(std::io::Error::other(why)));
        }
        rename(from, to).map_err(fault)
    }

    /// Refuses a log without the embedded database's file: SQLite would read it into a new one.
    fn has_no_log(&self) -> Result<(), OpenError> {
        match self.file().is_some_and(|file| beside(file, "-wal").exists()) {
            true => self.is_written(),
            false => Ok(()),
        }
    }

    /// Removes the embedded database, and what SQLite puts beside it, as far as they are there.
    pub(crate) fn remove(&self) -> Result<(), OpenError> {
        let Some(file) = self.file() else { return Ok(()) };
        remove(file).map_err(|source| OpenError::File { path: file.display().to_string(), source })
    }

    /// Refuses an empty file, or none, in the place of the embedded database: a deployment that was
    /// there is not, and none begins anew where somebody expects it. SQLite writes the file's first
    /// page before it writes a log beside it, so whatever stands beside an empty one is of another.
    fn is_written(&self) -> Result<(), OpenError> {
        let empty = |file: &&PathBuf| std::fs::metadata(file).map_or(true, |it| it.len() == 0);
        match self.file().filter(empty) {
            Some(file) => Err(OpenError::Configuration(format!(
                "{} is empty, or gone from beside its log, which no host leaves behind: restore a backup \
                 of what was there, or remove the file, and those beside it, to begin a new deployment",
                file.display()
            ))),
            None => Ok(()),
        }
    }

    /// The embedded database, and what SQLite puts beside it.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        self.file().map(|file| FILES.map(|suffix| beside(file, suffix)).into()).unwrap_or_default()
    }

    /// A pool of connections that only read.
    pub(crate) async fn readers(&self, connections: u32) -> sqlx::Result<Pool> {
        let words = self.dialect.words_for_readers();
        match &self.address {
            Address::Sqlite { file, .. } => {
                let file = file.clone();
                SqlitePool::new(connections, move || SqliteConnection::open(&file, words))
                    .map(Pool::Sqlite)
            }
            Address::Postgres(options) => {
                let pool = PgPoolOptions::new()
                    .min_connections(1)
                    // One beside the places, for the host's own.
                    .max_connections(connections + 1)
                    .acquire_timeout(CONNECT_TIMEOUT)
                    .idle_timeout(None)
                    .max_lifetime(None)
                    .after_connect(move |connection, _| {
                        Box::pin(
                            async move { sqlx::raw_sql(words).execute(connection).await.map(drop) },
                        )
                    });
                let pool = pool.connect_with(options.as_ref().clone()).await?;
                Ok(Pool::Postgres(PostgresPool::new(pool, connections)))
            }
        }
    }

    /// One connection that only reads.
    pub(crate) async fn reader(&self) -> sqlx::Result<Connection> {
        self.connect(self.dialect.words_for_readers()).await
    }

    /// One connection that writes.
    pub(crate) async fn writer(&self) -> sqlx::Result<Connection> {
        let mut connection = match self.connect(self.dialect.words_for_writers()).await? {
            Connection::Sqlite(connection) => Connection::Sqlite(connection.tell_readers()?),
            connection => connection,
        };
        if let Address::Sqlite { pages_max: Some(pages), .. } = &self.address {
            run(&mut connection, sqlx::AssertSqlSafe(format!("PRAGMA max_page_count = {pages}")))
                .await?;
        }
        Ok(connection)
    }

    async fn connect(&self, words: &'static str) -> sqlx::Result<Connection> {
        match &self.address {
            Address::Sqlite { file, .. } => {
                SqliteConnection::open(file, words).map(Connection::Sqlite)
            }
            Address::Postgres(options) => {
                let timed_out = |_| sqlx::Error::Io(std::io::ErrorKind::TimedOut.into());
                let opening =
                    tokio::time::timeout(CONNECT_TIMEOUT, PostgresConnection::open(options));
                let mut connection = Connection::Postgres(opening.await.map_err(timed_out)??);
                self.answer(run(&mut connection, words)).await?;
                Ok(connection)
            }
        }
    }

    /// Does what may wait for SQLite's one writer, or for its disk, on a thread that may wait.
    pub(crate) async fn apart<T: Send + 'static>(
        &self,
        work: impl Future<Output = sqlx::Result<T>> + Send + 'static,
    ) -> sqlx::Result<T> {
        if self.is_postgres() {
            return work.await;
        }
        let runtime = tokio::runtime::Handle::current();
        let done = tokio::task::spawn_blocking(move || runtime.block_on(work)).await;
        done.unwrap_or(Err(sqlx::Error::WorkerCrashed))
    }

    /// Runs what works on for as long as the store is open, on a thread of its own: SQLite keeps it
    /// busy, and on PostgreSQL no rows stay locked while some request computes.
    pub(crate) fn spawn(
        &self,
        name: &str,
        work: impl Future<Output = ()> + Send + 'static,
    ) -> std::io::Result<()> {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = if self.is_postgres() { runtime.enable_all() } else { runtime.enable_time() }
            .build()?;
        std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || runtime.block_on(work))
            .map(drop)
    }
}

/// Removes a database file, and what SQLite puts beside it, as far as they are there.
fn remove(file: &Path) -> std::io::Result<()> {
    for suffix in FILES {
        match std::fs::remove_file(beside(file, suffix)) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Gives a file that nobody has open its name for good: neither is lost when the machine stops.
fn rename(from: &Path, to: &Path) -> std::io::Result<()> {
    std::fs::File::open(from)?.sync_all()?;
    std::fs::rename(from, to)?;
    match to.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        Some(folder) => std::fs::File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}

/// A file's neighbour, by its whole name and a suffix.
pub(crate) fn beside(file: &Path, suffix: &str) -> PathBuf {
    let mut path = file.as_os_str().to_owned();
    path.push(suffix);
    path.into()
}

impl Dialect {
    fn words_for_readers(self) -> &'static str {
        match self {
            Self::Sqlite => {
                "PRAGMA foreign_keys = OFF; PRAGMA cache_size = -16384; \
                 PRAGMA query_only = ON;"
            }
            Self::Postgres => {
                "SET default_transaction_read_only = on; SET statement_timeout = 10000; SET jit = off; SET timezone = 'UTC'; \
                 SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off; \
                 SET enable_material = off;"
            }
        }
    }

    /// PostgreSQL: a batch's plan does not depend on its size, and every table is reached through
    /// its key; a plan made while the tables were small must not scan them when they have grown, nor
    /// take a tenant that the statistics do not know yet for one of a few rows. The statements of a
    /// batch follow each other at once: a host that is frozen amid one keeps the others waiting no
    /// longer than that.
    fn words_for_writers(self) -> &'static str {
        match self {
            Self::Sqlite => {
                "PRAGMA foreign_keys = OFF; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; \
                 PRAGMA wal_autocheckpoint = 0; PRAGMA cache_size = -32768; PRAGMA temp_store = MEMORY;"
            }
            Self::Postgres => {
                "SET statement_timeout = 30000; SET idle_in_transaction_session_timeout = 3000; SET lock_timeout = 20000; \
                 SET synchronous_commit = on; SET jit = off; SET timezone = 'UTC'; SET plan_cache_mode = force_generic_plan; \
                 SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_material = off;"
            }
        }
    }
}

/// Bounds a read in time and says what went wrong in the store's words.
pub(crate) async fn reading<T>(
    read: impl Future<Output = sqlx::Result<T>>,
) -> Result<T, ReadError> {
    match tokio::time::timeout(Duration::from_millis(READ_MS_MAX), read).await {
        Err(_) => Err(ReadError::Unavailable(None)),
        Ok(Err(sqlx::Error::Io(error))) if error.kind() == ErrorKind::ResourceBusy => {
            Err(ReadError::Overloaded)
        }
        Ok(Err(error @ sqlx::Error::Database(_))) => Err(ReadError::Failed(Some(error))),
        Ok(Err(error @ (sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_)))) => {
            Err(ReadError::Failed(Some(error)))
        }
        Ok(Err(error)) => Err(ReadError::Unavailable(Some(error))),
        Ok(Ok(answer)) => Ok(answer),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A failed restore removes these, and a start closes them to others.
    #[test]
    fn the_files_of_a_database_are_all_that_sqlite_puts_beside_it() {
        let address = Address::Sqlite { file: PathBuf::from("a/charter.db"), pages_max: None };
        let database = Database { address, dialect: Dialect::Sqlite, answer_in: Duration::ZERO };
        let names = ["charter.db", "charter.db-journal", "charter.db-wal", "charter.db-shm"];
        assert_eq!(database.files(), names.map(|name| Path::new("a").join(name)));
    }
}
