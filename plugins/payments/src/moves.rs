//! The postings behind payments: leave for each, between whom it was, and what they add up to.

use charter_sdk::governance::{Permit, Proposal};
use charter_sdk::ledger::{self, Entry};
use charter_sdk::money::{cents, micro_usd};
use charter_sdk::prelude::*;
use charter_sdk::{Reach, serde_json};

use crate::money::{BALANCE, Party};

/// The ledger tells neither side who the other user is; this does. It outlives both, as the
/// ledger's entries do.
pub(crate) const MOVES: Collection<Move> =
    Collection::new("moves").reach(Reach::Project).unique(&["transfer"]);

/// A posting, as it is kept.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Move {
    /// Its id in the ledger.
    pub(crate) transfer: String,
    /// Absent where the organization's credit paid.
    #[serde(skip_serializing_if = "Option::is_none")]
    payer: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payee: Option<String>,
    payment: String,
}

/// A posting to be.
pub(crate) struct Moving<'a> {
    pub(crate) action: &'static str,
    /// The memo of the ledger's entries, and a transaction's kind.
    pub(crate) memo: &'static str,
    pub(crate) entity: &'a str,
    pub(crate) amount_cents: u64,
    pub(crate) payer: Party,
    pub(crate) payee: Party,
    /// For the person who decides.
    pub(crate) message: String,
    pub(crate) context: serde_json::Value,
}

/// Leave to post.
#[must_use]
pub(crate) struct Leave {
    permit: Permit,
    amount: i64,
    posting: Move,
}

impl Moving<'_> {
    /// Asks for leave. The proposal says nothing that another run of the same request would say
    /// differently.
    pub(crate) fn authorize(self) -> Result<Leave> {
        if matches!(self.payer, Party::Me(_)) && own()?.is_none() {
            let told = "nothing has come to the balance so far";
            return Err(Failure::new("insufficient_credits", told)
                .details(json!({ "available_micro_usd": 0 })));
        }
        ledger::open(BALANCE)?;
        let amount = micro_usd(self.amount_cents);
        let permit = Proposal::new(self.action, self.entity)
            .amount(amount)
            .explain(self.memo, self.message)
            .context(&self.context)
            .pays(&self.payer.account(), &self.payee.account())
            .authorize()?;
        let named = |party: &Party| party.user().map(str::to_owned);
        let (payer, payee) = (named(&self.payer), named(&self.payee));
        let posting = Move { transfer: permit.id(), payer, payee, payment: String::new() };
        Ok(Leave { permit, amount, posting })
    }
}

impl Leave {
    /// Posts, on account of this payment.
    pub(crate) fn capture(self, payment: &str) -> Result<()> {
        MOVES.insert(Move { payment: payment.into(), ..self.posting })?;
        self.permit.capture(self.amount)
    }
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Balance {
    /// The amount that can be spent.
    available_cents: i64,
    /// The amount set aside, for payments that wait for a person.
    pending_cents: i64,
    /// Both together.
    posted_cents: i64,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct BalanceAnswer {
    balance: Balance,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Transaction {
    id: String,
    /// `charge`, `refund` or `transfer`.
    kind: String,
    /// Positive where the balance grew.
    amount_cents: i64,
    /// The other user; null where it was the organization's credit.
    counterparty: Option<String>,
    /// The payment that it is of.
    reference: Option<String>,
    at: Instant,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Transactions {
    transactions: Vec<Transaction>,
    has_more: bool,
    next_cursor: Option<String>,
}

/// The balance of an account that the first payment opens; `None` before that.
fn if_opened<T>(read: Result<T>) -> Result<Option<T>> {
    match read {
        Err(failure) if failure.is("not_found") => Ok(None),
        read => read.map(Some),
    }
}

fn own() -> Result<Option<ledger::Balance>> {
    if_opened(ledger::balance(BALANCE))
}

pub(crate) fn balance() -> Result<BalanceAnswer> {
    let (available, pending, posted) =
        own()?.map_or((0, 0, 0), |own| (own.available, own.pending_out, own.posted));
    let balance = Balance {
        available_cents: cents(available),
        pending_cents: cents(pending),
        posted_cents: cents(posted),
    };
    Ok(BalanceAnswer { balance })
}

pub(crate) fn show(entry: Entry) -> Result<Transaction> {
    let posting = MOVES.lookup("transfer", &entry.id)?.map(|posting| posting.body);
    let reference = posting.as_ref().map(|posting| posting.payment.clone());
    let counterparty =
        posting.and_then(|posting| if entry.amount < 0 { posting.payee } else { posting.payer });
    let amount_cents = cents(entry.amount);
    Ok(Transaction {
        id: entry.id,
        kind: entry.memo,
        amount_cents,
        counterparty,
        reference,
        at: entry.at,
    })
}

pub(crate) fn transactions(Query(page): Query<Cursor>) -> Result<Transactions> {
    let found = if_opened(ledger::entries(BALANCE, page.cursor.as_deref(), page.limit))?;
    let (entries, next_cursor) = found.unwrap_or_default();
    let transactions = entries.into_iter().map(show).collect::<Result<_>>()?;
    Ok(Transactions { transactions, has_more: next_cursor.is_some(), next_cursor })
}

/// The user is gone: what its balance holds returns to the organization's credit.
pub(crate) fn close() -> Result<()> {
    let rest = own()?.map_or(0, |own| own.available);
    if rest > 0 {
        ledger::transfer(BALANCE, ledger::CREDIT, rest, "closed", "")?;
    }
    Ok(())
}
