//! Writes what a batch decided, in bulk and guarded: as many rows must be affected as were sent.
//!
//! The statements are the same on both databases; PostgreSQL runs all of a batch as one, SQLite one after another. A row's guard
//! is the stamp (holder, revision, head) that was prefetched, kept in the column `was` so that one statement guards them all.

use charter_kernel::apply::{Changes, RowChange, Stored};
use serde::Serialize;
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, Row};

use super::trouble::Trouble;
use crate::dialect::Dialect;
use crate::document::{entries, holder};
use crate::search::{indexed_words, scope_token};

const ROWS_PUT: &str = "INSERT INTO documents (reach, space, id, organization, user_id, body, entries, lease_group, lease_token, \
     version, stamp, was, created_at, updated_at, due_at, lease_count) \
     SELECT k.value->>0, k.value->>1, k.value->>2, k.value->>3, k.value->>4, k.value->>5, k.value->>6, k.value->>7, k.value->>8, \
     CAST(k.value->>9 AS BIGINT), CAST(k.value->>10 AS BIGINT), CAST(k.value->>11 AS BIGINT), CAST(k.value->>12 AS BIGINT), \
     CAST(k.value->>13 AS BIGINT), CAST(k.value->>14 AS BIGINT), CAST(k.value->>15 AS BIGINT) FROM {each:$#} k WHERE 1 = 1 \
     ON CONFLICT (reach, space, id) DO UPDATE SET user_id = excluded.user_id, body = excluded.body, entries = excluded.entries, \
     lease_group = excluded.lease_group, lease_token = excluded.lease_token, version = excluded.version, stamp = excluded.stamp, \
     was = excluded.was, created_at = excluded.created_at, updated_at = excluded.updated_at, due_at = excluded.due_at, \
     lease_count = excluded.lease_count WHERE documents.stamp = excluded.was";
/// A hand-out changes a row's lease alone: its body need not travel.
const LEASES_PUT: &str = "UPDATE documents SET version = CAST(k.value->>3 AS BIGINT), stamp = CAST(k.value->>4 AS BIGINT), \
     was = CAST(k.value->>5 AS BIGINT), updated_at = CAST(k.value->>6 AS BIGINT), due_at = CAST(k.value->>7 AS BIGINT), \
     lease_count = CAST(k.value->>8 AS BIGINT), lease_token = k.value->>9 FROM {each:$#} k \
     WHERE documents.reach = k.value->>0 AND documents.space = k.value->>1 AND documents.id = k.value->>2 \
     AND documents.stamp = CAST(k.value->>5 AS BIGINT)";
const ROWS_REMOVE: &str = "DELETE FROM documents WHERE (reach, space, id, stamp) IN (SELECT k.value->>0, k.value->>1, \
     k.value->>2, CAST(k.value->>3 AS BIGINT) FROM {each:$#} k)";
const INDEX_ADD: &str = "INSERT INTO document_index (reach, space, field, value, id) \
     SELECT k.value->>0, k.value->>1, k.value->>2, k.value->>3, k.value->>4 FROM {each:$#} k WHERE 1 = 1 ON CONFLICT DO NOTHING";
const INDEX_REMOVE: &str = "DELETE FROM document_index WHERE (reach, space, field, value, id) IN (SELECT k.value->>0, \
     k.value->>1, k.value->>2, k.value->>3, k.value->>4 FROM {each:$#} k)";
const CLAIMS_PUT: &str = "INSERT INTO claims (reach, space, name, holder, was) \
     SELECT k.value->>0, k.value->>1, k.value->>2, k.value->>3, k.value->>4 FROM {each:$#} k WHERE 1 = 1 \
     ON CONFLICT (reach, space, name) DO UPDATE SET holder = excluded.holder, was = excluded.was \
     WHERE claims.holder = excluded.was";
const CLAIMS_REMOVE: &str = "DELETE FROM claims WHERE (reach, space, name, holder) IN (SELECT k.value->>0, k.value->>1, \
     k.value->>2, k.value->>3 FROM {each:$#} k)";
