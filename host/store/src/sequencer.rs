//! Numbers facts on PostgreSQL.
use crate::connection::Database;
use crate::wake::Wakes;
use std::sync::Arc;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
pub(crate) fn start(_database: Database, _wakes: Arc<Wakes>, _written: Arc<Notify>, _closing: &CancellationToken) {}
