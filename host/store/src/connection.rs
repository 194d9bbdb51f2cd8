//! Where the database is and how each kind of connection to it is set up.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use sqlx::any::{AnyConnectOptions, AnyPoolOptions};
use sqlx::{AnyConnection, AnyPool, ConnectOptions, Connection};

use crate::config::StoreConfig;
use crate::dialect::Dialect;
use crate::error::{OpenError, ReadError};

/// Milliseconds that a read may take before the database or the store gives it up: no read may hold up checkpoints for ever.
pub(crate) const READ_MS_MAX: u64 = 10_000;
/// How long a connection attempt may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// An address and its dialect. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Database {
    options: AnyConnectOptions,
    pub(crate) dialect: Dialect,
    /// Where the embedded database lies.
    pub(crate) file: Option<PathBuf>,
    pages_max: Option<u64>,
}

impl Database {
    pub(crate) fn new(config: &StoreConfig) -> Result<Self, OpenError> {
        sqlx::any::install_default_drivers();
        let fault =
            |_| OpenError::Configuration("the database address is no URL of the form postgres://… or sqlite://path".into());
        let url = config.url.as_str();
        if url.starts_with("postgres://") || url.starts_with("postgresql://") {
            let options = quiet(AnyConnectOptions::from_str(url).map_err(fault)?);
            return Ok(Self { options, dialect: Dialect::Postgres, file: None, pages_max: None });
        }
        let file = match url.strip_prefix("sqlite:") {
            Some(rest) => PathBuf::from(rest.trim_start_matches("//")),
            None if url.is_empty() => config.data_dir.join("charter.db"),
            None => {
                return Err(OpenError::Configuration("the database address is neither postgres://… nor sqlite://path".into()));
            }
        };
        let path = file.to_str().filter(|path| !path.is_empty() && !path.contains(['?', '#', '%']));
        let path = path.ok_or_else(|| {
            OpenError::Configuration("the path of the embedded database must be UTF-8 without ?, # and %".into())
        })?;
        if let Some(folder) = file.parent() {
            let failed = |source| OpenError::File { path: folder.display().to_string(), source };
            std::fs::create_dir_all(folder).map_err(failed)?;
        }
        let options = quiet(AnyConnectOptions::from_str(&format!("sqlite://{path}?mode=rwc")).map_err(fault)?);
        let pages_max = config.size_bytes_max.map(|bytes| (bytes / 4096).max(1));
        Ok(Self { options, dialect: Dialect::Sqlite, file: Some(file), pages_max })
    }

    pub(crate) fn is_postgres(&self) -> bool {
        self.dialect == Dialect::Postgres
    }

    /// A pool of connections that only read.
    pub(crate) async fn readers(&self, connections: u32) -> sqlx::Result<AnyPool> {
        let dialect = self.dialect;
        AnyPoolOptions::new()
            .min_connections(1)
            .max_connections(connections)
            .acquire_timeout(CONNECT_TIMEOUT)
            .idle_timeout(None)
            .max_lifetime(None)
            .test_before_acquire(dialect == Dialect::Postgres)
            .after_connect(move |connection, _| Box::pin(set_up(connection, dialect.words_for_readers())))
            .connect_with(self.options.clone())
            .await
    }

    /// One connection that only reads.
    pub(crate) async fn reader(&self) -> sqlx::Result<AnyConnection> {
        let mut connection = self.connect().await?;
        set_up(&mut connection, self.dialect.words_for_readers()).await?;
        Ok(connection)
    }

    /// One connection that writes.
    pub(crate) async fn writer(&self) -> sqlx::Result<AnyConnection> {
        let mut connection = self.connect().await?;
        set_up(&mut connection, self.dialect.words_for_writers()).await?;
        if let Some(pages) = self.pages_max {
            let limit = format!("PRAGMA max_page_count = {pages}");
            sqlx::raw_sql(sqlx::AssertSqlSafe(limit)).execute(&mut connection).await?;
        }
        Ok(connection)
    }

    async fn connect(&self) -> sqlx::Result<AnyConnection> {
        let timed_out = |_| sqlx::Error::Io(std::io::ErrorKind::TimedOut.into());
        tokio::time::timeout(CONNECT_TIMEOUT, AnyConnection::connect_with(&self.options)).await.map_err(timed_out)?
    }
}

/// Statements are not logged: they carry tenants' data.
fn quiet(options: AnyConnectOptions) -> AnyConnectOptions {
    options.disable_statement_logging()
}

async fn set_up(connection: &mut AnyConnection, words: &'static str) -> sqlx::Result<()> {
    sqlx::raw_sql(words).execute(connection).await?;
    Ok(())
}

impl Dialect {
    fn words_for_readers(self) -> &'static str {
        match self {
            Self::Sqlite => {
                "PRAGMA busy_timeout = 10000; PRAGMA foreign_keys = OFF; PRAGMA cache_size = -16384; PRAGMA mmap_size = 268435456; \
                 PRAGMA query_only = ON;"
            }
            Self::Postgres => {
                "SET default_transaction_read_only = on; SET statement_timeout = 10000; SET jit = off; SET timezone = 'UTC'; \
                 SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off;"
            }
        }
    }

    /// PostgreSQL: a batch's plan does not depend on its size, and every table is reached through its key; a plan made while
    /// the tables were small must not scan them when they have grown.
    fn words_for_writers(self) -> &'static str {
        match self {
            Self::Sqlite => {
                "PRAGMA busy_timeout = 10000; PRAGMA foreign_keys = OFF; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; \
                 PRAGMA wal_autocheckpoint = 0; PRAGMA cache_size = -32768; PRAGMA temp_store = MEMORY;"
            }
            Self::Postgres => {
                "SET statement_timeout = 30000; SET idle_in_transaction_session_timeout = 30000; SET lock_timeout = 20000; \
                 SET synchronous_commit = on; SET jit = off; SET timezone = 'UTC'; SET plan_cache_mode = force_generic_plan; \
                 SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off;"
            }
        }
    }
}

/// Bounds a read in time and says what went wrong in the store's words.
pub(crate) async fn reading<T>(read: impl Future<Output = sqlx::Result<T>>) -> Result<T, ReadError> {
    match tokio::time::timeout(Duration::from_millis(READ_MS_MAX), read).await {
        Err(_) => Err(ReadError::Unavailable(None)),
        Ok(Err(error @ sqlx::Error::Database(_))) => Err(ReadError::Failed(Some(error))),
        Ok(Err(error @ (sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_)))) => Err(ReadError::Failed(Some(error))),
        Ok(Err(error)) => Err(ReadError::Unavailable(Some(error))),
        Ok(Ok(answer)) => Ok(answer),
    }
}
