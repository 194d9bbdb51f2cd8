//! The decision of an account kit, which calls, the status, leave and what is foreseen share.

use charter_kernel::kit::{Denied, decide};
use charter_registry::served::Primitive;
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
