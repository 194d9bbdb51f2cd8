//! Jobs that a request answers with: its caller waits for the result, and a repeated key gets it
//! again.

use charter_tests::artefacts::Artefacts;
use charter_tests::patience::{PATIENCE, look_for, until};
use charter_tests::tenant::unique;
use charter_tests::world::Builder;
use charter_tests::{Answer, Client, Tenant, World, on_both};
use serde_json::{Value, json};

fn tenant_with_script(world: &World) -> Tenant {
    world.install("script", &Artefacts::get().fixture("script"));
    world.register()
}

/// Plays a script whose answer is the job that plays these steps.
fn job(client: &Client, key: &str, steps: &Value) -> Answer {
    let body =
        json!({"steps": [{"enqueue": steps, "answer": true, "public": true, "attempts": 1}]});
    client.call("POST", "/v1/script").idempotency_key(key).json(&body).send()
}

fn count_jobs(client: &Client) -> usize {
    client.get("/v1/jobs").expect(200)["jobs"].as_array().unwrap().len()
}

on_both! {
    fn a_jobs_result_is_answered_again_to_a_repeated_key(world: Builder::new().bare()) {
        let tenant = tenant_with_script(world);
        let steps = json!([{"note": "note", "slug": "once", "count": 1}]);
        let first = job(&tenant.client, "job-1", &steps);
        let told = first.expect(200);
        assert_eq!(told["seen"].as_array().unwrap().len(), 1, "the job's result, not its acceptance: {first}");
        assert_eq!(first.header("idempotent-replayed"), None);
        let second = job(&tenant.client, "job-1", &steps);
        assert_eq!(second.expect(200), told);
        assert_eq!(second.header("idempotent-replayed"), Some("true"));
        assert_eq!(count_jobs(&tenant.client), 1, "one job was made");
    }

    fn a_failed_jobs_reason_is_answered_again_too(world: Builder::new().bare()) {
        let tenant = tenant_with_script(world);
        let steps = json!([{"refuse": "state_conflict"}]);
        for _ in 0..2 {
            let error = job(&tenant.client, "job-2", &steps).expect_error(409, "state_conflict");
            assert_eq!(error["reason"], "script");
        }
        assert_eq!(count_jobs(&tenant.client), 1);
    }

    fn a_job_that_has_failed_asks_nobody_to_try_again(world: Builder::new().bare()) {
        let tenant = tenant_with_script(world);
        let refuse = |code: &str| json!([{"refuse": code}]);
        let act = |code: &str| json!([{"note": "note"}, {"checkpoint": 1}, {"refuse": code}]);
        // A code of the host's, and one that the primitive declares.
        for (steps, status, code, reason) in [
            (refuse("overloaded"), 503, "overloaded", "script"),
            (refuse("script_full"), 429, "script_full", "script"),
            (act("overloaded"), 409, "state_conflict", "EFFECT_WITHOUT_RECORD"),
            (act("script_full"), 409, "state_conflict", "EFFECT_WITHOUT_RECORD"),
        ] {
            let key = unique("key");
            for replayed in [None, Some("true")] {
                let told = job(&tenant.client, &key, &steps);
                assert_eq!(told.expect_error(status, code)["reason"], reason);
                assert_eq!((told.header("x-should-retry"), told.header("retry-after")), (Some("false"), None), "{told}");
                assert_eq!(told.header("idempotent-replayed"), replayed);
            }
        }
        assert_eq!(count_jobs(&tenant.client), 4);
    }

    fn of_a_job_whose_run_broke_off_nobody_says_that_nothing_was_done(
        world: Builder::new().bare().environment("CHARTER_JOBS_DEADLINE_MS", "5000")
    ) {
        let tenant = tenant_with_script(world);
        let steps = json!([
            {"on_attempt": 1, "steps": [{"note": "note"}, {"checkpoint": 1}, {"sleep_ms": 60_000}]},
            {"refuse": "rate_limited"},
        ]);
        let asked = json!({"steps": [{"enqueue": steps, "public": true, "attempts": 2}]});
        let id = tenant.client.post("/v1/script", &asked).expect(200)["seen"][0].as_str().unwrap().to_owned();
        until("its first run has acted", || {
            let notes = tenant.client.get("/v1/script/notes").expect(200)["notes"].clone();
            notes.as_array().unwrap().iter().any(|note| note["kind"] == "note")
        });
        world.kill();
        world.start();
        let client = tenant.client.at(world.server().address());
        let failed = look_for(PATIENCE, "its second run fails", || {
            let job = client.get(&format!("/v1/jobs/{id}")).expect(200)["job"].clone();
            if job["status"] == "failed" { Ok(job) } else { Err(job) }
        });
        assert_eq!((&failed["attempts"], &failed["error"]["code"]), (&json!(2), &json!("state_conflict")), "{failed}");
        assert_eq!(failed["error"]["reason"], "EFFECT_WITHOUT_RECORD", "{failed}");
    }

    fn the_list_goes_on_at_its_cursor(world: Builder::new().bare()) {
        let tenant = tenant_with_script(world);
        let enqueue = || {
            let steps = json!({"steps": [{"enqueue": [{"attempt": 1}], "public": true, "answer": true}]});
            tenant.client.post("/v1/script", &steps).expect(200);
        };
        (0..5).for_each(|_| enqueue());
        let first = tenant.client.get("/v1/jobs?limit=3").expect(200);
        assert_eq!((first["jobs"].as_array().unwrap().len(), &first["has_more"]), (3, &json!(true)), "{first}");
        // A job that is added meanwhile moves none.
        enqueue();
        let cursor = first["next_cursor"].as_str().unwrap();
        let rest = tenant.client.get(&format!("/v1/jobs?limit=3&cursor={cursor}")).expect(200);
        assert_eq!((rest["jobs"].as_array().unwrap().len(), &rest["has_more"]), (2, &json!(false)), "{rest}");
        assert_eq!(rest["next_cursor"], Value::Null);
        let seen = |page: &Value| -> Vec<String> { page["jobs"].as_array().unwrap().iter().map(charter_tests::tenant::id).collect() };
        assert!(seen(&rest).iter().all(|id| !seen(&first).contains(id)), "{first} {rest}");
        tenant.client.get(&format!("/v1/jobs?status=failed&cursor={cursor}")).expect_error(400, "invalid_input");
    }

    fn the_organizations_own_jobs_are_listed_with_those_of_its_default_profile(world: Builder::new().bare()) {
        let tenant = tenant_with_script(world);
        let client = &tenant.client;
        let steps = json!({"steps": [{"enqueue": [], "public": true, "attempts": 1}]});
        let enqueue = |path: &str| client.post(path, &steps).expect(200)["seen"][0].as_str().unwrap().to_owned();
        let profiles = enqueue("/v1/script");
        let own = enqueue("/v1/script/rule");
        let last = enqueue("/v1/script");
        let list = |client: &Client, path: &str| -> Vec<String> {
            client.get(path).expect(200)["jobs"].as_array().unwrap().iter().map(charter_tests::tenant::id).collect()
        };
        assert_eq!(list(client, "/v1/jobs"), [&*last, &*own, &*profiles]);
        let first = client.get("/v1/jobs?limit=2").expect(200);
        assert_eq!(first["has_more"], true, "{first}");
        let rest = format!("/v1/jobs?limit=2&cursor={}", first["next_cursor"].as_str().unwrap());
        assert_eq!(list(client, &rest), [&*profiles]);
        // A script keeps its notes with users, and has no place for one of the organization.
        until("the organization's own has run", || list(client, "/v1/jobs?status=failed") == [&*own]);
        assert_eq!(client.get(&format!("/v1/jobs/{own}")).expect(200)["job"]["status"], "failed");
        // A caller that acts for a user is shown the jobs of that user.
        let user = tenant.user("other");
        assert!(list(&client.with("X-Service-User-Id", &user), "/v1/jobs").is_empty());
        let key = client.post("/v1/auth/keys", &json!({"name": "pinned", "user_id": user})).expect(201);
        let pinned = client.bearer(key["key"].as_str().unwrap());
        assert!(list(&pinned, "/v1/jobs").is_empty());
        pinned.get(&format!("/v1/jobs/{own}")).expect_error(404, "not_found");
    }

    fn a_list_of_large_jobs_is_read_in_parts_and_loses_none(world: Builder::new().bare()) {
        let tenant = tenant_with_script(world);
        let client = &tenant.client;
        // Twenty of them are more than is read at once, here and of the organization's own.
        let steps = json!({"steps": [{"enqueue": [{"text": "x".repeat(250 << 10)}], "public": true, "attempts": 1}]});
        let enqueue = |at: usize| {
            let path = if at.is_multiple_of(2) { "/v1/script" } else { "/v1/script/rule" };
            client.post(path, &steps).expect(200)["seen"][0].as_str().unwrap().to_owned()
        };
        let mut made: Vec<String> = (0..40).map(enqueue).collect();
        made.reverse();
        let (mut listed, mut pages, mut next) = (Vec::new(), 0, String::new());
        loop {
            let page = client.get(&format!("/v1/jobs?limit=100{next}")).expect(200);
            listed.extend(page["jobs"].as_array().unwrap().iter().map(charter_tests::tenant::id));
            pages += 1;
            match page["next_cursor"].as_str() {
                Some(cursor) => next = format!("&cursor={cursor}"),
                None => break assert_eq!(page["has_more"], false),
            }
        }
        assert_eq!(listed, made);
        assert!(pages > 1, "they are more than one page reads");
    }

    fn a_cancelled_job_waits_for_nobody_any_more(world: Builder::new().bare()) {
        let tenant = tenant_with_script(world);
        let rule = json!({"id": "ask", "effect": "require_approval", "actions": ["script.send"]});
        tenant.client.put("/v1/governance/policy", &json!({"rules": [rule]})).expect(200);
        let act = json!([{"leave": "script.send", "as": "p"}, {"capture": "p", "amount": 0}]);
        let queued = json!({"steps": [{"enqueue": act, "public": true, "attempts": 1}]});
        tenant.client.post("/v1/script", &queued).expect(200);
        let parked = look_for(PATIENCE, "it is parked", || {
            let jobs = tenant.client.get("/v1/jobs").expect(200)["jobs"].clone();
            if jobs[0]["approval_id"].is_string() { Ok(jobs[0].clone()) } else { Err(jobs) }
        });
        tenant.client.delete(&format!("/v1/jobs/{}", parked["id"].as_str().unwrap())).expect(200);
        let path = format!("/v1/approvals/{}", parked["approval_id"].as_str().unwrap());
        assert_eq!(tenant.client.get(&path).expect(200)["approval"]["status"], "canceled");
        let held = tenant.client.get("/v1/governance/holds?state=pending").expect(200)["holds"].clone();
        assert_eq!(held, json!([]), "what it held is free");
    }

    fn a_cancelled_job_commits_nothing_and_keeps_its_place_in_the_list(world: Builder::new().bare()) {
        let tenant = tenant_with_script(world);
        let slow = json!([{"sleep_ms": 3000}, {"note": "note", "slug": "never", "count": 1}]);
        let queued = json!({"steps": [{"enqueue": slow, "public": true, "attempts": 3}]});
        tenant.client.post("/v1/script", &queued).expect(200);
        let listed = |status: &str| {
            tenant.client.get(&format!("/v1/jobs?status={status}")).expect(200)["jobs"].as_array().unwrap().clone()
        };
        until("somebody runs it", || !listed("running").is_empty());
        assert!(listed("queued").is_empty(), "what runs is not queued");
        let job = listed("running")[0].clone();
        let path = format!("/v1/jobs/{}", job["id"].as_str().unwrap());
        let cancelled = tenant.client.delete(&path).expect(200)["job"].clone();
        assert_eq!((&cancelled["status"], &cancelled["created_at"]), (&json!("cancelled"), &job["created_at"]));
        assert_eq!(listed("cancelled").len(), 1);
        tenant.client.delete(&path).expect_error(409, "state_conflict");
        // The next job runs beside what is left of the cancelled run, and by its end that one has
        // ended too.
        let after = json!({"steps": [{"enqueue": [{"sleep_ms": 4000}], "public": true, "answer": true}]});
        tenant.client.post("/v1/script", &after).expect(200);
        let notes = tenant.client.get("/v1/script/notes").expect(200)["notes"].clone();
        assert!(notes.as_array().unwrap().iter().all(|note| note["slug"] != "never"), "{notes}");
        assert_eq!(tenant.client.get(&path).expect(200)["job"], cancelled, "the lost run settles nothing");
        // The job is the default profile's, and its row that profile's project's.
        let pinned = tenant.key(json!({ "role": "viewer", "project_id": tenant.project }));
        until("the project reads of it", || {
            let logs = pinned.get("/v1/logs?action=jobs.cancel").expect(200)["logs"].clone();
            logs.as_array().unwrap().iter().any(|row| row["decision"] == "allowed")
        });
    }
}

