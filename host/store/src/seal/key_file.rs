//! The key file: 32 random bytes in base64, readable by its owner only; after a rotation, the key
//! before it on the next line, and below it each older one that a data key is still under.

use std::io::{ErrorKind, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

use super::name_of;
use crate::connection::beside;
use crate::error::OpenError;

/// The newest key and the one before it, which stay in the file in any case.
const KEYS_KEPT: usize = 2;

/// The deployment's master key and its predecessors, newest first.
pub(crate) struct Master(Vec<Zeroizing<[u8; 32]>>);

impl Master {
    /// Reads the key file, if it is there.
    pub(crate) fn read(path: &Path) -> Result<Option<Self>, OpenError> {
        let file = |source| OpenError::File { path: path.display().to_string(), source };
        match std::fs::metadata(path) {
            Ok(found) if found.permissions().mode() & 0o077 != 0 => Err(OpenError::Configuration(
                format!("{} can be read by others than its owner: chmod 600 it", path.display()),
            )),
            Ok(_) => {
                let text = Zeroizing::new(std::fs::read_to_string(path).map_err(file)?);
                let keys: Option<Vec<_>> =
                    text.lines().filter(|line| !line.trim().is_empty()).map(key).collect();
                match keys {
                    Some(keys) if !keys.is_empty() => Ok(Some(Self(keys))),
                    _ => Err(OpenError::Configuration(format!(
                        "{} does not hold 32 bytes in base64",
                        path.display()
                    ))),
                }
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(file(error)),
        }
    }

    /// Makes the key file.
    pub(crate) fn make(path: &Path) -> Result<Self, OpenError> {
        let file = |source| OpenError::File { path: path.display().to_string(), source };
        let made = Self(vec![random().map_err(file)?]);
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(file)?;
        }
        made.write(path).map_err(file)?;
        Ok(made)
    }

    /// Writes the file whole, or leaves it as it was.
    pub(crate) fn write(&self, path: &Path) -> std::io::Result<()> {
        let new = beside(path, ".new");
        match std::fs::remove_file(&new) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file =
            std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        for key in &self.0 {
            let line = Zeroizing::new(STANDARD.encode(key.as_slice()) + "\n");
            file.write_all(line.as_bytes())?;
        }
        file.sync_all()?;
        std::fs::rename(&new, path)?;
        match path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            Some(folder) => std::fs::File::open(folder)?.sync_all(),
            None => Ok(()),
        }
    }

    pub(crate) fn newest(&self) -> &[u8; 32] {
        &self.0[0]
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &[u8; 32]> {
        self.0.iter().map(|key| &**key)
    }

    pub(crate) fn with_new_key(&self) -> std::io::Result<Self> {
        Ok(Self(std::iter::once(random()?).chain(self.0.iter().cloned()).collect()))
    }

    /// Leaves out the older keys that seal nothing, by name; nothing where all are needed.
    pub(crate) fn without_unused(&self, is_used: impl Fn(&str) -> bool) -> Option<Self> {
        let (kept, older) = self.0.split_at(KEYS_KEPT.min(self.0.len()));
        let used = older.iter().filter(|key| is_used(&name_of(key)));
        let keys: Vec<_> = kept.iter().chain(used).cloned().collect();
        (keys.len() < self.0.len()).then_some(Self(keys))
    }
}

fn key(line: &str) -> Option<Zeroizing<[u8; 32]>> {
    let bytes = Zeroizing::new(STANDARD.decode(line.trim()).ok()?);
    Some(Zeroizing::new(bytes.as_slice().try_into().ok()?))
}

fn random() -> std::io::Result<Zeroizing<[u8; 32]>> {
    let mut key = Zeroizing::new([0; 32]);
    getrandom::fill(key.as_mut_slice())
        .map_err(|error| std::io::Error::other(error.to_string()))?;
    Ok(key)
}
