//! Tells the engine which wasmtime it was built with: compiled code is kept only for exactly that version.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let lock = concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.lock");
    println!("cargo::rerun-if-changed={lock}");
    let text = std::fs::read_to_string(lock)?;
    let version = text
        .split("[[package]]")
        .find(|package| package.contains("\nname = \"wasmtime\"\n"))
        .and_then(|package| package.split("version = \"").nth(1)?.split('"').next());
    println!("cargo::rustc-env=WASMTIME_VERSION={}", version.ok_or("Cargo.lock names no wasmtime")?);
    Ok(())
}
