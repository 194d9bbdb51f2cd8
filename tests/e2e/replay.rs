//! A repeated `Idempotency-Key` answers again and acts no second time: every change that the host
//! and the primitives offer, read from the description that the server publishes, so that a new one
//! that no line here makes twice fails the sweep.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::Barrier;

use charter_tests::artefacts::Artefacts;
use charter_tests::patience::{PATIENCE, look_for};
use charter_tests::tenant::{PASSWORD, id, unique};
use charter_tests::world::Builder;
use charter_tests::{Answer, Client, Tenant, World, cases, on_both};
use serde_json::{Value, json};

use crate::accounts::browser;
use crate::governance::in_an_hour;
use crate::members::join;

/// Sends it twice under one key: the same answer, said to be a replay, and nothing said of the
/// first.
#[track_caller]
fn twice(client: &Client, method: &str, path: &str, body: Option<&Value>) -> Answer {
    let key = unique("twice");
    let send = || {
        let call = client.call(method, path).idempotency_key(&key);
        body.map_or_else(|| call.clone().send(), |body| call.clone().json(body).send())
    };
    let first = send();
    assert!((200..300).contains(&first.status), "{first}");
    same(&first, &send());
    first
}

#[track_caller]
fn same(first: &Answer, second: &Answer) {
    assert_eq!(first.header("idempotent-replayed"), None, "{first}");
    assert_eq!(
        (second.status, second.header("idempotent-replayed")),
        (first.status, Some("true")),
        "{second}"
    );
    assert_eq!(second.body, first.body, "other bytes at the second time:\n{first}\n{second}");
    assert_eq!(second.header("content-type"), first.header("content-type"));
}

/// How many a list has.
fn count(client: &Client, list: &str, member: &str) -> usize {
    client.get(list).expect(200)[member].as_array().unwrap().len()
}

/// Every change that is described and takes a credential, as `(id, METHOD, path)`.
fn changes(world: &World) -> Vec<(String, String, String)> {
    let described = world.anonymous().get("/openapi.json").expect(200);
    let mut found = Vec::new();
    for (path, methods) in described["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let Some(name) = operation["operationId"].as_str() else { continue };
            let open = operation["security"].as_array().is_none_or(Vec::is_empty);
            if !open && method != "get" && !path.starts_with("/v1/users/{user_id}/") {
                found.push((name.to_owned(), method.to_uppercase(), path.clone()));
            }
        }
    }
    found
}

/// Whether a concrete path is one of a template.
pub fn fits(template: &str, path: &str) -> bool {
    let path = path.split('?').next().unwrap_or_default();
    let (mut left, mut right) = (template.split('/'), path.split('/'));
    loop {
        match (left.next(), right.next()) {
            (None, None) => return true,
            (Some(one), Some(other)) if one.starts_with('{') || one == other => {}
            _ => return false,
        }
    }
}

/// The requests that were made twice, by method and path.
#[derive(Default)]
struct Made(RefCell<BTreeSet<(String, String)>>);

impl Made {
    fn note(&self, method: &str, path: &str) {
        self.0.borrow_mut().insert((method.to_owned(), path.to_owned()));
    }

    /// Of the described changes that `wanted` admits, those that no line made.
    fn missing(&self, world: &World, wanted: impl Fn(&str) -> bool) -> Vec<String> {
        let made = self.0.borrow();
        let all = changes(world).into_iter().filter(|(name, ..)| wanted(name));
        let missing = all.filter(|(_, method, path)| {
            !made.iter().any(|(by, at)| by == method && fits(path, at))
        });
        missing.map(|(name, ..)| name).collect()
    }
}

fn primitives(world: &World) -> Vec<String> {
    let listed = world.operator().get("/v1/operator/components").expect(200);
    listed["components"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["name"].as_str().unwrap().to_owned())
        .collect()
}

fn is_of(names: &[String], operation: &str) -> bool {
    names.iter().any(|name| operation.split('.').next() == Some(name))
}

