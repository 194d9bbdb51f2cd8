//! The command line, as an operator types it: what it prints, what it changes, and how it says no.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use charter_tests::artefacts::{Artefacts, Folder};
use charter_tests::patience::{Over, until};
use charter_tests::server::{Options, Server};
use charter_tests::tenant::PASSWORD;
use charter_tests::tether::Launch;
use charter_tests::world::{Builder, OPERATOR_TOKEN};
use charter_tests::{Client, Database, Tenant, World, on_both};
use serde_json::json;

/// An agent's words that would wipe a line of a terminal and write another one.
const FORGED: &str = "wait\r\u{1b}[2K\u{9b}2Kanother approval\n\u{202e}for you";

/// The output of a command, and its exit code.
struct Told {
    status: Option<i32>,
    out: String,
    err: String,
}

impl Told {
    #[track_caller]
    fn expect_success(self) -> String {
        assert_eq!(self.status, Some(0), "{}\n{}", self.out, self.err);
        self.out
    }

    #[track_caller]
    fn expect_failure(self, status: i32) -> String {
        assert_eq!(self.status, Some(status), "{}\n{}", self.out, self.err);
        assert_eq!(self.out, "", "a refusal belongs on standard error");
        self.err
    }
}

/// Runs `charter`, with this environment besides.
fn charter_with(environment: &[(&str, &str)], arguments: &[&str]) -> Told {
    let mut command = Command::new(&Artefacts::get().charter);
    let told = command.args(arguments).envs(environment.iter().copied()).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Told { status: told.status.code(), out: text(&told.stdout), err: text(&told.stderr) }
}

fn charter(arguments: &[&str]) -> Told {
    charter_with(&[], arguments)
}

/// The same against the deployment's own data and database, its server running or not.
fn offline(world: &mut World, arguments: &[&str]) -> Told {
    let data = world.data().to_string_lossy().into_owned();
    let mut all = arguments.to_vec();
    all.extend(["--data", &data]);
    let url = world.options().database.clone();
    if let Some(url) = &url {
        all.extend(["--database", url]);
    }
    charter(&all)
}

#[test]
fn help_names_every_command_and_how_to_begin() {
    let help = charter(&["--help"]).expect_success();
    for command in [
        "serve",
        "component",
        "key",
        "approvals",
        "doctor",
        "backup",
        "restore",
        "ledger",
        "audit",
        "config",
    ] {
        assert!(help.contains(&format!("\n  {command} ")), "{command} is missing:\n{help}");
        let of = charter(&[command, "--help"]).expect_success();
        assert!(of.contains("Usage: charter"), "{of}");
    }
    assert!(help.contains("charter serve --listen"), "{help}");
    assert!(charter(&["--version"]).expect_success().starts_with("charter "));
    assert!(charter(&["nonsense"]).expect_failure(2).contains("nonsense"));
}

#[test]
fn every_fault_of_the_configuration_is_named_by_its_key_at_once() {
    let folder = Folder::new();
    let file = folder.path().join("charter.toml");
    let text = "[http]\nlisten = \"nowhere\"\nhead_timeout_ms = 1\ncolour = \"red\"\n[engin]\nqueue_max = 3\n[auth]\nregistration = \"maybe\"\n";
    std::fs::write(&file, text).unwrap();
    let data = folder.path().join("data").to_string_lossy().into_owned();
    let environment = [
        ("CHARTER_DATABASE_URL", "mysql://x"),
        ("CHARTER_HTP_LISTEN", "x"),
        ("CHARTER_OPERATOR_TOKEN", "weak-token"),
    ];
    let arguments = ["serve", "--data", &data, "--config", &file.to_string_lossy()];
    let told = charter_with(&environment, &arguments).expect_failure(2);
    for key in [
        "http.listen",
        "http.head_timeout_ms",
        "http.colour",
        "[engin]",
        "auth.registration",
        "CHARTER_DATABASE_URL",
        "CHARTER_HTP_LISTEN",
        "CHARTER_OPERATOR_TOKEN",
    ] {
        assert!(told.contains(key), "{key} is not named:\n{told}");
    }
    assert!(told.contains("did you mean engine"), "{told}");
    assert!(!told.contains("weak-token"), "a secret is told back:\n{told}");
    assert!(!Path::new(&data).exists(), "something was made before the configuration was read");
    let told =
        charter(&["serve", "--data", &data, "--config", "/nowhere/charter.toml"]).expect_failure(2);
    assert!(told.contains("/nowhere/charter.toml"), "{told}");
    std::fs::write(&file, "[http\n").unwrap();
    assert!(charter(&arguments).expect_failure(2).contains("TOML"));
}

