//! `/v1/webhooks`: who is told of events by HTTP, at the company mount and below a tenant user.

use charter_adapters::webhooks::{DISABLED, TEST, body, seal, secret};
use charter_kernel::authority::Class;
use charter_kernel::fault::Fault;
use charter_kernel::id::{OrganizationId, ProjectId, UserId, uuid_v7};
use charter_kernel::manifest::Paging;
use charter_kernel::refusal::Refusal;
use charter_kernel::scope::Level;
use charter_kernel::time::Instant;
use charter_kernel::unit::{FactKind, Reach, Write};
use charter_store::{Query, Txn};
use charter_tenancy::place::Place;
use charter_tenancy::records::Record as _;
use charter_tenancy::records::webhook::{
    Attempt, Delivery, DeliveryOutcome, Feed, PREVIOUS_MAX, WEBHOOKS_MAX, Webhook,
};
use charter_tenancy::stored::{self, Versioned};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::projects;
use super::shape::{Cursor, Deleted, Id, Offset, Optional, refuse_faults};
use crate::app::App;
use crate::handler;
use crate::reply::AuditLog;
use crate::request::HostRequest;
use crate::route::HostRoute;
use crate::serve::{Accepted, Answer, Body, Created};

/// Events of the host's own that webhooks can hear.
const OWN: [&str; 2] = ["approval.resolved", DISABLED];
/// Webhooks of one project or user that its own keys can make: the others are the organization's.
const PINNED_MAX: usize = 20;
/// The same of a project with all of its users: a project's key makes keys of users.
const PROJECT_MAX: usize = 2 * PINNED_MAX;
/// Webhooks of an organization beside which pinned keys make one more: the rest is for who governs it.
const PINNED_TOGETHER_MAX: u64 = WEBHOOKS_MAX - WEBHOOKS_MAX / 10;
/// Event types of one webhook.
const TYPES_MAX: usize = 100;
/// How long the former secret goes on to sign after a rotation: a day.
const OVERLAP_MS: i64 = 86_400_000;

/// The rows of webhooks, at the company mount and below a tenant user.
pub fn routes() -> Vec<HostRoute> {
    let routes = vec![
        HostRoute::get(
            Class::ProfileRead,
            "webhooks.event_types",
            "/webhooks/event-types",
            handler!(list_event_types),
        )
        .summary("The events that webhooks can hear"),
        HostRoute::post(
            Class::DeskChange,
            "webhooks.create",
            "/webhooks",
            handler!(create_webhook),
        )
        .summary("Tell an address of events; its secret is shown this once"),
        HostRoute::get(Class::DeskRead, "webhooks.list", "/webhooks", handler!(list_webhooks))
            .summary("List webhooks")
            .paging(Paging::Offset),
        HostRoute::get(Class::DeskRead, "webhooks.get", "/webhooks/{id}", handler!(get_webhook))
            .summary("One webhook"),
        HostRoute::patch(
            Class::DeskChange,
            "webhooks.update",
            "/webhooks/{id}",
            handler!(update_webhook),
        )
        .summary("Change a webhook, or switch it off and on"),
        HostRoute::delete(
            Class::DeskChange,
            "webhooks.delete",
            "/webhooks/{id}",
            handler!(delete_webhook),
        )
        .summary("Delete a webhook"),
        HostRoute::post(
            Class::DeskChange,
            "webhooks.test",
            "/webhooks/{id}/test",
            handler!(test_webhook),
        )
        .summary("Deliver a signed test event"),
        HostRoute::post(
            Class::DeskChange,
            "webhooks.rotate",
            "/webhooks/{id}/rotate",
            handler!(rotate_webhook_secret),
        )
        .summary("Give a webhook a new secret; the former one signs beside it for a day"),
        HostRoute::get(
            Class::DeskRead,
            "webhooks.deliveries",
            "/webhooks/{id}/deliveries",
            handler!(list_deliveries),
        )
        .summary("What was delivered, and what came of it, newest first")
        .paging(Paging::Cursor),
        HostRoute::post(
            Class::DeskChange,
            "webhooks.redeliver",
            "/webhooks/{id}/deliveries/{delivery_id}/redeliver",
            handler!(redeliver),
        )
        .summary("Deliver an event once more"),
    ];
    routes.into_iter().map(HostRoute::both_mounts).collect()
}

