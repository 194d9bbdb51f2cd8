//! The gateway that every regulated action passes: policy, then caps, then the hold, in one unit.
//!
//! Knows no primitive: an action is a name that a manifest declares. The rules are the kernel's;
//! here they meet the organization's records and the rows of its meters. Invariant: leave is
//! committed together with the hold behind it, under the very policy, kit and budgets that decided.

pub mod approvals;
pub mod caps;
pub mod decide;
pub mod gateway;
pub mod verify;
