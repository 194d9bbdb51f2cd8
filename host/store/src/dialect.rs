//! The few words in which SQLite and PostgreSQL differ; every statement is otherwise one text.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};

use sqlx::AssertSqlSafe;
use sqlx::SqlSafeStr;
use sqlx::SqlStr;

use crate::query::PAGE_BYTES_MAX;

/// The database that is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Dialect {
    Sqlite,
    Postgres,
}

/// Placeholder in SQL and migration texts, SQLite's word, PostgreSQL's word. `{each:$1}` opens one
/// JSON text parameter as a table whose column `value` holds one array a row.
const WORDS: &[(&str, &str, &str)] = &[
    ("{bytewise}", "", "COLLATE \"C\""),
    ("{blob}", "BLOB", "BYTEA"),
    (
        "{ordinal}",
        "INTEGER PRIMARY KEY AUTOINCREMENT",
        "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
    ),
    ("{row}", "row INTEGER PRIMARY KEY,", ""),
    ("{hot}", "", "WITH (fillfactor = 80)"),
    ("{clustered}", "WITHOUT ROWID", ""),
    ("{clustered_hot}", "WITHOUT ROWID", "WITH (fillfactor = 70)"),
    ("{text_table}", SQLITE_TEXT_TABLE, POSTGRES_TEXT_TABLE),
    ("{log_entries_by_row}", SQLITE_LOG_ENTRIES_BY_ROW, ""),
    ("{json}", "", "::json"),
    ("{alone}", "", "FOR NO KEY UPDATE OF d"),
    ("{at_once}", "", "FOR UPDATE OF d SKIP LOCKED"),
];

/// The column that says how many rows a page would have without its bound in bytes.
pub(crate) const PAGE_ROWS: &str = "page_rows";

/// The text index has one token a tenant's space beside the words, so that a search reads that
/// tenant's postings only. On SQLite it is contentless, by the row's number.
const SQLITE_TEXT_TABLE: &str = "CREATE VIRTUAL TABLE document_text USING fts5(scope, words, content='', contentless_delete=1, \
                                 tokenize='unicode61 remove_diacritics 0');";
const POSTGRES_TEXT_TABLE: &str = "CREATE TABLE document_text (reach TEXT COLLATE \"C\" NOT NULL, space TEXT COLLATE \"C\" NOT NULL, \
                                   id TEXT COLLATE \"C\" NOT NULL, words TSVECTOR NOT NULL, PRIMARY KEY (reach, space, id)); \
                                   CREATE INDEX document_text_words ON document_text USING GIN (words);";

/// PostgreSQL's tables lie by row as they are.
const SQLITE_LOG_ENTRIES_BY_ROW: &str = "ALTER TABLE log_entries RENAME TO log_entries_by_key; \
                                         CREATE TABLE log_entries (row INTEGER PRIMARY KEY, reach TEXT NOT NULL, log TEXT NOT NULL, \
                                         sequence BIGINT NOT NULL, at BIGINT NOT NULL, name TEXT NOT NULL, payload TEXT NOT NULL, \
                                         UNIQUE (reach, log, sequence)); \
                                         INSERT INTO log_entries (reach, log, sequence, at, name, payload) \
                                         SELECT reach, log, sequence, at, name, payload FROM log_entries_by_key; \
                                         DROP TABLE log_entries_by_key;";

/// Statements of the program by address and length.
type Worded = HashMap<(Dialect, usize, usize), &'static str>;

/// Assembled statements by the addresses of their parts.
type Assembled = HashMap<(Dialect, Vec<usize>), &'static str>;
/// Combinations that are kept.
const ASSEMBLED_MAX: usize = 1_000;

/// `$2` is the second value to PostgreSQL, and a name to SQLite, which numbers names as they first
/// appear: to SQLite the second value is `?2`.
fn number_places(text: &str) -> String {
    let next = text.chars().skip(1).map(Some).chain([None]);
    let number = |(here, next): (char, Option<char>)| match here {
        '$' if next.is_some_and(|next| next.is_ascii_digit()) => '?',
        _ => here,
    };
    text.chars().zip(next).map(number).collect()
}

