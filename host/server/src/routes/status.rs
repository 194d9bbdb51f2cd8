//! `GET /v1/status`: what is installed, what of it the caller has, how the organization stands with
//! who bills it, and which webhooks the host has switched off.

use std::collections::BTreeSet;

use charter_kernel::refusal::Refusal;
use charter_kernel::unit::Reach;
use charter_store::{Query, Txn};
use serde_json::{Value, json};

use super::shape::object;
use super::stored::reading;
use crate::app::App;
use crate::pipeline::identify::unreadable;
use crate::records::Record as _;
use crate::records::webhook::{OFF, TENANT, WEBHOOKS_MAX, Webhook};
use crate::reply::Reply;
use crate::request::HostRequest;

/// What is answered.
pub fn answer() -> Value {
    let text = json!({"type": "string"});
    let primitive = object(&[
        ("name", text.clone()),
        ("title", text.clone()),
        ("version", text.clone()),
        ("enabled", json!({"type": "boolean"})),
        ("configured", json!({"type": "boolean"})),
        ("missing", json!({"type": "array", "items": {"type": "string"}})),
        ("deprecated", json!({"type": "boolean"})),
    ]);
    object(&[
        ("status", json!({"enum": ["ok", "read_only", "draining"]})),
        ("version", text.clone()),
        ("started_at", text.clone()),
        ("standing", {
            let mut standing = object(&[("reason", text.clone()), ("since", text)]);
            standing["type"] = json!(["object", "null"]);
            standing
        }),
        ("webhooks_switched_off", json!({"type": "array", "items": {"type": "string"}})),
        ("primitives", json!({"type": "array", "items": primitive})),
    ])
}

/// The primitives as the caller's kit and the deployment's bindings make them.
///
/// # Errors
/// When the directory cannot be asked.
pub async fn get(app: &App, request: &HostRequest, txn: &mut Txn) -> Result<Reply, Refusal> {
    let place = request.place()?;
    let assigned = place.user.as_ref().and_then(|user| user.kit.as_ref());
    let kit = app.directory.kit(&place.project, assigned).await.map_err(unreadable)?;
    let live = app.registry.current();
    let primitives = live.primitives().map(|primitive| {
        let manifest = &primitive.active().manifest;
        let decided = match &kit {
            Some(kit) => kit.decide(&primitive.name, manifest.gate),
            None => charter_kernel::kit::decide(&primitive.name, manifest.gate, None),
        };
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
        let missing = app.adapters.providers.missing(&place.scope, &Vec::from_iter(needed));
        json!({
            "name": primitive.name,
            "title": manifest.title,
            "version": served.map_or(manifest.version.as_str(), |served| served.version()),
            "enabled": decided.is_ok(),
            "configured": missing.is_empty(),
            "missing": missing,
            "deprecated": manifest.deprecation.is_some(),
        })
    });
    let primitives: Vec<Value> = primitives.collect();
    let reach = Reach::organization(place.organization.id.as_str());
    let mut off =
        Query::all(&reach, &Webhook::space()).equal(OFF, "1").limit(WEBHOOKS_MAX as u32).relaxed();
    if let Some(pinned) = request.principal()?.user.as_ref() {
        off = off.equal(TENANT, pinned.as_str());
    }
    let off = txn.find(&off).await.map_err(reading)?.items.into_iter().map(|(key, _)| key.id);
    let status = match (app.draining.is_cancelled(), app.store.status().read_only) {
        (true, _) => "draining",
        (false, Some(_)) => "read_only",
        (false, None) => "ok",
    };
    Ok(Reply::ok(&json!({
        "status": status,
        "version": env!("CARGO_PKG_VERSION"),
        "started_at": app.started_at,
        "standing": app.directory.standing(&place.organization.id).await.map_err(unreadable)?.map(|(standing, _)| standing),
        "webhooks_switched_off": off.collect::<Vec<_>>(),
        "primitives": primitives,
    })))
}
