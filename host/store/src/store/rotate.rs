//! A new master key over every data key.
//!
//! Any step may be the last: the file holds each key that a data key is under, and the next rotation
//! goes on with the newest key of the file until it is marked as having ended. From the mark's
//! beginning on no process makes a data key under an older one.

use std::collections::BTreeMap;
use std::fs::{File, TryLockError};
use std::io::ErrorKind;
use std::path::Path;

use charter_kernel::unit::{Draft, Reach, Space};

use super::Store;
use super::presence::open_lock;
use crate::connection::beside;
use crate::error::{OpenError, ReadError, RotateError, SealError, TransactError, WriteError};
use crate::query::{Order, Page, Query};
use crate::seal::{Mark, Master, mark_row, organization_of};

/// Data keys that are read at once.
const ROWS: u32 = 200;

/// A rotation of the master key that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rotation {
    /// Whether it went on with the master key of one that had broken off, instead of a new one.
    pub resumed: bool,
    /// Data keys under the newest master key: organizations' and the deployment's own.
    pub data_keys: u64,
}

/// Those master keys the data keys are under.
#[derive(Default)]
struct Survey {
    /// How many data keys each opens, by its name.
    under: BTreeMap<String, u64>,
    /// Organizations whose data key none opens.
    closed: Vec<String>,
}

impl Survey {
    /// Whether a rotation has put the newest key into the file and not ended since. Earlier builds
    /// have marked none.
    fn is_unfinished(&self, master: &Master, mark: Option<&Mark>) -> bool {
        let newest = master.newest_name();
        match mark {
            Some(mark) => !mark.ended || mark.newest != newest,
            None => self.under.keys().any(|name| *name != newest) || self.trim(master).is_some(),
        }
    }

    /// The file without the keys that it needs no longer; nothing where it needs all.
    fn trim(&self, master: &Master) -> Option<Master> {
        master.without_unused(|name| self.under.contains_key(name))
    }
}

impl Store {
    /// Makes a new master key and wraps every data key anew, or goes on where that broke off. The
    /// key file holds the old keys too until nothing is under them. Replicas that share a database
    /// share the key file.
    ///
    /// # Errors
    /// [`RotateError::Unfinished`] once the file has the new key: another rotation goes on with it.
    /// Before, nothing is changed, as where a data key does not open.
    pub async fn rotate_master(&self) -> Result<Rotation, RotateError> {
        let sealer = &self.inner.sealer;
        let _alone = lock(&sealer.path)?;
        let mut master = sealer.master.write().await;
        // Another process may have rotated since this one read the file.
        let found = read(&sealer.path)?;
        let survey =
            self.survey(&found).await.map_err(|error| RotateError::Failed(error.into()))?;
        if let Some(first) = survey.closed.first() {
            let whose = if first.is_empty() { "the deployment itself" } else { first.as_str() };
            return Err(RotateError::Refused(format!(
                "{} does not open {} data keys, among them that of {whose}: add the lines of an older copy that does below its own",
                sealer.path.display(),
                survey.closed.len(),
            )));
        }
        let mark = self.mark().await.map_err(RotateError::Failed)?;
        let resumed = survey.is_unfinished(&found, mark.as_ref());
        *master = match resumed {
            true => found,
            false => make(&found, &sealer.path)
                .map_err(|error| RotateError::Failed(SealError::File(error)))?,
        };
        let newest = || master.newest_name();
        let begun = self.set_mark(Mark { newest: newest(), ended: false }).await;
        begun.map_err(RotateError::Unfinished)?;
        let data_keys = self.wrap_anew(&master).await.map_err(RotateError::Unfinished)?;
        let survey =
            self.survey(&master).await.map_err(|error| RotateError::Unfinished(error.into()))?;
        if !survey.closed.is_empty() {
            return Err(RotateError::Unfinished(SealError::Broken));
        }
        let ended = self.set_mark(Mark { newest: newest(), ended: true }).await;
        ended.map_err(RotateError::Unfinished)?;
        // The predecessor stays in the file until the next rotation: a backup of before opens with
        // it. A thief of it opens nothing that was wrapped anew.
        if let Some(kept) = survey.trim(&master) {
            kept.write(&sealer.path)
                .map_err(|error| RotateError::Unfinished(SealError::File(error)))?;
            *master = kept;
        }
        Ok(Rotation { resumed, data_keys })
    }

