//! A deployment that is billed by card, and what its tests ask of it. Knows nothing of who plays the
//! provider.

use serde_json::{Value, json};

use crate::patience::until;
use crate::stripe;
use crate::world::Builder;
use crate::{Answer, Client, Tenant, World};

/// The secret with which the provider signs.
pub const SECRET: &str = "whsec_of_the_tests";
/// The path at which the provider calls.
pub const HOOK: &str = "/v1/hooks/providers/stripe";

/// A deployment that is billed.
pub fn billed() -> Builder {
    let builder = Builder::new().environment("CHARTER_BILLING_PRIMITIVE", "billing");
    builder
        .environment("CHARTER_BILLING_ENFORCE", "true")
        .environment("CHARTER_EGRESS_ALLOW", "127.0.0.0/8")
}

/// Binds the provider at `url`.
#[track_caller]
pub fn bind(world: &World, url: &str, key: &str) {
    let body = json!({ "kind": "stripe", "url": url, "credential": key, "webhook_secret": SECRET });
    let bound = world.operator().put("/v1/operator/providers/stripe", &body).expect(200);
    assert!(!bound.to_string().contains(SECRET) && !bound.to_string().contains(key), "{bound}");
}

/// A new organization, once its trial has begun.
pub fn on_trial(world: &World) -> Tenant {
    let tenant = world.register();
    until("the trial begins", || standing(&tenant.client) == "llm_routing_requires_payment");
    tenant
}

/// Why the organization may not do all that it could, if so.
pub fn standing(client: &Client) -> Value {
    client.get("/v1/status").expect(200)["standing"]["reason"].clone()
}

/// The organization's credit, in cents.
pub fn credit(client: &Client) -> i64 {
    let accounts = client.get("/v1/ledger/accounts?limit=100").expect(200);
    let listed = accounts["accounts"].as_array().expect("the list of accounts");
    let account = listed.iter().find(|account| account["name"] == "credit");
    let posted = |account: &Value| account["posted_micro_usd"].as_i64().expect("an amount");
    account.map_or(0, posted) / 10_000
}

/// Asks for a top-up.
pub fn top_up(client: &Client, body: Value) -> Answer {
    client.post("/v1/billing/topup", &body)
}

/// An invoice of the organization.
pub fn invoice(client: &Client, id: &str) -> Value {
    client.get(&format!("/v1/billing/invoices/{id}")).expect(200)["invoice"].clone()
}

/// Sends an event as Stripe does, and expects that it is taken.
#[track_caller]
pub fn tell(world: &World, tenant: &Tenant, event: &Value) {
    let body = event.to_string();
    let signature = stripe::signature(SECRET, tenant.seconds(), &body);
    let call = world
        .anonymous()
        .call("POST", HOOK)
        .header("stripe-signature", &signature)
        .bytes(body.into_bytes())
        .send();
    call.expect(200);
}

/// An event about an object, called by its type and the object's id.
pub fn event(kind: &str, object: Value) -> Value {
    let id = format!("evt_{kind}_{}", object["id"].as_str().expect("an object with an id"));
    json!({ "id": id, "type": kind, "data": { "object": object } })
}
