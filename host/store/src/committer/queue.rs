//! Units that wait, by organization, taken in fair turns.
//!
//! Bounded in units and bytes, and no organization has more of either than are free: those that flood
//! the queue are told to come back later before others are. The party whose units have had the fewest bytes
//! written goes next, so that large units of one organization delay no other's small ones.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use charter_kernel::unit::{Applied, Unit};
use tokio::sync::{Notify, oneshot, watch};

use super::turn::Turn;
use crate::error::CommitError;

/// Units of one batch.
const BATCH_UNITS_MAX: usize = 512;
/// Rows of one batch: some ten milliseconds, which is how long a unit waits for a neighbour's.
const BATCH_ROWS_MAX: usize = 512;
/// Turns in which no unit came, after which a batch waits no longer for more; some microseconds.
const IDLE_MAX: u32 = 32;
/// How long a batch waits for more at most: about as long as its commit takes. Beside threads that
/// compute, a turn is as long as they may keep the core.
const GATHER: Duration = Duration::from_millis(1);
/// A batch of so many bytes takes no further unit: these too are some ten milliseconds.
const BATCH_BYTES_ENOUGH: usize = 1024 * 1024;
/// Nor does it take one of an organization that has so many in it, where another waits too.
const SHARE_BYTES_ENOUGH: usize = 512 * 1024;
/// A unit of more bytes is a large one; while those are kept back, a batch has no more either.
const LARGE_BYTES: usize = 256 * 1024;
/// Organizations whose last unit was served ahead of others, of which that is remembered.
const AHEAD_MAX: usize = 4_096;
/// A row's share of a batch, as bytes.
const ROW_BYTES: usize = BATCH_BYTES_ENOUGH / BATCH_ROWS_MAX;
/// A unit's bytes beside its own, where turns are counted.
const UNIT_BYTES: usize = 4 * 1024;

pub(crate) type Answer = Result<Applied, CommitError>;

/// A unit, and who waits for its outcome.
pub(crate) struct Job {
    pub(crate) unit: Unit,
    pub(crate) settling: bool,
    rows: usize,
    bytes: usize,
    turns: Vec<Turn>,
    answer: oneshot::Sender<Answer>,
}

impl Job {
    pub(crate) fn new(unit: Unit, settling: bool, answer: oneshot::Sender<Answer>) -> Self {
        let (rows, bytes) = charter_kernel::apply::size(&unit);
        let turns = charter_kernel::apply::meeting_rows(&unit).map(Turn::at).collect();
        Self { unit, settling, rows, bytes, turns, answer }
    }
    /// The part of a batch that it takes, in bytes: a batch is full of rows as it is of bytes.
    fn weight(&self) -> usize {
        self.bytes.max(self.rows * ROW_BYTES)
    }

    /// Tells the outcome; nobody may be waiting any more.
    pub(crate) fn answer(self, answer: Answer) {
        let _ = self.answer.send(answer);
    }
}

#[derive(Default)]
struct State {
    tenants: HashMap<String, Tenant>,
    /// Organizations that have units waiting, next one first: by their bytes, then by who came.
    turns: BTreeMap<(u64, u64), String>,
    /// The turn at which the first organization begins, and no later one before it.
    start: u64,
    /// The turn at which an organization without waiting units goes on: one that comes again and
    /// again does not come before those who wait.
    ahead: HashMap<String, u64>,
    /// Turns that were given so far.
    given: u64,
    units: usize,
    bytes: usize,
    /// Large units wait until the database's log is short again.
    keeps_back: bool,
    /// The batch before has left a large unit for this one.
    has_left: bool,
    closed: bool,
}

#[derive(Default)]
struct Tenant {
    jobs: VecDeque<Job>,
    bytes: usize,
    /// Bytes in the batch that is being made, rows counted as such.
    batched: usize,
}

/// One lane's queue.
pub(crate) struct Queue {
    state: Mutex<State>,
    arrived: Notify,
    ended: watch::Sender<bool>,
    units_max: usize,
    bytes_max: usize,
}

