//! Spent money: by tenant (`/v1/spend`), by its purpose (`/v1/governance/spend`), and one tenant's
//! cost report.
//!
//! Read from the spend records that captures leave, and from the meters that admissions count in.

use std::collections::BTreeMap;

use charter_governance::records::{self, Whose};
use charter_governance::{caps, gateway};
use charter_kernel::authority::Class;
use charter_kernel::calendar::{Calendar, Window};
use charter_kernel::governance::gauge::Gauge;
use charter_kernel::id::{ProjectId, UserId};
use charter_kernel::kit::Period;
use charter_kernel::manifest::Paging;
use charter_kernel::money::cents;
use charter_kernel::refusal::Refusal;
use charter_kernel::scope::Scope;
use charter_kernel::time::Instant;
use charter_kernel::unit::Reach;
use charter_store::Txn;
use charter_tenancy::records::project::{PROJECTS_MAX, Project};
use charter_tenancy::records::user::User;
use charter_tenancy::stored;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::shape::{Moment, Offset, Optional};
use crate::app::App;
use crate::handler;
use crate::request::HostRequest;
use crate::route::{HostRoute, Walk};
use crate::serve::{Answer, Params};

/// Records that one answer sums up.
const RECORDS_MAX: usize = 200_000;

/// The rows of spending.
pub fn routes() -> Vec<HostRoute> {
    vec![
        HostRoute::get(Class::ProjectRead, "spend.list", "/spend", handler!(list_spend))
            .summary("What each tenant has spent in its window, with its cap")
            .paging(Paging::Offset)
            // It sums up what those have spent who have no cap yet.
            .walk(Walk::All),
        HostRoute::get(
            Class::OrganizationRead,
            "governance.spend",
            "/governance/spend",
            handler!(sum_spend),
        )
        .walk(Walk::All)
        .summary("What the organization has spent, by action, user, primitive, component or day"),
        HostRoute::get(
            Class::ProfileRead,
            "teams.tenants.cost",
            "/teams/{team}/tenants/{tenant_user_id}/cost",
            handler!(get_tenant_cost),
        )
        .walk(Walk::All)
        .summary("One tenant's cost report"),
    ]
}

/// The spending of a tenant user in the window of its budget.
#[derive(Serialize, JsonSchema)]
struct TenantSpend {
    /// The tenant user.
    user_id: UserId,
    /// The user's name.
    name: String,
    /// The user's project.
    project_id: ProjectId,
    /// The cap, in cents: of its kit's budget and its own the lower one.
    cap_cents: Option<i64>,
    /// The period of the cap; `month` where there is none.
    period: Period,
    /// Whether there is a cap.
    enforced: bool,
    /// Whether an excess is refused; otherwise it waits for approval.
    hard: bool,
    /// The amount spent, in cents.
    spent_cents: i64,
    /// The amount spent.
    spent_micro_usd: i64,
    /// The amount held.
    reserved_micro_usd: i64,
    /// The beginning of the window.
    period_start: Instant,
    /// The end of the window.
    resets_at: Option<Instant>,
}

/// A page of tenant users.
#[derive(Serialize, JsonSchema)]
pub struct SpendPage {
    spend: Vec<TenantSpend>,
    #[serde(flatten)]
    page: Offset,
}

/// The member of spend records that sums are made by.
#[derive(Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum By {
    #[default]
    Action,
    User,
    Primitive,
    Component,
    Day,
}

impl By {
    /// The record's member.
    fn member(self) -> &'static str {
        match self {
            Self::Action => "action",
            Self::User => "user",
            Self::Primitive => "primitive",
            Self::Component => "component",
            Self::Day => "at",
        }
    }
}

/// The query of the sums.
#[derive(Deserialize, JsonSchema)]
pub struct SumQuery {
    /// The member that sums are made by; `action` where absent.
    by: Optional<By>,
    /// The first moment; the beginning of the month where absent. Spending is kept by quarters of an
    /// hour, and each counts where it begins.
    since: Optional<Moment>,
    /// The moment behind the last; now where absent.
    until: Optional<Moment>,
}

