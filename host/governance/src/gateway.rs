//! Leave for one regulated action: decided and held in one unit, or refused with nothing taken.
//!
//! The order is the specification's: revocation and standing (the guards), kit, policy, then caps.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use charter_engine::leave::{Deferred, Gateway, Waits};
use charter_engine::{Granted, Leave, Ungranted};
use charter_kernel::audit::AuditRow as Told;
use charter_kernel::governance::gauge::Gauge;
use charter_kernel::governance::hold::{Hold, Pay, State, Subject};
use charter_kernel::governance::leave::{
    self as rules, Asked, Course, Grounds, Person, Spender, Terms,
};
use charter_kernel::governance::policy::{Decision, Grant};
use charter_kernel::id::uuid_v7;
use charter_kernel::kit::Denied;
use charter_kernel::manifest::Access;
use charter_kernel::refusal::Refusal;
use charter_kernel::scope::{ActorKind, Scope};
use charter_kernel::time::Instant;
use charter_kernel::unit::{Fact, Guard, Key, Reach, Refused, Rejection, Row, Write};
use charter_store::{CommitError, PAGE_ROWS_MAX, Query, Txn, audit_fact};
use charter_tenancy::directory::profile_revoked;
use charter_tenancy::records::Record as _;
use charter_tenancy::records::approval::Approval;
use charter_tenancy::records::grant::Given;
use charter_tenancy::records::key::ApiKey;
use charter_tenancy::records::mail::About;
use charter_tenancy::records::member::Member;
use charter_tenancy::stored;
use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::approvals::{self, Job, Origin, Request, Run};
use super::audit;
use super::caps::Case;
use super::decide::count_words;
use crate::{Governance, kits};

/// Attempts while others change what decides, or a period rolls over.
const ATTEMPTS_MAX: u32 = 8;

/// The gateway of one call.
pub struct CallGateway {
    governance: Arc<Governance>,
    origin: Option<Origin>,
}

impl CallGateway {
    /// The gateway of a call that comes from there; nobody decides on one from nowhere.
    pub fn open(governance: &Arc<Governance>, origin: Option<Origin>) -> Arc<dyn Gateway> {
        Arc::new(Self { governance: governance.clone(), origin })
    }
}

impl Gateway for CallGateway {
    fn authorize(&self, leave: Leave) -> BoxFuture<'_, Result<Granted, Ungranted>> {
        Box::pin(authorize(&self.governance, leave, self.origin.as_ref()))
    }

    fn is_repeatable(&self) -> bool {
        self.origin.is_some()
    }
}

/// Decides a proposal and takes its hold.
///
/// An attempt that others came before learns from it: which caps are full, what has changed. It waits
/// for no turn, as the store's own attempts do: the call that asks may have one, and would wait for
/// itself.
async fn authorize(
    governance: &Governance,
    leave: Leave,
    origin: Option<&Origin>,
) -> Result<Granted, Ungranted> {
    let mut full = BTreeSet::new();
    for attempt in 1.. {
        match try_once(governance, &leave, origin, &mut full).await {
            Ok(granted) => return Ok(granted),
            Err(Blocked::Refused(refusal)) => return Err(refusal.to_failure().into()),
            Err(Blocked::Pending(approval)) => return Err(Ungranted::Pending { approval }),
            // A soft cap is full: a person may let it through, beyond that cap and no other. Or a
            // grant is, and stands in for nothing any more.
            Err(Blocked::Full(meter)) if attempt < ATTEMPTS_MAX => {
                full.insert(meter);
            }
            Err(Blocked::Full(_)) => break,
            Err(Blocked::Uncommitted(error)) => {
                let again = match &error {
                    CommitError::Rejected(Rejection::Conflict { keys }) => {
                        let is_its = |waiting: &Arc<dyn Waits>| waiting.conflicts_on(keys);
                        !is_callers(&leave.guards, keys)
                            && !leave.waiting.as_ref().is_some_and(is_its)
                    }
                    CommitError::Rejected(Rejection::Refused(
                        Refused::Moved { .. } | Refused::Missing { .. } | Refused::Stale { .. },
                    )) => true,
                    // The credential of what the host does later, or its person: asked anew, it is
                    // told.
                    CommitError::Rejected(Rejection::Refused(Refused::Inactive {
                        key, ..
                    })) => {
                        [ApiKey::space(), Member::space()].contains(&key.space) && is_later(&leave)
                    }
                    _ => false,
                };
                if !again || attempt >= ATTEMPTS_MAX {
                    return Err(Ungranted::Uncommitted(error));
                }
                // Another replica may have written what decides.
                governance
                    .store
                    .refresh_epoch()
                    .await
                    .map_err(|error| Ungranted::from(stored::reading(error).to_failure()))?;
            }
        }
    }
    Err(Refusal::overloaded(1).to_failure().into())
}

