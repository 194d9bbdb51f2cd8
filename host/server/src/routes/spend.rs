//! What was spent: by tenant (`/v1/spend`), by what it was for (`/v1/governance/spend`), and one
//! tenant's cost report.
//!
//! Read from the spend records that captures leave, and from the meters that admissions count in.

use std::collections::BTreeMap;

use charter_kernel::governance::calendar::Window;
use charter_kernel::governance::gauge::Gauge;
use charter_kernel::governance::hold::spend_space;
use charter_kernel::id::{ProjectId, UserId};
use charter_kernel::kit::Period;
use charter_kernel::money::cents;
use charter_kernel::refusal::Refusal;
use charter_kernel::scope::Scope;
use charter_kernel::time::Instant;
use charter_kernel::unit::Reach;
use charter_store::{Order, Query, Txn};
use serde_json::{Value, json};

use super::shape::{self, id, instant, nullable, object};
use super::stored;
use crate::app::App;
use crate::governance::caps::Case;
use crate::governance::gateway;
use crate::records::project::{PROJECTS_MAX, Project};
use crate::records::user::User;
use crate::reply::Reply;
use crate::request::HostRequest;

/// Records of one read.
const PAGE: u32 = 1_000;
/// Records that one answer sums up.
const RECORDS_MAX: usize = 200_000;

fn period() -> Value {
    json!({"enum": ["day", "week", "month", "year", "total"]})
}

/// A page of tenants.
pub fn answer() -> Value {
    let number = json!({"type": "integer"});
    let row = object(&[
        ("user_id", id()),
        ("name", json!({"type": "string"})),
        ("project_id", id()),
        ("cap_cents", json!({"type": ["integer", "null"]})),
        ("period", period()),
        ("enforced", json!({"type": "boolean"})),
        ("hard", json!({"type": "boolean"})),
        ("spent_cents", number.clone()),
        ("spent_micro_usd", number.clone()),
        ("reserved_micro_usd", number),
        ("period_start", instant()),
        ("resets_at", nullable(&instant())),
    ]);
    shape::page("spend", &row)
}

/// Where a tenant's budget stands, by its calendar month where it has none.
async fn of_tenant(app: &App, txn: &Txn, scope: &Scope) -> Result<(Case, Gauge), Refusal> {
    let case = gateway::case(&app.governance, scope).await?;
    let gauges = case.gauges(&app.governance, txn, "", &[], app.clock.now()).await?;
    let gauge = gauges.into_iter().find(|gauge| gauge.cap.scope == "kit");
    Ok((case, gauge.ok_or_else(Refusal::not_found)?))
}

fn named(case: &Case) -> Period {
    case.kit.as_ref().and_then(|kit| kit.kit.budget).map_or(Period::Month, |budget| budget.period)
}

/// `GET /v1/spend`: the whole organization, one row a tenant, oldest first.
///
/// # Errors
/// 403 for a key that is pinned.
pub async fn list(app: &App, request: &HostRequest, txn: &mut Txn) -> Result<Reply, Refusal> {
    let place = request.place()?;
    let reach = Reach::organization(place.organization.id.as_str());
    let (limit, mut skip) = (request.page.limit, request.page.offset);
    let limit_projects = u32::try_from(PROJECTS_MAX).unwrap_or(PAGE);
    let (projects, _) = stored::list::<Project>(txn, &reach, &[], limit_projects, 0).await?;
    let (mut rows, mut more) = (Vec::new(), false);
    let pinned = request.principal()?.project.as_ref();
    let projects = projects.iter().map(|project| &project.record);
    for project in projects.filter(|project| pinned.is_none_or(|own| *own == project.id)) {
        let users = Reach::project(project.id.as_str());
        let count =
            u32::try_from(stored::count::<User>(txn, &users, &[]).await?).unwrap_or(u32::MAX);
        if skip >= count {
            skip -= count;
            continue;
        }
        let left = limit - u32::try_from(rows.len()).unwrap_or(limit);
        if left == 0 {
            more = true;
            break;
        }
        let (page, rest) = stored::list::<User>(txn, &users, &[], left, skip).await?;
        (skip, more) = (0, rest);
        for user in page {
            let tenant = app.directory.place_of_user(place, &project.id, &user.record.id).await?;
            let (case, gauge) = of_tenant(app, txn, &tenant.scope).await?;
            rows.push(json!({
                "user_id": user.record.id,
                "name": user.record.name,
                "project_id": project.id,
                "cap_cents": gauge.cap.most.map(cents),
                "period": named(&case),
                "enforced": gauge.cap.most.is_some(),
                "hard": gauge.cap.hard,
                "spent_cents": cents(gauge.count.spent),
                "spent_micro_usd": gauge.count.spent,
                "reserved_micro_usd": gauge.count.reserved,
                "period_start": gauge.window.starts,
                "resets_at": gauge.window.ends,
            }));
        }
        if more {
            break;
        }
    }
    Ok(Reply::ok(&shape::listed("spend", rows, (limit, request.page.offset), more)))
}

/// What spend records are summed up by.
fn by() -> Value {
    json!({"enum": ["action", "user", "primitive", "component", "day"]})
}

/// The query of the sums.
pub fn sums_query() -> Value {
    json!({"type": "object", "properties": {"by": by(), "since": instant(), "until": instant()}, "additionalProperties": false})
}

/// The sums.
pub fn sums_answer() -> Value {
    let number = json!({"type": "integer"});
    let row = object(&[
        ("key", json!({"type": ["string", "null"]})),
        ("spent_micro_usd", number.clone()),
        ("spent_cents", number.clone()),
        ("count", number),
    ]);
    object(&[
        ("by", by()),
        ("since", instant()),
        ("until", instant()),
        ("spend", json!({"type": "array", "items": row})),
    ])
}

