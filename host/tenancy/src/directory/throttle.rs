//! Failed sign-ins per address and e-mail, as token buckets in memory.
//!
//! Nothing is counted for an e-mail address alone: whoever guesses somebody's password from
//! elsewhere must not keep them out.
//!
//! An attempt costs a token while it runs and gets it back when it succeeds, so that somebody who
//! knows the password is never locked out by their own work, and a hundred attempts at once are no
//! better than one after the other. Every key is a hash: the table holds no address and no e-mail.
//! Bounded: at its limit it forgets the buckets that are full again, then the fullest.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use charter_kernel::refusal::Rate;
use charter_kernel::time::Instant;
use sha2::{Digest as _, Sha256};

/// How many buckets are remembered.
const BUCKETS_MAX: usize = 16_384;

/// A bucket's name, size and refill.
#[derive(Clone, Copy)]
struct Allowance {
    name: &'static str,
    attempts: i64,
    refill_ms: i64,
}

impl Allowance {
    fn exceeded(self, over_ms: i64, missing_ms: i64) -> Exceeded {
        let rate = Rate {
            policy: format!("\"{}\";q={};w=60", self.name, self.attempts),
            left: format!("\"{}\";r=0;t={}", self.name, missing_ms.div_euclid(1000) + 1),
        };
        Exceeded { wait_s: u32::try_from(over_ms.div_euclid(1000) + 1).unwrap_or(u32::MAX), rate }
    }
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
    /// A sign-in for `email` (normalised) from `address`. Of an IPv6 address its network counts:
    /// each has as many as it likes.
    pub fn new(address: IpAddr, email: &str) -> Self {
        let whose = match address {
            IpAddr::V4(address) => address.to_string(),
            IpAddr::V6(address) => format!("{:x}/64", address.to_bits() >> 64),
        };
        Self { account: bucket(&["account", &whose, email]), address: bucket(&["address", &whose]) }
    }
}

/// Why an attempt is not admitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exceeded {
    /// Seconds until there is a token, at least 1.
    pub wait_s: u32,
    /// Which bucket is empty.
    pub rate: Rate,
}

impl Throttle {
    /// With so many attempts a minute for one account from one address.
    pub fn new(per_minute: u32) -> Self {
        let attempts = i64::from(per_minute.max(1));
        let allowance = |name, attempts: i64| Allowance {
            name,
            attempts,
            refill_ms: (60_000 / attempts).max(1),
        };
        Self {
            account: allowance("sign-in", attempts),
            address: allowance("sign-in-address", attempts * ACCOUNTS_PER_ADDRESS),
            full_at: Mutex::default(),
        }
    }

    /// Takes a token of each bucket, or says which is empty and for how long.
    ///
    /// # Errors
    /// [`Exceeded`].
    pub fn admit(&self, attempt: &Attempt, now: Instant) -> Result<(), Exceeded> {
        let mut table = self.full_at.lock().unwrap_or_else(PoisonError::into_inner);
        for (key, allowance) in self.buckets(attempt) {
            let missing_ms = table.get(&key).map_or(0, |full_at| (full_at.0 - now.0).max(0));
            let over_ms = missing_ms - (allowance.attempts - 1) * allowance.refill_ms;
            if over_ms > 0 {
                return Err(allowance.exceeded(over_ms, missing_ms));
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

    fn attempt(address: &str, email: &str) -> Attempt {
        Attempt::new(address.parse().unwrap(), email)
    }

    #[test]
    fn ten_failures_close_one_account_for_one_address_until_it_refills() {
        let throttle = Throttle::new(10);
        let now = Instant(1_000_000);
        let guess = attempt("192.0.2.1", "ann@example.com");
        for _ in 0..10 {
            throttle.admit(&guess, now).unwrap();
        }
        let refused = throttle.admit(&guess, now).unwrap_err();
        let wait = refused.wait_s;
        assert!((1..=7).contains(&wait), "{wait}");
        let rate = (refused.rate.policy.as_str(), refused.rate.left.as_str());
        assert_eq!(rate, ("\"sign-in\";q=10;w=60", "\"sign-in\";r=0;t=61"));
        assert!(throttle.admit(&attempt("192.0.2.2", "ann@example.com"), now).is_ok());
        assert!(throttle.admit(&attempt("192.0.2.1", "bob@example.com"), now).is_ok());
        assert!(throttle.admit(&guess, now.plus_ms(i64::from(wait) * 1000)).is_ok());
    }

    #[test]
    fn who_knows_the_password_is_never_locked_out() {
        let throttle = Throttle::new(10);
        let right = attempt("192.0.2.1", "ann@example.com");
        for _ in 0..1_000 {
            throttle.admit(&right, Instant(1_000_000)).unwrap();
            throttle.give_back(&right);
        }
    }

    #[test]
    fn wrong_guesses_from_elsewhere_lock_nobody_out() {
        let throttle = Throttle::new(10);
        let now = Instant(1_000_000);
        for elsewhere in 1..=50 {
            let guess = attempt(&format!("198.51.100.{elsewhere}"), "ann@example.com");
            while throttle.admit(&guess, now).is_ok() {}
        }
        assert!(throttle.admit(&attempt("192.0.2.1", "ann@example.com"), now).is_ok());
    }

    #[test]
    fn the_addresses_of_one_ipv6_network_are_one_client() {
        let throttle = Throttle::new(1);
        let now = Instant(1_000_000);
        throttle.admit(&attempt("2001:db8:0:1::1", "ann@example.com"), now).unwrap();
        assert!(throttle.admit(&attempt("2001:db8:0:1:ffff::2", "ann@example.com"), now).is_err());
        assert!(throttle.admit(&attempt("2001:db8:0:2::1", "ann@example.com"), now).is_ok());
    }

    #[test]
    fn one_address_cannot_try_account_after_account() {
        let throttle = Throttle::new(10);
        let now = Instant(1_000_000);
        for account in 0..200 {
            throttle.admit(&attempt("192.0.2.1", &format!("{account}@example.com")), now).unwrap();
        }
        let refused = throttle.admit(&attempt("192.0.2.1", "new@example.com"), now).unwrap_err();
        assert_eq!(refused.rate.policy, "\"sign-in-address\";q=200;w=60");
        assert!(throttle.admit(&attempt("192.0.2.2", "new@example.com"), now).is_ok());
    }

    #[test]
    fn the_table_is_bounded() {
        let throttle = Throttle::new(1);
        let now = Instant(1_000_000);
        for number in 0..BUCKETS_MAX * 2 {
            let address = std::net::Ipv4Addr::from_bits(number as u32);
            throttle
                .admit(&Attempt::new(address.into(), "a@b.co"), now.plus_ms(number as i64))
                .unwrap();
        }
        assert!(throttle.full_at.lock().unwrap().len() <= BUCKETS_MAX);
    }
}
