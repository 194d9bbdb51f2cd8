//! The queue in which tasks wait for [`Places`] or [`SharedPlaces`].
//!
//! Knows nothing of them beyond the party that each belongs to. Invariant: a seat that is dropped,
//! and a waiter that leaves after it was called, give their place to the next one.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use charter_kernel::places::{Places, Seating, SharedPlaces};
use tokio::sync::oneshot;

/// Places, and the tasks that wait for them.
#[derive(Debug)]
pub struct Lobby<O: Seating = Places<Arc<str>>>(Mutex<Inside<O>>);

/// Places of one organization, for those who share them.
pub type SharedLobby = Lobby<SharedPlaces>;
/// A place of an organization's.
pub type SharedSeat = Seat<SharedPlaces>;

#[derive(Debug)]
struct Inside<O> {
    places: O,
    calls: HashMap<u64, oneshot::Sender<()>>,
}

/// A place; dropping it gives it back.
#[derive(Debug)]
pub struct Seat<O: Seating = Places<Arc<str>>> {
    lobby: Arc<Lobby<O>>,
    party: O::Party,
}

/// A place that is waited for; dropping it gives up.
#[derive(Debug)]
pub struct Waiter<O: Seating = Places<Arc<str>>> {
    lobby: Arc<Lobby<O>>,
    party: O::Party,
    ticket: u64,
    called: oneshot::Receiver<()>,
    seated: bool,
}

impl Lobby {
    /// Places that are held for long: room is kept for who comes next.
    pub fn with_reserve(all: usize) -> Arc<Self> {
        Self::of(Places::with_reserve(all))
    }

    /// Places that come back within moments.
    pub fn open(all: usize) -> Arc<Self> {
        Self::of(Places::open(all))
    }

    /// Whether the party's share, rather than the number of places, keeps it from one more.
    pub fn is_share_used(&self, party: &Arc<str>) -> bool {
        self.lock_inside().places.is_share_used(party)
    }

    /// How many of a party wait.
    pub fn count_waiting(&self, party: &Arc<str>) -> usize {
        self.lock_inside().places.count_waiting(party)
    }
}

impl SharedLobby {
    /// So many places.
    pub fn with_shares(all: usize) -> Arc<Self> {
        Self::of(SharedPlaces::new(all))
    }
}

impl<O: Seating> Lobby<O> {
    fn of(places: O) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Inside { places, calls: HashMap::new() })))
    }

    fn lock_inside(&self) -> MutexGuard<'_, Inside<O>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place now, or none.
    pub fn try_enter(self: &Arc<Self>, party: &O::Party) -> Option<Seat<O>> {
        let entered = self.lock_inside().places.enter(party);
        entered.then(|| Seat { lobby: self.clone(), party: party.clone() })
    }

    /// A place now, or a turn to wait for one.
    ///
    /// # Errors
    /// The turn, where the party may have no place now.
    pub fn enter(self: &Arc<Self>, party: &O::Party) -> Result<Seat<O>, Waiter<O>> {
        let mut inside = self.lock_inside();
        if inside.places.enter(party) {
            return Ok(Seat { lobby: self.clone(), party: party.clone() });
        }
        let ticket = inside.places.wait(party);
        let (call, called) = oneshot::channel();
        inside.calls.insert(ticket, call);
        drop(inside);
        Err(Waiter { lobby: self.clone(), party: party.clone(), ticket, called, seated: false })
    }

    /// A place, once the party may have one.
    pub async fn seat(self: &Arc<Self>, party: &O::Party) -> Seat<O> {
        match self.enter(party) {
            Ok(seat) => seat,
            Err(waiter) => waiter.await,
        }
    }

    fn leave(&self, party: &O::Party) {
        let mut inside = self.lock_inside();
        inside.places.leave(party);
        inside.call();
    }

    fn give_up(&self, party: &O::Party, ticket: u64) {
        let mut inside = self.lock_inside();
        if inside.places.give_up(party, ticket) {
            inside.calls.remove(&ticket);
        } else {
            inside.places.leave(party);
            inside.call();
        }
    }
}

