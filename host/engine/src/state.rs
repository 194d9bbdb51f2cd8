//! The state of one attempt at a call: the guest's limits and tables, its transaction, and its
//! deeds so far.
//!
//! Lives as long as one instance. The part that must survive to the next attempt (takes, the claim,
//! whether anything left the host) is in [`Story`], which is handed on.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use charter_kernel::authority;
use charter_kernel::refusal::Failure;
use charter_kernel::time::Instant;
use charter_kernel::unit::{Fact, Key, Reach, Refused, Space, Taken};
use charter_store::{PAGE_BYTES_MAX, Txn};
use tokio::sync::Notify;
use wasmtime::component::ResourceTable;
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};
use wasmtime_wasi_http::{WasiHttpCtx, WasiHttpCtxView, WasiHttpView};

use crate::backlog::AttemptCount;
use crate::call::{Call, Entry};
use crate::capabilities::rates::RateRecord;
use crate::component::Component;
use crate::limiter::Limiter;
use crate::outbound::Outbounds;
use crate::run::permits::{Permitted, Untaken};
use crate::shared::Shared;
use crate::wasi::{self, Printed};

/// Host objects that one call may hold.
const TABLE_ENTRIES_MAX: usize = 1_000;

/// The data of a guest's store.
pub(crate) struct State {
    pub(crate) table: ResourceTable,
    /// Made when the guest first asks something of it: most calls never do.
    wasi: Option<WasiCtx>,
    pub(crate) http: WasiHttpCtx,
    pub(crate) limiter: Limiter,
    pub(crate) printed: Printed,
    pub(crate) cpu_ticks: u64,
    /// Absent while a component describes itself.
    pub(crate) work: Option<Work>,
    /// Whether a component used an import while it described itself.
    pub(crate) unsealed: bool,
    outbounds: Outbounds,
}

/// The work of an attempt.
pub(crate) struct Work {
    pub(crate) shared: Arc<Shared>,
    pub(crate) component: Arc<Component>,
    pub(crate) call: Arc<Call>,
    pub(crate) txn: Txn,
    pub(crate) story: Story,
    pub(crate) now: Instant,
    /// Events and audit rows: committed with the documents, or without them when the guest refuses.
    pub(crate) facts: Vec<Fact>,
    /// Leased groups that were looked at: an `again` also waits for what falls due in them.
    pub(crate) groups: Vec<(Reach, Space, String)>,
    /// How many takes were asked for so far: a take is known by its place in the request.
    pub(crate) takes: usize,
    /// How many permits it asked for that no checkpoint has settled.
    pub(crate) permits: usize,
    /// How many rates were asked of so far.
    pub(crate) rates: usize,
    /// How many nested mutations were asked for so far.
    pub(crate) nested: u32,
    pub(crate) log_bytes_left: usize,
    /// Jobs and schedules that were asked for.
    pub(crate) asked: AttemptCount,
    /// When the call's wall time is over.
    pub(crate) deadline: tokio::time::Instant,
}

/// The part of a request's work that outlives an attempt.
#[derive(Clone, Debug, Default)]
pub(crate) struct Story {
    /// The rows that were handed out, by place in the request.
    pub(crate) takes: Vec<TakeRecord>,
    /// The leave that it was given, by place in the request.
    pub(crate) permits: Vec<Permitted>,
    /// The amounts that it took from rates, by place in the request.
    pub(crate) rates: Vec<RateRecord>,
    /// Shared with requests in flight to the outside.
    pub(crate) marks: Arc<Marks>,
    /// The number of the attempt, from 1.
    pub(crate) attempt: u32,
}

/// A request's effects on the world outside its transaction.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    /// Something left the host, or was committed: the guest is not run again.
    pub(crate) dispatched: AtomicBool,
    /// How many effects stand, as far as anybody knows: a change of another primitive's that says
    /// that nothing was done is none.
    effects: AtomicU32,
    /// The idempotency claim is committed.
    pub(crate) claimed: tokio::sync::OnceCell<()>,
    /// Holds that leave was given for and that are not taken yet: with the request's own commit, or
    /// before anything leaves the host.
    pub(crate) untaken: tokio::sync::Mutex<Vec<Untaken>>,
    /// Holds are taken when they are asked for: an attempt that put that off was refused by a rule,
    /// or something has left already.
    at_once: AtomicBool,
    /// Set once: the attempt is over whatever the guest says.
    abort: OnceLock<Abort>,
    commits: Mutex<Commits>,
    /// Told when the last commit under way has ended.
    idle: Notify,
}

