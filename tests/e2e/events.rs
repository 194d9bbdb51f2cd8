//! The live stream, read by a public client: what happened, in order, without holes or repeats.

use std::time::{Duration, Instant};

use charter_tests::artefacts::Artefacts;
use charter_tests::patience::until;
use charter_tests::raw::Raw;
use charter_tests::stream::Stream;
use charter_tests::world::Builder;
use charter_tests::{Client, Database, Tenant, World, on_both};
use serde_json::{Value, json};

use crate::rules::play;

fn open(client: &Client, after: Option<&str>) -> Stream {
    let call = client.call("GET", "/v1/events").header("accept", "text/event-stream");
    Stream::open(match after {
        Some(id) => call.header("last-event-id", id),
        None => call,
    })
}

fn tenant_with_script(world: &World) -> Tenant {
    world.install("script", &Artefacts::get().fixture("script"));
    world.register()
}

/// Says the number on the live stream.
fn say(tenant: &Tenant, number: usize) {
    play(&tenant.client, json!([{ "emit": number.to_string() }])).expect(200);
}

fn number(data: &str) -> u64 {
    serde_json::from_str::<Value>(data).unwrap()["payload"]["text"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap()
}

/// Waits until the stream's own position covers an audit row of what was done.
fn heads(tenant: &Tenant) -> u64 {
    tenant.client.get("/v1/logs?limit=1").expect(200)["logs"][0]["seq"].as_u64().unwrap_or(0)
}

on_both! {
    fn what_happens_is_told_in_its_shape(world: Builder::new().bare()) {
        let tenant = tenant_with_script(world);
        let stream = open(&tenant.client, None);
        say(&tenant, 7);
        // The row of the request, and what was said in it, in the order of their times.
        let mut both = [stream.next().unwrap(), stream.next().unwrap()];
        both.sort_by(|one, other| other.event.cmp(&one.event));
        let [event, activity] = both;
        assert_eq!(event.event, "script.told");
        let data: Value = serde_json::from_str(&event.data).unwrap();
        assert_eq!(data["companyId"], tenant.organization);
        assert_eq!((&data["type"], &data["payload"]), (&json!("script.told"), &json!({ "text": "7" })));
        assert_eq!(data["primitive"], "script");
        assert!(data["createdAt"].as_str().unwrap().ends_with('Z') && data["id"].is_string(), "{data}");
        let data: Value = serde_json::from_str(&activity.data).unwrap();
        assert_eq!(data["payload"]["action"], "script.play");
        assert_eq!(data.get("primitive"), Some(&Value::Null), "the host wrote the row of the request");
        for member in ["actorType", "actorId", "entityType", "entityId", "agentId", "runId", "details"] {
            assert!(data["payload"].get(member).is_some(), "{member} is missing in {data}");
        }
        let ids: Vec<u64> = [&event.id, &activity.id].map(|id| id.parse().unwrap()).into();
        assert_ne!(ids[0], ids[1]);
        // A row that the primitive wrote names it, in the log and on the stream.
        play(&tenant.client, json!([{ "audit": "script.looked" }])).expect(200);
        let own = |action: &str| loop {
            let data: Value = serde_json::from_str(&stream.next_of("activity.logged").data).unwrap();
            if data["payload"]["action"] == action {
                break data["primitive"].clone();
            }
        };
        assert_eq!(own("script.looked"), "script");
        let logged = |action: &str| {
            let page = tenant.client.get(&format!("/v1/logs?action={action}")).expect(200);
            let row = page["logs"][0].clone();
            row.get("primitive").cloned()
        };
        until("the rows are numbered", || logged("script.looked").is_some() && logged("script.play").is_some());
        assert_eq!((logged("script.looked"), logged("script.play")), (Some(json!("script")), Some(Value::Null)));
    }

    fn a_reader_that_comes_again_misses_nothing_and_hears_nothing_twice(world: Builder::new().bare()) {
        let tenant = tenant_with_script(world);
        let first = open(&tenant.client, None);
        let count = 60_usize;
        let heard = std::thread::scope(|scope| {
            let writer = scope.spawn(|| (0..count).for_each(|number| say(&tenant, number)));
            let (mut heard, mut stream, mut after) = (Vec::new(), first, None);
            while heard.len() < count {
                // Hangs up now and then, wherever it is.
                if heard.len() % 7 == 6 && after.is_some() {
                    stream = open(&tenant.client, after.as_deref());
                }
                let event = stream.next().expect("the stream goes on");
                after = Some(event.id.clone());
                if event.event == "script.told" {
                    heard.push(number(&event.data));
                }
            }
            writer.join().unwrap();
            heard
        });
        assert_eq!(heard, (0..count as u64).collect::<Vec<_>>());
    }

    fn a_restart_is_no_hole(world: Builder::new().bare()) {
        let tenant = tenant_with_script(world);
        let stream = open(&tenant.client, None);
        (0..3).for_each(|number| say(&tenant, number));
        stream.next_of("script.told");
        let last = stream.next_of("script.told");
        (3..5).for_each(|number| say(&tenant, number));
        world.kill();
        world.start();
        let client = tenant.client.at(world.server().client().base());
        let again = open(&client, Some(&last.id));
        let heard: Vec<u64> = (0..3).map(|_| number(&again.next_of("script.told").data)).collect();
        assert_eq!(heard, [2, 3, 4]);
    }

    fn who_comes_too_late_is_told_of_the_gap(world: Builder::new().bare()) {
        let tenant = tenant_with_script(world);
        let from = open(&tenant.client, Some("0"));
        say(&tenant, 1);
        let id: u64 = from.next_of("script.told").id.parse().unwrap();
        assert!(id >> 32 == 1, "{id}");
        // A position of this stream, or none: what has not happened is no place to begin.
        let far = ((1_000_u64 << 32) + 5).to_string();
        let refused = tenant.client.call("GET", "/v1/events").header("last-event-id", &far).send();
        assert_eq!(refused.expect_error(400, "invalid_input")["param"], "Last-Event-ID");
        let refused = tenant.client.get("/v1/events?after=x");
        assert_eq!(refused.expect_error(400, "invalid_input")["param"], "after");
    }

    fn one_organizations_events_are_nobody_elses(world: Builder::new().bare()) {
        let tenant = tenant_with_script(world);
        let other = world.register();
        let stream = open(&other.client, None);
        say(&tenant, 1);
        say(&other, 2);
        assert_eq!(number(&stream.next_of("script.told").data), 2);
        let pinned = tenant.key(json!({ "role": "developer", "user_id": tenant.user }));
        assert_eq!(pinned.get("/v1/events").status, 403);
    }

    fn a_revoked_keys_stream_ends(world: Builder::new().bare()) {
        let tenant = tenant_with_script(world);
        let made = tenant.client.post("/v1/auth/keys", &json!({ "name": "reader" })).expect(201);
        let stream = open(&tenant.client.bearer(made["key"].as_str().unwrap()), None);
        tenant.client.delete(&format!("/v1/auth/keys/{}", made["id"].as_str().unwrap())).expect(200);
        until("the stream ends", || stream.next().is_none());
    }

    fn a_revoked_keys_stream_ends_however_slowly_it_is_read(world: Builder::new().bare()) {
        let tenant = tenant_with_script(world);
        let long = vec![json!({ "emit": "x".repeat(1_500) }); 190];
        for _ in 0..32 {
            play(&tenant.client, long.clone().into()).expect(200);
        }
        let made = tenant.client.post("/v1/auth/keys", &json!({ "name": "reader" })).expect(201);
        let base = tenant.client.base();
        let mut slow = Raw::connect(base).unwrap();
        let key = made["key"].as_str().unwrap();
        let asked = format!("GET /v1/events?after=0 HTTP/1.1\r\nhost: charter\r\nauthorization: Bearer {key}\r\nconnection: close\r\n\r\n");
        assert!(slow.say(asked.as_bytes()));
        assert!(slow.first().contains("200 OK"), "it is open");
        tenant.client.delete(&format!("/v1/auth/keys/{}", made["id"].as_str().unwrap())).expect(200);
        let revoked = Instant::now();
        until("the seconds are over that it may take", || revoked.elapsed() > Duration::from_secs(6));
        play(&tenant.client, json!([{ "emit": "after the revocation" }])).expect(200);
        let heard = slow.rest();
        assert!(heard.contains("xxx"), "{heard:.300}");
        assert!(!heard.contains("after the revocation"));
    }

    fn a_pinned_key_that_reads_nothing_silences_nobody_else(world: Builder::new().bare()) {
        let tenant = tenant_with_script(world);
        let large = json!({ "append": "large", "bytes": 1_000_000 });
        play(&tenant.client, vec![large; 4].into()).expect(200);
        let wished = json!({ "name": "pinned", "role": "viewer", "user_id": tenant.user });
        let made = tenant.client.post("/v1/auth/keys", &wished).expect(201);
        let key = made["key"].as_str().unwrap();
        let asked = format!("GET /v1/script/logs/large HTTP/1.1\r\nhost: charter\r\nauthorization: Bearer {key}\r\n\r\n");
        let unread: Vec<Raw> = (0..40)
            .map(|_| {
                let mut raw = Raw::connect(tenant.client.base()).unwrap();
                assert!(raw.say(asked.as_bytes()));
                assert!(raw.first().contains("200 OK"), "it is open");
                raw
            })
            .collect();
        let stream = open(&tenant.client, None);
        say(&tenant, 1);
        assert_eq!(number(&stream.next_of("script.told").data), 1);
        drop(unread);
    }
}

#[test]
fn another_replica_goes_on_where_the_first_one_was() {
    let world = Builder::new().bare().start(Database::Postgresql);
    let tenant = tenant_with_script(&world);
    let (other, _data) = world.replica();
    let stream = open(&tenant.client, None);
    (0..4).for_each(|number| say(&tenant, number));
    stream.next_of("script.told");
    let last = stream.next_of("script.told");
    let elsewhere = tenant.at(other.client().base());
    let again = open(&elsewhere.client, Some(&last.id));
    say(&elsewhere, 4);
    let heard: Vec<u64> = (0..3).map(|_| number(&again.next_of("script.told").data)).collect();
    assert_eq!(heard, [2, 3, 4]);
    // And the first one hears what happened at the second.
    let heard: Vec<u64> = (0..3).map(|_| number(&stream.next_of("script.told").data)).collect();
    assert_eq!(heard, [2, 3, 4]);
    until("the rows are numbered", || heads(&tenant) > 0);
}
