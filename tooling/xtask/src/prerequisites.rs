//! The tools that the machine must have. Tools that rustup offers are added; for each other the
//! message names the command that installs it.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::process;

/// The only target of guests: WASI 0.2 components.
pub const GUEST_TARGET: &str = "wasm32-wasip2";

/// Adds the guest target to the toolchain that builds this workspace, unless it is there.
pub fn guest_target(root: &Path) -> Result<()> {
    let mut sysroot = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    sysroot.current_dir(root).args(["--print", "sysroot"]);
    let sysroot =
        String::from_utf8(process::output(sysroot)?).context("rustc's sysroot is not UTF-8")?;
    if Path::new(sysroot.trim()).join("lib/rustlib").join(GUEST_TARGET).join("lib").is_dir() {
        return Ok(());
    }
    if process::find("rustup").is_none() {
        bail!(
            "Rust's {GUEST_TARGET} target is missing, and so is rustup to add it: install the target with whatever installed Rust"
        );
    }
    let mut add = Command::new("rustup");
    add.current_dir(root).args(["target", "add", GUEST_TARGET]);
    process::run(add).with_context(|| {
        format!("Rust's {GUEST_TARGET} target is missing: `rustup target add {GUEST_TARGET}`")
    })
}

/// Everything that the tests run beside what cargo builds; all that is missing is named at once,
/// with the command that installs it.
pub fn of_tests() -> Result<()> {
    let python = || {
        let mut makes_environments = Command::new("python3");
        makes_environments.args(["-c", "import ensurepip, venv"]);
        process::output(makes_environments).is_ok()
    };
    let needed: [(&str, bool); 4] = [
        ("postgresql", postgresql().is_ok()),
        ("curl", process::find("curl").is_some()),
        ("openssl", process::find("openssl").is_some()),
        ("python3 python3-venv", python()),
    ];
    let missing: Vec<&str> =
        needed.into_iter().filter(|(_, there)| !there).map(|(package, _)| package).collect();
    if missing.is_empty() {
        return Ok(());
    }
    bail!(
        "The tests need programs that this machine lacks. On Debian: `apt-get install {}`.\n\
         They start private servers of their own on loopback; no running service is needed.",
        missing.join(" ")
    )
}

/// The folder of PostgreSQL's server programs: on `PATH`, or where Debian keeps them.
pub fn postgresql() -> Result<PathBuf> {
    if let Some(folder) = process::find("initdb")
        .and_then(|file| file.canonicalize().ok())
        .and_then(|file| file.parent().map(Path::to_path_buf))
    {
        return Ok(folder);
    }
    let versions = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path().join("bin"));
    let mut found: Vec<PathBuf> =
        versions.filter(|folder| folder.join("initdb").is_file()).collect();
    found.sort();
    found.pop().context(
        "PostgreSQL's server programs (initdb, postgres) are missing: `apt-get install postgresql`, or put their folder on PATH.\n\
         The tests start a private server of their own; no running service is needed.",
    )
}
