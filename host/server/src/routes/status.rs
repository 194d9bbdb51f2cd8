//! `GET /v1/status`: what is installed, what of it the caller has, how the organization stands with
//! who bills it, and which webhooks the host has switched off.

use std::collections::BTreeSet;

use charter_governance::kits;
use charter_kernel::authority::Class;
use charter_kernel::refusal::Refusal;
use charter_kernel::standing::Reason;
use charter_kernel::time::Instant;
use charter_kernel::unit::Reach;
use charter_store::{Query, Txn};
use charter_tenancy::records::Record as _;
use charter_tenancy::records::webhook::{OFF, WEBHOOKS_MAX, Webhook};
use charter_tenancy::stored::{self, reading};
use schemars::JsonSchema;
use serde::Serialize;

use super::webhooks;
use crate::app::App;
use crate::handler;
use crate::pipeline::identify::unreadable;
use crate::request::HostRequest;
use crate::route::HostRoute;
use crate::serve::Answer;

/// The row of this route.
pub fn routes() -> Vec<HostRoute> {
    vec![
        HostRoute::get(Class::ProfileRead, "status", "/status", handler!(get_status))
            .summary("What this deployment can do"),
    ]
}

/// The abilities of this deployment for the caller.
#[derive(Serialize, JsonSchema)]
pub struct Status {
    /// Whether the replica takes changes, and goes on.
    status: State,
    /// The version of the host.
    version: &'static str,
    /// The moment of the replica's start.
    #[schemars(with = "String")]
    started_at: Instant,
    /// The reason why whoever bills the organization has it stand still.
    standing: Option<Halt>,
    /// The webhooks that the host has switched off.
    webhooks_switched_off: Vec<String>,
    /// Every installed primitive.
    primitives: Vec<PrimitiveItem>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum State {
    Ok,
    ReadOnly,
    Draining,
}

/// Why, and since when, an organization stands still.
#[derive(Serialize, JsonSchema)]
struct Halt {
    /// The reason.
    #[schemars(with = "String")]
    reason: Reason,
    /// The moment of its beginning.
    #[schemars(with = "String")]
    since: Instant,
}

/// A primitive as the caller has it.
#[derive(Serialize, JsonSchema)]
struct PrimitiveItem {
    /// The primitive's name.
    name: String,
    /// Its title, for people.
    title: String,
    /// The version that the caller gets.
    version: String,
    /// Whether the caller's kit enables it.
    enabled: bool,
    /// Whether every provider that it needs is bound.
    configured: bool,
    /// The providers that are not bound.
    missing: Vec<String>,
    /// Whether it is to go.
    deprecated: bool,
}

/// The primitives as the caller's kit and the deployment's bindings make them.
///
/// # Errors
/// When the directory cannot be asked.
pub async fn get_status(
    app: &App,
    request: &HostRequest,
    txn: &mut Txn,
) -> Result<Answer<Status>, Refusal> {
    let place = request.place()?;
    let live = app.registry.current();
    let primitives = live.primitives().map(|primitive| {
        let manifest = &primitive.active().manifest;
        let decided = kits::ask(primitive, place.kit().map(AsRef::as_ref));
        let served = decided.as_ref().ok().and_then(|pinned| primitive.version(*pinned));
        // All that any of its operations would answer 501 for.
        let required = manifest
            .providers
            .iter()
            .filter(|provider| provider.required)
            .map(|provider| provider.name.clone());
        let needed =
            manifest.operations.iter().flat_map(|operation| operation.needs.iter().cloned());
        let needed: BTreeSet<String> = required.chain(needed).collect();
        let missing = app.adapters.providers.missing(place.scope(), &Vec::from_iter(needed));
        let version = served.map_or(manifest.version.as_str(), |served| served.version());
        PrimitiveItem {
            name: primitive.name.clone(),
            title: manifest.title.clone(),
            version: version.to_owned(),
            enabled: decided.is_ok(),
            configured: missing.is_empty(),
            missing,
            deprecated: manifest.deprecation.is_some(),
        }
    });
    let primitives = primitives.collect();
    let reach = Reach::organization(place.organization().id.as_str());
    let query =
        Query::all(&reach, &Webhook::space()).equal(OFF, "1").limit(WEBHOOKS_MAX as u32).relax();
    let mut off = Vec::new();
    for (key, row) in txn.find(&query).await.map_err(reading)?.items {
        let webhook = Webhook::read(&row).map_err(stored::unreadable)?;
        if webhooks::lies_within(app, place, &webhook).await? {
            off.push(key.id);
        }
    }
    let status = match (app.draining.is_cancelled(), app.store.status().read_only) {
        (true, _) => State::Draining,
        (false, Some(_)) => State::ReadOnly,
        (false, None) => State::Ok,
    };
    let standing = app.directory.standing(&place.organization().id).await.map_err(unreadable)?;
    Ok(Answer::of(&Status {
        status,
        version: env!("CARGO_PKG_VERSION"),
        started_at: app.started_at,
        standing: standing.map(|(halt, _)| Halt { reason: halt.reason, since: halt.since }),
        webhooks_switched_off: off,
        primitives,
    }))
}
