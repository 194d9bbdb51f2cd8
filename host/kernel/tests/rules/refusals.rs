//! Every refusal that the host makes, as a caller reads it, in both catalogues.

use charter_kernel::fault::Fault;
use charter_kernel::manifest::Catalogue;
use charter_kernel::refusal::{Code, Declared, ErrorCode, Failure, Rate, Refusal};
use serde_json::{Value, json};

/// Every row: name and status in the primary catalogue, then in the typed one.
const ROWS: [(&str, u16, &str, u16); 39] = [
    ("invalid_input", 400, "validation_failed", 400),
    ("invalid_inbox", 400, "validation_failed", 400),
    ("window_unavailable", 400, "window_unavailable", 400),
    ("unauthorized", 401, "unauthorized", 401),
    ("insufficient_credits", 402, "insufficient_credits", 402),
    ("billing_blocked", 402, "billing_blocked", 402),
    ("llm_routing_requires_payment", 402, "llm_routing_requires_payment", 402),
    ("payment_rejected", 402, "payment_rejected", 402),
    ("billing_blocked", 402, "subscription_required", 402),
    ("forbidden", 403, "budget_exceeded", 402),
    ("forbidden", 403, "forbidden", 403),
    ("not_found", 404, "not_found", 404),
    ("resource_not_found", 404, "not_found", 404),
    ("method_not_allowed", 405, "method_not_allowed", 405),
    ("request_timeout", 408, "request_timeout", 408),
    ("duplicate_record", 409, "name_conflict", 409),
    ("state_conflict", 409, "state_conflict", 409),
    ("version_conflict", 409, "version_conflict", 409),
    ("revision_conflict", 409, "revision_conflict", 409),
    ("duplicate_request", 409, "idempotency_conflict", 409),
    ("job_not_ready", 409, "job_not_ready", 409),
    ("compliance_pending", 409, "compliance_pending", 409),
    ("account_not_provisioned", 409, "state_conflict", 409),
    ("ambiguous_app", 409, "ambiguous_app", 409),
    ("session_running", 409, "session_running", 409),
    ("session_terminal", 409, "session_terminal", 409),
    ("computer_unavailable", 409, "computer_unavailable", 409),
    ("context_locked", 409, "context_locked", 409),
    ("payload_too_large", 413, "payload_too_large", 413),
    ("unsupported_media_type", 415, "unsupported_media_type", 415),
    ("invalid_component", 422, "invalid_component", 422),
    ("rate_limited", 429, "rate_limited", 429),
    ("headers_too_large", 431, "headers_too_large", 431),
    ("internal_error", 500, "internal_error", 500),
    ("not_configured", 501, "feature_not_configured", 501),
    ("wallet_not_configured", 501, "feature_not_configured", 501),
    ("provider_error", 502, "provider_error", 502),
    ("overloaded", 503, "overloaded", 503),
    ("deadline_exceeded", 504, "deadline_exceeded", 504),
];

fn body(refusal: &Refusal) -> Value {
    refusal.render(Catalogue::Primary, "r-1").1["error"].clone()
}

#[test]
fn each_code_is_called_as_the_tables_say() {
    for (code, (primary, status, typed, typed_status)) in Code::ALL.into_iter().zip(ROWS) {
        assert_eq!(code.row(Catalogue::Primary), (primary, status), "{code:?}");
        assert_eq!(code.row(Catalogue::Typed), (typed, typed_status), "{code:?}");
        assert_eq!(
            (code.name(Catalogue::Typed), code.status(Catalogue::Typed)),
            (typed, typed_status)
        );
    }
}

#[test]
fn each_status_has_its_type() {
    let kinds = [
        (Code::InvalidInput, "invalid_request"),
        (Code::Unauthorized, "authentication"),
        (Code::InsufficientCredits, "quota"),
        (Code::Forbidden, "permission"),
        (Code::NotFound, "not_found"),
        (Code::RequestTimeout, "invalid_request"),
        (Code::StateConflict, "conflict"),
        (Code::PayloadTooLarge, "invalid_request"),
        (Code::RateLimited, "rate_limit"),
        (Code::InternalError, "api_error"),
        (Code::NotConfigured, "not_implemented"),
        (Code::Overloaded, "api_error"),
    ];
    for (code, kind) in kinds {
        assert_eq!(body(&Refusal::new(code, "m"))["type"], kind, "{code:?}");
    }
}

