//! The money path: whether an action gets leave, what is set aside for it, and the hold behind it.
//!
//! Read it in this order. [`Grounds::decide`]: what the policy says, and which grant stands in for
//! what it lacks. [`course`]: whether the action goes on now, waits for a person, or ends here.
//! [`Spender::may_spend`]: whether the caller may spend the organization's money, and what bounds it.
//! [`charges`]: what it reserves in each scope. [`Terms::hold`] and [`prepare`]: the hold, and what
//! is committed before it. Nothing here reads a row or the time: the caller does, and commits what
//! comes of it in one unit, in which the committer has the last word on each cap.

use std::collections::BTreeSet;

use super::gauge::{Gauge, grant_meter, is_grants};
use super::hold::{CREDIT, Charge, Hold, Pay, State, Subject};
use super::policy::{Amount, Ask, Decision, Grant, Policy, Verdict};
use crate::ledger::Account;
use crate::refusal::{Code, Refusal};
use crate::scope::{Principal, Scope};
use crate::time::{Instant, Zone};
use crate::unit::{Guard, Key, Refused, Write};

/// The action that leave is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// `<primitive>.<verb>`.
    pub action: &'a str,
    /// The thing it is done to.
    pub entity: &'a str,
    /// Whether its amount counts against caps.
    pub spends: bool,
    /// In micro-US-dollars; absent where none is known.
    pub amount: Option<i64>,
}

/// The grounds of a decision.
#[derive(Clone, Copy, Debug)]
pub struct Grounds<'a> {
    /// The organization's policy.
    pub policy: &'a Policy,
    /// The organization's time zone.
    pub zone: &'a Zone,
    /// On whose behalf.
    pub subject: &'a Subject,
    /// When.
    pub at: Instant,
}

/// The person who can say yes where the rules ask for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Person {
    /// So many people have whose words count: this is what they approved, made again.
    Approved(u8),
    /// Somebody can be asked.
    Reachable,
    /// Nobody can.
    Absent,
}

/// How an action goes on that nothing forbids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Course {
    /// Its hold is taken.
    Taken,
    /// Its funds are held while a person decides.
    Pending,
}

/// Why leave is not given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum No {
    /// The policy denies it.
    Denied,
    /// The policy asks for a person, and nobody can be asked.
    ApprovalRequired,
    /// The policy asks for more people than have approved.
    MorePeople,
    /// It exceeds a soft cap, and nobody can be asked.
    OverSoftCap,
    /// A caller that is pinned to a user spends the organization's credit, and no hard cap
    /// bounds it.
    NoCap,
    /// A test project spends the organization's credit.
    LiveCredit,
}

/// The caller, as a spender of the organization's credit.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spender {
    /// Its credential is pinned to a user.
    pub is_pinned: bool,
    /// It acts in a test project.
    pub is_test: bool,
}

/// The terms of a hold, apart from what was decided.
#[derive(Clone, Debug)]
pub struct Terms {
    /// The primitive that acts.
    pub primitive: String,
    /// `<primitive>.<verb>`.
    pub action: String,
    /// The thing it is done to.
    pub entity: String,
    /// The purpose of the money, in spend reports.
    pub component: String,
    /// For the person who decides or looks.
    pub title: String,
    /// Whether its amount counts against caps.
    pub spends: bool,
    /// In micro-US-dollars.
    pub amount: Option<i64>,
    /// The most that may be captured of it.
    pub capturable: i64,
    /// Whether a provider has signed that it happened.
    pub reported: bool,
    /// The accounts that the capture posts between.
    pub pay: Option<Pay>,
    /// On whose behalf.
    pub subject: Subject,
    /// The request that asks.
    pub request: String,
    /// Its place among the request's regulated actions.
    pub ordinal: u32,
    /// When.
    pub at: Instant,
    /// When the hold ends by itself.
    pub until: Instant,
}

impl Asked<'_> {
    /// How much it is about, as rules see it. An action that spends without saying how much is
    /// larger than any amount.
    pub fn to_amount(&self) -> Amount {
        match self.amount {
            Some(amount) => Amount::Of(amount),
            None if self.spends => Amount::Unbounded,
            None => Amount::None,
        }
    }
}

