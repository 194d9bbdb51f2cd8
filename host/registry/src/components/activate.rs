//! Activating, rolling back, stepping back and removing: one commit each, decided by what that
//! commit has read.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use charter_kernel::time::Instant;
use charter_kernel::unit::{Fact, Reach};
use charter_store::{Query, TransactError, Txn};
use charter_tenancy::operator::Act;
use charter_tenancy::records::Record;
use charter_tenancy::records::pin::{PINNED, Pin};
use serde_json::json;

use super::record::{Activation, Consent, HISTORY_MAX, Removals, State, Version};
use super::{Inventory, LifeCycleError, Registry};

/// Kits that a refusal names; it says how many there are.
const PINS_NAMED: u32 = 20;

/// A step that was taken.
#[derive(Clone, Debug)]
pub struct Activated {
    /// The version that serves now.
    pub active: Arc<Version>,
    /// The digest that served before.
    pub previous: Option<String>,
    /// False where it served already.
    pub changed: bool,
}

/// Makes the act of a step, for the commit that takes it: of which version, and whether the step
/// changes anything. None where whoever takes it leaves no row and needs no credential.
pub type StepAct<'a> = &'a (dyn Fn(&Version, bool) -> Option<Act> + Sync);

/// The direction of a step.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Forward,
    Back,
}

impl Registry {
    /// Makes a version serve, once every live replica has compiled it and its indexes are built.
    /// The operator has to agree to all that it asks for, now or with a version before it.
    ///
    /// # Errors
    /// Nothing was changed.
    pub async fn activate(
        &self,
        name: &str,
        digest: &str,
        by: &str,
        consent: &Consent,
        act: StepAct<'_>,
    ) -> Result<Activated, LifeCycleError> {
        let _one = self.inner.stepping.lock().await;
        self.refresh().await?;
        let inventory = self.inventory();
        let version = inventory
            .find(name, digest)
            .ok_or_else(|| LifeCycleError::Absent(format!("{name} {digest}")))?
            .clone();
        usable(&version)?;
        require_consent(&inventory, &version, consent)?;
        self.inner.resident.load(digest).await.map_err(LifeCycleError::Unfit)?;
        self.inner.replicas.note(digest, None);
        self.inner.replicas.wait(digest, self.inner.settings.replica_wait_ms).await?;
        let former = inventory.active(name).and_then(|digest| inventory.find(name, digest));
        let others: Vec<_> = inventory.beside(&version).collect();
        self.backfill(former.map(|former| &former.manifest), &version.manifest, &others).await?;
        let step = self.inner.store.transact("", async |txn: &mut Txn| {
            let inventory = Inventory::read(txn, false).await?;
            let version = inventory
                .find(name, digest)
                .ok_or_else(|| LifeCycleError::Absent(format!("{name} {digest}")))?
                .clone();
            usable(&version)?;
            require_consent(&inventory, &version, consent)?;
            swap(txn, &inventory, version, (Step::Forward, by, self.now()), act).await
        });
        let activated = step.await.map_err(TransactError::flatten)?;
        self.refresh().await?;
        tracing::info!(
            component = name,
            digest,
            by,
            changed = activated.changed,
            "a component is active"
        );
        Ok(activated)
    }

    /// Builds the indexes of a version that is staged, once every live replica writes for them, so
    /// that a kit can pin it. Doing it again changes nothing.
    ///
    /// # Errors
    /// It stays staged, and no kit can pin it yet.
    pub async fn build(&self, name: &str, digest: &str) -> Result<(), LifeCycleError> {
        let absent = || LifeCycleError::Absent(format!("{name} {digest}"));
        let _one = self.inner.stepping.lock().await;
        self.refresh().await?;
        let inventory = self.inventory();
        let version = inventory.find(name, digest).ok_or_else(absent)?;
        if inventory.finds_all(version) {
            return Ok(());
        }
        self.inner.replicas.wait(digest, self.inner.settings.replica_wait_ms).await?;
        let active = inventory.active(name).and_then(|digest| inventory.find(name, digest));
        let others: Vec<_> = inventory.beside(version).collect();
        self.backfill(active.map(|active| &active.manifest), &version.manifest, &others).await?;
        let step = self.inner.store.transact("", async |txn: &mut Txn| {
            let inventory = Inventory::read(txn, false).await?;
            // One that came back after a removal was written for by nobody in between.
            let same = |found: &&Arc<Version>| found.removals == version.removals;
            let found = inventory.find(name, digest).filter(same).ok_or_else(absent)?;
            let built = Version { built: true, ..Version::clone(found) };
            txn.put(built.key(), built.draft()?).await?;
            Ok::<_, LifeCycleError>(())
        });
        step.await.map_err(TransactError::flatten)?;
        self.refresh().await?;
        tracing::info!(component = name, digest, "the indexes of a staged component are built");
        Ok(())
    }

