//! The decision of an account kit, which calls, the status, leave and what is foreseen share.

use charter_kernel::kit::{Denied, decide};
use charter_registry::served::{Live, Primitive};
use charter_tenancy::directory::KitRecord;

/// Whether a kit gives a primitive, and the version that it pins.
///
/// # Errors
/// [`Denied`] where it does not.
pub fn ask<'k>(
    primitive: &Primitive,
    kit: Option<&'k KitRecord>,
) -> Result<Option<&'k str>, Denied> {
    let gate = primitive.active().manifest.gate;
    match kit {
        Some(kit) => kit.decide(&primitive.name, gate),
        None => decide(&primitive.name, gate, None),
    }
}

/// Admits what a primitive does of its own accord, where the work is a project's or a user's: one
/// that the kit has switched off hears still what its provider and the host tell it, and acts no
/// more by that.
///
/// # Errors
/// [`Denied`] where the kit does not give it.
pub fn admit(live: &Live, primitive: &str, kit: Option<&KitRecord>) -> Result<(), Denied> {
    live.primitive(primitive).map_or(Ok(()), |primitive| ask(primitive, kit).map(drop))
}
