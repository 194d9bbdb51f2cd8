//! The code cache: compiled components by digest, engine and machine.
//!
//! A file here is native code that the host will run. So the directory is ours alone or the host
//! does not start, and each file is read once, its MAC checked, and only then deserialised from
//! those very bytes. Anything torn, foreign or stale is a miss.

use std::fs::{self, File};
use std::hash::{Hash, Hasher};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use charter_kernel::time::Clock;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use wasmtime::Engine;
use wasmtime::component::Component as Code;

use crate::config::EngineError;

/// The first bytes of a file; raised when its layout changes.
const MAGIC: &[u8; 8] = b"charter1";
const MAC_BYTES: usize = 32;
/// Bytes of one file.
const FILE_BYTES_MAX: u64 = 512 << 20;

/// The compiled components on disk.
#[derive(Clone, Debug)]
pub(crate) struct CodeCache {
    inner: Arc<Inner>,
}

struct Inner {
    path: PathBuf,
    bytes_max: u64,
    key: zeroize::Zeroizing<[u8; 32]>,
    /// The environment that the code depends on besides the component: wasmtime's version, its
    /// settings, the machine.
    engine: [u8; 32],
    written: AtomicU64,
    clock: Arc<dyn Clock>,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CodeCache").field("path", &self.path).finish_non_exhaustive()
    }
}

/// SHA-256 behind the standard trait, which the engine's compatibility hash is offered through.
struct Sha(Sha256);

impl Hasher for Sha {
    fn finish(&self) -> u64 {
        0
    }
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }
}

impl CodeCache {
    /// Opens the directory, making it with mode 0700 if it is new.
    pub(crate) fn open(
        path: &Path,
        bytes_max: u64,
        key: [u8; 32],
        engine: &Engine,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, EngineError> {
        let refuse = |fault: String| EngineError::Cache { path: path.to_owned(), fault };
        if let Err(error) = fs::DirBuilder::new().recursive(true).mode(0o700).create(path) {
            return Err(refuse(format!("cannot be made: {error}")));
        }
        let found = fs::symlink_metadata(path)
            .map_err(|error| refuse(format!("cannot be read: {error}")))?;
        if !found.is_dir() {
            return Err(refuse("is no directory".into()));
        }
        if found.permissions().mode() & 0o077 != 0 {
            return Err(refuse("can be read or written by others: it must have mode 0700".into()));
        }
        let probe = path.join(format!(".probe-{}", std::process::id()));
        let own = File::create(&probe)
            .and_then(|file| file.metadata())
            .map_err(|error| refuse(format!("cannot be written: {error}")))?;
        let _ = fs::remove_file(&probe);
        if own.uid() != found.uid() {
            return Err(refuse("belongs to another user".into()));
        }
        let mut hash = Sha(Sha256::new());
        hash.write(MAGIC);
        hash.write(env!("WASMTIME_VERSION").as_bytes());
        engine.precompile_compatibility_hash().hash(&mut hash);
        let inner = Inner {
            path: path.to_owned(),
            bytes_max,
            key: zeroize::Zeroizing::new(key),
            engine: hash.0.finalize().into(),
            written: AtomicU64::new(0),
            clock,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    fn now(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_millis(u64::try_from(self.inner.clock.now().0).unwrap_or(0))
    }

    fn file(&self, digest: &str) -> PathBuf {
        let mut hash = Sha256::new();
        hash.update(self.inner.engine);
        hash.update(digest);
        let name: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        self.inner.path.join(format!("{name}.code"))
    }

    fn mac(&self, digest: &str, content: &[u8]) -> [u8; MAC_BYTES] {
        let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(&*self.inner.key) else {
            return [0; MAC_BYTES];
        };
        mac.update(&self.inner.engine);
        mac.update(digest.as_bytes());
        mac.update(content);
        mac.finalize().into_bytes().into()
    }

    /// The manifest text and code of a component, where they are kept and whole.
    pub(crate) fn load(&self, engine: &Engine, digest: &str) -> Option<(String, Code)> {
        let path = self.file(digest);
        let mut file = File::open(&path).ok()?;
        if file.metadata().ok()?.len() > FILE_BYTES_MAX {
            return None;
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).ok()?;
        let loaded = self.verify(digest, &bytes).and_then(|(text, code)| {
            // SAFETY: these bytes came out of `Code::serialize` in a process that held this
            // deployment's key, for this very engine: the MAC over them, the engine's hash and the
            // digest was just checked on this copy in memory.
            #[expect(
                unsafe_code,
                reason = "native code is loaded only after its MAC was checked; see the comment"
            )]
            let code = unsafe { Code::deserialize(engine, code) };
            code.ok().map(|code| (text, code))
        });
        match &loaded {
            // Its age is its last use: the oldest are evicted first.
            Some(_) => drop(file.set_modified(self.now())),
            None => {
                tracing::warn!(
                    digest,
                    "a file of the code cache is damaged or foreign; the component is compiled again"
                );
                let _ = fs::remove_file(&path);
            }
        }
        loaded
    }

    fn verify<'a>(&self, digest: &str, bytes: &'a [u8]) -> Option<(String, &'a [u8])> {
        let rest = bytes.strip_prefix(MAGIC)?;
        let (mac, content) = rest.split_at_checked(MAC_BYTES)?;
        if !bool::from(mac.ct_eq(&self.mac(digest, content))) {
            return None;
        }
        let (length, rest) = content.split_at_checked(4)?;
        let length = u32::from_le_bytes(length.try_into().ok()?) as usize;
        let (text, code) = rest.split_at_checked(length)?;
        Some((String::from_utf8(text.to_vec()).ok()?, code))
    }

