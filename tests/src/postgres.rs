//! A private PostgreSQL server: its own folder, a Unix socket only, gone when the test process is.
//!
//! Uses the machine's PostgreSQL programs and no running service. `fsync` is off for tests: what is
//! tested is what a client of the database sees after its own death, not after the machine's.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use super::tether::{Launch, Tethered};

/// The complaint of a machine without PostgreSQL.
const MISSING: &str = "PostgreSQL's server programs (initdb, postgres) are missing: `apt-get install postgresql`, or put their \
                       folder on PATH. The tests start a private server of their own; no running service is needed.";

/// A private server.
#[derive(Debug)]
pub struct Postgres {
    programs: PathBuf,
    folder: PathBuf,
    user: Option<(u32, u32)>,
    durable: bool,
    process: Mutex<Option<Tethered>>,
    databases: AtomicU32,
}

impl Postgres {
    /// The one server of this process, started at first use.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<Postgres> = OnceLock::new();
        SHARED.get_or_init(|| Self::start("shared").unwrap_or_else(|fault| panic!("{fault}")))
    }

    /// Starts a server of its own; `name` keeps it apart from others of this process.
    pub fn start(name: &str) -> Result<Self, String> {
        Self::of(name, false)
    }

    /// The same, with every commit on disk: for measuring.
    pub fn durable(name: &str) -> Result<Self, String> {
        Self::of(name, true)
    }

    /// The one server of a test program that does without where the machine has none, and says so;
    /// with `CHARTER_REQUIRE_POSTGRES` set it does not.
    pub fn if_installed(name: &str) -> Option<&'static Self> {
        static SERVER: OnceLock<Result<Postgres, String>> = OnceLock::new();
        match SERVER.get_or_init(|| Self::start(name)) {
            Ok(server) => Some(server),
            Err(missing) if std::env::var_os("CHARTER_REQUIRE_POSTGRES").is_some() => {
                panic!("{missing}")
            }
            Err(missing) => {
                eprintln!("NOT RUN: {missing}");
                None
            }
        }
    }

    fn of(name: &str, durable: bool) -> Result<Self, String> {
        let programs = programs().ok_or(MISSING)?;
        let folder =
            std::env::temp_dir().join(format!("charter-postgresql-{}-{name}", std::process::id()));
        let user = find_unprivileged()?;
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder)
            .map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
        let _ = std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o700));
        if let Some((user, group)) = user {
            std::os::unix::fs::chown(&folder, Some(user), Some(group))
                .map_err(|error| error.to_string())?;
        }
        let server = Self {
            programs,
            folder,
            user,
            durable,
            process: Mutex::new(None),
            databases: AtomicU32::new(0),
        };
        let data = server.data();
        let arguments =
            ["-D", &data, "-U", "charter", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"];
        server.run("initdb", &arguments)?;
        server.boot()?;
        Ok(server)
    }

    /// A new, empty database; answers its URL.
    pub fn database(&self) -> String {
        self.database_like("template0")
    }

    /// A new database with what is in the one at `url`, which nobody may be connected to.
    pub fn copy(&self, url: &str) -> String {
        self.database_like(url.rsplit('/').next().unwrap_or_default())
    }

    fn database_like(&self, template: &str) -> String {
        let name = format!("charter_{}", self.databases.fetch_add(1, Ordering::Relaxed));
        let folder = self.folder.to_string_lossy().into_owned();
        let made = self.run("createdb", &["-h", &folder, "-U", "charter", "-T", template, &name]);
        made.unwrap_or_else(|fault| panic!("{fault}"));
        format!("postgres://charter@{}/{name}", folder.replace('/', "%2F"))
    }

    /// Runs one statement against a database of [`Self::database`] and answers the rows, unaligned.
    pub fn query(&self, url: &str, statement: &str) -> String {
        let name = url.rsplit('/').next().unwrap_or_default().to_owned();
        let folder = self.folder.to_string_lossy().into_owned();
        self.run("psql", &["-h", &folder, "-U", "charter", "-d", &name, "-Atc", statement])
            .unwrap_or_else(|fault| panic!("{fault}"))
    }

    /// Breaks every connection and starts the server again, as a crash of the database would.
    pub fn crash_and_restart(&self) {
        // The watcher of the process that ends here must leave the folder to the next one.
        let _ = std::fs::write(self.folder.join("keep"), "");
        if let Some(mut process) =
            self.process.lock().expect("no test panics while it holds the server").take()
        {
            process.signal("QUIT");
            if process.wait(Duration::from_secs(20)).is_none() {
                process.kill();
            }
        }
        self.boot().unwrap_or_else(|fault| panic!("{fault}"));
    }

    fn boot(&self) -> Result<(), String> {
        let mut launch = Launch::new(&self.programs.join("postgres"), "QUIT", Some(&self.folder))
            .user(self.user);
        let mut settings = vec![
            "listen_addresses=",
            "max_connections=400",
            "shared_buffers=64MB",
            "logging_collector=off",
        ];
        if !self.durable {
            settings.extend(["fsync=off", "synchronous_commit=off", "full_page_writes=off"]);
            // Hundreds of databases that live for seconds each: nothing of them is worth cleaning, copying
            // or compiling.
            settings.extend([
                "autovacuum=off",
                "wal_level=minimal",
                "max_wal_senders=0",
                "jit=off",
            ]);
        }
        let log = self.folder.join("log");
        let output = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(&log)
            .map_err(|error| error.to_string())?;
        let command = launch.command();
        command.current_dir(&self.folder).args(["-D", &self.data(), "-k"]).arg(&self.folder);
        settings.iter().for_each(|setting| {
            command.args(["-c", setting]);
        });
        command.stderr(output).stdout(Stdio::null());
        let mut process =
            launch.start().map_err(|error| format!("cannot start postgres: {error}"))?;
        let start = Instant::now();
        let folder = self.folder.to_string_lossy().into_owned();
        while self
            .run("pg_isready", &["-q", "-h", &folder, "-U", "charter", "-d", "postgres"])
            .is_err()
        {
            let ended = process.child().try_wait().is_ok_and(|status| status.is_some());
            if ended || start.elapsed() > Duration::from_secs(60) {
                let log = std::fs::read_to_string(&log).unwrap_or_default();
                return Err(format!("PostgreSQL did not start:\n{log}"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        *self.process.lock().expect("no test panics while it holds the server") = Some(process);
        Ok(())
    }

    fn data(&self) -> String {
        self.folder.join("data").to_string_lossy().into_owned()
    }

    fn run(&self, program: &str, arguments: &[&str]) -> Result<String, String> {
        use std::os::unix::process::CommandExt;
        let mut command = Command::new(self.programs.join(program));
        command.args(arguments).current_dir(&self.folder).stdin(Stdio::null());
        if let Some((user, group)) = self.user {
            command.gid(group).uid(user);
        }
        let output =
            command.output().map_err(|error| format!("cannot start {program}: {error}"))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        Err(format!("{program} failed: {}", String::from_utf8_lossy(&output.stderr)))
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        drop(self.process.lock().map(|mut process| process.take()));
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// PostgreSQL refuses to run as root, so root runs it as somebody else: `postgres` where Debian
/// made that user, else `nobody`.
fn find_unprivileged() -> Result<Option<(u32, u32)>, String> {
    if std::fs::metadata("/proc/self").is_ok_and(|metadata| metadata.uid() != 0) {
        return Ok(None);
    }
    let users = std::fs::read_to_string("/etc/passwd")
        .map_err(|error| format!("cannot read /etc/passwd: {error}"))?;
    let ids = |name: &str| {
        let line = users.lines().find(|line| line.split(':').next() == Some(name))?;
        let mut fields = line.split(':').skip(2);
        Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
    };
    ids("postgres")
        .or_else(|| ids("nobody"))
        .map(Some)
        .ok_or_else(|| "no unprivileged user (postgres, nobody) to run PostgreSQL as".into())
}

/// The folder of the server programs: on `PATH`, or where Debian keeps them.
fn programs() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).find(|folder| folder.join("initdb").is_file());
    if let Some(folder) = on_path.and_then(|folder| {
        folder.join("initdb").canonicalize().ok()?.parent().map(Path::to_path_buf)
    }) {
        return Some(folder);
    }
    let versions = std::fs::read_dir("/usr/lib/postgresql")
        .ok()?
        .flatten()
        .map(|entry| entry.path().join("bin"));
    let mut found: Vec<PathBuf> =
        versions.filter(|folder| folder.join("initdb").is_file()).collect();
    found.sort();
    found.pop()
}