/// The reason why leave was not given.
enum Blocked {
    Refused(Refusal),
    Pending(String),
    Full(Key),
    Uncommitted(CommitError),
}

impl From<Refusal> for Blocked {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// Whether the host does now what somebody has asked for before.
fn is_later(leave: &Leave) -> bool {
    leave.scope.actor().kind == ActorKind::System
}

/// Whether a conflict is about what the request itself was admitted under: then it begins from the
/// top.
fn is_callers(guards: &[Guard], keys: &[Key]) -> bool {
    guards.iter().any(|guard| guard.conflicts_on(keys))
}

/// The origin of a request for leave: a call that can be made again, one that is, or a job.
struct Source<'a> {
    request: Option<Cow<'a, Request>>,
    approved: Option<&'a Arc<Run>>,
    job: Option<&'a Job>,
}

impl<'a> Source<'a> {
    fn of(origin: Option<&'a Origin>, leave: &Leave) -> Self {
        let nowhere = Self { request: None, approved: None, job: None };
        match origin {
            Some(Origin::Request(made)) => {
                Self { request: Some(Cow::Borrowed(&**made)), ..nowhere }
            }
            Some(Origin::Approved(run)) => {
                let approved = Some(run).filter(|run| run.approval.ordinal == leave.ordinal);
                Self { approved, ..nowhere }
            }
            Some(Origin::Job(job)) => {
                let request = Some(Cow::Owned(job.request(&leave.scope)));
                Self { request, job: Some(job), ..nowhere }
            }
            None => nowhere,
        }
    }

    /// The person who can say yes; of those who have, the ones whose words count still, as long as
    /// these conditions hold.
    async fn person(&self, governance: &Governance) -> Result<(Person, Vec<Guard>), Refusal> {
        let person = match (self.approved, &self.request) {
            (Some(run), _) => {
                let mut txn = governance.store.begin("");
                let Approval { organization, decisions, .. } = &run.approval;
                let people = count_words(&mut txn, organization, decisions).await?;
                let person = Person::Approved(u8::try_from(people).unwrap_or(u8::MAX));
                return Ok((person, txn.into_unit().guards));
            }
            (None, Some(_)) => Person::Reachable,
            (None, None) => Person::Absent,
        };
        Ok((person, Vec::new()))
    }
}