/// The sum of one key.
#[derive(Serialize, JsonSchema)]
struct Sum {
    /// The action, the user, the primitive, the component or the day.
    key: Option<String>,
    /// The amount spent.
    spent_micro_usd: i64,
    /// The amount spent, in cents.
    spent_cents: i64,
    /// How often.
    count: i64,
}

/// The sums.
#[derive(Serialize, JsonSchema)]
pub struct Sums {
    /// The member that they are made by.
    by: By,
    /// The first moment.
    since: Instant,
    /// The moment behind the last.
    until: Instant,
    spend: Vec<Sum>,
}

/// The query of a cost report: the specification has one way to sum it up.
#[derive(Deserialize, JsonSchema)]
pub struct CostQuery {
    #[expect(dead_code, reason = "it has one value")]
    by: Optional<CostBy>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum CostBy {
    Action,
}

/// The window of a cost report.
#[derive(Serialize, JsonSchema)]
struct CostPeriod {
    /// The period's name.
    name: Period,
    /// The window's beginning.
    start: Instant,
}

/// The cost of one action.
#[derive(Serialize, JsonSchema)]
struct Bucket {
    /// The action.
    key: String,
    /// The amount spent, in cents.
    #[schemars(with = "f64")]
    cents: i64,
    /// The primitive.
    class: String,
    /// The tenant's cap, in cents: of its kit's budget and its own the lower one.
    #[schemars(with = "Option<f64>")]
    cap_cents: Option<i64>,
    /// False: a report comes after the spending, and enforces nothing, whatever the caps do.
    #[schemars(extend("const" = false))]
    enforced: bool,
}

/// A tenant's cost report (service-api.md, Tenant cost report).
#[derive(Serialize, JsonSchema)]
pub struct CostReport {
    period: CostPeriod,
    buckets: Vec<Bucket>,
}

/// The standing of a tenant's budget, the narrower of its kit's and its own, with the period of its
/// window: the calendar month if it has none.
async fn of_tenant(app: &App, txn: &Txn, scope: &Scope) -> Result<(Period, Gauge), Refusal> {
    let case = gateway::case(&app.governance, scope).await?;
    let budget = caps::narrower_budget(case.kit.as_deref(), case.user.as_deref());
    // Each user has a gauge of its kit's, whether or not that has a budget.
    let (stands_in, period) =
        budget.map_or(("kit", Period::Month), |(scope, budget)| (scope, budget.period));
    let gauges = case.gauges(&app.governance, txn, "", &[], app.clock.now()).await?;
    let gauge = gauges.into_iter().find(|gauge| gauge.cap.scope == stands_in);
    Ok((period, gauge.ok_or_else(Refusal::not_found)?))
}

/// `GET /v1/spend`: the whole organization, one row a tenant, oldest first.
///
/// # Errors
/// 403 for a key that is pinned.
pub async fn list_spend(
    app: &App,
    request: &HostRequest,
    txn: &mut Txn,
) -> Result<Answer<SpendPage>, Refusal> {
    let place = request.place()?;
    let reach = Reach::organization(place.organization().id.as_str());
    let (limit, mut skip) = (request.page.limit, request.page.offset);
    let limit_projects = u32::try_from(PROJECTS_MAX).unwrap_or(u32::MAX);
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
            let (period, gauge) = of_tenant(app, txn, tenant.scope()).await?;
            // Amounts that a person let through beyond a soft cap were spent as well.
            let spent = gauge.count.spent.saturating_add(gauge.count.over_spent);
            rows.push(TenantSpend {
                user_id: user.record.id,
                name: user.record.name,
                project_id: project.id.clone(),
                cap_cents: gauge.cap.most.map(cents),
                period,
                enforced: gauge.cap.most.is_some(),
                hard: gauge.cap.hard,
                spent_cents: cents(spent),
                spent_micro_usd: spent,
                reserved_micro_usd: gauge.count.reserved.saturating_add(gauge.count.over_reserved),
                period_start: gauge.window.starts,
                resets_at: gauge.window.ends,
            });
        }
        if more {
            break;
        }
    }
    Ok(Answer::of(&SpendPage { spend: rows, page: Offset::of(&request.page, more) }))
}

