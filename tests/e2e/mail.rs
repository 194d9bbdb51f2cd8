//! What the host mails: approval links, sign-in links and invitations, through a real SMTP server.

use charter_tests::artefacts::Artefacts;
use charter_tests::patience::until;
use charter_tests::relay::{LOGIN, Received, Relay, Security};
use charter_tests::tenant::{PASSWORD, unique};
use charter_tests::world::Builder;
use charter_tests::{Answer, Client, Database, Tenant, World, on_both};
use serde_json::{Value, json};

use crate::accounts::browser;
use crate::members::joined;
use crate::rules::play;

const DOLLAR: i64 = 1_000_000;

fn builder() -> Builder {
    Builder::new().bare().environment("CHARTER_EGRESS_ALLOW", "127.0.0.0/8")
}

#[track_caller]
fn bind(world: &World, relay: &Relay) {
    world.operator().put("/v1/operator/providers/mail.relay", &relay.binding()).expect(200);
}

/// A tenant whose agents ask so many people before they spend.
fn governed(world: &World, people: u8) -> Tenant {
    world.install("script", &Artefacts::get().fixture("script"));
    let tenant = world.register();
    asks(&tenant, people);
    tenant
}

fn asks(tenant: &Tenant, people: u8) {
    let rule = json!({ "id": "ask", "effect": "require_approval", "actions": ["script.spend"], "approvals_required": people });
    tenant.client.put("/v1/governance/policy", &json!({ "rules": [rule] })).expect(200);
}

/// Asks for three dollars; answers the approval's id.
#[track_caller]
fn wait_for(client: &Client, leave: Value) -> String {
    let mut step = json!({ "leave": "script.spend", "amount": 3 * DOLLAR, "as": "p" });
    step.as_object_mut().unwrap().extend(leave.as_object().cloned().unwrap_or_default());
    let answer = play(client, json!([{ "note": "note" }, step, { "capture": "p", "amount": DOLLAR }]));
    answer.expect(202)["approval_id"].as_str().unwrap().to_owned()
}

fn approval(client: &Client, id: &str) -> Value {
    client.get(&format!("/v1/approvals/{id}")).expect(200)["approval"].clone()
}

#[track_caller]
fn ends(client: &Client, id: &str, status: &str) {
    until("the approval is over", || !matches!(approval(client, id)["status"].as_str(), Some("approved" | "executing")));
    let ended = approval(client, id);
    assert_eq!(ended["status"], status, "{ended}");
}

fn notes(client: &Client) -> usize {
    client.get("/v1/script/notes").expect(200)["notes"].as_array().unwrap().iter().filter(|note| note["kind"] == "note").count()
}

/// The path and the token of a link.
fn parts(link: &str) -> (&str, &str) {
    link.split_once("?token=").unwrap()
}

fn send(world: &World, path: &str, form: &str) -> Answer {
    let anonymous = world.anonymous();
    anonymous.call("POST", path).header("content-type", "application/x-www-form-urlencoded").bytes(form.to_owned()).send()
}

fn decide(world: &World, link: &str, decision: &str) -> Answer {
    let (path, token) = parts(link);
    send(world, path, &format!("token={token}&decision={decision}&reason=as+we+said"))
}

/// Another person of the organization, with an address of their own.
fn person(world: &World, tenant: &Tenant, role: &str) -> (String, String) {
    let (_, account) = joined(world, tenant, &tenant.client, role);
    let members = tenant.client.get("/v1/organization/members").expect(200);
    let member = members["members"].as_array().unwrap().iter().find(|member| member["id"] == json!(account)).cloned();
    let member = member.unwrap_or_else(|| panic!("{account} is no member: {members}"));
    (member["email"].as_str().unwrap().to_owned(), account)
}

/// The page is plain, keeps to itself, and loads nothing.
#[track_caller]
fn is_plain_page(answer: &Answer, status: u16) {
    assert_eq!((answer.status, answer.header("content-type")), (status, Some("text/html; charset=utf-8")), "{answer}");
    let policy = answer.header("content-security-policy").unwrap();
    assert!(policy.contains("default-src 'none'") && policy.contains("form-action 'self'"), "{policy}");
    assert_eq!(answer.header("referrer-policy"), Some("no-referrer"));
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    assert!(!answer.text().contains("<script"), "{answer}");
}

