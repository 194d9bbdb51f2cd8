//! `GET /openapi.json`.

use charter_kernel::refusal::Refusal;
use charter_store::Txn;

use crate::app::App;
use crate::reply::Reply;
use crate::request::HostRequest;

/// The description of everything that is served now.
///
/// # Errors
/// None.
pub async fn get(app: &App, _: &HostRequest, _: &mut Txn) -> Result<Reply, Refusal> {
    Ok(Reply::text("application/json", app.description.text(app)))
}
