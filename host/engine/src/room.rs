//! The bytes that calls hold: of the process, of each tenant, and of those who share a tenant's.
//!
//! One rule, as for places: a party takes more only while it then has at most what it leaves free beside
//! a part that is kept for those who have little. So one tenant alone gets nearly half, an agent of it
//! nearly a tenth, and there is memory for the next one's call. Knows nothing of wasmtime.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use charter_kernel::scope::Sharer;

/// One part in so many of all bytes is kept for tenants that have little.
const KEPT: i64 = 8;
/// One part in so many of all bytes is kept, of what those have that are pinned, for those with little.
const PINNED_KEPT: i64 = 32;
/// A tenant has little with one part in so many of all bytes, or less.
const TENANT_LITTLE: i64 = 128;
/// One of those who share a tenant's has little with one part in so many of all bytes, or less.
const SHARER_LITTLE: i64 = 512;
/// A project may have so many times as much as one of its users.
const PROJECT_TIMES: i64 = 3;
/// Names that a tenant keeps beyond those that have bytes.
const NAMES_MAX: usize = 256;

/// The bytes of this process.
#[derive(Debug)]
pub(crate) struct Room {
    used: AtomicUsize,
    max: usize,
}

/// The bytes of one tenant.
#[derive(Debug, Default)]
pub(crate) struct TenantRoom {
    used: AtomicUsize,
    pinned: AtomicUsize,
    sharers: ByName,
    projects: ByName,
}

/// Bytes by the name of whose they are.
#[derive(Debug, Default)]
struct ByName(Mutex<HashMap<Arc<str>, Arc<AtomicUsize>>>);

/// The bytes that one call's tenant, those that it shares them with, and the process have left.
#[derive(Debug)]
pub(crate) struct ByteCounts {
    all: Arc<Room>,
    tenant: Arc<TenantRoom>,
    own: Arc<AtomicUsize>,
    /// The project's, where it is pinned.
    project: Option<Arc<AtomicUsize>>,
}

impl Room {
    /// A room of so many bytes.
    pub(crate) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { used: AtomicUsize::new(0), max })
    }

    /// The counts that calls of one of a tenant's sharers add to.
    pub(crate) fn bytes(self: &Arc<Self>, tenant: &Arc<TenantRoom>, by: &Sharer) -> ByteCounts {
        ByteCounts {
            all: self.clone(),
            tenant: tenant.clone(),
            own: tenant.sharers.of(&by.name),
            project: by.within.as_ref().map(|project| tenant.projects.of(project)),
        }
    }

    /// The bytes that calls hold.
    #[cfg(test)]
    pub(crate) fn used(&self) -> usize {
        self.used.load(Relaxed)
    }
}

impl ByName {
    fn of(&self, name: &Arc<str>) -> Arc<AtomicUsize> {
        let mut by_name = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(used) = by_name.get(name) {
            return used.clone();
        }
        if by_name.len() >= NAMES_MAX {
            by_name.retain(|_, used| Arc::strong_count(used) > 1);
        }
        by_name.entry(name.clone()).or_default().clone()
    }
}

impl ByteCounts {
    /// Takes this many, or none.
    pub(crate) fn take(&self, amount: usize) -> bool {
        if amount == 0 {
            return true;
        }
        for used in self.counts() {
            used.fetch_add(amount, Relaxed);
        }
        let admits = self.fits();
        if !admits {
            self.give(amount);
        }
        admits
    }

    /// The most that one alone may hold: more than that nobody else keeps from it.
    pub(crate) fn alone(&self) -> usize {
        // By the rule of `fits`, with nothing that others hold.
        let one_of = |all: usize, parts: usize| all / 32 * parts;
        match self.project {
            Some(_) => one_of(self.all.max, 3),
            None => one_of(self.all.max, 7),
        }
    }

    /// Gives this many back.
    pub(crate) fn give(&self, amount: usize) {
        for used in self.counts() {
            used.fetch_sub(amount, Relaxed);
        }
    }

    /// The counts that it is part of.
    fn counts(&self) -> impl Iterator<Item = &AtomicUsize> {
        let pinned = self.project.as_ref().map(|project| [&self.tenant.pinned, &**project]);
        [&self.all.used, &self.tenant.used, &*self.own]
            .into_iter()
            .chain(pinned.into_iter().flatten())
    }