on_both! {
    fn a_mailed_link_approves_exactly_once_and_opening_it_decides_nothing(world: builder()) {
        let relay = Relay::start();
        bind(world, &relay);
        let tenant = governed(world, 1);
        let id = wait_for(&tenant.client, json!({ "title": "Buy books" }));
        let mail = relay.hears(&tenant.email, 1).remove(0);
        assert!(mail.private && mail.user.as_deref() == Some(LOGIN.0), "{mail:?}");
        assert_eq!((mail.from.as_str(), mail.subject().as_str()), ("charter@relay.example", "Approval needed: Buy books"));
        for told in ["Buy books", "script.spend", "$3.00", "Default"] {
            assert!(mail.text().contains(told), "{told} is missing: {}", mail.text());
        }
        until("the approval says so", || approval(&tenant.client, &id)["mails"][0]["status"] == "sent");
        let link = mail.link();
        for _ in 0..3 {
            let page = world.anonymous().get(&link);
            is_plain_page(&page, 200);
            assert!(page.text().contains("Buy books") && page.text().contains("$3.00"), "{page}");
        }
        assert_eq!((approval(&tenant.client, &id)["status"].clone(), notes(&tenant.client)), (json!("pending_approval"), 0));
        let (path, token) = parts(&link);
        send(world, path, &format!("token={token}&decision=maybe"));
        send(world, path, &format!("token={token}"));
        assert_eq!(approval(&tenant.client, &id)["status"], "pending_approval");
        is_plain_page(&decide(world, &link, "approve"), 200);
        ends(&tenant.client, &id, "succeeded");
        assert_eq!(notes(&tenant.client), 1);
        let ended = approval(&tenant.client, &id);
        assert_eq!((&ended["decisions"][0]["decision"], &ended["decisions"][0]["reason"]), (&json!("approve"), &json!("as we said")));
        // It counted once: nothing of it does any more.
        for again in [decide(world, &link, "approve"), decide(world, &link, "deny"), world.anonymous().get(&link)] {
            is_plain_page(&again, 404);
        }
        assert_eq!(notes(&tenant.client), 1);
        let logged = tenant.client.get("/v1/logs?action=approvals.approve").expect(200);
        let row = &logged["logs"][0];
        assert_eq!((&row["actor"]["type"], &row["details"]["via"]), (&json!("account"), &json!("mail_link")), "{logged}");
        world.books_agree();
    }

    fn a_mailed_link_denies_and_what_is_no_link_of_it_is_one_page(world: builder()) {
        let relay = Relay::start();
        bind(world, &relay);
        let tenant = governed(world, 1);
        let other = wait_for(&tenant.client, json!({}));
        let id = wait_for(&tenant.client, json!({}));
        let mails = relay.hears(&tenant.email, 2);
        let link = |id: &str| mails.iter().map(Received::link).find(|link| link.contains(id)).unwrap();
        let (link, foreign) = (link(&id), link(&other));
        // Another approval's, a made up one, none.
        let (path, token) = parts(&link);
        let wrong = [
            format!("token={}&decision=approve", parts(&foreign).1),
            format!("token={}x&decision=approve", token),
            "decision=approve".to_owned(),
        ];
        let pages: Vec<String> = wrong.iter().map(|form| {
            let page = send(world, path, form);
            is_plain_page(&page, 404);
            page.text()
        }).collect();
        assert!(pages.windows(2).all(|pair| pair[0] == pair[1]), "{pages:?}");
        assert_eq!(approval(&tenant.client, &id)["status"], "pending_approval");
        // A form of another site decides nothing.
        let form = format!("token={token}&decision=approve");
        let anonymous = world.anonymous();
        let forged = anonymous.call("POST", path).header("content-type", "application/x-www-form-urlencoded");
        let forged = forged.header("sec-fetch-site", "cross-site").bytes(form.clone()).send();
        is_plain_page(&forged, 403);
        let json = anonymous.call("POST", path).header("content-type", "application/json").bytes("{}").send();
        is_plain_page(&json, 415);
        is_plain_page(&decide(world, &link, "deny"), 200);
        let denied = approval(&tenant.client, &id);
        assert_eq!((&denied["status"], &denied["reason"]), (&json!("denied"), &json!("as we said")));
        assert_eq!(approval(&tenant.client, &other)["status"], "pending_approval");
        // Who guesses is slowed down, and is then not heard with a right one either.
        until("guessing is slowed down", || send(world, path, "token=guess&decision=approve").status == 429);
        world.books_agree();
    }

    fn a_link_counts_only_while_its_person_may_decide_and_decided_is_decided(world: builder()) {
        let tenant = governed(world, 1);
        let (approver, account) = person(world, &tenant, "approver");
        let (leaver, left) = person(world, &tenant, "admin");
        let (developer, _) = person(world, &tenant, "developer");
        let relay = Relay::start();
        bind(world, &relay);
        let id = wait_for(&tenant.client, json!({}));
        let [by_approver, by_leaver, by_owner] =
            [&approver, &leaver, &tenant.email].map(|email| relay.hears(email, 1).remove(0).link());
        assert!(relay.to(&developer).is_empty(), "who decides nothing is asked nothing");
        let member = |account: &str| format!("/v1/organization/members/{account}");
        tenant.client.patch(&member(&account), &json!({ "role": "developer" })).expect(200);
        is_plain_page(&decide(world, &by_approver, "approve"), 403);
        is_plain_page(&world.anonymous().get(&by_approver), 403);
        tenant.client.delete(&member(&left)).expect(200);
        is_plain_page(&decide(world, &by_leaver, "approve"), 404);
        assert_eq!(approval(&tenant.client, &id)["status"], "pending_approval");
        let refused = tenant.client.get("/v1/logs?action=approvals.approve").expect(200);
        assert_eq!(refused["logs"][0]["decision"], "refused", "{refused}");
        // Somebody has decided by session: the link says so.
        tenant.client.patch(&member(&account), &json!({ "role": "approver" })).expect(200);
        let (session, _) = browser(world, &approver, PASSWORD);
        session.post(&format!("/v1/approvals/{id}/deny"), &json!({})).expect(200);
        for late in [decide(world, &by_owner, "approve"), world.anonymous().get(&by_owner)] {
            is_plain_page(&late, 409);
            assert!(late.text().contains("denied"), "{late}");
        }
        // The same word by a link that the session has said already changes nothing.
        is_plain_page(&decide(world, &by_approver, "deny"), 200);
        assert_eq!(approval(&tenant.client, &id)["decisions"].as_array().unwrap().len(), 1);
        world.books_agree();
    }

    fn two_people_are_two_links(world: builder()) {
        let tenant = governed(world, 2);
        let (approver, _) = person(world, &tenant, "approver");
        let relay = Relay::start();
        bind(world, &relay);
        let id = wait_for(&tenant.client, json!({}));
        let [first, second] = [&tenant.email, &approver].map(|email| relay.hears(email, 1).remove(0).link());
        is_plain_page(&decide(world, &first, "approve"), 200);
        is_plain_page(&decide(world, &first, "approve"), 404);
        assert_eq!(approval(&tenant.client, &id)["status"], "pending_approval");
        assert!(world.anonymous().get(&second).text().contains("2 must approve, 1 did"));
        is_plain_page(&decide(world, &second, "approve"), 200);
        ends(&tenant.client, &id, "succeeded");
        assert_eq!(notes(&tenant.client), 1);
        world.books_agree();
    }

    fn many_who_press_one_link_at_once_decide_once(world: builder()) {
        let relay = Relay::start();
        bind(world, &relay);
        let tenant = governed(world, 1);
        let id = wait_for(&tenant.client, json!({}));
        let link = relay.hears(&tenant.email, 1).remove(0).link();
        let world = &*world;
        let statuses: Vec<u16> = std::thread::scope(|scope| {
            let press = |decision| { let link = &link; scope.spawn(move || decide(world, link, decision).status) };
            let pressing: Vec<_> = (0..8).map(|n| press(if n % 2 == 0 { "approve" } else { "deny" })).collect();
            pressing.into_iter().map(|one| one.join().unwrap()).collect()
        });
        assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 1, "{statuses:?}");
        assert!(statuses.iter().all(|status| matches!(status, 200 | 404 | 409 | 429)), "{statuses:?}");
        assert_eq!(approval(&tenant.client, &id)["decisions"].as_array().unwrap().len(), 1);
        world.books_agree();
    }

    fn a_relay_that_is_down_delays_no_approval_and_gets_the_mail_later(world: builder()) {
        let relay = Relay::start();
        relay.close();
        bind(world, &relay);
        let tenant = governed(world, 1);
        let id = wait_for(&tenant.client, json!({}));
        assert_eq!(approval(&tenant.client, &id)["status"], "pending_approval");
        until("it waits", || approval(&tenant.client, &id)["mails"][0]["status"] == "waiting");
        // Another is decided by session meanwhile: its mail is not sent any more.
        let over = wait_for(&tenant.client, json!({}));
        until("it waits", || approval(&tenant.client, &over)["mails"][0]["status"] == "waiting");
        let (session, _) = browser(world, &tenant.email, PASSWORD);
        session.post(&format!("/v1/approvals/{over}/deny"), &json!({})).expect(200);
        // What was committed survives a crash.
        world.kill();
        relay.answers(Some(451));
        relay.open();
        world.start();
        let tenant = tenant.at(world.server().address());
        until("the relay is tried", || relay.tries() > 0);
        assert!(relay.taken().is_empty(), "4xx is no yes");
        relay.answers(None);
        let mail = relay.hears(&tenant.email, 1).remove(0);
        assert!(mail.link().contains(&id), "the one that waits: {}", mail.text());
        until("the approval says so", || approval(&tenant.client, &id)["mails"][0]["status"] == "sent");
        is_plain_page(&decide(world, &mail.link(), "approve"), 200);
        ends(&tenant.client, &id, "succeeded");
        assert_eq!(relay.taken().len(), 1, "nobody is mailed about what is over");
    }

    fn a_mail_that_is_refused_for_good_is_loud(world: builder()) {
        let relay = Relay::start();
        relay.answers(Some(554));
        bind(world, &relay);
        let tenant = governed(world, 1);
        let id = wait_for(&tenant.client, json!({}));
        until("the approval says so", || approval(&tenant.client, &id)["mails"][0]["status"] == "failed");
        assert!(approval(&tenant.client, &id)["mails"][0]["reason"].as_str().unwrap().contains("554"));
        assert_eq!(relay.tries(), 1, "5xx is final");
        let logged = tenant.client.get("/v1/logs?action=mail.give_up").expect(200);
        assert_eq!((&logged["logs"][0]["entity_id"], &logged["logs"][0]["reason"]), (&json!(id), &json!("mail_failed")), "{logged}");
        assert!(world.server().log().contains("a mail was given up"));
    }

    fn what_an_agent_writes_is_neither_a_header_nor_markup(world: builder()) {
        let relay = Relay::start();
        bind(world, &relay);
        let tenant = governed(world, 1);
        let title = "Pay\r\nBcc: thief@evil.example\r\n\r\n<script>alert(1)</script> https://evil.example/approve";
        wait_for(&tenant.client, json!({ "title": title, "message": "<img src=x onerror=alert(1)> \"quoted\" & 'more'" }));
        let mail = relay.hears(&tenant.email, 1).remove(0);
        assert!(!mail.headers().contains(&"bcc".to_owned()), "{:?}", mail.headers());
        assert_eq!((mail.to.clone(), relay.taken().len()), (vec![tenant.email.clone()], 1));
        assert!(mail.subject().contains("Bcc: thief"), "it is text, and of the subject: {}", mail.subject());
        let page = world.anonymous().get(&mail.link());
        is_plain_page(&page, 200);
        assert!(page.text().contains("&lt;script&gt;") && page.text().contains("&lt;img src=x"), "{page}");
        assert!(!page.text().contains("<img"), "{page}");
    }

    fn more_than_an_hours_share_is_one_summary(world: builder().environment("CHARTER_MAIL_ORGANIZATION_PER_HOUR", "3")) {
        let relay = Relay::start();
        bind(world, &relay);
        let tenant = governed(world, 1);
        let ids: Vec<String> = (0..8).map(|_| wait_for(&tenant.client, json!({}))).collect();
        let told = |id: &str| approval(&tenant.client, id)["mails"][0].clone();
        until("all are told of or not", || ids.iter().all(|id| matches!(told(id)["status"].as_str(), Some("sent" | "withheld"))));
        let withheld: Vec<Value> = ids.iter().map(|id| told(id)).filter(|told| told["status"] == "withheld").collect();
        assert_eq!(withheld.len(), 5, "{withheld:?}");
        assert!(withheld.iter().all(|told| told["reason"] == "rate_limited"), "{withheld:?}");
        let mails = relay.hears(&tenant.email, 4);
        let (summaries, links): (Vec<_>, Vec<_>) = mails.iter().partition(|mail| mail.subject() == "More approvals are waiting");
        assert_eq!((summaries.len(), links.len()), (1, 3));
        assert!(!summaries[0].text().contains("token="), "{}", summaries[0].text());
        // An invitation counts too.
        let invited = tenant.client.post("/v1/organization/members", &json!({ "email": "guest@example.com", "role": "viewer" }));
        assert_eq!(invited.expect(201)["invitation"]["mail"], "rate_limited");
    }

    fn no_link_is_mailed_to_a_domain_that_is_hosted_here(
        world: builder().environment("CHARTER_MAIL_HOSTED_DOMAINS", "hosted.example, exämple.test")
    ) {
        let relay = Relay::start();
        bind(world, &relay);
        let tenant = governed(world, 1);
        let invite = |email: &str| {
            let invited = tenant.client.post("/v1/organization/members", &json!({ "email": email, "role": "approver" })).expect(201);
            (invited["invitation"]["mail"].clone(), invited["invitation"]["accept_token"].clone())
        };
        let mut accounts = Vec::new();
        for email in ["a@hosted.example", "b@Sub.HOSTED.example", "c@xn--exmple-cua.test", "d@EXÄMPLE.test"] {
            let (mailed, token) = invite(email);
            assert_eq!(mailed, "withheld", "{email}");
            let accepted = json!({ "token": token, "password": PASSWORD });
            accounts.push(world.anonymous().post("/v1/auth/invitations/accept", &accepted).expect(201)["account"]["id"].clone());
            world.anonymous().post("/v1/auth/link", &json!({ "email": email })).expect(202);
        }
        assert_eq!(invite("e@nothosted.example").0, "queued");
        let id = wait_for(&tenant.client, json!({}));
        relay.hears(&tenant.email, 1);
        relay.hears("e@nothosted.example", 1);
        let mails = approval(&tenant.client, &id)["mails"].as_array().unwrap().clone();
        assert_eq!(mails.len(), 5, "{mails:?}");
        for account in &accounts {
            let mail = mails.iter().find(|mail| mail["account_id"] == *account).unwrap();
            assert_eq!((&mail["status"], &mail["reason"]), (&json!("withheld"), &json!("hosted_domain")));
        }
        // A link for somebody else is asked for last: what was asked for before is over by then.
        world.anonymous().post("/v1/auth/link", &json!({ "email": tenant.email })).expect(202);
        relay.hears(&tenant.email, 2);
        assert_eq!(relay.taken().len(), 3, "{:?}", relay.taken());
    }

    fn a_sign_in_link_works_once_and_nobody_is_told_who_has_an_account(world: builder()) {
        let tenant = world.register();
        let ask = |email: &str| world.anonymous().post("/v1/auth/link", &json!({ "email": email }));
        let missing = ask(&tenant.email).expect_error(501, "not_configured");
        assert_eq!(missing["details"]["missing"], json!(["mail_relay"]));
        let relay = Relay::start();
        bind(world, &relay);
        let answers = [ask(&tenant.email), ask("nobody@example.com"), ask("no address")];
        for answer in &answers {
            assert_eq!((answer.status, answer.text()), (202, "{}".to_owned()), "{answer}");
        }
        let mail = relay.hears(&tenant.email, 1).remove(0);
        let link = mail.link();
        let page = world.anonymous().get(&link);
        is_plain_page(&page, 200);
        assert!(page.header("set-cookie").is_none(), "a page that is opened signs nobody in: {page}");
        let (path, token) = parts(&link);
        let anonymous = world.anonymous();
        let forged = anonymous.call("POST", path).header("content-type", "application/x-www-form-urlencoded");
        let forged = forged.header("origin", "https://evil.example").bytes(format!("token={token}")).send();
        is_plain_page(&forged, 403);
        let opened = send(world, path, &format!("token={token}"));
        is_plain_page(&opened, 200);
        let cookie = opened.header("set-cookie").and_then(|line| line.split(';').next()).unwrap().to_owned();
        assert!(cookie.starts_with("service_session="), "{cookie}");
        let session = world.anonymous().with("cookie", &cookie).get("/v1/auth/session").expect(200);
        assert_eq!(session["account"]["email"], json!(tenant.email));
        is_plain_page(&send(world, path, &format!("token={token}")), 404);
        is_plain_page(&world.anonymous().get(&link), 404);
        assert_eq!(relay.taken().len(), 1, "{:?}", relay.taken());
        // An approval's page is none to sign in by.
        is_plain_page(&world.anonymous().get(&format!("/sign-in?token={}", unique("link"))), 404);
        // Whoever asks again and again is slowed down.
        let busy = world.register();
        until("asking is slowed down", || ask(&busy.email).status == 429);
    }

    fn an_invitation_is_mailed_and_accepted_by_its_page(world: builder()) {
        let tenant = world.register();
        let invite = |email: &str| {
            tenant.client.post("/v1/organization/members", &json!({ "email": email, "role": "developer" })).expect(201)["invitation"].clone()
        };
        assert_eq!(invite("early@example.com")["mail"], "not_configured");
        let relay = Relay::start();
        bind(world, &relay);
        let email = format!("{}@example.com", unique("guest"));
        let invited = invite(&email);
        assert_eq!(invited["mail"], "queued");
        assert!(invited["accept_token"].is_string(), "the inviter has it too");
        let mail = relay.hears(&email, 1).remove(0);
        assert_eq!(mail.subject(), "Invitation: Tests");
        let link = mail.link();
        let page = world.anonymous().get(&link);
        is_plain_page(&page, 200);
        assert!(page.text().contains("developer") && page.text().contains(&email), "{page}");
        let (path, token) = parts(&link);
        is_plain_page(&send(world, path, &format!("token={token}&password=short")), 400);
        let password = PASSWORD.replace(' ', "+");
        is_plain_page(&send(world, path, &format!("token={token}&password={password}")), 201);
        is_plain_page(&send(world, path, &format!("token={token}&password={password}")), 401);
        is_plain_page(&world.anonymous().get(&link), 404);
        let (_, session) = browser(world, &email, PASSWORD);
        assert_eq!(session["organization"]["id"], json!(tenant.organization));
        // One that is taken back is not mailed, and leads nowhere.
        relay.close();
        let gone = invite("gone@example.com");
        tenant.client.delete(&format!("/v1/organization/invitations/{}", gone["id"].as_str().unwrap())).expect(200);
        relay.open();
        let last = invite("last@example.com");
        assert_eq!(last["mail"], "queued");
        relay.hears("last@example.com", 1);
        assert!(relay.to("gone@example.com").is_empty());
    }
}

