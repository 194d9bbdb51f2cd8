//! The host's side of the interface's resources, which guests hold by handle.

/// Leave to take a regulated action: its place among the request's.
#[derive(Debug)]
pub struct Permit {
    pub(crate) id: String,
}

/// A chunked answer under way. Nobody can hold one here: none is ever made.
#[derive(Debug)]
pub enum Writer {}