const SPACES_PUT: &str = "INSERT INTO revisions (reach, space, revision, was) \
     SELECT k.value->>0, k.value->>1, CAST(k.value->>2 AS BIGINT), CAST(k.value->>3 AS BIGINT) FROM {each:$#} k WHERE 1 = 1 \
     ON CONFLICT (reach, space) DO UPDATE SET revision = excluded.revision, was = excluded.was \
     WHERE revisions.revision = excluded.was";
/// Sizes commute: nobody reads them to decide, so they need no guard.
const GROUPS_ADD: &str = "INSERT INTO group_sizes (reach, space, lease_group, total) \
     SELECT k.value->>0, k.value->>1, k.value->>2, CAST(k.value->>3 AS BIGINT) FROM {each:$#} k WHERE 1 = 1 \
     ON CONFLICT (reach, space, lease_group) DO UPDATE SET total = group_sizes.total + excluded.total";
const LOGS_PUT: &str = "INSERT INTO logs (reach, log, head, closed, was) \
     SELECT k.value->>0, k.value->>1, CAST(k.value->>2 AS BIGINT), CAST(k.value->>3 AS BIGINT), CAST(k.value->>4 AS BIGINT) \
     FROM {each:$#} k WHERE 1 = 1 \
     ON CONFLICT (reach, log) DO UPDATE SET head = excluded.head, closed = excluded.closed, was = excluded.was \
     WHERE logs.head = excluded.was";
const ENTRIES_ADD: &str = "INSERT INTO log_entries (reach, log, sequence, at, name, payload) \
     SELECT k.value->>0, k.value->>1, CAST(k.value->>2 AS BIGINT), CAST(k.value->>3 AS BIGINT), k.value->>4, k.value->>5 \
     FROM {each:$#} k WHERE 1 = 1 ON CONFLICT DO NOTHING";
const FACTS_ADD: &str = "INSERT INTO facts (id, organization, kind, at, name, body, sequence) \
     SELECT k.value->>0, k.value->>1, k.value->>2, CAST(k.value->>3 AS BIGINT), k.value->>4, k.value->>5, \
     CAST(k.value->>6 AS BIGINT) FROM {each:$#} k WHERE 1 = 1";
/// Counts writes of the host's cached spaces; spread over shards, so that lanes do not wait for each other.
const EPOCHS_ADD: &str = "INSERT INTO revisions (reach, space, revision, was) \
     SELECT 'epoch', k.value->>0, 1, 0 FROM {each:$#} k WHERE 1 = 1 \
     ON CONFLICT (reach, space) DO UPDATE SET revision = revisions.revision + 1";
/// What a lane knows its transaction by; see `mark`.
const MARK_PUT: &str = "INSERT INTO revisions (reach, space, revision, was) \
     SELECT 'lane', k.value->>0, CAST(k.value->>1 AS BIGINT), CAST(k.value->>2 AS BIGINT) FROM {each:$#} k WHERE 1 = 1 \
     ON CONFLICT (reach, space) DO UPDATE SET revision = excluded.revision, was = excluded.was";
const TEXT_REMOVE_SQLITE: &str = "DELETE FROM document_text WHERE rowid IN (SELECT d.row FROM json_each($#) k CROSS JOIN documents d \
     WHERE d.reach = k.value->>0 AND d.space = k.value->>1 AND d.id = k.value->>2)";
const TEXT_REMOVE_POSTGRES: &str = "DELETE FROM document_text WHERE (reach, space, id) IN (SELECT k.value->>0, k.value->>1, \
     k.value->>2 FROM {each:$#} k)";
const TEXT_PUT_SQLITE: &str = "INSERT INTO document_text (rowid, scope, words) SELECT d.row, k.value->>3, k.value->>4 \
     FROM json_each($#) k CROSS JOIN documents d WHERE d.reach = k.value->>0 AND d.space = k.value->>1 AND d.id = k.value->>2";
const TEXT_PUT_POSTGRES: &str = "INSERT INTO document_text (reach, space, id, words) SELECT k.value->>0, k.value->>1, k.value->>2, \
     to_tsvector('simple', (k.value->>3) || ' ' || (k.value->>4)) FROM {each:$#} k WHERE 1 = 1 \
     ON CONFLICT (reach, space, id) DO UPDATE SET words = excluded.words";
