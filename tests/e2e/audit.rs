//! The audit log as a Merkle tree: what an outsider can verify with the answers alone, and what
//! tampering looks like then.
//!
//! Proofs are verified here by the algorithms of RFC 9162, sections 2.1.3.2 and 2.1.4.2, word for
//! word and with none of the host's code.

use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use charter_tests::artefacts::{Artefacts, Folder};
use charter_tests::patience::{PATIENCE, look_for, until};
use charter_tests::tenant::{PASSWORD, id, unique};
use charter_tests::world::Builder;
use charter_tests::{Answer, Client, Tenant, on_both};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::accounts::browser;
use crate::governance::in_an_hour;
use crate::members::join;

type Hash = [u8; 32];

fn hash(parts: &[&[u8]]) -> Hash {
    parts.iter().fold(Sha256::new(), |hash, part| hash.chain_update(part)).finalize().into()
}

fn decode(text: &Value) -> Hash {
    STANDARD.decode(text.as_str().unwrap()).unwrap().try_into().unwrap()
}

fn decode_all(texts: &Value) -> Vec<Hash> {
    texts.as_array().unwrap().iter().map(decode).collect()
}

/// A checkpoint whose signature holds under the key that is told beside it: its size and root.
fn verify_checkpoint(checkpoint: &Value) -> (u64, Hash) {
    let (note, key) =
        (checkpoint["note"].as_str().unwrap(), checkpoint["public_key"].as_str().unwrap());
    let (text, signature) = note.split_once("\n\n").unwrap();
    let text = format!("{text}\n");
    let (name, rest) = key.split_once('+').unwrap();
    let key = STANDARD.decode(rest.split_once('+').unwrap().1).unwrap();
    assert_eq!((key.len(), key[0]), (33, 1), "an Ed25519 key");
    let bytes =
        STANDARD.decode(signature.trim().strip_prefix(&format!("— {name} ")).unwrap()).unwrap();
    assert_eq!(bytes[..4], hash(&[name.as_bytes(), b"\n", &key])[..4], "the key's id");
    let key = ed25519_dalek::VerifyingKey::from_bytes(key[1..].try_into().unwrap()).unwrap();
    let signature = ed25519_dalek::Signature::from_slice(&bytes[4..]).unwrap();
    key.verify_strict(text.as_bytes(), &signature).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], name);
    (lines[1].parse().unwrap(), STANDARD.decode(lines[2]).unwrap().try_into().unwrap())
}

/// RFC 9162, 2.1.3.2.
fn includes(leaf: Hash, index: u64, size: u64, path: &[Hash], root: Hash) -> bool {
    let (mut fnode, mut snode, mut r) = (index, size - 1, leaf);
    for p in path {
        if snode == 0 {
            return false;
        }
        if fnode & 1 == 1 || fnode == snode {
            r = hash(&[&[1], p, &r]);
            while fnode & 1 == 0 && fnode != 0 {
                (fnode, snode) = (fnode >> 1, snode >> 1);
            }
        } else {
            r = hash(&[&[1], &r, p]);
        }
        (fnode, snode) = (fnode >> 1, snode >> 1);
    }
    snode == 0 && r == root
}

/// RFC 9162, 2.1.4.2.
fn extends(first: u64, first_root: Hash, second: u64, second_root: Hash, path: &[Hash]) -> bool {
    let mut path = path.to_vec();
    if first.is_power_of_two() {
        path.insert(0, first_root);
    }
    let (mut fnode, mut snode) = (first - 1, second - 1);
    while fnode & 1 == 1 {
        (fnode, snode) = (fnode >> 1, snode >> 1);
    }
    let (mut fr, mut sr) = (path[0], path[0]);
    for c in &path[1..] {
        if snode == 0 {
            return false;
        }
        if fnode & 1 == 1 || fnode == snode {
            (fr, sr) = (hash(&[&[1], c, &fr]), hash(&[&[1], c, &sr]));
            while fnode & 1 == 0 && fnode != 0 {
                (fnode, snode) = (fnode >> 1, snode >> 1);
            }
        } else {
            sr = hash(&[&[1], &sr, c]);
        }
        (fnode, snode) = (fnode >> 1, snode >> 1);
    }
    fr == first_root && sr == second_root && snode == 0
}