    /// Whether what is counted is within the rule.
    fn fits(&self) -> bool {
        let load = |used: &AtomicUsize| i64::try_from(used.load(Relaxed)).unwrap_or(i64::MAX);
        let max = i64::try_from(self.all.max).unwrap_or(i64::MAX);
        let (tenant, own) = (load(&self.tenant.used), load(&self.own));
        let free = max.saturating_sub(load(&self.all.used));
        if free < 0 {
            return false;
        }
        if tenant <= max / TENANT_LITTLE {
            return true;
        }
        let beside = free - max / KEPT - tenant;
        // As much as the tenant may take until it has what it leaves free.
        let sharer_max = beside / 2;
        if beside < 0 {
            return false;
        }
        let has_little = own <= max / SHARER_LITTLE;
        let Some(project) = &self.project else { return has_little || own <= sharer_max };
        let pinned = load(&self.tenant.pinned);
        let user_max = (sharer_max - pinned) / 2 - max / PINNED_KEPT;
        let within = own <= user_max && load(project) <= PROJECT_TIMES * user_max;
        pinned <= sharer_max && (has_little || within)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MIB: usize = 1 << 20;
    const GIB: usize = 1 << 30;

    fn person(name: &str) -> Sharer {
        Sharer { within: None, name: name.into() }
    }

    fn agent(project: &str, user: &str) -> Sharer {
        Sharer { within: Some(project.into()), name: user.into() }
    }

    /// Takes a mebibyte after the other; answers how many there were.
    fn fill(bytes: &ByteCounts) -> usize {
        std::iter::from_fn(|| bytes.take(MIB).then_some(())).count()
    }

    #[test]
    fn one_alone_leaves_memory_to_the_next_of_its_tenant_and_to_the_next_tenant() {
        let (room, [a, b]) = (Room::new(2 * GIB), [(); 2].map(|()| Arc::<TenantRoom>::default()));
        let user = room.bytes(&a, &agent("project a", "user one"));
        assert_eq!((fill(&user), user.alone() / MIB), (192, 192), "a tenth");
        let key = room.bytes(&a, &person("key ada"));
        assert_eq!(fill(&key), 352);
        let session = room.bytes(&a, &person("session ada"));
        assert_eq!(fill(&session), 176);
        assert!(fill(&room.bytes(&b, &person("key bob"))) > 128, "another's");
        user.give(192 * MIB);
        assert!(room.bytes(&a, &agent("project a", "user two")).take(MIB));
    }

    #[test]
    fn agents_leave_memory_to_further_ones_to_other_projects_and_to_those_who_govern_them() {
        let (room, tenant) = (Room::new(2 * GIB), Arc::<TenantRoom>::default());
        let of = |by: Sharer| room.bytes(&tenant, &by);
        let hogs: Vec<_> = (0..9)
            .map(|n| of(agent("project a", &format!("user {n}"))))
            .inspect(|bytes| assert!(fill(bytes) > 0))
            .collect();
        assert!(fill(&of(agent("project b", "user b"))) >= 16, "another project's");
        let next: Vec<_> = (0..8).map(|n| of(agent("project a", &format!("next {n}")))).collect();
        assert!(next.iter().all(|bytes| bytes.take(4 * MIB)), "of the same project");
        assert!(of(person("session ada")).take(64 * MIB), "a whole call's");
        drop((hogs, next));
    }

    #[test]
    fn tenants_leave_memory_to_many_further_ones() {
        let room = Room::new(2 * GIB);
        let tenants: Vec<_> = (0..24)
            .map(|_| room.bytes(&Arc::default(), &person("key ada")))
            .inspect(|bytes| assert!(fill(bytes) > 0))
            .collect();
        let first = tenants[0].own.load(Relaxed) / MIB;
        assert!((300..=448).contains(&first), "{first}");
        assert!(tenants.iter().all(|bytes| bytes.own.load(Relaxed) >= 4 * MIB));
        assert!(room.used() <= 2 * GIB);
    }

    #[test]
    fn names_that_have_no_bytes_are_forgotten() {
        let (room, tenant) = (Room::new(GIB), Arc::<TenantRoom>::default());
        let kept = room.bytes(&tenant, &person("kept"));
        assert!(kept.take(5));
        for n in 0..10_000 {
            drop(room.bytes(&tenant, &person(&n.to_string())));
        }
        assert!(tenant.sharers.0.lock().unwrap().len() <= NAMES_MAX + 1);
        assert_eq!(room.bytes(&tenant, &person("kept")).own.load(Relaxed), 5);
    }

    proptest! {
        #[test]
        fn nothing_is_lost_and_never_more_held_than_there_is(
            acts in prop::collection::vec((0_usize..2, 0_usize..4, any::<bool>(), 0_usize..400), 0..80),
        ) {
            let room = Room::new(1_000);
            let tenants = [(); 2].map(|()| Arc::<TenantRoom>::default());
            let sharers = [person("a"), person("b"), agent("p", "u"), agent("p", "v")];
            let mut held: Vec<(ByteCounts, usize)> = Vec::new();
            for (tenant, by, gives, amount) in acts {
                if gives && !held.is_empty() {
                    let (bytes, amount) = held.swap_remove(amount % held.len());
                    bytes.give(amount);
                } else {
                    let bytes = room.bytes(&tenants[tenant], &sharers[by]);
                    if bytes.take(amount) {
                        held.push((bytes, amount));
                    }
                }
                prop_assert!(room.used() <= 1_000);
                prop_assert_eq!(room.used(), held.iter().map(|(_, amount)| amount).sum::<usize>());
            }
            for (bytes, amount) in held {
                bytes.give(amount);
                prop_assert!(bytes.counts().all(|used| used.load(Relaxed) <= 1_000));
            }
            prop_assert_eq!(room.used(), 0);
            for tenant in tenants {
                for names in [&tenant.sharers, &tenant.projects] {
                    let rest = names.0.lock().unwrap();
                    prop_assert!(rest.values().all(|used| used.load(Relaxed) == 0));
                }
                prop_assert_eq!(tenant.used.load(Relaxed) + tenant.pinned.load(Relaxed), 0);
            }
        }
    }
}
