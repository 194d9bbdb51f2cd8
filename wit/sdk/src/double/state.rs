//! Everything that the double holds, one value a thread.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use serde_json::Value;

use crate::bindings::charter::primitive::governance::Proposal;
use crate::bindings::charter::primitive::jobs::Job;
use crate::bindings::charter::primitive::ledger::Entry as LedgerEntry;
use crate::bindings::charter::primitive::streams::Entry;
use crate::documents::CollectionSpec;
use crate::failure::Failure;
use crate::http::{Request, Response};

/// An event as it was emitted.
#[derive(Clone, Debug, PartialEq)]
pub struct Emitted {
    /// Its type.
    pub name: String,
    /// Its content.
    pub payload: Value,
}

/// An audit row as the primitive wrote it.
#[derive(Clone, Debug, PartialEq)]
pub struct Audited {
    /// What was done.
    pub action: String,
    /// The kind of thing that it was done to.
    pub entity_type: String,
    /// Which thing.
    pub entity_id: String,
    /// What else there is to know.
    pub details: Value,
}

#[derive(Clone)]
pub(super) struct Row {
    pub(super) version: u64,
    pub(super) created_at: i64,
    pub(super) updated_at: i64,
    pub(super) body: Value,
    pub(super) text: String,
    pub(super) due_at: i64,
    pub(super) token: Option<String>,
    pub(super) count: u32,
}

/// A ledger account.
#[derive(Clone, Default)]
pub(super) struct Account {
    pub(super) may_go_negative: bool,
    pub(super) frozen: bool,
    pub(super) posted: i64,
    pub(super) aside: i64,
    pub(super) entries: Vec<LedgerEntry>,
}

/// A hold.
#[derive(Clone)]
pub(super) struct Permitted {
    pub(super) proposal: Proposal,
    pub(super) open: bool,
}

type Outside = Rc<dyn Fn(&Request) -> Option<Response>>;

#[derive(Clone)]
pub(super) struct State {
    pub(super) now_ms: i64,
    pub(super) last_id: u64,
    pub(super) declared: BTreeMap<&'static str, CollectionSpec>,
    pub(super) rows: BTreeMap<String, BTreeMap<String, Row>>,
    pub(super) secrets: BTreeMap<String, Vec<u8>>,
    pub(super) logs: BTreeMap<String, (Vec<Entry>, bool)>,
    pub(super) jobs: BTreeMap<String, Job>,
    /// By id: the collection and the document that it belongs to.
    pub(super) hooks: BTreeMap<String, (String, String)>,
    /// What providers call the objects that hooks are of.
    pub(super) references: BTreeMap<String, String>,
    pub(super) settings: BTreeMap<String, Value>,
    pub(super) bindings: BTreeMap<String, Value>,
    pub(super) accounts: BTreeMap<String, Account>,
    pub(super) permits: BTreeMap<String, Permitted>,
    pub(super) caps: BTreeMap<String, i64>,
    pub(super) spent: BTreeMap<String, i64>,
    pub(super) denied: BTreeMap<String, Failure>,
    pub(super) rates: BTreeMap<String, Vec<i64>>,
    pub(super) outside: Vec<Outside>,
    pub(super) bills: bool,
    /// A hook tells what has happened: its word is not bounded by what was held.
    pub(super) is_told: bool,
    pub(super) standing: Option<String>,
    pub(super) events: Vec<Emitted>,
    pub(super) audits: Vec<Audited>,
    /// What `checkpoint` has committed: where a refusal rolls back to.
    pub(super) committed: Option<Box<State>>,
}

impl Default for State {
    fn default() -> Self {
        Self {
            now_ms: 1_767_225_600_000,
            last_id: 0,
            declared: BTreeMap::new(),
            rows: BTreeMap::new(),
            secrets: BTreeMap::new(),
            logs: BTreeMap::new(),
            jobs: BTreeMap::new(),
            hooks: BTreeMap::new(),
            references: BTreeMap::new(),
            settings: BTreeMap::new(),
            bindings: BTreeMap::new(),
            accounts: BTreeMap::new(),
            permits: BTreeMap::new(),
            caps: BTreeMap::new(),
            spent: BTreeMap::new(),
            denied: BTreeMap::new(),
            rates: BTreeMap::new(),
            outside: Vec::new(),
            bills: false,
            is_told: false,
            standing: None,
            events: Vec::new(),
            audits: Vec::new(),
            committed: None,
        }
    }
}

impl State {
    pub(super) fn next_id(&mut self) -> String {
        self.last_id += 1;
        format!("0197c0de-0000-7000-8000-{:012x}", self.last_id)
    }
    /// Moves money between two accounts, and notes it in both.
    pub(super) fn post(
        &mut self,
        id: &str,
        from: &str,
        to: &str,
        amount: i64,
        memo: &str,
        reference: &str,
    ) {
        let at = self.now_ms;
        for (account, counter, amount) in [(from, to, -amount), (to, from, amount)] {
            let account = self.accounts.entry(account.into()).or_default();
            account.posted += amount;
            let (id, counter_account) = (id.into(), counter.into());
            account.entries.push(LedgerEntry {
                id,
                at,
                amount,
                counter_account,
                memo: memo.into(),
                reference: reference.into(),
            });
        }
    }
    pub(super) fn take_due_jobs(&mut self) -> Vec<(String, Job)> {
        let now = self.now_ms;
        let due = |job: &Job| job.run_at.is_none_or(|at| at <= now);
        let (due, later) = std::mem::take(&mut self.jobs)
            .into_iter()
            .partition::<BTreeMap<_, _>, _>(|(_, job)| due(job));
        self.jobs = later;
        due.into_iter().collect()
    }
    /// Remembers what is committed.
    pub(super) fn commit(&mut self) {
        self.committed = None;
        self.committed = Some(Box::new(self.clone()));
    }
    /// Goes back to what is committed; facts and the clock stay.
    pub(super) fn roll_back(&mut self) {
        if let Some(committed) = self.committed.take() {
            let events = std::mem::take(&mut self.events);
            let audits = std::mem::take(&mut self.audits);
            let now_ms = self.now_ms;
            *self = State { events, audits, now_ms, ..*committed };
        }
    }
}

thread_local! {
    static STATE: RefCell<State> = RefCell::new(State::default());
}

pub(super) fn with<T>(act: impl FnOnce(&mut State) -> T) -> T {
    STATE.with_borrow_mut(act)
}