    /// Goes back to the version that served before. Nothing is compiled: it is still in memory, or
    /// in the code cache. `from` is what is to be left; another one serving by now is a conflict.
    ///
    /// # Errors
    /// Nothing was changed.
    pub async fn rollback(
        &self,
        name: &str,
        from: Option<&str>,
        by: &str,
        act: StepAct<'_>,
    ) -> Result<Activated, LifeCycleError> {
        let step = self
            .inner
            .store
            .transact("", async |txn: &mut Txn| self.back(txn, name, from, (by, act)).await);
        let activated = step.await.map_err(TransactError::flatten)?;
        self.refresh().await?;
        tracing::warn!(
            component = name,
            digest = activated.active.digest,
            by,
            "a component was rolled back"
        );
        Ok(activated)
    }

    async fn back(
        &self,
        txn: &mut Txn,
        name: &str,
        from: Option<&str>,
        (by, act): (&str, StepAct<'_>),
    ) -> Result<Activated, LifeCycleError> {
        let inventory = Inventory::read(txn, false).await?;
        let active =
            inventory.active(name).ok_or_else(|| LifeCycleError::Absent(name.to_owned()))?;
        if from.is_some_and(|from| from != active) {
            let message = format!("{active} serves by now, not what was to be left");
            return Err(LifeCycleError::State { reason: "not_active", message });
        }
        let Some(version) = inventory.predecessor(name).cloned() else {
            let message =
                format!("no version of {name} served before this one; activate one by its digest");
            return Err(LifeCycleError::State { reason: "no_predecessor", message });
        };
        // It served under what was set then.
        self.inner.resident.fits(&version.manifest).map_err(LifeCycleError::Unfit)?;
        swap(txn, &inventory, version, (Step::Back, by, self.now()), act).await
    }

    /// The breaker's step: once, from exactly this version, to a healthy predecessor; the version
    /// is quarantined.
    pub(super) async fn step_back(&self, name: &str, digest: &str) {
        let stepped = self.try_step_back(name, digest).await;
        match stepped {
            Ok(Some(activated)) => {
                self.inner.stepped_back.fetch_add(1, Relaxed);
                tracing::error!(
                    component = name,
                    from = digest,
                    to = activated.active.digest,
                    "THE BREAKER STEPPED BACK: {name} trapped too often, for several organizations; the version is quarantined"
                );
                if let Err(error) = self.refresh().await {
                    tracing::error!(
                        error = &error as &dyn std::error::Error,
                        "the registry cannot be read"
                    );
                }
            }
            Ok(None) => tracing::error!(
                component = name,
                digest,
                "a component traps too often and there is nothing healthy to step back to"
            ),
            Err(error) => {
                tracing::error!(
                    error = &error as &dyn std::error::Error,
                    component = name,
                    "the breaker could not step back"
                )
            }
        }
    }

    async fn try_step_back(
        &self,
        name: &str,
        digest: &str,
    ) -> Result<Option<Activated>, LifeCycleError> {
        let step = self.inner.store.transact("", async |txn: &mut Txn| {
            let inventory = Inventory::read(txn, false).await?;
            let Some(activation) = inventory.activations.get(name) else { return Ok(None) };
            // Somebody stepped already, or this version is where the breaker itself went.
            if activation.active.as_deref() != Some(digest) || activation.by == "breaker" {
                return Ok(None);
            }
            let fits =
                |version: &&Arc<Version>| self.inner.resident.fits(&version.manifest).is_ok();
            let healthy = inventory
                .predecessor(name)
                .filter(|version| self.inner.breaker.healthy(&version.digest));
            let Some(version) = healthy.filter(fits).cloned() else { return Ok(None) };
            let step = (Step::Back, "breaker", self.now());
            let activated = swap(txn, &inventory, version, step, &|_, _| None).await?;
            if let Some(bad) = inventory.find(name, digest) {
                let reason = Some("it trapped too often, for several organizations".to_owned());
                let bad = Version { state: State::Quarantined, reason, ..Version::clone(bad) };
                txn.put(bad.key(), bad.draft()?).await?;
            }
            Ok(Some(activated))
        });
        step.await.map_err(TransactError::flatten)
    }

    /// Removes a version that does not serve and that no kit pins; its bytes go too.
    ///
    /// # Errors
    /// Nothing was changed.
    pub async fn remove(
        &self,
        name: &str,
        digest: &str,
        act: StepAct<'_>,
    ) -> Result<Arc<Version>, LifeCycleError> {
        let taking = self.inner.store.transact("", async |txn: &mut Txn| {
            let removed = remove_rows(txn, name, digest).await?;
            act(&removed, true).into_iter().for_each(|act| act.join(txn));
            Ok::<_, LifeCycleError>(removed)
        });
        let removed = taking.await.map_err(TransactError::flatten)?;
        self.refresh().await?;
        self.drop_bytes(&removed.blob()).await;
        tracing::info!(component = name, digest, "a component was removed");
        Ok(removed)
    }

    /// Removes bytes that no row names, nor ever will: however late, it takes nobody's.
    pub(super) async fn drop_bytes(&self, blob: &str) {
        if let Err(error) = self.inner.store.blob_remove(blob).await {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                blob,
                "a removed component's bytes are left behind"
            );
        }
    }
}