#[test]
fn each_refusal_of_the_host_reads_as_documented() {
    let table = [
        (
            Refusal::invalid("size", "must be 1..3"),
            "invalid_input",
            json!("size"),
            "size must be 1..3",
        ),
        (Refusal::unauthorized("Who?"), "unauthorized", Value::Null, "Who?"),
        (Refusal::forbidden("pinned", "No."), "forbidden", Value::Null, "No."),
        (Refusal::not_found(), "not_found", Value::Null, "There is nothing at this address."),
        (
            Refusal::resource_not_found("card"),
            "resource_not_found",
            json!("card"),
            "What card names does not exist.",
        ),
        (
            Refusal::method_not_allowed("GET"),
            "method_not_allowed",
            Value::Null,
            "The method is not allowed here; these are: GET.",
        ),
        (Refusal::duplicate("name", "Taken."), "duplicate_record", json!("name"), "Taken."),
        (Refusal::state_conflict("over", "Over."), "state_conflict", Value::Null, "Over."),
        (
            Refusal::version_conflict(7),
            "version_conflict",
            json!("expected_version"),
            "The resource has changed since it was read.",
        ),
        (Refusal::rate_limited(3), "rate_limited", Value::Null, "Too many requests."),
        (
            Refusal::overloaded(1),
            "overloaded",
            Value::Null,
            "The service is busy; nothing was done.",
        ),
        (
            Refusal::deadline_exceeded(),
            "deadline_exceeded",
            Value::Null,
            "The request took longer than it may; nothing was done.",
        ),
        (
            Refusal::internal(),
            "internal_error",
            Value::Null,
            "Something failed on our side; quote the request id.",
        ),
        (
            Refusal::not_configured(&["a", "b"]),
            "not_configured",
            Value::Null,
            "Not configured on this deployment: a, b.",
        ),
    ];
    for (refusal, code, param, message) in table {
        let body = body(&refusal);
        assert_eq!((&body["code"], &body["param"]), (&json!(code), &param));
        assert_eq!((&body["message"], &body["request_id"]), (&json!(message), &json!("r-1")));
    }
}

#[test]
fn details_are_for_programs() {
    assert_eq!(body(&Refusal::version_conflict(7))["details"], json!({ "current_version": 7 }));
    assert_eq!(body(&Refusal::method_not_allowed("GET"))["details"], json!({ "allow": "GET" }));
    assert_eq!(body(&Refusal::not_configured(&["x"]))["details"], json!({ "missing": ["x"] }));
    assert_eq!(body(&Refusal::forbidden("pinned", "No."))["reason"], "pinned");
    assert_eq!(Refusal::rate_limited(3).retry_after_seconds, Some(3));
    assert_eq!(Refusal::overloaded(2).retry_after_seconds, Some(2));
    let rate = Rate { policy: "p".into(), left: "l".into() };
    assert_eq!(Refusal::rate_limited(1).rate(rate.clone()).rate, Some(rate));
    let budget = Refusal::new(Code::BudgetExceeded, "m").reason;
    assert_eq!(budget.as_deref(), Some("budget_exceeded"));
    let key = Refusal::new(Code::IdempotencyConflict, "m").reason;
    assert_eq!(key.as_deref(), Some("idempotency_conflict"));
}

#[test]
fn faults_are_all_listed_and_the_first_is_the_message() {
    let fault = |path: &str| Fault::new(path, "is wrong");
    let none = Refusal::faults(Vec::new());
    assert_eq!((none.message.as_str(), none.param), ("The request is not valid.", None));
    let several = Refusal::faults(vec![fault("a"), fault("b"), fault("c")]);
    assert_eq!(several.message, "a is wrong (2 more in details.faults)");
    assert_eq!(several.details["faults"].as_array().unwrap().len(), 3);
    let whole = Refusal::faults(vec![fault("")]);
    assert_eq!((whole.message.as_str(), whole.param), ("is wrong", None), "the document itself");
    assert_eq!(fault("b").within("a"), fault("a.b"));
    assert_eq!(fault("").within("a"), fault("a"));
    assert_eq!(fault("b").within(""), fault("b"));
}

