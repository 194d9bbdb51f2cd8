//! `GET /v1/limits`: limits and guarantees, as this build truly keeps them (service-api.md,
//! Limits).

use charter_governance::caps;
use charter_kernel::authority::Class;
use charter_kernel::id::UserId;
use charter_kernel::kit::ConnectionMode;
use charter_kernel::limits::PAGE_LIMIT_MAX;
use charter_kernel::refusal::{Code, Refusal};
use charter_store::Txn;
use charter_tenancy::place::Place;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::shape::{Optional, Reference};
use crate::app::App;
use crate::handler;
use crate::request::HostRequest;
use crate::route::HostRoute;
use crate::serve::{Answer, Params};

/// The row of this route.
pub fn routes() -> Vec<HostRoute> {
    vec![
        HostRoute::get(Class::ProfileRead, "limits", "/limits", handler!(get_limits))
            .refuses(&[Code::NotFound])
            .summary("Limits and guarantees of this build"),
    ]
}

/// The query.
#[derive(Deserialize, JsonSchema)]
pub struct LimitsQuery {
    /// A tenant user's id.
    tenant: Optional<Reference>,
}

/// Limits and guarantees.
#[derive(Serialize, JsonSchema)]
pub struct Limits {
    /// The lifetime of a snapshot.
    snapshot: Map<String, Value>,
    /// The lifetime of a grant.
    grant: Map<String, Value>,
    /// How lists page.
    pagination: Map<String, Value>,
    /// The user's spend cap: of its kit's and its own the lower one.
    budget: Option<Map<String, Value>>,
    /// How often a key, an organization and a user may call.
    rates: Map<String, Value>,
    /// How large and how long a request may be.
    requests: Map<String, Value>,
    /// The promises that this build keeps, and those that it does not.
    surface_honesty: Map<String, Value>,
    snapshot_unavailable_because: &'static str,
    grant_unavailable_because: &'static str,
}

/// The members of a JSON object.
fn members(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(members) => members,
        _ => Map::new(),
    }
}

/// For the tenant user of the query, else for the request's own.
///
/// # Errors
/// 404 for a user of another project.
pub async fn get_limits(
    app: &App,
    request: &HostRequest,
    _: &mut Txn,
    Params(asked): Params<LimitsQuery>,
) -> Result<Answer<Limits>, Refusal> {
    let tenant = place_of_tenant(app, request, asked.tenant.0.as_deref()).await?;
    let (kit, user) = (tenant.kit().map(AsRef::as_ref), tenant.user().map(AsRef::as_ref));
    let budget = caps::narrower_budget(kit, user).map(|(_, budget)| budget);
    let rules = kit.map(|kit| &kit.kit);
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
    let limits = Limits {
        snapshot: members(json!({"notAfter": null, "snapshot_unavailable_because": no_lifetime})),
        grant: members(json!({"maxUntil": null, "grant_unavailable_because": no_lifetime})),
        snapshot_unavailable_because: no_lifetime,
        grant_unavailable_because: no_lifetime,
        pagination: members(
            json!({"max_limit": PAGE_LIMIT_MAX, "cursor": "opaque base64url keyset", "offset": "unsupported"}),
        ),
        budget: budget.map(|budget| {
            members(
                json!({"capCents": budget.cap_cents, "period": budget.period, "hard": budget.hard}),
            )
        }),
        rates: members(json!({
            "key": rate(rates.key_per_minute),
            "organization": rate(rates.organization_per_minute),
            "user": rate(rules.and_then(|kit| kit.limits.requests_per_minute).unwrap_or(0)),
        })),
        requests: members(json!({
            "body_bytes_max": http.body_bytes_max,
            "head_bytes_max": http.head_bytes_max,
            "headers_max": http.headers_max,
            "json_depth_max": charter_kernel::limits::JSON_DEPTH_MAX,
            "deadline_ms": http.deadline_ms,
        })),
        surface_honesty: members(json!({
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
        })),
    };
    Ok(Answer::of(&limits))
}

/// The place of the tenant user that is named, else that of the request.
async fn place_of_tenant(
    app: &App,
    request: &HostRequest,
    tenant: Option<&str>,
) -> Result<Place, Refusal> {
    let place = request.place()?;
    let id = match tenant {
        None | Some("default" | "me") => return Ok(place.clone()),
        Some(text) => text,
    };
    let absent = || Refusal::not_found().param("tenant");
    let id = UserId::parse(id).ok_or_else(absent)?;
    let tenant = app.directory.place_of_user(place, &place.project().id, &id).await;
    tenant.map_err(|refusal| match refusal.code {
        Code::NotFound => absent(),
        _ => refusal,
    })
}
