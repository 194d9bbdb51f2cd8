//! What a fresh instance costs: `instantiate <component.wasm>` makes some thousands, as calls make
//! them, and prints one JSON document: the instantiation alone, the same with its store, its WASI
//! context and its end, and how instances are allocated.

#![expect(clippy::unwrap_used, reason = "a measuring program stops at the first failure")]

use std::sync::Arc;
use std::time::Instant as Moment;

use charter_engine::{Engine, EngineConfig};
use charter_kernel::time::{Clock, Instant};
use charter_store::{Store, StoreConfig};

const WARM_UP: usize = 5_000;
const MEASURED: usize = 20_000;

struct Still;

impl Clock for Still {
    fn now(&self) -> Instant {
        Instant(1_700_000_000_000)
    }
}

/// The server's own.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[tokio::main]
async fn main() {
    let wasm =
        std::fs::read(std::env::args().nth(1).expect("instantiate <component.wasm>")).unwrap();
    let folder = std::env::temp_dir().join(format!("charter-instantiate-{}", std::process::id()));
    let clock: Arc<dyn Clock> = Arc::new(Still);
    let store = Store::open(StoreConfig::new(&folder, clock.clone())).await.unwrap();
    let engine = Engine::new(EngineConfig::default(), store.clone(), clock).unwrap();
    let component = engine.stage(wasm.into()).await.unwrap();
    let (mut alone, mut whole) = (Vec::with_capacity(MEASURED), Vec::with_capacity(MEASURED));
    for n in 0..WARM_UP + MEASURED {
        let begun = Moment::now();
        let instantiated = engine.instantiate(&component).await.unwrap();
        if n >= WARM_UP {
            alone.push(instantiated.as_secs_f64() * 1e6);
            whole.push(begun.elapsed().as_secs_f64() * 1e6);
        }
    }
    alone.sort_by(f64::total_cmp);
    whole.sort_by(f64::total_cmp);
    let at = |micros: &[f64], share: usize| micros[MEASURED * share / 100];
    let figures = serde_json::json!({
        "instantiate_p50_us": at(&alone, 50),
        "instantiate_p99_us": at(&alone, 99),
        "whole_p50_us": at(&whole, 50),
        "whole_p99_us": at(&whole, 99),
        "mode": engine.mode(),
    });
    println!("{figures}");
    store.close().await;
    let _ = std::fs::remove_dir_all(&folder);
}
