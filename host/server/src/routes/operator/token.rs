//! The operator's own token.

use charter_kernel::authority::Class;
use charter_kernel::refusal::Refusal;
use charter_store::Txn;
use charter_tenancy::operator;
use schemars::JsonSchema;
use serde::Serialize;

use crate::app::App;
use crate::handler;
use crate::request::HostRequest;
use crate::route::HostRoute;
use crate::serve::Answer;

/// The row of the token.
pub fn routes() -> Vec<HostRoute> {
    vec![
        HostRoute::post(
            Class::Operator,
            "operator.token.rotate",
            "/token/rotate",
            handler!(rotate_token),
        )
        .operator()
        .summary("Replace the operator's token; the new one is shown once"),
    ]
}

/// The new token, in the only answer that shows it.
#[derive(Serialize, JsonSchema)]
pub struct NewToken {
    token: String,
}

/// `POST /v1/operator/token/rotate`
pub async fn rotate_token(
    app: &App,
    _: &HostRequest,
    txn: &mut Txn,
) -> Result<Answer<NewToken>, Refusal> {
    if app.config.operator.token.is_some() {
        return Err(Refusal::state_conflict(
            "configured",
            "The token comes from the configuration: change it there and restart.",
        ));
    }
    let token = operator::rotate(txn).await.map_err(|error| {
        tracing::error!(error = %format!("{error:#}"), "the operator's token could not be replaced");
        Refusal::overloaded(1)
    })?;
    Ok(Answer::of(&NewToken { token: token.reveal().to_owned() }).about("operator", "token"))
}
