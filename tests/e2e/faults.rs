//! The machine fails under the server: damaged files, a full disk, a database that goes away in
//! mid-commit. Every answer stays true, and service comes back by itself.

use std::collections::BTreeSet;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use charter_tests::artefacts::{Artefacts, Folder};
use charter_tests::patience::{Over, PATIENCE, look_for, until};
use charter_tests::postgres::Postgres;
use charter_tests::server::{Options, Server};
use charter_tests::world::{Builder, OPERATOR_TOKEN};
use charter_tests::{Client, Database, Tenant};
use serde_json::{Value, json};

/// Makes a file of the cache, given its neighbour, into another one.
type Damage = fn(&[u8], &[u8]) -> Vec<u8>;

#[test]
fn a_damaged_code_cache_is_compiled_again() {
    let mut world = Builder::new().bare().start(Database::Sqlite);
    let cache = world.data().join("code");
    // The code that other deployments under test have compiled is linked into it.
    for entry in std::fs::read_dir(&cache).unwrap() {
        std::fs::remove_file(entry.unwrap().path()).unwrap();
    }
    for name in ["probe", "hostile", "script"] {
        world.install(name, &Artefacts::get().fixture(name));
    }
    let tenant = world.register();
    world.stop();
    let mut files: Vec<_> =
        std::fs::read_dir(&cache).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert_eq!(files.len(), 3, "{files:?}");
    let (half, rubbish, nothing): (Damage, Damage, Damage) = (
        |bytes, _| bytes[..bytes.len() / 2].to_vec(),
        |_, _| b"rubbish".repeat(1000),
        |_, _| Vec::new(),
    );
    // One bit, in the middle of the machine code; and a neighbour's code, whole and signed.
    let (flipped, neighbour): (Damage, Damage) = (
        |bytes, _| {
            let mut bytes = bytes.to_vec();
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            bytes
        },
        |_, neighbour| neighbour.to_vec(),
    );
    for damages in [[half, rubbish, nothing], [flipped, neighbour, half]] {
        let whole: Vec<_> = files.iter().map(|file| std::fs::read(file).unwrap()).collect();
        for (n, damage) in damages.into_iter().enumerate() {
            std::fs::remove_file(&files[n]).unwrap();
            std::fs::write(&files[n], damage(&whole[n], &whole[(n + 1) % 3])).unwrap();
        }
        world.start();
        let client = tenant.client.at(world.server().address());
        client.get("/v1/probe").expect(200);
        client.get("/v1/script/notes").expect(200);
        let log = world.server().log();
        assert_eq!(log.matches("compiled again").count(), 3, "{log}");
        world.stop();
    }
    // Then it is whole again, and nothing is compiled.
    world.start();
    tenant.client.at(world.server().address()).get("/v1/probe").expect(200);
    assert!(!world.server().log().contains("compiled again"), "{}", world.server().log());
}

/// A queue whose messages are large, and how many it holds.
fn queue(tenant: &Tenant) -> String {
    let queue =
        tenant.client.post("/v1/queue", &json!({ "name": "large" })).expect(201)["queue"]["id"]
            .clone();
    format!("/v1/queue/{}", queue.as_str().unwrap())
}

fn depth(client: &Client, queue: &str) -> u64 {
    client.get(queue).expect(200)["queue"]["depth"].as_u64().unwrap()
}

/// Sends until the disk is full, from several sides at once; answers how many were taken.
fn fill(tenant: &Tenant, queue: &str) -> u64 {
    let (sent, full) = (AtomicU32::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let message = json!({ "messages": [{ "body": "x".repeat(200_000) }] });
                until("the disk fills", || {
                    let answer = tenant.client.post(&format!("{queue}/messages"), &message);
                    if answer.status == 201 {
                        sent.fetch_add(1, Ordering::Relaxed);
                    } else {
                        says_that_the_disk_is_full(&answer);
                        full.store(true, Ordering::Relaxed);
                    }
                    full.load(Ordering::Relaxed)
                });
            });
        }
    });
    u64::from(sent.into_inner())
}

#[track_caller]
fn says_that_the_disk_is_full(answer: &charter_tests::Answer) {
    let error = answer.expect_error(503, "overloaded");
    assert_eq!(error["reason"], "read_only", "{answer}");
    assert!(error["message"].as_str().unwrap().contains("disk is full"), "{answer}");
    assert_eq!(answer.header("x-should-retry"), Some("true"), "{answer}");
    assert!(answer.header("retry-after").is_some(), "{answer}");
}

