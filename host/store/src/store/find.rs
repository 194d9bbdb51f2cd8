//! Pages and counts over the rows of a space.
//!
//! The revision is read before the rows, so that rows can only be newer than what the commit
//! validates, never older.

use charter_kernel::unit::Row;

use super::Store;
use crate::connection::reading;
use crate::document::{columns, read_row};
use crate::error::ReadError;
use crate::query::{Order, PAGE_ROWS_MAX, Page, Query, TESTS_MAX, Test};
use crate::sql;

/// A query's conditions as text and what is bound to them.
struct Conditions {
    text: String,
    bound: Vec<String>,
}

impl Conditions {
    /// Reach and space are the first two parameters. Each test is a membership in the index, which
    /// starts with the same two. An equality is looked up for each row: PostgreSQL, which may take an
    /// organization that has just grown for one of a row, would compare each row with each.
    fn of(query: &Query, id: &str) -> Result<Self, ReadError> {
        if query.matching.len() > TESTS_MAX {
            return Err(ReadError::Failed(None));
        }
        let mut on = Self { text: String::new(), bound: Vec::new() };
        on.bound.extend([query.reach.as_str().to_owned(), query.space.as_str().to_owned()]);
        for (field, test) in &query.matching {
            let field = on.bind(field);
            let members = format!(
                "document_index x WHERE x.reach = $1 AND x.space = $2 AND x.field = {field}"
            );
            let text = match test {
                Test::Equal(value) => {
                    let value = on.bind(value);
                    format!(
                        " AND (SELECT 1 FROM {members} AND x.value = {value} AND x.id = {id}) IS NOT NULL"
                    )
                }
                Test::Between(low, high) => {
                    let low = low.as_ref().map(|low| format!(" AND x.value >= {}", on.bind(low)));
                    let high =
                        high.as_ref().map(|high| format!(" AND x.value <= {}", on.bind(high)));
                    let values: String = [low, high].into_iter().flatten().collect();
                    format!(" AND {id} IN (SELECT x.id FROM {members}{values})")
                }
            };
            on.text += &text;
        }
        Ok(on)
    }

    /// The conditions of a query, the rows that they are asked of, and the column of their ids. One
    /// equality walks the index, in the order of ids, however many rows match; `joined` is what else it
    /// reads of them.
    fn walking(query: &Query, joined: &str) -> Result<(Self, String, &'static str), ReadError> {
        let walked = query.matching.iter().position(|(_, test)| matches!(test, Test::Equal(_)));
        let mut rest = query.clone();
        let Some((field, Test::Equal(value))) = walked.map(|at| rest.matching.remove(at)) else {
            let from = "documents d WHERE d.reach = $1 AND d.space = $2";
            return Ok((Self::of(query, "d.id")?, from.to_owned(), "d.id"));
        };
        let mut on = Self::of(&rest, "i.id")?;
        let (field, value) = (on.bind(&field), on.bind(&value));
        let from = format!(
            "document_index i{joined} i.reach = $1 AND i.space = $2 AND i.field = {field} AND i.value = {value}"
        );
        Ok((on, from, "i.id"))
    }

    fn bind(&mut self, value: &str) -> String {
        self.bound.push(value.to_owned());
        format!("${}", self.bound.len())
    }

    fn apply(self, on: sql::Query) -> sql::Query {
        self.bound.into_iter().fold(on, sql::Query::bind)
    }
}

fn select(query: &Query) -> Result<(String, Conditions), ReadError> {
    let (compare, order) = match query.order {
        Order::Newest => ("<", "DESC"),
        Order::Oldest => (">", "ASC"),
    };
    let documents =
        " CROSS JOIN documents d WHERE d.reach = i.reach AND d.space = i.space AND d.id = i.id AND";
    let (mut on, from, id) = Conditions::walking(query, documents)?;
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
    Ok((text, on))
}

/// Whether anything that the query compares with can be in a database at all.
fn findable(query: &Query) -> bool {
    let holds_nul = |text: &String| text.contains('\0');
    let tests = query.matching.iter().all(|(field, test)| {
        !holds_nul(field)
            && match test {
                Test::Equal(value) => !holds_nul(value),
                Test::Between(low, high) => !low.iter().chain(high).any(holds_nul),
            }
    });
    tests && !query.after.as_ref().is_some_and(holds_nul)
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
        if !findable(query) {
            return Ok((Page { items: Vec::new(), next: None }, revision));
        }
        let (text, on) = select(query)?;
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
        if !findable(query) {
            return Ok((0, revision));
        }
        let (on, from, _) = Conditions::walking(query, " WHERE")?;
        let text = format!("SELECT count(*) FROM {from}{}", on.text);
        let sql = sql::query(self.inner.database.dialect.compose(&text)).fleeting();
        let row = reading(on.apply(sql).fetch_one(self.readers())).await?;
        let count: i64 = row.try_get(0).map_err(|error| ReadError::Failed(Some(error)))?;
        Ok((count as u64, revision))
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
