//! `/v1/webhooks`: who is told of events by HTTP, at the company mount and below a tenant user.

use charter_kernel::fault::Fault;
use charter_kernel::id::UserId;
use charter_kernel::id::uuid_v7;
use charter_kernel::refusal::Refusal;
use charter_kernel::scope::Level;
use charter_kernel::unit::{FactKind, Reach, Write};
use charter_store::{Query, Txn};
use serde::Deserialize;
use serde_json::{Value, json};

use super::shape::{self, checked, id, instant, object};
use super::stored;
use crate::app::App;
use crate::events::webhook::{DISABLED, TEST, body, sealed, secret};
use crate::records::Record as _;
use crate::records::webhook::{Delivery, Feed, Outcome, PREVIOUS_MAX, WEBHOOKS_MAX, Webhook};
use crate::reply::Reply;
use crate::request::{HostRequest, Place};

/// Events of the host's own that webhooks can hear.
const OWN: [&str; 2] = ["approval.resolved", DISABLED];
/// Event types of one webhook.
const TYPES_MAX: usize = 100;
/// How long the former secret goes on to sign after a rotation: a day.
const OVERLAP_MS: i64 = 86_400_000;

fn text() -> Value {
    json!({"type": "string"})
}

fn types() -> Value {
    json!({"type": "array", "minItems": 1, "maxItems": TYPES_MAX, "uniqueItems": true, "items": {"type": "string", "minLength": 1, "maxLength": 200}})
}

fn members() -> Vec<(&'static str, Value)> {
    vec![
        ("id", id()),
        ("url", text()),
        ("eventTypes", types()),
        ("active", json!({"type": "boolean"})),
        ("project_id", json!({"type": ["string", "null"]})),
        ("tenant_user_id", json!({"type": ["string", "null"]})),
        ("disabled_reason", json!({"type": ["string", "null"]})),
        ("created_at", instant()),
    ]
}

fn item() -> Value {
    object(&members())
}

/// A webhook with its secret, which is shown this once.
pub fn made_answer() -> Value {
    let mut members = members();
    members.push(("secret", text()));
    object(&members)
}

/// One webhook.
pub fn answer() -> Value {
    object(&[("webhook", item())])
}

/// A page of webhooks.
pub fn list_answer() -> Value {
    shape::page("webhooks", &item())
}

/// The body of a new webhook.
pub fn create_body() -> Value {
    object(&[
        ("url", json!({"type": "string", "minLength": 1, "maxLength": 2_000})),
        ("eventTypes", types()),
    ])
}

/// The body of a change.
pub fn update_body() -> Value {
    let url = json!({"type": "string", "minLength": 1, "maxLength": 2_000});
    object(&[("url?", url), ("eventTypes?", types()), ("active?", json!({"type": "boolean"}))])
}

/// The event types.
pub fn event_types_answer() -> Value {
    let item = object(&[("name", text()), ("description", text())]);
    object(&[("event_types", json!({"type": "array", "items": item}))])
}

fn delivery_item() -> Value {
    let nullable = json!({"type": ["string", "null"]});
    object(&[
        ("id", id()),
        ("webhook_id", id()),
        ("event_id", id()),
        ("event", text()),
        ("status", json!({"enum": ["pending", "succeeded", "failed", "dropped"]})),
        ("attempts", json!({"type": "array"})),
        ("created_at", instant()),
        ("ended_at", nullable),
    ])
}

/// One delivery.
pub fn delivery_answer() -> Value {
    object(&[("delivery", delivery_item())])
}

/// A page of deliveries.
pub fn deliveries_answer() -> Value {
    shape::cursor_page("deliveries", &delivery_item())
}

fn view(webhook: &Webhook) -> Value {
    json!({
        "id": webhook.id,
        "url": webhook.url,
        "eventTypes": webhook.event_types,
        "active": webhook.active,
        "project_id": webhook.project_id,
        "tenant_user_id": webhook.tenant_user_id,
        "disabled_reason": webhook.disabled_reason,
        "created_at": webhook.created_at,
    })
}

fn delivery_view(delivery: &Delivery) -> Value {
    json!({
        "id": delivery.id,
        "webhook_id": delivery.webhook,
        "event_id": delivery.event_id,
        "event": delivery.event,
        "status": delivery.status,
        "attempts": delivery.attempts,
        "created_at": delivery.created_at,
        "ended_at": delivery.ended_at,
    })
}

