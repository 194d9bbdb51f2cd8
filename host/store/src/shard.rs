//! How organizations and tenants are spread over lanes and counters.

use std::hash::{DefaultHasher, Hash, Hasher};

/// The shard of `n` that a name belongs to; the same in every run of one build.
pub(crate) fn shard(name: &str, n: usize) -> usize {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    (hasher.finish() % n.max(1) as u64) as usize
}