/// Everything that an organization's key can change through the host, with what each leaves in a
/// list.
fn tenancy(world: &World, tenant: &Tenant, made: &Made) {
    let client = &tenant.client;
    let step =
        |method: &str, path: &str, body: Option<Value>, list: &str, member: &str, change: isize| {
            let before = count(client, list, member);
            let answer = twice(client, method, path, body.as_ref());
            made.note(method, path);
            assert_eq!(
                Some(count(client, list, member)),
                before.checked_add_signed(change),
                "{method} {path} acted other than once"
            );
            answer.json()
        };
    let body = |value: Value| Some(value);

    let key = step("POST", "/v1/auth/keys", body(json!({"name": "k"})), "/v1/auth/keys", "keys", 1);
    step("DELETE", &format!("/v1/auth/keys/{}", id(&key)), None, "/v1/auth/keys", "keys", -1);

    for path in ["/v1/organization", "/v1/company"] {
        let renamed =
            step("PATCH", path, body(json!({"name": path})), "/v1/projects", "projects", 0);
        assert_eq!(renamed["organization"]["name"], path);
    }
    let invitation = json!({"email": format!("{}@example.com", unique("guest")), "role": "viewer"});
    let invited = step(
        "POST",
        "/v1/organization/members",
        body(invitation),
        "/v1/organization/invitations",
        "invitations",
        1,
    );
    let path = format!("/v1/organization/invitations/{}", id(&invited["invitation"]));
    step("DELETE", &path, None, "/v1/organization/invitations", "invitations", -1);

    let person = join(world, tenant, client, "developer").1;
    let path = format!("/v1/organization/members/{person}");
    let members = "/v1/organization/members";
    step("PATCH", &path, body(json!({"role": "viewer"})), members, "members", 0);
    step("DELETE", &path, None, members, "members", -1);

    let project =
        step("POST", "/v1/projects", body(json!({"name": "P"})), "/v1/projects", "projects", 1);
    let path = format!("/v1/projects/{}", id(&project["project"]));
    step("PATCH", &path, body(json!({"name": "Q"})), "/v1/projects", "projects", 0);
    step("POST", &format!("{path}/restore"), None, "/v1/projects", "projects", 0);

    let kit = step("POST", "/v1/kits", body(json!({"name": "kit"})), "/v1/kits", "kits", 1);
    let kit_path = format!("/v1/kits/{}", id(&kit["kit"]));
    let changed = step("PATCH", &kit_path, body(json!({"name": "kit 2"})), "/v1/kits", "kits", 0);
    assert_eq!(changed["kit"]["version"], 2);
    assert_eq!(
        client.get(&kit_path).expect(200)["kit"]["version"],
        2,
        "a repeated change changed again"
    );

    let rules = json!({"rules": [{"id": "r", "effect": "deny", "actions": ["script.send"]}]});
    let policy = step("PUT", "/v1/governance/policy", body(rules), "/v1/projects", "projects", 0);
    assert_eq!(
        client.get("/v1/governance/policy").expect(200),
        policy,
        "a repeated policy is another version"
    );
    let limits = json!({"limits": [{"id": "l", "actions": ["script.send"], "period": "day", "max_count": 5}]});
    step("PUT", "/v1/governance/limits", body(limits), "/v1/projects", "projects", 0);
    let grant = json!({"user_id": tenant.user, "actions": ["*"], "until": "2099-01-01T00:00:00Z", "reason": "r"});
    client.post("/v1/governance/grants", &grant).expect_error(400, "invalid_input");
    let grant = json!({"user_id": tenant.user, "actions": ["*"], "until": in_an_hour(client), "reason": "r"});
    let grants = "/v1/governance/grants";
    let given = step("POST", grants, body(grant), grants, "grants", 1);
    step("DELETE", &format!("{grants}/{}", id(&given["grant"])), None, grants, "grants", -1);
    let question = json!({"action": "script.spend", "amount_micro_usd": 1});
    step("POST", "/v1/governance/simulate", body(question), "/v1/projects", "projects", 0);

    // Nobody is at this address; what is queued for it is all that counts here.
    let hooks = "/v1/webhooks";
    let wish = json!({"url": "http://192.0.9.1/hook", "eventTypes": ["approval.resolved"]});
    let hook = step("POST", hooks, body(wish), hooks, "webhooks", 1);
    let hook_path = format!("{hooks}/{}", id(&hook));
    step("PATCH", &hook_path, body(json!({"eventTypes": ["*"]})), hooks, "webhooks", 0);
    step("POST", &format!("{hook_path}/rotate"), body(json!({})), hooks, "webhooks", 0);
    let queued = format!("{hook_path}/deliveries");
    let test =
        step("POST", &format!("{hook_path}/test"), body(json!({})), &queued, "deliveries", 1);
    let again = format!("{queued}/{}/redeliver", id(&test["delivery"]));
    step("POST", &again, body(json!({})), &queued, "deliveries", 1);
    step("DELETE", &hook_path, None, hooks, "webhooks", -1);

    let user = step("POST", "/v1/users", body(json!({"name": "u"})), "/v1/users", "users", 1);
    let user_path = format!("/v1/users/{}", id(&user["user"]));
    step("PATCH", &user_path, body(json!({"name": "v"})), "/v1/users", "users", 0);
    step("POST", &format!("{user_path}/revoke"), body(json!({})), "/v1/users", "users", 0);
    step("POST", &format!("{user_path}/restore"), None, "/v1/users", "users", 0);
    step("DELETE", &user_path, None, "/v1/users", "users", -1);
    step("DELETE", &kit_path, None, "/v1/kits", "kits", -1);
    step("DELETE", &path, None, "/v1/projects", "projects", -1);
}

