//! The command line. Knows the operator's wishes only: what is done stands in the modules that do
//! it.
//!
//! Exit codes: 0 done, 1 refused or failed, 2 wrong usage or configuration.

use std::path::PathBuf;
use std::process::ExitCode;

use charter_kernel::line::one_line;
use clap::{Args, Parser, Subcommand};

use crate::config::{Config, Layers};

mod approvals;
mod audit;
mod client;
mod component;
mod doctor;
mod files;
mod key;
mod offline;
pub mod serve;

pub use serve::{Running, start};

/// Wrong usage or configuration.
const USAGE: u8 = 2;

/// One host for governed agent primitives.
#[derive(Parser)]
#[command(name = "charter", version, propagate_version = true, max_term_width = 100)]
#[command(
    after_help = "Start one with no configuration at all:\n\n    charter serve --listen 127.0.0.1:8080 --data ./charter-data --components ./components\n\nThen open http://127.0.0.1:8080/register.md, or read `charter serve --help`."
)]
struct Command {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Run the host
    ///
    /// The first line on standard output is the address. The log goes to standard error. SIGTERM
    /// drains: no new connections, requests in flight finish, then the process ends.
    Serve(Serve),
    /// Install, activate and roll back components of a running host
    #[command(subcommand)]
    Component(component::Verb),
    /// Make, list and revoke API keys
    #[command(subcommand)]
    Key(key::Verb),
    /// Approvals that wait for people: list them, approve or deny one
    #[command(subcommand)]
    Approvals(approvals::Verb),
    /// The operator's own credentials
    #[command(subcommand)]
    Operator(OperatorVerb),
    /// The master key that everything secret is sealed under
    #[command(subcommand)]
    Keys(KeysVerb),
    /// Check this machine, the configuration and the database, and say what to do
    Doctor(Settings),
    /// Write everything, as of one moment, to one file; the host may be running
    Backup {
        /// The file to write; it must not exist
        file: PathBuf,
        #[command(flatten)]
        settings: Settings,
    },
    /// Fill an empty database from a backup
    Restore {
        /// The file that `charter backup` wrote
        file: PathBuf,
        #[command(flatten)]
        settings: Settings,
    },
    /// Prove the books: what accounts, holds and caps say must agree
    #[command(subcommand)]
    Ledger(LedgerVerb),
    /// Verify what the audit log says, without a host
    #[command(subcommand)]
    Audit(AuditVerb),
    /// List every setting with its default and its environment variable
    Config,
}

#[derive(Subcommand)]
enum LedgerVerb {
    /// Sum up every account, hold and meter, and name whatever does not agree; the host may be
    /// running
    Verify {
        #[command(flatten)]
        settings: Settings,
    },
}

#[derive(Subcommand)]
enum AuditVerb {
    /// Check an export of GET /v1/audit/export: that nothing was edited, removed, cut off or put
    /// elsewhere
    Verify {
        /// The export; - for standard input
        file: PathBuf,
        /// The public key that signs, as GET /v1/audit/checkpoint names it; without it the export's
        /// own is believed
        #[arg(long, value_name = "KEY")]
        key: Option<String>,
        /// A signed checkpoint that was kept from before: the log must still begin with what it
        /// covers
        #[arg(long, value_name = "FILE")]
        since: Option<PathBuf>,
    },
}

#[derive(Subcommand)]
enum OperatorVerb {
    /// Replace the operator's token and print the new one, once
    ///
    /// With --url and the token of now a running host does it; without, it is done on the database
    /// itself, and no host may run on an embedded one meanwhile.
    RotateToken {
        /// The running host's address
        #[arg(long, value_name = "URL", requires = "token")]
        url: Option<String>,
        /// The token of now
        #[arg(long, env = "CHARTER_OPERATOR_TOKEN", hide_env_values = true)]
        token: Option<String>,
        #[command(flatten)]
        settings: Settings,
    },
}

#[derive(Subcommand)]
enum KeysVerb {
    /// Make a new master key and seal every organization's key under it
    RotateMaster(Settings),
}

/// The folders and files that every command takes which opens the database.
#[derive(Args, Clone, Default)]
pub(crate) struct Settings {
    /// The data directory: the embedded database, the key file, the code cache [default:
    /// charter-data]
    #[arg(long, value_name = "DIR")]
    data: Option<String>,
    /// postgres://user:password@host/name; the embedded SQLite if not given [env:
    /// CHARTER_DATABASE_URL]
    #[arg(long, value_name = "URL")]
    database: Option<String>,
    /// A TOML file of settings; `charter config` lists them
    #[arg(long, value_name = "FILE", env = "CHARTER_CONFIG")]
    config: Option<PathBuf>,
}

#[derive(Args, Clone, Default)]
struct Serve {
    /// Address to listen on; port 0 takes a free port [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
    /// A folder of .wasm files; it is watched, and what is new in it is installed and activated
    #[arg(long, value_name = "DIR")]
    components: Option<String>,
    /// Ranges of the proxies in front, separated by commas; they say in Forwarded or
    /// X-Forwarded-For whose request it is
    #[arg(long, value_name = "RANGES")]
    trusted_proxies: Option<String>,
    #[command(flatten)]
    settings: Settings,
}

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    let command = Command::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            return report_failure(
                &anyhow::Error::new(error).context("the runtime cannot be started"),
            );
        }
    };
    let done = runtime.block_on(run(command.verb));
    // Background work that still runs belongs to a process that has said its last word.
    runtime.shutdown_timeout(std::time::Duration::from_secs(1));
    done
}

