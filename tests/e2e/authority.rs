//! The matrix: every described operation, by every kind of principal, under every way to name a
//! subject, held against `tests/authority.tsv`; and the class of each, held against
//! `tests/operations.tsv`.
//!
//! Each request carries a query parameter that no operation knows. A request that is admitted is
//! therefore refused as malformed before anything is done, and one that is not says why: so nothing
//! is changed, and an answer tells exactly whether authority let the request pass. All that handlers
//! ask themselves, of the things that ids name, is swept by `foreign`.

use std::thread;

use charter_tests::artefacts::Artefacts;
use charter_tests::patience::until;
use charter_tests::tenant::id;
use charter_tests::world::Builder;
use charter_tests::{Answer, Client, Database, World, on_both};
use serde_json::{Value, json};

use bed::{Bed, Naming, Principal, namings};
use matrix::{Expected, Listed, Matrix, NOBODY, Operation, expectation, operations};

mod bed;
mod foreign;
mod matrix;

/// The path with its parameters filled in: the user of the mount by what is named, all others by
/// nothing that there is.
fn address(operation: &Operation, naming: &Naming) -> String {
    let user = naming.path_user.as_deref().unwrap_or("default");
    let mut path = operation.path.replacen("{user_id}", user, usize::from(operation.user_mount));
    while let (Some(from), Some(to)) = (path.find('{'), path.find('}')) {
        path.replace_range(from..=to, NOBODY);
    }
    if let Some(project) = &naming.prefix {
        path = path.replacen("/v1/", &format!("/v1/projects/{project}/"), 1);
    }
    format!("{path}?no_such_parameter=1")
}

fn call(principal: &Principal, operation: &Operation, naming: &Naming) -> Answer {
    let path = address(operation, naming);
    let mut call = principal.client.call(&operation.method, &path);
    for (name, value) in &naming.headers {
        call = call.header(name, value);
    }
    if operation.method != "GET" && principal.column == "session" {
        // A change by cookie is JSON.
        return call.json(&json!({})).send();
    }
    call.send()
}

/// The names under which a principal tries an operation: a user in the path is named where the
/// operation is served there, and nowhere else.
fn ways<'n>(
    namings: &'n [Naming],
    operation: &Operation,
    by: &Principal,
    turn: usize,
) -> Vec<&'n Naming> {
    let fits = |naming: &&Naming| operation.user_mount == naming.path_user.is_some();
    let all: Vec<&Naming> = namings.iter().filter(fits).collect();
    if !operation.is_within() {
        // Nobody is named to who asks for no organization's credential.
        return all.into_iter().take(1).collect();
    }
    if by.sparse { vec![all[turn % all.len()]] } else { all }
}

/// Every operation, by one principal, under every name; the wrong answers.
fn wrong(matrix: &Matrix, bed: &Bed, operations: &[Operation], by: &Principal) -> Vec<String> {
    let (mut wrong, namings) = (Vec::new(), namings(bed));
    // Nobody in particular asks for open operations: the other principals are somebody.
    let asked = |operation: &&Operation| {
        operation.is_within() || (operation.class == "operator") || by.column == "anonymous"
    };
    for (turn, operation) in operations.iter().filter(asked).enumerate() {
        for naming in ways(&namings, operation, by, turn) {
            let expected = expectation(matrix, bed, operation, by, naming);
            let answer = call(by, operation, naming);
            let open = ["open", "inbound"].contains(&operation.class.as_str());
            // An open operation asks for no credential, though a token of its own may be wrong.
            let asks = answer.status == 401 && answer.text().contains("Authorization");
            let fits = if open { !asks } else { expected.fits(&answer) };
            if !fits {
                let (method, path) = (&operation.method, &operation.path);
                wrong.push(format!(
                    "{method} {path} ({}) by {} naming {}: {expected:?}, not {answer}",
                    operation.class, by.name, naming.name
                ));
            }
        }
    }
    wrong
}

#[track_caller]
fn assert_none(wrong: &[String]) {
    let shown = wrong.iter().take(60).cloned().collect::<Vec<_>>().join("\n");
    assert!(wrong.is_empty(), "{} wrong answers:\n{shown}", wrong.len());
}

