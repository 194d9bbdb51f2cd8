//! People's addresses, passwords and sessions: what a mailed link proves, and what ends with what.

use charter_tests::patience::until;
use charter_tests::relay::Relay;
use charter_tests::tenant::{PASSWORD, unique};
use charter_tests::world::Builder;
use charter_tests::{Answer, Client, Tenant, World, on_both};
use serde_json::{Value, json};

use crate::accounts::browser;
use crate::mail::{bind, builder, is_plain_page, parts, send};
use crate::members::join_as;

const NEW: &str = "an entirely different password";

fn address(name: &str) -> String {
    format!("{}@example.com", unique(name))
}

fn login(world: &World, email: &str, password: &str) -> u16 {
    world.anonymous().post("/v1/auth/login", &json!({"email": email, "password": password})).status
}

fn is_signed_in(browser: &Client) -> bool {
    browser.get("/v1/auth/session").status == 200
}

fn ask(world: &World, path: &str, email: &str) {
    let answer = world.anonymous().post(path, &json!({"email": email}));
    assert_eq!((answer.status, answer.text()), (202, "{}".to_owned()), "{answer}");
}

/// The token of the latest mail to this address, of so many.
fn token(relay: &Relay, email: &str, count: usize) -> String {
    let link = relay.hears(email, count).remove(count - 1).link();
    parts(&link).1.to_owned()
}

fn register(world: &World, email: &str) -> Value {
    world
        .anonymous()
        .post("/v1/auth/register", &json!({"email": email, "password": PASSWORD}))
        .expect(201)
}

fn member_email(tenant: &Client) -> String {
    let members = tenant.get("/v1/organization/members").expect(200);
    members["members"][0]["email"].as_str().unwrap().to_owned()
}

