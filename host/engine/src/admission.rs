//! Admission of calls: places below the pool's size, for the deployment, each tenant and each
//! primitive, with a bounded queue.
//!
//! Knows nothing of wasmtime. A call holds a place of its tenant, of its primitive and of its
//! class; no tenant gets so many of the shared ones that the next finds none, nor does one of those
//! who share a tenant's. Nested calls take from
//! reserves of their own, one for each depth: a call waits only for a place that deeper calls hold,
//! so that outer calls that wait for inner ones cannot lock each other out.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use charter_kernel::limits::NESTED_DEPTH_MAX;
use charter_kernel::manifest::CallLength;
use charter_kernel::places::{Places, Seating};
use charter_kernel::scope::Sharer;
use charter_store::{Lobby, Seat, SharedLobby, SharedSeat};

use crate::config::AdmissionConfig;
use crate::fairness::Party;
use crate::room::{ByteCounts, Room, TenantRoom};

/// The places of this process.
#[derive(Debug)]
pub(crate) struct Admission {
    config: AdmissionConfig,
    short: Arc<Lobby>,
    long: Arc<Lobby>,
    /// Places that callers cannot take: of jobs and providers' questions.
    runs: Arc<Lobby>,
    /// By depth, the outermost first.
    nested: Vec<Arc<Lobby>>,
    /// Places in the queue: whoever waits holds one.
    queue: Arc<Lobby>,
    /// How many of those a tenant alone may have.
    queued_max: usize,
    /// Places of calls that wait for a change.
    parked: Arc<Lobby>,
    tenants: Mutex<HashMap<Arc<str>, Arc<Tenant>>>,
    room: Arc<Room>,
}

/// One tenant's places.
#[derive(Debug)]
pub(crate) struct Tenant {
    name: Arc<str>,
    party: Arc<Party>,
    places: Arc<SharedLobby>,
    parked: Arc<SharedLobby>,
    /// Places in the queue, of those that it has there.
    queued: Arc<SharedLobby>,
    /// Those of the reserves, by depth.
    nested: Vec<Arc<SharedLobby>>,
    room: Arc<TenantRoom>,
}

/// A call's places; dropping it gives them back.
#[derive(Debug)]
pub(crate) struct CallPlace {
    bytes: Arc<ByteCounts>,
    body_bytes: usize,
    _tenant: SharedSeat,
    _primitive: Option<Seat>,
    _class: Seat,
}

/// The terms on which a call asks to be let in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish<'a> {
    /// The one whose part of its tenant's places it takes.
    pub(crate) by: &'a Sharer,
    /// The places of its primitive.
    pub(crate) primitive: &'a Arc<Lobby>,
    /// How long it may take.
    pub(crate) class: CallLength,
    /// Whether it is a job's run or a provider's question, rather than a caller's request.
    pub(crate) runs: bool,
    /// How many calls it lies in.
    pub(crate) depth: u8,
    /// The bytes that its request's body holds.
    pub(crate) body_bytes: usize,
    /// How long it waits at most.
    pub(crate) wait: Duration,
}

/// The one that asks for places.
#[derive(Clone, Copy)]
struct Caller<'a> {
    tenant: &'a Tenant,
    by: &'a Sharer,
    deadline: tokio::time::Instant,
}

impl CallPlace {
    /// The count of bytes that the call's guest memory adds to.
    pub(crate) fn bytes(&self) -> &Arc<ByteCounts> {
        &self.bytes
    }
}

impl Drop for CallPlace {
    fn drop(&mut self) {
        self.bytes.give(self.body_bytes);
    }
}

/// Why a call was not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full {
    /// Whether the tenant's own share was used up.
    pub(crate) tenant: bool,
}

/// A long poll, or a request that waits for a job: it holds no place and no instance, but its number is bounded.
#[derive(Debug)]
pub struct Parked {
    _all: Seat,
    _own: SharedSeat,
    /// Remembered as long as somebody waits.
    _tenant: Arc<Tenant>,
}