/// `charter config` prints a file that `charter serve --config` takes.
#[test]
fn the_printed_configuration_is_one() {
    let folder = Folder::new();
    let file = folder.path().join("charter.toml");
    let printed = charter(&["config"]).expect_success();
    assert!(printed.contains("[http]") && printed.contains("drain_ms"), "{printed}");
    std::fs::write(&file, printed).unwrap();
    let data = folder.path().join("data").to_string_lossy().into_owned();
    let told = charter(&["doctor", "--data", &data, "--config", &file.to_string_lossy()]);
    assert!(told.out.contains("no faults"), "{}\n{}", told.out, told.err);
}

/// A server on the embedded database in this folder.
fn options_at(data: &Path) -> Options {
    Options { data: data.to_path_buf(), ..Options::default() }
}

#[test]
fn only_we_may_read_what_the_first_start_makes() {
    let folder = Folder::new();
    let data = folder.path().join("data");
    std::fs::create_dir(&data).unwrap();
    std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut launch = Launch::new(&Artefacts::get().charter, "KILL", None);
    let command = launch.command().args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(&data);
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    let mut server = launch.start().unwrap();
    let mut address = String::new();
    BufReader::new(server.child().stdout.as_mut().unwrap()).read_line(&mut address).unwrap();
    assert!(address.starts_with("listening on"), "{address}");
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&data), 0o700);
    for name in ["master.key", "charter.db", "charter.db-wal", "charter.db-shm", "charter.lock"] {
        assert_eq!(mode(&data.join(name)), 0o600, "{name}");
    }
}

/// Two hosts on one embedded database would not tell each other of revocations.
#[test]
fn one_host_runs_on_an_embedded_database() {
    let folder = Folder::new();
    let server =
        Server::start(&options_at(folder.path())).unwrap_or_else(|fault| panic!("{fault}"));
    let data = folder.path().to_string_lossy().into_owned();
    let told = charter(&["serve", "--listen", "127.0.0.1:0", "--data", &data]).expect_failure(1);
    for words in [&data, "is running", "PostgreSQL"] {
        assert!(told.contains(words), "{words} is missing:\n{told}");
    }
    // Commands that would harm the running one are refused as well; those that only look are not.
    assert!(
        charter(&["keys", "rotate-master", "--data", &data])
            .expect_failure(1)
            .contains("is running")
    );
    assert!(
        charter(&["operator", "rotate-token", "--data", &data]).expect_failure(1).contains("--url")
    );
    charter(&["doctor", "--data", &data]).expect_success();
    let file = folder.path().join("backup").to_string_lossy().into_owned();
    assert!(charter(&["backup", &file, "--data", &data]).expect_success().contains(" rows to "));
    server.kill();
    let server =
        Server::start(&options_at(folder.path())).unwrap_or_else(|fault| panic!("{fault}"));
    drop(server);
    assert!(
        charter(&["operator", "rotate-token", "--data", &data]).expect_success().starts_with("op_")
    );
    charter(&["keys", "rotate-master", "--data", &data]).expect_success();
    let told = charter_with(
        &[("CHARTER_OPERATOR_TOKEN", OPERATOR_TOKEN)],
        &["operator", "rotate-token", "--data", &data],
    );
    assert!(told.expect_failure(1).contains("CHARTER_OPERATOR_TOKEN"));
    // Each is a row of the deployment's log.
    let mut options = options_at(folder.path());
    options.environment.push(("CHARTER_OPERATOR_TOKEN".into(), OPERATOR_TOKEN.into()));
    let server = Server::start(&options).unwrap_or_else(|fault| panic!("{fault}"));
    let operator = server.client().bearer(OPERATOR_TOKEN);
    for action in ["operator.token.rotate", "operator.keys.rotate_master"] {
        let path = format!("/v1/operator/logs?action={action}");
        let rows = || operator.get(&path).expect(200)["logs"].as_array().unwrap().clone();
        until("the act is numbered", || rows().len() == 1);
        assert_eq!(rows()[0]["actor"]["id"], "command line", "{:?}", rows());
    }
    let set = || operator.get("/v1/operator/logs?action=operator.token.set").expect(200);
    until("the start is numbered", || set()["logs"].as_array().is_some_and(|rows| rows.len() == 1));
    assert_eq!(set()["logs"][0]["actor"]["id"], "configuration");
    // Once it was replaced, no start brings it back.
    drop(server);
    charter(&["operator", "rotate-token", "--data", &data]).expect_success();
    let told = charter_with(
        &[("CHARTER_OPERATOR_TOKEN", OPERATOR_TOKEN)],
        &["serve", "--listen", "127.0.0.1:0", "--data", &data],
    );
    let told = told.expect_failure(1);
    assert!(told.contains("CHARTER_OPERATOR_TOKEN") && told.contains("was replaced"), "{told}");
}