impl Queue {
    pub(crate) fn new(units_max: usize, bytes_max: usize) -> Self {
        let ended = watch::Sender::new(false);
        Self { state: Mutex::default(), arrived: Notify::new(), ended, units_max, bytes_max }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn push(&self, job: Job) -> Result<(), CommitError> {
        let mut state = self.state();
        if state.closed {
            return Err(CommitError::ReadOnly { reason: "the host is shutting down".into() });
        }
        // A unit that settles an effect gets as much room again: it cannot be taken back by
        // refusing it.
        let room = if job.settling { 2 } else { 1 };
        let units_free = (self.units_max * room).saturating_sub(state.units);
        let bytes_free = (self.bytes_max * room).saturating_sub(state.bytes);
        let own = state.tenants.get(&job.unit.organization);
        let (units, bytes) = own.map_or((0, 0), |own| (own.jobs.len(), own.bytes));
        if units >= units_free || bytes + job.bytes > bytes_free {
            return Err(CommitError::Overloaded { retry_after_s: 1 });
        }
        state.units += 1;
        state.bytes += job.bytes;
        let organization = job.unit.organization.clone();
        let tenant = state.tenants.entry(organization.clone()).or_default();
        tenant.bytes += job.bytes;
        tenant.jobs.push_back(job);
        if tenant.jobs.len() == 1 {
            let ahead = state.ahead.remove(&organization).unwrap_or_default();
            let turn = state.least().max(ahead);
            state.give_turn(turn, organization);
        }
        drop(state);
        self.arrived.notify_one();
        Ok(())
    }

    /// Waits for units, and answers the turns that they want; `None` once the queue is closed and
    /// empty. `answered` are the units of the batch before.
    pub(crate) async fn ready(&self, answered: usize) -> Option<BTreeSet<Turn>> {
        let expected = self.waiting().0 + answered;
        loop {
            let arrived = self.arrived.notified();
            self.gather(expected).await;
            {
                let state = self.state();
                if state.has_next() {
                    return Some(state.next_turns());
                }
                if state.closed {
                    return None;
                }
            }
            arrived.await;
        }
    }

    /// The units that wait now, as far as they fit a batch. Only the lane takes.
    pub(crate) fn batch(&self) -> Vec<Job> {
        self.state().batch()
    }

    /// Lets those run who are ready to, for as long as units come of it. Callers that have just
    /// been answered often come again at once: without this, those of every other batch would wait
    /// for the one between.
    async fn gather(&self, expected: usize) {
        let (mut waiting, mut idle) = (self.waiting().0, 0);
        let began = Instant::now();
        while (1..expected.min(BATCH_UNITS_MAX)).contains(&waiting)
            && idle < IDLE_MAX
            && began.elapsed() < GATHER
        {
            // The lane may share its thread with those callers, or have one to itself.
            tokio::task::yield_now().await;
            std::thread::yield_now();
            let now = self.waiting().0;
            idle = if now == waiting { idle + 1 } else { 0 };
            waiting = now;
        }
    }

    pub(crate) fn waiting(&self) -> (usize, usize) {
        let state = self.state();
        (state.units, state.bytes)
    }

    /// Keeps large units back, or no longer. Meanwhile small ones pass by those of other
    /// organizations; a queue that is closed hands out all that it has.
    pub(crate) fn keep_back(&self, keeps_back: bool) {
        self.state().keeps_back = keeps_back;
        self.arrived.notify_one();
    }

    pub(crate) fn close(&self) {
        self.state().closed = true;
        self.arrived.notify_one();
    }

    /// The lane has answered its last unit.
    pub(crate) fn end(&self) {
        self.ended.send_replace(true);
    }

    pub(crate) async fn wait_for_end(&self) {
        let _ = self.ended.subscribe().wait_for(|ended| *ended).await;
    }
}

impl State {
    fn next_turns(&self) -> BTreeSet<Turn> {
        let jobs = self.tenants.values().flat_map(|tenant| &tenant.jobs).take(BATCH_UNITS_MAX);
        jobs.flat_map(|job| &job.turns).copied().collect()
    }

    fn keeps_back(&self) -> bool {
        self.keeps_back && !self.closed
    }

    /// Whether a unit waits that is not kept back.
    fn has_next(&self) -> bool {
        let bytes_max = if self.keeps_back() { LARGE_BYTES } else { usize::MAX };
        let fits = |tenant: &Tenant| tenant.jobs.front().is_some_and(|job| job.bytes <= bytes_max);
        self.tenants.values().any(fits)
    }

    /// The turn of who has had least of those who wait: who comes new has had as much.
    fn least(&self) -> u64 {
        self.turns.keys().next().map_or(self.start, |(turn, _)| self.start.max(*turn))
    }

