//! `GET /v1/logs`: the organization's audit rows, newest first; `GET /v1/operator/logs` those of
//! the operator's acts.

use charter_kernel::authority::Class;
use charter_kernel::id::{ProjectId, canonical};
use charter_kernel::manifest::Paging;
use charter_kernel::refusal::Refusal;
use charter_kernel::time::Instant;
use charter_kernel::unit::FactKind;
use charter_store::{PAGE_BYTES_MAX, SequencedFact, Txn};
use charter_tenancy::identity::Identity;
use charter_tenancy::stored::reading;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::shape::{Cursor, Moment, Optional};
use crate::app::App;
use crate::handler;
use crate::request::HostRequest;
use crate::route::HostRoute;
use crate::serve::{Answer, Params};

/// Rows looked at for one page: what few rows match is found in several pages.
const ROWS_MAX: usize = 1_000;
/// Rows of one read.
const STEP: u32 = 500;
/// Bytes of the rows looked at for one page.
const LOOKED_BYTES_MAX: usize = 16 << 20;

/// The rows of the audit log: an organization's, and the deployment's own.
pub fn routes() -> Vec<HostRoute> {
    let logs = HostRoute::get(Class::ProjectRead, "logs.list", "/logs", handler!(list_logs))
        .summary("The audit log, newest first")
        .paging(Paging::Cursor);
    vec![logs, logs.for_operator("operator.logs")]
}

/// The query: rows that have all of it.
#[derive(Deserialize, JsonSchema)]
pub struct LogQuery {
    /// `<noun>.<verb>`.
    #[schemars(length(min = 1, max = 200))]
    action: Optional<String>,
    /// The kind of the entity.
    #[schemars(length(min = 1, max = 200))]
    entity_type: Optional<String>,
    /// The entity's id.
    #[schemars(length(min = 1, max = 200))]
    entity_id: Optional<String>,
    /// `allowed`, or the code of the refusal.
    #[schemars(length(min = 1, max = 200))]
    decision: Optional<String>,
    /// The request's id.
    #[schemars(length(min = 1, max = 200))]
    request_id: Optional<String>,
    /// The tenant user on whose behalf it was.
    #[schemars(length(min = 1, max = 200))]
    user_id: Optional<String>,
    /// The moment that the oldest row is from.
    since: Optional<Moment>,
    /// The moment that the newest row is from.
    until: Optional<Moment>,
}

/// The texts that a row must contain to have what is asked for, in its open part and in its private
/// one. They are looked for first: a row that lacks one is passed over unread.
struct Marks {
    body: Vec<String>,
    private: Vec<String>,
}

impl Marks {
    fn of(asked: &LogQuery, project: Option<&str>) -> Self {
        let LogQuery { action, entity_type, decision, request_id, user_id, .. } = asked;
        let asked_of = [action, entity_type, decision, request_id, user_id];
        let body = asked_of.into_iter().filter_map(|wanted| wanted.0.as_deref()).chain(project);
        // As rows have them, escapes included.
        let mark = |text: &str| Value::from(text).to_string();
        Self {
            body: body.map(mark).collect(),
            private: asked.entity_id.0.as_deref().map(mark).into_iter().collect(),
        }
    }

    fn are_in(&self, row: &SequencedFact) -> bool {
        let private = row.fact.private.as_deref().unwrap_or_default();
        self.body.iter().all(|mark| row.fact.body.contains(mark))
            && self.private.iter().all(|mark| private.contains(mark))
    }
}

impl LogQuery {
    fn admits(&self, row: &LogRow) -> bool {
        let same = |wanted: &Optional<String>, member: &Value| {
            wanted.0.as_deref().is_none_or(|wanted| member.as_str() == Some(wanted))
        };
        same(&self.action, &row.action)
            && same(&self.entity_type, &row.entity_type)
            && same(&self.entity_id, &row.entity_id)
            && same(&self.decision, &row.decision)
            && same(&self.request_id, &row.request_id)
            && same(&self.user_id, &row.on_behalf_of)
    }
}

/// A row of the audit log. Rows of users who were erased have lost their private members.
#[derive(Serialize, JsonSchema)]
pub struct LogRow {
    /// Its place in the log.
    seq: u64,
    /// Its moment.
    at: Instant,
    /// The type and the id of the actor.
    #[schemars(with = "Option<Map<String, Value>>")]
    actor: Value,
    /// The tenant user on whose behalf it was.
    #[schemars(with = "Option<String>")]
    on_behalf_of: Value,
    /// The project.
    #[schemars(with = "Option<String>")]
    project_id: Value,
    /// The primitive that did it.
    #[schemars(with = "Option<String>")]
    primitive: Value,
    /// `<noun>.<verb>`.
    #[schemars(with = "Option<String>")]
    action: Value,
    /// The kind of the entity.
    #[schemars(with = "Option<String>")]
    entity_type: Value,
    /// The entity's id.
    #[schemars(with = "Option<String>")]
    entity_id: Value,
    /// `allowed`, or the code of the refusal.
    #[schemars(with = "Option<String>")]
    decision: Value,
    /// The reason of the refusal.
    #[schemars(with = "Option<String>")]
    reason: Value,
    /// The request's id.
    #[schemars(with = "Option<String>")]
    request_id: Value,
    /// The amount, in micro-US-dollars.
    #[schemars(with = "Option<i64>")]
    amount_micro_usd: Value,
    /// The rules that matched.
    #[schemars(with = "Option<Vec<Value>>")]
    policy_ids: Value,
    /// The records that it changed.
    #[schemars(with = "Option<Vec<Value>>")]
    changes: Value,
    /// Further details.
    details: Value,
}

