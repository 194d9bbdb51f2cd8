//! PostgreSQL through its driver.

use std::sync::Arc;

use sqlx::postgres::{PgArguments, PgConnectOptions};
use sqlx::{Connection as _, PgConnection, PgPool, Postgres, SqlStr};

use super::seats::Seats;
use super::{Query, Row, Value};

/// A connection of its own.
pub(crate) struct PostgresConnection(PgConnection);

impl PostgresConnection {
    pub(crate) async fn open(options: &PgConnectOptions) -> sqlx::Result<Self> {
        PgConnection::connect_with(options).await.map(Self)
    }

    pub(super) async fn rows(&mut self, query: Query) -> sqlx::Result<Vec<Row>> {
        let rows = bind_values(query).fetch_all(&mut self.0).await?;
        Ok(rows.into_iter().map(Row::Postgres).collect())
    }

    pub(super) async fn execute(&mut self, query: Query) -> sqlx::Result<u64> {
        Ok(bind_values(query).execute(&mut self.0).await?.rows_affected())
    }

    pub(super) async fn run(&mut self, sql: SqlStr) -> sqlx::Result<()> {
        sqlx::raw_sql(sql).execute(&mut self.0).await.map(drop)
    }
}

/// Connections that only read. Cheap to clone.
#[derive(Clone)]
pub(crate) struct PostgresPool {
    pool: PgPool,
    seats: Arc<Seats>,
}

impl PostgresPool {
    /// Has so many reads at once, of which one organization alone gets half.
    pub(crate) fn new(pool: PgPool, connections: u32) -> Self {
        Self { pool, seats: Arc::new(Seats::new(connections)) }
    }

    pub(super) async fn rows(&self, query: Query, organization: &str) -> sqlx::Result<Vec<Row>> {
        let _seat = self.seats.take(organization).await?;
        let rows = bind_values(query).fetch_all(&self.pool).await?;
        Ok(rows.into_iter().map(Row::Postgres).collect())
    }

    pub(super) async fn close(&self) {
        self.pool.close().await;
    }
}

fn bind_values(query: Query) -> sqlx::query::Query<'static, Postgres, PgArguments> {
    let bound = sqlx::query(query.sql).persistent(query.kept);
    query.values.into_iter().fold(bound, |bound, value| match value {
        Value::Text(text) => bound.bind(text),
        Value::Number(number) => bound.bind(number),
        Value::Bytes(bytes) => bound.bind(bytes),
        Value::Texts(texts) => bound.bind(texts),
        Value::Numbers(numbers) => bound.bind(numbers),
    })
}
