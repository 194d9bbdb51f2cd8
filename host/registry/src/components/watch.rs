//! The watched folder: `.wasm` files, with `<file>.wasm.sig` beside them where signatures are asked
//! for.
//!
//! At start only digests that are new to the deployment are acted on, so that a rollback stays
//! rolled back and a replica with an old image cannot downgrade the rest; while running, each
//! completed change is. A signature that comes, or is changed, behind its file lets in what was
//! refused without it, and does nothing to what is installed.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use charter_kernel::audit::AuditRow;
use charter_kernel::time::Instant;
use charter_store::audit_fact;
use charter_tenancy::operator::Act;
use futures::{FutureExt as _, StreamExt as _};
use notify::{RecursiveMode, Watcher as _};
use rustix::fs::OFlags;
use serde_json::json;
use tokio::io::AsyncReadExt as _;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::install::{digest, too_large};
use super::{Consent, LifeCycleError, Registry, Upload, Version};

/// A file is complete when it has not changed for so long.
const QUIET: Duration = Duration::from_millis(150);
/// The folder is looked at this often in any case: some file systems tell nobody of changes.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Files of one folder.
const FILES_MAX: usize = 1_000;
/// Bytes of a signature's file.
const SIGNATURE_BYTES_MAX: usize = 4 << 10;

/// The look of a file at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    modified: Option<SystemTime>,
    bytes: u64,
}

impl Stamp {
    async fn of(path: &Path) -> Option<Self> {
        let metadata = tokio::fs::metadata(path).await.ok()?;
        Some(Self { modified: metadata.modified().ok(), bytes: metadata.len() })
    }
}

/// The look of a component and of the signature beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Signed {
    component: Stamp,
    signature: Option<Stamp>,
}

/// The folder as it was last acted on.
#[derive(Debug)]
pub struct Folder {
    dir: PathBuf,
    bytes_max: usize,
    seen: BTreeMap<PathBuf, Signed>,
}

impl Folder {
    /// A folder that nothing was done about yet.
    pub fn new(dir: PathBuf, bytes_max: usize) -> Self {
        Self { dir, bytes_max, seen: BTreeMap::new() }
    }

    /// The start's visit: installs and activates every digest that is new to the deployment, as
    /// many at once as there are cores.
    ///
    /// # Errors
    /// When the folder cannot be read; a file that is not fit is logged and left out.
    pub async fn first(&mut self, registry: &Registry) -> io::Result<()> {
        let files = self.list().await?;
        self.seen = files.clone();
        let bytes_max = self.bytes_max;
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let steps = files.into_keys().map(|path| first_visit(registry, path, bytes_max).boxed());
        futures::stream::iter(steps.collect::<Vec<_>>())
            .buffer_unordered(cores)
            .collect::<Vec<()>>()
            .await;
        Ok(())
    }

    /// Acts on completed changes until the host drains.
    pub async fn follow(mut self, registry: Registry, draining: CancellationToken) {
        let (sender, mut changes) = mpsc::channel(1);
        let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            // Our own looking is an event too, and answering it with another look would never end.
            if !event.is_ok_and(|event| event.kind.is_access()) {
                // One note is enough for any number of changes.
                let _ = sender.try_send(());
            }
        });
        let watching = watcher.and_then(|mut watcher| {
            watcher.watch(&self.dir, RecursiveMode::NonRecursive).map(|()| watcher)
        });
        if let Err(error) = &watching {
            tracing::warn!(%error, dir = %self.dir.display(), "the folder cannot be watched: it is looked at every few seconds");
        }
        loop {
            tokio::select! {
                () = draining.cancelled() => return,
                Some(()) = changes.recv(), if watching.is_ok() => {}
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
            if let Err(error) = self.act_on_changes(&registry).await {
                tracing::warn!(%error, dir = %self.dir.display(), "the components folder cannot be read");
            }
        }
    }

    async fn act_on_changes(&mut self, registry: &Registry) -> io::Result<()> {
        let before = self.list().await?;
        let pending: BTreeSet<PathBuf> = before
            .iter()
            .filter(|(path, stamp)| self.seen.get(*path) != Some(stamp))
            .map(|(path, _)| path.clone())
            .collect();
        if pending.is_empty() {
            self.seen = before;
            return Ok(());
        }
        tokio::time::sleep(QUIET).await;
        let now = self.list().await?;
        for path in pending {
            let Some(signed) = now.get(&path).filter(|signed| before.get(&path) == Some(signed))
            else {
                continue;
            };
            let former = self.seen.insert(path.clone(), *signed);
            if former.is_none_or(|former| former.component != signed.component) {
                let done = async { act(registry, read(&path, self.bytes_max).await?).await };
                report(&path, done.await);
            } else if signed.signature.is_some() {
                first_visit(registry, path, self.bytes_max).await;
            }
        }
        self.seen.retain(|path, _| now.contains_key(path));
        Ok(())
    }

    async fn list(&self) -> io::Result<BTreeMap<PathBuf, Signed>> {
        let mut entries = tokio::fs::read_dir(&self.dir).await?;
        let mut files = BTreeMap::new();
        while let Some(entry) = entries.next_entry().await? {
            let path = entry.path();
            if path.extension().is_some_and(|extension| extension == "wasm") {
                let Some(component) = Stamp::of(&path).await else { continue };
                let signature = Stamp::of(&signature_of(&path)).await;
                files.insert(path, Signed { component, signature });
            }
            if files.len() >= FILES_MAX {
                tracing::warn!(dir = %self.dir.display(), "more than {FILES_MAX} components: the rest is left out");
                break;
            }
        }
        Ok(files)
    }
}

