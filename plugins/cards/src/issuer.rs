//! Cards of a card network: made by the issuer that is bound, which asks here before each payment
//! and says afterwards what it has paid.
//!
//! The money is the ledger's, as in a closed loop: a payment is held on the card's account before
//! the issuer hears yes, and captured from there when it has paid. The issuer's own status and
//! limit of a card follow what is written here, as a second fence. An issuer's word comes at least
//! once and in any order; each move of money has a record by the issuer's own id, and is posted
//! once.

use charter_sdk::hooks::{self, Received, Scheme};
use charter_sdk::jobs::{self, Job};
use charter_sdk::money::micro_usd;
use charter_sdk::prelude::*;
use charter_sdk::serde_json::Value;
use charter_sdk::settings;
use charter_sdk::stripe::{Form, Refused, Stripe, is_id, text};
use charter_sdk::{Answer, documents, events, ledger, log};

use crate::authorizations;
use crate::cards::{self, CARDS, Card, Period, Status};
use crate::money::{self, MERCHANTS, account};

/// The issuer's binding.
pub(crate) const ISSUER: &str = "cards.issuer";
/// The job that has a card made.
pub(crate) const ISSUE: &str = "issue";
/// The job that tells the issuer how a card stands.
pub(crate) const MIRROR: &str = "mirror";

/// The amounts that the issuer has paid and got back, by its own ids.
pub(crate) const MOVES: Collection<Move> =
    Collection::new("moves").unique(&["reference"]).index(&[Index::text("owed")]);
/// Authorizations that the issuer has ended, or never began: its word of that may come before the
/// question is through.
pub(crate) const ENDED: Collection<End> = Collection::new("ended").unique(&["reference"]);

const STRIPE: Stripe = Stripe::of_binding(ISSUER);
const CURRENCY: &str = "usd";
/// When a card that somebody waits for is asked for again, should the first run have come to
/// nothing.
const AGAIN_SECONDS: u32 = 120;
/// Runs of a job whose work must not be lost: with the waits between them more than a day.
const ATTEMPTS: u32 = 100;
/// Jobs that may wait to tell an issuer what one caller has changed of a card.
const MIRRORS_MAX: i64 = 4;
const MINUTE_MS: i64 = 60_000;
/// The issuer keeps idempotency keys for a day: nothing is asked again after this.
const ASKED_SECONDS: u32 = 20 * 3_600;
/// Amounts owed to cards that are given to them in one commit.
const OWED_A_COMMIT: u32 = 10;
/// Payments of one authorization that are waited for. Of one with more, what is set aside stays so until it
/// expires.
const PAID_MAX: usize = 100;
/// Characters of a merchant's name that are kept.
const MERCHANT_CHARS_MAX: usize = 200;

/// An issuer's knowledge of a card.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Issued {
    /// The hook by which the issuer asks and tells.
    hook: String,
    /// The issuer's id of it; absent until it has answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reference: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    last4: Option<String>,
    /// The holder to issue it to; forgotten once the issuer has made it, or has refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    holder: Option<Holder>,
    /// The bounds with which it is asked for, until it is made: what is asked again under a key must
    /// be the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    asked: Option<Bounds>,
    /// Whether it has heard that the card is canceled.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    ended: bool,
}

/// The bounds of a card, as its issuer is told them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
struct Bounds {
    cap_cents: Option<u64>,
    period: Period,
}

impl Bounds {
    fn of(card: &Card) -> Self {
        Self { cap_cents: card.cap_cents, period: card.period }
    }
}

impl Issued {
    pub(crate) fn last4(&self) -> Option<&str> {
        self.last4.as_deref()
    }
}

/// A move of money that the issuer has told of.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Move {
    /// The issuer's id of it.
    reference: String,
    card: String,
    kind: String,
    amount_cents: u64,
    /// Less than the amount where the account did not have it: a person has to look.
    covered_cents: u64,
    /// The part that is not posted yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    left_cents: Option<u64>,
    /// The account that owes it, while merchants have not been paid yet what they give back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    owed: Option<String>,
}

/// That the issuer has ended an authorization.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct End {
    /// The issuer's id of it.
    reference: String,
    card: String,
    /// The payments that it has named, by its ids: they are told before or after.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    paid: Vec<String>,
}