/// The changes of a person to the session that asks for them.
fn sessions(world: &World, made: &Made) {
    let (first, second) = (world.register(), world.register());
    let invitation = json!({"email": first.email, "role": "developer"});
    let token = second.client.post("/v1/organization/members", &invitation).expect(201)["invitation"]["accept_token"].clone();
    let accepted = json!({"token": token, "password": PASSWORD});
    world.anonymous().post("/v1/auth/invitations/accept", &accepted).expect(201);
    let sign_in = || browser(world, &first.email, PASSWORD).0;
    let (person, elsewhere) = (sign_in(), sign_in());

    let path = "/v1/auth/session/switch-company";
    let (there, back) = (unique("there"), unique("back"));
    let switch = |key: &str, to: &Tenant| {
        person
            .call("POST", path)
            .idempotency_key(key)
            .json(&json!({"company_id": to.organization}))
            .send()
    };
    let stands = || person.get("/v1/auth/session").expect(200)["organization"]["id"].clone();
    let moved = switch(&there, &second);
    moved.expect(200);
    // A key counts within one organization, and the session stands in the other by now: this is
    // another request, and finds nothing left to do.
    let again = switch(&there, &second);
    assert_eq!(
        (again.expect(200), again.header("idempotent-replayed")),
        (moved.expect(200), None),
        "{again}"
    );
    assert_eq!(stands(), second.organization.as_str());
    // Asked again from where it was asked first, it is answered again, and moves nobody.
    switch(&back, &first).expect(200);
    same(&moved, &switch(&there, &second));
    assert_eq!(stands(), first.organization.as_str(), "a repeated move moved again");
    made.note("POST", path);

    // The changes of a person to all of their sessions.
    let own = world.register();
    let [person_of_many, second, _third] = [(); 3].map(|()| browser(world, &own.email, PASSWORD));
    let person_of_many = person_of_many.0;
    let one = format!("/v1/auth/sessions/{}", second.1["session"]["id"].as_str().unwrap());
    let changed = json!({"password": PASSWORD, "new_password": "an entirely different password"});
    for (method, path, body, ended) in [
        ("DELETE", one.as_str(), None, None),
        ("DELETE", "/v1/auth/sessions", None, Some(1)),
        ("PUT", "/v1/auth/password", Some(&changed), Some(0)),
    ] {
        let told = twice(&person_of_many, method, path, body).json();
        assert_eq!(told["sessions_ended"].as_i64(), ended, "{told}");
        made.note(method, path);
    }

    // A session that asks again for its own end is gone by then: it is told so, sees no kept
    // answer, and ends nothing else.
    let path = "/v1/auth/session";
    let key = unique("end");
    let end = || person.call("DELETE", path).idempotency_key(&key).send();
    end().expect(200);
    let again = end();
    again.expect_error(401, "unauthorized");
    assert_eq!(again.header("idempotent-replayed"), None, "{again}");
    elsewhere.get(path).expect(200);
    made.note("DELETE", path);
}

