//! The sharing of the cores: while the calls in flight are expected to keep the cores busy for
//! longer than a moment, guests take turns, by organization, on all cores but one. Organizations
//! whose calls are together less than their share of that moment take none, and calls that cost
//! little take none where nobody else is near.
//!
//! Knows nothing of wasmtime. A turn lasts for one poll: until the guest yields, at most an epoch
//! later, or waits in a host call; and on for a moment while a thread of this process works for it,
//! and for the guest's end. The expected cost of a call is the recent cost of calls of its
//! operation by its organization, so that short ones take turns too; a kind that nobody has seen
//! yet counts as costly. Costs are the time for which a call keeps a thread of the runtime, be it
//! in the guest or in the host.

use std::hash::{BuildHasher as _, RandomState};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use charter_store::{Lobby, Seat, Waiter, at_work};
use tokio::time::{Instant, Sleep};

/// The cost that a call may have without taking turns, in microseconds, where nobody else is near:
/// many of them are as long a wait for others as a long one.
const LIGHT_US: u32 = 1_000;
/// How long an organization is near after it had calls in flight beside another's.
const NEAR: Duration = Duration::from_secs(1);
/// The cost that the calls in flight may have together, for each core, before any takes turns: an
/// epoch.
const CALM_US: u64 = 5_000;
/// How long a turn lasts on while a thread of this process reads for the guest.
const KEPT: Duration = Duration::from_millis(15);
/// The expected cost of a call of whose kind none has ended yet.
const UNKNOWN_US: u32 = LIGHT_US;
/// Kinds of calls that are told apart: an operation by an organization each, as far as their hashes
/// differ.
const KINDS: usize = 4_096;

/// The turns of this process.
#[derive(Debug)]
pub(crate) struct Fairness {
    turns: Arc<Lobby>,
    /// The expected cost of the calls in flight together, or the cost that they have had already.
    load_us: AtomicU64,
    /// Organizations that have calls in flight.
    parties: AtomicUsize,
    /// When one of several has left, in milliseconds since the beginning; 0 for never.
    left_ms: AtomicU64,
    began: Instant,
    pressure_us: u64,
    hasher: RandomState,
    /// The approximate cost of each kind of call; 0 where nobody knows.
    costs: Box<[AtomicU32]>,
}

/// An organization, as far as it computes.
#[derive(Debug)]
pub(crate) struct Party {
    name: Arc<str>,
    load_us: AtomicU64,
    calls: AtomicUsize,
}

/// The turns of one call.
pub(crate) struct Turns {
    fairness: Arc<Fairness>,
    party: Arc<Party>,
    kind: usize,
    expected_us: u32,
    spent: Duration,
    /// This call's part of the load.
    counted_us: u64,
    waiting: Option<Waiter>,
    /// The turn of the last poll, where it lasts on.
    kept: Option<Kept>,
}

/// A turn that lasts on: until then, or until it is given up.
struct Kept {
    seat: Seat,
    until: Option<Pin<Box<Sleep>>>,
}

/// The expected cost of a kind of call, after one more.
fn blend_costs(known_us: u32, latest_us: u32) -> u32 {
    let blended = match known_us {
        0 => latest_us,
        known => known - known / 4 + latest_us / 4,
    };
    blended.max(1)
}

fn micros(time: Duration) -> u32 {
    u32::try_from(time.as_micros()).unwrap_or(u32::MAX)
}

impl Party {
    pub(crate) fn new(name: Arc<str>) -> Arc<Self> {
        Arc::new(Self { name, load_us: AtomicU64::new(0), calls: AtomicUsize::new(0) })
    }
}

impl Fairness {
    /// Turns for a machine with this many cores.
    pub(crate) fn new(cores: usize) -> Self {
        Self {
            turns: Lobby::open(cores.saturating_sub(1).max(1)),
            load_us: AtomicU64::new(0),
            parties: AtomicUsize::new(0),
            left_ms: AtomicU64::new(0),
            began: Instant::now(),
            pressure_us: CALM_US * cores as u64,
            hasher: RandomState::new(),
            costs: (0..KINDS).map(|_| AtomicU32::new(0)).collect(),
        }
    }

