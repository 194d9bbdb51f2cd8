//! Approvals through the front door: a regulated action waits for a person, its funds held, and is
//! made once.

use charter_tests::artefacts::Artefacts;
use charter_tests::patience::until;
use charter_tests::tenant::{PASSWORD, id, unique};
use charter_tests::world::Builder;
use charter_tests::{Answer, Client, Database, Tenant, World, on_both};
use serde_json::{Value, json};

use crate::accounts::browser;
use crate::governance::{fund, in_an_hour};
use crate::members::join;
use crate::rules::{is_open, play, sights};

const DOLLAR: i64 = 1_000_000;

/// A tenant whose agents ask a person before they spend more than a dollar, and the session of its
/// owner.
fn govern(world: &World, people: u8) -> (Tenant, Client) {
    world.install("script", &Artefacts::get().fixture("script"));
    let tenant = world.register();
    let rule = json!({ "id": "large", "effect": "require_approval", "actions": ["script.*"],
        "when": { "amount_over_micro_usd": DOLLAR }, "approvals_required": people });
    tenant.client.put("/v1/governance/policy", &json!({ "rules": [rule] })).expect(200);
    budget(&tenant, json!({ "cap_cents": 1_000, "period": "day" }));
    let owner = browser(world, &tenant.email, PASSWORD).0;
    (tenant, owner)
}

fn budget(tenant: &Tenant, budget: Value) {
    let kits = tenant.client.get("/v1/kits").expect(200);
    let kit = kits["kits"][0]["id"].as_str().unwrap().to_owned();
    tenant.client.patch(&format!("/v1/kits/{kit}"), &json!({ "budget": budget })).expect(200);
}

fn spend(amount: i64) -> Value {
    json!([
        { "note": "note" },
        { "leave": "script.spend", "amount": amount, "as": "p" },
        { "capture": "p", "amount": amount },
    ])
}

/// Asks, and is told to wait; answers the approval's id.
#[track_caller]
fn waits(answer: &Answer) -> String {
    let told = answer.expect(202);
    assert_eq!(told["status"], "pending_approval", "{answer}");
    for member in ["action", "primitive", "title", "message"] {
        assert!(told[member].is_string(), "{member} is missing: {answer}");
    }
    assert!(
        told["next_steps"][0]["command"]
            .as_str()
            .is_some_and(|command| command.starts_with("curl ")),
        "{answer}"
    );
    assert!(told["next_steps"][0]["description"].is_string(), "{answer}");
    told["approval_id"].as_str().unwrap().to_owned()
}

fn approval(client: &Client, id: &str) -> Value {
    client.get(&format!("/v1/approvals/{id}")).expect(200)["approval"].clone()
}

fn decide(person: &Client, id: &str, how: &str) -> Answer {
    person.post(&format!("/v1/approvals/{id}/{how}"), &json!({ "reason": "as we said" }))
}

/// Waits until nothing more comes of it; answers how it ended.
fn end(client: &Client, id: &str) -> Value {
    let over =
        || !matches!(approval(client, id)["status"].as_str(), Some("approved" | "executing"));
    until("the approval is over", over);
    approval(client, id)
}

fn stands(client: &Client) -> (i64, i64) {
    let told = client
        .post(
            "/v1/governance/simulate",
            &json!({ "action": "script.spend", "amount_micro_usd": 0 }),
        )
        .expect(200);
    let cap = &told["caps"][0];
    (cap["spent_micro_usd"].as_i64().unwrap(), cap["reserved_micro_usd"].as_i64().unwrap())
}

/// The holds that wait for people.
fn pending_holds(client: &Client) -> Value {
    client.get("/v1/governance/holds?state=pending").expect(200)["holds"].clone()
}

fn notes(client: &Client) -> usize {
    client.get("/v1/script/notes").expect(200)["notes"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|note| note["kind"] == "note")
        .count()
}

