//! The kit gate: whether the user's account kit has the primitive, and in which version.

use std::sync::Arc;

use charter_kernel::refusal::Refusal;

use super::family::Target;
use super::scope::Scoped;
use super::trail::Trail;
use crate::app::App;
use crate::directory::KitRecord;
use crate::served::{Primitive, Served};

/// A request that its kit admits, and the component version that serves it; host routes have
/// neither.
pub struct Gated {
    /// The stage before.
    pub scoped: Scoped,
    /// The component version.
    pub served: Option<Arc<Served>>,
}

/// Asks the kit.
pub async fn gate(app: &App, trail: &Trail, scoped: Scoped) -> Result<Gated, Refusal> {
    let Target::Primitive(primitive, _) = &scoped.identified.located.target else {
        return Ok(Gated { scoped, served: None });
    };
    let Some(place) = &trail.place else {
        let served = primitive.active().clone();
        return Ok(Gated { scoped, served: Some(served) });
    };
    let served = decide(app, primitive, place.kit.as_deref()).await?;
    Ok(Gated { scoped, served: Some(served) })
}

/// Which version of the primitive a kit gives, if any: the one decision that HTTP, nested calls,
/// jobs and hooks share.
///
/// # Errors
/// 403 where the kit says no, 501 where it pins a version that is not installed.
pub async fn decide(
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