#[test]
fn a_misspelt_directory_becomes_no_deployment() {
    let folder = Folder::new();
    let typo = folder.path().join("typo");
    let data = typo.to_string_lossy().into_owned();
    let file = folder.path().join("backup").to_string_lossy().into_owned();
    for command in
        [&["backup", &file] as &[&str], &["keys", "rotate-master"], &["operator", "rotate-token"]]
    {
        let told = charter(&[command, &["--data", &data]].concat()).expect_failure(1);
        assert!(
            told.contains("no deployment in") && told.contains(&data) && told.contains("--data"),
            "{told}"
        );
    }
    assert!(charter(&["doctor", "--data", &data]).expect_success().contains("no deployment in"));
    assert!(
        charter(&["restore", "/nowhere/backup", "--data", &data])
            .expect_failure(1)
            .contains("/nowhere/backup")
    );
    assert!(!typo.exists(), "a directory was made");
    // The doctor says what a start says.
    std::fs::create_dir(&typo).unwrap();
    std::fs::write(typo.join("charter.db.restoring"), b"half of it").unwrap();
    let told = charter(&["doctor", "--data", &data]);
    assert_eq!(told.status, Some(1), "{}", told.err);
    assert!(told.out.contains("restore the backup again"), "{}", told.out);
    assert!(!told.out.contains("the first start makes one"), "{}", told.out);
}

