//! Path templates, request paths and the table that brings them together.
//!
//! A template is made of literals, parameters (`{id}`), prefixed parameters (`reconcile-{name}`)
//! and at most one tail (`{path*}`) at its end. Knows no route: templates come from manifests and
//! from the server's own list.

mod path;
mod table;
mod template;

pub(crate) use path::decode;
pub use path::{Path, PathFault};
pub use table::{Found, Missing, Overlap, Table};
pub use template::{Segment, Template};
