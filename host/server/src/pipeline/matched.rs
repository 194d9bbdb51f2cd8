//! The match of a request: an operation of the component version that the kit chose, or a route of
//! the host.

use std::sync::Arc;

use charter_kernel::manifest::Mount;
use charter_kernel::route::{Missing, Path, Template};
use charter_registry::served::{Contract, Served, ServedOperation};

use super::caller::Caller;
use super::gate::Gated;
use crate::table::HostEntry;

/// The operation that will answer.
#[derive(Clone)]
pub enum Operation {
    /// A handler of the host.
    Host(Arc<HostEntry>),
    /// An operation of a component version.
    Guest(Arc<Served>, Arc<ServedOperation>),
}

impl Operation {
    /// Its contract.
    pub fn contract(&self) -> &Contract {
        match self {
            Self::Host(entry) => &entry.contract,
            Self::Guest(_, operation) => &operation.contract,
        }
    }
}

/// A caller, and the operation that the caller asks for. An operation of a primitive has passed the
/// kit's gate.
pub struct Matched {
    caller: Arc<Caller>,
    operation: Operation,
    parameters: Vec<(String, String)>,
}

impl Matched {
    /// A route of the host.
    pub fn route(
        caller: Arc<Caller>,
        entry: Arc<HostEntry>,
        parameters: Vec<(String, String)>,
    ) -> Self {
        Self { caller, operation: Operation::Host(entry), parameters }
    }

    /// The operation at a path of the version's own table.
    ///
    /// # Errors
    /// See [`Missing`].
    pub fn find(gated: Gated, mount: Mount, method: &str, path: &Path) -> Result<Self, Missing> {
        let (caller, served) = gated.into_parts();
        let table = served.table(mount).ok_or(Missing::Path)?;
        let found = table.find(method, path)?;
        let (operation, parameters) = (found.value.clone(), found.parameters);
        Ok(Self { caller, operation: Operation::Guest(served, operation), parameters })
    }

    /// The operation of this id, with those of the given members that its path takes; nothing where
    /// the version has none.
    pub fn by_id(gated: Gated, id: &str, given: &[(String, String)]) -> Option<Self> {
        let (caller, served) = gated.into_parts();
        let operation = served.operation(id)?.clone();
        let template = Template::parse(&operation.contract.path).ok()?;
        let value = |name: &str| given.iter().find(|(own, value)| own == name && !value.is_empty());
        let parameters = template.parameters().filter_map(|name| value(name).cloned()).collect();
        Some(Self { caller, operation: Operation::Guest(served, operation), parameters })
    }

    /// The caller.
    pub fn caller(&self) -> &Arc<Caller> {
        &self.caller
    }

    /// The operation that will answer.
    pub fn operation(&self) -> &Operation {
        &self.operation
    }

    /// Path parameters, decoded.
    pub fn parameters(&self) -> &[(String, String)] {
        &self.parameters
    }
}
