//! Writes what a batch decided, in bulk and guarded: as many rows must be affected as were sent.
//!
//! The statements are the same on both databases. The guards are of what was prefetched: a row's
//! stamp, a claim's holder, a space's revision, a log's head; or that there was none.
//!
//! All that was there is locked already. A committer that puts in what another one has just put in waits
//! for it: so all of a kind goes in by one statement, in order, be it written or only relied on being
//! absent, and nothing is changed that came into being since the prefetch.

use std::collections::BTreeMap;

use charter_kernel::apply::{Changes, LogChange, RowChange, Stored};
use charter_kernel::unit::{Claim, Key};

use super::each::{self, Cell, Cells, Each, cells};
use super::trouble::Trouble;
use crate::dialect::Dialect;
use crate::document::{entries, holder};
use crate::fact::kind_name;
use crate::search::{index_words, scope_token};
use crate::sql::Connection;

const ROWS_INSERT: &str = "INSERT INTO documents (reach, space, id, organization, user_id, body, entries, lease_group, lease_token, \
     version, stamp, created_at, updated_at, due_at, lease_count) \
     SELECT {t0}, {t1}, {t2}, {t3}, {t4}, {t5}, {t6}, {t7}, {t8}, \
     {n9}, {n10}, {n11}, {n12}, {n13}, {n14} FROM {each} k WHERE 1 = 1 ON CONFLICT DO NOTHING";
const ROWS_UPDATE: &str = "UPDATE documents SET organization = {t3}, user_id = {t4}, body = {t5}, entries = {t6}, lease_group = {t7}, \
     lease_token = {t8}, version = {n9}, stamp = {n10}, created_at = {n11}, updated_at = {n12}, due_at = {n13}, \
     lease_count = {n14} FROM {each} k WHERE documents.reach = {t0} AND documents.space = {t1} AND documents.id = {t2} \
     AND documents.stamp = {n15}";
/// Of a row without a lease, which no index but its key's holds: SQLite looks at every index of a
/// column that is set.
const CONTENTS_UPDATE: &str = "UPDATE documents SET user_id = {t3}, body = {t4}, entries = {t5}, version = {n6}, stamp = {n7}, \
     updated_at = {n8} FROM {each} k WHERE documents.reach = {t0} AND documents.space = {t1} AND documents.id = {t2} \
     AND documents.stamp = {n9}";
/// A hand-out changes a row's lease alone: its body need not travel.
const LEASES_PUT: &str = "UPDATE documents SET version = {n3}, stamp = {n4}, updated_at = {n6}, due_at = {n7}, \
     lease_count = {n8}, lease_token = {t9} FROM {each} k \
     WHERE documents.reach = {t0} AND documents.space = {t1} AND documents.id = {t2} \
     AND documents.stamp = {n5}";
const ROWS_REMOVE: &str = "DELETE FROM documents WHERE (reach, space, id, stamp) IN (SELECT {t0}, {t1}, \
     {t2}, {n3} FROM {each} k)";
const INDEX_ADD: &str = "INSERT INTO document_index (reach, space, field, value, id) \
     SELECT {t0}, {t1}, {t2}, {t3}, {t4} FROM {each} k WHERE 1 = 1 ON CONFLICT DO NOTHING";
const INDEX_REMOVE: &str = "DELETE FROM document_index WHERE (reach, space, field, value, id) IN (SELECT {t0}, \
     {t1}, {t2}, {t3}, {t4} FROM {each} k)";
const CLAIMS_INSERT: &str = "INSERT INTO claims (reach, space, name, holder, was) \
     SELECT {t0}, {t1}, {t2}, {t3}, '' FROM {each} k WHERE 1 = 1 ON CONFLICT DO NOTHING";
const CLAIMS_UPDATE: &str = "UPDATE claims SET holder = {t3} FROM {each} k WHERE claims.reach = {t0} \
     AND claims.space = {t1} AND claims.name = {t2} AND claims.holder = {t4}";
/// A row that goes takes its claims along, which nobody has asked for ahead: who holds one of them may
/// wait for what this transaction holds, so that it does not wait in turn, and comes again.
const CLAIMS_REMOVE: &str = "DELETE FROM claims WHERE (reach, space, name) IN (SELECT d.reach, d.space, d.name \
     FROM {each} k CROSS JOIN claims d WHERE d.reach = {t0} AND d.space = {t1} AND d.name = {t2} \
     AND d.holder = {t3} {at_once})";
