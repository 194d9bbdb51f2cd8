//! The sandbox's settings: how wasmtime is configured, and what it falls back to on a small
//! machine.
//!
//! The figures behind each choice stand in docs/engine.md. Fuel, threads, shared memory, memory64
//! and GC stay off; epochs bound time; the pooling allocator with copy-on-write images makes an
//! instance cost microseconds.

use std::time::Duration;

use wasmtime::{
    Config, Enabled, Engine, InstanceAllocationStrategy, ModuleVersionStrategy, OptLevel,
    PoolingAllocationConfig, RegallocAlgorithm, WasmBacktraceDetails,
};

use crate::config::{EngineConfig, EngineError};

/// The time between two epochs: how long a guest runs before the host looks at it.
pub(crate) const EPOCH: Duration = Duration::from_millis(5);
/// Elements of one table; Python guests have some thousands.
pub(crate) const TABLE_ELEMENTS_MAX: usize = 40_000;
/// Elements of all tables of one call.
pub(crate) const TABLES_ELEMENTS_MAX: usize = 80_000;
/// Linear memory of a pool slot that stays resident between two calls.
const KEEP_RESIDENT_BYTES: usize = 1 << 20;
/// Native stack that a guest may use.
const WASM_STACK_BYTES: usize = 512 << 10;
/// Stack of a call's fibre: the guest's, and what host functions need on top.
const FIBRE_STACK_BYTES: usize = 1 << 20;
/// Core instances, memories and tables of one component: adapters and shims count too.
const CORE_INSTANCES_PER_COMPONENT: u32 = 64;
const MEMORIES_PER_COMPONENT: u32 = 4;
const TABLES_PER_COMPONENT: u32 = 16;

/// How instances are allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// The pool, 4 GiB of address space a memory, no bounds checks.
    Pooling,
    /// The pool with small reservations: bounds checks, for machines with little address space.
    PoolingSmall,
    /// No pool.
    OnDemand,
}

impl Mode {
    pub(crate) fn label(self) -> &'static str {
        match self {
            Mode::Pooling => "pooling",
            Mode::PoolingSmall => "pooling-small",
            Mode::OnDemand => "on-demand",
        }
    }
}

/// The share of the pool that an instance of a component may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fit {
    pub(crate) memories: u32,
    pub(crate) tables: u32,
}

/// The share that every mode gives one component.
pub(crate) const FIT: Fit = Fit { memories: MEMORIES_PER_COMPONENT, tables: TABLES_PER_COMPONENT };

/// Sets wasmtime up in the best mode that this machine allows, and says loudly when that is not the
/// first.
pub(crate) fn open(config: &EngineConfig) -> Result<(Engine, Mode), EngineError> {
    let mut last = None;
    for mode in [Mode::Pooling, Mode::PoolingSmall, Mode::OnDemand] {
        match Engine::new(&settings(config, mode)) {
            Ok(engine) => {
                if mode != Mode::Pooling {
                    tracing::warn!(
                        mode = mode.label(),
                        "the sandbox runs in a fall-back mode: this machine gives too little address space for the pool; calls cost more"
                    );
                }
                return Ok((engine, mode));
            }
            Err(error) => {
                tracing::warn!(
                    mode = mode.label(),
                    error = format!("{error:#}"),
                    "the sandbox does not start in this mode"
                );
                last = Some(error);
            }
        }
    }
    let error = last.map_or_else(|| "no mode was tried".into(), |error| format!("{error:#}"));
    Err(EngineError::Sandbox(error.into()))
}

fn settings(config: &EngineConfig, mode: Mode) -> Config {
    let mut settings = Config::new();
    settings
        .concurrency_support(false)
        .epoch_interruption(true)
        .consume_fuel(false)
        .wasm_memory64(false)
        .cranelift_opt_level(OptLevel::Speed)
        .cranelift_regalloc_algorithm(RegallocAlgorithm::Backtracking)
        .memory_init_cow(true)
        .max_wasm_stack(WASM_STACK_BYTES)
        .async_stack_size(FIBRE_STACK_BYTES)
        .wasm_backtrace_details(WasmBacktraceDetails::Enable);
    // wasmtime compares its major version only; code of another patch release is not ours.
    if let Err(error) =
        settings.module_version(ModuleVersionStrategy::Custom(env!("WASMTIME_VERSION").into()))
    {
        tracing::warn!(
            error = format!("{error:#}"),
            "compiled code is not marked with the full version"
        );
    }
    match mode {
        Mode::Pooling => {
            settings.allocation_strategy(InstanceAllocationStrategy::Pooling(pool(
                config,
                config.instances_max,
            )));
        }
        Mode::PoolingSmall => {
            settings
                .memory_reservation(config.guest_memory_bytes_max as u64)
                .memory_guard_size(64 << 10);
            settings.allocation_strategy(InstanceAllocationStrategy::Pooling(pool(
                config,
                config.instances_max.min(128),
            )));
        }
        Mode::OnDemand => {
            settings
                .memory_reservation(0)
                .memory_guard_size(64 << 10)
                .memory_reservation_for_growth(1 << 20);
            settings.allocation_strategy(InstanceAllocationStrategy::OnDemand);
        }
    }
    settings
}

fn pool(config: &EngineConfig, instances: u32) -> PoolingAllocationConfig {
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(instances)
        .total_core_instances(instances.saturating_mul(CORE_INSTANCES_PER_COMPONENT))
        .total_memories(instances)
        .total_tables(instances.saturating_mul(4))
        .total_stacks(instances)
        .max_core_instances_per_component(CORE_INSTANCES_PER_COMPONENT)
        .max_memories_per_component(MEMORIES_PER_COMPONENT)
        .max_tables_per_component(TABLES_PER_COMPONENT)
        .max_component_instance_size(4 << 20)
        .max_core_instance_size(4 << 20)
        .table_elements(TABLE_ELEMENTS_MAX)
        .max_memory_size(config.guest_memory_bytes_max)
        .max_unused_warm_slots(instances.min(128))
        .linear_memory_keep_resident(KEEP_RESIDENT_BYTES)
        .table_keep_resident(KEEP_RESIDENT_BYTES / 8)
        .pagemap_scan(Enabled::Auto);
    pool
}

/// Advances the epoch until the engine is gone. A thread of its own:
/// a starved async runtime must not stop the clock that keeps guests from starving it.
pub(crate) fn tick(engine: &Engine) -> std::io::Result<()> {
    let weak = engine.weak();
    std::thread::Builder::new().name("charter-epoch".into()).spawn(move || {
        loop {
            std::thread::sleep(EPOCH);
            let Some(engine) = weak.upgrade() else { return };
            engine.increment_epoch();
        }
    })?;
    Ok(())
}
