//! `GET /v1/logs`: the organization's audit rows, newest first; `GET /v1/operator/logs` those of
//! the operator's acts.

use charter_kernel::id::ProjectId;
use charter_kernel::refusal::Refusal;
use charter_kernel::time::Instant;
use charter_kernel::unit::FactKind;
use charter_store::{SequencedFact, Txn};
use serde_json::{Value, json};

use super::shape::{self, instant, object};
use super::stored::reading;
use crate::app::App;
use crate::reply::Reply;
use crate::request::{HostRequest, Identity};

/// Rows looked at for one page: what few rows match is found in several pages.
const ROWS_MAX: usize = 5_000;
/// Rows of one read.
const STEP: u32 = 500;
/// Members that a query can ask for, and where a row has them.
const FILTERS: [&str; 6] =
    ["action", "entity_type", "entity_id", "decision", "request_id", "user_id"];

fn item() -> Value {
    let text = json!({"type": ["string", "null"]});
    object(&[
        ("seq", json!({"type": "integer"})),
        ("at", instant()),
        ("actor", json!({"type": ["object", "null"]})),
        ("on_behalf_of", text.clone()),
        ("project_id", text.clone()),
        ("primitive", text.clone()),
        ("action", text.clone()),
        ("entity_type", text.clone()),
        ("entity_id", text.clone()),
        ("decision", text.clone()),
        ("reason", text.clone()),
        ("request_id", text),
        ("amount_micro_usd", json!({"type": ["integer", "null"]})),
        ("policy_ids", json!({"type": ["array", "null"]})),
        ("changes", json!({"type": ["array", "null"]})),
        ("details", json!({})),
    ])
}

/// A page of rows.
pub fn answer() -> Value {
    shape::cursor_page("logs", &item())
}

/// The query.
pub fn query() -> Value {
    let mut properties = serde_json::Map::new();
    for name in FILTERS {
        properties.insert(name.into(), json!({"type": "string", "minLength": 1, "maxLength": 200}));
    }
    for name in ["since", "until"] {
        properties.insert(name.into(), instant());
    }
    json!({"type": "object", "properties": properties, "additionalProperties": false})
}

/// A row as it is shown. Rows of users who were erased have lost what was private.
pub fn view(row: &SequencedFact) -> Value {
    let parsed = |text: Option<&String>| {
        text.and_then(|text| serde_json::from_str::<Value>(text).ok()).unwrap_or_default()
    };
    let (body, private) = (parsed(Some(&row.fact.body)), parsed(row.fact.private.as_ref()));
    json!({
        "seq": row.sequence,
        "at": row.fact.at,
        "actor": body["actor"],
        "on_behalf_of": body["on_behalf_of"],
        "project_id": body["project_id"],
        "primitive": body["primitive"],
        "action": body["action"],
        "entity_type": body["entity_type"],
        "entity_id": private["entity_id"],
        "decision": body["decision"],
        "reason": body["reason"],
        "request_id": body["request_id"],
        "amount_micro_usd": body["amount_micro_usd"],
        "policy_ids": body["policy_ids"],
        "changes": private["changes"],
        "details": private["details"],
    })
}

/// The organization's rows. Some pages hold fewer rows than asked for although there are more:
/// follow `next_cursor`.
///
/// # Errors
/// 403 for a key that is pinned: what others did is beyond its pin.
pub async fn list(app: &App, request: &HostRequest, _: &mut Txn) -> Result<Reply, Refusal> {
    let organization = request.audited()?;
    let moment = |name: &str| request.query_text(name).and_then(Instant::parse);
    let (since, until) = (moment("since"), moment("until"));
    let wanted: Vec<(&str, &str)> =
        FILTERS.iter().filter_map(|name| Some((*name, request.query_text(name)?))).collect();
    // A key that is pinned to a project sees what was done in it.
    let pinned = match &request.identity {
        Identity::Operator => None,
        _ => request.principal()?.project.as_ref().map(ProjectId::as_str),
    };
    let fits = |row: &Value| {
        pinned.is_none_or(|own| row["project_id"].as_str() == Some(own))
            && wanted.iter().all(|(name, value)| {
                let member = if *name == "user_id" { "on_behalf_of" } else { name };
                row[member].as_str() == Some(value)
            })
    };
    let mut before: Option<u64> =
        request.page.position.as_deref().and_then(|position| position.parse().ok());
    let (mut items, mut looked, mut more) = (Vec::new(), 0, true);
    while more && items.len() < request.page.limit as usize && looked < ROWS_MAX {
        let rows = app
            .store
            .facts_before(FactKind::Audit, organization, before, STEP)
            .await
            .map_err(reading)?;
        more = !rows.is_empty();
        for row in rows {
            (before, looked) = (Some(row.sequence), looked + 1);
            if since.is_some_and(|since| row.fact.at < since) {
                more = false;
                break;
            }
            let shown = view(&row);
            if until.is_none_or(|until| row.fact.at <= until) && fits(&shown) {
                items.push(shown);
            }
            if items.len() == request.page.limit as usize {
                more = row.sequence > 1;
                break;
            }
        }
    }
    let next = before.filter(|_| more).map(|before| before.to_string());
    Ok(Reply::ok(&shape::listed_at("logs", items, &request.page, next.as_deref())))
}
