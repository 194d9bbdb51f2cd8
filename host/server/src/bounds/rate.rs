//! Token buckets by a steady clock: of keys, organizations and tenant users, where the operator or
//! a kit has set a rate, of inbound URLs, and of strangers ([`super::strangers`]).
//!
//! Buckets live in this process and are bounded in number: a bucket that is full again says nothing
//! and is forgotten first. A bucket's key is a keyed hash, so the table holds no address and no
//! e-mail. Time is an argument and never a wall clock's: setting a clock fills and empties nothing.
//! Of those who share a bucket the one that takes the most leaves half of it, and the others the less the less
//! they take beside that one: all of its rate is theirs who ask, and whoever asks for less finds some, however
//! many take as much as they get.

use std::borrow::Cow;
use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::fmt::Write as _;
use std::hash::BuildHasher as _;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

const SHARDS: usize = 16;
/// Buckets of one shard; above it, those that are full again go, then the fullest.
const BUCKETS_MAX: usize = 8_192;
/// The names by which who asks counts among those who share a bucket: its own, and those around it.
const LEVELS: usize = 3;
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);

/// The owner of a bucket.
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
    /// Sign-ins of one account from one client address.
    SignIn,
    /// Sign-ins of all accounts from one client address.
    SignInAddress,
    /// Registrations from one client address.
    Registration,
    /// Invitations from one client address.
    Invitation,
    /// Mails with a link that one client address asked for, to one e-mail address.
    Link,
    /// Mails with a link that one client address asked for.
    LinkAddress,
    /// One-time secrets that one client address presented.
    OneTimeSecret,
    /// Calls of inbound URLs that do not exist, from one client address.
    UnknownHook,
    /// Calls of one inbound URL, from one client address, that are not signed as it asks.
    UnsignedHook,
}

impl Kind {
    /// Its name in `RateLimit-Policy`.
    pub fn label(self) -> &'static str {
        match self {
            Self::Key => "key",
            Self::Organization => "organization",
            Self::User => "user",
            Self::Hook => "hook",
            Self::SignIn => "sign-in",
            Self::SignInAddress => "sign-in-address",
            Self::Registration => "registration",
            Self::Invitation => "invitation",
            Self::Link => "link",
            Self::LinkAddress => "link-address",
            Self::OneTimeSecret => "one-time-secret",
            Self::UnknownHook => "unknown-hook",
            Self::UnsignedHook => "unsigned-hook",
        }
    }
}

/// One bucket that a request has to pass.
#[derive(Clone, Debug)]
pub struct BucketGate<'a> {
    /// The owner's kind.
    pub kind: Kind,
    /// The owner's id.
    pub owner: Cow<'a, str>,
    /// How many requests a window has; 0: any number.
    pub quota: u32,
    /// The window.
    pub window: Duration,
    /// How many requests may come at once; the whole quota where 0.
    pub burst: u32,
    /// One part in so many of these is for others; 0: none.
    pub kept_part: u32,
    /// The names of the one who asks, of those who share the bucket.
    pub sharers: Option<[Cow<'a, str>; LEVELS]>,
    /// Those whom nobody else keeps from it, where who asks is one of them.
    pub privileged: Option<&'static str>,
}

impl<'a> BucketGate<'a> {
    /// So many in a minute.
    pub fn per_minute(kind: Kind, owner: impl Into<Cow<'a, str>>, quota: u32) -> Self {
        Self {
            kind,
            owner: owner.into(),
            quota,
            window: MINUTE,
            burst: 0,
            kept_part: 0,
            sharers: None,
            privileged: None,
        }
    }

    /// So many in an hour.
    pub fn per_hour(kind: Kind, owner: impl Into<Cow<'a, str>>, quota: u32) -> Self {
        Self { window: HOUR, ..Self::per_minute(kind, owner, quota) }
    }

    /// Of these at most so many at once; the whole quota where 0.
    #[must_use]
    pub fn burst(self, burst: u32) -> Self {
        Self { burst, ..self }
    }

    /// One part in so many of what the bucket holds is for others.
    #[must_use]
    pub fn leaving(self, kept_part: u32) -> Self {
        Self { kept_part, ..self }
    }