async fn remove_rows(
    txn: &mut Txn,
    name: &str,
    digest: &str,
) -> Result<Arc<Version>, LifeCycleError> {
    let inventory = Inventory::read(txn, false).await?;
    let version = inventory
        .find(name, digest)
        .ok_or_else(|| LifeCycleError::Absent(format!("{name} {digest}")))?
        .clone();
    let active = inventory.active(name) == Some(digest);
    if active && inventory.versions.get(name).is_some_and(|versions| versions.len() > 1) {
        let message = "it serves; roll back or activate another version first".to_owned();
        return Err(LifeCycleError::State { reason: "active", message });
    }
    require_unpinned(txn, &version).await?;
    if let Some(activation) = inventory.activations.get(name) {
        let mut activation = Activation::clone(activation);
        activation.history.retain(|known| known != digest);
        if active {
            txn.remove(&activation.key(), None).await?;
        } else {
            txn.put(activation.key(), activation.draft()?).await?;
        }
    }
    txn.remove(&version.key(), None).await?;
    let times = Removals::of(txn, digest).await? + 1;
    let removals = Removals { digest: digest.to_owned(), times };
    txn.put(removals.key(), removals.draft()?).await?;
    Ok(version)
}

/// No kit pins it, whosever it is; validated at the commit.
async fn require_unpinned(txn: &mut Txn, version: &Version) -> Result<(), LifeCycleError> {
    let on = Pin::on(&version.name, &version.version);
    let query = Query::all(&Reach::deployment(), &Pin::space()).equal(PINNED, on).limit(PINS_NAMED);
    let found = txn.find(&query).await?.items;
    if found.is_empty() {
        return Ok(());
    }
    let kits = found.iter().map(|(_, row)| Pin::read(row)).collect::<Result<_, _>>()?;
    let all = txn.count(&query).await?;
    Err(LifeCycleError::Pinned {
        version: format!("{} {}", version.name, version.version),
        kits,
        all,
    })
}

fn usable(version: &Version) -> Result<(), LifeCycleError> {
    if version.state != State::Quarantined {
        return Ok(());
    }
    let why = version.reason.as_deref().unwrap_or("it was stepped back from");
    let message = format!(
        "{} {} is quarantined: {why}; install a mended version under a new number",
        version.name, version.version
    );
    Err(LifeCycleError::State { reason: "quarantined", message })
}