const SPACES_INSERT: &str = "INSERT INTO revisions (reach, space, revision, was) \
     SELECT {t0}, {t1}, {n2}, -1 FROM {each} k WHERE 1 = 1 ON CONFLICT DO NOTHING";
const SPACES_UPDATE: &str = "UPDATE revisions SET revision = {n2} FROM {each} k WHERE revisions.reach = {t0} \
     AND revisions.space = {t1} AND revisions.revision = {n3}";
/// Sizes commute: nobody reads them to decide, so they need no guard.
const GROUPS_ADD: &str = "INSERT INTO group_sizes (reach, space, lease_group, total) \
     SELECT {t0}, {t1}, {t2}, {n3} FROM {each} k WHERE 1 = 1 \
     ON CONFLICT (reach, space, lease_group) DO UPDATE SET total = group_sizes.total + excluded.total";
const LOGS_INSERT: &str = "INSERT INTO logs (reach, log, head, closed, was) \
     SELECT {t0}, {t1}, {n2}, {n3}, -1 FROM {each} k WHERE 1 = 1 ON CONFLICT DO NOTHING";
const LOGS_UPDATE: &str = "UPDATE logs SET head = {n2}, closed = {n3} FROM {each} k WHERE logs.reach = {t0} \
     AND logs.log = {t1} AND logs.head = {n4}";
const ENTRIES_ADD: &str = "INSERT INTO log_entries (reach, log, sequence, at, name, payload) \
     SELECT {t0}, {t1}, {n2}, {n3}, {t4}, {t5} \
     FROM {each} k WHERE 1 = 1 ON CONFLICT DO NOTHING";
const FACTS_ADD: &str = "INSERT INTO facts (id, organization, kind, at, name, body, sequence, private, user_id) \
     SELECT {t0}, {t1}, {t2}, {n3}, {t4}, {t5}, \
     {n6}, {t7}, {t8} FROM {each} k WHERE 1 = 1";
/// Counts writes of the host's cached spaces; spread over shards, so that lanes do not wait for
/// each other.
const EPOCHS_ADD: &str = "INSERT INTO revisions (reach, space, revision, was) \
     SELECT 'epoch', {t0}, 1, 0 FROM {each} k WHERE 1 = 1 \
     ON CONFLICT (reach, space) DO UPDATE SET revision = revisions.revision + 1";
/// The mark that a lane knows its transaction by; see `mark`.
const MARK_PUT: &str = "INSERT INTO revisions (reach, space, revision, was) \
     SELECT 'lane', {t0}, {n1}, {n2} FROM {each} k WHERE 1 = 1 \
     ON CONFLICT (reach, space) DO UPDATE SET revision = excluded.revision, was = excluded.was";
const TEXT_REMOVE_SQLITE: &str = "DELETE FROM document_text WHERE rowid IN (SELECT d.row FROM {each} k CROSS JOIN documents d \
     WHERE d.reach = {t0} AND d.space = {t1} AND d.id = {t2})";
const TEXT_REMOVE_POSTGRES: &str = "DELETE FROM document_text WHERE (reach, space, id) IN (SELECT {t0}, {t1}, \
     {t2} FROM {each} k)";
const TEXT_PUT_SQLITE: &str = "INSERT INTO document_text (rowid, scope, words) SELECT d.row, {t3}, {t4} \
     FROM {each} k CROSS JOIN documents d WHERE d.reach = {t0} AND d.space = {t1} AND d.id = {t2}";
const TEXT_PUT_POSTGRES: &str = "INSERT INTO document_text (reach, space, id, words) SELECT {t0}, {t1}, {t2}, \
     to_tsvector('simple', ({t3}) || ' ' || ({t4})) FROM {each} k WHERE 1 = 1 \
     ON CONFLICT (reach, space, id) DO UPDATE SET words = excluded.words";
/// Placeholders for rows and claims that were relied on being absent go before the commit: who inserts
/// the same waits until then, and finds out.
const ABSENT_ROWS_REMOVE: &str = "DELETE FROM documents WHERE (reach, space, id) IN (SELECT {t0}, {t1}, \
     {t2} FROM {each} k) AND stamp = 0";