/// Asks for what a viewer may not do, until the row of such a denial cannot be written; answers the
/// requests whose denial was told.
fn deny_until_no_row_fits(viewer: &Client) -> BTreeSet<String> {
    let mut told = BTreeSet::new();
    until("no row fits any more", || {
        let answer = viewer.post("/v1/users", &json!({ "name": "nobody" }));
        if answer.status == 503 {
            answer.expect_error(503, "overloaded");
            return true;
        }
        assert_eq!(answer.expect_error(403, "forbidden")["reason"], "role_insufficient");
        told.insert(answer.header("x-request-id").unwrap().to_owned());
        false
    });
    told
}

/// The requests of the audit log's rows of this action.
fn logged(client: &Client, action: &str) -> BTreeSet<String> {
    let (mut requests, mut cursor) = (BTreeSet::new(), String::new());
    loop {
        let path = format!("/v1/logs?action={action}&limit=100{cursor}");
        let page = client.get(&path).expect(200);
        let rows = page["logs"].as_array().unwrap().iter();
        requests.extend(rows.map(|row| row["request_id"].as_str().unwrap().to_owned()));
        let Some(next) = page["next_cursor"].as_str() else { return requests };
        cursor = format!("&cursor={next}");
    }
}

#[test]
fn a_database_at_its_size_limit_refuses_mutations_and_goes_on_reading() {
    let mut world = Builder::new()
        .environment("CHARTER_DATABASE_FILE_BYTES_MAX", "20000000")
        .start(Database::Sqlite);
    let tenant = world.register();
    tenant.client.put("/v1/vault/name", &json!({ "value": "kept" })).expect(200);
    let viewer = tenant.key(json!({ "role": "viewer" }));
    let queue = queue(&tenant);
    let sent = fill(&tenant, &queue);
    assert!(sent > 0, "it was full from the start");
    assert_eq!(depth(&tenant.client, &queue), sent, "answered and there are not the same");
    says_that_the_disk_is_full(&tenant.client.post("/v1/users", &json!({ "name": "nobody" })));
    tenant.client.get("/v1/users").expect(200);
    assert_eq!(tenant.client.get("/v1/status").expect(200)["status"], "read_only");
    assert!(world.operator().get("/metrics").text().contains("charter_store_read_only 1"));
    let denied = deny_until_no_row_fits(&viewer);
    // The operator gives it room.
    world.stop();
    world.options().environment.retain(|(name, _)| name != "CHARTER_DATABASE_FILE_BYTES_MAX");
    world.start();
    let tenant = tenant.at(world.server().address());
    assert_eq!(depth(&tenant.client, &queue), sent, "answered and gone");
    assert_eq!(
        logged(&tenant.client, "users.create"),
        denied,
        "a denial is told with its row only"
    );
    tenant.client.post("/v1/users", &json!({ "name": "somebody" })).expect(201);
    assert_eq!(
        tenant.client.post("/v1/vault/name/reveal", &json!({})).expect(200)["value"],
        "kept"
    );
}

/// How a program gets a small disk of its own, that is gone with it: as root, or as anyone where
/// the machine allows it. Else what each way met.
fn small_disk() -> Result<&'static str, String> {
    let mut met = Vec::new();
    for unshare in ["unshare -m", "unshare -rm"] {
        let tried = Command::new("/bin/sh")
            .args(["-c", &format!("{unshare} mount -t tmpfs charter /mnt")])
            .output()
            .unwrap();
        if tried.status.success() {
            return Ok(unshare);
        }
        met.push(format!("`{unshare}`: {}", String::from_utf8_lossy(&tried.stderr).trim()));
    }
    Err(met.join("; "))
}

