//! Reads, and on PostgreSQL locks, everything that a batch touches: one statement.
//!
//! Rows that do not exist cannot be locked; the write's guards catch those that come into being meanwhile.

use std::collections::BTreeSet;

use charter_kernel::apply::{Head, Hold, State, Touches};
use charter_kernel::time::Instant;
use charter_kernel::unit::{Claim, Key, LogKey, Reach, Space};
use serde::Serialize;
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, Row};

use crate::dialect::Dialect;
use crate::document::{columns, held_by, stored};

/// Selects of the parts; every one has the same columns: what it is, nine texts, six numbers.
const ALONE: &str = concat!(
    "SELECT 'row' AS kind, ",
    columns!(),
    " FROM {each:$#} k CROSS JOIN documents d WHERE d.reach = k.value->>0 AND d.space = k.value->>1 AND d.id = k.value->>2 \
     ORDER BY d.reach, d.space, d.id {alone}"
);
const SHARED: &str = concat!(
    "SELECT 'row' AS kind, ",
    columns!(),
    " FROM {each:$#} k CROSS JOIN documents d WHERE d.reach = k.value->>0 AND d.space = k.value->>1 AND d.id = k.value->>2 \
     ORDER BY d.reach, d.space, d.id {shared}"
);
const CLAIMS: &str = "SELECT 'claim' AS kind, d.reach, d.space, d.name, d.holder, {texts:5}, {numbers:6} \
     FROM {each:$#} k CROSS JOIN claims d WHERE d.reach = k.value->>0 AND d.space = k.value->>1 AND d.name = k.value->>2 \
     ORDER BY d.reach, d.space, d.name {alone}";
const SPACES: &str = "SELECT 'space' AS kind, d.reach, d.space, {texts:7}, d.revision, {numbers:5} \
     FROM {each:$#} k CROSS JOIN revisions d WHERE d.reach = k.value->>0 AND d.space = k.value->>1 \
     ORDER BY d.reach, d.space {alone}";
const LOGS: &str = "SELECT 'log' AS kind, d.reach, d.log, {texts:7}, d.head, d.closed, {numbers:4} \
     FROM {each:$#} k CROSS JOIN logs d WHERE d.reach = k.value->>0 AND d.log = k.value->>1 ORDER BY d.reach, d.log {alone}";

/// Rows that are due. PostgreSQL passes over those that another committer holds; neither database can say this in the other's
/// words.
const DUE_POSTGRES: &str = concat!(
    "SELECT 'row' AS kind, ",
    columns!(),
    " FROM {each:$#} k CROSS JOIN LATERAL (SELECT * FROM documents c WHERE c.reach = k.value->>0 AND c.space = k.value->>1 \
       AND c.lease_group = k.value->>2 AND c.due_at <= CAST(k.value->>3 AS BIGINT) ORDER BY c.due_at, c.id \
       LIMIT CAST(k.value->>4 AS BIGINT) FOR NO KEY UPDATE SKIP LOCKED) d"
);
const DUE_SQLITE: &str = concat!(
    "SELECT 'row' AS kind, ",
    columns!(),
    " FROM json_each($#) k CROSS JOIN documents d WHERE d.row IN (SELECT c.row FROM documents c WHERE c.reach = k.value->>0 \
       AND c.space = k.value->>1 AND c.lease_group = k.value->>2 AND c.due_at <= CAST(k.value->>3 AS BIGINT) \
       ORDER BY c.due_at, c.id LIMIT (SELECT max(CAST(m.value->>4 AS BIGINT)) FROM json_each($#) m))"
);
const HOST_DUE_POSTGRES: &str = concat!(
    "SELECT 'row' AS kind, ",
    columns!(),
    " FROM {each:$#} k CROSS JOIN LATERAL (SELECT * FROM documents c WHERE c.space = k.value->>1 \
       AND c.lease_group = k.value->>2 AND c.due_at <= CAST(k.value->>3 AS BIGINT) AND c.lease_group IS NOT NULL \
       AND c.space >= 'host.' AND c.space < 'host/' ORDER BY c.due_at, c.id \
       LIMIT CAST(k.value->>4 AS BIGINT) FOR NO KEY UPDATE SKIP LOCKED) d"
);
const HOST_DUE_SQLITE: &str = concat!(
    "SELECT 'row' AS kind, ",
    columns!(),
    " FROM json_each($#) k CROSS JOIN documents d WHERE d.row IN (SELECT c.row FROM documents c WHERE c.space = k.value->>1 \
       AND c.lease_group = k.value->>2 AND c.due_at <= CAST(k.value->>3 AS BIGINT) AND c.lease_group IS NOT NULL \
       AND c.space >= 'host.' AND c.space < 'host/' ORDER BY c.due_at, c.id \
       LIMIT (SELECT max(CAST(m.value->>4 AS BIGINT)) FROM json_each($#) m))"
);

/// Reads what is touched. Everything that is asked for is known afterwards, be it as absent.
pub(super) async fn prefetch(
    connection: &mut AnyConnection,
    dialect: Dialect,
    touches: &Touches,
    numbered: bool,
    now: Instant,
) -> sqlx::Result<State> {
    let mut state = State::new(numbered);
    read(connection, dialect, touches, now, &mut state).await?;
    // A hand-out across reaches learns only now whose spaces it writes.
    if touches.groups.keys().any(|wanted| wanted.reach.is_none()) {
        let found: BTreeSet<_> = state.rows().map(|key| (key.reach.clone(), key.space.clone())).collect();
        let spaces = found.into_iter().filter(|(reach, space)| !state.knows_space(reach, space)).collect();
        let more = Touches { spaces, ..Touches::default() };
        read(connection, dialect, &more, now, &mut state).await?;
    }
    Ok(state)
}