/// The commits of an attempt before its end. The end waits for them and lets none begin after, so
/// that what was committed is known, however the guest ends.
#[derive(Debug, Default)]
struct Commits {
    under_way: u32,
    /// Whether the attempt has ended.
    closed: bool,
}

/// A commit before the end of its attempt, from before it is asked for until what came of it is
/// noted.
#[derive(Debug)]
pub(crate) struct Commit(Arc<Marks>);

impl Drop for Commit {
    fn drop(&mut self) {
        let mut commits = self.0.lock_commits();
        commits.under_way -= 1;
        if commits.under_way == 0 {
            self.0.idle.notify_waiters();
        }
    }
}

impl Marks {
    /// Begins a commit before the end, where the attempt has not ended.
    pub(crate) fn begin_commit(self: &Arc<Self>) -> Result<Commit, Failure> {
        let mut commits = self.lock_commits();
        if commits.closed {
            return Err(over());
        }
        commits.under_way += 1;
        Ok(Commit(self.clone()))
    }
    /// The attempt has ended: no commit begins any more.
    pub(crate) fn close(&self) {
        self.lock_commits().closed = true;
    }
    /// Ends the attempt, unless something is being committed or has left the host.
    fn close_untouched(&self) -> bool {
        let mut commits = self.lock_commits();
        commits.closed |= commits.under_way == 0 && !self.is_dispatched();
        commits.closed
    }
    /// Resolves once nothing is being committed.
    pub(crate) async fn idle(&self) {
        loop {
            let told = self.idle.notified();
            if self.lock_commits().under_way == 0 {
                return;
            }
            told.await;
        }
    }
    /// Ends the attempt as soon as nothing is being committed; never where something has left the
    /// host.
    pub(crate) async fn close_while_untouched(&self) {
        while !self.close_untouched() {
            self.idle().await;
            if self.is_dispatched() {
                std::future::pending::<()>().await;
            }
        }
    }
    fn lock_commits(&self) -> std::sync::MutexGuard<'_, Commits> {
        self.commits.lock().unwrap_or_else(PoisonError::into_inner)
    }
    pub(crate) fn is_dispatched(&self) -> bool {
        self.dispatched.load(SeqCst)
    }
    pub(crate) fn dispatch(&self) {
        self.dispatched.store(true, SeqCst);
        self.effects.fetch_add(1, SeqCst);
    }
    /// One that was dispatched came to nothing, as its own refusal says. The guest is not run again
    /// in any case.
    pub(crate) fn deny_effect(&self) {
        self.effects.fetch_sub(1, SeqCst);
    }
    /// Whether something may have been done, so that no refusal says otherwise.
    pub(crate) fn has_acted(&self) -> bool {
        self.effects.load(SeqCst) > 0
    }
    /// Whether holds may be taken later than they are asked for.
    pub(crate) fn defers(&self) -> bool {
        !self.at_once.load(SeqCst)
    }
    /// From now on they may not.
    pub(crate) fn take_at_once(&self) {
        self.at_once.store(true, SeqCst);
    }
    /// For another attempt: nothing was dispatched, the claim stays made, and what was decided and
    /// not taken is decided anew.
    pub(crate) fn again(&self) -> Self {
        Self {
            claimed: self.claimed.clone(),
            at_once: AtomicBool::new(!self.defers()),
            ..Self::default()
        }
    }
    /// Ends the attempt; the first reason counts.
    pub(crate) fn abort(&self, why: Abort) {
        let _ = self.abort.set(why);
    }
    pub(crate) fn abort_cause(&self) -> Option<&Abort> {
        self.abort.get()
    }
}

/// Why an attempt is over whatever its guest says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Abort {
    /// The rows that it read have changed.
    Conflict(Vec<Key>),
    /// A rule refused a checkpoint.
    Refused(Refused),
    /// The idempotency claim, a job's fence or another guard of the caller is gone.
    Restart,
    /// A person decides: the approval's id.
    Pending(String),
    /// Revoked.
    Inactive,
    /// The store takes no writes.
    Unavailable(u32),
    /// There is no room for its answer.
    NoRoom,
}

