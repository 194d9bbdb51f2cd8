//! Backup and restore, online, in one format for both databases: what was taken from SQLite
//! restores to PostgreSQL too.
//!
//! A file of JSON lines: a header, then table by table its rows, then a line with the number of
//! rows and the digest of all bytes before it. Everything is read in one snapshot. The key file is
//! not part of it: without it the secrets in a backup stay sealed.

mod table;

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use charter_kernel::unit::Fact;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tokio::fs::File;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, BufWriter};

use crate::config::StoreConfig;
use crate::connection::{Database, beside};
use crate::dialect::Dialect;
use crate::error::BackupError;
use crate::sql::{Connection, query, run};
use crate::store::{Store, standing_still};
use table::{TABLES, Table};

/// Bytes of one line: a row holds at most 4 MiB of body, a blob part one, before escaping.
const LINE_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Rows read, and written, by one statement.
const ROWS: usize = 200;

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    Header { format: u32, schema: i64 },
    Table(String),
    Row(Vec<serde_json::Value>),
    Trailer { rows: u64, sha256: String },
}

const FORMAT: u32 = 1;
/// The oldest schema whose rows are read as they were written.
const OLDEST: i64 = 5;

impl Store {
    /// Writes everything, as of one moment, to one file that either database can be restored from.
    /// Online. Answers the number of rows.
    pub async fn backup(&self, to: &Path) -> Result<u64, BackupError> {
        let unfinished = beside(to, ".unfinished");
        let written = self.write_backup(&unfinished).await;
        match written {
            Ok((rows, _locked)) => {
                tokio::fs::rename(&unfinished, to).await?;
                Ok(rows)
            }
            Err(error @ BackupError::Busy) => Err(error),
            Err(error) => {
                let _ = tokio::fs::remove_file(&unfinished).await;
                Err(error)
            }
        }
    }

    /// Answers the file too: it is locked as long as somebody has it.
    async fn write_backup(&self, to: &Path) -> Result<(u64, File), BackupError> {
        let database = &self.inner.database;
        let mut connection = standing_still(database).await?;
        let mut file = Writer::create(to).await?;
        file.line(&Line::Header { format: FORMAT, schema: crate::migrate::newest() }).await?;
        for table in TABLES {
            file.line(&Line::Table(table.name.into())).await?;
            file.table(&mut connection, database.dialect, table).await?;
        }
        file.finish().await
    }

    /// Fills an empty database from a backup file; answers the number of rows. The file is checked
    /// whole before anything is written, and nothing stays of an embedded database that was made
    /// for a restore that failed. One that is killed leaves no database that a host starts on. `told`
    /// is the fact that says so, behind all those of the backup.
    pub async fn restore(
        config: StoreConfig,
        from: &Path,
        told: Option<&Fact>,
    ) -> Result<u64, BackupError> {
        let (rows, schema) = verify(from).await?;
        let database = Database::new(&config)?;
        let folder = database.file().and_then(|file| file.parent());
        let folders: Vec<_> = folder
            .into_iter()
            .flat_map(Path::ancestors)
            .take_while(|folder| !folder.as_os_str().is_empty() && !folder.exists())
            .collect();
        let hold = Self::hold(&config)?;
        let is_new = database.file().is_some_and(|file| file.symlink_metadata().is_err());
        let filled = match is_new {
            true => fill_new(&config, &database, (from, schema), told).await,
            false => fill(&config, &database, (from, schema), told).await,
        };
        if filled.is_err() && is_new {
            hold.discard();
            folders.iter().for_each(|folder| drop(std::fs::remove_dir(folder)));
        }
        filled.map(|()| rows)
    }
}

/// Fills an embedded database that is not there yet under another name, and gives it its own when
/// it is whole: a restore that is killed leaves none that a start takes for a new deployment.
async fn fill_new(
    config: &StoreConfig,
    database: &Database,
    from: (&Path, i64),
    told: Option<&Fact>,
) -> Result<(), BackupError> {
    let half = database.set_aside()?;
    let filled = match fill(config, &half, from, told).await {
        Ok(()) => half.take_place_of(database).map_err(BackupError::from),
        Err(error) => Err(error),
    };
    if filled.is_err() {
        let _ = half.remove();
    }
    filled
}

/// Makes the schema that the file was written under, reads the file into it and brings both up to
/// date, in one transaction.
async fn fill(
    config: &StoreConfig,
    database: &Database,
    (from, schema): (&Path, i64),
    told: Option<&Fact>,
) -> Result<(), BackupError> {
    let mut connection = crate::migrate::begin(database).await?;
    if crate::migrate::bring_to(&mut connection, database.dialect, schema).await? > schema {
        return Err(BackupError::Refused(format!(
            "the target has a newer schema than the backup, {schema}, whose rows come up to date with it: restore into a database \
             that no version has started on"
        )));
    }
    for table in TABLES {
        let sql = database
            .dialect
            .compose(&format!("SELECT count(*) FROM (SELECT 1 FROM {} LIMIT 1) t", table.name));
        let rows: i64 = query(sql).fetch_one(&mut connection).await?.try_get(0)?;
        if rows > 0 {
            return Err(BackupError::Refused(
                "the target already holds data: restore into an empty database".into(),
            ));
        }
    }
    read_rows(&mut connection, database.dialect, from).await?;
    crate::migrate::bring_to(&mut connection, database.dialect, crate::migrate::newest()).await?;
    if let Some(fact) = told {
        table::tell(&mut connection, database.dialect, fact).await?;
    }
    table::rebuild(&mut connection, database.dialect).await?;
    if !crate::seal::opens(config, &mut connection, database.dialect).await? {
        let other = "the key file here is another deployment's, or an older copy of the right one: it does not open this backup";
        return Err(BackupError::Refused(other.into()));
    }
    run(&mut connection, "COMMIT").await?;
    Ok(())
}

