//! Decides units of work in memory.
//!
//! Knows nothing of databases: the committer hands in the rows that a batch touches ([`Touches`]),
//! each unit is decided on an overlay of its own ([`apply`]), and what is to be written is the
//! difference ([`State::changes`]). Invariant: a unit whose guard is broken or whose rule says no
//! leaves no trace; those accepted are exactly what deciding them one by one, each on a committed
//! database, would have accepted.

mod body;
mod decide;
mod lease;
mod money;
mod rule;
mod size;
mod state;
mod touches;

pub use body::{add_to_body, merge};
pub use rule::rule;
pub use size::{check, claim_fits, key_fits, size, text_fits};
pub use state::{
    Changes, ClaimChange, GroupChange, Head, LogChange, NewEntry, NewFact, RowChange, SpaceChange,
    State, Stored,
};
pub use touches::{RowLock, Touches, Wanted, facts_log, is_of_events, meeting_rows};

use crate::time::Instant;
use crate::unit::{Applied, Rejection, Unit};

/// Decides one unit: on success the state is as if it had been committed, otherwise as before.
pub fn apply(state: &mut State, unit: &Unit, now: Instant) -> Result<Applied, Rejection> {
    let (overlay, applied) = decide::decide(state, unit, now)?;
    state.merge(overlay);
    Ok(applied)
}

#[cfg(test)]
mod tests;