    async fn mark(&self) -> Result<Option<Mark>, SealError> {
        let row = self.get(&mark_row()).await?;
        row.map(|row| serde_json::from_str(&row.body).map_err(|_| SealError::Broken)).transpose()
    }

    async fn set_mark(&self, mark: Mark) -> Result<(), SealError> {
        let body = serde_json::to_string(&mark).map_err(|_| SealError::Broken)?;
        let set = self.transact("", async |txn| -> Result<(), SealError> {
            let draft = Draft { body: body.clone(), ..Draft::default() };
            match txn.put(mark_row(), draft).await {
                Ok(_) => Ok(()),
                Err(WriteError::Read(error)) => Err(error.into()),
                Err(WriteError::Refused(_)) => Err(SealError::Broken),
            }
        });
        set.await.map_err(TransactError::flatten)
    }

    /// Opens every data key, and counts them by what they are under.
    async fn survey(&self, master: &Master) -> Result<Survey, ReadError> {
        let mut survey = Survey::default();
        let mut after = None;
        loop {
            let page = self.data_keys_after(after).await?;
            for (key, row) in &page.items {
                let organization = organization_of(key);
                match master.find_wrapper(organization, &row.body) {
                    Ok(name) => *survey.under.entry(name).or_default() += 1,
                    Err(_) => survey.closed.push(organization.to_owned()),
                }
            }
            match page.next {
                Some(next) => after = Some(next),
                None => return Ok(survey),
            }
        }
    }

    /// Wraps each data key under the newest master key, where it is not yet; says how many there
    /// are.
    async fn wrap_anew(&self, master: &Master) -> Result<u64, SealError> {
        let newest = master.newest_name();
        let (mut data_keys, mut after) = (0, None);
        loop {
            let page = self.data_keys_after(after).await?;
            for (key, row) in page.items {
                data_keys += 1;
                let organization = organization_of(&key);
                if master.find_wrapper(organization, &row.body)? == newest {
                    continue;
                }
                let again = self.transact(organization, async |txn| -> Result<(), SealError> {
                    let Some(row) = txn.get(&key).await? else { return Ok(()) };
                    let data_key = master.unwrap(organization, &row.body)?;
                    let body = serde_json::to_string(&master.wrap(organization, &data_key)?)
                        .map_err(|_| SealError::Broken)?;
                    match txn.replace(key.clone(), Draft { body, ..Draft::default() }, None).await {
                        Ok(_) => Ok(()),
                        Err(WriteError::Read(error)) => Err(error.into()),
                        Err(WriteError::Refused(_)) => Err(SealError::Broken),
                    }
                });
                again.await.map_err(TransactError::flatten)?;
            }
            match page.next {
                Some(next) => after = Some(next),
                None => return Ok(data_keys),
            }
        }
    }

    async fn data_keys_after(&self, after: Option<String>) -> Result<Page, ReadError> {
        let all = Query::all(&Reach::deployment(), &Space::host("data_keys")).relax();
        self.find(&Query { order: Order::Oldest, limit: ROWS, after, ..all }).await
    }
}

/// The lock of a rotation.
struct Alone(File);

impl Drop for Alone {
    fn drop(&mut self) {
        // A program that is being started holds all files for a moment, and would keep the lock.
        let _ = self.0.unlock();
    }
}

/// Lets one process at a time rotate the key of this file.
fn lock(key_file: &Path) -> Result<Alone, RotateError> {
    let failed = |error| RotateError::Failed(SealError::File(error));
    let file = open_lock(&beside(key_file, ".lock")).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => Ok(Alone(file)),
        Err(TryLockError::WouldBlock) => {
            Err(RotateError::Refused("another rotation of it runs".into()))
        }
        // The file system knows no locks.
        Err(TryLockError::Error(error)) if error.kind() == ErrorKind::Unsupported => {
            Ok(Alone(file))
        }
        Err(TryLockError::Error(error)) => Err(failed(error)),
    }
}

fn read(key_file: &Path) -> Result<Master, RotateError> {
    match Master::read(key_file) {
        Ok(Some(master)) => Ok(master),
        Ok(None) => Err(RotateError::Refused(format!("{} is missing", key_file.display()))),
        Err(OpenError::File { source, .. }) => Err(RotateError::Failed(SealError::File(source))),
        Err(error) => Err(RotateError::Refused(error.to_string())),
    }
}

/// Puts a new key into the file, before those that are there.
fn make(found: &Master, key_file: &Path) -> std::io::Result<Master> {
    let next = found.with_new_key()?;
    next.write(key_file)?;
    Ok(next)
}