/// One attempt. `full` are meters that an attempt before has found full, where there is a way
/// beyond: a soft cap, or a grant's own.
async fn try_once(
    governance: &Governance,
    leave: &Leave,
    origin: Option<&Origin>,
    full: &mut BTreeSet<Key>,
) -> Result<Granted, Blocked> {
    let from = Source::of(origin, leave);
    if from.approved.is_some_and(|run| !run.covers(leave)) {
        let told = "The approved request proposes something else than what was approved.";
        return Err(Refusal::state_conflict("proposal_changed", told).into());
    }
    let now = governance.clock.now();
    let reported = leave.proposal.reported;
    let case = case_of(governance, &leave.scope, reported).await?;
    if !reported && case.user.as_ref().is_some_and(|user| !user.active) {
        // A provider's news arrives all the same, and may ask.
        return Err(profile_revoked().into());
    }
    let credential = if reported { Vec::new() } else { may_act(governance, leave, &case).await? };
    let id = uuid_v7(now, stored::random()?);
    let terms = terms(leave, &case, now);
    let zone = case.zone()?;
    let grounds = case.grounds(&terms.subject, &zone, now);
    let asked = terms.to_asked();
    if !reported && let Err(denied) = ask_kit(governance, leave, &case) {
        // As it does where the kit has switched the primitive off.
        let decision = grounds.decide(&asked, &[], full);
        let hold = terms.hold(decision, Course::Taken, Vec::new());
        return Err(refuse(governance, leave, &hold, denied.into()).await);
    }
    let own = match from.approved {
        Some(run) if !full.is_empty() => run.unused_hold(&governance.store.begin("")).await?,
        _ => None,
    };
    // Only what was found full once has the others looked at.
    let ahead = (!full.is_empty()).then_some(Ahead { now, own: own.as_ref() });
    let (person, counted) = from.person(governance).await?;
    let (decision, used) = match reported {
        // It has happened: the rules that would have spoken are noted, and no grant is used up.
        true => (grounds.decide(&asked, &[], full), None),
        false => {
            decide_with_grants(governance, &case, (&grounds, &asked, person), full, ahead).await?
        }
    };
    let full = &*full;
    let beyond = rules::beyond(full);
    let course = match rules::course(&decision, !beyond.is_empty(), person) {
        _ if reported => Course::Taken,
        Ok(course) => course,
        Err(no) => {
            let refusal = no.refusal(&decision);
            let hold = terms.hold(decision, Course::Taken, Vec::new());
            return Err(refuse(governance, leave, &hold, refusal).await);
        }
    };
    if course == Course::Pending {
        approvals::check_room(governance, &leave.scope).await?;
    }
    let mut txn = governance.store.begin(leave.scope.lane());
    let decides = if reported { case.guards_of_scopes() } else { case.guards() };
    let guards = leave.guards.iter().chain(&credential).cloned().chain(counted).chain(decides);
    guards.for_each(|guard| txn.guard(guard));
    let gauges = read_gauges(governance, &mut txn, leave, (&case, used), now).await?;
    let spends = Spender::of(&leave.scope).may_spend(terms.pay.as_ref(), &gauges);
    let charges = rules::charges(&gauges, leave.proposal.amount, &beyond);
    let hold = terms.hold(decision, course, charges);
    if let Err(no) = spends
        && !reported
    {
        let refusal = no.refusal(&hold.decision);
        return Err(refuse(governance, leave, &hold, refusal).await);
    }
    let (guards, writes) = rules::prepare(&hold, &gauges);
    txn.step(guards, writes);
    if let Some(run) = from.approved {
        // In the period that counts now.
        run.take_anew(&mut txn, &id, now).await?;
    }
    let taking = Taking { id, hold, gauges, full };
    if course == Course::Pending {
        return Err(pending(governance, leave, txn, taking, &from).await);
    }
    txn.fact(fact(leave, &taking.hold, Some(taking.id.as_str()), None)?);
    if leave.defers && from.approved.is_none() {
        let Taking { id, hold, .. } = taking;
        let facts = vec![fact(leave, &hold, None, None)?];
        let untaken = Some(Deferred { unit: txn.into_unit(), facts });
        return Ok(Granted { id, hold, conditions: credential, untaken });
    }
    taking.hold.take(&taking.id).into_iter().for_each(|write| txn.write(write));
    match txn.commit().await {
        Ok(_) => {
            let Taking { id, hold, .. } = taking;
            Ok(Granted { id, hold, conditions: credential, untaken: None })
        }
        Err(error) => Err(taking.reason_not_taken(governance, leave, error).await),
    }
}

/// Whether the caller has the power to take regulated actions at all, whatever the operation asks
/// for itself; answers the conditions that must hold of the credential as long as the leave is used.
/// Of a request that is under way the caller has asked, and guards it; what the host does later is
/// asked anew.
async fn may_act(
    governance: &Governance,
    leave: &Leave,
    case: &Case,
) -> Result<Vec<Guard>, Refusal> {
    let principal = leave.scope.principal();
    let (role, guards) = match is_later(leave) {
        true => {
            let left = governance.directory.cut(principal, &case.organization.id).await?;
            (left.principal.role, left.guards)
        }
        false => (principal.role, Vec::new()),
    };
    if role.is_some_and(|role| !role.allows(Access::Write)) {
        return Err(Refusal::forbidden(
            "role_insufficient",
            "A regulated action takes the role developer, admin or owner.",
        ));
    }
    Ok(guards)
}

