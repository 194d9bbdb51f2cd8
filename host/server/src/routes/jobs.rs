//! `/v1/jobs`: the public jobs of a profile. The `workers` run them.

use charter_engine::job::{JobRecord, NEVER, jobs};
use charter_governance::approvals;
use charter_kernel::authority::Class;
use charter_kernel::id::JobId;
use charter_kernel::manifest::Paging;
use charter_kernel::refusal::Refusal;
use charter_kernel::scope::{Level, Scope};
use charter_kernel::time::Instant;
use charter_kernel::unit::{Key, Reach, Row};
use charter_store::{Query, Txn};
use charter_tenancy::stored::reading;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::gather::gather;
use super::shape::{Cursor, Id, Optional};
use crate::app::App;
use crate::handler;
use crate::reply::AuditLog;
use crate::request::HostRequest;
use crate::route::HostRoute;
use crate::serve::{Answer, Params};

/// Rows looked at in one step, where what is asked for has no index.
const ROWS_MAX: u32 = 1_000;

/// The rows of jobs.
pub fn routes() -> Vec<HostRoute> {
    vec![
        HostRoute::get(Class::DeskRead, "jobs.list", "/jobs", handler!(list_jobs))
            .both_mounts()
            .summary("Public jobs, newest first")
            .paging(Paging::Cursor),
        HostRoute::get(Class::DeskRead, "jobs.get", "/jobs/{id}", handler!(get_job))
            .both_mounts()
            .summary("One job"),
        HostRoute::delete(Class::DeskChange, "jobs.cancel", "/jobs/{id}", handler!(cancel_job))
            .both_mounts()
            .summary("Cancel a job that has not finished"),
    ]
}

/// How far a job has come.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Status {
    /// It waits to be run.
    Queued,
    /// It runs.
    Running,
    /// It has ended as it should.
    Succeeded,
    /// It has failed for good.
    Failed,
    /// Somebody has cancelled it.
    Cancelled,
}

