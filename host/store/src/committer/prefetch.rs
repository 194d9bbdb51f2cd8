//! Reads, and on PostgreSQL locks, everything that a batch touches: one statement.
//!
//! Everything is asked for in one order, that of [`Touches`], so that committers never wait for each
//! other in a circle. Rows that do not exist cannot be locked; the write's guards catch those that
//! come into being meanwhile.

use std::collections::BTreeSet;

use charter_kernel::apply::{Head, RowLock, State, Touches};
use charter_kernel::limits::TAKEN_BYTES_MAX;
use charter_kernel::time::Instant;
use charter_kernel::unit::{Claim, LogKey, Reach, Space};

use super::each::{self, Cell, Cells, Each, cells};
use crate::dialect::Dialect;
use crate::document::{columns, parse_holder, read_row};
use crate::sql::{Connection, Row, run};

/// Selects of the parts; every one has the same columns: what it is, nine texts, six numbers.
const ROWS_SQLITE: &str = concat!(
    "SELECT 'row' AS kind, ",
    columns!(),
    " FROM {each} k CROSS JOIN documents d WHERE d.reach = {t0} AND d.space = {t1} AND d.id = {t2}"
);
/// One after the other, shared or alone: a pass for each kind would be two orders over one table.
const ROWS_POSTGRES: &str = concat!(
    "SELECT 'row' AS kind, ",
    columns!(),
    " FROM {each} k LEFT JOIN LATERAL (SELECT * FROM documents r WHERE {n3} = 1 \
         AND r.reach = {t0} AND r.space = {t1} AND r.id = {t2} FOR NO KEY UPDATE) a ON true \
     LEFT JOIN LATERAL (SELECT * FROM documents r WHERE {n3} = 0 \
         AND r.reach = {t0} AND r.space = {t1} AND r.id = {t2} FOR SHARE) s ON true \
     CROSS JOIN LATERAL (SELECT a.* WHERE a.id IS NOT NULL UNION ALL SELECT s.* WHERE s.id IS NOT NULL) d"
);
/// Empty columns, so that every part has the same.
macro_rules! empty {
    ($one:tt) => { concat!("CAST(NULL AS ", $one, ")") };
    ($one:tt $($more:tt)+) => { concat!("CAST(NULL AS ", $one, "), ", empty!($($more)+)) };
}
const CLAIMS: &str = concat!(
    "SELECT 'claim' AS kind, d.reach, d.space, d.name, d.holder, ",
    empty!("TEXT" "TEXT" "TEXT" "TEXT" "TEXT" "BIGINT" "BIGINT" "BIGINT" "BIGINT" "BIGINT" "BIGINT"),
    " FROM {each} k CROSS JOIN claims d WHERE d.reach = {t0} AND d.space = {t1} AND d.name = {t2} \
     ORDER BY d.reach, d.space, d.name {alone}"
);
const SPACES: &str = concat!(
    "SELECT 'space' AS kind, d.reach, d.space, ",
    empty!("TEXT" "TEXT" "TEXT" "TEXT" "TEXT" "TEXT" "TEXT"),
    ", d.revision, ",
    empty!("BIGINT" "BIGINT" "BIGINT" "BIGINT" "BIGINT"),
    " FROM {each} k CROSS JOIN revisions d WHERE d.reach = {t0} AND d.space = {t1} ORDER BY d.reach, d.space {alone}"
);
const LOGS: &str = concat!(
    "SELECT 'log' AS kind, d.reach, d.log, ",
    empty!("TEXT" "TEXT" "TEXT" "TEXT" "TEXT" "TEXT" "TEXT"),
    ", d.head, d.closed, ",
    empty!("BIGINT" "BIGINT" "BIGINT" "BIGINT"),
    " FROM {each} k CROSS JOIN logs d WHERE d.reach = {t0} AND d.log = {t1} ORDER BY d.reach, d.log {alone}"
);

/// How often it is asked which rows are due across reaches, until all that is found has its space.
const ASKED_MAX: u32 = 3;
/// Bytes of a group's due rows that one batch reads, whoever takes them: what does not fit is
/// handed out by the next.
const DUE_BYTES_MAX: usize = 2 * TAKEN_BYTES_MAX;
const _: () = assert!(DUE_BYTES_MAX == 8_388_608, "the statement says it in digits");

