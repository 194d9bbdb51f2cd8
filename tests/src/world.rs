//! A deployment under test: a server on a database of its own, its operator and its tenants.
//!
//! Most tests need a tenant and not a deployment: they share one world for each database, and
//! tenancy keeps them apart, which is a test in itself. A test that changes the deployment
//! (components, restarts, configuration) builds its own.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use serde_json::{Value, json};

use crate::answer::Answer;
use crate::artefacts::{Artefacts, Folder};
use crate::client::Client;
use crate::database::Database;
use crate::server::{Options, Server};
use crate::template::{Template, link_code};
use crate::tenant::{Tenant, unique};

/// The operator's token of every deployment under test.
pub const OPERATOR_TOKEN: &str = "operator-of-the-tests-4f1c7a52e09b8d36";

/// The equipment of a world.
#[derive(Clone, Debug)]
pub struct Builder {
    components: Option<PathBuf>,
    environment: Vec<(String, String)>,
    arguments: Vec<String>,
    configuration: Option<String>,
    backup: Option<PathBuf>,
    earlier: Option<PathBuf>,
}

impl Builder {
    /// Every primitive installed, nothing else configured but that this one client may register,
    /// invite and miss as often as it likes.
    pub fn new() -> Self {
        const LIMITS: [&str; 4] = [
            "REGISTRATIONS_PER_HOUR",
            "INVITATIONS_PER_HOUR",
            "UNKNOWN_HOOKS_PER_MINUTE",
            "UNSIGNED_HOOKS_PER_MINUTE",
        ];
        let unlimited = LIMITS.map(|limit| (format!("CHARTER_AUTH_{limit}"), "0".to_owned()));
        Self { environment: unlimited.into(), ..Self::as_shipped() }
    }

    /// Every primitive installed, nothing else configured at all.
    pub fn as_shipped() -> Self {
        Self {
            components: Some(Artefacts::get().components.clone()),
            environment: Vec::new(),
            arguments: Vec::new(),
            configuration: None,
            backup: None,
            earlier: None,
        }
    }

    /// On a database that is restored from `rows.ndjson` of a folder, with the `master.key` there.
    pub fn restored(mut self, folder: &Path) -> Self {
        self.backup = Some(folder.to_path_buf());
        self
    }

    /// In place, on a copy of a data folder that an earlier build has left: the `charter.db` that is
    /// packed in `charter.db.gz`, and its `master.key`.
    pub fn in_place(mut self, folder: &Path) -> Self {
        self.earlier = Some(folder.to_path_buf());
        self
    }

    /// Another folder of components.
    pub fn components(mut self, folder: &Path) -> Self {
        self.components = Some(folder.to_path_buf());
        self
    }

    /// No component at first.
    pub fn bare(mut self) -> Self {
        self.components = None;
        self
    }

    /// An environment variable of the server.
    pub fn environment(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// An argument of `charter serve`.
    pub fn argument(mut self, argument: &str) -> Self {
        self.arguments.push(argument.to_owned());
        self
    }

    /// The configuration file's text.
    pub fn configuration(mut self, toml: &str) -> Self {
        self.configuration = Some(toml.to_owned());
        self
    }

    /// Starts it. A world is a copy of one that was made once, so that nothing is set up or compiled
    /// again.
    pub fn start(self, database: Database) -> World {
        let data = Folder::new();
        let template = match &self.components {
            _ if self.backup.is_some() || self.earlier.is_some() => None,
            Some(folder) if *folder == Artefacts::get().components => {
                Some(Template::furnished(database))
            }
            _ => Some(Template::blank(database)),
        };
        let url = match template {
            Some(template) => template.copy_to(&data),
            None => database.create(),
        };
        if let Some(backup) = &self.backup {
            restore(backup, &data, url.as_deref());
        }
        if let Some(earlier) = &self.earlier {
            assert_eq!(database, Database::Sqlite, "a data folder holds the embedded database");
            unpack(earlier, &data);
        }
        let mut options = Options {
            data: data.path().to_path_buf(),
            database: url,
            components: self.components,
            environment: vec![("CHARTER_OPERATOR_TOKEN".into(), OPERATOR_TOKEN.into())],
            arguments: self.arguments,
            program: None,
        };
        options.environment.extend(self.environment);
        if let Some(toml) = self.configuration {
            let file = data.path().join("charter.toml");
            std::fs::write(&file, toml)
                .unwrap_or_else(|error| panic!("cannot write {}: {error}", file.display()));
            options.arguments.extend(["--config".to_owned(), file.to_string_lossy().into_owned()]);
        }
        let server = Server::start(&options).unwrap_or_else(|fault| panic!("{fault}"));
        World { database, options, server: Some(server), data, template }
    }
}

impl Default for Builder {
    fn default() -> Self {
        Self::new()
    }
}

/// Fills a new database from a backup, as an operator does.
fn restore(backup: &Path, data: &Folder, url: Option<&str>) {
    let mut command = std::process::Command::new(&Artefacts::get().charter);
    command.arg("restore").arg(backup.join("rows.ndjson")).arg("--data").arg(data.path());
    if let Some(url) = url {
        command.args(["--database", url]);
    }
    let done = command.output().unwrap_or_else(|error| panic!("charter does not run: {error}"));
    assert!(done.status.success(), "not restored: {}", String::from_utf8_lossy(&done.stderr));
    guard_key(backup, data);
}

/// Fills a data folder with the database and the key of another.
fn unpack(earlier: &Path, data: &Folder) {
    let mut command = std::process::Command::new("gzip");
    let done = command.arg("-dc").arg(earlier.join("charter.db.gz")).output();
    let done = done.unwrap_or_else(|error| panic!("gzip does not run: {error}"));
    assert!(done.status.success(), "not unpacked: {}", String::from_utf8_lossy(&done.stderr));
    write_own(&data.path().join("charter.db"), &done.stdout);
    guard_key(earlier, data);
}

/// Copies the key file of a folder.
fn guard_key(from: &Path, data: &Folder) {
    let key = std::fs::read(from.join("master.key"));
    let key = key.unwrap_or_else(|error| panic!("no key: {error}"));
    write_own(&data.path().join("master.key"), &key);
}

/// Writes a file that only we may read.
fn write_own(file: &Path, bytes: &[u8]) {
    let told = |error: std::io::Error| panic!("cannot write {}: {error}", file.display());
    std::fs::write(file, bytes).unwrap_or_else(told);
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(file, mode).unwrap_or_else(told);
}

/// A deployment under test.
#[derive(Debug)]
pub struct World {
    /// The database on which it runs.
    pub database: Database,
    options: Options,
    server: Option<Server>,
    // Dropped after the server.
    data: Folder,
    template: Option<&'static Template>,
}

impl World {
    /// The deployment that tests share which need a tenant only.
    pub fn shared(database: Database) -> &'static Self {
        static SQLITE: OnceLock<World> = OnceLock::new();
        static POSTGRESQL: OnceLock<World> = OnceLock::new();
        let shared = match database {
            Database::Sqlite => &SQLITE,
            Database::Postgresql => &POSTGRESQL,
        };
        // Loopback stands in for the providers and pages outside.
        shared.get_or_init(|| {
            Builder::new().environment("CHARTER_EGRESS_ALLOW", "127.0.0.0/8").start(database)
        })
    }

