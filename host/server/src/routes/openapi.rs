//! `GET /openapi.json`.

use charter_kernel::authority::Class;
use charter_kernel::refusal::Refusal;
use charter_store::Txn;

use crate::app::App;
use crate::handler;
use crate::reply::Reply;
use crate::request::HostRequest;
use crate::route::HostRoute;

/// The row of this route.
pub fn routes() -> Vec<HostRoute> {
    vec![
        HostRoute::get(Class::Open, "openapi", "/openapi.json", handler!(get_openapi))
            .root()
            .open()
            .summary("This description")
            .produces("application/json"),
    ]
}

/// The description of everything that is served now.
///
/// # Errors
/// None.
pub async fn get_openapi(app: &App, _: &HostRequest, _: &mut Txn) -> Result<Reply, Refusal> {
    Ok(Reply::text("application/json", crate::openapi::text(app)))
}