#[test]
fn writes_resume_by_themselves_once_the_disk_has_room() {
    let unshare = match small_disk() {
        Ok(unshare) => unshare,
        // Root lacks it by an oversight only, in a container most often; a pass that looked at
        // nothing would hide that.
        Err(met) if std::fs::metadata("/proc/self").unwrap().uid() == 0 => panic!(
            "this test cannot run: it fills a small disk of its own, and root may not mount one here. What is missing is the \
             capability CAP_SYS_ADMIN, or the program unshare: {met}"
        ),
        // Others may lack the right for good: a full disk is then seen by the size limit above, the
        // same to the server.
        Err(met) => {
            return eprintln!(
                "this test cannot run: nobody but root may mount a small disk here. {met}"
            );
        }
    };
    let mut world = Builder::new().start(Database::Sqlite);
    let tenant = world.register();
    world.stop();
    let (folder, data) = (Folder::new(), world.data().to_path_buf());
    let program = folder.path().join("charter-on-a-small-disk");
    // The whole deployment moves there: what it has compiled too, which takes a while.
    let script = format!(
        "#!/bin/sh\nexec {unshare} sh -c 'mount --bind \"$0\" /mnt && mount -t tmpfs -o size=160m,mode=700 charter \"$0\" && \
         cp -a /mnt/. \"$0\" && umount /mnt && exec \"$@\"' {data:?} {:?} \"$@\"\n",
        Artefacts::get().charter
    );
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o700)).unwrap();
    world.options().program = Some(program);
    world.start();
    let tenant = tenant.at(world.server().address());
    let inside = Path::new("/proc")
        .join(world.server().id().to_string())
        .join("root")
        .join(data.strip_prefix("/").unwrap());
    let queue = queue(&tenant);
    for _ in 0..2 {
        let before = depth(&tenant.client, &queue);
        // Somebody else takes all that is left.
        let other = inside.join("another-program's-file");
        let mut file = std::fs::File::create(&other).unwrap();
        let bytes = vec![1; 65_536];
        while file.write_all(&bytes).is_ok() {}
        drop(file);
        let sent = fill(&tenant, &queue);
        assert_eq!(
            depth(&tenant.client, &queue),
            before + sent,
            "answered and there are not the same"
        );
        std::fs::remove_file(&other).unwrap();
        look_for(PATIENCE, "writes resume", || {
            let answer = tenant
                .client
                .post(&format!("{queue}/messages"), &json!({ "messages": [{ "body": "again" }] }));
            if answer.status == 201 {
                return Ok(());
            }
            answer.expect_error(503, "overloaded");
            Err(answer)
        });
        assert_eq!(depth(&tenant.client, &queue), before + sent + 1);
    }
    assert_eq!(tenant.client.get("/v1/status").expect(200)["status"], "ok");
}

const CRASHES: u32 = 4;
const WRITERS: u32 = 8;
/// Answers that must have come before the next crash.
const BETWEEN: u32 = 40;

/// A server on a PostgreSQL of its own, with a fixture.
struct OnPostgres {
    postgres: Postgres,
    _server: Server,
    tenant: Tenant,
    _data: Folder,
}

impl OnPostgres {
    fn start(name: &str, fixture: &str) -> Self {
        let postgres = Postgres::durable(name).unwrap_or_else(|fault| panic!("{fault}"));
        let data = Folder::new();
        let environment =
            [("CHARTER_OPERATOR_TOKEN", OPERATOR_TOKEN), ("CHARTER_JOBS_DEADLINE_MS", "4000")];
        let options = Options {
            data: data.path().to_path_buf(),
            database: Some(postgres.database()),
            environment: environment.map(|(name, value)| (name.into(), value.into())).into(),
            ..Options::default()
        };
        let server = Server::start(&options).unwrap();
        let operator = server.client().bearer(OPERATOR_TOKEN);
        let path = format!("/v1/operator/components/{fixture}?activate=true&agree=*");
        let install = operator.call("PUT", &path).header("content-type", "application/wasm");
        install.bytes(Artefacts::get().fixture(fixture)).send().expect(201);
        let tenant = Tenant::register(&server.client());
        Self { postgres, _server: server, tenant, _data: data }
    }
}

const JOBS: usize = 60;
/// A job's money, in micro-US-dollars.
const CENT: i64 = 10_000;