/// Makes rows: a user and its names.
fn rows(tenant: &Tenant, count: usize) -> String {
    let user = tenant.user("first");
    for n in 1..count {
        tenant
            .client
            .patch(&format!("/v1/users/{user}"), &json!({ "name": format!("name {n}") }))
            .expect(200);
    }
    user
}

fn head(client: &Client) -> u64 {
    client.get("/v1/logs?limit=1").expect(200)["logs"][0]["seq"].as_u64().unwrap()
}

/// The latest checkpoint, once it covers so many rows.
fn checkpoint(client: &Client, rows: u64) -> Value {
    until("the rows are numbered", || head(client) >= rows);
    client.get("/v1/audit/checkpoint").expect(200)["checkpoint"].clone()
}

struct Verified {
    status: Option<i32>,
    out: String,
}

/// Runs `charter audit verify` over these lines.
fn verify(lines: &[String], more: &[&str]) -> Verified {
    let folder = Folder::new();
    let file: PathBuf = folder.path().join("export.ndjson");
    std::fs::write(&file, lines.concat()).unwrap();
    let mut command = std::process::Command::new(&Artefacts::get().charter);
    let told =
        command.args(["audit", "verify", file.to_str().unwrap()]).args(more).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Verified { status: told.status.code(), out: text(&told.stdout) + &text(&told.stderr) }
}

impl Verified {
    #[track_caller]
    fn holds(&self) {
        assert_eq!(self.status, Some(0), "{}", self.out);
    }
    #[track_caller]
    fn names(&self, fault: &str) {
        assert!(self.status == Some(1) && self.out.contains(fault), "{fault:?} in {}", self.out);
    }
}

fn export_lines(answer: &Answer) -> Vec<String> {
    assert_eq!(answer.status, 200, "{answer}");
    assert_eq!(answer.header("content-type"), Some("application/x-ndjson"));
    answer.text().split_inclusive('\n').map(str::to_owned).collect()
}

/// The line with its row changed.
fn edit(line: &str, change: impl FnOnce(&mut Value)) -> String {
    let mut row: Value = serde_json::from_str(line).unwrap();
    change(&mut row);
    format!("{row}\n")
}