on_both! {
    fn a_tenant_whose_approved_requests_are_slow_delays_nobody_elses(world: Builder::new().bare()) {
        let (slow, owner) = govern(world, 1);
        budget(&slow, json!({ "cap_cents": 100_000, "period": "day" }));
        let steps = json!([
            { "leave": "script.spend", "amount": 2 * DOLLAR, "as": "p" }, { "sleep_ms": 3_000 },
            { "capture": "p", "amount": 2 * DOLLAR },
        ]);
        let waiting: Vec<String> = (0..10).map(|_| waits(&play(&slow.client, steps.clone()))).collect();
        let (quick, other) = govern(world, 1);
        let id = waits(&play(&quick.client, spend(2 * DOLLAR)));
        for slow in &waiting {
            decide(&owner, slow, "approve").expect(200);
        }
        decide(&other, &id, "approve").expect(200);
        assert_eq!(end(&quick.client, &id)["status"], "succeeded");
        let done = waiting.iter().filter(|id| approval(&slow.client, id)["status"] == "succeeded").count();
        assert!(done < 10, "the neighbour's came last");
        for id in &waiting {
            assert_eq!(end(&slow.client, id)["status"], "succeeded");
        }
        world.books_agree();
    }

    fn approvals_of_a_deleted_user_keep_what_was_decided_and_forget_what_was_asked(world: Builder::new().bare()) {
        let (tenant, owner) = govern(world, 1);
        let (user, name) = (tenant.user("gone"), unique("ada"));
        let own = tenant.client.with("X-Service-User-Id", &user);
        let steps = json!([
            { "leave": "script.spend", "amount": 2 * DOLLAR, "entity": name, "title": name, "message": name, "as": "p" },
            { "capture": "p", "amount": 2 * DOLLAR },
        ]);
        let (made, denied, waiting) = (waits(&play(&own, steps.clone())), waits(&play(&own, steps.clone())), waits(&play(&own, steps)));
        decide(&owner, &made, "approve").expect(200);
        assert_eq!(end(&tenant.client, &made)["status"], "succeeded");
        decide(&owner, &denied, "deny").expect(200);
        assert_eq!(approval(&tenant.client, &waiting)["entity"], json!(name));
        let grant = json!({ "user_id": user, "actions": ["script.*"], "until": in_an_hour(&tenant.client), "reason": name });
        tenant.client.post("/v1/governance/grants", &grant).expect(201);
        tenant.client.delete(&format!("/v1/users/{user}")).expect(200);
        let all = || tenant.client.get("/v1/approvals").expect(200);
        until("what was asked is forgotten", || !all().to_string().contains(&name));
        until("its grants go", || !tenant.client.get("/v1/governance/grants").expect(200).to_string().contains(&name));
        let kept = approval(&tenant.client, &made);
        assert_eq!((&kept["status"], &kept["amount_micro_usd"]), (&json!("succeeded"), &json!(2 * DOLLAR)));
        assert_eq!((&kept["action"], &kept["user_id"]), (&json!("script.spend"), &json!(user)));
        assert_eq!((&kept["decisions"][0]["decision"], &kept["result"]), (&json!("approve"), &Value::Null));
        assert!(kept["resolved_at"].is_string(), "{kept}");
        assert_eq!(approval(&tenant.client, &denied)["status"], "denied");
        // Nobody is left to make the one for that waited: its funds are free, and nobody decides on it.
        assert_eq!(approval(&tenant.client, &waiting)["status"], "canceled");
        let late = decide(&owner, &waiting, "approve").expect_error(409, "state_conflict");
        assert_eq!((&late["reason"], &late["details"]["status"]), (&json!("approval_decided"), &json!("canceled")));
        assert_eq!(pending_holds(&tenant.client), json!([]));
        world.books_agree();
    }

    fn what_a_person_approves_is_made_once_as_it_was_asked(world: Builder::new().bare()) {
        let (tenant, owner) = govern(world, 1);
        play(&tenant.client, spend(DOLLAR)).expect(200);
        let ask = || tenant.client.call("POST", "/v1/script").idempotency_key("one").json(&json!({ "steps": spend(3 * DOLLAR) })).send();
        let first = ask();
        let id = waits(&first);
        let again = ask();
        assert_eq!((waits(&again), again.header("idempotent-replayed")), (id.clone(), Some("true")));
        assert_eq!((stands(&tenant.client), notes(&tenant.client)), ((DOLLAR, 3 * DOLLAR), 1), "held, and nothing written");
        // The command that it is given works as printed.
        let command = first.expect(202)["next_steps"][0]["command"].as_str().unwrap().to_owned();
        let told = std::process::Command::new("/bin/sh").args(["-c", &command]).env("CHARTER_API_KEY", &tenant.key).output().unwrap();
        assert!(String::from_utf8_lossy(&told.stdout).contains(&id), "{command}: {told:?}");
        let waiting = approval(&tenant.client, &id);
        assert_eq!((&waiting["status"], &waiting["amount_micro_usd"]), (&json!("pending_approval"), &json!(3 * DOLLAR)));
        assert_eq!(waiting["policy_ids"], json!(["large"]));
        // No key decides, whatever its role.
        assert_eq!(decide(&tenant.client, &id, "approve").expect_error(403, "forbidden")["reason"], "person_required");
        decide(&owner, &id, "approve").expect(200);
        let ended = end(&tenant.client, &id);
        assert_eq!((&ended["status"], &ended["error"]), (&json!("succeeded"), &Value::Null), "{ended}");
        assert_eq!(ended["result"]["seen"].as_array().map(Vec::len), Some(2), "{ended}");
        assert_eq!((stands(&tenant.client), notes(&tenant.client)), ((4 * DOLLAR, 0), 2));
        // The key is answered by what the request was answered in the end, and acts no second time.
        let last = ask();
        assert_eq!((last.status, last.header("idempotent-replayed")), (200, Some("true")), "{last}");
        assert_eq!(last.json(), ended["result"]);
        decide(&owner, &id, "deny").expect_error(409, "state_conflict");
        decide(&owner, &id, "approve").expect(200);
        assert_eq!((stands(&tenant.client), notes(&tenant.client)), ((4 * DOLLAR, 0), 2));
        world.books_agree();
    }

    fn an_answer_that_is_too_large_or_shows_a_secret_is_kept_by_no_approval(world: Builder::new().bare()) {
        let (tenant, owner) = govern(world, 1);
        let note = |number: u32| json!({ "note": "note", "slug": format!("{number}-{}", "x".repeat(400)) });
        play(&tenant.client, (0..100).map(note).collect()).expect(200);
        let list = json!({ "call": "script.notes" });
        let small = spend(2 * DOLLAR);
        let large: Value = small.as_array().unwrap().iter().chain(std::iter::repeat_n(&list, 12)).cloned().collect();
        let shown = json!({ "call": "script.reveal", "body": { "steps": [] } });
        let shown: Value = small.as_array().unwrap().iter().chain([&shown]).cloned().collect();
        for (path, steps, is_kept) in [
            ("/v1/script", &small, true),
            ("/v1/script", &large, false),
            ("/v1/script/reveal", &small, false),
            ("/v1/script", &shown, false),
        ] {
            let key = unique("key");
            let ask = || tenant.client.call("POST", path).idempotency_key(&key).json(&json!({ "steps": steps })).send();
            let id = waits(&ask());
            assert_eq!(waits(&ask()), id, "asked again it is told of the same");
            assert_eq!(approval(&tenant.client, &id)["result_kept"], Value::Null);
            decide(&owner, &id, "approve").expect(200);
            let over = end(&tenant.client, &id);
            assert_eq!((&over["status"], &over["result_kept"]), (&json!("succeeded"), &json!(is_kept)), "{path}");
            let again = ask();
            if is_kept {
                assert_eq!(again.expect(200), over["result"]);
            } else {
                assert_eq!(over["result"], Value::Null, "{path}");
                assert_eq!(again.expect_error(409, "state_conflict")["reason"], "answer_not_kept");
            }
        }
    }

    fn what_a_person_denies_is_not_made_and_its_funds_are_free(world: Builder::new().bare()) {
        let (tenant, owner) = govern(world, 1);
        let ask = || tenant.client.call("POST", "/v1/script").idempotency_key("two").json(&json!({ "steps": spend(3 * DOLLAR) })).send();
        let id = waits(&ask());
        let denied = decide(&owner, &id, "deny").expect(200);
        assert_eq!((&denied["approval"]["status"], &denied["approval"]["reason"]), (&json!("denied"), &json!("as we said")));
        assert_eq!((stands(&tenant.client), notes(&tenant.client)), ((0, 0), 0));
        decide(&owner, &id, "approve").expect_error(409, "state_conflict");
        assert_eq!(ask().expect_error(403, "forbidden")["reason"], "approval_denied");
        let listed = |status: &str| {
            let found = tenant.client.get(&format!("/v1/approvals?status={status}")).expect(200);
            found["approvals"].as_array().unwrap().len()
        };
        assert_eq!((listed("denied"), listed("pending_approval")), (1, 0));
        // Another organization knows nothing of it.
        let stranger = world.register();
        stranger.client.get(&format!("/v1/approvals/{id}")).expect_error(404, "not_found");
        world.books_agree();
    }

    fn pending_approvals_together_exceed_no_cap(world: Builder::new().bare()) {
        let (tenant, owner) = govern(world, 1);
        let answers: Vec<Answer> = std::thread::scope(|scope| {
            let running: Vec<_> = (0..12).map(|_| scope.spawn(|| play(&tenant.client, spend(2 * DOLLAR)))).collect();
            running.into_iter().map(|one| one.join().unwrap()).collect()
        });
        let ids: Vec<String> = answers.iter().filter(|answer| answer.status == 202).map(waits).collect();
        assert_eq!(ids.len(), 5, "ten dollars hold five times two");
        for refused in answers.iter().filter(|answer| answer.status != 202) {
            assert_eq!(refused.expect_error(403, "forbidden")["reason"], "budget_exceeded");
        }
        assert_eq!(stands(&tenant.client), (0, 10 * DOLLAR));
        decide(&owner, &ids[0], "deny").expect(200);
        for id in &ids[1..] {
            decide(&owner, id, "approve").expect(200);
        }
        for id in &ids[1..] {
            assert_eq!(end(&tenant.client, id)["status"], "succeeded");
        }
        assert_eq!(stands(&tenant.client), (8 * DOLLAR, 0));
        world.books_agree();
    }

    fn two_people_are_two_people(world: Builder::new().bare()) {
        let (tenant, owner) = govern(world, 2);
        let (approver, _) = join(world, &tenant, &owner, "approver");
        let (second, _) = join(world, &tenant, &owner, "approver");
        let (developer, _) = join(world, &tenant, &owner, "developer");
        let id = waits(&play(&tenant.client, spend(3 * DOLLAR)));
        decide(&second, &id, "approve").expect(200);
        // The same person's word counts once.
        decide(&second, &id, "approve").expect(200);
        assert_eq!(approval(&tenant.client, &id)["status"], "pending_approval");
        decide(&developer, &id, "approve").expect_error(403, "forbidden");
        decide(&approver, &id, "approve").expect(200);
        assert_eq!(end(&tenant.client, &id)["status"], "succeeded");
        assert_eq!(stands(&tenant.client), (3 * DOLLAR, 0));
        world.books_agree();
    }

    fn over_a_soft_budget_a_person_decides_and_no_hard_one_gives_way(world: Builder::new().bare()) {
        let (tenant, owner) = govern(world, 1);
        budget(&tenant, json!({ "cap_cents": 100, "period": "day", "hard": false }));
        play(&tenant.client, spend(DOLLAR)).expect(200);
        let foreseen = |amount: i64| {
            let question = json!({ "action": "script.spend", "amount_micro_usd": amount });
            tenant.client.post("/v1/governance/simulate", &question).expect(200)["verdict"].clone()
        };
        assert_eq!(foreseen(DOLLAR), "require_approval");
        let id = waits(&play(&tenant.client, spend(DOLLAR)));
        // All that waits beyond it is bounded by it once more.
        assert_eq!(foreseen(1), "deny");
        let full = play(&tenant.client, spend(1)).expect_error(403, "forbidden");
        assert_eq!((&full["reason"], &full["details"]["scope"]), (&json!("budget_exceeded"), &json!("kit")));
        decide(&owner, &id, "approve").expect(200);
        assert_eq!(end(&tenant.client, &id)["status"], "succeeded");
        assert_eq!(stands(&tenant.client), (DOLLAR, 0), "the excess stands beside the cap");
        tenant.client.patch("/v1/organization", &json!({ "budget": { "cap_cents": 250, "period": "day" } })).expect(200);
        let full = play(&tenant.client, spend(DOLLAR)).expect_error(403, "forbidden");
        assert_eq!((&full["reason"], &full["details"]["scope"]), (&json!("budget_exceeded"), &json!("organization")));
        world.books_agree();
    }

    fn the_same_proposed_twice_with_the_last_beyond_a_soft_budget_is_made_once(world: Builder::new().bare()) {
        let (tenant, owner) = govern(world, 1);
        budget(&tenant, json!({ "cap_cents": 200, "period": "day", "hard": false }));
        let leave = |name: &str| json!({ "leave": "script.spend", "amount": DOLLAR, "as": name });
        let capture = |name: &str| json!({ "capture": name, "amount": DOLLAR });
        let steps = json!([leave("a"), leave("b"), leave("c"), capture("a"), capture("b"), capture("c")]);
        let asked = waits(&play(&tenant.client, steps));
        decide(&owner, &asked, "approve").expect(200);
        let ended = end(&tenant.client, &asked);
        assert_eq!((&ended["status"], &ended["error"]), (&json!("succeeded"), &Value::Null), "{ended}");
        let holds = tenant.client.get("/v1/governance/holds?state=captured").expect(200);
        assert_eq!(holds["holds"].as_array().unwrap().len(), 3);
        world.books_agree();
    }

    fn what_is_let_beyond_a_soft_budget_is_made_under_the_grant_that_its_own_hold_fills(world: Builder::new().bare()) {
        let (tenant, owner) = govern(world, 1);
        budget(&tenant, json!({ "cap_cents": 200, "period": "day", "hard": false }));
        let user = tenant.user("granted");
        let own = tenant.client.with("X-Service-User-Id", &user);
        play(&own, spend(DOLLAR)).expect(200);
        tenant.client.put("/v1/governance/policy", &json!({ "default": "deny", "rules": [] })).expect(200);
        for bound in [json!({ "max_uses": 1 }), json!({ "cap_micro_usd": 3 * DOLLAR })] {
            let mut grant = json!({ "user_id": user, "actions": ["script.*"], "until": in_an_hour(&tenant.client), "reason": "once" });
            grant.as_object_mut().unwrap().extend(bound.as_object().unwrap().clone());
            let grant = id(&tenant.client.post("/v1/governance/grants", &grant).expect(201)["grant"]);
            let asked = waits(&play(&own, spend(2 * DOLLAR)));
            decide(&owner, &asked, "approve").expect(200);
            let ended = end(&tenant.client, &asked);
            assert_eq!((&ended["status"], &ended["error"]), (&json!("succeeded"), &Value::Null), "{ended}");
            tenant.client.delete(&format!("/v1/governance/grants/{grant}")).expect(200);
        }
        assert_eq!(play(&own, spend(DOLLAR)).expect_error(403, "forbidden")["reason"], "policy_denied");
        world.books_agree();
    }

    fn what_has_changed_since_is_looked_at_again(world: Builder::new().bare()) {
        let (tenant, owner) = govern(world, 1);
        // Revoked meanwhile.
        let id = waits(&play(&tenant.client, spend(2 * DOLLAR)));
        tenant.client.post(&format!("/v1/users/{}/revoke", tenant.user), &json!({})).expect(200);
        decide(&owner, &id, "approve").expect(200);
        let failed = end(&tenant.client, &id);
        assert_eq!((&failed["status"], &failed["error"]["reason"]), (&json!("failed"), &json!("profile_revoked")));
        tenant.client.post(&format!("/v1/users/{}/restore", tenant.user), &json!({})).expect(200);
        assert_eq!((stands(&tenant.client), notes(&tenant.client)), ((0, 0), 0));
        // Denied by a rule that is new.
        let id = waits(&play(&tenant.client, spend(2 * DOLLAR)));
        let rules = json!([{ "id": "large", "effect": "require_approval", "actions": ["script.*"], "when": { "amount_over_micro_usd": DOLLAR } },
            { "id": "never", "effect": "deny", "actions": ["script.spend"] }]);
        tenant.client.put("/v1/governance/policy", &json!({ "rules": rules })).expect(200);
        decide(&owner, &id, "approve").expect(200);
        let failed = end(&tenant.client, &id);
        assert_eq!((&failed["status"], &failed["error"]["reason"]), (&json!("failed"), &json!("policy_denied")));
        tenant.client.put("/v1/governance/policy", &json!({ "rules": [rules[0]] })).expect(200);
        assert_eq!((stands(&tenant.client), notes(&tenant.client)), ((0, 0), 0));
        // More than was approved, and worded otherwise than what people have read.
        play(&tenant.client, json!([{ "note": "note" }])).expect(200);
        for by_notes in [
            json!({ "leave": "script.spend", "amount_by_notes": 2 * DOLLAR, "as": "p" }),
            json!({ "leave": "script.spend", "amount": 2 * DOLLAR, "title_by_notes": true, "as": "p" }),
        ] {
            let id = waits(&play(&tenant.client, json!([by_notes, { "capture": "p", "amount": DOLLAR }])));
            play(&tenant.client, json!([{ "note": "note" }])).expect(200);
            decide(&owner, &id, "approve").expect(200);
            let failed = end(&tenant.client, &id);
            assert_eq!((&failed["status"], &failed["error"]["reason"]), (&json!("failed"), &json!("proposal_changed")), "{failed}");
            assert_eq!(stands(&tenant.client), (0, 0));
        }
        world.books_agree();
    }

    fn an_approved_request_is_told_what_it_was_told_when_it_was_asked(world: Builder::new().bare()) {
        let (tenant, owner) = govern(world, 1);
        let made = tenant.client.post("/v1/projects", &json!({ "name": "Staging", "mode": "test" })).expect(201);
        let of_test = tenant.client.with("x-service-project-id", made["project"]["id"].as_str().unwrap());
        let steps = json!([{ "leave": "script.spend", "amount": 2 * DOLLAR, "as": "p" }, { "cancel": "p" }, { "told": true }]);
        for (client, test) in [(&tenant.client, Value::Null), (&of_test, json!(true))] {
            let nested = json!([{ "call": "script.play", "body": { "steps": [{ "told": true }] } }]);
            let nested = sights(&play(client, nested))[0]["body"]["seen"][0].clone();
            assert_eq!(nested, json!({ "test": test, "by": "script", "who": null }));
            let asked = client.with("x-who", "ann").post("/v1/script", &json!({ "steps": steps }));
            let id = waits(&asked);
            decide(&owner, &id, "approve").expect(200);
            let done = end(client, &id);
            let told = json!({ "test": test, "by": null, "who": "ann" });
            assert_eq!((&done["status"], &done["result"]["seen"][1]), (&json!("succeeded"), &told), "{done}");
        }
    }

    fn what_a_person_alone_may_ask_for_is_made_once_it_is_approved(world: Builder::new().bare()) {
        let (tenant, owner) = govern(world, 1);
        let (second, _) = join(world, &tenant, &owner, "owner");
        let steps = json!([{ "leave": "script.spend", "amount": 2 * DOLLAR, "as": "p" }, { "capture": "p", "amount": DOLLAR }]);
        let id = waits(&owner.post("/v1/script/sign", &json!({ "steps": steps })));
        decide(&second, &id, "approve").expect(200);
        assert_eq!(end(&tenant.client, &id)["status"], "succeeded");
        world.books_agree();
    }

    fn a_failed_approval_shows_nobody_the_sums_that_its_caller_may_see(world: Builder::new().bare()) {
        let (tenant, owner) = govern(world, 1);
        let cap = |cents: i64| json!({ "budget": { "cap_cents": cents, "period": "day" } });
        tenant.client.patch("/v1/organization", &cap(1_000)).expect(200);
        tenant.client.put("/v1/governance/policy", &json!({ "rules": [] })).expect(200);
        play(&tenant.client, spend(7 * DOLLAR)).expect(200);
        let rule = json!({ "id": "ask", "effect": "require_approval", "actions": ["script.*"] });
        tenant.client.put("/v1/governance/policy", &json!({ "rules": [rule] })).expect(200);
        let agent = tenant.user("agent");
        let asking = tenant.client.with("X-Service-User-Id", &agent);
        let id = waits(&play(&asking, spend(2 * DOLLAR)));
        tenant.client.patch("/v1/organization", &cap(800)).expect(200);
        decide(&owner, &id, "approve").expect(200);
        assert_eq!(end(&tenant.client, &id)["status"], "failed");
        let pinned = tenant.key(json!({ "role": "viewer", "user_id": agent }));
        let within = tenant.key(json!({ "role": "viewer", "project_id": tenant.project }));
        for reader in [&pinned, &within, &tenant.client] {
            let error = approval(reader, &id)["error"].clone();
            assert_eq!((&error["reason"], &error["details"]["scope"]), (&json!("budget_exceeded"), &json!("organization")));
            let listed = reader.get("/v1/approvals").expect(200).to_string();
            assert!(!error.to_string().contains("micro_usd"), "{error}");
            for sum in ["cap_micro_usd", "spent_micro_usd", "reserved_micro_usd", "available_micro_usd"] {
                assert!(!listed.contains(sum), "{sum}: {listed}");
            }
        }
        world.books_agree();
    }

    fn what_is_not_made_because_its_key_was_revoked_is_a_row(world: Builder::new().bare()) {
        let (tenant, owner) = govern(world, 1);
        let made = tenant.client.post("/v1/auth/keys", &json!({ "name": "short", "role": "developer" })).expect(201);
        let short = tenant.client.bearer(made["key"].as_str().unwrap());
        let id = waits(&play(&short, spend(2 * DOLLAR)));
        tenant.client.delete(&format!("/v1/auth/keys/{}", made["id"].as_str().unwrap())).expect(200);
        decide(&owner, &id, "approve").expect(200);
        let failed = end(&tenant.client, &id);
        assert_eq!((&failed["status"], &failed["error"]["code"]), (&json!("failed"), &json!("unauthorized")));
        until("the refusal is a row", || {
            let rows = tenant.client.get("/v1/logs?action=script.spend").expect(200)["logs"].clone();
            let is_its = |row: &&Value| row["decision"] == "refused" && row["entity_id"] == json!(id);
            rows.as_array().unwrap().iter().filter(is_its).count() == 1
        });
        assert_eq!((stands(&tenant.client), notes(&tenant.client)), ((0, 0), 0));
        world.books_agree();
    }

    fn what_an_approved_request_calls_of_the_organizations_own_stays_the_organizations(world: Builder::new().bare()) {
        let (tenant, owner) = govern(world, 1);
        let ask = json!({ "id": "ask", "effect": "require_approval", "actions": ["script.send"] });
        tenant.client.put("/v1/governance/policy", &json!({ "rules": [ask] })).expect(200);
        budget(&tenant, json!({ "cap_cents": 50, "period": "day" }));
        fund(world, &tenant, 1_000);
        let rule = |steps: Value| tenant.client.post("/v1/script/rule", &json!({ "steps": steps }));
        rule(json!([{ "open": "w" }])).expect(200);
        play(&tenant.client, json!([{ "open": "w" }])).expect(200);
        let held = |answer: Answer| sights(&answer)[0]["posted"].as_i64().unwrap();
        let balances = || {
            let look = json!([{ "balance": "w" }]);
            (held(rule(look.clone())), held(play(&tenant.client, look)))
        };
        let pay = json!([
            { "leave": "script.spend", "amount": DOLLAR, "as": "q", "pays": ["credit", "w"] },
            { "capture": "q", "amount": DOLLAR },
        ]);
        let asks = json!([
            { "leave": "script.send", "as": "p" }, { "capture": "p", "amount": 0 },
            { "call": "script.rule", "body": { "steps": pay } },
        ]);
        let approve = |client: &Client| {
            let id = waits(&play(client, asks.clone()));
            decide(&owner, &id, "approve").expect(200);
            end(&tenant.client, &id)
        };
        // It named nobody: no profile and no kit is a party to what the organization pays.
        let made = approve(&tenant.client);
        assert_eq!((&made["status"], balances()), (&json!("succeeded"), (DOLLAR, 0)), "{made}");
        // One that names the user makes it theirs, and their cap has no room for it.
        let theirs = approve(&tenant.client.with("X-Service-User-Id", &tenant.user));
        assert_eq!((&theirs["status"], balances()), (&json!("failed"), (DOLLAR, 0)), "{theirs}");
        assert_eq!(theirs["error"]["reason"], "budget_exceeded", "{theirs}");
        world.books_agree();
    }

    fn an_approved_job_that_ends_before_it_asks_frees_what_waited_for_it(world: Builder::new().bare()) {
        let (tenant, owner) = govern(world, 1);
        world.fund(&tenant, 1_000);
        play(&tenant.client, json!([{ "open": "wallet" }])).expect(200);
        let credit = || play(&tenant.client, json!([{ "balance": "credit" }])).expect(200)["seen"][0]["available"].clone();
        for why in ["refused", "revoked", "denied"] {
            let made = tenant.client.post("/v1/auth/keys", &json!({ "name": unique("key"), "role": "developer" })).expect(201);
            let steps = json!([
                { "note": "note", "slug": why },
                { "leave": "script.spend", "amount": 2 * DOLLAR, "as": "p", "pays": ["credit", "wallet"] },
                { "capture": "p", "amount": 2 * DOLLAR },
            ]);
            let key = tenant.client.bearer(made["key"].as_str().unwrap());
            let asks = play(&key, json!([{ "enqueue": steps, "public": true, "attempts": 1 }])).expect(200);
            let path = format!("/v1/jobs/{}", asks["seen"][0].as_str().unwrap());
            let job = || tenant.client.get(&path).expect(200)["job"].clone();
            until("the job asks", || job()["approval_id"].is_string());
            let id = job()["approval_id"].as_str().unwrap().to_owned();
            assert_eq!((stands(&tenant.client), credit()), ((0, 2 * DOLLAR), json!(8 * DOLLAR)), "{why}: held");
            let done = match why {
                "refused" => play(&tenant.client, json!([{ "note": "note", "slug": why }])),
                "revoked" => tenant.client.delete(&format!("/v1/auth/keys/{}", made["id"].as_str().unwrap())),
                _ => tenant.client.put("/v1/governance/policy", &json!({ "default": "deny", "rules": [] })),
            };
            done.expect(200);
            decide(&owner, &id, "approve").expect(200);
            assert_eq!(end(&tenant.client, &id)["status"], "failed", "{why}");
            assert_eq!(job()["status"], "failed", "{why}");
            assert_eq!((pending_holds(&tenant.client), credit()), (json!([]), json!(10 * DOLLAR)), "{why}: free");
        }
        tenant.client.put("/v1/governance/policy", &json!({ "rules": [] })).expect(200);
        assert_eq!(stands(&tenant.client), (0, 0));
        world.books_agree();
    }

    fn an_approved_request_that_goes_on_without_leave_frees_what_waited_for_it(world: Builder::new().bare()) {
        let (tenant, owner) = govern(world, 1);
        let tried = json!([{ "try": { "leave": "script.spend", "amount": 9 * DOLLAR, "as": "p" } }, { "note": "note" }]);
        let id = waits(&play(&tenant.client, tried));
        assert_eq!(stands(&tenant.client), (0, 9 * DOLLAR));
        tenant.client.put("/v1/governance/policy", &json!({ "default": "deny", "rules": [] })).expect(200);
        decide(&owner, &id, "approve").expect(200);
        let over = end(&tenant.client, &id);
        assert_eq!((&over["status"], &over["result"]["seen"][0]["reason"]), (&json!("succeeded"), &json!("policy_denied")), "{over}");
        assert_eq!(pending_holds(&tenant.client), json!([]));
        tenant.client.put("/v1/governance/policy", &json!({ "rules": [] })).expect(200);
        assert_eq!((stands(&tenant.client), notes(&tenant.client)), ((0, 0), 1));
        world.books_agree();
    }

    fn the_failure_of_an_approved_request_is_its_keys_answer_for_good(world: Builder::new().bare()) {
        let (tenant, owner) = govern(world, 1);
        let acted = |last: Value| json!([{ "note": "note" }, { "checkpoint": 1 }, last]);
        let (trapped, late) = (acted(json!({ "trap": 1 })), acted(json!({ "sleep_ms": 20_000 })));
        for (key, then, status, code, reason) in [
            ("trapped", trapped, 500, "internal_error", "EFFECT_WITHOUT_RECORD"),
            ("late", late, 500, "internal_error", "EFFECT_WITHOUT_RECORD"),
        ] {
            let leave = json!({ "leave": "script.spend", "amount": 2 * DOLLAR, "as": "p" });
            let steps: Vec<&Value> = std::iter::once(&leave).chain(then.as_array().unwrap()).collect();
            let ask = || tenant.client.call("POST", "/v1/script").idempotency_key(key).json(&json!({ "steps": steps })).send();
            let id = waits(&ask());
            decide(&owner, &id, "approve").expect(200);
            let failed = end(&tenant.client, &id);
            assert_eq!((&failed["status"], &failed["error"]["code"]), (&json!("failed"), &json!(code)), "{failed}");
            assert_eq!(failed["error"]["reason"], reason, "{failed}");
            for _ in 0..2 {
                let told = ask();
                assert_eq!(told.expect_error(status, code)["reason"], reason);
                assert_eq!((told.header("x-should-retry"), told.header("retry-after")), (Some("false"), None), "{told}");
            }
        }
        assert_eq!(pending_holds(&tenant.client), json!([]));
        world.books_agree();
    }

    fn an_approved_request_that_came_to_nothing_is_made_once_it_can_be(world: Builder::new().bare()) {
        let (tenant, owner) = govern(world, 1);
        let client = &tenant.client;
        let made = |then: Value| {
            let mut steps = vec![json!({ "leave": "script.spend", "amount": 2 * DOLLAR, "as": "p" })];
            steps.extend(then.as_array().unwrap().iter().cloned());
            steps.extend([json!({ "capture": "p", "amount": 2 * DOLLAR }), json!({ "note": "note" })]);
            waits(&play(client, json!(steps)))
        };
        // Another primitive says that it has done nothing, and when to ask again.
        let rate = json!([{ "rate": "few", "reach": "user", "amount": 1, "seconds": 3 }]);
        let id = made(json!([{ "call": "script.play", "body": { "steps": rate } }]));
        play(client, rate.clone()).expect(200);
        decide(&owner, &id, "approve").expect(200);
        assert_eq!(end(client, &id)["status"], "succeeded");
        // Its first commit met a conflict, and the run after that had no room.
        play(client, json!([{ "note": "hot", "slug": "hot" }])).expect(200);
        let steps = json!([
            { "bump": "hot" }, { "on_attempt": 1, "steps": [{ "sleep_ms": 2_500 }] },
            { "on_attempt": 2, "steps": [{ "refuse": "overloaded" }] }, { "checkpoint": 1 },
        ]);
        let id = made(steps);
        decide(&owner, &id, "approve").expect(200);
        let is_held = || !client.get("/v1/governance/holds?state=held").expect(200)["holds"].as_array().unwrap().is_empty();
        until("it is being made", is_held);
        play(client, json!([{ "bump": "hot" }])).expect(200);
        assert_eq!(end(client, &id)["status"], "succeeded");
        assert_eq!((stands(client), notes(client)), ((4 * DOLLAR, 0), 2), "each was made once");
        world.books_agree();
    }

    fn a_guest_cannot_swallow_that_a_person_decides(world: Builder::new().bare()) {
        let (tenant, owner) = govern(world, 1);
        let tried = json!([
            { "note": "note" },
            { "try": { "leave": "script.spend", "amount": 2 * DOLLAR, "as": "p" } },
            { "note": "note" },
        ]);
        let id = waits(&play(&tenant.client, tried));
        assert_eq!(notes(&tenant.client), 0);
        decide(&owner, &id, "approve").expect(200);
        assert_eq!(end(&tenant.client, &id)["status"], "succeeded");
        assert_eq!((stands(&tenant.client), notes(&tenant.client)), ((0, 0), 2), "what is not captured is given back");
        world.books_agree();
    }

    fn what_is_approved_survives_a_crash_and_is_made_once(world: Builder::new().bare()) {
        let (tenant, owner) = govern(world, 1);
        let ids: Vec<String> = (0..3).map(|_| waits(&play(&tenant.client, spend(2 * DOLLAR)))).collect();
        for id in &ids {
            decide(&owner, id, "approve").expect(200);
        }
        world.kill();
        world.start();
        let client = tenant.client.at(world.server().address());
        for id in &ids {
            assert_eq!(end(&client, id)["status"], "succeeded");
        }
        assert_eq!((stands(&client), notes(&client)), ((6 * DOLLAR, 0), 3));
        world.books_agree();
    }

    fn what_is_being_made_when_the_host_drains_is_made_to_its_end(world: Builder::new().bare()) {
        let (tenant, owner) = govern(world, 1);
        let steps = json!([
            { "leave": "script.spend", "amount": 2 * DOLLAR, "as": "p" }, { "dispatch": "p" }, { "note": "note" },
            { "sleep_ms": 2_000 }, { "capture": "p", "amount": 2 * DOLLAR },
        ]);
        let id = waits(&play(&tenant.client, steps));
        decide(&owner, &id, "approve").expect(200);
        let dispatched = || tenant.client.get("/v1/governance/holds?state=dispatched").expect(200)["holds"].clone();
        until("something left the host", || dispatched() != json!([]));
        world.stop();
        world.start();
        let client = tenant.client.at(world.server().address());
        assert_eq!(approval(&client, &id)["status"], "succeeded");
        assert_eq!((stands(&client), notes(&client)), ((2 * DOLLAR, 0), 1));
        world.books_agree();
    }

    fn what_broke_off_after_an_effect_is_in_doubt_and_not_made_again(world: Builder::new().bare()) {
        let (tenant, owner) = govern(world, 1);
        let steps = json!([
            { "leave": "script.spend", "amount": 2 * DOLLAR, "as": "p" }, { "dispatch": "p" }, { "note": "note" },
            { "sleep_ms": 20_000 }, { "capture": "p", "amount": 2 * DOLLAR },
        ]);
        let id = waits(&play(&tenant.client, steps));
        decide(&owner, &id, "approve").expect(200);
        let holds = |client: &Client, state: &str| {
            client.get(&format!("/v1/governance/holds?state={state}")).expect(200)["holds"].as_array().unwrap().len()
        };
        until("something left the host", || holds(&tenant.client, "dispatched") == 1);
        world.kill();
        world.start();
        let client = tenant.client.at(world.server().address());
        let over = end(&client, &id);
        assert_eq!((&over["status"], &over["error"]["reason"]), (&json!("failed"), &json!("in_doubt")), "{over}");
        until("its hold is in doubt", || holds(&client, "in_doubt") == 1);
        assert_eq!((stands(&client), notes(&client)), ((0, 2 * DOLLAR), 0), "it was not made again");
        world.books_agree();
    }

    fn what_a_session_asked_for_needs_its_person_as_they_were_until_it_is_committed(world: Builder::new().bare()) {
        let (tenant, owner) = govern(world, 1);
        let losses = ["nothing", "signed-out", "demoted", "removed"];
        let asked = losses.map(|loss| {
            let (person, account) = join(world, &tenant, &owner, "developer");
            let steps = json!([
                { "leave": "script.spend", "amount": 2 * DOLLAR, "as": "p" }, { "dispatch": "p" }, { "sleep_ms": 5_000 },
                { "open": loss }, { "capture": "p", "amount": 2 * DOLLAR },
            ]);
            let id = waits(&person.post("/v1/script/rule", &json!({ "steps": steps })));
            (person, format!("/v1/organization/members/{account}"), id)
        });
        for (_, _, id) in &asked {
            decide(&owner, id, "approve").expect(200);
        }
        let begun = || tenant.client.get("/v1/governance/holds?state=dispatched").expect(200)["holds"].as_array().unwrap().len();
        until("all of them are under way", || begun() == losses.len());
        asked[1].0.delete("/v1/auth/session").expect(200);
        owner.patch(&asked[2].1, &json!({ "role": "viewer" })).expect(200);
        owner.delete(&asked[3].1).expect(200);
        // An approved request needs nobody to be signed in.
        for ((_, _, id), (loss, ends)) in asked.iter().zip(losses.iter().zip(["succeeded", "succeeded", "failed", "failed"])) {
            let over = end(&tenant.client, id);
            assert_eq!(over["status"], ends, "{loss}: {over}");
            assert_eq!(is_open(&tenant.client, loss), ends == "succeeded", "{loss}");
        }
    }

    fn a_call_of_a_primitive_waits_and_its_caller_is_told_what_became_of_it(world: Builder::new().bare()) {
        let (tenant, owner) = govern(world, 1);
        let told = |id: &str, status: &str| {
            let listed = tenant.client.get("/v1/script/notes").expect(200);
            listed["notes"].as_array().unwrap().iter().any(|note| note["kind"] == format!("{id} {status}"))
        };
        for (how, status) in [("approve", "succeeded"), ("deny", "denied")] {
            let before = stands(&tenant.client);
            let outer = play(&tenant.client, json!([{ "call": "script.play", "body": { "steps": spend(2 * DOLLAR) } }])).expect(200);
            let waiting = &outer["seen"][0];
            assert_eq!(waiting["status"], 202, "{outer}");
            let id = waiting["body"]["approval_id"].as_str().unwrap().to_owned();
            assert_eq!(stands(&tenant.client), (before.0, 2 * DOLLAR), "its funds are held");
            decide(&owner, &id, how).expect(200);
            assert_eq!(end(&tenant.client, &id)["status"], status);
            until("the caller is told", || told(&id, status));
        }
        assert_eq!((stands(&tenant.client), notes(&tenant.client)), ((2 * DOLLAR, 0), 1), "made once, as it was approved");
        world.books_agree();
    }

    fn a_job_waits_for_a_person_as_a_request_does(world: Builder::new().bare()) {
        let (tenant, owner) = govern(world, 1);
        let enqueue = || {
            let step = json!([{ "enqueue": spend(2 * DOLLAR), "public": true, "key": "one", "attempts": 1 }]);
            play(&tenant.client, step).expect(200)["seen"][0].as_str().unwrap().to_owned()
        };
        let job = |id: &str| tenant.client.get(&format!("/v1/jobs/{id}")).expect(200)["job"].clone();
        let asked = |id: &str| {
            until("the job asks", || job(id)["approval_id"].is_string());
            job(id)["approval_id"].as_str().unwrap().to_owned()
        };
        let (first, before) = (enqueue(), stands(&tenant.client));
        let approval_id = asked(&first);
        assert_eq!(stands(&tenant.client), (before.0, 2 * DOLLAR), "its funds are held");
        assert_eq!((&job(&first)["status"], notes(&tenant.client)), (&json!("queued"), 0), "it waits, and nothing is written");
        assert_eq!(enqueue(), first, "its key is taken while it waits");
        let waiting = approval(&tenant.client, &approval_id);
        assert_eq!((&waiting["action"], &waiting["requested_by"]["type"]), (&json!("script.spend"), &json!("system")));
        decide(&owner, &approval_id, "approve").expect(200);
        assert_eq!(end(&tenant.client, &approval_id)["status"], "succeeded");
        until("the job has ended", || job(&first)["status"] == "succeeded");
        assert_eq!((stands(&tenant.client), notes(&tenant.client)), ((2 * DOLLAR, 0), 1), "made once");
        // One that is denied has failed, and its key is free.
        let second = enqueue();
        let approval_id = asked(&second);
        decide(&owner, &approval_id, "deny").expect(200);
        let denied = job(&second);
        assert_eq!((&denied["status"], &denied["error"]["reason"]), (&json!("failed"), &json!("approval_denied")), "{denied}");
        // With one that is cancelled while it waits ends what people were asked.
        let third = enqueue();
        let approval_id = asked(&third);
        tenant.client.delete(&format!("/v1/jobs/{third}")).expect(200);
        decide(&owner, &approval_id, "approve").expect_error(409, "state_conflict");
        assert_eq!(end(&tenant.client, &approval_id)["status"], "canceled");
        // Nor is one run that is cancelled right after they have said yes.
        let mut slow = spend(2 * DOLLAR);
        slow.as_array_mut().unwrap().insert(0, json!({ "sleep_ms": 3_000 }));
        let asks = play(&tenant.client, json!([{ "enqueue": slow, "public": true, "attempts": 1 }])).expect(200);
        let fourth = asks["seen"][0].as_str().unwrap().to_owned();
        let approval_id = asked(&fourth);
        decide(&owner, &approval_id, "approve").expect(200);
        tenant.client.delete(&format!("/v1/jobs/{fourth}")).expect(200);
        assert_eq!(end(&tenant.client, &approval_id)["status"], "failed");
        assert_eq!(job(&fourth)["status"], "cancelled");
        assert_eq!((stands(&tenant.client), notes(&tenant.client)), ((2 * DOLLAR, 0), 1));
        world.books_agree();
    }

    fn a_job_that_is_cancelled_amid_its_approved_run_stays_so_however_the_run_ends(world: Builder::new().bare()) {
        let (tenant, owner) = govern(world, 1);
        let client = &tenant.client;
        let held = || client.get("/v1/governance/holds?state=held").expect(200)["holds"].as_array().unwrap().len();
        for end_of_run in [json!({ "trap": 1 }), json!({ "refuse": "overloaded" })] {
            let steps = json!([
                { "on_attempt": 1, "steps": [{ "leave": "script.spend", "amount": 2 * DOLLAR, "as": "p" }, { "sleep_ms": 2_500 }, end_of_run] },
                { "note": "note" },
            ]);
            play(client, json!([{ "enqueue": steps, "public": true, "attempts": 3 }])).expect(200);
            let waiting = || client.get("/v1/approvals?status=pending_approval").expect(200)["approvals"].clone();
            until("the job waits for a person", || waiting().as_array().unwrap().len() == 1);
            let id = waiting()[0]["id"].as_str().unwrap().to_owned();
            decide(&owner, &id, "approve").expect(200);
            until("its run is under way", || held() == 1);
            let job = client.get("/v1/jobs?status=queued").expect(200)["jobs"][0]["id"].clone();
            let path = format!("/v1/jobs/{}", job.as_str().unwrap());
            assert_eq!(client.delete(&path).expect(200)["job"]["status"], "cancelled");
            let over = end(client, &id);
            assert_eq!((&over["status"], held()), (&json!("failed"), 0), "{over}");
            assert_eq!(client.get(&path).expect(200)["job"]["status"], "cancelled");
            assert_eq!((stands(client), notes(client)), ((0, 0), 0), "nobody runs it again");
        }
        world.books_agree();
    }

    fn an_approved_run_that_had_acted_when_its_job_was_cancelled_commits_no_more_and_says_so(world: Builder::new().bare()) {
        let (tenant, owner) = govern(world, 1);
        let client = &tenant.client;
        let ends = [
            json!([{ "note": "later" }, { "checkpoint": 1 }, { "note": "last" }, { "capture": "p", "amount": 2 * DOLLAR }]),
            json!([{ "capture": "p", "amount": 2 * DOLLAR }]),
            json!([{ "try": { "call": "script.play", "body": { "steps": [{ "note": "note" }] } } }]),
            json!([{ "trap": 1 }]),
            json!([{ "refuse": "overloaded" }]),
        ];
        for (n, end_of_run) in ends.into_iter().enumerate() {
            let mut steps = json!([
                { "leave": "script.spend", "amount": 2 * DOLLAR, "as": "p" },
                { "note": "note" },
                { "checkpoint": 1 },
                { "sleep_ms": 2_500 },
            ]);
            steps.as_array_mut().unwrap().extend(end_of_run.as_array().unwrap().clone());
            play(client, json!([{ "enqueue": steps, "public": true, "attempts": 3 }])).expect(200);
            let waiting = || client.get("/v1/approvals?status=pending_approval").expect(200)["approvals"].clone();
            until("the job waits for a person", || waiting().as_array().unwrap().len() == 1);
            let id = waiting()[0]["id"].as_str().unwrap().to_owned();
            decide(&owner, &id, "approve").expect(200);
            until("its run has acted", || notes(client) == n + 1);
            let job = client.get("/v1/jobs?status=queued").expect(200)["jobs"][0]["id"].clone();
            client.delete(&format!("/v1/jobs/{}", job.as_str().unwrap())).expect(200);
            let over = end(client, &id);
            assert_eq!((&over["status"], &over["error"]["reason"]), (&json!("failed"), &json!("EFFECT_WITHOUT_RECORD")), "{over}");
            assert_eq!(client.get(&format!("/v1/jobs/{}", job.as_str().unwrap())).expect(200)["job"]["status"], "cancelled");
            assert_eq!((stands(client).0, notes(client)), (0, n + 1), "nothing is captured or written after that");
        }
        world.books_agree();
    }

    fn decisions_before_the_one_that_waits_are_in_the_log(world: Builder::new().bare()) {
        let (tenant, _) = govern(world, 1);
        let steps = json!([
            { "leave": "script.guess", "amount": 1, "as": "g" },
            { "leave": "script.spend", "amount": 2 * DOLLAR, "as": "p" },
        ]);
        waits(&play(&tenant.client, steps));
        let decisions = |action: &str| -> Vec<Value> {
            let rows = tenant.client.get(&format!("/v1/logs?action={action}")).expect(200)["logs"].clone();
            rows.as_array().unwrap().iter().map(|row| row["decision"].clone()).collect()
        };
        until("both are told", || decisions("script.guess") == ["allowed"] && decisions("script.spend") == ["pending_approval"]);
    }

    fn an_approved_request_that_a_job_answers_ends_as_the_job_does(world: Builder::new().bare()) {
        let (tenant, owner) = govern(world, 1);
        let ask = |key: &str, job: Value| {
            let mut steps = spend(2 * DOLLAR);
            steps.as_array_mut().unwrap().push(json!({ "enqueue": job, "answer": true, "public": true, "attempts": 1 }));
            tenant.client.call("POST", "/v1/script").idempotency_key(key).json(&json!({ "steps": steps })).send()
        };
        let approve = |answer: &Answer| {
            let id = waits(answer);
            decide(&owner, &id, "approve").expect(200);
            id
        };
        let succeeds = || ask("succeeds", json!([{ "note": "note" }]));
        let id = approve(&succeeds());
        let over = end(&tenant.client, &id);
        assert_eq!((&over["status"], &over["result_kept"]), (&json!("succeeded"), &json!(true)), "{over}");
        assert_eq!(over["result"]["seen"].as_array().map(Vec::len), Some(1), "the job's result, not its acceptance: {over}");
        let again = succeeds();
        assert_eq!((again.status, again.header("idempotent-replayed")), (200, Some("true")), "{again}");
        assert_eq!(again.json(), over["result"]);
        let fails = || ask("fails", json!([{ "refuse": "state_conflict" }]));
        let id = approve(&fails());
        let over = end(&tenant.client, &id);
        assert_eq!((&over["status"], &over["result"]), (&json!("failed"), &Value::Null), "{over}");
        assert_eq!((&over["error"]["code"], &over["error"]["reason"]), (&json!("state_conflict"), &json!("script")));
        assert_eq!(fails().expect_error(409, "state_conflict")["reason"], "script");
        // As long as the job is at work, nobody is told that anything has succeeded.
        let cancelled = || ask("cancelled", json!([{ "sleep_ms": 60_000 }]));
        let id = approve(&cancelled());
        let running = || tenant.client.get("/v1/jobs?status=running").expect(200)["jobs"][0]["id"].as_str().map(str::to_owned);
        until("the job runs", || running().is_some());
        let job = running().unwrap();
        assert_eq!(approval(&tenant.client, &id)["status"], "executing");
        assert_eq!(waits(&cancelled()), id, "asked again it is told of the same");
        tenant.client.delete(&format!("/v1/jobs/{job}")).expect(200);
        let over = end(&tenant.client, &id);
        assert_eq!((&over["status"], &over["error"]["reason"]), (&json!("failed"), &json!("job_cancelled")), "{over}");
        assert_eq!(cancelled().expect_error(409, "state_conflict")["reason"], "job_cancelled");
        assert_eq!((stands(&tenant.client), notes(&tenant.client)), ((6 * DOLLAR, 0), 4), "each was made once");
        world.books_agree();
    }

    fn a_pinned_key_sees_the_approvals_of_its_user_alone(world: Builder::new().bare()) {
        let (tenant, _) = govern(world, 1);
        let other = tenant.user(&unique("other"));
        let mine = waits(&play(&tenant.client, spend(2 * DOLLAR)));
        let theirs = waits(&play(&tenant.client.with("X-Service-User-Id", &other), spend(2 * DOLLAR)));
        let key = tenant.client.post("/v1/auth/keys", &json!({ "name": "pinned", "user_id": other })).expect(201);
        let pinned = tenant.client.bearer(key["key"].as_str().unwrap());
        pinned.get(&format!("/v1/approvals/{mine}")).expect_error(404, "not_found");
        let listed = pinned.get("/v1/approvals").expect(200);
        assert_eq!(listed["approvals"].as_array().unwrap().iter().map(|one| one["id"].clone()).collect::<Vec<_>>(), [json!(theirs)]);
        world.books_agree();
    }
}

