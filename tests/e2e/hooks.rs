//! Inbound URLs: what is signed is told once, in the scope of the document that the hook belongs
//! to; what is not writes nothing.

use std::sync::Barrier;

use charter_tests::artefacts::Artefacts;
use charter_tests::patience::until;
use charter_tests::signature;
use charter_tests::stripe;
use charter_tests::world::Builder;
use charter_tests::{Answer, Client, Database, Tenant, World, on_both};
use serde_json::{Value, json};

use crate::rules::{play, sights};
use crate::telling::gauge;

/// An open hook, as its opener knows it.
pub struct Hook {
    pub id: String,
    pub path: String,
    pub secret: String,
}

fn tenant_with_script(world: &World) -> Tenant {
    world.install("script", &Artefacts::get().fixture("script"));
    world.register()
}

/// Opens a hook of a note, which is made for it.
#[track_caller]
pub fn open(client: &Client, slug: &str, scheme: &str) -> Hook {
    let steps =
        json!([{ "note": "note", "slug": slug, "count": 0 }, { "hook": scheme, "slug": slug }]);
    // The look-up sees the note that is written in the same request.
    let hook = sights(&play(client, steps)).pop().unwrap();
    let text = |member: &str| hook[member].as_str().unwrap_or_default().to_owned();
    let path =
        text("url").strip_prefix(client.base()).expect("the address that was asked").to_owned();
    Hook { id: text("id"), path, secret: text("secret") }
}

/// Calls it as the public library of Standard Webhooks signs.
pub fn call(client: &Client, hook: &Hook, event: &str, at: i64, body: &str) -> Answer {
    let signature = standardwebhooks::Webhook::new(&hook.secret)
        .unwrap()
        .sign(event, at, body.as_bytes())
        .unwrap();
    let call = client
        .call("POST", &hook.path)
        .header("webhook-id", event)
        .header("webhook-timestamp", &at.to_string());
    call.header("webhook-signature", &signature).bytes(body.as_bytes().to_vec()).send()
}

/// The signals of a hook, as `<event> <body>`.
fn signals(client: &Client, hook: &Hook) -> Vec<String> {
    let listed = client.get("/v1/script/notes").expect(200);
    let kinds = listed["notes"].as_array().unwrap().iter().filter_map(|note| note["kind"].as_str());
    let prefix = format!("hook {} ", hook.id);
    let mut told: Vec<String> =
        kinds.filter_map(|kind| kind.strip_prefix(&prefix)).map(str::to_owned).collect();
    told.sort();
    told
}

/// How many calls of a kind are counted.
pub fn count(world: &World, what: &str) -> u64 {
    gauge(&world.operator(), &format!("charter_hook_calls_{what}"))
}

/// An address that calls a hook with a forged signature is soon refused, from there alone.
fn slow_down_who_signs_wrongly(world: &World) {
    let tenant = tenant_with_script(world);
    let guesser = world.anonymous();
    let hook = open(&tenant.client, "guessed", "standard-webhooks");
    let other = open(&tenant.client, "other", "standard-webhooks");
    let secret = format!("whsec_{}", "A".repeat(44));
    let forged = Hook { id: hook.id.clone(), path: hook.path.clone(), secret };
    let now = tenant.seconds();
    let guess = |n: u32| call(&guesser, &forged, &format!("guess_{n}"), now, "{}");
    for n in 0..60 {
        guess(n).expect_error(401, "unauthorized");
    }
    let refused = (60..100).map(guess).find(|answer| answer.status == 429);
    let refused = refused.expect("it guesses without end");
    assert!(refused.header("retry-after").is_some(), "{refused}");
    assert_eq!(refused.header("ratelimit-policy"), Some("\"unsigned-hook\";q=60;w=60"));
    // A long one is refused ahead of its body, unless a second has passed that gave a call back.
    let long = "x".repeat(65 << 10);
    let unread = (0..40).find_map(|_| {
        guess(100);
        let answer = call(&guesser, &hook, "msg_0", now, &long);
        (answer.status == 429).then_some(answer)
    });
    unread.expect("long ones are always read").expect_error(429, "rate_limited");
    // The sender is elsewhere; who shares the guesser's address calls other hooks, and this one,
    // too, as long as it is signed.
    let sender = Client::from(world.server().address(), [127, 0, 0, 2]);
    call(&sender, &hook, "msg_1", now, &long).expect(200);
    call(&guesser, &other, "msg_2", now, &long).expect(200);
    call(&guesser, &hook, "msg_3", now, "{}").expect(200);
}