fn require_consent(
    inventory: &Inventory,
    version: &Version,
    consent: &Consent,
) -> Result<(), LifeCycleError> {
    let missing = consent.lacks(inventory.missing_consents(version));
    if missing.is_empty() {
        return Ok(());
    }
    let message = format!(
        "{} {} asks for what you have not agreed to: {}; activate it with `agree` (providers get your credential, \
         routes answer everybody, words stand in events), or leave it staged",
        version.name,
        version.version,
        missing.join(", ")
    );
    Err(LifeCycleError::State { reason: "consent_required", message })
}

/// Takes a step: writes its rows, and the audit row with them, under the guards of who takes it.
async fn swap(
    txn: &mut Txn,
    inventory: &Inventory,
    to: Arc<Version>,
    step: (Step, &str, Instant),
    act: StepAct<'_>,
) -> Result<Activated, LifeCycleError> {
    let activated = write_step(txn, inventory, to, step).await?;
    act(&activated.active, activated.changed).into_iter().for_each(|act| act.join(txn));
    Ok(activated)
}

async fn write_step(
    txn: &mut Txn,
    inventory: &Inventory,
    to: Arc<Version>,
    (step, by, now): (Step, &str, Instant),
) -> Result<Activated, LifeCycleError> {
    let former = inventory.activations.get(&to.name);
    let previous = former.and_then(|former| former.active.clone());
    if previous.as_deref() == Some(to.digest.as_str()) {
        return Ok(Activated { active: to, previous, changed: false });
    }
    let mut history = former.map(|former| former.history.clone()).unwrap_or_default();
    match step {
        Step::Forward => history.extend(previous.clone()),
        // A version that is gone back to, and all that came after it, is no longer before the one
        // that serves.
        Step::Back => {
            history.truncate(history.iter().rposition(|digest| *digest == to.digest).unwrap_or(0))
        }
    }
    history.drain(..history.len().saturating_sub(HISTORY_MAX));
    let activation = Activation {
        name: to.name.clone(),
        active: Some(to.digest.clone()),
        history,
        at: now,
        by: by.to_owned(),
        // A version that is gone back to had served, and so its asks had been agreed to.
        agreed: Some(inventory.consents(&to.name).into_iter().chain(to.manifest.asks()).collect()),
    };
    txn.put(activation.key(), activation.draft()?).await?;
    let active = Version { state: State::Active, reason: None, ..Version::clone(&to) };
    txn.put(active.key(), active.draft()?).await?;
    if let Some(old) = previous.as_deref().and_then(|digest| inventory.find(&to.name, digest)) {
        let old = Version { state: State::Retired, ..Version::clone(old) };
        txn.put(old.key(), old.draft()?).await?;
    }
    if let Ok(fact) = fact(&active, previous.as_deref(), step, by, now) {
        txn.fact(fact);
    }
    Ok(Activated { active: Arc::new(active), previous, changed: true })
}

/// The deployment's own event, for others to hear.
fn fact(
    active: &Version,
    previous: Option<&str>,
    step: Step,
    by: &str,
    now: Instant,
) -> Result<Fact, getrandom::Error> {
    let mut random = [0; 10];
    getrandom::fill(&mut random)?;
    let name = if step == Step::Forward { "component.activated" } else { "component.rolled_back" };
    let body = json!({
        "name": active.name, "version": active.version, "digest": active.digest, "previous": previous, "by": by,
    });
    Ok(Fact::event(charter_kernel::id::uuid_v7(now, random), "", now, name, &body))
}

impl Registry {
    /// Removes retired versions beyond the latest `kept` of each primitive. The version that
    /// serves, the one that a rollback goes to, those that a kit pins and those that are
    /// quarantined stay.
    ///
    /// # Errors
    /// When the store does not take it.
    pub async fn forget_versions(&self, kept: u32) -> Result<(), LifeCycleError> {
        let inventory = self.inventory();
        for (name, versions) in &inventory.versions {
            let back = inventory.predecessor(name).map(|version| version.digest.clone());
            let retired = versions.iter().filter(|version| {
                version.state == State::Retired && Some(&version.digest) != back.as_ref()
            });
            let retired: Vec<_> = retired.collect();
            let surplus = retired.len().saturating_sub(kept as usize);
            for version in retired.into_iter().take(surplus) {
                match self.remove(name, &version.digest, &|_, _| None).await {
                    Ok(_) | Err(LifeCycleError::Pinned { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }
}