/// The person whose card it is to be.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Cardholder {
    /// As it stands on the card.
    #[schemars(length(min = 1, max = 24))]
    name: String,
    kind: HolderKind,
    #[serde(default)]
    #[schemars(length(min = 3, max = 254))]
    email: Option<String>,
    /// In E.164: `+15551234567`.
    #[serde(default)]
    #[schemars(length(min = 5, max = 20))]
    phone_number: Option<String>,
    billing: Address,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum HolderKind {
    Individual,
    Company,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Address {
    #[schemars(length(min = 1, max = 200))]
    line1: String,
    #[serde(default)]
    #[schemars(length(min = 1, max = 200))]
    line2: Option<String>,
    #[schemars(length(min = 1, max = 100))]
    city: String,
    #[serde(default)]
    #[schemars(length(min = 1, max = 100))]
    state: Option<String>,
    #[schemars(length(min = 1, max = 20))]
    postal_code: String,
    /// Two letters (ISO 3166-1).
    #[schemars(length(min = 2, max = 2))]
    country: String,
}

/// The holder for whom the issuer is to make a card.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Holder {
    /// Somebody it knows.
    Known(String),
    /// Somebody new.
    New(Box<Cardholder>),
}

#[derive(Serialize, Deserialize)]
struct Wanted {
    card: String,
    /// Whether somebody waits for this run: another one is planned, should it come to nothing.
    waited: bool,
}

