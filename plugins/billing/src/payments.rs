//! Payments by card: what is asked of the provider for an invoice, once, and what a person is shown
//! meanwhile.
//!
//! A payment is a document and a job of the same commit. The job asks the provider under a key that
//! is the payment's own, so that a crash between asking and noting the answer asks the same again.
//! It never makes credit: the provider's signed word does (`receipts`).
//!
//! A charge to a caller's payment method takes leave first: the hold is kept for the job, which
//! captures it once the provider has taken the payment and gives it back if nothing was paid. While
//! nobody knows, the hold is in doubt, until the provider answers or signs what it received. A
//! payment on the provider's page, and the renewal of a subscription, take none.

use charter_sdk::governance::{self, Permit, Proposal};
use charter_sdk::jobs::{self, Job};
use charter_sdk::money::{dollars, micro_usd};
use charter_sdk::prelude::*;
use charter_sdk::settings::Binding;
use charter_sdk::{Answer, Reach, Signal, documents};

use crate::account::{self, Account};
use crate::invoices::{self, INVOICES, Invoice, Purpose};
use crate::receipts::{INVOICE, PAYMENT};
use crate::stripe::{self, CURRENCY, Form, PROVIDER, Refused};
use crate::{customer, subscriptions};

pub(crate) const PAYMENTS: Collection<Payment> = Collection::new("payments")
    .reach(Reach::Organization)
    .index(&[Index::text("invoice"), Index::text("permit")]);

/// The regulated action of buying credit, or of paying an open invoice.
pub(crate) const TOP_UP: &str = "billing.top_up";
/// The regulated action of subscribing to a plan.
pub(crate) const SUBSCRIBE: &str = "billing.subscribe";
/// The regulated action of changing to a dearer plan.
pub(crate) const UPGRADE: &str = "billing.upgrade";

/// The job that asks the provider.
pub(crate) const PAY: &str = "pay";

/// The setting that an operator is told to make while no primitive is named as the biller.
pub(crate) const BILLER: &str = "[billing] primitive";
/// When a payment that somebody waits for is looked at again, should its first run have come to
/// nothing.
const AGAIN_SECONDS: u32 = 120;
/// Runs of a job whose work must not be lost: until the provider is asked no more.
const ATTEMPTS: u32 = 100;
/// The provider keeps idempotency keys for a day: nothing is asked again after this.
const ASKED_SECONDS: u32 = 20 * 3_600;
/// How long leave for a payment is kept: longer than the provider is asked.
const LEAVE_SECONDS: u32 = 86_400;
/// How long a payment that the provider has taken keeps another one for the same invoice away.
const RUNNING_SECONDS: u32 = 86_400;
/// Bytes of an address to come back to.
const RETURN_URL_BYTES_MAX: usize = 2_000;

/// How it is paid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Way {
    /// By a payment method that the caller names.
    Card,
    /// By the kept one, with nobody there.
    Kept,
    /// On a page of the provider's, by a person.
    Page,
}

/// The state of a payment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Status {
    /// The provider has not answered yet.
    Pending,
    /// A person pays it at its `url`.
    Open,
    /// The provider has it: its word of what it received makes it credit.
    Processing,
    Failed,
}

/// A payment, as it is kept.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Payment {
    invoice: String,
    way: Way,
    status: Status,
    amount_cents: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    payment_method: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    return_url: Option<String>,
    /// The provider's id of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    reference: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<String>,
    /// The hold of the leave that its caller was given, until it is captured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) permit: Option<String>,
    /// Whether the provider may have been asked for it.
    #[serde(default)]
    asked: bool,
    /// Whether the provider's own payment names it; earlier builds have asked for unnamed ones, and
    /// what is asked again under a key must be the same.
    #[serde(default)]
    named: bool,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<Why>,
}

/// Why a payment failed.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
struct Why {
    code: String,
    message: String,
    reason: Option<String>,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Shown {
    id: String,
    status: Status,
    /// The page on which a person pays; null where nobody has to.
    url: Option<String>,
}

/// A caller's purchase: the regulated action and its entity. It is the same each time the request
/// is made.
pub(crate) struct Purchase<'a> {
    pub(crate) action: &'static str,
    pub(crate) entity: &'a str,
}

