//! `GET /v1/limits`: limits and guarantees, as this build truly keeps them (service-api.md,
//! Limits).

use charter_kernel::id::UserId;
use charter_kernel::kit::ConnectionMode;
use charter_kernel::limits::PAGE_LIMIT_MAX;
use charter_kernel::refusal::Refusal;
use charter_store::Txn;
use serde_json::{Value, json};

use super::shape::object;
use crate::app::App;
use crate::directory::KitRecord;
use crate::pipeline::identify::unreadable;
use crate::reply::Reply;
use crate::request::HostRequest;
use charter_kernel::authority;

/// The query.
pub fn query() -> Value {
    let tenant = json!({"type": "string", "minLength": 1, "maxLength": 64, "description": "A tenant user's id."});
    json!({"type": "object", "properties": {"tenant": tenant}, "additionalProperties": false})
}

/// What is answered.
pub fn answer() -> Value {
    let open = json!({"type": "object"});
    object(&[
        ("snapshot", open.clone()),
        ("grant", open.clone()),
        ("pagination", open.clone()),
        ("budget", json!({"type": ["object", "null"]})),
        ("rates", open.clone()),
        ("requests", open.clone()),
        ("surface_honesty", open),
        ("snapshot_unavailable_because", json!({"type": "string"})),
        ("grant_unavailable_because", json!({"type": "string"})),
    ])
}

/// For the tenant user of the query, else for the request's own.
///
/// # Errors
/// 404 for a user of another project.
pub async fn get(app: &App, request: &HostRequest, _: &mut Txn) -> Result<Reply, Refusal> {
    let kit = kit(app, request).await?;
    let rules = kit.as_ref().map(|kit| &kit.kit);
    let budget = rules.and_then(|kit| kit.budget);
    let connections = rules.map(|kit| kit.connections.clone()).unwrap_or_default();
    let toolkits = match connections.mode {
        ConnectionMode::Open => json!("all"),
        ConnectionMode::Listed => json!(connections.toolkits),
    };
    let (http, rates) = (&app.config.http, &app.config.rates);
    let rate = |per_minute: u32| {
        if per_minute == 0 {
            Value::Null
        } else {
            json!({"requests": per_minute, "window_seconds": 60})
        }
    };
    let no_lifetime = "no lifetime is configured or enforced";
    Ok(Reply::ok(&json!({
        "snapshot": {"notAfter": null, "snapshot_unavailable_because": no_lifetime},
        "grant": {"maxUntil": null, "grant_unavailable_because": no_lifetime},
        "snapshot_unavailable_because": no_lifetime,
        "grant_unavailable_because": no_lifetime,
        "pagination": {"max_limit": PAGE_LIMIT_MAX, "cursor": "opaque base64url keyset", "offset": "unsupported"},
        "budget": budget.map(|budget| json!({"capCents": budget.cap_cents, "period": budget.period, "hard": budget.hard})),
        "rates": {
            "key": rate(rates.key_per_minute),
            "organization": rate(rates.organization_per_minute),
            "user": rate(rules.and_then(|kit| kit.limits.requests_per_minute).unwrap_or(0)),
        },
        "requests": {
            "body_bytes_max": http.body_bytes_max,
            "head_bytes_max": http.head_bytes_max,
            "headers_max": http.headers_max,
            "json_depth_max": charter_kernel::limits::JSON_DEPTH_MAX,
            "deadline_ms": http.deadline_ms,
        },
        "surface_honesty": {
            "idempotency": {
                "store": "database",
                "shared_across_replicas": true,
                "caches_5xx": false,
                "fingerprints_body": true,
                "kept_hours": 24,
                "committed_with_the_effect": true,
            },
            "revocation_on_reads": {"enforced": false},
            "budgets": {"enforced": true, "reserved_before_the_action": true, "shared_across_replicas": true},
            "connections": {"mode": connections.mode, "toolkits": toolkits, "governed_tools": 0},
            "deprecation_headers": {"verified_at_edge": false},
            "rate_limits": {"shared_across_replicas": false},
        },
    })))
}

async fn kit(
    app: &App,
    request: &HostRequest,
) -> Result<Option<std::sync::Arc<KitRecord>>, Refusal> {
    let place = request.place()?;
    let named = match request.query_text("tenant") {
        None | Some("default" | "me") => place.user.clone(),
        Some(text) => {
            let absent = || Refusal::not_found().param("tenant");
            let id = UserId::parse(text).ok_or_else(absent)?;
            authority::sees_user(&place.scope, &id).map_err(|_| absent())?;
            let found = app.directory.user(&place.project.id, &id).await.map_err(unreadable)?;
            Some(found.ok_or_else(absent)?)
        }
    };
    let assigned = named.as_ref().and_then(|user| user.kit.as_ref());
    app.directory.kit(&place.project, assigned).await.map_err(unreadable)
}