/// Placeholders for rows and claims that were relied on being absent: who inserts the same waits, and then finds out.
const ABSENT_ROWS_ADD: &str = "INSERT INTO documents (reach, space, id, organization, body, entries, version, stamp, was, \
     created_at, updated_at) SELECT k.value->>0, k.value->>1, k.value->>2, '', '', '', 0, 0, 0, 0, 0 \
     FROM {each:$#} k WHERE 1 = 1 ON CONFLICT DO NOTHING";
const ABSENT_ROWS_REMOVE: &str = "DELETE FROM documents WHERE (reach, space, id) IN (SELECT k.value->>0, k.value->>1, \
     k.value->>2 FROM {each:$#} k) AND stamp = 0";
const ABSENT_CLAIMS_ADD: &str = "INSERT INTO claims (reach, space, name, holder, was) SELECT k.value->>0, k.value->>1, \
     k.value->>2, '', '' FROM {each:$#} k WHERE 1 = 1 ON CONFLICT DO NOTHING";
const ABSENT_CLAIMS_REMOVE: &str = "DELETE FROM claims WHERE (reach, space, name) IN (SELECT k.value->>0, k.value->>1, \
     k.value->>2 FROM {each:$#} k) AND holder = ''";

/// What a writing transaction is known by, to ask after it when its COMMIT got no answer. PostgreSQL only.
pub(super) type Transaction = Option<String>;

/// Writes the changes. `epochs` are the shards of cached spaces that count as written, `mark` what the lane knows the
/// transaction by, where it has to.
pub(super) async fn write(
    connection: &mut AnyConnection,
    dialect: Dialect,
    changes: &Changes<'_>,
    epochs: &[String],
    mark: Option<(String, i64, i64)>,
) -> Result<Transaction, Trouble> {
    let (mut statements, after) = statements(dialect, changes, epochs);
    statements.add(MARK_PUT, mark.as_slice());
    let transaction = match dialect {
        Dialect::Sqlite => {
            one_by_one(connection, dialect, statements).await?;
            None
        }
        Dialect::Postgres => Some(as_one(connection, dialect, statements).await?),
    };
    if !after.0.is_empty() {
        as_one(connection, dialect, after).await?;
    }
    Ok(transaction)
}

