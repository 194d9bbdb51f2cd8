//! Runs a handler of the host's own: its writes, the audit row and the idempotent answer are one
//! commit.
//!
//! A conflict runs the handler again in turn; a rule that refused the commit runs it once more, so
//! that it words the refusal itself.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use charter_kernel::authority::Class;
use charter_kernel::refusal::{Code, Refusal};
use charter_kernel::unit::{Guard, Key, Refused, Rejection};
use charter_store::{CommitError, Txn};
use charter_tenancy::stored;

use super::audit::{self, Decision};
use super::caller::Caller;
use super::claim::{Claim, Kept};
use super::follow;
use super::respond::{self, Answered};
use super::trail::Trail;
use crate::app::App;
use crate::reply::{Reply, ReplyBody};
use crate::request::HostRequest;
use crate::route::HostRoute;

/// How it ended.
pub enum Ended {
    /// Answered and committed.
    Answered(Answered),
    /// Another request holds the idempotency key by now: look it up again.
    Restart,
}

/// Runs the handler.
pub async fn run(
    app: &Arc<App>,
    trail: &mut Trail,
    (caller, route): (&Caller, &HostRoute),
    request: &HostRequest,
    claim: Option<&Arc<Claim>>,
) -> Result<Ended, Refusal> {
    let organization = caller.organization();
    if route.method == "GET" {
        let mut txn = app.store.begin(organization).reading();
        let reply = (route.handler)(app, request, &mut txn).await?;
        return match reply.body {
            ReplyBody::Follow(source) => {
                follow::stream(app, caller, false, source).map(Ended::Answered)
            }
            _ => Ok(Ended::Answered(reply.into())),
        };
    }
    let mut standing = caller.guards();
    if route.class == Class::Loosening {
        standing.extend(caller.place().map(|place| place.organization.guard_loosening()));
    }
    let mut attempts = app.store.attempts(organization);
    let mut worded = false;
    while let Some(mut txn) = attempts.begin() {
        for guard in &standing {
            txn.guard(guard.clone());
        }
        let reply = match (route.handler)(app, request, &mut txn).await {
            Ok(reply) => reply,
            Err(refusal) => {
                give_back(txn).await;
                return match claim {
                    Some(claim) if claim.is_taken(&app.store).await.map_err(stored::reading)? => {
                        Ok(Ended::Restart)
                    }
                    Some(claim) if is_final(trail, &refusal) => {
                        commit_refusal(app, trail, &standing, claim, &refusal).await
                    }
                    _ => Err(refusal),
                };
            }
        };
        let counted = reply.counted.clone();
        let answered = record(app, trail, &mut txn, reply, claim).await?;
        match txn.commit().await {
            Ok(_) => {
                trail.audited = true;
                if let Some(counter) = counted {
                    counter.fetch_add(1, Relaxed);
                }
                return Ok(Ended::Answered(answered));
            }
            // Somebody else's request under the same key came first: its answer is this one's. Or
            // what the credential may do has changed: it is asked anew.
            Err(CommitError::Rejected(Rejection::Conflict { keys }))
                if claim.is_some_and(|claim| keys.contains(claim.key()))
                    || standing.iter().any(|guard| concerns(guard, &keys)) =>
            {
                return Ok(Ended::Restart);
            }
            Err(CommitError::Rejected(Rejection::Conflict { keys })) => {
                attempts.wait_turn(&keys).await;
            }
            Err(CommitError::Rejected(Rejection::Refused(refused))) => {
                if claim.is_some_and(|claim| refused_row(&refused) == Some(claim.key())) {
                    return Ok(Ended::Restart);
                }
                if worded || standing.iter().any(|guard| is_of(guard, &refused)) {
                    return Err(word_rule(&refused));
                }
                worded = true;
            }
            Err(error) => return Err(stored::commit_refusal(&error)),
        }
    }
    Err(Refusal::overloaded(1))
}