/// Somebody else's account with the provider can have it call its address, and closes it to nobody's
/// events.
fn take_what_is_signed_between_what_is_not(world: &World) {
    let tenant = tenant_with_script(world);
    let body =
        json!({ "kind": "stripe", "url": "http://127.0.0.1:9", "webhook_secret": "whsec_own" });
    world.operator().put("/v1/operator/providers/script.peer", &body).expect(200);
    let (hook, provider) = (open(&tenant.client, "mine", "script.peer"), world.anonymous());
    let now = tenant.seconds();
    let send = |secret: &str, event: &str, named: &str| {
        let object = json!({ "metadata": { "charter_hook": named } });
        let body = json!({ "id": event, "type": "thing.happened", "data": { "object": object } });
        let body = body.to_string();
        let signature = stripe::signature(secret, now, &body);
        let call = provider.call("POST", &hook.path).header("stripe-signature", &signature);
        call.bytes(body.into_bytes()).send()
    };
    let foreign = |number: u32| send("whsec_foreign", &format!("evt_{number}"), &hook.id);
    let refused = (0..100).map(foreign).find(|answer| answer.status == 429);
    refused.expect("they come without end").expect_error(429, "rate_limited");
    send("whsec_own", "evt_signed", &hook.id).expect(200);
    until("it is told", || signals(&tenant.client, &hook).len() == 1);
    // With secrets of everybody's only so many are looked at.
    let of_none = |number: u32| {
        foreign(number);
        send("whsec_own", &format!("evt_of_none_{number}"), &"0".repeat(32))
    };
    let refused = (100..200).map(of_none).find(|answer| answer.status == 429);
    refused.expect("they are looked at without end").expect_error(429, "rate_limited");
}

