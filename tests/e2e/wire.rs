//! The front door against clients that break the rules, by mistake or on purpose: each gets one
//! clear answer and no more.

use std::time::{Duration, Instant};

use charter_tests::artefacts::Artefacts;
use charter_tests::patience::until;
use charter_tests::raw::{Raw, statuses};
use charter_tests::tenant::unique;
use charter_tests::world::Builder;
use charter_tests::{Client, Database, Tenant, World, on_both};
use serde_json::{Map, json};

/// The largest body that is admitted by default.
const BODY_MAX: usize = 4 << 20;
/// The bytes of one chunk of a body without an end; the largest body is a whole number of them.
const CHUNK: usize = 0x10000;

/// A request's head with this credential, and the connection closed behind its answer.
fn head(line: &str, tenant: &Tenant, fields: &str) -> String {
    format!(
        "{line} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\nconnection: close\r\n{fields}\r\n",
        tenant.key
    )
}

/// A JSON body sent as it is, whatever it is.
fn send(client: &Client, body: impl Into<bytes::Bytes>) -> charter_tests::Answer {
    send_to(client, "/v1/users", body)
}

/// The same to any path.
fn send_to(client: &Client, path: &str, body: impl Into<bytes::Bytes>) -> charter_tests::Answer {
    client.call("POST", path).header("content-type", "application/json").bytes(body).send()
}

#[test]
fn a_body_that_says_it_is_too_large_is_refused_unheard() {
    let world = World::shared(Database::Sqlite);
    let tenant = world.register();
    let began = Instant::now();
    let request = head(
        "POST /v1/users",
        &tenant,
        "content-type: application/json\r\ncontent-length: 1073741824\r\n",
    );
    let heard = Raw::exchange(world.server().address(), format!("{request}{{").as_bytes());
    assert_eq!(statuses(&heard), [413], "{heard}");
    assert!(heard.contains("payload_too_large"), "{heard}");
    assert!(began.elapsed() < Duration::from_secs(20), "the server waited for the body");
}

/// Begins a body that says no length; answers the connection, and one chunk of `CHUNK` bytes to go
/// on with.
fn endless(world: &World, tenant: &Tenant) -> (Raw, String) {
    let mut raw = Raw::connect(world.server().address()).unwrap();
    let request = head(
        "POST /v1/users",
        tenant,
        "content-type: application/json\r\ntransfer-encoding: chunked\r\n",
    );
    assert!(raw.say(request.as_bytes()));
    (raw, format!("{CHUNK:x}\r\n{}\r\n", " ".repeat(CHUNK)))
}

#[test]
fn a_body_without_an_end_is_refused_at_the_limit() {
    let world = World::shared(Database::Sqlite);
    let tenant = world.register();
    let (mut raw, chunk) = endless(world, &tenant);
    let mut said = 0;
    while raw.say(chunk.as_bytes()) {
        said += CHUNK;
        assert!(said < 16 * BODY_MAX, "the server goes on listening");
    }
    assert!(said >= BODY_MAX, "it hung up after {said} bytes");
    // Another client is served as ever.
    tenant.client.get("/v1/users").expect(200);
}

#[test]
fn a_body_without_an_end_is_told_that_it_is_too_large() {
    let world = World::shared(Database::Sqlite);
    let tenant = world.register();
    let (mut raw, chunk) = endless(world, &tenant);
    for _ in 0..BODY_MAX / CHUNK {
        assert!(raw.say(chunk.as_bytes()), "it hung up before the limit");
    }
    // One byte more than is admitted, and then we only listen: nothing unheard of ours can break
    // the answer off.
    assert!(raw.say(b"1\r\n \r\n"));
    let heard = raw.rest();
    assert_eq!(statuses(&heard), [413], "{heard}");
    assert!(heard.contains("payload_too_large"), "{heard}");
}

#[test]
fn a_body_of_the_largest_size_is_read() {
    let tenant = World::shared(Database::Sqlite).register();
    let document = json!({ "name": unique("large") }).to_string();
    let filled = format!("{document}{}", " ".repeat(BODY_MAX - document.len()));
    send(&tenant.client, filled.clone()).expect(201);
    send(&tenant.client, format!("{filled} ")).expect_error(413, "payload_too_large");
}

