//! The actions of merchants on a card: money set aside, captured, given back, refunded.

use charter_sdk::documents;
use charter_sdk::events;
use charter_sdk::governance::{self, Proposal};
use charter_sdk::money::micro_usd;
use charter_sdk::prelude::*;

use crate::cards::{find as card, find_open, usable};
use crate::issuer::is_ended;
use crate::money::{self, AUTHORIZE, MERCHANTS, REFUND, SCOPE, account};

/// `open` is the card's id while nothing was captured or given back; `issuer` is what its card's
/// issuer calls it.
pub(crate) const AUTHORIZATIONS: Collection<Authorization> = Collection::new("authorizations")
    .index(&[Index::text("card"), Index::text("open"), Index::text("issuer")]);

/// How long an authorization waits for its capture.
const DAYS: u32 = 7;
/// How long one of a card network may: its issuer says when it is over.
const NETWORK_DAYS: u32 = 31;
/// Requests that one authorization of an issuer consists of: it grows by further ones.
const REQUESTS_MAX: u32 = 100;
/// Authorizations that are settled in one commit: each is a row in every budget and every limit that
/// counts it.
pub(crate) const A_COMMIT: u32 = 5;

/// An authorization, as it is kept.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Authorization {
    card: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    open: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    issuer: Option<String>,
    status: Status,
    /// The hold behind it.
    permit: String,
    merchant: String,
    reference: Option<String>,
    amount_cents: u64,
    captured_cents: u64,
    refunded_cents: u64,
    expires_at: Instant,
}

