//! Sign-in links and invitations, mailed through a real SMTP server.

use charter_tests::patience::{PATIENCE, look_for, until};
use charter_tests::relay::Relay;
use charter_tests::tenant::{PASSWORD, unique};
use charter_tests::{Tenant, on_both};
use serde_json::json;

use crate::accounts::browser;
use crate::mail::{bind, builder, is_plain_page, parts, send};

on_both! {
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
        assert_eq!(relay.mails().len(), 1, "{:?}", relay.mails());
        // An approval's page is none to sign in by.
        is_plain_page(&world.anonymous().get(&format!("/sign-in?token={}", unique("link"))), 404);
        // A client that asks again and again is slowed down.
        let busy = world.register();
        let refused = look_for(PATIENCE, "asking is slowed down", || match ask(&busy.email) {
            answer if answer.status == 429 => Ok(answer),
            answer => Err(answer),
        });
        refused.expect_error(429, "rate_limited");
        let seconds: u32 = refused.header("retry-after").unwrap().parse().unwrap();
        assert!((1..=60).contains(&seconds), "{refused}");
    }

    fn a_sign_in_link_cautions_whose_address_nobody_has_proved(world: builder()) {
        let relay = Relay::start();
        bind(world, &relay);
        // The operator's word proves an address; that somebody registers with one does not.
        for (tenant, is_proved) in [(world.register(), false), (Tenant::register(&world.operator()), true)] {
            world.anonymous().post("/v1/auth/link", &json!({ "email": tenant.email })).expect(202);
            let link = relay.hears(&tenant.email, 1).remove(0).link();
            let page = world.anonymous().get(&link);
            is_plain_page(&page, 200);
            let text = page.text();
            assert!(text.contains(&tenant.email) && text.contains("<button>Sign in</button>"), "{page}");
            for told in ["Nobody has proved this address", "do not sign in here"] {
                assert_eq!(text.contains(told), !is_proved, "{page}");
            }
        }
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
        until("it was tried", || world.server().log().contains("a mail could not be sent yet"));
        tenant.client.delete(&format!("/v1/organization/invitations/{}", gone["id"].as_str().unwrap())).expect(200);
        relay.open();
        let last = invite("last@example.com");
        assert_eq!(last["mail"], "queued");
        relay.hears("last@example.com", 1);
        assert!(relay.to("gone@example.com").is_empty());
    }
}
