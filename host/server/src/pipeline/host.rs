//! Runs a handler of the host's own: its writes, the audit row and the idempotent answer are one
//! commit.
//!
//! A conflict runs the handler again in turn; a rule that refused the commit runs it once more, so
//! that it words the refusal itself.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use charter_kernel::id::canonical;
use charter_kernel::refusal::{Code, Refusal};
use charter_kernel::unit::{Guard, Rejection};
use charter_store::{CommitError, Txn};
use charter_tenancy::identity::Identity;
use charter_tenancy::stored;
use serde_json::Value;

use super::accept::Accepted;
use super::audit::{self, Decision};
use super::caller::Caller;
use super::claim::{Claim, Kept};
use super::respond::{self, Answered};
use super::trail::Trail;
use super::validate::Validated;
use super::{follow, rule, unread};
use crate::app::App;
use crate::reply::{Reply, ReplyBody};
use crate::request::HostRequest;
use crate::route::HostRoute;

/// The request as the handler is given it.
pub fn request(trail: &Trail, validated: Validated, accepted: &Accepted) -> HostRequest {
    let caller = validated.caller();
    let parameters = validated.parameters().iter().cloned();
    HostRequest {
        id: trail.id.as_str().to_owned(),
        now: trail.at,
        began: trail.began,
        method: accepted.method.clone(),
        path: accepted.raw_path.clone(),
        peer: accepted.peer.address,
        tls: accepted.peer.tls,
        identity: caller.identity().clone(),
        place: caller.place().cloned(),
        parameters: parameters.map(|(name, value)| (name, canonical(value))).collect(),
        query: Value::Object(validated.query().clone()),
        page: validated.page().clone(),
        bytes: validated.bytes().clone(),
        headers: accepted.headers.clone(),
        body: validated.into_body(),
    }
}

/// Runs the handler. Nothing where the request begins from the top: another one holds the
/// idempotency key by now, or what the credential may do has changed.
pub async fn run(
    app: &Arc<App>,
    trail: &mut Trail,
    (caller, route): (&Caller, &HostRoute),
    request: &HostRequest,
    claim: Option<&Claim>,
) -> Result<Option<Answered>, Refusal> {
    let organization = caller.organization();
    if route.method == "GET" {
        let mut txn = app.store.begin(organization).reading();
        let reply = (route.handler)(app, request, &mut txn).await?;
        return match reply.body {
            ReplyBody::Follow(source) => follow::stream(app, caller, None, source).map(Some),
            _ => Ok(Some(reply.into())),
        };
    }
    let standing = caller.guards();
    let mut attempts = app.store.attempts(organization);
    let mut worded = false;
    while let Some(mut txn) = attempts.begin() {
        standing.iter().for_each(|guard| txn.guard(guard.clone()));
        let reply = match (route.handler)(app, request, &mut txn).await {
            Ok(reply) => reply,
            Err(refusal) => {
                give_back(txn).await;
                if is_overtaken(app, caller, &refusal).await {
                    return Ok(None);
                }
                return refuse(app, trail, &standing, claim, refusal).await;
            }
        };
        if reply.audited {
            // It was done in a commit of its own: what replaces the token now comes after it.
            txn = app.store.begin(organization);
        }
        let counted = reply.counted.clone();
        let answered = record(app, trail, &mut txn, reply, claim).await?;
        if let (Some(room), Some(body)) = (&trail.room, answered.body.as_whole())
            && let Err(full) = room.take(body.len())
        {
            give_back(txn).await;
            return Err(unread::refusal(full));
        }
        let rejection = match txn.commit().await {
            Ok(_) => {
                trail.audited = true;
                if let Some(counter) = counted {
                    counter.fetch_add(1, Relaxed);
                }
                return Ok(Some(answered));
            }
            Err(CommitError::Rejected(rejection)) => rejection,
            Err(error) => return Err(stored::commit_refusal(&error)),
        };
        if rule::is_of_admission(&rejection, &standing, claim.map(Claim::key)) {
            return Ok(None);
        }
        match rejection {
            Rejection::Conflict { keys } => attempts.wait_turn(&keys).await,
            Rejection::Refused(refused) => {
                if worded || standing.iter().any(|guard| rule::is_of(guard, &refused)) {
                    return Err(rule::word(&refused));
                }
                worded = true;
            }
        }
    }
    Err(Refusal::overloaded(1))
}