/// The state of an authorization.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Status {
    Authorized,
    Captured,
    Reversed,
    Refunded,
    Expired,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewAuthorization {
    /// How much, in whole cents.
    #[schemars(range(min = 1, max = 1_000_000_000))]
    amount_cents: u64,
    /// The merchant, who alone may capture it.
    #[schemars(length(min = 1, max = 200))]
    merchant: String,
    /// The merchant's own.
    #[serde(default)]
    #[schemars(length(min = 1, max = 200))]
    reference: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Amount {
    /// How much, in whole cents; all of it where absent.
    #[serde(default)]
    #[schemars(range(min = 1, max = 1_000_000_000))]
    amount_cents: Option<u64>,
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct OfCard {
    #[schemars(length(min = 1, max = 200))]
    id: String,
    #[schemars(length(min = 1, max = 200))]
    authorization_id: String,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Shown {
    id: String,
    card_id: String,
    status: Status,
    merchant: String,
    reference: Option<String>,
    amount_cents: u64,
    captured_cents: u64,
    refunded_cents: u64,
    expires_at: Instant,
    created_at: Instant,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct AuthorizationAnswer {
    authorization: Shown,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct AuthorizationList {
    authorizations: Vec<Shown>,
    /// Whether there are more behind this page.
    has_more: bool,
}

impl Authorization {
    /// Whether its hold still stands.
    pub(crate) fn is_open(&self) -> bool {
        self.now_stands() == Status::Authorized
    }

    /// The amount that is set aside for it while it is open.
    fn left_cents(&self) -> u64 {
        self.amount_cents.saturating_sub(self.captured_cents)
    }

    /// The status once nothing is set aside any more and the rest was given back.
    fn without_rest(&self) -> Status {
        if self.captured_cents > 0 { Status::Captured } else { Status::Reversed }
    }

    fn now_stands(&self) -> Status {
        match self.status {
            Status::Authorized if now() < self.expires_at => Status::Authorized,
            Status::Authorized if self.captured_cents > 0 => Status::Captured,
            Status::Authorized => Status::Expired,
            status => status,
        }
    }
}

fn show(doc: Doc<Authorization>) -> Shown {
    Shown {
        id: doc.id,
        status: doc.body.now_stands(),
        card_id: doc.body.card,
        merchant: doc.body.merchant,
        reference: doc.body.reference,
        amount_cents: doc.body.amount_cents,
        captured_cents: doc.body.captured_cents,
        refunded_cents: doc.body.refunded_cents,
        expires_at: doc.body.expires_at,
        created_at: doc.created_at,
    }
}

fn announce(doc: Doc<Authorization>) -> Result<AuthorizationAnswer> {
    let authorization = show(doc);
    events::emit(
        "cards.authorization.updated",
        &json!({ "card_id": authorization.card_id, "authorization_id": authorization.id, "status": authorization.status }),
    )?;
    Ok(AuthorizationAnswer { authorization })
}

fn of_card(path: &OfCard) -> Result<Doc<Authorization>> {
    let found =
        AUTHORIZATIONS.get(&path.authorization_id)?.filter(|found| found.body.card == path.id);
    found.or_not_found("authorization")
}

/// The authorization of the path, where it is the caller's to settle: what a card network has
/// authorized, its issuer settles.
fn own(path: &OfCard) -> Result<Doc<Authorization>> {
    let found = of_card(path)?;
    match found.body.issuer {
        None => Ok(found),
        Some(_) => Err(open_loop()),
    }
}

fn open_loop() -> Failure {
    Failure::conflict(
        "merchants of the card's network authorize, capture and refund through its issuer",
    )
    .reason("open_loop")
}

/// The authorization of the path, while it can be captured or given back.
fn open(path: &OfCard) -> Result<Doc<Authorization>> {
    let found = own(path)?;
    match found.body.now_stands() {
        Status::Authorized => Ok(found),
        Status::Expired => {
            Err(Failure::conflict("the authorization has expired").reason("authorization_expired"))
        }
        _ => Err(Failure::conflict("the authorization is settled already")
            .reason("authorization_settled")),
    }
}

/// The proposal to pay a merchant from a card.
fn propose(card: &str, new: &NewAuthorization) -> Proposal {
    Proposal::new(AUTHORIZE, &new.merchant)
        .amount(micro_usd(new.amount_cents))
        .within(SCOPE, card)
        .explain("capture", format!("Sets {} cents aside for {}.", new.amount_cents, new.merchant))
        .context(&json!({ "card_id": card, "merchant": new.merchant, "reference": new.reference }))
        .pays(&account(card), MERCHANTS)
}

pub(crate) fn create(
    Path(ById { id }): Path<ById>,
    Body(new): Body<NewAuthorization>,
) -> Result<Created<AuthorizationAnswer>> {
    match usable(&id)?.body.issued {
        None => Ok(Created(announce(hold(id, new, None, DAYS)?)?)),
        Some(_) => Err(open_loop()),
    }
}

/// Sets money aside. `issuer` is what the card's issuer calls it.
fn hold(
    card: String,
    new: NewAuthorization,
    issuer: Option<String>,
    days: u32,
) -> Result<Doc<Authorization>> {
    let permit = propose(&card, &new).authorize()?;
    let expires_at = now().plus_seconds(days * 86_400);
    let authorization = Authorization {
        open: Some(card.clone()),
        card,
        issuer,
        status: Status::Authorized,
        permit: permit.id(),
        merchant: new.merchant,
        reference: new.reference,
        amount_cents: new.amount_cents,
        captured_cents: 0,
        refunded_cents: 0,
        expires_at,
    };
    permit.keep(expires_at)?;
    AUTHORIZATIONS.insert(authorization)
}

/// A request of a card network's merchant: the amount is set aside, or the request refused.
pub(crate) fn ask(card: String, issuer: String, merchant: String, amount_cents: u64) -> Result<()> {
    if is_ended(&card, &issuer)? {
        return Err(Failure::conflict("the issuer has ended the authorization")
            .reason("authorization_ended"));
    }
    if list_held(&card, &issuer)?.len() >= REQUESTS_MAX as usize {
        let told = format!("an authorization grows by at most {REQUESTS_MAX} requests");
        return Err(Failure::conflict(told).reason("requests_exhausted"));
    }
    let new = NewAuthorization { amount_cents, merchant, reference: Some(issuer.clone()) };
    announce(hold(card, new, Some(issuer), NETWORK_DAYS)?).map(drop)
}

/// The amounts still set aside for an authorization of the issuer's, oldest first.
fn list_held(card: &str, issuer: &str) -> Result<Vec<Doc<Authorization>>> {
    let found = AUTHORIZATIONS
        .matching("issuer", issuer)
        .and("open", card)
        .oldest_first()
        .limit(REQUESTS_MAX);
    Ok(found.find()?.items.into_iter().filter(|held| held.body.is_open()).collect())
}

/// The issuer has ended an authorization, and told all that it has paid by it: what is still set aside
/// for it is given back, in portions.
pub(crate) fn release(card: &str, issuer: &str) -> Result<()> {
    loop {
        // Others than those that are settled with this commit.
        documents::checkpoint()?;
        let held = list_held(card, issuer)?;
        if held.is_empty() {
            return Ok(());
        }
        for found in held.into_iter().take(A_COMMIT as usize) {
            give_back(found)?;
        }
    }
}

fn give_back(found: Doc<Authorization>) -> Result<AuthorizationAnswer> {
    governance::reopen(&found.body.permit)?.cancel()?;
    announce(AUTHORIZATIONS.replace(
        found.at(),
        Authorization { status: found.body.without_rest(), open: None, ..found.body },
    )?)
}

/// Its card's profile is gone. An issuer settles still what it has approved.
pub(crate) fn close(found: Doc<Authorization>) -> Result<()> {
    match found.body.is_open() && found.body.issuer.is_none() {
        true => give_back(found).map(drop),
        false => Ok(()),
    }
}

fn take(found: Doc<Authorization>, amount_cents: u64) -> Result<AuthorizationAnswer> {
    governance::reopen(&found.body.permit)?.capture(micro_usd(amount_cents))?;
    let captured_cents = found.body.captured_cents + amount_cents;
    let at = found.at();
    let settled =
        Authorization { status: Status::Captured, open: None, captured_cents, ..found.body };
    announce(AUTHORIZATIONS.replace(at, settled)?)
}

/// A part of it is paid: the rest stays set aside, for as long again.
fn take_part(found: Doc<Authorization>, amount_cents: u64) -> Result<AuthorizationAnswer> {
    let expires_at = now().plus_seconds(NETWORK_DAYS * 86_400);
    let permit = governance::reopen(&found.body.permit)?;
    permit.capture_part(micro_usd(amount_cents), expires_at)?;
    let captured_cents = found.body.captured_cents + amount_cents;
    announce(
        AUTHORIZATIONS
            .replace(found.at(), Authorization { captured_cents, expires_at, ..found.body })?,
    )
}

/// The issuer has paid a merchant. It comes from what was set aside for it, in parts too, and more
/// than that included: what is left stays set aside, unless the authorization is over with it. If
/// nothing is, leave is asked for it anew, and if even that is refused it is reported. Answers how
/// much of it is posted with the next commit, and how much of that the card had: of an authorization
/// that has grown by many requests the amount is posted in portions.
pub(crate) fn pay(
    card: &str,
    issuer: Option<&str>,
    merchant: String,
    amount_cents: u64,
    is_over: bool,
) -> Result<(u64, u64)> {
    let unheld = || Ok((amount_cents, pay_unheld(card, merchant, amount_cents)?));
    let Some(issuer) = issuer else { return unheld() };
    let held = list_held(card, issuer)?;
    let Some(last) = held.len().checked_sub(1) else { return unheld() };
    let set_aside: u64 = held.iter().map(|found| found.body.left_cents()).sum();
    let there = money::there(&account(card))?;
    let mut left = amount_cents;
    for (place, found) in held.into_iter().enumerate().take(A_COMMIT as usize) {
        let aside = found.body.left_cents();
        let part = if place == last { left } else { left.min(aside) };
        left -= part;
        match part {
            0 if is_over => drop(give_back(found)?),
            0 => {}
            part if part < aside && !is_over => drop(take_part(found, part)?),
            part => drop(take(found, part)?),
        }
    }
    let posted = amount_cents - left;
    Ok((posted, posted.min(set_aside.saturating_add(there))))
}

/// Whether nobody knows yet that leave is refused: it is asked for again.
fn is_unsure(failure: &Failure) -> bool {
    ["overloaded", "job_not_ready", "internal_error"].iter().any(|code| failure.is(code))
}

fn pay_unheld(card: &str, merchant: String, amount_cents: u64) -> Result<u64> {
    let there = money::there(&account(card))?;
    let proposal = propose(card, &NewAuthorization { amount_cents, merchant, reference: None });
    match proposal.clone().authorize() {
        Ok(permit) => permit.capture(micro_usd(amount_cents)).map(|()| amount_cents),
        Err(failure) if is_unsure(&failure) => Err(failure),
        Err(_) => proposal.report().map(|()| amount_cents.min(there)),
    }
}

pub(crate) fn list(
    Path(ById { id }): Path<ById>,
    Query(page): Query<Offset>,
) -> Result<AuthorizationList> {
    card(&id)?;
    let found = AUTHORIZATIONS.matching("card", &id).page(page)?;
    Ok(AuthorizationList {
        has_more: found.has_more,
        authorizations: found.items.into_iter().map(show).collect(),
    })
}

pub(crate) fn read(Path(path): Path<OfCard>) -> Result<AuthorizationAnswer> {
    Ok(AuthorizationAnswer { authorization: show(of_card(&path)?) })
}

pub(crate) fn capture(
    Path(path): Path<OfCard>,
    Body(Amount { amount_cents }): Body<Amount>,
) -> Result<AuthorizationAnswer> {
    let found = open(&path)?;
    let captured_cents = amount_cents.unwrap_or(found.body.amount_cents);
    take(found, captured_cents)
}

pub(crate) fn reverse(Path(path): Path<OfCard>) -> Result<AuthorizationAnswer> {
    give_back(open(&path)?)
}

pub(crate) fn refund(
    Path(path): Path<OfCard>,
    Body(Amount { amount_cents }): Body<Amount>,
) -> Result<AuthorizationAnswer> {
    let found = own(&path)?;
    find_open(&path.id)?;
    let left = found.body.captured_cents.saturating_sub(found.body.refunded_cents);
    if left == 0 {
        return Err(
            Failure::conflict("nothing of it is left to refund").reason("nothing_to_refund")
        );
    }
    let amount = amount_cents.unwrap_or(left);
    if amount > left {
        return Err(Failure::invalid(
            "amount_cents",
            format!("at most {left} cents are left to refund"),
        ));
    }
    let Authorization { merchant, captured_cents, .. } = &found.body;
    Proposal::new(REFUND, &found.id)
        .amount(micro_usd(amount))
        .explain(
            "refund",
            format!("Gives {amount} of {captured_cents} cents back from {merchant}."),
        )
        // Nothing that another refund changes: of several that wait, each can be made.
        .context(&json!({ "card_id": path.id, "merchant": merchant }))
        .pays(MERCHANTS, &account(&path.id))
        .authorize()?
        .capture(micro_usd(amount))?;
    let refunded_cents = found.body.refunded_cents + amount;
    let status = if refunded_cents == found.body.captured_cents {
        Status::Refunded
    } else {
        Status::Captured
    };
    announce(
        AUTHORIZATIONS
            .replace(found.at(), Authorization { status, refunded_cents, ..found.body })?,
    )
}
