//! The committer alone, beside a writer that spends a transaction on each unit, on both databases.

use anyhow::{Context, Result};
use charter_tests::postgres::Postgres;
use serde_json::Value;

use crate::table::Row;
use crate::tools::{self, Tools};

/// What was measured on one database.
pub struct Figures(Value);

impl Figures {
    /// Units a second of the committer with that many in flight, on one hot row or spread over
    /// organizations.
    pub fn rate(&self, hot: bool, in_flight: u64) -> f64 {
        self.figure(hot, in_flight, "committer")
    }
    /// The same of the writer.
    pub fn writer(&self, hot: bool, in_flight: u64) -> f64 {
        self.figure(hot, in_flight, "writer")
    }
    fn figure(&self, hot: bool, in_flight: u64, who: &str) -> f64 {
        let units = self.0["units"].as_array().map(Vec::as_slice).unwrap_or_default();
        let found = units.iter().find(|unit| unit["hot"] == hot && unit["in_flight"] == in_flight);
        found.and_then(|unit| unit[who].as_f64()).unwrap_or(f64::NAN)
    }
}

/// On SQLite.
pub fn sqlite(tools: &Tools) -> Result<Figures> {
    Ok(Figures(tools::figures(&tools.committer, &["2"])?))
}

/// The rows of this part.
pub fn measure(tools: &Tools, sqlite: &Figures) -> Result<Vec<Row>> {
    let mut rows = vec![Row::at_least(
        "committer, 32 in flight / that writer, SQLite",
        sqlite.rate(false, 32),
        sqlite.writer(false, 32),
        10.0,
    )];
    let server = Postgres::durable("bench").map_err(anyhow::Error::msg).context("PostgreSQL")?;
    let postgres = Figures(tools::figures(&tools.committer, &[&server.database(), "2"])?);
    let spread = (postgres.rate(false, 32), postgres.writer(false, 32));
    rows.push(Row::at_least(
        "committer, 32 in flight / 32 connections one by one, PostgreSQL",
        spread.0,
        spread.1,
        4.0,
    ));
    let hot = (postgres.rate(true, 32), postgres.writer(true, 32));
    rows.push(Row::at_least("the same on one hot row", hot.0, hot.1, 15.0));
    Ok(rows)
}
