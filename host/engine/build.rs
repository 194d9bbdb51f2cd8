//! Tells the engine which wasmtime it is built with: compiled code is kept only for exactly that
//! version.
//!
//! The workspace asks for that version and no other. `Cargo.lock` says the same, but every new or
//! renumbered primitive changes it, and a host that is built anew for that takes minutes.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // From the crate's folder, in which it runs: clones may share what is built.
    let workspace = "../../Cargo.toml";
    println!("cargo::rerun-if-changed={workspace}");
    let text = std::fs::read_to_string(workspace)?;
    let line = text.lines().find_map(|line| line.strip_prefix("wasmtime = { version = \"="));
    let version = line.and_then(|rest| rest.split('"').next());
    let version = version.ok_or(
        "the workspace must ask for one version of wasmtime: wasmtime = { version = \"=…\"",
    )?;
    println!("cargo::rustc-env=WASMTIME_VERSION={version}");
    Ok(())
}