/// Statements, what each takes, and how many rows each must affect.
#[derive(Default)]
struct Statements(Vec<(&'static str, String, Option<usize>)>);

impl Statements {
    fn add<T: Serialize>(&mut self, sql: &'static str, items: &[T]) {
        self.add_as(sql, items, Some(items.len()));
    }
    fn add_as<T: Serialize>(&mut self, sql: &'static str, items: &[T], affected: Option<usize>) {
        if !items.is_empty() {
            self.0.push((sql, serde_json::to_string(items).unwrap_or_default(), affected));
        }
    }
}

fn statements(dialect: Dialect, changes: &Changes<'_>, epochs: &[String]) -> (Statements, Statements) {
    let (mut on, mut after) = (Statements::default(), Statements::default());
    let at = |change: &RowChange<'_>| {
        (change.key.reach.as_str().to_owned(), change.key.space.as_str().to_owned(), change.key.id.clone())
    };
    let (mut puts, mut leases, mut removes) = (Vec::new(), Vec::new(), Vec::new());
    let (mut indexed, mut unindexed, mut text_gone, mut text_put) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for change in &changes.rows {
        let (reach, space, id) = (change.key.reach.as_str(), change.key.space.as_str(), change.key.id.as_str());
        match (change.before, change.after) {
            (Some(before), Some(after)) if lease_alone(before, after) => {
                let (row, lease) = (&after.row, after.row.lease.as_ref());
                let (due_at, count) = (lease.map(|lease| lease.due_at.0), lease.map(|lease| lease.count));
                let token = lease.and_then(|lease| lease.token.as_deref());
                leases.push((reach, space, id, row.version, after.stamp, before.stamp, row.updated_at.0, due_at, count, token));
            }
            (before, Some(after)) => puts.push(put(change, before, after)),
            (Some(before), None) => removes.push((reach, space, id, before.stamp)),
            (None, None) => {}
        }
        let index = |stored: Option<&'_ Stored>| stored.map(|stored| stored.row.index.clone()).unwrap_or_default();
        let (old, new) = (index(change.before), index(change.after));
        let entry = |(field, value): &(String, String)| (reach, space, field.clone(), value.clone(), id);
        unindexed.extend(old.iter().filter(|pair| !new.contains(pair)).map(entry));
        indexed.extend(new.iter().filter(|pair| !old.contains(pair)).map(entry));
        let (old, new) = (text(change.before), text(change.after));
        if old != new {
            if old.is_some() && (dialect == Dialect::Sqlite || new.is_none()) {
                text_gone.push(at(change));
            }
            if let Some(new) = new {
                text_put.push((reach, space, id, scope_token(&change.key.reach, &change.key.space), indexed_words(new)));
            }
        }
    }
    let sqlite = dialect == Dialect::Sqlite;
    if !sqlite {
        let keys =
            |key: &&charter_kernel::unit::Key| (key.reach.as_str().to_owned(), key.space.as_str().to_owned(), key.id.clone());
        let rows: Vec<_> = changes.absent_rows.iter().map(keys).collect();
        let claims = changes.absent_claims.iter().map(|claim| (claim.reach.as_str(), &claim.space, &claim.name));
        let claims: Vec<_> = claims.collect();
        on.add(ABSENT_ROWS_ADD, &rows);
        on.add(ABSENT_CLAIMS_ADD, &claims);
        after.add(ABSENT_ROWS_REMOVE, &rows);
        after.add(ABSENT_CLAIMS_REMOVE, &claims);
    }
    // The text index names SQLite's rows by number: it goes before they do, and comes after them.
    on.add_as(if sqlite { TEXT_REMOVE_SQLITE } else { TEXT_REMOVE_POSTGRES }, &text_gone, None);
    on.add(ROWS_PUT, &puts);
    on.add(LEASES_PUT, &leases);
    on.add(ROWS_REMOVE, &removes);
    on.add_as(if sqlite { TEXT_PUT_SQLITE } else { TEXT_PUT_POSTGRES }, &text_put, None);
    on.add(INDEX_REMOVE, &unindexed);
    on.add(INDEX_ADD, &indexed);
    rest(&mut on, changes, epochs);
    (on, after)
}

/// Everything but rows.
fn rest(on: &mut Statements, changes: &Changes<'_>, epochs: &[String]) {
    let (mut claimed, mut free) = (Vec::new(), Vec::new());
    for change in &changes.claims {
        let at = (change.claim.reach.as_str(), &change.claim.space, &change.claim.name);
        let before = change.before.map(holder).unwrap_or_default();
        match change.after {
            Some(after) => claimed.push((at.0, at.1, at.2, holder(after), before)),
            None => free.push((at.0, at.1, at.2, before)),
        }
    }
    on.add(CLAIMS_REMOVE, &free);
    on.add(CLAIMS_PUT, &claimed);
    // Nothing has revision or head -1: what was absent must still be.
    let spaces = changes.spaces.iter().filter(|change| change.before != Some(change.after));
    let spaces = spaces
        .map(|change| (change.reach.as_str(), change.space.as_str(), change.after, change.before.map_or(-1, |was| was as i64)));
    on.add(SPACES_PUT, &spaces.collect::<Vec<_>>());
    let groups = changes.groups.iter().map(|group| (group.reach.as_str(), group.space.as_str(), group.group, group.by));
    on.add(GROUPS_ADD, &groups.collect::<Vec<_>>());
    let logs = changes.logs.iter().map(|change| {
        let (log, after) = (change.log, change.after);
        (log.reach.as_str(), &log.log, after.head, i64::from(after.closed), change.before.map_or(-1, |was| was.head as i64))
    });
    on.add(LOGS_PUT, &logs.collect::<Vec<_>>());
    let entries = changes.entries.iter().map(|entry| {
        let at = (entry.log.reach.as_str(), &entry.log.log, entry.sequence);
        (at.0, at.1, at.2, entry.at.0, &entry.name, &entry.payload)
    });
    on.add(ENTRIES_ADD, &entries.collect::<Vec<_>>());
    let facts = changes.facts.iter().map(|new| {
        let fact = &new.fact;
        (&fact.id, &fact.organization, fact.kind, fact.at.0, &fact.name, &fact.body, new.sequence)
    });
    on.add(FACTS_ADD, &facts.collect::<Vec<_>>());
    on.add(EPOCHS_ADD, &epochs.iter().map(|epoch| (epoch,)).collect::<Vec<_>>());
}

fn put<'a>(change: &RowChange<'a>, before: Option<&'a Stored>, after: &'a Stored) -> impl Serialize + 'a {
    let (key, row, lease) = (change.key, &after.row, after.row.lease.as_ref());
    (
        key.reach.as_str(),
        key.space.as_str(),
        &key.id,
        &after.organization,
        &row.user,
        &row.body,
        entries(after),
        lease.map(|lease| &lease.group),
        lease.and_then(|lease| lease.token.as_ref()),
        row.version,
        after.stamp,
        before.map_or(0, |before| before.stamp),
        row.created_at.0,
        row.updated_at.0,
        lease.map(|lease| lease.due_at.0),
        lease.map(|lease| lease.count),
    )
}