    /// The turns of a call of this operation.
    pub(crate) fn call(self: &Arc<Self>, party: &Arc<Party>, operation: (&str, &str)) -> Turns {
        let hash = self.hasher.hash_one((&party.name, operation));
        let kind = (hash % KINDS as u64) as usize;
        let expected_us = match self.costs[kind].load(Relaxed) {
            0 => UNKNOWN_US,
            known => known,
        };
        let counted_us = u64::from(expected_us);
        if party.calls.fetch_add(1, Relaxed) == 0 {
            self.parties.fetch_add(1, Relaxed);
        }
        self.count(party, counted_us);
        Turns {
            fairness: self.clone(),
            party: party.clone(),
            kind,
            expected_us,
            spent: Duration::ZERO,
            counted_us,
            waiting: None,
            kept: None,
        }
    }

    fn count(&self, party: &Party, more_us: u64) {
        self.load_us.fetch_add(more_us, Relaxed);
        party.load_us.fetch_add(more_us, Relaxed);
    }

    fn is_pressed(&self) -> bool {
        self.load_us.load(Relaxed) > self.pressure_us
    }

    /// Milliseconds since the beginning.
    fn age_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Whether one organization alone has had calls in flight lately.
    fn is_alone(&self) -> bool {
        let left_ms = self.left_ms.load(Relaxed);
        let near = left_ms > 0 && self.age_ms() < left_ms.saturating_add(NEAR.as_millis() as u64);
        !near && self.parties.load(Relaxed) <= 1
    }

    /// Whether a party keeps the cores busy for longer than its share of a moment.
    fn is_pressing(&self, party: &Party) -> bool {
        let share_us = self.pressure_us / self.parties.load(Relaxed).max(1) as u64;
        self.is_pressed() && party.load_us.load(Relaxed) > share_us
    }
}

impl Kept {
    /// A turn that is given back by itself: what takes long takes it from nobody.
    fn for_a_moment(seat: Seat, cx: &mut Context<'_>) -> Option<Self> {
        let mut until = Box::pin(tokio::time::sleep(KEPT));
        // So that the task is woken then.
        until.as_mut().poll(cx).is_pending().then_some(Self { seat, until: Some(until) })
    }

    /// The turn, if it lasts still.
    fn seat_now(self, cx: &mut Context<'_>) -> Option<Seat> {
        let lasts = self.until.is_none_or(|mut until| until.as_mut().poll(cx).is_pending());
        lasts.then_some(self.seat)
    }
}

impl Turns {
    /// Polls the guest, in its turn where it has to have one. The last turn ends with this value, so
    /// that what the guest held is let go of in it.
    pub(crate) fn poll<F: Future>(
        &mut self,
        cx: &mut Context<'_>,
        guest: Pin<&mut F>,
    ) -> Poll<F::Output> {
        let turn = match self.kept.take().and_then(|kept| kept.seat_now(cx)) {
            Some(seat) => Some(seat),
            None => ready!(self.turn(cx)),
        };
        let began = Instant::now();
        let (polled, is_at_work) = at_work::poll(guest, cx);
        self.spend(began.elapsed());
        self.kept = turn.and_then(|seat| match polled {
            Poll::Ready(_) => Some(Kept { seat, until: None }),
            Poll::Pending if is_at_work => Kept::for_a_moment(seat, cx),
            Poll::Pending => None,
        });
        polled
    }

    fn turn(&mut self, cx: &mut Context<'_>) -> Poll<Option<Seat>> {
        let mut waiter = match self.waiting.take() {
            Some(waiter) => waiter,
            None if !self.is_due() => return Poll::Ready(None),
            None => match self.fairness.turns.enter(&self.party.name) {
                Ok(seat) => return Poll::Ready(Some(seat)),
                Err(waiter) => waiter,
            },
        };
        match Pin::new(&mut waiter).poll(cx) {
            Poll::Ready(seat) => Poll::Ready(Some(seat)),
            Poll::Pending => {
                self.waiting = Some(waiter);
                Poll::Pending
            }
        }
    }

