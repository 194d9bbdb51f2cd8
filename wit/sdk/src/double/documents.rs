//! The double of `documents`.

use serde_json::Value;

use super::state::{Row, State, with};
use crate::bindings::charter::primitive::documents::{Document, Order, Page, Query, Test};
use crate::bindings::charter::primitive::types::Failure as Raw;
use crate::documents::CollectionSpec;
use crate::failure::Failure;

/// Documents that one call of `remove_matching` removes.
const REMOVED_MAX: usize = 500;

type Result<T> = std::result::Result<T, Raw>;

pub(super) fn document(id: &str, row: &Row) -> Document {
    Document {
        id: id.into(),
        user: Some("user".into()),
        version: row.version,
        created_at: row.created_at,
        updated_at: row.updated_at,
        body: row.text.clone(),
    }
}

pub(super) fn declared(state: &State, collection: &str) -> Result<CollectionSpec> {
    let missing =
        || Failure::internal(format!("the manifest declares no collection `{collection}`"));
    Ok(*state.declared.get(collection).ok_or_else(missing)?)
}

pub(super) fn member<'a>(body: &'a Value, field: &str) -> Option<&'a Value> {
    field.split('.').try_fold(body, |value, name| value.get(name)).filter(|value| !value.is_null())
}

/// A value as an index compares it: text as it is, a number in decimal.
pub(super) fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// The id of the row that holds a unique value.
fn holder(state: &State, collection: &str, field: &str, value: &str) -> Option<String> {
    let rows = state.rows.get(collection)?.iter();
    rows.filter(|(_, row)| member(&row.body, field).is_some_and(|held| plain(held) == value))
        .map(|(id, _)| id.clone())
        .next()
}

fn check_unique(state: &State, spec: &CollectionSpec, id: &str, body: &Value) -> Result<()> {
    for field in spec.unique {
        let Some(value) = member(body, field) else { continue };
        if holder(state, spec.name, field, &plain(value)).is_some_and(|holder| holder != id) {
            return Err(Failure::duplicate(field, "another document holds the value").into());
        }
    }
    Ok(())
}

pub(crate) fn insert(collection: &str, body: &str, due_at: Option<i64>) -> Result<Document> {
    with(|state| {
        let spec = declared(state, collection)?;
        let id = state.next_id();
        let value = parse(body)?;
        check_unique(state, &spec, &id, &value)?;
        let now = state.now_ms;
        let due_at = due_at.unwrap_or(now);
        let (text, token) = (body.to_owned(), None);
        let row = Row {
            version: 1,
            created_at: now,
            updated_at: now,
            body: value,
            text,
            due_at,
            token,
            count: 0,
        };
        let written = document(&id, &row);
        state.rows.entry(collection.into()).or_default().insert(id, row);
        Ok(written)
    })
}

fn parse(body: &str) -> Result<Value> {
    serde_json::from_str(body).map_err(|error| Failure::from(error).into())
}

pub(crate) fn get(collection: &str, id: &str) -> Result<Option<Document>> {
    with(|state| {
        declared(state, collection)?;
        Ok(state.rows.get(collection).and_then(|rows| rows.get(id)).map(|row| document(id, row)))
    })
}

pub(crate) fn lookup(collection: &str, field: &str, value: &str) -> Result<Option<Document>> {
    let holder = with(|state| {
        let spec = declared(state, collection)?;
        if !spec.unique.contains(&field) {
            return Err(Raw::from(Failure::internal(format!("`{field}` is not declared unique"))));
        }
        Ok(holder(state, collection, field, value))
    })?;
    holder.map_or(Ok(None), |id| get(collection, &id))
}

pub(crate) fn replace(
    collection: &str,
    id: &str,
    body: &str,
    expected: Option<u64>,
) -> Result<Document> {
    with(|state| {
        let spec = declared(state, collection)?;
        let value = parse(body)?;
        check_unique(state, &spec, id, &value)?;
        let now = state.now_ms;
        let row = state.rows.get_mut(collection).and_then(|rows| rows.get_mut(id));
        let row = row.ok_or_else(|| Failure::not_found("document"))?;
        check_version(row, expected)?;
        (row.version, row.updated_at, row.body, row.text) =
            (row.version + 1, now, value, body.to_owned());
        Ok(document(id, row))
    })
}

fn check_version(row: &Row, expected: Option<u64>) -> Result<()> {
    if expected.is_some_and(|expected| expected != row.version) {
        let details = serde_json::json!({ "current_version": row.version });
        return Err(Failure::new("version_conflict", "the document has changed")
            .details(details)
            .into());
    }
    Ok(())
}

