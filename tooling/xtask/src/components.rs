//! Builds the primitives and the test fixtures as WebAssembly components, and the host itself.
//!
//! The folders decide: each folder under `plugins/` is one primitive,
//! `target/components/<folder>.wasm`; each under `tests/fixtures/` is one fixture,
//! `target/fixtures/<folder>.wasm`; each under `tooling/bench/` is a guest of the benchmarks,
//! `target/bench/<folder>.wasm`. No list is kept anywhere.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::workspace::{Package, Workspace};
use crate::{prerequisites, process};

/// The cargo profile of guests.
const PROFILE: &str = "component";

/// The components to build.
#[derive(Args, Debug)]
pub struct Options {
    /// Only these primitives, by their folders' names, and not the host
    names: Vec<String>,
    /// Put them here instead of target/components, which `cargo xtask run` watches
    #[arg(long, value_name = "DIR", requires = "names")]
    into: Option<PathBuf>,
}

/// `cargo xtask build`: the release binary and every primitive, or the named primitives.
pub fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    if options.names.is_empty() {
        return release(workspace);
    }
    let members = workspace.primitives(&options.names)?;
    let output = options.into.clone().unwrap_or_else(|| components(workspace));
    build(workspace, "plugins", &members, &output)?;
    for (name, _) in members {
        eprintln!("built {}", output.join(format!("{name}.wasm")).display());
    }
    Ok(())
}

fn release(workspace: &Workspace) -> Result<()> {
    let (components, charter) =
        process::side_by_side(|| primitives(workspace), || host(workspace, true))?;
    eprintln!("\nbuilt {}", charter.display());
    for (name, _) in workspace.members_in("plugins") {
        eprintln!("built {}", components.join(format!("{name}.wasm")).display());
    }
    Ok(())
}

/// Builds the `charter` binary and answers where it is.
pub fn host(workspace: &Workspace, release: bool) -> Result<PathBuf> {
    eprintln!("The host and what it stands on: minutes, the first time.");
    binary(workspace, "charter", release)
}

/// Builds a binary and answers where it is.
pub fn binary(workspace: &Workspace, name: &str, release: bool) -> Result<PathBuf> {
    let mut command = process::cargo(&workspace.root);
    // Always from the whole workspace: cargo unifies the features of what is selected, so another
    // selection would build every heavy dependency a second time.
    command.args(["build", "--quiet", "--workspace", "--bin", name]);
    command.args(release.then_some("--release"));
    process::run(command)?;
    Ok(workspace.target.join(if release { "release" } else { "debug" }).join(name))
}

/// Builds every folder under `plugins/` and answers the folder of the components.
pub fn primitives(workspace: &Workspace) -> Result<PathBuf> {
    guests(workspace, "plugins", &components(workspace))
}

/// The folder of the primitives' components.
fn components(workspace: &Workspace) -> PathBuf {
    workspace.target.join("components")
}

/// Builds every folder under `tests/fixtures/` and answers the folder of the components.
pub fn fixtures(workspace: &Workspace) -> Result<PathBuf> {
    guests(workspace, "tests/fixtures", &workspace.target.join("fixtures"))
}

/// Builds the components that only the benchmarks know, and answers their folder.
pub fn benchmarks(workspace: &Workspace) -> Result<PathBuf> {
    guests(workspace, "tooling/bench", &workspace.target.join("bench"))
}

fn guests(workspace: &Workspace, folder: &str, output: &Path) -> Result<PathBuf> {
    let members = workspace.members_in(folder);
    build(workspace, folder, &members, output)?;
    remove_strangers(output, |name| members.iter().any(|(member, _)| member == name))?;
    Ok(output.to_path_buf())
}

fn build(
    workspace: &Workspace,
    folder: &str,
    members: &[(String, &Package)],
    output: &Path,
) -> Result<()> {
    prerequisites::guest_target(&workspace.root)?;
    std::fs::create_dir_all(output).with_context(|| format!("cannot make {}", output.display()))?;
    if !members.is_empty() {
        eprintln!("The components of {folder}: minutes, the first time.");
        let mut command = process::cargo(&workspace.root);
        command.args([
            "build",
            "--quiet",
            "--profile",
            PROFILE,
            "--target",
            prerequisites::GUEST_TARGET,
        ]);
        // The primitives with each: cargo unifies the features of what is selected, so without them the
        // SDK and all that it stands on would be built once more.
        let primitives = workspace.members_in("plugins");
        let others = primitives.iter().filter(|_| folder != "plugins");
        for (_, package) in members.iter().chain(others) {
            command.args(["--package", &package.name]);
        }
        // A target directory for guests alone would build their shared dependencies twice for
        // nothing.
        process::run(command)?;
    }
    let built = workspace.target.join(prerequisites::GUEST_TARGET).join(PROFILE);
    for (name, package) in members {
        let Some(artefact) = &package.artefact else {
            bail!(
                "{folder}/{name} builds no component: its Cargo.toml needs `[lib] crate-type = [\"cdylib\", \"rlib\"]`"
            );
        };
        place(&built.join(format!("{artefact}.wasm")), &output.join(format!("{name}.wasm")))?;
    }
    Ok(())
}

/// Puts a file in place at once and only when it changed: a running host may watch the folder.
fn place(from: &Path, to: &Path) -> Result<()> {
    let bytes = std::fs::read(from).with_context(|| format!("cannot read {}", from.display()))?;
    if std::fs::read(to).is_ok_and(|there| there == bytes) {
        return Ok(());
    }
    let temporary = to.with_extension("wasm.part");
    std::fs::write(&temporary, bytes)
        .with_context(|| format!("cannot write {}", temporary.display()))?;
    std::fs::rename(&temporary, to)
        .with_context(|| format!("cannot move {} into place", temporary.display()))
}

/// A component whose folder is gone must not be served by the next start.
fn remove_strangers(folder: &Path, keep: impl Fn(&str) -> bool) -> Result<()> {
    for entry in
        std::fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?
    {
        let path = entry?.path();
        let is_component = path.extension().is_some_and(|extension| extension == "wasm");
        let known = path.file_stem().and_then(|stem| stem.to_str()).is_some_and(&keep);
        if is_component && !known {
            std::fs::remove_file(&path)
                .with_context(|| format!("cannot remove {}", path.display()))?;
        }
    }
    Ok(())
}