#[test]
fn one_key_on_two_replicas_waits_by_one_approval_and_is_made_once() {
    const KEYS: i64 = 8;
    let world = Builder::new().bare().start(Database::Postgresql);
    let (tenant, owner) = govern(&world, 1);
    budget(&tenant, json!({ "cap_cents": 10_000, "period": "total" }));
    let (second, _folder) = world.replica();
    let there = tenant.client.at(second.address());
    let steps = json!({ "steps": spend(2 * DOLLAR) });
    let mut ids = std::collections::BTreeSet::new();
    for n in 0..KEYS {
        let key = format!("once-{n}");
        let ask = |client: &Client| {
            let ask =
                || client.call("POST", "/v1/script").idempotency_key(&key).json(&steps).send();
            let mut answer = ask();
            until("the key is answered", || {
                if answer.status != 202 {
                    answer = ask();
                }
                answer.status == 202
            });
            waits(&answer)
        };
        let (here, there) = std::thread::scope(|scope| {
            let (here, there) = (scope.spawn(|| ask(&tenant.client)), scope.spawn(|| ask(&there)));
            (here.join().unwrap(), there.join().unwrap())
        });
        assert_eq!(here, there);
        ids.insert(here);
    }
    assert_eq!(stands(&tenant.client), (0, KEYS * 2 * DOLLAR), "and nothing else waits");
    for id in &ids {
        decide(&owner, id, "approve").expect(200);
        assert_eq!(end(&tenant.client, id)["status"], "succeeded");
    }
    assert_eq!(stands(&tenant.client), (KEYS * 2 * DOLLAR, 0));
    world.books_agree();
}

