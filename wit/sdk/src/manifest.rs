//! The manifest as the primitive declares it: plain builders, serialised by `describe` and by
//! nothing else.
//!
//! The shapes are those of `wit/manifest.schema.json`. The parts that a signature already says
//! (schemas, status, list style) are not said again: see [`Contract`].

mod declared;
mod operation;
mod primitive;

pub use declared::{Action, ErrorCode, Event, Provider, Setting};
pub use operation::{
    Access, Authority, Catalogue, Mount, Operation, Pays, delete, get, patch, post, put,
};
pub use primitive::{Gate, Primitive};

pub use crate::contract::Contract;
