//! Sums of spend records that take long.
//!
//! A cap that is new begins with the sum of what was spent before. Where that is of very many records,
//! the sum would outlast a request whose time is short, and the next one would begin it anew: so one
//! task makes it, whoever asks meanwhile, and has the meter count from there on.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use charter_kernel::governance::gauge::Unsummed;
use charter_kernel::refusal::Refusal;
use charter_kernel::time::Instant;
use charter_kernel::unit::{Key, Unit};
use charter_store::Store;
use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared};
use tokio::time::timeout;

use crate::caps::Case;

/// The sums that are being made, one of each organization at a time.
#[derive(Debug)]
pub struct Sums {
    quick: Duration,
    patience: Duration,
    running: Running,
}

type Running = Arc<Mutex<HashMap<String, Sum>>>;

/// A sum, as whoever waits for it sees it.
#[derive(Clone, Debug)]
struct Sum {
    /// The meter, and the first moment of what is summed up.
    of: (Key, Instant),
    /// What was spent; nothing where it was not to be had, or more was spent meanwhile.
    spent: Shared<BoxFuture<'static, Option<i64>>>,
}

impl Default for Sums {
    /// Providers of payments wait two seconds for an answer.
    fn default() -> Self {
        Self::new(Duration::from_millis(100), Duration::from_secs(1))
    }
}

impl Sums {
    /// What is summed up within `quick` is whoever asks's own affair; the rest is waited for so long.
    pub fn new(quick: Duration, patience: Duration) -> Self {
        Self { quick, patience, running: Arc::default() }
    }

    /// What was spent in the scope of a meter that does not count yet.
    ///
    /// # Errors
    /// When the store cannot be asked; 503 where the sum takes longer.
    pub(crate) async fn make(
        &self,
        store: &Store,
        case: &Case,
        unsummed: &Unsummed,
    ) -> Result<i64, Refusal> {
        let is_alone = !lock(&self.running).contains_key(case.organization.id.as_str());
        if is_alone && let Ok(spent) = timeout(self.quick, case.sum_spent(store, unsummed)).await {
            return spent;
        }
        let spent = timeout(self.patience, self.wait(store, case, unsummed)).await;
        spent.ok().flatten().ok_or_else(|| {
            Refusal::overloaded(1).hint("What was spent before the cap is being summed up.")
        })
    }

    async fn wait(&self, store: &Store, case: &Case, unsummed: &Unsummed) -> Option<i64> {
        loop {
            let sum = self.begin(store, case, unsummed);
            let spent = sum.spent.await;
            if sum.of == of(unsummed) {
                return spent;
            }
        }
    }

    /// The sum that is being made for the organization: this one, where it was none.
    fn begin(&self, store: &Store, case: &Case, unsummed: &Unsummed) -> Sum {
        let organization = case.organization.id.to_string();
        let mut running = lock(&self.running);
        if let Some(sum) = running.get(&organization) {
            return sum.clone();
        }
        let end = End { running: self.running.clone(), organization: organization.clone() };
        let (store, case, asked) = (store.clone(), case.clone(), unsummed.clone());
        let making = async move {
            let end = end;
            let spent = case.sum_spent(&store, &asked).await.ok()?;
            open(&store, &end.organization, asked, spent).await.then_some(spent)
        };
        let sum = Sum { of: of(unsummed), spent: making.boxed().shared() };
        running.insert(organization, sum.clone());
        tokio::spawn(sum.spent.clone());
        sum
    }
}

/// Has the meter count from here on, unless more was spent meanwhile.
async fn open(store: &Store, organization: &str, unsummed: Unsummed, spent: i64) -> bool {
    let gauge = unsummed.sum_up(spent);
    let unit = Unit {
        organization: organization.to_owned(),
        guards: gauge.guards().collect(),
        writes: gauge.opening().into_iter().collect(),
        ..Unit::default()
    };
    let opened = store.commit(unit).await;
    if let Err(error) = &opened {
        tracing::info!(%error, organization, "what was spent before a cap is summed up again");
    }
    opened.is_ok()
}

fn of(unsummed: &Unsummed) -> (Key, Instant) {
    (unsummed.cap().meter.clone(), unsummed.since())
}

/// The end of a sum, also where the task that makes it panics.
struct End {
    running: Running,
    organization: String,
}

impl Drop for End {
    fn drop(&mut self) {
        lock(&self.running).remove(&self.organization);
    }
}

fn lock(running: &Running) -> MutexGuard<'_, HashMap<String, Sum>> {
    running.lock().unwrap_or_else(PoisonError::into_inner)
}