const ABSENT_CLAIMS_REMOVE: &str = "DELETE FROM claims WHERE (reach, space, name) IN (SELECT {t0}, {t1}, \
     {t2} FROM {each} k) AND holder = ''";

/// The name of a writing transaction, to ask after it when its COMMIT got no answer. PostgreSQL
/// only.
pub(super) type Transaction = Option<String>;

/// Writes the changes. `epochs` are the shards of cached spaces that count as written, `mark` what
/// the lane knows the transaction by, where it has to.
pub(super) async fn write(
    connection: &mut Connection,
    dialect: Dialect,
    changes: &Changes<'_>,
    epochs: &[String],
    mark: Option<(String, i64, i64)>,
) -> Result<Transaction, Trouble> {
    let (mut statements, after) = statements(dialect, changes, epochs);
    statements
        .add(MARK_PUT, mark.map(|(lane, batch, at)| cells![lane, batch, at]).into_iter().collect());
    let transaction = statements.run(connection, dialect).await?;
    if !after.each.is_empty() {
        after.run(connection, dialect).await?;
    }
    Ok(transaction)
}

/// Statements, and how many rows each must affect.
#[derive(Default)]
struct Statements<'a> {
    each: Vec<Each<'a>>,
    expected: Vec<Option<usize>>,
}

impl<'a> Statements<'a> {
    fn add(&mut self, text: &'static str, rows: Vec<Cells<'a>>) {
        let expected = Some(rows.len());
        self.add_as(text, rows, expected);
    }

    /// Inserts what is new, and updates the rest where it is as it was before.
    fn add_stated<B: Into<Cell<'a>>>(
        &mut self,
        (insert, update): (&'static str, &'static str),
        rows: impl Iterator<Item = (Cells<'a>, Option<B>)>,
    ) {
        let (mut inserts, mut updates) = (Vec::new(), Vec::new());
        for (mut cells, before) in rows {
            match before {
                None => inserts.push(cells),
                Some(before) => {
                    cells.push(before.into());
                    updates.push(cells);
                }
            }
        }
        self.add(insert, inserts);
        self.add(update, updates);
    }

    fn add_as(&mut self, text: &'static str, rows: Vec<Cells<'a>>, expected: Option<usize>) {
        if !rows.is_empty() {
            self.each.push(Each { text, rows, bytes_max: usize::MAX });
            self.expected.push(expected);
        }
    }

    /// Runs all of them; says what the transaction is known by.
    async fn run(
        self,
        connection: &mut Connection,
        dialect: Dialect,
    ) -> Result<Transaction, Trouble> {
        let (affected, transaction) =
            each::write(connection, dialect, &self.each, "CAST(pg_current_xact_id() AS TEXT)")
                .await?;
        let fits = |(affected, expected): (u64, Option<usize>)| {
            expected.is_none_or(|expected| affected == expected as u64)
        };
        if affected.into_iter().zip(self.expected).all(fits) {
            Ok(transaction)
        } else {
            Err(Trouble::Race)
        }
    }
}

/// Rows of the statements that change documents, by what becomes of each.
#[derive(Default)]
struct Documents<'a> {
    inserts: BTreeMap<&'a Key, Cells<'a>>,
    updates: Vec<Cells<'a>>,
    contents: Vec<Cells<'a>>,
    leases: Vec<Cells<'a>>,
    removes: Vec<Cells<'a>>,
    indexed: Vec<Cells<'a>>,
    unindexed: Vec<Cells<'a>>,
    text_gone: Vec<Cells<'a>>,
    text_put: Vec<Cells<'a>>,
}

impl<'a> Documents<'a> {
    fn add_row(&mut self, change: &RowChange<'a>, sqlite: bool) {
        let (reach, space, id) =
            (change.key.reach.as_str(), change.key.space.as_str(), change.key.id.as_str());
        match (change.before, change.after) {
            (Some(before), Some(after)) if lease_alone(before, after) => {
                let (row, lease) = (&after.row, after.row.lease.as_ref());
                let (due_at, count) =
                    (lease.map(|lease| lease.due_at.0), lease.map(|lease| i64::from(lease.count)));
                let token = lease.and_then(|lease| lease.token.as_deref());
                let stamps = (after.stamp, before.stamp);
                self.leases.push(cells![
                    reach,
                    space,
                    id,
                    row.version,
                    stamps.0,
                    stamps.1,
                    row.updated_at.0,
                    due_at,
                    count,
                    token
                ]);
            }
            (Some(before), Some(after)) if sqlite && contents_alone(before, after) => {
                let row = &after.row;
                let (user, entries) = (row.user.as_deref(), entries(after));
                let stamps = (after.stamp, before.stamp);
                let (version, at) = (row.version, row.updated_at.0);
                self.contents.push(cells![
                    reach, space, id, user, &row.body, entries, version, stamps.0, at, stamps.1
                ]);
            }
            (Some(before), Some(after)) => {
                let mut row = whole(change.key, after);
                row.push(before.stamp.into());
                self.updates.push(row);
            }
            (None, Some(after)) => {
                self.inserts.insert(change.key, whole(change.key, after));
            }
            (Some(before), None) => self.removes.push(cells![reach, space, id, before.stamp]),
            (None, None) => {}
        }
    }