/// The types of events that a webhook hears; `*` for all.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
struct EventTypes(
    #[schemars(length(min = 1, max = TYPES_MAX), inner(length(min = 1, max = 200)))]
    #[schemars(extend("uniqueItems" = true))]
    Vec<String>,
);

/// The body of a new webhook.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NewWebhook {
    /// The address that is told.
    #[schemars(length(min = 1, max = 2_000))]
    url: String,
    event_types: EventTypes,
}

/// The body of a change.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WebhookChange {
    /// The address that is told.
    #[schemars(length(min = 1, max = 2_000))]
    url: Optional<String>,
    event_types: Optional<EventTypes>,
    /// Whether it is told; true switches on one that was switched off.
    active: Optional<bool>,
}

/// A webhook, without its secret.
#[derive(Serialize, JsonSchema)]
struct WebhookItem {
    /// The webhook's id.
    id: Id,
    /// The address that is told.
    url: String,
    #[serde(rename = "eventTypes")]
    event_types: EventTypes,
    /// Whether it is told.
    active: bool,
    /// The project whose events it hears; null for all.
    project_id: Option<String>,
    /// The tenant user whose events it hears; null for all.
    tenant_user_id: Option<String>,
    /// The reason why the host has switched it off.
    disabled_reason: Option<String>,
    /// The moment of its creation.
    created_at: Instant,
}

impl WebhookItem {
    fn of(webhook: &Webhook) -> Self {
        Self {
            id: webhook.id.as_str().into(),
            url: webhook.url.clone(),
            event_types: EventTypes(webhook.event_types.clone()),
            active: webhook.active,
            project_id: webhook.project_id.clone(),
            tenant_user_id: webhook.tenant_user_id.clone(),
            disabled_reason: webhook.disabled_reason.clone(),
            created_at: webhook.created_at,
        }
    }
}

/// A new webhook, in the only answer that shows its secret.
#[derive(Serialize, JsonSchema)]
pub struct MadeWebhook {
    #[serde(flatten)]
    webhook: WebhookItem,
    /// The secret that signs its deliveries.
    secret: String,
}

/// A webhook with a new secret.
#[derive(Serialize, JsonSchema)]
pub struct RotatedWebhook {
    #[serde(flatten)]
    made: MadeWebhook,
    /// The moment until which the former secret signs as well.
    previous_until: Instant,
}

/// One webhook.
#[derive(Serialize, JsonSchema)]
pub struct WebhookAnswer {
    webhook: WebhookItem,
}

/// A page of webhooks.
#[derive(Serialize, JsonSchema)]
pub struct WebhookPage {
    webhooks: Vec<WebhookItem>,
    #[serde(flatten)]
    page: Offset,
}

/// A type of event.
#[derive(Serialize, JsonSchema)]
struct EventType {
    /// The type's name.
    name: String,
    /// The occasion of such an event.
    description: String,
}

/// The types of events that webhooks can hear.
#[derive(Serialize, JsonSchema)]
pub struct EventTypeList {
    event_types: Vec<EventType>,
}

/// An event on its way to a webhook.
#[derive(Serialize, JsonSchema)]
struct DeliveryItem {
    /// The delivery's id.
    id: Id,
    /// The webhook that it is for.
    webhook_id: Id,
    /// The event's id, the same for each of its deliveries.
    event_id: Id,
    /// The event's type.
    event: String,
    /// How far it has come.
    status: DeliveryOutcome,
    /// Its tries so far.
    attempts: Vec<Attempt>,
    /// The moment of its creation.
    created_at: Instant,
    /// The moment of its end.
    ended_at: Option<Instant>,
}

