//! The organization's policy, and what it would say: `/v1/governance`.

use charter_governance::{gateway, kits};
use charter_kernel::authority::Class;
use charter_kernel::governance::gauge::Gauge;
use charter_kernel::governance::leave::{self, Asked, Person};
use charter_kernel::governance::limit::{self, LIMITS_MAX, Limit};
use charter_kernel::governance::policy::{Otherwise, Policy, RULES_MAX, Rule, Shadow};
use charter_kernel::id::UserId;
use charter_kernel::kit::Budget;
use charter_kernel::manifest::{Access, Operation};
use charter_kernel::refusal::{Code, Refusal};
use charter_kernel::scope::Level;
use charter_registry::served::Primitive;
use charter_store::Txn;
use charter_tenancy::place::Place;
use charter_tenancy::records::organization::Organization;
use charter_tenancy::stored;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::shape::{Optional, Reference, refuse_faults};
use crate::app::App;
use crate::handler;
use crate::request::HostRequest;
use crate::route::{HostRoute, Walk};
use crate::serve::{Answer, Body};

/// The rows of policy, limits and questions.
pub fn routes() -> Vec<HostRoute> {
    vec![
        HostRoute::get(
            Class::OrganizationRead,
            "governance.policy.get",
            "/governance/policy",
            handler!(get_policy),
        )
        .summary("The organization's policy"),
        HostRoute::put(
            Class::OrganizationChange,
            "governance.policy.put",
            "/governance/policy",
            handler!(put_policy),
        )
        .access(Access::Admin)
        .summary("Replace the organization's policy")
        .refuses(&[Code::VersionConflict]),
        HostRoute::get(
            Class::OrganizationRead,
            "governance.limits.get",
            "/governance/limits",
            handler!(get_limits),
        )
        .summary("How often, and for how much, users may take which actions"),
        HostRoute::put(
            Class::OrganizationChange,
            "governance.limits.put",
            "/governance/limits",
            handler!(put_limits),
        )
        .access(Access::Admin)
        .summary("Replace the organization's limits"),
        HostRoute::post(
            Class::ProfileRead,
            "governance.simulate",
            "/governance/simulate",
            handler!(simulate_action),
        )
        .walk(Walk::Page)
        .summary("What would become of a regulated action now, without effect")
        .refuses(&[Code::ResourceNotFound]),
    ]
}

/// The body of a new policy: it replaces the one before.
#[derive(Deserialize, JsonSchema)]
pub struct NewPolicy {
    /// The rules, in any order.
    #[schemars(length(max = RULES_MAX))]
    rules: Vec<Rule>,
    /// The verdict on an action that no rule matches.
    #[serde(default)]
    default: Otherwise,
    /// The version that it replaces: another one is refused.
    expected_version: Optional<u64>,
}

/// The organization's policy.
#[derive(Serialize, JsonSchema)]
struct PolicyItem {
    /// The rules, in any order.
    #[schemars(length(max = RULES_MAX))]
    rules: Vec<Rule>,
    /// The verdict on an action that no rule matches.
    default: Otherwise,
    /// Its version, for `expected_version`.
    version: u64,
}

impl PolicyItem {
    fn of(organization: &Organization) -> Self {
        Self {
            rules: organization.policy.rules.clone(),
            default: organization.policy.default,
            version: organization.policy_version,
        }
    }
}

