//! The one place where the interface's WIT becomes Rust.
//!
//! Everything here is generated; the capabilities implement the traits, one file each.

wasmtime::component::bindgen!({
    path: "../../wit/primitive.wit",
    world: "charter:primitive/primitive",
    imports: { default: async },
    exports: { default: async },
    with: {
        "charter:primitive/governance.permit": crate::handles::Permit,
        "charter:primitive/answering.writer": crate::handles::Writer,
    },
    include_component_type: true,
});
