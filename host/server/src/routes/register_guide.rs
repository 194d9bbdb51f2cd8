//! `GET /register.md`: how to begin, for an agent or a person that reads.

use charter_kernel::refusal::Refusal;
use charter_store::Txn;

use crate::app::App;
use crate::reply::Reply;
use crate::request::HostRequest;

const GUIDE: &str = include_str!("register_guide.md");

/// The guide, with this deployment's address in its commands.
///
/// # Errors
/// None.
pub async fn get(app: &App, request: &HostRequest, _: &mut Txn) -> Result<Reply, Refusal> {
    let text = GUIDE.replace("{base_url}", &base_url(app, request));
    Ok(Reply::text("text/markdown; charset=utf-8", text))
}

/// The address that clients use: the configured one, else the one that this request came to.
pub fn base_url(app: &App, request: &HostRequest) -> String {
    if let Some(url) = &app.config.http.public_url {
        return url.trim_end_matches('/').to_owned();
    }
    let host = request.headers.get(http::header::HOST).and_then(|host| host.to_str().ok());
    let clean = host.filter(|host| {
        host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-:[]".contains(&byte))
    });
    format!("{}://{}", if request.tls { "https" } else { "http" }, clean.unwrap_or("localhost"))
}