/// Acts on a file whose digest is new to the deployment.
async fn first_visit(registry: &Registry, path: PathBuf, bytes_max: usize) {
    let done = async {
        let upload = read(&path, bytes_max).await?;
        if registry.inventory().by_digest(&digest(&upload.bytes).0).is_some() {
            return Ok(());
        }
        act(registry, upload).await
    };
    let done = done.await;
    report(&path, done);
}

/// The actor's name in activations and audit rows.
const BY: &str = "folder";

/// The file and its signature.
async fn read(path: &Path, bytes_max: usize) -> Result<Upload, LifeCycleError> {
    let unreadable = |error: io::Error| {
        LifeCycleError::Unfit(vec![super::fault(format!("cannot be read: {error}"))])
    };
    let bytes = read_file(path, bytes_max).await.map_err(unreadable)?;
    let bytes: Bytes = bytes.ok_or_else(|| too_large(bytes_max))?.into();
    let signature = read_file(&signature_of(path), SIGNATURE_BYTES_MAX).await.ok().flatten();
    let signature = signature.and_then(|signature| String::from_utf8(signature).ok());
    Ok(Upload { name: None, bytes, signature })
}

/// The bytes of a regular file, or nothing where it has more than so many. A pipe that nobody
/// writes to is not waited for.
async fn read_file(path: &Path, bytes_max: usize) -> io::Result<Option<Vec<u8>>> {
    let mut options = tokio::fs::OpenOptions::new();
    let file = options.read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(path).await?;
    let metadata = file.metadata().await?;
    if !metadata.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    // The length says nothing of a file that grows.
    let mut bytes = Vec::new();
    if metadata.len() <= bytes_max as u64 {
        file.take(bytes_max as u64 + 1).read_to_end(&mut bytes).await?;
    }
    let is_whole = metadata.len() <= bytes_max as u64 && bytes.len() <= bytes_max;
    Ok(is_whole.then_some(bytes))
}

/// The path of a file's signature.
fn signature_of(path: &Path) -> PathBuf {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".sig");
    beside.into()
}

async fn act(registry: &Registry, upload: Upload) -> Result<(), LifeCycleError> {
    let now = registry.now();
    let row = |action| move |version: &Version, changes: bool| step(version, action, now, changes);
    let installed = registry.install(upload, &row("component.install")).await?;
    // The folder is the operator's own word.
    let (name, digest) = (&installed.version.name, &installed.version.digest);
    registry.activate(name, digest, BY, &Consent::All, &row("component.activate")).await?;
    Ok(())
}

/// The audit row of what the operator did by putting a file into the folder; nothing where the file
/// changes nothing.
fn step(version: &Version, action: &str, now: Instant, changes: bool) -> Option<Act> {
    let details = json!({"version": version.version, "digest": version.digest});
    let row = AuditRow {
        at: now,
        actor: ("operator", BY),
        action,
        entity_type: Some("component"),
        entity_id: Some(&version.name),
        decision: "allowed",
        details: Some(&details),
        ..AuditRow::default()
    };
    audit_fact(&row).ok().filter(|_| changes).map(Act::from)
}

fn report(path: &Path, done: Result<(), LifeCycleError>) {
    match done {
        Ok(()) => {}
        Err(LifeCycleError::Unfit(faults)) => {
            for fault in faults {
                tracing::error!(file = %path.display(), "the component is not fit: {fault}");
            }
        }
        Err(error) => {
            tracing::error!(file = %path.display(), error = &error as &dyn std::error::Error, "the component was not taken")
        }
    }
}
