//! Passwords: the rules for a new one, and hashing with Argon2id (RFC 9106).
//!
//! Hashing costs 19 MiB and tens of milliseconds, so it runs on blocking threads, a few at once
//! behind short queues: a flood is told to come back later and delays no other request. New
//! passwords wait in a queue of their own and take half of the places at most, so that no number of
//! registrations keeps a sign-in waiting; of either queue one client fills a small part. Verifying
//! against no account costs the same as verifying against one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use argon2::Argon2;
use argon2::password_hash::{PasswordHasher as _, PasswordVerifier as _, phc::PasswordHash};
use tokio::sync::Semaphore;

/// The shortest password, in characters (NIST SP 800-63B, 3.1.1).
pub const PASSWORD_CHARACTERS_MIN: usize = 8;
/// The longest password, in bytes: hashing is bounded work.
pub const PASSWORD_BYTES_MAX: usize = 1024;
/// How many hashings may wait for each one that runs.
const WAITING_PER_SLOT: usize = 64;
/// The part of a queue that one client may fill: one of so many.
const CLIENT_SHARE: usize = 8;

/// Why a new password is not accepted.
pub fn fault(password: &str, email: &str) -> Option<&'static str> {
    let first = password.chars().next();
    if password.chars().count() < PASSWORD_CHARACTERS_MIN {
        Some("must have at least 8 characters")
    } else if password.len() > PASSWORD_BYTES_MAX {
        Some("must have at most 1024 bytes")
    } else if password.chars().all(|character| Some(character) == first) {
        Some("must not repeat a single character")
    } else if password.eq_ignore_ascii_case(email) {
        Some("must not be the e-mail address")
    } else {
        None
    }
}

/// Why a hashing was not done.
#[derive(Debug, thiserror::Error)]
pub enum PasswordError {
    /// Too many are waiting; come back in a second.
    #[error("too many passwords are being checked")]
    Busy,
    /// The operating system or the runtime failed.
    #[error("hashing a password failed")]
    Failed,
}

/// Hashes and verifies passwords, a bounded number at once.
#[derive(Clone)]
pub struct Passwords {
    running: Arc<Semaphore>,
    /// Passwords that are checked.
    checked: Queue,
    /// Passwords that are to be somebody's from now on.
    new: Queue,
    /// The hash of a password that nobody has.
    nobody: Arc<str>,
}

impl Passwords {
    /// With `slots` hashings at once.
    ///
    /// # Errors
    /// When the operating system gives no randomness.
    pub fn new(slots: usize) -> Result<Self, PasswordError> {
        let slots = slots.max(1);
        Ok(Self {
            running: Arc::new(Semaphore::new(slots)),
            checked: Queue::new(slots, slots),
            new: Queue::new(slots, slots.div_ceil(2)),
            nobody: compute_hash("a password that nobody has")?.into(),
        })
    }

    /// The hash to store, as a PHC string, for this client.
    ///
    /// # Errors
    /// When too many are waiting, or the operating system fails.
    pub async fn hash(&self, client: &str, password: String) -> Result<String, PasswordError> {
        self.run(&self.new, client, move || compute_hash(&password)).await?
    }

    /// Whether the password that this client sent is the one behind `stored`. Takes as long where
    /// there is no account.
    ///
    /// # Errors
    /// When too many are waiting, or the operating system fails.
    pub async fn verify(
        &self,
        client: &str,
        password: String,
        stored: Option<String>,
    ) -> Result<bool, PasswordError> {
        let exists = stored.is_some();
        let against = stored.unwrap_or_else(|| self.nobody.to_string());
        let fits =
            self.run(&self.checked, client, move || matches_hash(&password, &against)).await?;
        Ok(fits && exists)
    }

    async fn run<T: Send + 'static>(
        &self,
        queue: &Queue,
        client: &str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, PasswordError> {
        let _place = queue.enter(client)?;
        let permit = async |of: &Arc<Semaphore>| {
            Arc::clone(of).acquire_owned().await.map_err(|_| PasswordError::Failed)
        };
        let in_turn = permit(&queue.running).await?;
        let running = permit(&self.running).await?;
        tokio::task::spawn_blocking(move || {
            // The permits end with the work, not with a caller that went away.
            let _running = (in_turn, running);
            work()
        })
        .await
        .map_err(|_| PasswordError::Failed)
    }
}

/// The waiting of one kind of hashing. Cheap to clone.
#[derive(Clone)]
struct Queue {
    /// Of the places that all hashings share, how many this kind takes at once.
    running: Arc<Semaphore>,
    /// How many run and wait, by client.
    waiting: Arc<Mutex<HashMap<Box<str>, usize>>>,
    waiting_max: usize,
}