pub(crate) fn remove(collection: &str, id: &str, expected: Option<u64>) -> Result<bool> {
    with(|state| {
        declared(state, collection)?;
        let Some(rows) = state.rows.get_mut(collection) else { return Ok(false) };
        if let Some(row) = rows.get(id) {
            check_version(row, expected)?;
        }
        Ok(rows.remove(id).is_some())
    })
}

pub(crate) fn remove_matching(query: &Query) -> Result<bool> {
    let ids = matches(query)?;
    with(|state| {
        let rows = state.rows.entry(query.collection.clone()).or_default();
        ids.iter().take(REMOVED_MAX).for_each(|id| drop(rows.remove(id)));
    });
    Ok(ids.len() > REMOVED_MAX)
}

/// The ids that match, in order.
fn matches(query: &Query) -> Result<Vec<String>> {
    with(|state| {
        let spec = declared(state, &query.collection)?;
        for (field, _) in &query.matching {
            if spec.indexes(field).is_none() {
                return Err(Raw::from(Failure::internal(format!(
                    "`{field}` is not declared as an index"
                ))));
            }
        }
        let rows = state.rows.get(&query.collection).into_iter().flatten();
        let hit = |body: &Value| {
            query.matching.iter().all(|(field, test)| passes(&spec, body, field, test))
        };
        let mut ids: Vec<_> =
            rows.filter(|(_, row)| hit(&row.body)).map(|(id, _)| id.clone()).collect();
        if query.order == Order::Newest {
            ids.reverse();
        }
        Ok(ids)
    })
}

fn passes(spec: &CollectionSpec, body: &Value, field: &str, test: &Test) -> bool {
    let Some(value) = member(body, field).map(plain) else { return false };
    let integer = spec.indexes(field) == Some("integer");
    let compare = |other: &String| match (integer, value.parse::<i64>(), other.parse::<i64>()) {
        (true, Ok(value), Ok(other)) => value.cmp(&other),
        _ => value.cmp(other),
    };
    match test {
        Test::Equal(other) => compare(other).is_eq(),
        Test::Between((least, most)) => {
            least.as_ref().is_none_or(|least| compare(least).is_ge())
                && most.as_ref().is_none_or(|most| compare(most).is_le())
        }
    }
}

pub(crate) fn find(query: &Query) -> Result<Page> {
    let ids = matches(query)?;
    let after = |id: &&String| match (&query.after, query.order) {
        (None, _) => true,
        (Some(after), Order::Newest) => *id < after,
        (Some(after), Order::Oldest) => *id > after,
    };
    let limit = query.limit as usize;
    let rest: Vec<_> = ids.iter().filter(after).skip(query.offset.unwrap_or(0) as usize).collect();
    let page = rest.iter().take(limit);
    let items = page
        .map(|id| Ok(get(&query.collection, id)?.ok_or_else(|| Failure::not_found("document"))?));
    let items = items.collect::<Result<Vec<_>>>()?;
    Ok(Page { next: items.last().map(|last| last.id.clone()), has_more: rest.len() > limit, items })
}

pub(crate) fn count(collection: &str, matching: &[(String, Test)], relaxed: bool) -> Result<u64> {
    let query = Query {
        collection: collection.into(),
        matching: matching.to_vec(),
        order: Order::Newest,
        limit: 0,
        after: None,
        offset: None,
        relaxed,
    };
    Ok(matches(&query)?.len() as u64)
}

pub(crate) fn search(collection: &str, text: &str, limit: u32) -> Result<Vec<Document>> {
    let words: Vec<_> = text.split_whitespace().map(str::to_lowercase).collect();
    with(|state| {
        let spec = declared(state, collection)?;
        let read = |body: &Value| {
            spec.searchable
                .iter()
                .filter_map(|field| member(body, field))
                .map(plain)
                .collect::<Vec<_>>()
                .join(" ")
        };
        let rows = state.rows.get(collection).into_iter().flatten();
        let found = rows.filter(|(_, row)| {
            let text = read(&row.body).to_lowercase();
            words.iter().all(|word| text.contains(word))
        });
        Ok(found.take(limit as usize).map(|(id, row)| document(id, row)).collect())
    })
}

pub(crate) fn add(collection: &str, id: &str, field: &str, amount: i64) -> Result<()> {
    let document = get(collection, id)?.ok_or_else(|| Failure::not_found("document"))?;
    let mut body = parse(&document.body)?;
    let held = body[field].as_i64().unwrap_or(0);
    body[field] = held.saturating_add(amount).into();
    replace(collection, id, &body.to_string(), None).map(drop)
}

pub(crate) fn checkpoint() -> Result<()> {
    with(State::commit);
    Ok(())
}