#[test]
fn of_two_contrary_words_on_two_replicas_one_counts() {
    let world = Builder::new().bare().start(Database::Postgresql);
    let (tenant, owner) = govern(&world, 1);
    budget(&tenant, json!({ "cap_cents": 10_000, "period": "total" }));
    let (approver, _) = join(&world, &tenant, &owner, "approver");
    let (another, _) = join(&world, &tenant, &owner, "approver");
    let (second, _folder) = world.replica();
    let there = approver.at(second.address());
    let mut spent = 0;
    for _ in 0..8 {
        let id = waits(&play(&tenant.client, spend(2 * DOLLAR)));
        let (yes, no) = std::thread::scope(|scope| {
            let yes = scope.spawn(|| decide(&another, &id, "approve"));
            let no = scope.spawn(|| decide(&there, &id, "deny"));
            (yes.join().unwrap(), no.join().unwrap())
        });
        let mut statuses = [yes.status, no.status];
        statuses.sort_unstable();
        assert_eq!(statuses, [200, 409], "{yes} {no}");
        let expected = if yes.status == 200 { "succeeded" } else { "denied" };
        assert_eq!(end(&tenant.client, &id)["status"], expected);
        spent += if yes.status == 200 { 2 * DOLLAR } else { 0 };
        assert_eq!(stands(&tenant.client), (spent, 0));
    }
    world.books_agree();
}

