//! Failed sign-ins per address and e-mail, as token buckets in memory.
//!
//! An attempt costs a token while it runs and gets it back when it succeeds, so that somebody who knows the password is never
//! locked out by their own work, and a hundred attempts at once are no better than one after the other. Every key is a hash: the
//! table holds no address and no e-mail. Bounded: at its limit it forgets the buckets that are full again, then the fullest.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use charter_kernel::time::Instant;
use sha2::{Digest as _, Sha256};

/// How many buckets are remembered.
const BUCKETS_MAX: usize = 16_384;

/// A bucket's size and refill.
#[derive(Clone, Copy)]
struct Allowance {
    attempts: i64,
    refill_ms: i64,
}

/// How many times more attempts one address has than one account: offices share an address.
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
    /// With so many attempts a minute for one account from one address.
    pub fn new(per_minute: u32) -> Self {
        let attempts = i64::from(per_minute.max(1));
        let allowance = |attempts: i64| Allowance { attempts, refill_ms: (60_000 / attempts).max(1) };
        Self { account: allowance(attempts), address: allowance(attempts * ACCOUNTS_PER_ADDRESS), full_at: Mutex::default() }
    }

    /// Takes a token of each bucket, or says after how many seconds there is one.
    ///
    /// # Errors
    /// The seconds to wait, at least 1.
    pub fn admit(&self, attempt: &Attempt, now: Instant) -> Result<(), u32> {
        let mut table = self.full_at.lock().unwrap_or_else(PoisonError::into_inner);
        for (key, allowance) in self.buckets(attempt) {
            let missing_ms = table.get(&key).map_or(0, |full_at| (full_at.0 - now.0).max(0));
            let over_ms = missing_ms - (allowance.attempts - 1) * allowance.refill_ms;
            if over_ms > 0 {
                return Err(u32::try_from(over_ms.div_euclid(1000) + 1).unwrap_or(u32::MAX));
            }
        }
        for (key, allowance) in self.buckets(attempt) {
            if table.len() >= BUCKETS_MAX && !table.contains_key(&key) {
                make_room(&mut table, now);
            }
            let full_at = table.entry(key).or_insert(now);
            *full_at = (*full_at).max(now).plus_ms(allowance.refill_ms);
        }
        Ok(())
    }

    /// Gives the tokens back: the attempt succeeded, or was never made.
    pub fn give_back(&self, attempt: &Attempt) {
        let mut table = self.full_at.lock().unwrap_or_else(PoisonError::into_inner);
        for (key, allowance) in self.buckets(attempt) {
            if let Some(full_at) = table.get_mut(&key) {
                *full_at = full_at.plus_ms(-allowance.refill_ms);
            }
        }
    }

    fn buckets(&self, attempt: &Attempt) -> [([u8; 16], Allowance); 2] {
        [(attempt.account, self.account), (attempt.address, self.address)]
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
        }
        let wait = throttle.admit(&attempt, now).unwrap_err();
        assert!((1..=7).contains(&wait), "{wait}");
        assert!(throttle.admit(&Attempt::new("192.0.2.2", "ann@example.com"), now).is_ok());
        assert!(throttle.admit(&Attempt::new("192.0.2.1", "bob@example.com"), now).is_ok());
        assert!(throttle.admit(&attempt, now.plus_ms(i64::from(wait) * 1000)).is_ok());
    }

    #[test]
    fn who_knows_the_password_is_never_locked_out() {
        let throttle = Throttle::new(10);
        let attempt = Attempt::new("192.0.2.1", "ann@example.com");
        for _ in 0..1_000 {
            throttle.admit(&attempt, Instant(1_000_000)).unwrap();
            throttle.give_back(&attempt);
        }
    }

    #[test]
    fn one_address_cannot_try_account_after_account() {
        let throttle = Throttle::new(10);
        let now = Instant(1_000_000);
        for account in 0..200 {
            throttle.admit(&Attempt::new("192.0.2.1", &format!("{account}@example.com")), now).unwrap();
        }
        assert!(throttle.admit(&Attempt::new("192.0.2.1", "new@example.com"), now).is_err());
        assert!(throttle.admit(&Attempt::new("192.0.2.2", "new@example.com"), now).is_ok());
    }

    #[test]
    fn the_table_is_bounded() {
        let throttle = Throttle::new(1);
        let now = Instant(1_000_000);
        for number in 0..BUCKETS_MAX * 2 {
            throttle.admit(&Attempt::new(&number.to_string(), "a@b.co"), now.plus_ms(number as i64)).unwrap();
        }
        assert!(throttle.full_at.lock().unwrap().len() <= BUCKETS_MAX);
    }
}