/// A scope that caps spending, and whether a cap stands there.
#[derive(Serialize, JsonSchema)]
struct Cap {
    /// The scope.
    scope: CapScope,
    /// Its cap.
    budget: Option<Budget>,
    /// Whether it has none.
    open: bool,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum CapScope {
    Organization,
    Project,
    Kit,
}

#[derive(Serialize, JsonSchema)]
struct PolicyWithCaps {
    #[serde(flatten)]
    policy: PolicyItem,
    /// The caps behind it: of all of the organization, of the selected project, and of each user of
    /// its default kit.
    caps: Vec<Cap>,
}

/// The organization's policy, and the caps behind it.
#[derive(Serialize, JsonSchema)]
pub struct PolicyAnswer {
    policy: PolicyWithCaps,
}

impl PolicyAnswer {
    async fn of(
        app: &App,
        request: &HostRequest,
        organization: &Organization,
    ) -> Result<Self, Refusal> {
        let project = request.place()?.project();
        let kit = app.directory.kit(project, None).await.map_err(|_| Refusal::overloaded(1))?;
        let scopes = [
            (CapScope::Organization, organization.budget),
            (CapScope::Project, project.budget),
            (CapScope::Kit, kit.and_then(|kit| kit.kit.budget)),
        ];
        let caps = scopes.map(|(scope, budget)| Cap { scope, budget, open: budget.is_none() });
        let policy = PolicyItem::of(organization);
        Ok(Self { policy: PolicyWithCaps { policy, caps: caps.into() } })
    }
}

/// The organization's limits: a body and an answer.
#[derive(Serialize, Deserialize, JsonSchema)]
pub struct Limits {
    /// How often, and for how much, users may take which actions.
    #[schemars(length(max = LIMITS_MAX))]
    limits: Vec<Limit>,
}

/// The body of a question.
#[derive(Deserialize, JsonSchema)]
pub struct Question {
    /// `<primitive>.<verb>`.
    #[schemars(length(min = 3, max = 200))]
    action: String,
    /// The amount, in micro-US-dollars.
    #[schemars(range(min = 0))]
    amount_micro_usd: Option<i64>,
    /// The recipient, the merchant, the card: whatever it is done to.
    #[schemars(length(max = 2_000))]
    entity: Option<String>,
    /// The tenant user; where absent, whom the request or the credential names, else the default
    /// profile.
    user_id: Option<Reference>,
}

/// The verdict that an action would get.
#[derive(Clone, Copy, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    /// It would be done.
    Allow,
    /// It would be refused.
    Deny,
    /// It would wait for a person.
    RequireApproval,
}

/// A cap that the action would count in.
#[derive(Serialize, JsonSchema)]
struct Gauged {
    /// Its scope.
    scope: String,
    /// The cap, in micro-US-dollars.
    cap_micro_usd: Option<i64>,
    /// The amount spent in its window.
    spent_micro_usd: i64,
    /// The amount held in its window.
    reserved_micro_usd: i64,
    /// The end of its window.
    resets_at: Option<String>,
    /// Whether it has room for the action.
    admits: bool,
}

impl Gauged {
    fn of(gauge: &Gauge, admits: bool) -> Self {
        Self {
            scope: gauge.cap.scope.to_string(),
            cap_micro_usd: gauge.cap.most,
            spent_micro_usd: gauge.count.spent,
            reserved_micro_usd: gauge.count.reserved,
            resets_at: gauge.window.ends.map(|at| at.to_string()),
            admits,
        }
    }
}

/// The answer to a question.
#[derive(Serialize, JsonSchema)]
pub struct Simulation {
    verdict: Verdict,
    /// The reason of a verdict that is not `allow`.
    reason: Option<String>,
    /// The rules that matched.
    policy_ids: Vec<String>,
    /// The effects that rules in shadow would have had.
    shadow: Vec<Shadow>,
    /// The tenant user.
    user_id: Option<UserId>,
    /// The caps that it would count in, as far as the credential's pins let it see their sums.
    caps: Vec<Gauged>,
}

async fn find(request: &HostRequest, txn: &mut Txn) -> Result<Organization, Refusal> {
    let id = &request.place()?.organization().id;
    let found = stored::get::<Organization>(txn, &Organization::address(id)).await?;
    Ok(found.ok_or_else(Refusal::not_found)?.record)
}

/// `GET /v1/governance/policy`
///
/// # Errors
/// When the store cannot be asked.
pub async fn get_policy(
    app: &App,
    request: &HostRequest,
    txn: &mut Txn,
) -> Result<Answer<PolicyAnswer>, Refusal> {
    let organization = find(request, txn).await?;
    Ok(Answer::of(&PolicyAnswer::of(app, request, &organization).await?))
}

