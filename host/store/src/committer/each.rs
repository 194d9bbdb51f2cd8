//! Statements that run over the rows of a batch.
//!
//! One text for both databases: `{t0}` is the text in the first column of the rows, `{n1}` the
//! number in the second, `{each}` where the rows come from. PostgreSQL gets the columns as arrays
//! and runs all statements of a batch as the clauses of one, because a round trip costs more than
//! the rows; SQLite runs the prepared statement once a row, because in place that costs least.

use std::borrow::Cow;

use sqlx::SqlStr;

use super::turn;
use crate::dialect::Dialect;
use crate::sql::{Connection, Lent, Query, Row, Value, query};

/// The value of a row in a column.
pub(super) enum Cell<'a> {
    Text(Option<Cow<'a, str>>),
    Number(Option<i64>),
}

impl<'a> From<&'a str> for Cell<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(Some(text.into()))
    }
}

impl<'a> From<&'a String> for Cell<'a> {
    fn from(text: &'a String) -> Self {
        text.as_str().into()
    }
}

impl From<String> for Cell<'_> {
    fn from(text: String) -> Self {
        Self::Text(Some(text.into()))
    }
}

impl<'a> From<Option<&'a str>> for Cell<'a> {
    fn from(text: Option<&'a str>) -> Self {
        Self::Text(text.map(Cow::from))
    }
}

impl From<i64> for Cell<'_> {
    fn from(number: i64) -> Self {
        Self::Number(Some(number))
    }
}

impl From<u64> for Cell<'_> {
    fn from(number: u64) -> Self {
        // Versions and heads are counted up from one: none comes near.
        Self::Number(Some(i64::try_from(number).unwrap_or(i64::MAX)))
    }
}

impl From<Option<i64>> for Cell<'_> {
    fn from(number: Option<i64>) -> Self {
        Self::Number(number)
    }
}

impl Cell<'_> {
    fn lend(&self) -> Lent<'_> {
        match self {
            Self::Text(text) => Lent::Text(text.as_deref()),
            Self::Number(number) => Lent::Number(*number),
        }
    }
}

/// A row for a statement to run over.
pub(super) type Cells<'a> = Vec<Cell<'a>>;

macro_rules! cells {
    ($($cell:expr),* $(,)?) => { vec![$($crate::committer::each::Cell::from($cell)),*] };
}
pub(super) use cells;

/// A statement, and what it runs over.
pub(super) struct Each<'a> {
    pub(super) text: &'static str,
    pub(super) rows: Vec<Cells<'a>>,
    /// The bytes that it may answer for each of them. On PostgreSQL the text sees to it.
    pub(super) bytes_max: usize,
}

impl Each<'_> {
    /// The statement for one row at a time.
    fn of_sqlite(&self, dialect: Dialect) -> SqlStr {
        dialect.assemble(&[self.text], || {
            let text = match self.text.split_once(" FROM {each} k WHERE 1 = 1") {
                // One row of values, not a query's: SQLite keeps no journal of a statement that
                // writes one row.
                Some((insert, rest)) => {
                    format!("{}){rest}", insert.replacen(" SELECT ", " VALUES (", 1))
                }
                None => self.text.replace(" {each} k CROSS JOIN", "").replace(" FROM {each} k", ""),
            };
            places(&text, |n| format!("${}", n + 1)).0
        })
    }

    fn lend(&self) -> impl Iterator<Item = impl Iterator<Item = Lent<'_>>> {
        self.rows.iter().map(|row| row.iter().map(Cell::lend))
    }

    /// The rows' columns, as arrays.
    fn columns(&self) -> Vec<Value> {
        let width = self.rows.first().map_or(0, Vec::len);
        let column = |n: usize| {
            let numbers = self.rows.iter().map(|row| match &row[n] {
                Cell::Number(number) => *number,
                Cell::Text(_) => None,
            });
            let texts = self.rows.iter().map(|row| match &row[n] {
                Cell::Text(text) => text.as_deref().map(str::to_owned),
                Cell::Number(_) => None,
            });
            match self.rows[0][n] {
                Cell::Number(_) => Value::Numbers(numbers.collect()),
                Cell::Text(_) => Value::Texts(texts.collect()),
            }
        };
        (0..width).map(column).collect()
    }
}

