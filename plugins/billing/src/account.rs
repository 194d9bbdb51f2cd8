//! How an organization stands: its trial, whether it bought anything, and what is due next.
//!
//! A deployment that names no biller, or another one, bills nobody: then nobody has a trial and
//! nothing is ever due, and invoices are made all the same.

use charter_sdk::money::micro_usd;
use charter_sdk::prelude::*;
use charter_sdk::{Reach, hooks, jobs, ledger, primitives};

use crate::plans;
use crate::stripe::PROVIDER;
use crate::subscriptions::{self, Status, Subscription};

/// The collection's name.
const COLLECTION: &str = "accounts";

pub(crate) const ACCOUNTS: Collection<Account> =
    Collection::new(COLLECTION).reach(Reach::Organization).unique(&["key"]);

/// The job that does what is due.
pub(crate) const TURN: &str = "turn";
/// An organization has one account.
const KEY: &str = "account";
/// The source of a trial's credit, and the memo of its ledger entries.
const TRIAL: &str = "trial";
/// Seconds of a day.
const DAY: u32 = 86_400;
/// Milliseconds of an hour.
const HOUR_MS: i64 = 3_600_000;
/// Runs of a job whose work must not be lost.
const ATTEMPTS: u32 = 20;

/// The state of an organization beside its subscription.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Account {
    key: String,
    /// When it was first seen.
    began_at: Instant,
    trial_ends_at: Instant,
    /// Purchases that were paid for and not given back in full: whoever has one goes on for as long
    /// as there is credit.
    #[serde(default)]
    purchases: u32,
    /// Whether a subscription has come to its end.
    ended: bool,
    /// The customer's id at the payment provider, where an earlier build has kept it here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) customer: Option<String>,
    /// The payment method that it has paid with, which is charged when something falls due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) payment_method: Option<String>,
    /// The hook by which the payment provider's events reach it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) hook: Option<String>,
}

/// A change to the account, made by a request or signal.
#[derive(Default)]
pub(crate) struct Change {
    /// Purchases that came, or went with what was given back.
    pub(crate) purchases: i32,
    /// A subscription that was paid for has ended.
    pub(crate) ended: bool,
    /// The credit that this request adds, or takes if negative, in micro-US-dollars: no transaction
    /// reads its own uncommitted postings.
    pub(crate) credited: i64,
    /// The payment method that paid.
    pub(crate) payment_method: Option<String>,
}

/// The means on which an organization lives now.
struct Means<'a> {
    current: Option<&'a Subscription>,
    /// Whether the subscription's plan gives credit with each period.
    included: bool,
    /// Whether the credit is spent.
    spent: bool,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Trial {
    ends_at: Instant,
    active: bool,
}

impl Account {
    fn begin(now: Instant) -> Result<Self> {
        let trial_ends_at = now.plus_seconds(plans::trial_days()?.saturating_mul(DAY));
        let (customer, payment_method, hook) = (None, None, None);
        Ok(Self {
            key: KEY.into(),
            began_at: now,
            trial_ends_at,
            purchases: 0,
            ended: false,
            customer,
            payment_method,
            hook,
        })
    }

    fn has_bought(&self) -> bool {
        self.purchases > 0
    }

    fn has_trial(&self) -> bool {
        self.trial_ends_at > self.began_at
    }

    /// Whether it goes on for as long as it has credit: it has a plan that gives none, or none at
    /// all and has bought some.
    fn is_prepaid(&self, means: &Means<'_>, now: Instant) -> bool {
        match means.current.map(|current| current.status) {
            Some(Status::Active) => !means.included,
            Some(Status::PastDue) => false,
            _ => self.has_bought() && !self.ended && now >= self.trial_ends_at,
        }
    }