    fn add_index(&mut self, change: &RowChange<'a>, sqlite: bool) {
        let (reach, space, id) =
            (change.key.reach.as_str(), change.key.space.as_str(), change.key.id.as_str());
        let index = |stored: Option<&'a Stored>| {
            stored.map(|stored| stored.row.index.as_slice()).unwrap_or_default()
        };
        let (old, new) = (index(change.before), index(change.after));
        let entry = |(field, value): &'a (String, String)| cells![reach, space, field, value, id];
        self.unindexed.extend(old.iter().filter(|pair| !new.contains(pair)).map(entry));
        self.indexed.extend(new.iter().filter(|pair| !old.contains(pair)).map(entry));
        let (old, new) = (text(change.before), text(change.after));
        if old != new {
            if old.is_some() && (sqlite || new.is_none()) {
                self.text_gone.push(cells![reach, space, id]);
            }
            if let Some(new) = new {
                let token = scope_token(&change.key.reach, &change.key.space);
                self.text_put.push(cells![reach, space, id, token, index_words(new)]);
            }
        }
    }
}

fn statements<'a>(
    dialect: Dialect,
    changes: &'a Changes<'_>,
    epochs: &'a [String],
) -> (Statements<'a>, Statements<'a>) {
    let (mut on, mut after) = (Statements::default(), Statements::default());
    let sqlite = dialect == Dialect::Sqlite;
    let mut documents = Documents::default();
    for change in &changes.rows {
        documents.add_row(change, sqlite);
        documents.add_index(change, sqlite);
    }
    if !sqlite {
        let key = |key: &&'a Key| cells![key.reach.as_str(), key.space.as_str(), &key.id];
        let claim = |claim: &&'a Claim| cells![claim.reach.as_str(), &claim.space, &claim.name];
        documents.inserts.extend(changes.absent_rows.iter().map(|key| (*key, placeholder(key))));
        after.add(ABSENT_ROWS_REMOVE, changes.absent_rows.iter().map(key).collect());
        after.add(ABSENT_CLAIMS_REMOVE, changes.absent_claims.iter().map(claim).collect());
    }
    // The text index names SQLite's rows by number: it goes before they do, and comes after them.
    on.add_as(
        if sqlite { TEXT_REMOVE_SQLITE } else { TEXT_REMOVE_POSTGRES },
        documents.text_gone,
        None,
    );
    on.add(ROWS_INSERT, documents.inserts.into_values().collect());
    on.add(ROWS_UPDATE, documents.updates);
    on.add(CONTENTS_UPDATE, documents.contents);
    on.add(LEASES_PUT, documents.leases);
    on.add(ROWS_REMOVE, documents.removes);
    on.add_as(if sqlite { TEXT_PUT_SQLITE } else { TEXT_PUT_POSTGRES }, documents.text_put, None);
    on.add(INDEX_REMOVE, documents.unindexed);
    on.add(INDEX_ADD, documents.indexed);
    rest(&mut on, changes, sqlite, epochs);
    (on, after)
}

