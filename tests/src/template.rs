//! Deployments that others begin as copies of, so that each test pays for what it tests: no schema is
//! made and no component compiled again for each of them.
//!
//! Knows the folder of a deployment, and how a server is started and stopped.

use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::artefacts::{Artefacts, Folder};
use crate::database::Database;
use crate::server::{Options, Server};
use crate::tether::{Launch, Tethered};
use crate::world::OPERATOR_TOKEN;

/// A deployment that never serves: others begin as its copies. All of one kind of database are of
/// one root key, so that the code one has compiled is code to the others too.
#[derive(Debug)]
pub(crate) struct Template {
    database: Database,
    url: Option<String>,
    data: Folder,
    /// Removes the folder behind this process: what is static is never dropped.
    _sweeper: Tethered,
}

/// A template of each kind of database, made when it is first asked for.
struct OfEach {
    sqlite: OnceLock<Template>,
    postgresql: OnceLock<Template>,
}

impl OfEach {
    const fn new() -> Self {
        Self { sqlite: OnceLock::new(), postgresql: OnceLock::new() }
    }

    fn get(&self, database: Database, make: impl FnOnce() -> Template) -> &Template {
        let one = match database {
            Database::Sqlite => &self.sqlite,
            Database::Postgresql => &self.postgresql,
        };
        one.get_or_init(make)
    }
}

impl Template {
    /// The one in which nothing is installed; its folder holds the code that any has compiled.
    pub(crate) fn blank(database: Database) -> &'static Self {
        static BLANK: OfEach = OfEach::new();
        BLANK.get(database, || Self::make(database, None, Folder::new(), database.create()))
    }

    /// The one with every primitive installed.
    pub(crate) fn furnished(database: Database) -> &'static Self {
        static FURNISHED: OfEach = OfEach::new();
        FURNISHED.get(database, || {
            let data = Folder::new();
            let url = Self::blank(database).copy_to(&data);
            let components = Artefacts::get().components.clone();
            let made = Self::make(database, Some(components), data, url);
            made.share_code(made.data.path());
            made
        })
    }

    /// Starts a server once, and stops it.
    fn make(
        database: Database,
        components: Option<PathBuf>,
        data: Folder,
        url: Option<String>,
    ) -> Self {
        let options = Options {
            data: data.path().to_path_buf(),
            database: url.clone(),
            components,
            environment: vec![("CHARTER_OPERATOR_TOKEN".into(), OPERATOR_TOKEN.into())],
            arguments: Vec::new(),
            program: None,
        };
        let server = Server::start(&options).unwrap_or_else(|fault| panic!("{fault}"));
        let ended = server.terminate(std::time::Duration::from_secs(40));
        assert!(
            ended.is_some_and(|status| status.success()),
            "SIGTERM ended the server with {ended:?}"
        );
        let mut sweeper = Launch::new(Path::new("/bin/sleep"), "KILL", Some(data.path()));
        sweeper.command().arg("infinity");
        let sweeper = sweeper.start().unwrap_or_else(|fault| panic!("cannot start sleep: {fault}"));
        Self { database, url, data, _sweeper: sweeper }
    }

    /// Fills `data` and answers the URL of the copied database.
    pub(crate) fn copy_to(&self, data: &Folder) -> Option<String> {
        let own = self.data.path();
        let copied = std::process::Command::new("cp")
            .arg("-a")
            .args(files_in(own).iter().map(|name| own.join(name)))
            .arg(data.path())
            .status();
        assert!(copied.is_ok_and(|status| status.success()), "cannot copy {}", own.display());
        link_code(Self::blank(self.database).data.path(), data.path());
        self.database.copy(self.url.as_deref())
    }

    /// Lets the deployments that start from now on have the code that is in a data folder.
    pub(crate) fn share_code(&self, data: &Path) {
        link_code(data, Self::blank(self.database).data.path());
    }
}

/// Links the compiled components of one data folder that another lacks into that one. No file of
/// them is ever written to: a new one is moved to its place whole.
pub(crate) fn link_code(from: &Path, to: &Path) {
    let (from, to) = (from.join("code"), to.join("code"));
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&to);
    made.unwrap_or_else(|error| panic!("cannot make {}: {error}", to.display()));
    for name in
        files_in(&from).iter().filter(|name| name.extension().is_some_and(|it| it == "code"))
    {
        match std::fs::hard_link(from.join(name), to.join(name)) {
            Err(error)
                if !matches!(error.kind(), ErrorKind::AlreadyExists | ErrorKind::NotFound) =>
            {
                panic!("cannot link {}: {error}", name.display())
            }
            _ => {}
        }
    }
}

/// The names of the files in a folder; none where there is no folder.
fn files_in(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter(|entry| entry.path().is_file()).map(|entry| entry.file_name().into()).collect()
}