async fn read(
    connection: &mut AnyConnection,
    dialect: Dialect,
    touches: &Touches,
    now: Instant,
    state: &mut State,
) -> sqlx::Result<()> {
    let mut parts = Parts::default();
    let held = |hold| touches.rows.iter().filter(move |(_, held)| **held == hold).map(|(key, _)| row(key));
    // The shared ones are the host's users, keys and organizations: before all else, as their writers take them.
    parts.add(SHARED, held(Hold::Shared));
    parts.add(ALONE, held(Hold::Alone));
    parts.add(CLAIMS, touches.claims.iter().map(|claim| (claim.reach.as_str(), claim.space.as_str(), claim.name.as_str())));
    parts.add(SPACES, touches.spaces.iter().map(|(reach, space)| (reach.as_str(), space.as_str())));
    parts.add(LOGS, touches.logs.iter().map(|log| (log.reach.as_str(), log.log.as_str())));
    // Rows that this batch itself may withdraw do not make others go short.
    let own = touches.rows.len() as u32;
    let due = |across: bool| {
        let groups = touches.groups.iter().filter(move |(wanted, _)| wanted.reach.is_none() == across);
        groups.map(move |(wanted, rows)| {
            let reach = wanted.reach.as_ref().map(Reach::as_str);
            (reach, wanted.space.as_str(), wanted.group.as_str(), now.0, u64::from(rows.saturating_add(own)))
        })
    };
    let (within, across) = match dialect {
        Dialect::Sqlite => (DUE_SQLITE, HOST_DUE_SQLITE),
        Dialect::Postgres => (DUE_POSTGRES, HOST_DUE_POSTGRES),
    };
    parts.add(within, due(false));
    parts.add(across, due(true));

    let rows = parts.fetch(connection, dialect).await?;
    for key in touches.rows.keys() {
        state.know_row(key.clone(), None);
    }
    for claim in &touches.claims {
        state.know_claim(claim.clone(), None);
    }
    for (reach, space) in &touches.spaces {
        state.know_space(reach.clone(), space.clone(), None);
    }
    for log in &touches.logs {
        state.know_log(log.clone(), None);
    }
    rows.iter().try_for_each(|row| know(state, row))
}

fn row(key: &Key) -> (&str, &str, &str) {
    (key.reach.as_str(), key.space.as_str(), &key.id)
}

fn know(state: &mut State, row: &AnyRow) -> sqlx::Result<()> {
    let text = |n: usize| row.try_get::<String, _>(n);
    let number = |n: usize| row.try_get::<i64, _>(n);
    match text(0)?.as_str() {
        "claim" => {
            let claim = Claim { reach: Reach::stored(text(1)?), space: text(2)?, name: text(3)? };
            state.know_claim(claim, Some(held_by(&text(4)?)?));
        }
        "space" => state.know_space(Reach::stored(text(1)?), Space::stored(text(2)?), Some(number(10)? as u64)),
        "log" => {
            let log = LogKey { reach: Reach::stored(text(1)?), log: text(2)? };
            state.know_log(log, Some(Head { head: number(10)? as u64, closed: number(11)? != 0 }));
        }
        _ => {
            let (key, stored) = stored(row, 1)?;
            state.know_row(key, Some(stored));
        }
    }
    Ok(())
}

/// The parts that have something to read, and their parameters.
#[derive(Default)]
struct Parts {
    selects: Vec<&'static str>,
    parameters: Vec<String>,
}

impl Parts {
    fn add<T: Serialize>(&mut self, select: &'static str, items: impl Iterator<Item = T>) {
        let items: Vec<_> = items.collect();
        if items.is_empty() {
            return;
        }
        self.parameters.push(serde_json::to_string(&items).unwrap_or_default());
        self.selects.push(select);
    }

    async fn fetch(self, connection: &mut AnyConnection, dialect: Dialect) -> sqlx::Result<Vec<AnyRow>> {
        if self.selects.is_empty() {
            return Ok(Vec::new());
        }
        let sql = dialect.assembled(&self.selects, || one_text(&self.selects));
        let mut query = sqlx::query(sql);
        for parameter in self.parameters {
            query = query.bind(parameter);
        }
        query.fetch_all(connection).await
    }
}

/// A locking select may stand in a WITH clause and nowhere else beside another. The parts are few, so are their combinations: all
/// of them stay prepared.
fn one_text(selects: &[&str]) -> String {
    let parts = selects.iter().enumerate().map(|(n, select)| {
        let select = select.replace("$#", &format!("${}", n + 1));
        format!("p{n} AS ({})", numbered_nulls(&select))
    });
    let all = (0..selects.len()).map(|n| format!("SELECT * FROM p{n}"));
    let (parts, all) = (parts.collect::<Vec<_>>().join(", "), all.collect::<Vec<_>>().join(" UNION ALL "));
    format!("WITH {parts} {all}")
}

/// Writes out the columns that a part leaves empty.
fn numbered_nulls(select: &str) -> String {
    let mut out = select.to_owned();
    for (word, null) in [("{texts:", "CAST(NULL AS TEXT)"), ("{numbers:", "CAST(NULL AS BIGINT)")] {
        if let Some(start) = out.find(word)
            && let Some(end) = out[start..].find('}').map(|end| start + end)
        {
            let n: usize = out[start + word.len()..end].parse().unwrap_or(0);
            out.replace_range(start..=end, &vec![null; n].join(", "));
        }
    }
    out
}
