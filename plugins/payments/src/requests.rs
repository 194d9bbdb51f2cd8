//! Requests of one user for another's money: made, paid, declined, taken back.

use charter_sdk::documents::{self, Filter};
use charter_sdk::money::dollars;
use charter_sdk::prelude::*;
use charter_sdk::{Reach, events};

use crate::money::{self, Party, TRANSFER, USER_ID, purpose};
use crate::moves::Moving;
use crate::payments::send;

/// Both parties see them, so they lie with the project; who is neither is kept out by [`find`].
pub(crate) const REQUESTS: Collection<Request> =
    Collection::new("requests").reach(Reach::Project).index(&[
        Index::text("from_user_id"),
        Index::text("to_user_id"),
        Index::text("status"),
        Index::instant("expires_at"),
    ]);

const DAY_SECONDS: u32 = 86_400;
/// How long a request waits that says nothing of it.
const DAYS: u32 = 7;
/// How long one may wait.
const DAYS_MAX: u32 = 31;
/// Requests looked at in a step.
const PAGE: u32 = 200;

/// A request, as it is kept.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Request {
    from_user_id: String,
    to_user_id: String,
    status: Status,
    amount_cents: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    expires_at: Instant,
    #[serde(skip_serializing_if = "Option::is_none")]
    payment_id: Option<String>,
}

/// The state of a request. One that expired is kept as pending.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Status {
    Pending,
    Paid,
    Declined,
    Canceled,
    Expired,
}

