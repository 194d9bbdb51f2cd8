//! The payments that the provider reports as received and given back: the only way in which a
//! payment becomes credit.
//!
//! Each payment has one receipt, by the provider's own id, and every event only moves it forward:
//! told twice, late or in another order, the credit is the same. The amount posted is the amount
//! that came, whatever was asked for.

use charter_sdk::governance::Proposal;
use charter_sdk::hooks::Received;
use charter_sdk::money::{cents, dollars, micro_usd};
use charter_sdk::prelude::*;
use charter_sdk::serde_json::Value;
use charter_sdk::{Reach, ledger, log};

use crate::stripe::{CURRENCY, PROVIDER};
use crate::{account, invoices, payments};

pub(crate) const RECEIPTS: Collection<Receipt> =
    Collection::new("receipts").reach(Reach::Organization).unique(&["reference"]);

/// The key of an object's metadata that names the invoice.
pub(crate) const INVOICE: &str = "charter_invoice";

/// The key of a charge's metadata that names the payment.
pub(crate) const PAYMENT: &str = "charter_payment";

/// The action of taking back what was refunded out of credit that is set aside.
pub(crate) const REFUND: &str = "billing.refund";

/// A payment, as the provider has told of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Receipt {
    /// The provider's id of the payment.
    reference: String,
    /// The invoice that the payment was for.
    #[serde(skip_serializing_if = "Option::is_none")]
    invoice: Option<String>,
    currency: String,
    received_cents: u64,
    /// Whether it is credit by now.
    credited: bool,
    /// Given back to the payer, in all.
    refunded_cents: u64,
    /// Taken back from the credit for it, in all.
    taken_back_cents: u64,
}

/// The report of a payment in an event.
struct Told {
    reference: String,
    invoice: Option<String>,
    /// The payment of ours that it is, where the charge said so.
    payment: Option<String>,
    currency: String,
    received_cents: u64,
    refunded_cents: u64,
    payment_method: Option<String>,
}

/// The provider has called.
pub(crate) fn hear(call: &Received) -> Result<()> {
    let event: Value = call.json()?;
    match read(event["type"].as_str().unwrap_or_default(), &event["data"]["object"]) {
        Some(told) => note(told),
        None => Ok(()),
    }
}

fn read(kind: &str, object: &Value) -> Option<Told> {
    let text =
        |member: &str| object[member].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    let cents = |member: &str| object[member].as_u64().unwrap_or_default();
    let told = |reference: Option<String>| {
        Some(Told {
            reference: reference?,
            invoice: object["metadata"][INVOICE].as_str().map(str::to_owned),
            payment: object["metadata"][PAYMENT].as_str().map(str::to_owned),
            currency: text("currency").unwrap_or_default().to_ascii_lowercase(),
            received_cents: 0,
            refunded_cents: 0,
            payment_method: None,
        })
    };
    match kind {
        "payment_intent.succeeded" => {
            // Older emulations of the API name the amount alone.
            let received_cents =
                object["amount_received"].as_u64().unwrap_or_else(|| cents("amount"));
            told(text("id")).map(|told| Told {
                received_cents,
                payment_method: text("payment_method"),
                ..told
            })
        }
        "checkout.session.completed" | "checkout.session.async_payment_succeeded"
            if object["payment_status"] == "paid" =>
        {
            told(text("payment_intent"))
                .map(|told| Told { received_cents: cents("amount_total"), ..told })
        }
        "charge.refunded" => told(text("payment_intent"))
            .map(|told| Told { refunded_cents: cents("amount_refunded"), ..told }),
        _ => None,
    }
}