impl Admission {
    pub(crate) fn new(config: AdmissionConfig) -> Self {
        Self {
            short: Lobby::with_reserve(config.short_max),
            long: Lobby::with_reserve(config.long_max),
            runs: Lobby::with_reserve(config.runs_max),
            nested: depths(config.nested_max).map(Lobby::with_reserve).collect(),
            queue: Lobby::with_reserve(config.queue_max),
            queued_max: Places::<()>::with_reserve(config.queue_max).alone(),
            parked: Lobby::with_reserve(config.parked_max),
            tenants: Mutex::default(),
            room: Room::new(config.bytes_max),
            config,
        }
    }

    /// Places for one primitive.
    pub(crate) fn primitive(&self) -> Arc<Lobby> {
        Lobby::with_reserve(self.config.primitive_max)
    }

    /// The tenant's places, made at first use and forgotten when nobody has one.
    pub(crate) fn tenant(&self, name: &str) -> Arc<Tenant> {
        let mut tenants = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(tenant) = tenants.get(name) {
            return tenant.clone();
        }
        if tenants.len() >= 4_096 {
            tenants.retain(|_, tenant| Arc::strong_count(tenant) > 1);
        }
        let name: Arc<str> = Arc::from(name);
        let tenant = Arc::new(Tenant {
            name: name.clone(),
            party: Party::new(name.clone()),
            places: SharedLobby::with_shares(self.config.tenant_max),
            parked: SharedLobby::with_shares(self.config.parked_tenant_max),
            queued: SharedLobby::with_shares(self.queued_max),
            nested: depths(self.config.nested_max)
                .map(|all| SharedLobby::with_shares(Places::<()>::with_reserve(all).alone()))
                .collect(),
            room: Arc::default(),
        });
        tenants.insert(name, tenant.clone());
        tenant
    }

    /// The count of bytes that the memory of this one's calls adds to.
    pub(crate) fn bytes(&self, tenant: &Tenant, by: &Sharer) -> Arc<ByteCounts> {
        Arc::new(self.room.bytes(&tenant.room, by))
    }

    /// Waits for places, at most as long as is wished and configured.
    pub(crate) async fn enter(
        &self,
        tenant: &Arc<Tenant>,
        wish: Wish<'_>,
    ) -> Result<CallPlace, Full> {
        let wait = wish.wait.min(Duration::from_millis(self.config.wait_ms_max));
        let deadline = tokio::time::Instant::now() + wait;
        let caller = Caller { tenant, by: wish.by, deadline };
        let (own, primitive, class) = match self.nesting(wish.depth) {
            Some(at) => {
                let own = self.take_own(&tenant.nested[at], caller).await?;
                let class = self.take_shared(&self.nested[at], caller).await?;
                (own, None, class)
            }
            None => {
                let class = match wish.class {
                    CallLength::Short => &self.short,
                    CallLength::Long => &self.long,
                };
                let own = self.take_own(&tenant.places, caller).await?;
                let primitive = self.take_shared(wish.primitive, caller).await?;
                let beyond = wish.runs.then_some(&self.runs);
                let mut lobbies = [Some(class), beyond].into_iter().flatten();
                let seat = match lobbies.find_map(|places| places.try_enter(&tenant.name)) {
                    Some(seat) => seat,
                    None => self.take_shared(class, caller).await?,
                };
                (own, Some(primitive), seat)
            }
        };
        let bytes = self.bytes(tenant, wish.by);
        if !bytes.take(wish.body_bytes) {
            return Err(Full { tenant: false });
        }
        let body_bytes = wish.body_bytes;
        Ok(CallPlace { bytes, body_bytes, _tenant: own, _primitive: primitive, _class: class })
    }

    /// The reserve of calls that lie in so many others, by its place; none for the outermost.
    fn nesting(&self, depth: u8) -> Option<usize> {
        let last = self.nested.len().checked_sub(1)?;
        depth.checked_sub(1).map(|at| usize::from(at).min(last))
    }

    /// A place of the tenant's own.
    async fn take_own(
        &self,
        places: &Arc<SharedLobby>,
        caller: Caller<'_>,
    ) -> Result<SharedSeat, Full> {
        self.take(places, caller.by, caller, || Full { tenant: true }).await
    }

