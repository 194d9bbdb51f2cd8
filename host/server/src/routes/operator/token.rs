//! The operator's own token.

use charter_kernel::refusal::Refusal;
use charter_store::Txn;
use serde_json::{Value, json};

use crate::app::App;
use crate::reply::Reply;
use crate::request::HostRequest;
use crate::routes::shape;

/// The answer's schema.
pub fn answer() -> Value {
    shape::object(&[("token", json!({"type": "string"}))])
}

/// `POST /v1/operator/token/rotate`
pub async fn rotate(app: &App, request: &HostRequest, _: &mut Txn) -> Result<Reply, Refusal> {
    if app.config.operator.token.is_some() {
        return Err(Refusal::state_conflict(
            "configured",
            "The token comes from the configuration: change it there and restart.",
        ));
    }
    let about = ("operator", "token");
    let row = super::row(request, "operator.token.rotate", 200, about, &Value::Null)?;
    let token = app.operator.rotate(row).await.map_err(|error| {
        tracing::error!(error = %format!("{error:#}"), "the operator's token could not be replaced");
        Refusal::overloaded(1)
    })?;
    Ok(Reply::ok(&json!({"token": token.reveal()})).audited())
}