/// How a caller wants to pay: members of each body that buys something.
#[derive(Default, Deserialize, JsonSchema)]
pub(crate) struct Means {
    /// `true`: by invoice, which is how it is done where no payment provider is bound; `false`: by
    /// card.
    #[serde(default)]
    pub(crate) invoice: Option<bool>,
    /// The payment provider's id of a payment method; the one that was paid with before if absent.
    #[serde(default)]
    #[schemars(length(min = 1, max = 255))]
    pub(crate) payment_method: Option<String>,
    /// The address to which the provider's page leads back: a person pays there, at `payment.url`.
    #[serde(default)]
    #[schemars(length(min = 1, max = 2_000))]
    pub(crate) return_url: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct Wanted {
    payment: String,
    /// Whether somebody waits for this run: another one is planned, should it come to nothing.
    waited: bool,
}

/// The answer to a purchase: the same whether it is paid by card or by invoice.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Bought {
    /// Absent where it is credit that is bought.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) subscription: Option<subscriptions::Shown>,
    pub(crate) invoice: invoices::Shown,
    /// Absent where it is paid by invoice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) payment: Option<Shown>,
}

impl Means {
    /// The provider that is paid by, unless it is paid by invoice. Card payments need a provider
    /// and a deployment that bills: otherwise nothing could become credit.
    pub(crate) fn provider(&self) -> Result<Option<Binding>> {
        if self.invoice == Some(true) {
            return match (&self.payment_method, &self.return_url) {
                (None, None) => Ok(None),
                (Some(_), _) => {
                    Err(Failure::invalid("payment_method", "is not for what is paid by invoice"))
                }
                _ => Err(Failure::invalid("return_url", "is not for what is paid by invoice")),
            };
        }
        if self.payment_method.as_deref().is_some_and(|id| !stripe::is_id(id)) {
            return Err(Failure::invalid(
                "payment_method",
                "must be the provider's id of one, such as pm_1MqLiJ",
            ));
        }
        if self
            .return_url
            .as_deref()
            .is_some_and(|url| url.len() > RETURN_URL_BYTES_MAX || !url.starts_with("https://"))
        {
            return Err(Failure::invalid("return_url", "must be an https address"));
        }
        let by_card = self.invoice == Some(false)
            || self.payment_method.is_some()
            || self.return_url.is_some();
        let missing = |what: &str| {
            Failure::not_configured(&[what]).hint("Leave invoice out, and pay by invoice.")
        };
        match customer::provider()? {
            Some(binding) if account::bills()? => Ok(Some(binding)),
            Some(_) if by_card => Err(missing(BILLER)),
            None if by_card => Err(missing(PROVIDER)),
            _ => Ok(None),
        }
    }

    fn way(
        &self,
        binding: &Binding,
        account: &Account,
    ) -> Result<(Way, Option<String>, Option<String>)> {
        if let Some(method) = &self.payment_method {
            return Ok((Way::Card, Some(method.clone()), None));
        }
        if let Some(method) = account.payment_method.as_ref().filter(|_| self.return_url.is_none())
        {
            return Ok((Way::Kept, Some(method.clone()), None));
        }
        let back = self.return_url.as_deref().or_else(|| binding.option("return_url"));
        let back = back.ok_or_else(|| {
            let told = "Send return_url, or have the operator set the binding's option return_url.";
            Failure::invalid("return_url", "is where the provider's page leads back to").hint(told)
        })?;
        Ok((Way::Page, None, Some(back.to_owned())))
    }
}

/// Has an open invoice paid: with this request's commit; answers the job whose answer is the
/// request's.
pub(crate) fn begin(
    binding: &Binding,
    account: Doc<Account>,
    invoice: &Doc<Invoice>,
    means: &Means,
    purchase: &Purchase<'_>,
) -> Result<String> {
    let account = account::reachable(account)?;
    let (way, payment_method, return_url) = means.way(binding, &account.body)?;
    let permit = match way {
        Way::Card | Way::Kept => Some(leave(purchase, invoice)?),
        Way::Page => None,
    };
    let payment = new(invoice, way, payment_method, return_url, permit)?;
    later(&payment.id)?.at(now().plus_seconds(AGAIN_SECONDS)).enqueue()?;
    Job::new(PAY, &Wanted { payment: payment.id, waited: true })?.attempts(1).enqueue()
}

