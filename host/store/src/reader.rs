//! Gets.
use tokio_util::sync::CancellationToken;

use crate::connection::Database;
pub(crate) struct Gets;
impl Gets {
    pub(crate) async fn start(_database: &Database, _connections: u32, _closing: &CancellationToken) -> sqlx::Result<Self> {
        Ok(Self)
    }
}