/// Asks the kit. Neither what is the organization's own nor what comes after the end of a user has
/// one.
fn ask_kit(governance: &Governance, leave: &Leave, case: &Case) -> Result<(), Denied> {
    match case.project.is_some() && !case.gone {
        true => kits::admit(&governance.registry.current(), &leave.primitive, case.kit.as_deref()),
        false => Ok(()),
    }
}

/// The terms of the hold.
fn terms(leave: &Leave, case: &Case, now: Instant) -> Terms {
    let (proposal, actor) = (&leave.proposal, leave.scope.actor());
    let pay = proposal.pay.clone();
    let subject = case.subject((actor.kind.as_str().to_owned(), actor.id.clone()));
    Terms {
        primitive: leave.primitive.clone(),
        action: proposal.action.clone(),
        entity: proposal.entity.clone(),
        component: proposal.component.clone(),
        title: proposal.title.clone(),
        spends: proposal.spends,
        amount: proposal.amount,
        capturable: proposal.capturable,
        reported: proposal.reported,
        pay: pay.map(|(from, to)| Pay { from, to, memo: proposal.title.clone() }),
        subject: Subject { root: leave.scope.principal().root.clone(), ..subject },
        request: leave.request.clone(),
        ordinal: leave.ordinal,
        at: now,
        until: leave.until,
    }
}

/// A look at the meters of grants, ahead of the committer's.
#[derive(Clone, Copy)]
struct Ahead<'a> {
    now: Instant,
    /// The hold of the approved request itself, which it gives up in the unit that takes another.
    own: Option<&'a Hold>,
}

impl Ahead<'_> {
    fn leave_out_own(self, mut gauge: Gauge) -> Gauge {
        let own = self.own.iter().flat_map(|hold| &hold.charges);
        let own = own.filter(|charge| charge.meter == gauge.cap.meter).map(|charge| charge.amount);
        gauge.count.reserved = gauge.count.reserved.saturating_sub(own.sum());
        gauge
    }
}

/// The word of the policy, and the grant that stands in for what it lacks, with the guard that
/// requires it to stand still. Grants are read only where one is needed: not where people have
/// approved what the policy asks people about. Looking ahead, those whose meters would be found full
/// are told first: `full` has these then.
async fn decide_with_grants(
    governance: &Governance,
    case: &Case,
    (grounds, asked, person): (&Grounds<'_>, &Asked<'_>, Person),
    full: &mut BTreeSet<Key>,
    ahead: Option<Ahead<'_>>,
) -> Result<(Decision, Option<(Grant, Guard)>), Refusal> {
    let decision = grounds.decide(asked, &[], full);
    if rules::course(&decision, false, person) == Ok(Course::Taken) {
        return Ok((decision, None));
    }
    let given = grants(governance, case).await?;
    let all: Vec<Grant> = given.iter().map(|(grant, _)| grant.clone()).collect();
    let txn = governance.store.begin("");
    loop {
        let decision = grounds.decide(asked, &all, full);
        let used = given.iter().find(|(grant, _)| decision.grant.as_ref() == Some(&grant.id));
        if let (Some(ahead), Some((grant, _))) = (ahead, used) {
            let gauges = case.grant(governance, &txn, grant, ahead.now).await?;
            let amount = asked.amount.unwrap_or(0);
            let lacks = |gauge: Gauge| {
                let gauge = ahead.leave_out_own(gauge);
                !gauge.admits(amount) && full.insert(gauge.cap.meter)
            };
            if gauges.into_iter().any(lacks) {
                continue;
            }
        }
        return Ok((decision, used.cloned()));
    }
}

/// The word of the policy that an action would get now. A grant that the committer would find full
/// stands in for nothing, as it does where leave is asked for.
///
/// # Errors
/// When the store cannot be asked.
pub async fn foresee(
    governance: &Governance,
    case: &Case,
    asked: &Asked<'_>,
    now: Instant,
) -> Result<Decision, Refusal> {
    let (subject, zone) = (case.subject(Default::default()), case.zone()?);
    let grounds = case.grounds(&subject, &zone, now);
    let mut full = BTreeSet::new();
    let decided = decide_with_grants(
        governance,
        case,
        (&grounds, asked, Person::Absent),
        &mut full,
        Some(Ahead { now, own: None }),
    )
    .await;
    decided.map(|(decision, _)| decision)
}