/// Leave to charge a payment method for an invoice; answers the hold, which the job settles.
fn leave(purchase: &Purchase<'_>, invoice: &Doc<Invoice>) -> Result<String> {
    let cents = invoice.body.due_cents();
    let message = format!("Charges {} to a card, for \"{}\".", dollars(cents), invoice.body.memo);
    let permit = Proposal::new(purchase.action, purchase.entity)
        .amount(micro_usd(cents))
        .explain(format!("Pay {} by card", dollars(cents)), message)
        .authorize()?;
    let id = permit.id();
    permit.keep(now().plus_seconds(LEAVE_SECONDS))?;
    Ok(id)
}

/// Charges the kept payment method for an invoice that fell due, where there is one and a provider
/// is bound.
pub(crate) fn charge_kept(invoice: &Doc<Invoice>) -> Result<()> {
    let method = account::find()?
        .filter(|account| account.body.hook.is_some())
        .and_then(|account| account.body.payment_method);
    let Some(method) = method.filter(|_| invoice.body.due_cents() > 0) else { return Ok(()) };
    if customer::provider()?.is_none() {
        return Ok(());
    }
    let payment = new(invoice, Way::Kept, Some(method), None, None)?;
    later(&payment.id)?.enqueue().map(drop)
}

/// Refuses to have an invoice paid, or set aside, while the provider may be about to take money for
/// it.
pub(crate) fn require_rest(invoice: &str) -> Result<()> {
    match is_running(invoice)? {
        false => Ok(()),
        true => {
            let told = "the payment provider is at work on a payment of the invoice";
            Err(Failure::conflict(told)
                .reason("payment_running")
                .hint("Look at the invoice in a moment."))
        }
    }
}

/// Whether the provider may be about to take money for the invoice.
fn is_running(invoice: &str) -> Result<bool> {
    let live = |payment: &Doc<Payment>| {
        let recent = now() < payment.created_at.plus_seconds(RUNNING_SECONDS);
        recent && matches!(payment.body.status, Status::Pending | Status::Processing)
    };
    Ok(PAYMENTS.matching("invoice", invoice).limit(200).find()?.items.iter().any(live))
}

fn new(
    invoice: &Doc<Invoice>,
    way: Way,
    payment_method: Option<String>,
    return_url: Option<String>,
    permit: Option<String>,
) -> Result<Doc<Payment>> {
    PAYMENTS.insert(Payment {
        invoice: invoice.id.clone(),
        way,
        status: Status::Pending,
        amount_cents: invoice.body.due_cents(),
        payment_method,
        return_url,
        reference: None,
        url: None,
        permit,
        asked: false,
        named: true,
        failure: None,
    })
}

/// A run that nobody waits for, tried until it is known what became of the payment.
fn later(payment: &str) -> Result<Job> {
    let job = Job::new(PAY, &Wanted { payment: payment.to_owned(), waited: false })?;
    Ok(job.key(&again(payment)).attempts(ATTEMPTS))
}

fn again(payment: &str) -> String {
    format!("{PAY}-{payment}")
}

/// One run of the job.
pub(crate) fn pay(run: &jobs::Run) -> Result<Answer> {
    let Wanted { payment, waited } = run.read()?;
    let payment = PAYMENTS.get(&payment)?.or_not_found("payment")?;
    settle(payment, &run.signal.caller.organization, waited)
}

/// Nobody knows what became of a payment of this hold: the provider is asked again, under the same
/// key. One that it is not asked about any more stays in doubt, for its signed word or a person's.
pub(crate) fn settle_doubt(signal: &Signal) -> Result<()> {
    let permit = signal.payload["permit"].as_str().unwrap_or_default();
    let found = PAYMENTS.matching("permit", permit).limit(1).find()?.items.into_iter().next();
    match found.filter(|payment| payment.body.status == Status::Pending) {
        Some(payment) => settle(payment, &signal.caller.organization, false).map(drop),
        None => Ok(()),
    }
}

