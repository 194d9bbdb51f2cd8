//! Running other programs: said aloud, and an error that names the command when it fails.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};

/// Cargo of the toolchain that runs us, in the workspace's root and as a terminal would start it:
/// what the cargo that runs us says of our own package makes build scripts of others (ring's) think
/// that something has changed, and with them everything that stands on them.
pub fn cargo(root: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root);
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(is_ours)) {
        command.env_remove(name);
    }
    command
}

/// Whether cargo sets this variable for the package that it runs, rather than anybody for cargo.
fn is_ours(variable: &str) -> bool {
    const PREFIXES: [&str; 5] =
        ["CARGO_BIN_", "CARGO_CRATE_", "CARGO_MANIFEST_", "CARGO_PKG_", "CARGO_PRIMARY_"];
    variable == "OUT_DIR" || PREFIXES.iter().any(|prefix| variable.starts_with(prefix))
}

/// Prints the command, runs it and fails unless it succeeds.
pub fn run(mut command: Command) -> Result<()> {
    eprintln!("$ {}", display(&command));
    let began = Instant::now();
    let status =
        command.status().with_context(|| format!("cannot start `{}`", display(&command)))?;
    say_time(began.elapsed());
    if !status.success() {
        bail!("`{}` failed: {status}", display(&command));
    }
    Ok(())
}

/// Runs it like [`run`], and shows each line of its standard output to `look` besides.
pub fn run_watching(mut command: Command, mut look: impl FnMut(&str)) -> Result<()> {
    eprintln!("$ {}", display(&command));
    let began = Instant::now();
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start `{}`", display(&command)))?;
    for line in child.stdout.take().into_iter().flat_map(|output| BufReader::new(output).lines()) {
        let line =
            line.with_context(|| format!("`{}` prints what is no text", display(&command)))?;
        println!("{line}");
        look(&line);
    }
    let status =
        child.wait().with_context(|| format!("cannot wait for `{}`", display(&command)))?;
    say_time(began.elapsed());
    if !status.success() {
        bail!("`{}` failed: {status}", display(&command));
    }
    Ok(())
}

/// Runs the command quietly and answers its standard output.
pub fn output(mut command: Command) -> Result<Vec<u8>> {
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot start `{}`", display(&command)))?;
    if !output.status.success() {
        bail!("`{}` failed: {}", display(&command), output.status);
    }
    Ok(output.stdout)
}

/// Builds two things at once: near its end each of them is one crate after the other, and leaves
/// cores to the other. Cargo's locks keep apart what may not be built together.
pub fn side_by_side<A: Send, B>(
    one: impl FnOnce() -> Result<A> + Send,
    other: impl FnOnce() -> Result<B>,
) -> Result<(A, B)> {
    std::thread::scope(|scope| {
        let one = scope.spawn(one);
        let other = other();
        let one = one.join().map_err(|_| anyhow!("a build broke off"))?;
        Ok((one?, other?))
    })
}

/// The path at which `PATH` finds a program.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// Says how long a command took, where somebody waited for it.
fn say_time(time: Duration) {
    if time >= Duration::from_secs(10) {
        eprintln!("  took {} min {:02} s", time.as_secs() / 60, time.as_secs() % 60);
    }
}

fn display(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let name = program.file_name().unwrap_or(program.as_os_str());
    let words: Vec<_> =
        std::iter::once(name).chain(command.get_args()).map(OsStr::to_string_lossy).collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargo_is_not_told_of_the_package_that_runs_it() {
        let command = cargo(Path::new("."));
        let is_removed = |name: &str| {
            command.get_envs().any(|(removed, value)| removed == name && value.is_none())
        };
        // Cargo sets these for this very test.
        assert!(is_removed("CARGO_MANIFEST_DIR") && is_removed("CARGO_PKG_NAME"));
        assert!(!is_ours("CARGO_TARGET_DIR") && !is_ours("CARGO_HOME") && !is_ours("CARGO"));
    }
}