fn note(told: Told) -> Result<()> {
    let kept = RECEIPTS.lookup("reference", &told.reference)?;
    let mut receipt = kept.as_ref().map_or_else(|| Receipt::new(&told), |kept| kept.body.clone());
    receipt.invoice = receipt.invoice.or(told.invoice);
    receipt.refunded_cents = receipt.refunded_cents.max(told.refunded_cents);
    if receipt.received_cents == 0 && told.received_cents > 0 {
        (receipt.received_cents, receipt.currency) = (told.received_cents, told.currency);
    }
    let posted = receipt.post(told.payment.as_deref())?;
    let purchases = i32::from(receipt.counts())
        - i32::from(kept.as_ref().is_some_and(|kept| kept.body.counts()));
    match kept {
        Some(kept) if kept.body == receipt => {}
        Some(kept) => drop(RECEIPTS.replace(kept.at(), receipt)?),
        None => drop(RECEIPTS.insert(receipt)?),
    }
    let payment_method = told.payment_method.filter(|_| told.received_cents > 0);
    let change =
        account::Change { purchases, credited: posted, payment_method, ..Default::default() };
    account::settle(change).map(drop)
}

impl Receipt {
    fn new(told: &Told) -> Self {
        let (reference, invoice, currency) =
            (told.reference.clone(), told.invoice.clone(), told.currency.clone());
        let (received_cents, refunded_cents, taken_back_cents) = (0, 0, 0);
        Self {
            reference,
            invoice,
            currency,
            received_cents,
            credited: false,
            refunded_cents,
            taken_back_cents,
        }
    }

    /// Whether it is a purchase: what was given back in full was none.
    fn counts(&self) -> bool {
        self.credited && self.refunded_cents < self.received_cents
    }

    /// Posts what was received and not posted yet, and takes back what was given back and not taken
    /// back yet. `payment` is the payment of ours that it is, where the provider says so. Answers
    /// what the credit has more by it, or less, in micro-US-dollars.
    fn post(&mut self, payment: Option<&str>) -> Result<i64> {
        if self.received_cents == 0 {
            return Ok(0);
        }
        if self.currency != CURRENCY {
            // Nobody has said how much such a payment is worth here: the operator sees it at the
            // provider, and here.
            let fields =
                [("payment", self.reference.as_str()), ("currency", self.currency.as_str())];
            log::warn("a payment in another currency is not credited", &fields);
            return Ok(0);
        }
        let mut posted = 0;
        if !self.credited {
            self.credited = true;
            posted = micro_usd(self.received_cents);
            ledger::open_source(PROVIDER)?;
            ledger::transfer(PROVIDER, ledger::CREDIT, posted, "Payment", &self.reference)?;
            if let Some(invoice) = &self.invoice {
                invoices::note_receipt(invoice, self.received_cents)?;
                payments::capture_received(invoice, payment, &self.reference, self.received_cents)?;
            }
        }
        Ok(posted - self.take_back(posted)?)
    }

    /// Takes back from the credit what was given back, as far as it is there; `coming` is what this
    /// request has posted.
    fn take_back(&mut self, coming: i64) -> Result<i64> {
        let wanted =
            self.refunded_cents.min(self.received_cents).saturating_sub(self.taken_back_cents);
        if wanted == 0 {
            return Ok(0);
        }
        let credit = ledger::balance(ledger::CREDIT)?;
        // Credit that is only set aside is not spent yet.
        let there = cents(credit.posted.saturating_add(coming));
        let taken = wanted.min(u64::try_from(there).unwrap_or_default());
        let amount = micro_usd(taken);
        if amount > credit.available.saturating_add(coming) {
            Proposal::new(REFUND, &self.reference)
                .amount(amount)
                .explain("Refund", format!("The provider has given {} back.", dollars(taken)))
                .pays(ledger::CREDIT, PROVIDER)
                .report()?;
        } else if taken > 0 {
            ledger::transfer(ledger::CREDIT, PROVIDER, amount, "Refund", &self.reference)?;
        }
        self.taken_back_cents += taken;
        if let Some(invoice) = &self.invoice {
            invoices::note_refund(invoice, self.refunded_cents, self.taken_back_cents)?;
        }
        Ok(micro_usd(taken))
    }
}