on_both! {
    fn news_of_users_find_the_room_of_who_makes_them(
        world: Builder::new().bare().environment("CHARTER_JOBS_WAITING_MAX", "20")
    ) {
        let tenant = tenant_with_script(world);
        let agent = tenant.key(json!({ "role": "developer", "project_id": tenant.project }));
        let first = agent.post("/v1/users", &json!({ "name": unique("user") })).expect(201);
        // Eight and no more are less than they leave free of its fifteen; what is still to be told of the
        // first user stands beside them for a moment.
        let sleeps = json!({ "enqueue": [{ "sleep_ms": 60_000 }], "attempts": 1 });
        let mut taken = 0;
        until("its part of the room is taken", || {
            match agent.post("/v1/script", &json!({ "steps": [sleeps] })).status {
                200 => taken += 1,
                429 => return taken == 8,
                other => panic!("{other}"),
            }
            false
        });
        let refused = agent.post("/v1/users", &json!({ "name": unique("user") }));
        assert_eq!(refused.expect_error(429, "rate_limited")["reason"], "jobs_full");
        assert_eq!(refused.header("retry-after"), Some("30"));
        let path = format!("/v1/users/{}", first["user"]["id"].as_str().unwrap());
        assert_eq!(agent.delete(&path).expect_error(429, "rate_limited")["reason"], "jobs_full");
        // The owner makes them in any case.
        tenant.client.post("/v1/users", &json!({ "name": unique("user") })).expect(201);
        tenant.client.delete(&path).expect(200);
    }
}
