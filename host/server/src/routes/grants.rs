//! `/v1/governance/grants`: leave that stands in for a person's approval, for one user and a time.

use charter_kernel::authority::Class;
use charter_kernel::fault::Fault;
use charter_kernel::governance::policy::{Grant, is_glob};
use charter_kernel::id::{ProjectId, UserId, uuid_v7};
use charter_kernel::manifest::Paging;
use charter_kernel::money::AMOUNT_MAX;
use charter_kernel::refusal::{Code, Refusal};
use charter_kernel::time::Instant;
use charter_kernel::unit::Reach;
use charter_store::Txn;
use charter_tenancy::records::grant::{GRANTS_MAX, Given};
use charter_tenancy::records::user::User;
use charter_tenancy::stored;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::shape::{Actor, Deleted, Id, Offset, Optional, Reason, Reference, refuse_faults};
use crate::app::App;
use crate::handler;
use crate::reply::AuditLog;
use crate::request::HostRequest;
use crate::route::HostRoute;
use crate::serve::{Answer, Body, Created, Params};

/// How long leave can last, in milliseconds: a year.
const LASTS_MS_MAX: i64 = 366 * 86_400_000;

/// The rows of grants.
pub fn routes() -> Vec<HostRoute> {
    vec![
        HostRoute::post(
            Class::Loosening,
            "governance.grants.create",
            "/governance/grants",
            handler!(create_grant),
        )
        .summary("Give a user leave for a time, in place of a person's approval")
        .refuses(&[Code::ResourceNotFound]),
        HostRoute::get(
            Class::OrganizationRead,
            "governance.grants.list",
            "/governance/grants",
            handler!(list_grants),
        )
        .summary("List grants")
        .paging(Paging::Offset),
        HostRoute::delete(
            Class::OrganizationChange,
            "governance.grants.delete",
            "/governance/grants/{id}",
            handler!(delete_grant),
        )
        .summary("Take a grant back"),
    ]
}

/// The actions that leave is given for: `shop.buy`, `shop.*` or `*`.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
struct Actions(
    #[schemars(length(min = 1, max = 200), inner(length(min = 1, max = 200)))] Vec<String>,
);

/// The body of a new grant.
#[derive(Deserialize, JsonSchema)]
pub struct NewGrant {
    /// The tenant user who gets leave.
    user_id: Reference,
    actions: Actions,
    /// How often it may be used.
    #[schemars(range(min = 1, max = 1_000_000))]
    max_uses: Option<u32>,
    /// How much it may be used for in all, in micro-US-dollars.
    #[schemars(range(min = 1, max = AMOUNT_MAX))]
    cap_micro_usd: Option<i64>,
    /// The first moment at which it is over.
    until: Instant,
    /// The reason, for the audit log.
    reason: Reason,
}

/// Leave that stands in for a person's approval.
#[derive(Serialize, JsonSchema)]
struct GrantItem {
    /// The grant's id.
    id: Id,
    /// The tenant user who has leave.
    user_id: Id,
    actions: Actions,
    /// How often it may be used.
    max_uses: Option<u32>,
    /// How much it may be used for in all, in micro-US-dollars.
    cap_micro_usd: Option<i64>,
    /// The first moment at which it is over.
    until: Instant,
    /// The reason.
    reason: String,
    /// The account or the key that gave it.
    given_by: Actor,
    /// The moment of its creation.
    created_at: Instant,
}

impl GrantItem {
    fn of(given: &Given) -> Self {
        let grant = &given.grant;
        Self {
            id: grant.id.as_str().into(),
            user_id: grant.user_id.as_str().into(),
            actions: Actions(grant.actions.clone()),
            max_uses: grant.max_uses,
            cap_micro_usd: grant.cap_micro_usd,
            until: grant.until,
            reason: grant.reason.clone(),
            given_by: (&given.given_by).into(),
            created_at: given.created_at,
        }
    }
}

/// One grant.
#[derive(Serialize, JsonSchema)]
pub struct GrantAnswer {
    grant: GrantItem,
}

/// The query of the list.
#[derive(Deserialize, JsonSchema)]
pub struct GrantQuery {
    /// Those of this tenant user alone.
    user_id: Optional<Reference>,
}