/// The provider has received money for an invoice: leave that was given to charge it is captured,
/// and a charge for which nobody has leave any more is reported. The provider's own
/// payment names ours, in `told`; those that earlier builds have asked for are known by the
/// provider's id, or taken by the amount where it has not answered.
pub(crate) fn capture_received(
    invoice: &str,
    told: Option<&str>,
    reference: &str,
    cents: u64,
) -> Result<()> {
    let mut asked = PAYMENTS.matching("invoice", invoice).limit(200).find()?.items;
    let is_it = |found: &Doc<Payment>| {
        told == Some(&found.id) || found.body.reference.as_deref() == Some(reference)
    };
    if told.is_some() || asked.iter().any(is_it) {
        asked.retain(is_it);
    } else {
        asked.retain(|found| {
            found.body.asked && !found.body.named && found.body.reference.is_none()
        });
        asked.sort_by_key(|found| found.body.amount_cents != cents);
    }
    for payment in asked {
        let Some(hold) = &payment.body.permit else { continue };
        let amount = micro_usd(cents);
        // The provider has answered, and as much is captured.
        let is_captured = payment.body.status == Status::Processing;
        if !is_captured || cents > payment.body.amount_cents {
            match governance::reopen(hold) {
                // Its own request settles it.
                Err(failure) if failure.reason_text() == Some("PERMIT_SETTLED") => {}
                // It ended longer ago than such are kept.
                Err(failure) if failure.is("not_found") => {
                    Proposal::new(TOP_UP, hold).amount(amount).report()?;
                }
                // In full, also where a person has said less, or it is more than was asked for.
                reopened => reopened?.capture(amount)?,
            }
        }
        let (reference, failure) = (Some(reference.to_owned()), None);
        let status = Status::Processing;
        let at = payment.at();
        let paid = Payment { status, reference, permit: None, failure, ..payment.body };
        return PAYMENTS.replace(at, paid).map(drop);
    }
    Ok(())
}

/// Brings a payment to its end, as far as the provider says what became of it.
fn settle(payment: Doc<Payment>, organization: &str, waited: bool) -> Result<Answer> {
    let invoice = INVOICES.get(&payment.body.invoice)?.or_not_found("invoice")?;
    match payment.body.status {
        Status::Pending => {}
        Status::Failed if waited => return Err(payment.body.why()),
        Status::Failed => return answer(payment, invoice),
        Status::Open | Status::Processing => return answer(payment, invoice),
    }
    let permit = match payment.body.permit.as_deref().map(governance::reopen).transpose() {
        Err(failure) if failure.reason_text() == Some("PERMIT_SETTLED") => {
            // A person has said what became of it, and nothing more is asked.
            let told = "a person has said what became of the payment";
            let failure = Failure::conflict(told).reason("payment_resolved");
            return fail(payment, invoice, None, failure, waited);
        }
        reopened => reopened?,
    };
    let was_asked = payment.body.asked;
    if let Some(failure) = refuse_asking(&payment, &invoice) {
        // All that the provider was asked for may have happened: that hold comes in doubt.
        return fail(payment, invoice, permit.filter(|_| !was_asked), failure, waited);
    }
    let names = match find_names(&payment, organization) {
        Ok(names) => names,
        Err(Refused::Final(failure)) => {
            return fail(payment, invoice, permit.filter(|_| !was_asked), failure, waited);
        }
        // The purchase goes on: whoever waits is told where to look.
        Err(Refused::Unsure(_)) if waited && permit.is_some() => return answer(payment, invoice),
        Err(Refused::Unsure(failure)) => return Err(failure),
    };
    let payment = note_asked(payment, permit.as_ref())?;
    match ask(&payment.body, &invoice.body, &names) {
        Ok(asked) => {
            permit.map(|permit| permit.capture(micro_usd(asked.amount_cents))).transpose()?;
            // With its leave, which the provider's signed word may complete.
            let payment = PAYMENTS.replace(payment.at(), asked)?;
            if waited {
                jobs::cancel_key(&again(&payment.id))?;
            }
            answer(payment, invoice)
        }
        Err(Refused::Final(failure)) => {
            // Only a decline says that an earlier question came to nothing, too.
            let is_void = !was_asked || failure.is("payment_rejected");
            fail(payment, invoice, permit.filter(|_| is_void), failure, waited)
        }
        // Likewise.
        Err(Refused::Unsure(_)) if waited && permit.is_some() => answer(payment, invoice),
        Err(Refused::Unsure(failure)) => Err(failure),
    }
}