    /// Why something is stopped, in the interface's words.
    fn reason(&self, means: &Means<'_>, now: Instant) -> Option<&'static str> {
        if self.is_prepaid(means, now) {
            return means.spent.then_some("credits_exhausted");
        }
        match means.current.map(|current| current.status) {
            Some(Status::Active) => None,
            Some(Status::PastDue) => Some("subscription_past_due"),
            _ if self.ended => Some("subscription_cancelled"),
            _ if now < self.trial_ends_at => {
                (!self.has_bought()).then_some("llm_routing_requires_payment")
            }
            _ if self.has_trial() => Some("trial_expired"),
            _ => Some("no_subscription"),
        }
    }
}

/// The trial, where there is one.
pub(crate) fn trial() -> Result<Option<Trial>> {
    let account =
        ACCOUNTS.lookup("key", KEY)?.map(|account| account.body).filter(Account::has_trial);
    Ok(account.map(|account| Trial {
        ends_at: account.trial_ends_at,
        active: now() < account.trial_ends_at,
    }))
}

/// The stored account, if the organization has one.
pub(crate) fn find() -> Result<Option<Doc<Account>>> {
    ACCOUNTS.lookup("key", KEY)
}

/// Whether this deployment is billed by this primitive: an account of it says so, or the host.
pub(crate) fn bills() -> Result<bool> {
    match ledger::open_source(PROVIDER) {
        Ok(()) => Ok(true),
        Err(failure) if failure.is("forbidden") => Ok(false),
        Err(failure) => Err(failure),
    }
}

/// The account with a hook, so that the payment provider's events reach it.
pub(crate) fn reachable(account: Doc<Account>) -> Result<Doc<Account>> {
    if account.body.hook.is_some() {
        return Ok(account);
    }
    let hook = hooks::open(COLLECTION, &account.id, hooks::Scheme::Binding(PROVIDER))?;
    ACCOUNTS.replace(account.at(), Account { hook: Some(hook.id), ..account.body })
}

/// Does what is due by now, has the organization stand accordingly, and plans the next look. The
/// first look begins the trial. Answers the account, where this deployment is billed by this
/// primitive.
pub(crate) fn settle(change: Change) -> Result<Option<Doc<Account>>> {
    let now = now();
    let (current, ended) = subscriptions::turn(now)?;
    let kept = find()?;
    let mut account =
        kept.as_ref().map_or_else(|| Account::begin(now), |kept| Ok(kept.body.clone()))?;
    account.purchases = account.purchases.saturating_add_signed(change.purchases);
    account.ended |= change.ended || ended;
    account.payment_method = change.payment_method.or(account.payment_method);
    let credit = ledger::balance(ledger::CREDIT)?.posted.saturating_add(change.credited);
    let included = current.as_ref().map_or(Ok(true), subscriptions::gives_credit)?;
    let means = Means { current: current.as_ref(), included, spent: credit <= 0 };
    if !stands(account.reason(&means, now))? {
        return Ok(None);
    }
    let settled = match kept {
        Some(kept) if kept.body == account => kept,
        Some(kept) => ACCOUNTS.replace(kept.at(), account)?,
        None => {
            let begun = ACCOUNTS.insert(account)?;
            grant(&begun.body)?;
            begun
        }
    };
    plan(now, &settled.body, &means)?;
    Ok(Some(settled))
}

/// False where this deployment bills nobody.
fn stands(reason: Option<&str>) -> Result<bool> {
    match primitives::set_standing(reason) {
        Ok(()) => Ok(true),
        Err(failure) if failure.is("forbidden") => Ok(false),
        Err(failure) => Err(failure),
    }
}

/// The credit with which a trial begins.
fn grant(account: &Account) -> Result<()> {
    let cents = plans::signup_credit_cents()?;
    if account.has_trial() && cents > 0 {
        ledger::open_source(TRIAL)?;
        ledger::transfer(TRIAL, ledger::CREDIT, micro_usd(cents), TRIAL, "signup")?;
    }
    Ok(())
}

/// Has a job look again when something falls due. A job that runs keeps its key, so each moment has
/// one of its own. Nobody tells of credit that is spent: whoever lives on it is looked at each
/// hour.
fn plan(now: Instant, account: &Account, means: &Means<'_>) -> Result<()> {
    let current = means.current;
    let look = account.is_prepaid(means, now).then(|| next_hour(now));
    let dues = [
        Some(account.trial_ends_at),
        current.and_then(|current| current.period_end),
        current.and_then(|current| current.due_at),
        look,
    ];
    let Some(next) = dues.into_iter().flatten().filter(|due| *due > now).min() else {
        return Ok(());
    };
    let job = jobs::Job::new(TURN, &json!({}))?;
    job.key(&format!("{TURN}-{}", next.as_ms())).at(next).attempts(ATTEMPTS).enqueue().map(drop)
}

/// The next whole hour: all looks that are planned within an hour are one.
fn next_hour(now: Instant) -> Instant {
    let hours = now.as_ms().div_euclid(HOUR_MS) + 1;
    Instant::from_ms(hours * HOUR_MS)
}
