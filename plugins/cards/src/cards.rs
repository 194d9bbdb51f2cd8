//! The card itself: made, shown, bounded, frozen, topped up, canceled. The changes that a card's
//! issuer has to hear of are `issuer`'s.

use charter_sdk::governance::{self, Proposal};
use charter_sdk::jobs::{self, Job};
use charter_sdk::ledger::Balance;
use charter_sdk::money::{cents, micro_usd};
use charter_sdk::prelude::*;
use charter_sdk::{Caller, Soon, documents, events, ledger};

use crate::authorizations::{self, AUTHORIZATIONS};
use crate::issuer::{self, Cardholder, Issued};
use crate::money::{self, MERCHANTS, SCOPE, TOP_UP, account};

pub(crate) const CARDS: Collection<Card> = Collection::new("cards");

/// The job that returns the money of a canceled card.
pub(crate) const RETURN: &str = "return";
/// How long after a card was canceled that job runs: its request is over by then.
const RETURN_SECONDS: u32 = 120;
/// Runs of that job: what waits for approval is decided long before the last.
const RETURN_ATTEMPTS: u32 = 100;
/// Cards of one commit when all are closed. The transfer of each is four rows of the thousand that
/// a commit has.
const CARDS_A_COMMIT: u32 = 50;

/// A card, as it is kept. Its balance is the ledger's.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Card {
    pub(crate) label: Option<String>,
    pub(crate) status: Status,
    pub(crate) cap_cents: Option<u64>,
    pub(crate) period: Period,
    /// The issuer's knowledge of it, where it is a card of a network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) issued: Option<Issued>,
}

/// The state of a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Status {
    /// Its issuer has not answered yet.
    Pending,
    Active,
    Frozen,
    Canceled,
}

/// The period over which a cap is counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Period {
    Day,
    Week,
    #[default]
    Month,
    Year,
    Total,
}