/// Reads with each statement, over each row.
pub(super) async fn read(
    connection: &mut Connection,
    dialect: Dialect,
    all: &[Each<'_>],
) -> sqlx::Result<Vec<Row>> {
    if all.is_empty() {
        return Ok(Vec::new());
    }
    let Connection::Sqlite(sqlite) = connection else {
        let texts: Vec<_> = all.iter().map(|each| each.text).collect();
        let sql = dialect.assemble(&texts, || {
            let parts = clauses(&texts, "p", "");
            let rows = (0..texts.len())
                .map(|n| format!("SELECT * FROM p{n}"))
                .collect::<Vec<_>>()
                .join(" UNION ALL ");
            format!("WITH {parts} {rows}")
        });
        return bind_columns(query(sql), all).fetch_all(connection).await;
    };
    let mut rows = Vec::new();
    for each in all {
        rows.extend(sqlite.rows_each(
            each.of_sqlite(dialect).as_str(),
            each.lend(),
            each.bytes_max,
        )?);
    }
    Ok(rows)
}

/// Writes with each statement, over each row, one after another: in the order in which they wait for
/// other committers. Says how many rows each statement affected. `noting` is one more value to
/// read, of PostgreSQL, whose turns end with this.
pub(super) async fn write(
    connection: &mut Connection,
    dialect: Dialect,
    all: &[Each<'_>],
    noting: &'static str,
) -> sqlx::Result<(Vec<u64>, Option<String>)> {
    let Connection::Sqlite(sqlite) = connection else {
        let texts: Vec<_> = all.iter().map(|each| each.text).chain([noting]).collect();
        let sql = dialect.assemble(&texts, || {
            let texts = &texts[..all.len()];
            let counts = (0..texts.len())
                .map(|n| format!(", (SELECT count(*) FROM w{n})"))
                .collect::<String>();
            format!(
                "WITH {} SELECT {noting}{counts}, {}",
                clauses(texts, "w", " RETURNING 1"),
                turn::END
            )
        });
        let row = bind_columns(query(sql), all).fetch_one(connection).await?;
        let counts = (1..=all.len())
            .map(|n| row.try_get::<i64>(n).map(|count| count as u64))
            .collect::<sqlx::Result<_>>()?;
        return Ok((counts, row.try_get(0)?));
    };
    let each = |each: &Each<'_>| sqlite.execute_each(each.of_sqlite(dialect).as_str(), each.lend());
    Ok((all.iter().map(each).collect::<sqlx::Result<_>>()?, None))
}

fn bind_columns(query: Query, all: &[Each<'_>]) -> Query {
    all.iter().flat_map(Each::columns).fold(query, Query::bind)
}

/// The statements as clauses of one, each over rows of its own.
fn clauses(texts: &[&str], name: &str, end: &str) -> String {
    let mut taken = 0;
    let clauses = texts.iter().enumerate().map(|(n, text)| {
        let (text, kinds) = places(text, |n| format!("k.c{n}"));
        let arrays = kinds
            .iter()
            .enumerate()
            .map(|(n, kind)| format!("${}::{kind}[]", taken + n + 1))
            .collect::<Vec<_>>();
        let columns = (0..kinds.len()).map(|n| format!("c{n}")).collect::<Vec<_>>();
        taken += kinds.len();
        let rows = format!("unnest({}) AS k({})", arrays.join(", "), columns.join(", "));
        format!("{name}{n} AS ({}{end})", text.replace("{each} k", &rows))
    });
    clauses.collect::<Vec<_>>().join(", ")
}

/// Fills in the places of the columns, and says what kind each column is of.
fn places(text: &str, place: impl Fn(usize) -> String) -> (String, Vec<&'static str>) {
    let (mut text, mut kinds) = (text.to_owned(), Vec::new());
    for n in 0.. {
        let (words, number) = (format!("{{t{n}}}"), format!("{{n{n}}}"));
        if text.contains(&words) {
            kinds.push("text");
        } else if text.contains(&number) {
            kinds.push("bigint");
        } else {
            break;
        }
        text = text.replace(&words, &place(n)).replace(&number, &place(n));
    }
    (text, kinds)
}