on_both! {
    fn an_outsider_proves_that_a_row_is_in_the_log_and_that_the_log_only_grew(world) {
        let tenant = world.register();
        // Beyond one tile of hashes, and not at the edge of one.
        rows(&tenant, 150);
        let (first, first_root) = verify_checkpoint(&checkpoint(&tenant.client, 150));
        rows(&tenant, 170);
        let latest = checkpoint(&tenant.client, first + 170);
        let (size, root) = verify_checkpoint(&latest);
        assert!(first >= 150 && size >= first + 170, "{first} {size}");
        for seq in [1, 2, 3, first, 255, 256, 257, size - 1, size] {
            let proof = tenant.client.get(&format!("/v1/audit/proof?seq={seq}&size={size}")).expect(200)["proof"].clone();
            assert_eq!(verify_checkpoint(&proof["checkpoint"]), (size, root));
            assert_eq!(proof["row"]["seq"], seq);
            let leaf = hash(&[&[0], proof["row"]["leaf"].as_str().unwrap().as_bytes()]);
            let path = decode_all(&proof["hashes"]);
            assert!(includes(leaf, seq - 1, size, &path, root), "row {seq}");
            assert!(!includes(hash(&[b"another"]), seq - 1, size, &path, root));
            // Its private half is bound too.
            let told: Value = serde_json::from_str(proof["row"]["leaf"].as_str().unwrap()).unwrap();
            let private = hash(&[proof["row"]["private"].as_str().unwrap().as_bytes()]);
            assert_eq!(told["private_sha256"], private.iter().map(|byte| format!("{byte:02x}")).collect::<String>());
        }
        let proof = tenant.client.get(&format!("/v1/audit/proof?from_size={first}&size={size}")).expect(200)["proof"].clone();
        assert!(extends(first, first_root, size, root, &decode_all(&proof["hashes"])));
        assert!(!extends(first, hash(&[b"another"]), size, root, &decode_all(&proof["hashes"])));
        let again = tenant.client.get(&format!("/v1/audit/checkpoint?size={first}")).expect(200)["checkpoint"].clone();
        assert_eq!(verify_checkpoint(&again), (first, first_root), "a checkpoint stays what it was");
    }

    fn an_export_verifies_offline_and_tampering_is_named(world) {
        let tenant = world.register();
        rows(&tenant, 12);
        let early = checkpoint(&tenant.client, 12);
        rows(&tenant, 12);
        checkpoint(&tenant.client, early["size"].as_u64().unwrap() + 12);
        let lines = export_lines(&tenant.client.get("/v1/audit/export"));
        let (count, key) = (lines.len() - 1, early["public_key"].as_str().unwrap());
        assert!(count >= 24);
        verify(&lines, &["--key", key]).holds();
        verify(&lines, &[]).holds();

        let mut changed = lines.clone();
        changed[7] = edit(&lines[7], |row| row["leaf"] = row["leaf"].as_str().unwrap().replace("\"status\":200", "\"status\":201").into());
        verify(&changed, &[]).names("row 7 was edited");
        // With the hash made to fit, the tree still tells, and the checkpoints say where.
        changed[7] = edit(&changed[7], |row| {
            row["hash"] = STANDARD.encode(hash(&[&[0], row["leaf"].as_str().unwrap().as_bytes()])).into();
        });
        verify(&changed, &[]).names(&format!("rows 1 to {} are not those that were signed", early["size"]));
        let mut changed = lines.clone();
        changed[5] = edit(&lines[5], |row| row["private"] = row["private"].as_str().unwrap().replace("salt", "tlas").into());
        verify(&changed, &[]).names("row 5 was edited: its private half");
        let mut changed = lines.clone();
        changed.remove(9);
        verify(&changed, &[]).names("row 9 is missing");
        verify(&lines[..count - 1], &[]).names(&format!("the export ends with row {}", count - 2));
        let mut changed = lines.clone();
        changed.swap(3, 4);
        let swapped = verify(&changed, &[]);
        swapped.names("row 3 is missing");
        swapped.names("row 3 stands behind row 4, out of its place");
        // Nothing at all, with and without what was signed; and what says that it is another's.
        let bare = |change: fn(&mut Value)| vec![edit(&lines[0], change)];
        verify(&bare(|head| head["checkpoints"] = serde_json::json!([])), &["--key", key]).names("holds no row");
        verify(&bare(|_| ()), &["--key", key]).names("the export ends with row 0");
        let mut changed = lines.clone();
        changed[0] = edit(&lines[0], |head| head["origin"] = "charter/audit/deployment".into());
        verify(&changed, &["--key", key]).names("says that it is of charter/audit/deployment");
        // A whole log made up, under a key of somebody else.
        let other = world.register();
        rows(&other, 3);
        checkpoint(&other.client, 3);
        verify(&export_lines(&other.client.get("/v1/audit/export")), &["--key", key]).names("names another key");

        // The rows since then, against the checkpoint that was kept.
        let kept = Folder::new();
        let note = kept.path().join("note");
        std::fs::write(&note, early["note"].as_str().unwrap()).unwrap();
        let since = ["--key", key, "--since", note.to_str().unwrap()];
        let tail = export_lines(&tenant.client.get(&format!("/v1/audit/export?after={}", early["size"])));
        assert_eq!(tail.len() - 1, count - early["size"].as_u64().unwrap() as usize);
        verify(&tail, &since).holds();
        verify(&lines, &since).holds();
        let elsewhere = edit(&tail[0], |head| head["after"] = 0.into());
        assert_eq!(verify(&[vec![elsewhere], tail[1..].to_vec()].concat(), &since).status, Some(1));
    }

    fn what_was_private_goes_with_its_user_and_the_proofs_still_hold(world) {
        let tenant = world.register();
        let user = rows(&tenant, 3);
        let own = tenant.client.with("X-Service-User-Id", &user);
        own.post("/v1/queue", &json!({ "name": "letters" })).expect(201);
        let row = |client: &Client| {
            let page = client.get(&format!("/v1/logs?user_id={user}")).expect(200);
            page["logs"].as_array().unwrap().iter().find(|row| row["action"] == "queue.create").cloned()
        };
        until("the row is numbered", || row(&tenant.client).is_some());
        let seq = row(&tenant.client).unwrap()["seq"].clone();
        assert!(row(&tenant.client).unwrap()["changes"][0]["after"].is_string());
        tenant.client.delete(&format!("/v1/users/{user}")).expect(200);
        until("what was private is gone", || row(&tenant.client).unwrap()["changes"].is_null());
        let proof = tenant.client.get(&format!("/v1/audit/proof?seq={seq}")).expect(200)["proof"].clone();
        let (size, root) = verify_checkpoint(&proof["checkpoint"]);
        assert_eq!(proof["row"]["private"], Value::Null);
        let leaf = hash(&[&[0], proof["row"]["leaf"].as_str().unwrap().as_bytes()]);
        assert!(includes(leaf, seq.as_u64().unwrap() - 1, size, &decode_all(&proof["hashes"]), root));
        let told = verify(&export_lines(&tenant.client.get("/v1/audit/export")), &[]);
        told.holds();
        assert!(told.out.contains("without their private half"), "{}", told.out);
        // Nor does what others did to the user say who it was.
        let address = format!("{}@example.com", unique("gone"));
        let known = json!({ "name": "known", "email": address, "external_id": address });
        let known = id(&tenant.client.post("/v1/users", &known).expect(201)["user"]);
        let path = format!("/v1/users/{known}");
        tenant.client.patch(&path, &json!({ "name": "known better" })).expect(200);
        // Each route of the host that names a user: a key, a grant and a webhook, made and removed.
        let key = json!({ "name": format!("of {address}"), "user_id": known });
        let key = id(&tenant.client.post("/v1/auth/keys", &key).expect(201));
        tenant.client.delete(&format!("/v1/auth/keys/{key}")).expect(200);
        let grant = json!({ "user_id": known, "actions": ["shop.*"], "until": in_an_hour(&tenant.client), "reason": address });
        let grant = id(&tenant.client.post("/v1/governance/grants", &grant).expect(201)["grant"]);
        tenant.client.delete(&format!("/v1/governance/grants/{grant}")).expect(200);
        let hears = |name: &str| json!({ "url": format!("http://192.0.9.1/{name}/{address}"), "eventTypes": ["approval.resolved"] });
        let webhook = id(&tenant.client.post(&format!("{path}/webhooks"), &hears("one")).expect(201));
        let webhook = format!("/v1/webhooks/{webhook}");
        tenant.client.patch(&webhook, &json!({ "url": hears("two")["url"] })).expect(200);
        tenant.client.post(&format!("{webhook}/rotate"), &json!({})).expect(200);
        tenant.client.delete(&webhook).expect(200);
        tenant.client.post(&format!("{path}/revoke"), &json!({ "reason": address })).expect(200);
        tenant.client.post(&format!("{path}/restore"), &json!({})).expect(200);
        tenant.client.delete(&path).expect(200);
        look_for(PATIENCE, "the log does not say who it was", || {
            let lines = export_lines(&tenant.client.get("/v1/audit/export"));
            lines.into_iter().find(|line| line.contains(&address)).map_or(Ok(()), Err)
        });
        // An omission on the way is no erasure.
        let lines = export_lines(&tenant.client.get("/v1/audit/export"));
        for (at, line) in lines.iter().enumerate().skip(1).filter(|(_, line)| !line.contains("\"private\":null")) {
            let mut forged = lines.clone();
            forged[at] = edit(line, |row| row["private"] = Value::Null);
            verify(&forged, &[]).names("was left out");
        }
    }

    fn the_acts_of_an_organization_outlive_whomever_a_request_names_beside_them(world) {
        let tenant = world.register();
        let (owner, _) = browser(world, &tenant.email, PASSWORD);
        let (admin, account) = join(world, &tenant, &owner, "viewer");
        let project = id(&tenant.client.post("/v1/projects", &json!({ "name": "short" })).expect(201)["project"]);
        let user = tenant.user("throwaway");
        let kit = id(&tenant.client.get("/v1/kits").expect(200)["kits"][0]);
        let member = format!("/v1/organization/members/{account}");
        let (own_project, own_kit) = (format!("/v1/projects/{}", tenant.project), format!("/v1/kits/{kit}"));
        let invited = json!({ "email": format!("{}@example.com", unique("new")), "role": "viewer" });
        let named = [owner.with("x-service-user-id", &user), owner.with("x-service-project-id", &project)];
        for client in &named {
            client.put("/v1/governance/policy", &json!({ "rules": [] })).expect(200);
            client.put("/v1/governance/limits", &json!({ "limits": [] })).expect(200);
            client.patch("/v1/organization", &json!({ "name": unique("named") })).expect(200);
            client.patch(&member, &json!({ "role": "admin" })).expect(200);
            client.patch(&member, &json!({ "role": "viewer" })).expect(200);
            client.post("/v1/auth/keys", &json!({ "name": "wide" })).expect(201);
        }
        let by_user = &named[0];
        by_user.post("/v1/organization/members", &invited).expect(201);
        by_user.patch(&own_project, &json!({ "name": "renamed" })).expect(200);
        by_user.patch(&own_kit, &json!({ "name": "renamed" })).expect(200);
        by_user.delete(&member).expect(200);
        drop(admin);
        // One that is the user's goes with them, and says when all have been looked through.
        let own = tenant.client.with("x-service-user-id", &user);
        own.post("/v1/queue", &json!({ "name": "letters" })).expect(201);
        owner.delete(&format!("/v1/users/{user}")).expect(200);
        owner.delete(&format!("/v1/projects/{project}")).expect(200);
        let lines = look_for(PATIENCE, "what was the user's is gone", || {
            let lines = export_lines(&tenant.client.get("/v1/audit/export"));
            let gone = lines.iter().any(|line| line.contains("queue.create") && line.contains("\"private\":null"));
            if gone { Ok(lines) } else { Err(lines.concat()) }
        });
        for line in lines.iter().filter(|line| line.contains("\"private\":null")) {
            let is_the_users = line.contains("queue.") || line.contains("\\\"entity_type\\\":\\\"user\\\"");
            assert!(is_the_users, "an act of the organization went with whom it named: {line}");
        }
        let page = tenant.client.get("/v1/logs?action=members.update&limit=10").expect(200);
        let told: Vec<_> = page["logs"].as_array().unwrap().iter().map(|row| row["details"]["after"]["role"].clone()).collect();
        assert_eq!(told.iter().filter(|role| **role == "admin").count(), 2, "{page}");
        assert!(page["logs"].as_array().unwrap().iter().all(|row| row["actor"]["account_id"].is_string()), "{page}");
    }

    fn a_deleted_project_explains_what_was_erased_of_its_profile(world) {
        let tenant = world.register();
        for is_named in [false, true] {
            let project = id(&tenant.client.post("/v1/projects", &json!({ "name": "short" })).expect(201)["project"]);
            let own = tenant.client.with("x-service-project-id", &project);
            own.post("/v1/queue", &json!({ "name": "letters" })).expect(201);
            // A caller that names the project that goes does not act on behalf of its profile.
            let client = if is_named { &own } else { &tenant.client };
            client.delete(&format!("/v1/projects/{project}")).expect(200);
        }
        look_for(PATIENCE, "both profiles' rows are without their private half", || {
            let lines = export_lines(&tenant.client.get("/v1/audit/export"));
            let bare = lines.iter().filter(|line| line.contains("queue.create") && line.contains("\"private\":null"));
            if bare.count() == 2 { Ok(()) } else { Err(lines.concat()) }
        });
        verify(&export_lines(&tenant.client.get("/v1/audit/export")), &[]).holds();
    }

    fn what_a_change_made_of_a_thing_is_told_by_its_hashes(world) {
        let tenant = world.register();
        let user = rows(&tenant, 2);
        let change = |action: &str| {
            let page = tenant.client.get(&format!("/v1/logs?action={action}")).expect(200);
            page["logs"][0]["changes"].as_array().and_then(|changes| {
                changes.iter().find(|change| change["what"] == format!("host.users/{user}")).cloned()
            })
        };
        until("both are numbered", || change("users.update").is_some() && change("users.create").is_some());
        let (made, renamed) = (change("users.create").unwrap(), change("users.update").unwrap());
        assert_eq!((made["before"].clone(), made["after"].clone()), (Value::Null, renamed["before"].clone()));
        assert_ne!(renamed["before"], renamed["after"]);
    }

    fn an_audit_log_is_its_organizations_alone_and_no_pinned_keys(world) {
        let (tenant, other) = (world.register(), world.register());
        rows(&tenant, 2);
        let size = checkpoint(&tenant.client, 2)["size"].as_u64().unwrap();
        for query in ["", &format!("?size={}", size + 1_000)] {
            let answer = other.client.get(&format!("/v1/audit/checkpoint{query}"));
            assert!(!answer.text().contains(&tenant.organization), "{answer}");
        }
        let pinned = tenant.key(json!({ "role": "developer", "user_id": tenant.user }));
        for path in ["/v1/audit/checkpoint", "/v1/audit/proof?seq=1", "/v1/audit/export"] {
            assert_eq!(pinned.get(path).status, 403, "{path}");
        }
        let bad = |query: &str| tenant.client.get(&format!("/v1/audit/proof{query}")).expect_error(400, "invalid_input")["param"].clone();
        assert_eq!(bad(""), "seq");
        assert_eq!(bad("?seq=1&from_size=1"), "seq");
        assert_eq!(bad("?seq=100000"), "seq");
        assert_eq!(bad("?seq=0"), "seq");
        tenant.client.get("/v1/audit/checkpoint?size=100000").expect_error(404, "resource_not_found");
        assert_eq!(tenant.client.get("/v1/audit/export?after=100000").expect_error(400, "invalid_input")["param"], "after");
    }

    fn a_row_is_read_in_the_project_that_it_is_about(world) {
        let tenant = world.register();
        let other = id(&tenant.client.post("/v1/projects", &json!({"name": "Other"})).expect(201)["project"]);
        let elsewhere = tenant.client.with("x-service-project-id", &other);
        // Of another project than the request's own; of the organization, whatever the request names.
        tenant.client.patch(&format!("/v1/projects/{other}"), &json!({"name": "Renamed"})).expect(200);
        let guest = json!({"email": format!("{}@example.com", unique("guest")), "role": "viewer"});
        let invited = elsewhere.post("/v1/organization/members", &guest).expect(201)["invitation"].clone();
        elsewhere.post("/v1/auth/keys", &json!({"name": "wide"})).expect(201);
        tenant.client.post("/v1/auth/keys", &json!({"name": "narrow", "project_id": other})).expect(201);
        elsewhere.delete(&format!("/v1/organization/invitations/{}", id(&invited))).expect(200);
        // Each reader's own key is a row of its project, too. A row is read once it has its number.
        let holds = |project: &str, expected: &[&str]| {
            let pinned = tenant.key(json!({"role": "viewer", "project_id": project}));
            let of_these = |action: &&str| ["projects.", "members.", "invitations.", "keys."].iter().any(|begin| action.starts_with(begin));
            look_for(PATIENCE, "the project's rows", || {
                let rows = pinned.get("/v1/logs?limit=100").expect(200)["logs"].clone();
                let actions = rows.as_array().unwrap().iter().map(|row| row["action"].as_str().unwrap());
                let mut actions: Vec<&str> = actions.filter(of_these).collect();
                actions.sort_unstable();
                if actions == expected { Ok(()) } else { Err(rows.to_string()) }
            });
        };
        holds(&tenant.project, &["keys.create"]);
        holds(&other, &["keys.create", "keys.create", "projects.update"]);
    }

    fn a_row_about_another_projects_user_is_read_in_that_project_whoever_named_it(world) {
        let tenant = world.register();
        let other = id(&tenant.client.post("/v1/projects", &json!({"name": "Other"})).expect(201)["project"]);
        let elsewhere = tenant.client.with("x-service-project-id", &other);
        let user = id(&elsewhere.post("/v1/users", &json!({"name": "Ada"})).expect(201)["user"]);
        let grant = json!({"user_id": user, "actions": ["cards.*"], "until": in_an_hour(&tenant.client), "reason": "a trip"});
        let grant = id(&elsewhere.post("/v1/governance/grants", &grant).expect(201)["grant"]);
        let hook = json!({"url": "http://127.0.0.1:9/", "eventTypes": ["*"]});
        let hook = id(&elsewhere.with("x-service-user-id", &user).post("/v1/webhooks", &hook).expect(201));
        // None of these names the project.
        let path = format!("/v1/webhooks/{hook}");
        tenant.client.delete(&format!("/v1/governance/grants/{grant}")).expect(200);
        tenant.client.patch(&path, &json!({"active": true})).expect(200);
        tenant.client.post(&format!("{path}/rotate"), &json!({})).expect(200);
        tenant.client.post(&format!("{path}/test"), &json!({})).expect(202);
        tenant.client.delete(&path).expect(200);
        let holds = |project: &str, expected: &[&str]| {
            let pinned = tenant.key(json!({"role": "viewer", "project_id": project}));
            look_for(PATIENCE, "the project's rows", || {
                let rows = pinned.get("/v1/logs?limit=100").expect(200)["logs"].clone();
                let of_these = |row: &&Value| ["governance.", "webhooks."].iter().any(|begin| row["action"].as_str().unwrap().starts_with(begin));
                let found: Vec<&Value> = rows.as_array().unwrap().iter().filter(of_these).collect();
                let mut actions: Vec<&str> = found.iter().map(|row| row["action"].as_str().unwrap()).collect();
                actions.sort_unstable();
                let is_theirs = found.iter().all(|row| row["on_behalf_of"] == json!(user));
                if actions == expected && is_theirs { Ok(()) } else { Err(rows.to_string()) }
            });
        };
        holds(&other, &["governance.grants.create", "governance.grants.delete", "webhooks.create", "webhooks.delete",
            "webhooks.rotate", "webhooks.test", "webhooks.update"]);
        holds(&tenant.project, &[]);
    }

    fn a_row_about_the_default_profiles_things_is_read_in_its_project(world) {
        let tenant = world.register();
        let card = id(&tenant.client.post("/v1/cards", &json!({})).expect(201)["card"]);
        tenant.client.post(&format!("/v1/cards/{card}/freeze"), &json!({})).expect(200);
        tenant.client.post(&format!("/v1/cards/{card}/unfreeze"), &json!({})).expect(200);
        tenant.client.patch(&format!("/v1/cards/{card}"), &json!({"label": "books"})).expect(200);
        // This one is the organization's own.
        let hook = json!({"url": "http://127.0.0.1:9/", "eventTypes": ["*"]});
        tenant.client.post("/v1/webhooks", &hook).expect(201);
        let pinned = tenant.key(json!({"role": "viewer", "project_id": tenant.project}));
        look_for(PATIENCE, "the project's rows", || {
            let rows = pinned.get("/v1/logs?limit=100").expect(200)["logs"].clone();
            let actions = rows.as_array().unwrap().iter().map(|row| row["action"].as_str().unwrap());
            let of_these = |action: &&str| ["cards.", "webhooks."].iter().any(|begin| action.starts_with(begin));
            let mut actions: Vec<&str> = actions.filter(of_these).collect();
            actions.sort_unstable();
            actions.dedup();
            let expected = ["cards.create", "cards.freeze", "cards.unfreeze", "cards.update"];
            if actions == expected { Ok(()) } else { Err(rows.to_string()) }
        });
    }

    fn the_operators_acts_are_a_log_of_their_own(world) {
        let tenant = world.register();
        let credit = json!({ "organization_id": tenant.organization, "amount_cents": 100, "memo": "start" });
        world.operator().post("/v1/operator/credits", &credit).expect(201);
        let of = |path: &str| world.operator().get(path).expect(200);
        until("the act is numbered", || {
            of("/v1/operator/logs?action=operator.credits.create")["logs"].as_array().is_some_and(|rows| !rows.is_empty())
        });
        let sealed = of("/v1/operator/audit/checkpoint")["checkpoint"].clone();
        let (size, root) = verify_checkpoint(&sealed);
        let proof = of(&format!("/v1/operator/audit/proof?seq={size}&size={size}"))["proof"].clone();
        let leaf = hash(&[&[0], proof["row"]["leaf"].as_str().unwrap().as_bytes()]);
        assert!(includes(leaf, size - 1, size, &decode_all(&proof["hashes"]), root));
        verify(&export_lines(&world.operator().get("/v1/operator/audit/export")), &[]).holds();
        assert_eq!(tenant.client.get("/v1/operator/audit/export").status, 401);
    }
}

