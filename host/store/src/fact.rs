//! A fact as it is written: its kind's name in the table, and an audit row's own randomness.

use charter_kernel::audit;
use charter_kernel::unit::{Fact, FactKind};

/// The column `kind`, as serde writes it in the committer's bulk statement.
pub(crate) fn kind_name(kind: FactKind) -> &'static str {
    match kind {
        FactKind::Event => "event",
        FactKind::Audit => "audit",
    }
}

/// An audit row as it is committed, with an id and a salt of its own.
///
/// # Errors
/// When the operating system has no randomness.
pub fn audit_fact(row: &audit::AuditRow<'_>) -> Result<Fact, getrandom::Error> {
    let mut random = [0; audit::RANDOM_BYTES];
    getrandom::fill(&mut random)?;
    Ok(row.fact(random))
}
