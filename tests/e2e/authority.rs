//! The matrix: every described operation, by every kind of principal, under every way to name a
//! subject, held against `tests/authority.tsv`.
//!
//! Each request carries a query parameter that no operation knows. What is admitted is therefore
//! refused as malformed before anything is done, and what is not says why: so nothing is changed,
//! and an answer tells exactly whether authority let the request pass.

use std::collections::BTreeMap;
use std::thread;

use charter_tests::tenant::{PASSWORD, id, unique};
use charter_tests::{Answer, Client, Database, Tenant, World, on_both};
use serde_json::{Value, json};

use crate::accounts::browser;

const MATRIX: &str = include_str!("../authority.tsv");
/// Names nothing.
const NOBODY: &str = "0197c0de-0000-7000-8000-000000000000";

type Matrix = BTreeMap<&'static str, BTreeMap<&'static str, &'static str>>;

/// The cells of each class, by column.
fn matrix() -> Matrix {
    let mut lines = MATRIX.lines().filter(|line| !line.starts_with('#'));
    let columns: Vec<&str> = lines.next().unwrap().split('\t').skip(1).collect();
    let row = |line: &'static str| {
        let mut cells = line.split('\t');
        (cells.next().unwrap(), columns.iter().copied().zip(cells).collect())
    };
    lines.map(row).collect()
}

/// Whether a role is admitted by a cell of an operation that may ask for an admin besides.
fn admits(cell: &str, admin_only: bool, role: &str) -> bool {
    let admin = ["admin", "owner"].contains(&role);
    let by_cell = match cell {
        "viewer" => true,
        "developer" => admin || role == "developer",
        "approver" => admin || role == "approver",
        "admin" => admin,
        _ => false,
    };
    by_cell && (admin || !admin_only || cell == "approver")
}

/// One operation as it is described.
struct Operation {
    method: String,
    path: String,
    class: String,
    admin_only: bool,
    user_mount: bool,
}

/// Every described operation that takes a credential of an organization. One without a class, or of
/// a class without a row, is a fault.
fn operations(world: &World, matrix: &Matrix) -> Vec<Operation> {
    let described = world.anonymous().get("/openapi.json").expect(200);
    let mut found = Vec::new();
    for (path, methods) in described["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let class = operation["x-authority"].as_str().unwrap_or_default().to_owned();
            assert!(matrix.contains_key(class.as_str()), "{method} {path}: no row for {class:?}");
            if ["open", "inbound", "operator"].contains(&class.as_str()) {
                continue;
            }
            found.push(Operation {
                method: method.to_uppercase(),
                path: path.clone(),
                class,
                admin_only: operation["x-role"] == "admin",
                user_mount: path.starts_with("/v1/users/{user_id}/"),
            });
        }
    }
    assert!(found.len() > 100, "only {} operations are described", found.len());
    found
}

/// A credential, with what it is pinned to.
struct Principal {
    name: String,
    client: Client,
    column: &'static str,
    role: &'static str,
    project: Option<String>,
    user: Option<String>,
}

/// An organization with a second project, and a user of its own in each.
struct Bed {
    tenant: Tenant,
    stranger: Tenant,
    other_project: String,
    user: String,
    other_user: String,
    user_elsewhere: String,
}

impl Bed {
    fn new(world: &World) -> Self {
        let (tenant, stranger) = (world.register(), world.register());
        let made = tenant.client.post("/v1/projects", &json!({ "name": "second" })).expect(201);
        let other_project = id(&made["project"]);
        let (user, other_user) = (tenant.user("own"), tenant.user("other"));
        let within = tenant.client.with("x-service-project-id", &other_project);
        let made = within.post("/v1/users", &json!({ "name": "elsewhere" })).expect(201);
        let user_elsewhere = id(&made["user"]);
        Self { tenant, stranger, other_project, user, other_user, user_elsewhere }
    }

    fn session(&self, world: &World, role: &str) -> Client {
        let email = format!("{}@example.com", unique("member"));
        let owner = browser(world, &self.tenant.email, PASSWORD).0;
        let wish = json!({ "email": email, "role": role });
        let invited = owner.post("/v1/organization/members", &wish).expect(201);
        let token = invited["invitation"]["accept_token"].clone();
        let body = json!({ "token": token, "password": PASSWORD });
        world.anonymous().post("/v1/auth/invitations/accept", &body).expect(201);
        browser(world, &email, PASSWORD).0
    }

