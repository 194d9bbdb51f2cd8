//! Holds, and a person's word on those that are in doubt: `/v1/governance/holds`.

use charter_kernel::governance::hold::{self, Hold, OverCapture, STATE, State, Word, space};
use charter_kernel::money::AMOUNT_MAX;
use charter_kernel::refusal::Refusal;
use charter_kernel::unit::{Reach, Row};
use charter_store::{Query, Txn};
use serde::Deserialize;
use serde_json::{Value, json};

use super::shape::{self, id, instant, nullable, object};
use super::stored;
use crate::app::App;
use crate::reply::Reply;
use crate::request::HostRequest;

/// Rows of a look for those of one state among all.
const LOOK_ROWS: u32 = 200;
/// Looks of one page: one that finds few of that state is short, and says where to go on.
const LOOKS_MAX: u32 = 20;

fn state() -> Value {
    json!({"enum": ["pending", "held", "dispatched", "captured", "voided", "in_doubt"]})
}

fn item() -> Value {
    let text = json!({"type": "string"});
    let amount = json!({"type": ["integer", "null"]});
    let scope = object(&[
        ("scope", text.clone()),
        ("window", text.clone()),
        ("amount", json!({"type": "integer"})),
    ]);
    object(&[
        ("id", id()),
        ("state", state()),
        ("primitive", text.clone()),
        ("action", text.clone()),
        ("entity", text.clone()),
        ("title", text.clone()),
        ("amount_micro_usd", amount.clone()),
        ("actual_micro_usd", amount),
        ("user_id", nullable(&id())),
        ("request_id", text.clone()),
        ("policy_ids", json!({"type": "array", "items": text})),
        ("scopes", json!({"type": "array", "items": scope})),
        ("created_at", instant()),
        ("until", instant()),
        ("ended_at", nullable(&instant())),
    ])
}

/// One hold.
pub fn answer() -> Value {
    object(&[("hold", item())])
}

/// A page of holds.
pub fn list_answer() -> Value {
    shape::cursor_page("holds", &item())
}

/// The query of the list.
pub fn list_query() -> Value {
    json!({"type": "object", "properties": {"state": state()}, "additionalProperties": false})
}

/// The body of a person's word.
pub fn resolve_body() -> Value {
    object(&[
        ("outcome", json!({"enum": ["captured", "voided"]})),
        ("amount_micro_usd?", json!({"type": "integer", "minimum": 0, "maximum": AMOUNT_MAX})),
        ("reason", shape::visible(1_000)),
    ])
}

fn view(id: &str, hold: &Hold) -> Value {
    let scopes = hold.charges.iter().map(
        |charge| json!({"scope": charge.scope, "window": charge.slot, "amount": charge.amount}),
    );
    json!({
        "id": id,
        "state": hold.state,
        "primitive": hold.primitive,
        "action": hold.action,
        "entity": hold.entity,
        "title": hold.title,
        "amount_micro_usd": hold.amount,
        "actual_micro_usd": hold.actual,
        "user_id": hold.subject.user,
        "request_id": hold.request,
        "policy_ids": hold.decision.rules,
        "scopes": scopes.collect::<Vec<_>>(),
        "created_at": hold.at,
        "until": hold.until,
        "ended_at": hold.ended_at,
    })
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
pub async fn list(_: &App, request: &HostRequest, txn: &mut Txn) -> Result<Reply, Refusal> {
    let wanted: Option<State> = match request.query_text("state") {
        Some(state) => Some(serde_json::from_value(state.into()).map_err(|_| Refusal::internal())?),
        None => None,
    };
    let reach = Reach::organization(request.place()?.organization.id.as_str());
    let limit = request.page.limit as usize;
    let mut query = Query::all(&reach, &space()).relaxed();
    query.after.clone_from(&request.page.position);
    query.limit = match wanted {
        // Those that are over are the most by far, and found among all.
        Some(state) if state.is_over() => LOOK_ROWS,
        Some(state) => {
            query = query.equal(STATE, state.as_str());
            request.page.limit
        }
        None => request.page.limit,
    };
    let mut items = Vec::new();
    for _ in 0..LOOKS_MAX {
        let found = txn.find(&query).await.map_err(stored::reading)?;
        for (key, row) in found.items {
            let hold = read(&row)?;
            if wanted.is_some_and(|state| state != hold.state) {
                continue;
            }
            if items.len() == limit {
                return Ok(listed(items, request, query.after.as_deref()));
            }
            items.push(view(&key.id, &hold));
            query.after = Some(key.id);
        }
        query.after = found.next;
        if query.after.is_none() || items.len() == limit {
            break;
        }
    }
    Ok(listed(items, request, query.after.as_deref()))
}

/// A page of holds, and behind which one the next begins.
fn listed(items: Vec<Value>, request: &HostRequest, next: Option<&str>) -> Reply {
    Reply::ok(&shape::listed_at("holds", items, &request.page, next))
}

#[derive(Deserialize)]
struct Resolve {
    outcome: String,
    amount_micro_usd: Option<i64>,
    reason: String,
}

/// A person's word is bounded as the primitive's is: what was held, or what its action may overrun.
fn over_held(over: OverCapture) -> Refusal {
    Refusal::state_conflict("over_held", "More was to be captured than was held.")
        .detail("left_micro_usd", over.left)
        .hint("Capture what is left of it at most.")
}

/// `POST /v1/governance/holds/{id}/resolve`: what became of an effect that nobody else can tell.
///
/// # Errors
/// 403 for whoever is no person, 404 for another organization's, 409 for one that is not in doubt,
/// and for more than was held.
pub async fn resolve(_: &App, request: &HostRequest, txn: &mut Txn) -> Result<Reply, Refusal> {
    let body: Resolve = request.body_as()?;
    let id = request.parameter("id");
    let key = hold::key(request.place()?.organization.id.as_str(), id);
    let hold =
        read(&txn.get(&key).await.map_err(stored::reading)?.ok_or_else(Refusal::not_found)?)?;
    if hold.state != State::InDoubt {
        let told = "Only a hold that is in doubt takes a person's word.";
        return Err(
            Refusal::state_conflict("hold_not_in_doubt", told).detail("state", hold.state.as_str())
        );
    }
    let step = match body.outcome.as_str() {
        "captured" => {
            let actual = body.amount_micro_usd.or(hold.amount).unwrap_or(0);
            let capture = hold.admit_capture(actual, Word::Asker).map_err(over_held)?;
            hold.captured(id, capture, request.now)
        }
        _ => hold.voided(id, request.now),
    };
    let shown = view(id, &step.hold);
    let note = json!({"before": {"state": hold.state}, "after": {"state": step.hold.state, "actual": step.hold.actual}, "reason": body.reason});
    txn.step(step.guards, step.writes);
    Ok(Reply::ok(&json!({"hold": shown})).about("hold", id.to_owned()).noting(note))
}
