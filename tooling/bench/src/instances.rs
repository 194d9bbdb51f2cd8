//! The cost of a fresh instance, without a call: the instantiation alone, and the same with its
//! store, its WASI context and its end.

use std::sync::Arc;
use std::time::Instant as Moment;

use anyhow::{Context, Result, bail};
use charter_engine::{Engine, EngineConfig};
use charter_kernel::time::Clock;
use charter_store::{Store, StoreConfig};

use crate::clock::Wall;
use crate::table::Row;
use crate::tools::{Scratch, Tools};

const WARM_UP: usize = 5_000;
const MEASURED: usize = 20_000;

/// The row of this part.
pub async fn measure(tools: &Tools) -> Result<Vec<Row>> {
    let scratch = Scratch::new(tools, "instances")?;
    let wasm = std::fs::read(tools.components.join("queue.wasm")).context("read queue.wasm")?;
    let clock: Arc<dyn Clock> = Arc::new(Wall);
    let store = Store::open(StoreConfig::new(&scratch.0, clock.clone())).await?;
    let engine = Engine::new(EngineConfig::default(), store.clone(), clock)?;
    let component = match engine.stage(wasm.into()).await {
        Ok(component) => component,
        Err(faults) => bail!("queue.wasm: {faults:?}"),
    };
    let (warm_up, measured) = (tools.pace.count(WARM_UP), tools.pace.count(MEASURED));
    let (mut alone, mut whole) = (Vec::with_capacity(measured), Vec::with_capacity(measured));
    for n in 0..warm_up + measured {
        let begun = Moment::now();
        let instantiated = engine.instantiate(&component).await;
        let instantiated = instantiated.map_err(|fault| anyhow::anyhow!("{fault:?}"))?;
        if n >= warm_up {
            alone.push(instantiated.as_secs_f64() * 1e6);
            whole.push(begun.elapsed().as_secs_f64() * 1e6);
        }
    }
    store.close().await;
    alone.sort_by(f64::total_cmp);
    whole.sort_by(f64::total_cmp);
    let at = |micros: &[f64], share: usize| micros[micros.len() * share / 100];
    let micros = at(&alone, 50);
    Ok(vec![Row {
        name: "instantiate, p50",
        figure: format!("{micros:.1} µs"),
        target: "≤ 10 µs".into(),
        reached: micros <= 10.0,
        detail: format!(
            "p99 {:.1} µs; with its store, its WASI context and its end {:.1} µs; {}",
            at(&alone, 99),
            at(&whole, 50),
            engine.mode()
        ),
    }])
}