/// `PUT /v1/governance/policy`
///
/// # Errors
/// 409 for a stale `expected_version`, 403 where it would loosen without the authority to.
pub async fn put_policy(
    app: &App,
    request: &HostRequest,
    txn: &mut Txn,
    Body(body): Body<NewPolicy>,
) -> Result<Answer<PolicyAnswer>, Refusal> {
    let wanted = Policy { rules: body.rules, default: body.default };
    refuse_faults(wanted.faults())?;
    let mut organization = find(request, txn).await?;
    if body.expected_version.0.is_some_and(|expected| expected != organization.policy_version) {
        return Err(Refusal::version_conflict(organization.policy_version));
    }
    let loosens = organization.policy.is_loosened_by(&wanted);
    if loosens {
        request.place()?.may_loosen()?;
    }
    let before = PolicyItem::of(&organization);
    organization.policy = wanted;
    organization.policy_version += 1;
    stored::replace(txn, &organization, "rules").await?;
    let after = PolicyItem::of(&organization);
    let note = json!({"before": before, "after": after, "loosens": loosens});
    let answer = PolicyAnswer::of(app, request, &organization).await?;
    Ok(Answer::of(&answer).about("policy", organization.id.to_string()).noting(note))
}

/// `GET /v1/governance/limits`
///
/// # Errors
/// When the store cannot be asked.
pub async fn get_limits(
    _: &App,
    request: &HostRequest,
    txn: &mut Txn,
) -> Result<Answer<Limits>, Refusal> {
    Ok(Answer::of(&Limits { limits: find(request, txn).await?.limits }))
}

/// `PUT /v1/governance/limits`: the list replaces the one before.
///
/// # Errors
/// 403 where it would loosen without the authority to.
pub async fn put_limits(
    _: &App,
    request: &HostRequest,
    txn: &mut Txn,
    Body(body): Body<Limits>,
) -> Result<Answer<Limits>, Refusal> {
    refuse_faults(limit::faults(&body.limits))?;
    let mut organization = find(request, txn).await?;
    let loosens = limit::is_loosened(&organization.limits, &body.limits);
    if loosens {
        request.place()?.may_loosen()?;
    }
    let before = std::mem::replace(&mut organization.limits, body.limits);
    stored::replace(txn, &organization, "limits").await?;
    let note = json!({"before": before, "after": organization.limits, "loosens": loosens});
    let answer = Limits { limits: organization.limits };
    Ok(Answer::of(&answer).about("limits", organization.id.to_string()).noting(note))
}

/// `POST /v1/governance/simulate`: the verdict that the action would get now, without effect.
///
/// # Errors
/// 404 for another project's user, 400 for an action that no primitive declares and for a user
/// whom the request does not name.
pub async fn simulate_action(
    app: &App,
    request: &HostRequest,
    txn: &mut Txn,
    Body(body): Body<Question>,
) -> Result<Answer<Simulation>, Refusal> {
    let place = request.place()?;
    let live = app.registry.current();
    let declared = live.action(&body.action);
    let (primitive, spends) = declared.ok_or_else(|| {
        Refusal::invalid("action", "No installed primitive declares this action.")
    })?;
    let is_named = body.user_id.is_some() || place.scope().level() != Level::Organization;
    let (user, tenant) = match is_named || !is_of_organization(primitive, &body.action) {
        true => {
            let (user, tenant) = find_tenant(app, request, body.user_id.as_deref()).await?;
            (Some(user), tenant)
        }
        false => (None, place.of_organization()),
    };
    let revoked = tenant.user().is_some_and(|user| !user.active);
    let case = gateway::case(&app.governance, tenant.scope()).await?;
    let now = app.clock.now();
    let asked = Asked {
        action: &body.action,
        entity: body.entity.as_deref().unwrap_or_default(),
        spends,
        amount: body.amount_micro_usd,
    };
    let decision = gateway::foresee(&app.governance, &case, &asked, now).await?;
    let amount = body.amount_micro_usd.unwrap_or(0);
    let limits = case.limits(&app.governance, txn, &body.action, now).await?;
    let limited = limits.iter().any(|gauge| !gauge.admits(amount));
    let gauges = case.gauges(&app.governance, txn, &primitive.name, &[], now).await?;
    let frozen = spends && gauges.iter().any(|gauge| gauge.frozen);
    let mut over = None;
    let mut caps = Vec::new();
    for gauge in gauges.iter().filter(|gauge| gauge.cap.most.is_some()) {
        // Asked often enough, a yes or no tells the sum.
        if !place.scope().principal().sees_sum_of(&gauge.cap.scope) {
            continue;
        }
        let admits = gauge.admits(if spends { amount } else { 0 });
        over = over.max((!admits && spends).then_some(!gauge.admits_beyond(amount)));
        caps.push(Gauged::of(gauge, admits));
    }
    let denied = kits::ask(primitive, case.kit.as_deref()).is_err();
    let no = leave::course(&decision, false, Person::Absent).err();
    let refusal = no.map(|no| no.refusal(&decision));
    let (verdict, reason) = judge([revoked, denied, frozen, limited], refusal, over);
    Ok(Answer::of(&Simulation {
        verdict,
        reason,
        policy_ids: decision.rules,
        shadow: decision.shadow,
        user_id: user,
        caps,
    }))
}

