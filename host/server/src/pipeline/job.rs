//! An answer that is a job's: the job was committed with the request, the workers run it at once,
//! and its result is answered, or 202 with its id where it takes longer than the request may.

use std::time::Duration;

use charter_engine::job::{JobRecord, jobs};
use charter_kernel::authority::Class;
use charter_kernel::refusal::{Code, Failure, Refusal};
use charter_kernel::unit::{Key, Reach};
use charter_registry::served::{Served, ServedOperation};
use charter_tenancy::stored::reading;
use http::StatusCode;
use serde_json::{Value, json};

use super::answer;
use super::caller::Caller;
use super::respond::Answered;
use crate::app::App;

/// It was committed and will run.
pub fn acceptance(id: &str) -> Answered {
    Answered::json(StatusCode::ACCEPTED, json!({"job": {"id": id}}).to_string())
}

/// Waits for the job's end within the operation's deadline.
///
/// # Errors
/// Why the job failed.
pub async fn result(
    app: &App,
    caller: &Caller,
    served: &Served,
    operation: &ServedOperation,
    id: &str,
) -> Result<Answered, Refusal> {
    let key = find(app, caller, operation.contract.class, id).await?;
    let reach = key.reach.clone();
    let deadline_ms = operation.deadline_ms.unwrap_or(app.config.http.deadline_ms);
    let mut changed = app.store.space_changes(&reach, &jobs());
    app.governance.job_wanted.notify_one();
    let waiting = async {
        loop {
            let Some(row) = app.store.get(&key).await.map_err(reading)? else { return Ok(None) };
            let job: JobRecord =
                serde_json::from_str(&row.body).map_err(|_| Refusal::internal())?;
            match job.state.as_str() {
                "succeeded" => {
                    return Ok(Some(Answered::json(status(operation.status), result_text(&job))));
                }
                "failed" => return Err(failure(served, &job)),
                "cancelled" => {
                    return Err(Refusal::state_conflict("job_cancelled", "The job was cancelled."));
                }
                _ => changed.wait().await,
            }
        }
    };
    match tokio::time::timeout(Duration::from_millis(u64::from(deadline_ms)), waiting).await {
        Ok(Ok(Some(answered))) => Ok(answered),
        Ok(Err(refusal)) => Err(refusal),
        Ok(Ok(None)) | Err(_) => Ok(acceptance(id)),
    }
}

/// The address of a job. Asked again with the profile named, or no more, for what is the
/// organization's own, it is the one that was begun before.
async fn find(app: &App, caller: &Caller, class: Class, id: &str) -> Result<Key, Refusal> {
    let at = |reach: &Reach| Key::new(reach, &jobs(), id);
    let Some(place) = caller.place() else { return Ok(at(&Reach::deployment())) };
    let own = at(&place.scope.narrowest());
    if !class.is_whole() {
        return Ok(own);
    }
    let whole = Reach::organization(place.organization.id.as_str());
    let default = Reach::user(place.project.default_user.as_str());
    for key in [own.clone(), at(&whole), at(&default)] {
        if app.store.get(&key).await.map_err(reading)?.is_some() {
            return Ok(key);
        }
    }
    Ok(own)
}

fn status(declared: u16) -> StatusCode {
    StatusCode::from_u16(declared).unwrap_or(StatusCode::OK)
}

fn result_text(job: &JobRecord) -> String {
    job.result.as_ref().map_or_else(|| "null".into(), Value::to_string)
}

/// The failure of the job's last run, in the words of the wire: codes of the host, and those that
/// the component declares. No other run follows.
fn failure(served: &Served, job: &JobRecord) -> Refusal {
    let message = "The job has failed.";
    let error = job.error.clone().unwrap_or_default();
    let code = error["code"].as_str();
    let refusal = match code.is_none_or(|code| Code::parse(code).is_some()) {
        true => Refusal::from_rest(&error, message),
        false => {
            let failure = Failure::from_rest(&error, message);
            let failure = if job.acted { failure.after_effect(served.errors()) } else { failure };
            answer::word_failure(served, &failure)
        }
    };
    refusal.for_good()
}
