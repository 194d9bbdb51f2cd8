//! The state of one attempt at a call: the guest's limits and tables, its transaction, and its
//! deeds so far.
//!
//! Lives as long as one instance. The part that must survive to the next attempt (takes, the claim,
//! whether anything left the host) is in [`Story`], which is handed on.

use std::sync::Arc;

use charter_kernel::authority;
use charter_kernel::refusal::Failure;
use charter_kernel::time::Instant;
use charter_kernel::unit::{Fact, Reach, Space};
use charter_store::{PAGE_BYTES_MAX, Txn};
use wasmtime::component::ResourceTable;
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};
use wasmtime_wasi_http::{WasiHttpCtx, WasiHttpCtxView, WasiHttpView};

use crate::backlog::AttemptCount;
use crate::call::{Call, Entry};
use crate::component::Component;
use crate::limiter::Limiter;
use crate::outbound::Outbounds;
use crate::shared::Shared;
use crate::story::{Story, over};
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
    /// The bytes of these facts.
    pub(crate) fact_bytes: usize,
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
    /// Whether it has left a job.
    pub(crate) has_enqueued: bool,
    /// Whether that job has the place of the run that it is of, beyond its part of the room.
    pub(crate) in_runs_place: bool,
    /// Jobs and schedules that were asked for.
    pub(crate) asked: AttemptCount,
    /// When the call's wall time is over.
    pub(crate) deadline: tokio::time::Instant,
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
        self.make_room_beside(0)
    }

    /// The same, beside so many bytes that cross meanwhile.
    pub(crate) fn make_room_beside(&mut self, crossing: usize) -> Result<(), Failure> {
        let held = self.held_bytes().saturating_add(crossing);
        self.limiter
            .reserve(held.saturating_add(PAGE_BYTES_MAX))
            .map_err(crate::failure::too_much_held)
    }

    /// The bytes that the attempt holds until its commit.
    pub(crate) fn held_bytes(&self) -> usize {
        let Some(work) = &self.work else { return 0 };
        work.txn.memory_bytes() + work.fact_bytes + work.story.held_bytes()
    }

    /// Counts so many bytes that cross now, with all that the attempt holds, until the next such
    /// count: the guest's own copy counts as its memory. Asked before a write, so that one that is
    /// refused was not made.
    pub(crate) fn hold(&mut self, crossing: usize) -> Result<(), Failure> {
        self.limiter
            .hold(self.held_bytes().saturating_add(crossing))
            .map_err(crate::failure::too_much_held)
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