/// Whether an act of the operator's that commits on its own was not done because the token was
/// replaced: the request begins from the top, which refuses the former one.
async fn is_overtaken(app: &App, caller: &Caller, refusal: &Refusal) -> bool {
    matches!(caller.identity(), Identity::Operator { .. })
        && refusal.code == Code::Overloaded
        && app.directory.require_credential(&caller.credential()).await.is_err()
}

/// Keeps the handler's refusal under the key where it is final. Nothing where the request begins
/// from the top.
async fn refuse(
    app: &App,
    trail: &mut Trail,
    standing: &[Guard],
    claim: Option<&Claim>,
    refusal: Refusal,
) -> Result<Option<Answered>, Refusal> {
    match claim {
        Some(claim) if claim.is_taken(&app.store).await.map_err(stored::reading)? => Ok(None),
        Some(claim) if refusal.is_kept(trail.catalogue) => {
            commit_refusal(app, trail, standing, claim, &refusal).await
        }
        _ => Err(refusal),
    }
}

/// Adds the audit row and the idempotent answer.
async fn record(
    app: &App,
    trail: &Trail,
    txn: &mut Txn,
    reply: Reply,
    claim: Option<&Claim>,
) -> Result<Answered, Refusal> {
    if !reply.audited
        && let Some(mut subject) =
            audit::Subject::of(trail, reply.entity.clone().map(|(kind, id)| (kind.to_owned(), id)))
    {
        if let Some(log) = &reply.log {
            subject = subject.with_log(log);
        }
        let changes = txn.changes(audit::CHANGES_MAX);
        let decision = Decision {
            status: reply.status.as_u16(),
            refused: None,
            changes: &changes,
            details: reply.details.as_ref(),
        };
        txn.fact(subject.fact(decision).map_err(stored::no_randomness)?);
    }
    let answered = Answered::from(reply);
    if let Some(claim) = claim {
        keep(app, txn, claim, &answered).await?;
    }
    Ok(answered)
}

/// Commits a refusal with its audit row, so that whoever asks again under the key is told the same.
async fn commit_refusal(
    app: &App,
    trail: &mut Trail,
    standing: &[Guard],
    claim: &Claim,
    refusal: &Refusal,
) -> Result<Option<Answered>, Refusal> {
    let mut txn = app.store.begin(trail.caller.as_ref().map_or("", |caller| caller.organization()));
    standing.iter().for_each(|guard| txn.guard(guard.clone()));
    let answered = respond::render_refusal(&trail.wording(), refusal);
    if let Some(subject) = audit::Subject::of(trail, None) {
        let named = (refusal.row(trail.catalogue).0, refusal.reason.as_deref());
        let decision = Decision {
            status: answered.status.as_u16(),
            refused: Some(named),
            changes: &[],
            details: None,
        };
        txn.fact(subject.fact(decision).map_err(stored::no_randomness)?);
    }
    keep(app, &mut txn, claim, &answered).await?;
    match txn.commit().await {
        Ok(_) => {
            trail.audited = true;
            Ok(Some(answered))
        }
        // The key was taken meanwhile, or the credential says something else by now.
        Err(CommitError::Rejected(_)) => Ok(None),
        Err(error) => Err(stored::commit_refusal(&error)),
    }
}

async fn keep(app: &App, txn: &mut Txn, claim: &Claim, answered: &Answered) -> Result<(), Refusal> {
    let kept = Kept {
        status: answered.status.as_u16(),
        headers: &answered.headers,
        body: answered.body.as_whole(),
        job: None,
        approval: None,
        is_secret: false,
    };
    claim.finish(&app.store, txn, kept, false).await.map_err(|error| {
        tracing::error!(error = &error as &dyn std::error::Error, "an answer cannot be sealed");
        Refusal::internal()
    })
}

async fn give_back(txn: Txn) {
    if let Err(error) = txn.abandon().await {
        tracing::warn!(%error, "rows that were handed out could not be given back; their leases will end");
    }
}
