//! The limits of one unit, checked before it is queued.

use crate::limits::{KEY_BYTES_MAX, UNIT_BYTES_MAX, UNIT_ROWS_MAX};
use crate::unit::{Claim, Draft, Fact, Guard, Key, LogKey, Refused, Unit, Write};

/// Rows and bytes of a unit, for the bounds of queues and batches. Guards count as rows that are
/// read.
pub fn size(unit: &Unit) -> (usize, usize) {
    let taken: usize = unit.takes.iter().map(|take| take.tokens.len()).sum();
    let rows = unit.writes.len() + taken + unit.facts.len() + unit.guards.len();
    let written: usize = unit.writes.iter().map(bytes_of).sum();
    let told: usize =
        unit.facts.iter().map(|fact| fact.id.len() + fact.name.len() + says(fact)).sum();
    (rows, written + told + 128 * rows)
}

fn says(fact: &Fact) -> usize {
    fact.body.len() + fact.private.as_ref().map_or(0, String::len)
}

fn bytes_of(write: &Write) -> usize {
    match write {
        Write::Insert { draft, .. }
        | Write::Replace { draft, .. }
        | Write::Put { draft, .. }
        | Write::Ensure { draft, .. } => {
            let pairs = draft.index.iter().chain(&draft.unique);
            draft.body.len()
                + draft.text.as_ref().map_or(0, String::len)
                + pairs.map(|(f, v)| f.len() + v.len()).sum::<usize>()
        }
        Write::Append { name, payload, .. } => name.len() + payload.len(),
        _ => 0,
    }
}

/// Refuses a unit that touches too much, or a key that not every database can hold.
pub fn check(unit: &Unit) -> Result<(), Refused> {
    let taken: usize = unit.takes.iter().map(|take| take.tokens.len()).sum();
    let too_large = |limit| Err(Refused::TooLarge { limit });
    if unit.writes.len() + taken + unit.facts.len() > UNIT_ROWS_MAX {
        return too_large("1,000 rows written");
    }
    if unit.guards.len() > UNIT_ROWS_MAX || unit.takes.len() > UNIT_ROWS_MAX {
        return too_large("1,000 rows read");
    }
    let told: usize = unit.facts.iter().map(|fact| fact.name.len() + says(fact)).sum();
    if unit.writes.iter().map(bytes_of).sum::<usize>() + told > UNIT_BYTES_MAX {
        return too_large("4 MiB");
    }
    let fits = unit.guards.iter().all(guard_fits)
        && unit.writes.iter().all(write_fits)
        && unit.takes.iter().all(|take| {
            take.reach.as_ref().is_none_or(|reach| name_fits(reach.as_str()))
                && name_fits(take.space.as_str())
                && text_fits(&take.group)
                && take.tokens.iter().all(|token| name_fits(token))
        })
        && unit.facts.iter().all(|fact| {
            let texts = std::iter::once(&fact.body).chain(&fact.private);
            name_fits(&fact.id)
                && text_fits(&fact.organization)
                && name_fits(&fact.name)
                && fact.user.as_ref().is_none_or(|user| name_fits(user))
                && texts.into_iter().all(|text| !text.contains('\0'))
        })
        && text_fits(&unit.organization);
    if fits { Ok(()) } else { too_large("keys of 1 to 512 bytes without NUL") }
}

/// Whether every database can hold the text in a column that is compared: what cannot be held is
/// nowhere to be found.
pub fn text_fits(text: &str) -> bool {
    text.len() <= KEY_BYTES_MAX && !text.contains('\0')
}

fn name_fits(text: &str) -> bool {
    !text.is_empty() && text_fits(text)
}

/// Whether a row can lie there.
pub fn key_fits(key: &Key) -> bool {
    name_fits(key.reach.as_str()) && name_fits(key.space.as_str()) && name_fits(&key.id)
}

/// Whether a row can hold it.
pub fn claim_fits(claim: &Claim) -> bool {
    name_fits(claim.reach.as_str()) && name_fits(&claim.space) && text_fits(&claim.name)
}

fn log_fits(log: &LogKey) -> bool {
    name_fits(log.reach.as_str()) && name_fits(&log.log)
}

fn draft_fits(draft: &Draft) -> bool {
    draft
        .index
        .iter()
        .chain(&draft.unique)
        .all(|(field, value)| name_fits(field) && text_fits(value))
        && draft.lease.as_ref().is_none_or(|(group, _)| text_fits(group))
        && draft.user.as_ref().is_none_or(|user| text_fits(user))
        && !draft.body.contains('\0')
}

fn guard_fits(guard: &Guard) -> bool {
    match guard {
        Guard::Version { key, .. }
        | Guard::Unchanged { key, .. }
        | Guard::Inserted { key, .. }
        | Guard::Stamp { key, .. }
        | Guard::Lease { key, .. } => key_fits(key),
        Guard::Entry { key, field, .. } => key_fits(key) && name_fits(field),
        Guard::Revision { reach, space, .. } => {
            name_fits(reach.as_str()) && name_fits(space.as_str())
        }
        Guard::Claim { claim, .. } => claim_fits(claim),
    }
}

fn write_fits(write: &Write) -> bool {
    match write {
        Write::Insert { key, draft }
        | Write::Replace { key, draft, .. }
        | Write::Put { key, draft }
        | Write::Ensure { key, draft } => key_fits(key) && draft_fits(draft),
        Write::Remove { key, .. }
        | Write::Defer { key, .. }
        | Write::Open { meter: key, .. }
        | Write::Reserve { meter: key, .. }
        | Write::Tally { meter: key, .. }
        | Write::Freeze { account: key, .. } => key_fits(key),
        Write::Transfer { from, to, .. } => key_fits(from) && key_fits(to),
        Write::Add { key, field, .. } => key_fits(key) && text_fits(field),
        Write::Claim { claim, holder } | Write::Unclaim { claim, holder } => {
            claim_fits(claim) && key_fits(holder)
        }
        Write::Append { log, name, payload } => {
            log_fits(log) && text_fits(name) && !payload.contains('\0')
        }
        Write::Close { log } => log_fits(log),
        Write::Extend { key, token, .. }
        | Write::Release { key, token, .. }
        | Write::Settle { key, token } => key_fits(key) && text_fits(token),
    }
}