impl DeliveryItem {
    fn of(delivery: &Delivery) -> Self {
        Self {
            id: delivery.id.as_str().into(),
            webhook_id: delivery.webhook.as_str().into(),
            event_id: delivery.event_id.as_str().into(),
            event: delivery.event.clone(),
            status: delivery.status,
            attempts: delivery.attempts.clone(),
            created_at: delivery.created_at,
            ended_at: delivery.ended_at,
        }
    }
}

/// One delivery.
#[derive(Serialize, JsonSchema)]
pub struct DeliveryAnswer {
    delivery: DeliveryItem,
}

/// A page of deliveries.
#[derive(Serialize, JsonSchema)]
pub struct DeliveryPage {
    deliveries: Vec<DeliveryItem>,
    #[serde(flatten)]
    page: Cursor,
}

/// Whether a webhook belongs to what the request is about: the named user, else the named project,
/// else all of the organization.
pub(super) async fn lies_within(
    app: &App,
    place: &Place,
    webhook: &Webhook,
) -> Result<bool, Refusal> {
    match place.scope().level() {
        Level::Organization => Ok(true),
        Level::User => Ok(is_of_user(webhook, place.scope().user_named())),
        Level::Project => is_of_project(app, &place.project().id, webhook).await,
    }
}

fn is_of_user(webhook: &Webhook, user: Option<&UserId>) -> bool {
    webhook.tenant_user_id.as_deref() == user.map(UserId::as_str)
}

/// Whether it hears a project, or a user of that.
async fn is_of_project(app: &App, project: &ProjectId, webhook: &Webhook) -> Result<bool, Refusal> {
    let user = webhook.tenant_user_id.as_deref().and_then(UserId::parse);
    match (&webhook.project_id, user) {
        (Some(own), _) => Ok(own == project.as_str()),
        // Those of a tenant were made without their project once.
        (None, Some(user)) => Ok(app.directory.user(project, &user).await?.is_some()),
        (None, None) => Ok(false),
    }
}

/// The webhooks of an organization: it has few, so that those about a part of it are picked from
/// all.
async fn list_all(
    txn: &mut Txn,
    organization: &OrganizationId,
) -> Result<Vec<Versioned<Webhook>>, Refusal> {
    let reach = Reach::organization(organization.as_str());
    let most = u32::try_from(WEBHOOKS_MAX).unwrap_or(u32::MAX);
    Ok(stored::list::<Webhook>(txn, &reach, &[], most, 0).await?.0)
}

/// The webhooks of a place.
async fn list_within(app: &App, place: &Place, txn: &mut Txn) -> Result<Vec<WebhookItem>, Refusal> {
    let mut items = Vec::new();
    for webhook in list_all(txn, &place.organization().id).await? {
        if lies_within(app, place, &webhook.record).await? {
            items.push(WebhookItem::of(&webhook.record));
        }
    }
    Ok(items)
}

/// Whether the credential's user or project has as many webhooks as its keys can make, whomever the
/// request names.
async fn are_pinned_full(app: &App, place: &Place, txn: &mut Txn) -> Result<bool, Refusal> {
    let pinned_to = place.scope().principal().user.as_ref();
    let (mut of_user, mut of_project) = (0, 0);
    for webhook in list_all(txn, &place.organization().id).await? {
        of_user += usize::from(is_of_user(&webhook.record, pinned_to));
        let counts = is_of_project(app, &place.project().id, &webhook.record).await?;
        of_project += usize::from(counts);
    }
    Ok(match pinned_to {
        Some(_) => of_user >= PINNED_MAX || of_project >= PROJECT_MAX,
        None => of_project >= PINNED_MAX,
    })
}

/// Removes the webhooks of a project that goes, and of its users.
///
/// # Errors
/// When the store cannot be asked.
pub(super) async fn remove_of_project(
    app: &App,
    txn: &mut Txn,
    (organization, project): (&OrganizationId, &ProjectId),
) -> Result<(), Refusal> {
    // Validated at the commit: none is made meanwhile.
    stored::count::<Webhook>(txn, &Reach::organization(organization.as_str()), &[]).await?;
    for webhook in list_all(txn, organization).await? {
        if is_of_project(app, project, &webhook.record).await? {
            stored::remove(txn, &webhook.record).await?;
        }
    }
    Ok(())
}

