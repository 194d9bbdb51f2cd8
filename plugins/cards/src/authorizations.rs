//! What merchants do with a card: money set aside, captured, given back, refunded.

use charter_sdk::governance::{self, Proposal};
use charter_sdk::money::micro_usd;
use charter_sdk::prelude::*;
use charter_sdk::{events, ledger};

use crate::cards::{find as card, usable};
use crate::money::{AUTHORIZE, MERCHANTS, SCOPE, account};

/// `open` is the card's id while nothing was captured or given back.
pub(crate) const AUTHORIZATIONS: Collection<Authorization> =
    Collection::new("authorizations").indexed(&[Index::text("card"), Index::text("open")]);

/// How long an authorization waits for its capture.
const DAYS: u32 = 7;

/// An authorization, as it is kept.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Authorization {
    card: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    open: Option<String>,
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

/// Where an authorization stands.
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
    /// Who may capture it.
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

    /// What its hold is reopened by.
    pub(crate) fn permit(&self) -> &str {
        &self.permit
    }

    fn now_stands(&self) -> Status {
        if self.status == Status::Authorized && now() >= self.expires_at { Status::Expired } else { self.status }
    }
}

fn shown(doc: Doc<Authorization>) -> Shown {
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

fn told(doc: Doc<Authorization>) -> Result<AuthorizationAnswer> {
    let authorization = shown(doc);
    events::emit(
        "card.authorization.updated",
        &json!({ "card_id": authorization.card_id, "authorization_id": authorization.id, "status": authorization.status }),
    )?;
    Ok(AuthorizationAnswer { authorization })
}

fn of_card(path: &OfCard) -> Result<Doc<Authorization>> {
    let found = AUTHORIZATIONS.get(&path.authorization_id)?.filter(|found| found.body.card == path.id);
    found.or_not_found("authorization")
}

/// The authorization of the path, while it can be captured or given back.
fn open(path: &OfCard) -> Result<Doc<Authorization>> {
    let found = of_card(path)?;
    match found.body.now_stands() {
        Status::Authorized => Ok(found),
        Status::Expired => Err(Failure::conflict("the authorization has expired").reason("authorization_expired")),
        _ => Err(Failure::conflict("the authorization is settled already").reason("authorization_settled")),
    }
}

pub(crate) fn create(Path(ById { id }): Path<ById>, Body(new): Body<NewAuthorization>) -> Result<Created<AuthorizationAnswer>> {
    usable(&id)?;
    let expires_at = now().plus_seconds(DAYS * 86_400);
    let permit = Proposal::new(AUTHORIZE, &new.merchant)
        .amount(micro_usd(new.amount_cents))
        .within(SCOPE, &id)
        .told("capture", format!("Sets {} cents aside for {}.", new.amount_cents, new.merchant))
        .context(&json!({ "card_id": id, "merchant": new.merchant, "reference": new.reference }))
        .pays(&account(&id), MERCHANTS)
        .authorize()?;
    let authorization = Authorization {
        card: id.clone(),
        open: Some(id),
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
    Ok(Created(told(AUTHORIZATIONS.insert(authorization)?)?))
}

pub(crate) fn list(Path(ById { id }): Path<ById>, Query(page): Query<Offset>) -> Result<AuthorizationList> {
    card(&id)?;
    let found = AUTHORIZATIONS.matching("card", &id).page(page)?;
    Ok(AuthorizationList { has_more: found.has_more, authorizations: found.items.into_iter().map(shown).collect() })
}

pub(crate) fn read(Path(path): Path<OfCard>) -> Result<AuthorizationAnswer> {
    Ok(AuthorizationAnswer { authorization: shown(of_card(&path)?) })
}

pub(crate) fn capture(Path(path): Path<OfCard>, Body(Amount { amount_cents }): Body<Amount>) -> Result<AuthorizationAnswer> {
    let found = open(&path)?;
    let captured_cents = amount_cents.unwrap_or(found.body.amount_cents);
    governance::reopen(&found.body.permit)?.capture(micro_usd(captured_cents))?;
    let settled = Authorization { status: Status::Captured, open: None, captured_cents, ..found.body };
    told(AUTHORIZATIONS.replace(&found.id, settled)?)
}

pub(crate) fn reverse(Path(path): Path<OfCard>) -> Result<AuthorizationAnswer> {
    let found = open(&path)?;
    governance::reopen(&found.body.permit)?.cancel()?;
    told(AUTHORIZATIONS.replace(&found.id, Authorization { status: Status::Reversed, open: None, ..found.body })?)
}

pub(crate) fn refund(Path(path): Path<OfCard>, Body(Amount { amount_cents }): Body<Amount>) -> Result<AuthorizationAnswer> {
    let found = of_card(&path)?;
    let left = found.body.captured_cents.saturating_sub(found.body.refunded_cents);
    if left == 0 {
        return Err(Failure::conflict("nothing of it is left to refund").reason("nothing_to_refund"));
    }
    let amount = amount_cents.unwrap_or(left);
    if amount > left {
        return Err(Failure::invalid("amount_cents", format!("at most {left} cents are left to refund")));
    }
    ledger::transfer(MERCHANTS, &account(&path.id), micro_usd(amount), "refund", &found.id)?;
    let refunded_cents = found.body.refunded_cents + amount;
    let status = if refunded_cents == found.body.captured_cents { Status::Refunded } else { Status::Captured };
    told(AUTHORIZATIONS.replace(&found.id, Authorization { status, refunded_cents, ..found.body })?)
}
