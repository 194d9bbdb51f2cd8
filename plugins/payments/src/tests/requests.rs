//! Requests between the user, who calls the double, and Ana.

use super::*;

/// Calls an operation as Ana.
fn as_ana(bench: &Bench, operation: &str, id: &str, body: Value) -> Result<Value, Failure> {
    bench.serve(caller(Some(ANA), "default"), operation, Some(id), body)
}

/// A request to Ana; its id.
fn ask(bench: &Bench, cents: u64) -> String {
    let body = json!({ "from_user_id": ANA, "amount_cents": cents, "description": "dinner" });
    let told = bench.post("/requests", body).unwrap();
    told["payment_request"]["id"].as_str().unwrap().to_owned()
}

/// A request of Ana to the user; its id.
fn asked(bench: &Bench, cents: u64) -> String {
    let told = as_ana(
        bench,
        "payments.request",
        "",
        json!({ "from_user_id": USER, "amount_cents": cents }),
    )
    .unwrap();
    told["payment_request"]["id"].as_str().unwrap().to_owned()
}

fn ids(told: &Value) -> Vec<&str> {
    told["payment_requests"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["id"].as_str().unwrap())
        .collect()
}

#[test]
fn a_request_is_paid_by_the_one_who_is_asked() {
    let bench = Bench::new();
    bench.give(USER, 1_000);
    let request = asked(&bench, 400);
    let paid =
        bench.post(&format!("/requests/{request}/pay"), json!({})).unwrap()["payment_request"]
            .clone();
    assert_eq!(
        (&paid["status"], &paid["from_user_id"], &paid["to_user_id"]),
        (&json!("paid"), &json!(USER), &json!(ANA))
    );
    assert_eq!((bench.balance(), bench.balance_of(ANA)), (600, 400));
    let payment =
        bench.get(&format!("/{}", paid["payment_id"].as_str().unwrap()))["payment"].clone();
    assert_eq!((&payment["kind"], &payment["to_user_id"]), (&json!("transfer"), &json!(ANA)));
    let again = bench.post(&format!("/requests/{request}/pay"), json!({})).unwrap_err();
    assert_eq!((again.code(), again.reason_text()), ("state_conflict", Some("request_paid")));
    assert_eq!((bench.balance(), bench.told("payments.request.updated", "paid")), (600, 1));
}

#[test]
fn each_step_is_one_partys_alone_and_a_third_sees_nothing() {
    let bench = Bench::new();
    bench.give(USER, 1_000);
    let request = ask(&bench, 400);
    for step in ["pay", "decline"] {
        let refused = bench.post(&format!("/requests/{request}/{step}"), json!({})).unwrap_err();
        assert_eq!(
            (refused.code(), refused.reason_text()),
            ("forbidden", Some("not_the_one_asked"))
        );
    }
    let refused = as_ana(&bench, "payments.request_cancel", &request, json!({})).unwrap_err();
    assert_eq!((refused.code(), refused.reason_text()), ("forbidden", Some("not_the_asker")));
    for operation in ["request_read", "request_pay", "request_decline", "request_cancel"] {
        let bob = caller(Some(BOB), "default");
        let absent = bench
            .serve(bob, &format!("payments.{operation}"), Some(&request), json!({}))
            .unwrap_err();
        assert_eq!(absent.code(), "not_found", "{operation}");
    }
    assert_eq!(
        as_ana(&bench, "payments.request_read", &request, json!({})).unwrap()["payment_request"]["status"],
        "pending"
    );
    assert_eq!(
        bench.get(&format!("/requests/{request}"))["payment_request"]["description"],
        "dinner"
    );
}

#[test]
fn what_is_settled_stays_so_and_says_how() {
    let bench = Bench::new();
    let (declined, canceled) = (ask(&bench, 1), ask(&bench, 1));
    as_ana(&bench, "payments.request_decline", &declined, json!({})).unwrap();
    bench.post(&format!("/requests/{canceled}/cancel"), json!({})).unwrap();
    for (request, reason) in [(&declined, "request_declined"), (&canceled, "request_canceled")] {
        for step in ["request_pay", "request_decline"] {
            let refused =
                as_ana(&bench, &format!("payments.{step}"), request, json!({})).unwrap_err();
            assert_eq!((refused.code(), refused.reason_text()), ("state_conflict", Some(reason)));
        }
        let refused = bench.post(&format!("/requests/{request}/cancel"), json!({})).unwrap_err();
        assert_eq!(refused.reason_text(), Some(reason));
    }
}

