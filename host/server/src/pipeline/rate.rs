//! Token buckets per key, organization and tenant user, where the operator or a kit has set a rate.
//!
//! Buckets live in this process and are bounded in number: a bucket that is full again says nothing
//! and is forgotten first. Time is an argument.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::fmt::Write as _;
use std::hash::BuildHasher as _;
use std::sync::{Mutex, PoisonError};

use charter_kernel::time::Instant;

use crate::config::Rates;

const SHARDS: usize = 16;
/// Buckets of one shard; above it, those that are full again go.
const BUCKETS_MAX: usize = 8_192;
const MINUTE_MS: f64 = 60_000.0;

/// Whose bucket it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// One API key or session.
    Key,
    /// One organization.
    Organization,
    /// One tenant user, by its kit.
    User,
    /// One inbound URL.
    Hook,
}

impl Kind {
    fn label(self) -> &'static str {
        match self {
            Self::Key => "key",
            Self::Organization => "organization",
            Self::User => "user",
            Self::Hook => "hook",
        }
    }
}

/// One bucket that a request has to pass.
#[derive(Clone, Copy, Debug)]
pub struct Gate<'a> {
    /// Whose it is.
    pub kind: Kind,
    /// The owner's id.
    pub owner: &'a str,
    /// Requests a minute.
    pub per_minute: u32,
}

/// What the narrowest bucket holds, for `RateLimit-Policy` and `RateLimit`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// `RateLimit-Policy`.
    pub policy: String,
    /// `RateLimit`.
    pub left: String,
    /// Seconds to wait; absent where the request is admitted.
    pub retry_after_s: Option<u32>,
}

type Shard = HashMap<(Kind, Box<str>), Bucket>;

/// The buckets.
pub struct Buckets {
    shards: Box<[Mutex<Shard>]>,
    hasher: RandomState,
    burst: u32,
}

#[derive(Clone, Copy)]
struct Bucket {
    tokens: f64,
    at: Instant,
    size: f64,
    per_ms: f64,
}

impl Bucket {
    fn filled(self, now: Instant) -> Self {
        let passed = now.0.saturating_sub(self.at.0).max(0) as f64;
        Self {
            tokens: (self.tokens + passed * self.per_ms).min(self.size),
            at: now.max(self.at),
            ..self
        }
    }
}

impl Buckets {
    /// No buckets yet; they are made full at their owner's first request.
    pub fn new(rates: &Rates) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            hasher: RandomState::new(),
            burst: rates.burst,
        }
    }

    /// Takes one token from each gate's bucket, or none where one is empty. `None` where no gate
    /// has a rate.
    pub fn take(&self, gates: &[Gate<'_>], now: Instant) -> Option<Standing> {
        let mut narrowest: Option<(Gate<'_>, Bucket)> = None;
        let gates = gates.iter().filter(|gate| gate.per_minute > 0);
        for (taken, gate) in gates.clone().enumerate() {
            let (admitted, bucket) = self.take_one(gate, now);
            if !admitted {
                gates.take(taken).for_each(|earlier| self.give_back(earlier));
                return Some(standing(gate, bucket, Some(wait_s(bucket))));
            }
            if narrowest.is_none_or(|(_, other)| bucket.tokens < other.tokens) {
                narrowest = Some((*gate, bucket));
            }
        }
        narrowest.map(|(gate, bucket)| standing(&gate, bucket, None))
    }

    fn take_one(&self, gate: &Gate<'_>, now: Instant) -> (bool, Bucket) {
        let size = f64::from(if self.burst > 0 {
            self.burst.min(gate.per_minute)
        } else {
            gate.per_minute
        });
        let per_ms = f64::from(gate.per_minute) / MINUTE_MS;
        let mut shard = self.shard(gate.owner).lock().unwrap_or_else(PoisonError::into_inner);
        let at = (gate.kind, Box::from(gate.owner));
        if shard.len() >= BUCKETS_MAX && !shard.contains_key(&at) {
            shard.retain(|_, bucket| bucket.filled(now).tokens < bucket.size);
            if shard.len() >= BUCKETS_MAX {
                // Everyone is busy at once: forgetting all of them is kinder than growing.
                shard.clear();
            }
        }
        let bucket = shard.entry(at).or_insert(Bucket { tokens: size, at: now, size, per_ms });
        *bucket = Bucket { size, per_ms, ..*bucket }.filled(now);
        let admitted = bucket.tokens >= 1.0;
        if admitted {
            bucket.tokens -= 1.0;
        }
        (admitted, *bucket)
    }

    fn give_back(&self, gate: &Gate<'_>) {
        let mut shard = self.shard(gate.owner).lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bucket) = shard.get_mut(&(gate.kind, Box::from(gate.owner))) {
            bucket.tokens = (bucket.tokens + 1.0).min(bucket.size);
        }
    }

    fn shard(&self, owner: &str) -> &Mutex<Shard> {
        &self.shards[usize::try_from(self.hasher.hash_one(owner) % SHARDS as u64).unwrap_or(0)]
    }
}

