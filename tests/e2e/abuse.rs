//! The harm that strangers can do to others from one address, and its bounds.

use charter_tests::raw::{Raw, statuses};
use charter_tests::tenant::{PASSWORD, unique};
use charter_tests::world::Builder;
use charter_tests::{Client, on_both};
use serde_json::{Value, json};

/// Another address of this machine.
const ELSEWHERE: [u8; 4] = [127, 0, 0, 2];

fn account(name: &str) -> Value {
    json!({"email": format!("{}@example.com", unique(name)), "password": PASSWORD})
}

on_both! {
    fn one_address_registers_so_often_and_keeps_nobody_else_out(world: Builder::as_shipped().bare()) {
        let anonymous = world.anonymous();
        let known = account("known");
        anonymous.post("/v1/auth/register", &known).expect(201);
        // As from a script: many at once, each with an address of its own.
        let answers: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..24)
                .map(|_| scope.spawn(|| anonymous.post("/v1/auth/register", &account("many"))))
                .collect();
            // Callers from elsewhere sign in meanwhile.
            let elsewhere = Client::from(anonymous.base(), ELSEWHERE);
            for _ in 0..4 {
                elsewhere.post("/v1/auth/login", &known).expect(200);
            }
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let made = answers.iter().filter(|answer| answer.status == 201).count();
        assert!(made <= 20, "{made} organizations of one address");
        let refused: Vec<_> = answers.iter().filter(|answer| answer.status != 201).collect();
        assert!(refused.len() >= 4, "{made} organizations of one address");
        for answer in refused {
            answer.expect_error(429, "rate_limited");
            assert!(answer.header("retry-after").is_some(), "{answer}");
            assert_eq!(answer.header("ratelimit-policy"), Some("\"registration\";q=20;w=3600"));
        }
        // Nor does it find out who is registered.
        anonymous.post("/v1/auth/register", &known).expect_error(429, "rate_limited");
        // It signs in all the same, another address registers, and so does the operator.
        anonymous.post("/v1/auth/login", &known).expect(200);
        let elsewhere = Client::from(anonymous.base(), ELSEWHERE);
        elsewhere.post("/v1/auth/register", &account("other")).expect(201);
        world.operator().post("/v1/auth/register", &account("operators")).expect(201);
    }

    fn a_call_of_no_inbound_url_is_refused_before_its_body_is_sent(world: Builder::as_shipped().bare()) {
        let tenant = world.register();
        let base = world.server().address();
        let calls = |path: &str| {
            let head = format!("POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: 262143\r\n\r\n");
            Raw::exchange(base, head.as_bytes())
        };
        let unknown = |n: u32| calls(&format!("/v1/hooks/{n:032x}"));
        for n in 0..55 {
            assert_eq!(statuses(&unknown(n)), [404]);
        }
        for path in ["/v1/hooks/providers/nothing", "/v1/hooks/short"] {
            assert_eq!(statuses(&calls(path)), [404]);
        }
        let limited = (0..20).map(unknown).find(|heard| statuses(heard) == [429]);
        let limited = limited.expect("an address tries without end").to_ascii_lowercase();
        assert!(limited.contains("retry-after:"), "{limited}");
        let login = json!({"email": tenant.email, "password": PASSWORD});
        world.anonymous().post("/v1/auth/login", &login).expect(200);
    }

    fn who_tries_invitations_is_slowed_down_and_who_has_one_is_not(world: Builder::as_shipped().bare()) {
        let tenant = world.register();
        let invitee = format!("{}@example.com", unique("invitee"));
        let offered = tenant.client.post("/v1/organization/members", &json!({"email": invitee, "role": "viewer"}));
        let token = offered.expect(201)["invitation"]["accept_token"].clone();
        let anonymous = world.anonymous();
        let accept = |client: &Client, token: &Value| {
            client.post("/v1/auth/invitations/accept", &json!({"token": token, "password": PASSWORD}))
        };
        let tried: Vec<u16> = (0..12).map(|n| accept(&anonymous, &json!(format!("inv_{n}"))).status).collect();
        assert_eq!(tried[0], 401);
        assert_eq!(tried.last(), Some(&429));
        accept(&Client::from(anonymous.base(), ELSEWHERE), &token).expect(201);
    }

    fn one_address_invites_so_often_whoever_asks(
        world: Builder::as_shipped().bare().environment("CHARTER_AUTH_INVITATIONS_PER_HOUR", "2")
    ) {
        let (tenant, other) = (world.register(), world.register());
        let invite = |client: &Client| {
            let guest = json!({"email": format!("{}@example.com", unique("guest")), "role": "viewer"});
            client.post("/v1/organization/members", &guest)
        };
        for _ in 0..2 {
            invite(&tenant.client).expect(201);
        }
        // It is the address that has invited, for whichever organization.
        for client in [&tenant.client, &other.client] {
            let refused = invite(client);
            refused.expect_error(429, "rate_limited");
            let seconds: u32 = refused.header("retry-after").unwrap().parse().unwrap();
            assert!((1..=1_800).contains(&seconds), "{refused}");
            assert_eq!(refused.header("ratelimit-policy"), Some("\"invitation\";q=2;w=3600"));
        }
        let pending = tenant.client.get("/v1/organization/invitations").expect(200);
        assert_eq!(pending["invitations"].as_array().unwrap().len(), 2);
        let elsewhere = Client::from(world.server().address(), ELSEWHERE);
        invite(&elsewhere.bearer(&tenant.key)).expect(201);
    }
}

