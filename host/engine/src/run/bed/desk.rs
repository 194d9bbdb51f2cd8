//! The host's side of the ports, as the bed's tests set it: who bills, who is there, what is set,
//! and a till that gives leave as it is told to.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use charter_kernel::governance::hold::{Hold, Pay, State, Subject};
use charter_kernel::governance::policy::{Decision, Verdict};
use charter_kernel::id::UserId;
use charter_kernel::refusal::Failure;
use charter_kernel::scope::Scope;
use charter_kernel::time::Instant;
use charter_kernel::unit::{Guard, Unit};
use charter_store::Store;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde_json::{Value, json};

use crate::hook::{Scheme, Wanted};
use crate::host::{Host, Nested, Reply};
use crate::leave::{Deferred, Gateway, Granted, Leave, Ungranted};

/// The host, as far as capabilities ask it.
#[derive(Default)]
pub(crate) struct Desk {
    /// The primitive that bills.
    pub(crate) biller: Mutex<Option<String>>,
    /// Users that can be paid, by id.
    pub(crate) users: Mutex<Vec<String>>,
    /// Settings by key.
    pub(crate) settings: Mutex<BTreeMap<String, Value>>,
    /// Nested calls that came.
    pub(crate) nested: Mutex<Vec<Nested>>,
}

impl Desk {
    pub(crate) fn let_bill(&self, primitive: &str) {
        *self.biller.lock().unwrap() = Some(primitive.to_owned());
    }
}

fn ready<'a, T: Send + 'a>(answer: Result<T, Failure>) -> BoxFuture<'a, Result<T, Failure>> {
    async move { answer }.boxed()
}

impl Host for Desk {
    fn setting<'a>(
        &'a self,
        _: &'a Scope,
        _: &'a str,
        key: &'a str,
    ) -> BoxFuture<'a, Result<Option<Value>, Failure>> {
        ready(Ok(self.settings.lock().unwrap().get(key).cloned()))
    }

    fn bindings<'a>(
        &'a self,
        _: &'a Scope,
        primitive: &'a str,
        provider: &'a str,
    ) -> BoxFuture<'a, Result<Value, Failure>> {
        ready(Ok(json!([{ "name": provider, "for": primitive }])))
    }

    fn tools<'a>(&'a self, _: &'a Scope) -> BoxFuture<'a, Result<Value, Failure>> {
        ready(Ok(json!(["other.echo"])))
    }

    fn call(&self, nested: Nested) -> BoxFuture<'_, Result<Reply, Failure>> {
        let secret = nested.operation == "other.reveal";
        self.nested.lock().unwrap().push(nested);
        ready(Ok(Reply { status: 200, body: "null".into(), secret }))
    }

    fn mutates(&self, operation: &str) -> bool {
        !operation.ends_with(".read")
    }

    fn standing_of<'a>(
        &'a self,
        _: &'a Scope,
        user: &'a UserId,
    ) -> BoxFuture<'a, Result<Vec<Guard>, Failure>> {
        let is_there = self.users.lock().unwrap().iter().any(|known| known == user.as_str());
        ready(if is_there { Ok(Vec::new()) } else { Err(Failure::not_found("user")) })
    }

    fn hook_address(&self, hook: Wanted<'_>) -> Result<String, Failure> {
        match hook.scheme {
            Scheme::Binding(name) => Ok(format!("https://charter.test/{name}")),
            _ => Ok(format!("https://charter.test/{}", hook.id)),
        }
    }

    fn bills(&self, primitive: &str) -> bool {
        self.biller.lock().unwrap().as_deref() == Some(primitive)
    }
}

/// Gives leave for whatever is asked, unless it is told to refuse.
pub(crate) struct Till {
    store: Store,
    pub(crate) asked: Mutex<Vec<Leave>>,
    pub(crate) refuses: AtomicBool,
    /// Under which it gives leave.
    pub(crate) conditions: Mutex<Vec<Guard>>,
}

impl Till {
    pub(super) fn new(store: Store) -> Self {
        let (asked, conditions) = (Mutex::default(), Mutex::default());
        Self { store, asked, refuses: AtomicBool::new(false), conditions }
    }

    fn conditions(&self) -> Vec<Guard> {
        self.conditions.lock().unwrap().clone()
    }
}

fn hold(leave: &Leave, at: Instant) -> Hold {
    let (scope, proposal) = (&leave.scope, &leave.proposal);
    let pay = proposal.pay.clone();
    Hold {
        state: State::Held,
        primitive: leave.primitive.clone(),
        action: proposal.action.clone(),
        entity: proposal.entity.clone(),
        component: proposal.component.clone(),
        title: proposal.title.clone(),
        amount: proposal.amount,
        spends: Some(proposal.spends),
        capturable: Some(proposal.capturable),
        reported: proposal.reported,
        charges: Vec::new(),
        pay: pay.map(|(from, to)| Pay { from, to, memo: proposal.title.clone() }),
        decision: Decision {
            verdict: Verdict::Allow,
            rules: Vec::new(),
            grant: None,
            shadow: Vec::new(),
            approvals_required: 0,
        },
        subject: Subject {
            organization: scope.lane().to_owned(),
            project: scope.project().map(|id| id.as_str().to_owned()),
            user: scope.user().map(|id| id.as_str().to_owned()),
            ..Subject::default()
        },
        request: leave.request.clone(),
        ordinal: leave.ordinal,
        at,
        until: leave.until,
        kept: false,
        settler: None,
        turn: 0,
        actual: None,
        in_parts: false,
        ended_at: None,
    }
}

impl Gateway for Till {
    fn authorize(&self, leave: Leave) -> BoxFuture<'_, Result<Granted, Ungranted>> {
        async move {
            self.asked.lock().unwrap().push(leave.clone());
            if self.refuses.load(SeqCst) {
                return Err(Failure::new("budget_exceeded", "the till is shut").into());
            }
            let id = format!("{}-{}", leave.request, leave.ordinal);
            let hold = hold(&leave, self.store.now());
            let organization = leave.scope.lane().to_owned();
            let unit = Unit { organization, guards: leave.guards, ..Unit::default() };
            if leave.defers {
                return Ok(Granted {
                    id,
                    hold,
                    conditions: self.conditions(),
                    untaken: Some(Deferred { unit, facts: Vec::new() }),
                });
            }
            let taken = self.store.commit(Unit { writes: hold.take(&id), ..unit }).await;
            taken.map_err(Ungranted::Uncommitted)?;
            Ok(Granted { id, hold, conditions: self.conditions(), untaken: None })
        }
        .boxed()
    }

    fn is_repeatable(&self) -> bool {
        true
    }
}
