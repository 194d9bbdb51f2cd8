//! One attempt: a fresh instance, the guest's export, and how it ended. Nothing is committed here.
//!
//! Time is bounded twice: CPU by epochs, which interrupt a guest that computes, and the wall by a
//! timeout around everything, which ends one that is parked in a host call. After either the
//! instance is dropped.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use charter_kernel::refusal::Failure;
use charter_kernel::time::Instant;
use charter_kernel::unit::{Fact, Reach, Space};
use charter_store::Txn;
use wasmtime::{Store, UpdateDeadline};

use super::wit::{self, Said};
use crate::answer::Answer;
use crate::backlog::AttemptCount;
use crate::bindings;
use crate::call::{Call, Entry};
use crate::component::Component;
use crate::fairness::{Party, Turns};
use crate::limiter::{Limiter, MemoryLimit};
use crate::load::{HANDLES_MAX, HOSTCALL_FUEL};
use crate::outbound::{Outbounds, Permit};
use crate::room::ByteCounts;
use crate::sandbox::EPOCH;
use crate::shared::Shared;
use crate::state::{State, Work};
use crate::story::{Abort, Marks, Story};
use crate::wasi::Printed;

/// The setting in which an attempt runs.
pub(super) struct Setting {
    pub(super) shared: Arc<Shared>,
    pub(super) component: Arc<Component>,
    pub(super) call: Arc<Call>,
    pub(super) party: Arc<Party>,
    pub(super) bytes: Arc<ByteCounts>,
    pub(super) started: Instant,
    pub(super) deadline: tokio::time::Instant,
}

/// How an attempt ended.
pub(super) enum Ended {
    Answered {
        answer: Answer,
        txn: Box<Txn>,
        facts: Vec<Fact>,
        asked: AttemptCount,
    },
    Refused {
        failure: Failure,
        facts: Vec<Fact>,
    },
    Again {
        collection: String,
        until: Option<i64>,
        groups: Vec<(Reach, Space, String)>,
    },
    Aborted(Abort),
    Trapped {
        id: String,
    },
    Deadline,
    OutOfMemory,
    ClientGone,
    /// The host stops.
    Cut,
    /// Others have the memory, or the pool's slots, that it wanted.
    Exhausted,
}

/// Why a guest was stopped; travels through wasmtime as an error.
#[derive(Debug, thiserror::Error)]
enum Stopped {
    #[error("the call has used its CPU time")]
    Cpu,
    #[error("the attempt is over")]
    Aborted,
    #[error("the client is gone")]
    ClientGone,
}

/// Counts an instance until the attempt ends, however it ends.
struct Alive(Arc<Shared>);

impl Alive {
    fn new(shared: &Arc<Shared>) -> Self {
        shared.stats.instances.fetch_add(1, Relaxed);
        Self(shared.clone())
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.stats.instances.fetch_sub(1, Relaxed);
    }
}

/// Runs the guest once.
pub(super) async fn run(setting: Setting, txn: Txn, story: &mut Story) -> Ended {
    let _alive = Alive::new(&setting.shared);
    let marks = story.marks.clone();
    let mut store = arm(&setting, txn, story);
    let mut turns = turns(&setting);
    let ran = {
        let mut guest = pin!(enter(&setting, &mut store, story.attempt));
        let mut running = pin!(poll_fn(|cx| match &mut turns {
            Some(turns) => turns.poll(cx, guest.as_mut()),
            None => guest.as_mut().poll(cx),
        }));
        // In this order: a guest that could go on at the very moment of the cut does not.
        let ran = tokio::select! {
            biased;
            () = setting.shared.cut.cancelled() => Err(Ended::Cut),
            () = client_gone(&setting.call, &marks) => Err(Ended::ClientGone),
            ran = running.as_mut() => Ok(ran),
            () = tokio::time::sleep_until(setting.deadline) => Err(Ended::Deadline),
        };
        marks.close();
        // A commit that is under way is decided, and the guest, or the task that it waits for, notes
        // what came of it.
        tokio::select! {
            biased;
            () = marks.idle() => {}
            _ = running, if ran.is_err() => marks.idle().await,
        }
        ran
    };
    let mut state = store.into_data();
    drop(turns);
    let Some(mut work) = state.work.take() else { return Ended::Deadline };
    // However the guest ended, the rows that it was handed out have to be known.
    *story = std::mem::take(&mut work.story);
    let ran = match ran {
        Ok(ran) => ran,
        // People have been asked meanwhile: so the request is told.
        Err(_) if let Some(asked @ Abort::Pending(_)) = marks.abort_cause() => {
            return Ended::Aborted(asked.clone());
        }
        Err(ended) => return ended,
    };
    let printed = state.printed.text();
    if !printed.is_empty() {
        tracing::info!(target: "charter::guest", primitive = work.component.manifest.name, request = work.call.request_id, "{printed}");
    }
    let result = match ran {
        Ok(_) if let Some(abort) = marks.abort_cause() => return Ended::Aborted(abort.clone()),
        Ok(result) => result,
        Err(error) => {
            if let Some(abort) = marks.abort_cause() {
                return Ended::Aborted(abort.clone());
            }
            return classify_error(
                &work,
                &error,
                (state.limiter.met, marks.is_dispatched()),
                &printed,
            );
        }
    };
    match result {
        Err(failure) => Ended::Refused { failure: failure.into(), facts: work.facts },
        Ok(answer) => match wit::check_answer(&work, answer) {
            Ok(Said::Answer(answer)) => {
                let Work { txn, facts, asked, .. } = work;
                Ended::Answered { answer, txn: Box::new(txn), facts, asked }
            }
            Ok(Said::Again { collection, until }) => {
                Ended::Again { collection, until, groups: work.groups }
            }
            Err(fault) => report_trap(&work, &fault, ""),
        },
    }
}