    fn principals(&self, world: &World) -> Vec<Principal> {
        let owner = browser(world, &self.tenant.email, PASSWORD).0;
        let key = |wishes: Value| {
            let mut wishes = wishes;
            wishes["name"] = unique("key").into();
            let made = owner.post("/v1/auth/keys", &wishes).expect(201);
            world.anonymous().bearer(made["key"].as_str().unwrap())
        };
        let mut all = Vec::new();
        all.push(Principal {
            name: "owner by session".into(),
            client: owner.clone(),
            column: "session",
            role: "owner",
            project: None,
            user: None,
        });
        // Nobody makes a key that owns.
        for role in ["viewer", "developer", "approver", "admin"] {
            let mut add = |column: &'static str, client, project: bool, user: bool| {
                all.push(Principal {
                    name: format!("{role} by {column}, pins {project}/{user}"),
                    client,
                    column,
                    role,
                    project: project.then(|| self.tenant.project.clone()),
                    user: user.then(|| self.user.clone()),
                });
            };
            add("key", key(json!({ "role": role })), false, false);
            let pinned = json!({ "role": role, "project_id": self.tenant.project });
            add("project", key(pinned), true, false);
            // A key that is pinned to a user is pinned to that user's project too.
            add("user", key(json!({ "role": role, "user_id": self.user })), true, true);
            add("session", self.session(world, role), false, false);
        }
        all
    }
}

/// How a request names its subject, and what that makes of it.
struct Naming {
    name: &'static str,
    /// The user in the path, where the operation is served there.
    path_user: Option<String>,
    headers: Vec<(&'static str, String)>,
    /// The project that stands before the path.
    prefix: Option<String>,
}

fn namings(bed: &Bed) -> Vec<Naming> {
    let user = |name, value: &str| Naming {
        name,
        path_user: Some(value.to_owned()),
        headers: Vec::new(),
        prefix: None,
    };
    let header = |name, header: &'static str, value: &str| Naming {
        name,
        path_user: None,
        headers: vec![(header, value.to_owned())],
        prefix: None,
    };
    let prefix = |name, value: &str| Naming {
        name,
        path_user: None,
        headers: Vec::new(),
        prefix: Some(value.to_owned()),
    };
    let (by_user, by_project) = ("x-service-user-id", "x-service-project-id");
    let stranger = &bed.stranger;
    vec![
        Naming { name: "nobody", path_user: None, headers: Vec::new(), prefix: None },
        user("default", "default"),
        user("me", "me"),
        user("own", &bed.user),
        user("other", &bed.other_user),
        user("elsewhere", &bed.user_elsewhere),
        user("stranger", &stranger.user),
        header("header me", by_user, "me"),
        header("header own", by_user, &bed.user),
        header("header other", by_user, &bed.other_user),
        header("header stranger", by_user, &stranger.user),
        header("header project", by_project, &bed.tenant.project),
        header("header other project", by_project, &bed.other_project),
        header("header stranger's project", by_project, &stranger.project),
        prefix("prefix", &bed.tenant.project),
        prefix("other prefix", &bed.other_project),
        prefix("stranger's prefix", &stranger.project),
    ]
}

/// What a request should come to.
#[derive(Debug, PartialEq)]
enum Expected {
    Admitted,
    Absent,
    Forbidden(&'static [&'static str]),
}

fn expected(
    matrix: &Matrix,
    bed: &Bed,
    operation: &Operation,
    principal: &Principal,
    naming: &Naming,
) -> Expected {
    let named_user = naming.path_user.as_deref().or_else(|| {
        naming.headers.iter().find(|(name, _)| *name == "x-service-user-id").map(|(_, id)| &**id)
    });
    let named_project = naming.prefix.as_deref().or_else(|| {
        let named = naming.headers.iter().find(|(name, _)| *name == "x-service-project-id");
        named.map(|(_, id)| &**id)
    });
    if named_project == Some(&bed.stranger.project) {
        return Expected::Absent;
    }
    if principal.project.is_some() && named_project == Some(&bed.other_project) {
        return Expected::Forbidden(&["key_project_mismatch"]);
    }
    match named_user {
        Some(user) if user == bed.stranger.user || user == bed.user_elsewhere => {
            return Expected::Absent;
        }
        Some(user) if user == bed.other_user && principal.user.is_some() => {
            return Expected::Absent;
        }
        _ => {}
    }
    let level = match (named_user.is_some() || principal.user.is_some(), named_project) {
        (true, _) => "profile",
        (false, Some(_)) => "project",
        (false, None) if principal.project.is_some() => "project",
        (false, None) => "organization",
    };
    let class = match (operation.class.as_str(), level) {
        ("desk_read", "project") => "project_read",
        ("desk_read", "organization") => "organization_read",
        ("desk_change", "project") => "project_change",
        ("desk_change", "organization") => "organization_change",
        (class, _) => class,
    };
    let cell = matrix[class][principal.column];
    if admits(cell, operation.admin_only, principal.role) {
        return Expected::Admitted;
    }
    match cell {
        "-" => {
            Expected::Forbidden(&["pinned", "key_required", "session_required", "person_required"])
        }
        _ => Expected::Forbidden(&["role_insufficient"]),
    }
}

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