on_both! {
    fn a_port_that_does_not_exist_is_refused_where_it_is_written(world) {
        let tenant = world.register();
        for url in ["http://127.0.0.1:99999/", "http://127.0.0.1:65536/", "http://127.0.0.1:0/"] {
            let hook = json!({"url": url, "eventTypes": ["*"]});
            assert_eq!(tenant.client.post("/v1/webhooks", &hook).expect_error(400, "invalid_input")["param"], "url");
            let binding = json!({"kind": "http", "url": url});
            let put = world.operator().put("/v1/operator/providers/ports.test", &binding);
            assert_eq!(put.expect_error(400, "invalid_input")["param"], "url");
        }
    }

    fn json_is_utf_8_or_it_is_refused(world) {
        let tenant = world.register();
        let call = |media: &str| {
            let call = tenant.client.call("POST", "/v1/users").bytes(r#"{"name":"read as it was meant"}"#);
            call.header("content-type", media).send()
        };
        call("application/json; charset=utf-16").expect_error(415, "unsupported_media_type");
        call("application/json; charset=UTF-8").expect(201);
    }

    fn nobody_takes_an_address_that_the_host_gives_to_who_lost_theirs(world) {
        let tenant = world.register();
        let account = tenant.client.get("/v1/organization/members").expect(200)["members"][0]["id"].clone();
        for domain in ["unproved.invalid", "Unproved.INVALID"] {
            let email = format!("{}@{domain}", account.as_str().unwrap());
            let asked = json!({"email": email, "password": PASSWORD});
            let refused = world.anonymous().post("/v1/auth/register", &asked).expect_error(400, "invalid_input");
            assert_eq!(refused["param"], "email", "{email}");
            let invited = json!({"email": email, "role": "viewer"});
            let refused = tenant.client.post("/v1/organization/members", &invited).expect_error(400, "invalid_input");
            assert_eq!(refused["param"], "email", "{email}");
        }
    }

    fn nothing_repeats_the_host_that_a_caller_names(world) {
        let forged = world.anonymous().with("host", "evil.example.net");
        for path in ["/register.md", "/skill.md"] {
            let text = forged.get(path).text();
            assert!(text.contains(world.server().address()) && !text.contains("evil"), "{text}");
        }
    }
}

/// A deployment behind a proxy that speaks TLS with its clients.
fn behind_tls() -> Builder {
    Builder::new().bare().environment("CHARTER_HTTP_PUBLIC_URL", "https://api.example.com/")
}

on_both! {
    fn the_cookie_is_for_encrypted_connections_where_clients_use_them(world: behind_tls()) {
        let tenant = world.register();
        let login = json!({"email": tenant.email, "password": PASSWORD});
        let answer = world.anonymous().post("/v1/auth/login", &login);
        let cookie = answer.header("set-cookie").unwrap();
        assert!(cookie.contains("; Secure"), "{cookie}");
        // The operator says which site is the page's, and not the address that a request was sent to.
        let token = answer.expect(200)["session"]["csrf_token"].as_str().unwrap().to_owned();
        let browser = world.anonymous().with("cookie", cookie.split(';').next().unwrap()).with("x-service-csrf", &token);
        let create = |origin: &str| browser.with("origin", origin).post("/v1/auth/keys", &json!({"name": "agent"}));
        let sent_to = create(world.anonymous().base());
        assert_eq!(sent_to.expect_error(403, "forbidden")["reason"], "cross_site");
        create("https://api.example.com").expect(201);
        assert!(world.anonymous().get("/register.md").text().contains("https://api.example.com/v1/"));
    }
}
