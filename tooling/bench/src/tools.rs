//! The paths of the programs under measurement. `cargo xtask bench` builds them and says where.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::pace::Pace;
use crate::server::Server;

/// Paths of everything that is measured, and how thoroughly.
pub struct Tools {
    /// The host.
    pub charter: PathBuf,
    /// The folder of built components.
    pub components: PathBuf,
    /// The component that plays what a request says.
    pub script: PathBuf,
    /// The folder of the components that only the benchmark knows, and of what it writes.
    pub own: PathBuf,
    /// `wasmtime`, if it is installed.
    pub wasmtime: Option<PathBuf>,
    /// The path of LiteLLM's proxy, if it is installed.
    pub litellm: Option<PathBuf>,
    /// How thoroughly.
    pub pace: Pace,
    /// The host that parts share which are only glanced at.
    shared: OnceCell<Arc<Server>>,
}

/// The placeholder of the name in the component that is copied.
pub const PLACEHOLDER: &str = "bench-aa";

impl Tools {
    /// In the target folder, as `cargo xtask bench` filled it.
    pub fn find(target: PathBuf, pace: Pace) -> Result<Self> {
        let installed = |path: &str| Some(target.join(path)).filter(|path| path.exists());
        Self {
            charter: target.join("release/charter"),
            components: target.join("components"),
            script: target.join("fixtures/script.wasm"),
            own: target.join("bench"),
            wasmtime: installed("bench-tools/bin/wasmtime"),
            litellm: installed("bench-tools/litellm/bin"),
            pace,
            shared: OnceCell::new(),
        }
        .check()
    }

    /// The debug build that the tests run.
    #[cfg(test)]
    pub fn glance(artefacts: &charter_tests::artefacts::Artefacts) -> Self {
        Self {
            charter: artefacts.charter.clone(),
            components: artefacts.components.clone(),
            script: artefacts.fixtures.join("script.wasm"),
            own: artefacts.bench.clone(),
            wasmtime: None,
            litellm: None,
            pace: Pace::Glance,
            shared: OnceCell::new(),
        }
    }

    fn check(self) -> Result<Self> {
        for path in
            [&self.charter, &self.components, &self.script, &self.copied_component(), &self.proxy()]
        {
            if !path.exists() {
                bail!("{} is missing: run this through `cargo xtask bench`", path.display());
            }
        }
        Ok(self)
    }

    /// The component that `wasmtime serve` runs.
    pub fn proxy(&self) -> PathBuf {
        self.own.join("proxy.wasm")
    }

    /// The component that is copied under many names; its name is the placeholder [`PLACEHOLDER`].
    pub fn copied_component(&self) -> PathBuf {
        self.own.join("copied.wasm")
    }

    /// A host with every primitive, on SQLite in `data`. A glance shares one host.
    pub async fn server(&self, data: &Path) -> Result<Arc<Server>> {
        let start = async |data: &Path| {
            let server = Server::charter(&self.charter, data, &self.components)?;
            server.reachable().await?;
            anyhow::Ok(Arc::new(server))
        };
        match self.pace {
            Pace::Measured => start(data).await,
            Pace::Glance => {
                let data = self.own.join(format!("shared-{}", std::process::id()));
                self.shared.get_or_try_init(|| async { start(&data).await }).await.cloned()
            }
        }
    }
}

/// A scratch folder that goes with its handle.
pub struct Scratch(pub PathBuf);

impl Scratch {
    /// A fresh folder on the same disk as the build.
    pub fn new(tools: &Tools, name: &str) -> Result<Self> {
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let (process, count) = (std::process::id(), MADE.fetch_add(1, Relaxed));
        let path = tools.own.join(format!("{name}-{process}-{count}"));
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
pub fn rename(wasm: &[u8], name: &str) -> Vec<u8> {
    replace(wasm, PLACEHOLDER.as_bytes(), name.as_bytes())
}

/// `wasm` as another version: `0.1.0` is replaced wherever it is not an interface's version.
pub fn set_version(wasm: &[u8], version: &str) -> Vec<u8> {
    replace(wasm, b"0.1.0", version.as_bytes())
}

fn replace(wasm: &[u8], old: &[u8], new: &[u8]) -> Vec<u8> {
    assert_eq!(old.len(), new.len(), "a replacement keeps every offset");
    let mut changed = wasm.to_vec();
    for at in 0..wasm.len().saturating_sub(old.len()) {
        if &wasm[at..at + old.len()] == old && (at == 0 || wasm[at - 1] != b'@') {
            changed[at..at + old.len()].copy_from_slice(new);
        }
    }
    changed
}
