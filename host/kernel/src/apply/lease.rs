//! The rules of leases: handed out when due, to one holder at a time, who proves it by the token.
//!
//! A token holds until the row is handed out to another: work that ends a little after its lease,
//! and before anyone else began it, is not lost.

use crate::time::Instant;
use crate::unit::{Key, Lease, Refused, Row};

/// The lease, if the token holds it.
pub(super) fn require<'a>(
    key: &Key,
    row: Option<&'a Row>,
    token: &str,
) -> Result<&'a Lease, Refused> {
    let lease = row.and_then(|row| row.lease.as_ref());
    lease
        .filter(|lease| lease.token.as_deref() == Some(token))
        .ok_or_else(|| Refused::LeaseLost { key: key.clone() })
}

/// After the hand-out.
pub(super) fn hand_out(lease: &Lease, token: &str, until: Instant) -> Lease {
    Lease {
        group: lease.group.clone(),
        due_at: until,
        token: Some(token.into()),
        count: lease.count.saturating_add(1),
    }
}

/// After it was given back; `undo` takes the hand-out back too.
pub(super) fn release(lease: &Lease, due_at: Instant, undo: bool) -> Lease {
    let count = if undo { lease.count.saturating_sub(1) } else { lease.count };
    Lease { group: lease.group.clone(), due_at, token: None, count }
}

/// Put off, unless somebody holds it.
pub(super) fn defer(key: &Key, row: &Row, due_at: Instant, now: Instant) -> Result<Lease, Refused> {
    match &row.lease {
        Some(lease) if lease.token.is_none() || lease.due_at <= now => {
            Ok(Lease { due_at, token: None, ..lease.clone() })
        }
        _ => Err(Refused::LeaseLost { key: key.clone() }),
    }
}