/// Whether nothing but the lease changed, and that within its group.
fn lease_alone(before: &Stored, after: &Stored) -> bool {
    let (Some(old), Some(new)) = (&before.row.lease, &after.row.lease) else { return false };
    let (a, b) = (&before.row, &after.row);
    old.group == new.group
        && a.created_at == b.created_at
        && a.user == b.user
        && a.body == b.body
        && a.index == b.index
        && a.unique == b.unique
        && a.text == b.text
        && before.names == after.names
}

fn text(stored: Option<&Stored>) -> Option<&str> {
    stored.and_then(|stored| stored.row.text.as_deref()).filter(|text| !text.is_empty())
}

async fn one_by_one(connection: &mut AnyConnection, dialect: Dialect, statements: Statements) -> Result<(), Trouble> {
    for (sql, parameter, expected) in statements.0 {
        let sql = dialect.assembled(&[sql], || sql.replace("$#", "$1"));
        let done = sqlx::query(sql).bind(parameter).execute(&mut *connection).await?;
        if expected.is_some_and(|expected| done.rows_affected() != expected as u64) {
            return Err(Trouble::Race);
        }
    }
    Ok(())
}

/// All statements as the clauses of one. They touch distinct rows, so their order does not matter. Combinations are few: they
/// stay prepared.
async fn as_one(connection: &mut AnyConnection, dialect: Dialect, statements: Statements) -> Result<String, Trouble> {
    let parts: Vec<_> = statements.0.iter().map(|(sql, ..)| *sql).collect();
    let sql = dialect.assembled(&parts, || one_text(&parts));
    let mut query = sqlx::query(sql);
    let mut expected = Vec::new();
    for (_, parameter, affected) in statements.0 {
        query = query.bind(parameter);
        expected.push(affected);
    }
    let row: AnyRow = query.fetch_one(connection).await?;
    for (n, expected) in expected.into_iter().enumerate() {
        let affected: i64 = row.try_get(n + 1).map_err(Trouble::from)?;
        if expected.is_some_and(|expected| affected != expected as i64) {
            return Err(Trouble::Race);
        }
    }
    row.try_get(0).map_err(Trouble::from)
}

fn one_text(parts: &[&str]) -> String {
    let mut counts = vec!["CAST(pg_current_xact_id() AS TEXT)".to_owned()];
    let clauses = parts.iter().enumerate().map(|(n, sql)| {
        counts.push(format!("(SELECT count(*) FROM w{n})"));
        format!("w{n} AS ({} RETURNING 1)", sql.replace("$#", &format!("${}", n + 1)))
    });
    let clauses = clauses.collect::<Vec<_>>().join(", ");
    format!("WITH {clauses} SELECT {}", counts.join(", "))
}