/// Approvals: each word is said once, and each approved request is made once.
fn approvals(world: &World, made: &Made) {
    let tenant = world.register();
    let rules =
        json!({"rules": [{"id": "r", "effect": "require_approval", "actions": ["script.spend"]}]});
    tenant.client.put("/v1/governance/policy", &rules).expect(200);
    let person = browser(world, &tenant.email, PASSWORD).0;
    let steps = json!({"steps": [{"leave": "script.spend", "amount": 1, "as": "p"}, {"capture": "p", "amount": 1}]});
    // A hold is in doubt after something left the host under it and nobody said what became of
    // that.
    let lost = json!({"steps": [{"leave": "script.send", "as": "p"}, {"dispatch": "p"}]});
    tenant.client.post("/v1/script", &lost).expect(200);
    let doubted = tenant.client.get("/v1/governance/holds?state=in_doubt").expect(200);
    let path =
        format!("/v1/governance/holds/{}/resolve", doubted["holds"][0]["id"].as_str().unwrap());
    twice(
        &person,
        "POST",
        &path,
        Some(&json!({"outcome": "voided", "reason": "it never arrived"})),
    );
    made.note("POST", &path);
    for decision in ["approve", "deny"] {
        let waiting = tenant.client.post("/v1/script", &steps).expect(202);
        let path = format!("/v1/approvals/{}/{decision}", waiting["approval_id"].as_str().unwrap());
        let decided = twice(&person, "POST", &path, Some(&json!({}))).json();
        assert_eq!(decided["approval"]["decisions"].as_array().map(Vec::len), Some(1), "{decided}");
        made.note("POST", &path);
    }
}

/// A job that sleeps for longer than this takes is cancelled, once.
fn job(tenant: &Tenant, made: &Made) {
    let client = &tenant.client;
    let slow =
        json!({"steps": [{"enqueue": [{"sleep_ms": 10_000}], "public": true, "attempts": 1}]});
    let enqueued = client.post("/v1/script", &slow).expect(200);
    let path = format!("/v1/jobs/{}", enqueued["seen"][0].as_str().unwrap());
    let cancelled = twice(client, "DELETE", &path, None);
    assert_eq!(cancelled.json()["job"]["status"], "cancelled", "{cancelled}");
    assert_eq!(count(client, "/v1/jobs?status=cancelled", "jobs"), 1);
    // Without the key it would be told that there is nothing left to cancel.
    client.delete(&path).expect_error(409, "state_conflict");
    made.note("DELETE", &path);
}

