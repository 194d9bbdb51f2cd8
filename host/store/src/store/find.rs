//! Pages and counts over the rows of a space.
//!
//! The revision is read before the rows, so that rows can only be newer than what the commit
//! validates, never older.

use charter_kernel::unit::Row;

use super::Store;
use crate::connection::reading;
use crate::dialect::Dialect;
use crate::document::{columns, read_row};
use crate::error::ReadError;
use crate::query::{Order, PAGE_ROWS_MAX, Page, Query, TESTS_MAX, Test};
use crate::sql;

/// Rows of a range that PostgreSQL reads whole, to ask the other tests of each: of a wider one each row
/// that meets those is asked whether it lies within.
const NARROW_MAX: usize = 2_000;

/// A query's conditions as text and what is bound to them.
struct Conditions {
    text: String,
    bound: Vec<String>,
}

/// The rows that conditions are asked of.
struct Walk {
    on: Conditions,
    from: String,
    /// The column of their ids.
    id: &'static str,
}

impl Conditions {
    /// Reach and space are the first two parameters.
    fn new(query: &Query) -> Self {
        let bound = vec![query.reach.as_str().to_owned(), query.space.as_str().to_owned()];
        Self { text: String::new(), bound }
    }

    /// Each test is a membership in the index, which starts with reach and space. PostgreSQL, which may
    /// take an organization that has just grown for one of a row, would compare each row with each: there
    /// an equality is looked up for each row, and a range in what the row itself says of its entries.
    fn of(query: &Query, id: &str, dialect: Dialect) -> Self {
        let mut on = Self::new(query);
        for (field, test) in &query.matching {
            let field = on.bind(field);
            let text = match test {
                Test::Equal(value) => {
                    let value = on.bind(value);
                    format!(
                        " AND (SELECT 1 FROM {} AND x.value = {value} AND x.id = {id}) IS NOT NULL",
                        members(&field)
                    )
                }
                Test::Between(low, high) => match dialect {
                    Dialect::Sqlite => {
                        let range = on.range("x.value", (low, high));
                        format!(" AND {id} IN (SELECT x.id FROM {}{range})", members(&field))
                    }
                    Dialect::Postgres => {
                        let range = on.range("(e.value ->> 1) COLLATE \"C\"", (low, high));
                        format!(
                            " AND (SELECT bool_or(e.value ->> 0 = {field}{range}) FROM documents y \
                             CROSS JOIN json_array_elements(NULLIF(y.entries, '')::json -> 'index') e (value) \
                             WHERE y.reach = $1 AND y.space = $2 AND y.id = {id})"
                        )
                    }
                },
            };
            on.text += &text;
        }
        on
    }

    /// The bounds of a range, as conditions on a value.
    fn range(&mut self, value: &str, (low, high): (&Option<String>, &Option<String>)) -> String {
        let low = low.as_ref().map(|low| format!(" AND {value} >= {}", self.bind(low)));
        let high = high.as_ref().map(|high| format!(" AND {value} <= {}", self.bind(high)));
        [low, high].into_iter().flatten().collect()
    }

    fn bind(&mut self, value: &str) -> String {
        self.bound.push(value.to_owned());
        format!("${}", self.bound.len())
    }

    fn apply(self, on: sql::Query) -> sql::Query {
        self.bound.into_iter().fold(on, sql::Query::bind)
    }
}

/// The entries of a field.
fn members(field: &str) -> String {
    format!("document_index x WHERE x.reach = $1 AND x.space = $2 AND x.field = {field}")
}

impl Walk {
    /// One equality walks the index, in the order of ids, however many rows match; a `narrow` range is
    /// read whole. Documents are read of each row where they are `joined`.
    fn of(query: &Query, dialect: Dialect, (narrow, joined): (Option<usize>, bool)) -> Self {
        let is_equal = |(_, test): &(String, Test)| matches!(test, Test::Equal(_));
        let mut rest = query.clone();
        let walked = narrow.or_else(|| query.matching.iter().position(is_equal));
        let Some((field, test)) = walked.map(|at| rest.matching.remove(at)) else {
            let from = "documents d WHERE d.reach = $1 AND d.space = $2".to_owned();
            return Self { on: Conditions::of(query, "d.id", dialect), from, id: "d.id" };
        };
        let mut on = Conditions::of(&rest, "i.id", dialect);
        let field = on.bind(&field);
        let from = match &test {
            Test::Equal(value) => {
                let documents = " CROSS JOIN documents d WHERE d.reach = i.reach AND d.space = i.space AND d.id = i.id AND";
                format!(
                    "document_index i{} i.reach = $1 AND i.space = $2 AND i.field = {field} AND i.value = {}",
                    if joined { documents } else { " WHERE" },
                    on.bind(value)
                )
            }
            Test::Between(low, high) => {
                let documents = " CROSS JOIN LATERAL (SELECT * FROM documents y \
                                 WHERE y.reach = $1 AND y.space = $2 AND y.id = i.id OFFSET 0) d";
                format!(
                    "(SELECT DISTINCT x.id FROM {}{} OFFSET 0) i{} WHERE TRUE",
                    members(&field),
                    on.range("x.value", (low, high)),
                    if joined { documents } else { "" },
                )
            }
        };
        Self { on, from, id: "i.id" }
    }
}