on_both! {
    fn each_act_of_the_operator_leaves_one_row(world: Builder::new().bare()) {
        let (tenant, operator) = (world.register(), world.operator());
        let own = || {
            let page = operator.get("/v1/operator/logs?limit=100").expect(200);
            let rows = page["logs"].as_array().unwrap().iter().rev();
            let text = |row: &Value, member: &str| row[member].as_str().unwrap().to_owned();
            let told: Vec<(String, String)> = rows.map(|row| (text(row, "action"), text(row, "decision"))).collect();
            told
        };
        let mut expected = own();
        let mut leaves = |actions: &[&str], decision: &str| {
            let of = |action: &&str| (format!("operator.{action}"), decision.to_owned());
            expected.extend(actions.iter().map(of));
            look_for(PATIENCE, "the operator's rows", || {
                let told = own();
                if told == expected { Ok(()) } else { Err(format!("{told:?}")) }
            });
        };
        let component = "/v1/operator/components/probe";
        let digest = |answer: &Answer| answer.expect(201)["component"]["digest"].as_str().unwrap().to_owned();
        let upload = |build: u32, activate: bool| digest(&world.upload("probe", &Artefacts::get().probe(build), activate));
        let first = upload(900_001, false);
        leaves(&["components.put"], "allowed");
        operator.post(&format!("{component}/activate"), &json!({ "digest": first })).expect(200);
        leaves(&["components.activate"], "allowed");
        let second = upload(900_002, true);
        leaves(&["components.put", "components.activate"], "allowed");
        operator.delete(&format!("{component}/{second}")).expect_error(409, "state_conflict");
        leaves(&["components.delete"], "refused");
        operator.post(&format!("{component}/rollback"), &json!({})).expect(200);
        leaves(&["components.rollback"], "allowed");
        operator.delete(&format!("{component}/{second}")).expect(200);
        leaves(&["components.delete"], "allowed");
        let provider = "/v1/operator/providers/some.thing";
        operator.put(provider, &json!({ "kind": "http", "url": "https://example.com" })).expect(200);
        leaves(&["providers.put"], "allowed");
        operator.delete(provider).expect(200);
        leaves(&["providers.delete"], "allowed");
        world.fund(&tenant, 100);
        leaves(&["credits.create"], "allowed");
        operator.delete(provider).expect_error(404, "not_found");
        leaves(&["providers.delete"], "refused");
    }
}
