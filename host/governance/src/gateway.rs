//! Leave for one regulated action: decided and held in one unit, or refused with nothing taken.
//!
//! The order is the specification's: revocation and standing (the guards), kit (passed by the
//! pipeline), policy, then caps.

use std::borrow::Cow;
use std::collections::BTreeSet;

use charter_engine::{Granted, Leave, Ungranted};
use charter_kernel::audit::Row as Told;
use charter_kernel::governance::hold::{Charge, Counted, Hold, Pay, State};
use charter_kernel::governance::meter::Admission;
use charter_kernel::governance::policy::{Amount, Ask, Decision, Grant, Verdict};
use charter_kernel::id::uuid_v7;
use charter_kernel::ledger::Account;
use charter_kernel::refusal::{Code, Refusal};
use charter_kernel::scope::Scope;
use charter_kernel::time::{Instant, Zone};
use charter_kernel::unit::{Fact, Guard, Key, Reach, Refused, Rejection, Row, Write};
use charter_store::{CommitError, PAGE_ROWS_MAX, Query, audited};
use charter_tenancy::directory::profile_revoked;
use charter_tenancy::records::Record as _;
use charter_tenancy::records::grant::Given;
use charter_tenancy::records::mail::About;
use charter_tenancy::stored;
use serde_json::{Value, json};

use super::approvals::{self, Origin};
use super::caps::{Case, Standing, grant_meter};
use crate::Governance;

/// Attempts while others change what decides, or a period rolls over.
const ATTEMPTS_MAX: u32 = 8;

