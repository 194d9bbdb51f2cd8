//! The subscription of an organization: paid for before it counts, renewed by an invoice, ended by
//! hand.

use charter_sdk::prelude::*;
use charter_sdk::{At, Reach, Soon, events};

use crate::account::{self, Change, Trial};
use crate::calendar::months_after;
use crate::invoices::{self, Invoice, Purpose};
use crate::payments::{self, Bought, Means, Purchase};
use crate::plans::{self, Plan};

pub(crate) const SUBSCRIPTIONS: Collection<Subscription> =
    Collection::new("subscriptions").reach(Reach::Organization).unique(&["live"]);

/// The value of `live` while a subscription has not ended: an organization has one such.
const LIVE: &str = "live";
/// How long a renewal may stay unpaid.
const GRACE_SECONDS: u32 = 7 * 86_400;

/// The state of a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Status {
    /// Its first invoice is open.
    Pending,
    Active,
    /// A renewal was not paid in time.
    PastDue,
    Canceled,
}

/// A subscription, as it is kept.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Subscription {
    #[serde(skip_serializing_if = "Option::is_none")]
    live: Option<String>,
    pub(crate) status: Status,
    plan: String,
    /// The moment from which its periods are counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    started_at: Option<Instant>,
    /// Periods since then.
    periods: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) period_end: Option<Instant>,
    cancel_at_period_end: bool,
    /// The invoice that is open for a period.
    #[serde(skip_serializing_if = "Option::is_none")]
    invoice: Option<String>,
    /// When that one is overdue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) due_at: Option<Instant>,
    /// The invoice that is open for a dearer plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    upgrade: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    canceled_at: Option<Instant>,
}

/// A plan, and how it is paid.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct Wish {
    /// The plan's id.
    #[schemars(length(min = 1, max = 100))]
    plan: String,
    #[serde(flatten)]
    means: Means,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Cancel {
    /// `false` ends it at once.
    #[serde(default = "yes")]
    at_period_end: bool,
}

