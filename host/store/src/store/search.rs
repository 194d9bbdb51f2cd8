//! Full-text search: rows whose text has all the words asked for, best first.

use charter_kernel::unit::{Key, Reach, Row, Space};

use super::Store;
use crate::connection::reading;
use crate::dialect::Dialect;
use crate::document::{columns, read_row};
use crate::error::ReadError;
use crate::query::PAGE_ROWS_MAX;
use crate::search::{scope_token, words};
use crate::sql::query;

/// Words of one search; more are left out.
const WORDS_MAX: usize = 16;

impl Store {
    /// Rows whose text has all the words, best first, as many as a page holds.
    pub async fn search(
        &self,
        reach: &Reach,
        space: &Space,
        text: &str,
        limit: u32,
    ) -> Result<Vec<(Key, Row)>, ReadError> {
        let words = words(text);
        let words: Vec<_> =
            words.split(' ').filter(|word| !word.is_empty()).take(WORDS_MAX).collect();
        if words.is_empty() {
            return Ok(Vec::new());
        }
        let token = scope_token(reach, space);
        let dialect = self.inner.database.dialect;
        let (sql, asked) = match dialect {
            Dialect::Sqlite => {
                let all = words
                    .iter()
                    .map(|word| format!("\"{word}\""))
                    .collect::<Vec<_>>()
                    .join(" AND ");
                // Sorted without their bodies: each row's is read when it is its turn.
                let sql = concat!(
                    "SELECT ",
                    columns!(),
                    " FROM (SELECT d.row FROM document_text t CROSS JOIN documents d WHERE t.document_text MATCH $3 \
                     AND d.row = t.rowid AND d.reach = $1 AND d.space = $2 \
                     ORDER BY bm25(document_text, 0.0, 1.0), d.id DESC LIMIT $4 + 0) best \
                     CROSS JOIN documents d WHERE d.row = best.row"
                );
                (sql, format!("scope : \"{token}\" AND words : ({all})"))
            }
            Dialect::Postgres => {
                let all =
                    words.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" & ");
                let sql = concat!(
                    "{within:rank DESC, id DESC:body,entries}SELECT ",
                    columns!(),
                    ", ts_rank(t.words, to_tsquery('simple', $3)) AS rank FROM document_text t CROSS JOIN documents d \
                     WHERE t.words @@ to_tsquery('simple', $3) \
                     AND t.reach = $1 AND t.space = $2 AND d.reach = t.reach AND d.space = t.space AND d.id = t.id \
                     ORDER BY rank DESC, d.id DESC LIMIT $4 + 0"
                );
                (sql, format!("'{token}' & {all}"))
            }
        };
        let query = query(dialect.sql(sql)).bind(reach.as_str()).bind(space.as_str());
        let query = query.bind(asked).bind(i64::from(limit.min(PAGE_ROWS_MAX)));
        let page = reading(query.fetch_page(self.readers())).await?;
        let rows = page
            .rows
            .into_iter()
            .map(|mut row| read_row(&mut row, 0).map(|(key, stored)| (key, stored.row)));
        rows.collect::<sqlx::Result<_>>().map_err(|error| ReadError::Failed(Some(error)))
    }
}
