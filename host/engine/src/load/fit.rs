//! Whether a component's world is the interface's: every import and export compared, all faults at
//! once, in plain words.
//!
//! Runs on the binary alone: nothing is compiled for a component that does not fit.

use std::collections::BTreeSet;

use charter_kernel::fault::Fault;
use wasmparser::component_types::{
    ComponentAnyTypeId, ComponentEntityType, ComponentItem, ComponentType,
};
use wasmparser::types::TypesRef;
use wasmparser::{Encoding, Parser, Payload, Validator, WasmFeatures};

use super::types::{Side, functions};
use super::weigh::{Weight, weigh};
use crate::bindings::COMPONENT_TYPE;

/// The interface's package, without its version.
const PACKAGE: &str = "charter:primitive/";
/// Interfaces of the package that need no declaration: shapes only, and the log.
const UNDECLARED: [&str; 2] = ["types", "log"];
/// WASI packages that are linked, on a context that grants nothing.
const WASI: [&str; 6] =
    ["wasi:cli/", "wasi:clocks/", "wasi:filesystem/", "wasi:io/", "wasi:random/", "wasi:sockets/"];
/// Interfaces of `wasi:http` that a component with outbound capabilities may import.
const HTTP: [&str; 2] = ["wasi:http/types", "wasi:http/outgoing-handler"];

/// The findings of a look at a component's binary.
#[derive(Debug, Default)]
pub(crate) struct Looked {
    /// The parts that do not fit.
    pub(crate) faults: Vec<Fault>,
    /// The capabilities that its imports need.
    pub(crate) capabilities: BTreeSet<String>,
    /// Whether it imports `wasi:http`.
    pub(crate) http: bool,
    /// Whether `describe` can be called all the same.
    pub(crate) describes: bool,
    /// The code that there is to compile.
    pub(crate) weight: Weight,
}

/// Compares a component's world with the interface's.
pub(crate) fn look(wasm: &[u8]) -> Looked {
    match examine(wasm) {
        Ok(looked) => looked,
        Err(message) => Looked { faults: vec![Fault::new("", message)], ..Looked::default() },
    }
}

fn features() -> WasmFeatures {
    WasmFeatures::default()
        & !WasmFeatures::CM_ASYNC
        & !WasmFeatures::MEMORY64
        & !WasmFeatures::THREADS
}

fn examine(wasm: &[u8]) -> Result<Looked, String> {
    match Parser::new(0).parse_all(wasm).next() {
        Some(Ok(Payload::Version { encoding: Encoding::Component, .. })) => {}
        Some(Ok(Payload::Version { .. })) => {
            return Err("this is a core WebAssembly module, not a component; build it for wasm32-wasip2, or wrap it with `wasm-tools component new`".into());
        }
        _ => {
            return Err(
                "this is not a WebAssembly component: it does not begin with the magic number"
                    .into(),
            );
        }
    }
    let weight = weigh(wasm)?;
    let (imports, exports) = names(wasm)?;
    let types = Validator::new_with_features(features())
        .validate_all(wasm)
        .map_err(|error| format!("the component is not valid: {}", error.message()))?;
    let types = types.as_ref();
    let found: Vec<(&String, &ComponentItem)> = imports
        .iter()
        .filter_map(|name| Some((name, types.component_item_for_import(name)?)))
        .collect();
    let side = Side::new(types, found.iter().map(|(_, item)| *item));

    let own = Validator::new_with_features(features())
        .validate_all(COMPONENT_TYPE)
        .map_err(|error| error.to_string())?;
    let own = own.as_ref();
    let world = world(own).ok_or("the interface's own description cannot be read")?;
    let world = &own[world];
    let expected = Side::new(own, world.imports.values());

    let mut looked = Looked { weight, ..Looked::default() };
    // The world's own types are imported by name; what they hold is compared where a function uses
    // them.
    let shape = |item: &ComponentItem| {
        matches!(item.ty, ComponentEntityType::Type { created: ComponentAnyTypeId::Defined(_), .. })
    };
    for (name, item) in found.into_iter().filter(|(_, item)| !shape(item)) {
        if let Some(local) = name.strip_prefix(PACKAGE) {
            import(&mut looked, (&expected, world.imports.iter()), (&side, item), name, local);
        } else if HTTP.iter().any(|known| strip_version(name) == *known) {
            looked.http = true;
        } else if !WASI.iter().any(|known| name.starts_with(known)) {
            looked.faults.push(Fault::new(
                format!("import {name}"),
                "this host does not offer it; a primitive imports charter:primitive, WASI 0.2 and wasi:http/outgoing-handler only",
            ));
        }
    }
    export(&mut looked, (&expected, world), (&side, types, &exports));
    Ok(looked)
}

