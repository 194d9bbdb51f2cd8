//! The workspace's root and its members, as cargo itself sees them.
//!
//! Asks `cargo metadata` instead of guessing, so that `CARGO_TARGET_DIR` and a `build.target-dir`
//! hold everywhere.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::process;

/// The workspace and its members.
#[derive(Debug)]
pub struct Workspace {
    /// The folder of the root `Cargo.toml`.
    pub root: PathBuf,
    /// Cargo's target folder.
    pub target: PathBuf,
    /// Every member.
    pub packages: Vec<Package>,
}

/// One member of the workspace.
#[derive(Debug)]
pub struct Package {
    /// Its name in `Cargo.toml`.
    pub name: String,
    /// Its folder.
    pub folder: PathBuf,
    /// The file stem of its WebAssembly artefact, where it is a `cdylib`.
    pub artefact: Option<String>,
    /// The names of what it depends on, development and build dependencies included.
    pub dependencies: Vec<String>,
    /// Those of them that are built into it.
    pub shipped: Vec<String>,
}

impl Workspace {
    /// Reads the workspace of the crate that Cargo runs or tests now: clones of it may share a target
    /// folder, and so this code.
    pub fn find() -> Result<Self> {
        let here = std::env::var_os("CARGO_MANIFEST_DIR").context("this is run by Cargo")?;
        let root = Path::new(&here).ancestors().find(|folder| folder.join("Cargo.lock").exists());
        let root = root.context("no folder above this crate has a Cargo.lock")?;
        let mut command = process::cargo(root);
        command.args(["metadata", "--no-deps", "--format-version", "1"]);
        let metadata: Value = serde_json::from_slice(&process::output(command)?)
            .context("cargo metadata is no JSON")?;
        let packages =
            metadata["packages"].as_array().context("cargo metadata names no packages")?;
        Ok(Self {
            root: root.to_path_buf(),
            target: metadata["target_directory"]
                .as_str()
                .context("cargo metadata names no target directory")?
                .into(),
            packages: packages.iter().map(Package::read).collect::<Result<_>>()?,
        })
    }

    /// The members whose folder lies directly in `folder`, as `(<folder name>, package)`, sorted by
    /// name.
    pub fn members_in(&self, folder: &str) -> Vec<(String, &Package)> {
        let parent = self.root.join(folder);
        let mut found: Vec<_> = self
            .packages
            .iter()
            .filter(|package| package.folder.parent() == Some(&parent))
            .filter_map(|package| Some((package.folder.file_name()?.to_str()?.to_owned(), package)))
            .collect();
        found.sort_by(|left, right| left.0.cmp(&right.0));
        found
    }

    /// The primitives of these names.
    pub fn primitives(&self, names: &[String]) -> Result<Vec<(String, &Package)>> {
        let all = self.members_in("plugins");
        let known = || all.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ");
        let find = |name: &String| {
            let found = all.iter().find(|(folder, _)| folder == name);
            found.cloned().with_context(|| {
                format!("there is no primitive `{name}`; plugins/ holds {}", known())
            })
        };
        names.iter().map(find).collect()
    }

    /// The member of that name.
    pub fn package(&self, name: &str) -> Result<&Package> {
        match self.packages.iter().find(|package| package.name == name) {
            Some(package) => Ok(package),
            None => bail!("the workspace has no package {name}"),
        }
    }
}

impl Package {
    fn read(value: &Value) -> Result<Self> {
        let manifest = Path::new(
            value["manifest_path"].as_str().context("a package without a manifest path")?,
        );
        let is_component = |target: &&Value| {
            target["kind"].as_array().is_some_and(|kinds| kinds.iter().any(|kind| kind == "cdylib"))
        };
        let artefact =
            value["targets"].as_array().and_then(|targets| targets.iter().find(is_component));
        let dependencies = value["dependencies"].as_array().map(Vec::as_slice).unwrap_or_default();
        let names = |of: &dyn Fn(&&Value) -> bool| {
            let named = dependencies.iter().filter(of).filter_map(|found| found["name"].as_str());
            named.map(str::to_owned).collect()
        };
        Ok(Self {
            name: value["name"].as_str().context("a package without a name")?.to_owned(),
            folder: manifest.parent().context("a manifest without a folder")?.to_path_buf(),
            artefact: artefact
                .and_then(|target| target["name"].as_str())
                .map(|name| name.replace('-', "_")),
            dependencies: names(&|_| true),
            shipped: names(&|found| found["kind"].is_null()),
        })
    }
}