/// The log that tells of a webhook: that of whose events it hears.
fn log_of(webhook: &Webhook) -> AuditLog {
    AuditLog::of(webhook.project_id.as_deref(), webhook.tenant_user_id.as_deref())
}

fn too_many(told: &str) -> Refusal {
    Refusal::state_conflict("too_many_webhooks", told)
}

/// The webhook of the path; another tenant's is not there.
async fn find(app: &App, request: &HostRequest, txn: &mut Txn) -> Result<Webhook, Refusal> {
    let place = request.place()?;
    let key = Webhook::address(place.organization().id.as_str(), request.parameter("id"));
    let webhook = stored::get::<Webhook>(txn, &key).await?.ok_or_else(Refusal::not_found)?.record;
    if lies_within(app, place, &webhook).await? { Ok(webhook) } else { Err(Refusal::not_found()) }
}

async fn check_wish(
    app: &App,
    url: Option<&str>,
    wanted: Option<&[String]>,
) -> Result<(), Refusal> {
    let (known, live) = (event_types(app), app.registry.current());
    let mut faults = Vec::new();
    for (at, name) in wanted.unwrap_or_default().iter().enumerate() {
        let is_known = known.iter().any(|(known, _)| known == name);
        if name != "*" && !is_known && !live.had_event(name) {
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
    refuse_faults(faults)
}

/// `POST /v1/webhooks`: the secret is in this answer only.
///
/// # Errors
/// 400 for an event that nobody emits, and for an address that may not be reached.
pub async fn create_webhook(
    app: &App,
    request: &HostRequest,
    txn: &mut Txn,
    Body(wish): Body<NewWebhook>,
) -> Result<Created<MadeWebhook>, Refusal> {
    let place = request.place()?;
    check_wish(app, Some(&wish.url), Some(&wish.event_types.0)).await?;
    let organization = place.organization().id.clone();
    let reach = Reach::organization(organization.as_str());
    let is_pinned = place.scope().principal().is_pinned();
    let most = if is_pinned { PINNED_TOGETHER_MAX } else { WEBHOOKS_MAX };
    if stored::count::<Webhook>(txn, &reach, &[]).await? >= most {
        return Err(too_many("The organization has as many webhooks as leave room for this one."));
    }
    if is_pinned && are_pinned_full(app, place, txn).await? {
        return Err(too_many(
            "The key's project or user has as many webhooks as its keys can make.",
        ));
    }
    let is_whole = place.scope().level() == Level::Organization;
    if !is_whole {
        projects::still_there(txn, &organization, &place.project().id).await?;
    }
    let since = app
        .store
        .facts_head_settled(FactKind::Event, organization.as_str())
        .await
        .map_err(stored::reading)?;
    let id = uuid_v7(request.now, stored::random()?);
    let shown = secret().map_err(stored::no_randomness)?;
    let webhook = Webhook {
        secret: seal(&app.store, organization.as_str(), &id, &shown).await?,
        id,
        organization: organization.clone(),
        project_id: (!is_whole).then(|| place.project().id.to_string()),
        tenant_user_id: place.scope().user_named().map(ToString::to_string),
        url: wish.url,
        event_types: wish.event_types.0,
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
    let note = json!({ "after": WebhookItem::of(&webhook) });
    let answer = MadeWebhook { webhook: WebhookItem::of(&webhook), secret: shown };
    Ok(Created::of(&answer).with_log(log_of(&webhook)).about("webhook", webhook.id).noting(note))
}

/// `GET /v1/webhooks`, oldest first.
///
/// # Errors
/// When the store cannot be asked.
pub async fn list_webhooks(
    app: &App,
    request: &HostRequest,
    txn: &mut Txn,
) -> Result<Answer<WebhookPage>, Refusal> {
    let place = request.place()?;
    let items = list_within(app, place, txn).await?;
    let (limit, offset) = (request.page.limit, request.page.offset);
    let end = (offset as usize).saturating_add(limit as usize);
    let more = items.len() > end;
    let webhooks = items.into_iter().take(end).skip(offset as usize).collect();
    Ok(Answer::of(&WebhookPage { webhooks, page: Offset::of(&request.page, more) }))
}

/// `GET /v1/webhooks/event-types`
///
/// # Errors
/// Never.
pub async fn list_event_types(
    app: &App,
    _: &HostRequest,
    _: &mut Txn,
) -> Result<Answer<EventTypeList>, Refusal> {
    let types = event_types(app).into_iter();
    let event_types = types.map(|(name, description)| EventType { name, description }).collect();
    Ok(Answer::of(&EventTypeList { event_types }))
}

/// `GET /v1/webhooks/{id}`
///
/// # Errors
/// 404 for another tenant's.
pub async fn get_webhook(
    app: &App,
    request: &HostRequest,
    txn: &mut Txn,
) -> Result<Answer<WebhookAnswer>, Refusal> {
    let webhook = WebhookItem::of(&find(app, request, txn).await?);
    Ok(Answer::of(&WebhookAnswer { webhook }))
}

/// `PATCH /v1/webhooks/{id}`: also how one that was switched off is switched on again.
///
/// # Errors
/// 404 for another tenant's, 400 as for a new one.
pub async fn update_webhook(
    app: &App,
    request: &HostRequest,
    txn: &mut Txn,
    Body(wish): Body<WebhookChange>,
) -> Result<Answer<WebhookAnswer>, Refusal> {
    let before = find(app, request, txn).await?;
    let types = wish.event_types.0.map(|types| types.0);
    check_wish(app, wish.url.0.as_deref(), types.as_deref()).await?;
    let mut after = before.clone();
    after.url = wish.url.0.unwrap_or(after.url);
    after.event_types = types.unwrap_or(after.event_types);
    if let Some(active) = wish.active.0 {
        if active && !before.active {
            after.resumed_at = Some(request.now);
        }
        after.active = active;
        if active {
            (after.disabled_reason, after.failures) = (None, 0);
        }
    }
    stored::replace(txn, &after, "id").await?;
    let answer = WebhookAnswer { webhook: WebhookItem::of(&after) };
    let note = json!({ "before": WebhookItem::of(&before), "after": answer.webhook });
    Ok(Answer::of(&answer).with_log(log_of(&after)).about("webhook", after.id).noting(note))
}

/// `DELETE /v1/webhooks/{id}`: what is still to be delivered is dropped.
///
/// # Errors
/// 404 for another tenant's.
pub async fn delete_webhook(
    app: &App,
    request: &HostRequest,
    txn: &mut Txn,
) -> Result<Answer<Deleted>, Refusal> {
    let webhook = find(app, request, txn).await?;
    stored::remove(txn, &webhook).await?;
    let note = json!({ "before": WebhookItem::of(&webhook) });
    Ok(Answer::of(&Deleted::of(&webhook.id))
        .with_log(log_of(&webhook))
        .about("webhook", webhook.id)
        .noting(note))
}

/// `POST /v1/webhooks/{id}/rotate`: the new secret signs from now on, and the former one beside it
/// for a day.
///
/// # Errors
/// 404 for another tenant's, 409 while as many former ones sign as can.
pub async fn rotate_webhook_secret(
    app: &App,
    request: &HostRequest,
    txn: &mut Txn,
) -> Result<Answer<RotatedWebhook>, Refusal> {
    let mut before = find(app, request, txn).await?;
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
    let secret = seal(&app.store, before.organization.as_str(), &before.id, &shown).await?;
    previous.insert(0, (before.secret.clone(), request.now.plus_ms(OVERLAP_MS)));
    let after = Webhook { secret, previous, ..before };
    stored::replace(txn, &after, "id").await?;
    let made = MadeWebhook { webhook: WebhookItem::of(&after), secret: shown };
    let answer = RotatedWebhook { made, previous_until: request.now.plus_ms(OVERLAP_MS) };
    Ok(Answer::of(&answer).with_log(log_of(&after)).about("webhook", after.id))
}

/// Queues a delivery with this request's commit. Its sender finds it within half a second; the
/// notice makes it at once.
fn queue(
    app: &App,
    txn: &mut Txn,
    delivery: &Delivery,
    log: AuditLog,
) -> Result<Accepted<DeliveryAnswer>, Refusal> {
    let draft = delivery.due(delivery.created_at).map_err(stored::unreadable)?;
    txn.write(Write::Insert { key: delivery.key(), draft });
    let organization = Reach::organization(&delivery.organization);
    app.adapters.deliveries_wanted.name(&organization, [&delivery.webhook]);
    let answer = DeliveryAnswer { delivery: DeliveryItem::of(delivery) };
    Ok(Accepted::of(&answer).about("delivery", delivery.id.clone()).with_log(log))
}

/// `POST /v1/webhooks/{id}/test`: a signed event of the type `webhook.test`, whatever the webhook
/// hears.
///
/// # Errors
/// 404 for another tenant's.
pub async fn test_webhook(
    app: &App,
    request: &HostRequest,
    txn: &mut Txn,
) -> Result<Accepted<DeliveryAnswer>, Refusal> {
    let webhook = find(app, request, txn).await?;
    let log = log_of(&webhook);
    let payload = json!({ "webhook_id": webhook.id, "test": true });
    let delivery = Delivery {
        id: uuid_v7(request.now, stored::random()?),
        organization: webhook.organization.to_string(),
        event_id: uuid_v7(request.now, stored::random()?),
        event: TEST.into(),
        user: webhook.tenant_user_id.clone(),
        body: body(TEST, None, payload, webhook.tenant_user_id.as_deref(), request.now),
        webhook: webhook.id,
        status: DeliveryOutcome::Pending,
        attempts: Vec::new(),
        created_at: request.now,
        ended_at: None,
    };
    queue(app, txn, &delivery, log)
}

/// `GET /v1/webhooks/{id}/deliveries`, newest first.
///
/// # Errors
/// 404 for another tenant's.
pub async fn list_deliveries(
    app: &App,
    request: &HostRequest,
    txn: &mut Txn,
) -> Result<Answer<DeliveryPage>, Refusal> {
    let webhook = find(app, request, txn).await?;
    let reach = Reach::organization(webhook.organization.as_str());
    let mut query = Query::all(&reach, &Delivery::all())
        .equal("webhook", &webhook.id)
        .limit(request.page.limit)
        .relax();
    query.after.clone_from(&request.page.position);
    let found = txn.find(&query).await.map_err(stored::reading)?;
    let rows = found.items.iter().filter_map(|(_, row)| Delivery::read(row).ok());
    let deliveries = rows.map(|delivery| DeliveryItem::of(&delivery)).collect();
    let page = Cursor::of(&request.page, found.next.as_deref());
    Ok(Answer::of(&DeliveryPage { deliveries, page }))
}

/// `POST /v1/webhooks/{id}/deliveries/{delivery_id}/redeliver`: the same event once more, under the
/// same id.
///
/// # Errors
/// 404 for another webhook's, 409 for a webhook that is switched off.
pub async fn redeliver(
    app: &App,
    request: &HostRequest,
    txn: &mut Txn,
) -> Result<Accepted<DeliveryAnswer>, Refusal> {
    let webhook = find(app, request, txn).await?;
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
        status: DeliveryOutcome::Pending,
        attempts: Vec::new(),
        created_at: request.now,
        ended_at: None,
        ..before
    };
    queue(app, txn, &delivery, log_of(&webhook))
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
    let descriptions = [
        "An approval was approved, denied or failed.",
        "A webhook was switched off because its endpoint failed.",
    ];
    let own = OWN.iter().zip(descriptions);
    types.extend(own.map(|(name, description)| ((*name).to_owned(), description.to_owned())));
    types.sort();
    types.dedup_by(|one, other| one.0 == other.0);
    types
}
