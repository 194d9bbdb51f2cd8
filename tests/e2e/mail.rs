//! Approvals by mail: links that are mailed through a real SMTP server, and what they are good for.

use charter_tests::artefacts::Artefacts;
use charter_tests::patience::until;
use charter_tests::relay::{LOGIN, Received, Relay};
use charter_tests::tenant::PASSWORD;
use charter_tests::world::Builder;
use charter_tests::{Answer, Client, Tenant, World, on_both};
use serde_json::{Value, json};

use crate::accounts::browser;
use crate::members::join;
use crate::rules::play;
use crate::telling::gauge;

const DOLLAR: i64 = 1_000_000;

pub fn builder() -> Builder {
    Builder::new().bare().environment("CHARTER_EGRESS_ALLOW", "127.0.0.0/8")
}

#[track_caller]
pub fn bind(world: &World, relay: &Relay) {
    world.operator().put("/v1/operator/providers/mail.relay", &relay.binding()).expect(200);
}

/// A tenant whose agents ask so many people before they spend.
pub fn govern(world: &World, people: u8) -> Tenant {
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
pub fn wait_for(client: &Client, leave: Value) -> String {
    let mut step = json!({ "leave": "script.spend", "amount": 3 * DOLLAR, "as": "p" });
    step.as_object_mut().unwrap().extend(leave.as_object().cloned().unwrap_or_default());
    let answer =
        play(client, json!([{ "note": "note" }, step, { "capture": "p", "amount": DOLLAR }]));
    answer.expect(202)["approval_id"].as_str().unwrap().to_owned()
}

pub fn approval(client: &Client, id: &str) -> Value {
    client.get(&format!("/v1/approvals/{id}")).expect(200)["approval"].clone()
}

#[track_caller]
fn ends(client: &Client, id: &str, status: &str) {
    until("the approval is over", || {
        !matches!(approval(client, id)["status"].as_str(), Some("approved" | "executing"))
    });
    let ended = approval(client, id);
    assert_eq!(ended["status"], status, "{ended}");
}

fn notes(client: &Client) -> usize {
    client.get("/v1/script/notes").expect(200)["notes"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|note| note["kind"] == "note")
        .count()
}

/// The path and the token of a link.
pub fn parts(link: &str) -> (&str, &str) {
    link.split_once("?token=").unwrap()
}

pub fn send(world: &World, path: &str, form: &str) -> Answer {
    let anonymous = world.anonymous();
    anonymous
        .call("POST", path)
        .header("content-type", "application/x-www-form-urlencoded")
        .bytes(form.to_owned())
        .send()
}

fn decide(world: &World, link: &str, decision: &str) -> Answer {
    let (path, token) = parts(link);
    send(world, path, &format!("token={token}&decision={decision}&reason=as+we+said"))
}

/// Another person of the organization, with an address of their own.
pub fn person(world: &World, tenant: &Tenant, role: &str) -> (String, String) {
    let (owner, _) = browser(world, &tenant.email, PASSWORD);
    let (_, account) = join(world, tenant, &owner, role);
    let members = tenant.client.get("/v1/organization/members").expect(200);
    let member = members["members"]
        .as_array()
        .unwrap()
        .iter()
        .find(|member| member["id"] == json!(account))
        .cloned();
    let member = member.unwrap_or_else(|| panic!("{account} is no member: {members}"));
    (member["email"].as_str().unwrap().to_owned(), account)
}

/// The page is plain, keeps to itself, and loads nothing.
#[track_caller]
pub fn is_plain_page(answer: &Answer, status: u16) {
    assert_eq!(
        (answer.status, answer.header("content-type")),
        (status, Some("text/html; charset=utf-8")),
        "{answer}"
    );
    let policy = answer.header("content-security-policy").unwrap();
    assert!(
        policy.contains("default-src 'none'") && policy.contains("form-action 'self'"),
        "{policy}"
    );
    assert_eq!(answer.header("referrer-policy"), Some("no-referrer"));
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    assert!(!answer.text().contains("<script"), "{answer}");
}

/// A key that this person has made.
fn key_of(world: &World, tenant: &Tenant, email: &str) -> Client {
    let made = browser(world, email, PASSWORD).0.post("/v1/auth/keys", &json!({ "name": "agent" }));
    tenant.client.bearer(made.expect(201)["key"].as_str().unwrap())
}

on_both! {
    fn a_mailed_link_approves_exactly_once_and_opening_it_decides_nothing(world: builder()) {
        let relay = Relay::start();
        bind(world, &relay);
        let tenant = govern(world, 1);
        let id = wait_for(&tenant.client, json!({ "title": "Buy books" }));
        let mail = relay.hears(&tenant.email, 1).remove(0);
        assert!(mail.private && mail.user.as_deref() == Some(LOGIN.0), "{mail:?}");
        assert_eq!((mail.from.as_str(), mail.subject().as_str()), ("charter@relay.example", "Approval needed: Buy books"));
        for told in ["Buy books", "script.spend", "$3.00", "Tests", "Default"] {
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
        let logged = || tenant.client.get("/v1/logs?action=approvals.approve").expect(200);
        until("the word is a row", || logged()["logs"][0].is_object());
        let logged = logged();
        let row = &logged["logs"][0];
        assert_eq!((&row["actor"]["type"], &row["details"]["via"]), (&json!("account"), &json!("mail_link")), "{logged}");
        world.books_agree();
    }

    fn a_mailed_link_denies_and_what_is_no_link_of_it_is_one_page(world: builder()) {
        let relay = Relay::start();
        bind(world, &relay);
        let tenant = govern(world, 1);
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
        // A client that guesses is slowed down, and then a right token does not help it either.
        until("guessing is slowed down", || send(world, path, "token=guess&decision=approve").status == 429);
        world.books_agree();
    }

    fn a_link_counts_only_while_its_person_may_decide_and_decided_is_decided(world: builder()) {
        let tenant = govern(world, 1);
        let (approver, account) = person(world, &tenant, "approver");
        let (leaver, left) = person(world, &tenant, "admin");
        let (developer, _) = person(world, &tenant, "developer");
        let relay = Relay::start();
        bind(world, &relay);
        let id = wait_for(&key_of(world, &tenant, &developer), json!({}));
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
        let logged = || tenant.client.get("/v1/logs?action=approvals.approve").expect(200);
        until("the refusal is a row", || logged()["logs"][0]["decision"] == "refused");
        // Somebody has decided by session: the link says so.
        let (owner, _) = browser(world, &tenant.email, PASSWORD);
        owner.patch(&member(&account), &json!({ "role": "approver" })).expect(200);
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

    fn a_link_counts_only_while_its_person_has_the_password_of_then(world: builder()) {
        let tenant = govern(world, 1);
        let (approver, _) = person(world, &tenant, "approver");
        let (developer, _) = person(world, &tenant, "developer");
        let relay = Relay::start();
        bind(world, &relay);
        let key = key_of(world, &tenant, &developer);
        let id = wait_for(&key, json!({}));
        let before = relay.hears(&approver, 1).remove(0).link();
        let (session, _) = browser(world, &approver, PASSWORD);
        let change = json!({ "password": PASSWORD, "new_password": "another one, quite long" });
        session.put("/v1/auth/password", &change).expect(200);
        // The reader of the mail until then is out with it.
        is_plain_page(&decide(world, &before, "approve"), 404);
        assert_eq!(approval(&tenant.client, &id)["status"], "pending_approval");
        let another = wait_for(&key, json!({}));
        let since = relay.hears(&approver, 2).remove(1).link();
        is_plain_page(&decide(world, &since, "deny"), 200);
        assert_eq!(approval(&tenant.client, &another)["status"], "denied");
    }

    fn two_people_are_two_links(world: builder()) {
        let tenant = govern(world, 2);
        let (approver, _) = person(world, &tenant, "approver");
        let (developer, _) = person(world, &tenant, "developer");
        let relay = Relay::start();
        bind(world, &relay);
        let id = wait_for(&key_of(world, &tenant, &developer), json!({}));
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
        let tenant = govern(world, 1);
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
        let tenant = govern(world, 1);
        let id = wait_for(&tenant.client, json!({}));
        assert_eq!(approval(&tenant.client, &id)["status"], "pending_approval");
        until("it waits", || approval(&tenant.client, &id)["mails"][0]["status"] == "waiting");
        // Another is decided by session meanwhile: its mail is not sent any more.
        let over = wait_for(&tenant.client, json!({}));
        until("it waits", || approval(&tenant.client, &over)["mails"][0]["status"] == "waiting");
        let (session, _) = browser(world, &tenant.email, PASSWORD);
        session.post(&format!("/v1/approvals/{over}/deny"), &json!({})).expect(200);
        // Committed mails survive a crash.
        world.kill();
        relay.answers(Some(451));
        relay.open();
        world.start();
        let tenant = tenant.at(world.server().address());
        until("the relay is tried", || relay.tries() > 0);
        assert!(relay.mails().is_empty(), "4xx is no yes");
        relay.answers(None);
        let mail = relay.hears(&tenant.email, 1).remove(0);
        assert!(mail.link().contains(&id), "the one that waits: {}", mail.text());
        until("the approval says so", || approval(&tenant.client, &id)["mails"][0]["status"] == "sent");
        is_plain_page(&decide(world, &mail.link(), "approve"), 200);
        ends(&tenant.client, &id, "succeeded");
        assert_eq!(relay.mails().len(), 1, "nobody is mailed about what is over");
    }

    fn a_mail_that_waits_goes_to_nobody_who_has_the_address_by_now(world: builder()) {
        let relay = Relay::start();
        relay.close();
        bind(world, &relay);
        let tenant = govern(world, 1);
        let (approver, account) = person(world, &tenant, "approver");
        let id = wait_for(&tenant.client, json!({}));
        let mail = || {
            let mails = approval(&tenant.client, &id)["mails"].as_array().unwrap().clone();
            mails.into_iter().find(|mail| mail["account_id"] == json!(account)).unwrap_or_default()
        };
        until("it waits", || mail()["status"] == "waiting");
        // Somebody else proves that the address is theirs.
        world.operator().post("/v1/auth/register", &json!({ "email": approver, "password": PASSWORD })).expect(201);
        let members = tenant.client.get("/v1/organization/members").expect(200);
        assert!(members.to_string().contains(&format!("{account}@unproved.invalid")), "{members}");
        relay.open();
        until("it is withheld", || mail()["status"] == "withheld");
        assert_eq!(mail()["reason"], "address_changed");
        assert!(relay.to(&approver).is_empty(), "{:?}", relay.mails());
    }

    fn a_mail_that_waits_is_not_sent_with_a_link_that_a_new_password_has_ended(world: builder()) {
        let relay = Relay::start();
        relay.close();
        bind(world, &relay);
        let tenant = govern(world, 1);
        let id = wait_for(&tenant.client, json!({}));
        let mail = || approval(&tenant.client, &id)["mails"][0].clone();
        until("it waits", || mail()["status"] == "waiting");
        let (session, _) = browser(world, &tenant.email, PASSWORD);
        let change = json!({ "password": PASSWORD, "new_password": "another one, quite long" });
        session.put("/v1/auth/password", &change).expect(200);
        relay.open();
        until("it is withheld", || mail()["status"] == "withheld");
        assert_eq!(mail()["reason"], "password_changed");
        assert!(relay.to(&tenant.email).is_empty(), "{:?}", relay.mails());
    }

    fn a_mail_that_is_refused_for_good_is_loud(world: builder()) {
        let relay = Relay::start();
        relay.answers(Some(554));
        bind(world, &relay);
        let tenant = govern(world, 1);
        let id = wait_for(&tenant.client, json!({}));
        until("the approval says so", || approval(&tenant.client, &id)["mails"][0]["status"] == "failed");
        assert!(approval(&tenant.client, &id)["mails"][0]["reason"].as_str().unwrap().contains("554"));
        assert_eq!(relay.tries(), 1, "5xx is final");
        let logged = || tenant.client.get("/v1/logs?action=mail.give_up").expect(200);
        until("it is a row", || logged()["logs"][0].is_object());
        let logged = logged();
        assert_eq!((&logged["logs"][0]["entity_id"], &logged["logs"][0]["reason"]), (&json!(id), &json!("mail_failed")), "{logged}");
        let user = approval(&tenant.client, &id)["user_id"].clone();
        assert!(user.is_string() && logged["logs"][0]["on_behalf_of"] == user, "{logged}");
        assert_eq!(logged["logs"][0]["project_id"], json!(tenant.project), "{logged}");
        // A key of the project reads the row, and no address of a member.
        let viewer = tenant.key(json!({ "name": "viewer", "role": "viewer", "project_id": tenant.project }));
        let row = viewer.get("/v1/logs?action=mail.give_up").expect(200)["logs"][0].clone();
        let account = approval(&tenant.client, &id)["mails"][0]["account_id"].clone();
        assert!(account.is_string() && row["details"]["account_id"] == account, "{row}");
        assert!(!row.to_string().contains(&tenant.email), "{row}");
        assert!(world.server().log().contains("a mail was given up"));
    }

    fn what_an_agent_writes_is_neither_a_header_nor_markup(world: builder()) {
        let relay = Relay::start();
        bind(world, &relay);
        let tenant = govern(world, 1);
        let title = "Pay\r\nBcc: thief@evil.example\r\n\r\n<script>alert(1)</script> https://evil.example/approve";
        wait_for(&tenant.client, json!({ "title": title, "message": "<img src=x onerror=alert(1)> \"quoted\" & 'more'" }));
        let mail = relay.hears(&tenant.email, 1).remove(0);
        assert!(!mail.headers().contains(&"bcc".to_owned()), "{:?}", mail.headers());
        assert_eq!((mail.to.clone(), relay.mails().len()), (vec![tenant.email.clone()], 1));
        assert!(mail.subject().contains("Bcc: thief"), "it is text, and of the subject: {}", mail.subject());
        let page = world.anonymous().get(&mail.link());
        is_plain_page(&page, 200);
        assert!(page.text().contains("&lt;script&gt;") && page.text().contains("&lt;img src=x"), "{page}");
        assert!(!page.text().contains("<img"), "{page}");
    }

    fn mails_that_wait_are_told_at_each_scrape(world: builder()) {
        let relay = Relay::start();
        relay.close();
        bind(world, &relay);
        let tenant = govern(world, 1);
        let waiting = || gauge(&world.operator(), "charter_mails_waiting");
        assert_eq!(waiting(), 0);
        let ids: Vec<String> = (0..3).map(|_| wait_for(&tenant.client, json!({}))).collect();
        until("each approval is a mail", || waiting() == 3);
        relay.open();
        until("they are sent", || ids.iter().all(|id| approval(&tenant.client, id)["mails"][0]["status"] == "sent"));
        assert_eq!(waiting(), 0, "what was sent waits no longer");
    }

    fn more_than_an_hours_share_is_one_summary(world: builder().environment("CHARTER_MAIL_ORGANIZATION_PER_HOUR", "5")) {
        let relay = Relay::start();
        bind(world, &relay);
        let tenant = govern(world, 1);
        let ids: Vec<String> = (0..8).map(|_| wait_for(&tenant.client, json!({}))).collect();
        let told = |id: &str| approval(&tenant.client, id)["mails"][0].clone();
        until("all are told of or not", || ids.iter().all(|id| matches!(told(id)["status"].as_str(), Some("sent" | "withheld"))));
        let withheld: Vec<Value> = ids.iter().map(|id| told(id)).filter(|told| told["status"] == "withheld").collect();
        assert_eq!(withheld.len(), 5, "{withheld:?}");
        assert!(withheld.iter().all(|told| told["reason"] == "rate_limited"), "{withheld:?}");
        // One agent's asks take half, and leave the rest to another's.
        let another = tenant.client.with("x-service-user-id", &tenant.user("another"));
        let left = wait_for(&another, json!({}));
        until("the other agent's is mailed", || told(&left)["status"] == "sent");
        let mails = relay.hears(&tenant.email, 5);
        let (summaries, links): (Vec<_>, Vec<_>) = mails.iter().partition(|mail| mail.subject() == "More approvals are waiting");
        assert_eq!((summaries.len(), links.len()), (1, 4));
        assert!(!summaries[0].text().contains("token="), "{}", summaries[0].text());
        // An invitation counts too.
        for (guest, mailed) in [("guest", "queued"), ("another", "rate_limited")] {
            let body = json!({ "email": format!("{guest}@example.com"), "role": "viewer" });
            let invited = tenant.client.post("/v1/organization/members", &body).expect(201);
            assert_eq!(invited["invitation"]["mail"], mailed);
        }
    }

    fn no_link_is_mailed_to_a_domain_that_is_hosted_here(
        world: builder().environment("CHARTER_MAIL_HOSTED_DOMAINS", "hosted.example, exämple.test")
    ) {
        let relay = Relay::start();
        bind(world, &relay);
        let tenant = govern(world, 1);
        let (developer, _) = person(world, &tenant, "developer");
        let (owner, _) = browser(world, &tenant.email, PASSWORD);
        let invite = |email: &str| {
            let invited = owner.post("/v1/organization/members", &json!({ "email": email, "role": "approver" })).expect(201);
            (invited["invitation"]["mail"].clone(), invited["invitation"]["accept_token"].clone())
        };
        let mut accounts = Vec::new();
        for email in ["a@hosted.example", "b@Sub.HOSTED.example", "c@sub.exämple.test", "d@EXÄMPLE.test"] {
            let (mailed, token) = invite(email);
            assert_eq!(mailed, "withheld", "{email}");
            let accepted = json!({ "token": token, "password": PASSWORD });
            accounts.push(world.anonymous().post("/v1/auth/invitations/accept", &accepted).expect(201)["account"]["id"].clone());
            world.anonymous().post("/v1/auth/link", &json!({ "email": email })).expect(202);
        }
        assert_eq!(invite("e@nothosted.example").0, "queued");
        let id = wait_for(&key_of(world, &tenant, &developer), json!({}));
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
        // The developer's invitation may be on its way before it is accepted.
        let told = relay.mails().into_iter().flat_map(|mail| mail.to);
        let told: Vec<_> = told.filter(|to| !to.starts_with("developer-")).collect();
        assert_eq!(told.len(), 3, "{told:?}");
    }
}