/// What was answered, in the words of what was expected.
fn fits(answer: &Answer, expected: &Expected) -> bool {
    let error = if answer.status >= 400 { answer.error() } else { Value::Null };
    match expected {
        // Malformed, or impossible here: authority has let it pass.
        Expected::Admitted => matches!(answer.status, 400 | 402 | 415 | 501),
        Expected::Absent => answer.status == 404,
        Expected::Forbidden(reasons) => {
            let reason = error["reason"].as_str().unwrap_or_default();
            answer.status == 403 && reasons.contains(&reason)
        }
    }
}

/// Every operation, by one principal, under every name; the wrong answers.
fn wrong(matrix: &Matrix, bed: &Bed, operations: &[Operation], by: &Principal) -> Vec<String> {
    let mut wrong = Vec::new();
    for naming in namings(bed) {
        for operation in operations {
            // A user in the path is named where the operation is served there, and nowhere else.
            if operation.user_mount != naming.path_user.is_some() {
                continue;
            }
            let expected = expected(matrix, bed, operation, by, &naming);
            let answer = call(by, operation, &naming);
            if !fits(&answer, &expected) {
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

#[test]
fn every_principal_may_do_what_the_table_says_however_it_names_the_subject() {
    let world = World::shared(Database::Sqlite);
    let matrix = matrix();
    let (bed, operations) = (Bed::new(world), operations(world, &matrix));
    let principals = bed.principals(world);
    let wrong: Vec<String> = thread::scope(|scope| {
        let half = principals.len().div_ceil(2);
        let parts = principals.chunks(half).map(|part| {
            let (matrix, bed, operations) = (&matrix, &bed, &operations);
            scope.spawn(move || {
                let each = part.iter().map(|by| wrong(matrix, bed, operations, by));
                each.flatten().collect::<Vec<_>>()
            })
        });
        let parts: Vec<_> = parts.collect();
        parts.into_iter().flat_map(|part| part.join().unwrap()).collect()
    });
    let shown = wrong.iter().take(60).cloned().collect::<Vec<_>>().join("\n");
    assert!(wrong.is_empty(), "{} wrong answers:\n{shown}", wrong.len());
}

on_both! {
    fn a_credential_that_does_not_count_is_nobodys(world) {
        let tenant = world.register();
        let made = tenant.client.post("/v1/auth/keys", &json!({ "name": unique("key") })).expect(201);
        let dead = world.anonymous().bearer(made["key"].as_str().unwrap());
        tenant.client.delete(&format!("/v1/auth/keys/{}", id(&made))).expect(200);
        let matrix = matrix();
        for operation in operations(world, &matrix) {
            let naming = Naming { name: "", path_user: None, headers: Vec::new(), prefix: None };
            let path = address(&operation, &naming);
            for client in [&dead, &world.anonymous(), &world.anonymous().bearer("sk_live_nonsense")] {
                let answer = client.call(&operation.method, &path).send();
                assert_eq!(answer.status, 401, "{} {path}: {answer}", operation.method);
            }
        }
    }

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
        let logs = pinned.get("/v1/logs?limit=200").expect(200);
        assert!(!logs["logs"].as_array().unwrap().is_empty());
        assert!(logs["logs"].as_array().unwrap().iter().all(|row| row["project_id"] == json!(bed.other_project)), "{logs}");
        let named = pinned.get("/v1/organization").expect(200)["organization"].clone();
        assert!(named["name"].is_string() && named.get("budget").is_none(), "{named}");
        pinned.post("/v1/projects", &json!({ "name": "third" })).expect_error(403, "forbidden");
        tenant.key(json!({ "role": "developer" })).post("/v1/projects", &json!({ "name": "third" })).expect_error(403, "forbidden");
    }

    fn a_pinned_key_takes_nothing_of_others_however_it_names_itself(world) {
        let bed = Bed::new(world);
        let tenant = &bed.tenant;
        let credit = json!({ "organization_id": tenant.organization, "amount_cents": 100_000, "memo": "x" });
        world.operator().post("/v1/operator/credits", &credit).expect(201);
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
