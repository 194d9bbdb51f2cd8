//! The queue's rules against the double of the host.

use charter_double::{Host, Reply};
use charter_sdk::serde_json::{Value, json};

use crate::primitive;
use crate::queues::QUEUES;

struct Bench {
    host: Host,
    queue: String,
}

impl Bench {
    fn new(options: Value) -> Self {
        let host = Host::new(primitive);
        let queue = create(&host, options);
        Self { host, queue }
    }
    fn send(&self, messages: Value) -> Reply {
        self.host
            .post(&format!("/queue/{}/messages", self.queue), json!({ "messages": messages }))
            .unwrap()
    }
    fn receive(&self, ask: Value) -> Vec<Value> {
        receive(&self.host, &self.queue, ask)
    }
    fn settle(
        &self,
        how: &str,
        message: &Value,
        more: Value,
    ) -> Result<Reply, charter_sdk::Failure> {
        let mut body = more;
        body["receipt"] = message["receipt"].clone();
        self.host.post(
            &format!("/queue/{}/messages/{}/{how}", self.queue, message["id"].as_str().unwrap()),
            body,
        )
    }
    fn read(&self) -> Value {
        self.host.get(&format!("/queue/{}", self.queue)).unwrap().body["queue"].clone()
    }
}

fn create(host: &Host, options: Value) -> String {
    let reply = host.post("/queue", options).unwrap();
    assert_eq!(reply.status, 201);
    reply.body["queue"]["id"].as_str().unwrap().to_owned()
}

fn receive(host: &Host, queue: &str, ask: Value) -> Vec<Value> {
    host.post(&format!("/queue/{queue}/receive"), ask).unwrap().body["messages"]
        .as_array()
        .unwrap()
        .clone()
}

#[test]
fn a_message_is_received_once_and_gone_after_its_ack() {
    let bench = Bench::new(json!({ "name": "orders" }));
    assert_eq!(bench.send(json!([{ "body": { "n": 1 } }])).status, 201);
    let received = bench.receive(json!({}));
    assert_eq!(
        (&received[0]["body"], &received[0]["receive_count"]),
        (&json!({ "n": 1 }), &json!(1))
    );
    assert!(bench.receive(json!({})).is_empty());
    assert_eq!((&bench.read()["depth"], &bench.read()["in_flight"]), (&json!(0), &json!(1)));
    bench.settle("ack", &received[0], json!({})).unwrap();
    let again = bench.settle("ack", &received[0], json!({})).unwrap_err();
    assert_eq!((again.code(), again.reason_text()), ("state_conflict", Some("receipt_expired")));
    bench.host.pass_seconds(100);
    assert!(bench.receive(json!({})).is_empty());
}

#[test]
fn an_unacknowledged_message_comes_back_and_its_old_receipt_is_stale() {
    let bench = Bench::new(json!({ "name": "orders", "visibility_timeout_seconds": 10 }));
    bench.send(json!([{ "body": 1 }]));
    let first = bench.receive(json!({}));
    bench.host.pass_seconds(10);
    let second = bench.receive(json!({ "visibility_timeout_seconds": 60 }));
    assert_eq!(second[0]["receive_count"], json!(2));
    assert_eq!(
        bench.settle("ack", &first[0], json!({})).unwrap_err().reason_text(),
        Some("receipt_expired")
    );
    bench.settle("extend", &second[0], json!({ "visibility_timeout_seconds": 120 })).unwrap();
    bench.host.pass_seconds(119);
    assert!(bench.receive(json!({})).is_empty());
    bench.settle("nack", &second[0], json!({ "delay_seconds": 5 })).unwrap();
    assert!(bench.receive(json!({})).is_empty());
    bench.host.pass_seconds(5);
    assert_eq!(bench.receive(json!({})).len(), 1);
}

#[test]
fn a_long_poll_waits_for_a_delayed_message_and_gives_up_in_time() {
    let bench = Bench::new(json!({ "name": "orders" }));
    bench.send(json!([{ "body": "late", "delay_seconds": 7 }]));
    assert_eq!((&bench.read()["depth"], &bench.read()["delayed"]), (&json!(1), &json!(1)));
    let start = bench.host.now();
    assert_eq!(bench.receive(json!({ "wait_seconds": 20 })).len(), 1);
    assert_eq!(bench.host.now().since(start).as_secs(), 7);
    let start = bench.host.now();
    assert!(bench.receive(json!({ "wait_seconds": 3 })).is_empty());
    assert_eq!(bench.host.now().since(start).as_secs(), 3);
}

