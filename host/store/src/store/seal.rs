//! Sealing under an organization's data key, and how data keys come to be.

use charter_kernel::hex::hex;
use charter_kernel::unit::{Draft, Key, Row};
use zeroize::Zeroizing;

use super::Store;
use crate::error::SealError;
use crate::seal::{
    DataKey, Mark, Master, authenticate, bind_text, decrypt, derive_key, encrypt, mark_row, row_of,
};

/// Attempts at making a data key while others make it too.
const ATTEMPTS_MAX: u32 = 8;
/// Data keys kept unwrapped in memory.
const KEYS_MAX: usize = 4_096;

impl Store {
    /// Encrypts bytes under the organization's data key; `context` (which row, which field) is
    /// authenticated with them.
    pub async fn seal(
        &self,
        organization: &str,
        context: &str,
        bytes: &[u8],
    ) -> Result<Vec<u8>, SealError> {
        let key = self.data_key(organization).await?;
        encrypt(&key, &bind_text(organization, context), bytes)
    }

    /// Decrypts what was sealed under the same organization and context.
    pub async fn unseal(
        &self,
        organization: &str,
        context: &str,
        sealed: &[u8],
    ) -> Result<Vec<u8>, SealError> {
        let key = self.data_key(organization).await?;
        let opened = decrypt(&key, &bind_text(organization, context), sealed)?;
        Ok(opened.to_vec())
    }

    /// A key for a purpose of its own (cursors, the code cache). It stays the same when the master
    /// key is rotated.
    pub fn derive(&self, label: &str) -> [u8; 32] {
        derive_key(&self.inner.root, label)
    }

    /// A digest of what a row says, in hexadecimal: the same content of the same row has the same one,
    /// and nobody who has no key of the deployment's can try out what it may be.
    pub(crate) fn digest(&self, key: &Key, body: &str) -> String {
        let row = [key.reach.as_str(), "\0", key.space.as_str(), "\0", &key.id, "\0"];
        let parts = row.into_iter().chain([body]);
        hex(&authenticate(&self.derive("changes"), parts))
    }

    /// The deployment's root of derived keys: a data key of its own, made at the first start.
    pub(crate) async fn root(&self) -> Result<Zeroizing<[u8; 32]>, SealError> {
        self.data_key("").await
    }

    /// The organization's data key, made on first use.
    async fn data_key(&self, organization: &str) -> Result<DataKey, SealError> {
        let sealer = &self.inner.sealer;
        if let Some(key) = sealer.data_keys.read().await.get(organization) {
            return Ok(key.clone());
        }
        let made = self.make_data_key(organization).await?;
        let mut known = sealer.data_keys.write().await;
        if known.len() >= KEYS_MAX {
            known.clear();
        }
        known.insert(organization.to_owned(), made.clone());
        Ok(made)
    }

    /// Reads or makes the row. A plain loop rather than [`Store::transact`]: a future that holds an
    /// async closure cannot be shown to be `Send` for every lifetime, and guests' capabilities need
    /// that.
    async fn make_data_key(&self, organization: &str) -> Result<DataKey, SealError> {
        let row = row_of(organization);
        for _ in 0..ATTEMPTS_MAX {
            let mut txn = self.begin(organization);
            if let Some(kept) = txn.get(&row).await? {
                return self.unwrap_key(organization, &kept.body).await;
            }
            let mut key = Zeroizing::new([0; 32]);
            getrandom::fill(key.as_mut_slice()).map_err(|_| SealError::Broken)?;
            let mark = txn.get(&mark_row()).await?;
            self.follow_rotation(mark.as_ref()).await?;
            let wrapped = self.inner.sealer.master.read().await.wrap(organization, &key)?;
            let body = serde_json::to_string(&wrapped).map_err(|_| SealError::Broken)?;
            match txn.put(row.clone(), Draft { body, ..Draft::default() }).await {
                Ok(_) => {}
                Err(crate::WriteError::Read(error)) => return Err(error.into()),
                Err(crate::WriteError::Refused(_)) => return Err(SealError::Broken),
            }
            match txn.commit().await {
                Ok(_) => return Ok(key),
                Err(error) if error.is_conflict() => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(SealError::Broken)
    }

    /// Has the newest master key be the one that the transaction's commit finds still the newest:
    /// a rotation by another process leaves none behind that is under an older one.
    async fn follow_rotation(&self, mark: Option<&Row>) -> Result<(), SealError> {
        let Some(row) = mark else { return Ok(()) };
        let mark: Mark = serde_json::from_str(&row.body).map_err(|_| SealError::Broken)?;
        let sealer = &self.inner.sealer;
        if sealer.master.read().await.newest_name() == mark.newest {
            return Ok(());
        }
        let master = Master::read(&sealer.path).ok().flatten().ok_or(SealError::Broken)?;
        *sealer.master.write().await = master;
        Ok(())
    }

    /// Another replica may have rotated since the key file was read.
    async fn unwrap_key(&self, organization: &str, body: &str) -> Result<DataKey, SealError> {
        let sealer = &self.inner.sealer;
        if let Ok(key) = sealer.master.read().await.unwrap(organization, body) {
            return Ok(key);
        }
        let master = Master::read(&sealer.path).ok().flatten().ok_or(SealError::Broken)?;
        let key = master.unwrap(organization, body)?;
        *sealer.master.write().await = master;
        Ok(key)
    }
}