    /// A place that tenants share.
    async fn take_shared(&self, places: &Arc<Lobby>, caller: Caller<'_>) -> Result<Seat, Full> {
        let name = &caller.tenant.name;
        self.take(places, name, caller, || Full { tenant: places.is_share_used(name) }).await
    }

    async fn take<O: Seating>(
        &self,
        places: &Arc<Lobby<O>>,
        party: &O::Party,
        caller: Caller<'_>,
        full: impl Fn() -> Full,
    ) -> Result<Seat<O>, Full> {
        let waiter = match places.enter(party) {
            Ok(seat) => return Ok(seat),
            Err(waiter) => waiter,
        };
        let _turn = self.take_queue_place(caller).ok_or_else(&full)?;
        tokio::time::timeout_at(caller.deadline, waiter).await.map_err(|_| full())
    }

    fn take_queue_place(&self, caller: Caller<'_>) -> Option<(SharedSeat, Seat)> {
        let Caller { tenant, by, .. } = caller;
        tenant.queued.try_enter(by).zip(self.queue.try_enter(&tenant.name))
    }

    /// Counts a call that waits for a change without holding a place. Tenants share these by the rule of
    /// places, and so do those who share a tenant's.
    pub(crate) fn park(&self, tenant: &Arc<Tenant>, by: &Sharer) -> Result<Parked, Full> {
        let seat = self.parked.try_enter(&tenant.name);
        let seat = seat.ok_or_else(|| Full { tenant: self.parked.is_share_used(&tenant.name) })?;
        let own = tenant.parked.try_enter(by).ok_or(Full { tenant: true })?;
        Ok(Parked { _all: seat, _own: own, _tenant: tenant.clone() })
    }
}

impl Tenant {
    /// The organization, as far as it computes.
    pub(crate) fn party(&self) -> &Arc<Party> {
        &self.party
    }
}