/// What is bound is private, or on this machine; else nothing is sent.
#[test]
fn nothing_is_sent_in_the_clear_or_to_whom_the_operator_does_not_trust() {
    let world = builder().start(Database::Sqlite);
    let tenant = governed(&world, 1);
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
        assert_eq!(put(&with(member, value)).expect_error(400, "invalid_input")["param"], param, "{member}");
    }
    let mut plain = with("url", json!("smtp://192.0.2.1:587"));
    plain["options"]["plain"] = json!(true);
    let refused = put(&plain).expect_error(400, "invalid_input");
    assert!(refused["message"].as_str().unwrap().contains("this machine"), "{refused}");
    // The credential is not shown, and stays where none is given.
    let shown = put(&relay.binding()).expect(200);
    assert!(shown["provider"]["credential"] == "set" && !shown.to_string().contains(LOGIN.1), "{shown}");
    let mut kept = relay.binding();
    kept.as_object_mut().unwrap().remove("credential");
    put(&kept).expect(200);
    // Each of these mails nothing: whoever asked is told so by the approval, and by the log.
    let unsafe_one = Relay::of(Security::None, false);
    let mut offers_nothing = unsafe_one.binding();
    offers_nothing["options"] = json!({ "from": "charter@relay.example" });
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
    assert!(!world.server().log().contains(LOGIN.1) && !world.server().log().contains("token="), "a secret in the log");
    // TLS from the first byte, and plain text to this machine where the operator says so.
    for (security, login) in [(Security::Wrapped, true), (Security::None, false)] {
        let peer = Relay::of(security, login);
        put(&peer.binding()).expect(200);
        wait_for(&tenant.client, json!({}));
        let mail = peer.hears(&tenant.email, 1).remove(0);
        assert_eq!(mail.private, security == Security::Wrapped);
    }
}

