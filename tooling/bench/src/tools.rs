//! Where the programs under measurement are. `cargo xtask bench` builds them and says where.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::server::Server;

/// Paths of everything that is measured.
pub struct Tools {
    /// The release build of the host.
    pub charter: PathBuf,
    /// The folder of built components.
    pub components: PathBuf,
    /// This program, for the bare server.
    pub own: PathBuf,
    /// `wasmtime`, if it is installed.
    pub wasmtime: Option<PathBuf>,
    /// The component that `wasmtime serve` runs.
    pub proxy: PathBuf,
    /// The component that is copied under many names; its name is the placeholder [`PLACEHOLDER`].
    pub copied: PathBuf,
    /// Where LiteLLM's proxy is, once the race was asked for.
    pub litellm: PathBuf,
    /// The store's own benchmark.
    pub committer: PathBuf,
    /// The engine's own benchmark.
    pub instantiate: PathBuf,
}

/// What stands for the name in the component that is copied.
pub const PLACEHOLDER: &str = "bench-aa";

impl Tools {
    /// In the target folder, as `cargo xtask bench` filled it.
    pub fn find(target: PathBuf) -> Result<Self> {
        let wasmtime = target.join("bench-tools/bin/wasmtime");
        let tools = Self {
            charter: target.join("release/charter"),
            components: target.join("components"),
            own: std::env::current_exe()?,
            wasmtime: wasmtime.exists().then_some(wasmtime),
            proxy: target.join("bench/charter_bench_proxy.wasm"),
            copied: target.join("bench/charter_bench_copied.wasm"),
            litellm: target.join("bench-tools/litellm/bin"),
            committer: target.join("release/examples/committer_bench"),
            instantiate: target.join("release/examples/instantiate"),
        };
        for path in [
            &tools.charter,
            &tools.components,
            &tools.proxy,
            &tools.copied,
            &tools.committer,
            &tools.instantiate,
        ] {
            if !path.exists() {
                bail!("{} is missing: run this through `cargo xtask bench`", path.display());
            }
        }
        Ok(tools)
    }
}

/// A scratch folder that goes with its handle.
pub struct Scratch(pub PathBuf);

impl Scratch {
    /// A fresh folder on the same disk as the build.
    pub fn new(tools: &Tools, name: &str) -> Result<Self> {
        let path =
            tools.components.with_file_name("bench").join(format!("{name}-{}", std::process::id()));
        drop(std::fs::remove_dir_all(&path));
        std::fs::create_dir_all(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

/// Registers an organization and answers its key.
pub async fn register(server: &Server, name: &str) -> Result<String> {
    let body =
        json!({"email": format!("{name}@example.com"), "password": "correct horse battery staple"});
    let answer = server.json("POST", "/v1/auth/register", "", Some(&body)).await?;
    text(&answer, &["api_key", "key"])
}

/// Creates a queue and answers its id.
pub async fn queue(server: &Server, key: &str, name: &str) -> Result<String> {
    let answer = server.json("POST", "/v1/queue", key, Some(&json!({"name": name}))).await?;
    text(&answer, &["queue", "id"])
}

fn text(answer: &Value, path: &[&str]) -> Result<String> {
    let found = path.iter().fold(answer, |value, name| &value[name]);
    found.as_str().map(str::to_owned).with_context(|| format!("no {} in {answer}", path.join(".")))
}

/// `wasm` under another name: the placeholder is replaced wherever it stands, by a name of the same
/// length.
pub fn renamed(wasm: &[u8], name: &str) -> Vec<u8> {
    replaced(wasm, PLACEHOLDER.as_bytes(), name.as_bytes())
}

/// `wasm` as another version: `0.1.0` is replaced wherever it is not an interface's version.
pub fn reversioned(wasm: &[u8], version: &str) -> Vec<u8> {
    replaced(wasm, b"0.1.0", version.as_bytes())
}

fn replaced(wasm: &[u8], old: &[u8], new: &[u8]) -> Vec<u8> {
    assert_eq!(old.len(), new.len(), "a replacement keeps every offset");
    let mut changed = wasm.to_vec();
    for at in 0..wasm.len().saturating_sub(old.len()) {
        if &wasm[at..at + old.len()] == old && (at == 0 || wasm[at - 1] != b'@') {
            changed[at..at + old.len()].copy_from_slice(new);
        }
    }
    changed
}

/// Runs a program that prints one JSON document, and reads it.
pub fn figures(program: &Path, arguments: &[&str]) -> Result<Value> {
    let output = std::process::Command::new(program)
        .args(arguments)
        .output()
        .with_context(|| format!("run {}", program.display()))?;
    if !output.status.success() {
        bail!("{} failed: {}", program.display(), String::from_utf8_lossy(&output.stderr));
    }
    serde_json::from_slice(&output.stdout)
        .with_context(|| format!("read what {} printed", program.display()))
}