#[test]
fn every_principal_may_do_what_the_table_says_however_it_names_the_subject() {
    let world = World::shared(Database::Sqlite);
    let matrix = Matrix::read();
    let bed = Bed::new(world);
    let operations = operations(world, &matrix).unwrap_or_else(|faults| panic!("{faults:?}"));
    let principals = bed.principals(world);
    let wrong: Vec<String> = thread::scope(|scope| {
        let parts = [0, 1].map(|part| {
            let (matrix, bed, operations) = (&matrix, &bed, &operations);
            let own = principals.iter().skip(part).step_by(2);
            scope.spawn(move || {
                own.flat_map(|by| wrong(matrix, bed, operations, by)).collect::<Vec<_>>()
            })
        });
        parts.into_iter().flat_map(|part| part.join().unwrap()).collect()
    });
    assert_none(&wrong);
}

#[test]
fn every_operation_is_of_the_class_that_is_listed_and_asks_for_the_role() {
    let described = operations(World::shared(Database::Sqlite), &Matrix::read()).unwrap();
    let faults = Listed::read().faults(&described);
    assert!(faults.is_empty(), "tests/operations.tsv:\n{}", faults.join("\n"));
}

#[test]
fn a_wrong_line_a_missing_one_and_one_too_many_are_found() {
    let described = operations(World::shared(Database::Sqlite), &Matrix::read()).unwrap();
    let listed = Listed::read();
    for (id, wrong) in [
        ("keys.list", listed.with("keys.list", "organization_read", "-")),
        ("members.remove", listed.with("members.remove", "membership", "admin")),
        ("projects.create", listed.with("projects.create", "organization_change", "-")),
        ("vault.reveal", listed.with("vault.reveal", "profile_read", "-")),
        ("cards.update", listed.without("cards.update")),
        ("nobody.asks", listed.with("nobody.asks", "open", "-")),
    ] {
        let faults = wrong.faults(&described);
        // Once for each mount at which it is described.
        assert!(matches!(faults.len(), 1 | 2), "{id}: {faults:?}");
        assert!(faults.iter().all(|fault| fault.starts_with(&format!("{id} "))), "{faults:?}");
    }
}

#[test]
fn a_wrong_row_and_a_missing_one_are_found() {
    let world = World::shared(Database::Sqlite);
    let (bed, table) = (Bed::new(world), Matrix::read());
    let described = operations(world, &table).unwrap();
    let principals = bed.principals(world);
    for (class, column, cell) in [
        ("project_read", "user", "viewer"),
        ("loosening", "key", "developer"),
        ("profile_change", "session", "developer"),
    ] {
        let wrong_row = table.with(class, column, cell);
        let own: Vec<Operation> =
            described.iter().filter(|operation| operation.class == class).cloned().collect();
        let by = principals.iter().find(|by| by.column == column && by.role == "developer");
        let by = by.unwrap();
        assert_none(&wrong(&table, &bed, &own, by));
        let found = wrong(&wrong_row, &bed, &own, by).len();
        assert!(found >= own.len(), "{class} by {column}: {found} of {}", own.len());
    }
    let faults = operations(world, &table.without("deciding")).unwrap_err();
    assert!(faults.iter().any(|fault| fault.contains("/approve")), "{faults:?}");
}

/// The end of a component's call of each operation.
fn call_nested(by: &Principal, naming: &Naming, operations: &[&Operation]) -> Vec<Value> {
    let step = |operation: &&Operation| {
        let mut parameters = json!({ "no_such_parameter": "1" });
        let names = operation.path.split('{').skip(1).filter_map(|rest| rest.split('}').next());
        names.for_each(|name| parameters[name] = NOBODY.into());
        json!({ "try": { "call": operation.id, "parameters": parameters } })
    };
    let steps: Vec<Value> = operations.iter().map(step).collect();
    let mut call = by.client.call("POST", "/v1/script/peek");
    for (name, value) in &naming.headers {
        call = call.header(name, value);
    }
    let answer = call.json(&json!({ "steps": steps })).send();
    answer.expect(200)["seen"].as_array().unwrap().clone()
}

