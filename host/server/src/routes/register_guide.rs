//! `GET /register.md`: how to begin, for an agent or a person that reads.

use charter_adapters::public;
use charter_kernel::authority::Class;
use charter_kernel::refusal::Refusal;
use charter_store::Txn;

use crate::app::App;
use crate::handler;
use crate::reply::Reply;
use crate::request::HostRequest;
use crate::route::HostRoute;

const GUIDE: &str = include_str!("register_guide.md");

/// The row of this route.
pub fn routes() -> Vec<HostRoute> {
    vec![
        HostRoute::get(Class::Open, "register_guide", "/register.md", handler!(get_register_guide))
            .root()
            .open()
            .summary("Onboarding guide")
            .produces("text/markdown; charset=utf-8"),
    ]
}

/// The guide, with this deployment's address in its commands.
///
/// # Errors
/// None.
pub async fn get_register_guide(app: &App, _: &HostRequest, _: &mut Txn) -> Result<Reply, Refusal> {
    let text = GUIDE.replace("{base_url}", &public::base(&app.adapters));
    Ok(Reply::text("text/markdown; charset=utf-8", text))
}
