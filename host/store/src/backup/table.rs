//! The tables as a backup sees them: columns, kinds and key. The file leaves out all that can be
//! derived: it is made again.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use charter_kernel::unit::Fact;
use serde_json::{Value, json};

use crate::dialect::Dialect;
use crate::document::{columns, read_row};
use crate::error::BackupError;
use crate::fact::kind_name;
use crate::search::{index_words, scope_token};
use crate::sql::{Connection, query};

/// The type of a column.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Number,
    Bytes,
}

pub(super) struct Table {
    pub(super) name: &'static str,
    columns: &'static [(&'static str, Kind)],
    /// How many of the columns are the key; they come first.
    key: usize,
}

use Kind::{Bytes, Number, Text};

pub(super) const TABLES: &[Table] = &[
    Table {
        name: "documents",
        columns: &[
            ("reach", Text),
            ("space", Text),
            ("id", Text),
            ("organization", Text),
            ("user_id", Text),
            ("body", Text),
            ("entries", Text),
            ("lease_group", Text),
            ("lease_token", Text),
            ("version", Number),
            ("stamp", Number),
            ("created_at", Number),
            ("updated_at", Number),
            ("due_at", Number),
            ("lease_count", Number),
        ],
        key: 3,
    },
    Table {
        name: "document_index",
        columns: &[
            ("reach", Text),
            ("space", Text),
            ("field", Text),
            ("value", Text),
            ("id", Text),
        ],
        key: 5,
    },
    Table {
        name: "claims",
        columns: &[
            ("reach", Text),
            ("space", Text),
            ("name", Text),
            ("holder", Text),
            ("was", Text),
        ],
        key: 3,
    },
    Table {
        name: "revisions",
        columns: &[("reach", Text), ("space", Text), ("revision", Number), ("was", Number)],
        key: 2,
    },
    Table {
        name: "group_sizes",
        columns: &[("reach", Text), ("space", Text), ("lease_group", Text), ("total", Number)],
        key: 3,
    },
    Table {
        name: "logs",
        columns: &[
            ("reach", Text),
            ("log", Text),
            ("head", Number),
            ("was", Number),
            ("closed", Number),
        ],
        key: 2,
    },
    Table {
        name: "log_entries",
        columns: &[
            ("reach", Text),
            ("log", Text),
            ("sequence", Number),
            ("at", Number),
            ("name", Text),
            ("payload", Text),
        ],
        key: 3,
    },
    Table {
        name: "facts",
        // The ordinal is given anew, in the same order.
        columns: &[
            ("ordinal", Number),
            ("id", Text),
            ("organization", Text),
            ("kind", Text),
            ("at", Number),
            ("name", Text),
            ("body", Text),
            ("sequence", Number),
            ("private", Text),
            ("user_id", Text),
        ],
        key: 1,
    },
    Table {
        name: "blobs",
        columns: &[("digest", Text), ("part", Number), ("bytes", Bytes)],
        key: 2,
    },
];

impl Table {
    /// The rows after `last`, in the order of the key.
    pub(super) async fn page(
        &self,
        connection: &mut Connection,
        dialect: Dialect,
        last: Option<&[Value]>,
        limit: usize,
    ) -> Result<Vec<Vec<Value>>, BackupError> {
        let names = |n: usize| {
            self.columns[..n].iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
        };
        let after = match last {
            Some(_) => {
                let places = (1..=self.key).map(|n| format!("${n}")).collect::<Vec<_>>().join(", ");
                format!("WHERE ({}) > ({places})", names(self.key))
            }
            None => String::new(),
        };
        let (all, key) = (names(self.columns.len()), names(self.key));
        // A part of a blob is a megabyte: few at a time.
        let limit = if self.name == "blobs" { limit.min(8) } else { limit };
        let sql = format!("SELECT {all} FROM {} {after} ORDER BY {key} LIMIT {limit}", self.name);
        let mut query = query(dialect.compose(&sql));
        for value in last.into_iter().flat_map(|last| &last[..self.key]) {
            query = match value {
                Value::Number(n) => query.bind(n.as_i64().unwrap_or(0)),
                value => query.bind(value.as_str().unwrap_or_default().to_owned()),
            };
        }
        let mut page = Vec::new();
        for row in query.fetch_all(connection).await? {
            let mut values = Vec::with_capacity(self.columns.len());
            for (n, (_, kind)) in self.columns.iter().enumerate() {
                values.push(match kind {
                    Text => Value::from(row.try_get::<Option<String>>(n)?),
                    Number => Value::from(row.try_get::<Option<i64>>(n)?),
                    Bytes => Value::from(STANDARD.encode(row.try_get::<Vec<u8>>(n)?)),
                });
            }
            page.push(values);
        }
        Ok(page)
    }

    /// Whether a page of so many rows was the last.
    pub(super) fn is_last(&self, rows: usize, limit: usize) -> bool {
        rows < if self.name == "blobs" { limit.min(8) } else { limit }
    }