#[test]
fn a_problem_document_says_the_same() {
    let refusal = Refusal::forbidden("pinned", "No.").hint("Ask.").detail("a", 1);
    let (status, problem) = refusal.problem(Catalogue::Primary, "r-1");
    let expected = json!({
        "type": "about:blank", "title": "forbidden", "status": 403, "detail": "No.",
        "instance": "urn:uuid:r-1", "kind": "permission", "code": "forbidden", "message": "No.",
        "param": null, "request_id": "r-1", "reason": "pinned", "hint": "Ask.", "details": {"a": 1},
    });
    assert_eq!((status, problem), (403, expected));
}

#[test]
fn a_code_of_a_primitives_own_keeps_its_status_and_is_retried_by_it() {
    let declared = |status: u16| -> Vec<ErrorCode> {
        vec![serde_json::from_value(json!({ "code": "own_code", "status": status })).unwrap()]
    };
    let failure = || Failure { code: "own_code".into(), message: "m".into(), ..Failure::default() };
    let nearest = [
        (401, Code::Unauthorized),
        (402, Code::InsufficientCredits),
        (403, Code::Forbidden),
        (404, Code::NotFound),
        (409, Code::StateConflict),
        (429, Code::RateLimited),
        (418, Code::InvalidInput),
        (500, Code::InternalError),
    ];
    for (status, code) in nearest {
        let refusal = Refusal::guest(failure(), &declared(status)).unwrap();
        assert_eq!((refusal.code, refusal.status(Catalogue::Typed)), (code, status));
        assert_eq!(refusal.should_retry(), status == 429, "{status}");
        let own = Some(Declared { code: "own_code".into(), status });
        assert_eq!(refusal.own, own);
        assert_eq!(refusal.to_failure().code, "own_code");
    }
}

#[test]
fn spending_members_are_lifted_for_codes_about_spending_alone() {
    let with = |code: &str| {
        let details = Some(r#"{"balance":4,"actions":{"topup":"x"},"other":1}"#.to_owned());
        let failure = Failure { code: code.into(), details, ..Failure::default() };
        Refusal::guest(failure, &[]).unwrap()
    };
    let about = [
        "insufficient_credits",
        "billing_blocked",
        "llm_routing_requires_payment",
        "payment_rejected",
        "subscription_required",
    ];
    for code in about {
        let refusal = with(code);
        assert_eq!(refusal.extra["balance"], 4, "{code}");
        assert_eq!(refusal.extra["actions"]["topup"], "x", "{code}");
        assert_eq!(Value::Object(refusal.details.clone()), json!({ "other": 1 }), "{code}");
        let back: Value = serde_json::from_str(&refusal.to_failure().details.unwrap()).unwrap();
        assert_eq!((&back["balance"], &back["other"]), (&json!(4), &json!(1)), "{code}");
    }
    let other = with("forbidden");
    assert!(other.extra.is_empty() && other.details.contains_key("balance"));
}

#[test]
fn a_guests_refusal_keeps_what_it_says() {
    let failure = Failure {
        code: "rate_limited".into(),
        message: "slow".into(),
        hint: Some("wait".into()),
        reason: Some("often".into()),
        param: Some("n".into()),
        details: Some("{\"a\":1}".into()),
        retry_after_seconds: Some(9),
    };
    let refusal = Refusal::guest(failure.clone(), &[]).unwrap();
    assert!(refusal.should_retry());
    assert_eq!(refusal.to_failure(), failure);
    let listed = Failure {
        code: "invalid_input".into(),
        details: Some("{\"faults\":[]}".into()),
        ..failure
    };
    let refusal = Refusal::guest(listed, &[]).unwrap();
    assert_eq!(refusal.details["faults"], json!([]), "a list of its own is kept");
}
