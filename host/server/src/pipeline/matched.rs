//! The match of a request: an operation of the component version that the kit chose, or a route of
//! the host.

use std::sync::Arc;

use charter_kernel::authority::Class;
use charter_kernel::manifest::Mount;
use charter_kernel::refusal::Refusal;
use charter_kernel::route::{Missing, Path};
use charter_kernel::scope::{ActorKind, Level};
use charter_registry::served::{Auth, Contract, Served, ServedOperation};

use super::caller::Caller;
use super::family::{Located, Target};
use super::gate::{self, Gated};
use super::rates;
use super::trail::{Business, Trail};
use crate::app::App;
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

/// Counts the request by its caller's rates, passes the kit's gate, and finds the operation in the table
/// of the version that the kit gives.
///
/// # Errors
/// 404 and 405 where that version has none, and as [`rates::count`] and [`gate::gate`].
pub async fn find(
    app: &App,
    trail: &mut Trail,
    located: Located<'_>,
    caller: Arc<Caller>,
) -> Result<Matched, Refusal> {
    let Located { accepted, mount, path, target, .. } = located;
    let method = accepted.method.as_str();
    let caller = match &target {
        Target::Host(..) => caller,
        Target::Primitive(primitive, _) => {
            let active = primitive.active().table(mount).and_then(|it| it.find(method, &path).ok());
            match active {
                Some(active) => caller.party_to(active.value.contract.class),
                None => caller,
            }
        }
    };
    let is_primitives = matches!(target, Target::Primitive(..));
    rates::count(app, trail, &caller, is_primitives)?;
    let matched = match target {
        Target::Host(entry, parameters) => {
            Matched { caller, operation: Operation::Host(entry), parameters }
        }
        Target::Primitive(primitive, _) => {
            let gated = gate::gate(app, caller, &primitive).await?;
            let found = Matched::at_path(gated, mount, method, &path);
            found.map_err(|missing| match missing {
                Missing::Path => Refusal::not_found(),
                Missing::Method { allow } => {
                    let refusal = Refusal::method_not_allowed(&allow);
                    trail.allow = Some(allow);
                    refusal
                }
            })?
        }
    };
    trail.caller = Some(matched.caller().clone());
    trail.business = matched.business();
    let contract = matched.operation().contract();
    trail.note(contract);
    trail.stats = Some(contract.stats(mount, |method, path| app.metrics.route(method, path)));
    Ok(matched)
}

/// Passes the kit's gate, and finds the operation of this id where primitives may call it at all, or
/// a person who asked for it does again, `approved`; its path takes those of the given members that
/// it names. The trail knows the operation before anything refuses it.
///
/// # Errors
/// 404 where the version that the kit gives has none, 403 `not_callable`, and as [`gate::gate`].
pub async fn find_callable(
    app: &App,
    trail: &mut Trail,
    caller: Caller,
    (id, given): (&str, &[(String, String)]),
    approved: bool,
) -> Result<Matched, Refusal> {
    let live = app.registry.current();
    let unknown = || Refusal::resource_not_found("operation");
    let known = live.operation(id).ok_or_else(unknown)?;
    let class = known.operation.contract.class;
    trail.note(&known.operation.contract);
    // A change goes on only as long as the outer caller's credential counts.
    if known.operation.contract.mutates {
        caller.require_credential(app).await?;
    }
    let caller = caller.call_on(app, class).await?;
    trail.caller = Some(caller.clone());
    trail.business = business_of_guest(class);
    let gated = gate::gate(app, caller, &known.primitive).await?;
    let (caller, served) = gated.into_parts();
    let operation = served.operation(id).ok_or_else(unknown)?.clone();
    let by_session = approved && caller.scope().actor().kind == ActorKind::Session;
    check_callable(&operation.contract, &known.operation.contract, by_session)?;
    let value = |name: &str| given.iter().find(|(own, value)| own == name && !value.is_empty());
    let names = operation.contract.path.parameters();
    let parameters = names.filter_map(|name| value(name).cloned()).collect();
    let matched = Matched { caller, operation: Operation::Guest(served, operation), parameters };
    trail.business = matched.business();
    trail.note(matched.operation().contract());
    Ok(matched)
}

/// Refuses an operation that primitives may not call. `armed` is what another version has under its
/// id; a session's own request is made again as its own.
fn check_callable(contract: &Contract, armed: &Contract, by_session: bool) -> Result<(), Refusal> {
    let is_taken = contract.auth == Auth::Key || (by_session && contract.auth == Auth::Session);
    let told = if !is_taken {
        "Only operations that take an API key can be called by primitives."
    } else if contract.mutates && !armed.mutates {
        // The outer request was armed for a read.
        "The version that the kit pins changes something where another one reads."
    } else {
        return Ok(());
    };
    Err(Refusal::forbidden("not_callable", told))
}

impl Matched {
    fn at_path(gated: Gated, mount: Mount, method: &str, path: &Path) -> Result<Self, Missing> {
        let (caller, served) = gated.into_parts();
        let table = served.table(mount).ok_or(Missing::Path)?;
        let found = table.find(method, path)?;
        let (operation, parameters) = (found.value.clone(), found.parameters);
        Ok(Self { caller, operation: Operation::Guest(served, operation), parameters })
    }

    /// The caller.
    pub fn caller(&self) -> &Arc<Caller> {
        &self.caller
    }

    /// The operation that will answer.
    pub fn operation(&self) -> &Operation {
        &self.operation
    }

    /// The one whose business it is.
    pub fn business(&self) -> Business {
        let class = self.operation.contract().class;
        match (&self.operation, self.caller.place()) {
            (Operation::Guest(..), _) => business_of_guest(class),
            (Operation::Host(_), Some(place)) => business_of_host(class, place.scope().level()),
            (Operation::Host(_), None) => Business::Project,
        }
    }

    /// Path parameters, decoded.
    pub fn parameters(&self) -> &[(String, String)] {
        &self.parameters
    }
}

/// A primitive acts for a profile, named or not, unless its operation is the organization's own.
fn business_of_guest(class: Class) -> Business {
    if class.is_whole() { Business::Organization } else { Business::User }
}

/// The host does for a tenant user what it reads of a profile and does at its desk.
fn business_of_host(class: Class, level: Level) -> Business {
    if class.is_of_organization(level) {
        return Business::Organization;
    }
    match class.at(level) {
        Class::DeskRead | Class::DeskChange | Class::ProfileRead => Business::User,
        _ => Business::Project,
    }
}
