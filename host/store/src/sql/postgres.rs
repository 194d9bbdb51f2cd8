//! PostgreSQL through its driver.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use sqlx::postgres::{PgArguments, PgConnectOptions};
use sqlx::{Connection as _, PgConnection, PgPool, Postgres, SqlStr};
use tokio::runtime::Handle;

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
        let (seat, pool) = (self.seats.take(organization).await?, self.pool.clone());
        let reading = async move {
            let _seat = seat;
            bind_values(query).fetch_all(&pool).await
        };
        let rows = ToItsEnd(Some(reading.boxed())).await?;
        Ok(rows.into_iter().map(Row::Postgres).collect())
    }

    pub(super) async fn close(&self) {
        self.pool.close().await;
    }
}

/// A statement, which goes on when nobody waits for it any more: the server works on it until it is
/// done, and so long its connection and its seat are taken.
struct ToItsEnd<T: Send + 'static>(Option<BoxFuture<'static, T>>);

impl<T: Send + 'static> Future for ToItsEnd<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let Some(work) = &mut self.0 else { return Poll::Pending };
        let done = ready!(work.as_mut().poll(cx));
        self.0 = None;
        Poll::Ready(done)
    }
}

impl<T: Send + 'static> Drop for ToItsEnd<T> {
    fn drop(&mut self) {
        if let (Some(work), Ok(runtime)) = (self.0.take(), Handle::try_current()) {
            runtime.spawn(work);
        }
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