impl Period {
    fn as_str(self) -> &'static str {
        match self {
            Period::Day => "day",
            Period::Week => "week",
            Period::Month => "month",
            Period::Year => "year",
            Period::Total => "total",
        }
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewCard {
    /// For people.
    #[serde(default)]
    #[schemars(length(min = 1, max = 200))]
    label: Option<String>,
    /// The amount that may be authorized in a period; where absent, only the budgets above the card
    /// bound it.
    #[serde(default)]
    #[schemars(range(min = 1, max = 1_000_000_000))]
    cap_cents: Option<u64>,
    #[serde(default)]
    period: Period,
    /// `open_loop` needs an issuer, and is 501 without one.
    #[serde(default)]
    network: Network,
    /// The person named as cardholder at its issuer; the issuer's binding may name one instead.
    #[serde(default)]
    cardholder: Option<Cardholder>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Change {
    #[serde(default)]
    #[schemars(length(min = 1, max = 200))]
    label: Option<String>,
    #[serde(default)]
    #[schemars(range(min = 1, max = 1_000_000_000))]
    cap_cents: Option<u64>,
    #[serde(default)]
    period: Option<Period>,
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct TopUp {
    /// How much, in whole cents.
    #[schemars(range(min = 1, max = 1_000_000_000))]
    amount_cents: u64,
}

/// The loop that a card's money moves in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Network {
    /// Within this deployment.
    #[default]
    ClosedLoop,
    /// A card network's, through an issuer.
    OpenLoop,
}

#[derive(Serialize, Deserialize)]
struct Canceled {
    card: String,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Shown {
    id: String,
    label: Option<String>,
    status: Status,
    network: Network,
    /// The last four digits by which people tell cards apart; null while its issuer has not
    /// answered.
    last4: Option<String>,
    /// The amount that can be authorized now, as far as the balance goes.
    balance_cents: i64,
    cap_cents: Option<u64>,
    period: Period,
    created_at: Instant,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct CardAnswer {
    card: Shown,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct CardList {
    cards: Vec<Shown>,
    /// Whether there are more behind this page.
    has_more: bool,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Transaction {
    id: String,
    /// `top_up`, `capture`, `refund` or `canceled`.
    kind: String,
    /// Positive where the balance grew.
    amount_cents: i64,
    at: Instant,
    /// The authorization that it is of, if it is of one.
    reference: Option<String>,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Transactions {
    transactions: Vec<Transaction>,
    has_more: bool,
    next_cursor: Option<String>,
}

/// The card of the path.
pub(crate) fn find(id: &str) -> Result<Doc<Card>> {
    CARDS.get(id)?.or_not_found("card")
}

/// The same, where money may come back to it.
pub(crate) fn find_open(id: &str) -> Result<Doc<Card>> {
    let card = find(id)?;
    match card.body.status {
        Status::Canceled => Err(refuse_canceled()),
        _ => Ok(card),
    }
}

/// The same, where something new may be done with it.
pub(crate) fn usable(id: &str) -> Result<Doc<Card>> {
    let card = find(id)?;
    match card.body.status {
        Status::Active => Ok(card),
        Status::Pending => Err(pending()),
        Status::Frozen => Err(Failure::conflict("the card is frozen").reason("card_frozen")),
        Status::Canceled => Err(refuse_canceled()),
    }
}

fn refuse_canceled() -> Failure {
    Failure::conflict("the card is canceled").reason("card_canceled")
}

fn pending() -> Failure {
    Failure::conflict("the card's issuer has not answered yet").reason("card_pending")
}

/// A closed-loop card has no number; four digits of its id tell it apart.
fn last4(card: &Doc<Card>) -> Option<String> {
    if let Some(issued) = &card.body.issued {
        return issued.last4().map(str::to_owned);
    }
    let sum =
        card.id.bytes().fold(7_u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
    Some(format!("{:04}", sum % 10_000))
}

fn show(card: Doc<Card>, available: i64) -> Shown {
    Shown {
        last4: last4(&card),
        label: card.body.label,
        status: card.body.status,
        network: if card.body.issued.is_some() { Network::OpenLoop } else { Network::ClosedLoop },
        balance_cents: cents(available),
        cap_cents: card.body.cap_cents,
        period: card.body.period,
        created_at: card.created_at,
        id: card.id,
    }
}

fn available(id: &str) -> Result<i64> {
    Ok(ledger::balance(&account(id))?.available)
}

pub(crate) fn answer(card: Doc<Card>) -> Result<CardAnswer> {
    let available = available(&card.id)?;
    Ok(CardAnswer { card: show(card, available) })
}

/// Writes a card as `by` leaves it; its issuer hears of it after the commit.
pub(crate) fn replace(before: &Doc<Card>, after: Card, by: &str) -> Result<CardAnswer> {
    let status = after.status;
    let card = CARDS.replace(before.at(), after)?;
    if issuer::is_concerned(&before.body, &card.body) {
        issuer::mirror_later(&card, by)?;
    }
    events::emit("cards.updated", &json!({ "card_id": card.id, "status": status }))?;
    answer(card)
}

fn set_cap(id: &str, card: &Card) -> Result<()> {
    // Counted in the organization's own time zone.
    governance::set_cap(SCOPE, id, card.cap_cents.map(micro_usd), card.period.as_str(), "")
}

pub(crate) fn create(Body(new): Body<NewCard>) -> Result<Soon<Created<CardAnswer>>> {
    let (label, cap_cents, period) = (new.label, new.cap_cents, new.period);
    let card = Card { label, status: Status::Active, cap_cents, period, issued: None };
    if new.network == Network::OpenLoop {
        let holder = issuer::holder(new.cardholder)?;
        let card = insert(Card { status: Status::Pending, ..card })?;
        return issuer::issue_soon(card, holder).map(Soon::Job);
    }
    if new.cardholder.is_some() {
        return Err(Failure::invalid("cardholder", "is for cards of the network `open_loop`"));
    }
    Ok(Soon::Now(Created(CardAnswer { card: show(insert(card)?, 0) })))
}

fn insert(card: Card) -> Result<Doc<Card>> {
    let card = CARDS.insert(card)?;
    ledger::open(&account(&card.id))?;
    ledger::open(MERCHANTS)?;
    set_cap(&card.id, &card.body)?;
    events::emit("cards.updated", &json!({ "card_id": card.id, "status": card.body.status }))?;
    Ok(card)
}

pub(crate) fn list(Query(page): Query<Offset>) -> Result<CardList> {
    let found = CARDS.all().page(page)?;
    let has_more = found.has_more;
    let cards = found.items.into_iter().map(|card| {
        let available = available(&card.id)?;
        Ok(show(card, available))
    });
    Ok(CardList { cards: cards.collect::<Result<_>>()?, has_more })
}

pub(crate) fn read(Path(ById { id }): Path<ById>) -> Result<CardAnswer> {
    answer(find(&id)?)
}

/// Whether a change of the bounds lets more through.
fn is_looser(before: &Card, after: &Card) -> bool {
    match (before.cap_cents, after.cap_cents) {
        (None, _) => false,
        (Some(_), None) => true,
        (Some(before_cents), Some(after_cents)) => {
            after_cents > before_cents || before.period != after.period
        }
    }
}

pub(crate) fn update(
    Path(ById { id }): Path<ById>,
    Body(change): Body<Change>,
    caller: Caller,
) -> Result<CardAnswer> {
    let card = find(&id)?;
    let before = &card.body;
    if before.status == Status::Canceled {
        return Err(Failure::conflict("the card is canceled").reason("card_canceled"));
    }
    let after = Card {
        label: change.label.or_else(|| before.label.clone()),
        cap_cents: change.cap_cents.or(before.cap_cents),
        period: change.period.unwrap_or(before.period),
        status: before.status,
        issued: before.issued.clone(),
    };
    if is_looser(before, &after) {
        money::loosens(&caller)?;
    }
    set_cap(&id, &after)?;
    replace(&card, after, &name(&caller))
}

/// A caller, by the name under which its changes are told.
fn name(caller: &Caller) -> String {
    let (kind, id) = &caller.actor;
    format!("{kind}-{id}")
}

pub(crate) fn freeze(Path(ById { id }): Path<ById>, caller: Caller) -> Result<CardAnswer> {
    let card = usable(&id)?;
    let frozen = Card { status: Status::Frozen, ..card.body.clone() };
    replace(&card, frozen, &name(&caller))
}

pub(crate) fn unfreeze(Path(ById { id }): Path<ById>, caller: Caller) -> Result<CardAnswer> {
    let card = find(&id)?;
    if card.status != Status::Frozen {
        return Err(Failure::conflict("the card is not frozen").reason("card_not_frozen"));
    }
    money::loosens(&caller)?;
    let active = Card { status: Status::Active, ..card.body.clone() };
    replace(&card, active, &name(&caller))
}

pub(crate) fn cancel(Path(ById { id }): Path<ById>, caller: Caller) -> Result<CardAnswer> {
    let card = find(&id)?;
    match card.body.status {
        Status::Canceled => return return_late(card),
        Status::Pending => return Err(pending()),
        Status::Active | Status::Frozen => {}
    }
    let held = AUTHORIZATIONS.matching("open", &id).limit(1).find()?.items;
    let balance = ledger::balance(&account(&id))?;
    // One that waits for approval is no document yet: its money is set aside all the same.
    if held.iter().any(|held| held.body.is_open()) || balance.pending_out > 0 {
        let told = "an authorization of the card is open, or waits for approval";
        let hint = "Capture or reverse it first, or have what waits for approval decided on.";
        return Err(Failure::conflict(told).reason("authorization_open").hint(hint));
    }
    let canceled = Card { status: Status::Canceled, ..card.body.clone() };
    let answer = replace(&card, canceled, &name(&caller))?;
    Job::new(RETURN, &Canceled { card: id.clone() })?
        .key(&again(&id))
        .at(now().plus_seconds(RETURN_SECONDS))
        .attempts(RETURN_ATTEMPTS)
        .enqueue()?;
    // From here on no top-up and no refund is committed: each has read the card. So the balance
    // that is read now is all there is.
    documents::checkpoint()?;
    let rest = return_rest(&id)?;
    if rest.pending_out == 0 {
        jobs::cancel_key(&again(&id))?;
    }
    Ok(CardAnswer { card: Shown { balance_cents: cents(rest.available.min(0)), ..answer.card } })
}

/// Returns what a card that is canceled already still has. Its own cancel is left the time to do
/// so: of two that pay the same balance one would be refused after it has acted.
fn return_late(card: Doc<Card>) -> Result<CardAnswer> {
    let own = card.updated_at.plus_seconds(RETURN_SECONDS);
    if now() < own || return_rest(&card.id)?.available <= 0 {
        return Err(Failure::conflict("the card is canceled already").reason("card_canceled"));
    }
    Ok(CardAnswer { card: show(card, 0) })
}

pub(crate) fn top_up(
    Path(ById { id }): Path<ById>,
    Body(TopUp { amount_cents }): Body<TopUp>,
) -> Result<CardAnswer> {
    let card = usable(&id)?;
    let amount = micro_usd(amount_cents);
    let name = || format!("card ending in {}", last4(&card).unwrap_or_default());
    let name = card.body.label.clone().unwrap_or_else(name);
    let permit = Proposal::new(TOP_UP, &id)
        .amount(amount)
        .explain(
            "top_up",
            format!("Moves {amount_cents} cents of the organization's credit to {name}."),
        )
        .pays(ledger::CREDIT, &account(&id))
        .authorize()?;
    let before = available(&id)?;
    permit.capture(amount)?;
    Ok(CardAnswer { card: show(card, before + amount) })
}

/// The profile is gone: what the cards hold returns to the organization's credit, what is set aside
/// is given back and returns too, and their issuer cancels them. An amount that an issuer has approved
/// stays set aside: the issuer is heard still, and what comes free of it returns when the end is told
/// again.
///
/// Each portion is a commit of its own: a run that breaks off keeps what it has paid, and the next
/// one finds the rest.
pub(crate) fn close_all() -> Result<()> {
    // The free money first: no hold that cannot be given back now keeps it.
    each_card(|card| return_rest(&card.id).map(drop))?;
    let mut failed = None;
    each_card(|card| close_authorizations(&card.id, &mut failed))?;
    each_card(|card| return_rest(&card.id).map(drop))?;
    // The money is where it belongs, whatever becomes of what is asked of others.
    each_card(issuer::end)?;
    // And what came back to a card while its issuer was asked.
    each_card(|card| return_rest(&card.id).map(drop))?;
    failed.map_or(Ok(()), Err)
}

/// Does something with each card, and commits after every page of them.
fn each_card(mut act: impl FnMut(&Doc<Card>) -> Result<()>) -> Result<()> {
    let mut cursor = None;
    loop {
        let page = CARDS.all().relax().page_at(Cursor { limit: CARDS_A_COMMIT, cursor })?;
        page.items.iter().try_for_each(&mut act)?;
        documents::checkpoint()?;
        cursor = page.next;
        if !page.has_more {
            return Ok(());
        }
    }
}

/// Closes what is set aside on a card, and notes the first failure: one that another request
/// settles at this moment keeps none of the others.
fn close_authorizations(card: &str, failed: &mut Option<Failure>) -> Result<()> {
    let mut cursor = None;
    loop {
        let open = AUTHORIZATIONS.matching("open", card).relax();
        let page = open.page_at(Cursor { limit: authorizations::A_COMMIT, cursor })?;
        if page.items.is_empty() {
            return Ok(());
        }
        for held in page.items {
            if let Err(failure) = authorizations::close(held) {
                failed.get_or_insert(failure);
            }
        }
        documents::checkpoint()?;
        cursor = page.next;
        if !page.has_more {
            return Ok(());
        }
    }
}

/// Pays what is free on a card to the organization's credit; answers the balance before.
fn return_rest(id: &str) -> Result<Balance> {
    let balance = ledger::balance(&account(id))?;
    if balance.available > 0 {
        ledger::transfer(&account(id), ledger::CREDIT, balance.available, "canceled", "")?;
    }
    Ok(balance)
}

fn again(card: &str) -> String {
    format!("{RETURN}-{card}")
}

/// One run of the job that returns what a canceled card still has: the request that canceled it
/// broke off, or something was set aside and comes free later.
pub(crate) fn return_later(run: &jobs::Run) -> Result<()> {
    let Canceled { card } = run.read()?;
    if return_rest(&card)?.pending_out == 0 {
        return Ok(());
    }
    // A failed run takes back what it wrote: what was free stays paid.
    documents::checkpoint()?;
    Err(Failure::conflict("money of the canceled card is still set aside"))
}

pub(crate) fn transactions(
    Path(ById { id }): Path<ById>,
    Query(page): Query<Cursor>,
) -> Result<Transactions> {
    find(&id)?;
    let (entries, next_cursor) =
        ledger::entries(&account(&id), page.cursor.as_deref(), page.limit)?;
    let transactions = entries.into_iter().map(|entry| Transaction {
        id: entry.id,
        kind: entry.memo,
        amount_cents: cents(entry.amount),
        at: entry.at,
        reference: Some(entry.reference)
            .filter(|reference| !reference.is_empty() && reference != "cards"),
    });
    Ok(Transactions {
        transactions: transactions.collect(),
        has_more: next_cursor.is_some(),
        next_cursor,
    })
}
