//! `GET /register.md`: how to begin, for an agent or a person that reads.

use charter_kernel::refusal::Refusal;
use charter_store::Txn;

use crate::app::App;
use crate::public;
use crate::reply::Reply;
use crate::request::HostRequest;

const GUIDE: &str = include_str!("register_guide.md");

/// The guide, with this deployment's address in its commands.
///
/// # Errors
/// None.
pub async fn get(app: &App, _: &HostRequest, _: &mut Txn) -> Result<Reply, Refusal> {
    let text = GUIDE.replace("{base_url}", &public::base(&app.adapters));
    Ok(Reply::text("text/markdown; charset=utf-8", text))
}
