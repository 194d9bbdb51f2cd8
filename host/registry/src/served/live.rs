//! The global table: which primitives are live, and which of them a path belongs to.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use charter_kernel::fault::Fault;
use charter_kernel::manifest::{Manifest, Mount};
use charter_kernel::route::{Found, Missing, Path, Segment, Table, Template};

use super::{Deprecated, MOUNTS, Reserved, Served, ServedOperation, operation};

/// One primitive with its live versions.
#[derive(Clone, Debug)]
pub struct Primitive {
    /// Its name.
    pub name: String,
    /// The version of everyone whose kit pins none.
    pub active: Arc<Served>,
    /// Further live versions, which kits pin.
    pub others: Vec<Arc<Served>>,
}

impl Primitive {
    /// The active version.
    pub fn active(&self) -> &Arc<Served> {
        &self.active
    }
    /// The live version of this number; the active one for none.
    pub fn version(&self, pinned: Option<&str>) -> Option<&Arc<Served>> {
        match pinned {
            None => Some(&self.active),
            Some(version) => std::iter::once(&self.active)
                .chain(&self.others)
                .find(|served| served.version() == version),
        }
    }
    /// Every live version, the active one first.
    pub fn versions(&self) -> impl Iterator<Item = &Arc<Served>> {
        std::iter::once(&self.active).chain(&self.others)
    }
}

/// The owner of a path of the global table.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The primitive.
    pub primitive: Arc<Primitive>,
    /// The operation in the first live version that has it: the active one, others in memory, those
    /// that are not.
    pub operation: Arc<ServedOperation>,
}

/// The live versions and their routes. Replaced whole at each activation.
#[derive(Debug, Default)]
pub struct Live {
    revision: u64,
    primitives: BTreeMap<String, Arc<Primitive>>,
    tables: HashMap<Mount, Table<Entry>>,
    /// The operations that a call by id can mean, in the order of [`Entry::operation`].
    operations: HashMap<Arc<str>, Entry>,
    /// The primitives of which any installed version asks for a signal, by the signal's kind.
    listeners: HashMap<String, BTreeSet<String>>,
    /// The deprecation of a family by the first segment of its paths.
    deprecated: HashMap<String, Arc<Deprecated>>,
}

