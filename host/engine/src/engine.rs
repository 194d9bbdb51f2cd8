//! The engine: one sandbox for the process, and what it does: stage, open, call, report.
//!
//! Knows nothing of routes or tenancy rules; it takes a [`Scope`](charter_kernel::scope::Scope) as
//! given.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use charter_kernel::fault::Fault;
use charter_kernel::manifest::faults;
use charter_kernel::scope::Scope;
use charter_kernel::time::Clock;
use charter_store::Store;
use tokio_util::sync::CancellationToken;
use wasmtime::component::Linker;

use crate::admission::{Admission, Parked};
use crate::answer::Outcome;
use crate::cache::CodeCache;
use crate::call::Call;
use crate::compilations::Turns;
use crate::component::Component;
use crate::config::{EngineConfig, EngineError};
use crate::egress::Egress;
use crate::fairness::Fairness;
use crate::host::Host;
use crate::load;
use crate::run;
use crate::sandbox;
use crate::shared::Shared;
use crate::stats::Stats;

/// The sandbox of this process. Cheap to clone.
#[derive(Clone)]
pub struct Engine {
    shared: Arc<Shared>,
}

impl Engine {
    /// The mode in which the sandbox would run on this machine.
    ///
    /// # Errors
    /// When it would not run at all.
    pub fn probe(config: &EngineConfig) -> Result<&'static str, EngineError> {
        sandbox::open(config).map(|(_, mode)| mode.label())
    }

    /// Sets the sandbox up; falls back, loudly, on machines with little address space.
    pub fn new(
        config: EngineConfig,
        store: Store,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, EngineError> {
        let (wasmtime, mode) = sandbox::open(&config)?;
        let mut linker = Linker::new(&wasmtime);
        crate::capabilities::link(&mut linker)
            .map_err(|error| EngineError::Sandbox(format!("{error:#}").into()))?;
        let cache = match &config.cache_dir {
            Some(path) => Some(CodeCache::open(
                path,
                config.cache_bytes_max,
                store.derive("code-cache"),
                &wasmtime,
                clock.clone(),
            )?),
            None => None,
        };
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        sandbox::tick(&wasmtime).map_err(|error| EngineError::Sandbox(error.into()))?;
        let shared = Shared {
            admission: Admission::new(config.admission.clone()),
            compilations: Turns::new(config.compilations_max),
            config,
            store,
            clock,
            wasmtime,
            linker,
            mode,
            fairness: Arc::new(Fairness::new(cores)),
            backlog: Arc::default(),
            cut: CancellationToken::new(),
            cache,
            stats: Stats::default(),
            host: OnceLock::new(),
            egress: OnceLock::new(),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Hands in the server's side, which usually needs the engine itself; until then what rests on
    /// it answers `not_configured`. Only the first call counts. The host is held weakly: it owns
    /// the engine, not the other way round.
    pub fn attach(&self, host: &Arc<dyn Host>, egress: Arc<dyn Egress>) {
        let _ = self.shared.host.set(Arc::downgrade(host));
        let _ = self.shared.egress.set(egress);
    }

    /// Checks, compiles (or takes from the code cache) and self-tests a component: what an upload
    /// goes through. Every fault at once, in plain words.
    pub async fn stage(&self, wasm: Bytes) -> Result<Arc<Component>, Vec<Fault>> {
        load::stage(&self.shared, wasm, faults::check).await
    }

    /// Loads a component that this deployment has staged before, by an earlier build of the host
    /// too. `wasm` is asked for only where the code cache has nothing for the digest, and must be its
    /// bytes.
    pub async fn open<F>(
        &self,
        digest: &str,
        wasm: impl FnOnce() -> F + Send,
    ) -> Result<Arc<Component>, Vec<Fault>>
    where
        F: Future<Output = Option<Bytes>> + Send,
    {
        if let Some(component) = load::load_cached(&self.shared, digest).await {
            return Ok(component);
        }
        let Some(wasm) = wasm().await else {
            return Err(vec![Fault::new("", format!("the component {digest} is not there"))]);
        };
        let component = load::stage(&self.shared, wasm, faults::check_installed).await?;
        if component.digest() != digest {
            return Err(vec![Fault::new(
                "",
                format!("the bytes are those of {}, not of {digest}", component.digest()),
            )]);
        }
        Ok(component)
    }

    /// Runs one call to its end. One that changes something has a task of its own that outlives the
    /// client: dropping the future does not stop it; cancelling [`Call::client_gone`] does, while
    /// nothing was dispatched. A read ends with its future.
    pub async fn call(&self, component: &Arc<Component>, call: Call) -> Outcome {
        run::call(&self.shared, component.clone(), call).await
    }

    /// Ends all calls, those that run and those that come: one that has done nothing yet is
    /// [`Outcome::Unavailable`], one that has acted is recorded as far as it came. For a host that
    /// must end.
    pub fn cut(&self) {
        self.shared.cut.cancel();
    }

    /// A place among those that wait for a change and hold no instance; none where the scope's tenant, or
    /// who acts for it, has as many as it may.
    pub fn park(&self, scope: &Scope) -> Option<Parked> {
        let admission = &self.shared.admission;
        admission.park(&admission.tenant(scope.lane()), &scope.sharer()).ok()
    }

    /// Makes a fresh instance, as a call would, and drops it; says how long the instantiation
    /// itself took. A benchmark times this.
    pub async fn instantiate(&self, component: &Component) -> Result<Duration, Fault> {
        load::instantiate(&self.shared, component).await
    }

    /// The counters.
    pub fn stats(&self) -> &Stats {
        &self.shared.stats
    }

    /// How instances are allocated: `pooling`, `pooling-small` or `on-demand`; anything but the
    /// first is a fall-back.
    pub fn mode(&self) -> &'static str {
        self.shared.mode.label()
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Engine({})", self.mode())
    }
}
