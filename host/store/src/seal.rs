//! Envelope encryption: the key file seals organizations' data keys, a data key seals values.
//!
//! XChaCha20-Poly1305 with random nonces; what a value belongs to is authenticated with it, so that
//! a sealed value put elsewhere does not open. Keys are wiped when dropped, and nothing here prints
//! itself.

mod key_file;

use std::collections::BTreeMap;
use std::path::PathBuf;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{Key as CipherKey, XChaCha20Poly1305, XNonce};
use charter_kernel::unit::{Key, Reach, Space};
use hmac::{Hmac, Mac};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tokio::sync::RwLock;
use zeroize::Zeroizing;

use crate::config::StoreConfig;
use crate::connection::Database;
use crate::dialect::Dialect;
use crate::error::{CommitError, OpenError, SealError};
use crate::sql::{Connection, query};

pub(crate) use key_file::Master;

/// First byte of a sealed value: the format.
const FORMAT: u8 = 1;
const NONCE_BYTES: usize = 24;

/// The key that seals an organization's values.
pub(crate) type DataKey = Zeroizing<[u8; 32]>;

pub(crate) struct Sealer {
    pub(crate) path: PathBuf,
    pub(crate) master: RwLock<Master>,
    pub(crate) data_keys: RwLock<BTreeMap<String, DataKey>>,
}

/// A data key as its row keeps it.
#[derive(Serialize, Deserialize)]
pub(crate) struct Wrapped {
    /// The master key that wraps it.
    master: String,
    key: String,
}

impl Sealer {
    /// Reads the key file. It is made, if at all, only for a database that nothing was sealed in: a
    /// fresh key opens no other.
    pub(crate) async fn open(
        config: &StoreConfig,
        database: &Database,
        makes: bool,
    ) -> Result<Self, OpenError> {
        let path = path_of(config);
        let master = match Master::read(&path)? {
            Some(master) => master,
            None if !makes || is_sealed(database).await? => {
                return Err(OpenError::Configuration(format!(
                    "the key file {} is missing, and this database is sealed under it: put the deployment's master key there",
                    path.display()
                )));
            }
            None => Master::make(&path)?,
        };
        Ok(Self { path, master: RwLock::new(master), data_keys: RwLock::default() })
    }
}

fn path_of(config: &StoreConfig) -> PathBuf {
    config.key_file.clone().unwrap_or_else(|| config.data_dir.join("master.key"))
}

/// Whether the database holds any data key.
async fn is_sealed(database: &Database) -> Result<bool, OpenError> {
    let mut connection = database.reader().await.map_err(OpenError::Database)?;
    Ok(root_row(&mut connection, database.dialect).await.map_err(OpenError::Database)?.is_some())
}

/// The wrapped root key, which is there from the first start on.
async fn root_row(connection: &mut Connection, dialect: Dialect) -> sqlx::Result<Option<String>> {
    let row = row_of("");
    let sql = dialect.sql("SELECT body FROM documents WHERE reach = $1 AND space = $2 AND id = $3");
    let query = query(sql).bind(row.reach.as_str()).bind(row.space.as_str()).bind(row.id.as_str());
    query.fetch_optional(connection).await?.map(|row| row.try_get(0)).transpose()
}

/// Whether the key file, where there is one, opens what the connection sees.
pub(crate) async fn opens(
    config: &StoreConfig,
    connection: &mut Connection,
    dialect: Dialect,
) -> Result<bool, OpenError> {
    let Some(master) = Master::read(&path_of(config))? else { return Ok(true) };
    let root = root_row(connection, dialect).await.map_err(OpenError::Database)?;
    Ok(root.is_none_or(|body| master.unwrap("", &body).is_ok()))
}

pub(crate) fn row_of(organization: &str) -> Key {
    // All in one reach, so that a rotation finds them.
    Key::new(
        &Reach::deployment(),
        &Space::host("data_keys"),
        if organization.is_empty() { "-" } else { organization },
    )
}

/// The newest master key, by its name, as the database knows it: a data key is made under no other.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Mark {
    pub(crate) newest: String,
    /// Whether every data key is under it: until then a rotation is under way, or has broken off.
    pub(crate) ended: bool,
}

/// The address of the [`Mark`], which the first rotation makes.
pub(crate) fn mark_row() -> Key {
    Key::new(&Reach::deployment(), &Space::host("master_key"), "-")
}

/// The party whose data key the row keeps; nobody's where it is the deployment's own.
pub(crate) fn organization_of(row: &Key) -> &str {
    if row.id == "-" { "" } else { row.id.as_str() }
}