impl Live {
    /// The table of these primitives, and of what else is `installed`: whoever's kit pins a version
    /// reaches its routes, and thereby loads it, however long ago it left memory.
    ///
    /// # Errors
    /// Every path that two primitives, or a primitive and the host, would both serve.
    pub fn new<'m>(
        revision: u64,
        reserved: &Reserved,
        primitives: Vec<Primitive>,
        installed: impl IntoIterator<Item = &'m Manifest>,
    ) -> Result<Self, Vec<Fault>> {
        let mut live = Self { revision, ..Self::default() };
        let mut faults = Vec::new();
        for primitive in primitives {
            let primitive = Arc::new(primitive);
            for served in primitive.versions() {
                live.add(reserved, &primitive, served, &mut faults);
            }
            live.primitives.insert(primitive.name.clone(), primitive);
        }
        faults.sort();
        faults.dedup();
        if !faults.is_empty() {
            return Err(faults);
        }
        for manifest in installed {
            live.add_dormant(reserved, manifest);
        }
        Ok(live)
    }

    /// The primitive that declares a regulated action, in any live version, and whether the action
    /// counts against caps.
    pub fn action(&self, name: &str) -> Option<(&Arc<Primitive>, bool)> {
        let primitive = self.primitives.get(name.split_once('.')?.0)?;
        let mut declared = primitive.versions().flat_map(|served| &served.manifest.actions);
        declared.find(|action| action.name == name).map(|action| (primitive, action.spends))
    }

    fn add(
        &mut self,
        reserved: &Reserved,
        primitive: &Arc<Primitive>,
        served: &Arc<Served>,
        faults: &mut Vec<Fault>,
    ) {
        self.listen(&served.manifest);
        for mount in MOUNTS {
            let Some(own) = served.table(mount) else { continue };
            for (_, method, template, operation) in own.iter() {
                let table = self.tables.entry(mount).or_default();
                let entry = Entry { primitive: primitive.clone(), operation: operation.clone() };
                self.operations
                    .entry(operation.contract.id.clone())
                    .or_insert_with(|| entry.clone());
                if table
                    .get_mut(method, template)
                    .is_some_and(|known| known.primitive.name == primitive.name)
                {
                    continue;
                }
                let within = format!("operations.{}.path", operation.declared);
                if let Some(host) = reserved.overlapping(mount, method, template) {
                    faults.push(Fault::new(
                        &within,
                        format!("{method} {template} overlaps {host}, which the host serves"),
                    ));
                }
                if let Err(overlap) = table.insert(&primitive.name, method, template.clone(), entry)
                {
                    faults.push(Fault::new(&within, overlap.to_string()));
                }
                if let (Some(deprecated), Some(Segment::Literal(first))) =
                    (&served.deprecated, template.segments().first())
                {
                    self.deprecated.entry(first.clone()).or_insert_with(|| deprecated.clone());
                }
            }
        }
    }

    fn listen(&mut self, manifest: &Manifest) {
        for signal in &manifest.signals {
            self.listeners.entry(signal.clone()).or_default().insert(manifest.name.clone());
        }
    }

    /// Adds what no version in memory has: routes, operations and signals of one that left it. A
    /// route that cannot be added is left out: it was admitted once, and must not keep from serving
    /// what is in use.
    fn add_dormant(&mut self, reserved: &Reserved, manifest: &Manifest) {
        let Some(primitive) = self.primitives.get(&manifest.name).cloned() else { return };
        self.listen(manifest);
        for (at, declared) in manifest.operations.iter().enumerate() {
            let Ok(template) = Template::parse(&declared.path) else { continue };
            let mut lacking = declared.mounts().to_vec();
            lacking.retain(|mount| {
                let known = self
                    .tables
                    .get_mut(mount)
                    .and_then(|table| table.get_mut(&declared.method, &template));
                known.is_none_or(|known| known.primitive.name != manifest.name)
            });
            if lacking.is_empty() && self.operations.contains_key(declared.id.as_str()) {
                continue;
            }
            // Its schemas count once the version is loaded: here it says who the sender has to be.
            let Some(operation) =
                operation(manifest, at, declared, "", &mut Vec::new()).map(Arc::new)
            else {
                continue;
            };
            let entry = Entry { primitive: primitive.clone(), operation };
            self.operations.entry(declared.id.as_str().into()).or_insert_with(|| entry.clone());
            for mount in lacking {
                let of_host = reserved.overlapping(mount, &declared.method, &template);
                let table = self.tables.entry(mount).or_default();
                if of_host.is_some()
                    || table
                        .insert(&manifest.name, &declared.method, template.clone(), entry.clone())
                        .is_err()
                {
                    let (component, version, path) =
                        (&manifest.name, &manifest.version, &declared.path);
                    tracing::warn!(
                        component,
                        version,
                        path,
                        "a version that is not in memory has a route that is taken"
                    );
                    continue;
                }
                if let (Some(deprecated), Some(Segment::Literal(first))) =
                    (&manifest.deprecation, template.segments().first())
                {
                    self.deprecated
                        .entry(first.clone())
                        .or_insert_with(|| Arc::new(Deprecated::new(deprecated)));
                }
            }
        }
    }

    /// Grows with each change.
    pub fn revision(&self) -> u64 {
        self.revision
    }
    /// One primitive.
    pub fn primitive(&self, name: &str) -> Option<&Arc<Primitive>> {
        self.primitives.get(name)
    }
    /// All of them, by name.
    pub fn primitives(&self) -> impl Iterator<Item = &Arc<Primitive>> {
        self.primitives.values()
    }
    /// Whether an event was called so before.
    pub fn had_event(&self, name: &str) -> bool {
        let mut declared =
            self.primitives().flat_map(|primitive| &primitive.active.manifest.events);
        declared.any(|event| event.formerly.iter().any(|former| former == name))
    }
    /// The names that an event had before, as the primitive that emits it says.
    pub fn former_names<'l>(&'l self, event: &'l str) -> impl Iterator<Item = &'l str> {
        let declared = self.primitives().flat_map(|primitive| &primitive.active.manifest.events);
        let named = declared.filter(move |declared| declared.name == event);
        named.flat_map(|declared| declared.formerly.iter().map(String::as_str))
    }
    /// The operation of this id, with its primitive.
    pub fn operation(&self, id: &str) -> Option<&Entry> {
        self.operations.get(id)
    }
    /// The primitives to tell of a signal, by name.
    pub fn listeners(&self, signal: &str) -> impl Iterator<Item = &String> {
        self.listeners.get(signal).into_iter().flatten()
    }
    /// Whether a primitive is to be told of a signal.
    pub fn listens(&self, signal: &str, primitive: &str) -> bool {
        self.listeners(signal).any(|name| name == primitive)
    }
    /// The owner of a path below a mount.
    ///
    /// # Errors
    /// See [`Missing`].
    pub fn find(
        &self,
        mount: Mount,
        method: &str,
        path: &Path,
    ) -> Result<Found<'_, Entry>, Missing> {
        self.tables.get(&mount).map_or(Err(Missing::Path), |table| table.find(method, path))
    }
    /// The deprecation of the family whose paths begin with this segment.
    pub fn deprecation(&self, first: &str) -> Option<&Arc<Deprecated>> {
        self.deprecated.get(first)
    }
}
