//! Installing: from bytes to a staged version, or to every fault of them.

use std::sync::Arc;

use bytes::Bytes;
use charter_kernel::fault::Fault;
use charter_kernel::manifest::{Manifest, Mount};
use charter_kernel::route::{Table, Template};
use charter_store::{TransactError, Txn};
use charter_tenancy::records::Record;
use sha2::{Digest, Sha256};

use super::record::{Removals, State, Version};
use super::{Inventory, LifeCycleError, Registry, StepAct, fault, signature};
use crate::served::{Live, Primitive, Served, template_at};

/// A component as it was handed in.
#[derive(Clone, Debug)]
pub struct Upload {
    /// The primitive that it is uploaded as; a file says it by its manifest alone.
    pub name: Option<String>,
    /// The component.
    pub bytes: Bytes,
    /// Base64 of the detached signature.
    pub signature: Option<String>,
}

/// An installed version.
#[derive(Clone, Debug)]
pub struct Installed {
    /// Its row.
    pub version: Arc<Version>,
    /// False where it was here already.
    pub fresh: bool,
}

/// `sha256:<hex>` of bytes, and the bytes of the digest.
pub(super) fn digest(bytes: &[u8]) -> (String, [u8; 32]) {
    let raw: [u8; 32] = Sha256::digest(bytes).into();
    let hex: String = raw.iter().map(|byte| format!("{byte:02x}")).collect();
    (format!("sha256:{hex}"), raw)
}

impl Registry {
    /// Checks a component in every way and keeps it as staged, in one commit with the audit row of
    /// that. Doing it again changes nothing.
    ///
    /// # Errors
    /// Every fault at once; nothing was changed.
    pub async fn install(
        &self,
        upload: Upload,
        act: StepAct<'_>,
    ) -> Result<Installed, LifeCycleError> {
        let (digest, raw) = digest(&upload.bytes);
        if let Err(message) =
            signature::check(&self.inner.settings.signing_keys, &raw, upload.signature.as_deref())
        {
            // A component that is not trusted is not even described.
            return Err(LifeCycleError::Unfit(vec![Fault::new("signature", message)]));
        }
        let component =
            self.inner.engine.stage(upload.bytes.clone()).await.map_err(LifeCycleError::Unfit)?;
        let served = Arc::new(Served::prepare(component).await.map_err(LifeCycleError::Unfit)?);
        let manifest = served.manifest.clone();
        let version = Version {
            name: manifest.name.clone(),
            version: manifest.version.clone(),
            digest: digest.clone(),
            state: State::Staged,
            manifest: (*manifest).clone(),
            signature: upload.signature.clone(),
            bytes: upload.bytes.len() as u64,
            installed_at: self.now(),
            reason: None,
            removals: 0,
            built: false,
        };
        let installed = self.keep(&upload, &served, &version, act).await?;
        let fits = self.inner.resident.fits(&manifest);
        if fits.is_ok() {
            self.inner.resident.admit(&digest, served);
        }
        self.refresh().await?;
        self.inner.replicas.note(&digest, fits.err().as_ref());
        tracing::info!(
            component = installed.version.name,
            version = installed.version.version,
            digest,
            fresh = installed.fresh,
            "a component is staged"
        );
        Ok(installed)
    }

    /// Keeps the bytes and then the row that names them.
    async fn keep(
        &self,
        upload: &Upload,
        served: &Arc<Served>,
        version: &Version,
        act: StepAct<'_>,
    ) -> Result<Installed, LifeCycleError> {
        let store = &self.inner.store;
        let name = upload.name.as_deref();
        loop {
            // Looked at once ahead of its own commit, so that the bytes of what is refused are not
            // kept.
            let seen = self.look(&mut store.begin(""), served, version, name).await?;
            let blob = seen.version.blob();
            store.blob_put(&blob, &upload.bytes).await?;
            let staged = store.transact("", async |txn: &mut Txn| {
                let found = self.look(txn, served, version, name).await?;
                if found.version.blob() != blob {
                    return Ok(None);
                }
                if found.fresh {
                    txn.insert(found.version.key(), found.version.draft()?).await?;
                }
                act(&found.version, found.fresh).into_iter().for_each(|act| act.join(txn));
                Ok::<_, LifeCycleError>(Some(found))
            });
            if let Some(installed) = staged.await.map_err(TransactError::flatten)? {
                return Ok(installed);
            }
            // A version of this digest was removed meanwhile: no row names these bytes again.
            self.drop_bytes(&blob).await;
        }
    }