on_both! {
    fn a_body_that_is_no_json_is_named_as_such(world) {
        let tenant = world.register();
        let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
        for (body, says) in [
            (deep.into_bytes(), "nest"),
            (br#"{"name": "#.to_vec(), "not valid JSON"),
            (b"nonsense".to_vec(), "not valid JSON"),
            (br#"{"name": "a", "name": "b"}"#.to_vec(), "stands twice"),
            (b"{\"name\": \"\xff\xfe\"}".to_vec(), "UTF-8"),
            (br#"{"name": "a\ud800"}"#.to_vec(), "not valid JSON"),
            (br#"{"name": "a\udc00b"}"#.to_vec(), "not valid JSON"),
        ] {
            let answer = send(&tenant.client, body);
            let error = answer.expect_error(400, "invalid_input");
            assert!(error["message"].as_str().unwrap().contains(says), "{answer}");
        }
        assert!(tenant.client.get("/v1/users").expect(200)["users"].as_array().unwrap().len() == 1, "a refused body made a user");
    }

    /// One database could keep the character and the other not: neither is asked.
    fn a_nul_in_a_text_is_refused_or_kept_alike(world) {
        let tenant = world.register();
        let answer = send(&tenant.client, r#"{"name": "a\u0000b"}"#);
        let error = answer.expect_error(400, "invalid_input");
        assert_eq!(error["param"], "name", "{answer}");
        // A value that a primitive keeps sealed may hold any character.
        let value = "a\u{0}b\u{1f}\u{fffd}\u{10ffff}";
        tenant.client.put("/v1/vault/odd", &json!({ "value": value })).expect(200);
        assert_eq!(tenant.client.post("/v1/vault/odd/reveal", &json!({})).expect(200)["value"], value);
        // And so may a body that a primitive only hands on.
        let queue = tenant.client.post("/v1/queue", &json!({ "name": "odd" })).expect(201)["queue"]["id"].clone();
        let messages = format!("/v1/queue/{}/messages", queue.as_str().unwrap());
        tenant.client.post(&messages, &json!({ "messages": [{ "body": { value: value } }] })).expect(201);
        let receive = format!("/v1/queue/{}/receive", queue.as_str().unwrap());
        let received = tenant.client.post(&receive, &json!({})).expect(200);
        assert_eq!(received["messages"][0]["body"], json!({ value: value }));
    }

    fn a_path_that_is_badly_written_is_refused(world) {
        let tenant = world.register();
        for path in ["/v1/users/%zz", "/v1/users/%", "/v1/users/%f", "/v1/users/%ff", "/v1/users/%00", "/v1/users/a%2fb", "/v1/users/%2e%2e/keys"] {
            let heard = Raw::exchange(world.server().address(), head(&format!("GET {path}"), &tenant, "").as_bytes());
            assert_eq!(statuses(&heard), [400], "{path}: {heard}");
            assert!(heard.contains(r#""param":"path""#), "{path}: {heard}");
        }
        let heard = Raw::exchange(world.server().address(), head("GET /v1/users?limit=%zz", &tenant, "").as_bytes());
        assert_eq!(statuses(&heard), [400], "{heard}");
    }
}

/// Each text where a primitive keeps it, finds by it and hands it on, and where the host does: what
/// was answered, in this order.
fn odd_texts_told(database: Database) -> Vec<(String, u16, String)> {
    let world = Builder::new().start(database);
    for name in ["probe", "script"] {
        world.install(name, &Artefacts::get().fixture(name));
    }
    let tenant = world.register();
    let mut told = Vec::new();
    for text in [r"a\u0000b", r"\u0000", r"a\ud800", r"\udc00b", r"\ud83d\ude00", r"\uffff"] {
        for (path, body) in [
            ("/v1/probe/pairs", format!(r#"{{"name": "{text}"}}"#)),
            ("/v1/probe/count", format!(r#"{{"key": "{text}"}}"#)),
            ("/v1/probe/count", format!(r#"{{"key": "{text}"}}"#)),
            ("/v1/script", format!(r#"{{"steps": [{{"lookup": "{text}"}}]}}"#)),
            ("/v1/script", format!(r#"{{"{text}": 1}}"#)),
            ("/v1/queue", format!(r#"{{"name": "{text}"}}"#)),
            ("/v1/users", format!(r#"{{"name": "{text}"}}"#)),
            ("/v1/users", format!(r#"{{"{text}": 1}}"#)),
        ] {
            let answer = send_to(&tenant.client, path, body.clone());
            assert!(answer.status < 500, "{answer}");
            let code = if answer.status < 400 {
                String::new()
            } else {
                answer.error()["code"].as_str().unwrap().to_owned()
            };
            told.push((format!("{path} {body}"), answer.status, code));
        }
    }
    // Kept documents can be read, and later requests are served as ever.
    let pairs = tenant.client.get("/v1/probe/pairs").expect(200);
    told.push((pairs.to_string(), 200, String::new()));
    tenant.client.post("/v1/probe/pairs", &json!({ "name": "plain" })).expect(201);
    told
}

#[test]
fn odd_texts_are_the_same_to_both_databases() {
    let (sqlite, postgresql) =
        (odd_texts_told(Database::Sqlite), odd_texts_told(Database::Postgresql));
    for (one, other) in sqlite.iter().zip(&postgresql) {
        assert_eq!(one, other, "SQLite on the left, PostgreSQL on the right");
    }
    // A whole pair is a character like any other; half of one is no text at all.
    let status = |what: &str| sqlite.iter().find(|(sent, ..)| sent == what).unwrap().1;
    assert_eq!(status(r#"/v1/probe/pairs {"name": "\ud83d\ude00"}"#), 201);
    assert_eq!(status(r#"/v1/probe/pairs {"name": "a\ud800"}"#), 400);
}

/// A proxy in front could read another request than we do; so nothing behind such a request is ever
/// answered.
#[test]
fn a_request_framed_in_two_ways_is_the_last_of_its_connection() {
    let world = World::shared(Database::Sqlite);
    let smuggled = "GET /health HTTP/1.1\r\nhost: x\r\n\r\n";
    for fields in [
        "content-length: 3\r\ncontent-length: 4\r\n",
        "content-length: 3, 4\r\n",
        "content-length: +3\r\n",
        "content-length: 0x3\r\n",
        "content-length: 3\r\ntransfer-encoding: chunked\r\n",
        "transfer-encoding: chunked\r\ncontent-length: 3\r\n",
        "transfer-encoding: identity\r\n",
        "transfer-encoding: chunked, gzip\r\n",
        "transfer-encoding : chunked\r\n",
    ] {
        let request =
            format!("POST /v1/auth/login HTTP/1.1\r\nhost: x\r\n{fields}\r\n0\r\n\r\n{smuggled}");
        let heard = Raw::exchange(world.server().address(), request.as_bytes());
        assert_eq!(statuses(&heard), [400], "{fields:?}: {heard}");
    }
}

/// A proxy in front may undo one coding more or less than the host does, and then reads another end
/// of the body.
#[test]
fn a_coding_that_we_do_not_speak_is_refused() {
    let world = World::shared(Database::Sqlite);
    let tenant = world.register();
    let next = "GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    let body = json!({ "name": unique("chunked") }).to_string();
    let exchange = |fields: &str, line: &str| {
        let credential =
            format!("authorization: Bearer {}\r\ncontent-type: application/json\r\n", tenant.key);
        let chunks = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
        let request =
            format!("{line} HTTP/1.1\r\nhost: x\r\n{credential}{fields}\r\n{chunks}{next}");
        Raw::exchange(world.server().address(), request.as_bytes())
    };
    let far_too_many: String = (0..150).map(|n| format!("x-{n}: a\r\n")).collect();
    for fields in [
        "transfer-encoding: gzip, chunked\r\n",
        "transfer-encoding: chunked, chunked\r\n",
        "transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n",
        "transfer-encoding: gzip\r\ntransfer-encoding: chunked\r\n",
        "transfer-encoding: identity, chunked\r\n",
        "transfer-encoding: xchunked, chunked\r\n",
        "transfer-encoding: , chunked\r\n",
        &format!("transfer-encoding: gzip, chunked\r\n{far_too_many}"),
    ] {
        // Whether anything would answer there makes no difference.
        for line in ["POST /v1/users", "GET /v1/users", "POST /nowhere", "POST /%zz"] {
            let heard = exchange(fields, line);
            assert_eq!(statuses(&heard), [400], "{line} {fields:?}: {heard}");
            let (head, body) = heard.split_once("\r\n\r\n").unwrap();
            assert!(
                head.contains("\r\nconnection: close") && head.contains("\r\nx-request-id: "),
                "{line} {fields:?}: {heard}"
            );
            let error = &serde_json::from_str::<serde_json::Value>(body).unwrap()["error"];
            assert_eq!(
                (&error["code"], &error["param"]),
                (&json!("invalid_input"), &json!("Transfer-Encoding")),
                "{heard}"
            );
        }
    }
    assert_eq!(
        tenant.client.get("/v1/users").expect(200)["users"].as_array().unwrap().len(),
        1,
        "a refused body made a user"
    );
    // The one that we do speak is heard to its end, and so is what follows.
    let heard = exchange("transfer-encoding: chunked\r\n", "POST /v1/users");
    assert_eq!(statuses(&heard), [201, 200], "{heard}");
    assert!(heard.contains(&body[1..body.len() - 1]), "{heard}");
    assert_eq!(statuses(&exchange("Transfer-Encoding: Chunked\r\n", "GET /v1/users")), [200, 200]);
}

/// Of two values somebody in front of us may have looked at the other one.
#[test]
fn what_counts_once_is_given_once() {
    let world = World::shared(Database::Sqlite);
    let tenant = world.register();
    let ask = |host: &str, fields: &str| {
        let request = format!("GET /v1/users HTTP/1.1\r\n{host}connection: close\r\n{fields}\r\n");
        let heard = Raw::exchange(world.server().address(), request.as_bytes());
        assert_eq!(statuses(&heard).len(), 1, "{heard}");
        let (_, body) = heard.split_once("\r\n\r\n").unwrap();
        (
            statuses(&heard)[0],
            serde_json::from_str::<serde_json::Value>(body).unwrap()["error"]["param"].clone(),
        )
    };
    let credential = format!("authorization: Bearer {}\r\n", tenant.key);
    assert_eq!(ask("host: x\r\n", &credential), (200, json!(null)));
    for (host, fields, param) in [
        ("", String::new(), "host"),
        ("host: x\r\nhost: y\r\n", String::new(), "host"),
        ("host: a b\r\n", String::new(), "host"),
        ("host: x/y\r\n", String::new(), "host"),
        ("host: x\r\n", credential.clone(), "authorization"),
        (
            "host: x\r\n",
            "x-service-user-id: me\r\nx-service-user-id: zz\r\n".to_owned(),
            "x-service-user-id",
        ),
        (
            "host: x\r\n",
            "x-service-project-id: a\r\nx-service-project-id: b\r\n".to_owned(),
            "x-service-project-id",
        ),
        (
            "host: x\r\n",
            "idempotency-key: a\r\nidempotency-key: b\r\n".to_owned(),
            "idempotency-key",
        ),
    ] {
        assert_eq!(
            ask(host, &format!("{credential}{fields}")),
            (400, json!(param)),
            "{host:?} {fields:?}"
        );
    }
}

#[test]
fn errors_come_in_the_format_that_is_asked_for_first() {
    let world = World::shared(Database::Sqlite);
    for (accept, problem) in [
        ("application/problem+json", true),
        ("application/json, application/problem+json", true),
        ("application/problem+json;q=0.1, application/json", false),
        ("application/problem+json;q=0", false),
        ("*/*", false),
    ] {
        let answer = world.anonymous().call("GET", "/v1/users").header("accept", accept).send();
        let media = if problem { "application/problem+json" } else { "application/json" };
        assert_eq!((answer.status, answer.header("content-type")), (401, Some(media)), "{accept}");
    }
}

/// An organization whose list of users takes a hundred thousand bytes.
fn with_large_users(world: &World) -> Tenant {
    let tenant = world.register();
    let metadata: Map<_, _> = (0..50).map(|n| (format!("k{n}"), json!("x".repeat(500)))).collect();
    for n in 0..4 {
        let user = json!({"name": format!("n{n}"), "metadata": metadata});
        tenant.client.post("/v1/users", &user).expect(201);
    }
    tenant
}

/// A key that reads.
fn viewer(tenant: &Tenant) -> String {
    let wishes = json!({"name": unique("agent"), "role": "viewer"});
    let made = tenant.client.post("/v1/auth/keys", &wishes).expect(201);
    made["key"].as_str().unwrap().to_owned()
}

/// The value of a gauge of the server's.
fn gauge(world: &World, name: &str) -> f64 {
    let text = world.operator().get("/metrics").text();
    let found = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    found.and_then(|value| value.parse().ok()).unwrap_or_default()
}

/// A host that holds 4 MiB of bodies.
fn little_room() -> Builder {
    Builder::new()
        .environment("CHARTER_HTTP_BODIES_BYTES_MAX", "4194304")
        .environment("CHARTER_HTTP_BODY_BYTES_MAX", "1048576")
}

on_both! {
    fn what_a_request_was_admitted_under_is_asked_again_when_its_body_took_its_time(world) {
        let tenant = world.register();
        let kit = tenant.kit("open", json!({"queue": {"enabled": true}}));
        let agent = tenant.user_with_kit("agent", &kit);
        let body = json!({"name": "late"}).to_string();
        let mut raw = Raw::connect(world.server().address()).unwrap();
        let fields = format!("content-type: application/json\r\ncontent-length: {}\r\n", body.len());
        assert!(raw.say(head(&format!("POST /v1/users/{agent}/queue"), &tenant, &fields).as_bytes()));
        assert!(raw.say(&body.as_bytes()[..3]));
        let began = Instant::now();
        while began.elapsed() < Duration::from_millis(300) {
            tenant.client.patch(&format!("/v1/kits/{kit}"), &json!({"primitives": {"queue": {"enabled": false}}})).expect(200);
        }
        assert!(raw.say(&body.as_bytes()[3..]));
        let heard = raw.rest();
        assert_eq!(statuses(&heard), [403], "{heard}");
    }

    fn a_kit_that_says_no_ends_what_waits(world) {
        let tenant = world.register();
        let kit = tenant.kit("open", json!({"queue": {"enabled": true}}));
        let path = format!("/v1/users/{}/queue", tenant.user_with_kit("agent", &kit));
        let queue = charter_tests::tenant::id(&tenant.client.post(&path, &json!({"name": "q"})).expect(201)["queue"]);
        let path = format!("{path}/{queue}");
        tenant.client.post(&format!("{path}/messages"), &json!({"messages": [{"body": 1, "delay_seconds": 2}]})).expect(201);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| tenant.client.post(&format!("{path}/receive"), &json!({"wait_seconds": 10})));
            let off = json!({"primitives": {"queue": {"enabled": false}}});
            tenant.client.patch(&format!("/v1/kits/{kit}"), &off).expect(200);
            waiting.join().unwrap().expect_error(403, "forbidden");
        });
        tenant.client.patch(&format!("/v1/kits/{kit}"), &json!({"primitives": {"queue": {"enabled": true}}})).expect(200);
        let received = tenant.client.post(&format!("{path}/receive"), &json!({"wait_seconds": 10})).expect(200);
        assert_eq!(received["messages"][0]["receive_count"], 1, "nothing was handed out to whoever was refused: {received}");
    }
}

on_both! {
    fn bodies_have_room_for_everybody_and_not_all_of_it_for_one(world: little_room()) {
        let (greedy, other) = (world.register(), world.register());
        let fields = "content-type: application/json\r\ncontent-length: 1048576\r\n";
        // The one has its own room for one body, and the other half of what is its person's.
        let raw = [1_000_000, 300_000].map(|bytes| {
            let held = gauge(world, "charter_request_body_bytes");
            let mut raw = Raw::connect(world.server().address()).unwrap();
            assert!(raw.say(head("POST /v1/users", &greedy, fields).as_bytes()));
            assert!(raw.say(&vec![b' '; bytes]));
            let all = held + bytes as f64;
            until("the server holds it", || gauge(world, "charter_request_body_bytes") >= all);
            raw
        });
        let large = json!({"name": "n", "metadata": {"x": "y".repeat(60_000)}});
        let full = greedy.client.post("/v1/users", &large);
        assert_eq!((full.status, full.header("retry-after")), (429, Some("1")), "{full}");
        assert_ne!(other.client.post("/v1/users", &large).status, 429);
        drop(raw);
        until("its share is free", || greedy.client.post("/v1/users", &large).status != 429);
    }
}

on_both! {
    fn a_body_that_is_slow_gives_way_to_who_has_less(world: little_room()) {
        let held = || gauge(world, "charter_request_body_bytes");
        let begin = |tenant: &Tenant, bytes: usize| {
            let all = held() + bytes as f64;
            let mut raw = Raw::connect(world.server().address()).unwrap();
            let fields = "content-type: application/json\r\ncontent-length: 1048576\r\n";
            assert!(raw.say(head("POST /v1/users", tenant, fields).as_bytes()));
            assert!(raw.say(&vec![b' '; bytes]));
            until("the server holds it", || held() >= all);
            raw
        };
        let other = world.register();
        let _own = begin(&other, 1_000);
        let mut hogs = [[520_000, 500_000, 500_000, 500_000], [500_000, 500_000, 500_000, 220_000]]
            .concat()
            .into_iter()
            .chain([200_000, 110_000, 60_000, 30_000])
            .map(|bytes| begin(&world.register(), bytes))
            .collect::<Vec<_>>();
        let metadata: Map<_, _> = (0..50).map(|n| (format!("k{n}"), json!("\u{1F600}".repeat(400)))).collect();
        let large = json!({"name": "n", "metadata": metadata});
        until("a body that is whole finds room", || other.client.post("/v1/users", &large).status == 201);
        let heard = hogs[0].rest();
        assert_eq!(statuses(&heard), [503], "who has most gave way: {heard}");
        assert!(heard.contains("The body took long while others found no room."), "{heard}");
    }
}

on_both! {
    fn answers_have_room_for_everybody_and_not_all_of_it_for_one(world: little_room()) {
        let tenant = with_large_users(world);
        let key = viewer(&tenant);
        let agent = tenant.client.bearer(&key);
        let path = "/v1/users?limit=100";
        let raw = unread(world, path, &key);
        until("its answer waits to be read", || gauge(world, "charter_answer_body_bytes") >= 100_000.0);
        let refused = agent.get(path);
        assert_eq!((refused.status, refused.header("retry-after")), (429, Some("1")), "{refused}");
        assert_eq!(tenant.client.get(path).expect(200)["users"].as_array().unwrap().len(), 5);
        drop(raw);
        until("its share is free", || agent.get(path).status == 200);
    }
}

on_both! {
    fn an_answer_that_nobody_reads_gives_way_to_who_has_less(
        world: little_room().environment("CHARTER_HTTP_BODY_TIMEOUT_MS", "600000")
    ) {
        let tenant = with_large_users(world);
        let path = "/v1/users?limit=100";
        let mut unread: Vec<_> = (1..=2)
            .map(|n| {
                let raw = unread(world, path, &viewer(&tenant));
                let all = f64::from(n) * 100_000.0;
                until("its answer waits to be read", || gauge(world, "charter_answer_body_bytes") >= all);
                raw
            })
            .collect();
        let another = tenant.client.bearer(&viewer(&tenant));
        // The person's keys have what they may.
        until("one that is slow gives way", || another.get(path).status == 200);
        assert!(!unread[0].rest().is_empty(), "its connection is cut, behind the settings");
        assert_eq!(another.get(path).status, 200, "and the other's is not");
        assert!(gauge(world, "charter_answer_body_bytes") >= 100_000.0);
    }
}

on_both! {
    fn a_connection_that_a_proxy_shares_among_clients_is_not_cut(
        world: little_room()
            .argument("--trusted-proxies=127.0.0.2/32")
            .environment("CHARTER_HTTP_BODY_TIMEOUT_MS", "600000")
    ) {
        let tenant = with_large_users(world);
        let path = "/v1/users?limit=100";
        let address = world.server().address();
        let proxy = Raw::connect_from("127.0.0.2", address).unwrap();
        let mut unread: Vec<_> = [proxy, Raw::connect(address).unwrap()]
            .into_iter()
            .zip([100_000.0, 200_000.0])
            .map(|(raw, all)| {
                let raw = ask_unread(raw, path, &viewer(&tenant));
                until("its answer waits to be read", || gauge(world, "charter_answer_body_bytes") >= all);
                raw
            })
            .collect();
        let another = tenant.client.bearer(&viewer(&tenant));
        until("one that is slow gives way", || another.get(path).status == 200);
        assert!(!unread[1].rest().is_empty(), "a client's own connection is cut");
        // Another client of the proxy is heard (RFC 9113, 6.7).
        assert!(unread[0].say(&h2_frame(6, 0, 0, b"are you?")));
        until("the proxy's goes on", || unread[0].first().contains("are you?"));
    }
}

on_both! {
    fn a_change_whose_answer_finds_no_room_is_not_made(world: little_room().bare()) {
        world.install("script", &Artefacts::get().fixture("script"));
        let tenant = world.register();
        let play = |client: &Client, path: &str, steps: serde_json::Value| {
            client.post(path, &json!({"steps": steps}))
        };
        let notes: Vec<_> =
            (0..150).map(|n| json!({"note": "note", "slug": format!("{n:0480}")})).collect();
        play(&tenant.client, "/v1/script", notes.into()).expect(200);
        let made = tenant.client.post("/v1/auth/keys", &json!({"name": "agent", "role": "developer"})).expect(201);
        let key = made["key"].as_str().unwrap();
        let agent = tenant.client.bearer(key);
        let raw = unread(world, "/v1/script/notes", key);
        until("its answer waits to be read", || gauge(world, "charter_answer_body_bytes") >= 70_000.0);
        let large = json!({"call": "script.notes"});
        let refused = play(&agent, "/v1/script", json!([{"note": "made"}, large, large]));
        assert_eq!((refused.status, refused.header("retry-after")), (429, Some("1")), "{refused:.300}");
        let count = || play(&tenant.client, "/v1/script/peek", json!([{"count": "made"}])).expect(200)["seen"][0].clone();
        assert_eq!(count(), 0);
        // It is told of what was committed before, and its answer is dropped.
        let dropped = play(&agent, "/v1/script", json!([{"note": "made"}, {"checkpoint": 1}, large, large]));
        assert_eq!(dropped.expect_error(409, "state_conflict")["reason"], "answer_dropped");
        assert_eq!(count(), 1);
        play(&agent, "/v1/script", json!([{"note": "made"}])).expect(200);
        drop(raw);
        until("its share is free", || play(&agent, "/v1/script", json!([large, large])).status == 200);
    }
}

#[test]
fn a_head_that_is_too_large_is_refused() {
    let world = World::shared(Database::Sqlite);
    let many: String = (0..150).map(|n| format!("x-{n}: a\r\n")).collect();
    for fields in
        [format!("x: {}\r\n", "a".repeat(40_000)), format!("x: {}\r\n", "a".repeat(100_000)), many]
    {
        let request =
            format!("GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{fields}\r\n");
        let heard = Raw::exchange(world.server().address(), request.as_bytes());
        assert_eq!(statuses(&heard), [431], "{heard}");
        assert!(heard.contains("headers_too_large") && heard.contains("x-request-id"), "{heard}");
    }
    let far_too_many: String = (0..5_000).map(|n| format!("x-{n}: a\r\n")).collect();
    for fields in [format!("x: {}\r\n", "a".repeat(4 << 20)), far_too_many] {
        let heard = Raw::exchange(
            world.server().address(),
            format!("GET /health HTTP/1.1\r\nhost: x\r\n{fields}\r\n").as_bytes(),
        );
        // It may break off while we still talk; it never answers as if nothing were.
        assert!(statuses(&heard).iter().all(|status| *status == 431), "{heard}");
    }
    world.anonymous().get("/health").expect(200);
}

/// Asks for a path as a peer whose window lets nothing of its answer be written (RFC 9113, 6.5.2;
/// RFC 7541, 6.2.2).
fn unread(world: &World, path: &str, key: &str) -> Raw {
    ask_unread(Raw::connect(world.server().address()).unwrap(), path, key)
}

/// The same by a connection that is open.
fn ask_unread(mut raw: Raw, path: &str, key: &str) -> Raw {
    let text = |value: &str| [&[u8::try_from(value.len()).unwrap()], value.as_bytes()].concat();
    let fields = [
        b"\x82\x86\x04".as_slice(),
        &text(path),
        b"\x01",
        &text("x"),
        b"\x0f\x08",
        &text(&format!("Bearer {key}")),
    ];
    let asks = h2_frame(1, 5, 1, &fields.concat());
    assert!(raw.say(&[H2_PREFACE, &no_window(), &asks].concat()));
    raw
}

/// The first words of an HTTP/2 client (RFC 9113, 3.4).
const H2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

fn h2_frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let head = [0, 0, u8::try_from(payload.len()).unwrap(), kind, flags, 0, 0, 0, stream];
    [&head, payload].concat()
}

/// Settings by which no answer may be written.
fn no_window() -> Vec<u8> {
    h2_frame(4, 0, 0, &[0, 4, 0, 0, 0, 0])
}

#[test]
fn clients_that_dawdle_are_cut_off() {
    let world = Builder::new()
        .bare()
        .environment("CHARTER_HTTP_HEAD_TIMEOUT_MS", "1000")
        .environment("CHARTER_HTTP_BODY_TIMEOUT_MS", "1000")
        .environment("CHARTER_HTTP_IDLE_TIMEOUT_MS", "1500")
        .start(Database::Sqlite);
    let tenant = world.register();
    // A head that comes byte by byte and never ends, however long we go on.
    let mut slow = Raw::connect(world.server().address()).unwrap();
    let mut bytes = b"GET /health HTTP/1.1\r\nx: ".iter().chain(std::iter::repeat(&b'a'));
    let began = Instant::now();
    while slow.say(&[*bytes.next().unwrap()]) {
        assert!(
            began.elapsed() < Duration::from_secs(30),
            "a client holds its connection with a byte now and then"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    // One that says nothing at all.
    let mut silent = Raw::connect(world.server().address()).unwrap();
    assert_eq!(silent.rest(), "");
    // A body that stops in its middle.
    let mut stalled = Raw::connect(world.server().address()).unwrap();
    let request = head(
        "POST /v1/users",
        &tenant,
        "content-type: application/json\r\ncontent-length: 100\r\n",
    );
    stalled.say(format!("{request}{{").as_bytes());
    let heard = stalled.rest();
    assert_eq!(statuses(&heard), [408], "{heard}");
    // And one that keeps a connection after its answer, without a use for it.
    let mut idle = Raw::connect(world.server().address()).unwrap();
    idle.say(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n");
    assert_eq!(statuses(&idle.rest()), [200]);
    // Over HTTP/2, one whose window lets nothing of its answer be written, and that goes on talking,
    // and hears more about its pings than an answer has bytes (RFC 9113, 6.2, 6.5.2, 6.7).
    let asks = h2_frame(1, 5, 1, b"\x82\x86\x04\x07/health\x01\x01x");
    let mut withholds = Raw::connect(world.server().address()).unwrap();
    withholds.say(&[H2_PREFACE, &no_window(), &asks].concat());
    let began = Instant::now();
    let pings = h2_frame(6, 0, 0, &[0; 8]).repeat(64);
    while withholds.say(&pings) && withholds.hear() {
        assert!(
            began.elapsed() < Duration::from_secs(30),
            "a client holds its connection by pings"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
    tenant.client.get("/v1/users").expect(200);
}

#[test]
fn connections_beyond_the_limit_wait_their_turn() {
    let world = Builder::new()
        .bare()
        .environment("CHARTER_HTTP_CONNECTIONS_MAX", "4")
        .start(Database::Sqlite);
    let from = |address: &str| Raw::connect_from(address, world.server().address()).unwrap();
    let served = |address: &str| {
        let mut connection = from(address);
        connection.say(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n");
        assert_eq!(statuses(&connection.first()), [200], "{address}");
        connection
    };
    let refused = |address: &str| assert_eq!(from(address).rest(), "", "{address} has its share");
    let first = [served("127.0.0.1"), served("127.0.0.1")];
    refused("127.0.0.1");
    let _second = served("127.0.0.2");
    refused("127.0.0.2");
    let _third = served("127.0.0.3");
    // All are taken.
    let mut next = from("127.0.0.4");
    next.say(b"GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    drop(first);
    assert_eq!(statuses(&next.rest()), [200]);
}

#[test]
fn a_name_that_a_parser_has_a_meaning_for_is_refused() {
    let world = World::shared(Database::Sqlite);
    let tenant = Tenant::register(&Client::new(world.server().address()));
    let user = format!("/v1/users/{}", tenant.user("agent"));
    for name in ["$serde_json::private::RawValue", "\\u0024serde_json::private::RawValue"] {
        let body = format!(r#"{{"metadata":{{"{name}":"{{"}}}}"#);
        let sent = tenant.client.call("PATCH", &user).header("content-type", "application/json");
        let refused = sent.bytes(body).send();
        refused.expect_error(400, "invalid_input");
        assert!(refused.text().contains("is reserved"), "{refused}");
    }
}

#[test]
fn http_2_is_spoken_to_those_who_speak_it() {
    let world = World::shared(Database::Sqlite);
    let client = Client::http2(world.server().address());
    let tenant = Tenant::register(&client);
    std::thread::scope(|scope| {
        for n in 0..8 {
            let tenant = &tenant;
            scope.spawn(move || {
                tenant
                    .client
                    .post("/v1/users", &json!({ "name": format!("second-{n}") }))
                    .expect(201)
            });
        }
    });
    assert_eq!(
        tenant.client.get("/v1/users?limit=100").expect(200)["users"].as_array().unwrap().len(),
        9
    );
    let head = tenant.client.call("HEAD", "/v1/users?limit=100").send();
    let length = head.header("content-length").and_then(|length| length.parse::<usize>().ok());
    assert_eq!((head.status, head.body.len()), (200, 0), "{head}");
    assert!(length.is_some_and(|length| length > 1_000), "{head}");
    let large = "x".repeat(BODY_MAX + 1);
    tenant
        .client
        .call("POST", "/v1/users")
        .bytes(large)
        .send()
        .expect_error(413, "payload_too_large");
    let head = tenant.client.call("GET", "/health").header("x-large", &"a".repeat(40_000)).send();
    head.expect_error(431, "headers_too_large");
}

#[test]
fn streams_of_one_address_leave_places_to_the_next() {
    let world = Builder::new()
        .bare()
        .environment("CHARTER_HTTP_HTTP2_STREAMS_MAX", "4000")
        .start(Database::Sqlite);
    let from = |address: &str| {
        let mut raw = Raw::connect_from(address, world.server().address()).unwrap();
        assert!(raw.say(&[H2_PREFACE, &h2_frame(4, 0, 0, &[])].concat()));
        raw
    };
    // Each is under way until its body comes. All but the first share the places of all connections,
    // of which one address has half.
    let begin = |stream: u16| h2_head(stream, b"\x83", "/v1/auth/login", 4);
    let heads: Vec<u8> = (0..2_070).flat_map(|n| begin(2 * n + 1)).collect();
    let mut many = from("127.0.0.1");
    assert!(many.say(&heads));
    until("the last of them are refused", || many.first().contains("overloaded"));
    world.anonymous().get("/health").expect(200);
    let mut next = from("127.0.0.2");
    assert!(next.say(&[begin(1), h2_head(3, b"\x82", "/health", 5)].concat()));
    until("another address has places", || next.first().contains("\"database\""));
}

/// A head over HTTP/2, by the byte of its method and its flags (RFC 9113, 6.2; RFC 7541, 6.2.2).
fn h2_head(stream: u16, method: &[u8], path: &str, flags: u8) -> Vec<u8> {
    let size = [u8::try_from(path.len()).unwrap()];
    let fields = [method, b"\x86\x04", &size, path.as_bytes(), b"\x01\x01x"].concat();
    let mut frame = h2_frame(1, flags, 0, &fields);
    frame[7..9].copy_from_slice(&stream.to_be_bytes());
    frame
}
