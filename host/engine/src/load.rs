//! From bytes to a component that can be called: checked, described, compiled, tried.
//!
//! Nothing a component does here touches a tenant: `describe` runs sealed, and all faults are
//! collected before anything is kept.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bytes::Bytes;
use charter_kernel::fault::Fault;
use charter_kernel::manifest::Manifest;
use charter_kernel::schema::parse_json;
use serde_json::Value;
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;
use wasmtime::component::Component as Code;

use crate::bindings::PrimitivePre;
use crate::component::{self, CollectionPlan, Component};
use crate::sandbox::{FIT, Mode, TABLE_ELEMENTS_MAX};
use crate::shared::Shared;

mod compile;
mod describe;
mod fit;
mod types;
mod weigh;

pub(crate) use describe::{HANDLES_MAX, HOSTCALL_FUEL};

/// `sha256:<hex>` of a component's bytes.
pub(crate) fn digest(wasm: &[u8]) -> String {
    let mut text = String::from("sha256:");
    for byte in Sha256::digest(wasm) {
        use std::fmt::Write;
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// The rules that a manifest is held to: those of an upload, or of a version that is installed.
pub(crate) type Rules = fn(&Value) -> Result<Manifest, Vec<Fault>>;

/// Everything an upload goes through. Bytes that the code cache knows are checked as new ones are,
/// and only not compiled again.
pub(crate) async fn stage(
    shared: &Arc<Shared>,
    wasm: Bytes,
    rules: Rules,
) -> Result<Arc<Component>, Vec<Fault>> {
    let max = shared.config.component_bytes_max;
    if wasm.len() > max {
        return Err(vec![Fault::new(
            "",
            format!("the component has {} bytes; at most {max} are taken", wasm.len()),
        )]);
    }
    let digest = digest(&wasm);
    let looked = {
        let wasm = wasm.clone();
        blocking(shared, move || fit::look(&wasm)).await?
    };
    let mut found = looked.faults;
    if !looked.describes {
        return Err(found);
    }
    let kept = find(shared, &digest).await;
    let was_kept = kept.is_some();
    let code = match kept {
        Some((_, code)) => code,
        None => match code_of(shared, looked.weight, wasm).await? {
            Ok(code) => code,
            Err(error) => {
                found.push(Fault::new("", format!("the component does not compile: {error:#}")));
                return Err(found);
            }
        },
    };
    found.extend(too_large(shared, &code));
    let text = match describe::describe(shared, &code).await {
        Ok(text) => text,
        Err(fault) => {
            found.push(fault);
            return Err(found);
        }
    };
    // A manifest is as large as its component likes: its schemas are compiled off the async threads.
    let declared = {
        let text = text.clone();
        blocking(shared, move || manifest(&text, &looked.capabilities, looked.http, rules)).await?
    };
    let manifest = declared.map_err(|faults| {
        found.extend(faults);
        std::mem::take(&mut found)
    })?;
    if !found.is_empty() {
        return Err(found);
    }
    let component = assemble(shared, digest, manifest, &code).await?;
    if was_kept {
        shared.stats.cache_hits.fetch_add(1, Relaxed);
        return Ok(component);
    }
    if let Some(cache) = &shared.cache {
        let cache = cache.clone();
        let digest = component.digest.clone();
        // Not kept is no fault: the next start compiles again.
        let _ = blocking(shared, move || cache.store(&digest, &text, &code)).await;
    }
    shared.stats.cache_misses.fetch_add(1, Relaxed);
    Ok(component)
}

/// Compiles a component in the turn of those that weigh as much.
async fn code_of(
    shared: &Shared,
    weight: weigh::Weight,
    wasm: Bytes,
) -> Result<wasmtime::Result<Code>, Vec<Fault>> {
    let engine = shared.wasmtime.clone();
    in_turn(shared.compilations.of(weight), move || compile::compile(&engine, &wasm)).await
}

/// The manifest text and the code of a component that is in the code cache.
async fn find(shared: &Shared, digest: &str) -> Option<(String, Code)> {
    let cache = shared.cache.clone()?;
    let (engine, wanted) = (shared.wasmtime.clone(), digest.to_owned());
    tokio::task::spawn_blocking(move || cache.load(&engine, &wanted)).await.ok().flatten()
}

/// A component from the code cache: checked when it was kept.
pub(crate) async fn load_cached(shared: &Arc<Shared>, digest: &str) -> Option<Arc<Component>> {
    let (text, code) = find(shared, digest).await?;
    let manifest: Manifest = serde_json::from_str(&text).ok()?;
    let component = assemble(shared, digest.to_owned(), manifest, &code).await.ok()?;
    shared.stats.cache_hits.fetch_add(1, Relaxed);
    Some(component)
}

/// Runs CPU-bound work off the async threads, few at once.
async fn blocking<T: Send + 'static>(
    shared: &Shared,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Vec<Fault>> {
    in_turn(shared.compilations.looking(), work).await
}

async fn in_turn<T: Send + 'static>(
    turn: Arc<Semaphore>,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Vec<Fault>> {
    let permit = turn.acquire_owned().await;
    let done = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        work()
    });
    done.await.map_err(|error| {
        tracing::error!(%error, "checking a component panicked");
        vec![Fault::new("", "the component could not be checked: it makes the compiler fail")]
    })
}

