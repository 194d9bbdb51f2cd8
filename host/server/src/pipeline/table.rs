//! The host's own routes, compiled: made once at start from the one list.

use std::collections::HashMap;
use std::sync::Arc;

use charter_kernel::fault::Fault;
use charter_kernel::manifest::Mount;
use charter_kernel::route::{Found, Missing, Path, Table, Template};

use crate::routes::{self, HostRoute};
use crate::served::Contract;

/// One route of the host.
pub struct HostEntry {
    /// What it has in common with primitives' operations.
    pub contract: Contract,
    /// Its declaration and handler.
    pub route: HostRoute,
}

/// All routes of the host, by mount.
pub struct HostTable {
    tables: HashMap<Mount, Table<Arc<HostEntry>>>,
    entries: Vec<Arc<HostEntry>>,
}

impl HostTable {
    /// Compiles the list.
    ///
    /// # Errors
    /// Every fault of a declaration.
    pub fn new() -> Result<Self, Vec<Fault>> {
        let mut faults = Vec::new();
        let mut table = Self { tables: HashMap::new(), entries: Vec::new() };
        for route in routes::all() {
            match Contract::of_host(&route) {
                Ok(contract) => table.add(HostEntry { contract, route }, &mut faults),
                Err(found) => faults.extend(found),
            }
        }
        if faults.is_empty() { Ok(table) } else { Err(faults) }
    }

    fn add(&mut self, entry: HostEntry, faults: &mut Vec<Fault>) {
        let entry = Arc::new(entry);
        let route = &entry.route;
        match Template::parse(route.path) {
            Ok(template) => {
                for mount in route.mounts {
                    let table = self.tables.entry(*mount).or_default();
                    if let Err(overlap) =
                        table.insert("host", route.method, template.clone(), entry.clone())
                    {
                        faults.push(Fault::new(route.id, overlap.to_string()));
                    }
                }
            }
            Err(texts) => faults.extend(texts.into_iter().map(|text| Fault::new(route.id, text))),
        }
        self.entries.push(entry);
    }

    /// The route of a path below a mount.
    ///
    /// # Errors
    /// See [`Missing`].
    pub fn find(
        &self,
        mount: Mount,
        method: &str,
        path: &Path,
    ) -> Result<Found<'_, Arc<HostEntry>>, Missing> {
        self.tables.get(&mount).map_or(Err(Missing::Path), |table| table.find(method, path))
    }

    /// All of them, in the order of the list.
    pub fn entries(&self) -> &[Arc<HostEntry>] {
        &self.entries
    }
}
