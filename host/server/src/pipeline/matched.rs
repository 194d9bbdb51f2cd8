//! Which operation of the component version that the kit chose.

use std::sync::Arc;

use charter_kernel::refusal::Refusal;
use charter_kernel::route::Missing;

use super::family::Target;
use super::gate::Gated;
use super::table::HostEntry;
use super::trail::Trail;
use crate::app::App;
use crate::served::{Contract, Served, ServedOperation};

/// What will answer.
#[derive(Clone)]
pub enum Operation {
    /// A handler of the host.
    Host(Arc<HostEntry>),
    /// An operation of a component version.
    Guest(Arc<Served>, Arc<ServedOperation>),
}

impl Operation {
    /// What it says of itself.
    pub fn contract(&self) -> &Contract {
        match self {
            Self::Host(entry) => &entry.contract,
            Self::Guest(_, operation) => &operation.contract,
        }
    }
}

/// A request whose operation is known.
pub struct Matched {
    /// The stage before.
    pub gated: Gated,
    /// What will answer.
    pub operation: Operation,
    /// Path parameters, decoded.
    pub parameters: Vec<(String, String)>,
}

/// Finds the operation in the version's own table.
pub fn match_operation(app: &App, trail: &mut Trail, gated: Gated) -> Result<Matched, Refusal> {
    let located = &gated.scoped.identified.located;
    let (operation, parameters) = match (&located.target, &gated.served) {
        (Target::Host(entry, parameters), _) => {
            (Operation::Host(entry.clone()), parameters.clone())
        }
        (Target::Primitive(..), None) => return Err(Refusal::internal()),
        (Target::Primitive(..), Some(served)) => {
            let table = served.table(located.mount).ok_or_else(Refusal::not_found)?;
            match table.find(located.accepted.method.as_str(), &located.path) {
                Ok(found) => {
                    (Operation::Guest(served.clone(), found.value.clone()), found.parameters)
                }
                Err(Missing::Path) => return Err(Refusal::not_found()),
                Err(Missing::Method { allow }) => {
                    let refusal = Refusal::method_not_allowed(&allow);
                    trail.allow = Some(allow);
                    return Err(refusal);
                }
            }
        }
    };
    let contract = operation.contract();
    trail.catalogue = contract.catalogue;
    trail.mutates = contract.mutates;
    trail.operation = Some(contract.id.clone());
    trail.stats =
        Some(contract.stats(located.mount, |method, path| app.metrics.route(method, path)));
    Ok(Matched { gated, operation, parameters })
}