    /// Whether the call has to take turns now.
    fn is_due(&self) -> bool {
        let is_light = self.expected_us.max(micros(self.spent)) < LIGHT_US;
        self.fairness.is_pressing(&self.party) && !(is_light && self.fairness.is_alone())
    }

    fn spend(&mut self, time: Duration) {
        self.spent += time;
        let more = u64::from(micros(self.spent)).saturating_sub(self.counted_us);
        self.counted_us += more;
        self.fairness.count(&self.party, more);
    }
}

impl Drop for Turns {
    fn drop(&mut self) {
        self.fairness.load_us.fetch_sub(self.counted_us, Relaxed);
        self.party.load_us.fetch_sub(self.counted_us, Relaxed);
        if self.party.calls.fetch_sub(1, Relaxed) == 1
            && self.fairness.parties.fetch_sub(1, Relaxed) > 1
        {
            self.fairness.left_ms.store(self.fairness.age_ms().max(1), Relaxed);
        }
        let cost = &self.fairness.costs[self.kind];
        cost.store(blend_costs(cost.load(Relaxed), micros(self.spent)), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::Waker;

    use proptest::prelude::*;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn party(name: &str) -> Arc<Party> {
        Party::new(Arc::from(name))
    }

    /// A call of a kind that has cost so much before.
    fn known(fairness: &Arc<Fairness>, party: &Arc<Party>, cost: Duration) -> Turns {
        let mut turns = fairness.call(party, ("p", "p.o"));
        turns.spend(cost);
        drop(turns);
        fairness.call(party, ("p", "p.o"))
    }

    #[tokio::test(start_paused = true)]
    async fn calls_of_a_calm_host_take_no_turns_and_light_ones_none_where_nobody_is_near() {
        let (fairness, a, b) = (Arc::new(Fairness::new(2)), party("a"), party("b"));
        let light: Vec<_> = (0..100).map(|_| known(&fairness, &a, MS / 4)).collect();
        assert!(fairness.is_pressed() && light.iter().all(|turns| !turns.is_due()));
        let other = known(&fairness, &b, MS / 4);
        assert!(light.iter().all(Turns::is_due) && !other.is_due(), "somebody came");
        drop(other);
        assert!(light.iter().all(Turns::is_due), "and may come again");
        tokio::time::advance(2 * NEAR).await;
        assert!(light.iter().all(|turns| !turns.is_due()));
        drop(light);
        let one = known(&fairness, &b, 8 * MS);
        assert!(!fairness.is_pressed() && !one.is_due());
    }

    #[test]
    fn short_calls_take_turns_from_their_start_where_many_are_in_flight() {
        let (fairness, a) = (Arc::new(Fairness::new(2)), party("a"));
        let calls: Vec<_> = (0..4).map(|_| known(&fairness, &a, 4 * MS)).collect();
        assert!(calls.iter().all(Turns::is_due));
        let unknown = fairness.call(&a, ("p", "p.other"));
        assert!(unknown.is_due(), "what nobody knows is no way around");
        drop((calls, unknown));
        assert_eq!((fairness.load_us.load(Relaxed), a.load_us.load(Relaxed)), (0, 0));
        assert_eq!(fairness.parties.load(Relaxed), 0);
    }

    #[test]
    fn a_neighbour_takes_turns_only_with_those_who_ask_for_as_much_as_it_does() {
        let (fairness, hog, calm) = (Arc::new(Fairness::new(2)), party("hog"), party("calm"));
        let hogs: Vec<_> = (0..60).map(|_| known(&fairness, &hog, 4 * MS)).collect();
        let one = known(&fairness, &calm, 2 * MS);
        assert!(hogs.iter().all(Turns::is_due) && !one.is_due());
        // Many organizations of one person have a share together that is as small as each.
        let others: Vec<_> = (0..30).map(|n| party(&format!("other-{n}"))).collect();
        let many: Vec<_> = others.iter().map(|other| known(&fairness, other, 4 * MS)).collect();
        assert!(many.iter().all(Turns::is_due) && one.is_due());
    }

    #[test]
    fn a_call_that_turns_out_to_be_costly_takes_turns_from_then_on() {
        let (fairness, a) = (Arc::new(Fairness::new(1)), party("a"));
        let mut call = known(&fairness, &a, MS / 10);
        assert!(!call.is_due());
        call.spend(6 * MS);
        assert!(call.is_due());
    }

    #[test]
    fn a_turn_is_given_back_with_each_poll_and_goes_to_who_has_none() {
        let (fairness, hog, other) = (Arc::new(Fairness::new(2)), party("hog"), party("other"));
        let mut calls: Vec<_> =
            [&hog, &hog, &other].map(|party| known(&fairness, party, 9 * MS)).into();
        let mut cx = Context::from_waker(Waker::noop());
        let held = fairness.turns.try_enter(&hog.name).expect("the one turn");
        for call in &mut calls {
            assert!(call.turn(&mut cx).is_pending());
        }
        drop(held);
        // The hog waited first.
        let turn = calls[0].turn(&mut cx);
        assert!(turn.is_ready() && calls[2].turn(&mut cx).is_pending());
        drop(turn);
        let (second, other) = (calls[1].turn(&mut cx), calls[2].turn(&mut cx));
        assert!(second.is_pending() && other.is_ready());
    }

    #[tokio::test(start_paused = true)]
    async fn a_turn_lasts_on_while_a_thread_works_for_the_guest_and_until_its_end_is_done() {
        let (fairness, a, b) = (Arc::new(Fairness::new(2)), party("a"), party("b"));
        let mut one = known(&fairness, &a, 40 * MS);
        let _another = known(&fairness, &b, 40 * MS);
        let is_free = || fairness.turns.try_enter(&b.name).is_some();
        let mut cx = Context::from_waker(Waker::noop());
        let (done, read) = tokio::sync::oneshot::channel::<()>();
        let mut guest = pin!(async {
            tokio::task::yield_now().await;
            at_work::wait(read).await
        });
        assert!(one.poll(&mut cx, guest.as_mut()).is_pending());
        assert!(is_free(), "it only waits");
        for _ in 0..2 {
            assert!(one.poll(&mut cx, guest.as_mut()).is_pending());
            assert!(!is_free(), "it has a core read for it");
        }
        tokio::time::advance(KEPT).await;
        let other = fairness.turns.enter(&b.name);
        assert!(other.is_err(), "nobody has looked yet");
        assert!(one.poll(&mut cx, guest.as_mut()).is_pending());
        assert!(one.waiting.is_some(), "the read takes long, and others wait");
        drop(other);
        assert!(one.poll(&mut cx, guest.as_mut()).is_pending());
        done.send(()).expect("the guest waits");
        assert!(one.poll(&mut cx, guest.as_mut()).is_ready());
        assert!(!is_free(), "what it held is not let go of yet");
        drop(one);
        assert!(is_free());
    }

    proptest! {
        #[test]
        fn what_a_kind_costs_follows_what_it_cost_lately(
            costs in proptest::collection::vec(0..2_000_000_u32, 1..50),
            last in 8..2_000_000_u32,
        ) {
            let known = costs.iter().fold(0, |known, cost| blend_costs(known, *cost));
            let (low, high) = (costs.iter().min().unwrap(), costs.iter().max().unwrap());
            prop_assert!(known <= high + 8 && known + 8 >= *low, "{known}");
            let known = (0..60).fold(known, |known, _| blend_costs(known, last));
            prop_assert!(known.abs_diff(last) <= 8, "{known} of {last}");
        }
    }
}