#[test]
fn a_dedupe_key_holds_while_its_message_lives() {
    let bench = Bench::new(json!({ "name": "orders" }));
    let sent = bench
        .send(json!([{ "body": 1, "dedupe_key": "k" }, { "body": 2, "dedupe_key": "k" }]))
        .body;
    assert_eq!(sent["messages"][0]["id"], sent["messages"][1]["id"]);
    let again = bench.send(json!([{ "body": 3, "dedupe_key": "k" }])).body;
    assert_eq!(
        (&again["messages"][0]["id"], &again["messages"][0]["deduplicated"]),
        (&sent["messages"][0]["id"], &json!(true))
    );
    let received = bench.receive(json!({ "max_messages": 10 }));
    assert_eq!(received.len(), 1);
    bench.settle("ack", &received[0], json!({})).unwrap();
    let later = bench.send(json!([{ "body": 4, "dedupe_key": "k" }])).body;
    assert_ne!(later["messages"][0]["id"], sent["messages"][0]["id"]);
}

#[test]
fn a_message_received_too_often_becomes_a_dead_letter() {
    let host = Host::new(primitive);
    let dead = create(&host, json!({ "name": "dead" }));
    let queue =
        create(&host, json!({ "name": "orders", "max_receives": 2, "dead_letter_queue_id": dead }));
    let bench = Bench { host, queue };
    bench.send(json!([{ "body": "by time" }]));
    for _ in 0..2 {
        assert_eq!(bench.receive(json!({ "visibility_timeout_seconds": 1 })).len(), 1);
        bench.host.pass_seconds(1);
    }
    assert!(bench.receive(json!({})).is_empty());
    let letter = receive(&bench.host, &dead, json!({}));
    assert_eq!(
        (&letter[0]["body"], &letter[0]["dead_letter"]["receive_count"]),
        (&json!("by time"), &json!(2))
    );
    bench.send(json!([{ "body": "by nack" }]));
    for _ in 0..2 {
        let received = bench.receive(json!({}));
        bench.settle("nack", &received[0], json!({})).unwrap();
    }
    assert_eq!(receive(&bench.host, &dead, json!({}))[0]["body"], json!("by nack"));
    assert_eq!(bench.host.events().len(), 2);
    assert_eq!(bench.host.delete(&format!("/queue/{dead}")).unwrap_err().code(), "state_conflict");
}

#[test]
fn a_message_that_is_never_hidden_becomes_a_dead_letter_too() {
    for (of_queue, ask) in
        [(0, json!({})), (30, json!({ "visibility_timeout_seconds": 0, "max_messages": 10 }))]
    {
        let host = Host::new(primitive);
        let dead = create(&host, json!({ "name": "dead" }));
        let options = json!({ "name": "orders", "visibility_timeout_seconds": of_queue, "max_receives": 1, "dead_letter_queue_id": dead });
        let queue = create(&host, options);
        let bench = Bench { host, queue };
        bench.send(json!([{ "body": "poison" }]));
        assert_eq!(bench.receive(ask.clone())[0]["body"], json!("poison"));
        bench.send(json!([{ "body": "fresh" }]));
        let second = bench.receive(ask.clone());
        assert_eq!((second.len(), &second[0]["body"]), (1, &json!("fresh")));
        assert_eq!(receive(&bench.host, &dead, json!({}))[0]["body"], json!("poison"));
        assert_eq!((&bench.read()["depth"], &bench.read()["in_flight"]), (&json!(1), &json!(0)));
    }
}

#[test]
fn a_message_is_hidden_for_as_long_as_was_asked_wherever_it_may_be_given_up() {
    let host = Host::new(primitive);
    let queue = create(
        &host,
        json!({ "name": "orders", "visibility_timeout_seconds": 3, "max_receives": 3 }),
    );
    let bench = Bench { host, queue };
    bench.send(json!([{ "body": 1 }]));
    for seconds in [3, 60] {
        assert_eq!(bench.receive(json!({ "visibility_timeout_seconds": seconds })).len(), 1);
        bench.host.pass_seconds(seconds - 1);
        assert!(bench.receive(json!({})).is_empty());
        bench.host.pass_seconds(1);
    }
    assert_eq!(bench.receive(json!({}))[0]["receive_count"], json!(3));
}

