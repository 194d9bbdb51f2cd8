//! The line that every face leads into, one stage a file: resolve the caller, gate, match, admit,
//! validate, claim, call, settle. Each stage takes what only the stage before makes, so that none
//! can be skipped or moved without a compile error.
//!
//! The faces are short: [`run`] for HTTP, with [`client`] for what a client alone asks and gets;
//! [`nested`] for calls between primitives and approved requests; jobs and questions of hooks enter
//! by [`owner`] and [`call`], having no operation.
//!
//! [`handle`] wraps [`run`], so that audit and metrics see every exit: the answered, the refused
//! and the panicked.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use charter_adapters::hooks::redact_path;
use charter_kernel::id::RequestId;
use charter_kernel::refusal::{Code, Refusal};
use charter_tenancy::stored;
use futures::FutureExt as _;
use http::{Method, Request, Response};
use hyper::body::Incoming;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use crate::app::App;
use crate::bounds::answers::Wire;
use crate::http::body::Body;
use crate::http::{Door, Peer};
use crate::metrics::RequestOutcome;

pub mod accept;
pub mod admit;
pub mod again;
pub mod answer;
pub mod audit;
pub mod call;
pub mod caller;
pub mod claim;
pub mod client;
pub mod family;
pub mod finish;
pub mod follow;
pub mod gate;
pub mod guests;
pub mod host;
pub mod identify;
pub mod job;
pub mod matched;
pub mod nested;
pub mod owner;
pub mod pace;
pub mod rates;
pub mod read;
pub mod respond;
pub mod rule;
pub mod run;
pub mod scope;
pub mod standing;
pub mod trail;
pub mod unread;
pub mod validate;

use respond::Answered;
use trail::Trail;

/// Answers one request, whatever happens. A change runs in a task of its own: a client that leaves
/// does not stop it half-way.
pub async fn handle(app: Arc<App>, peer: Peer, request: Request<Incoming>) -> Response<Body> {
    let gone = CancellationToken::new();
    let _leaving = gone.clone().drop_guard();
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    let trail = begin(&app, peer.door, !reads);
    let span = tracing::info_span!("request", id = %trail.id, method = %request.method(), path = &*redact_path(request.uri().path()));
    if peer.crowded {
        return span.in_scope(|| turn_away(&app, trail, &request));
    }
    if reads {
        return observe(app, peer, trail, request, gone).instrument(span).await;
    }
    let id = trail.id.clone();
    let (at, door) = (trail.at, trail.door);
    let task = app
        .tasks
        .spawn(Box::pin(observe(app.clone(), peer, trail, request, gone).instrument(span)));
    // Panics are caught within; a task that is lost all the same was cancelled with the runtime.
    task.await.unwrap_or_else(|_| {
        respond::refusal(&Trail::begin(id, at, door, true), &Refusal::internal())
    })
}

/// Refuses a request for which there is no place beside the others of its connection. Nothing large
/// is made for it, so that many of them cost little.
fn turn_away(app: &App, mut trail: Trail, request: &Request<Incoming>) -> Response<Body> {
    trail.problem = accept::wants_problem(request.headers());
    let refusal = Refusal::overloaded(1);
    let mut response = respond::refusal(&trail, &refusal);
    if *request.method() == Method::HEAD {
        respond::drop_body(&mut response);
    }
    count(app, &trail, response.status().as_u16(), answer::class(&refusal));
    response
}

fn begin(app: &App, door: Door, mutates: bool) -> Trail {
    let at = app.clock.now();
    let mut random = [0; 10];
    if let Err(error) = getrandom::fill(&mut random) {
        // The id then repeats within a millisecond; nothing but the log's reader relies on it.
        tracing::error!(%error, "the operating system has no randomness");
    }
    Trail::begin(RequestId::new(at, random), at, door, mutates)
}

/// Counts what a client that left did not wait for.
struct Watch<'a> {
    trail: &'a mut Trail,
    app: &'a App,
    done: bool,
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        if !self.done {
            count(self.app, self.trail, 499, RequestOutcome::ClientGone);
        }
    }
}

async fn observe(
    app: Arc<App>,
    peer: Peer,
    mut trail: Trail,
    request: Request<Incoming>,
    gone: CancellationToken,
) -> Response<Body> {
    let head = *request.method() == Method::HEAD;
    let http2 = request.version() == http::Version::HTTP_2;
    trail.wire = Wire { http2, cut: peer.cut.clone() };
    let mut watch = Watch { trail: &mut trail, app: &app, done: false };
    let running =
        AssertUnwindSafe(run::run(&app, watch.trail, peer, request, &gone)).catch_unwind();
    let ended = match running.await {
        Ok(ended) => ended,
        Err(_) => {
            tracing::error!("a request panicked");
            watch.trail.outcome = Some(RequestOutcome::Panicked);
            Err(Refusal::internal())
        }
    };
    let ended = match ended {
        Ok(answered) if !head => unread::hold(watch.trail, answered),
        ended => ended,
    };
    let mut response = match ended {
        Ok(answered) => respond::answer(watch.trail, answered),
        Err(refusal) => {
            let refusal = match audit_refusal(&app, watch.trail, &refusal).await {
                Ok(()) => refusal,
                Err(unwritten) => unwritten,
            };
            watch.trail.outcome.get_or_insert(answer::class(&refusal));
            respond::refusal(watch.trail, &refusal)
        }
    };
    if head {
        respond::drop_body(&mut response);
    }
    let status = response.status().as_u16();
    let outcome = watch.trail.outcome.unwrap_or(RequestOutcome::Answered);
    watch.done = true;
    count(&app, watch.trail, status, outcome);
    response
}

fn count(app: &App, trail: &Trail, status: u16, outcome: RequestOutcome) {
    let elapsed = trail.began.elapsed();
    match &trail.stats {
        Some(stats) => stats.record(status, outcome, elapsed),
        None => app.metrics.unmatched_stats().record(status, outcome, elapsed),
    }
    tracing::debug!(
        status,
        outcome = outcome.label(),
        elapsed_us = elapsed.as_micros() as u64,
        "answered"
    );
}

/// The row of a refusal that no commit carried. It is written before the refusal is answered, so
/// that a flood of refused requests waits for its own rows; what settles has room of its own in the
/// committer's queue, so that a flood of others hides none.
///
/// # Errors
/// 503 where the row cannot be written: the refusal is not answered without it.
async fn audit_refusal(app: &App, trail: &mut Trail, refusal: &Refusal) -> Result<(), Refusal> {
    let status = refusal.status(trail.catalogue);
    if trail.audited
        || !audit::leaves_row(trail.mutates, refusal, status)
        || refusal.code == Code::HeadersTooLarge
    {
        return Ok(());
    }
    let Some(subject) = audit::Subject::of(trail, None) else { return Ok(()) };
    let named = (refusal.row(trail.catalogue).0, refusal.reason.as_deref());
    let decision = audit::Decision { status, refused: Some(named), changes: &[], details: None };
    let fact = subject.fact(decision).map_err(stored::no_randomness)?;
    charter_governance::audit::commit_alone(&app.store, subject.organization(), fact).await?;
    trail.audited = true;
    Ok(())
}

/// The result that a finished stage hands to the answer.
pub type Answer = Result<Answered, Refusal>;