fn yes() -> bool {
    true
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Shown {
    id: String,
    status: Status,
    plan: String,
    period_start: Option<Instant>,
    period_end: Option<Instant>,
    cancel_at_period_end: bool,
    /// The invoice that has to be paid for it to count, or to go on.
    invoice_id: Option<String>,
    canceled_at: Option<Instant>,
    created_at: Instant,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct SubscriptionAnswer {
    subscription: Shown,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Current {
    /// Null where there is none.
    subscription: Option<Shown>,
    /// Null where there never was one.
    trial: Option<Trial>,
}

impl Subscription {
    fn new(plan: String, invoice: String) -> Self {
        Self {
            live: Some(LIVE.into()),
            status: Status::Pending,
            plan,
            started_at: None,
            periods: 0,
            period_end: None,
            cancel_at_period_end: false,
            invoice: Some(invoice),
            due_at: None,
            upgrade: None,
            canceled_at: None,
        }
    }

    /// Counts its periods from now on.
    fn begin(&mut self, now: Instant) {
        (self.status, self.started_at, self.periods) = (Status::Active, Some(now), 1);
        self.period_end = Some(months_after(now, 1));
    }

    fn end(&mut self, now: Instant) -> Result<()> {
        for invoice in [self.invoice.take(), self.upgrade.take()].into_iter().flatten() {
            invoices::void(&invoice)?;
        }
        (self.live, self.status, self.due_at, self.canceled_at) =
            (None, Status::Canceled, None, Some(now));
        Ok(())
    }

    fn period_start(&self) -> Option<Instant> {
        self.started_at.map(|start| months_after(start, self.periods.saturating_sub(1)))
    }
}

fn show(subscription: Doc<Subscription>) -> Shown {
    let body = subscription.body;
    Shown {
        id: subscription.id,
        status: body.status,
        period_start: body.period_start(),
        plan: body.plan,
        period_end: body.period_end,
        cancel_at_period_end: body.cancel_at_period_end,
        invoice_id: body.invoice.or(body.upgrade),
        canceled_at: body.canceled_at,
        created_at: subscription.created_at,
    }
}

/// The one that has not ended.
fn current() -> Result<Option<Doc<Subscription>>> {
    let found = SUBSCRIPTIONS.lookup("live", LIVE)?;
    Ok(found.filter(|found| found.body.live.is_some()))
}

/// The one that has not ended, as it is shown.
pub(crate) fn show_current() -> Result<Option<Shown>> {
    Ok(current()?.map(show))
}

/// Whether its plan gives credit with each period. One that is no longer offered did.
pub(crate) fn gives_credit(subscription: &Subscription) -> Result<bool> {
    Ok(plans::find(&subscription.plan)?.is_none_or(|plan| plan.included_credit_cents > 0))
}

fn require_current() -> Result<Doc<Subscription>> {
    let none = || Failure::conflict("there is no subscription").reason("no_subscription");
    current()?.ok_or_else(none)
}

fn replace(at: At, subscription: Subscription) -> Result<Doc<Subscription>> {
    let replaced = SUBSCRIPTIONS.replace(at, subscription)?;
    events::emit(
        "billing.subscription.updated",
        &json!({ "subscription_id": replaced.id, "status": replaced.status }),
    )?;
    Ok(replaced)
}

fn invoice_for(plan: &Plan, purpose: Purpose) -> Invoice {
    let memo = format!("{}, a month", plan.name);
    let invoice = Invoice::new(purpose, plan.price_cents, memo);
    Invoice { plan: Some(plan.id.clone()), bonus_cents: plan.bonus_cents(), ..invoice }
}

/// Tells the caller the amount due by now; or, if it is to be paid by card, starts the payment and
/// tells of that.
fn charge(
    subscription: Doc<Subscription>,
    invoice: Doc<Invoice>,
    means: &Means,
    action: &'static str,
    account: Option<Doc<account::Account>>,
) -> Result<Soon<Bought>> {
    match (means.provider()?, account) {
        (Some(binding), Some(account)) => {
            let plan = invoice.body.plan.clone().unwrap_or_default();
            let bought = Purchase { action, entity: &plan };
            payments::begin(&binding, account, &invoice, means, &bought).map(Soon::Job)
        }
        _ => {
            let (subscription, invoice) = (Some(show(subscription)), invoices::show(invoice));
            Ok(Soon::Now(Bought { subscription, invoice, payment: None }))
        }
    }
}

pub(crate) fn subscribe(Body(Wish { plan, means }): Body<Wish>) -> Result<Soon<Created<Bought>>> {
    let plan = plans::plan(&plan)?;
    let account = account::settle(Change::default())?;
    if current()?.is_some() {
        let told = "there is a subscription already";
        return Err(Failure::conflict(told)
            .reason("subscribed_already")
            .hint("Upgrade it, or cancel it first."));
    }
    let invoice = invoice_for(&plan, Purpose::Subscription).open()?;
    let subscription = SUBSCRIPTIONS.insert(Subscription::new(plan.id, invoice.id.clone()))?;
    Ok(charge(subscription, invoice, &means, payments::SUBSCRIBE, account)?.map(Created))
}

/// Another invoice comes for this one, unless it is being paid.
fn replace_invoice(former: String) -> Result<()> {
    payments::require_rest(&former)?;
    invoices::void(&former)
}

pub(crate) fn upgrade(Body(Wish { plan, means }): Body<Wish>) -> Result<Soon<Bought>> {
    let plan = plans::plan(&plan)?;
    let account = account::settle(Change::default())?;
    let current = require_current()?;
    let (at, mut subscription) = (current.at(), current.body);
    let before = plans::find(&subscription.plan)?;
    let (price, bonus) =
        before.as_ref().map_or((0, 0), |plan| (plan.price_cents, plan.bonus_cents()));
    if plan.id == subscription.plan || plan.price_cents <= price {
        return Err(
            Failure::conflict("the plan is no dearer than the one there is").reason("no_upgrade")
        );
    }
    let invoice = match subscription.status {
        Status::Pending => {
            // Nothing was paid yet: it is simply another plan.
            subscription.invoice.take().map(replace_invoice).transpose()?;
            let invoice = invoice_for(&plan, Purpose::Subscription).open()?;
            (subscription.plan, subscription.invoice) = (plan.id, Some(invoice.id.clone()));
            invoice
        }
        Status::Active => {
            subscription.upgrade.take().map(replace_invoice).transpose()?;
            let memo = format!("Upgrade to {}", plan.name);
            let invoice = Invoice::new(Purpose::Upgrade, plan.price_cents - price, memo);
            let bonus_cents = plan.bonus_cents().saturating_sub(bonus);
            let invoice = Invoice { plan: Some(plan.id), bonus_cents, ..invoice }.open()?;
            subscription.upgrade = Some(invoice.id.clone());
            invoice
        }
        Status::PastDue | Status::Canceled => {
            let told = "an invoice of the subscription is overdue";
            return Err(Failure::conflict(told)
                .reason("subscription_past_due")
                .hint("Pay it first."));
        }
    };
    charge(replace(at, subscription)?, invoice, &means, payments::UPGRADE, account)
}

pub(crate) fn read() -> Result<Current> {
    Ok(Current { subscription: current()?.map(show), trial: account::trial()? })
}

pub(crate) fn cancel(Body(asked): Body<Cancel>) -> Result<SubscriptionAnswer> {
    account::settle(Change::default())?;
    let current = require_current()?;
    let (at, mut subscription) = (current.at(), current.body);
    let was_paid = subscription.status != Status::Pending;
    let at_once = !asked.at_period_end || subscription.status != Status::Active;
    if at_once {
        subscription.end(now())?;
    } else {
        subscription.cancel_at_period_end = true;
    }
    let subscription = replace(at, subscription)?;
    if at_once && was_paid {
        account::settle(Change { ended: true, ..Change::default() })?;
    }
    Ok(SubscriptionAnswer { subscription: show(subscription) })
}

/// An invoice was paid: what it was for counts from now on.
pub(crate) fn note_payment(id: &str, invoice: &Invoice) -> Result<()> {
    let Some(kept) = current()? else { return Ok(()) };
    let (at, mut found) = (kept.at(), kept.body);
    let now = now();
    match invoice.purpose {
        Purpose::Subscription | Purpose::Renewal if found.invoice.as_deref() == Some(id) => {
            (found.invoice, found.due_at) = (None, None);
            let in_period = found.period_end.is_some_and(|end| now < end);
            if in_period { found.status = Status::Active } else { found.begin(now) }
        }
        Purpose::Upgrade if found.upgrade.as_deref() == Some(id) => {
            found.upgrade = None;
            found.plan = invoice.plan.clone().unwrap_or(found.plan);
        }
        _ => return Ok(()),
    }
    replace(at, found).map(drop)
}

/// Does what is due by now; answers the subscription that there is then, and whether one has ended.
pub(crate) fn turn(now: Instant) -> Result<(Option<Subscription>, bool)> {
    let Some(kept) = current()? else { return Ok((None, false)) };
    let (at, mut found) = (kept.at(), kept.body);
    let is_over = found.period_end.is_some_and(|end| end <= now);
    if found.status != Status::Active || !(is_over || found.due_at.is_some_and(|due| due <= now)) {
        return Ok((Some(found), false));
    }
    if is_over && found.cancel_at_period_end {
        found.end(now)?;
        replace(at, found)?;
        return Ok((None, true));
    }
    if is_over && found.invoice.is_none() {
        renew(&mut found)?;
        if found.live.is_none() {
            replace(at, found)?;
            return Ok((None, true));
        }
    }
    if found.invoice.is_some() && found.due_at.is_some_and(|due| due <= now) {
        found.status = Status::PastDue;
    }
    let found = replace(at, found)?;
    Ok((Some(found.body), false))
}

/// The next period, and its invoice. A plan that is no longer offered is not charged for again: it
/// ends with its period.
fn renew(found: &mut Subscription) -> Result<()> {
    let (Some(start), Some(end)) = (found.started_at, found.period_end) else { return Ok(()) };
    let Some(plan) = plans::find(&found.plan)? else { return found.end(end) };
    let due_at = end.plus_seconds(GRACE_SECONDS);
    let invoice =
        Invoice { due_at: Some(due_at), ..invoice_for(&plan, Purpose::Renewal) }.open()?;
    payments::charge_kept(&invoice)?;
    (found.invoice, found.due_at, found.periods) =
        (Some(invoice.id), Some(due_at), found.periods + 1);
    found.period_end = Some(months_after(start, found.periods));
    Ok(())
}