/// Rows that are due. PostgreSQL passes over those that another committer holds, and ends them
/// where their bytes are full; neither database can say this in the other's words.
macro_rules! due_postgres {
    ($rows:literal) => {
        concat!(
            "SELECT 'row' AS kind, ",
            columns!(),
            " FROM {each} k CROSS JOIN LATERAL (SELECT * FROM (SELECT c.*, \
               sum(octet_length(c.body)::bigint) OVER (ORDER BY c.due_at, c.id ROWS UNBOUNDED PRECEDING) \
                 - octet_length(c.body) AS bytes_before FROM (SELECT * FROM documents c WHERE ",
            $rows,
            " FOR NO KEY UPDATE SKIP LOCKED) c) c WHERE c.bytes_before < 8388608) d"
        )
    };
}
const DUE_POSTGRES: &str = due_postgres!(
    "c.reach = {t0} AND c.space = {t1} AND c.lease_group = {t2} AND c.due_at <= {n3} \
     ORDER BY c.due_at, c.id LIMIT {n4}"
);
const DUE_SQLITE: &str = concat!(
    "SELECT 'row' AS kind, ",
    columns!(),
    " FROM {each} k CROSS JOIN documents d WHERE d.reach = {t0} AND d.space = {t1} AND d.lease_group = {t2} AND d.due_at <= {n3} \
       ORDER BY d.due_at, d.id LIMIT {n4} + 0"
);
const HOST_DUE_POSTGRES: &str = due_postgres!(
    "c.space = {t0} AND c.lease_group = {t1} AND c.due_at <= {n2} AND c.lease_group IS NOT NULL \
     AND c.space >= 'host.' AND c.space < 'host/' ORDER BY c.due_at, c.id LIMIT {n3}"
);
const HOST_DUE_SQLITE: &str = concat!(
    "SELECT 'row' AS kind, ",
    columns!(),
    " FROM {each} k CROSS JOIN documents d WHERE d.space = {t0} AND d.lease_group = {t1} AND d.due_at <= {n2} \
       AND d.lease_group IS NOT NULL AND d.space >= 'host.' AND d.space < 'host/' ORDER BY d.due_at, d.id LIMIT {n3} + 0"
);

/// Reads what is touched. Everything that is asked for is known afterwards, be it as absent.
pub(super) async fn prefetch(
    connection: &mut Connection,
    dialect: Dialect,
    touches: &Touches,
    numbered: bool,
    now: Instant,
) -> sqlx::Result<State> {
    if touches.groups.keys().all(|wanted| wanted.reach.is_some()) {
        let mut state = State::new(numbered);
        read(connection, dialect, touches, now, &mut state).await?;
        return Ok(state);
    }
    // A hand-out across reaches learns whose spaces it writes by what it finds. Committers lock spaces
    // in their order, and logs behind them, or they would wait for each other in a circle: where it
    // holds some already, it lets go of all, and asks for those that it has learned of with the others.
    let mut touches = touches.clone();
    let mut left = ASKED_MAX;
    loop {
        left -= 1;
        let mut state = State::new(numbered);
        let holds_none = touches.spaces.is_empty() && touches.logs.is_empty();
        let holds_some = dialect == Dialect::Postgres && !holds_none;
        if holds_some {
            run(connection, "SAVEPOINT found").await?;
        }
        read(connection, dialect, &touches, now, &mut state).await?;
        let unknown = unknown_spaces(&state, &touches);
        if unknown.is_empty() {
            return Ok(state);
        }
        if !holds_some {
            let more = Touches { spaces: unknown, ..Touches::default() };
            read(connection, dialect, &more, now, &mut state).await?;
            return Ok(state);
        }
        if left == 0 {
            // The next finds those that came due meanwhile.
            state.pass_over(|key| unknown.contains(&(key.reach.clone(), key.space.clone())));
            return Ok(state);
        }
        run(connection, "ROLLBACK TO SAVEPOINT found").await?;
        touches.spaces.extend(unknown);
    }
}

