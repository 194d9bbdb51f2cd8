//! Sums of spend records that take long.
//!
//! A cap that is new begins with the sum of earlier spending. A sum of very many records would outlast
//! a request whose time is short, and the next one would begin it anew: so one task makes it, whoever
//! asks meanwhile, and has the meter count from there on. A capture meanwhile is added from what the meter
//! was told since; where nothing is known of that, the sum is made again. The old records, which nothing changes any
//! more, are summed up once, and the others by the database itself, as of one moment of the meter's row:
//! what the meter is told of after that is added as it begins to count.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use charter_kernel::governance::gauge::{Look, Unsummed};
use charter_kernel::governance::hold::RECORD_MS;
use charter_kernel::limits::CALL_MS_MAX;
use charter_kernel::refusal::Refusal;
use charter_kernel::time::Instant;
use charter_kernel::unit::{Guard, Key, Refused, Rejection, Unit};
use charter_store::{CommitError, Store};
use charter_tenancy::stored;
use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::caps::{Case, read_meter};

/// How often others may have captured something meanwhile.
const TRIES_MAX: u32 = 1_000;

/// The sums that are being made, one of each organization at a time.
#[derive(Debug)]
pub struct Sums {
    small: usize,
    patience: Duration,
    settled_ms: i64,
    running: Running,
    /// The place for what the database sums up at once: nobody else's reads wait for more than one.
    at_once: Arc<Semaphore>,
}

type Running = Arc<Mutex<HashMap<String, Sum>>>;

/// A sum, as whoever waits for it sees it.
#[derive(Clone, Debug)]
struct Sum {
    /// The meter, and the first moment of what is summed up.
    of: (Key, Instant),
    /// Whether the meter counts by now.
    made: Shared<BoxFuture<'static, bool>>,
}

impl Default for Sums {
    /// Providers of payments wait two seconds for an answer.
    fn default() -> Self {
        Self::new(1_000, Duration::from_secs(1))
    }
}

impl Sums {
    /// A sum of no more than `small` records is made by each who asks; another one is waited for so long.
    pub fn new(small: usize, patience: Duration) -> Self {
        let (running, at_once) = (Running::default(), Arc::new(Semaphore::new(1)));
        Self { small, patience, settled_ms: 0, running, at_once }.beside_calls_of(CALL_MS_MAX)
    }

    /// The same where no call takes longer. A record that is older than twice that, which leaves room for
    /// clocks that differ, is changed by nothing any more: what is captured counts in the quarter of an
    /// hour at which its call said so.
    #[must_use]
    pub fn beside_calls_of(self, longest_ms: u32) -> Self {
        Self { settled_ms: 2 * i64::from(longest_ms), ..self }
    }

    /// The amount spent in the scope of a meter that does not count yet; nothing where the meter has
    /// come to count meanwhile.
    ///
    /// # Errors
    /// When the store cannot be asked; 503 where the sum takes longer.
    pub(crate) async fn make(
        &self,
        store: &Store,
        case: &Case,
        unsummed: &Unsummed,
        now: Instant,
    ) -> Result<Option<i64>, Refusal> {
        if !unsummed.cap().is_recorded() {
            return Ok(Some(0));
        }
        let organization = case.organization.id.as_str();
        let running = lock(&self.running).get(organization).map(|sum| sum.of.clone());
        if running.is_none_or(|running| running != of(unsummed)) {
            let all = (unsummed.since(), Instant::LAST);
            let spent = case.sum_few(store, unsummed.cap(), all, self.small).await?;
            if spent.is_some() {
                return Ok(spent);
            }
        }
        match timeout(self.patience, self.wait(store, case, unsummed, now)).await {
            Ok(true) => Ok(None),
            Ok(false) | Err(_) => Err(busy()),
        }
    }

    async fn wait(&self, store: &Store, case: &Case, unsummed: &Unsummed, now: Instant) -> bool {
        loop {
            let sum = self.begin(store, case, unsummed, now);
            let made = sum.made.await;
            if sum.of == of(unsummed) {
                return made;
            }
        }
    }

