//! Brings the schema up to date.
use crate::connection::Database;
use crate::error::OpenError;
pub(crate) async fn migrate(_database: &Database) -> Result<(), OpenError> {
    Ok(())
}