/// Decides a proposal and takes its hold.
pub async fn authorize(governance: &Governance, leave: Leave) -> Result<Granted, Ungranted> {
    let mut full = BTreeSet::new();
    for attempt in 1.. {
        match once(governance, &leave, &full).await {
            Ok(granted) => return Ok(granted),
            Err(Turn::Refused(refusal)) => return Err(refusal.to_failure().into()),
            Err(Turn::Pending(approval)) => return Err(Ungranted::Pending { approval }),
            // A soft cap is full: a person may let it through, beyond that cap and no other. Or a
            // grant is, and stands in for nothing any more.
            Err(Turn::Full(meter)) if attempt < ATTEMPTS_MAX => {
                full.insert(meter);
            }
            Err(Turn::Full(_)) => break,
            Err(Turn::Uncommitted(error)) => {
                let again = match &error {
                    CommitError::Rejected(Rejection::Conflict { keys }) => {
                        !is_callers(&leave.guards, keys)
                    }
                    CommitError::Rejected(Rejection::Refused(
                        Refused::Moved { .. } | Refused::Missing { .. },
                    )) => true,
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

enum Turn {
    Refused(Refusal),
    Pending(String),
    Full(Key),
    Uncommitted(CommitError),
}

impl From<Refusal> for Turn {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// Whether a conflict is about what the request itself was admitted under: then it begins from the
/// top.
fn is_callers(guards: &[Guard], keys: &[Key]) -> bool {
    guards.iter().any(|guard| matches!(guard, Guard::Unchanged { key, .. } if keys.contains(key)))
}

/// One attempt. `full` are meters that an attempt before has found full, where there is a way
/// beyond: a soft cap, or a grant's own.
async fn once(
    governance: &Governance,
    leave: &Leave,
    full: &BTreeSet<Key>,
) -> Result<Granted, Turn> {
    let (mut request, mut approved, mut job) = (None, None, None);
    match approvals::origin(leave) {
        Some(Origin::Request(made)) => request = Some(Cow::Borrowed(&**made)),
        Some(Origin::Approved(run)) => {
            approved = Some(run).filter(|run| run.approval.ordinal == leave.ordinal)
        }
        Some(Origin::Job(run)) => {
            (request, job) = (Some(Cow::Owned(run.request(&leave.scope))), Some(run))
        }
        None => {}
    }
    if approved.is_some_and(|run| !run.covers(leave)) {
        let told = "The approved request proposes something else than what was approved.";
        return Err(Refusal::state_conflict("proposal_changed", told).into());
    }
    let now = governance.clock.now();
    let case = case(governance, &leave.scope).await?;
    if case.user.as_ref().is_some_and(|user| !user.active) {
        // What a provider tells of arrives all the same, and may ask.
        return Err(profile_revoked().into());
    }
    let proposal = &leave.proposal;
    let actor = leave.scope.actor();
    let subject = case.subject((actor.kind.as_str().to_owned(), actor.id.clone()));
    let asked_for = amount(proposal.spends, proposal.amount);
    let mut decision = decide(&case, &proposal.action, asked_for, &proposal.entity, &[], now)?;
    let mut used = None;
    if decision.verdict != Verdict::Allow {
        // What is used up stands in for nothing.
        let grants = grants(governance, &case).await?;
        let left = grants.iter().filter(|(grant, _)| {
            ["count", "amount"].iter().all(|kind| !full.contains(&grant_meter(grant, kind)))
        });
        let left: Vec<Grant> = left.map(|(grant, _)| grant.clone()).collect();
        decision = decide(&case, &proposal.action, asked_for, &proposal.entity, &left, now)?;
        used = grants.into_iter().find(|(grant, _)| decision.grant.as_ref() == Some(&grant.id));
    }
    let beyond: BTreeSet<&Key> =
        full.iter().filter(|meter| !meter.id.starts_with("grant:")).collect();
    let mut hold = Hold {
        state: State::Held,
        primitive: leave.primitive.clone(),
        action: proposal.action.clone(),
        entity: proposal.entity.clone(),
        component: proposal.component.clone(),
        title: proposal.title.clone(),
        amount: proposal.amount.filter(|_| proposal.spends || proposal.pay.is_some()),
        charges: Vec::new(),
        pay: proposal.pay.clone().map(|(from, to)| Pay { from, to, memo: proposal.title.clone() }),
        decision,
        subject,
        request: leave.request.clone(),
        ordinal: leave.ordinal,
        at: now,
        until: leave.until,
        kept: false,
        settler: None,
        actual: None,
        ended_at: None,
    };
    let id = uuid_v7(now, stored::random()?);
    // Decided already, or somebody can be asked: what a policy denies is denied either way.
    let asks = hold.decision.verdict == Verdict::RequireApproval || !beyond.is_empty();
    let waits = asks && approved.is_none() && request.is_some();
    let refusal = match forbidden(&hold.decision) {
        Some(_) if hold.decision.verdict != Verdict::Deny && (approved.is_some() || waits) => None,
        None if asks && approved.is_none() && !waits => Some(over_soft()),
        refusal => refusal,
    };
    if let Some(refusal) = refusal {
        tell(governance, leave, &hold, &id, Some(&refusal)).await;
        return Err(refusal.into());
    }
    let mut txn = governance.store.begin(leave.scope.lane());
    leave.guards.iter().cloned().chain(case.guards()).for_each(|guard| txn.guard(guard));
    let mut standings = Vec::new();
    if let Some((grant, guard)) = &used {
        txn.guard(guard.clone());
        standings.extend(case.grant(governance, &txn, grant, now).await?);
    }
    // Limits first: the narrowest scope of money, which an over-capture freezes, is the last.
    standings.extend(case.limits(governance, &txn, &proposal.action, now).await?);
    if proposal.spends {
        standings.extend(
            case.standings(governance, &txn, &leave.primitive, &proposal.scopes, now).await?,
        );
    }
    hold.charges = standings
        .iter()
        .map(|standing| charge(standing, proposal.amount.unwrap_or(0), &beyond))
        .collect();
    for standing in &standings {
        standing.open(&mut txn).await?;
        if let Some(guard) = &standing.guard {
            txn.guard(guard.clone());
        }
    }
    if let Some(pay) = &hold.pay {
        // What the guest opens is opened with its own commit, and the hold is taken before that.
        [&pay.from, &pay.to].into_iter().for_each(|key| txn.write(Account::credit().opened(key)));
    }
    if let Some(run) = approved {
        // In one unit: what waited is given up, and taken anew in the period that counts now.
        approvals::release(&mut txn, &run.approval, now).await?;
    }
    let mut approval = None;
    if waits && let Some(request) = request {
        hold.state = State::Pending;
        let asked = approvals::asked(governance, leave, &hold, &id, &request).await?;
        if let Some(job) = job {
            job.park(&mut txn, &asked.id)?;
        }
        hold.until = asked.expires_at;
        let draft = asked.due(asked.expires_at).map_err(stored::unreadable)?;
        txn.write(Write::Insert { key: asked.key(), draft });
        let about = About::Approval {
            organization: asked.organization.to_string(),
            approval: asked.id.clone(),
        };
        governance.notices.notice(about, now)?.into_iter().for_each(|write| txn.write(write));
        approval = Some(asked.id);
    }
    txn.fact(fact(leave, &hold, &id, None)?);
    if leave.defers && !waits && approved.is_none() {
        return Ok(Granted { id, hold, untaken: Some(txn.into_unit()) });
    }
    for write in hold.taken(&id) {
        txn.write(write);
    }
    match txn.commit().await {
        Ok(_) => match approval {
            Some(approval) => {
                governance.notices.wake();
                Err(Turn::Pending(approval))
            }
            None => Ok(Granted { id, hold, untaken: None }),
        },
        Err(CommitError::Rejected(Rejection::Refused(Refused::OverCap { meter, .. })))
            if !full.contains(&meter)
                && standings
                    .iter()
                    .any(|standing| standing.meter == meter && standing.gives_way()) =>
        {
            Err(Turn::Full(meter))
        }
        Err(CommitError::Rejected(Rejection::Refused(refused))) => {
            match worded(&refused, &hold, &standings) {
                Some(refusal) => {
                    tell(governance, leave, &hold, &id, Some(&refusal)).await;
                    Err(refusal.into())
                }
                None => Err(Turn::Uncommitted(CommitError::Rejected(Rejection::Refused(refused)))),
            }
        }
        Err(error) => Err(Turn::Uncommitted(error)),
    }
}

/// Who is asked for, with what the organization has set for them.
///
/// # Errors
/// Where nobody is: a regulated action is always somebody's.
pub async fn case(governance: &Governance, scope: &Scope) -> Result<Case, Refusal> {
    let absent = || {
        Refusal::forbidden("no_tenant", "A regulated action is taken on behalf of an organization.")
    };
    let unread = |_| Refusal::overloaded(1);
    let organization = scope.organization().ok_or_else(absent)?;
    let organization = governance
        .directory
        .organization(organization)
        .await
        .map_err(unread)?
        .ok_or_else(absent)?;
    let project = match scope.project() {
        Some(id) => governance.directory.project(&organization.id, id).await.map_err(unread)?,
        None => None,
    };
    let user = match (&project, scope.user()) {
        (Some(project), Some(id)) => {
            governance.directory.user(&project.id, id).await.map_err(unread)?
        }
        _ => None,
    };
    let kit = match &project {
        Some(project) => {
            let assigned = user.as_ref().and_then(|user| user.kit.as_ref());
            governance.directory.kit(project, assigned).await.map_err(unread)?
        }
        None => None,
    };
    Ok(Case { organization, project, user, kit })
}

/// What the organization's policy says.
///
/// # Errors
/// Where its time zone cannot be read.
pub fn decide(
    case: &Case,
    action: &str,
    amount: Amount,
    entity: &str,
    grants: &[Grant],
    now: Instant,
) -> Result<Decision, Refusal> {
    let zone = Zone::named(&case.organization.time_zone).ok_or_else(Refusal::internal)?;
    let ask = Ask {
        action,
        amount,
        entity,
        user: case.user.as_ref().map(|user| user.id.as_str()),
        kit: case.kit.as_ref().map(|kit| kit.id.as_str()),
        project: case.project.as_ref().map(|project| project.id.as_str()),
        at: now,
        zone: &zone,
    };
    Ok(case.organization.policy.decide(&ask, grants))
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
        .relaxed();
    let found = governance.store.find(&query).await.map_err(stored::reading)?;
    let read = |(key, row): &(Key, Row)| {
        let given = Given::read(row).map_err(stored::unreadable)?;
        Ok((given.grant, Guard::Unchanged { key: key.clone(), version: row.version }))
    };
    found.items.iter().map(read).collect()
}

/// How much an action is about, as rules see it.
pub fn amount(spends: bool, amount: Option<i64>) -> Amount {
    match amount {
        Some(amount) => Amount::Of(amount),
        None if spends => Amount::Unbounded,
        None => Amount::None,
    }
}

/// An excess over a soft cap, where nobody can be asked.
fn over_soft() -> Refusal {
    Refusal::new(
        Code::BudgetExceeded,
        "The amount exceeds what is left of the budget, and nobody can be asked.",
    )
}

fn charge(standing: &Standing, amount: i64, beyond: &BTreeSet<&Key>) -> Charge {
    let admission = match beyond.contains(&standing.meter) {
        true => Admission::Beyond,
        false => Admission::Within(standing.cap.unwrap_or(i64::MAX)),
    };
    Charge {
        scope: standing.scope.clone(),
        meter: standing.meter.clone(),
        slot: standing.window.slot.clone(),
        amount: if standing.unit == Counted::Times { 1 } else { amount },
        admission,
        unit: standing.unit,
    }
}

/// What a policy's no says. What would take a person is refused as long as nobody can be asked.
pub fn forbidden(decision: &Decision) -> Option<Refusal> {
    let refusal = match decision.verdict {
        Verdict::Allow => return None,
        Verdict::Deny => Refusal::forbidden(
            "policy_denied",
            "The organization's policy does not allow this action.",
        ),
        Verdict::RequireApproval => Refusal::forbidden(
            "approval_required",
            "The organization's policy asks for a person's approval of this action.",
        ),
    };
    Some(refusal.detail("policy_ids", decision.rules.clone()))
}

/// What a rule of the committer says of a hold that was not taken; `None` where it is to be asked
/// again.
fn worded(refused: &Refused, hold: &Hold, standings: &[Standing]) -> Option<Refusal> {
    match refused {
        Refused::OverCap { meter, count, cap } => {
            let standing = standings.iter().find(|standing| standing.meter == *meter)?;
            if let Some(limit) = standing.scope.strip_prefix("limit:") {
                let refusal = Refusal::forbidden(
                    "limit_exceeded",
                    "The organization's limit on this action is reached.",
                );
                let refusal = refusal
                    .detail("limit_id", limit)
                    .detail("max", *cap)
                    .detail("used", count.spent + count.reserved);
                return Some(
                    refusal.detail("resets_at", standing.window.ends.map(|at| at.to_string())),
                );
            }
            let refusal = Refusal::new(
                Code::BudgetExceeded,
                "The amount exceeds what is left of the budget.",
            );
            Some(
                refusal
                    .detail("scope", standing.scope.clone())
                    .detail("cap_micro_usd", *cap)
                    .detail("spent_micro_usd", count.spent)
                    .detail("reserved_micro_usd", count.reserved)
                    .detail("resets_at", standing.window.ends.map(|at| at.to_string())),
            )
        }
        Refused::Frozen { key } => {
            let scope = standings
                .iter()
                .find(|standing| standing.meter == *key)
                .map(|standing| standing.scope.clone());
            Some(match scope {
                Some(scope) => {
                    let told = "More was spent than was held, and nothing more is admitted until a person has looked.";
                    Refusal::forbidden("scope_frozen", told).detail("scope", scope)
                }
                None => Refusal::state_conflict("account_frozen", "The account is frozen."),
            })
        }
        Refused::Overdrawn { account, available } => {
            let refusal =
                Refusal::new(Code::InsufficientCredits, "The account does not cover the amount.");
            let wanted = hold.amount.unwrap_or(0);
            let refusal = refusal
                .detail("available_micro_usd", *available)
                .detail("amount_micro_usd", wanted);
            Some(refusal.detail("account", account.id.clone()))
        }
        _ => None,
    }
}

/// The row of the audit log: what was asked, by which rules it was decided, and how.
fn fact(leave: &Leave, hold: &Hold, id: &str, refused: Option<&Refusal>) -> Result<Fact, Refusal> {
    let details = json!({
        "hold_id": refused.is_none().then_some(id),
        "verdict": hold.decision,
        "scopes": hold.charges.iter().map(|charge| json!({
            "scope": charge.scope, "window": charge.slot, "amount": charge.amount,
        })).collect::<Vec<Value>>(),
    });
    let row = Told {
        organization: &hold.subject.organization,
        at: hold.at,
        actor: (&hold.subject.actor.0, &hold.subject.actor.1),
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
        reason: refused.and_then(|refusal| refusal.reason.as_deref()),
        request: &leave.request,
        amount: hold.amount,
        rules: &hold.decision.rules,
        details: Some(&details),
        ..Told::default()
    };
    audited(&row).map_err(stored::no_randomness)
}

/// A refusal is a row too, in a unit of its own: nothing else was done.
async fn tell(
    governance: &Governance,
    leave: &Leave,
    hold: &Hold,
    id: &str,
    refused: Option<&Refusal>,
) {
    let Ok(fact) = fact(leave, hold, id, refused) else { return };
    let mut txn = governance.store.begin(leave.scope.lane());
    txn.fact(fact);
    if let Err(error) = txn.commit().await {
        tracing::error!(%error, request = leave.request, "a refused action left no row in the audit log");
    }
}
