//! `/v1/jobs`: the public jobs of a profile. What runs them is `workers`.

use charter_engine::job::{JobRecord, NEVER, jobs};
use charter_kernel::id::JobId;
use charter_kernel::refusal::Refusal;
use charter_kernel::unit::{Key, Row};
use charter_store::{Query, Txn};
use serde_json::{Value, json};

use super::shape::{self, id, instant, nullable, object};
use super::stored::reading;
use crate::app::App;
use crate::reply::Reply;
use crate::request::HostRequest;

/// Rows looked at in one step, where what is asked for has no index.
const ROWS_MAX: u32 = 1_000;

fn item() -> Value {
    let text = json!({"type": "string"});
    object(&[
        ("id", id()),
        ("name", text.clone()),
        ("primitive", text.clone()),
        ("status", json!({"enum": ["queued", "running", "succeeded", "failed", "cancelled"]})),
        ("progress", json!({"type": ["number", "null"]})),
        ("note", json!({"type": ["string", "null"]})),
        ("result", json!({})),
        ("error", json!({"type": ["object", "null"]})),
        ("approval_id", nullable(&id())),
        ("attempts", json!({"type": "integer"})),
        ("run_at", instant()),
        ("created_at", instant()),
        ("updated_at", nullable(&instant())),
    ])
}

/// One job.
pub fn answer() -> Value {
    object(&[("job", item())])
}

/// The query of the list.
pub fn list_query() -> Value {
    let status = json!({"enum": ["queued", "running", "succeeded", "failed", "cancelled"]});
    json!({"type": "object", "properties": {"status": status}, "additionalProperties": false})
}

/// A page of jobs.
pub fn list_answer() -> Value {
    shape::cursor_page("jobs", &item())
}

/// Newest first.
///
/// # Errors
/// When the store cannot be asked.
pub async fn list(_: &App, request: &HostRequest, txn: &mut Txn) -> Result<Reply, Refusal> {
    let place = request.place()?;
    let limit = request.page.limit as usize;
    let wanted = request.query_text("status");
    let mut query = Query::all(&place.scope.narrowest(), &jobs()).equal("public", "1").relaxed();
    query.after.clone_from(&request.page.position);
    let by_lease = matches!(wanted, Some("queued" | "running"));
    if let Some(wanted) = wanted {
        // What runs is a queued job that somebody holds; no index tells the two apart.
        query = query.equal("state", if by_lease { "queued" } else { wanted });
    }
    query = query.limit(if by_lease { ROWS_MAX } else { request.page.limit + 1 });
    let (mut items, mut last, mut more) = (Vec::new(), None, false);
    loop {
        let page = txn.find(&query).await.map_err(reading)?;
        for (key, row) in &page.items {
            let job = read(row)?;
            if by_lease && wanted != Some(state(&job, row)) {
                continue;
            }
            if items.len() == limit {
                more = true;
                break;
            }
            items.push(view(key, row, &job));
            last = Some(key.id.clone());
        }
        query.after = page.next;
        if more || !by_lease || query.after.is_none() {
            break;
        }
    }
    let next = last.as_deref().filter(|_| more);
    Ok(Reply::ok(&shape::listed_at("jobs", items, &request.page, next)))
}

/// One public job of the profile.
///
/// # Errors
/// 404 for any other.
pub async fn get(_: &App, request: &HostRequest, txn: &mut Txn) -> Result<Reply, Refusal> {
    let (key, row, job) = named(request, txn).await?;
    Ok(Reply::ok(&json!({"job": view(&key, &row, &job)})))
}

/// Cancels what has not finished. A run that is under way loses its lease, and with it its commit.
///
/// # Errors
/// 404 for what is not there, 409 for what has finished.
pub async fn cancel(_: &App, request: &HostRequest, txn: &mut Txn) -> Result<Reply, Refusal> {
    let (key, row, mut job) = named(request, txn).await?;
    if job.state != "queued" {
        return Err(Refusal::state_conflict("finished", format!("The job has {}.", job.state)));
    }
    job.state = "cancelled".into();
    // Whoever runs it holds it no longer, nobody takes it up again, and its key is free.
    if let Some(token) = row.lease.as_ref().and_then(|lease| lease.token.as_deref()) {
        txn.release(&key, token, NEVER);
    }
    let draft = job.ended(None, request.now).map_err(|_| Refusal::internal())?;
    let mut row = txn.replace(key.clone(), draft, None).await.map_err(super::stored::breaking)?;
    if let Some(lease) = &mut row.lease {
        lease.token = None;
    }
    Ok(Reply::ok(&json!({"job": view(&key, &row, &job)})).about("job", key.id.clone()))
}

async fn named(request: &HostRequest, txn: &mut Txn) -> Result<(Key, Row, JobRecord), Refusal> {
    let id = JobId::parse(request.parameter("id")).ok_or_else(Refusal::not_found)?;
    let key = Key::new(&request.place()?.scope.narrowest(), &jobs(), id.as_str());
    let row = txn.get(&key).await.map_err(reading)?.ok_or_else(Refusal::not_found)?;
    let job = read(&row)?;
    if job.public { Ok((key, row, job)) } else { Err(Refusal::not_found()) }
}

fn read(row: &Row) -> Result<JobRecord, Refusal> {
    serde_json::from_str(&row.body).map_err(|error| {
        tracing::error!(%error, "a job cannot be read");
        Refusal::internal()
    })
}

/// A held lease is a run.
fn state<'j>(job: &'j JobRecord, row: &Row) -> &'j str {
    let held = row.lease.as_ref().is_some_and(|lease| lease.token.is_some());
    if job.state == "queued" && held { "running" } else { &job.state }
}

fn view(key: &Key, row: &Row, job: &JobRecord) -> Value {
    json!({
        "id": key.id,
        "name": job.name,
        "primitive": job.primitive,
        "status": state(job, row),
        "progress": job.fraction,
        "note": job.note,
        "result": job.result,
        "error": job.error,
        "approval_id": job.approval,
        "attempts": row.lease.as_ref().map_or(0, |lease| lease.count),
        "run_at": job.run_at,
        "created_at": row.created_at,
        "updated_at": row.updated_at,
    })
}
