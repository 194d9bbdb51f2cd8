//! Registration, sign-in, sessions and what a browser has to send.

use charter_tests::patience::until;
use charter_tests::tenant::{PASSWORD, unique};
use charter_tests::world::Builder;
use charter_tests::{Client, Tenant, World, on_both};
use serde_json::{Value, json};

/// A signed-in person's browser: the cookie, the CSRF token and the origin of the page.
pub fn browser(world: &World, email: &str, password: &str) -> (Client, Value) {
    let anonymous = world.anonymous();
    let answer = anonymous.post("/v1/auth/login", &json!({"email": email, "password": password}));
    let made = answer.expect(200);
    let cookie = answer
        .header("set-cookie")
        .and_then(|line| line.split(';').next())
        .expect("a cookie")
        .to_owned();
    let token = made["session"]["csrf_token"].as_str().expect("a CSRF token").to_owned();
    let origin = anonymous.base().to_owned();
    (anonymous.with("cookie", &cookie).with("x-service-csrf", &token).with("origin", &origin), made)
}

fn owner(world: &World, tenant: &Tenant) -> Client {
    browser(world, &tenant.email, PASSWORD).0
}

on_both! {
    fn nobody_in_particular_sends_little(world) {
        let body = json!({"email": format!("{}@example.com", "x".repeat(100_000)), "password": "p"});
        let tenant = world.register();
        let anonymous = world.anonymous();
        for call in [
            anonymous.call("POST", "/v1/auth/login").json(&body),
            tenant.client.call("GET", "/v1/users").bytes(vec![b' '; 100_000]),
        ] {
            // A client that still sends may find the connection closed before it reads why.
            if let Ok(answer) = call.attempt() {
                answer.expect_error(413, "payload_too_large");
            }
        }
        // A connection of its own: the server closes those that it cut a body short on.
        let fresh = tenant.client.at(world.server().address());
        fresh.call("GET", "/v1/users").bytes(vec![b' '; 1_000]).send().expect(200);
    }

    fn a_text_that_no_database_holds_is_an_ordinary_wrong_one(world) {
        let body = json!({"email": "some\u{0}one@example.com", "password": charter_tests::tenant::PASSWORD});
        world.anonymous().post("/v1/auth/login", &body).expect_error(401, "unauthorized");
        let error = world.anonymous().post("/v1/auth/register", &body).expect_error(400, "invalid_input");
        assert_eq!(error["param"], "email");
        let tenant = world.register();
        for path in ["/v1/users/%00", "/v1/users?external_id=%00", "/v1/kits/a%00b", "/v1/users/%F0%9F"] {
            tenant.client.get(path).expect_error(400, "invalid_input");
        }
        // A primitive that looks for a thing by such an id finds nothing, and nobody else is kept
        // from finding theirs.
        let queue = json!({"name": "q", "dead_letter_queue_id": "\u{0}"});
        let answer = tenant.client.post("/v1/queue", &queue);
        assert!((400..500).contains(&answer.status), "{answer}");
    }

    fn registration_makes_everything_a_platform_begins_with(world) {
        let email = format!("{}@Example.com", unique("Ann"));
        let body = json!({"email": email, "password": PASSWORD, "company_name": "Acme"});
        let answer = world.anonymous().post("/v1/auth/register", &body);
        let made = answer.expect(201);
        assert_eq!(made["account"]["email"], email);
        assert_eq!(made["organization"]["name"], "Acme");
        let key = made["api_key"]["key"].as_str().unwrap();
        assert!(key.starts_with("sk_live_"));
        assert!(key.starts_with(made["api_key"]["prefix"].as_str().unwrap()));
        let client = world.anonymous().bearer(key);
        let organization = client.get("/v1/organization").expect(200);
        assert_eq!(organization["organization"]["id"], made["organization"]["id"]);
        assert_eq!(client.get("/v1/company").expect(200), organization);
        let project = client.get("/v1/projects/default").expect(200);
        assert_eq!(project["project"]["id"], made["project"]["id"]);
        assert_eq!(project["project"]["default_user_id"], made["user"]["id"]);
        assert_eq!(client.get("/v1/users/me").expect(200)["user"]["id"], made["user"]["id"]);
        assert_eq!(client.get("/v1/kits/default").expect(200)["kit"]["name"], "default");
    }

    fn an_address_registers_once_however_it_is_spelled(world) {
        let tenant = world.register();
        let again = json!({"email": tenant.email.to_uppercase(), "password": PASSWORD});
        let error = world.anonymous().post("/v1/auth/register", &again).expect_error(409, "duplicate_record");
        assert_eq!(error["param"], "email");
    }

    fn of_many_registrations_of_one_address_at_once_one_succeeds(world) {
        let email = format!("{}@example.com", unique("race"));
        let body = json!({"email": email, "password": PASSWORD});
        let anonymous = world.anonymous();
        let statuses: Vec<u16> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..6).map(|_| scope.spawn(|| anonymous.post("/v1/auth/register", &body).status)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(statuses.iter().filter(|status| **status == 201).count(), 1, "{statuses:?}");
        assert!(statuses.iter().all(|status| matches!(status, 201 | 409)), "{statuses:?}");
    }

    fn every_wrong_field_of_a_registration_is_named(world) {
        let anonymous = world.anonymous();
        let error = anonymous.post("/v1/auth/register", &json!({"email": "nobody@x", "password": "short", "company_name": " "}));
        let error = error.expect_error(400, "invalid_input");
        let paths: Vec<_> = error["details"]["faults"].as_array().unwrap().iter().map(|fault| fault["path"].clone()).collect();
        for field in ["email", "password", "company_name"] {
            assert!(paths.contains(&json!(field)), "{field} is not among {paths:?}");
        }
        let described = anonymous.get("/openapi.json").expect(200);
        let schema = &described["paths"]["/v1/auth/register"]["post"]["requestBody"]["content"]["application/json"]["schema"];
        let password = &schema["properties"]["password"];
        assert_eq!((&password["minLength"], &password["maxLength"]), (&json!(8), &json!(1024)), "{password}");
        anonymous.post("/v1/auth/register", &json!({"email": "a@example.com"})).expect_error(400, "invalid_input");
        anonymous.post("/v1/auth/register", &json!([])).expect_error(400, "invalid_input");
    }

    fn a_wrong_password_and_an_unknown_address_read_the_same(world) {
        let tenant = world.register();
        let refused = |email: &str| {
            let answer = world.anonymous().post("/v1/auth/login", &json!({"email": email, "password": "not the password"}));
            let mut error = answer.expect_error(401, "unauthorized");
            error["request_id"] = Value::Null;
            error
        };
        assert_eq!(refused(&tenant.email), refused(&format!("{}@example.com", unique("nobody"))));
    }

    fn guessing_a_password_is_stopped(world) {
        let tenant = world.register();
        let body = json!({"email": tenant.email, "password": "not the password"});
        let statuses: Vec<u16> = (0..12).map(|_| world.anonymous().post("/v1/auth/login", &body).status).collect();
        assert_eq!(statuses[0], 401);
        let answer = world.anonymous().post("/v1/auth/login", &body);
        answer.expect_error(429, "rate_limited");
        assert!(answer.header("retry-after").is_some(), "{answer}");
        assert_eq!(answer.header("ratelimit-policy"), Some("\"sign-in\";q=10;w=60"), "{answer}");
        assert!(answer.header("ratelimit").is_some_and(|left| left.starts_with("\"sign-in\";r=0;t=")), "{answer}");
        // Nobody here is trusted to say who the client is.
        let elsewhere = world.anonymous().with("x-forwarded-for", "192.0.2.1").with("forwarded", "for=192.0.2.1");
        elsewhere.post("/v1/auth/login", &body).expect_error(429, "rate_limited");
        // Somebody else's account is open as before.
        let other = world.register();
        world.anonymous().post("/v1/auth/login", &json!({"email": other.email, "password": PASSWORD})).expect(200);
    }

    fn a_session_serves_host_routes_and_ends_when_it_is_deleted(world) {
        let tenant = world.register();
        let answer = world.anonymous().post("/v1/auth/login", &json!({"email": tenant.email, "password": PASSWORD}));
        let cookie = answer.header("set-cookie").unwrap().to_owned();
        for attribute in ["service_session=", "HttpOnly", "SameSite=Lax", "Max-Age=1209600", "Path=/"] {
            assert!(cookie.contains(attribute), "{attribute} is not in {cookie}");
        }
        let (browser, made) = browser(world, &tenant.email, PASSWORD);
        let session = browser.get("/v1/auth/session").expect(200);
        assert_eq!(session["session"], made["session"]);
        assert_eq!(session["role"], "owner");
        assert_eq!(session["organization"]["id"], json!(tenant.organization));
        browser.post("/v1/users", &json!({"name": "made by a person"})).expect(201);
        browser.delete("/v1/auth/session").expect(200);
        browser.get("/v1/auth/session").expect_error(401, "unauthorized");
    }

    fn a_change_by_cookie_needs_the_token_and_the_own_origin(world) {
        let tenant = world.register();
        let browser = owner(world, &tenant);
        let body = json!({"name": "forged"});
        browser.without("x-service-csrf").post("/v1/users", &body).expect_error(403, "forbidden");
        browser.with("x-service-csrf", "guessed").post("/v1/users", &body).expect_error(403, "forbidden");
        browser.with("origin", "https://evil.example.net").post("/v1/users", &body).expect_error(403, "forbidden");
        browser.without("x-service-csrf").get("/v1/users").expect(200);
    }

    fn a_page_of_another_site_signs_nobody_in(world) {
        let tenant = world.register();
        let login = json!({"email": tenant.email, "password": PASSWORD});
        let own = world.anonymous().base().to_owned();
        let from = |name: &str, value: &str| world.anonymous().with(name, value).post("/v1/auth/login", &login);
        for (name, value) in
            [("sec-fetch-site", "cross-site"), ("origin", "https://evil.example.net"), ("origin", "null")]
        {
            let refused = from(name, value);
            assert_eq!(refused.expect_error(403, "forbidden")["reason"], "cross_site", "{name}: {value}");
            assert!(refused.header("set-cookie").is_none(), "{refused}");
        }
        for (name, value) in [("sec-fetch-site", "same-origin"), ("origin", own.as_str())] {
            assert!(from(name, value).header("set-cookie").is_some(), "{name}: {value}");
        }
    }

    fn a_session_moves_between_the_organizations_of_its_person(world) {
        let (first, second) = (world.register(), world.register());
        let invitation = second.client.post("/v1/organization/members", &json!({"email": first.email, "role": "developer"}));
        let token = invitation.expect(201)["invitation"]["accept_token"].clone();
        let accepted = world.anonymous().post("/v1/auth/invitations/accept", &json!({"token": token, "password": PASSWORD}));
        assert_eq!(accepted.expect(201)["organization"]["id"], json!(second.organization));
        let browser = owner(world, &first);
        let moved = browser.post("/v1/auth/session/switch-company", &json!({"company_id": second.organization})).expect(200);
        assert_eq!(moved["organization"]["id"], json!(second.organization));
        assert_eq!(browser.get("/v1/organization").expect(200)["organization"]["role"], "developer");
        // Each organization's log tells its own part, and names no other.
        until("the one that was entered hears of it", || {
            let entered = second.client.get("/v1/logs?action=session.enter").expect(200);
            entered["logs"].as_array().is_some_and(|rows| rows.len() == 1)
        });
        until("the one that was left hears of it", || {
            let left = first.client.get("/v1/logs?action=session.switch_company").expect(200);
            assert!(!left.to_string().contains(&second.organization), "{left}");
            left["logs"].as_array().is_some_and(|rows| rows.len() == 1)
        });
        browser.post("/v1/auth/session/switch-company", &json!({})).expect_error(400, "invalid_input");
        let stranger = world.register();
        for foreign in [stranger.organization.as_str(), "00000000-0000-7000-8000-000000000000", "nothing"] {
            let answer = browser.post("/v1/auth/session/switch-company", &json!({"company_id": foreign}));
            answer.expect_error(403, "forbidden");
        }
    }

    fn a_sign_in_link_says_what_is_missing(world) {
        let error = world.anonymous().post("/v1/auth/link", &json!({"email": "ann@example.com"})).expect_error(501, "not_configured");
        assert_eq!(error["details"]["missing"], json!(["mail_relay"]));
        world.anonymous().post("/v1/auth/link", &json!({})).expect_error(400, "invalid_input");
    }
}