/// The reserves of nested calls, by depth: most calls nest once, and each further depth gets half
/// of what is left.
fn depths(all: usize) -> impl Iterator<Item = usize> {
    let last = u32::from(NESTED_DEPTH_MAX);
    (1..=last).map(move |depth| (all >> depth.min(last - 1)).max(1))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn small() -> Admission {
        Admission::new(AdmissionConfig {
            short_max: 4,
            long_max: 1,
            runs_max: 1,
            nested_max: 8,
            tenant_max: 3,
            primitive_max: 4,
            queue_max: 4,
            wait_ms_max: 1_000,
            bytes_max: 400,
            parked_max: 2,
            parked_tenant_max: 1,
        })
    }

    fn sharer(name: &str) -> Sharer {
        Sharer { within: None, name: name.into() }
    }

    fn wish<'a>(by: &'a Sharer, primitive: &'a Arc<Lobby>) -> Wish<'a> {
        Wish {
            by,
            primitive,
            class: CallLength::Short,
            runs: false,
            depth: 0,
            body_bytes: 0,
            wait: Duration::ZERO,
        }
    }

    #[tokio::test]
    async fn a_tenant_that_used_its_share_up_leaves_room_for_others() {
        let admission = small();
        let (hog, other, third) =
            (admission.tenant("hog"), admission.tenant("other"), admission.tenant("third"));
        let (by, primitive) = (sharer("key ada"), admission.primitive());
        let wish = wish(&by, &primitive);
        let _one = admission.enter(&hog, wish).await.unwrap();
        let _two = admission.enter(&hog, wish).await.unwrap();
        assert_eq!(admission.enter(&hog, wish).await.unwrap_err(), Full { tenant: true });
        let _three = admission.enter(&other, wish).await.unwrap();
        assert_eq!(admission.enter(&other, wish).await.unwrap_err(), Full { tenant: true });
        let _four = admission.enter(&third, wish).await.unwrap();
        assert_eq!(admission.enter(&third, wish).await.unwrap_err(), Full { tenant: false });
    }

    #[tokio::test]
    async fn long_calls_runs_and_nested_ones_have_places_of_their_own_and_so_has_each_depth() {
        let admission = small();
        let (by, tenant, primitive) =
            (sharer("key ada"), admission.tenant("t"), admission.primitive());
        let wish = wish(&by, &primitive);
        let _long =
            admission.enter(&tenant, Wish { class: CallLength::Long, ..wish }).await.unwrap();
        let other = admission.tenant("other");
        let run = Wish { class: CallLength::Long, runs: true, ..wish };
        let _run = admission.enter(&other, run).await.unwrap();
        assert_eq!(admission.enter(&other, run).await.unwrap_err(), Full { tenant: false });
        let _short = admission.enter(&tenant, wish).await.unwrap();
        let mut nested = Vec::new();
        for depth in 1..=NESTED_DEPTH_MAX {
            let wish = Wish { depth, ..wish };
            while let Ok(place) = admission.enter(&tenant, wish).await {
                nested.push(place);
            }
            assert!(admission.enter(&admission.tenant("other"), wish).await.is_ok() || depth > 2);
        }
        assert_eq!(nested.len(), 4, "a quarter of each reserve, and at least one");
    }

    #[tokio::test(start_paused = true)]
    async fn a_tenant_that_waits_gets_the_next_place_although_another_waits_longer() {
        let admission = small();
        let (by, primitive) = (sharer("key ada"), admission.primitive());
        let wish = Wish { depth: 1, wait: Duration::from_secs(1), ..wish(&by, &primitive) };
        let enter = async |name| admission.enter(&admission.tenant(name), wish).await;
        let first = enter("hog").await.unwrap();
        let another = sharer("session ada");
        let beside = admission.enter(&admission.tenant("hog"), Wish { by: &another, ..wish }).await;
        let _held = [beside, enter("a").await, enter("b").await].map(Result::unwrap);
        let give_back = async {
            tokio::time::sleep(Duration::from_millis(10)).await;
            drop(first);
        };
        let (hog, new, ()) = tokio::join!(enter("hog"), enter("new"), give_back);
        assert!(new.is_ok());
        assert_eq!(hog.unwrap_err(), Full { tenant: false });
    }

    #[tokio::test]
    async fn bytes_are_counted_for_the_tenant_and_for_all_and_given_back() {
        let admission = small();
        let (by, tenant, primitive) =
            (sharer("key ada"), admission.tenant("t"), admission.primitive());
        let wish = Wish { body_bytes: 50, ..wish(&by, &primitive) };
        let place = admission.enter(&tenant, wish).await.unwrap();
        assert!(place.bytes().take(37) && !place.bytes().take(1), "with the body");
        let other = admission.bytes(&admission.tenant("other"), &by);
        assert!(other.take(65) && !other.take(1), "less where others hold some");
        other.give(65);
        place.bytes().give(37);
        drop(place);
        assert!(admission.enter(&tenant, Wish { body_bytes: 87, ..wish }).await.is_ok());
    }

    #[tokio::test]
    async fn waiting_calls_are_counted_and_bounded() {
        let admission = small();
        let (by, a, b) = (sharer("key ada"), admission.tenant("a"), admission.tenant("b"));
        let parked = admission.park(&a, &by).unwrap();
        assert_eq!(admission.park(&a, &by).unwrap_err(), Full { tenant: true });
        drop(parked);
        let _again = admission.park(&a, &by).unwrap();
        let _other = admission.park(&b, &by).unwrap();
        assert_eq!(
            admission.park(&admission.tenant("c"), &by).unwrap_err(),
            Full { tenant: false }
        );
    }

    #[test]
    fn tenants_that_let_as_many_calls_wait_as_they_may_leave_room_for_the_next_one() {
        let (by, admission) = (sharer("key ada"), Admission::new(AdmissionConfig::default()));
        let AdmissionConfig { parked_max, parked_tenant_max, .. } = admission.config;
        let mut held = Vec::new();
        for n in 0..parked_max / parked_tenant_max + 4 {
            let tenant = admission.tenant(&n.to_string());
            let before = held.len();
            held.extend(std::iter::from_fn(|| admission.park(&tenant, &by).ok()));
            assert!((1..=parked_tenant_max).contains(&(held.len() - before)), "{n}");
            assert_eq!(admission.park(&tenant, &by).unwrap_err(), Full { tenant: true });
        }
        assert!(held.len() < parked_max);
        let next = admission.tenant("next");
        drop(admission.park(&next, &by).unwrap());
        held.clear();
        let alone = std::iter::from_fn(|| admission.park(&next, &by).ok()).collect::<Vec<_>>();
        assert_eq!(alone.len(), 448, "each gave back what it had");
    }

    #[tokio::test]
    async fn a_wait_is_as_long_as_was_wished_and_no_longer_than_is_configured() {
        tokio::time::pause();
        let admission = small();
        let (by, primitive) = (sharer("key ada"), admission.primitive());
        let long = Wish { class: CallLength::Long, ..wish(&by, &primitive) };
        let _held = admission.enter(&admission.tenant("a"), long).await.unwrap();
        for (wished, waits) in [(0, 0), (300, 300), (60_000, 1_000)] {
            let wish = Wish { wait: Duration::from_millis(wished), ..long };
            let begun = tokio::time::Instant::now();
            assert!(admission.enter(&admission.tenant("b"), wish).await.is_err());
            let waited = begun.elapsed().as_millis();
            assert!((waits..=waits + 2).contains(&waited), "{wished}: {waited}");
        }
    }

    #[tokio::test]
    async fn a_queue_that_is_full_turns_away_at_once() {
        tokio::time::pause();
        let admission = Admission::new(AdmissionConfig { queue_max: 1, ..small().config });
        let (by, primitive) = (sharer("key ada"), admission.primitive());
        let long =
            Wish { class: CallLength::Long, wait: Duration::from_secs(1), ..wish(&by, &primitive) };
        let held = admission.enter(&admission.tenant("a"), long).await.unwrap();
        let (b, c) = (admission.tenant("b"), admission.tenant("c"));
        let begun = tokio::time::Instant::now();
        let first = admission.enter(&b, long);
        let second = async {
            let second = admission.enter(&c, long).await;
            assert!(begun.elapsed() < Duration::from_millis(100), "it did not wait");
            drop(held);
            second
        };
        let (first, second) = tokio::join!(first, second);
        assert!(first.is_ok());
        assert_eq!(second.unwrap_err(), Full { tenant: false });
    }

    #[test]
    fn a_tenant_is_the_same_while_somebody_has_it_and_forgotten_after() {
        let admission = small();
        let kept = admission.tenant("kept");
        assert!(Arc::ptr_eq(&kept, &admission.tenant("kept")));
        for n in 0..10_000 {
            admission.tenant(&n.to_string());
        }
        assert!(admission.tenants.lock().unwrap().len() <= 4_097, "names alone fill no memory");
        assert!(Arc::ptr_eq(&kept, &admission.tenant("kept")));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

        #[test]
        fn whoever_comes_no_place_and_no_byte_is_given_twice_or_lost(
            acts in prop::collection::vec(
                (0_usize..3, any::<bool>(), 0_u8..3, 0_usize..50, any::<prop::sample::Index>()),
                0..40,
            ),
        ) {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
            let admission = small();
            let (by, primitive) = (sharer("key ada"), admission.primitive());
            let mut held: Vec<(usize, u8, usize, CallPlace)> = Vec::new();
            for (who, leaves, depth, body_bytes, which) in acts {
                if leaves && !held.is_empty() {
                    drop(held.swap_remove(which.index(held.len())));
                } else {
                    let tenant = admission.tenant(["a", "b", "c"][who]);
                    let wish = Wish { depth, body_bytes, ..wish(&by, &primitive) };
                    if let Ok(place) = runtime.block_on(admission.enter(&tenant, wish)) {
                        held.push((who, depth, body_bytes, place));
                    }
                }
                let outermost = held.iter().filter(|(_, depth, ..)| *depth == 0);
                prop_assert!(outermost.clone().count() <= 4);
                for who in 0..3 {
                    prop_assert!(outermost.clone().filter(|(other, ..)| *other == who).count() <= 3);
                }
                let bytes: usize = held.iter().map(|(_, _, bytes, _)| bytes).sum();
                prop_assert_eq!(admission.room.used(), bytes);
                prop_assert!(bytes <= 400);
            }
            drop(held);
            prop_assert_eq!(admission.room.used(), 0);
            let all = Wish { body_bytes: 87, ..wish(&by, &primitive) };
            prop_assert!(runtime.block_on(admission.enter(&admission.tenant("d"), all)).is_ok());
        }
    }
}