on_both! {
    fn a_call_that_is_signed_is_told_once(world: Builder::new().bare()) {
        let tenant = tenant_with_script(world);
        let outside = world.anonymous();
        let hook = open(&tenant.client, "standard", "standard-webhooks");
        assert!(hook.secret.starts_with("whsec_") && hook.path == format!("/v1/hooks/{}", hook.id), "{}", hook.path);
        let now = tenant.seconds();
        assert_eq!(call(&outside, &hook, "msg_1", now, "{\"a\": 1}").expect(200), json!({ "received": true }));
        until("it is told", || signals(&tenant.client, &hook) == ["msg_1 {\"a\": 1}"]);
        // Sent again, with whatever in it: the event was told.
        call(&outside, &hook, "msg_1", now, "{\"a\": 1}").expect(200);
        call(&outside, &hook, "msg_2", now + 1, "two").expect(200);
        until("the other one is told", || signals(&tenant.client, &hook).len() == 2);
        assert_eq!((count(world, "taken"), count(world, "repeated")), (2, 1));
        // A call without a signature, with a foreign one or an old one, reaches nobody; it is
        // counted, however often it comes.
        let forged = Hook { secret: format!("whsec_{}", "A".repeat(44)), ..open(&tenant.client, "forged", "standard-webhooks") };
        for _ in 0..3 {
            call(&outside, &forged, "msg_3", now, "{}").expect_error(401, "unauthorized");
        }
        for stale in [now - 400, now + 400] {
            call(&outside, &hook, "msg_4", stale, "{}").expect_error(401, "unauthorized");
        }
        outside.post(&hook.path, &json!({})).expect_error(401, "unauthorized");
        assert_eq!((count(world, "taken"), count(world, "unsigned")), (2, 6));
        let large = "x".repeat((256 << 10) + 1);
        call(&outside, &hook, "msg_5", now, &large).expect_error(413, "payload_too_large");
        call(&outside, &hook, "msg_6", now, &large[..256 << 10]).expect(200);
    }

    fn who_signs_wrongly_is_slowed_down_and_who_signs_is_not(world: Builder::as_shipped().bare()) {
        slow_down_who_signs_wrongly(world);
    }

    fn an_inbound_url_stands_in_no_log(world: Builder::new().bare()) {
        let tenant = tenant_with_script(world);
        let hook = open(&tenant.client, "quiet", "none");
        world.anonymous().post(&hook.path, &json!({})).expect(200);
        until("it is told", || signals(&tenant.client, &hook).len() == 1);
        let logged = || tenant.client.get("/v1/logs?limit=100").text();
        until("it was noted that it was opened", || logged().contains(&hook.id[..8]));
        assert!(!logged().contains(&hook.id), "who reads it could call it: {}", logged());
    }

    fn a_providers_events_are_taken_whatever_others_have_it_send(world: Builder::as_shipped().bare()) {
        take_what_is_signed_between_what_is_not(world);
    }

    fn a_hook_is_its_documents_and_ends_with_it(world: Builder::new().bare()) {
        let tenant = tenant_with_script(world);
        let (outside, stranger) = (world.anonymous(), world.register());
        let now = tenant.seconds();
        let gone = |hook: &Hook| call(&outside, hook, "msg", now, "{}").expect_error(404, "not_found");
        // Nobody else closes it, and a note of somebody else's has none.
        let hook = open(&tenant.client, "closed", "standard-webhooks");
        assert_eq!(sights(&play(&stranger.client, json!([{ "unhook": hook.id }]))), [json!(false)]);
        play(&stranger.client, json!([{ "hook": "none", "slug": "closed" }])).expect_error(404, "not_found");
        assert_eq!(sights(&play(&tenant.client, json!([{ "unhook": hook.id }, { "unhook": hook.id }]))), [json!(true), json!(false)]);
        gone(&hook);
        // A hook of a refused request was never open.
        let steps = json!([{ "note": "note", "slug": "undone", "count": 0 }, { "hook": "none", "slug": "undone" }, { "refuse": "state_conflict" }]);
        play(&tenant.client, steps).expect_error(409, "state_conflict");
        let hook = open(&tenant.client, "document", "standard-webhooks");
        sights(&play(&tenant.client, json!([{ "forget": "document" }])));
        gone(&hook);
        gone(&Hook { path: "/v1/hooks/00000000000000000000000000000000".into(), ..hook });
        // A user's hooks are as revoked as it is.
        let user = tenant.user("revoked");
        let below = tenant.client.with("X-Service-User-Id", &user);
        let hook = open(&below, "of a user", "standard-webhooks");
        call(&outside, &hook, "before", now, "{}").expect(200);
        until("it is told in its own scope", || signals(&below, &hook).len() == 1);
        assert_eq!(signals(&tenant.client, &hook), [""; 0]);
        tenant.client.post(&format!("/v1/users/{user}/revoke"), &json!({})).expect(200);
        gone(&hook);
        tenant.client.post(&format!("/v1/users/{user}/restore"), &json!({})).expect(200);
        call(&outside, &hook, "after", now, "{}").expect(200);
        assert_eq!(count(world, "unknown"), 4);
        play(&tenant.client, json!([{ "note": "note", "slug": "odd", "count": 0 }, { "hook": "rot13", "slug": "odd" }])).expect_error(500, "internal_error");
    }

    fn other_schemes_are_a_plain_signature_and_none(world: Builder::new().bare()) {
        let tenant = tenant_with_script(world);
        let outside = world.anonymous();
        let plain = open(&tenant.client, "plain", "hmac-sha256");
        let send = |signature: &str, body: &str| {
            let call = outside.call("POST", &plain.path).header("x-service-signature", signature);
            call.bytes(body.as_bytes().to_vec()).send()
        };
        send(&signature::hmac_sha256(&plain.secret, b"one"), "one").expect(200);
        send(&signature::hmac_sha256(&plain.secret, b"one"), "one").expect(200);
        send(&signature::hmac_sha256(&plain.secret, b"one"), "two").expect_error(401, "unauthorized");
        until("it is told once, by its digest", || signals(&tenant.client, &plain).len() == 1);
        assert!(signals(&tenant.client, &plain)[0].starts_with("sha256:"));
        let open_to_all = open(&tenant.client, "open", "none");
        assert_eq!(open_to_all.secret, "");
        outside.call("POST", &open_to_all.path).bytes(vec![0xff, 0xfe]).send().expect(200);
        until("bytes are told in base64", || signals(&tenant.client, &open_to_all).iter().any(|told| told.ends_with(" //4=")));
    }

    fn a_provider_calls_one_address_for_everybody(world: Builder::new().bare()) {
        let (one, other) = (tenant_with_script(world), world.register());
        let outside = world.anonymous();
        let bound = |extra: Value| {
            let mut body = json!({ "kind": "stripe", "url": "http://127.0.0.1:9" });
            body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
            world.operator().put("/v1/operator/providers/script.peer", &body).expect(200)["provider"].clone()
        };
        let note = json!([{ "note": "note", "slug": "payer", "count": 0 }, { "hook": "script.peer", "slug": "payer" }]);
        let refused = play(&one.client, note.clone()).expect_error(501, "not_configured");
        assert_eq!(refused["details"]["missing"], json!(["script.peer"]));
        bound(json!({}));
        let refused = play(&one.client, note).expect_error(501, "not_configured");
        assert_eq!(refused["details"]["missing"], json!(["script.peer.webhook_secret"]));
        let path = "/v1/hooks/providers/script.peer";
        outside.post(path, &json!({})).expect_error(404, "not_found");
        let shown = bound(json!({ "webhook_secret": "whsec_first" }));
        assert_eq!((&shown["webhook_secret"], &shown["webhook_secret_previous"]), (&json!("set"), &json!("none")));
        assert_eq!(shown["webhook_url"], format!("{}{path}", outside.base()));
        let kind = json!({ "kind": "http", "url": "http://127.0.0.1:9", "webhook_secret": "x" });
        assert_eq!(world.operator().put("/v1/operator/providers/else", &kind).expect_error(400, "invalid_input")["param"], "webhook_secret");
        let (mine, theirs) = (open(&one.client, "mine", "script.peer"), open(&other.client, "theirs", "script.peer"));
        assert_eq!(mine.path, path);
        let now = one.seconds();
        let send = |secret: &str, body: &Value| {
            let body = body.to_string();
            let signature = stripe::signature(secret, now, &body);
            outside.call("POST", path).header("stripe-signature", &signature).bytes(body.into_bytes()).send()
        };
        let event = |id: &str, object: Value| json!({ "id": id, "type": "thing.happened", "data": { "object": object } });
        let first = event("evt_1", json!({ "metadata": { "charter_hook": mine.id } }));
        send("whsec_first", &first).expect(200);
        send("whsec_first", &first).expect(200);
        send("whsec_first", &event("evt_2", json!({ "client_reference_id": theirs.id }))).expect(200);
        until("each is told its own, once", || signals(&one.client, &mine).len() == 1 && signals(&other.client, &theirs).len() == 1);
        // An event for nobody is accepted and reaches nobody; an unsigned one is refused.
        send("whsec_first", &event("evt_3", json!({ "metadata": { "charter_hook": "0".repeat(32) } }))).expect(200);
        send("whsec_first", &event("evt_4", json!({}))).expect(200);
        send("whsec_forged", &event("evt_5", json!({ "metadata": { "charter_hook": mine.id } }))).expect_error(401, "unauthorized");
        outside.post(&format!("/v1/hooks/{}", mine.id), &first).expect_error(404, "not_found");
        assert_eq!((count(world, "taken"), count(world, "repeated"), count(world, "unmatched")), (2, 1, 2));
        // While it is rotated both secrets count, and then the new one alone.
        bound(json!({ "webhook_secret": "whsec_second", "webhook_secret_previous": "whsec_first" }));
        for (id, secret) in [("evt_6", "whsec_first"), ("evt_7", "whsec_second")] {
            send(secret, &event(id, json!({ "metadata": { "charter_hook": mine.id } }))).expect(200);
        }
        bound(json!({ "webhook_secret_previous": null }));
        send("whsec_first", &event("evt_8", json!({}))).expect_error(401, "unauthorized");
        // An organization's own binding is another provider: its secret signs nothing for others,
        // and theirs nothing for it.
        let own = json!({ "kind": "stripe", "url": "http://127.0.0.1:9", "webhook_secret": "whsec_own", "scope": { "organization": other.organization } });
        world.operator().put("/v1/operator/providers/script.peer", &own).expect(200);
        let before = count(world, "taken");
        send("whsec_own", &event("evt_9", json!({ "metadata": { "charter_hook": mine.id } }))).expect(200);
        send("whsec_second", &event("evt_10", json!({ "metadata": { "charter_hook": theirs.id } }))).expect(200);
        assert_eq!(count(world, "taken"), before);
        send("whsec_own", &event("evt_11", json!({ "metadata": { "charter_hook": theirs.id } }))).expect(200);
        assert_eq!(count(world, "taken"), before + 1);
    }

    fn a_primitive_that_is_switched_off_calls_no_other_by_what_it_is_told(world: Builder::new()) {
        let tenant = tenant_with_script(world);
        let body = json!({ "kind": "stripe", "url": "http://127.0.0.1:9", "webhook_secret": "whsec_own" });
        world.operator().put("/v1/operator/providers/script.peer", &body).expect(200);
        let kit = tenant.client.post("/v1/kits", &json!({ "name": "own", "primitives": {} })).expect(201)["kit"]["id"].clone();
        let user = tenant.user("told");
        tenant.client.patch(&format!("/v1/users/{user}"), &json!({ "kit_id": kit })).expect(200);
        let below = tenant.client.with("X-Service-User-Id", &user);
        let (hook, provider) = (open(&below, "mine", "script.peer"), world.anonymous());
        let calls = json!([{ "audit": "script.looked" }, { "try": { "call": "queue.list" } }, { "try": { "call": "queue.create", "body": { "name": "told" } } }]);
        let tell = |event: &str| {
            let object = json!({ "metadata": { "charter_hook": hook.id }, "script": { "steps": calls } });
            let body = json!({ "id": event, "type": "thing.happened", "data": { "object": object } }).to_string();
            let signature = stripe::signature("whsec_own", tenant.seconds(), &body);
            let call = provider.call("POST", &hook.path).header("stripe-signature", &signature);
            call.bytes(body.into_bytes()).send().expect(200);
        };
        let switch = |on: bool| {
            let kit = format!("/v1/kits/{}", kit.as_str().unwrap());
            tenant.client.patch(&kit, &json!({ "primitives": { "script": { "enabled": on } } })).expect(200);
        };
        tell("evt_on");
        until("it is told", || signals(&below, &hook).len() == 1);
        let told = signals(&below, &hook).remove(0);
        assert!(told.contains("\"status\":200") && told.contains("\"status\":201"), "{told}");
        switch(false);
        tell("evt_switched_off");
        let looks = || tenant.client.get("/v1/logs?action=script.looked").expect(200)["logs"].as_array().unwrap().len();
        until("it is told whatever its kit says", || looks() == 2);
        switch(true);
        let told = signals(&below, &hook).remove(1);
        assert_eq!(told.matches("primitive_disabled_by_kit").count(), 2, "{told}");
        assert_eq!(below.get("/v1/queue").expect(200)["queues"].as_array().unwrap().len(), 1);
    }

    // A job that the crash takes amid its run comes again once its deadline is over.
    fn a_call_that_was_answered_survives_a_crash(
        world: Builder::new().bare().environment("CHARTER_JOBS_DEADLINE_MS", "5000")
    ) {
        let tenant = tenant_with_script(world);
        let hook = open(&tenant.client, "crash", "standard-webhooks");
        let now = tenant.seconds();
        call(&world.anonymous(), &hook, "msg_1", now, "one").expect(200);
        world.kill();
        world.start();
        let (client, outside) = (tenant.client.at(world.server().address()), world.anonymous());
        call(&outside, &hook, "msg_1", now, "one").expect(200);
        until("it is told", || signals(&client, &hook).len() == 1);
        call(&outside, &hook, "msg_2", now, "two").expect(200);
        until("and nothing twice", || signals(&client, &hook) == ["msg_1 one", "msg_2 two"]);
    }
}

