//! A user's payments: charges, their refunds, and transfers.

use charter_sdk::events;
use charter_sdk::money::dollars;
use charter_sdk::prelude::*;

use crate::money::{self, CHARGE, Currency, Network, Party, REFUND, TRANSFER, USER_ID, purpose};
use crate::moves::Moving;

pub(crate) const PAYMENTS: Collection<Payment> =
    Collection::new("payments").index(&[Index::text("kind"), Index::text("status")]);

/// A payment, as it is kept, with the user who made it.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Payment {
    kind: Kind,
    status: Status,
    amount_cents: u64,
    refunded_cents: u64,
    currency: Currency,
    #[serde(skip_serializing_if = "Option::is_none")]
    customer: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    to_user_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
}

/// The direction of the money.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Charge,
    Transfer,
}

impl Kind {
    fn as_str(self) -> &'static str {
        match self {
            Kind::Charge => "charge",
            Kind::Transfer => "transfer",
        }
    }
}

/// The state of a payment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Status {
    Succeeded,
    PartiallyRefunded,
    Refunded,
}

impl Status {
    fn as_str(self) -> &'static str {
        match self {
            Status::Succeeded => "succeeded",
            Status::PartiallyRefunded => "partially_refunded",
            Status::Refunded => "refunded",
        }
    }
}

