//! `/v1/governance/grants`: leave that stands in for a person's approval, for one user and a time.

use charter_kernel::fault::Fault;
use charter_kernel::governance::policy::{Grant, is_glob};
use charter_kernel::id::{UserId, uuid_v7};
use charter_kernel::money::AMOUNT_MAX;
use charter_kernel::refusal::Refusal;
use charter_kernel::time::Instant;
use charter_kernel::unit::Reach;
use charter_store::Txn;
use serde::Deserialize;
use serde_json::{Value, json};

use super::shape::{self, checked, id, instant, nullable, object, reference};
use super::stored;
use crate::app::App;
use crate::records::grant::{GRANTS_MAX, Given};
use crate::records::user::User;
use crate::reply::Reply;
use crate::request::HostRequest;

/// How long leave can last, in milliseconds: a year.
const LASTS_MS_MAX: i64 = 366 * 86_400_000;

fn actions() -> Value {
    json!({"type": "array", "minItems": 1, "maxItems": 200, "items": {"type": "string", "minLength": 1, "maxLength": 200}})
}

fn item() -> Value {
    object(&[
        ("id", id()),
        ("user_id", id()),
        ("actions", actions()),
        ("max_uses", json!({"type": ["integer", "null"]})),
        ("cap_micro_usd", json!({"type": ["integer", "null"]})),
        ("until", instant()),
        ("reason", json!({"type": "string"})),
        (
            "given_by",
            object(&[("type", json!({"type": "string"})), ("id", json!({"type": "string"}))]),
        ),
        ("created_at", instant()),
    ])
}

/// One grant.
pub fn answer() -> Value {
    object(&[("grant", item())])
}

/// A page of grants.
pub fn list_answer() -> Value {
    shape::page("grants", &item())
}

/// The query of the list.
pub fn list_query() -> Value {
    object(&[("user_id?", reference())])
}

/// The body of a new grant.
pub fn create_body() -> Value {
    object(&[
        ("user_id", reference()),
        ("actions", actions()),
        ("max_uses?", nullable(&json!({"type": "integer", "minimum": 1, "maximum": 1_000_000}))),
        (
            "cap_micro_usd?",
            nullable(&json!({"type": "integer", "minimum": 1, "maximum": AMOUNT_MAX})),
        ),
        ("until", instant()),
        ("reason", shape::visible(1_000)),
    ])
}

fn view(given: &Given) -> Value {
    let grant = &given.grant;
    json!({
        "id": grant.id,
        "user_id": grant.user_id,
        "actions": grant.actions,
        "max_uses": grant.max_uses,
        "cap_micro_usd": grant.cap_micro_usd,
        "until": grant.until,
        "reason": grant.reason,
        "given_by": {"type": given.given_by.0, "id": given.given_by.1},
        "created_at": given.created_at,
    })
}

#[derive(Deserialize)]
struct Create {
    user_id: String,
    actions: Vec<String>,
    max_uses: Option<u32>,
    cap_micro_usd: Option<i64>,
    until: Instant,
    reason: String,
}

/// `POST /v1/governance/grants`
///
/// # Errors
/// 403 without the authority to loosen, 404 for another project's user.
pub async fn create(_: &App, request: &HostRequest, txn: &mut Txn) -> Result<Reply, Refusal> {
    let place = request.place()?;
    let body: Create = request.body_as()?;
    let mut faults = Vec::new();
    if !body.actions.iter().all(|glob| is_glob(glob)) {
        faults.push(Fault::new(
            "actions",
            "must name actions: `shop.buy`, `shop.*` or `*`, in lower case",
        ));
    }
    if body.until <= request.now || body.until > request.now.plus_ms(LASTS_MS_MAX) {
        faults.push(Fault::new("until", "must lie within the next year"));
    }
    checked(faults)?;
    let absent = || Refusal::resource_not_found("user_id");
    let user = UserId::parse(&body.user_id).ok_or_else(absent)?;
    stored::get::<User>(txn, &User::address(&place.project.id, &user)).await?.ok_or_else(absent)?;
    let reach = Reach::organization(place.organization.id.as_str());
    if stored::count::<Given>(txn, &reach, &[]).await? >= GRANTS_MAX {
        return Err(Refusal::state_conflict(
            "too_many_grants",
            "The organization has as many grants as it can have.",
        ));
    }
    let grant = Grant {
        id: uuid_v7(request.now, stored::random()?),
        user_id: body.user_id,
        actions: body.actions,
        max_uses: body.max_uses,
        cap_micro_usd: body.cap_micro_usd,
        until: body.until,
        reason: body.reason,
    };
    let (organization, given_by) = (place.organization.id.clone(), request.identity.actor());
    let given = Given { organization, grant, given_by, created_at: request.now };
    stored::insert(txn, &given, "id").await?;
    let note = json!({"after": view(&given)});
    Ok(Reply::created(&json!({"grant": view(&given)}))
        .about("grant", given.grant.id.clone())
        .noting(note))
}

/// `GET /v1/governance/grants`, oldest first.
///
/// # Errors
/// 403 for a key that is pinned.
pub async fn list(_: &App, request: &HostRequest, txn: &mut Txn) -> Result<Reply, Refusal> {
    let reach = Reach::organization(request.place()?.organization.id.as_str());
    let (limit, offset) = (request.page.limit, request.page.offset);
    let matching: Vec<(&str, &str)> =
        request.query_text("user_id").map(|user| ("user", user)).into_iter().collect();
    let (grants, more) = stored::list::<Given>(txn, &reach, &matching, limit, offset).await?;
    let items = grants.iter().map(|given| view(&given.record)).collect();
    Ok(Reply::ok(&shape::listed("grants", items, (limit, offset), more)))
}

/// `DELETE /v1/governance/grants/{id}`: it counts no more from the next commit on.
///
/// # Errors
/// 404 for another organization's.
pub async fn delete(_: &App, request: &HostRequest, txn: &mut Txn) -> Result<Reply, Refusal> {
    let key = Given::address(&request.place()?.organization.id, request.parameter("id"));
    let given = stored::get::<Given>(txn, &key).await?.ok_or_else(Refusal::not_found)?.record;
    stored::remove(txn, &given).await?;
    let note = json!({"before": view(&given)});
    let id = given.grant.id;
    Ok(Reply::ok(&json!({"id": id, "deleted": true})).about("grant", id.clone()).noting(note))
}