/// `GET /v1/governance/spend`: since the beginning of the month, or of what is asked for.
///
/// # Errors
/// 400 where there is more of it than one answer sums up.
pub async fn sums(app: &App, request: &HostRequest, _: &mut Txn) -> Result<Reply, Refusal> {
    let organization = &request.place()?.organization;
    let moment = |name: &str| request.query_text(name).and_then(Instant::parse);
    let until = moment("until").unwrap_or_else(|| app.clock.now());
    let since = match moment("since") {
        Some(since) => since,
        None => month(&organization.time_zone, until)?.starts,
    };
    let by = request.query_text("by").unwrap_or("action");
    let mut sums: BTreeMap<Option<String>, (i64, i64)> = BTreeMap::new();
    let (mut from, to, mut after) =
        (format!("{} {since}", organization.id), format!("{} {until}", organization.id), None);
    let mut looked = 0;
    loop {
        let page =
            app.store.indexed(&spend_space(), "found", (&from, &to), after.as_ref(), PAGE).await;
        let page = page.map_err(stored::reading)?;
        looked += page.len();
        if looked > RECORDS_MAX {
            let told = format!(
                "There are more than {RECORDS_MAX} records in this time: ask for a shorter one."
            );
            return Err(Refusal::invalid("since", told));
        }
        for (_, _, row) in &page {
            let body: Value = serde_json::from_str(&row.body).unwrap_or_default();
            let key = match by {
                "day" => body["at"].as_str().map(|at| at.chars().take(10).collect()),
                member => body[member].as_str().map(str::to_owned),
            };
            let sum = sums.entry(key).or_default();
            sum.0 = sum.0.saturating_add(body["spent_micro_usd"].as_i64().unwrap_or(0));
            sum.1 = sum.1.saturating_add(body["count"].as_i64().unwrap_or(0));
        }
        let Some((value, key, _)) = page.into_iter().nth(PAGE as usize - 1) else { break };
        (from, after) = (value, Some(key));
    }
    let rows = sums.into_iter().map(
        |(key, (spent, count))| json!({"key": key, "spent_micro_usd": spent, "spent_cents": cents(spent), "count": count}),
    );
    Ok(Reply::ok(
        &json!({"by": by, "since": since, "until": until, "spend": rows.collect::<Vec<_>>()}),
    ))
}

fn month(time_zone: &str, at: Instant) -> Result<Window, Refusal> {
    let calendar = charter_kernel::governance::calendar::Calendar::new(Period::Month, time_zone);
    Ok(calendar.map_err(|_| Refusal::internal())?.window(at))
}

/// The query of a cost report: the specification has one way to sum it up.
pub fn cost_query() -> Value {
    json!({"type": "object", "properties": {"by": {"enum": ["action"]}}, "additionalProperties": false})
}

/// A tenant's cost report (service-api.md, Tenant cost report).
pub fn cost_answer() -> Value {
    let text = json!({"type": "string"});
    let bucket = object(&[
        ("key", text.clone()),
        ("cents", json!({"type": "number"})),
        ("class", text),
        ("cap_cents", json!({"type": ["number", "null"]})),
        ("enforced", json!({"const": false})),
    ]);
    object(&[
        ("period", object(&[("name", period()), ("start", instant())])),
        ("buckets", json!({"type": "array", "items": bucket})),
    ])
}

/// `GET /v1/teams/{team}/tenants/{tenant_user_id}/cost`: within the window of the tenant's budget.
/// A team is a project.
///
/// # Errors
/// 404 for another organization's project or user.
pub async fn cost(app: &App, request: &HostRequest, txn: &mut Txn) -> Result<Reply, Refusal> {
    let place = request.place()?;
    let project = match request.parameter("team") {
        "default" => place.organization.default_project.clone(),
        text => ProjectId::parse(text).ok_or_else(Refusal::not_found)?,
    };
    let user = UserId::parse(request.parameter("tenant_user_id")).ok_or_else(Refusal::not_found)?;
    let tenant = app.directory.place_of_user(place, &project, &user).await?;
    let (case, gauge) = of_tenant(app, txn, &tenant.scope).await?;
    let mut sums: BTreeMap<(String, String), i64> = BTreeMap::new();
    let mut query = Query::all(&Reach::user(user.as_str()), &spend_space()).limit(PAGE).relaxed();
    query.order = Order::Oldest;
    query.after = Some(gauge.window.starts.to_string());
    loop {
        let page = txn.find(&query).await.map_err(stored::reading)?;
        for (_, row) in &page.items {
            let body: Value = serde_json::from_str(&row.body).unwrap_or_default();
            let text = |member: &str| body[member].as_str().unwrap_or_default().to_owned();
            let sum = sums.entry((text("action"), text("primitive"))).or_default();
            *sum = sum.saturating_add(body["spent_micro_usd"].as_i64().unwrap_or(0));
        }
        let Some(next) = page.next else { break };
        query.after = Some(next);
    }
    // What was spent is recorded after it was spent: this report enforces nothing, whatever the
    // caps do.
    let buckets = sums.into_iter().map(|((action, primitive), spent)| {
        json!({"key": action, "cents": cents(spent), "class": primitive, "cap_cents": gauge.cap.most.map(cents), "enforced": false})
    });
    Ok(Reply::ok(&json!({
        "period": {"name": named(&case), "start": gauge.window.starts},
        "buckets": buckets.collect::<Vec<_>>(),
    })))
}