on_both! {
    fn each_change_of_the_primitives_is_made_once_however_often_it_is_asked_for(world) {
        let made = Made::default();
        for (_, path) in cases::all() {
            // The case itself looks at what there is after each step: a second effect would show
            // there.
            cases::run_through(world, &path, "company", &mut |call| {
                if call.method() == "GET" {
                    return call.send();
                }
                let call = call.idempotency_key(&unique("case"));
                let first = call.clone().send();
                if (200..300).contains(&first.status) {
                    let again = call.clone().send();
                    if call.path().ends_with("/reveal") {
                        // An answer that shows a secret is not kept.
                        let error = again.expect_error(409, "state_conflict");
                        assert_eq!(error["reason"], "answer_not_kept", "{again}");
                    } else {
                        same(&first, &again);
                    }
                    made.note(call.method(), call.path());
                }
                first
            });
        }
        let names = primitives(world);
        // A card's number is its issuer's, and no case has one: issuer.rs has.
        let wanted = |name: &str| is_of(&names, name) && name != "cards.number";
        assert_eq!(made.missing(world, wanted), Vec::<String>::new(), "no case makes these succeed");
    }

    fn a_replay_leaves_no_audit_row_of_its_own(world) {
        let tenant = world.register();
        let rows = || tenant.client.get("/v1/usage").expect(200)["usage"]["audit_rows"].as_u64().unwrap();
        let settled = |expected: u64| {
            look_for(PATIENCE, &format!("{expected} rows are numbered"), || match rows() {
                some if some < expected => Err(format!("there are {some}")),
                _ => Ok(()),
            });
        };
        // Rows are numbered a moment after their commit, in order: one more change of each kind
        // flushes what a replay had left. The registration's own row is numbered after its answer
        // too: what is counted from has to stand first.
        let mut expected = 1;
        settled(expected);
        assert_eq!(rows(), expected, "a registration leaves one row");
        for (path, name) in [("/v1/users", "user"), ("/v1/kits", "kit"), ("/v1/queue", "queue")] {
            twice(&tenant.client, "POST", path, Some(&json!({ "name": name })));
            tenant.client.post(path, &json!({ "name": format!("{name} last") })).expect(201);
            expected += 2;
            settled(expected);
            assert_eq!(rows(), expected, "{path}");
        }
    }

    fn whoever_is_nobody_yet_has_no_key_to_be_replayed_by(world) {
        let email = format!("{}@example.com", unique("nobody"));
        let body = json!({"email": email, "password": PASSWORD, "company_name": "Twice"});
        let ask = |path: &str| world.anonymous().call("POST", path).idempotency_key("anyone").json(&body).send();
        ask("/v1/auth/register").expect(201);
        // Were it replayed, a stranger who guessed the key would read the first one's API key.
        let again = ask("/v1/auth/register");
        assert!((400..500).contains(&again.status) && !again.text().contains("api_key"), "{again}");
        let login = || world.anonymous().call("POST", "/v1/auth/login").idempotency_key("anyone").json(&json!({"email": email, "password": PASSWORD})).send();
        let (first, second) = (login(), login());
        assert_eq!((first.status, second.status), (200, 200), "{second}");
        for answer in [&again, &first, &second] {
            assert_eq!(answer.header("idempotent-replayed"), None, "{answer}");
        }
        assert_ne!(first.body, second.body, "each login is a session of its own");
    }

    fn another_request_under_the_same_key_is_refused_and_does_nothing(world) {
        let tenant = world.register();
        let made = |body: Value| tenant.client.call("POST", "/v1/users").idempotency_key("one").json(&body).send();
        made(json!({"name": "first"})).expect(201);
        let error = made(json!({"name": "second"})).expect_error(409, "duplicate_request");
        assert_eq!((&error["reason"], &error["param"]), (&json!("idempotency_conflict"), &json!("Idempotency-Key")));
        let queue = |name: &str| tenant.client.call("POST", "/v1/queue").idempotency_key("one").json(&json!({"name": name})).send();
        // Another operation is another key.
        queue("first").expect(201);
        queue("second").expect_error(409, "duplicate_request");
        assert_eq!((count(&tenant.client, "/v1/users", "users"), count(&tenant.client, "/v1/queue", "queues")), (2, 1));
        // And so is another organization's, and another user's.
        let other = world.register();
        other.client.call("POST", "/v1/users").idempotency_key("one").json(&json!({"name": "second"})).send().expect(201);
        let path = format!("/v1/users/{}/queue", tenant.user("agent"));
        tenant.client.call("POST", &path).idempotency_key("one").json(&json!({"name": "second"})).send().expect(201);
    }

    fn of_many_at_once_one_acts_and_the_others_are_told(world) {
        let tenant = world.register();
        for (path, body, list, member) in [
            ("/v1/kits", json!({"name": "at once"}), "/v1/kits", "kits"),
            ("/v1/queue", json!({"name": "at once"}), "/v1/queue", "queues"),
        ] {
            let before = count(&tenant.client, list, member);
            let start = Barrier::new(6);
            let ask = || tenant.client.call("POST", path).idempotency_key("at-once").json(&body).send();
            let answers: Vec<Answer> = std::thread::scope(|scope| {
                let one = || {
                    start.wait();
                    ask()
                };
                let running: Vec<_> = (0..6).map(|_| scope.spawn(one)).collect();
                running.into_iter().map(|one| one.join().unwrap()).collect()
            });
            let last = ask();
            for answer in &answers {
                if answer.status == 409 {
                    answer.expect_error(409, "job_not_ready");
                    assert!(answer.header("retry-after").is_some(), "{answer}");
                } else {
                    assert_eq!((answer.status, &answer.body), (last.status, &last.body), "{answer}");
                }
            }
            let fresh = answers.iter().filter(|it| it.status == 201 && it.header("idempotent-replayed").is_none()).count();
            assert_eq!((fresh, count(&tenant.client, list, member)), (1, before + 1));
            assert_eq!(last.header("idempotent-replayed"), Some("true"), "{last}");
        }
    }
}

