//! An answer that is a job's: the job was committed with the request, the workers run it at once,
//! and its result is answered, or 202 with its id where it takes longer than the request may.

use std::time::Duration;

use charter_engine::job::{JobRecord, jobs};
use charter_kernel::authority::Class;
use charter_kernel::refusal::{Code, Failure, Refusal};
use charter_kernel::unit::{Key, Reach, Row};
use charter_registry::served::{Served, ServedOperation};
use charter_tenancy::stored::reading;
use http::StatusCode;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::caller::Caller;
use super::respond::Answered;
use super::{answer, claim};
use crate::app::App;

/// The time between two looks at a job whose reach has changed: longer with each look in vain, so that many
/// who wait read little beside many changes.
const PAUSE_MIN: Duration = Duration::from_millis(1);
/// See above.
const PAUSE_MAX: Duration = Duration::from_millis(250);

/// It was committed and will run.
pub fn acceptance(id: &str) -> Answered {
    Answered::json(StatusCode::ACCEPTED, json!({"job": {"id": id}}).to_string())
}

/// Waits for the job's end within the operation's deadline, as long as the client is there, and a place
/// among those who wait: without one the answer is the job's id at once.
///
/// # Errors
/// Why the job failed.
pub async fn result(
    app: &App,
    caller: &Caller,
    served: &Served,
    operation: &ServedOperation,
    id: &str,
    gone: &CancellationToken,
) -> Result<Answered, Refusal> {
    let Some(_place) = app.engine.park(&caller.scope()) else { return Ok(acceptance(id)) };
    let key = find(app, caller, operation.contract.class, id).await?;
    let reach = key.reach.clone();
    let deadline_ms = operation.deadline_ms.unwrap_or(app.config.http.deadline_ms);
    let mut changed = app.store.space_changes(&reach, &jobs());
    let waiting = async {
        let mut pause = PAUSE_MIN;
        loop {
            let row = app.store.get(&key).await.map_err(reading)?;
            let Some(row) = row else { return Ok::<_, Refusal>(None) };
            if let Some(ended) = outcome(served, operation, &row)? {
                return Ok(Some(ended));
            }
            changed.wait().await;
            tokio::time::sleep(pause).await;
            pause = (2 * pause).min(PAUSE_MAX);
        }
    };
    let waiting = tokio::time::timeout(Duration::from_millis(u64::from(deadline_ms)), waiting);
    // A job that this host does not end goes on at the next one, and so does one without its client.
    let waiting = gone.run_until_cancelled(app.cut.run_until_cancelled(waiting));
    match waiting.await.flatten() {
        Some(Ok(Ok(Some(answered)))) => Ok(answered),
        Some(Ok(Err(refusal))) => Err(refusal),
        Some(Ok(Ok(None)) | Err(_)) | None => Ok(acceptance(id)),
    }
}

/// The answer of the job at this address, which is an approved request's as it would be a direct
/// one's. Nothing while it has not ended, and once it is gone.
///
/// # Errors
/// Why the job failed.
pub async fn look(
    app: &App,
    served: &Served,
    operation: &ServedOperation,
    key: &Key,
) -> Result<Option<Answered>, Refusal> {
    match app.store.get(key).await.map_err(reading)? {
        Some(row) => outcome(served, operation, &row),
        None => Ok(None),
    }
}

fn outcome(
    served: &Served,
    operation: &ServedOperation,
    row: &Row,
) -> Result<Option<Answered>, Refusal> {
    let job: JobRecord = serde_json::from_str(&row.body).map_err(|_| Refusal::internal())?;
    match job.outcome() {
        Some(Ok(_)) if job.result_not_kept => Err(claim::answer_not_kept()),
        Some(Ok(result)) => Ok(Some(Answered::json(status(operation.status), result.to_string()))),
        Some(Err(error)) => Err(failure(served, &error, job.acted)),
        None => Ok(None),
    }
}

/// The address of a job. Asked again with the profile named, or no more, for what is the
/// organization's own, it is the one that was begun before.
async fn find(app: &App, caller: &Caller, class: Class, id: &str) -> Result<Key, Refusal> {
    let at = |reach: &Reach| Key::new(reach, &jobs(), id);
    let Some(place) = caller.place() else { return Ok(at(&Reach::deployment())) };
    let own = at(&place.scope().narrowest());
    if !class.is_whole() {
        return Ok(own);
    }
    let whole = Reach::organization(place.organization().id.as_str());
    let default = Reach::user(place.project().default_user.as_str());
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

/// The failure of the job's last run, in the words of the wire: codes of the host, and those that
/// the component declares. No other run follows.
fn failure(served: &Served, error: &Value, acted: bool) -> Refusal {
    let message = "The job has failed.";
    let code = error["code"].as_str();
    let refusal = match code.is_none_or(|code| Code::parse(code).is_some()) {
        true => Refusal::from_rest(error, message),
        false => {
            let failure = Failure::from_rest(error, message);
            let failure = if acted { failure.after_effect(served.errors()) } else { failure };
            answer::word_failure(served, &failure)
        }
    };
    refusal.for_good()
}
