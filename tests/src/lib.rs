//! The harness of the end-to-end tests: a real server, on a real database, spoken to as a client
//! speaks to it.
//!
//! Knows the wire and the command line, and nothing of what lies behind them. A test that fails
//! prints the exchange and the end of the server's log.

pub mod answer;
pub mod artefacts;
pub mod billed;
pub mod cases;
pub mod client;
pub mod database;
pub mod double;
pub mod localstripe;
pub mod parrot;
pub mod patience;
pub mod postgres;
pub mod provider;
pub mod raw;
pub mod relay;
pub mod server;
pub mod signature;
pub mod stream;
pub mod stripe;
mod template;
pub mod tenant;
pub mod tether;
pub mod world;

pub use answer::Answer;
pub use client::Client;
pub use database::Database;
pub use tenant::Tenant;
pub use world::World;

/// Runs each function on both databases: `on_both! { fn a_sentence(world: World) { … } }`.
///
/// `fn …(world: Builder::new())` gives each its own deployment. Without a builder they share one
/// for each database, and each registers an organization of its own; `in path;` before the
/// functions names whose it is, where it is not [`World::shared`].
#[macro_export]
macro_rules! on_both {
    ($($(#[$attribute:meta])* fn $name:ident($world:ident) $body:block)+) => {
        $crate::on_both! { in $crate::World::shared; $($(#[$attribute])* fn $name($world) $body)+ }
    };
    (in $shared:path; $($(#[$attribute:meta])* fn $name:ident($world:ident) $body:block)+) => {$(
        $(#[$attribute])*
        mod $name {
            #[allow(unused_imports, reason = "a test may need none of what its file imports")]
            use super::*;
            fn run($world: &$crate::World) $body
            #[test]
            fn sqlite() {
                run($shared($crate::Database::Sqlite));
            }
            #[test]
            fn postgresql() {
                run($shared($crate::Database::Postgresql));
            }
        }
    )+};
    ($($(#[$attribute:meta])* fn $name:ident($world:ident: $builder:expr) $body:block)+) => {$(
        $(#[$attribute])*
        mod $name {
            #[allow(unused_imports, reason = "a test may need none of what its file imports")]
            use super::*;
            fn run($world: &mut $crate::World) $body
            #[test]
            fn sqlite() {
                run(&mut $crate::world::Builder::start($builder, $crate::Database::Sqlite));
            }
            #[test]
            fn postgresql() {
                run(&mut $crate::world::Builder::start($builder, $crate::Database::Postgresql));
            }
        }
    )+};
}
