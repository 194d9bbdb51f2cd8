//! The line of a request over HTTP: accept ─ match family ─ identify ─ resolve scope ─ kit gate ─ match
//! operation ─ admit ─ validate ─ claim key ─ call ─ commit ─ respond.
//!
//! From the kit gate on, the stages are those of every way in.

use std::sync::Arc;

use charter_engine::AnswerBody;
use charter_kernel::idempotency::Lineage;
use charter_kernel::refusal::Refusal;
use charter_kernel::route::{Missing, Path};
use charter_registry::served::{BodyRule, ServedOperation};
use http::{HeaderMap, HeaderValue, Request, header};
use hyper::body::Incoming;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use super::accept::{Accepted, Body};
use super::again::Runs;
use super::call::{self, Again, Way};
use super::caller::Caller;
use super::claim::{Claim, Claimed, Form};
use super::family::{Located, Target};
use super::host::Ended;
use super::matched::{Matched, Operation};
use super::pace::{self, Paced};
use super::respond::Answered;
use super::trail::Trail;
use super::validate::{Sent, Validated};
use super::{
    accept, admit, answer, claim, family, follow, gate, host, identify, job, read, respond, scope,
    validate,
};
use crate::app::App;
use crate::events::Source;
use crate::http::Peer;
use crate::metrics::RequestOutcome;
use crate::request::HostRequest;

/// Answers or refuses.
pub async fn run(
    app: &Arc<App>,
    trail: &mut Trail,
    peer: Peer,
    request: Request<Incoming>,
    gone: &CancellationToken,
) -> Result<Answered, Refusal> {
    let mut accepted = accept::accept(app, trail, peer, request)?;
    let mut runs = Runs::default();
    loop {
        runs.begin()?;
        match run_once(app, trail, accepted, gone).await? {
            Round::Answered(answered) => return Ok(answered),
            Round::Again(same) => accepted = *same,
        }
    }
}

enum Round {
    Answered(Answered),
    /// From the top, with the body that was read.
    Again(Box<Accepted>),
}

async fn run_once(
    app: &Arc<App>,
    trail: &mut Trail,
    accepted: Accepted,
    gone: &CancellationToken,
) -> Result<Round, Refusal> {
    let located = family::locate(app, trail, accepted)?;
    let identified = identify::identify(app, trail, located).await?;
    let (located, caller) = scope::resolve(app, trail, identified).await?;
    let (matched, mut accepted, path) = match_operation(app, trail, located, caller).await?;
    pace::check_credential(matched.caller().identity(), matched.operation().contract())?;
    let mut pace = Paced { trail: &mut *trail, accepted: &mut accepted };
    let admitted = admit::admit(app, matched, &mut pace).await?;
    let body = read::read(app, trail, &admitted, &mut accepted).await?;
    if body.late {
        // Role, kit and expiry were looked at before the body came: they are looked at once more.
        return Ok(Round::Again(Box::new(accepted)));
    }
    let key = accepted.headers.get(claim::HEADER).cloned();
    let (pairs, bytes) = (accepted.query.clone(), body.bytes);
    let sent = Sent { pairs, bytes, key, faults: Vec::new() };
    let validated = validate::validate(app, admitted, sent).await?;
    let claim = match claim_key(app, trail, &validated, &accepted, &path).await? {
        Claimed::Free(claim) => claim,
        known => {
            trail.outcome = Some(RequestOutcome::Replayed);
            return replay(app, trail, &validated, known).await.map(Round::Answered);
        }
    };
    match validated.operation().clone() {
        Operation::Guest(_, operation) => {
            let way = call_way(&validated, &operation, &accepted, claim.as_ref(), trail, gone);
            let ended = call::handle(app, trail, &validated, way).await?;
            let answered = render_answer(app, trail, &validated, ended).await?;
            Ok(answered.map_or_else(|| Round::Again(Box::new(accepted)), Round::Answered))
        }
        Operation::Host(entry) => {
            let caller = validated.caller().clone();
            let (request, rest) = host_request(trail, validated, accepted);
            let by = (&*caller, &entry.route);
            Ok(match host::run(app, trail, by, &request, claim.as_ref()).await? {
                Ended::Answered(answered) => Round::Answered(answered),
                Ended::Restart => Round::Again(Box::new(rest.again(request))),
            })
        }
    }
}

/// Passes the kit's gate and finds the operation; answers the request and its path below the mount.
async fn match_operation(
    app: &App,
    trail: &mut Trail,
    located: Located,
    caller: Arc<Caller>,
) -> Result<(Matched, Accepted, Path), Refusal> {
    let Located { accepted, mount, path, target, .. } = located;
    let matched = match target {
        Target::Host(entry, parameters) => Matched::route(caller, entry, parameters),
        Target::Primitive(primitive, _) => {
            let gated = gate::gate(app, caller, &primitive).await?;
            let found = Matched::find(gated, mount, accepted.method.as_str(), &path);
            found.map_err(|missing| match missing {
                Missing::Path => Refusal::not_found(),
                Missing::Method { allow } => {
                    let refusal = Refusal::method_not_allowed(&allow);
                    trail.allow = Some(allow);
                    refusal
                }
            })?
        }
    };
    trail.note(matched.operation().contract());
    let stats = |method, path: &str| app.metrics.route(method, path);
    trail.stats = Some(matched.operation().contract().stats(mount, stats));
    Ok((matched, accepted, path))
}