    /// By one of those who share them, by its names: the more it took of late beside the one that took the
    /// most, the more it leaves, up to half of what the bucket holds.
    #[must_use]
    pub fn for_sharer<T: Into<Cow<'a, str>>>(self, names: [T; LEVELS]) -> Self {
        Self { sharers: Some(names.map(Into::into)), ..self }
    }

    /// By one of these, who leave nothing on account of what others take: the more of what was taken of late is
    /// theirs together, the more.
    #[must_use]
    pub fn of_privileged(self, privileged: Option<&'static str>) -> Self {
        Self { privileged, ..self }
    }

    /// How many requests may come at once.
    fn size(&self) -> u32 {
        if self.burst > 0 { self.burst.min(self.quota) } else { self.quota }
    }

    /// A full bucket.
    fn bucket(&self, now: Instant) -> Bucket {
        let (size, window_s) = (f64::from(self.size()), self.window.as_secs_f64());
        let per_s = f64::from(self.quota) / window_s;
        let (recent, most) = (0.0, [0.0; LEVELS]);
        Bucket { tokens: size, at: now, size, per_s, window_s, recent, most }
    }

    /// The owners of the buckets that count what who asks takes: by its names, and behind them what those take
    /// together of whom it is one.
    fn owners_of_shares(&self) -> impl Iterator<Item = String> {
        let names = self.sharers.iter().flatten().map(|name| &**name).chain(self.privileged);
        names.enumerate().map(|(level, name)| format!("{}\n{level} {name}", self.owner))
    }

    /// So many of these are for others, where who asks took this part of what the one took that took the most:
    /// not all of them, however few there are.
    fn others_part(&self, of_most: f64) -> f64 {
        let size = self.size();
        let kept = size.checked_div(self.kept_part).map_or(0, |part| part.max(1));
        let kept = f64::from(kept.min(size.saturating_sub(1)));
        let half = f64::from(size / 2);
        kept + (half - kept).max(0.0) * of_most
    }
}

/// The narrowest bucket's standing, for `RateLimit-Policy` and `RateLimit`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateStanding {
    /// The owner's kind.
    pub kind: Kind,
    /// `RateLimit-Policy`.
    pub policy: String,
    /// `RateLimit`.
    pub left: String,
    /// Seconds to wait; absent where the request is admitted.
    pub retry_after_s: Option<u32>,
}

type Shard = HashMap<(Kind, u128), Bucket>;

/// The buckets.
pub struct Buckets {
    shards: Box<[Mutex<Shard>]>,
    hashers: [RandomState; 2],
}

#[derive(Clone, Copy)]
struct Bucket {
    tokens: f64,
    at: Instant,
    size: f64,
    per_s: f64,
    window_s: f64,
    /// About how many were taken in the last window: what was taken earlier fades.
    recent: f64,
    /// The same of the one who shares it that took the most, by each name.
    most: [f64; LEVELS],
}

impl Bucket {
    fn refill(self, now: Instant) -> Self {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        let tokens = (self.tokens + passed * self.per_s).min(self.size);
        let fades = (-passed / self.window_s).exp();
        let (recent, most) = (self.recent * fades, self.most.map(|most| most * fades));
        Self { tokens, at: now.max(self.at), recent, most, ..self }
    }

    fn until_full_s(self) -> f64 {
        (self.size - self.tokens) / self.per_s
    }

    fn take(&mut self) {
        self.tokens -= 1.0;
        self.recent += 1.0;
    }

    fn give_back(&mut self) {
        self.tokens = (self.tokens + 1.0).min(self.size);
        self.recent = (self.recent - 1.0).max(0.0);
    }
}

/// A gate's bucket after one token was asked of it.
struct Taken {
    bucket: Bucket,
    /// So many of its tokens are for others.
    others: f64,
    is_admitted: bool,
}

impl Taken {
    /// Tokens that are left to the gate.
    fn room(&self) -> f64 {
        self.bucket.tokens - self.others
    }

    /// Seconds until there is one.
    fn wait_s(&self, gate: &BucketGate<'_>) -> u32 {
        let wait = ((1.0 - self.room()) / self.bucket.per_s).ceil();
        wait.clamp(1.0, gate.window.as_secs_f64()) as u32
    }
}

impl Default for Buckets {
    fn default() -> Self {
        Self::new()
    }
}

