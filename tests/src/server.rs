//! One running `charter serve`: started on a port of its own, killed when dropped.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use crate::artefacts::Artefacts;
use crate::client::Client;
use crate::tether::{Launch, Tethered};

/// A debug build that compiles every component for the first time takes half of this beside six busy
/// programs on two cores. A server that ends is not waited for.
const START: Duration = Duration::from_secs(300);

/// How a server is started.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Its data folder.
    pub data: PathBuf,
    /// Its database; the embedded one if absent.
    pub database: Option<String>,
    /// The watched folder of components.
    pub components: Option<PathBuf>,
    /// Further environment.
    pub environment: Vec<(String, String)>,
    /// Further arguments.
    pub arguments: Vec<String>,
    /// A program that is run in place of `charter`, and becomes it.
    pub program: Option<PathBuf>,
}

/// A running server.
#[derive(Debug)]
pub struct Server {
    process: Tethered,
    address: String,
    log: PathBuf,
}

impl Server {
    /// Starts it and waits for the address that it prints.
    pub fn start(options: &Options) -> Result<Self, String> {
        let mut launch = Launch::new(
            options.program.as_ref().unwrap_or(&Artefacts::get().charter),
            "KILL",
            Some(&options.data),
        );
        let log = options.data.join(format!("server.{}.log", sequence()));
        let output = File::create(&log)
            .map_err(|error| format!("cannot make {}: {error}", log.display()))?;
        let command = launch.command();
        command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(&options.data);
        if let Some(database) = &options.database {
            command.args(["--database", database]);
        }
        if let Some(components) = &options.components {
            command.arg("--components").arg(components);
        }
        command.args(&options.arguments);
        command.envs(options.environment.iter().map(|(name, value)| (name, value)));
        command.stdout(Stdio::piped()).stderr(output);
        let mut process =
            launch.start().map_err(|error| format!("cannot start charter: {error}"))?;
        let address = first_line(&mut process, &log);
        let Some(address) = address.as_deref().and_then(address_in) else {
            process.kill();
            return Err(format!(
                "charter printed {address:?} and no address; its log:\n{}",
                tail(&log)
            ));
        };
        Ok(Self { process, address, log })
    }

    /// A client of it, without a credential.
    pub fn client(&self) -> Client {
        Client::new(&self.address)
    }

    /// `http://127.0.0.1:<port>`.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The server's process id.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// `kill -9`.
    pub fn kill(mut self) {
        self.process.kill();
    }

    /// SIGTERM, and the status that it ends with; `None` if it has not ended within `limit`.
    pub fn terminate(mut self, limit: Duration) -> Option<ExitStatus> {
        self.process.signal("TERM");
        self.process.wait(limit)
    }

    /// Sends a signal by name.
    pub fn signal(&self, name: &str) {
        self.process.signal(name);
    }

    /// Its log.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Resident memory in bytes.
    pub fn resident_bytes(&self) -> u64 {
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", self.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
        line.split_whitespace()
            .next()
            .and_then(|kilobytes| kilobytes.parse::<u64>().ok())
            .unwrap_or_default()
            * 1024
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.process.kill();
        if std::thread::panicking() {
            eprintln!("--- the end of the server's log\n{}\n---", tail(&self.log));
        }
        let _ = std::fs::remove_file(&self.log);
    }
}

/// Reads standard output to its end on a thread of its own, so that the server never waits for us;
/// answers the first line.
fn first_line(process: &mut Tethered, log: &Path) -> Option<String> {
    let output = process.child().stdout.take()?;
    let mut rest = File::options().append(true).open(log).ok()?;
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut output = BufReader::new(output);
        let mut line = String::new();
        if output.read_line(&mut line).is_ok_and(|length| length > 0) {
            let _ = sender.send(line);
        }
        drop(sender);
        let _ = std::io::copy(&mut output, &mut rest);
    });
    receiver.recv_timeout(START).ok()
}

/// The address in the first line: a URL, or `host:port`, with whatever words around it.
fn address_in(line: &str) -> Option<String> {
    let word = line.split_whitespace().find(|word| word.contains("127.0.0.1:"))?;
    let address = word.trim_matches(|character: char| !character.is_ascii_alphanumeric());
    Some(if address.contains("://") { address.to_owned() } else { format!("http://{address}") })
}

fn tail(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(60)..].join("\n")
}

fn sequence() -> u32 {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
