//! `charter doctor`: looks at what a host needs, and says what to do about what is missing. It
//! makes and changes nothing.

use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use charter_adapters::mail::relay::{self, Relay};
use charter_adapters::providers::{Providers, Whose};
use charter_engine::{Engine, EngineConfig, EngineError};
use charter_kernel::time::Clock as _;
use charter_registry::components::Inventory;
use charter_store::{OpenError, Store};

use super::offline;
use super::say;
use super::serve::{SystemClock, store_config};
use crate::config::Config;

/// Free space below which a host should not start.
const DISK_BYTES_MIN: u64 = 1 << 30;
/// 2025-01-01: a clock that reads less is not set.
const CLOCK_MIN_MS: i64 = 1_735_689_600_000;

enum Finding {
    Fine,
    Odd,
    Bad,
}

struct Report {
    bad: usize,
}

impl Report {
    fn line(&mut self, finding: &Finding, what: &str, message: &str) {
        let mark = match finding {
            Finding::Fine => "ok  ",
            Finding::Odd => "note",
            Finding::Bad => {
                self.bad += 1;
                "BAD "
            }
        };
        say(&format!("{mark}  {what:<12} {message}"));
    }
}

/// Checks everything; fails if anything keeps a host from serving.
pub(super) async fn run(config: &Config) -> ExitCode {
    let mut report = Report { bad: 0 };
    report.line(&Finding::Fine, "config", "no faults");
    clock(&mut report);
    folder(&mut report, config);
    disk(&mut report, &config.data.dir);
    settings(&mut report, config);
    let settings = store_config(config, Arc::new(SystemClock));
    match Store::is_there(&settings).await {
        Ok(()) => match offline::look(config).await {
            Ok(store) => {
                database(&mut report, &store).await;
                sandbox(&mut report, engine(config, Some(&store)));
                components(&mut report, &store).await;
                mail(&mut report, &store, config).await;
                store.close().await;
            }
            Err(error) => report.line(&Finding::Bad, "database", &format!("{error:#}")),
        },
        Err(error @ OpenError::Absent(_)) => {
            report.line(
                &Finding::Odd,
                "database",
                &format!("{error} yet: the first start makes one"),
            );
            sandbox(&mut report, engine(config, None));
        }
        Err(error) => report.line(
            &Finding::Bad,
            "database",
            &format!("{:#}", offline::explain_open_error(error)),
        ),
    }
    match report.bad {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

fn clock(report: &mut Report) {
    let now = SystemClock.now();
    match now.0 >= CLOCK_MIN_MS {
        true => report.line(&Finding::Fine, "clock", &now.to_string()),
        false => report.line(
            &Finding::Bad,
            "clock",
            &format!("reads {now}: set it, or run a time service"),
        ),
    }
}

fn folder(report: &mut Report, config: &Config) {
    let dir = &config.data.dir;
    match std::fs::metadata(dir) {
        Err(_) => report.line(
            &Finding::Odd,
            "data",
            &format!("{} is made at the first start", dir.display()),
        ),
        Ok(metadata) => match metadata.permissions().mode() & 0o777 {
            0o700 => report.line(&Finding::Fine, "data", &dir.display().to_string()),
            mode if mode & 0o022 != 0 => {
                report.line(
                    &Finding::Bad,
                    "data",
                    &format!("{} can be written by others ({mode:o}): chmod 700 it", dir.display()),
                );
            }
            mode => report.line(
                &Finding::Odd,
                "data",
                &format!("{} can be read by others ({mode:o}): chmod 700 it", dir.display()),
            ),
        },
    }
    let key = config.data.master_key();
    if let Ok(metadata) = std::fs::metadata(&key) {
        match metadata.permissions().mode() & 0o077 {
            0 => report.line(
                &Finding::Fine,
                "master key",
                &format!("{}; keep a copy elsewhere", key.display()),
            ),
            _ => report.line(
                &Finding::Bad,
                "master key",
                &format!("{} can be read by others: chmod 600 it", key.display()),
            ),
        }
    }
}

/// Reports the space that the file system has left, as `df` tells it: the standard library does
/// not.
fn disk(report: &mut Report, dir: &Path) {
    let there = dir.ancestors().find(|dir| dir.exists()).unwrap_or(dir);
    let told = std::process::Command::new("df")
        .arg("-Pk")
        .arg(there)
        .output()
        .ok()
        .and_then(|output| String::from_utf8(output.stdout).ok());
    let free =
        told.and_then(|text| text.lines().nth(1)?.split_whitespace().nth(3)?.parse::<u64>().ok());
    match free.map(|kilobytes| kilobytes << 10) {
        None => report.line(&Finding::Odd, "disk", "its free space cannot be told here"),
        Some(free) if free < DISK_BYTES_MIN => {
            report.line(
                &Finding::Bad,
                "disk",
                &format!("{} MiB free: mutations are refused when it is full", free >> 20),
            );
        }
        Some(free) => report.line(&Finding::Fine, "disk", &format!("{} MiB free", free >> 20)),
    }
}

async fn database(report: &mut Report, store: &Store) {
    let kind = if store.is_shared() {
        "PostgreSQL, replicas can share it"
    } else {
        "embedded SQLite, one process"
    };
    match store.ping().await {
        true => {
            report.line(&Finding::Fine, "database", &format!("{kind}; the schema is up to date"))
        }
        false => report.line(&Finding::Bad, "database", "does not answer"),
    }
}

fn settings(report: &mut Report, config: &Config) {
    if config.tls.is_none() && !config.http.listen.ip().is_loopback() {
        report.line(
            &Finding::Odd,
            "tls",
            "off, and the address is not this machine's alone: set tls.certificate and tls.key, or put a proxy before it",
        );
    }
    let mut signing = String::new();
    let _ = match config.components.signing_keys.len() {
        0 => write!(
            signing,
            "any component is admitted: set components.signing_keys to admit signed ones only"
        ),
        keys => write!(signing, "components must be signed by one of {keys} keys"),
    };
    report.line(&Finding::Fine, "signing", &signing);
    if let Some(dir) = &config.components.dir
        && let Err(error) = std::fs::read_dir(dir)
    {
        report.line(&Finding::Bad, "folder", &format!("{} cannot be read: {error}", dir.display()));
    }
}

/// How the sandbox would run, with the cache of compiled code where there is one.
fn engine(config: &Config, store: Option<&Store>) -> Result<&'static str, EngineError> {
    let cache_dir = Some(config.data.code_cache()).filter(|dir| dir.is_dir());
    let settings = EngineConfig { cache_dir, ..EngineConfig::default() };
    match store {
        Some(store) => {
            Engine::new(settings, store.clone(), Arc::new(SystemClock)).map(|engine| engine.mode())
        }
        None => Engine::probe(&settings),
    }
}

fn sandbox(report: &mut Report, mode: Result<&'static str, EngineError>) {
    match mode {
        Err(error) => {
            report.line(&Finding::Bad, "sandbox", &format!("{:#}", anyhow::Error::new(error)))
        }
        Ok(mode) => match mode {
            "pooling" => report.line(&Finding::Fine, "sandbox", "instances are pooled"),
            mode => report.line(
                &Finding::Odd,
                "sandbox",
                &format!(
                    "fell back to {mode}: slower; give the process more address space (ulimit -v)"
                ),
            ),
        },
    }
}

async fn components(report: &mut Report, store: &Store) {
    match Inventory::read(&mut store.begin(""), true).await {
        Err(error) => {
            report.line(&Finding::Bad, "components", &format!("{:#}", anyhow::Error::new(error)))
        }
        Ok(inventory) => {
            let mut missing = Vec::new();
            for version in inventory.serving() {
                if !store.blob_exists(&version.blob()).await.unwrap_or(false) {
                    missing.push(format!("{} {}", version.name, version.version));
                }
            }
            let count = inventory.serving().count();
            match missing.is_empty() {
                true => report.line(
                    &Finding::Fine,
                    "components",
                    &format!("{} installed, {count} active", inventory.versions.len()),
                ),
                false => report.line(
                    &Finding::Bad,
                    "components",
                    &format!("their bytes are missing, install them again: {}", missing.join(", ")),
                ),
            }
        }
    }
}

/// Whether the host can mail links, and where they would lead.
async fn mail(report: &mut Report, store: &Store, config: &Config) {
    let providers = match Providers::open(store.clone(), &config.providers).await {
        Ok(providers) => providers,
        Err(error) => {
            return report.line(
                &Finding::Bad,
                "mail",
                &format!("the bindings cannot be read: {error}"),
            );
        }
    };
    let Some(binding) = providers.get(relay::BINDING, &Whose::Deployment) else {
        return report.line(&Finding::Fine, "mail", "no relay is bound: nobody is mailed");
    };
    match Relay::of(&binding) {
        Err(unfit) => {
            report.line(&Finding::Bad, "mail", &format!("the relay cannot be used: {unfit}"))
        }
        Ok(_) if !config.http.has_base() => {
            report.line(
                &Finding::Bad,
                "mail",
                "a relay is bound, but links would lead nowhere: set http.public_url",
            );
        }
        Ok(relay) => report.line(
            &Finding::Fine,
            "mail",
            &format!("goes through {}:{}", relay.host, relay.port),
        ),
    }
}