/// One client's place in a queue; given up when this is dropped.
struct Place {
    queue: Queue,
    client: Box<str>,
}

impl Queue {
    fn new(slots: usize, running_max: usize) -> Self {
        Self {
            running: Arc::new(Semaphore::new(running_max)),
            waiting: Arc::default(),
            waiting_max: slots.saturating_mul(WAITING_PER_SLOT + 1),
        }
    }

    fn enter(&self, client: &str) -> Result<Place, PasswordError> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let own = waiting.get(client).copied().unwrap_or(0);
        let all: usize = waiting.values().sum();
        if all >= self.waiting_max || own >= self.waiting_max.div_ceil(CLIENT_SHARE) {
            return Err(PasswordError::Busy);
        }
        waiting.insert(client.into(), own + 1);
        Ok(Place { queue: self.clone(), client: client.into() })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut waiting = self.queue.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        match waiting.get_mut(&self.client) {
            Some(own) if *own > 1 => *own -= 1,
            _ => drop(waiting.remove(&self.client)),
        }
    }
}

fn compute_hash(password: &str) -> Result<String, PasswordError> {
    let hash: PasswordHash =
        Argon2::default().hash_password(password.as_bytes()).map_err(|_| PasswordError::Failed)?;
    Ok(hash.to_string())
}

fn matches_hash(password: &str, stored: &str) -> bool {
    // A password that no hash was ever made of is not worth hashing, and no existing account has
    // one.
    let password = if password.len() > PASSWORD_BYTES_MAX { "" } else { password };
    PasswordHash::new(stored)
        .is_ok_and(|hash| Argon2::default().verify_password(password.as_bytes(), &hash).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: &str = "192.0.2.1";

    #[tokio::test]
    async fn a_password_verifies_against_its_own_hash_only() {
        let passwords = Passwords::new(2).unwrap();
        let stored = passwords.hash(CLIENT, "correct horse".into()).await.unwrap();
        assert!(stored.starts_with("$argon2id$"));
        let verify = |password: &str, stored: Option<&String>| {
            passwords.verify(CLIENT, password.into(), stored.cloned())
        };
        assert!(verify("correct horse", Some(&stored)).await.unwrap());
        assert!(!verify("wrong horse", Some(&stored)).await.unwrap());
        assert!(!verify("a password that nobody has", None).await.unwrap());
    }

    #[tokio::test]
    async fn a_flood_is_refused_rather_than_queued_without_end() {
        let queue = Queue::new(1, 1);
        let places: Vec<Place> =
            (0..WAITING_PER_SLOT + 1).map(|n| queue.enter(&n.to_string()).unwrap()).collect();
        assert!(matches!(queue.enter("another"), Err(PasswordError::Busy)));
        drop(places);
        assert!(queue.enter("another").is_ok());
        assert!(queue.waiting.lock().unwrap().is_empty());
    }

    #[tokio::test]
    async fn one_client_leaves_places_for_the_others() {
        let queue = Queue::new(4, 4);
        let own: Vec<_> = std::iter::from_fn(|| queue.enter(CLIENT).ok()).collect();
        assert!(own.len() <= 4 * (WAITING_PER_SLOT + 1) / CLIENT_SHARE + 1, "{}", own.len());
        assert!(queue.enter("192.0.2.2").is_ok());
    }

    #[tokio::test]
    async fn new_passwords_keep_nobody_from_signing_in() {
        let passwords = Passwords::new(2).unwrap();
        let stored = passwords.hash(CLIENT, "correct horse".into()).await.unwrap();
        // As many as wait, from everywhere; each holds its place until the end of the test.
        let _registrations: Vec<Place> =
            (0..).map_while(|n: u32| passwords.new.enter(&n.to_string()).ok()).collect();
        let _running = Arc::clone(&passwords.new.running).try_acquire_many_owned(1).unwrap();
        assert!(matches!(
            passwords.hash(CLIENT, "correct horse".into()).await,
            Err(PasswordError::Busy)
        ));
        assert!(passwords.verify(CLIENT, "correct horse".into(), Some(stored)).await.unwrap());
        assert_eq!(passwords.new.running.available_permits(), 0, "new ones take half the places");
    }

    #[test]
    fn the_rules_name_what_is_wrong() {
        assert!(fault("short", "a@b.co").is_some());
        assert!(fault(&"x".repeat(1025), "a@b.co").is_some());
        assert!(fault("aaaaaaaaaa", "a@b.co").is_some());
        assert!(fault("Ann@Example.com", "ann@example.com").is_some());
        assert!(fault("correct horse", "a@b.co").is_none());
        assert!(fault("pässwörd", "a@b.co").is_none());
    }
}