/// Rows handed out to one request.
#[derive(Clone, Debug)]
pub(crate) struct TakeRecord {
    pub(crate) collection: String,
    pub(crate) group: String,
    pub(crate) limit: u32,
    pub(crate) taken: Vec<Taken>,
    /// The attempt that asked for it last.
    pub(crate) attempt: u32,
}

/// The failure that a guest sees whose attempt has ended, should it look.
fn over() -> Failure {
    crate::failure::failure("state_conflict", "this attempt is over: return")
}

impl State {
    pub(crate) fn new(
        printed: Printed,
        limiter: Limiter,
        work: Option<Work>,
        outbounds: Outbounds,
    ) -> Self {
        let mut table = ResourceTable::new();
        table.set_max_capacity(TABLE_ENTRIES_MAX);
        Self {
            table,
            wasi: None,
            http: WasiHttpCtx::new(),
            limiter,
            printed,
            cpu_ticks: 0,
            work,
            unsealed: false,
            outbounds,
        }
    }

    /// The attempt's work, while it may go on.
    pub(crate) fn work(&mut self) -> Result<&mut Work, Failure> {
        let Some(work) = self.work.as_mut() else {
            self.unsealed = true;
            return Err(crate::failure::undeclared("describe may call nothing"));
        };
        match work.story.marks.abort_cause() {
            None => Ok(work),
            Some(_) => Err(over()),
        }
    }

    /// Makes room for a list that is about to be read for the guest: a page of it.
    pub(crate) fn make_room(&mut self) -> Result<(), Failure> {
        match self.limiter.reserve(self.held_bytes().saturating_add(PAGE_BYTES_MAX)) {
            true => Ok(()),
            false => Err(crate::failure::too_much_held()),
        }
    }

    /// The bytes that the attempt holds until its commit.
    fn held_bytes(&self) -> usize {
        self.work.as_ref().map_or(0, |work| work.txn.memory_bytes())
    }

    /// Counts so many bytes that cross now, with all that the attempt holds, until the next such
    /// count: the guest's own copy counts as its memory. Asked before a write, so that one that is
    /// refused was not made.
    pub(crate) fn hold(&mut self, crossing: usize) -> Result<(), Failure> {
        match self.limiter.hold(self.held_bytes().saturating_add(crossing)) {
            true => Ok(()),
            false => Err(crate::failure::too_much_held()),
        }
    }

    /// The attempt's work, where it may change something: its method and its caller's power say so.
    pub(crate) fn mutation(&mut self) -> Result<&mut Work, Failure> {
        let work = self.work_that_changes()?;
        if let Entry::Handle(request) = &work.call.entry {
            let class = work.component.class(&request.operation);
            authority::change(&work.call.scope, class).map_err(|no| no.to_failure())?;
        }
        Ok(work)
    }

    /// The attempt's work, where it may move money or what bounds it: a stranger's call of a hook has
    /// the power to read alone, and what its primitive keeps is all that it changes.
    pub(crate) fn mutation_of_money(&mut self) -> Result<&mut Work, Failure> {
        let work = self.mutation()?;
        authority::move_money(&work.call.scope).map_err(|no| no.to_failure())?;
        Ok(work)
    }

    /// The attempt's work, where its method lets it change something. The power to is asked of
    /// the nested operation.
    pub(crate) fn work_that_changes(&mut self) -> Result<&mut Work, Failure> {
        let work = self.work()?;
        if work.call.mutates {
            Ok(work)
        } else {
            Err(crate::failure::undeclared("an operation with the method GET changes nothing"))
        }
    }
}

impl WasiView for State {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        let (work, printed) = (&self.work, &self.printed);
        let ctx = self.wasi.get_or_insert_with(|| match work {
            Some(work) => wasi::of_call(&work.shared.clock, printed),
            None => wasi::describe_context(printed),
        });
        WasiCtxView { ctx, table: &mut self.table }
    }
}

impl WasiHttpView for State {
    fn http(&mut self) -> WasiHttpCtxView<'_> {
        WasiHttpCtxView { ctx: &mut self.http, table: &mut self.table, hooks: &mut self.outbounds }
    }
}

#[cfg(test)]
mod tests;