#[test]
fn of_two_replicas_that_hear_of_an_event_at_once_one_tells_it() {
    let world = Builder::new().bare().start(Database::Postgresql);
    let tenant = tenant_with_script(&world);
    let (second, _folder) = world.replica();
    let (here, there) = (world.anonymous(), second.client());
    let hook = open(&tenant.client, "shared", "standard-webhooks");
    let now = tenant.seconds();
    let events: Vec<String> = (0..20).map(|n| format!("msg_{n:02}")).collect();
    for event in &events {
        let start = Barrier::new(2);
        std::thread::scope(|scope| {
            for client in [&here, &there] {
                let (start, hook) = (&start, &hook);
                scope.spawn(move || {
                    start.wait();
                    call(client, hook, event, now, event).expect(200);
                });
            }
        });
    }
    let wanted: Vec<String> = events.iter().map(|event| format!("{event} {event}")).collect();
    until("all are told", || signals(&tenant.client, &hook).len() >= wanted.len());
    assert_eq!(signals(&tenant.client, &hook), wanted);
    let operators = [world.operator(), world.operator().at(second.address())];
    let sum = |name: &str| operators.iter().map(|operator| gauge(operator, name)).sum::<u64>();
    // The second one was run again, and is one call all the same.
    assert_eq!((sum("charter_hook_calls_taken"), sum("charter_hook_calls_repeated")), (20, 20));
}