/// Everything but rows.
fn rest<'a>(on: &mut Statements<'a>, changes: &'a Changes<'_>, sqlite: bool, epochs: &'a [String]) {
    let (mut taken, mut moved, mut free) = (BTreeMap::new(), Vec::new(), Vec::new());
    if !sqlite {
        taken.extend(changes.absent_claims.iter().map(|claim| (*claim, String::new())));
    }
    let at = |claim: &'a Claim| cells![claim.reach.as_str(), &claim.space, &claim.name];
    for change in &changes.claims {
        let mut cells = at(change.claim);
        match (change.before.map(holder), change.after.map(holder)) {
            (None, Some(after)) => drop(taken.insert(change.claim, after)),
            (Some(before), Some(after)) => {
                cells.extend([after.into(), before.into()]);
                moved.push(cells);
            }
            (before, None) => {
                cells.push(before.unwrap_or_default().into());
                free.push(cells);
            }
        }
    }
    let taken = taken.into_iter().map(|(claim, after)| {
        let mut cells = at(claim);
        cells.push(after.into());
        cells
    });
    on.add(CLAIMS_REMOVE, free);
    on.add(CLAIMS_INSERT, taken.collect());
    on.add(CLAIMS_UPDATE, moved);
    let changed = changes.spaces.iter().filter(|change| change.before != Some(change.after));
    let spaces = changed.map(|change| {
        (cells![change.reach.as_str(), change.space.as_str(), change.after], change.before)
    });
    on.add_stated((SPACES_INSERT, SPACES_UPDATE), spaces);
    let groups = changes
        .groups
        .iter()
        .map(|group| cells![group.reach.as_str(), group.space.as_str(), group.group, group.by]);
    on.add(GROUPS_ADD, groups.collect());
    let logs = changes.logs.iter().map(|LogChange { log, before, after }| {
        let closed = i64::from(after.closed);
        let cells = cells![log.reach.as_str(), &log.log, after.head, closed];
        (cells, before.as_ref().map(|before| before.head))
    });
    on.add_stated((LOGS_INSERT, LOGS_UPDATE), logs);
    let entries = changes.entries.iter().map(|entry| {
        let at = (entry.log.reach.as_str(), &entry.log.log, entry.sequence);
        cells![at.0, at.1, at.2, entry.at.0, &entry.name, &entry.payload]
    });
    on.add(ENTRIES_ADD, entries.collect());
    let facts = changes.facts.iter().map(|new| {
        let fact = &new.fact;
        let sequence = new.sequence.map(|sequence| sequence as i64);
        let (private, user) = (fact.private.as_deref(), fact.user.as_deref());
        cells![
            &fact.id,
            &fact.organization,
            kind_name(fact.kind),
            fact.at.0,
            &fact.name,
            &fact.body,
            sequence,
            private,
            user
        ]
    });
    on.add(FACTS_ADD, facts.collect());
    on.add(EPOCHS_ADD, epochs.iter().map(|epoch| cells![epoch]).collect());
}

fn whole<'a>(key: &'a Key, after: &'a Stored) -> Cells<'a> {
    let (row, lease) = (&after.row, after.row.lease.as_ref());
    cells![
        key.reach.as_str(),
        key.space.as_str(),
        &key.id,
        &after.organization,
        row.user.as_deref(),
        &row.body,
        entries(after),
        lease.map(|lease| lease.group.as_str()),
        lease.and_then(|lease| lease.token.as_deref()),
        row.version,
        after.stamp,
        row.created_at.0,
        row.updated_at.0,
        lease.map(|lease| lease.due_at.0),
        lease.map(|lease| i64::from(lease.count)),
    ]
}

/// A row that nobody sees, in the place of one that is relied on being absent.
fn placeholder(key: &Key) -> Cells<'_> {
    let (none, zero) = (|| None::<&str>, 0_i64);
    let (reach, space) = (key.reach.as_str(), key.space.as_str());
    let texts = cells![reach, space, &key.id, "", none(), "", "", none(), none()];
    let numbers = cells![zero, zero, zero, zero, None::<i64>, None::<i64>];
    texts.into_iter().chain(numbers).collect()
}

/// Whether no column of an index changed.
fn contents_alone(before: &Stored, after: &Stored) -> bool {
    before.row.lease.is_none() && after.row.lease.is_none() && is_same(before, after)
}

/// Whether it is not another row under the key of one that is gone.
fn is_same(before: &Stored, after: &Stored) -> bool {
    before.row.created_at == after.row.created_at && before.organization == after.organization
}

/// Whether nothing but the lease changed, and that within its group.
fn lease_alone(before: &Stored, after: &Stored) -> bool {
    let (Some(old), Some(new)) = (&before.row.lease, &after.row.lease) else { return false };
    let (a, b) = (&before.row, &after.row);
    old.group == new.group
        && is_same(before, after)
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
