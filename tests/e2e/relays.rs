//! The relay that the host mails through: how it is bound, what is never sent to it, and what is
//! left behind of a mail.

use charter_tests::Database;
use charter_tests::artefacts::Artefacts;
use charter_tests::parrot::{Manner, Parrot};
use charter_tests::patience::until;
use charter_tests::relay::{LOGIN, Received, Relay, Security};
use charter_tests::world::Builder;
use serde_json::{Value, json};

use crate::mail::{approval, bind, builder, govern, is_plain_page, parts, person, send, wait_for};

/// A relay is encrypted, or on this machine; else nothing is sent.
#[test]
fn nothing_is_sent_in_the_clear_or_to_whom_the_operator_does_not_trust() {
    let world = builder().start(Database::Sqlite);
    let tenant = govern(&world, 1);
    let put = |binding: &Value| world.operator().put("/v1/operator/providers/mail.relay", binding);
    let relay = Relay::start();
    let with = |member: &str, value: Value| {
        let mut binding = relay.binding();
        match member.strip_prefix("options.") {
            Some(option) => binding["options"][option] = value,
            None => binding[member] = value,
        }
        binding
    };
    for (member, value, param) in [
        ("kind", json!("http"), "kind"),
        ("url", json!("http://127.0.0.1:25"), "url"),
        ("url", json!("smtp://u:p@127.0.0.1"), "url"),
        ("options.from", json!("nobody\r\nBcc: x@y.example"), "options"),
        ("options.ca", json!("no certificate"), "options"),
        ("options.more", json!(1), "options"),
        ("credential", Value::Null, "credential"),
        ("scope", json!({ "organization": tenant.organization }), "scope"),
    ] {
        assert_eq!(
            put(&with(member, value)).expect_error(400, "invalid_input")["param"],
            param,
            "{member}"
        );
    }
    let mut plain = with("url", json!("smtp://192.0.2.1:587"));
    plain["options"]["plain"] = json!(true);
    let refused = put(&plain).expect_error(400, "invalid_input");
    assert!(refused["message"].as_str().unwrap().contains("this machine"), "{refused}");
    // The credential is not shown, and stays where none is given.
    let shown = put(&relay.binding()).expect(200);
    assert!(
        shown["provider"]["credential"] == "set" && !shown.to_string().contains(LOGIN.1),
        "{shown}"
    );
    let mut kept = relay.binding();
    kept.as_object_mut().unwrap().remove("credential");
    put(&kept).expect(200);
    // Each of these mails nothing: whoever asked is told so by the approval, and by the log.
    let unsafe_one = Relay::of(Security::None, false);
    let mut offers_nothing = unsafe_one.binding();
    offers_nothing["options"] = json!({ "from": "charter@relay.example" });
    offers_nothing["credential"] = Value::Null;
    let stranger = Relay::start();
    let mut untrusted = stranger.binding();
    untrusted["options"]["ca"] = json!(relay.authority());
    let locked = Relay::start();
    let mut wrong = locked.binding();
    wrong["credential"] = json!("not the password");
    for (binding, peer, told) in [
        (&offers_nothing, &unsafe_one, "STARTTLS"),
        (&untrusted, &stranger, "TLS with the relay failed"),
        (&wrong, &locked, "does not take the credential"),
    ] {
        put(binding).expect(200);
        wait_for(&tenant.client, json!({}));
        until("the log says why", || world.server().log().contains(told));
        assert_eq!(peer.tries(), 0, "{told}");
    }
    assert!(
        !world.server().log().contains(LOGIN.1) && !world.server().log().contains("token="),
        "a secret in the log"
    );
    // TLS from the first byte, and plain text to this machine where the operator says so.
    for (security, login) in [(Security::Wrapped, true), (Security::None, false)] {
        let peer = Relay::of(security, login);
        put(&peer.binding()).expect(200);
        wait_for(&tenant.client, json!({}));
        let mail = peer.hears(&tenant.email, 1).remove(0);
        assert_eq!(mail.private, security == Security::Wrapped);
    }
}

/// A relay reads the password and the links, and may say them back.
#[test]
fn no_word_of_a_relay_is_passed_on() {
    let world = builder().start(Database::Sqlite);
    let tenant = govern(&world, 1);
    let put = |parrot: &Parrot| {
        world.operator().put("/v1/operator/providers/mail.relay", &parrot.binding()).expect(200);
    };
    let endless = Parrot::start(Manner::Endless);
    put(&endless);
    wait_for(&tenant.client, json!({}));
    until("a reply without an end is left", || {
        world.server().log().contains("the relay says too much")
    });
    let greedy = Parrot::start(Manner::Password);
    put(&greedy);
    wait_for(&tenant.client, json!({}));
    until("the log has the codes", || world.server().log().contains("the relay said 535 5.7.8"));
    let suspicious = Parrot::start(Manner::Link);
    put(&suspicious);
    let id = wait_for(&tenant.client, json!({}));
    let mail = || approval(&tenant.client, &id)["mails"][0].clone();
    until("the mail is given up", || mail()["status"] == "failed");
    assert_eq!(mail()["reason"], "the relay said 554 5.7.1");
    let logged = || tenant.client.get("/v1/logs?action=mail.give_up").expect(200);
    until("it is a row", || {
        let logged = logged();
        logged["logs"].as_array().unwrap().iter().any(|row| row["entity_id"] == json!(id))
    });
    let links = suspicious.heard();
    let told =
        [world.server().log(), logged().to_string(), approval(&tenant.client, &id).to_string()];
    let tokens = links.iter().map(|link| parts(link).1.to_owned());
    for secret in tokens.chain(greedy.heard()).chain([LOGIN.1.to_owned()]) {
        assert!(!told.iter().any(|told| told.contains(&secret)), "{secret} in {told:?}");
    }
    // The relay has read the link, and the person has not: it counts no more.
    let link = links.iter().find(|link| link.contains(&id)).unwrap();
    let (path, token) = parts(link);
    is_plain_page(&world.anonymous().get(link), 404);
    is_plain_page(&send(&world, path, &format!("token={token}&decision=approve")), 404);
    assert_eq!(approval(&tenant.client, &id)["status"], "pending_approval");
}