on_both! {
    fn who_made_a_key_has_asked_what_the_key_asks(world: Builder::new().bare()) {
        let (tenant, owner) = govern(world, 1);
        let made = owner.post("/v1/auth/keys", &json!({ "name": "agent" })).expect(201);
        let parent = world.anonymous().bearer(made["key"].as_str().unwrap());
        let made = parent.post("/v1/auth/keys", &json!({ "name": "of the agent" })).expect(201);
        let key = world.anonymous().bearer(made["key"].as_str().unwrap());
        let (other, _) = join(world, &tenant, &owner, "approver");
        let id = waits(&play(&key, spend(3 * DOLLAR)));
        let refused = decide(&owner, &id, "approve").expect_error(403, "forbidden");
        assert_eq!(refused["reason"], "own_request");
        decide(&other, &id, "approve").expect(200);
        assert_eq!(end(&tenant.client, &id)["status"], "succeeded");
    }

    fn a_word_of_who_was_removed_since_counts_no_more(world: Builder::new().bare()) {
        let (tenant, owner) = govern(world, 2);
        let asker = join(world, &tenant, &owner, "developer").0;
        let made = asker.post("/v1/auth/keys", &json!({ "name": "agent" })).expect(201);
        let key = world.anonymous().bearer(made["key"].as_str().unwrap());
        let people: Vec<_> = (0..3).map(|_| join(world, &tenant, &owner, "approver")).collect();
        let id = waits(&play(&key, spend(3 * DOLLAR)));
        decide(&people[0].0, &id, "approve").expect(200);
        owner.delete(&format!("/v1/organization/members/{}", people[0].1)).expect(200);
        decide(&people[1].0, &id, "approve").expect(200);
        assert_eq!(approval(&tenant.client, &id)["status"], "pending_approval", "one word of two counts");
        decide(&people[2].0, &id, "approve").expect(200);
        assert_eq!(end(&tenant.client, &id)["status"], "succeeded");
    }

    fn what_a_demoted_person_asked_for_is_not_made(world: Builder::new().bare()) {
        let (tenant, owner) = govern(world, 1);
        let (asker, account) = join(world, &tenant, &owner, "developer");
        let made = asker.post("/v1/auth/keys", &json!({ "name": "agent" })).expect(201);
        let key = world.anonymous().bearer(made["key"].as_str().unwrap());
        let id = waits(&play(&key, spend(3 * DOLLAR)));
        owner.patch(&format!("/v1/organization/members/{account}"), &json!({ "role": "viewer" })).expect(200);
        decide(&owner, &id, "approve").expect(200);
        let over = end(&tenant.client, &id);
        assert_eq!((&over["status"], &over["error"]["reason"]), (&json!("failed"), &json!("role_insufficient")), "{over}");
    }
}
