//! Invoices: what an organization owes, and what becomes of one that the operator marks as paid.

use charter_sdk::money::{dollars, micro_usd};
use charter_sdk::prelude::*;
use charter_sdk::{Reach, Signal, Soon, events, ledger, serde_json};

use crate::payments::{self, Bought, Means, Purchase};
use crate::{account, plans, subscriptions};

pub(crate) const INVOICES: Collection<Invoice> =
    Collection::new("invoices").reach(Reach::Organization);

/// The ledger account that pays for credit which a plan includes beyond its price.
const INCLUDED: &str = "included";

/// The name of a purchase of plain credit.
const CREDIT: &str = "credit";

/// The state of an invoice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Status {
    Open,
    Paid,
    Void,
}

/// The purpose of an invoice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Purpose {
    /// Credit, bought at once.
    Credit,
    /// The first period of a subscription.
    Subscription,
    /// A further one.
    Renewal,
    /// The way from one plan to a dearer one.
    Upgrade,
}

/// An invoice, as it is kept.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Invoice {
    pub(crate) status: Status,
    pub(crate) purpose: Purpose,
    pub(crate) amount_cents: u64,
    /// The amount noted as paid so far.
    pub(crate) received_cents: u64,
    /// The amount that the payment provider gave back.
    #[serde(default)]
    pub(crate) refunded_cents: u64,
    /// The part of the refund that was taken back from the credit: the rest was spent by then.
    #[serde(default)]
    pub(crate) taken_back_cents: u64,
    /// The credit granted on top once the invoice is paid.
    pub(crate) bonus_cents: u64,
    pub(crate) memo: String,
    /// The plan that it is for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) plan: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) due_at: Option<Instant>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) paid_at: Option<Instant>,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Shown {
    pub(crate) id: String,
    status: Status,
    purpose: Purpose,
    amount_cents: u64,
    received_cents: u64,
    /// The amount that the payment provider gave back, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    refunded_cents: Option<u64>,
    /// The part of the refund that was taken back from the credit.
    #[serde(skip_serializing_if = "Option::is_none")]
    taken_back_cents: Option<u64>,
    memo: String,
    plan: Option<String>,
    /// How to pay it; null once nothing is to be paid.
    instructions: Option<String>,
    due_at: Option<Instant>,
    paid_at: Option<Instant>,
    created_at: Instant,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct InvoiceAnswer {
    invoice: Shown,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct InvoiceList {
    invoices: Vec<Shown>,
    has_more: bool,
}

/// A purchase of credit, and the way to pay for it.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct TopUp {
    /// How much credit, in whole cents; or name a pack.
    #[serde(default)]
    #[schemars(range(min = 1, max = 100_000_000))]
    amount_cents: Option<u64>,
    /// A pack of credit.
    #[serde(default)]
    #[schemars(length(min = 1, max = 100))]
    pack: Option<String>,
    /// An invoice that is open, to be paid by card.
    #[serde(default)]
    #[schemars(length(min = 1, max = 100))]
    invoice_id: Option<String>,
    #[serde(flatten)]
    means: Means,
}

/// Credit that the operator has given.
#[derive(Deserialize)]
struct Credit {
    kind: String,
    amount_cents: u64,
    reference: Option<String>,
}

impl Invoice {
    /// An invoice for an amount.
    pub(crate) fn new(purpose: Purpose, amount_cents: u64, memo: String) -> Self {
        let (received_cents, refunded_cents, taken_back_cents, bonus_cents) = (0, 0, 0, 0);
        Self {
            status: Status::Open,
            purpose,
            amount_cents,
            received_cents,
            refunded_cents,
            taken_back_cents,
            bonus_cents,
            memo,
            plan: None,
            due_at: None,
            paid_at: None,
        }
    }

    /// The amount still to be paid.
    pub(crate) fn due_cents(&self) -> u64 {
        self.amount_cents.saturating_sub(self.received_cents)
    }

    /// Keeps it.
    pub(crate) fn open(self) -> Result<Doc<Self>> {
        let invoice = INVOICES.insert(self)?;
        announce(&invoice.id, invoice.body.status)?;
        Ok(invoice)
    }
}

fn announce(id: &str, status: Status) -> Result<()> {
    events::emit("billing.invoice.updated", &json!({ "invoice_id": id, "status": status }))
}

pub(crate) fn show(invoice: Doc<Invoice>) -> Shown {
    let rest = dollars(invoice.body.due_cents());
    let Invoice {
        status, purpose, amount_cents, received_cents, memo, plan, due_at, paid_at, ..
    } = invoice.body;
    let refunded_cents = Some(invoice.body.refunded_cents).filter(|cents| *cents > 0);
    let taken_back_cents = refunded_cents.map(|_| invoice.body.taken_back_cents);
    let how = format!(
        "Pay {rest} to the operator of this deployment and quote {}. It counts as paid once the operator has noted it.",
        invoice.id
    );
    let instructions = (status == Status::Open).then_some(how);
    let (id, created_at) = (invoice.id, invoice.created_at);
    Shown {
        id,
        status,
        purpose,
        amount_cents,
        received_cents,
        refunded_cents,
        taken_back_cents,
        memo,
        plan,
        instructions,
        due_at,
        paid_at,
        created_at,
    }
}

/// Takes an invoice back that nobody needs to pay any more.
pub(crate) fn void(id: &str) -> Result<()> {
    let Some(invoice) = INVOICES.get(id)?.filter(|invoice| invoice.body.status == Status::Open)
    else {
        return Ok(());
    };
    INVOICES.replace(invoice.at(), Invoice { status: Status::Void, ..invoice.body })?;
    announce(id, Status::Void)
}

