//! The engine: one sandbox for the process, and the four things it does: stage, open, call, report.
//!
//! Knows nothing of routes or tenancy rules; it takes a [`Scope`](charter_kernel::scope::Scope) as given.

use std::sync::Arc;

use bytes::Bytes;
use charter_kernel::fault::Fault;
use charter_kernel::time::Clock;
use charter_store::Store;

use crate::answer::Outcome;
use crate::call::Call;
use crate::component::Component;
use crate::config::{EngineConfig, EngineError};
use crate::egress::Egress;
use crate::host::Host;
use crate::stats::Stats;

/// The sandbox of this process. Cheap to clone.
#[derive(Clone)]
pub struct Engine {
    pub(crate) shared: Arc<Shared>,
}

impl Engine {
    /// Sets the sandbox up; falls back, loudly, on machines with little address space. `host` and `egress` may be handed in
    /// later with [`Engine::attach`], as they usually need the engine themselves.
    pub fn new(config: EngineConfig, store: Store, clock: Arc<dyn Clock>) -> Result<Self, EngineError> { unimplemented!() }
    /// Hands in the server's side; calls before it answer `not_configured`. Only the first call counts.
    pub fn attach(&self, host: Arc<dyn Host>, egress: Arc<dyn Egress>) { unimplemented!() }
    /// Checks, compiles (or takes from the code cache) and self-tests a component: what an upload goes through.
    pub async fn stage(&self, wasm: Bytes) -> Result<Arc<Component>, Vec<Fault>> { unimplemented!() }
    /// Loads a component that this deployment staged before: from the code cache where it can. The digest is checked.
    pub async fn open(&self, digest: &str, wasm: impl AsyncFnOnce() -> Option<Bytes>) -> Result<Arc<Component>, Vec<Fault>> { unimplemented!() }
    /// Runs one call to its end, in a task of its own that outlives the client. Dropping the future does not stop it;
    /// cancelling [`Call::client_gone`] does, while nothing was dispatched.
    pub async fn call(&self, component: &Arc<Component>, call: Call) -> Outcome { unimplemented!() }
    /// The counters.
    pub fn stats(&self) -> &Stats { unimplemented!() }
    /// How instances are allocated: `pooling`, `pooling-small` or `on-demand`; anything but the first is a fall-back.
    pub fn mode(&self) -> &'static str { unimplemented!() }
}