/// `GET /v1/governance/spend`: since the beginning of the month, or of what is asked for.
///
/// # Errors
/// 400 where there is more of it than one answer sums up.
pub async fn sum_spend(
    app: &App,
    request: &HostRequest,
    _: &mut Txn,
    Params(asked): Params<SumQuery>,
) -> Result<Answer<Sums>, Refusal> {
    let organization = request.place()?.organization();
    let moment = |at: &Optional<Moment>| at.0.as_ref().and_then(Moment::instant);
    let until = moment(&asked.until).unwrap_or_else(|| app.clock.now());
    let since = match moment(&asked.since) {
        Some(since) => since,
        None => month(&organization.time_zone, until.plus_ms(-1))?.starts,
    };
    let by = asked.by.0.unwrap_or_default();
    let mut sums: BTreeMap<Option<String>, (i64, i64)> = BTreeMap::new();
    let days = calendar(Period::Day, &organization.time_zone)?;
    let mut looked = 0;
    let add = |record: &Value| {
        looked += 1;
        if looked > RECORDS_MAX {
            let told = format!(
                "There are more than {RECORDS_MAX} records in this time: ask for a shorter one."
            );
            return Err(Refusal::invalid("since", told));
        }
        let key = match by {
            By::Day => {
                let at = record["at"].as_str().and_then(Instant::parse);
                at.map(|at| days.window(at).slot.first().to_owned())
            }
            by => record[by.member()].as_str().map(str::to_owned),
        };
        let sum = sums.entry(key).or_default();
        sum.0 = sum.0.saturating_add(records::spent(record));
        sum.1 = sum.1.saturating_add(record["count"].as_i64().unwrap_or(0));
        Ok(())
    };
    let whose = Whose::Organization(organization.id.as_str());
    // A record that begins with the end is the next report's.
    records::each(&app.store, whose, (since, until), add).await?;
    let rows = sums.into_iter().map(|(key, (spent_micro_usd, count))| Sum {
        key,
        spent_micro_usd,
        spent_cents: cents(spent_micro_usd),
        count,
    });
    Ok(Answer::of(&Sums { by, since, until, spend: rows.collect() }))
}

fn month(time_zone: &str, at: Instant) -> Result<Window, Refusal> {
    Ok(calendar(Period::Month, time_zone)?.window(at))
}

fn calendar(period: Period, time_zone: &str) -> Result<Calendar, Refusal> {
    Calendar::new(period, time_zone).map_err(|_| Refusal::internal())
}

/// `GET /v1/teams/{team}/tenants/{tenant_user_id}/cost`: within the window of the tenant's budget.
/// A team is a project.
///
/// # Errors
/// 404 for another organization's project or user.
pub async fn get_tenant_cost(
    app: &App,
    request: &HostRequest,
    txn: &mut Txn,
    _: Params<CostQuery>,
) -> Result<Answer<CostReport>, Refusal> {
    let place = request.place()?;
    let project = match request.parameter("team") {
        "default" => place.organization().default_project.clone(),
        text => ProjectId::parse(text).ok_or_else(Refusal::not_found)?,
    };
    let user = UserId::parse(request.parameter("tenant_user_id")).ok_or_else(Refusal::not_found)?;
    let tenant = app.directory.place_of_user(place, &project, &user).await?;
    let (period, gauge) = of_tenant(app, txn, tenant.scope()).await?;
    let mut sums: BTreeMap<(String, String), i64> = BTreeMap::new();
    let add = |record: &Value| {
        let text = |member: &str| record[member].as_str().unwrap_or_default().to_owned();
        let sum = sums.entry((text("action"), text("primitive"))).or_default();
        *sum = sum.saturating_add(records::spent(record));
        Ok(())
    };
    let (reach, whole) = (Reach::user(user.as_str()), (gauge.window.starts, Instant::LAST));
    records::each(&app.store, Whose::User(&reach), whole, add).await?;
    let cap_cents = gauge.cap.most.map(cents);
    let buckets = sums.into_iter().map(|((key, class), spent)| Bucket {
        key,
        cents: cents(spent),
        class,
        cap_cents,
        enforced: false,
    });
    let period = CostPeriod { name: period, start: gauge.window.starts };
    Ok(Answer::of(&CostReport { period, buckets: buckets.collect() }))
}
