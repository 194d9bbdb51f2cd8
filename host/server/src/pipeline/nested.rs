//! A call from one primitive to another, as the same caller, and an approved request, as who asked
//! for it: the line's stages from the kit gate on, as for a request that comes by HTTP. A change
//! commits on its own, and a refusal leaves the row that a client's would.

use std::sync::Arc;

use bytes::Bytes;
use charter_engine::Nested;
use charter_governance::approvals::Run;
use charter_governance::lifecycle;
use charter_kernel::id::RequestId;
use charter_kernel::refusal::Refusal;
use charter_registry::served::Contract;
use http::HeaderValue;
use serde_json::{Map, json};
use tokio_util::sync::CancellationToken;

use super::admit::Unpaced;
use super::again::Runs;
use super::call::{self, Again, Ended, Way};
use super::caller::Caller;
use super::claim::{self, Claimed};
use super::matched::Operation;
use super::respond::Answered;
use super::trail::Trail;
use super::validate::{self, Sent};
use super::{admit, answer, gate, job, matched};
use crate::app::App;
use crate::http::Door;

/// The reason why an approved request was not made.
pub struct Unmade {
    /// The refusal that a client would have got.
    pub refusal: Refusal,
    /// Whether its audit row was committed already.
    pub audited: bool,
}

impl From<Refusal> for Unmade {
    fn from(refusal: Refusal) -> Self {
        Self { refusal, audited: false }
    }
}

/// Calls another primitive; says as well whether the answer may show a secret.
///
/// # Errors
/// The refusal that a client would have got.
pub async fn run(app: &App, nested: &Nested) -> Result<(Answered, bool), Refusal> {
    let mut trail = begin(app, nested);
    match run_through(app, &mut trail, nested, None).await {
        Ok(answered) => Ok((answered, trail.shows_secret)),
        Err(refusal) => {
            super::audit_refusal(app, &mut trail, &refusal).await?;
            Err(refusal)
        }
    }
}

/// Makes an approved request: its end is written with it.
///
/// # Errors
/// The same. The row of a refusal before the component ran is left to the caller, whose commit
/// ends the approval.
pub async fn run_approved(app: &App, request: &Nested, run: &Arc<Run>) -> Result<Answered, Unmade> {
    let mut trail = begin(app, request);
    let made = run_through(app, &mut trail, request, Some(run)).await;
    made.map_err(|refusal| Unmade { refusal, audited: trail.audited })
}

/// The trail of a call. It has the outer request's id: what a nested call did is found by it.
fn begin(app: &App, nested: &Nested) -> Trail {
    let at = app.clock.now();
    let id = RequestId::parse(&nested.request).unwrap_or_else(|| RequestId::new(at, [0; 10]));
    Trail::begin(id, at, Door::Both, false)
}

async fn run_through(
    app: &App,
    trail: &mut Trail,
    nested: &Nested,
    approved: Option<&Arc<Run>>,
) -> Result<Answered, Refusal> {
    let mut runs = Runs::default();
    loop {
        runs.begin()?;
        if let Some(answered) = run_once(app, trail, nested, approved).await? {
            return Ok(answered);
        }
    }
}

/// Nothing where the call begins from the top.
async fn run_once(
    app: &App,
    trail: &mut Trail,
    nested: &Nested,
    approved: Option<&Arc<Run>>,
) -> Result<Option<Answered>, Refusal> {
    let caller = Caller::resolve_again(app, &nested.scope, &nested.credential).await?;
    gate::admit_caller(app, &caller, &nested.primitive)?;
    let (id, given) = (&nested.operation, &nested.parameters);
    let matched =
        matched::find_callable(app, trail, caller, (id, given), approved.is_some()).await?;
    let admitted = admit::admit(app, matched, &mut Unpaced).await?;
    let sent = input(nested, admitted.operation().contract(), approved.is_some())?;
    let validated = validate::validate(app, admitted, sent).await?;
    let claim = match claim::claim(app, &trail.id, &validated).await? {
        Claimed::Free(claim) => claim,
        Claimed::Replay(answered) => return Ok(Some(answered)),
        // A job outlives the call that made it; its caller asks for it by its id.
        Claimed::Job(id) => return Ok(Some(job::acceptance(&id))),
        Claimed::Approval(id) => {
            let (organization, operation) =
                (validated.caller().organization(), validated.operation());
            return answer::approval_answer(app, organization, operation, &id).await.map(Some);
        }
    };
    let by = Some(&nested.primitive).filter(|by| !by.is_empty());
    let sees = |name: &String| match validated.operation() {
        Operation::Guest(_, operation) => operation.headers.contains(name),
        Operation::Host(_) => false,
    };
    let headers = nested.headers.iter().filter(|(name, _)| sees(name));
    let way = Way {
        claim,
        lineage: nested.lineage.clone(),
        deadline_ms: nested.deadline_ms,
        gone: CancellationToken::new(),
        again: repetition(app, nested, approved),
        context: Map::from_iter(by.map(|by| (call::NESTED.to_owned(), json!(by)))),
        headers: headers.cloned().collect(),
        raw: None,
        room: None,
    };
    Ok(match call::handle(app, trail, &validated, way).await? {
        Ended::Again => None,
        Ended::Pending(answered) | Ended::Answered(_, answered) => Some(answered),
    })
}

/// The input of the call: members that are no path parameters are the query's. An approved request
/// is made once because its approval is, and needs no key: the key that it was asked under is
/// answered by the approval.
fn input(nested: &Nested, contract: &Contract, approved: bool) -> Result<Sent, Refusal> {
    let in_path = |name: &str| contract.path.parameters().any(|own| own == name);
    let key = HeaderValue::from_str(&nested.idempotency_key).map_err(|_| {
        Refusal::invalid("idempotency_key", "must be 1 to 255 visible ASCII characters")
    });
    Ok(Sent {
        pairs: nested.parameters.iter().filter(|(name, _)| !in_path(name)).cloned().collect(),
        bytes: Bytes::from(nested.body.clone().unwrap_or_default()),
        content_type: Some(HeaderValue::from_static("application/json")),
        key: if approved { None } else { Some(key?) },
    })
}

/// The call can be made again where the outermost request can, as who made that.
fn repetition(app: &App, nested: &Nested, approved: Option<&Arc<Run>>) -> Again {
    match (approved, nested.repeatable) {
        (Some(run), _) => Again::Approved(run.clone()),
        (None, false) => Again::Never,
        (None, true) => {
            Again::AsAsked(lifecycle::approval_listener(&app.governance, &nested.primitive))
        }
    }
}
