//! How people are told of something: the port that governing needs, and that mail serves.

use charter_kernel::refusal::Refusal;
use charter_kernel::time::Instant;
use charter_kernel::unit::Write;

use crate::records::mail::About;

/// Tells people.
pub trait Notices: Send + Sync {
    /// The row that has people told, for the commit of what they are told of; none where nobody can
    /// be told.
    ///
    /// # Errors
    /// When the operating system has no randomness.
    fn notice(&self, about: About, now: Instant) -> Result<Option<Write>, Refusal>;
}
