//! The capabilities, one file for each interface that decides something. They read and write
//! through the attempt's transaction; the kernel's rules decide.

mod documents;
mod events;
mod governance;
mod hooks;
mod jobs;
mod leases;
mod ledger;
mod primitives;
mod rest;

pub(crate) use hooks::HookRecord;
pub(crate) use jobs::{JobRecord, jobs};