/// Writes lines and keeps their digest.
struct Writer {
    file: BufWriter<File>,
    digest: Sha256,
    rows: u64,
}

impl Writer {
    async fn create(to: &Path) -> Result<Self, BackupError> {
        let mut options = tokio::fs::OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        let file = options.open(to).await?.into_std().await;
        file.try_lock().map_err(|error| match error {
            std::fs::TryLockError::WouldBlock => BackupError::Busy,
            std::fs::TryLockError::Error(error) => error.into(),
        })?;
        // Another backup may have given it its name before it was locked here.
        if tokio::fs::metadata(to).await.ok().map(|found| found.ino())
            != Some(file.metadata()?.ino())
        {
            return Err(BackupError::Busy);
        }
        file.set_len(0)?;
        let file = BufWriter::new(File::from_std(file));
        Ok(Self { file, digest: Sha256::new(), rows: 0 })
    }

    async fn line(&mut self, line: &Line) -> Result<(), BackupError> {
        let mut text = serde_json::to_vec(line).map_err(std::io::Error::from)?;
        text.push(b'\n');
        self.digest.update(&text);
        Ok(self.file.write_all(&text).await?)
    }

    /// Walks the table by its key, so that no more than some rows are in memory.
    async fn table(
        &mut self,
        connection: &mut Connection,
        dialect: Dialect,
        table: &Table,
    ) -> Result<(), BackupError> {
        let mut last: Option<Vec<serde_json::Value>> = None;
        loop {
            let rows = table.page(connection, dialect, last.as_deref(), ROWS).await?;
            let count = rows.len();
            for row in rows {
                last = Some(row.clone());
                self.rows += 1;
                self.line(&Line::Row(row)).await?;
            }
            if table.is_last(count, ROWS) {
                return Ok(());
            }
        }
    }

    async fn finish(mut self) -> Result<(u64, File), BackupError> {
        let sha256 = hex(self.digest.clone());
        let trailer = Line::Trailer { rows: self.rows, sha256 };
        self.line(&trailer).await?;
        self.file.flush().await?;
        self.file.get_ref().sync_all().await?;
        Ok((self.rows, self.file.into_inner()))
    }
}

fn hex(digest: Sha256) -> String {
    digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn torn() -> BackupError {
    BackupError::Refused("the backup file is torn or was changed: its trailer does not fit".into())
}

/// Reads lines of bounded length.
struct Lines(BufReader<File>);

impl Lines {
    async fn open(from: &Path) -> std::io::Result<Self> {
        Ok(Self(BufReader::new(File::open(from).await?)))
    }
    async fn next(&mut self) -> Result<Option<Vec<u8>>, BackupError> {
        let mut line = Vec::new();
        let read = (&mut self.0).take(LINE_BYTES_MAX).read_until(b'\n', &mut line).await?;
        match read {
            0 => Ok(None),
            _ if line.ends_with(b"\n") => Ok(Some(line)),
            _ => Err(torn()),
        }
    }
}

/// Whether the file is whole and of a format and schema that this binary knows; how many rows it
/// holds, and under which schema.
async fn verify(from: &Path) -> Result<(u64, i64), BackupError> {
    let mut lines = Lines::open(from).await?;
    let (mut digest, mut rows, mut found) = (Sha256::new(), 0, None);
    while let Some(line) = lines.next().await? {
        match serde_json::from_slice(&line).map_err(|_| torn())? {
            Line::Header { format, schema } if found.is_none() => {
                if format != FORMAT || schema > crate::migrate::newest() {
                    return Err(BackupError::Refused(
                        "the backup is of a newer version than this binary".into(),
                    ));
                }
                if schema < OLDEST {
                    return Err(BackupError::Refused(format!(
                        "the backup has schema {schema}, and this binary reads those from {OLDEST} on: restore it with the version \
                         that made it, and start this one on that database"
                    )));
                }
                found = Some(schema);
            }
            _ if found.is_none() => {
                return Err(BackupError::Refused("this is no backup file".into()));
            }
            Line::Row(_) => rows += 1,
            Line::Trailer { rows: told, sha256 } => {
                let whole = told == rows && sha256 == hex(digest) && lines.next().await?.is_none();
                return found.filter(|_| whole).map(|schema| (rows, schema)).ok_or_else(torn);
            }
            Line::Table(_) | Line::Header { .. } => {}
        }
        digest.update(&line);
    }
    Err(torn())
}

async fn read_rows(
    connection: &mut Connection,
    dialect: Dialect,
    from: &Path,
) -> Result<(), BackupError> {
    let mut lines = Lines::open(from).await?;
    let mut table: Option<&Table> = None;
    let mut rows = Vec::new();
    let mut bytes = 0;
    while let Some(line) = lines.next().await? {
        let parsed = serde_json::from_slice(&line).map_err(|_| torn())?;
        if let Line::Row(row) = parsed {
            bytes += line.len();
            rows.push(row);
            if rows.len() < ROWS && bytes < 8 * 1024 * 1024 {
                continue;
            }
            table.ok_or_else(torn)?.insert(connection, dialect, &rows).await?;
            (rows, bytes) = (Vec::new(), 0);
            continue;
        }
        if !rows.is_empty() {
            table.ok_or_else(torn)?.insert(connection, dialect, &rows).await?;
            (rows, bytes) = (Vec::new(), 0);
        }
        if let Line::Table(name) = parsed {
            let unknown = || {
                BackupError::Refused(format!(
                    "the backup has a table {name} that this binary does not know"
                ))
            };
            table = Some(TABLES.iter().find(|table| table.name == name).ok_or_else(unknown)?);
        }
    }
    Ok(())
}