on_both! {
    fn keys_are_made_listed_and_revoked(world: Builder::new().bare()) {
        let tenant = world.register();
        let to = ["--url", world.server().address(), "--key", &tenant.key];
        let run = |arguments: &[&str]| charter(&[arguments, &to].concat());
        let made = run(&["key", "create", "from-a-shell", "--role", "viewer", "--user", &tenant.user]).expect_success().trim().to_owned();
        let client = tenant.client.bearer(&made);
        client.get(&format!("/v1/users/{}", tenant.user)).expect(200);
        client.post("/v1/users", &json!({ "name": "more" })).expect_error(403, "forbidden");
        let listed = run(&["key", "list"]).expect_success();
        let line = listed.lines().find(|line| line.ends_with("from-a-shell")).unwrap_or_else(|| panic!("{listed}"));
        assert!(line.contains("viewer") && !listed.contains(&made), "{listed}");
        let id = line.split_whitespace().next().unwrap();
        assert!(run(&["key", "revoke", id]).expect_success().contains(id));
        client.get(&format!("/v1/users/{}", tenant.user)).expect_error(401, "unauthorized");
        assert!(run(&["key", "revoke", "018f0000-0000-7000-8000-000000000009"]).expect_failure(1).contains("no key 018f0000-0000-7000-8000-000000000009"));
        // A refusal of the host is printed in the host's own words.
        let told = run(&["key", "create", "more", "--role", "emperor"]).expect_failure(1);
        assert!(told.contains("role") && told.contains("request "), "{told}");
        let told = charter(&["key", "list", "--url", world.server().address(), "--key", "nobody's"]).expect_failure(1);
        assert!(told.contains("401"), "{told}");
        let told = charter(&["key", "list", "--url", "http://127.0.0.1:9", "--key", "nobody's"]).expect_failure(1);
        assert!(told.contains("127.0.0.1:9"), "{told}");
    }

    fn a_person_decides_on_the_command_line(world: Builder::new().bare()) {
        world.install("script", &Artefacts::get().fixture("script"));
        let tenant = world.register();
        let rule = json!({ "id": "ask", "effect": "require_approval", "actions": ["script.spend"] });
        tenant.client.put("/v1/governance/policy", &json!({ "rules": [rule] })).expect(200);
        let ask = || {
            let steps = json!([{ "leave": "script.spend", "amount": 1_250_000, "as": "p", "message": FORGED }, { "capture": "p", "amount": 1_250_000 }]);
            let told = tenant.client.post("/v1/script", &json!({ "steps": steps })).expect(202);
            told["approval_id"].as_str().unwrap().to_owned()
        };
        let (first, second) = (ask(), ask());
        let url = world.server().address().to_owned();
        let person = |password: &str, arguments: &[&str]| {
            let environment = [("CHARTER_URL", url.as_str()), ("CHARTER_EMAIL", &tenant.email), ("CHARTER_PASSWORD", password)];
            charter_with(&environment, &[&["approvals"], arguments].concat())
        };
        let listed = person(PASSWORD, &["list"]).expect_success();
        assert!(listed.contains(&first) && listed.contains(&second) && listed.contains("$1.25"), "{listed}");
        // The agent's words are shown, and command no terminal.
        assert_eq!(listed.trim_end().lines().count(), 2, "{listed}");
        let commands = |c: char| c != '\n' && c.is_control() || c == '\u{202e}';
        assert!(listed.contains("another approval") && !listed.contains(commands), "{listed:?}");
        assert!(!person(PASSWORD, &["show", &first]).expect_success().contains(commands));
        assert!(person(PASSWORD, &["show", &first]).expect_success().contains("\"script.spend\""));
        assert!(person(PASSWORD, &["approve", &first, "--reason", "as we said"]).expect_success().contains("approved"));
        assert!(person(PASSWORD, &["deny", &second]).expect_success().contains("denied"));
        let state = |id: &str| tenant.client.get(&format!("/v1/approvals/{id}")).expect(200)["approval"]["status"].clone();
        until("the first is made", || state(&first) == "succeeded");
        assert_eq!(state(&second), "denied");
        assert!(person(PASSWORD, &["approve", &second]).expect_failure(1).contains("409"));
        assert!(person("wrong", &["list"]).expect_failure(1).contains("401"));
        let nobody = charter_with(&[("CHARTER_URL", url.as_str())], &["approvals", "list"]).expect_failure(2);
        assert!(nobody.contains("CHARTER_EMAIL"), "{nobody}");
    }

    fn components_are_installed_listed_swapped_and_removed(world: Builder::new().bare()) {
        let folder = Folder::new();
        let tenant = world.register();
        let to = ["--url", world.server().address(), "--token", OPERATOR_TOKEN];
        let run = |arguments: &[&str]| charter(&[arguments, &to].concat());
        let file = |build: u32| {
            let path = folder.path().join(format!("{build}")).join("probe.wasm");
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, Artefacts::get().probe(build)).unwrap();
            path.to_string_lossy().into_owned()
        };
        let build = || tenant.client.get("/v1/probe").expect(200)["build"].as_str().unwrap().to_owned();
        let digest = |line: &str| line.split_whitespace().find(|word| word.starts_with("sha256:")).unwrap().to_owned();
        let first = run(&["component", "install", &file(900_001), "--activate"]).expect_success();
        assert!(first.contains("active"), "{first}");
        assert_eq!(build(), "900001");
        let second = run(&["component", "install", &file(900_002)]).expect_success();
        assert!(second.contains("staged") && second.contains("charter component activate probe 1.0.900002"), "{second}");
        assert_eq!(build(), "900001");
        let all = run(&["component", "list"]).expect_success();
        assert!(all.contains("probe") && all.contains("1.0.900001") && all.contains(&digest(&first)), "{all}");
        run(&["component", "activate", "probe", "1.0.900002"]).expect_success();
        assert_eq!(build(), "900002");
        run(&["component", "activate", "probe", &digest(&first)[..15]]).expect_success();
        assert_eq!(build(), "900001");
        run(&["component", "activate", "probe", &digest(&second)]).expect_success();
        assert_eq!(build(), "900002");
        // A version that is not there is named, with the command that lists those that are.
        assert!(run(&["component", "activate", "probe", "7.7.7"]).expect_failure(1).contains("charter component list probe"));
        assert!(run(&["component", "activate", "nosuch", "1.0.0"]).expect_failure(1).contains("no component nosuch"));
        assert!(run(&["component", "list", "nosuch"]).expect_failure(1).contains("no component nosuch"));
        assert!(run(&["component", "rollback", "nosuch"]).expect_failure(1).contains("no component nosuch"));
        let versions = run(&["component", "list", "probe"]).expect_success();
        assert!(versions.contains("1.0.900001") && versions.contains("1.0.900002"), "{versions}");
        let told = run(&["component", "remove", "probe", &digest(&second)]).expect_failure(1);
        assert!(told.contains("409"), "{told}");
        run(&["component", "rollback", "probe"]).expect_success();
        assert_eq!(build(), "900001");
        run(&["component", "remove", "probe", &digest(&second)]).expect_success();
        assert!(!run(&["component", "list", "probe"]).expect_success().contains("1.0.900002"));
        // A file that is called otherwise says how to name it.
        let other = folder.path().join("other.wasm");
        std::fs::write(&other, Artefacts::get().probe(900_003)).unwrap();
        assert!(run(&["component", "install", &other.to_string_lossy()]).expect_failure(1).contains("--name"));
        run(&["component", "install", &other.to_string_lossy(), "--name", "probe"]).expect_success();
        let nobody = [("CHARTER_OPERATOR_TOKEN", "")];
        let told = charter_with(&nobody, &["component", "list", "--url", world.server().address()]).expect_failure(2);
        assert!(told.contains("CHARTER_OPERATOR_TOKEN"), "{told}");
        // Every fault of a bad one is shown, in words.
        let bad = folder.path().join("forbidden-import.wasm");
        std::fs::write(&bad, Artefacts::get().fixture("forbidden-import")).unwrap();
        let told = run(&["component", "install", &bad.to_string_lossy()]).expect_failure(1);
        assert!(told.contains("import"), "{told}");
        let told = charter(&["component", "list", "--url", world.server().address(), "--token", &tenant.key]).expect_failure(1);
        assert!(told.contains("401") || told.contains("403"), "{told}");
    }

    fn the_doctor_says_what_to_do(world: Builder::new()) {
        let told = offline(world, &["doctor"]).expect_success();
        for line in ["config", "clock", "master key", "database", "sandbox", "components"] {
            assert!(told.contains(line), "{line} is missing:\n{told}");
        }
        let installed = std::fs::read_dir(&Artefacts::get().components).unwrap().count();
        assert!(told.contains(&format!("{installed} installed, {installed} active")), "{told}");
        world.stop();
        let key = world.data().join("master.key");
        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();
        let told = offline(world, &["doctor"]);
        assert_eq!(told.status, Some(1), "{}", told.out);
        assert!(told.out.contains("chmod 600"), "{}", told.out);
        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
        offline(world, &["doctor"]).expect_success();
    }

    fn a_backup_under_writes_restores_everything_that_was_answered_before(world: Builder::new()) {
        world.install("probe", &Artefacts::get().fixture("probe"));
        let tenant = world.register();
        tenant.client.put("/v1/vault/name", &json!({ "value": "hush-it-is-sealed" })).expect(200);
        let queue = tenant.client.post("/v1/queue", &json!({ "name": "kept" })).expect(201)["queue"]["id"].clone();
        let queue = format!("/v1/queue/{}", queue.as_str().unwrap());
        tenant.client.post(&format!("{queue}/messages"), &json!({ "messages": [{ "body": "kept" }] })).expect(201);
        let folder = Folder::new();
        let file = folder.path().join("backup.ndjson").to_string_lossy().into_owned();
        let (answered, next, over) = (Mutex::new(BTreeSet::new()), AtomicU32::new(0), AtomicBool::new(false));
        let client = tenant.client.clone();
        let before = std::thread::scope(|scope| {
            let writing = Over(&over);
            for _ in 0..4 {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        let name = format!("pair-{}", next.fetch_add(1, Ordering::Relaxed));
                        client.post("/v1/probe/pairs", &json!({ "name": name })).expect(201);
                        answered.lock().unwrap().insert(name);
                    }
                });
            }
            until("50 pairs are answered", || answered.lock().unwrap().len() >= 50);
            let before = answered.lock().unwrap().clone();
            let told = offline(world, &["backup", &file]);
            drop(writing);
            assert!(told.expect_success().contains(&file));
            before
        });
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(!std::fs::read_to_string(&file).unwrap().contains("hush-it-is-sealed"), "a secret lies in the backup in the clear");
        assert!(offline(world, &["backup", &file]).expect_failure(1).contains("exists"));
        let told = offline(world, &["restore", &file]).expect_failure(1);
        assert!(told.contains("empty") || told.contains("is running"), "{told}");
        world.stop();
        // The other database takes it as well as the same one.
        for target in Database::BOTH {
            restore(world, target, &file, |restored| {
                let tenant = tenant.at(restored);
                let pairs = tenant.client.get("/v1/probe/pairs").expect(200);
                let side = |side: &str| -> BTreeSet<String> {
                    pairs[side].as_array().unwrap().iter().map(|name| name.as_str().unwrap().to_owned()).collect()
                };
                assert_eq!(side("left"), side("right"), "a pair is half there");
                assert_eq!(pairs["left"].as_array().unwrap().len(), side("left").len(), "a pair is there twice");
                let lost: Vec<_> = before.iter().filter(|name| !side("left").contains(*name)).collect();
                assert!(lost.is_empty(), "answered before the backup began, and gone: {lost:?}");
                assert_eq!(tenant.client.post("/v1/vault/name/reveal", &json!({})).expect(200)["value"], "hush-it-is-sealed");
                let received = tenant.client.post(&format!("{queue}/receive"), &json!({})).expect(200);
                assert_eq!(received["messages"][0]["body"], "kept");
                let operator = Client::new(restored).bearer(OPERATOR_TOKEN);
                until("the restore is numbered", || {
                    let rows = operator.get("/v1/operator/logs?action=operator.restore").expect(200)["logs"].clone();
                    rows.as_array().is_some_and(|rows| rows.len() == 1 && rows[0]["actor"]["id"] == "command line")
                });
                // It takes mutations, and the counters go on where they were.
                tenant.client.post("/v1/probe/pairs", &json!({ "name": "after" })).expect(201);
                sign_in(&tenant);
            });
        }
        // A file that was touched is refused whole.
        let text = std::fs::read_to_string(&file).unwrap().replacen("pair-", "pear-", 1);
        let touched = folder.path().join("touched.ndjson");
        std::fs::write(&touched, text).unwrap();
        let empty = Folder::new();
        let data = empty.path().join("data").to_string_lossy().into_owned();
        charter(&["restore", &touched.to_string_lossy(), "--data", &data]).expect_failure(1);
        assert!(!Path::new(&data).exists(), "a refused restore left something behind");
        // Another deployment's key opens nothing of it, and is told so before the first start.
        let data = empty.path().to_string_lossy().into_owned();
        let other = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
        std::fs::write(empty.path().join("master.key"), other).unwrap();
        std::fs::set_permissions(empty.path().join("master.key"), std::fs::Permissions::from_mode(0o600)).unwrap();
        assert!(charter(&["restore", &file, "--data", &data]).expect_failure(1).contains("key file"));
        std::fs::remove_file(empty.path().join("master.key")).unwrap();
        let told = charter(&["restore", &file, "--data", &data]).expect_success();
        assert!(told.contains("rows") && told.contains("before the first start"), "{told}");
        assert!(!empty.path().join("master.key").exists(), "a restore made a key");
        assert!(charter(&["serve", "--listen", "127.0.0.1:0", "--data", &data]).expect_failure(1).contains("master.key is missing"));
        assert!(!empty.path().join("master.key").exists(), "a start made a key that opens nothing");
    }
}