impl Grounds<'_> {
    /// The word of the policy, and the grant that stands in for what it lacks. A grant of which
    /// a meter is `full` is used up, and stands in for nothing.
    pub fn decide(&self, asked: &Asked<'_>, grants: &[Grant], full: &BTreeSet<Key>) -> Decision {
        let is_left = |grant: &&Grant| {
            ["count", "amount"].iter().all(|kind| !full.contains(&grant_meter(grant, kind)))
        };
        let left: Vec<Grant> = grants.iter().filter(is_left).cloned().collect();
        let ask = Ask {
            action: asked.action,
            amount: asked.to_amount(),
            entity: asked.entity,
            user: self.subject.user.as_deref(),
            kit: self.subject.kit.as_deref(),
            project: self.subject.project.as_deref(),
            at: self.at,
            zone: self.zone,
        };
        self.policy.decide(&ask, &left)
    }
}

/// The scopes, of those found full, that the action goes beyond if a person lets it: soft caps.
pub fn beyond(full: &BTreeSet<Key>) -> BTreeSet<&Key> {
    full.iter().filter(|meter| !is_grants(meter)).collect()
}

/// How an action goes on. It takes a person's word where the policy says so, and where it goes
/// beyond a soft cap.
///
/// # Errors
/// [`No`], where it does not.
pub fn course(decision: &Decision, is_beyond: bool, person: Person) -> Result<Course, No> {
    let no = match decision.verdict {
        Verdict::Deny => return Err(No::Denied),
        Verdict::Allow if !is_beyond => return Ok(Course::Taken),
        Verdict::Allow => No::OverSoftCap,
        Verdict::RequireApproval => No::ApprovalRequired,
    };
    match person {
        Person::Approved(people) if people < decision.approvals_required.max(1) => {
            Err(No::MorePeople)
        }
        Person::Approved(_) => Ok(Course::Taken),
        Person::Reachable => Ok(Course::Pending),
        Person::Absent => Err(no),
    }
}

impl Spender {
    /// The caller of a scope.
    pub fn of(scope: &Scope) -> Self {
        Self { is_pinned: scope.principal().is_pinned_to_user(), is_test: scope.is_test() }
    }

    /// Whether it may be paid for out of where the money comes from: the user's own accounts bound
    /// themselves. Of the organization's credit a test project spends nothing, and who is pinned to
    /// a user only below a hard budget of the user's kit, the user, the project or the
    /// organization. A soft one alone, a cap that a caller has set itself, or a limit on how often,
    /// bounds nothing here.
    ///
    /// # Errors
    /// [`No::LiveCredit`], [`No::NoCap`].
    pub fn may_spend(self, pay: Option<&Pay>, gauges: &[Gauge]) -> Result<(), No> {
        let is_capped = || gauges.iter().any(|gauge| gauge.cap.hard && gauge.cap.is_budget());
        match pay {
            Some(pay) if pay.from.id == CREDIT && self.is_test => Err(No::LiveCredit),
            Some(pay) if pay.from.id == CREDIT && self.is_pinned && !is_capped() => Err(No::NoCap),
            _ => Ok(()),
        }
    }
}

/// The charges of the action in each scope, in the order of `gauges`: the narrowest scope of money,
/// which an over-capture freezes, is the last.
pub fn charges(gauges: &[Gauge], amount: Option<i64>, beyond: &BTreeSet<&Key>) -> Vec<Charge> {
    let charge =
        |gauge: &Gauge| gauge.charge(amount.unwrap_or(0), beyond.contains(&gauge.cap.meter));
    gauges.iter().map(charge).collect()
}

impl Terms {
    /// The action, as rules see it.
    pub fn to_asked(&self) -> Asked<'_> {
        let Self { action, entity, spends, amount, .. } = self;
        Asked { action, entity, spends: *spends, amount: *amount }
    }

    /// The hold.
    pub fn hold(self, decision: Decision, course: Course, charges: Vec<Charge>) -> Hold {
        Hold {
            state: match course {
                Course::Taken => State::Held,
                Course::Pending => State::Pending,
            },
            primitive: self.primitive,
            action: self.action,
            entity: self.entity,
            component: self.component,
            title: self.title,
            amount: self.amount.filter(|_| self.spends || self.pay.is_some()),
            spends: Some(self.spends),
            capturable: Some(self.capturable),
            reported: self.reported,
            charges,
            pay: self.pay,
            decision,
            subject: self.subject,
            request: self.request,
            ordinal: self.ordinal,
            at: self.at,
            until: self.until,
            kept: false,
            settler: None,
            turn: 0,
            actual: None,
            in_parts: false,
            ended_at: None,
        }
    }
}