#[test]
fn large_dead_letters_are_moved_by_several_receives() {
    let host = Host::new(primitive);
    let dead = create(&host, json!({ "name": "dead" }));
    let queue =
        create(&host, json!({ "name": "orders", "max_receives": 1, "dead_letter_queue_id": dead }));
    let bench = Bench { host, queue };
    let sent = 32;
    for _ in 0..sent / 4 {
        bench.send(json!(vec![json!({ "body": "x".repeat(250_000) }); 4]));
    }
    for _ in 0..4 {
        bench.receive(json!({ "max_messages": 10, "visibility_timeout_seconds": 1 }));
    }
    bench.host.pass_seconds(1);
    bench.send(json!([{ "body": "fresh" }]));
    let letters = || {
        bench.host.get(&format!("/queue/{dead}")).unwrap().body["queue"]["depth"].as_u64().unwrap()
    };
    let mut before = letters();
    loop {
        // However patient: what was moved is not held back.
        let start = bench.host.now();
        let received = bench.receive(json!({ "max_messages": 10, "wait_seconds": 20 }));
        let moved = letters() - before;
        before += moved;
        assert!(moved * 250_000 <= 3 * 1024 * 1024, "{moved}");
        if let Some(message) = received.first() {
            assert_eq!((received.len(), &message["body"]), (1, &json!("fresh")));
            break;
        }
        assert!(moved > 0 && bench.host.now() == start);
    }
    assert_eq!(before, sent);
}

#[test]
fn a_purge_empties_a_large_queue_and_a_delete_leaves_nothing() {
    let bench = Bench::new(json!({ "name": "orders" }));
    for _ in 0..13 {
        bench.send(json!(vec![json!({ "body": 0 }); 100]));
    }
    assert_eq!(
        bench.host.delete(&format!("/queue/{}/messages", bench.queue)).unwrap().body,
        json!({ "ok": true })
    );
    assert_eq!(
        (&bench.read()["depth"], &bench.read()["oldest_age_seconds"]),
        (&json!(0), &Value::Null)
    );
    bench.send(json!([{ "body": 0 }]));
    bench.host.delete(&format!("/queue/{}", bench.queue)).unwrap();
    assert_eq!((bench.host.documents("messages"), bench.host.documents("queues")), (0, 0));
    assert_eq!(bench.host.get(&format!("/queue/{}", bench.queue)).unwrap_err().code(), "not_found");
}

#[test]
fn a_receipt_is_for_its_own_message_only() {
    let bench = Bench::new(json!({ "name": "orders" }));
    bench.send(json!([{ "body": 1 }, { "body": 2 }]));
    let received = bench.receive(json!({ "max_messages": 2 }));
    let mixed = json!({ "id": received[0]["id"], "receipt": received[1]["receipt"] });
    assert_eq!(
        bench.settle("ack", &mixed, json!({})).unwrap_err().reason_text(),
        Some("receipt_expired")
    );
    let unknown = json!({ "id": "0197c0de-0000-7000-8000-ffffffffffff", "receipt": "x" });
    assert_eq!(bench.settle("ack", &unknown, json!({})).unwrap_err().code(), "not_found");
}

