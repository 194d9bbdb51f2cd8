//! The project's own commands, as functions: `cargo xtask` is a thin command line over them, and
//! the end-to-end tests call the same ones, so that `cargo test` alone builds what it needs.
//!
//! Knows cargo, rustup and the layout of the workspace; knows nothing of what the code in it does.

pub mod bench;
pub mod components;
pub mod fuzz;
pub mod lint;
pub mod mutants;
pub mod prerequisites;
pub mod process;
pub mod run;
pub mod rust;
pub mod scaffold;
pub mod test;
pub mod tidy;
pub mod workspace;