#[test]
fn a_key_file_that_is_missing_is_said_to_be() {
    let told = charter(&["component", "verify", "/nowhere/queue.wasm", "--key", "nope.pem"])
        .expect_failure(1);
    assert!(told.contains("nope.pem") && told.contains("No such file"), "{told}");
}

fn sign_in(tenant: &Tenant) {
    let login = json!({ "email": tenant.email, "password": charter_tests::tenant::PASSWORD });
    Client::new(tenant.client.base()).post("/v1/auth/login", &login).expect(200);
}

/// Restores `file` into a new database of this kind, with the old deployment's master key, and
/// looks at a server on it.
fn restore(old: &World, database: Database, file: &str, look: impl FnOnce(&str)) {
    let data = Folder::new();
    let url = database.create();
    let folder = data.path().to_string_lossy().into_owned();
    std::fs::copy(old.data().join("master.key"), data.path().join("master.key")).unwrap();
    let mut arguments = vec!["restore", file, "--data", &folder];
    if let Some(url) = &url {
        arguments.extend(["--database", url]);
    }
    assert!(charter(&arguments).expect_success().contains("restored"));
    let options =
        Options { data: data.path().to_path_buf(), database: url.clone(), ..Options::default() };
    let server = Server::start(&options).unwrap_or_else(|fault| panic!("{fault}"));
    look(server.address());
}