/// The database crashes while jobs end: the end of each run is written with what the run did, or
/// neither is.
#[test]
fn jobs_that_end_while_the_database_crashes_are_done_once() {
    let world = OnPostgres::start("ends", "script");
    let client = &world.tenant.client;
    let kit = client.get("/v1/kits").expect(200)["kits"][0]["id"].as_str().unwrap().to_owned();
    let budget = json!({ "budget": { "cap_cents": 10_000, "period": "total" } });
    client.patch(&format!("/v1/kits/{kit}"), &budget).expect(200);
    for n in 0..JOBS {
        let work = json!([
            { "leave": "script.spend", "amount": CENT, "as": "p" },
            { "sleep_ms": 100 + 50 * n },
            { "note": "note" },
            { "capture": "p", "amount": CENT },
        ]);
        let ask = json!({ "steps": [{ "enqueue": work, "public": true, "attempts": 5 }] });
        client.post("/v1/script", &ask).expect(200);
    }
    let succeeded = || {
        let jobs = client.call("GET", "/v1/jobs?status=succeeded&limit=100").send();
        // While the database is away, nobody is told anything.
        if jobs.status == 200 { jobs.json()["jobs"].as_array().unwrap().len() } else { 0 }
    };
    for crash in 1..=CRASHES as usize {
        until("some more have ended", || succeeded() >= crash * 8);
        world.postgres.crash_and_restart();
    }
    look_for(PATIENCE, "all of them have ended", || {
        if succeeded() == JOBS { Ok(()) } else { Err(client.get("/v1/jobs?limit=100").json()) }
    });
    let notes = client.get("/v1/script/notes").expect(200)["notes"].clone();
    let own = notes.as_array().unwrap().iter().filter(|note| note["kind"] == "note");
    assert_eq!(own.count(), JOBS, "each wrote once");
    let asked = json!({ "action": "script.spend", "amount_micro_usd": 0 });
    let told = client.post("/v1/governance/simulate", &asked).expect(200);
    let spent = JOBS as i64 * CENT;
    assert_eq!(told["caps"][0]["spent_micro_usd"], spent, "each was paid once: {told}");
}

/// The database itself crashes, with every commit on disk; clients try again with the same key
/// until they are answered.
#[test]
fn a_database_that_crashes_in_mid_commit_loses_nothing_and_doubles_nothing() {
    let world = OnPostgres::start("faults", "probe");
    let (postgres, tenant) = (&world.postgres, &world.tenant);
    let (answered, done) = (Mutex::new(BTreeSet::new()), AtomicU32::new(0));
    let (over, next) = (AtomicBool::new(false), AtomicU32::new(0));
    std::thread::scope(|scope| {
        let _writing = Over(&over);
        for _ in 0..WRITERS {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    let name = format!("pair-{}", next.fetch_add(1, Ordering::Relaxed));
                    look_for(PATIENCE, "a pair is answered", || {
                        let call = tenant
                            .client
                            .call("POST", "/v1/probe/pairs")
                            .json(&json!({ "name": name }));
                        let answer = call.idempotency_key(&name).send();
                        if answer.status == 201 {
                            return Ok(());
                        }
                        // A refusal says that it may be tried again.
                        assert_eq!(answer.header("x-should-retry"), Some("true"), "{answer}");
                        Err(answer)
                    });
                    answered.lock().unwrap().insert(name);
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let wait = |count: u32| {
            let from = done.load(Ordering::Relaxed);
            until("further pairs are answered", || done.load(Ordering::Relaxed) >= from + count);
        };
        for _ in 0..CRASHES {
            wait(BETWEEN);
            postgres.crash_and_restart();
        }
        wait(BETWEEN);
    });
    let pairs = tenant.client.get("/v1/probe/pairs").expect(200);
    let side = |side: &str| -> Vec<String> {
        let names = pairs[side].as_array().unwrap().iter();
        names.map(|name: &Value| name.as_str().unwrap().to_owned()).collect()
    };
    let (left, right) = (side("left"), side("right"));
    let once: BTreeSet<String> = left.iter().cloned().collect();
    assert_eq!(left.len(), once.len(), "a mutation happened twice");
    assert_eq!(right.len(), once.len(), "a mutation happened twice on one side");
    assert_eq!(once, right.into_iter().collect(), "a mutation is half there");
    let answered = answered.into_inner().unwrap();
    let lost: Vec<_> = answered.difference(&once).collect();
    assert!(lost.is_empty(), "answered and gone: {lost:?}");
    let more: Vec<_> = once.difference(&answered).collect();
    assert!(more.is_empty(), "there, and its answer never came: {more:?}");
}
