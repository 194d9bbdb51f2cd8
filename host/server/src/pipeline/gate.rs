//! The kit gate: whether the caller's account kit has the primitive, and in which version.

use std::sync::Arc;

use charter_governance::kits;
use charter_kernel::refusal::Refusal;
use charter_kernel::scope::ActorKind;
use charter_registry::served::{Primitive, Served};
use charter_tenancy::directory::KitRecord;
use charter_tenancy::place::Place;

use super::caller::Caller;
use crate::app::App;

/// A caller whose kit admits a primitive, and the component version that serves the caller. Only
/// [`gate`] makes one.
pub struct Gated {
    caller: Arc<Caller>,
    served: Arc<Served>,
}

impl Gated {
    /// The caller, and the version.
    pub(super) fn into_parts(self) -> (Arc<Caller>, Arc<Served>) {
        (self.caller, self.served)
    }
}

/// Asks the kit; a caller without a place has none, and is served the active version.
///
/// # Errors
/// As [`decide`].
pub async fn gate(app: &App, caller: Arc<Caller>, primitive: &Primitive) -> Result<Gated, Refusal> {
    let served = match caller.place() {
        Some(place) => decide(app, primitive, place.kit().map(AsRef::as_ref)).await?,
        None => primitive.active().clone(),
    };
    Ok(Gated { caller, served })
}

/// Admits a call of what another primitive has. A client's request was asked when it began, and goes
/// on as it was admitted.
///
/// # Errors
/// 403 where the kit of the project or user does not give the one that calls.
pub fn admit_caller(app: &App, caller: &Caller, primitive: &str) -> Result<(), Refusal> {
    let is_told = |place: &&Place| {
        let kind = place.scope().actor().kind;
        matches!(kind, ActorKind::Hook | ActorKind::System) && place.scope().project().is_some()
    };
    match caller.place().filter(is_told) {
        Some(place) => {
            Ok(kits::admit(&app.registry.current(), primitive, place.kit().map(AsRef::as_ref))?)
        }
        None => Ok(()),
    }
}

/// The version of the primitive that a kit gives, if any: what HTTP, nested calls, jobs and hooks
/// are served.
///
/// # Errors
/// 403 where the kit says no, 501 where it pins a version that is not installed.
pub async fn decide(
    app: &App,
    primitive: &Primitive,
    kit: Option<&KitRecord>,
) -> Result<Arc<Served>, Refusal> {
    let pinned = kits::ask(primitive, kit)?;
    let served = match (primitive.version(pinned), pinned) {
        (Some(served), _) => Some(served.clone()),
        // Not in memory: nobody has asked for it lately.
        (None, Some(version)) => app.registry.load_pinned(&primitive.name, version).await,
        (None, None) => None,
    };
    served.ok_or_else(|| {
        // The kit names a version that is not installed: the operator has to install it, or the kit
        // to let go of it.
        Refusal::not_configured(&[format!("{}@{}", primitive.name, pinned.unwrap_or_default())])
    })
}