    /// Finds the version that is here, or makes the one to insert.
    async fn look(
        &self,
        txn: &mut Txn,
        served: &Arc<Served>,
        version: &Version,
        name: Option<&str>,
    ) -> Result<Installed, LifeCycleError> {
        let inventory = Inventory::read(txn, false).await?;
        if name.is_none_or(|name| name == version.name)
            && let Some(known) = inventory.find(&version.name, &version.digest)
        {
            return Ok(Installed { version: known.clone(), fresh: false });
        }
        let faults = self.faults(&inventory, served, version, name);
        if !faults.is_empty() {
            return Err(LifeCycleError::Unfit(faults));
        }
        let removals = Removals::of(txn, &version.digest).await?;
        Ok(Installed { version: Arc::new(Version { removals, ..version.clone() }), fresh: true })
    }

    /// The faults that keep a fit component from standing beside those that are live.
    fn faults(
        &self,
        inventory: &Inventory,
        served: &Arc<Served>,
        version: &Version,
        name: Option<&str>,
    ) -> Vec<Fault> {
        let mut faults = Vec::new();
        if let Some(name) = name.filter(|name| *name != version.name) {
            let message = format!(
                "is {:?}, but the component was uploaded as {name:?}: use the manifest's name",
                version.name
            );
            faults.push(Fault::new("name", message));
        }
        if let Some(other) = inventory.by_number(&version.name, &version.version) {
            faults.push(Fault::new(
                "version",
                format!(
                    "{} {} is installed with another digest ({}) and a version never changes: raise the version",
                    version.name, version.version, other.digest
                ),
            ));
        }
        faults.extend(self.fits(served));
        faults.extend(overlaps(inventory, &version.manifest));
        for live in inventory.live().filter(|live| live.name == version.name) {
            faults.extend(charter_kernel::manifest::faults::narrowings(
                &live.manifest,
                &version.manifest,
            ));
        }
        faults.sort();
        faults.dedup();
        faults
    }

    /// Whether it fits beside the active versions of all others, and beside the host's own routes.
    fn fits(&self, served: &Arc<Served>) -> Vec<Fault> {
        let current = self.current();
        let others = current
            .primitives()
            .filter(|primitive| primitive.name != served.name())
            .map(|primitive| Primitive::clone(primitive));
        let own = Primitive {
            name: served.name().to_owned(),
            active: served.clone(),
            others: Vec::new(),
        };
        Live::new(0, &self.inner.reserved, others.chain([own]).collect(), [])
            .err()
            .unwrap_or_default()
    }
}

/// Paths that a live version of another primitive serves.
fn overlaps(inventory: &Inventory, manifest: &Manifest) -> Vec<Fault> {
    let mut table: Table<()> = Table::new();
    let routes = |manifest: &Manifest| -> Vec<(usize, String, Template)> {
        let at = |mount: Mount, path: &str| Template::parse(&template_at(mount, path)).ok();
        let operations = manifest.operations.iter().enumerate();
        operations
            .flat_map(|(n, operation)| {
                operation.mounts().iter().filter_map(move |mount| {
                    Some((n, operation.method.clone(), at(*mount, &operation.path)?))
                })
            })
            .collect()
    };
    for live in inventory.live().filter(|live| live.name != manifest.name) {
        for (_, method, template) in routes(&live.manifest) {
            // Versions of one primitive share their routes.
            let _ = table.insert(&live.name, &method, template, ());
        }
    }
    let mut faults = Vec::new();
    for (n, method, template) in routes(manifest) {
        if let Err(overlap) = table.insert(&manifest.name, &method, template, ())
            && overlap.owner != manifest.name
        {
            faults.push(Fault::new(format!("operations.{n}.path"), overlap.to_string()));
        }
    }
    faults
}

/// Bytes that are no component at all, for the folder.
pub(super) fn too_large(bytes_max: usize) -> LifeCycleError {
    LifeCycleError::Unfit(vec![fault(format!(
        "is larger than the {bytes_max} bytes that engine.component_bytes_max allows"
    ))])
}
