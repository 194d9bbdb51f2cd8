//! How often one client address may do what needs no credential, or costs others something:
//! registering, signing in, asking for mails, inviting, presenting one-time secrets, calling
//! inbound URLs that do not exist or without their signature.
//!
//! By a steady clock: setting a wall clock changes nothing. Nothing is counted for an e-mail
//! address alone: whoever guesses somebody's password from elsewhere must not keep them out. An
//! attempt costs its tokens while it runs; what succeeds may give them back, so that somebody who
//! knows the password is never locked out by their own work, and a hundred attempts at once are no
//! better than one after the other.

use std::net::IpAddr;
use std::time::Instant;

use charter_kernel::refusal::{Rate, Refusal};

use super::rate::{BucketGate, Buckets, Kind};
use crate::config::Auth;

/// How many times more attempts one client address has than one account: offices share an address.
const ACCOUNTS_PER_ADDRESS: u32 = 20;

/// The share and the deeds of each client address.
pub struct Strangers {
    limits: Auth,
    buckets: Buckets,
}

/// One thing that a client address is about to do, with the buckets that it counts against.
pub struct Attempt(Vec<BucketGate<'static>>);

/// The name by which a client counts. Of an IPv6 address that is its network: each has as many
/// addresses as it likes.
pub fn client(address: IpAddr) -> String {
    match address.to_canonical() {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("{:x}/64", address.to_bits() >> 64),
    }
}

impl Strangers {
    /// With the operator's limits.
    pub fn new(limits: &Auth) -> Self {
        Self { limits: limits.clone(), buckets: Buckets::new() }
    }

    /// A password for the account of `email` (normalised).
    pub fn sign_in(&self, address: IpAddr, email: &str) -> Attempt {
        let (client, attempts) = (client(address), self.limits.attempts_per_minute.max(1));
        let all = attempts.saturating_mul(ACCOUNTS_PER_ADDRESS);
        Attempt(vec![
            BucketGate::per_minute(Kind::SignIn, format!("{client} {email}"), attempts),
            BucketGate::per_minute(Kind::SignInAddress, client, all),
        ])
    }

    /// A mail with a link to `email` (normalised).
    pub fn link(&self, address: IpAddr, email: &str) -> Attempt {
        let (client, attempts) = (client(address), self.limits.attempts_per_minute.max(1));
        Attempt(vec![
            BucketGate::per_minute(Kind::Link, format!("{client} {email}"), attempts),
            BucketGate::per_hour(Kind::LinkAddress, client, self.limits.links_per_hour),
        ])
    }

    /// A registration.
    pub fn registration(&self, address: IpAddr) -> Attempt {
        let quota = self.limits.registrations_per_hour;
        Attempt(vec![BucketGate::per_hour(Kind::Registration, client(address), quota)])
    }

    /// An invitation into an organization.
    pub fn invitation(&self, address: IpAddr) -> Attempt {
        let quota = self.limits.invitations_per_hour;
        Attempt(vec![BucketGate::per_hour(Kind::Invitation, client(address), quota)])
    }

    /// The secret of a link or an invitation.
    pub fn one_time_secret(&self, address: IpAddr) -> Attempt {
        let quota = self.limits.attempts_per_minute.max(1);
        Attempt(vec![BucketGate::per_minute(Kind::OneTimeSecret, client(address), quota)])
    }

    /// A call of an inbound URL that does not exist.
    pub fn unknown_hook(&self, address: IpAddr) -> Attempt {
        let quota = self.limits.unknown_hooks_per_minute;
        Attempt(vec![BucketGate::per_minute(Kind::UnknownHook, client(address), quota)])
    }

    /// A call of this inbound URL that is not signed as it asks. Senders who share an address close
    /// no other URL to each other.
    pub fn unsigned_hook(&self, address: IpAddr, hook: &str) -> Attempt {
        let (owner, quota) =
            (format!("{} {hook}", client(address)), self.limits.unsigned_hooks_per_minute);
        Attempt(vec![BucketGate::per_minute(Kind::UnsignedHook, owner, quota)])
    }

    /// Looks whether an attempt would be admitted; it counts nothing.
    ///
    /// # Errors
    /// 429 where one of its buckets is empty.
    pub fn look(&self, attempt: &Attempt, now: Instant) -> Result<(), Refusal> {
        self.admit(attempt, now)?;
        self.give_back(attempt);
        Ok(())
    }

    /// Counts an attempt.
    ///
    /// # Errors
    /// 429 where one of its buckets is empty; none of them is then counted.
    pub fn admit(&self, attempt: &Attempt, now: Instant) -> Result<(), Refusal> {
        let Some(standing) = self.buckets.take(&attempt.0, now) else { return Ok(()) };
        let Some(wait) = standing.retry_after_s else { return Ok(()) };
        let hint = hint(standing.kind);
        let rate = Rate { policy: standing.policy, left: standing.left };
        Err(Refusal::rate_limited(wait).rate(rate).hint(hint))
    }

    /// Gives an attempt back: it succeeded, or was never made.
    pub fn give_back(&self, attempt: &Attempt) {
        self.buckets.give_back(&attempt.0);
    }
}

fn hint(kind: Kind) -> &'static str {
    match kind {
        Kind::Registration => "Too many registrations from this client address.",
        Kind::Invitation => "Too many invitations from this client address.",
        Kind::Link => "Too many links for this address; wait before the next.",
        Kind::LinkAddress => "Too many links asked for from this client address.",
        Kind::OneTimeSecret => "Too many links that do not exist; wait before the next.",
        Kind::UnknownHook => "Too many calls of inbound URLs that do not exist.",
        Kind::UnsignedHook => "Too many calls of this inbound URL without its signature.",
        _ => "Too many sign-ins for this address; wait before the next.",
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::config::{Config, Layers};

    fn strangers(attempts_per_minute: u32) -> Strangers {
        let auth = Config::read(Layers::default()).expect("the defaults fit").auth;
        Strangers::new(&Auth { attempts_per_minute, ..auth })
    }

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn ten_failures_close_one_account_for_one_address_until_it_refills() {
        let (strangers, now) = (strangers(10), Instant::now());
        let guess = |from: &str, email: &str| strangers.sign_in(address(from), email);
        let first = guess("192.0.2.1", "ann@example.com");
        for _ in 0..10 {
            strangers.admit(&first, now).unwrap();
        }
        let refused = strangers.admit(&first, now).unwrap_err();
        let wait = refused.retry_after_seconds.unwrap();
        assert!((1..=7).contains(&wait), "{wait}");
        let rate = refused.rate.unwrap();
        let told = (rate.policy.as_str(), rate.left.as_str());
        assert_eq!(told, ("\"sign-in\";q=10;w=60", "\"sign-in\";r=0;t=60"));
        assert!(strangers.admit(&guess("192.0.2.2", "ann@example.com"), now).is_ok());
        assert!(strangers.admit(&guess("192.0.2.1", "bob@example.com"), now).is_ok());
        let later = now + Duration::from_secs(u64::from(wait));
        assert!(strangers.admit(&first, later).is_ok());
    }

    #[test]
    fn whoever_knows_the_password_is_never_locked_out() {
        let (strangers, now) = (strangers(10), Instant::now());
        let right = strangers.sign_in(address("192.0.2.1"), "ann@example.com");
        for _ in 0..1_000 {
            strangers.admit(&right, now).unwrap();
            strangers.give_back(&right);
        }
    }

    #[test]
    fn wrong_guesses_from_elsewhere_lock_nobody_out() {
        let (strangers, now) = (strangers(10), Instant::now());
        for elsewhere in 1..=50 {
            let from = address(&format!("198.51.100.{elsewhere}"));
            let guess = strangers.sign_in(from, "ann@example.com");
            while strangers.admit(&guess, now).is_ok() {}
        }
        let own = strangers.sign_in(address("192.0.2.1"), "ann@example.com");
        assert!(strangers.admit(&own, now).is_ok());
    }

    #[test]
    fn the_addresses_of_one_ipv6_network_are_one_client() {
        let (strangers, now) = (strangers(1), Instant::now());
        let guess = |from: &str| strangers.sign_in(address(from), "ann@example.com");
        strangers.admit(&guess("2001:db8:0:1::1"), now).unwrap();
        assert!(strangers.admit(&guess("2001:db8:0:1:ffff::2"), now).is_err());
        assert!(strangers.admit(&guess("2001:db8:0:2::1"), now).is_ok());
        assert_eq!(client(address("::ffff:192.0.2.1")), "192.0.2.1");
    }

    #[test]
    fn one_address_cannot_try_account_after_account() {
        let (strangers, now) = (strangers(10), Instant::now());
        let guess = |from: &str, n: u32| strangers.sign_in(address(from), &format!("{n}@x.test"));
        for account in 0..200 {
            strangers.admit(&guess("192.0.2.1", account), now).unwrap();
        }
        let refused = strangers.admit(&guess("192.0.2.1", 200), now).unwrap_err();
        assert_eq!(refused.rate.unwrap().policy, "\"sign-in-address\";q=200;w=60");
        assert!(strangers.admit(&guess("192.0.2.2", 200), now).is_ok());
    }

    #[test]
    fn each_client_has_its_own_number_of_each_thing_and_is_told_when_to_come_back() {
        let (strangers, now) = (strangers(10), Instant::now());
        type Make = fn(&Strangers, IpAddr) -> Attempt;
        let things: [(Make, u64); 5] = [
            (Strangers::registration, 180),
            (Strangers::invitation, 36),
            (Strangers::unknown_hook, 1),
            (|strangers, from| strangers.unsigned_hook(from, "h"), 1),
            (|strangers, from| strangers.link(from, "ann@example.com"), 6),
        ];
        for (make, wait_s) in things {
            let mine = make(&strangers, address("192.0.2.1"));
            while strangers.look(&mine, now).is_ok() {
                strangers.admit(&mine, now).expect("a look takes nothing");
            }
            let refused = strangers.admit(&mine, now).unwrap_err();
            assert_eq!(refused.retry_after_seconds.map(u64::from), Some(wait_s));
            let other = make(&strangers, address("192.0.2.2"));
            assert!(strangers.admit(&other, now).is_ok(), "another client is not slowed down");
            assert!(strangers.admit(&mine, now + Duration::from_secs(wait_s)).is_ok());
        }
    }
}
