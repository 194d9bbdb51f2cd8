//! The world outside: bindings to providers and the guarded way out to them, mail, webhooks, and
//! the words of those who call in. One folder a protocol.
//!
//! Knows no request, no pipeline and no primitive. Invariant: nothing leaves but through
//! [`egress::Gate`], and what has to leave exactly as recorded is a row of its cause's commit first.

use std::sync::{Arc, OnceLock};

use charter_kernel::refusal::Refusal;
use charter_kernel::time::Instant;
use charter_kernel::unit::Write;
use charter_store::Store;
use charter_tenancy::notices::Notices;
use charter_tenancy::records::mail::About;

use egress::Gate;
use providers::Providers;
use settings::Settings;
use webhooks::deliveries::Wanted;

mod conduit;
pub mod egress;
pub mod hooks;
pub mod kinds;
pub mod mail;
mod metered;
pub mod providers;
pub mod public;
pub mod settings;
pub mod webhooks;

/// The adapters' needs of the host. Shared by reference; nothing in it is replaced after start.
pub struct Adapters {
    /// The store, in which outgoing mails and deliveries wait.
    pub store: Store,
    /// The bindings, by name.
    pub providers: Providers,
    /// The way out of the host; there once it listens.
    pub gate: OnceLock<Arc<Gate>>,
    /// The operator's settings.
    pub settings: Settings,
    /// Endpoints that deliveries are due to: they are sent at once.
    pub deliveries_wanted: Wanted,
}

impl Adapters {
    /// Adapters without a way out yet.
    pub fn new(store: Store, providers: Providers, settings: Settings) -> Self {
        Self {
            store,
            providers,
            gate: OnceLock::new(),
            settings,
            deliveries_wanted: Wanted::default(),
        }
    }
}

impl Notices for Adapters {
    fn notice(&self, about: About, now: Instant) -> Result<Option<Write>, Refusal> {
        mail::notice(self, about, now)
    }
}