/// A page of grants.
#[derive(Serialize, JsonSchema)]
pub struct GrantPage {
    grants: Vec<GrantItem>,
    #[serde(flatten)]
    page: Offset,
}

/// `POST /v1/governance/grants`
///
/// # Errors
/// 403 without the authority to loosen, 404 for another project's user.
pub async fn create_grant(
    _: &App,
    request: &HostRequest,
    txn: &mut Txn,
    Body(body): Body<NewGrant>,
) -> Result<Created<GrantAnswer>, Refusal> {
    let place = request.place()?;
    let mut faults = Vec::new();
    if !body.actions.0.iter().all(|glob| is_glob(glob)) {
        faults.push(Fault::new(
            "actions",
            "must name actions: `shop.buy`, `shop.*` or `*`, in lower case",
        ));
    }
    if body.until <= request.now || body.until > request.now.plus_ms(LASTS_MS_MAX) {
        faults.push(Fault::new("until", "must lie within the next year"));
    }
    refuse_faults(faults)?;
    let absent = || Refusal::resource_not_found("user_id");
    let user = UserId::parse(&body.user_id).ok_or_else(absent)?;
    stored::get::<User>(txn, &User::address(&place.project().id, &user))
        .await?
        .ok_or_else(absent)?;
    let reach = Reach::organization(place.organization().id.as_str());
    if stored::count::<Given>(txn, &reach, &[]).await? >= GRANTS_MAX {
        return Err(Refusal::state_conflict(
            "too_many_grants",
            "The organization has as many grants as it can have.",
        ));
    }
    let grant = Grant {
        id: uuid_v7(request.now, stored::random()?),
        user_id: user.into_string(),
        actions: body.actions.0,
        max_uses: body.max_uses,
        cap_micro_usd: body.cap_micro_usd,
        until: body.until,
        reason: body.reason.0,
    };
    let (organization, given_by) = (place.organization().id.clone(), request.identity.actor());
    let project = Some(place.project().id.clone());
    let given = Given { organization, project, grant, given_by, created_at: request.now };
    stored::insert(txn, &given, "id").await?;
    let answer = GrantAnswer { grant: GrantItem::of(&given) };
    let note = json!({"after": answer.grant});
    Ok(Created::of(&answer)
        .about("grant", given.grant.id.clone())
        .with_log(log_of(&given))
        .noting(note))
}

/// The log that tells of a grant: its user's.
fn log_of(given: &Given) -> AuditLog {
    AuditLog::of(given.project.as_ref().map(ProjectId::as_str), Some(&given.grant.user_id))
}

/// `GET /v1/governance/grants`, oldest first.
///
/// # Errors
/// 403 for a key that is pinned.
pub async fn list_grants(
    _: &App,
    request: &HostRequest,
    txn: &mut Txn,
    Params(asked): Params<GrantQuery>,
) -> Result<Answer<GrantPage>, Refusal> {
    let reach = Reach::organization(request.place()?.organization().id.as_str());
    let (limit, offset) = (request.page.limit, request.page.offset);
    let matching: Vec<(&str, &str)> =
        asked.user_id.0.iter().map(|user| ("user", &**user)).collect();
    let (grants, more) = stored::list::<Given>(txn, &reach, &matching, limit, offset).await?;
    let grants = grants.iter().map(|given| GrantItem::of(&given.record)).collect();
    Ok(Answer::of(&GrantPage { grants, page: Offset::of(&request.page, more) }))
}

/// `DELETE /v1/governance/grants/{id}`: it counts no more from the next commit on.
///
/// # Errors
/// 404 for another organization's.
pub async fn delete_grant(
    _: &App,
    request: &HostRequest,
    txn: &mut Txn,
) -> Result<Answer<Deleted>, Refusal> {
    let key = Given::address(&request.place()?.organization().id, request.parameter("id"));
    let given = stored::get::<Given>(txn, &key).await?.ok_or_else(Refusal::not_found)?.record;
    stored::remove(txn, &given).await?;
    let note = json!({"before": GrantItem::of(&given)});
    Ok(Answer::of(&Deleted::of(&given.grant.id))
        .about("grant", given.grant.id.clone())
        .with_log(log_of(&given))
        .noting(note))
}