#[test]
fn a_component_may_do_what_its_caller_may_and_nothing_of_the_hosts() {
    let world = Builder::new().start(Database::Sqlite);
    world.install("script", &Artefacts::get().fixture("script"));
    let (bed, matrix) = (Bed::new(&world), Matrix::read());
    let described = operations(&world, &matrix).unwrap();
    let called: Vec<&Operation> = described
        .iter()
        .filter(|operation| operation.is_within() && !operation.user_mount)
        .filter(|operation| !operation.id.starts_with("script."))
        .collect();
    let principals = bed.principals(&world);
    let keys = principals.iter().filter(|by| ["key", "project", "user"].contains(&by.column));
    let (mut wrong, mut tries) = (Vec::new(), 0);
    for by in keys.filter(|by| by.user.as_ref() != Some(&bed.revoked)) {
        let named = ["nobody", "header own", "header project"];
        for naming in namings(&bed).iter().filter(|naming| named.contains(&naming.name)) {
            if expectation(&matrix, &bed, called[0], by, naming) == Expected::Absent
                || by.project.as_deref().zip(naming.project()).is_some_and(|(own, it)| own != it)
            {
                continue;
            }
            let heard: Vec<Value> =
                called.chunks(40).flat_map(|part| call_nested(by, naming, part)).collect();
            for (operation, heard) in called.iter().zip(&heard) {
                let (failure, reason) = (&heard["failure"], heard["reason"].as_str());
                let expected = match operation.is_hosts {
                    true => Expected::Absent,
                    false => expectation(&matrix, &bed, operation, by, naming),
                };
                let fits = match &expected {
                    Expected::Absent => *failure == "resource_not_found",
                    Expected::Forbidden(reasons) => {
                        reason.is_some_and(|reason| reasons.contains(&reason))
                    }
                    Expected::Admitted => *failure != "forbidden",
                    Expected::Nobody => false,
                };
                tries += 1;
                if !fits {
                    let (id, by, name) = (&operation.id, &by.name, naming.name);
                    wrong.push(format!("{id} by {by} naming {name}: {expected:?}, not {heard}"));
                }
            }
        }
    }
    assert_none(&wrong);
    assert!(tries > 1_000, "only {tries} calls were tried");
}