async fn run(verb: Verb) -> ExitCode {
    let done = match verb {
        Verb::Serve(serve) => match read(
            &serve.settings,
            &[
                ("http.listen", "--listen", &serve.listen),
                ("components.dir", "--components", &serve.components),
                ("http.trusted_proxies", "--trusted-proxies", &serve.trusted_proxies),
            ],
        ) {
            Ok(config) => serve::run(config).await,
            Err(code) => return code,
        },
        Verb::Component(verb) => component::run(verb).await,
        Verb::Key(verb) => key::run(verb).await,
        Verb::Approvals(verb) => approvals::run(verb).await,
        Verb::Doctor(settings) => match read(&settings, &[]) {
            Ok(config) => return doctor::run(&config).await,
            Err(code) => return code,
        },
        Verb::Operator(OperatorVerb::RotateToken {
            url: Some(url), token: Some(token), ..
        }) => rotate_token(url, &token).await,
        Verb::Operator(OperatorVerb::RotateToken { settings, .. }) => match read(&settings, &[]) {
            Ok(config) => offline::rotate_token(&config).await,
            Err(code) => return code,
        },
        Verb::Keys(KeysVerb::RotateMaster(settings)) => match read(&settings, &[]) {
            Ok(config) => offline::rotate_master(&config).await,
            Err(code) => return code,
        },
        Verb::Backup { file, settings } => match read(&settings, &[]) {
            Ok(config) => offline::backup(&config, &file).await,
            Err(code) => return code,
        },
        Verb::Restore { file, settings } => match read(&settings, &[]) {
            Ok(config) => offline::restore(&config, &file).await,
            Err(code) => return code,
        },
        Verb::Ledger(LedgerVerb::Verify { settings }) => match read(&settings, &[]) {
            Ok(config) => offline::verify_ledger(&config).await,
            Err(code) => return code,
        },
        Verb::Audit(AuditVerb::Verify { file, key, since }) => {
            audit::verify(&file, key.as_deref(), since.as_deref())
        }
        Verb::Config => reference(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => report_failure(&error),
    }
}

async fn rotate_token(url: String, token: &str) -> anyhow::Result<()> {
    let sent = client::Sent::new(http::Method::POST, "/v1/operator/token/rotate", token);
    let answer = client::Target::at(url).send(sent).await?;
    say(answer["token"].as_str().unwrap_or_default());
    Ok(())
}

/// A setting left out of the command line and of the environment.
#[derive(Debug)]
struct Usage(String);

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

fn report_failure(error: &anyhow::Error) -> ExitCode {
    say_wrong(&format!("charter: {error:#}"));
    if error.is::<Usage>() { ExitCode::from(USAGE) } else { ExitCode::FAILURE }
}

/// The configuration of all layers. Every fault is shown at once.
fn read(
    settings: &Settings,
    more: &[(&'static str, &'static str, &Option<String>)],
) -> Result<Config, ExitCode> {
    let file = match &settings.config {
        None => None,
        Some(path) => match std::fs::read_to_string(path) {
            Ok(text) => Some((path.clone(), text)),
            Err(error) => {
                say_wrong(&format!("charter: --config {} cannot be read: {error}", path.display()));
                return Err(ExitCode::from(USAGE));
            }
        },
    };
    let own = [
        ("data.dir", "--data", &settings.data),
        ("database.url", "--database", &settings.database),
    ];
    let given = own
        .iter()
        .chain(more)
        .filter_map(|(key, flag, value)| Some((*key, *flag, (*value).clone()?)));
    let environment = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let layers = Layers { file, environment: environment.collect(), flags: given.collect() };
    Config::read(layers).map_err(|faults| {
        let noun = if faults.len() == 1 { "fault" } else { "faults" };
        say_wrong(&format!("charter: the configuration has {} {noun}:", faults.len()));
        for fault in faults {
            say_wrong(&format!("  {fault}"));
        }
        ExitCode::from(USAGE)
    })
}

fn reference() -> anyhow::Result<()> {
    say(
        "# Every setting of charter, for `charter serve --config FILE`. The environment overrides the file: [http] listen is",
    );
    say(
        "# CHARTER_HTTP_LISTEN. Bindings are sections of their own: [providers.NAME] kind, url, credential, options.",
    );
    say(
        "# So is what is set of a primitive: [primitives.NAME], with the keys that its manifest declares.",
    );
    let mut section = String::new();
    for entry in Config::reference() {
        let Some((of, key)) = entry.key.rsplit_once('.') else { continue };
        if of != section {
            of.clone_into(&mut section);
            say(&format!("\n[{section}]"));
        }
        let value = if entry.default.is_empty() {
            format!("# {key} =")
        } else {
            format!("{key} = {}", entry.default)
        };
        say(&format!("{value:<40} # {}", entry.about));
    }
    Ok(())
}

/// Lines on standard output; what a stranger wrote in them commands no terminal. A closed pipe is
/// nobody's fault.
fn say(text: &str) {
    use std::io::Write as _;
    let mut out = std::io::stdout().lock();
    let _ = text
        .split('\n')
        .try_for_each(|line| writeln!(out, "{}", one_line(line)))
        .and_then(|()| out.flush());
}

/// The same on standard error.
fn say_wrong(text: &str) {
    use std::io::Write as _;
    let mut wrong = std::io::stderr().lock();
    let _ = text.split('\n').try_for_each(|line| writeln!(wrong, "{}", one_line(line)));
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_consistent() {
        super::Command::command().debug_assert();
    }
}