/// Whether a webhook belongs to what the request is about: the named user, else the named project,
/// else all of the organization.
async fn lies_within(app: &App, place: &Place, webhook: &Webhook) -> Result<bool, Refusal> {
    let user = webhook.tenant_user_id.as_deref();
    Ok(match (place.scope.level(), &webhook.project_id) {
        (Level::Organization, _) => true,
        (Level::User, _) => user == place.scope.named_user().map(UserId::as_str),
        (Level::Project, Some(project)) => project == place.project.id.as_str(),
        // Those of a tenant were made without their project once.
        (Level::Project, None) => match user.and_then(UserId::parse) {
            Some(user) => app.directory.user(&place.project.id, &user).await?.is_some(),
            None => false,
        },
    })
}

/// The webhook of the path; another tenant's is not there.
async fn found(app: &App, request: &HostRequest, txn: &mut Txn) -> Result<Webhook, Refusal> {
    let place = request.place()?;
    let key = Webhook::address(place.organization.id.as_str(), request.parameter("id"));
    let webhook = stored::get::<Webhook>(txn, &key).await?.ok_or_else(Refusal::not_found)?.record;
    if lies_within(app, place, &webhook).await? { Ok(webhook) } else { Err(Refusal::not_found()) }
}

async fn wishes(app: &App, url: Option<&str>, wanted: Option<&[String]>) -> Result<(), Refusal> {
    let known = event_types(app);
    let mut faults = Vec::new();
    for (at, name) in wanted.unwrap_or_default().iter().enumerate() {
        if name != "*" && !known.iter().any(|(known, _)| known == name) {
            faults.push(Fault::new(
                format!("eventTypes.{at}"),
                "is no event: GET /v1/webhooks/event-types lists them",
            ));
        }
    }
    if let Some(url) = url {
        let reached = match (url.parse::<http::Uri>(), app.adapters.gate.get()) {
            (Ok(uri), Some(gate)) => gate.admits(&uri).await.map_err(|error| error.to_string()),
            (Ok(_), None) => return Err(Refusal::overloaded(1)),
            (Err(_), _) => Err("must be an http or https address".into()),
        };
        faults.extend(reached.err().map(|why| Fault::new("url", why)));
    }
    checked(faults)
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Create {
    url: String,
    event_types: Vec<String>,
}

/// `POST /v1/webhooks`: the secret is in this answer only.
///
/// # Errors
/// 400 for an event that nobody emits, and for an address that may not be reached.
pub async fn create(app: &App, request: &HostRequest, txn: &mut Txn) -> Result<Reply, Refusal> {
    let place = request.place()?;
    let wish: Create = request.body_as()?;
    wishes(app, Some(&wish.url), Some(&wish.event_types)).await?;
    let organization = place.organization.id.clone();
    let reach = Reach::organization(organization.as_str());
    if stored::count::<Webhook>(txn, &reach, &[]).await? >= WEBHOOKS_MAX {
        return Err(Refusal::state_conflict(
            "too_many_webhooks",
            "The organization has as many webhooks as it can have.",
        ));
    }
    let since = app
        .store
        .facts_head_settled(FactKind::Event, organization.as_str())
        .await
        .map_err(stored::reading)?;
    let id = uuid_v7(request.now, stored::random()?);
    let shown = secret().map_err(stored::no_randomness)?;
    let webhook = Webhook {
        secret: sealed(&app.store, organization.as_str(), &id, &shown).await?,
        id,
        organization: organization.clone(),
        project_id: (place.scope.level() != Level::Organization)
            .then(|| place.project.id.to_string()),
        tenant_user_id: place.scope.named_user().map(ToString::to_string),
        url: wish.url,
        event_types: wish.event_types,
        previous: Vec::new(),
        active: true,
        disabled_reason: None,
        failures: 0,
        since,
        resumed_at: None,
        created_at: request.now,
    };
    stored::insert(txn, &webhook, "id").await?;
    let feed = Feed { organization: organization.to_string(), after: since };
    txn.write(Write::Ensure { key: feed.key(), draft: feed.draft().map_err(stored::unreadable)? });
    let mut answer = view(&webhook);
    answer["secret"] = json!(shown);
    Ok(Reply::created(&answer)
        .about("webhook", webhook.id.clone())
        .noting(json!({ "after": view(&webhook) })))
}

/// `GET /v1/webhooks`, oldest first.
///
/// # Errors
/// When the store cannot be asked.
pub async fn list(app: &App, request: &HostRequest, txn: &mut Txn) -> Result<Reply, Refusal> {
    let place = request.place()?;
    let reach = Reach::organization(place.organization.id.as_str());
    // An organization has few, so that what is about a part of it is picked from all.
    let most = u32::try_from(WEBHOOKS_MAX).unwrap_or(u32::MAX);
    let (webhooks, _) = stored::list::<Webhook>(txn, &reach, &[], most, 0).await?;
    let mut items = Vec::new();
    for webhook in &webhooks {
        if lies_within(app, place, &webhook.record).await? {
            items.push(view(&webhook.record));
        }
    }
    let (limit, offset) = (request.page.limit, request.page.offset);
    let end = (offset as usize).saturating_add(limit as usize);
    let more = items.len() > end;
    let page = items.into_iter().take(end).skip(offset as usize).collect();
    Ok(Reply::ok(&shape::listed("webhooks", page, (limit, offset), more)))
}

/// `GET /v1/webhooks/event-types`
///
/// # Errors
/// Never.
pub async fn list_event_types(app: &App, _: &HostRequest, _: &mut Txn) -> Result<Reply, Refusal> {
    let types: Vec<Value> = event_types(app)
        .into_iter()
        .map(|(name, description)| json!({ "name": name, "description": description }))
        .collect();
    Ok(Reply::ok(&json!({ "event_types": types })))
}

/// `GET /v1/webhooks/{id}`
///
/// # Errors
/// 404 for another tenant's.
pub async fn get(app: &App, request: &HostRequest, txn: &mut Txn) -> Result<Reply, Refusal> {
    Ok(Reply::ok(&json!({ "webhook": view(&found(app, request, txn).await?) })))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Update {
    url: Option<String>,
    event_types: Option<Vec<String>>,
    active: Option<bool>,
}

/// `PATCH /v1/webhooks/{id}`: also how one that was switched off is switched on again.
///
/// # Errors
/// 404 for another tenant's, 400 as for a new one.
pub async fn update(app: &App, request: &HostRequest, txn: &mut Txn) -> Result<Reply, Refusal> {
    let before = found(app, request, txn).await?;
    let wish: Update = request.body_as()?;
    wishes(app, wish.url.as_deref(), wish.event_types.as_deref()).await?;
    let mut after = before.clone();
    after.url = wish.url.unwrap_or(after.url);
    after.event_types = wish.event_types.unwrap_or(after.event_types);
    if let Some(active) = wish.active {
        if active && !before.active {
            after.resumed_at = Some(request.now);
        }
        after.active = active;
        if active {
            (after.disabled_reason, after.failures) = (None, 0);
        }
    }
    stored::replace(txn, &after, "id").await?;
    let note = json!({ "before": view(&before), "after": view(&after) });
    Ok(Reply::ok(&json!({ "webhook": view(&after) }))
        .about("webhook", after.id.clone())
        .noting(note))
}

/// `DELETE /v1/webhooks/{id}`: what is still to be delivered is dropped.
///
/// # Errors
/// 404 for another tenant's.
pub async fn delete(app: &App, request: &HostRequest, txn: &mut Txn) -> Result<Reply, Refusal> {
    let webhook = found(app, request, txn).await?;
    stored::remove(txn, &webhook).await?;
    let note = json!({ "before": view(&webhook) });
    Ok(Reply::ok(&json!({ "id": webhook.id, "deleted": true }))
        .about("webhook", webhook.id.clone())
        .noting(note))
}

/// `POST /v1/webhooks/{id}/rotate`: the new secret signs from now on, and the former one beside it
/// for a day.
///
/// # Errors
/// 404 for another tenant's, 409 while as many former ones sign as can.
pub async fn rotate(app: &App, request: &HostRequest, txn: &mut Txn) -> Result<Reply, Refusal> {
    let mut before = found(app, request, txn).await?;
    let mut previous = std::mem::take(&mut before.previous);
    previous.retain(|(_, until)| *until > request.now);
    if let Some((_, until)) = previous.get(PREVIOUS_MAX - 1) {
        let told = format!(
            "{PREVIOUS_MAX} former secrets of the webhook still sign, which is as many as can."
        );
        let refusal =
            Refusal::state_conflict("too_many_secrets", told).detail("until", json!(until));
        return Err(refusal.hint(
            "Rotate again once the oldest has ended, at details.until, or make another webhook.",
        ));
    }
    let shown = secret().map_err(stored::no_randomness)?;
    let secret = sealed(&app.store, before.organization.as_str(), &before.id, &shown).await?;
    previous.insert(0, (before.secret.clone(), request.now.plus_ms(OVERLAP_MS)));
    let after = Webhook { secret, previous, ..before };
    stored::replace(txn, &after, "id").await?;
    let mut answer = view(&after);
    answer["secret"] = json!(shown);
    answer["previous_until"] = json!(request.now.plus_ms(OVERLAP_MS));
    Ok(Reply::ok(&answer).about("webhook", after.id.clone()))
}

/// Queues a delivery with this request's commit. Its sender finds it within half a second; the
/// notice makes it at once.
fn queue(app: &App, txn: &mut Txn, delivery: &Delivery) -> Result<Reply, Refusal> {
    let draft = delivery.due(delivery.created_at).map_err(stored::unreadable)?;
    txn.write(Write::Insert { key: delivery.key(), draft });
    app.adapters.delivery_wanted.notify_one();
    Ok(Reply::accepted(&json!({ "delivery": delivery_view(delivery) }))
        .about("delivery", delivery.id.clone()))
}

/// `POST /v1/webhooks/{id}/test`: a signed event of the type `webhook.test`, whatever the webhook
/// hears.
///
/// # Errors
/// 404 for another tenant's.
pub async fn test(app: &App, request: &HostRequest, txn: &mut Txn) -> Result<Reply, Refusal> {
    let webhook = found(app, request, txn).await?;
    let payload = json!({ "webhook_id": webhook.id, "test": true });
    let delivery = Delivery {
        id: uuid_v7(request.now, stored::random()?),
        organization: webhook.organization.to_string(),
        event_id: uuid_v7(request.now, stored::random()?),
        event: TEST.into(),
        body: body(TEST, payload, webhook.tenant_user_id.as_deref(), request.now),
        webhook: webhook.id,
        status: Outcome::Pending,
        attempts: Vec::new(),
        created_at: request.now,
        ended_at: None,
    };
    queue(app, txn, &delivery)
}

/// `GET /v1/webhooks/{id}/deliveries`, newest first.
///
/// # Errors
/// 404 for another tenant's.
pub async fn deliveries(app: &App, request: &HostRequest, txn: &mut Txn) -> Result<Reply, Refusal> {
    let webhook = found(app, request, txn).await?;
    let reach = Reach::organization(webhook.organization.as_str());
    let mut query = Query::all(&reach, &Delivery::all())
        .equal("webhook", &webhook.id)
        .limit(request.page.limit)
        .relaxed();
    query.after.clone_from(&request.page.position);
    let found = txn.find(&query).await.map_err(stored::reading)?;
    let items: Vec<Value> = found
        .items
        .iter()
        .filter_map(|(_, row)| Delivery::read(row).ok())
        .map(|found| delivery_view(&found))
        .collect();
    Ok(Reply::ok(&shape::listed_at("deliveries", items, &request.page, found.next.as_deref())))
}

/// `POST /v1/webhooks/{id}/deliveries/{delivery_id}/redeliver`: the same event once more, under the
/// same id.
///
/// # Errors
/// 404 for another webhook's, 409 for a webhook that is switched off.
pub async fn redeliver(app: &App, request: &HostRequest, txn: &mut Txn) -> Result<Reply, Refusal> {
    let webhook = found(app, request, txn).await?;
    let key = Delivery::address(webhook.organization.as_str(), request.parameter("delivery_id"));
    let before = stored::get::<Delivery>(txn, &key)
        .await?
        .filter(|found| found.record.webhook == webhook.id);
    let before = before.ok_or_else(Refusal::not_found)?.record;
    if !webhook.active && before.event != TEST {
        let refusal = Refusal::state_conflict("webhook_inactive", "The webhook is switched off.");
        return Err(refusal.hint("PATCH /v1/webhooks/{id} with `active: true` switches it on."));
    }
    let delivery = Delivery {
        id: uuid_v7(request.now, stored::random()?),
        status: Outcome::Pending,
        attempts: Vec::new(),
        created_at: request.now,
        ended_at: None,
        ..before
    };
    queue(app, txn, &delivery)
}

/// Every type that a webhook can subscribe to: the manifests' and the host's own.
fn event_types(app: &App) -> Vec<(String, String)> {
    let live = app.registry.current();
    let declared =
        live.primitives().flat_map(|primitive| primitive.active().manifest.events.clone());
    let mut types: Vec<(String, String)> = declared
        .filter(|event| event.webhook)
        .map(|event| (event.name, event.description))
        .collect();
    let told = [
        "An approval was approved, denied or failed.",
        "A webhook was switched off because its endpoint failed.",
    ];
    types.extend(OWN.iter().zip(told).map(|(name, told)| ((*name).to_owned(), told.to_owned())));
    types.sort();
    types.dedup_by(|one, other| one.0 == other.0);
    types
}
