//! Write a Charter primitive. A primitive is one value of [`Primitive`]: what it declares, and the
//! functions that serve it.
//!
//! ```
//! use charter_sdk::prelude::*;
//!
//! /// A note, as it is kept.
//! #[derive(Clone, Serialize, Deserialize, JsonSchema)]
//! struct Note {
//!     /// What it says.
//!     #[schemars(length(min = 1, max = 10_000))]
//!     text: String,
//! }
//!
//! const NOTES: Collection<Note> = Collection::new("notes");
//!
//! fn write(Body(note): Body<Note>) -> Result<Created<Note>> {
//!     Ok(Created(NOTES.insert(note)?.body))
//! }
//!
//! fn read(Path(ById { id }): Path<ById>) -> Result<Note> {
//!     Ok(NOTES.get(&id)?.or_not_found("note")?.body)
//! }
//!
//! pub fn primitive() -> Primitive {
//!     Primitive::new("notes", env!("CARGO_PKG_VERSION"))
//!         .title("Notes")
//!         .collection(&NOTES)
//!         .operation(post("notes.write", "/notes", write).summary("Write a note"))
//!         .operation(get("notes.read", "/notes/{id}", read).summary("Read a note"))
//! }
//!
//! charter_sdk::export!(primitive);
//!
//! let host = Host::new(primitive);
//! assert_eq!(host.post("/notes", json!({ "text": "hello" })).unwrap().status, 201);
//! # use charter_double::Host;
//! ```
//!
//! The signature is the contract: argument and return types give the schemas, the status and the
//! list style; doc comments become descriptions. The host validates before the function runs,
//! commits what it wrote together with the answer, and runs it again on a conflict. Natively the
//! same function runs against `charter_double::Host`, so its rules are tested without a runtime.
//!
//! The SDK knows the interface (`wit/primitive.wit`) and nothing of the host's insides.

pub mod bindings;

mod answer;
mod contract;
pub mod documents;
pub mod events;
mod exchange;
mod extract;
mod failure;
pub mod governance;
mod handler;
pub mod hooks;
mod host;
pub mod http;
pub mod jobs;
mod json;
pub mod leases;
pub mod ledger;
pub mod log;
pub mod manifest;
pub mod money;
#[cfg(not(target_arch = "wasm32"))]
pub mod native;
pub mod paging;
pub mod primitives;
mod schema;
pub mod secrets;
pub mod settings;
pub mod signals;
pub mod streams;
pub mod stripe;
mod time;

pub use answer::{Answer, Created, Done, NoContent, Respond, Soon, Wait};
pub use bindings::Request;
pub use documents::{At, Collection, Doc, Index, Reach, checkpoint};
pub use extract::{Body, ById, Bytes, Caller, Context, Extract, Headers, Path, Query};
pub use failure::{Failure, OrNotFound, Result};
pub use handler::Handler;
pub use json::AnyJson;
pub use manifest::{
    Access, Authority, Catalogue, Gate, Mount, Operation, Primitive, delete, get, patch, post, put,
};
pub use signals::Signal;
pub use time::{Instant, now};

pub use {schemars, serde, serde_json};

/// The usual imports of a primitive's file.
pub mod prelude {
    pub use crate::paging::{After, Cursor, Envelope, Offset};
    pub use crate::{
        Access, AnyJson, Authority, Body, ById, Caller, Collection, Context, Created, Doc, Done,
        Failure, Index, Instant, NoContent, OrNotFound, Path, Primitive, Query, Result, Signal,
        Wait, delete, get, now, patch, post, put,
    };
    pub use schemars::JsonSchema;
    pub use serde::{Deserialize, Serialize};
    pub use serde_json::json;
}

/// Makes a component of a function that answers a [`Primitive`]. Natively it exports nothing: the
/// linker of no other target knows the component's symbol names.
#[macro_export]
macro_rules! export {
    ($primitive:ident) => {
        #[cfg(target_arch = "wasm32")]
        #[expect(unsafe_code, reason = "exported symbols are unsafe attributes")]
        mod component {
            struct Component;

            impl $crate::bindings::Guest for Component {
                fn describe() -> String {
                    $crate::Primitive::describe(&super::$primitive())
                }
                fn handle(
                    request: $crate::bindings::Request,
                ) -> Result<$crate::bindings::Answer, $crate::bindings::Failure> {
                    $crate::Primitive::handle(&super::$primitive(), &request)
                }
                fn react(
                    caller: $crate::bindings::Caller,
                    signal: $crate::bindings::Signal,
                ) -> Result<Option<$crate::bindings::Answer>, $crate::bindings::Failure> {
                    $crate::Primitive::react(&super::$primitive(), caller, signal)
                }
            }

            $crate::bindings::export_component!(Component with_types_in $crate::bindings);
        }
    };
}