impl Buckets {
    /// No buckets yet; they are made full at their owner's first request.
    pub fn new() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            hashers: [RandomState::new(), RandomState::new()],
        }
    }

    /// Takes one token from each gate's bucket, or none where one is empty. `None` where no gate
    /// has a rate.
    pub fn take(&self, gates: &[BucketGate<'_>], now: Instant) -> Option<RateStanding> {
        let mut narrowest: Option<(&BucketGate<'_>, Taken)> = None;
        let limited = || gates.iter().filter(|gate| gate.quota > 0);
        for (before, gate) in limited().enumerate() {
            let taken = self.take_one(gate, now);
            if !taken.is_admitted {
                limited().take(before).for_each(|earlier| self.give_one_back(earlier));
                return Some(standing(gate, &taken, Some(taken.wait_s(gate))));
            }
            if narrowest.as_ref().is_none_or(|(_, other)| taken.room() < other.room()) {
                narrowest = Some((gate, taken));
            }
        }
        narrowest.map(|(gate, taken)| standing(gate, &taken, None))
    }

    /// Gives back what [`Buckets::take`] took.
    pub fn give_back(&self, gates: &[BucketGate<'_>]) {
        gates.iter().filter(|gate| gate.quota > 0).for_each(|gate| self.give_one_back(gate));
    }

    fn take_one(&self, gate: &BucketGate<'_>, now: Instant) -> Taken {
        // One's own count goes ahead of the bucket's: two at once find no more than one after the other.
        let own = gate.owners_of_shares().map(|owner| {
            self.with(gate, &owner, now, |bucket| {
                bucket.take();
                bucket.recent - 1.0
            })
        });
        let own: Vec<f64> = own.collect();
        let taken = self.with(gate, &gate.owner, now, |bucket| {
            let parts =
                own.iter().zip(bucket.most).map(|(own, most)| own / most.max(*own).max(1.0));
            let together = own.get(LEVELS).map_or(1.0, |own| own / bucket.recent.max(1.0));
            let others = gate.others_part(parts.sum::<f64>() / LEVELS as f64 * together.min(1.0));
            let is_admitted = bucket.tokens >= 1.0 + others;
            if is_admitted {
                bucket.take();
                for (most, own) in bucket.most.iter_mut().zip(&own) {
                    *most = most.max(own + 1.0);
                }
            }
            Taken { bucket: *bucket, others, is_admitted }
        });
        if !taken.is_admitted {
            self.give_back_shares(gate);
        }
        taken
    }

    fn give_one_back(&self, gate: &BucketGate<'_>) {
        self.existing(gate.kind, &gate.owner, Bucket::give_back);
        self.give_back_shares(gate);
    }

    fn give_back_shares(&self, gate: &BucketGate<'_>) {
        for owner in gate.owners_of_shares() {
            self.existing(gate.kind, &owner, Bucket::give_back);
        }
    }

    /// A bucket of the gate's, filled up to now, and made where there is none.
    fn with<R>(
        &self,
        gate: &BucketGate<'_>,
        owner: &str,
        now: Instant,
        look: impl FnOnce(&mut Bucket) -> R,
    ) -> R {
        let key = self.key(owner);
        let mut shard = self.shard(key).lock().unwrap_or_else(PoisonError::into_inner);
        if shard.len() >= BUCKETS_MAX && !shard.contains_key(&(gate.kind, key)) {
            make_room(&mut shard, now);
        }
        let fresh = gate.bucket(now);
        let bucket = shard.entry((gate.kind, key)).or_insert(fresh);
        let Bucket { size, per_s, window_s, .. } = fresh;
        *bucket = Bucket { size, per_s, window_s, ..*bucket }.refill(now);
        look(bucket)
    }

    fn existing(&self, kind: Kind, owner: &str, change: impl FnOnce(&mut Bucket)) {
        let key = self.key(owner);
        let mut shard = self.shard(key).lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bucket) = shard.get_mut(&(kind, key)) {
            change(bucket);
        }
    }

    fn key(&self, owner: &str) -> u128 {
        let [high, low] = &self.hashers;
        u128::from(high.hash_one(owner)) << 64 | u128::from(low.hash_one(owner))
    }

    fn shard(&self, key: u128) -> &Mutex<Shard> {
        &self.shards[usize::try_from(key % SHARDS as u128).unwrap_or(0)]
    }
}

/// Forgets what is full again, and where that is not enough the half that is nearest to it, so that
/// nobody empties the table by filling it.
fn make_room(shard: &mut Shard, now: Instant) {
    shard.retain(|_, bucket| {
        *bucket = bucket.refill(now);
        bucket.tokens < bucket.size
    });
    if shard.len() < BUCKETS_MAX {
        return;
    }
    let mut waits: Vec<f64> = shard.values().map(|bucket| bucket.until_full_s()).collect();
    let middle = waits.len() / 2;
    let (_, median, _) = waits.select_nth_unstable_by(middle, f64::total_cmp);
    let median = *median;
    shard.retain(|_, bucket| bucket.until_full_s() > median);
}

fn standing(gate: &BucketGate<'_>, taken: &Taken, retry_after_s: Option<u32>) -> RateStanding {
    let label = gate.kind.label();
    let until_full = taken.bucket.until_full_s().ceil() as u64;
    let mut policy = String::new();
    let mut left = String::new();
    // Writing to a string cannot fail.
    let _ = write!(policy, "\"{label}\";q={};w={}", gate.quota, gate.window.as_secs());
    let free = taken.room().floor() as u64;
    let _ = write!(left, "\"{label}\";r={free};t={until_full}");
    RateStanding { kind: gate.kind, policy, left, retry_after_s }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate(kind: Kind, owner: &str, per_minute: u32) -> BucketGate<'_> {
        BucketGate::per_minute(kind, owner, per_minute)
    }

    #[test]
    fn a_bucket_empties_and_fills_with_time() {
        let (buckets, start) = (Buckets::new(), Instant::now());
        let gate = [gate(Kind::Key, "k", 60).burst(2)];
        let take =
            |ms| buckets.take(&gate, start + Duration::from_millis(ms)).unwrap().retry_after_s;
        assert_eq!(take(0), None);
        assert_eq!(take(0), None);
        assert_eq!(take(0), Some(1));
        assert_eq!(take(999), Some(1));
        assert_eq!(take(1_000), None);
        assert_eq!(take(500), Some(1), "a request that began earlier fills nothing");
        assert_eq!(take(2_000), None);
    }

    #[test]
    fn a_request_that_one_bucket_refuses_costs_the_others_nothing() {
        let (buckets, now) = (Buckets::new(), Instant::now());
        let wide = gate(Kind::Organization, "o", 2);
        let narrow = gate(Kind::Key, "k", 1);
        let both = [wide.clone(), narrow];
        assert_eq!(buckets.take(&both, now).unwrap().retry_after_s, None);
        for _ in 0..5 {
            assert_eq!(buckets.take(&both, now).unwrap().retry_after_s, Some(60));
        }
        let wide = [wide];
        assert_eq!(buckets.take(&wide, now).unwrap().retry_after_s, None);
        assert!(buckets.take(&wide, now).unwrap().retry_after_s.is_some());
    }

    #[test]
    fn who_leaves_a_part_of_a_bucket_takes_none_of_it() {
        let (buckets, start) = (Buckets::new(), Instant::now());
        let whole = gate(Kind::Organization, "o", 60).burst(8);
        let take = |gate: &BucketGate<'_>, ms| {
            let at = start + Duration::from_millis(ms);
            buckets.take(std::slice::from_ref(gate), at).unwrap().retry_after_s
        };
        let [half, some] = [2, 8].map(|part| whole.clone().leaving(part));
        let taken = (0..20).filter(|_| take(&half, 0).is_none()).count();
        assert_eq!((taken, take(&half, 0)), (4, Some(1)));
        assert_eq!((0..20).filter(|_| take(&some, 0).is_none()).count(), 3);
        assert_eq!((0..20).filter(|_| take(&whole, 0).is_none()).count(), 1);
        assert_eq!(take(&half, 1_000), Some(4), "others' part fills first");
        assert_eq!(take(&whole, 1_000), None);
        let standing = buckets.take(&[gate(Kind::Key, "k", 8).leaving(4)], start).unwrap();
        assert_eq!(standing.left, "\"key\";r=5;t=8");
        for (size, taken) in [(1, 1), (2, 1), (3, 2)] {
            let few = gate(Kind::Hook, "few", size).leaving(8);
            let buckets = Buckets::new();
            let take = |_: &i32| {
                buckets.take(std::slice::from_ref(&few), start).unwrap().retry_after_s.is_none()
            };
            assert_eq!((0..9).filter(take).count(), taken);
        }
    }

    /// Takes one, if the buckets have one.
    fn take(buckets: &Buckets, gate: &BucketGate<'_>, start: Instant, ms: u64) -> bool {
        let at = start + Duration::from_millis(ms);
        buckets.take(std::slice::from_ref(gate), at).unwrap().retry_after_s.is_none()
    }

    #[test]
    fn whoever_asks_alone_has_all_of_a_rate_and_of_two_each_has_half() {
        let (buckets, start) = (Buckets::new(), Instant::now());
        let of = |name: &'static str| {
            gate(Kind::Organization, "o", 60).burst(40).leaving(4).for_sharer([name; 3])
        };
        let many = |gate: &BucketGate<'_>, second: u64| {
            (0..100).filter(|_| take(&buckets, gate, start, second * 1_000)).count()
        };
        assert_eq!(many(&of("a"), 0), 20);
        let alone: usize = (1..301).map(|second| many(&of("a"), second)).sum();
        assert_eq!(alone, 300);
        let [mut one, mut other] = [0; 2];
        for second in 301..901 {
            one += many(&of("a"), second);
            other += many(&of("b"), second);
        }
        assert!(one.abs_diff(other) < 60 && one + other >= 600, "{one} and {other}");
        // A refusal by another gate counts nowhere.
        let both = [of("e"), gate(Kind::Key, "k", 1)];
        for _ in 0..100 {
            buckets.take(&both, start + Duration::from_secs(3_600));
        }
        assert_eq!(many(&of("e"), 3_600), 19);
    }

    #[test]
    fn however_many_flood_a_rate_who_asks_for_less_finds_some() {
        let names = |n: usize, persons: usize| {
            [format!("user {n}"), format!("project {n}"), format!("person {}", n % persons)]
        };
        let floods =
            [(4, 1, 1), (4, 2, 1), (4, 40, 1), (4, 5, 100), (4, 40, 100), (0, 1, 1), (0, 3, 100)];
        let cases = floods.into_iter().flat_map(|(flooder, floods, persons)| {
            let askers = [(16, 4), (16, 16), (16, 0), (0, 4), (0, 16), (0, 0)];
            askers.map(move |(burst, asker)| (burst, flooder, asker, floods, persons))
        });
        for (burst, flooder, asker, floods, persons) in cases {
            let (buckets, start) = (Buckets::new(), Instant::now());
            let of = |names: [String; 3], kept| {
                let gate = gate(Kind::Organization, "o", 600).burst(burst).leaving(kept);
                gate.for_sharer(names).of_privileged((kept == 0).then_some("governors"))
            };
            let flooders: Vec<_> = (0..floods).map(|n| of(names(n, persons), flooder)).collect();
            let asks = of(names(99, 100), asker);
            let mut found = 0;
            for ms in (0..60_000).step_by(50) {
                for flooder in &flooders {
                    while take(&buckets, flooder, start, ms) {}
                }
                found += u32::from(ms % 6_000 == 5_950 && take(&buckets, &asks, start, ms));
            }
            let told = format!("{floods} of {persons} that leave 1/{flooder} of {burst}");
            assert!(found > 6, "who leaves 1/{asker} found {found} beside {told}");
        }
    }

    #[test]
    fn nobody_keeps_the_privileged_from_a_rate_however_much_they_ask_for() {
        for (burst, persons) in [(16, 1), (16, 40), (0, 1), (0, 40)] {
            let (buckets, start) = (Buckets::new(), Instant::now());
            let of = |names: [String; 3], kept| {
                let gate = gate(Kind::Organization, "o", 600).burst(burst).leaving(kept);
                gate.for_sharer(names).of_privileged((kept == 0).then_some("governors"))
            };
            let names = |n: usize| {
                [format!("user {n}"), format!("project {n}"), format!("person {}", n % persons)]
            };
            let flooders: Vec<_> = (0..40).map(|n| of(names(n), 4)).collect();
            let owner = of(["session o", "session o", "o"].map(str::to_owned), 0);
            for ms in (0..30_000).step_by(50) {
                for flooder in &flooders {
                    while take(&buckets, flooder, start, ms) {}
                }
                let found = ms % 1_000 != 0 || take(&buckets, &owner, start, ms);
                assert!(found, "{ms} ms, {burst}, {persons} persons");
            }
        }
    }

    #[test]
    fn no_rate_is_no_bucket_and_headers_name_the_policy() {
        let (buckets, now) = (Buckets::new(), Instant::now());
        assert_eq!(buckets.take(&[gate(Kind::Key, "k", 0)], now), None);
        let standing = buckets.take(&[gate(Kind::Key, "k", 10)], now).unwrap();
        assert_eq!(
            (standing.policy.as_str(), standing.left.as_str()),
            ("\"key\";q=10;w=60", "\"key\";r=9;t=6")
        );
        let standing =
            buckets.take(&[BucketGate::per_hour(Kind::Registration, "a", 20)], now).unwrap();
        assert_eq!(standing.policy, "\"registration\";q=20;w=3600");
    }

    #[test]
    fn the_number_of_buckets_is_bounded_and_the_emptiest_are_remembered() {
        let (buckets, now) = (Buckets::new(), Instant::now());
        let empty = [gate(Kind::SignIn, "guesser", 2)];
        while buckets.take(&empty, now).unwrap().retry_after_s.is_none() {}
        for n in 0..SHARDS * BUCKETS_MAX * 2 {
            buckets.take(&[gate(Kind::Key, &n.to_string(), 10)], now);
        }
        let held: usize = buckets.shards.iter().map(|shard| shard.lock().unwrap().len()).sum();
        assert!(held <= SHARDS * BUCKETS_MAX, "{held}");
        let standing = buckets.take(&empty, now).unwrap();
        assert!(standing.retry_after_s.is_some(), "a flood of others has filled the bucket");
    }
}
