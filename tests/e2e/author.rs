//! `cargo xtask new`: a primitive that builds, is tested, and is served, with no other file of the
//! repository touched.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, MutexGuard, PoisonError};

use charter_tests::world::Builder;
use charter_tests::{Database, World, cases};
use xtask::process;
use xtask::workspace::Workspace;

/// A copy of the repository that a test may change: one at a time, at one place, so that what was
/// built for it is built once.
pub struct Copy {
    /// Its root.
    pub root: PathBuf,
    target: PathBuf,
    _turn: MutexGuard<'static, ()>,
}

impl Copy {
    /// The files of the repository as git sees them, with their times.
    pub fn new() -> Self {
        static TURN: Mutex<()> = Mutex::new(());
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let workspace = Workspace::find().unwrap();
        let folder = workspace.target.join("scaffold");
        let root = folder.join("copy");
        let _ = std::fs::remove_dir_all(&root);
        std::fs::create_dir_all(&root).unwrap();
        let script = r#"git ls-files -z --cached --others --exclude-standard | xargs -0 -I{} sh -c '[ ! -e "{}" ] || cp -p --parents "{}" "$COPY"'"#;
        let copied = Command::new("/bin/sh")
            .args(["-ec", script])
            .current_dir(&workspace.root)
            .env("COPY", &root)
            .status();
        assert!(copied.unwrap().success(), "cannot copy {}", workspace.root.display());
        let target = folder.join("target");
        if !target.exists() {
            share_dependencies(&workspace.target, &target);
        }
        Self { root, target, _turn: turn }
    }

    /// Cargo within it, without a network. Its target folder is its own: cargo knows the members of
    /// a workspace by their paths below its root, and would take the copy's for the repository's.
    pub fn cargo(&self) -> Command {
        let mut command = process::cargo(&self.root);
        command.env("CARGO_TARGET_DIR", &self.target).env("CARGO_NET_OFFLINE", "true");
        command
    }

    /// Builds one primitive of it and answers its bytes.
    pub fn component(&self, name: &str) -> Vec<u8> {
        let mut command = self.cargo();
        let package = format!("charter-{name}");
        succeeds(command.args([
            "build",
            "--profile",
            "component",
            "--target",
            "wasm32-wasip2",
            "--package",
            &package,
        ]));
        let file = self
            .target
            .join("wasm32-wasip2/component")
            .join(format!("charter_{}.wasm", name.replace('-', "_")));
        std::fs::read(&file)
            .unwrap_or_else(|error| panic!("cannot read {}: {error}", file.display()))
    }

    /// Every file's bytes by its path.
    fn files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut found = BTreeMap::new();
        gather(&self.root, &self.root, &mut found);
        found
    }
}

/// Links what cargo has built of other people's crates into another target folder, so that it is
/// not built again. Of the workspace's own crates nothing is: the copy has its own.
fn share_dependencies(from: &Path, to: &Path) {
    let script = r#"
        for profile in debug component wasm32-wasip2/component; do
            for kind in .fingerprint build deps; do
                [ -d "$profile/$kind" ] || continue
                mkdir -p "$TO/$profile/$kind"
                find "$profile/$kind" -mindepth 1 -maxdepth 1 ! -name '*charter*' ! -name '*xtask*' -print0 |
                    xargs -0 cp -al -t "$TO/$profile/$kind"
            done
        done"#;
    let linked =
        Command::new("/bin/sh").args(["-ec", script]).current_dir(from).env("TO", to).status();
    assert!(linked.unwrap().success(), "cannot share {}", from.display());
}

fn gather(root: &Path, folder: &Path, found: &mut BTreeMap<PathBuf, Vec<u8>>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            gather(root, &path, found);
        } else {
            found.insert(
                path.strip_prefix(root).unwrap().to_path_buf(),
                std::fs::read(&path).unwrap(),
            );
        }
    }
}

/// Runs it and expects that it succeeds.
#[track_caller]
pub fn succeeds(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?} ended with {}:\n{out}\n{err}", output.status);
    output
}

fn serve(world: &World, copy: &Copy, wasm: &[u8]) {
    world.install("address-book", wasm);
    let described = world.anonymous().get("/openapi.json").expect(200);
    for path in ["/v1/address-book", "/v1/users/{user_id}/address-book/{id}"] {
        assert!(described["paths"][path].is_object(), "{path} is not described");
    }
    let told = world.anonymous().get("/skill.md").text();
    assert!(
        told.contains("Keeps short texts of a profile."),
        "it is not described to those who read: {told}"
    );
    for mount in ["company", "user"] {
        cases::run(world, &copy.root.join("plugins/address-book/cases/first.json"), mount);
    }
}

#[test]
fn a_scaffolded_primitive_is_built_tested_and_served() {
    let world = Builder::new().bare().start(Database::Sqlite);
    let copy = Copy::new();
    let before = copy.files();
    succeeds(copy.cargo().args(["xtask", "new", "address-book"]));
    let wasm = copy.component("address-book");
    succeeds(copy.cargo().args(["test", "--quiet", "--package", "charter-address-book"]));
    let after = copy.files();
    for (path, bytes) in &after {
        // Cargo notes every member of a workspace in its lock file.
        let own = path.starts_with("plugins/address-book") || path == Path::new("Cargo.lock");
        assert!(own || before.get(path) == Some(bytes), "{} was changed", path.display());
    }
    assert!(before.keys().all(|path| after.contains_key(path)), "a file is gone");
    let again = copy.cargo().args(["xtask", "new", "address-book"]).output().unwrap();
    assert!(
        !again.status.success() && String::from_utf8_lossy(&again.stderr).contains("there already"),
        "{again:?}"
    );
    serve(&world, &copy, &wasm);
}
