//! Holds, and a person's word on those that are in doubt: `/v1/governance/holds`.

use charter_governance::decide::{self, Person};
use charter_kernel::authority::Class;
use charter_kernel::calendar::Slot;
use charter_kernel::governance::hold::{self, Hold, OverCapture, STATE, State, Word, space};
use charter_kernel::manifest::Paging;
use charter_kernel::money::AMOUNT_MAX;
use charter_kernel::refusal::Refusal;
use charter_kernel::time::Instant;
use charter_kernel::unit::{Key, Reach, Row};
use charter_store::{Query, Txn};
use charter_tenancy::identity::Identity;
use charter_tenancy::stored;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::gather::{LOOK_ROWS, gather};
use super::shape::{Cursor, Id, Optional, Reason};
use crate::app::App;
use crate::handler;
use crate::reply::AuditLog;
use crate::request::HostRequest;
use crate::route::HostRoute;
use crate::serve::{Answer, Body, Params};

/// The rows of holds.
pub fn routes() -> Vec<HostRoute> {
    vec![
        HostRoute::get(
            Class::OrganizationRead,
            "governance.holds.list",
            "/governance/holds",
            handler!(list_holds),
        )
        .summary("Money that is held, was captured or voided, or is in doubt")
        .paging(Paging::Cursor),
        HostRoute::post(
            Class::Deciding,
            "governance.holds.resolve",
            "/governance/holds/{id}/resolve",
            handler!(resolve_hold),
        )
        .summary("Say what became of a hold that is in doubt"),
    ]
}

/// A meter that a hold counts in.
#[derive(Serialize, JsonSchema)]
struct Charged {
    /// The meter's scope.
    scope: String,
    /// The meter's window.
    #[schemars(with = "String")]
    window: Slot,
    /// The amount, in micro-US-dollars.
    amount: i64,
}

/// Money that is set aside for one action.
#[derive(Serialize, JsonSchema)]
struct HoldItem {
    /// The hold's id.
    id: Id,
    /// How far it has come.
    state: State,
    /// The primitive whose action it is.
    primitive: String,
    /// `<primitive>.<verb>`.
    action: String,
    /// The recipient, the merchant, the card: whatever it is done to.
    entity: String,
    /// A line for people.
    title: String,
    /// The amount held, in micro-US-dollars.
    amount_micro_usd: Option<i64>,
    /// The amount captured, in micro-US-dollars.
    actual_micro_usd: Option<i64>,
    /// The tenant user.
    user_id: Option<Id>,
    /// The request that asked.
    request_id: String,
    /// The rules that matched.
    policy_ids: Vec<String>,
    /// The meters that it counts in.
    scopes: Vec<Charged>,
    /// The moment of its creation.
    created_at: Instant,
    /// The moment until which it stands by itself.
    until: Instant,
    /// The moment of its end.
    ended_at: Option<Instant>,
}

impl HoldItem {
    fn of(id: &str, hold: &Hold) -> Self {
        let scopes = hold.charges.iter().map(|charge| Charged {
            scope: charge.scope.clone(),
            window: charge.slot.clone(),
            amount: charge.amount,
        });
        Self {
            id: id.into(),
            state: hold.state,
            primitive: hold.primitive.clone(),
            action: hold.action.clone(),
            entity: hold.entity.clone(),
            title: hold.title.clone(),
            amount_micro_usd: hold.amount,
            actual_micro_usd: hold.actual,
            user_id: hold.subject.user.as_deref().map(Id::from),
            request_id: hold.request.clone(),
            policy_ids: hold.decision.rules.clone(),
            scopes: scopes.collect(),
            created_at: hold.at,
            until: hold.until,
            ended_at: hold.ended_at,
        }
    }
}

/// One hold.
#[derive(Serialize, JsonSchema)]
pub struct HoldAnswer {
    hold: HoldItem,
}

/// The query of the list.
#[derive(Deserialize, JsonSchema)]
pub struct HoldQuery {
    /// Those in this state alone.
    state: Optional<State>,
}

/// A page of holds.
#[derive(Serialize, JsonSchema)]
pub struct HoldPage {
    holds: Vec<HoldItem>,
    #[serde(flatten)]
    page: Cursor,
}

/// The body of a person's word.
#[derive(Deserialize, JsonSchema)]
pub struct Resolution {
    /// Whether the effect happened.
    outcome: Outcome,
    /// The amount that it happened for; all that was held where absent.
    #[schemars(range(min = 0, max = AMOUNT_MAX))]
    amount_micro_usd: Optional<i64>,
    /// The reason, for the audit log.
    reason: Reason,
}

/// Whether the effect of a hold happened.
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Outcome {
    /// It did.
    Captured,
    /// It did not.
    Voided,
}