impl Status {
    fn as_str(self) -> &'static str {
        match self {
            Status::Pending => "pending",
            Status::Paid => "paid",
            Status::Declined => "declined",
            Status::Canceled => "canceled",
            Status::Expired => "expired",
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Direction {
    /// Requests to the caller.
    #[default]
    Incoming,
    /// The caller's requests to others.
    Outgoing,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewRequest {
    /// The user of the project who is asked to pay.
    #[schemars(regex(pattern = USER_ID))]
    from_user_id: String,
    /// How much, in whole cents.
    #[schemars(range(min = 1, max = 1_000_000_000))]
    amount_cents: u64,
    /// The purpose.
    #[serde(default)]
    #[schemars(length(min = 1, max = 200))]
    description: Option<String>,
    /// Until when it can be paid: seven days from now where absent, at most 31.
    #[serde(default)]
    expires_at: Option<Instant>,
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Which {
    #[serde(default)]
    direction: Direction,
    /// In this state alone.
    #[serde(default)]
    status: Option<Status>,
    #[serde(flatten)]
    page: Offset,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Shown {
    id: String,
    status: Status,
    /// The user who is asked to pay.
    from_user_id: String,
    /// The user who asked.
    to_user_id: String,
    amount_cents: u64,
    description: Option<String>,
    expires_at: Instant,
    /// The payment of who was asked, once it is paid.
    payment_id: Option<String>,
    created_at: Instant,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct RequestAnswer {
    payment_request: Shown,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct RequestList {
    payment_requests: Vec<Shown>,
    /// Whether there are more behind this page.
    has_more: bool,
}

impl Request {
    fn now_stands(&self) -> Status {
        if self.status == Status::Pending && now() >= self.expires_at {
            Status::Expired
        } else {
            self.status
        }
    }

    /// Refuses what was settled before.
    fn still_pending(&self) -> Result<()> {
        let (told, reason) = match self.now_stands() {
            Status::Pending => return Ok(()),
            Status::Paid => ("the request is paid already", "request_paid"),
            Status::Declined => ("the request was declined", "request_declined"),
            Status::Canceled => ("the request was taken back", "request_canceled"),
            Status::Expired => ("the request has expired", "request_expired"),
        };
        Err(Failure::conflict(told).reason(reason))
    }
}

fn show(doc: Doc<Request>) -> Shown {
    Shown {
        id: doc.id,
        status: doc.body.now_stands(),
        from_user_id: doc.body.from_user_id,
        to_user_id: doc.body.to_user_id,
        amount_cents: doc.body.amount_cents,
        description: doc.body.description,
        expires_at: doc.body.expires_at,
        payment_id: doc.body.payment_id,
        created_at: doc.created_at,
    }
}

fn announce(doc: Doc<Request>) -> Result<RequestAnswer> {
    let payment_request = show(doc);
    events::emit(
        "payments.request.updated",
        &json!({
            "payment_request_id": payment_request.id,
            "status": payment_request.status,
            "from_user_id": payment_request.from_user_id,
            "to_user_id": payment_request.to_user_id,
        }),
    )?;
    Ok(RequestAnswer { payment_request })
}

fn settle(
    found: Doc<Request>,
    status: Status,
    payment_id: Option<String>,
) -> Result<RequestAnswer> {
    announce(REQUESTS.replace(found.at(), Request { status, payment_id, ..found.body })?)
}

/// The request of the path, for its two parties.
fn find(id: &str, me: &str) -> Result<Doc<Request>> {
    let found =
        REQUESTS.get(id)?.filter(|found| found.from_user_id == me || found.to_user_id == me);
    found.or_not_found("payment request")
}

/// The same, for the one who is asked, while it can be settled.
fn find_to_settle(id: &str, me: &str) -> Result<Doc<Request>> {
    let found = find(id, me)?;
    if found.from_user_id != me {
        return Err(Failure::forbidden("only the user who is asked pays or declines a request")
            .reason("not_the_one_asked"));
    }
    found.still_pending()?;
    Ok(found)
}

pub(crate) fn create(
    Body(new): Body<NewRequest>,
    caller: Caller,
) -> Result<Created<RequestAnswer>> {
    let me = money::user(&caller)?;
    if new.from_user_id == me {
        return Err(Failure::invalid("from_user_id", "nobody asks themselves for money"));
    }
    let now = now();
    let expires_at = new.expires_at.unwrap_or_else(|| now.plus_seconds(DAYS * DAY_SECONDS));
    if expires_at <= now || expires_at > now.plus_seconds(DAYS_MAX * DAY_SECONDS) {
        return Err(Failure::invalid(
            "expires_at",
            format!("a request expires within the next {DAYS_MAX} days"),
        ));
    }
    let request = REQUESTS.insert(Request {
        from_user_id: new.from_user_id,
        to_user_id: me.into(),
        status: Status::Pending,
        amount_cents: new.amount_cents,
        description: new.description,
        expires_at,
        payment_id: None,
    })?;
    Ok(Created(announce(request)?))
}

/// Those that can still be paid.
fn pending(found: Filter<Request>) -> Filter<Request> {
    let later = Instant::from_ms(now().as_ms() + 1).to_string();
    found.and("status", Status::Pending.as_str()).between("expires_at", Some(later), None)
}

pub(crate) fn list(Query(which): Query<Which>, caller: Caller) -> Result<RequestList> {
    let me = money::user(&caller)?;
    let found = match which.direction {
        Direction::Incoming => REQUESTS.matching("from_user_id", me),
        Direction::Outgoing => REQUESTS.matching("to_user_id", me),
    };
    let found = match which.status {
        None => found,
        Some(Status::Pending) => pending(found),
        Some(Status::Expired) => found.and("status", Status::Pending.as_str()).between(
            "expires_at",
            None,
            Some(now().to_string()),
        ),
        Some(status) => found.and("status", status.as_str()),
    };
    let found = found.page(which.page)?;
    Ok(RequestList {
        has_more: found.has_more,
        payment_requests: found.items.into_iter().map(show).collect(),
    })
}

pub(crate) fn read(Path(ById { id }): Path<ById>, caller: Caller) -> Result<RequestAnswer> {
    Ok(RequestAnswer { payment_request: show(find(&id, money::user(&caller)?)?) })
}

pub(crate) fn pay(Path(ById { id }): Path<ById>, caller: Caller) -> Result<RequestAnswer> {
    let me = money::user(&caller)?;
    let found = find_to_settle(&id, me)?;
    let (amount, purpose) = (dollars(found.amount_cents), purpose(found.description.as_deref()));
    let moving = Moving {
        action: TRANSFER,
        memo: "transfer",
        entity: &found.to_user_id,
        amount_cents: found.amount_cents,
        payer: Party::Me(me.into()),
        payee: Party::User(found.to_user_id.clone()),
        message: format!(
            "Pays {amount} from the balance of user {me} to user {}, who asked for it{purpose}.",
            found.to_user_id
        ),
        context: json!({ "payment_request_id": id, "to_user_id": found.to_user_id, "description": found.description }),
    };
    let payment = send(moving, found.description.clone()).map_err(money::user_gone)?;
    settle(found, Status::Paid, Some(payment.id().into()))
}

pub(crate) fn decline(Path(ById { id }): Path<ById>, caller: Caller) -> Result<RequestAnswer> {
    settle(find_to_settle(&id, money::user(&caller)?)?, Status::Declined, None)
}

pub(crate) fn cancel(Path(ById { id }): Path<ById>, caller: Caller) -> Result<RequestAnswer> {
    let me = money::user(&caller)?;
    let found = find(&id, me)?;
    if found.to_user_id != me {
        return Err(Failure::forbidden("only the user who asked takes a request back")
            .reason("not_the_asker"));
    }
    found.still_pending()?;
    settle(found, Status::Canceled, None)
}

/// The user is gone: what it was asked for is declined, what it asked for is taken back.
pub(crate) fn close_all(signal: &Signal) -> Result<()> {
    let me = money::user(&signal.caller)?;
    for (party, status) in [("from_user_id", Status::Declined), ("to_user_id", Status::Canceled)] {
        loop {
            let open = pending(REQUESTS.matching(party, me)).relax().limit(PAGE).find()?;
            if open.items.is_empty() {
                break;
            }
            for found in open.items {
                // Once more, so that the commit asks whether it is still pending.
                if let Some(found) =
                    REQUESTS.get(&found.id)?.filter(|found| found.status == Status::Pending)
                {
                    settle(found, status, None)?;
                }
            }
            documents::checkpoint()?;
        }
    }
    Ok(())
}
