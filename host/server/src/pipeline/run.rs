//! The line of a request over HTTP: accept ─ match family ─ identify ─ resolve scope ─ kit gate ─ match
//! operation ─ admit ─ validate ─ claim key ─ call ─ commit ─ respond.
//!
//! From the kit gate on, the stages are those of every face.

use std::sync::Arc;

use charter_kernel::refusal::Refusal;
use http::{Request, header};
use hyper::body::Incoming;
use tokio_util::sync::CancellationToken;

use super::accept::{Accepted, IDEMPOTENCY_KEY};
use super::admit::Admitted;
use super::again::Runs;
use super::claim::Claimed;
use super::matched::Operation;
use super::pace::{self, Paced};
use super::respond::Answered;
use super::trail::Trail;
use super::validate::Sent;
use super::{
    accept, admit, call, claim, client, family, host, identify, matched, read, scope, validate,
};
use crate::app::App;
use crate::bounds::lines::Turn;
use crate::http::Peer;
use crate::route::Walk;

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
    let mut turn = None;
    loop {
        runs.begin()?;
        if let Some(answered) = run_once(app, trail, &mut accepted, &mut turn, gone).await? {
            return Ok(answered);
        }
    }
}

/// Nothing where the request begins from the top, with the body that was read.
async fn run_once(
    app: &Arc<App>,
    trail: &mut Trail,
    accepted: &mut Accepted,
    turn: &mut Option<Turn>,
    gone: &CancellationToken,
) -> Result<Option<Answered>, Refusal> {
    let located = family::locate(app, trail, accepted)?;
    let identified = identify::identify(app, trail, located).await?;
    let (located, caller) = scope::resolve(app, trail, identified).await?;
    let matched = matched::find(app, trail, located, caller).await?;
    pace::check_credential(matched.caller().identity(), matched.operation().contract())?;
    let mut pace = Paced { trail: &mut *trail, accepted: &*accepted };
    let admitted = admit::admit(app, matched, &mut pace).await?;
    let body = read::read(app, trail, &admitted, accepted).await?;
    let waited = wait_turn(app, &admitted, turn).await?;
    if body.late || waited {
        // Role, kit and expiry were looked at before the body and the turn came: they are looked at
        // once more.
        return Ok(None);
    }
    let sent = Sent {
        pairs: accepted.query.clone(),
        bytes: body.bytes,
        content_type: accepted.headers.get(header::CONTENT_TYPE).cloned(),
        key: accepted.headers.get(IDEMPOTENCY_KEY).cloned(),
    };
    let validating = validate::validate(app, admitted, sent);
    // It may give way while it waits for a turn to be checked.
    let validated = match &trail.hold {
        Some(hold) => hold.giving_way(validating).await.ok_or_else(read::gave_way)?,
        None => validating.await,
    }?;
    let claim = match claim::claim(app, &trail.id, &validated).await? {
        Claimed::Free(claim) => claim,
        known => return client::replay(app, trail, &validated, known, gone).await.map(Some),
    };
    match validated.operation().clone() {
        Operation::Guest(served, operation) => {
            // The key stays taken on this replica until the answer is there, a job's included.
            let way = client::way(trail, &validated, &operation, accepted, claim.clone(), gone);
            let ended = call::handle(app, trail, &validated, way).await?;
            client::deliver(app, validated.caller(), &served, &operation, ended, gone).await
        }
        Operation::Host(entry) => {
            let caller = validated.caller().clone();
            let request = host::request(trail, validated, accepted);
            host::run(app, trail, (&caller, &entry.route), &request, claim.as_deref()).await
        }
    }
}

/// Has a route that reads many rows wait until few others of its organization do: read side by side,
/// the megabytes of one would be in everybody's way. Answers whether it took its time.
async fn wait_turn(
    app: &App,
    admitted: &Admitted,
    turn: &mut Option<Turn>,
) -> Result<bool, Refusal> {
    let Operation::Host(entry) = admitted.operation() else { return Ok(false) };
    let line = match entry.route.walks {
        Some(Walk::Page) => &app.bounds.pages,
        Some(Walk::All) => &app.bounds.sums,
        None => return Ok(false),
    };
    if turn.is_some() {
        return Ok(false);
    }
    let (organization, by) = (admitted.caller().organization(), admitted.caller().scope().sharer());
    *turn = line.take(organization, &by);
    if turn.is_none() {
        *turn = Some(line.wait(organization, &by).await?);
        return Ok(true);
    }
    Ok(false)
}