on_both! {
    fn each_change_of_the_hosts_is_made_once_however_often_it_is_asked_for(world: Builder::new()) {
        world.install("script", &Artefacts::get().fixture("script"));
        let (made, tenant) = (Made::default(), world.register());
        tenancy(world, &tenant, &made);
        sessions(world, &made);
        job(&tenant, &made);
        approvals(world, &made);
        let names = primitives(world);
        let own = |name: &str| !is_of(&names, name) && !name.starts_with("operator.");
        assert_eq!(made.missing(world, own), Vec::<String>::new(), "no line makes these twice");
    }

    fn each_change_of_the_operators_is_made_once_however_often_it_is_asked_for(world: Builder::new().bare()) {
        let (operator, made) = (world.operator(), Made::default());
        let versions = || operator.get("/v1/operator/components/probe").expect(200)["component"]["versions"].as_array().unwrap().len();
        let upload = |query: &str, wasm: Vec<u8>| {
            let path = format!("/v1/operator/components/probe{query}");
            let key = unique("upload");
            let put = || {
                let call = operator.call("PUT", &path).idempotency_key(&key).header("content-type", "application/wasm");
                call.bytes(wasm.clone()).send()
            };
            let first = put();
            first.expect(201);
            same(&first, &put());
            made.note("PUT", &path);
            first.json()["component"]["digest"].as_str().unwrap().to_owned()
        };
        upload("?activate=true", Artefacts::get().probe(900_001));
        let second = upload("", Artefacts::get().probe(900_002));
        assert_eq!(versions(), 2);
        let step = |method: &str, path: &str, body: Option<Value>| {
            made.note(method, path);
            twice(&operator, method, path, body.as_ref()).json()
        };
        let activated = step("POST", "/v1/operator/components/probe/activate", Some(json!({"digest": second})));
        assert_eq!(activated["component"]["digest"], second);
        // Rolled back twice it would be where it was.
        step("POST", "/v1/operator/components/probe/rollback", Some(json!({})));
        assert_eq!(world.register().client.get("/v1/probe").expect(200)["build"], "900001");
        step("DELETE", &format!("/v1/operator/components/probe/{second}"), None);
        assert_eq!(versions(), 1);
        // That it is given once, what governs money sees in the balance.
        let credit = json!({"organization_id": world.register().organization, "amount_cents": 100, "memo": "once"});
        step("POST", "/v1/operator/credits", Some(credit));
        let binding = json!({"kind": "http", "url": "https://example.com"});
        step("PUT", "/v1/operator/providers/some.thing", Some(binding));
        step("DELETE", "/v1/operator/providers/some.thing", None);
        // A token that the configuration gives is changed there; the same one, once it is the
        // deployment's own, is replaced here.
        world.options().environment.retain(|(name, _)| name != "CHARTER_OPERATOR_TOKEN");
        world.stop();
        world.start();
        let path = "/v1/operator/token/rotate";
        let rotate = |client: &Client| client.call("POST", path).idempotency_key("rotate").send();
        let former = world.operator();
        let first = rotate(&former);
        let token = first.expect(200)["token"].as_str().unwrap().to_owned();
        // With the former token nobody is told the new one, whatever they know of the request. A
        // caller that has the new one already is.
        let again = rotate(&former);
        again.expect_error(401, "unauthorized");
        assert!(!again.text().contains(&token) && again.header("idempotent-replayed").is_none(), "{again}");
        let renewed = world.anonymous().bearer(&token);
        same(&first, &rotate(&renewed));
        renewed.get("/v1/operator/components").expect(200);
        made.note("POST", path);
        assert_eq!(made.missing(world, |name| name.starts_with("operator.")), Vec::<String>::new(), "no line makes these twice");
    }
}
