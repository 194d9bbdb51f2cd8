//! Runs a handler of the host's own: its writes, the audit row and the idempotent answer are one
//! commit.
//!
//! A conflict runs the handler again in turn; a rule that refused the commit runs it once more, so
//! that it words the refusal itself.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use charter_kernel::authority::Class;
use charter_kernel::refusal::{Code, Refusal};
use charter_kernel::scope::Level;
use charter_kernel::unit::{Guard, Key, Refused, Rejection};
use charter_store::{CommitError, Ticket, Txn};

use super::audit::{self, Decision};
use super::claim::{Claim, Kept};
use super::follow;
use super::respond::{self, Answered};
use super::trail::Trail;
use crate::app::App;
use crate::reply::{Reply, ReplyBody};
use crate::request::{HostRequest, Identity, Place};
use crate::routes::{HostRoute, stored};

/// Runs after conflicts. With tickets the second succeeds unless a space was searched.
const ATTEMPTS_MAX: u32 = 8;

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
    route: &HostRoute,
    request: &HostRequest,
    claim: Option<&Arc<Claim>>,
) -> Result<Ended, Refusal> {
    let organization = request.place.as_ref().map_or("", |place| place.organization.id.as_str());
    if !trail.mutates {
        let mut txn = app.store.begin(organization).reading();
        let reply = (route.handler)(app, request, &mut txn).await?;
        return match reply.body {
            ReplyBody::Follow(source) => follow::stream(app, trail, source).map(Ended::Answered),
            _ => Ok(Ended::Answered(reply.into())),
        };
    }
    let mut standing = guards(&request.identity, request.place.as_ref());
    if route.class == Class::Loosening {
        standing.extend(request.place.as_ref().map(|place| place.organization.guard_loosening()));
    }
    let mut ticket: Option<Ticket> = None;
    let mut worded = false;
    for _ in 0..ATTEMPTS_MAX {
        let mut txn = app.store.begin(organization);
        if let Some(ticket) = ticket.take() {
            txn.hold(ticket);
        }
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
                        refused(app, trail, &standing, claim, &refusal).await
                    }
                    _ => Err(refusal),
                };
            }
        };
        let counted = reply.counted;
        let answered = record(app, trail, &mut txn, reply, claim).await?;
        match txn.commit().await {
            Ok(_) => {
                trail.audited = true;
                if let Some(counter) = counted {
                    counter(app).fetch_add(1, Relaxed);
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
                ticket = Some(app.store.ticket(&keys).await)
            }
            Err(CommitError::Rejected(Rejection::Refused(refused))) => {
                if claim.is_some_and(|claim| about(&refused) == Some(claim.key())) {
                    return Ok(Ended::Restart);
                }
                if worded || standing.iter().any(|guard| is_of(guard, &refused)) {
                    return Err(ruled(&refused));
                }
                worded = true;
            }
            Err(error) => return Err(stored::uncommitted(&error)),
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
        && let Some(subject) =
            audit::Subject::of(trail, reply.entity.clone().map(|(kind, id)| (kind.to_owned(), id)))
    {
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
/// its state does not admit it. What is wrong with the request or its credential, and what may go
/// otherwise the next time, is asked again.
fn is_final(trail: &Trail, refusal: &Refusal) -> bool {
    let status = refusal.status(trail.catalogue);
    (400..500).contains(&status)
        && !matches!(status, 400 | 401 | 403 | 408 | 429)
        && !refusal.should_retry()
}

/// Commits a refusal with its audit row, so that whoever asks again under the key is told the same.
async fn refused(
    app: &App,
    trail: &mut Trail,
    standing: &[Guard],
    claim: &Arc<Claim>,
    refusal: &Refusal,
) -> Result<Ended, Refusal> {
    let mut txn =
        app.store.begin(trail.place.as_ref().map_or("", |place| place.organization.id.as_str()));
    for guard in standing {
        txn.guard(guard.clone());
    }
    let answered = respond::refused(&trail.wording(), refusal);
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
        Err(error) => Err(stored::uncommitted(&error)),
    }
}

async fn keep(app: &App, txn: &mut Txn, claim: &Claim, answered: &Answered) -> Result<(), Refusal> {
    let kept = Kept {
        status: answered.status.as_u16(),
        headers: &answered.headers,
        body: answered.body.as_whole(),
        job: None,
        approval: None,
    };
    claim.done(&app.store, txn, kept, false).await.map_err(|error| {
        tracing::error!(error = &error as &dyn std::error::Error, "an answer cannot be sealed");
        Refusal::internal()
    })
}

async fn give_back(txn: Txn) {
    if let Err(error) = txn.abandon().await {
        tracing::warn!(%error, "rows that were handed out could not be given back; their leases will end");
    }
}

/// What a mutation of this credential must still find true when it is committed.
pub fn guards(identity: &Identity, place: Option<&Place>) -> Vec<Guard> {
    let mut guards = match identity {
        Identity::Key(key) => key.guards(),
        Identity::Session(session) => session.guards(),
        Identity::Operator | Identity::Anonymous => Vec::new(),
    };
    if let Some(place) = place {
        guards.push(place.organization.guard());
        // The default profile that nobody named is no party to what the account does with itself.
        if let Some(user) = &place.user
            && place.scope.level() == Level::User
        {
            guards.push(user.guard());
        }
    }
    guards
}

/// Whether a conflict is about what a guard of ours has read.
fn concerns(guard: &Guard, keys: &[Key]) -> bool {
    matches!(guard, Guard::Unchanged { key, .. } if keys.contains(key))
}

/// Whether a refusal is about what a guard of ours requires: the credential, or who it acts for.
/// What a handler has required itself it finds otherwise when it is run again, and words that.
fn is_of(guard: &Guard, refused: &Refused) -> bool {
    matches!((guard, refused), (Guard::Entry { key, .. }, Refused::Inactive { key: about, .. }) if key == about)
}

/// Which row a refusal is about.
fn about(refused: &Refused) -> Option<&Key> {
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
pub fn ruled(refused: &Refused) -> Refusal {
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