fn read(row: &Row) -> Result<Hold, Refusal> {
    serde_json::from_str(&row.body).map_err(|error| {
        tracing::error!(%error, "a hold cannot be read");
        Refusal::internal()
    })
}

/// `GET /v1/governance/holds`: the organization's, newest first, of one state or all.
///
/// # Errors
/// 403 for a key that is pinned.
pub async fn list_holds(
    _: &App,
    request: &HostRequest,
    txn: &mut Txn,
    Params(asked): Params<HoldQuery>,
) -> Result<Answer<HoldPage>, Refusal> {
    let wanted = asked.state.0;
    let reach = Reach::organization(request.place()?.organization().id.as_str());
    let mut query = Query::all(&reach, &space()).relax();
    query.after.clone_from(&request.page.position);
    query.limit = request.page.limit + 1;
    match wanted {
        // Those that are over are the most by far, and found among all.
        // One that a later request has dispatched has another entry.
        Some(state) if state.is_over() || state == State::Dispatched => query.limit = LOOK_ROWS,
        Some(state) => query = query.equal(STATE, state.as_str()),
        None => {}
    }
    let show = |key: &Key, row: &Row| {
        let hold = read(row)?;
        let is_shown = wanted.is_none_or(|state| state == hold.state);
        Ok(is_shown.then(|| HoldItem::of(&key.id, &hold)))
    };
    let (holds, next) = gather(txn, query, request.page.limit, show).await?;
    Ok(Answer::of(&HoldPage { holds, page: Cursor::of(&request.page, next.as_deref()) }))
}

/// A person's word is bounded as the primitive's is: what was held, or what its action may overrun.
fn over_held(over: OverCapture) -> Refusal {
    Refusal::state_conflict("over_held", "More was to be captured than was held.")
        .detail("left_micro_usd", over.left)
        .hint("Capture what is left of it at most.")
}

/// The person who speaks: the class of the route admits sessions alone.
fn person(request: &HostRequest) -> Result<Person<'_>, Refusal> {
    let Identity::Session(session) = &request.identity else { return Err(Refusal::internal()) };
    let organization = &request.place()?.organization().id;
    let (account, role) = (session.account.as_str(), session.membership.role);
    Ok(Person { organization, account, role, via: "session" })
}

/// `POST /v1/governance/holds/{id}/resolve`: what became of an effect that nobody else can tell.
///
/// # Errors
/// 403 for whoever is no person, or has asked for it, 404 for another organization's, 409 for one
/// that is not in doubt, and for more than was held.
pub async fn resolve_hold(
    _: &App,
    request: &HostRequest,
    txn: &mut Txn,
    Body(body): Body<Resolution>,
) -> Result<Answer<HoldAnswer>, Refusal> {
    let id = request.parameter("id");
    let key = hold::key(request.place()?.organization().id.as_str(), id);
    let row = txn.get(&key).await.map_err(stored::reading)?.ok_or_else(Refusal::not_found)?;
    let hold = read(&row)?;
    if hold.state != State::InDoubt {
        let told = "Only a hold that is in doubt takes a person's word.";
        return Err(
            Refusal::state_conflict("hold_not_in_doubt", told).detail("state", hold.state.as_str())
        );
    }
    if let Some(settler) = hold.settler.as_ref().filter(|settler| settler.until > request.now) {
        // It may be done again this moment, and nobody would count it.
        let told = "Its primitive asks the provider right now what became of it.";
        return Err(Refusal::state_conflict("hold_being_settled", told)
            .detail("until", settler.until.to_string())
            .hint("Read the hold once that time is over, and say what became of it if it is in doubt still."));
    }
    let own = decide::is_own(txn, &person(request)?, hold.subject.root.as_deref()).await?;
    let step = match body.outcome {
        Outcome::Captured => {
            let actual = body.amount_micro_usd.0.or(hold.amount).unwrap_or(0);
            let capture = hold.admit_capture(actual, Word::Asker).map_err(over_held)?;
            hold.capture(id, capture, request.now)
        }
        Outcome::Voided => hold.void(id, request.now),
    }
    .of_row(&key, row.version);
    let answer = HoldAnswer { hold: HoldItem::of(id, &step.hold) };
    let note = json!({"before": {"state": hold.state}, "after": {"state": step.hold.state, "actual": step.hold.actual}, "reason": body.reason.0, "self_approved": own});
    txn.step(step.guards, step.writes);
    let log = AuditLog::of(hold.subject.project.as_deref(), hold.subject.user.as_deref());
    Ok(Answer::of(&answer).about("hold", id.to_owned()).with_log(log).noting(note))
}