/// Compares the functions that the interface's world exports with those of a component.
fn export(
    looked: &mut Looked,
    (expected, world): (&Side<'_>, &ComponentType),
    (side, types, exports): (&Side<'_>, TypesRef<'_>, &BTreeSet<String>),
) {
    looked.describes = true;
    for (name, item) in &world.exports {
        let ComponentEntityType::Func(wanted) = item.ty else { continue };
        let fault =
            match exports.contains(name).then(|| types.component_item_for_export(name)).flatten() {
                Some(ComponentItem { ty: ComponentEntityType::Func(id), .. }) => {
                    let differences = functions((expected, wanted), (side, *id));
                    (!differences.is_empty()).then(|| differences.join("; "))
                }
                Some(_) => Some("it is exported, but not as a function".into()),
                None => Some(format!(
                    "it is missing; a primitive exports {}",
                    list_exports(world.exports.keys())
                )),
            };
        if let Some(fault) = fault {
            looked.describes &= name != "describe";
            looked.faults.push(Fault::new(format!("export {name}"), fault));
        }
    }
}

fn list_exports<'a>(names: impl Iterator<Item = &'a String>) -> String {
    names.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

fn import<'e>(
    looked: &mut Looked,
    (expected, mut offered): (&Side<'_>, impl Iterator<Item = (&'e String, &'e ComponentItem)>),
    (side, item): (&Side<'_>, &ComponentItem),
    name: &str,
    local: &str,
) {
    let interface = local.split('@').next().unwrap_or(local);
    let Some((offered_name, offer)) =
        offered.find(|(offered, _)| strip_version(offered) == strip_version(name))
    else {
        looked.faults.push(Fault::new(format!("import {name}"), "the interface has no such part"));
        return;
    };
    if !compatible(offered_name, name) {
        let version = offered_name.rsplit('@').next().unwrap_or_default();
        looked.faults.push(Fault::new(
            format!("import {name}"),
            format!("this host offers version {version}"),
        ));
        return;
    }
    if !UNDECLARED.contains(&interface) {
        looked.capabilities.insert(interface.to_owned());
    }
    let (ComponentEntityType::Instance(wanted), ComponentEntityType::Instance(offer)) =
        (item.ty, offer.ty)
    else {
        looked
            .faults
            .push(Fault::new(format!("import {name}"), "it must be imported as an interface"));
        return;
    };
    for (function, item) in &side.exports(wanted).exports {
        let ComponentEntityType::Func(id) = item.ty else { continue };
        let at = format!("import {name}, function {function}");
        match expected.exports(offer).exports.get(function).map(|item| item.ty) {
            Some(ComponentEntityType::Func(offered)) => {
                let differences = functions((expected, offered), (side, id));
                if !differences.is_empty() {
                    looked.faults.push(Fault::new(at, differences.join("; ")));
                }
            }
            _ => looked.faults.push(Fault::new(at, "the interface has no such function")),
        }
    }
}

/// `charter:primitive/documents@0.1.0` without its version.
fn strip_version(name: &str) -> &str {
    name.split('@').next().unwrap_or(name)
}

/// Whether what is offered satisfies what is asked for, as the linker sees it: the same 0.x, or the
/// same major version.
fn compatible(offered: &str, asked: &str) -> bool {
    let track = |name: &str| {
        let version = name.split_once('@').map_or("", |(_, version)| version).to_owned();
        let mut parts = version.split('.');
        let major = parts.next().unwrap_or_default().to_owned();
        if major == "0" { format!("0.{}", parts.next().unwrap_or_default()) } else { major }
    };
    track(offered) == track(asked)
}

/// The names of the component's own imports and exports; those of nested components are not among
/// them.
fn names(wasm: &[u8]) -> Result<(Vec<String>, BTreeSet<String>), String> {
    let (mut imports, mut exports, mut depth) = (Vec::new(), BTreeSet::new(), 0_u32);
    for payload in Parser::new(0).parse_all(wasm) {
        match payload.map_err(|error| format!("the component is damaged: {}", error.message()))? {
            Payload::Version { .. } => depth += 1,
            Payload::End(_) => depth -= 1,
            Payload::ComponentImportSection(section) if depth == 1 => {
                for import in section {
                    imports.push(
                        import.map_err(|error| error.message().to_owned())?.name.name.to_owned(),
                    );
                }
            }
            Payload::ComponentExportSection(section) if depth == 1 => {
                for export in section {
                    exports.insert(
                        export.map_err(|error| error.message().to_owned())?.name.name.to_owned(),
                    );
                }
            }
            _ => {}
        }
    }
    Ok((imports, exports))
}

/// The interface's world within its own encoded description: a component type within a component
/// type.
fn world(types: TypesRef<'_>) -> Option<wasmparser::component_types::ComponentTypeId> {
    let (_, exports) = names(COMPONENT_TYPE).ok()?;
    let item = types.component_item_for_export(exports.iter().next()?)?;
    let ComponentEntityType::Type { referenced: ComponentAnyTypeId::Component(outer), .. } =
        item.ty
    else {
        return None;
    };
    types[outer].exports.values().find_map(|item| match item.ty {
        ComponentEntityType::Component(id) => Some(id),
        _ => None,
    })
}

#[cfg(test)]
mod tests;
