//! SQLite's checkpoints, on a connection and a thread of their own: no batch waits for the database
//! file.
//!
//! Invariant: no reader keeps the committer waiting. SQLite begins its log anew only when nobody
//! reads from before, and keeps the writer's lock while it waits for that. So it waits for some
//! milliseconds, and the log grows until the reader is gone. A flood of large writes does wait, for its
//! own pages: they are kept back where the log grows as fast as it is copied.

use std::fs::File;
use std::mem::ManuallyDrop;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::sync::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::queue::Queue;
use crate::connection::Database;
use crate::sql::{Connection, SqlitePool, query, run};

/// Between looks at the log.
const LOOK_MS: u64 = 100;
/// Bytes of the log above which it is written back.
const LOG_BYTES: u64 = 4 * 1024 * 1024;
/// Pages in use of the log above which it is also begun anew: 16 MiB.
const LOG_PAGES_LONG: i64 = 4_096;
/// Bytes of the log above which it is also cut.
const LOG_BYTES_MAX: u64 = 128 * 1024 * 1024;
/// How long the log may be that long before a line of the host's log says so.
const LONG_MS_MAX: u64 = 60_000;
/// Pages that are copied in some milliseconds, while the committer waits: 1 MiB.
const PAGES_FEW: i64 = 256;
/// The part of a log above [`LOG_BYTES_MAX`] that is copied while the committer waits. The passes of
/// one look come so near to the end also where many small units are written as fast as they are copied.
const LONG_PART: i64 = 4;
/// Passes of one look over what was written during the pass before.
const PASSES_MAX: u32 = 4;
/// Passes after which large units are kept back until the look has ended.
const PASSES_BESIDE_LARGE: u32 = 2;
/// Has the committer wait for readers for no longer than so many milliseconds.
const PATIENCE: &str = "PRAGMA busy_timeout = 5";
/// Looks between two attempts to begin the log anew, at the most: two seconds.
const LOOKS_APART_MAX: u32 = 20;

/// Those who read and write beside the checkpoints.
pub(super) struct Beside {
    /// Connections that read in place.
    pub(super) readers: SqlitePool,
    /// Units that wait to be written.
    pub(super) queues: Vec<Arc<Queue>>,
    /// The place at the log.
    pub(super) at_log: Arc<Mutex<()>>,
}

impl Beside {
    fn keep_back(&self, keeps_back: bool) {
        self.queues.iter().for_each(|queue| queue.keep_back(keeps_back));
    }
}

pub(super) fn start(
    database: &Database,
    file: PathBuf,
    beside: Beside,
    closing: &CancellationToken,
) -> std::io::Result<()> {
    beside.readers.keep_snapshots(true);
    let mut log = Log::of(file, Some(beside));
    let opened = database.clone();
    let looking = closing.clone().run_until_cancelled_owned(async move {
        let mut connection: Option<Connection> = None;
        loop {
            tokio::time::sleep(Duration::from_millis(LOOK_MS)).await;
            let Some(found) = log.look() else { continue };
            let done = match &mut connection {
                Some(connection) => log.write_back(connection, found).await,
                None => match opened.writer().await {
                    Ok(new) => log.write_back(connection.insert(new), found).await,
                    Err(error) => Err(error),
                },
            };
            if let Err(error) = done {
                tracing::warn!(error = &error as &dyn std::error::Error, "a checkpoint failed");
                connection = None;
            }
        }
    });
    database.spawn("checkpoints", async move {
        looking.await;
    })
}

/// The log's bytes, and the time of the last change.
type Seen = (u64, Option<SystemTime>);

/// The log, and how far the work on it has come.
struct Log {
    beside: Option<Beside>,
    path: PathBuf,
    /// The database file.
    file: PathBuf,
    /// The same, to be flushed. To close it would give up SQLite's locks of this process on it.
    opened: Option<ManuallyDrop<File>>,
    /// As it was when nothing was left to do: there is nothing either until it changes.
    done: Option<Seen>,
    /// Looks that make no attempt to begin it anew, after one that met readers.
    pause: u32,
    /// As many as the next such attempt adds.
    apart: u32,
    /// The first look that found it longer than [`LOG_BYTES_MAX`] and could not cut it.
    long_since: Option<Instant>,
    has_warned: bool,
}