    /// The sum that is being made for the organization: this one, where it was none.
    fn begin(&self, store: &Store, case: &Case, unsummed: &Unsummed, now: Instant) -> Sum {
        let organization = case.organization.id.to_string();
        let mut running = lock(&self.running);
        if let Some(sum) = running.get(&organization) {
            return sum.clone();
        }
        let end = End { running: self.running.clone(), organization: organization.clone() };
        let (store, case, asked) = (store.clone(), case.clone(), unsummed.clone());
        let (at_once, settled) = (self.at_once.clone(), now.plus_ms(-self.settled_ms));
        let making = async move {
            let _end = end;
            open(&store, &case, (asked, settled), &at_once).await.is_ok()
        };
        let sum = Sum { of: of(unsummed), made: making.boxed().shared() };
        running.insert(organization, sum.clone());
        tokio::spawn(sum.made.clone());
        sum
    }
}

/// Why a sum is not waited for any longer.
pub(crate) fn busy() -> Refusal {
    Refusal::overloaded(1).hint("What was spent before the cap is being summed up.")
}

/// Has the meter count from here on, if nobody else has by now and the window is the same. Records that
/// are older than `settled` are read once.
///
/// # Errors
/// When the store cannot be asked, what decides has changed, or others captured too often.
async fn open(
    store: &Store,
    case: &Case,
    (unsummed, settled): (Unsummed, Instant),
    at_once: &Semaphore,
) -> Result<(), Refusal> {
    let (cap, since) = (unsummed.cap().clone(), unsummed.since());
    let settled = Instant(settled.0 - settled.0.rem_euclid(RECORD_MS)).max(since);
    let before = case.sum_spent(store, &cap, (since, settled)).await?;
    let owner = case.row_of(&cap);
    for _ in 0..TRIES_MAX {
        let place = at_once.acquire().await;
        // Read first: a cap that comes again amid the sum is another.
        let mut there = require(store, &owner).await?;
        let row = store.get(&cap.meter).await.map_err(stored::reading)?;
        let meter = row.as_ref().map(read_meter).transpose()?;
        let found = match cap.clone().look(meter, store.now()) {
            Look::Unsummed(found) if found.since() == since => found,
            // It counts, or the window has ended meanwhile: who waits looks again.
            Look::Unsummed(_) | Look::Counted(_) => return Ok(()),
        };
        let (recent, told) = case.sum_recent(store, &cap, settled).await?;
        drop(place);
        if cap.calendar.window(store.now()).starts != since {
            // It has ended amid the sum, which may have seen something of the next.
            return Ok(());
        }
        let spent = before.saturating_add(recent);
        let (gauge, same) = match told {
            Some(told) => (found.sum_up_as_of(spent, told), None),
            // Nothing else may have been written to it since.
            None => {
                there = require(store, &owner).await?;
                let version = row.map(|row| row.version);
                let same = Guard::Version { key: cap.meter.clone(), version };
                (found.sum_up(spent), Some(same))
            }
        };
        let unit = Unit {
            organization: case.organization.id.to_string(),
            guards: gauge.guards().chain(same).chain([there]).collect(),
            writes: gauge.opening().into_iter().collect(),
            ..Unit::default()
        };
        let is_again = |keys: &[Key]| keys.iter().all(|key| *key == cap.meter || *key == owner);
        match store.commit(unit).await {
            Ok(_) => return Ok(()),
            Err(CommitError::Rejected(Rejection::Conflict { keys })) if is_again(&keys) => {}
            Err(CommitError::Rejected(Rejection::Refused(Refused::Moved { .. }))) => {}
            Err(error) => return Err(stored::commit_refusal(&error)),
        }
    }
    Err(busy())
}

/// The guard of a row that must be there, as it is now.
async fn require(store: &Store, owner: &Key) -> Result<Guard, Refusal> {
    let row = store.get(owner).await.map_err(stored::reading)?.ok_or_else(Refusal::not_found)?;
    Ok(Guard::Version { key: owner.clone(), version: Some(row.version) })
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
