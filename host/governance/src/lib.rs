//! The gateway that every regulated action passes: policy, then caps, then the hold, in one unit.
//!
//! Knows no primitive: an action is a name that a manifest declares. The rules are the kernel's;
//! here they meet the organization's records and the rows of its meters. Invariant: leave is
//! committed together with the hold behind it, under the very policy, kit and budgets that decided.

use std::sync::Arc;

use charter_kernel::time::Clock;
use charter_registry::components::Registry;
use charter_store::Store;
use charter_tenancy::directory::Directory;
use charter_tenancy::notices::Notices;
use sums::Sums;

pub mod approvals;
pub mod aside;
pub mod audit;
pub mod caps;
pub mod decide;
pub mod gateway;
pub mod kits;
pub mod lifecycle;
pub mod records;
pub mod sums;
pub mod verify;

/// Everything that governing needs of the host. Nothing in it is replaced after start.
pub struct Governance {
    /// Rows and facts.
    pub store: Store,
    /// Credentials and tenancy, cached.
    pub directory: Directory,
    /// The registry, which knows the primitives that listen.
    pub registry: Registry,
    /// How people are told of what waits for them.
    pub notices: Arc<dyn Notices>,
    /// The primitive that bills organizations; empty where nobody is billed.
    pub biller: String,
    /// Sums that take long.
    pub sums: Sums,
    /// How many approvals of an organization may wait for people.
    pub approvals_waiting_max: u64,
    /// The time.
    pub clock: Arc<dyn Clock>,
}