#[test]
fn a_private_relay_takes_the_operators_leave() {
    let world = Builder::new().bare().start(Database::Sqlite);
    let relay = Relay::start();
    bind(&world, &relay);
    let tenant = governed(&world, 1);
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
    let world = configured.environment("CHARTER_PROVIDERS_MAIL_RELAY_CREDENTIAL", LOGIN.1).start(Database::Sqlite);
    let tenant = governed(&world, 1);
    wait_for(&tenant.client, json!({}));
    relay.hears(&tenant.email, 1);
    // Faults keep a host from starting, each by its key; so does a relay whose links would lead nowhere.
    let folder = charter_tests::artefacts::Folder::new();
    let file = folder.path().join("charter.toml");
    std::fs::write(&file, text("nobody")).unwrap();
    let mut command = std::process::Command::new(&Artefacts::get().charter);
    command.args(["serve", "--listen", "0.0.0.0:0", "--data"]).arg(folder.path().join("data")).arg("--config").arg(&file);
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
    let tenant = governed(&world, 1);
    let id = wait_for(&tenant.client, json!({ "title": "A title that is sealed" }));
    until("it waits", || approval(&tenant.client, &id)["mails"][0]["status"] == "waiting");
    let backup = |name: &str| {
        let file = world.data().join(name);
        let mut command = std::process::Command::new(&Artefacts::get().charter);
        let done = command.arg("backup").arg(&file).arg("--data").arg(world.data()).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        std::fs::read_to_string(file).unwrap()
    };
    let waiting = backup("waiting");
    assert!(waiting.contains("host.mails"), "the mail waits in the database");
    relay.open();
    let link = relay.hears(&tenant.email, 1).remove(0).link();
    let token = parts(&link).1;
    assert!(!waiting.contains(token));
    until("the approval says so", || approval(&tenant.client, &id)["mails"][0]["status"] == "sent");
    let sent = backup("sent");
    assert!(!sent.contains(token) && !sent.contains("\"host.mails\""), "the mail goes when it was sent");
    assert!(!world.server().log().contains(token));
    world.stop();
}

