//! The line itself: accept ─ match family ─ identify ─ resolve scope ─ kit gate ─ match operation ─
//! admit ─ validate ─ claim key ─ guest ─ commit ─ respond.

use std::sync::Arc;

use charter_kernel::idempotency;
use charter_kernel::refusal::Refusal;
use http::{Request, header};
use hyper::body::Incoming;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::accept::{Accepted, Body};
use super::claim::{Asked, Claimed};
use super::host::Ended;
use super::matched::Operation;
use super::respond::Answered;
use super::trail::Trail;
use super::validate::Validated;
use super::{
    Peer, accept, admit, claim, family, gate, guest, host, identify, job, matched, respond, scope,
    validate,
};
use crate::app::App;
use crate::metrics::Outcome;
use crate::request::HostRequest;

/// Runs of one request: another request had its idempotency key, or what it was admitted under has
/// changed.
const RUNS_MAX: u32 = 4;

/// Answers or refuses.
pub async fn run(
    app: &Arc<App>,
    trail: &mut Trail,
    peer: Peer,
    request: Request<Incoming>,
    gone: &CancellationToken,
) -> Result<Answered, Refusal> {
    let mut accepted = accept::accept(app, trail, peer, request)?;
    for _ in 0..RUNS_MAX {
        match once(app, trail, accepted, gone).await? {
            Turn::Answered(answered) => return Ok(answered),
            Turn::Again(same) => accepted = *same,
        }
    }
    Err(Refusal::overloaded(1))
}

enum Turn {
    Answered(Answered),
    /// From the top, with the body that was read.
    Again(Box<Accepted>),
}

async fn once(
    app: &Arc<App>,
    trail: &mut Trail,
    accepted: Accepted,
    gone: &CancellationToken,
) -> Result<Turn, Refusal> {
    let located = family::locate(app, trail, accepted)?;
    let identified = identify::identify(app, trail, located).await?;
    let scoped = scope::resolve(app, trail, identified).await?;
    let gated = gate::gate(app, trail, scoped).await?;
    let matched = matched::match_operation(app, trail, gated)?;
    let admitted = admit::admit(app, trail, matched).await?;
    let validated = validate::validate(app, trail, admitted).await?;
    if validated.late {
        // Role, kit and expiry were looked at before the body came: they are looked at once more.
        return Ok(Turn::Again(Box::new(same(validated))));
    }
    let claim = match claimed(app, trail, &validated).await? {
        Claimed::Replay(answered) => {
            trail.outcome = Some(Outcome::Replayed);
            return Ok(Turn::Answered(answered));
        }
        Claimed::Job(id) => {
            trail.outcome = Some(Outcome::Replayed);
            return replayed_job(app, trail, &validated, &id).await.map(Turn::Answered);
        }
        Claimed::Approval(id) => {
            trail.outcome = Some(Outcome::Replayed);
            let answered = match guest::approval_answer(app, trail, &id).await {
                Ok(answered) => answered,
                Err(refusal) => respond::refused(&trail.wording(), &refusal),
            };
            return Ok(Turn::Answered(answered.replayed()));
        }
        Claimed::Free(claim) => claim,
    };
    let operation = validated.admitted.matched.operation.clone();
    let (ended, request) = match operation {
        Operation::Guest(..) => {
            let ended = guest::run(app, trail, &validated, claim.as_ref(), gone).await?;
            (ended, same(validated))
        }
        Operation::Host(entry) => {
            let (request, rest) = host_request(trail, validated);
            let ended = host::run(app, trail, &entry.route, &request, claim.as_ref()).await?;
            (ended, rest.again(request))
        }
    };
    Ok(match ended {
        Ended::Answered(answered) => Turn::Answered(answered),
        Ended::Restart => Turn::Again(Box::new(request)),
    })
}

/// What the job has become since: the same as its first caller was told, or would have been told
/// had it waited longer.
async fn replayed_job(
    app: &Arc<App>,
    trail: &Trail,
    validated: &Validated,
    id: &str,
) -> Result<Answered, Refusal> {
    let Operation::Guest(served, operation) = &validated.admitted.matched.operation else {
        return Err(Refusal::internal());
    };
    let answered = match job::result(app, trail, served, operation, id).await {
        Ok(answered) => answered,
        Err(refusal) => respond::refused(&trail.wording(), &refusal),
    };
    Ok(answered.replayed())
}

async fn claimed(app: &App, trail: &Trail, validated: &Validated) -> Result<Claimed, Refusal> {
    let matched = &validated.admitted.matched;
    let located = &matched.gated.scoped.identified.located;
    let accepted = &located.accepted;
    if !accepted.headers.contains_key(claim::HEADER) {
        return Ok(Claimed::Free(None));
    }
    // The path below its mount: project and user are part of the record's place, so that `me` and
    // an id are one.
    let path = located.path.segments().join("/");
    let content_type = accepted
        .headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let asked = Asked {
        operation: &matched.operation.contract().id,
        request: idempotency::Request {
            method: accepted.method.as_str(),
            path: &path,
            query: &accepted.query,
            content_type,
            body: &validated.bytes,
        },
        headers: &accepted.headers,
    };
    claim::claim(app, trail, asked).await
}

/// What of an accepted request a host request does not hold.
struct Rest {
    peer: Peer,
    decoded: charter_kernel::route::Path,
    pairs: Vec<(String, String)>,
}

impl Rest {
    fn again(self, request: HostRequest) -> Accepted {
        Accepted {
            peer: self.peer,
            method: request.method,
            raw_path: request.path,
            path: self.decoded,
            query: self.pairs,
            headers: request.headers,
            body: Body::Read(request.bytes),
        }
    }
}

fn same(validated: Validated) -> Accepted {
    validated.admitted.matched.gated.scoped.identified.located.accepted
}

fn host_request(trail: &Trail, validated: Validated) -> (HostRequest, Rest) {
    let Validated { admitted, query, page, bytes, body, late: _ } = validated;
    let matched = admitted.matched;
    let accepted = matched.gated.scoped.identified.located.accepted;
    let rest = Rest { peer: accepted.peer, decoded: accepted.path, pairs: accepted.query };
    let request = HostRequest {
        id: trail.id.as_str().to_owned(),
        now: trail.at,
        began: trail.began,
        method: accepted.method,
        path: accepted.raw_path,
        peer: rest.peer.address,
        tls: rest.peer.tls,
        identity: trail.identity.clone(),
        place: trail.place.clone(),
        parameters: matched.parameters,
        query: Value::Object(query),
        page,
        body,
        bytes,
        headers: accepted.headers,
    };
    (request, rest)
}