impl Status {
    /// A held lease is a run.
    fn of(state: &str, row: &Row) -> Self {
        let held = row.lease.as_ref().is_some_and(|lease| lease.token.is_some());
        match state {
            "queued" if held => Self::Running,
            "succeeded" => Self::Succeeded,
            "failed" => Self::Failed,
            "cancelled" => Self::Cancelled,
            _ => Self::Queued,
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

/// The query of the list.
#[derive(Deserialize, JsonSchema)]
pub struct JobQuery {
    /// Those of this status alone.
    status: Optional<Status>,
}

/// A public job.
#[derive(Serialize, JsonSchema)]
struct JobItem {
    /// The job's id.
    id: Id,
    /// The job's name.
    name: String,
    /// The primitive whose job it is.
    primitive: String,
    /// How far it has come.
    status: Status,
    /// The part that is done, from 0 to 1.
    progress: Option<f32>,
    /// A line on what it does.
    note: Option<String>,
    /// The outcome of a job that has succeeded.
    #[schemars(with = "Value")]
    result: Option<Box<RawValue>>,
    /// Whether `result` is that outcome, once there is one: false where it shows a secret, and is
    /// kept nowhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "bool")]
    result_kept: Option<bool>,
    /// The refusal of a job that has failed.
    #[schemars(with = "Option<Map<String, Value>>")]
    error: Option<Box<RawValue>>,
    /// The approval that it waits for.
    approval_id: Option<Id>,
    /// How often it was run.
    attempts: u32,
    /// The moment of its next run.
    run_at: Instant,
    /// The moment of its creation.
    created_at: Instant,
    /// The moment of its last change.
    updated_at: Option<Instant>,
}

/// The members of a [`JobRecord`] that are shown, as its row has them: its payload stays unread, and
/// its outcome as it is written.
#[derive(Deserialize)]
struct Listed {
    primitive: String,
    name: String,
    state: String,
    public: bool,
    run_at: Instant,
    fraction: Option<f32>,
    note: Option<String>,
    result: Option<Box<RawValue>>,
    #[serde(default)]
    result_not_kept: bool,
    error: Option<Box<RawValue>>,
    approval: Option<String>,
}

impl JobItem {
    fn of(key: &Key, row: &Row, job: Listed) -> Self {
        let is_answered = job.state == "succeeded";
        Self {
            id: key.id.as_str().into(),
            status: Status::of(&job.state, row),
            name: job.name,
            primitive: job.primitive,
            progress: job.fraction,
            note: job.note,
            result: job.result,
            result_kept: is_answered.then_some(!job.result_not_kept),
            error: job.error,
            approval_id: job.approval.map(Id),
            attempts: row.lease.as_ref().map_or(0, |lease| lease.count),
            run_at: job.run_at,
            created_at: row.created_at,
            updated_at: Some(row.updated_at),
        }
    }
}

/// One job.
#[derive(Serialize, JsonSchema)]
pub struct JobAnswer {
    job: JobItem,
}

/// A page of jobs.
#[derive(Serialize, JsonSchema)]
pub struct JobPage {
    jobs: Vec<JobItem>,
    #[serde(flatten)]
    page: Cursor,
}

/// Newest first: the profile's, and for who acts for the organization those of its own with them.
///
/// # Errors
/// When the store cannot be asked.
pub async fn list_jobs(
    _: &App,
    request: &HostRequest,
    txn: &mut Txn,
    Params(asked): Params<JobQuery>,
) -> Result<Answer<JobPage>, Refusal> {
    let scope = request.place()?.scope();
    let limit = request.page.limit as usize;
    let wanted = asked.status.0;
    let by_lease = matches!(wanted, Some(Status::Queued | Status::Running));
    let show = |key: &Key, row: &Row| {
        let job: Listed = read(row)?;
        let is_shown = !by_lease || wanted == Some(Status::of(&job.state, row));
        Ok(is_shown.then(|| (key.id.clone(), JobItem::of(key, row, job))))
    };
    let (mut found, mut cut) = (Vec::new(), None);
    for reach in reaches(scope) {
        let mut query = Query::all(&reach, &jobs()).equal("public", "1").relax();
        query.after.clone_from(&request.page.position);
        query.limit = request.page.limit + 1;
        if let Some(wanted) = wanted {
            // A running job is a queued job that somebody holds; no index tells the two apart.
            query = query.equal("state", if by_lease { "queued" } else { wanted.as_str() });
            query.limit = if by_lease { ROWS_MAX } else { query.limit };
        }
        let (jobs, seen) = gather(txn, query, request.page.limit, show).await?;
        found.extend(jobs);
        cut = cut.max(seen);
    }
    // Of both, what lies behind the end of either is the next page's.
    found.retain(|(id, _)| cut.as_ref().is_none_or(|cut| id >= cut));
    found.sort_by(|(one, _), (other, _)| other.cmp(one));
    let last = match found.len() > limit {
        true => limit.checked_sub(1).and_then(|at| found.get(at)).map(|(id, _)| id.clone()),
        false => cut,
    };
    found.truncate(limit);
    let items = found.into_iter().map(|(_, item)| item).collect();
    Ok(Answer::of(&JobPage { jobs: items, page: Cursor::of(&request.page, last.as_deref()) }))
}

/// The jobs of a scope lie here: with its profile, and, unless it is one profile's, with its project
/// and the organization, whose own are no profile's.
fn reaches(scope: &Scope) -> Vec<Reach> {
    let level = scope.level();
    let project = scope.project().filter(|_| level != Level::User);
    let organization = (level == Level::Organization).then(|| Reach::organization(scope.lane()));
    let wider = project.map(|id| Reach::project(id.as_str())).into_iter().chain(organization);
    let narrowest = scope.narrowest();
    let wider: Vec<Reach> = wider.filter(|reach| *reach != narrowest).collect();
    [narrowest].into_iter().chain(wider).collect()
}

/// One public job of those that the list has.
///
/// # Errors
/// 404 for any other.
pub async fn get_job(
    _: &App,
    request: &HostRequest,
    txn: &mut Txn,
) -> Result<Answer<JobAnswer>, Refusal> {
    let (key, row) = find(request, txn).await?;
    let job = read(&row)?;
    Ok(Answer::of(&JobAnswer { job: JobItem::of(&key, &row, job) }))
}

/// Cancels what has not finished. A run that is under way loses its lease, and with it its commit;
/// what of it waits for people is canceled with it.
///
/// # Errors
/// 404 for what is not there, 409 for what has finished.
pub async fn cancel_job(
    _: &App,
    request: &HostRequest,
    txn: &mut Txn,
) -> Result<Answer<JobAnswer>, Refusal> {
    let place = request.place()?;
    let (key, row) = find(request, txn).await?;
    let mut job: JobRecord = read(&row)?;
    if job.state != "queued" {
        return Err(Refusal::state_conflict("finished", format!("The job has {}.", job.state)));
    }
    job.state = "cancelled".into();
    // The worker that runs it holds it no longer, nobody takes it up again, and its key is free.
    if let Some(token) = row.lease.as_ref().and_then(|lease| lease.token.as_deref()) {
        txn.release(&key, token, NEVER);
    }
    let draft = job.end(None, request.now).map_err(|_| Refusal::internal())?;
    let mut row =
        txn.replace(key.clone(), draft, None).await.map_err(charter_tenancy::stored::breaking)?;
    if let Some(lease) = &mut row.lease {
        lease.token = None;
    }
    approvals::cancel_of_job(txn, (&key, &job), request.now).await?;
    let answer = JobAnswer { job: JobItem::of(&key, &row, read(&row)?) };
    let log = match key.reach == Reach::organization(place.scope().lane()) {
        true => AuditLog::Organization,
        // The default profile's job is its project's business, also where nobody was named.
        false => AuditLog::Project(place.project().id.clone()),
    };
    Ok(Answer::of(&answer).about("job", key.id).with_log(log))
}

async fn find(request: &HostRequest, txn: &mut Txn) -> Result<(Key, Row), Refusal> {
    let id = JobId::parse(request.parameter("id")).ok_or_else(Refusal::not_found)?;
    for reach in reaches(request.place()?.scope()) {
        let key = Key::new(&reach, &jobs(), id.as_str());
        if let Some(row) = txn.get(&key).await.map_err(reading)? {
            let job: Listed = read(&row)?;
            return if job.public { Ok((key, row)) } else { Err(Refusal::not_found()) };
        }
    }
    Err(Refusal::not_found())
}

fn read<'r, T: Deserialize<'r>>(row: &'r Row) -> Result<T, Refusal> {
    serde_json::from_str(&row.body).map_err(|error| {
        tracing::error!(%error, "a job cannot be read");
        Refusal::internal()
    })
}