/// A deployment behind a proxy of this machine, where one guess a minute is allowed.
fn world_behind_proxy() -> Builder {
    Builder::new()
        .bare()
        .argument("--trusted-proxies=127.0.0.0/8")
        .environment("CHARTER_AUTH_ATTEMPTS_PER_MINUTE", "1")
}

on_both! {
    fn behind_a_trusted_proxy_a_wrong_guess_shuts_out_its_own_address_alone(world: world_behind_proxy()) {
        let tenant = world.register();
        let login = |field: &str, value: &str, password: &str| {
            let client = world.anonymous().with(field, value);
            client.post("/v1/auth/login", &json!({"email": tenant.email, "password": password}))
        };
        login("x-forwarded-for", "192.0.2.1", "not the password").expect_error(401, "unauthorized");
        login("x-forwarded-for", "192.0.2.1", PASSWORD).expect_error(429, "rate_limited");
        login("x-forwarded-for", "192.0.2.7, 192.0.2.1", PASSWORD).expect_error(429, "rate_limited");
        login("x-forwarded-for", "192.0.2.1, 192.0.2.2", PASSWORD).expect(200);
        login("x-forwarded-for", "192.0.2.2, 127.0.0.2", PASSWORD).expect(200);
        // The field that these proxies do not write is the client's own.
        login("forwarded", "for=192.0.2.1", PASSWORD).expect(200);
        world.anonymous().post("/v1/auth/login", &json!({"email": tenant.email, "password": PASSWORD})).expect(200);
    }
}
