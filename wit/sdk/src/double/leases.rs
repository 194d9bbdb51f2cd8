//! The double of `leases`. A token holds until its lease's end by the test's clock, or until
//! somebody else is handed the document.

use super::documents::{declared, document, member, plain};
use super::state::{Row, State, with};
use crate::bindings::charter::primitive::leases::{Leased, Standing};
use crate::bindings::charter::primitive::types::Failure as Raw;
use crate::failure::Failure;

/// Documents that one call of `purge` removes.
const PURGED_MAX: usize = 500;

type Result<T> = std::result::Result<T, Raw>;

/// Ids of a group's documents, earliest due first.
fn group_of(state: &State, collection: &str, group: &str) -> Result<Vec<String>> {
    let spec = declared(state, collection)?;
    let by = spec
        .leased_by
        .ok_or_else(|| Failure::internal(format!("`{collection}` is not declared leased")))?;
    let rows = state.rows.get(collection).into_iter().flatten();
    let mut found: Vec<_> = rows
        .filter(|(_, row)| member(&row.body, by).is_some_and(|value| plain(value) == group))
        .map(|(id, row)| (row.due_at, id.clone()))
        .collect();
    found.sort();
    Ok(found.into_iter().map(|(_, id)| id).collect())
}

pub(crate) fn take(collection: &str, group: &str, limit: u32, until: i64) -> Result<Vec<Leased>> {
    with(|state| {
        let ids = group_of(state, collection, group)?;
        let now = state.now_ms;
        let mut taken = Vec::new();
        for id in ids {
            if taken.len() == limit as usize {
                break;
            }
            let serial = state.next_id();
            let Some(row) = state.rows.get_mut(collection).and_then(|rows| rows.get_mut(&id))
            else {
                continue;
            };
            if row.due_at > now {
                continue;
            }
            let token = format!("{collection}~{id}~{serial}");
            (row.due_at, row.token, row.count) = (until, Some(token.clone()), row.count + 1);
            taken.push(Leased { document: document(&id, row), token, count: row.count, until });
        }
        Ok(taken)
    })
}

/// Acts on the row that the token holds.
fn held<T>(token: &str, act: impl FnOnce(&mut State, &str, &str) -> T) -> Result<T> {
    let lost = || Raw::from(Failure::conflict("the lease has ended"));
    let mut parts = token.splitn(3, '~');
    let (Some(collection), Some(id)) = (parts.next(), parts.next()) else { return Err(lost()) };
    with(|state| {
        let row = state.rows.get(collection).and_then(|rows| rows.get(id)).ok_or_else(lost)?;
        if row.token.as_deref() != Some(token) || row.due_at <= state.now_ms {
            return Err(lost());
        }
        Ok(act(state, collection, id))
    })
}

fn change(state: &mut State, collection: &str, id: &str, act: impl FnOnce(&mut Row)) {
    if let Some(row) = state.rows.get_mut(collection).and_then(|rows| rows.get_mut(id)) {
        act(row);
    }
}

pub(crate) fn extend(token: &str, until: i64) -> Result<()> {
    held(token, |state, collection, id| change(state, collection, id, |row| row.due_at = until))
}

pub(crate) fn release(token: &str, due_at: i64) -> Result<()> {
    held(token, |state, collection, id| {
        change(state, collection, id, |row| (row.token, row.due_at) = (None, due_at))
    })
}

pub(crate) fn settle(token: &str) -> Result<()> {
    held(token, |state, collection, id| {
        drop(state.rows.get_mut(collection).and_then(|rows| rows.remove(id)))
    })
}

pub(crate) fn defer(collection: &str, id: &str, due_at: i64) -> Result<()> {
    with(|state| {
        change(state, collection, id, |row| row.due_at = due_at);
        Ok(())
    })
}

pub(crate) fn standing_of(collection: &str, group: &str) -> Result<Standing> {
    with(|state| {
        let ids = group_of(state, collection, group)?;
        let mut standing = Standing { ready: 0, held: 0, waiting: 0, oldest: None };
        for row in ids.iter().filter_map(|id| state.rows.get(collection)?.get(id)) {
            let due = row.due_at <= state.now_ms;
            match (&row.token, due) {
                (Some(_), false) => standing.held += 1,
                (_, true) => standing.ready += 1,
                (None, false) => standing.waiting += 1,
            }
            if row.token.is_none() || due {
                standing.oldest = Some(
                    standing.oldest.map_or(row.created_at, |oldest| oldest.min(row.created_at)),
                );
            }
        }
        Ok(standing)
    })
}

pub(crate) fn purge(collection: &str, group: &str) -> Result<bool> {
    with(|state| {
        let ids = group_of(state, collection, group)?;
        if let Some(rows) = state.rows.get_mut(collection) {
            ids.iter().take(PURGED_MAX).for_each(|id| drop(rows.remove(id)));
        }
        Ok(ids.len() > PURGED_MAX)
    })
}