impl<O: Seating> Inside<O> {
    fn call(&mut self) {
        while let Some((_, ticket)) = self.places.admit_next() {
            if let Some(call) = self.calls.remove(&ticket) {
                // A waiter that has just left finds out that it was called, and leaves again.
                let _ = call.send(());
            }
        }
    }
}

impl<O: Seating> Drop for Seat<O> {
    fn drop(&mut self) {
        self.lobby.leave(&self.party);
    }
}

impl<O: Seating> Future for Waiter<O> {
    type Output = Seat<O>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Seat<O>> {
        // The lobby keeps the other half until it calls.
        let _ = ready!(Pin::new(&mut self.called).poll(cx));
        self.seated = true;
        Poll::Ready(Seat { lobby: self.lobby.clone(), party: self.party.clone() })
    }
}

impl<O: Seating> Drop for Waiter<O> {
    fn drop(&mut self) {
        if !self.seated {
            self.lobby.give_up(&self.party, self.ticket);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn party(name: &str) -> Arc<str> {
        Arc::from(name)
    }

    #[tokio::test]
    async fn a_seat_that_is_dropped_goes_to_whoever_waits() {
        let lobby = Lobby::open(1);
        let seat = lobby.try_enter(&party("a")).expect("a free place");
        let waiter = lobby.enter(&party("b")).expect_err("no free place");
        assert!(lobby.try_enter(&party("c")).is_none());
        drop(seat);
        let seat = waiter.await;
        assert!(lobby.try_enter(&party("c")).is_none());
        drop(seat);
        assert!(lobby.try_enter(&party("c")).is_some());
    }

    #[tokio::test]
    async fn a_waiter_that_leaves_takes_no_place_with_it_whether_it_was_called_or_not() {
        let lobby = Lobby::open(1);
        let seat = lobby.try_enter(&party("a")).expect("a free place");
        let early = lobby.enter(&party("b")).expect_err("no free place");
        drop(early);
        let late = lobby.enter(&party("b")).expect_err("no free place");
        let last = lobby.enter(&party("c")).expect_err("no free place");
        drop(seat);
        // It was called, and never looked.
        drop(late);
        drop(last.await);
        assert!(lobby.try_enter(&party("a")).is_some());
        assert!(lobby.lock_inside().calls.is_empty());
    }

    proptest! {
        #[test]
        fn whoever_comes_and_goes_there_are_as_many_places_as_there_were(
            acts in prop::collection::vec((0_usize..4, 0_u8..3, any::<prop::sample::Index>()), 0..60),
            all in 1_usize..5,
        ) {
            let lobby = Lobby::open(all);
            let (mut seats, mut waiters) = (Vec::new(), Vec::new());
            let mut cx = Context::from_waker(std::task::Waker::noop());
            for (who, act, which) in acts {
                let party = party(["a", "b", "c", "d"][who]);
                match act {
                    0 => match lobby.enter(&party) {
                        Ok(seat) => seats.push(seat),
                        Err(waiter) => waiters.push(waiter),
                    },
                    1 if !seats.is_empty() => drop(seats.swap_remove(which.index(seats.len()))),
                    2 if !waiters.is_empty() => drop(waiters.swap_remove(which.index(waiters.len()))),
                    _ => {}
                }
                let mut left = Vec::new();
                for mut waiter in waiters.drain(..) {
                    match Pin::new(&mut waiter).poll(&mut cx) {
                        Poll::Ready(seat) => seats.push(seat),
                        Poll::Pending => left.push(waiter),
                    }
                }
                waiters = left;
                prop_assert!(seats.len() <= all);
                prop_assert!(waiters.is_empty() || seats.len() == all, "nobody waits for nothing");
            }
            drop((seats, waiters));
            let again: Vec<_> = (0..all).filter_map(|_| lobby.try_enter(&party("a"))).collect();
            prop_assert_eq!(again.len(), all);
            prop_assert!(lobby.lock_inside().calls.is_empty());
        }
    }
}