    fn give_turn(&mut self, turn: u64, organization: String) {
        self.given += 1;
        self.turns.insert((turn, self.given), organization);
    }

    fn batch(&mut self) -> Vec<Job> {
        let (mut batch, mut aside): (Vec<Job>, Vec<_>) = (Vec::new(), Vec::new());
        let (mut rows, mut bytes) = (0, 0);
        let is_shared = self.tenants.len() > 1;
        let (keeps_back, mut leaves) = (self.keeps_back(), false);
        let small_first = is_shared && !self.has_left;
        while let Some((turn, organization)) = self.turns.pop_first() {
            let Some(tenant) = self.tenants.get_mut(&organization) else { continue };
            if is_shared && tenant.batched >= SHARE_BYTES_ENOUGH {
                aside.push((turn, organization));
                continue;
            }
            let is_kept = |job: &Job| keeps_back && bytes + job.bytes > LARGE_BYTES;
            // Small units wait for no large one in two batches on end.
            let is_left = |job: &Job| small_first && !batch.is_empty() && job.bytes > LARGE_BYTES;
            if let Some(job) = tenant.jobs.front()
                && (is_kept(job) || is_left(job))
            {
                leaves |= is_left(job);
                aside.push((turn, organization));
                continue;
            }
            let fits = |job: &Job| {
                batch.is_empty()
                    || batch.len() < BATCH_UNITS_MAX
                        && rows + job.rows <= BATCH_ROWS_MAX
                        && bytes < BATCH_BYTES_ENOUGH
            };
            if !tenant.jobs.front().is_some_and(fits) {
                aside.push((turn, organization));
                break;
            }
            let Some(job) = tenant.jobs.pop_front() else { continue };
            (rows, bytes) = (rows + job.rows, bytes + job.bytes);
            tenant.bytes -= job.bytes;
            tenant.batched += job.weight();
            self.units -= 1;
            self.bytes -= job.bytes;
            let next = turn.0 + (job.weight() + UNIT_BYTES) as u64;
            if tenant.jobs.is_empty() {
                self.tenants.remove(&organization);
                self.ahead.insert(organization, next);
            } else {
                self.give_turn(next, organization);
            }
            batch.push(job);
        }
        self.turns.extend(aside);
        self.has_left = leaves;
        // Nobody is ahead of nobody.
        if self.units == 0 {
            self.ahead.clear();
        } else if self.ahead.len() > AHEAD_MAX {
            let least = self.least();
            self.ahead.retain(|_, ahead| *ahead > least);
            // Too many to remember each: those who come begin behind all who wait by now.
            if self.ahead.len() > AHEAD_MAX {
                let farthest = self.ahead.drain().map(|(_, ahead)| ahead).max();
                self.start = self.start.max(farthest.unwrap_or_default());
            }
        }
        for job in &batch {
            if let Some(tenant) = self.tenants.get_mut(&job.unit.organization) {
                tenant.batched = 0;
            }
        }
        batch
    }
}

#[cfg(test)]
mod tests {
    use charter_kernel::ledger::Phase;
    use charter_kernel::unit::{Draft, Key, Reach, Space, Write};

    use super::*;

    fn job(organization: &str) -> Job {
        let key = Key::new(&Reach::organization(organization), &Space::host("x"), "a");
        let unit = Unit {
            organization: organization.into(),
            writes: vec![Write::Remove { key, expected: None }],
            ..Unit::default()
        };
        Job::new(unit, false, oneshot::channel().0)
    }

    #[tokio::test]
    async fn organizations_are_served_in_turns_and_a_flood_is_refused_before_others_are() {
        let queue = Queue::new(600, 1 << 30);
        let accepted = (0..600).filter(|_| queue.push(job("flood")).is_ok()).count();
        assert_eq!(accepted, 300, "one organization has at most half of the queue");
        // Nor do several have all of it together.
        for flood in ["second", "third", "fourth"] {
            (0..600).for_each(|_| drop(queue.push(job(flood))));
        }
        queue.push(job("calm")).expect("there is room for others");
        queue.ready(0).await.expect("units wait");
        let batch = queue.batch();
        let place = batch.iter().position(|job| job.unit.organization == "calm");
        assert_eq!(
            place,
            Some(4),
            "the last organization's first unit comes before the first one's second"
        );
    }