/// The member of a row's private half that is searched.
#[derive(Default, Deserialize)]
struct Searched {
    #[serde(default)]
    entity_id: Value,
}

impl LogRow {
    /// A row as it is answered.
    pub fn of(row: &SequencedFact) -> Self {
        let private = row.fact.private.as_ref();
        let private = private.and_then(|text| serde_json::from_str(text).ok());
        Self::with(row, private.unwrap_or_default())
    }

    /// A row as it is searched, without the details that it may have.
    fn for_filter(row: &SequencedFact) -> Self {
        let private = row.fact.private.as_ref();
        let searched: Option<Searched> = private.and_then(|text| serde_json::from_str(text).ok());
        Self::with(row, json!({ "entity_id": searched.unwrap_or_default().entity_id }))
    }

    fn with(row: &SequencedFact, mut private: Value) -> Self {
        let mut body: Value = serde_json::from_str(&row.fact.body).unwrap_or_default();
        let take =
            |of: &mut Value, member: &str| of.get_mut(member).map(Value::take).unwrap_or_default();
        Self {
            seq: row.sequence,
            at: row.fact.at,
            actor: take(&mut body, "actor"),
            on_behalf_of: take(&mut body, "on_behalf_of"),
            project_id: take(&mut body, "project_id"),
            primitive: take(&mut body, "primitive"),
            action: take(&mut body, "action"),
            entity_type: take(&mut body, "entity_type"),
            entity_id: take(&mut private, "entity_id"),
            decision: take(&mut body, "decision"),
            reason: take(&mut body, "reason"),
            request_id: take(&mut body, "request_id"),
            amount_micro_usd: take(&mut body, "amount_micro_usd"),
            policy_ids: take(&mut body, "policy_ids"),
            changes: take(&mut private, "changes"),
            details: take(&mut private, "details"),
        }
    }
}

/// A page of rows.
#[derive(Serialize, JsonSchema)]
pub struct LogPage {
    logs: Vec<LogRow>,
    #[serde(flatten)]
    page: Cursor,
}

/// The organization's rows. Some pages hold fewer rows than asked for although there are more:
/// follow `next_cursor`.
///
/// # Errors
/// 403 for a key that is pinned: what others did is beyond its pin.
pub async fn list_logs(
    app: &App,
    request: &HostRequest,
    _: &mut Txn,
    Params(mut asked): Params<LogQuery>,
) -> Result<Answer<LogPage>, Refusal> {
    asked.user_id.0 = asked.user_id.0.map(canonical);
    let organization = request.audit_organization()?;
    let moment = |at: &Optional<Moment>| at.0.as_ref().and_then(Moment::instant);
    let (since, until) = (moment(&asked.since), moment(&asked.until));
    // A key that is pinned to a project sees what was done in it.
    let pinned = match &request.identity {
        Identity::Operator { .. } => None,
        _ => request.principal()?.project.as_ref().map(ProjectId::as_str),
    };
    let fits = |row: &SequencedFact| {
        let row = LogRow::for_filter(row);
        pinned.is_none_or(|own| row.project_id.as_str() == Some(own)) && asked.admits(&row)
    };
    let marks = Marks::of(&asked, pinned);
    let mut before: Option<u64> =
        request.page.position.as_deref().and_then(|position| position.parse().ok());
    let limit = request.page.limit as usize;
    let (mut items, mut room, mut more) = (Vec::new(), PAGE_BYTES_MAX, true);
    let (mut looked, mut looked_bytes, mut full) = (0, 0, false);
    while more && !full && looked < ROWS_MAX && looked_bytes < LOOKED_BYTES_MAX {
        let rows = app
            .store
            .facts_before(FactKind::Audit, organization, before, STEP)
            .await
            .map_err(reading)?;
        more = !rows.is_empty();
        for row in rows {
            let bytes = row.fact.body.len() + row.fact.private.as_ref().map_or(0, String::len);
            (looked, looked_bytes) = (looked + 1, looked_bytes + bytes);
            if since.is_some_and(|since| row.fact.at < since) {
                more = false;
                break;
            }
            let fits =
                until.is_none_or(|until| row.fact.at <= until) && marks.are_in(&row) && fits(&row);
            full = fits && bytes > room && !items.is_empty();
            if full {
                break;
            }
            before = Some(row.sequence);
            if fits {
                room = room.saturating_sub(bytes);
                items.push(row);
            }
            if items.len() == limit {
                (full, more) = (true, before > Some(1));
                break;
            }
        }
    }
    let next = before.filter(|_| more).map(|before| before.to_string());
    let items = items.iter().map(LogRow::of).collect();
    Ok(Answer::of(&LogPage { logs: items, page: Cursor::of(&request.page, next.as_deref()) }))
}