    /// Keeps a component's code: written beside its place, flushed to disk, and moved there whole.
    pub(crate) fn store(&self, digest: &str, text: &str, code: &Code) {
        let kept = code
            .serialize()
            .map_err(std::io::Error::other)
            .and_then(|code| self.keep(digest, text, &code));
        if let Err(error) = kept {
            tracing::warn!(%error, digest, "the code cache could not keep a component");
        }
        self.evict();
    }

    fn keep(&self, digest: &str, text: &str, code: &[u8]) -> std::io::Result<()> {
        let length = u32::try_from(text.len()).map_err(std::io::Error::other)?;
        let mut content = Vec::with_capacity(text.len() + code.len() + 4);
        content.extend_from_slice(&length.to_le_bytes());
        content.extend_from_slice(text.as_bytes());
        content.extend_from_slice(code);
        let number = self.inner.written.fetch_add(1, Relaxed);
        let temporary = self.inner.path.join(format!(".new-{}-{number}", std::process::id()));
        let write = || {
            let mut file =
                fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
            file.write_all(MAGIC)?;
            file.write_all(&self.mac(digest, &content))?;
            file.write_all(&content)?;
            file.sync_all()?;
            fs::rename(&temporary, self.file(digest))?;
            File::open(&self.inner.path)?.sync_all()
        };
        let written = write();
        if written.is_err() {
            let _ = fs::remove_file(&temporary);
        }
        written
    }

    /// Removes the files that were not used for longest, until the rest fits.
    fn evict(&self) {
        let Ok(entries) = fs::read_dir(&self.inner.path) else { return };
        let mut files: Vec<_> = entries
            .filter_map(|entry| {
                let entry = entry.ok()?;
                let found = entry.metadata().ok()?;
                found.is_file().then(|| (found.modified().ok(), found.len(), entry.path()))
            })
            .collect();
        files.sort();
        let mut total: u64 = files.iter().map(|(_, bytes, _)| bytes).sum();
        for (_, bytes, path) in files {
            if total <= self.inner.bytes_max {
                return;
            }
            if fs::remove_file(path).is_ok() {
                total -= bytes;
            }
        }
    }
}

#[cfg(test)]
mod tests;
