//! Passwords: the rules for a new one, and hashing with Argon2id (RFC 9106).
//!
//! Hashing costs 19 MiB and tens of milliseconds, so it runs on blocking threads, a few at once
//! behind a short queue: a flood of sign-ins is told to come back later and delays no other
//! request. Verifying against no account costs the same as verifying against one.

use std::sync::Arc;

use argon2::Argon2;
use argon2::password_hash::{PasswordHasher as _, PasswordVerifier as _, phc::PasswordHash};
use tokio::sync::Semaphore;

/// The shortest password, in characters (NIST SP 800-63B, 3.1.1).
pub const PASSWORD_CHARACTERS_MIN: usize = 8;
/// The longest password, in bytes: hashing is bounded work.
pub const PASSWORD_BYTES_MAX: usize = 1024;
/// How many hashings may wait for each one that runs.
const WAITING_PER_SLOT: usize = 64;

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
    admitted: Arc<Semaphore>,
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
            admitted: Arc::new(Semaphore::new(slots.saturating_mul(WAITING_PER_SLOT + 1))),
            nobody: hashed("a password that nobody has")?.into(),
        })
    }

    /// The hash to store, as a PHC string.
    ///
    /// # Errors
    /// When too many are waiting, or the operating system fails.
    pub async fn hash(&self, password: String) -> Result<String, PasswordError> {
        self.run(move || hashed(&password)).await?
    }

    /// Whether the password is the one behind `stored`. Takes as long where there is no account.
    ///
    /// # Errors
    /// When too many are waiting, or the operating system fails.
    pub async fn verify(
        &self,
        password: String,
        stored: Option<String>,
    ) -> Result<bool, PasswordError> {
        let exists = stored.is_some();
        let against = stored.unwrap_or_else(|| self.nobody.to_string());
        let fits = self.run(move || matches_hash(&password, &against)).await?;
        Ok(fits && exists)
    }

    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, PasswordError> {
        let _admitted =
            Arc::clone(&self.admitted).try_acquire_owned().map_err(|_| PasswordError::Busy)?;
        let running =
            Arc::clone(&self.running).acquire_owned().await.map_err(|_| PasswordError::Failed)?;
        tokio::task::spawn_blocking(move || {
            // The permit ends with the work, not with a caller that went away.
            let _running = running;
            work()
        })
        .await
        .map_err(|_| PasswordError::Failed)
    }
}

fn hashed(password: &str) -> Result<String, PasswordError> {
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

    #[tokio::test]
    async fn a_password_verifies_against_its_own_hash_only() {
        let passwords = Passwords::new(2).unwrap();
        let stored = passwords.hash("correct horse".into()).await.unwrap();
        assert!(stored.starts_with("$argon2id$"));
        assert!(passwords.verify("correct horse".into(), Some(stored.clone())).await.unwrap());
        assert!(!passwords.verify("wrong horse".into(), Some(stored)).await.unwrap());
        assert!(!passwords.verify("a password that nobody has".into(), None).await.unwrap());
    }

    #[tokio::test]
    async fn a_flood_is_refused_rather_than_queued_without_end() {
        let passwords = Passwords::new(1).unwrap();
        let held = Arc::clone(&passwords.admitted)
            .try_acquire_many_owned(WAITING_PER_SLOT as u32 + 1)
            .unwrap();
        assert!(matches!(passwords.hash("correct horse".into()).await, Err(PasswordError::Busy)));
        drop(held);
        assert!(passwords.hash("correct horse".into()).await.is_ok());
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