    /// The running server.
    #[track_caller]
    pub fn server(&self) -> &Server {
        match &self.server {
            Some(server) => server,
            None => panic!("the server was stopped"),
        }
    }

    /// A client without a credential.
    pub fn anonymous(&self) -> Client {
        self.server().client()
    }

    /// The operator.
    pub fn operator(&self) -> Client {
        self.anonymous().bearer(OPERATOR_TOKEN)
    }

    /// A new organization.
    pub fn register(&self) -> Tenant {
        Tenant::register(&self.anonymous())
    }

    /// Gives an organization credit.
    #[track_caller]
    pub fn fund(&self, tenant: &Tenant, cents: i64) {
        let credit = json!({ "organization_id": tenant.organization, "amount_cents": cents, "memo": "for the test" });
        let operator = self.operator();
        let given = operator.call("POST", "/v1/operator/credits");
        given.idempotency_key(&unique("credit")).json(&credit).send().expect(201);
    }

    /// Uploads a component and activates it; answers what the upload answered.
    #[track_caller]
    pub fn install(&self, name: &str, wasm: &[u8]) -> Value {
        self.upload(name, wasm, true).expect(201)
    }

    /// Uploads a component.
    pub fn upload(&self, name: &str, wasm: &[u8], activate: bool) -> Answer {
        let query = if activate { "?activate=true&agree=*" } else { "" };
        let operator = self.operator();
        let call = operator.call("PUT", &format!("/v1/operator/components/{name}{query}"));
        let answer = call.header("content-type", "application/wasm").bytes(wasm.to_vec()).send();
        if let Some(template) = self.template {
            template.share_code(self.data.path());
        }
        answer
    }

    /// `kill -9`.
    pub fn kill(&mut self) {
        if let Some(server) = self.server.take() {
            server.kill();
        }
    }

    /// Stops it as an operator does, and expects that it ends well.
    #[track_caller]
    pub fn stop(&mut self) {
        if let Some(server) = self.server.take() {
            let status = server.terminate(std::time::Duration::from_secs(40));
            assert!(
                status.is_some_and(|status| status.success()),
                "SIGTERM ended the server with {status:?}"
            );
        }
    }

    /// Starts it again on the same data, with whatever address it then gets.
    pub fn start(&mut self) {
        self.server = Some(Server::start(&self.options).unwrap_or_else(|fault| panic!("{fault}")));
    }

    /// Changes how it is started from now on.
    pub fn options(&mut self) -> &mut Options {
        &mut self.options
    }

    /// Its data folder.
    pub fn data(&self) -> &Path {
        self.data.path()
    }

    /// Proves that accounts, holds and meters say the same, by the command that operators have for
    /// it.
    #[track_caller]
    pub fn books_agree(&self) {
        let mut command = std::process::Command::new(&Artefacts::get().charter);
        command.args(["ledger", "verify", "--data"]).arg(self.data.path());
        if let Some(url) = &self.options.database {
            command.args(["--database", url]);
        }
        let told = command.output().unwrap_or_else(|error| panic!("charter does not run: {error}"));
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(
            told.status.success(),
            "the books do not agree:\n{}{}",
            text(&told.stdout),
            text(&told.stderr)
        );
    }

    /// A second server on the same database, with a data folder of its own and the first one's key
    /// file.
    pub fn replica(&self) -> (Server, Folder) {
        let folder = Folder::new();
        for entry in std::fs::read_dir(self.data.path()).into_iter().flatten().flatten() {
            // The key file is the one secret that replicas share; an operator hands it to each.
            if entry.path().is_file() && entry.file_name().to_string_lossy().contains("key") {
                let copied = std::fs::copy(entry.path(), folder.path().join(entry.file_name()));
                copied.unwrap_or_else(|error| panic!("cannot copy the key file: {error}"));
            }
        }
        link_code(self.data.path(), folder.path());
        let options = Options { data: folder.path().to_path_buf(), ..self.options.clone() };
        (Server::start(&options).unwrap_or_else(|fault| panic!("{fault}")), folder)
    }
}