fn wait_s(bucket: Bucket) -> u32 {
    ((1.0 - bucket.tokens) / bucket.per_ms / 1_000.0).ceil().clamp(1.0, 60.0) as u32
}

fn standing(gate: &Gate<'_>, bucket: Bucket, retry_after_s: Option<u32>) -> Standing {
    let label = gate.kind.label();
    let until_full = ((bucket.size - bucket.tokens) / bucket.per_ms / 1_000.0).ceil() as u64;
    let mut policy = String::new();
    let mut left = String::new();
    // Writing to a string cannot fail.
    let _ = write!(policy, "\"{label}\";q={};w=60", gate.per_minute);
    let _ = write!(left, "\"{label}\";r={};t={until_full}", bucket.tokens.floor() as u64);
    Standing { policy, left, retry_after_s }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buckets(burst: u32) -> Buckets {
        Buckets::new(&Rates { key_per_minute: 0, organization_per_minute: 0, burst })
    }

    #[test]
    fn a_bucket_empties_and_fills_with_time() {
        let buckets = buckets(2);
        let gate = [Gate { kind: Kind::Key, owner: "k", per_minute: 60 }];
        let take = |ms| buckets.take(&gate, Instant(ms)).unwrap().retry_after_s;
        assert_eq!(take(0), None);
        assert_eq!(take(0), None);
        assert_eq!(take(0), Some(1));
        assert_eq!(take(999), Some(1));
        assert_eq!(take(1_000), None);
        assert_eq!(take(500), Some(1), "a clock that steps back fills nothing");
    }

    #[test]
    fn a_request_that_one_bucket_refuses_costs_the_others_nothing() {
        let buckets = buckets(0);
        let wide = Gate { kind: Kind::Organization, owner: "o", per_minute: 2 };
        let narrow = Gate { kind: Kind::Key, owner: "k", per_minute: 1 };
        assert_eq!(buckets.take(&[wide, narrow], Instant(0)).unwrap().retry_after_s, None);
        for _ in 0..5 {
            assert_eq!(buckets.take(&[wide, narrow], Instant(0)).unwrap().retry_after_s, Some(60));
        }
        assert_eq!(buckets.take(&[wide], Instant(0)).unwrap().retry_after_s, None);
        assert!(buckets.take(&[wide], Instant(0)).unwrap().retry_after_s.is_some());
    }

    #[test]
    fn no_rate_is_no_bucket_and_headers_name_the_policy() {
        let buckets = buckets(0);
        assert_eq!(
            buckets.take(&[Gate { kind: Kind::Key, owner: "k", per_minute: 0 }], Instant(0)),
            None
        );
        let standing = buckets
            .take(&[Gate { kind: Kind::Key, owner: "k", per_minute: 10 }], Instant(0))
            .unwrap();
        assert_eq!(
            (standing.policy.as_str(), standing.left.as_str()),
            ("\"key\";q=10;w=60", "\"key\";r=9;t=6")
        );
    }

    #[test]
    fn the_number_of_buckets_is_bounded() {
        let buckets = buckets(0);
        for n in 0..SHARDS * BUCKETS_MAX * 2 {
            let owner = n.to_string();
            buckets.take(&[Gate { kind: Kind::Key, owner: &owner, per_minute: 10 }], Instant(0));
        }
        let held: usize = buckets.shards.iter().map(|shard| shard.lock().unwrap().len()).sum();
        assert!(held <= SHARDS * BUCKETS_MAX, "{held}");
    }
}