impl Log {
    /// The log of a database file.
    fn of(file: PathBuf, beside: Option<Beside>) -> Self {
        let mut path = file.clone().into_os_string();
        path.push("-wal");
        Self {
            beside,
            path: PathBuf::from(path),
            file,
            opened: None,
            done: None,
            pause: 0,
            apart: 1,
            long_since: None,
            has_warned: false,
        }
    }

    /// The log as it is now, where there is something to do.
    fn look(&self) -> Option<Seen> {
        let found = std::fs::metadata(&self.path).ok()?;
        let now = (found.len(), found.modified().ok());
        (found.len() >= LOG_BYTES && self.done != Some(now)).then_some(now)
    }

    /// Does what there is to do. The next look tries again to do what readers have prevented,
    /// also where nobody writes any more.
    async fn write_back(&mut self, connection: &mut Connection, found: Seen) -> sqlx::Result<()> {
        let shortened = self.shorten(connection, found.0).await;
        self.beside.iter().for_each(|beside| beside.keep_back(false));
        if shortened? {
            (self.done, self.long_since, self.has_warned) = (Some(found), None, false);
        } else {
            self.warn(found.0);
        }
        Ok(())
    }

    /// Writes the log back while the committer goes on. A log that has grown long is also begun
    /// anew, once no more is left than the committer may wait for. The file keeps its size: writing
    /// over it costs less than growing it. Says whether all is done.
    async fn shorten(&mut self, connection: &mut Connection, bytes: u64) -> sqlx::Result<bool> {
        let mut reached = 0;
        for pass in 0..PASSES_MAX {
            // A connection that nobody reads from keeps nothing from being copied.
            self.beside.iter().for_each(|beside| beside.readers.release_snapshots());
            let told = query("PRAGMA wal_checkpoint(PASSIVE)").fetch_one(&mut *connection).await?;
            // Both are -1 while another connection is at it.
            let (pages, copied): (i64, i64) = (told.try_get(1)?, told.try_get(2)?);
            let words = if bytes > LOG_BYTES_MAX {
                "PRAGMA wal_checkpoint(TRUNCATE)"
            } else if pages > LOG_PAGES_LONG {
                "PRAGMA wal_checkpoint(RESTART)"
            } else {
                return Ok(pages >= 0 && copied == pages);
            };
            let left = pages - reached;
            // A reader from before keeps the rest.
            if left > PAGES_FEW && copied <= reached {
                return Ok(false);
            }
            if left <= left_max(bytes, pages) {
                return self.begin_anew(connection, words).await;
            }
            self.flush()?;
            if pass + 1 == PASSES_BESIDE_LARGE {
                self.beside.iter().for_each(|beside| beside.keep_back(true));
            }
            reached = copied;
        }
        Ok(false)
    }

    /// Flushes what was copied. SQLite leaves it to the pass that reaches the log's end, which may
    /// be the one that the committer waits for.
    fn flush(&mut self) -> std::io::Result<()> {
        if self.opened.is_none() {
            self.opened = Some(ManuallyDrop::new(File::open(&self.file)?));
        }
        self.opened.as_ref().map_or(Ok(()), |file| file.sync_data())
    }

    /// Begins the log anew, unless a reader is in the way for longer than the committer may wait:
    /// then it is tried again after some looks, which become more up to a bound.
    async fn begin_anew(
        &mut self,
        connection: &mut Connection,
        words: &'static str,
    ) -> sqlx::Result<bool> {
        if self.pause > 0 {
            self.pause -= 1;
            return Ok(false);
        }
        run(connection, PATIENCE).await?;
        let told = match &self.beside {
            None => query(words).fetch_one(&mut *connection).await,
            Some(beside) => {
                let _at_log = beside.at_log.lock().await;
                beside.readers.keep_snapshots(false);
                let told = query(words).fetch_one(&mut *connection).await;
                beside.readers.keep_snapshots(true);
                told
            }
        };
        let busy: i64 = told?.try_get(0)?;
        if busy == 0 {
            self.apart = 1;
            return Ok(true);
        }
        self.pause = self.apart;
        self.apart = (2 * self.apart).min(LOOKS_APART_MAX);
        Ok(false)
    }