/// The turns in which the guest computes, where it has to take turns. A nested read is polled by the
/// call that it lies in, in that call's turn: one of its own would be waited for by whoever keeps it.
fn turns(setting: &Setting) -> Option<Turns> {
    if setting.call.lineage.depth() > 0 && !setting.call.mutates {
        return None;
    }
    let operation = match &setting.call.entry {
        Entry::Handle(request) => &request.operation,
        Entry::React(signal) => &signal.kind,
    };
    let primitive = &setting.component.manifest.name;
    Some(setting.shared.fairness.call(&setting.party, (primitive, operation)))
}

/// Resolves when the client has left and nothing was dispatched.
async fn client_gone(call: &Call, marks: &Marks) {
    call.client_gone.cancelled().await;
    marks.close_while_untouched().await;
}

fn arm(setting: &Setting, txn: Txn, story: &Story) -> Store<State> {
    let Setting { shared, component, call, .. } = setting;
    let limiter = Limiter::new(
        shared.config.guest_memory_bytes_max,
        setting.bytes.clone(),
        shared.stats.memory_bytes.clone(),
    );
    let permit = Permit {
        shared: shared.clone(),
        component: component.clone(),
        call: call.clone(),
        marks: story.marks.clone(),
    };
    let work = Work {
        shared: shared.clone(),
        component: component.clone(),
        call: call.clone(),
        txn,
        story: story.clone(),
        now: shared.clock.now(),
        facts: Vec::new(),
        fact_bytes: 0,
        groups: Vec::new(),
        takes: 0,
        rates: 0,
        permits: 0,
        has_enqueued: false,
        in_runs_place: false,
        nested: 0,
        log_bytes_left: shared.config.log_bytes_max,
        asked: shared.backlog.attempt(),
        deadline: setting.deadline,
    };
    let outbounds = if component.http || component.public_web {
        Outbounds::of(permit)
    } else {
        Outbounds::none()
    };
    let state = State::new(Printed::default(), limiter, Some(work), outbounds);
    let mut store = Store::new(&shared.wasmtime, state);
    store.limiter(|state| &mut state.limiter);
    store.set_hostcall_fuel(HOSTCALL_FUEL);
    store.set_max_component_handles(HANDLES_MAX);
    store.set_epoch_deadline(1);
    let ticks_max = shared.config.cpu_ms_max.div_ceil(EPOCH.as_millis() as u64);
    let (marks, gone) = (story.marks.clone(), call.client_gone.clone());
    store.epoch_deadline_callback(move |mut store| {
        let state = store.data_mut();
        state.cpu_ticks += 1;
        if state.cpu_ticks > ticks_max {
            return Err(Stopped::Cpu.into());
        }
        if marks.abort_cause().is_some() {
            return Err(Stopped::Aborted.into());
        }
        if gone.is_cancelled() && !marks.is_dispatched() {
            return Err(Stopped::ClientGone.into());
        }
        Ok(UpdateDeadline::YieldCustom(1, Box::pin(tokio::task::yield_now())))
    });
    store
}

type Returned = Result<bindings::Answer, bindings::charter::primitive::types::Failure>;

async fn enter(
    setting: &Setting,
    store: &mut Store<State>,
    attempt: u32,
) -> wasmtime::Result<Returned> {
    let instance = setting.component.pre.instantiate_async(&mut *store).await?;
    match &setting.call.entry {
        Entry::Handle(request) => {
            let request = wit::request(&setting.call, request, attempt, setting.started.0);
            instance.call_handle(store, &request).await
        }
        Entry::React(signal) => {
            let reacted = instance
                .call_react(store, &wit::caller(&setting.call.scope), &wit::signal(signal))
                .await?;
            let nothing = || bindings::Answer {
                status: None,
                headers: Vec::new(),
                body: bindings::AnswerBody::None,
            };
            Ok(reacted.map(|answer| answer.unwrap_or_else(nothing)))
        }
    }
}

/// The end that an error out of wasmtime means.
fn classify_error(
    work: &Work,
    error: &wasmtime::Error,
    (met, has_acted): (Option<MemoryLimit>, bool),
    printed: &str,
) -> Ended {
    match error.downcast_ref::<Stopped>() {
        Some(Stopped::Cpu) => return Ended::Deadline,
        Some(Stopped::ClientGone) => return Ended::ClientGone,
        Some(Stopped::Aborted) | None => {}
    }
    if error.is::<wasmtime::PoolConcurrencyLimitError>() {
        tracing::error!(
            "the pool of instances is exhausted below its semaphores: raise instances_max or lower the admission limits"
        );
        return Ended::Exhausted;
    }
    if let Some(limit) = met {
        tracing::warn!(
            primitive = work.component.manifest.name,
            request = work.call.request_id,
            ?limit,
            "a call met a limit of memory"
        );
        return match limit {
            // A call that has acted is not asked for again as if it had not.
            MemoryLimit::Room if !has_acted => Ended::Exhausted,
            _ => Ended::OutOfMemory,
        };
    }
    report_trap(work, &format!("{error:?}"), printed)
}

/// The operator gets everything, the caller an opaque id.
fn report_trap(work: &Work, what: &str, printed: &str) -> Ended {
    let id = work.fresh_id().unwrap_or_else(|_| work.call.request_id.clone());
    tracing::error!(
        incident = id,
        primitive = work.component.manifest.name,
        version = work.component.manifest.version,
        digest = work.component.digest,
        request = work.call.request_id,
        organization = work.call.scope.lane(),
        printed,
        "a primitive trapped: {what}"
    );
    Ended::Trapped { id }
}