pub(crate) fn top_up(Body(asked): Body<TopUp>) -> Result<Soon<Bought>> {
    let means = asked.means;
    let (entity, invoice) = match (asked.amount_cents, asked.pack, asked.invoice_id) {
        (Some(cents), None, None) => {
            let memo = format!("Credit for {}", dollars(cents));
            (CREDIT.to_owned(), Invoice::new(Purpose::Credit, cents, memo))
        }
        (None, Some(pack), None) => {
            let pack = plans::pack(&pack)?;
            let memo = format!("Credit, {}", pack.id);
            (pack.id, Invoice::new(Purpose::Credit, pack.price_cents, memo))
        }
        (None, None, Some(id)) => return pay(&id, &Means { invoice: Some(false), ..means }),
        _ => {
            return Err(Failure::invalid(
                "amount_cents",
                "is what is bought, or pack or invoice_id is: one of them",
            ));
        }
    };
    let provider = means.provider()?;
    let invoice = invoice.open()?;
    let account = account::settle(account::Change::default())?;
    match (provider, account) {
        (Some(binding), Some(account)) => {
            let bought = Purchase { action: payments::TOP_UP, entity: &entity };
            payments::begin(&binding, account, &invoice, &means, &bought).map(Soon::Job)
        }
        _ => Ok(Soon::Now(Bought { subscription: None, invoice: show(invoice), payment: None })),
    }
}

/// Pays an open invoice by card.
fn pay(id: &str, means: &Means) -> Result<Soon<Bought>> {
    let provider = means.provider()?;
    let invoice =
        INVOICES.get(id)?.ok_or_else(|| Failure::resource_not_found("invoice_id", "invoice"))?;
    if invoice.body.status != Status::Open {
        return Err(Failure::conflict("nothing is to be paid for the invoice any more")
            .reason("invoice_closed"));
    }
    payments::require_rest(id)?;
    match (provider, account::settle(account::Change::default())?) {
        (Some(binding), Some(account)) => {
            let paid = Purchase { action: payments::TOP_UP, entity: id };
            payments::begin(&binding, account, &invoice, means, &paid).map(Soon::Job)
        }
        _ => Err(Failure::not_configured(&[payments::BILLER])),
    }
}

pub(crate) fn list(Query(page): Query<Offset>) -> Result<InvoiceList> {
    let found = INVOICES.all().page(page)?;
    Ok(InvoiceList {
        has_more: found.has_more,
        invoices: found.items.into_iter().map(show).collect(),
    })
}

pub(crate) fn read(Path(ById { id }): Path<ById>) -> Result<InvoiceAnswer> {
    Ok(InvoiceAnswer { invoice: show(INVOICES.get(&id)?.or_not_found("invoice")?) })
}

/// The operator has given credit: an invoice that it is for is paid by it, once.
pub(crate) fn settle_by_credit(signal: &Signal) -> Result<()> {
    let credit: Credit = serde_json::from_value(signal.payload.clone())?;
    let invoice = credit.reference.as_deref().map(|id| INVOICES.get(id)).transpose()?.flatten();
    let paid = match invoice.filter(|invoice| invoice.body.status == Status::Open) {
        Some(invoice) => receive(invoice, credit.amount_cents)?,
        None => false,
    };
    let purchases = i32::from(paid || credit.kind == "paid");
    account::settle(account::Change { purchases, ..account::Change::default() }).map(drop)
}

/// The payment provider has received money for an invoice. It is credit already; an invoice that is
/// not open any more only notes it.
pub(crate) fn note_receipt(id: &str, cents: u64) -> Result<()> {
    let Some(invoice) = INVOICES.get(id)? else { return Ok(()) };
    if invoice.body.status == Status::Open {
        return receive(invoice, cents).map(drop);
    }
    let received_cents = invoice.body.received_cents.saturating_add(cents);
    INVOICES.replace(invoice.at(), Invoice { received_cents, ..invoice.body }).map(drop)
}

/// The payment provider has given back so much in all, and so much of it was taken back from the
/// credit.
pub(crate) fn note_refund(id: &str, refunded_cents: u64, taken_back_cents: u64) -> Result<()> {
    let Some(invoice) = INVOICES.get(id)? else { return Ok(()) };
    let status = invoice.body.status;
    INVOICES.replace(invoice.at(), Invoice { refunded_cents, taken_back_cents, ..invoice.body })?;
    announce(id, status)
}

/// Notes what came for an invoice; true once that is all of it.
fn receive(invoice: Doc<Invoice>, cents: u64) -> Result<bool> {
    let (at, mut body) = (invoice.at(), invoice.body);
    body.received_cents = body.received_cents.saturating_add(cents);
    let paid = body.received_cents >= body.amount_cents;
    if paid {
        (body.status, body.paid_at) = (Status::Paid, Some(now()));
        subscriptions::note_payment(&invoice.id, &body)?;
        if body.bonus_cents > 0 {
            ledger::open_source(INCLUDED)?;
            ledger::transfer(
                INCLUDED,
                ledger::CREDIT,
                micro_usd(body.bonus_cents),
                INCLUDED,
                &invoice.id,
            )?;
        }
    }
    INVOICES.replace(at, body.clone())?;
    announce(&invoice.id, body.status)?;
    Ok(paid)
}