/// The spaces of what may be handed out, as far as nobody has asked for them: also of a row that
/// another unit of the batch only reads.
fn unknown_spaces(state: &State, touches: &Touches) -> BTreeSet<(Reach, Space)> {
    let found = touches.groups.keys().flat_map(|asked| state.group(&asked.space, &asked.group));
    let unknown = found.filter(|key| !state.knows_space(&key.reach, &key.space));
    unknown.map(|key| (key.reach.clone(), key.space.clone())).collect()
}

async fn read(
    connection: &mut Connection,
    dialect: Dialect,
    touches: &Touches,
    now: Instant,
    state: &mut State,
) -> sqlx::Result<()> {
    let mut parts = Parts::default();
    let rows = touches.rows.iter().map(|(key, held)| {
        let mut row = cells![key.reach.as_str(), key.space.as_str(), &key.id];
        if dialect == Dialect::Postgres {
            row.push(i64::from(*held == RowLock::Alone).into());
        }
        row
    });
    match dialect {
        Dialect::Sqlite => parts.add(ROWS_SQLITE, rows),
        Dialect::Postgres => parts.add(ROWS_POSTGRES, rows),
    }
    parts.add(
        CLAIMS,
        touches.claims.iter().map(|claim| cells![claim.reach.as_str(), &claim.space, &claim.name]),
    );
    parts.add(
        SPACES,
        touches.spaces.iter().map(|(reach, space)| cells![reach.as_str(), space.as_str()]),
    );
    parts.add(LOGS, touches.logs.iter().map(|log| cells![log.reach.as_str(), &log.log]));
    // Rows that this batch itself may withdraw do not make others go short.
    let own = touches.rows.len() as u32;
    let due = |across: bool| {
        let groups =
            touches.groups.iter().filter(move |(wanted, _)| wanted.reach.is_none() == across);
        groups.map(move |(wanted, rows)| {
            let limit = i64::from(rows.saturating_add(own));
            let mut due = cells![wanted.space.as_str(), &wanted.group, now.0, limit];
            due.splice(0..0, wanted.reach.as_ref().map(|reach| Cell::from(reach.as_str())));
            due
        })
    };
    let (within, across) = match dialect {
        Dialect::Sqlite => (DUE_SQLITE, HOST_DUE_SQLITE),
        Dialect::Postgres => (DUE_POSTGRES, HOST_DUE_POSTGRES),
    };
    parts.add_within(DUE_BYTES_MAX, within, due(false));
    parts.add_within(DUE_BYTES_MAX, across, due(true));

    let rows = each::read(connection, dialect, &parts.0).await?;
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
    rows.into_iter().try_for_each(|row| know(state, row))
}

fn know(state: &mut State, mut row: Row) -> sqlx::Result<()> {
    let kind = row.take_text(0)?;
    if kind == "row" {
        let (key, stored) = read_row(&mut row, 1)?;
        state.know_row(key, Some(stored));
        return Ok(());
    }
    let mut text = |n: usize| row.take_text(n);
    let (reach, what) = (Reach::from_store(text(1)?), text(2)?);
    if kind == "claim" {
        let claim = Claim { reach, space: what, name: text(3)? };
        state.know_claim(claim, Some(parse_holder(&text(4)?)?));
        return Ok(());
    }
    let number: u64 = row.try_get::<i64>(10)? as u64;
    if kind == "space" {
        state.know_space(reach, Space::from_store(what), Some(number));
    } else {
        let closed = row.try_get::<i64>(11)? != 0;
        state.know_log(LogKey { reach, log: what }, Some(Head { head: number, closed }));
    }
    Ok(())
}

/// The parts that have something to read, and what.
#[derive(Default)]
struct Parts<'a>(Vec<Each<'a>>);

impl<'a> Parts<'a> {
    fn add(&mut self, text: &'static str, rows: impl Iterator<Item = Cells<'a>>) {
        self.add_within(usize::MAX, text, rows);
    }

    fn add_within(
        &mut self,
        bytes_max: usize,
        text: &'static str,
        rows: impl Iterator<Item = Cells<'a>>,
    ) {
        let rows: Vec<_> = rows.collect();
        if !rows.is_empty() {
            self.0.push(Each { text, rows, bytes_max });
        }
    }
}