    /// Warns, once, of a log that readers have kept long for long.
    fn warn(&mut self, bytes: u64) {
        if bytes <= LOG_BYTES_MAX {
            return;
        }
        let long = self.long_since.get_or_insert_with(Instant::now).elapsed();
        if self.has_warned || long < Duration::from_millis(LONG_MS_MAX) {
            return;
        }
        self.has_warned = true;
        tracing::warn!(
            bytes,
            seconds = long.as_secs(),
            "the database's log stays long: somebody reads as of a moment long ago, as a backup \
             does, and it grows by all that is written until that reader ends, or more is written \
             than the disk takes; see to it that the disk has room"
        );
    }
}

/// Pages that an attempt to begin the log anew may leave to copy while the committer waits. They
/// grow with a long log: so a flood of writes, which no pass catches up with, is slowed by its log.
fn left_max(bytes: u64, pages: i64) -> i64 {
    match bytes > LOG_BYTES_MAX {
        true => PAGES_FEW.max(pages / LONG_PART),
        false => PAGES_FEW,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::SqliteConnection;

    const WORDS: &str = "PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0; \
                         PRAGMA synchronous = OFF";

    /// One look, and what it finds to do.
    async fn look(log: &mut Log, connection: &mut Connection) {
        if let Some(found) = log.look() {
            log.write_back(connection, found).await.unwrap();
        }
    }

    async fn begin_to_read(reader: &mut Connection) {
        run(reader, "BEGIN").await.unwrap();
        query("SELECT count(*) FROM t").fetch_one(&mut *reader).await.unwrap();
    }

    #[test]
    fn an_attempt_leaves_more_to_copy_the_longer_the_log_is() {
        let long = LOG_BYTES_MAX + 1;
        for (bytes, pages, most) in [
            (LOG_BYTES, LOG_PAGES_LONG, PAGES_FEW),
            (LOG_BYTES_MAX, 32_768, PAGES_FEW),
            (long, 32_768, 8_192),
            (8 * long, 262_144, 65_536),
            // The file keeps its size when the log begins anew.
            (long, 100, PAGES_FEW),
            // Another connection is at it.
            (long, -1, PAGES_FEW),
        ] {
            assert_eq!(left_max(bytes, pages), most, "{bytes} bytes, {pages} pages");
        }
    }

    #[tokio::test]
    async fn what_readers_have_prevented_is_done_once_they_are_gone_though_nobody_writes() {
        let folder = std::env::temp_dir().join(format!("charter-log-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir(&folder).unwrap();
        let file = folder.join("t.db");
        let open = || SqliteConnection::open(&file, WORDS).map(Connection::Sqlite).unwrap();
        let (mut writer, mut reader, mut own) = (open(), open(), open());
        run(&mut writer, "CREATE TABLE t (body)").await.unwrap();
        let mut log = Log::of(file.clone(), None);

        // A reader from before: no attempt is made that the writer would wait for.
        begin_to_read(&mut reader).await;
        run(&mut writer, "INSERT INTO t VALUES (zeroblob(20971520))").await.unwrap();
        for _ in 0..3 {
            look(&mut log, &mut own).await;
        }
        assert_eq!((log.pause, log.apart), (0, 1), "an attempt was made");
        assert!(log.look().is_some(), "what was prevented counts as done");
        run(&mut reader, "COMMIT").await.unwrap();
        look(&mut log, &mut own).await;
        assert!(log.look().is_none(), "it is not done, and nobody is in the way");

        // A reader that began at the log's end: attempts, fewer and fewer.
        run(&mut writer, "DELETE FROM t; INSERT INTO t VALUES (zeroblob(20971520))").await.unwrap();
        begin_to_read(&mut reader).await;
        for _ in 0..100 {
            look(&mut log, &mut own).await;
        }
        assert_eq!(log.apart, LOOKS_APART_MAX);
        run(&mut reader, "COMMIT").await.unwrap();
        for _ in 0..=LOOKS_APART_MAX {
            look(&mut log, &mut own).await;
        }
        assert!(log.look().is_none(), "the attempts have ended");
        assert_eq!(log.apart, 1);
        let _ = std::fs::remove_dir_all(&folder);
    }
}
