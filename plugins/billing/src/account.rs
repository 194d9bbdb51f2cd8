//! How an organization stands: its trial, whether it bought anything, and what is due next.
//!
//! A deployment that names no biller, or another one, bills nobody: then nobody has a trial and nothing is ever due, and invoices are
//! made all the same.

use charter_sdk::prelude::*;
use charter_sdk::{Reach, jobs, ledger, primitives};

use crate::money::micro_usd;
use crate::plans;
use crate::subscriptions::{self, Status, Subscription};

pub(crate) const ACCOUNTS: Collection<Account> = Collection::new("accounts").reach(Reach::Organization).unique(&["key"]);

/// The job that does what is due.
pub(crate) const TURN: &str = "turn";
/// An organization has one account.
const KEY: &str = "account";
/// Where a trial's credit comes from, and what the ledger's entries say of it.
const TRIAL: &str = "trial";
/// Seconds of a day.
const DAY: u32 = 86_400;
/// Runs of a job whose work must not be lost.
const ATTEMPTS: u32 = 20;

/// What is known of an organization beside its subscription.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Account {
    key: String,
    /// When it was first seen.
    began_at: Instant,
    trial_ends_at: Instant,
    /// Whether any credit was bought.
    bought: bool,
    /// Whether a subscription has come to its end.
    ended: bool,
}

/// What a request or signal did that the account has to know.
#[derive(Default)]
pub(crate) struct Change {
    /// Credit was bought.
    pub(crate) bought: bool,
    /// A subscription that was paid for has ended.
    pub(crate) ended: bool,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Trial {
    ends_at: Instant,
    active: bool,
}

impl Account {
    fn begin(now: Instant) -> Result<Self> {
        let trial_ends_at = now.plus_seconds(plans::trial_days()?.saturating_mul(DAY));
        Ok(Self { key: KEY.into(), began_at: now, trial_ends_at, bought: false, ended: false })
    }

    fn has_trial(&self) -> bool {
        self.trial_ends_at > self.began_at
    }

    /// Why something is stopped, in the interface's words.
    fn reason(&self, current: Option<&Subscription>, now: Instant) -> Option<&'static str> {
        match current.map(|current| current.status) {
            Some(Status::Active) => None,
            Some(Status::PastDue) => Some("subscription_past_due"),
            _ if self.ended => Some("subscription_cancelled"),
            _ if now < self.trial_ends_at => (!self.bought).then_some("llm_routing_requires_payment"),
            _ if self.has_trial() => Some("trial_expired"),
            _ => Some("no_subscription"),
        }
    }
}

/// The trial, where there is one.
pub(crate) fn trial() -> Result<Option<Trial>> {
    let account = ACCOUNTS.lookup("key", KEY)?.map(|account| account.body).filter(Account::has_trial);
    Ok(account.map(|account| Trial { ends_at: account.trial_ends_at, active: now() < account.trial_ends_at }))
}

/// Does what is due by now, has the organization stand accordingly, and plans the next look. The first look begins the trial.
pub(crate) fn settle(change: Change) -> Result<()> {
    let now = now();
    let (current, ended) = subscriptions::turn(now)?;
    let kept = ACCOUNTS.lookup("key", KEY)?;
    let mut account = kept.as_ref().map_or_else(|| Account::begin(now), |kept| Ok(kept.body.clone()))?;
    account.bought |= change.bought;
    account.ended |= change.ended || ended;
    if !stands(account.reason(current.as_ref(), now))? {
        return Ok(());
    }
    match kept {
        Some(kept) if kept.body == account => {}
        Some(kept) => drop(ACCOUNTS.replace(&kept.id, account.clone())?),
        None => {
            ACCOUNTS.insert(account.clone())?;
            grant(&account)?;
        }
    }
    plan(now, account.trial_ends_at, current.as_ref())
}

/// False where this deployment bills nobody.
fn stands(reason: Option<&str>) -> Result<bool> {
    match primitives::set_standing(reason) {
        Ok(()) => Ok(true),
        Err(failure) if failure.is("forbidden") => Ok(false),
        Err(failure) => Err(failure),
    }
}

/// What a trial begins with.
fn grant(account: &Account) -> Result<()> {
    let cents = plans::signup_credit_cents()?;
    if account.has_trial() && cents > 0 {
        ledger::open_source(TRIAL)?;
        ledger::transfer(TRIAL, ledger::CREDIT, micro_usd(cents), TRIAL, "signup")?;
    }
    Ok(())
}

/// Has a job look again when something falls due. A job that runs keeps its key, so each moment has one of its own.
fn plan(now: Instant, trial_ends_at: Instant, current: Option<&Subscription>) -> Result<()> {
    let dues =
        [Some(trial_ends_at), current.and_then(|current| current.period_end), current.and_then(|current| current.due_at)];
    let Some(next) = dues.into_iter().flatten().filter(|due| *due > now).min() else { return Ok(()) };
    let job = jobs::Job::new(TURN, &json!({}))?;
    job.key(&format!("{TURN}-{}", next.as_ms())).at(next).attempts(ATTEMPTS).enqueue().map(drop)
}
