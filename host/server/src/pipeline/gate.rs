//! The kit gate: whether the user's account kit has the primitive, and in which version.

use std::sync::Arc;

use charter_kernel::refusal::Refusal;

use super::family::Target;
use super::identify::unreadable;
use super::scope::Scoped;
use super::trail::Trail;
use crate::app::App;
use crate::directory::KitRecord;
use crate::request::Place;
use crate::served::{Primitive, Served};

/// A request that its kit admits, and the component version that serves it; host routes have
/// neither.
pub struct Gated {
    /// The stage before.
    pub scoped: Scoped,
    /// The component version.
    pub served: Option<Arc<Served>>,
    /// The kit that applies.
    pub kit: Option<Arc<KitRecord>>,
}

/// Asks the kit.
pub async fn gate(app: &App, trail: &Trail, scoped: Scoped) -> Result<Gated, Refusal> {
    let Target::Primitive(primitive, _) = &scoped.identified.located.target else {
        return Ok(Gated { scoped, served: None, kit: None });
    };
    let Some(place) = &trail.place else {
        let served = primitive.active().clone();
        return Ok(Gated { scoped, served: Some(served), kit: None });
    };
    let (served, kit) = decide(app, primitive, place).await?;
    Ok(Gated { scoped, served: Some(served), kit })
}

/// Which version of the primitive the kit of a place gives it, if any.
///
/// # Errors
/// 403 where the kit says no.
pub async fn decide(
    app: &App,
    primitive: &Primitive,
    place: &Place,
) -> Result<(Arc<Served>, Option<Arc<KitRecord>>), Refusal> {
    let kit = kit(app, place).await?;
    let served = version(app, primitive, kit.as_deref()).await?;
    Ok((served, kit))
}

/// The kit that applies at a place.
///
/// # Errors
/// When the directory cannot be asked.
pub async fn kit(app: &App, place: &Place) -> Result<Option<Arc<KitRecord>>, Refusal> {
    let assigned = place.user.as_ref().and_then(|user| user.kit.as_ref());
    app.directory.kit(&place.project, assigned).await.map_err(unreadable)
}

async fn version(
    app: &App,
    primitive: &Primitive,
    kit: Option<&KitRecord>,
) -> Result<Arc<Served>, Refusal> {
    let gate = primitive.active().manifest.gate;
    let pinned = match kit {
        Some(kit) => kit.decide(&primitive.name, gate)?,
        None => charter_kernel::kit::decide(&primitive.name, gate, None)?,
    };
    let served = match (primitive.version(pinned), pinned) {
        (Some(served), _) => Some(served.clone()),
        // Not in memory: nobody has asked for it lately.
        (None, Some(version)) => app.registry.pinned(&primitive.name, version).await,
        (None, None) => None,
    };
    served.ok_or_else(|| {
        // The kit names a version that is not installed: the operator has to install it, or the kit
        // to let go of it.
        Refusal::not_configured(&[format!("{}@{}", primitive.name, pinned.unwrap_or_default())])
    })
}