fn select(query: &Query, dialect: Dialect, narrow: Option<usize>) -> (String, Conditions) {
    let (compare, order) = match query.order {
        Order::Newest => ("<", "DESC"),
        Order::Oldest => (">", "ASC"),
    };
    let Walk { mut on, from, id } = Walk::of(query, dialect, (narrow, true));
    let after = query
        .after
        .as_ref()
        .map(|after| format!("AND {id} {compare} {}", on.bind(after)))
        .unwrap_or_default();
    let limit = u64::from(query.limit.min(PAGE_ROWS_MAX)) + 1;
    let tests = std::mem::take(&mut on.text);
    let text = format!(
        "{{within:id {order}:body,entries}}SELECT {} FROM {from}{tests} {after} ORDER BY {id} {order} LIMIT {limit} OFFSET {}",
        columns!(),
        query.offset
    );
    (text, on)
}

/// Whether anything that the query compares with can be in a database at all.
///
/// # Errors
/// If there are more tests than a query may have.
fn findable(query: &Query) -> Result<bool, ReadError> {
    if query.matching.len() > TESTS_MAX {
        return Err(ReadError::Failed(None));
    }
    let holds_nul = |text: &String| text.contains('\0');
    let tests = query.matching.iter().all(|(field, test)| {
        !holds_nul(field)
            && match test {
                Test::Equal(value) => !holds_nul(value),
                Test::Between(low, high) => !low.iter().chain(high).any(holds_nul),
            }
    });
    Ok(tests && !query.after.as_ref().is_some_and(holds_nul))
}

impl Store {
    /// Rows of a space. Not validated.
    pub async fn find(&self, query: &Query) -> Result<Page, ReadError> {
        Ok(self.find_at(query).await?.0)
    }

    /// How many rows the query's tests match. Not validated.
    pub async fn count(&self, query: &Query) -> Result<u64, ReadError> {
        Ok(self.count_at(query).await?.0)
    }

    pub(crate) async fn find_at(&self, query: &Query) -> Result<(Page, u64), ReadError> {
        let revision = if query.relaxed { 0 } else { self.revision(query).await? };
        if !findable(query)? {
            return Ok((Page { items: Vec::new(), next: None }, revision));
        }
        let narrow = self.narrow_range(query).await?;
        let (text, on) = select(query, self.inner.database.dialect, narrow);
        // Limits and offsets stand in the text: such a statement is not worth keeping prepared.
        let sql = sql::query(self.inner.database.dialect.compose(&text)).fleeting();
        let page = reading(on.apply(sql).fetch_page(self.readers())).await?;
        let items = page
            .rows
            .into_iter()
            .map(|mut row| read_row(&mut row, 0).map(|(key, stored)| (key, stored.row)));
        let mut items: Vec<(_, Row)> =
            items.collect::<sqlx::Result<_>>().map_err(|error| ReadError::Failed(Some(error)))?;
        let limit = query.limit.min(PAGE_ROWS_MAX) as usize;
        let more = page.cut || items.len() > limit;
        items.truncate(limit);
        let next = if more { items.last().map(|(key, _)| key.id.clone()) } else { None };
        Ok((Page { items, next }, revision))
    }

    pub(crate) async fn count_at(&self, query: &Query) -> Result<(u64, u64), ReadError> {
        let revision = if query.relaxed { 0 } else { self.revision(query).await? };
        if !findable(query)? {
            return Ok((0, revision));
        }
        let narrow = self.narrow_range(query).await?;
        let Walk { on, from, .. } = Walk::of(query, self.inner.database.dialect, (narrow, false));
        let text = format!("SELECT count(*) FROM {from}{}", on.text);
        Ok((self.count_by(&text, on).await?, revision))
    }

    /// The place of a range among the query's tests that few rows lie in. SQLite, which makes a set of a
    /// range's rows, asks for none.
    async fn narrow_range(&self, query: &Query) -> Result<Option<usize>, ReadError> {
        let dialect = self.inner.database.dialect;
        let ranges =
            query.matching.iter().enumerate().filter_map(|(at, (field, test))| match test {
                Test::Between(low, high) => Some((at, field, (low, high))),
                Test::Equal(_) => None,
            });
        for (at, field, range) in ranges.filter(|_| dialect == Dialect::Postgres) {
            let mut on = Conditions::new(query);
            let (field, most) = (on.bind(field), NARROW_MAX + 1);
            let range = on.range("x.value", range);
            let text = format!(
                "SELECT count(*) FROM (SELECT 1 FROM {}{range} LIMIT {most}) f",
                members(&field)
            );
            if self.count_by(&text, on).await? <= NARROW_MAX as u64 {
                return Ok(Some(at));
            }
        }
        Ok(None)
    }

    async fn count_by(&self, text: &str, on: Conditions) -> Result<u64, ReadError> {
        let sql = sql::query(self.inner.database.dialect.compose(text)).fleeting();
        let row = reading(on.apply(sql).fetch_one(self.readers())).await?;
        let count: i64 = row.try_get(0).map_err(|error| ReadError::Failed(Some(error)))?;
        Ok(count as u64)
    }

    async fn revision(&self, query: &Query) -> Result<u64, ReadError> {
        let sql = self
            .inner
            .database
            .dialect
            .sql("SELECT revision FROM revisions WHERE reach = $1 AND space = $2");
        let sql = sql::query(sql).bind(query.reach.as_str()).bind(query.space.as_str());
        let row = reading(sql.fetch_optional(self.readers())).await?;
        let revision: Option<i64> = row
            .map(|row| row.try_get(0))
            .transpose()
            .map_err(|error| ReadError::Failed(Some(error)))?;
        Ok(revision.unwrap_or(0) as u64)
    }
}