/// The parts that do not fit into an instance's share of the pool.
fn too_large(shared: &Shared, code: &Code) -> Vec<Fault> {
    let Some(needs) = code.resources_required() else {
        return vec![Fault::new(
            "",
            "the component imports core modules, which this host does not offer",
        )];
    };
    let mut found = Vec::new();
    let mut limit = |what: &str, needs: u64, max: u64| {
        if needs > max {
            found.push(Fault::new(
                "",
                format!("the component needs {needs} {what}; at most {max} are given"),
            ));
        }
    };
    let memory = needs.max_initial_memory_size.unwrap_or(0);
    limit("bytes of memory at its start", memory, shared.config.guest_memory_bytes_max as u64);
    limit(
        "elements of a table",
        needs.max_initial_table_size.unwrap_or(0),
        TABLE_ELEMENTS_MAX as u64,
    );
    if shared.mode != Mode::OnDemand {
        limit("memories", needs.num_memories.into(), FIT.memories.into());
        limit("tables", needs.num_tables.into(), FIT.tables.into());
    }
    found
}

/// The manifest behind `describe`'s text, with all its faults, and those between it and the
/// imports.
fn manifest(
    text: &str,
    imported: &std::collections::BTreeSet<String>,
    http: bool,
    rules: Rules,
) -> Result<Manifest, Vec<Fault>> {
    let value = parse_json(text.as_bytes()).map_err(|fault| vec![fault.within("describe")])?;
    let manifest = rules(&value)?;
    let mut found = Vec::new();
    let declared =
        |capability: &str| manifest.capabilities.iter().any(|declared| declared == capability);
    for capability in imported.iter().filter(|capability| !declared(capability)) {
        let message = format!(
            "must name `{capability}`, which the component imports: {}",
            way_to_declare(capability)
        );
        found.push(Fault::new("capabilities", message));
    }
    if http && !declared("http") && !declared("public-web") {
        let message = "must name `http` or `public-web`, for the component imports wasi:http: in Rust, add `.provider(…)` for a \
                       provider that the operator binds, or `.uses(\"public-web\")`, to its `Primitive`";
        found.push(Fault::new("capabilities", message));
    }
    if found.is_empty() { Ok(manifest) } else { Err(found) }
}

/// The line that declares a capability.
fn way_to_declare(capability: &str) -> String {
    let line = match capability {
        "documents" => ".collection(&…)".to_owned(),
        capability => format!(".uses(\"{capability}\")"),
    };
    format!("in Rust, add `{line}` to its `Primitive`")
}

/// Links a component and tries whether an instance comes up.
async fn assemble(
    shared: &Arc<Shared>,
    digest: String,
    manifest: Manifest,
    code: &Code,
) -> Result<Arc<Component>, Vec<Fault>> {
    let linked = shared.linker.instantiate_pre(code).and_then(PrimitivePre::new);
    let pre = linked.map_err(|error| {
        vec![Fault::new("", format!("the component does not fit the interface: {error:#}"))]
    })?;
    describe::self_test(shared, &pre).await.map_err(|fault| vec![fault])?;
    let declared =
        |capability: &str| manifest.capabilities.iter().any(|declared| declared == capability);
    Ok(Arc::new(Component {
        digest,
        collections: CollectionPlan::all(&manifest),
        classes: component::classes(&manifest),
        http: declared("http"),
        public_web: declared("public-web"),
        pre,
        stats: shared.stats.primitive(&manifest.name),
        places: shared.admission.primitive(),
        manifest: Arc::new(manifest),
    }))
}

/// Makes an instance of a loaded component and drops it; says what making it took.
pub(crate) async fn instantiate(
    shared: &Arc<Shared>,
    component: &Component,
) -> Result<Duration, Fault> {
    describe::self_test(shared, &component.pre).await
}

#[cfg(test)]
mod tests;