/// The meters that the action counts at: of the grant that stands in, of limits and of money.
async fn read_gauges(
    governance: &Governance,
    txn: &mut Txn,
    leave: &Leave,
    (case, used): (&Case, Option<(Grant, Guard)>),
    now: Instant,
) -> Result<Vec<Gauge>, Refusal> {
    let mut gauges = Vec::new();
    if let Some((grant, guard)) = used {
        txn.guard(guard);
        gauges.extend(case.grant(governance, txn, &grant, now).await?);
    }
    // Limits first: the narrowest scope of money, which an over-capture freezes, is the last.
    let proposal = &leave.proposal;
    gauges.extend(case.limits(governance, txn, &proposal.action, now).await?);
    if proposal.spends {
        let own = &proposal.scopes;
        gauges.extend(case.gauges(governance, txn, &leave.primitive, own, now).await?);
    }
    Ok(gauges)
}

/// Has the action wait for a person: its funds are held, who decides is asked, and the request's key
/// is answered so, in one commit.
async fn pending(
    governance: &Governance,
    leave: &Leave,
    mut txn: Txn,
    mut taking: Taking<'_>,
    from: &Source<'_>,
) -> Blocked {
    match wait(governance, leave, &mut txn, &mut taking, from).await {
        Err(refusal) => refusal.into(),
        Ok(approval) => match txn.commit().await {
            Ok(_) => Blocked::Pending(approval),
            Err(error) => taking.reason_not_taken(governance, leave, error).await,
        },
    }
}

/// Adds what an action that waits leaves behind; answers the approval.
async fn wait(
    governance: &Governance,
    leave: &Leave,
    txn: &mut Txn,
    taking: &mut Taking<'_>,
    from: &Source<'_>,
) -> Result<String, Refusal> {
    let request = from.request.as_ref().ok_or_else(Refusal::internal)?;
    let (hold, id) = (&mut taking.hold, &taking.id);
    let asked = approvals::new_approval(governance, leave, hold, id, request).await?;
    if let Some(job) = from.job {
        job.park(txn, &asked.id)?;
    }
    hold.until = asked.expires_at;
    let draft = asked.due(asked.expires_at).map_err(stored::unreadable)?;
    if let Some(waiting) = &leave.waiting {
        waiting
            .note(txn, &asked.id, &draft.body)
            .await
            .map_err(|error| stored::commit_refusal(&error))?;
    }
    txn.write(Write::Insert { key: asked.key(), draft });
    let about = About::Approval {
        organization: asked.organization.to_string(),
        approval: asked.id.clone(),
    };
    governance.notices.notice(about, hold.at)?.into_iter().for_each(|write| txn.write(write));
    txn.fact(fact(leave, hold, Some(id.as_str()), None)?);
    hold.take(id).into_iter().for_each(|write| txn.write(write));
    Ok(asked.id)
}

/// A hold that is about to be taken.
struct Taking<'a> {
    id: String,
    hold: Hold,
    gauges: Vec<Gauge>,
    full: &'a BTreeSet<Key>,
}

impl Taking<'_> {
    /// The reason why a commit took nothing.
    async fn reason_not_taken(
        &self,
        governance: &Governance,
        leave: &Leave,
        error: CommitError,
    ) -> Blocked {
        let CommitError::Rejected(Rejection::Refused(refused)) = error else {
            return Blocked::Uncommitted(error);
        };
        if let Refused::OverCap { meter, .. } = &refused {
            let way = |gauge: &Gauge| gauge.cap.meter == *meter && gauge.gives_way();
            if !self.full.contains(meter) && self.gauges.iter().any(way) {
                return Blocked::Full(meter.clone());
            }
        }
        let caller = leave.scope.principal();
        match rules::refusal(&refused, &self.hold, &self.gauges, caller) {
            Some(refusal) => refuse(governance, leave, &self.hold, refusal).await,
            None => Blocked::Uncommitted(CommitError::Rejected(Rejection::Refused(refused))),
        }
    }
}