    fn large(organization: &str, bytes: usize) -> Job {
        let key = Key::new(&Reach::organization(organization), &Space::host("x"), "a");
        let draft = Draft { body: "x".repeat(bytes), ..Draft::default() };
        let unit = Unit {
            organization: organization.into(),
            writes: vec![Write::Put { key, draft }],
            ..Unit::default()
        };
        Job::new(unit, false, oneshot::channel().0)
    }

    fn organizations(batch: &[Job]) -> Vec<&str> {
        batch.iter().map(|job| job.unit.organization.as_str()).collect()
    }

    #[test]
    fn large_units_of_some_organizations_delay_no_other_by_more_than_one_of_them() {
        let queue = Queue::new(600, 1 << 30);
        for _ in 0..64 {
            queue.push(large("flood", 900_000)).expect("there is room");
        }
        assert_eq!(organizations(&queue.batch()), ["flood"; 2], "alone it has the batch");
        for _ in 0..8 {
            queue.push(large("other", 900_000)).expect("there is room");
        }
        queue.push(job("calm")).expect("there is room");
        let first = queue.batch();
        assert_eq!(organizations(&first), ["flood", "calm"], "the other's is left for the next");
        queue.push(job("calm")).expect("there is room");
        let next = queue.batch();
        let place = organizations(&next).iter().position(|name| *name == "calm");
        assert!(place.is_some_and(|place| place < 2), "{:?}", organizations(&next));
        assert!(next.len() <= 3, "one large unit of each: {:?}", organizations(&next));
    }

    #[test]
    fn who_comes_again_at_once_comes_before_nobody_who_waits() {
        let queue = Queue::new(600, 1 << 30);
        let names: Vec<_> = (0..16).map(|n| format!("sender-{n}")).collect();
        for name in &names {
            queue.push(large(name, 1_200_000)).expect("there is room");
        }
        for _ in 0..8 {
            queue.push(job("calm")).expect("there is room");
        }
        let mut batches = 0;
        let mut calm = 0;
        while calm < 8 {
            let batch = queue.batch();
            batches += 1;
            calm += organizations(&batch).iter().filter(|name| **name == "calm").count();
            for name in organizations(&batch).into_iter().filter(|name| *name != "calm") {
                queue.push(large(name, 1_200_000)).expect("there is room");
            }
        }
        // Those who have waited before it, and no second time.
        assert!(batches <= names.len() + 2, "{batches}");
    }

    #[test]
    fn nobody_is_passed_for_ever_by_more_organizations_than_are_remembered() {
        let queue = Queue::new(1 << 20, 1 << 30);
        let names: Vec<_> = (0..AHEAD_MAX + 1_000).map(|n| n.to_string()).collect();
        names.iter().for_each(|name| queue.push(job(name)).expect("there is room"));
        let own = [large("calm", 90_000), job("calm")];
        own.into_iter().for_each(|job| queue.push(job).expect("there is room"));
        let (mut batches, mut calm) = (0, 0);
        while calm < 2 {
            let batch = queue.batch();
            batches += 1;
            calm += organizations(&batch).iter().filter(|name| **name == "calm").count();
            for name in organizations(&batch).into_iter().filter(|name| *name != "calm") {
                queue.push(job(name)).expect("there is room");
            }
            assert!(batches < 1_000, "it waits for ever");
        }
    }

    #[test]
    fn nobody_saves_turns_up_and_shuts_newcomers_out() {
        let queue = Queue::new(2_000, 1 << 30);
        for _ in 0..40 {
            queue.push(large("saves", 100_000)).expect("there is room");
        }
        queue.push(large("beside", 4_000_000)).expect("there is room");
        let mut waited = None;
        for batch in 0..400 {
            if batch == 350 {
                queue.push(job("newcomer")).expect("there is room");
            }
            for name in organizations(&queue.batch()) {
                match name {
                    "newcomer" => waited = Some(batch - 350),
                    "beside" if batch < 300 => queue.push(large(name, 4_000_000)).expect("room"),
                    "beside" => {}
                    _ => queue.push(large(name, 100_000)).expect("there is room"),
                }
            }
        }
        assert!(waited.is_some_and(|batches| batches <= 2), "{waited:?}");
    }