async fn claim_key(
    app: &App,
    trail: &Trail,
    validated: &Validated,
    accepted: &Accepted,
    path: &Path,
) -> Result<Claimed, Refusal> {
    // The path below its mount: project and user are part of the record's place, so that `me` and
    // an id are one.
    let path = path.segments().join("/");
    let content_type = accepted.headers.get(header::CONTENT_TYPE);
    let form = Form {
        method: accepted.method.as_str(),
        path: &path,
        content_type: content_type.and_then(|value| value.to_str().ok()).unwrap_or_default(),
    };
    claim::claim(app, &trail.id, validated, form).await
}

/// The outcome of the request that had the key: the same as its caller was told, or would have been
/// told had it waited longer.
async fn replay(
    app: &App,
    trail: &Trail,
    validated: &Validated,
    known: Claimed,
) -> Result<Answered, Refusal> {
    let caller = validated.caller();
    let became = match (known, validated.operation()) {
        (Claimed::Replay(answered), _) => return Ok(answered),
        (Claimed::Job(id), Operation::Guest(served, operation)) => {
            job::result(app, caller, served, operation, &id).await
        }
        (Claimed::Approval(id), _) => {
            answer::approval_answer(app, caller.organization(), &id).await
        }
        (Claimed::Job(_), Operation::Host(_)) | (Claimed::Free(_), _) => {
            return Err(Refusal::internal());
        }
    };
    let refused = |refusal| respond::render_refusal(&trail.wording(), &refusal);
    Ok(became.unwrap_or_else(refused).mark_replayed())
}

fn call_way<'a>(
    validated: &Validated,
    operation: &ServedOperation,
    accepted: &Accepted,
    claim: Option<&'a Arc<Claim>>,
    trail: &Trail,
    gone: &CancellationToken,
) -> Way<'a> {
    let seen = operation.headers.iter().filter_map(|name| {
        let value = accepted.headers.get(name)?.to_str().ok()?;
        Some((name.as_str().to_owned(), value.to_owned()))
    });
    let mut context = Map::new();
    if validated.caller().place().is_some_and(|place| place.project.test) {
        context.insert("test".into(), true.into());
    }
    if operation.streams && accepts_events(&accepted.headers) {
        context.insert("stream".into(), true.into());
    }
    let raw = matches!(operation.contract.body, BodyRule::Raw { .. });
    Way {
        claim,
        lineage: Lineage::outermost(trail.id.as_str()),
        deadline_ms: u32::MAX,
        gone: gone.clone(),
        again: Again::AsAsked(None),
        context,
        headers: seen.collect(),
        raw: raw.then(|| validated.bytes().clone()),
    }
}

/// Whether the client asks for an event stream.
fn accepts_events(headers: &HeaderMap) -> bool {
    let accepts =
        |line: &HeaderValue| line.to_str().is_ok_and(|line| line.contains("text/event-stream"));
    headers.get_all(header::ACCEPT).iter().any(accepts)
}

/// The answer as a client gets it: a log is followed, a job is waited for. Nothing where the request
/// begins from the top.
async fn render_answer(
    app: &Arc<App>,
    trail: &mut Trail,
    validated: &Validated,
    ended: call::Ended,
) -> Result<Option<Answered>, Refusal> {
    let caller = validated.caller();
    let Operation::Guest(served, operation) = validated.operation() else {
        return Err(Refusal::internal());
    };
    let (answer, rendered) = match ended {
        call::Ended::Again => return Ok(None),
        call::Ended::Pending(approval) => {
            trail.audited = true;
            let waits = answer::approval_answer(app, caller.organization(), &approval).await;
            return waits.map(Some);
        }
        call::Ended::Answered(answer, rendered) => (answer, rendered),
    };
    let answered = match &answer.body {
        AnswerBody::Follow { log, after } => {
            let source = Source::Log(log.clone(), *after);
            follow::stream(app, caller, operation.contract.mutates, source)
        }
        AnswerBody::Job(id) => job::result(app, caller, served, operation, id).await,
        AnswerBody::Blob(_) => Err(Refusal::not_configured(&["object_store"])),
        AnswerBody::None | AnswerBody::Json(_) | AnswerBody::Bytes { .. } => Ok(rendered),
    };
    answered.map(Some)
}

/// The parts of an accepted request that a host request does not hold.
struct Rest {
    peer: Peer,
    decoded: Path,
    pairs: Vec<(String, String)>,
    counted: bool,
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
            counted: self.counted,
        }
    }
}

fn host_request(trail: &Trail, validated: Validated, accepted: Accepted) -> (HostRequest, Rest) {
    let Accepted { peer, method, raw_path, path, query, headers, counted, body: _ } = accepted;
    let caller = validated.caller();
    let request = HostRequest {
        id: trail.id.as_str().to_owned(),
        now: trail.at,
        began: trail.began,
        method,
        path: raw_path,
        peer: peer.address,
        tls: peer.tls,
        identity: caller.identity().clone(),
        place: caller.place().cloned(),
        parameters: validated.parameters().to_vec(),
        query: Value::Object(validated.query().clone()),
        page: validated.page().clone(),
        bytes: validated.bytes().clone(),
        body: validated.into_body(),
        headers,
    };
    (request, Rest { peer, decoded: path, pairs: query, counted })
}