/// The subject of a scope, with what the organization has set for it.
///
/// # Errors
/// If the scope has no organization: a regulated action is always somebody's. 404 where its user is
/// gone: a request that has outlived them does nothing more for them. The host alone does, where it
/// tells a primitive of their end.
pub async fn case(governance: &Governance, scope: &Scope) -> Result<Case, Refusal> {
    case_of(governance, scope, false).await
}

/// The same, also of a user who is gone where the action is `reported`: it has happened.
async fn case_of(governance: &Governance, scope: &Scope, reported: bool) -> Result<Case, Refusal> {
    let absent = || {
        Refusal::forbidden("no_tenant", "A regulated action is taken on behalf of an organization.")
    };
    let party = governance.directory.party_again(scope).await?;
    let organization = party.organization().cloned().ok_or_else(absent)?;
    let is_gone = scope.user().is_some() && party.user().is_none();
    if is_gone && !reported && scope.actor().kind != ActorKind::System {
        return Err(Refusal::not_found());
    }
    Ok(Case {
        organization,
        project: party.project().cloned(),
        user: party.user().cloned(),
        kit: party.kit().cloned(),
        gone: is_gone,
    })
}

/// The grants of the user, each with what requires that it still stands.
///
/// # Errors
/// When the store cannot be asked.
pub async fn grants(governance: &Governance, case: &Case) -> Result<Vec<(Grant, Guard)>, Refusal> {
    let Some(user) = &case.user else { return Ok(Vec::new()) };
    let reach = Reach::organization(case.organization.id.as_str());
    let query = Query::all(&reach, &Given::space())
        .equal("user", user.id.as_str())
        .limit(PAGE_ROWS_MAX)
        .relax();
    let found = governance.store.find(&query).await.map_err(stored::reading)?;
    let read = |(key, row): &(Key, Row)| {
        let given = Given::read(row).map_err(stored::unreadable)?;
        Ok((given.grant, Guard::Unchanged { key: key.clone(), version: row.version }))
    };
    found.items.iter().map(read).collect()
}

/// The row of the audit log: what was asked, by which rules it was decided, and how. It names the
/// hold that is taken in the same unit, and none where none is.
fn fact(
    leave: &Leave,
    hold: &Hold,
    hold_id: Option<&str>,
    refused: Option<&Refusal>,
) -> Result<Fact, Refusal> {
    let details = json!({
        "hold_id": hold_id,
        "verdict": hold.decision,
        "scopes": hold.charges.iter().map(|charge| json!({
            "scope": charge.scope, "window": charge.slot, "amount": charge.amount,
        })).collect::<Vec<Value>>(),
    });
    let row = Told {
        organization: &hold.subject.organization,
        at: hold.at,
        actor: (&hold.subject.actor.0, &hold.subject.actor.1),
        account: hold.subject.root.as_deref(),
        on_behalf_of: hold.subject.user.as_deref(),
        project: hold.subject.project.as_deref(),
        primitive: Some(&hold.primitive),
        action: &hold.action,
        entity_type: Some(&hold.primitive),
        entity_id: Some(&hold.entity),
        decision: match (refused, hold.state) {
            (Some(_), _) => "denied",
            (None, State::Pending) => "pending_approval",
            (None, _) => "allowed",
        },
        code: refused.map(|refusal| refusal.code.own_name()),
        reason: match refused {
            Some(refusal) => refusal.reason.as_deref(),
            None => hold.reported.then_some("provider_reported"),
        },
        request: &leave.request,
        amount: hold.amount,
        rules: &hold.decision.rules,
        details: Some(&details),
        ..Told::default()
    };
    audit_fact(&row).map_err(stored::no_randomness)
}

/// A refusal is a row too, in a unit of its own: nothing else was done. It is not told without it.
async fn refuse(governance: &Governance, leave: &Leave, hold: &Hold, refusal: Refusal) -> Blocked {
    let written = async {
        let fact = fact(leave, hold, None, Some(&refusal))?;
        audit::commit_alone(&governance.store, leave.scope.lane(), fact).await
    };
    written.await.map_or_else(Blocked::Refused, |()| Blocked::Refused(refusal))
}