#[test]
fn a_private_relay_takes_the_operators_leave() {
    let world = Builder::new().bare().start(Database::Sqlite);
    let relay = Relay::start();
    bind(&world, &relay);
    let tenant = govern(&world, 1);
    wait_for(&tenant.client, json!({}));
    until("the log says why", || world.server().log().contains("CHARTER_EGRESS_ALLOW"));
    assert_eq!(relay.tries(), 0);
}

#[test]
fn a_relay_comes_from_the_file_and_its_faults_by_their_keys() {
    let relay = Relay::start();
    let text = |from: &str| {
        format!(
            "[egress]\nallow = [\"127.0.0.0/8\"]\n[providers.mail.relay]\nkind = \"smtp-submission\"\nurl = \"smtp://{}\"\n\
             [providers.mail.relay.options]\nfrom = \"{from}\"\nuser = \"{}\"\nca = '''\n{}'''\n",
            relay.address(),
            LOGIN.0,
            relay.authority()
        )
    };
    let configured = Builder::new().bare().configuration(&text("charter@relay.example"));
    let world = configured
        .environment("CHARTER_PROVIDERS_MAIL_RELAY_CREDENTIAL", LOGIN.1)
        .start(Database::Sqlite);
    let tenant = govern(&world, 1);
    wait_for(&tenant.client, json!({}));
    relay.hears(&tenant.email, 1);
    // Faults keep a host from starting, each by its key; so does a relay whose links would lead
    // nowhere.
    let folder = charter_tests::artefacts::Folder::new();
    let file = folder.path().join("charter.toml");
    std::fs::write(&file, text("nobody")).unwrap();
    let mut command = std::process::Command::new(&Artefacts::get().charter);
    command
        .args(["serve", "--listen", "0.0.0.0:0", "--data"])
        .arg(folder.path().join("data"))
        .arg("--config")
        .arg(&file);
    let told = command.env("CHARTER_PROVIDERS_MAIL_RELAY_CREDENTIAL", LOGIN.1).output().unwrap();
    let told = String::from_utf8_lossy(&told.stderr).into_owned();
    assert!(told.contains("from") && told.contains("http.public_url"), "{told}");
}

#[test]
fn no_secret_of_a_link_is_kept_in_the_clear() {
    let mut world = builder().start(Database::Sqlite);
    let relay = Relay::start();
    relay.close();
    bind(&world, &relay);
    let tenant = govern(&world, 1);
    let id = wait_for(&tenant.client, json!({ "title": "A title that is sealed" }));
    until("it waits", || approval(&tenant.client, &id)["mails"][0]["status"] == "waiting");
    let backup = |name: &str| {
        let file = world.data().join(name);
        let mut command = std::process::Command::new(&Artefacts::get().charter);
        let done =
            command.arg("backup").arg(&file).arg("--data").arg(world.data()).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        std::fs::read_to_string(file).unwrap()
    };
    let waiting = backup("waiting");
    assert!(waiting.contains("message_id"), "the mail waits in the database");
    relay.open();
    let link = relay.hears(&tenant.email, 1).remove(0).link();
    let token = parts(&link).1;
    assert!(!waiting.contains(token));
    until("the approval says so", || approval(&tenant.client, &id)["mails"][0]["status"] == "sent");
    let sent = backup("sent");
    assert!(
        !sent.contains(token) && !sent.contains("message_id"),
        "the mail goes when it was sent"
    );
    assert!(!world.server().log().contains(token));
    world.stop();
}

#[test]
fn of_two_replicas_each_person_gets_one_mail() {
    let world = builder().start(Database::Postgresql);
    let tenant = govern(&world, 1);
    let (approver, _) = person(&world, &tenant, "approver");
    let (another, _) = person(&world, &tenant, "approver");
    let relay = Relay::start();
    bind(&world, &relay);
    let (other, _data) = world.replica();
    let elsewhere = tenant.at(other.client().base());
    let ids: Vec<String> = std::thread::scope(|scope| {
        let asking = [&tenant.client, &elsewhere.client].map(|client| {
            scope.spawn(move || (0..4).map(|_| wait_for(client, json!({}))).collect::<Vec<_>>())
        });
        asking.into_iter().flat_map(|asking| asking.join().unwrap()).collect()
    });
    let sent = |id: &str| {
        let mails = approval(&tenant.client, id)["mails"].as_array().unwrap().clone();
        mails.len() == 2 && mails.iter().all(|mail| mail["status"] == "sent")
    };
    until("all are told", || ids.iter().all(|id| sent(id)));
    for email in [&another, &approver] {
        let mails = relay.to(email);
        let mut messages: Vec<String> = mails.iter().map(Received::id).collect();
        messages.sort();
        messages.dedup();
        assert_eq!((mails.len(), messages.len()), (8, 8), "each person is mailed once about each");
    }
    // A link that one has mailed counts at the other.
    let link = relay.to(&approver).remove(0).link();
    let (path, token) = parts(&link);
    let there = elsewhere.client.without("authorization");
    let form = format!("token={token}&decision=deny");
    let denied = there
        .call("POST", path)
        .header("content-type", "application/x-www-form-urlencoded")
        .bytes(form)
        .send();
    is_plain_page(&denied, 200);
}