on_both! {
    fn an_address_is_proved_by_a_link_and_nobody_is_told_who_has_one(world: builder()) {
        let tenant = world.register();
        for path in ["/v1/auth/proof", "/v1/auth/password/forgotten"] {
            let missing = world.anonymous().post(path, &json!({"email": tenant.email})).expect_error(501, "not_configured");
            assert_eq!(missing["details"]["missing"], json!(["mail_relay"]));
        }
        let relay = Relay::start();
        bind(world, &relay);
        let nobody = address("nobody");
        for path in ["/v1/auth/proof", "/v1/auth/password/forgotten"] {
            ask(world, path, &tenant.email);
            ask(world, path, &nobody);
            ask(world, path, "no address");
        }
        let (session, made) = browser(world, &tenant.email, PASSWORD);
        assert_eq!(made["account"]["email_verified"], false);
        let mails = relay.hears(&tenant.email, 2);
        let mail = mails.iter().find(|mail| mail.subject() == "Prove your address").unwrap();
        let link = mail.link();
        let page = world.anonymous().get(&link);
        is_plain_page(&page, 200);
        assert!(page.text().contains("It is my account") && page.text().contains("Tests"), "{page}");
        assert_eq!(session.get("/v1/auth/session").expect(200)["account"]["email_verified"], false, "opening it proves nothing");
        let confirm = |token: &str| world.anonymous().post("/v1/auth/proof/confirm", &json!({"token": token}));
        let confirmed = confirm(parts(&link).1).expect(200);
        assert_eq!(confirmed["account"]["email_verified"], true);
        assert_eq!(session.get("/v1/auth/session").expect(200)["account"]["email_verified"], true);
        confirm(parts(&link).1).expect_error(404, "not_found");
        // An address that nobody has is proved by registering with it; one that is proved is not
        // proved again.
        let page = world.anonymous().get(&format!("/address?token={}", token(&relay, &nobody, 1)));
        is_plain_page(&page, 200);
        assert!(!page.text().contains("It is my account"), "{page}");
        ask(world, "/v1/auth/proof", &tenant.email);
        ask(world, "/v1/auth/link", &tenant.email);
        assert!(relay.hears(&tenant.email, 3)[2].subject().contains("sign-in"));
    }

    fn whoever_proves_an_address_takes_it_from_whoever_does_not(world: builder()) {
        let relay = Relay::start();
        bind(world, &relay);
        let email = address("owner");
        let squatter = register(world, &email);
        let key = world.anonymous().bearer(squatter["api_key"]["key"].as_str().unwrap());
        let (session, _) = browser(world, &email, PASSWORD);
        ask(world, "/v1/auth/proof", &email);
        let proof = token(&relay, &email, 1);
        let register = |email: &str, proof: &str| {
            world.anonymous().post("/v1/auth/register", &json!({"email": email, "password": NEW, "proof": proof}))
        };
        register(&email, "guessed").expect_error(404, "not_found");
        register(&address("another"), &proof).expect_error(404, "not_found");
        let made = register(&email.to_uppercase(), &proof).expect(201);
        assert_eq!(made["account"]["email_verified"], true);
        assert_ne!(made["organization"]["id"], squatter["organization"]["id"]);
        // The address leads to its owner alone from now on.
        assert_eq!((login(world, &email, NEW), login(world, &email, PASSWORD)), (200, 401));
        // The account's things are still its own, under an address that no mail reaches.
        assert!(is_signed_in(&session));
        let kept = member_email(&key);
        assert!(kept.ends_with("@unproved.invalid"), "{kept}");
        assert_eq!(login(world, &kept, PASSWORD), 200);
        let rows = || key.get("/v1/logs?action=account.lose_address").expect(200)["logs"].as_array().unwrap().clone();
        until("the row is numbered", || rows().len() == 1);
        // A proved address is nobody else's, whatever they have.
        register(&email, &proof).expect_error(404, "not_found");
        world.operator().post("/v1/auth/register", &json!({"email": email, "password": PASSWORD})).expect_error(409, "duplicate_record");
    }

    fn a_proof_and_a_new_password_are_rows_of_each_organization_of_the_account(world: builder()) {
        let (first, second) = (world.register(), world.register());
        join_as(world, &second, &browser(world, &second.email, PASSWORD).0, "developer", &first.email);
        // The invitation before it is mailed to nobody.
        let relay = Relay::start();
        bind(world, &relay);
        ask(world, "/v1/auth/proof", &first.email);
        let proof = token(&relay, &first.email, 1);
        world.anonymous().post("/v1/auth/proof/confirm", &json!({"token": proof})).expect(200);
        ask(world, "/v1/auth/password/forgotten", &first.email);
        let reset = json!({"token": token(&relay, &first.email, 2), "password": NEW});
        world.anonymous().post("/v1/auth/password/reset", &reset).expect(200);
        for action in ["auth.confirm", "auth.reset"] {
            for tenant in [&first, &second] {
                let rows = || tenant.client.get(&format!("/v1/logs?action={action}")).expect(200)["logs"].clone();
                until("the row is numbered", || rows().as_array().is_some_and(|rows| rows.len() == 1));
                assert_eq!(rows()[0]["actor"]["type"], "account", "{action}");
            }
        }
    }

    fn an_invitation_that_was_mailed_reaches_whom_it_is_for(world: builder()) {
        let relay = Relay::start();
        bind(world, &relay);
        let (host, email) = (world.register(), address("invitee"));
        let squatter = register(world, &email);
        let invited = host.client.post("/v1/organization/members", &json!({"email": email, "role": "developer"})).expect(201);
        let accept = |token: &str, anew: bool| {
            let body = json!({"token": token, "password": NEW, "new_account": anew});
            world.anonymous().post("/v1/auth/invitations/accept", &body)
        };
        let shown = invited["invitation"]["accept_token"].as_str().unwrap();
        // The inviter's own copy proves nothing of the address.
        assert_eq!(accept(shown, true).expect_error(403, "forbidden")["reason"], "address_not_proved");
        accept(shown, false).expect_error(401, "unauthorized");
        let link = relay.hears(&email, 1).remove(0).link();
        let page = world.anonymous().get(&link);
        is_plain_page(&page, 200);
        assert!(page.text().contains("new_account"), "{page}");
        let (path, mailed) = parts(&link);
        let password = NEW.replace(' ', "+");
        is_plain_page(&send(world, path, &format!("token={mailed}&password={password}&new_account=true")), 201);
        let (_, session) = browser(world, &email, NEW);
        assert_eq!(session["organization"]["id"], json!(host.organization));
        assert_eq!(session["account"]["email_verified"], true);
        assert_eq!(login(world, &email, PASSWORD), 401);
        let key = world.anonymous().bearer(squatter["api_key"]["key"].as_str().unwrap());
        assert!(member_email(&key).ends_with("@unproved.invalid"));
        accept(shown, false).expect_error(401, "unauthorized");
    }

    fn a_forgotten_password_is_set_by_a_link_and_ends_all_sessions(world: builder()) {
        let relay = Relay::start();
        bind(world, &relay);
        let tenant = world.register();
        let browsers = [browser(world, &tenant.email, PASSWORD).0, browser(world, &tenant.email, PASSWORD).0];
        ask(world, "/v1/auth/password/forgotten", &tenant.email);
        let first = token(&relay, &tenant.email, 1);
        ask(world, "/v1/auth/password/forgotten", &tenant.email);
        let second = token(&relay, &tenant.email, 2);
        let page = world.anonymous().get(&format!("/password?token={first}"));
        is_plain_page(&page, 200);
        assert!(page.text().contains("Nobody has proved this address"), "{page}");
        let reset = |token: &str, password: &str| {
            world.anonymous().post("/v1/auth/password/reset", &json!({"token": token, "password": password}))
        };
        reset(&first, "short").expect_error(400, "invalid_input");
        assert!(browsers.iter().all(is_signed_in));
        let done = reset(&first, NEW).expect(200);
        assert_eq!((&done["sessions_ended"], &done["account"]["email_verified"]), (&json!(2), &json!(true)));
        assert!(!browsers.iter().any(is_signed_in));
        assert_eq!((login(world, &tenant.email, PASSWORD), login(world, &tenant.email, NEW)), (401, 200));
        // It counted once, and what was mailed beside it leads nowhere any more.
        for token in [&first, &second] {
            reset(token, PASSWORD).expect_error(404, "not_found");
        }
        // Keys are the organization's, and go on.
        tenant.client.get("/v1/organization").expect(200);
    }

    fn a_password_is_changed_by_who_knows_it_and_ends_the_other_sessions(world: builder()) {
        let tenant = world.register();
        let (own, other) = (browser(world, &tenant.email, PASSWORD).0, browser(world, &tenant.email, PASSWORD).0);
        let change = |from: &str, to: &str| {
            own.put("/v1/auth/password", &json!({"password": from, "new_password": to}))
        };
        assert_eq!(change("not the password", NEW).expect_error(403, "forbidden")["reason"], "password_wrong");
        assert_eq!(change(PASSWORD, &tenant.email).expect_error(400, "invalid_input")["param"], "new_password");
        assert!(is_signed_in(&other));
        assert_eq!(change(PASSWORD, NEW).expect(200)["sessions_ended"], 1);
        assert_eq!((is_signed_in(&own), is_signed_in(&other)), (true, false));
        assert_eq!((login(world, &tenant.email, PASSWORD), login(world, &tenant.email, NEW)), (401, 200));
        let by_key = tenant.client.put("/v1/auth/password", &json!({"password": NEW, "new_password": PASSWORD}));
        by_key.expect_error(403, "forbidden");
    }

    fn sessions_are_listed_and_ended_by_their_person_alone(world: builder()) {
        let (tenant, stranger) = (world.register(), world.register());
        let [own, second, third] = [(); 3].map(|()| browser(world, &tenant.email, PASSWORD));
        let listed = |of: &Client| of.get("/v1/auth/sessions").expect(200)["sessions"].as_array().unwrap().clone();
        let sessions = listed(&own.0);
        assert_eq!(sessions.len(), 3);
        let current: Vec<&Value> = sessions.iter().filter(|session| session["current"] == true).collect();
        assert_eq!((current.len(), &current[0]["id"]), (1, &own.1["session"]["id"]));
        let path = format!("/v1/auth/sessions/{}", second.1["session"]["id"].as_str().unwrap());
        let elsewhere = browser(world, &stranger.email, PASSWORD).0;
        elsewhere.delete(&path).expect_error(404, "not_found");
        own.0.delete(&path).expect(200);
        own.0.delete(&path).expect_error(404, "not_found");
        assert_eq!((is_signed_in(&second.0), is_signed_in(&third.0)), (false, true));
        assert_eq!(own.0.delete("/v1/auth/sessions").expect(200)["sessions_ended"], 1);
        assert_eq!((is_signed_in(&own.0), is_signed_in(&third.0)), (true, false));
        assert_eq!(listed(&own.0).len(), 1);
        assert!(is_signed_in(&elsewhere));
        keys_have_no_sessions(&tenant);
    }

    fn sessions_that_move_without_end_keep_nobody_from_ending_them(world: Builder::new().bare()) {
        let (tenant, other) = (world.register(), world.register());
        let email = address("mover");
        join_as(world, &other, &other.client, "developer", &email);
        let (own, account) = join_as(world, &tenant, &tenant.client, "developer", &email);
        let companies = [&tenant.organization, &other.organization];
        let movers = || [(); 4].map(|()| browser(world, &email, PASSWORD).0);
        // Each moves until it is over, or the bound of the test.
        let move_on = |mover: &Client| {
            for company in companies.iter().cycle().take(2_000) {
                let moved = mover.post("/v1/auth/session/switch-company", &json!({"company_id": company}));
                if !matches!(moved.status, 200 | 503) {
                    return moved.status;
                }
            }
            200
        };
        let ended_by = |act: &dyn Fn() -> Answer, movers: &[Client; 4]| {
            std::thread::scope(|scope| {
                let moving: Vec<_> = movers.iter().map(|mover| scope.spawn(|| move_on(mover))).collect();
                let done = act();
                (done, moving.into_iter().map(|mover| mover.join().unwrap()).collect::<Vec<_>>())
            })
        };
        let moving = movers();
        let (done, over) = ended_by(&|| own.delete("/v1/auth/sessions"), &moving);
        done.expect(200);
        assert_eq!(over, [401; 4]);
        assert!(is_signed_in(&own) && !moving.iter().any(is_signed_in));
        assert_eq!(own.get("/v1/auth/sessions").expect(200)["sessions"].as_array().unwrap().len(), 1);
        let moving = movers();
        let removal = || tenant.client.delete(&format!("/v1/organization/members/{account}"));
        let (done, _) = ended_by(&removal, &moving);
        done.expect(200);
        let back = json!({"company_id": tenant.organization});
        for mover in &moving {
            let refused = mover.post("/v1/auth/session/switch-company", &back).status;
            assert!(matches!(refused, 401 | 403), "{refused}");
        }
    }
}

fn keys_have_no_sessions(tenant: &Tenant) {
    tenant.client.get("/v1/auth/sessions").expect_error(403, "forbidden");
}