on_both! {
    fn a_key_of_a_project_sees_and_changes_what_is_of_that_project_alone(world) {
        let bed = Bed::new(world);
        let tenant = &bed.tenant;
        let pinned = tenant.key(json!({ "role": "admin", "project_id": bed.other_project }));
        let hook = |client: &Client, path: &str| {
            let body = json!({ "url": "http://127.0.0.1:9/", "eventTypes": ["*"] });
            id(&client.post(path, &body).expect(201))
        };
        let whole = hook(&tenant.client, "/v1/webhooks");
        let of_other = hook(&tenant.client, &format!("/v1/users/{}/webhooks", bed.user));
        let own = hook(&pinned, "/v1/webhooks");
        let of_own = hook(&pinned, &format!("/v1/users/{}/webhooks", bed.user_elsewhere));
        let seen = |client: &Client| {
            let listed = client.get("/v1/webhooks?limit=200").expect(200);
            let mut seen: Vec<String> = listed["webhooks"].as_array().unwrap().iter().map(id).collect();
            seen.sort();
            seen
        };
        let sorted = |mut ids: Vec<String>| {
            ids.sort();
            ids
        };
        assert_eq!(seen(&pinned), sorted(vec![own.clone(), of_own.clone()]));
        let all = vec![whole.clone(), of_other.clone(), own.clone(), of_own.clone()];
        assert_eq!(seen(&tenant.client), sorted(all));
        for foreign in [&whole, &of_other] {
            pinned.get(&format!("/v1/webhooks/{foreign}")).expect_error(404, "not_found");
            pinned.post(&format!("/v1/webhooks/{foreign}/rotate"), &json!({})).expect_error(404, "not_found");
            pinned.patch(&format!("/v1/webhooks/{foreign}"), &json!({ "active": false })).expect_error(404, "not_found");
            pinned.delete(&format!("/v1/webhooks/{foreign}")).expect_error(404, "not_found");
        }
        pinned.post(&format!("/v1/webhooks/{own}/rotate"), &json!({})).expect(200);

        let accounts = pinned.get("/v1/ledger/accounts").expect(200);
        let names: Vec<&Value> = accounts["accounts"].as_array().unwrap().iter().map(|one| &one["name"]).collect();
        assert!(!names.contains(&&json!("credit")), "{accounts}");
        pinned.get("/v1/ledger/statement?account=credit").expect_error(404, "resource_not_found");

        let spend = pinned.get("/v1/spend?limit=200").expect(200);
        assert!(spend["spend"].as_array().unwrap().iter().all(|row| row["project_id"] == json!(bed.other_project)), "{spend}");
        let read = || pinned.get("/v1/logs?limit=200").expect(200);
        until("a row has its number", || !read()["logs"].as_array().unwrap().is_empty());
        let logs = read();
        assert!(logs["logs"].as_array().unwrap().iter().all(|row| row["project_id"] == json!(bed.other_project)), "{logs}");
        let named = pinned.get("/v1/organization").expect(200)["organization"].clone();
        assert!(named["name"].is_string() && named.get("budget").is_none(), "{named}");
        pinned.post("/v1/projects", &json!({ "name": "third" })).expect_error(403, "forbidden");
        tenant.key(json!({ "role": "developer" })).post("/v1/projects", &json!({ "name": "third" })).expect_error(403, "forbidden");
    }

    fn a_pinned_key_takes_nothing_of_others_however_it_names_itself(world) {
        let bed = Bed::new(world);
        let tenant = &bed.tenant;
        world.fund(tenant, 100_000);
        let funds = json!({ "to_user_id": bed.other_user, "amount_cents": 500, "source": "credit" });
        tenant.client.post("/v1/payments/transfer", &funds).expect(201);
        let balance = |user: &str| tenant.client.get(&format!("/v1/users/{user}/payments/balance")).expect(200);
        let before = (balance(&bed.other_user), balance(&bed.user));
        let pinned = tenant.key(json!({ "role": "admin", "user_id": bed.user }));
        let ways: [(String, Option<&str>); 6] = [
            ("/v1".into(), None),
            ("/v1/users/me".into(), None),
            ("/v1/users/default".into(), None),
            (format!("/v1/users/{}", bed.user), None),
            ("/v1".into(), Some("me")),
            (format!("/v1/projects/{}", tenant.project), None),
        ];
        for (mount, header) in &ways {
            let client = match header {
                Some(user) => pinned.with("x-service-user-id", user),
                None => pinned.clone(),
            };
            let charge = json!({ "customer": bed.other_user, "amount_cents": 100 });
            let answer = client.post(&format!("{mount}/payments/charge"), &charge);
            assert_eq!(answer.expect_error(403, "forbidden")["reason"], "pinned_to_user", "{mount} {header:?}");
            let funds = json!({ "to_user_id": bed.user, "amount_cents": 50_000, "source": "credit" });
            let answer = client.post(&format!("{mount}/payments/transfer"), &funds);
            assert_eq!(answer.expect_error(403, "forbidden")["reason"], "pinned_to_user", "{mount} {header:?}");
            let card = client.post(&format!("{mount}/cards"), &json!({ "cap_cents": 100, "period": "day" })).expect(201);
            let card = id(&card["card"]);
            let raised = client.patch(&format!("{mount}/cards/{card}"), &json!({ "cap_cents": 1_000_000, "period": "day" }));
            assert_eq!(raised.expect_error(403, "forbidden")["reason"], "loosening_not_allowed", "{mount} {header:?}");
            client.post(&format!("{mount}/cards/{card}/freeze"), &json!({})).expect(200);
            let thawed = client.post(&format!("{mount}/cards/{card}/unfreeze"), &json!({}));
            assert_eq!(thawed.expect_error(403, "forbidden")["reason"], "loosening_not_allowed", "{mount} {header:?}");
        }
        assert_eq!((balance(&bed.other_user), balance(&bed.user)), before);
    }

    fn a_viewer_and_a_revoked_profile_are_shown_no_secret(world) {
        let bed = Bed::new(world);
        let tenant = &bed.tenant;
        let at = |path: &str| format!("/v1/users/{}{path}", bed.user);
        tenant.client.put(&at("/vault/api"), &json!({ "value": "s3cret" })).expect(200);
        let card = id(&tenant.client.post(&at("/cards"), &json!({})).expect(201)["card"]);
        let viewer = tenant.key(json!({ "role": "viewer" }));
        let secrets = [at("/vault/api/reveal"), at(&format!("/cards/{card}/number"))];
        for secret in &secrets {
            viewer.post(secret, &json!({})).expect_error(403, "forbidden");
            assert_eq!(viewer.get(secret).status, 405);
        }
        tenant.client.post(&at("/vault/api/reveal"), &json!({})).expect(200);
        tenant.client.post(&format!("/v1/users/{}/revoke", bed.user), &json!({})).expect(200);
        for secret in &secrets {
            let answer = tenant.client.post(secret, &json!({}));
            assert_eq!(answer.expect_error(403, "forbidden")["reason"], "profile_revoked");
        }
    }
}