/// Everything that is committed before a hold is taken: conditions, and the rows that it needs.
pub fn prepare(hold: &Hold, gauges: &[Gauge]) -> (Vec<Guard>, Vec<Write>) {
    let mut writes: Vec<Write> = gauges.iter().filter_map(Gauge::opening).collect();
    if let Some(pay) = &hold.pay {
        // An account that the guest opens is opened with its commit, and the hold is taken before.
        writes.extend([&pay.from, &pay.to].map(|key| Account::credit().open(key)));
    }
    (gauges.iter().flat_map(Gauge::guards).collect(), writes)
}

impl No {
    /// The refusal that the caller gets.
    pub fn refusal(self, decision: &Decision) -> Refusal {
        let refusal = match self {
            No::Denied => Refusal::forbidden(
                "policy_denied",
                "The organization's policy does not allow this action.",
            ),
            No::ApprovalRequired => Refusal::forbidden(
                "approval_required",
                "The organization's policy asks for a person's approval of this action.",
            ),
            No::MorePeople => Refusal::forbidden(
                "approval_required",
                "It takes the approval of more people by now than have approved and decide still.",
            )
            .hint("Ask again: what waits then waits for as many."),
            No::NoCap => {
                let told = "The key is pinned to a user, and no hard budget bounds what it takes of the organization's credit.";
                return Refusal::forbidden("no_cap", told).hint(
                    "Set a hard budget on the user, its kit, its project or the organization.",
                );
            }
            No::LiveCredit => {
                let told = "A test project spends nothing of the organization's credit.";
                return Refusal::forbidden("test_project", told).hint(
                    "Spend it in a live project, or move money of the test project's own users.",
                );
            }
            No::OverSoftCap => {
                return Refusal::new(
                    Code::BudgetExceeded,
                    "The amount exceeds what is left of the budget, and nobody can be asked.",
                );
            }
        };
        refusal.detail("policy_ids", decision.rules.clone())
    }
}

/// The refusal of a hold that a rule of the committer kept from being taken; `None` where it is to
/// be asked again. It tells a caller of no sum that its pins hide.
pub fn refusal(
    refused: &Refused,
    hold: &Hold,
    gauges: &[Gauge],
    caller: &Principal,
) -> Option<Refusal> {
    let of = |meter: &Key| gauges.iter().find(|gauge| gauge.cap.meter == *meter);
    match refused {
        Refused::OverCap { meter, count, cap } => {
            let gauge = of(meter)?;
            let resets_at = gauge.window.ends.map(|at| at.to_string());
            let refusal = match gauge.cap.limit() {
                Some(limit) => Refusal::forbidden(
                    "limit_exceeded",
                    "The organization's limit on this action is reached.",
                )
                .detail("limit_id", limit)
                .detail("max", *cap)
                .detail("used", count.spent + count.reserved),
                None => {
                    let told = "The amount exceeds what is left of the budget.";
                    let refusal = Refusal::new(Code::BudgetExceeded, told)
                        .detail("scope", gauge.cap.scope.clone());
                    match caller.sees_sum_of(&gauge.cap.scope) {
                        true => refusal
                            .detail("cap_micro_usd", *cap)
                            .detail("spent_micro_usd", count.spent)
                            .detail("reserved_micro_usd", count.reserved),
                        false => refusal,
                    }
                }
            };
            Some(refusal.detail("resets_at", resets_at))
        }
        Refused::Frozen { key } => Some(match of(key) {
            Some(gauge) => {
                let told = "More was spent than was held, and nothing more is admitted until a person has looked.";
                Refusal::forbidden("scope_frozen", told)
                    .detail("scope", gauge.cap.scope.clone())
                    .hint("Who may loosen restores the user, or the project where the scope is one: POST /v1/users/{id}/restore, /v1/projects/{id}/restore.")
            }
            None => Refusal::state_conflict("account_frozen", "The account is frozen."),
        }),
        Refused::Overdrawn { account, available } => {
            let told = "The account does not cover the amount.";
            let refusal = Refusal::new(Code::InsufficientCredits, told)
                .detail("amount_micro_usd", hold.amount.unwrap_or(0))
                .detail("account", account.id.clone());
            let is_seen = account.id != CREDIT || caller.sees_sum_of("organization");
            Some(match is_seen {
                true => refusal.detail("available_micro_usd", *available),
                false => refusal,
            })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
