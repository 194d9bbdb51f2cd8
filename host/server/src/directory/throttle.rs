//! Failed sign-ins per address and e-mail, as token buckets in memory.
//!
//! Only failures cost a token, so that somebody who knows the password is never locked out by their own work. Every key is a
//! hash: the table holds no address and no e-mail. Bounded: at its limit it forgets the buckets that are full again, then the
//! oldest.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use charter_kernel::time::Instant;
use sha2::{Digest as _, Sha256};

/// How many buckets are remembered.
const BUCKETS_MAX: usize = 16_384;

/// A bucket's size and refill.
#[derive(Clone, Copy)]
struct Allowance {
    failures: i64,
    refill_ms: i64,
}

/// How many times more failures one address has than one account: offices share an address.
const ACCOUNTS_PER_ADDRESS: i64 = 20;

/// Remembers failed sign-ins.
pub struct Throttle {
    /// Guessing one account's password from one address.
    account: Allowance,
    /// Trying many accounts from one address.
    address: Allowance,
    /// The moment at which each bucket is full again: a bucket is one number.
    full_at: Mutex<HashMap<[u8; 16], Instant>>,
}

/// The buckets of one sign-in.
pub struct Attempt {
    account: [u8; 16],
    address: [u8; 16],
}

impl Attempt {
    /// A sign-in for `email` (normalised) from `address`.
    pub fn new(address: &str, email: &str) -> Self {
        Self { account: bucket(&["account", address, email]), address: bucket(&["address", address]) }
    }
}

impl Throttle {
    /// With so many failures a minute for one account from one address.
    pub fn new(per_minute: u32) -> Self {
        let failures = i64::from(per_minute.max(1));
        let allowance = |failures: i64| Allowance { failures, refill_ms: (60_000 / failures).max(1) };
        Self { account: allowance(failures), address: allowance(failures * ACCOUNTS_PER_ADDRESS), full_at: Mutex::default() }
    }

    /// Whether a further attempt is allowed; otherwise after how many seconds.
    ///
    /// # Errors
    /// The seconds to wait, at least 1.
    pub fn admit(&self, attempt: &Attempt, now: Instant) -> Result<(), u32> {
        let table = self.full_at.lock().unwrap_or_else(PoisonError::into_inner);
        for (key, allowance) in [(attempt.account, self.account), (attempt.address, self.address)] {
            let full_at = table.get(&key).map_or(now, |at| (*at).max(now));
            let missing_ms = full_at.0 - now.0;
            let over_ms = missing_ms - (allowance.failures - 1) * allowance.refill_ms;
            if over_ms > 0 {
                return Err(u32::try_from(over_ms.div_euclid(1000) + 1).unwrap_or(1));
            }
        }
        Ok(())
    }

    /// Counts a failure.
    pub fn failed(&self, attempt: &Attempt, now: Instant) {
        let mut table = self.full_at.lock().unwrap_or_else(PoisonError::into_inner);
        for (key, allowance) in [(attempt.account, self.account), (attempt.address, self.address)] {
            if table.len() >= BUCKETS_MAX && !table.contains_key(&key) {
                make_room(&mut table, now);
            }
            let at = table.entry(key).or_insert(now);
            *at = (*at).max(now).plus_ms(allowance.refill_ms);
        }
    }
}

fn make_room(table: &mut HashMap<[u8; 16], Instant>, now: Instant) {
    table.retain(|_, full_at| *full_at > now);
    if table.len() >= BUCKETS_MAX {
        // Half of them, the ones nearest to full, so that this is rare.
        let mut moments: Vec<Instant> = table.values().copied().collect();
        let middle = moments.len() / 2;
        let (_, median, _) = moments.select_nth_unstable(middle);
        let median = *median;
        table.retain(|_, full_at| *full_at > median);
    }
}

fn bucket(parts: &[&str]) -> [u8; 16] {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part.as_bytes());
        hash.update([0]);
    }
    let digest: [u8; 32] = hash.finalize().into();
    let mut key = [0; 16];
    key.copy_from_slice(&digest[..16]);
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_failures_close_one_account_for_one_address_until_it_refills() {
        let throttle = Throttle::new(10);
        let now = Instant(1_000_000);
        let attempt = Attempt::new("192.0.2.1", "ann@example.com");
        for _ in 0..10 {
            throttle.admit(&attempt, now).unwrap();
            throttle.failed(&attempt, now);
        }
        let wait = throttle.admit(&attempt, now).unwrap_err();
        assert!((1..=11).contains(&wait), "{wait}");
        assert!(throttle.admit(&Attempt::new("192.0.2.2", "ann@example.com"), now).is_ok());
        assert!(throttle.admit(&Attempt::new("192.0.2.1", "bob@example.com"), now).is_ok());
        assert!(throttle.admit(&attempt, now.plus_ms(i64::from(wait) * 1000)).is_ok());
    }

    #[test]
    fn one_address_cannot_try_account_after_account() {
        let throttle = Throttle::new(10);
        let now = Instant(1_000_000);
        for account in 0..200 {
            throttle.failed(&Attempt::new("192.0.2.1", &format!("{account}@example.com")), now);
        }
        assert!(throttle.admit(&Attempt::new("192.0.2.1", "new@example.com"), now).is_err());
        assert!(throttle.admit(&Attempt::new("192.0.2.2", "new@example.com"), now).is_ok());
    }

    #[test]
    fn the_table_is_bounded() {
        let throttle = Throttle::new(10);
        let now = Instant(1_000_000);
        for number in 0..BUCKETS_MAX * 2 {
            throttle.failed(&Attempt::new(&number.to_string(), "a@b.co"), now.plus_ms(number as i64));
        }
        assert!(throttle.full_at.lock().unwrap().len() <= BUCKETS_MAX);
    }
}
