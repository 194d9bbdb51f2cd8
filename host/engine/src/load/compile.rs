//! Compiling: on threads of its own that give way to whoever serves, and that end with it.
//!
//! Large components are compiled one at a time (`compilations_max`), small ones beside them. The
//! threads end with the compilation, so that its memory is given back.

use std::sync::Arc;

use charter_store::give_way;
use tokio::sync::Semaphore;
use wasmtime::Engine;
use wasmtime::component::Component as Code;

use super::weigh::Weight;
use crate::compilations::Turns;

impl Turns {
    /// The semaphore that a component of this weight waits for.
    pub(super) fn of(&self, weight: Weight) -> Arc<Semaphore> {
        if weight.is_small() { self.small.clone() } else { self.large.clone() }
    }
}

/// Compiles a component on all cores but one.
pub(super) fn compile(engine: &Engine, wasm: &[u8]) -> wasmtime::Result<Code> {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let threads = rayon::ThreadPoolBuilder::new()
        .num_threads(cores.saturating_sub(1).max(1))
        .thread_name(|number| format!("charter-compile-{number}"))
        .start_handler(|_| give_way())
        .build();
    match threads {
        Ok(threads) => threads.install(|| Code::new(engine, wasm)),
        Err(error) => {
            tracing::warn!(%error, "no threads of its own for a compilation");
            Code::new(engine, wasm)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compilations::SMALL_MAX;

    #[test]
    fn small_components_and_looks_have_turns_beside_the_large_ones() {
        let turns = Turns::new(0);
        assert_eq!(turns.large.available_permits(), 1, "somebody has to compile");
        let small = turns.of(Weight::default());
        assert!(Arc::ptr_eq(&small, &turns.looking()));
        let _all: Vec<_> =
            (0..SMALL_MAX).map(|_| small.clone().try_acquire_owned().unwrap()).collect();
        assert!(small.try_acquire().is_err());
        assert!(turns.large.try_acquire().is_ok());
    }
}
