//! `describe` in a sealed instance: imports of the interface trap, the clock stands still,
//! randomness is fixed, time is short.

use std::sync::Arc;
use std::time::Duration;

use charter_kernel::fault::Fault;
use charter_kernel::limits::MANIFEST_BYTES_MAX;
use charter_kernel::scope::Sharer;
use wasmtime::Store;
use wasmtime::component::{Component as Code, Linker};

use crate::bindings::PrimitivePre;
use crate::limiter::Limiter;
use crate::outbound::Outbounds;
use crate::shared::Shared;
use crate::state::State;
use crate::wasi::Printed;

/// How long `describe` may take: an interpreted guest starts its runtime in it.
const DESCRIBE_TIME: Duration = Duration::from_secs(10);
/// Epochs of CPU time for it.
const DESCRIBE_EPOCHS: u64 = 1_000;
/// The bytes that host calls of one instance may copy.
pub(crate) const HOSTCALL_FUEL: usize = 8 << 20;
/// Resource handles of one instance.
pub(crate) const HANDLES_MAX: usize = 1_000;

/// A store that belongs to no call.
fn describe_store(shared: &Arc<Shared>, printed: &Printed) -> Store<State> {
    let tenant = shared.admission.tenant("");
    let host = Sharer { within: None, name: "host".into() };
    let limiter = Limiter::new(
        shared.config.guest_memory_bytes_max,
        shared.admission.bytes(&tenant, &host),
        shared.stats.memory_bytes.clone(),
    );
    let state = State::new(printed.clone(), limiter, None, Outbounds::none());
    let mut store = Store::new(&shared.wasmtime, state);
    store.limiter(|state| &mut state.limiter);
    store.set_hostcall_fuel(HOSTCALL_FUEL);
    store.set_max_component_handles(HANDLES_MAX);
    store.set_epoch_deadline(1);
    store.epoch_deadline_callback(|mut store| {
        store.data_mut().cpu_ticks += 1;
        if store.data().cpu_ticks > DESCRIBE_EPOCHS {
            return Err(wasmtime::format_err!("it uses too much CPU time"));
        }
        Ok(wasmtime::UpdateDeadline::YieldCustom(1, Box::pin(tokio::task::yield_now())))
    });
    store
}

/// The text that a component describes itself with. Its imports are linked as they are for a call,
/// but with no call behind them: each answers a failure, and having used one is a fault. An import
/// that this host does not offer traps.
pub(crate) async fn describe(shared: &Arc<Shared>, code: &Code) -> Result<String, Fault> {
    let mut linker = shared.linker.clone();
    if linker.instantiate_pre(code).is_err() {
        linker = Linker::new(&shared.wasmtime);
        linker
            .define_unknown_imports_as_traps(code)
            .map_err(|error| fault(format!("it does not link: {error:#}")))?;
    }
    let printed = Printed::default();
    let mut store = describe_store(shared, &printed);
    let described = async {
        let instance = linker.instantiate_async(&mut store, code).await?;
        let describe = instance.get_typed_func::<(), (String,)>(&mut store, "describe")?;
        describe.call_async(&mut store, ()).await
    };
    let text = match tokio::time::timeout(DESCRIBE_TIME, described).await {
        Ok(Ok((text,))) => text,
        Ok(Err(error)) => return Err(fault(reason(&error, &printed))),
        Err(_) => {
            return Err(fault(format!(
                "it does not return within {} seconds",
                DESCRIBE_TIME.as_secs()
            )));
        }
    };
    if store.data().unsealed {
        return Err(fault(
            "it calls an import: what a component declares may depend on nothing".into(),
        ));
    }
    if text.len() > MANIFEST_BYTES_MAX {
        return Err(fault(format!(
            "it answers {} bytes; at most {MANIFEST_BYTES_MAX} are taken",
            text.len()
        )));
    }
    Ok(text)
}

/// Whether an instance comes up with all imports linked, and in what time.
pub(crate) async fn self_test(
    shared: &Arc<Shared>,
    pre: &PrimitivePre<State>,
) -> Result<Duration, Fault> {
    let printed = Printed::default();
    let mut store = describe_store(shared, &printed);
    let begun = tokio::time::Instant::now();
    match tokio::time::timeout(DESCRIBE_TIME, pre.instantiate_async(&mut store)).await {
        Ok(Ok(_)) => Ok(begun.elapsed()),
        Ok(Err(error)) => {
            Err(Fault::new("", format!("no instance comes up: {}", reason(&error, &printed))))
        }
        Err(_) => Err(Fault::new("", "no instance comes up in time")),
    }
}

fn fault(text: String) -> Fault {
    Fault::new("export describe", text)
}

/// The first line of what went wrong, and what the guest printed.
fn reason(error: &wasmtime::Error, printed: &Printed) -> String {
    let cause = error.root_cause().to_string();
    match printed.text() {
        text if text.is_empty() => format!("it fails: {cause}"),
        text => format!("it fails: {cause}; it printed: {text}"),
    }
}
