//! The host's own routes, compiled: made once at start from the one list, which the table is given.

use std::collections::HashMap;
use std::sync::Arc;

use charter_kernel::fault::Fault;
use charter_kernel::manifest::Mount;
use charter_kernel::route::{Found, Missing, Path, Table, Template};
use charter_registry::served::{self, BodyRule, Contract, Counters, Reserved};

use crate::html::HTML;
use crate::route::{self, HostRoute};

/// One route of the host.
pub struct HostEntry {
    /// The contract that it has in common with primitives' operations.
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
    pub fn new(list: Vec<HostRoute>) -> Result<Self, Vec<Fault>> {
        let mut faults = Vec::new();
        let mut table = Self { tables: HashMap::new(), entries: Vec::new() };
        for route in list {
            match contract(&route) {
                Ok(contract) => table.add(HostEntry { contract, route }, &mut faults),
                Err(found) => faults.extend(found),
            }
        }
        if faults.is_empty() { Ok(table) } else { Err(faults) }
    }

    fn add(&mut self, entry: HostEntry, faults: &mut Vec<Fault>) {
        let entry = Arc::new(entry);
        let route = &entry.route;
        for mount in route.mounts {
            let table = self.tables.entry(*mount).or_default();
            let path = entry.contract.path.clone();
            if let Err(overlap) = table.insert("host", route.method, path, entry.clone()) {
                faults.push(Fault::new(route.id, overlap.to_string()));
            }
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

/// The paths that no primitive may serve: each route of the host at each of its mounts.
pub fn reserved_paths(list: &[HostRoute]) -> Reserved {
    let at_mounts =
        |route: HostRoute| route.mounts.iter().map(move |mount| (route.method, *mount, route.path));
    Reserved::new(list.iter().copied().flat_map(at_mounts))
}

/// The contract of a host route, or every fault of its path, else of its schemas.
fn contract(route: &HostRoute) -> Result<Contract, Vec<Fault>> {
    let named = |texts: Vec<String>| texts.into_iter().map(|text| Fault::new(route.id, text));
    let path = Template::parse(route.path).map_err(|texts| named(texts).collect::<Vec<_>>())?;
    let mut faults = Vec::new();
    let mut compile = |what: &str, schema: Option<fn() -> serde_json::Value>| {
        let schema = schema?();
        served::compile_schema(&schema, &format!("{}.{what}", route.id), &mut faults)
    };
    let query = compile("query", route.shapes.query);
    let body = compile("body", route.shapes.body);
    let body = match (body, route.consumes) {
        (_, Some((media_type, size_max))) => {
            BodyRule::Raw { media_type: media_type.into(), size_max: Some(size_max) }
        }
        (Some(schema), None) => BodyRule::Json(schema),
        (None, None) => BodyRule::None,
    };
    let contract = Contract {
        id: route.id.into(),
        method: route.method,
        path,
        auth: route.auth.into(),
        class: route.class,
        access: route.access,
        mutates: route.method != "GET",
        catalogue: route.catalogue,
        paging: route.paging,
        path_schema: None,
        query,
        body,
        page: route.produces == Some(HTML),
        counters: Counters::default(),
    };
    if faults.is_empty() { Ok(contract) } else { Err(faults) }
}

impl From<route::Auth> for served::Auth {
    fn from(auth: route::Auth) -> Self {
        match auth {
            route::Auth::Open => Self::Open,
            route::Auth::Key => Self::Key,
            route::Auth::Session => Self::Session,
            route::Auth::Operator => Self::Operator,
        }
    }
}