    #[test]
    fn many_rows_cost_as_much_as_many_bytes() {
        let queue = Queue::new(600, 1 << 30);
        let key =
            |n: usize| Key::new(&Reach::organization("rows"), &Space::host("x"), n.to_string());
        for _ in 0..8 {
            let writes = (0..440).map(|n| Write::Remove { key: key(n), expected: None }).collect();
            let unit = Unit { organization: "rows".into(), writes, ..Unit::default() };
            queue.push(Job::new(unit, false, oneshot::channel().0)).expect("there is room");
        }
        queue.push(large("calm", 1_000_000)).expect("there is room");
        queue.push(job("calm")).expect("there is room");
        let batches: Vec<_> = std::iter::repeat_with(|| queue.batch()).take(4).collect();
        let calm = batches.iter().flatten().filter(|job| job.unit.organization == "calm").count();
        assert_eq!(calm, 2, "the second one waits for a batch or two of the other's");
    }

    #[test]
    fn a_unit_of_more_bytes_than_a_batch_is_not_kept_back_by_small_ones() {
        let queue = Queue::new(600, 1 << 30);
        queue.push(job("calm")).expect("there is room");
        queue.push(large("whole", 4_000_000)).expect("there is room");
        assert_eq!(organizations(&queue.batch()), ["calm"], "it is left once");
        queue.push(job("calm")).expect("there is room");
        assert_eq!(organizations(&queue.batch()), ["whole"], "and no longer");
        assert_eq!(organizations(&queue.batch()), ["calm"]);
        assert_eq!(queue.waiting(), (0, 0));
    }

    #[tokio::test]
    async fn large_units_are_kept_back_until_the_log_is_short_and_small_ones_are_not() {
        let queue = Queue::new(2_000, 1 << 30);
        queue.push(large("flood", 900_000)).expect("there is room");
        queue.push(job("flood")).expect("there is room");
        queue.keep_back(true);
        let waits = tokio::time::timeout(Duration::from_millis(1), queue.ready(0)).await;
        assert!(waits.is_err(), "nothing is to be handed out");
        for n in 0..100 {
            queue.push(large(&n.to_string(), 10_000)).expect("there is room");
        }
        queue.ready(0).await.expect("small ones wait");
        let batch = queue.batch();
        assert!((20..30).contains(&batch.len()), "{}", batch.len());
        assert!(!organizations(&batch).contains(&"flood"));
        queue.keep_back(false);
        queue.ready(0).await.expect("all may go");
        assert!(organizations(&queue.batch()).contains(&"flood"));

        queue.push(large("flood", 900_000)).expect("there is room");
        queue.keep_back(true);
        queue.close();
        while queue.ready(0).await.is_some() {
            assert!(!queue.batch().is_empty(), "a closed queue hands out all that it has");
        }
        assert_eq!(queue.waiting(), (0, 0));
    }

    #[tokio::test]
    async fn a_batch_is_bounded_and_the_rest_stays() {
        let queue = Queue::new(4_000, 1 << 30);
        for n in 0..1_000 {
            queue.push(job(&n.to_string())).expect("there is room");
        }
        queue.ready(0).await.expect("units wait");
        assert_eq!(queue.batch().len(), BATCH_UNITS_MAX);
        assert_eq!(queue.waiting().0, 1_000 - BATCH_UNITS_MAX);
    }

    #[tokio::test]
    async fn turns_are_wanted_at_what_many_users_share() {
        let account = |reach: &Reach| Key::new(reach, &Space::host("ledger"), "credit");
        let (from, to) = (account(&Reach::organization("o")), account(&Reach::user("u")));
        let pays = Write::Transfer { from: from.clone(), to, amount: 1, phase: Phase::Post };
        let queue = Queue::new(10, 1 << 30);
        queue.push(job("o")).expect("there is room");
        assert_eq!(queue.ready(0).await, Some(BTreeSet::new()));
        let unit = Unit { organization: "o".into(), writes: vec![pays], ..Unit::default() };
        queue.push(Job::new(unit, false, oneshot::channel().0)).expect("there is room");
        assert_eq!(queue.ready(0).await, Some(BTreeSet::from([Turn::at(&from)])));
    }

    #[tokio::test]
    async fn a_full_queue_says_so() {
        let queue = Queue::new(10, 1 << 30);
        let refused =
            (0..20).filter_map(|n| queue.push(job(&n.to_string())).err()).collect::<Vec<_>>();
        assert_eq!(refused.len(), 10);
        assert!(matches!(refused[0], CommitError::Overloaded { retry_after_s: 1.. }));
    }
}