#[test]
fn of_two_replicas_each_person_gets_one_mail() {
    let world = builder().start(Database::Postgresql);
    let tenant = governed(&world, 1);
    let (approver, _) = person(&world, &tenant, "approver");
    let relay = Relay::start();
    bind(&world, &relay);
    let (other, _data) = world.replica();
    let elsewhere = tenant.at(other.client().base());
    let ids: Vec<String> = std::thread::scope(|scope| {
        let asking = [&tenant.client, &elsewhere.client]
            .map(|client| scope.spawn(move || (0..6).map(|_| wait_for(client, json!({}))).collect::<Vec<_>>()));
        asking.into_iter().flat_map(|asking| asking.join().unwrap()).collect()
    });
    let sent = |id: &str| {
        let mails = approval(&tenant.client, id)["mails"].as_array().unwrap().clone();
        mails.len() == 2 && mails.iter().all(|mail| mail["status"] == "sent")
    };
    until("all are told", || ids.iter().all(|id| sent(id)));
    for email in [&tenant.email, &approver] {
        let mails = relay.to(email);
        let mut messages: Vec<String> = mails.iter().map(Received::id).collect();
        messages.sort();
        messages.dedup();
        assert_eq!((mails.len(), messages.len()), (12, 12), "each person is mailed once about each");
    }
    // What one has mailed counts at the other.
    let link = relay.to(&approver).remove(0).link();
    let (path, token) = parts(&link);
    let there = elsewhere.client.without("authorization");
    let form = format!("token={token}&decision=deny");
    let denied = there.call("POST", path).header("content-type", "application/x-www-form-urlencoded").bytes(form).send();
    is_plain_page(&denied, 200);
}