/// Why the provider is not asked for a payment any more.
fn refuse_asking(payment: &Doc<Payment>, invoice: &Doc<Invoice>) -> Option<Failure> {
    if invoice.body.status != invoices::Status::Open {
        let told = "nothing is to be paid for the invoice any more";
        return Some(Failure::conflict(told).reason("invoice_closed"));
    }
    let told = "the payment provider did not answer for most of a day; nothing more is asked of it";
    let is_silent = now() > payment.created_at.plus_seconds(ASKED_SECONDS);
    is_silent.then(|| Failure::provider(told).reason("provider_silent"))
}

/// The names by which the provider is asked: its customer among them, made where there is none.
fn find_names(payment: &Doc<Payment>, organization: &str) -> Result<Names, Refused> {
    let missing = |what: &str| Refused::Unsure(Failure::not_configured(&[what]));
    let binding =
        customer::provider().map_err(Refused::Unsure)?.ok_or_else(|| missing(PROVIDER))?;
    let account = account::find().map_err(Refused::Unsure)?.ok_or_else(|| missing(BILLER))?;
    let hook = account.body.hook.clone().ok_or_else(|| missing("stripe.webhook_secret"))?;
    let customer = customer::of(&binding, account, organization)?;
    let key = format!("charter-payment-{}", payment.id);
    Ok(Names { customer, hook, payment: payment.id.clone(), key })
}

/// Commits that the provider is about to be asked: from here on its hold is in doubt until somebody
/// knows what became of it.
fn note_asked(payment: Doc<Payment>, permit: Option<&Permit>) -> Result<Doc<Payment>> {
    let payment = if payment.body.asked {
        payment
    } else {
        PAYMENTS.replace(payment.at(), Payment { asked: true, ..payment.body })?
    };
    // The checkpoint commits every read so far: writes of others from here on do not make this
    // request run again.
    documents::checkpoint()?;
    permit.map(Permit::dispatched).transpose()?;
    Ok(payment)
}

/// Asks the provider; answers the payment as it then is.
fn ask(payment: &Payment, invoice: &Invoice, names: &Names) -> Result<Payment, Refused> {
    match payment.way {
        Way::Page => page(payment, invoice, names),
        Way::Card | Way::Kept => charge(payment, names),
    }
}

/// The names in a request to the provider.
struct Names {
    customer: String,
    hook: String,
    /// Our own payment.
    payment: String,
    /// The idempotency key.
    key: String,
}

fn charge(payment: &Payment, names: &Names) -> Result<Payment, Refused> {
    let form = Form::default()
        .with("amount", &payment.amount_cents.to_string())
        .with("currency", CURRENCY)
        .with("customer", &names.customer)
        .with("payment_method", payment.payment_method.as_deref().unwrap_or_default())
        .with("payment_method_types[0]", "card")
        .with("confirm", "true")
        .with("metadata[charter_hook]", &names.hook)
        .with(&format!("metadata[{INVOICE}]"), &payment.invoice);
    let form = match payment.named {
        true => form.with(&format!("metadata[{PAYMENT}]"), &names.payment),
        false => form,
    };
    let form = match payment.way {
        // Nobody is there who could confirm anything.
        Way::Kept => form.with("off_session", "true"),
        _ => form.with("payment_method_options[card][setup_future_usage]", "off_session"),
    };
    let intent = stripe::STRIPE.post("/v1/payment_intents", form, &names.key)?;
    let reference = stripe::text(&intent, "id")?;
    match intent["status"].as_str().unwrap_or_default() {
        "succeeded" | "processing" => {}
        _ => give_up(&reference, &names.key)?,
    }
    Ok(Payment { status: Status::Processing, reference: Some(reference), ..payment.clone() })
}