#[test]
fn a_request_expires_after_a_week_or_when_it_says() {
    let bench = Bench::new();
    bench.give(USER, 1_000);
    let request = asked(&bench, 400);
    bench.host.pass_seconds(7 * 86_400 - 1);
    assert_eq!(ids(&bench.get("/requests?status=pending")), [request.as_str()]);
    assert!(ids(&bench.get("/requests?status=expired")).is_empty());
    bench.host.pass_seconds(1);
    let expired = bench.post(&format!("/requests/{request}/pay"), json!({})).unwrap_err();
    assert_eq!(
        (expired.code(), expired.reason_text()),
        ("state_conflict", Some("request_expired"))
    );
    assert_eq!(bench.get(&format!("/requests/{request}"))["payment_request"]["status"], "expired");
    assert!(ids(&bench.get("/requests?status=pending")).is_empty());
    assert_eq!(ids(&bench.get("/requests?status=expired")), [request.as_str()]);
    let until = |seconds: u32| {
        let expires_at = bench.host.now().plus_seconds(seconds).to_string();
        bench.post(
            "/requests",
            json!({ "from_user_id": ANA, "amount_cents": 1, "expires_at": expires_at }),
        )
    };
    for seconds in [0, 31 * 86_400 + 1] {
        let refused = until(seconds).unwrap_err();
        assert_eq!((refused.code(), refused.param_text()), ("invalid_input", Some("expires_at")));
    }
    let latest = bench.host.now().plus_seconds(31 * 86_400).to_string();
    assert_eq!(until(31 * 86_400).unwrap()["payment_request"]["expires_at"], latest.as_str());
}

#[test]
fn requests_are_listed_by_direction_and_status() {
    let bench = Bench::new();
    let (incoming, outgoing, canceled) = (asked(&bench, 1), ask(&bench, 2), ask(&bench, 3));
    bench.post(&format!("/requests/{canceled}/cancel"), json!({})).unwrap();
    bench
        .serve(
            caller(Some(BOB), "default"),
            "payments.request",
            None,
            json!({ "from_user_id": ANA, "amount_cents": 4 }),
        )
        .unwrap();
    assert_eq!(ids(&bench.get("/requests")), [incoming.as_str()]);
    assert_eq!(ids(&bench.get("/requests?direction=incoming")), [incoming.as_str()]);
    assert_eq!(
        ids(&bench.get("/requests?direction=outgoing")),
        [outgoing.as_str(), canceled.as_str()]
    );
    assert_eq!(
        ids(&bench.get("/requests?direction=outgoing&status=canceled")),
        [canceled.as_str()]
    );
    let first = bench.get("/requests?direction=outgoing&limit=1");
    assert_eq!((ids(&first), &first["has_more"]), (vec![outgoing.as_str()], &json!(true)));
}

#[test]
fn a_request_is_to_somebody_else() {
    let refused = Bench::new()
        .post("/requests", json!({ "from_user_id": USER, "amount_cents": 1 }))
        .unwrap_err();
    assert_eq!((refused.code(), refused.param_text()), ("invalid_input", Some("from_user_id")));
}

#[test]
fn a_payment_without_leave_or_money_leaves_the_request_pending() {
    let bench = Bench::new();
    let request = asked(&bench, 400);
    let pay = || bench.post(&format!("/requests/{request}/pay"), json!({})).unwrap_err();
    assert!(pay().is("insufficient_credits"));
    bench.give(USER, 399);
    assert!(pay().is("insufficient_credits"));
    bench.host.deny("payments.transfer", Failure::forbidden("the policy says no"));
    assert!(pay().is("forbidden"));
    bench.host.deny("payments.transfer", Failure::resource_not_found("user", "user"));
    assert_eq!(pay().reason_text(), Some("user_gone"));
    assert_eq!(bench.get(&format!("/requests/{request}"))["payment_request"]["status"], "pending");
    assert_eq!(bench.balance(), 399);
}

#[test]
fn a_deleted_user_settles_what_it_asked_and_was_asked() {
    let bench = Bench::new();
    let (incoming, outgoing) = (asked(&bench, 1), ask(&bench, 2));
    let bob = || caller(Some(BOB), "default");
    let others = bench
        .serve(bob(), "payments.request", None, json!({ "from_user_id": ANA, "amount_cents": 3 }))
        .unwrap();
    bench.host.signal("deleted", json!({})).unwrap();
    let status = |request: &str| {
        bench.get(&format!("/requests/{request}"))["payment_request"]["status"].clone()
    };
    assert_eq!((status(&incoming), status(&outgoing)), (json!("declined"), json!("canceled")));
    let others = others["payment_request"]["id"].as_str().unwrap();
    let seen = bench.serve(bob(), "payments.request_read", Some(others), json!({})).unwrap();
    assert_eq!(seen["payment_request"]["status"], "pending");
}