impl Dialect {
    /// The text in this database's words.
    pub(crate) fn words(self, text: &str) -> String {
        let mut out = text.to_owned();
        for (placeholder, sqlite, postgres) in WORDS {
            out = out.replace(placeholder, if self == Self::Sqlite { sqlite } else { postgres });
        }
        while let Some(start) = out.find("{each:") {
            let Some(end) = out[start..].find('}').map(|end| start + end) else { break };
            let parameter = out[start + 6..end].to_owned();
            let each = match self {
                Self::Sqlite => format!("json_each({parameter})"),
                Self::Postgres => format!("jsonb_array_elements({parameter}::jsonb)"),
            };
            out.replace_range(start..=end, &each);
        }
        match self {
            Self::Sqlite => number_places(&self.within(out)),
            Self::Postgres => self.within(out),
        }
    }

    /// `{within:id DESC:body,entries}` at the beginning of a text ends its rows, in that order, when
    /// these columns fill a page. SQLite is read row by row and needs no words for it; PostgreSQL
    /// would send everything.
    fn within(self, text: String) -> String {
        let Some((within, rest)) =
            text.strip_prefix("{within:").and_then(|rest| rest.split_once('}'))
        else {
            return text;
        };
        if self == Self::Sqlite {
            return rest.to_owned();
        }
        let (order, columns) = within.split_once(':').unwrap_or((within, ""));
        let bytes: Vec<_> = columns
            .split(',')
            .map(|column| format!("coalesce(octet_length({column}), 0)::bigint"))
            .collect();
        format!(
            "SELECT * FROM (SELECT d.*, count(*) OVER () AS {PAGE_ROWS}, row_number() OVER page AS page_row, \
             sum({}) OVER page AS page_bytes FROM ({rest}) d WINDOW page AS (ORDER BY {order} ROWS UNBOUNDED PRECEDING)) d \
             WHERE page_row = 1 OR page_bytes <= {PAGE_BYTES_MAX} ORDER BY page_row",
            bytes.join(" + ")
        )
    }

    /// The same, for a statement that is part of the program: worded once.
    pub(crate) fn sql(self, text: &'static str) -> SqlStr {
        static WORDED: LazyLock<Mutex<Worded>> = LazyLock::new(Mutex::default);
        let mut worded = WORDED.lock().unwrap_or_else(PoisonError::into_inner);
        // Leaked once a statement of the program: their number is fixed.
        let at = (self, text.as_ptr() as usize, text.len());
        worded.entry(at).or_insert_with(|| String::leak(self.words(text))).into_sql_str()
    }

    /// Begins a transaction that writes.
    pub(crate) fn begin(self) -> &'static str {
        match self {
            Self::Sqlite => "BEGIN IMMEDIATE",
            Self::Postgres => "BEGIN",
        }
    }

    /// A statement that is put together from fixed parts: assembled once a combination.
    pub(crate) fn assemble(
        self,
        parts: &[&'static str],
        assemble: impl FnOnce() -> String,
    ) -> SqlStr {
        static ASSEMBLED: LazyLock<Mutex<Assembled>> = LazyLock::new(Mutex::default);
        let at = (self, parts.iter().map(|part| part.as_ptr() as usize).collect::<Vec<_>>());
        let mut assembled = ASSEMBLED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(text) = assembled.get(&at) {
            return text.into_sql_str();
        }
        let text = self.words(&assemble());
        // Leaked once a combination, of which few occur; beyond the bound they are assembled each
        // time.
        if assembled.len() >= ASSEMBLED_MAX {
            return AssertSqlSafe(text).into_sql_str();
        }
        assembled.entry(at).or_insert_with(|| String::leak(text)).into_sql_str()
    }

    /// A statement put together from fixed fragments.
    pub(crate) fn compose(self, text: &str) -> SqlStr {
        AssertSqlSafe(self.words(text)).into_sql_str()
    }
}
