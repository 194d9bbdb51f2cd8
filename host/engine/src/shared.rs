//! The parts that all calls of this process share: the sandbox, the store, the limits and the
//! server's side.
//!
//! Knows nothing of a call.

use std::sync::{Arc, OnceLock, Weak};

use charter_kernel::refusal::Failure;
use charter_kernel::time::Clock;
use charter_store::Store;
use tokio_util::sync::CancellationToken;
use wasmtime::component::Linker;

use crate::admission::Admission;
use crate::backlog::Backlog;
use crate::cache::CodeCache;
use crate::compilations::Turns;
use crate::config::EngineConfig;
use crate::egress::Egress;
use crate::failure::failure;
use crate::fairness::Fairness;
use crate::host::Host;
use crate::sandbox::Mode;
use crate::state::State;
use crate::stats::Stats;

/// The parts that all calls share.
pub(crate) struct Shared {
    pub(crate) config: EngineConfig,
    pub(crate) store: Store,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) wasmtime: wasmtime::Engine,
    pub(crate) linker: Linker<State>,
    pub(crate) mode: Mode,
    pub(crate) admission: Admission,
    pub(crate) fairness: Arc<Fairness>,
    pub(crate) backlog: Arc<Backlog>,
    /// Cancelled once no call may go on.
    pub(crate) cut: CancellationToken,
    pub(crate) cache: Option<CodeCache>,
    pub(crate) compilations: Turns,
    pub(crate) stats: Stats,
    pub(crate) host: OnceLock<Weak<dyn Host>>,
    pub(crate) egress: OnceLock<Arc<dyn Egress>>,
}

impl Shared {
    pub(crate) fn host(&self) -> Option<Arc<dyn Host>> {
        self.host.get()?.upgrade()
    }
    pub(crate) fn egress(&self) -> Option<&Arc<dyn Egress>> {
        self.egress.get()
    }
    /// Bytes of the operating system's randomness.
    pub(crate) fn random<const N: usize>(&self) -> Result<[u8; N], Failure> {
        let mut bytes = [0; N];
        getrandom::fill(&mut bytes)
            .map_err(|_| failure("internal_error", "the machine gives no randomness"))?;
        Ok(bytes)
    }
}