/// Adds the audit row and the idempotent answer.
async fn record(
    app: &App,
    trail: &Trail,
    txn: &mut Txn,
    reply: Reply,
    claim: Option<&Arc<Claim>>,
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

/// Whether a refusal is kept under its idempotency key: the thing that was asked for is absent, or
/// its state does not admit it. A fault of the request or its credential, and a refusal that may
/// not come the next time, are not kept.
fn is_final(trail: &Trail, refusal: &Refusal) -> bool {
    let status = refusal.status(trail.catalogue);
    (400..500).contains(&status)
        && !matches!(status, 400 | 401 | 403 | 408 | 429)
        && !refusal.should_retry()
}

/// Commits a refusal with its audit row, so that whoever asks again under the key is told the same.
async fn commit_refusal(
    app: &App,
    trail: &mut Trail,
    standing: &[Guard],
    claim: &Arc<Claim>,
    refusal: &Refusal,
) -> Result<Ended, Refusal> {
    let mut txn = app.store.begin(trail.caller.as_ref().map_or("", |caller| caller.organization()));
    for guard in standing {
        txn.guard(guard.clone());
    }
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
            Ok(Ended::Answered(answered))
        }
        // The key was taken meanwhile, or the credential says something else by now.
        Err(CommitError::Rejected(_)) => Ok(Ended::Restart),
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

/// Whether a conflict is about what a guard of ours has read.
fn concerns(guard: &Guard, keys: &[Key]) -> bool {
    matches!(guard, Guard::Unchanged { key, .. } if keys.contains(key))
}

/// Whether a refusal is about what a guard of ours requires: the credential, or who it acts for. A
/// handler that is run again finds its own requirements unmet, and words that.
fn is_of(guard: &Guard, refused: &Refused) -> bool {
    matches!((guard, refused), (Guard::Entry { key, .. }, Refused::Inactive { key: about, .. }) if key == about)
}

/// The row that a refusal is about.
fn refused_row(refused: &Refused) -> Option<&Key> {
    match refused {
        Refused::Exists { key }
        | Refused::Missing { key }
        | Refused::Stale { key, .. }
        | Refused::LeaseLost { key }
        | Refused::Inactive { key, .. }
        | Refused::OverCap { meter: key, .. }
        | Refused::Moved { meter: key }
        | Refused::Frozen { key }
        | Refused::Overdrawn { account: key, .. }
        | Refused::NotAddable { key, .. } => Some(key),
        Refused::ClaimLost { .. } | Refused::LogClosed { .. } | Refused::TooLarge { .. } => None,
    }
}

/// A rule of the store in the words of the wire, where the handler could not word it.
pub fn word_rule(refused: &Refused) -> Refusal {
    match refused {
        Refused::Exists { .. } | Refused::ClaimLost { .. } => {
            Refusal::new(Code::DuplicateRecord, "Another one with these values exists.")
        }
        Refused::Missing { .. } => Refusal::not_found(),
        Refused::Stale { current, .. } => Refusal::version_conflict(*current),
        Refused::LeaseLost { .. } => Refusal::state_conflict("lease_lost", "The lease has ended."),
        Refused::LogClosed { .. } => Refusal::state_conflict("log_closed", "The log is closed."),
        Refused::TooLarge { limit } => {
            Refusal::new(Code::PayloadTooLarge, format!("The change exceeds {limit}."))
        }
        Refused::Overdrawn { available, .. } => {
            let refusal =
                Refusal::new(Code::InsufficientCredits, "The account does not cover the amount.");
            refusal.detail("available_micro_usd", *available)
        }
        Refused::Frozen { .. } => {
            Refusal::state_conflict("account_frozen", "The account is frozen.")
        }
        Refused::OverCap { cap, .. } => {
            Refusal::new(Code::BudgetExceeded, "The budget does not admit the amount.")
                .detail("cap_micro_usd", *cap)
        }
        Refused::Moved { .. } => Refusal::overloaded(1),
        Refused::Inactive { key, .. } => inactive(key.space.as_str()),
        Refused::NotAddable { .. } => {
            tracing::error!(%refused, "a request broke a rule of the store");
            Refusal::internal()
        }
    }
}

/// The credential, its organization or the tenant user was revoked while the request ran.
pub fn inactive(space: &str) -> Refusal {
    match space {
        "host.users" => charter_tenancy::directory::profile_revoked(),
        _ => Refusal::unauthorized("The credential was revoked."),
    }
}
