//! The guest's half of `primitive.wit`, generated. Nothing else in the SDK knows how a call crosses
//! the boundary.
//!
//! The types exist on every target; the functions reach a host under wasm32 only, and `host` picks
//! the double elsewhere.

#![expect(missing_docs, reason = "wit/primitive.wit documents what its author documents")]

wit_bindgen::generate!({
    path: "../primitive.wit",
    world: "primitive",
    default_bindings_module: "charter_sdk::bindings",
    export_macro_name: "export_component",
    pub_export_macro: true,
});