    pub(super) async fn insert(
        &self,
        connection: &mut Connection,
        dialect: Dialect,
        rows: &[Vec<Value>],
    ) -> Result<(), BackupError> {
        if rows.iter().any(|row| row.len() != self.columns.len()) {
            return Err(BackupError::Refused(format!(
                "the backup's rows of {} have other columns",
                self.name
            )));
        }
        if self.columns.iter().any(|(_, kind)| *kind == Bytes) {
            return self.insert_bytes(connection, dialect, rows).await;
        }
        let skip = usize::from(self.name == "facts");
        let columns = &self.columns[skip..];
        let names = columns.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
        let values = columns.iter().enumerate().map(|(n, (_, kind))| {
            let value = format!("k.value->>{}", n + skip);
            if *kind == Number { format!("CAST({value} AS BIGINT)") } else { value }
        });
        let values = values.collect::<Vec<_>>().join(", ");
        let sql = format!("INSERT INTO {} ({names}) SELECT {values} FROM {{each:$1}} k", self.name);
        let rows = serde_json::to_string(rows).map_err(std::io::Error::from)?;
        query(dialect.compose(&sql)).bind(rows).execute(connection).await?;
        Ok(())
    }

    async fn insert_bytes(
        &self,
        connection: &mut Connection,
        dialect: Dialect,
        rows: &[Vec<Value>],
    ) -> Result<(), BackupError> {
        for row in rows {
            let text = |n: usize| row[n].as_str().unwrap_or_default().to_owned();
            let bytes = STANDARD
                .decode(text(2))
                .map_err(|_| BackupError::Refused("a binary in the backup is damaged".into()))?;
            let sql = dialect.sql("INSERT INTO blobs (digest, part, bytes) VALUES ($1, $2, $3)");
            let query = query(sql).bind(text(0)).bind(row[1].as_i64().unwrap_or(0)).bind(bytes);
            query.execute(&mut *connection).await?;
        }
        Ok(())
    }
}

/// Adds a fact that is not of the file, to be numbered as those are that had no number yet.
pub(super) async fn tell(
    connection: &mut Connection,
    dialect: Dialect,
    fact: &Fact,
) -> Result<(), BackupError> {
    let Fact { id, organization, at, name, body, private, user, .. } = fact;
    let row = json!([
        null,
        id,
        organization,
        kind_name(fact.kind),
        at.0,
        name,
        body,
        null,
        private,
        user
    ]);
    let row = row.as_array().cloned().unwrap_or_default();
    let facts = TABLES.iter().find(|table| table.name == "facts");
    match facts {
        Some(facts) => facts.insert(connection, dialect, &[row]).await,
        None => Ok(()),
    }
}

/// Makes what the file leaves out: the text index, and on SQLite, which has no sequencer, the
/// numbers of facts that were backed up before they had theirs.
pub(super) async fn rebuild(
    connection: &mut Connection,
    dialect: Dialect,
) -> Result<(), BackupError> {
    if dialect == Dialect::Sqlite {
        let pending = "SELECT ordinal, 'o/' || organization, 'host.facts.' || kind FROM facts WHERE sequence IS NULL ORDER BY ordinal";
        for row in query(dialect.sql(pending)).fetch_all(&mut *connection).await? {
            let (ordinal, reach, log): (i64, String, String) =
                (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
            let head = "INSERT INTO logs (reach, log, head, was, closed) VALUES ($1, $2, 1, 0, 0) \
                        ON CONFLICT (reach, log) DO UPDATE SET was = logs.head, head = logs.head + 1";
            query(dialect.sql(head))
                .bind(reach.clone())
                .bind(log.clone())
                .execute(&mut *connection)
                .await?;
            let given = "UPDATE facts SET sequence = (SELECT head FROM logs WHERE reach = $1 AND log = $2) WHERE ordinal = $3";
            query(dialect.sql(given))
                .bind(reach)
                .bind(log)
                .bind(ordinal)
                .execute(&mut *connection)
                .await?;
        }
    }
    text_index(connection, dialect).await
}

async fn text_index(connection: &mut Connection, dialect: Dialect) -> Result<(), BackupError> {
    let mut after = (String::new(), String::new(), String::new());
    loop {
        let sql = dialect.sql(concat!(
            "SELECT ",
            columns!(),
            " FROM documents d WHERE (d.reach, d.space, d.id) > ($1, $2, $3) ORDER BY d.reach, d.space, d.id LIMIT 200"
        ));
        let rows = query(sql)
            .bind(after.0)
            .bind(after.1)
            .bind(after.2)
            .fetch_all(&mut *connection)
            .await?;
        let Some(last) = rows.last() else { return Ok(()) };
        after = (last.try_get(0)?, last.try_get(1)?, last.try_get(2)?);
        for mut row in rows {
            let (key, stored) = read_row(&mut row, 0)?;
            let Some(text) = stored.row.text.as_deref().filter(|text| !text.is_empty()) else {
                continue;
            };
            let (token, words) = (scope_token(&key.reach, &key.space), index_words(text));
            let sql = match dialect {
                Dialect::Sqlite => {
                    "INSERT INTO document_text (rowid, scope, words) \
                     SELECT d.row, $4, $5 FROM documents d WHERE d.reach = $1 AND d.space = $2 AND d.id = $3"
                }
                Dialect::Postgres => {
                    "INSERT INTO document_text (reach, space, id, words) VALUES ($1, $2, $3, to_tsvector('simple', $4 || ' ' || $5))"
                }
            };
            let query = query(dialect.sql(sql)).bind(key.reach.as_str()).bind(key.space.as_str());
            query.bind(key.id).bind(token).bind(words).execute(&mut *connection).await?;
        }
    }
}