#[derive(Serialize, Deserialize)]
struct Mirrored {
    card: String,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Number {
    number: String,
    cvc: String,
    exp_month: u64,
    exp_year: u64,
}

/// The holder of a new card: the person whom the request names, else the one whom the operator has
/// named.
pub(crate) fn holder(named: Option<Cardholder>) -> Result<Holder> {
    let hint = "Leave network out for a card in a closed loop.";
    let binding =
        settings::binding(ISSUER)?.ok_or_else(|| Failure::not_configured(&[ISSUER]).hint(hint))?;
    if let Some(holder) = named {
        return Ok(Holder::New(Box::new(holder)));
    }
    let known = binding.option("cardholder").filter(|id| is_id(id));
    known.map(|id| Holder::Known(id.to_owned())).ok_or_else(|| {
        let told = "is needed: the issuer's binding has no option `cardholder`";
        Failure::invalid("cardholder", told)
    })
}

/// Has the issuer make a card, after this request's commit; answers the job whose answer is the
/// request's.
pub(crate) fn issue_soon(card: Doc<Card>, holder: Holder) -> Result<String> {
    let hook = hooks::open("cards", &card.id, Scheme::Binding(ISSUER))?.id;
    let issued = Issued {
        hook,
        reference: None,
        last4: None,
        holder: Some(holder),
        asked: Some(Bounds::of(&card.body)),
        ended: false,
    };
    CARDS.replace(card.at(), Card { issued: Some(issued), ..card.body })?;
    let wanted = |waited| Job::new(ISSUE, &Wanted { card: card.id.clone(), waited });
    wanted(false)?
        .key(&again(&card.id))
        .at(now().plus_seconds(AGAIN_SECONDS))
        .attempts(ATTEMPTS)
        .enqueue()?;
    wanted(true)?.attempts(1).enqueue()
}

fn again(card: &str) -> String {
    format!("{ISSUE}-{card}")
}

/// One run of the job that has a card made.
pub(crate) fn issue(run: &jobs::Run) -> Result<Answer> {
    let Wanted { card, waited } = run.read()?;
    let card = cards::find(&card)?;
    let Some(issued) = card.body.issued.clone().filter(|_| card.body.status == Status::Pending)
    else {
        return Answer::json(&cards::answer(card)?);
    };
    // The checkpoint commits every read so far: writes of others from here on do not make this run
    // again.
    documents::checkpoint()?;
    let silent = now() > card.created_at.plus_seconds(ASKED_SECONDS);
    let made = match silent {
        false => make(&card, &issued),
        true => Err(Refused::Final(
            Failure::provider("the issuer did not answer for most of a day")
                .reason("provider_silent"),
        )),
    };
    // As it is by now: what was changed meanwhile stays.
    let card = cards::find(&card.id)?;
    if card.body.status != Status::Pending {
        return Answer::json(&cards::answer(card)?);
    }
    let failure = match made {
        Ok(issued) => {
            hooks::refer(&issued.hook, issued.reference.as_deref().unwrap_or_default())?;
            if waited {
                jobs::cancel_key(&again(&card.id))?;
            }
            let active = Card { status: Status::Active, issued: Some(issued), ..card.body.clone() };
            return Answer::json(&cards::replace(&card, active, ISSUER)?);
        }
        // It may be made already: the caller has it as it is, and it is asked for again.
        Err(Refused::Unsure(_)) if waited => return Answer::json(&cards::answer(card)?),
        Err(Refused::Unsure(failure)) => return Err(failure),
        Err(Refused::Final(failure)) => failure,
    };
    hooks::close(&issued.hook)?;
    let issued = Some(Issued { holder: None, asked: None, ..issued });
    let canceled = Card { status: Status::Canceled, issued, ..card.body.clone() };
    let canceled = cards::replace(&card, canceled, ISSUER)?;
    if !waited {
        return Answer::json(&canceled);
    }
    jobs::cancel_key(&again(&card.id))?;
    // A refusal takes back what it wrote: this stays.
    documents::checkpoint()?;
    Err(failure)
}

fn make(card: &Doc<Card>, issued: &Issued) -> Result<Issued, Refused> {
    let holder = match &issued.holder {
        None => return Err(Refused::Final(Failure::internal("the card has no holder"))),
        Some(Holder::Known(id)) => id.clone(),
        Some(Holder::New(holder)) => {
            let made = STRIPE.post(
                "/v1/issuing/cardholders",
                holder.form(),
                &format!("charter-cardholder-{}", card.id),
            )?;
            text(&made, "id")?
        }
    };
    let form = Form::default()
        .with("cardholder", &holder)
        .with("currency", CURRENCY)
        .with("type", "virtual")
        .with("metadata[charter_hook]", &issued.hook)
        .with("metadata[charter_card]", &card.id);
    let made = STRIPE.post(
        "/v1/issuing/cards",
        bound_form(form, Status::Active, issued.asked.unwrap_or_else(|| Bounds::of(&card.body))),
        &format!("charter-card-{}", card.id),
    )?;
    let reference = text(&made, "id")?;
    if !is_id(&reference) {
        return Err(Refused::Unsure(Failure::provider("the issuer's answer has an odd id")));
    }
    let last4 = Some(text(&made, "last4")?);
    let hook = issued.hook.clone();
    Ok(Issued { hook, reference: Some(reference), last4, holder: None, asked: None, ended: false })
}

/// How a card stands, as its issuer is told: what it declines by itself, should it ever not ask.
fn bound_form(form: Form, status: Status, bounds: Bounds) -> Form {
    let status = match status {
        Status::Active => "active",
        Status::Canceled => "canceled",
        Status::Frozen | Status::Pending => "inactive",
    };
    let form = form.with("status", status);
    let Some(cap_cents) = bounds.cap_cents else {
        return form.with("spending_controls[spending_limits]", "");
    };
    let interval = match bounds.period {
        Period::Day => "daily",
        Period::Week => "weekly",
        Period::Month => "monthly",
        Period::Year => "yearly",
        Period::Total => "all_time",
    };
    form.with("spending_controls[spending_limits][0][amount]", &cap_cents.to_string())
        .with("spending_controls[spending_limits][0][interval]", interval)
}

/// Whether a change of a card is one that its issuer knows of.
pub(crate) fn is_concerned(before: &Card, after: &Card) -> bool {
    (before.status, Bounds::of(before)) != (after.status, Bounds::of(after))
}

/// Has the issuer told how a card stands from this request's commit on. One job tells it what one caller
/// changes within a minute: a run that the card changes under does not count. Nobody's is another's,
/// because what a caller asked for ends with its credential; and a job that has failed since earlier
/// waits ever longer, which a new word need not.
pub(crate) fn mirror_later(card: &Doc<Card>, by: &str) -> Result<()> {
    match &card.body.issued {
        Some(Issued { reference: Some(_), .. }) => {
            let minute = now().as_ms() / MINUTE_MS % MIRRORS_MAX;
            Job::new(MIRROR, &Mirrored { card: card.id.clone() })?
                .key(&format!("{MIRROR}-{}-{by}-{minute}", card.id))
                .attempts(ATTEMPTS)
                .enqueue()
                .map(drop)
        }
        _ => Ok(()),
    }
}

/// One run of the job that tells the issuer how a card stands now. If the card changes meanwhile,
/// this run does not count, and the next one tells it anew.
pub(crate) fn mirror(run: &jobs::Run) -> Result<()> {
    let Mirrored { card } = run.read()?;
    let Some(card) = CARDS.get(&card)? else { return Ok(()) };
    if has_ended(&card.body) {
        return Ok(());
    }
    let key = format!("charter-card-{}-{}-{}", card.id, run.id, run.attempt);
    tell(&card, card.body.status, &key)?;
    match card.body.status {
        Status::Canceled => keep_ended(&card),
        _ => Ok(()),
    }
}

/// Whether its issuer has heard that the card is canceled.
fn has_ended(card: &Card) -> bool {
    card.issued.as_ref().is_some_and(|issued| issued.ended)
}

/// Keeps that the issuer has heard so.
fn keep_ended(card: &Doc<Card>) -> Result<()> {
    let issued = card.body.issued.clone().map(|issued| Issued { ended: true, ..issued });
    let canceled = Card { status: Status::Canceled, issued, ..card.body.clone() };
    CARDS.replace(card.at(), canceled).map(drop)
}

fn tell(card: &Doc<Card>, status: Status, key: &str) -> Result<(), Refused> {
    let Some(reference) = card.body.issued.as_ref().and_then(|issued| issued.reference.as_ref())
    else {
        return Ok(());
    };
    let form = match status {
        // Nothing else of such a card may be changed.
        Status::Canceled => Form::default().with("status", "canceled"),
        status => bound_form(Form::default(), status, Bounds::of(&card.body)),
    };
    STRIPE.post(&format!("/v1/issuing/cards/{reference}"), form, key).map(drop)
}

/// The profile of a card is gone: its issuer cancels it, unless it has heard so already. The job that
/// was to say so went with the profile, and the end may be told again. One that will not is left to the operator; the
/// card pays nothing any more, and what comes back to it is the organization's.
pub(crate) fn end(card: &Doc<Card>) -> Result<()> {
    let is_known = card.body.issued.as_ref().is_some_and(|issued| issued.reference.is_some());
    if !is_known || has_ended(&card.body) {
        return Ok(());
    }
    match tell(card, Status::Canceled, &format!("charter-card-{}-end", card.id)) {
        Err(Refused::Final(failure)) => {
            let fields = [("card", card.id.as_str()), ("told", failure.message())];
            log::error("the issuer does not cancel the card of a deleted profile", &fields);
        }
        told => told?,
    }
    keep_ended(card)
}

/// The number of a card of a network.
pub(crate) fn number(Path(ById { id }): Path<ById>) -> Result<Number> {
    let card = cards::usable(&id)?.body;
    let reference = card.issued.and_then(|issued| issued.reference);
    let reference = reference.ok_or_else(|| {
        Failure::conflict("a closed-loop card has no number").reason("closed_loop")
    })?;
    let found = STRIPE.get(
        &format!("/v1/issuing/cards/{reference}"),
        &[("expand[]", "number"), ("expand[]", "cvc")],
    )?;
    let (number, cvc) = (text(&found, "number")?, text(&found, "cvc")?);
    let part = |name: &str| {
        found[name]
            .as_u64()
            .ok_or_else(|| Failure::provider(format!("the issuer's answer has no {name}")))
    };
    let (exp_month, exp_year) = (part("exp_month")?, part("exp_year")?);
    events::emit("cards.revealed", &json!({ "card_id": id }))?;
    Ok(Number { number, cvc, exp_month, exp_year })
}

fn merchant(object: &Value) -> String {
    let data = &object["merchant_data"];
    let name = data["name"].as_str().or_else(|| data["network_id"].as_str()).unwrap_or_default();
    let name: String = name.chars().filter(|c| !c.is_control()).take(MERCHANT_CHARS_MAX).collect();
    if name.trim().is_empty() { "merchant".to_owned() } else { name }
}

fn in_dollars(object: &Value) -> Result<()> {
    match object["currency"].as_str() {
        Some(currency) if currency.eq_ignore_ascii_case(CURRENCY) => Ok(()),
        other => Err(Failure::provider(format!(
            "the card's currency is usd, not {}",
            other.unwrap_or("missing")
        ))),
    }
}

/// A merchant asks to be paid, and the issuer waits. Any failure is a no.
pub(crate) fn decide(call: &Received) -> Result<Value> {
    let event: Value = call.json()?;
    let asked = &event["data"]["object"];
    let (wanted, card) = (&asked["pending_request"], cards::usable(&call.document)?);
    in_dollars(wanted)?;
    let amount_cents = wanted["amount"]
        .as_u64()
        .ok_or_else(|| Failure::provider("the issuer's question has no amount"))?;
    // Nothing is paid where a merchant only looks whether there is such a card.
    if amount_cents > 0 {
        authorizations::ask(card.id, text(asked, "id")?, merchant(asked), amount_cents)?;
    }
    Ok(json!({ "approved": true }))
}

/// The issuer tells what has happened.
pub(crate) fn hear(call: &Received) -> Result<()> {
    let event: Value = call.json()?;
    let object = &event["data"]["object"];
    let id = text(object, "id")?;
    match event["type"].as_str().unwrap_or_default() {
        // Its answer came too late, or the issuer itself has declined.
        "issuing_authorization.created" if object["approved"] == false => {
            note_end(&call.document, id, object)
        }
        "issuing_authorization.updated" if object["status"] != "pending" => {
            note_end(&call.document, id, object)
        }
        "issuing_transaction.created" => note_move(&call.document, &id, object),
        _ => Ok(()),
    }
}

/// The issuer's end of a card's authorization.
fn find_end(card: &str, reference: &str) -> Result<Option<End>> {
    let found = ENDED.lookup("reference", reference)?.map(|found| found.body);
    Ok(found.filter(|end| end.card == card))
}

/// Whether the issuer has ended an authorization.
pub(crate) fn is_ended(card: &str, reference: &str) -> Result<bool> {
    Ok(find_end(card, reference)?.is_some())
}

/// An authorization is over. An amount that was paid by it and not told yet still comes from the
/// money set aside; the rest is given back with the last of them.
fn note_end(card: &str, reference: String, object: &Value) -> Result<()> {
    let paid = object["transactions"].as_array().into_iter().flatten();
    let paid = paid.filter_map(|paid| paid["id"].as_str()).take(PAID_MAX + 1);
    let end = End {
        paid: paid.map(str::to_owned).collect(),
        card: card.to_owned(),
        reference: reference.clone(),
    };
    match ENDED.lookup("reference", &reference)? {
        None => drop(ENDED.insert(end)?),
        // Its word may come late: the one that names more was said later.
        Some(known) if known.body.card == end.card && known.body.paid.len() < end.paid.len() => {
            ENDED.replace(known.at(), end)?;
        }
        Some(_) => {}
    }
    match is_over(card, &reference, None)? {
        true => authorizations::release(card, &reference),
        false => Ok(()),
    }
}

/// Whether the issuer has ended an authorization and told all that it has paid by it; `told` is what it
/// tells now.
fn is_over(card: &str, reference: &str, told: Option<&str>) -> Result<bool> {
    let Some(end) = find_end(card, reference)? else { return Ok(false) };
    if end.paid.len() > PAID_MAX {
        return Ok(false);
    }
    for id in end.paid.iter().filter(|id| told != Some(id)) {
        let known = MOVES.lookup("reference", id)?;
        if known.is_none_or(|known| known.body.left_cents.is_some()) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The issuer has paid a merchant, or got something back: posted once, and as far as it is there.
fn note_move(card: &str, reference: &str, object: &Value) -> Result<()> {
    in_dollars(object)?;
    while !post(card, reference, object)? {
        documents::checkpoint()?;
    }
    give_owed()?;
    match object["authorization"].as_str() {
        Some(authorization) if is_over(card, authorization, Some(reference))? => {
            authorizations::release(card, authorization)
        }
        _ => Ok(()),
    }
}

/// Posts what one commit can of a move; answers whether that was the last of it. Each commit reads
/// anew what it changes: another word on it may have come between.
fn post(card: &str, reference: &str, object: &Value) -> Result<bool> {
    let amount = object["amount"]
        .as_i64()
        .ok_or_else(|| Failure::provider("the issuer's transaction has no amount"))?;
    let authorization = object["authorization"].as_str();
    let card = cards::find(card)?;
    let moved = match MOVES.lookup("reference", reference)? {
        Some(known) => known,
        None => MOVES.insert(Move {
            reference: reference.to_owned(),
            card: card.id.clone(),
            kind: if amount < 0 { "capture" } else { "refund" }.to_owned(),
            amount_cents: amount.unsigned_abs(),
            covered_cents: 0,
            left_cents: Some(amount.unsigned_abs()).filter(|cents| *cents > 0),
            owed: None,
        })?,
    };
    let Some(left_cents) = moved.body.left_cents else { return Ok(true) };
    let (posted, covered) = if amount < 0 {
        let is_over =
            authorization.map_or(Ok(false), |id| is_over(&card.id, id, Some(reference)))?;
        authorizations::pay(&card.id, authorization, merchant(object), left_cents, is_over)?
    } else {
        (left_cents, take_back(&card, left_cents, reference)?)
    };
    let left_cents = Some(left_cents - posted).filter(|cents| *cents > 0);
    let covered_cents = moved.body.covered_cents + covered;
    let is_owed = amount > 0 && covered_cents < moved.body.amount_cents;
    let owed = is_owed.then(|| MERCHANTS.to_owned());
    let moved =
        MOVES.replace(moved.at(), Move { left_cents, covered_cents, owed, ..moved.body })?;
    if left_cents.is_some() {
        return Ok(false);
    }
    freeze_uncovered(&card, &moved.body)?;
    Ok(true)
}

/// Freezes a card that had less than was moved.
fn freeze_uncovered(card: &Doc<Card>, moved: &Move) -> Result<()> {
    if moved.covered_cents == moved.amount_cents {
        return Ok(());
    }
    let fields = [("card", card.id.as_str()), ("transaction", moved.reference.as_str())];
    log::error("an issuer has moved more than the card has; it is frozen", &fields);
    match card.body.status {
        Status::Active => {
            let frozen = Card { status: Status::Frozen, ..card.body.clone() };
            cards::replace(card, frozen, ISSUER).map(drop)
        }
        _ => Ok(()),
    }
}

/// Refunds of merchants that were told before their payments come to their cards once those are
/// posted, whichever card has paid: what merchants have is one account. In portions.
fn give_owed() -> Result<()> {
    let owed = || MOVES.matching("owed", MERCHANTS).oldest_first().limit(OWED_A_COMMIT).find();
    while !owed()?.items.is_empty() {
        // They have what they were paid with the commit; who is owed is read in the next.
        documents::checkpoint()?;
        let mut given = 0;
        for told in owed()?.items {
            let (at, body) = (told.at(), told.body);
            let card = cards::find(&body.card)?;
            let missing = body.amount_cents - body.covered_cents;
            let part = take_back(&card, missing, &body.reference)?;
            let covered_cents = body.covered_cents + part;
            let owed = body.owed.filter(|_| covered_cents < body.amount_cents);
            MOVES.replace(at, Move { covered_cents, owed, ..body })?;
            given += part;
        }
        if given == 0 {
            break;
        }
    }
    Ok(())
}

/// Posts what comes back to a card, as far as it is there; answers how much that was. Of a canceled
/// card it is the organization's, but for what the card owes.
fn take_back(card: &Doc<Card>, amount_cents: u64, reference: &str) -> Result<u64> {
    let own = account(&card.id);
    let there = amount_cents.min(money::there(MERCHANTS)?);
    let kept = match card.body.status {
        Status::Canceled => there.min(money::debt(&own)?),
        _ => there,
    };
    for (to, part) in [(own.as_str(), kept), (ledger::CREDIT, there - kept)] {
        if part > 0 {
            ledger::transfer(MERCHANTS, to, micro_usd(part), "refund", reference)?;
        }
    }
    Ok(there)
}

impl Cardholder {
    fn form(&self) -> Form {
        let kind = match self.kind {
            HolderKind::Individual => "individual",
            HolderKind::Company => "company",
        };
        let address = &self.billing;
        let always = [
            ("name", Some(&self.name)),
            ("email", self.email.as_ref()),
            ("phone_number", self.phone_number.as_ref()),
            ("billing[address][line1]", Some(&address.line1)),
            ("billing[address][line2]", address.line2.as_ref()),
            ("billing[address][city]", Some(&address.city)),
            ("billing[address][state]", address.state.as_ref()),
            ("billing[address][postal_code]", Some(&address.postal_code)),
            ("billing[address][country]", Some(&address.country)),
        ];
        let members = always.into_iter().filter_map(|(name, value)| Some((name, value?)));
        members
            .fold(Form::default().with("type", kind), |form, (name, value)| form.with(name, value))
    }
}