/// The money that a transfer takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Source {
    /// The caller's.
    #[default]
    Balance,
    /// The organization's.
    Credit,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewCharge {
    /// How much, in whole cents.
    #[schemars(range(min = 1, max = 1_000_000_000))]
    amount_cents: u64,
    #[serde(default)]
    currency: Currency,
    /// The purpose.
    #[serde(default)]
    #[schemars(length(min = 1, max = 200))]
    description: Option<String>,
    /// The user of the project whose balance pays.
    #[schemars(regex(pattern = USER_ID))]
    customer: String,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Amount {
    /// How much, in whole cents; all that is left of it where absent.
    #[serde(default)]
    #[schemars(range(min = 1, max = 1_000_000_000))]
    amount_cents: Option<u64>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewTransfer {
    /// The user of the project who gets it.
    #[schemars(regex(pattern = USER_ID))]
    to_user_id: String,
    /// How much, in whole cents.
    #[schemars(range(min = 1, max = 1_000_000_000))]
    amount_cents: u64,
    /// The purpose; shown as the payment's description.
    #[serde(default)]
    #[schemars(length(min = 1, max = 200))]
    memo: Option<String>,
    #[serde(default)]
    source: Source,
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Which {
    /// Of this kind alone.
    #[serde(default)]
    kind: Option<Kind>,
    /// In this state alone.
    #[serde(default)]
    status: Option<Status>,
    #[serde(flatten)]
    page: Offset,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Shown {
    id: String,
    kind: Kind,
    status: Status,
    amount_cents: u64,
    refunded_cents: u64,
    currency: Currency,
    network: Network,
    /// The charged customer; null for a transfer.
    customer: Option<String>,
    /// The recipient; null for a charge.
    to_user_id: Option<String>,
    description: Option<String>,
    created_at: Instant,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct PaymentAnswer {
    payment: Shown,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct PaymentList {
    payments: Vec<Shown>,
    /// Whether there are more behind this page.
    has_more: bool,
}

fn show(doc: Doc<Payment>) -> Shown {
    Shown {
        id: doc.id,
        kind: doc.body.kind,
        status: doc.body.status,
        amount_cents: doc.body.amount_cents,
        refunded_cents: doc.body.refunded_cents,
        currency: doc.body.currency,
        network: Network::ClosedLoop,
        customer: doc.body.customer,
        to_user_id: doc.body.to_user_id,
        description: doc.body.description,
        created_at: doc.created_at,
    }
}

fn announce(doc: Doc<Payment>) -> Result<PaymentAnswer> {
    let payment = show(doc);
    let payload =
        json!({ "payment_id": payment.id, "kind": payment.kind, "status": payment.status });
    events::emit("payments.updated", &payload)?;
    Ok(PaymentAnswer { payment })
}

fn find(id: &str) -> Result<Doc<Payment>> {
    PAYMENTS.get(id)?.or_not_found("payment")
}

pub(crate) fn charge(Body(new): Body<NewCharge>, caller: Caller) -> Result<Created<PaymentAnswer>> {
    let me = money::user(&caller)?;
    if new.customer == me {
        return Err(Failure::invalid("customer", "nobody charges themselves"));
    }
    let (amount, purpose) = (dollars(new.amount_cents), purpose(new.description.as_deref()));
    let leave = Moving {
        action: CHARGE,
        memo: "charge",
        entity: &new.customer,
        amount_cents: new.amount_cents,
        payer: Party::User(new.customer.clone()),
        payee: Party::Me(me.into()),
        message: format!(
            "Takes {amount} from the balance of user {} for user {me}{purpose}.",
            new.customer
        ),
        context: json!({ "customer": new.customer, "to_user_id": me, "description": new.description }),
    };
    let leave = leave.authorize().map_err(money::absent("customer"))?;
    let payment = PAYMENTS.insert(Payment {
        kind: Kind::Charge,
        status: Status::Succeeded,
        amount_cents: new.amount_cents,
        refunded_cents: 0,
        currency: new.currency,
        customer: Some(new.customer),
        to_user_id: None,
        description: new.description,
    })?;
    leave.capture(&payment.id)?;
    Ok(Created(announce(payment)?))
}

pub(crate) fn refund(
    Path(ById { id }): Path<ById>,
    Body(Amount { amount_cents }): Body<Amount>,
    caller: Caller,
) -> Result<PaymentAnswer> {
    let me = money::user(&caller)?;
    let found = find(&id)?;
    let Some(customer) = found.body.customer.clone().filter(|_| found.body.kind == Kind::Charge)
    else {
        return Err(Failure::conflict("only a charge is refunded").reason("not_a_charge"));
    };
    let left = found.body.amount_cents.saturating_sub(found.body.refunded_cents);
    if left == 0 {
        return Err(
            Failure::conflict("nothing of it is left to refund").reason("nothing_to_refund")
        );
    }
    let amount_cents = amount_cents.unwrap_or(left);
    if amount_cents > left {
        return Err(Failure::invalid(
            "amount_cents",
            format!("at most {left} cents are left to refund"),
        ));
    }
    let leave = Moving {
        action: REFUND,
        memo: "refund",
        entity: &id,
        amount_cents,
        payer: Party::Me(me.into()),
        payee: Party::User(customer.clone()),
        message: format!(
            "Gives {} of a charge of {} back to user {customer}{}.",
            dollars(amount_cents),
            dollars(found.body.amount_cents),
            purpose(found.body.description.as_deref()),
        ),
        // Nothing that another refund changes: of several that wait, each can be made.
        context: json!({ "payment_id": id, "customer": customer }),
    };
    leave.authorize().map_err(money::user_gone)?.capture(&id)?;
    let refunded_cents = found.body.refunded_cents + amount_cents;
    let status = if amount_cents == left { Status::Refunded } else { Status::PartiallyRefunded };
    announce(PAYMENTS.replace(found.at(), Payment { status, refunded_cents, ..found.body })?)
}

/// Sends money to a user as it says, and keeps the payment.
pub(crate) fn send(moving: Moving<'_>, description: Option<String>) -> Result<PaymentAnswer> {
    let amount_cents = moving.amount_cents;
    let to_user_id = moving.payee.user().map(str::to_owned);
    let leave = moving.authorize()?;
    let payment = PAYMENTS.insert(Payment {
        kind: Kind::Transfer,
        status: Status::Succeeded,
        amount_cents,
        refunded_cents: 0,
        currency: Currency::Usd,
        customer: None,
        to_user_id,
        description,
    })?;
    leave.capture(&payment.id)?;
    announce(payment)
}

impl PaymentAnswer {
    /// The payment's id.
    pub(crate) fn id(&self) -> &str {
        &self.payment.id
    }
}

pub(crate) fn transfer(
    Body(new): Body<NewTransfer>,
    caller: Caller,
) -> Result<Created<PaymentAnswer>> {
    let me = money::user(&caller)?;
    let to_oneself = new.to_user_id == me;
    let (payer, whose) = match new.source {
        Source::Balance if to_oneself => {
            return Err(Failure::invalid(
                "to_user_id",
                "nobody transfers from a balance to itself",
            ));
        }
        Source::Balance => (Party::Me(me.into()), format!("the balance of user {me}")),
        Source::Credit => {
            money::takes_credit(&caller)?;
            (Party::Credit, "the organization's credit".to_owned())
        }
    };
    let (amount, purpose) = (dollars(new.amount_cents), purpose(new.memo.as_deref()));
    let moving = Moving {
        action: TRANSFER,
        memo: "transfer",
        entity: &new.to_user_id,
        amount_cents: new.amount_cents,
        payer,
        payee: if to_oneself { Party::Me(me.into()) } else { Party::User(new.to_user_id.clone()) },
        message: format!(
            "Moves {amount} from {whose} to the balance of user {}{purpose}.",
            new.to_user_id
        ),
        context: json!({ "source": new.source, "to_user_id": new.to_user_id, "memo": new.memo }),
    };
    Ok(Created(send(moving, new.memo).map_err(money::absent("to_user_id"))?))
}

pub(crate) fn list(Query(which): Query<Which>) -> Result<PaymentList> {
    let found = PAYMENTS.all();
    let found = which.kind.into_iter().fold(found, |found, kind| found.and("kind", kind.as_str()));
    let found =
        which.status.into_iter().fold(found, |found, status| found.and("status", status.as_str()));
    let found = found.page(which.page)?;
    Ok(PaymentList {
        has_more: found.has_more,
        payments: found.items.into_iter().map(show).collect(),
    })
}

pub(crate) fn read(Path(ById { id }): Path<ById>) -> Result<PaymentAnswer> {
    Ok(PaymentAnswer { payment: show(find(&id)?) })
}