#[test]
fn nothing_of_a_receipt_can_be_exchanged_or_invented() {
    let host = Host::new(primitive);
    let dead = create(&host, json!({ "name": "dead" }));
    let other = create(&host, json!({ "name": "other" }));
    let queue =
        create(&host, json!({ "name": "orders", "max_receives": 2, "dead_letter_queue_id": dead }));
    for (queue, message) in [(&queue, "a"), (&queue, "b"), (&other, "c")] {
        host.post(
            &format!("/queue/{queue}/messages"),
            json!({ "messages": [{ "body": message }] }),
        )
        .unwrap();
    }
    let received = [
        receive(&host, &queue, json!({})),
        receive(&host, &queue, json!({})),
        receive(&host, &other, json!({})),
    ];
    let [a, b, c] = received.map(|messages| messages[0].clone());
    let parts = |message: &Value| -> Vec<String> {
        message["receipt"].as_str().unwrap().splitn(3, '.').map(str::to_owned).collect()
    };
    let (of_a, of_b, of_c) = (parts(&a), parts(&b), parts(&c));
    let (token, seal) = of_a[2].rsplit_once('.').unwrap();
    let foreign = of_b[2].rsplit_once('.').unwrap().0;
    let bench = Bench { host, queue };
    for forged in [
        format!("{}.99.{}", of_a[0], of_b[2]),
        format!("{}.99.{foreign}.{seal}", of_a[0]),
        format!("{}.1.{}", of_a[0], of_c[2]),
        format!("{}.0.{}", of_a[0], of_a[2]),
        format!("{}.2.{}", of_a[0], of_a[2]),
        format!("{}.1.{token}", of_a[0]),
        format!("{}.1.{}", of_b[0], of_a[2]),
        "x".into(),
    ] {
        for how in ["ack", "nack", "extend"] {
            let refusal = bench
                .settle(how, &json!({ "id": a["id"], "receipt": forged }), json!({}))
                .unwrap_err();
            assert_eq!(
                (refusal.code(), refusal.reason_text()),
                ("state_conflict", Some("receipt_expired")),
                "{how} {forged}"
            );
        }
    }
    let standing = |queue: &str| {
        let queue = bench.host.get(&format!("/queue/{queue}")).unwrap().body["queue"].clone();
        (queue["depth"].clone(), queue["in_flight"].clone())
    };
    assert_eq!(
        [standing(&bench.queue), standing(&other), standing(&dead)],
        [(json!(0), json!(2)), (json!(0), json!(1)), (json!(0), json!(0))]
    );
    for message in [&a, &b] {
        bench.settle("ack", message, json!({})).unwrap();
    }
}

#[test]
fn a_queue_that_was_made_without_a_key_for_its_receipts_gets_one() {
    let bench = Bench::new(json!({ "name": "orders" }));
    let mut queue = QUEUES.get(&bench.queue).unwrap().unwrap();
    queue.body.receipt_key = None;
    QUEUES.replace(queue.at(), queue.body).unwrap();
    bench.send(json!([{ "body": 1 }, { "body": 2 }]));
    let (first, second) = (bench.receive(json!({})), bench.receive(json!({})));
    bench.settle("ack", &first[0], json!({})).unwrap();
    bench.settle("ack", &second[0], json!({})).unwrap();
}

#[test]
fn sizes_and_names_are_checked() {
    let bench = Bench::new(json!({ "name": "orders" }));
    let send = |messages: Value| {
        bench
            .host
            .post(&format!("/queue/{}/messages", bench.queue), json!({ "messages": messages }))
    };
    let large = send(json!([{ "body": 1 }, { "body": "x".repeat(256 * 1024) }])).unwrap_err();
    assert_eq!((large.code(), large.param_text()), ("payload_too_large", Some("messages.1.body")));
    let many = send(json!(vec![json!({ "body": "x".repeat(200 * 1024) }); 6])).unwrap_err();
    assert_eq!(many.param_text(), Some("messages"));
    let unknown = bench
        .host
        .post("/queue", json!({ "name": "a", "dead_letter_queue_id": "nowhere" }))
        .unwrap_err();
    assert_eq!(
        (unknown.code(), unknown.param_text()),
        ("resource_not_found", Some("dead_letter_queue_id"))
    );
}

#[test]
fn queues_are_listed_in_pages_each_once() {
    let bench = Bench::new(json!({ "name": "a" }));
    for name in ["b", "c"] {
        create(&bench.host, json!({ "name": name }));
    }
    let page = |query: &str| -> (Vec<String>, bool) {
        let page = bench.host.get(&format!("/queue?{query}")).unwrap().body;
        let names = page["queues"]
            .as_array()
            .unwrap()
            .iter()
            .map(|queue| queue["name"].as_str().unwrap().to_owned());
        (names.collect(), page["has_more"].as_bool().unwrap())
    };
    let ((first, more), (second, none)) = (page("limit=2"), page("limit=2&offset=2"));
    assert_eq!((first.len(), more, second.len(), none), (2, true, 1, false));
    let mut names = [first, second].concat();
    names.sort();
    assert_eq!(names, ["a", "b", "c"]);
}
