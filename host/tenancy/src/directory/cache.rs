//! A bounded cache of what was read under an epoch.
//!
//! An entry is answered only while the store's epoch is still the one that was read *before* the
//! entry was, so a change that slipped in between can never be cached away. Two generations a
//! shard: when the young one is full it becomes the old one, and what is asked for again moves
//! back; no entry costs more than its own look-up. Only what exists is kept.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::sync::{Arc, PoisonError, RwLock};

const SHARDS: usize = 16;

/// See the module.
pub struct Cache<V> {
    shards: Box<[RwLock<Shard<V>>]>,
    hasher: RandomState,
    entries_max: usize,
}

struct Shard<V> {
    young: HashMap<Box<str>, Slot<V>>,
    old: HashMap<Box<str>, Slot<V>>,
}

struct Slot<V> {
    epoch: u64,
    value: Arc<V>,
}

impl<V> Cache<V> {
    /// Keeps at most about `entries_max` entries.
    pub fn new(entries_max: usize) -> Self {
        let shard = || RwLock::new(Shard { young: HashMap::new(), old: HashMap::new() });
        Self {
            shards: (0..SHARDS).map(|_| shard()).collect(),
            hasher: RandomState::new(),
            // Two generations a shard.
            entries_max: (entries_max / SHARDS / 2).max(1),
        }
    }

    /// The value that was read for `id` under this epoch.
    pub fn get(&self, id: &str, epoch: u64) -> Option<Arc<V>> {
        let shard = self.shard(id);
        let value = {
            let held = shard.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(slot) = held.young.get(id) {
                return (slot.epoch == epoch).then(|| Arc::clone(&slot.value));
            }
            let slot = held.old.get(id).filter(|slot| slot.epoch == epoch)?;
            Arc::clone(&slot.value)
        };
        self.put(id, epoch, Arc::clone(&value));
        Some(value)
    }

    /// Keeps what was read for `id`; `epoch` is the one from before the read.
    pub fn put(&self, id: &str, epoch: u64, value: Arc<V>) {
        let mut held = self.shard(id).write().unwrap_or_else(PoisonError::into_inner);
        if held.young.len() >= self.entries_max && !held.young.contains_key(id) {
            held.old = std::mem::take(&mut held.young);
        }
        held.young.insert(id.into(), Slot { epoch, value });
    }

    fn shard(&self, id: &str) -> &RwLock<Shard<V>> {
        let hash = self.hasher.hash_one(id);
        &self.shards[usize::try_from(hash % SHARDS as u64).unwrap_or(0)]
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.shards
            .iter()
            .map(|shard| shard.read().unwrap())
            .map(|shard| shard.young.len() + shard.old.len())
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_ends_with_its_epoch() {
        let cache = Cache::new(100);
        cache.put("a", 1, Arc::new("one"));
        assert_eq!(cache.get("a", 1).as_deref(), Some(&"one"));
        assert_eq!(cache.get("a", 2), None);
        cache.put("a", 2, Arc::new("two"));
        assert_eq!(cache.get("a", 2).as_deref(), Some(&"two"));
        assert_eq!(cache.get("b", 2), None);
    }

    #[test]
    fn the_cache_is_bounded_and_keeps_what_is_in_use() {
        let cache = Cache::new(SHARDS * 2 * 8);
        cache.put("in use", 1, Arc::new(0));
        for n in 0..10_000 {
            cache.put(&n.to_string(), 1, Arc::new(n));
            assert_eq!(cache.get("in use", 1).as_deref(), Some(&0), "after {n}");
        }
        assert!(cache.len() <= SHARDS * 2 * 8, "{}", cache.len());
    }
}