/// The verdict, by what comes first: the profile, its kit, the policy, a frozen scope, limits, then
/// caps; `over` says whether a cap is full, and whether a person can let nothing beyond it.
fn judge(
    [revoked, no_kit, frozen, limited]: [bool; 4],
    refusal: Option<Refusal>,
    over: Option<bool>,
) -> (Verdict, Option<String>) {
    let told = |reason: &str| Some(reason.to_owned());
    match (refusal, over) {
        _ if revoked => (Verdict::Deny, told("profile_revoked")),
        _ if no_kit => (Verdict::Deny, told("primitive_disabled_by_kit")),
        (Some(refusal), _) if refusal.reason.as_deref() == Some("policy_denied") => {
            (Verdict::Deny, refusal.reason)
        }
        _ if frozen => (Verdict::Deny, told("scope_frozen")),
        _ if limited => (Verdict::Deny, told("limit_exceeded")),
        (_, Some(true)) => (Verdict::Deny, told("budget_exceeded")),
        (Some(refusal), _) => (Verdict::RequireApproval, refusal.reason),
        (None, Some(false)) => (Verdict::RequireApproval, told("budget_exceeded")),
        (None, None) => (Verdict::Allow, None),
    }
}

/// Whether the operations that take an action are the organization's own: then no user, project or
/// kit is a party to it that nobody named.
fn is_of_organization(primitive: &Primitive, action: &str) -> bool {
    let manifest = &primitive.active().manifest;
    let takes = |operation: &&Operation| operation.action.as_deref() == Some(action);
    let mut classes = manifest.operations.iter().filter(takes).map(|it| Class::of(manifest, it));
    classes.clone().next().is_some() && classes.all(Class::is_whole)
}

/// The user that a question is about, and their place: the user that the body names, else the one
/// that the request or the credential names, else the default profile. Body and request name the
/// same one.
async fn find_tenant(
    app: &App,
    request: &HostRequest,
    named: Option<&str>,
) -> Result<(UserId, Place), Refusal> {
    let (place, absent) = (request.place()?, || Refusal::resource_not_found("user_id"));
    let user = match named {
        Some(text) => UserId::parse(text).ok_or_else(absent)?,
        None => place.scope().user_named().unwrap_or(&place.project().default_user).clone(),
    };
    let tenant = app.directory.place_of_user(place, &place.project().id, &user).await;
    let tenant = tenant.map_err(|refusal| match refusal.code {
        Code::NotFound => absent(),
        _ => refusal,
    })?;
    match place.scope().user_named() {
        Some(named) if *named != user => {
            Err(Refusal::invalid("user_id", "must be the user that the request names"))
        }
        _ => Ok((user, tenant)),
    }
}