/// Seals bytes under a key; `context` is authenticated with them.
pub(crate) fn encrypt(key: &[u8; 32], context: &str, bytes: &[u8]) -> Result<Vec<u8>, SealError> {
    let mut nonce = [0; NONCE_BYTES];
    getrandom::fill(&mut nonce).map_err(|_| SealError::Broken)?;
    let cipher = XChaCha20Poly1305::new(&CipherKey::from(*key));
    let payload = Payload { msg: bytes, aad: context.as_bytes() };
    let sealed = cipher.encrypt(&XNonce::from(nonce), payload).map_err(|_| SealError::Broken)?;
    Ok([&[FORMAT], nonce.as_slice(), &sealed].concat())
}

pub(crate) fn decrypt(
    key: &[u8; 32],
    context: &str,
    sealed: &[u8],
) -> Result<Zeroizing<Vec<u8>>, SealError> {
    let (format, rest) = sealed.split_first().ok_or(SealError::Broken)?;
    let (nonce, bytes) = rest.split_at_checked(NONCE_BYTES).ok_or(SealError::Broken)?;
    let nonce: [u8; NONCE_BYTES] = nonce.try_into().map_err(|_| SealError::Broken)?;
    if *format != FORMAT {
        return Err(SealError::Broken);
    }
    let cipher = XChaCha20Poly1305::new(&CipherKey::from(*key));
    let opened =
        cipher.decrypt(&XNonce::from(nonce), Payload { msg: bytes, aad: context.as_bytes() });
    opened.map(Zeroizing::new).map_err(|_| SealError::Broken)
}

/// A key for one purpose.
pub(crate) fn derive_key(key: &[u8; 32], label: &str) -> [u8; 32] {
    authenticate(key, [label])
}

/// HMAC-SHA-256 of these texts, one after the other.
pub(crate) fn authenticate<'a>(
    key: &[u8; 32],
    parts: impl IntoIterator<Item = &'a str>,
) -> [u8; 32] {
    let mut mac = match Hmac::<Sha256>::new_from_slice(key) {
        Ok(mac) => mac,
        // HMAC takes keys of any length.
        Err(_) => return [0; 32],
    };
    parts.into_iter().for_each(|part| mac.update(part.as_bytes()));
    mac.finalize().into_bytes().into()
}

/// The text that a value is bound to; organization and context cannot run into each other.
pub(crate) fn bind_text(organization: &str, context: &str) -> String {
    format!("{}:{organization}:{context}", organization.len())
}

impl Master {
    pub(crate) fn wrap(&self, organization: &str, key: &DataKey) -> Result<Wrapped, SealError> {
        let sealed = encrypt(self.newest(), &bind_text(organization, "data key"), key.as_slice())?;
        Ok(Wrapped { master: name_of(self.newest()), key: STANDARD.encode(sealed) })
    }

    pub(crate) fn unwrap(&self, organization: &str, body: &str) -> Result<DataKey, SealError> {
        let wrapped: Wrapped = serde_json::from_str(body).map_err(|_| SealError::Broken)?;
        let sealed = STANDARD.decode(&wrapped.key).map_err(|_| SealError::Broken)?;
        let key =
            self.keys().find(|key| name_of(key) == wrapped.master).ok_or(SealError::Broken)?;
        let opened = decrypt(key, &bind_text(organization, "data key"), &sealed)?;
        Ok(Zeroizing::new(opened.as_slice().try_into().map_err(|_| SealError::Broken)?))
    }

    /// The name of the key that the row's data key is under, where that opens it.
    pub(crate) fn find_wrapper(&self, organization: &str, body: &str) -> Result<String, SealError> {
        self.unwrap(organization, body)?;
        let wrapped: Wrapped = serde_json::from_str(body).map_err(|_| SealError::Broken)?;
        Ok(wrapped.master)
    }

    pub(crate) fn newest_name(&self) -> String {
        name_of(self.newest())
    }
}

/// How a master key is called beside what it wraps; says nothing about it.
fn name_of(key: &[u8; 32]) -> String {
    Sha256::digest(derive_key(key, "name"))[..8].iter().map(|byte| format!("{byte:02x}")).collect()
}

impl From<SealError> for OpenError {
    fn from(error: SealError) -> Self {
        match error {
            SealError::Broken => Self::Configuration(
                "the key file does not open this database: it is another deployment's, or an older copy of the right one"
                    .into(),
            ),
            SealError::Commit(CommitError::ReadOnly { reason }) => Self::Configuration(reason),
            error => Self::Configuration(format!("the deployment's keys cannot be read: {error}")),
        }
    }
}