/// Cancels a payment that waits for a person. It may have been paid all the same by the time that it
/// cannot be cancelled any more.
fn give_up(reference: &str, key: &str) -> Result<(), Refused> {
    let path = format!("/v1/payment_intents/{}", plain(reference)?);
    let canceled =
        stripe::STRIPE.post(&format!("{path}/cancel"), Form::default(), &format!("{key}-cancel"));
    match canceled {
        Err(Refused::Final(failure)) => {
            match stripe::STRIPE.get(&path, &[])?["status"].as_str().unwrap_or_default() {
                "succeeded" | "processing" => Ok(()),
                "canceled" => Err(Refused::Final(stripe::needs_a_person())),
                _ => Err(Refused::Unsure(failure)),
            }
        }
        canceled => {
            canceled?;
            Err(Refused::Final(stripe::needs_a_person()))
        }
    }
}

/// An id that may stand in a path.
fn plain(text: &str) -> Result<&str, Refused> {
    let odd = || Refused::Unsure(Failure::provider("the payment provider's answer has an odd id"));
    if stripe::is_id(text) { Ok(text) } else { Err(odd()) }
}

fn page(payment: &Payment, invoice: &Invoice, names: &Names) -> Result<Payment, Refused> {
    let back = payment.return_url.as_deref().unwrap_or_default();
    let form = Form::default()
        .with("mode", "payment")
        .with("customer", &names.customer)
        .with("client_reference_id", &names.hook)
        .with("success_url", back)
        .with("cancel_url", back)
        .with("line_items[0][quantity]", "1")
        .with("line_items[0][price_data][currency]", CURRENCY)
        .with("line_items[0][price_data][unit_amount]", &payment.amount_cents.to_string())
        .with("line_items[0][price_data][product_data][name]", &invoice.memo)
        .with("metadata[charter_hook]", &names.hook)
        .with(&format!("metadata[{INVOICE}]"), &payment.invoice)
        .with("payment_intent_data[setup_future_usage]", "off_session")
        .with("payment_intent_data[metadata][charter_hook]", &names.hook)
        .with(&format!("payment_intent_data[metadata][{INVOICE}]"), &payment.invoice);
    let session = stripe::STRIPE.post("/v1/checkout/sessions", form, &names.key)?;
    let (reference, url) = (stripe::text(&session, "id")?, stripe::text(&session, "url")?);
    Ok(Payment {
        status: Status::Open,
        reference: Some(reference),
        url: Some(url),
        ..payment.clone()
    })
}

/// Notes that nothing more is asked of the provider, and says so; the leave that comes with it is
/// given back. A purchase of credit ends with it; what a subscription owes stays open.
fn fail(
    payment: Doc<Payment>,
    invoice: Doc<Invoice>,
    permit: Option<Permit>,
    failure: Failure,
    waited: bool,
) -> Result<Answer> {
    permit.map(Permit::cancel).transpose()?;
    let why = Why {
        code: failure.code().to_owned(),
        message: failure.message().to_owned(),
        reason: failure.reason_text().map(str::to_owned),
    };
    let payment = PAYMENTS.replace(
        payment.at(),
        Payment { status: Status::Failed, failure: Some(why), ..payment.body },
    )?;
    // As it is by now: the provider may have told of it while it was asked.
    let mut invoice = INVOICES.get(&invoice.id)?.or_not_found("invoice")?;
    if invoice.body.purpose == Purpose::Credit && invoice.body.received_cents == 0 {
        invoices::void(&invoice.id)?;
        invoice.body.status = invoices::Status::Void;
    }
    if !waited {
        return answer(payment, invoice);
    }
    jobs::cancel_key(&again(&payment.id))?;
    // A refusal takes back what it wrote: this stays.
    documents::checkpoint()?;
    Err(failure)
}

impl Payment {
    fn why(&self) -> Failure {
        let Some(why) = &self.failure else { return Failure::provider("the payment failed") };
        let failure = Failure::new(&why.code, why.message.clone());
        why.reason.as_deref().map_or(failure.clone(), |reason| failure.reason(reason))
    }
}

fn answer(payment: Doc<Payment>, invoice: Doc<Invoice>) -> Result<Answer> {
    let subscription = match invoice.body.purpose {
        Purpose::Credit => None,
        _ => subscriptions::show_current()?,
    };
    let shown = Shown { id: payment.id, status: payment.body.status, url: payment.body.url };
    Answer::json(&Bought { subscription, invoice: invoices::show(invoice), payment: Some(shown) })
}
