//! The operator's routes, below `/v1/operator`: components, providers, health, the token.

pub mod components;
pub mod credits;
pub mod health;
pub mod providers;
pub mod token;

use charter_kernel::authority::Class;
use charter_kernel::refusal::{Code, Refusal};
use charter_kernel::unit::Fact;
use serde_json::Value;

use super::{HostRoute, stored};
use crate::handler;
use crate::pipeline::audit::{Decision, Subject};
use crate::request::HostRequest;

/// The audit row of what the operator does, for the commit that does it.
///
/// # Errors
/// When the operating system gives no randomness.
fn row(
    request: &HostRequest,
    operation: &str,
    status: u16,
    entity: (&str, &str),
    details: &Value,
) -> Result<Fact, Refusal> {
    let subject = Subject::of_operator(request, operation).ok_or_else(Refusal::internal)?;
    let details = Some(details).filter(|details| !details.is_null());
    let decision = Decision { status, refused: None, changes: &[], details };
    subject.about(entity.0, entity.1).fact(decision).map_err(stored::no_randomness)
}

/// Their lines of the one list.
pub fn all() -> Vec<HostRoute> {
    vec![
        HostRoute::get(
            Class::Operator,
            "operator.components.list",
            "/components",
            handler!(components::list),
        )
        .operator()
        .summary("Every primitive with its active version")
        .answer(200, components::list_answer),
        HostRoute::get(
            Class::Operator,
            "operator.components.get",
            "/components/{name}",
            handler!(components::get),
        )
        .operator()
        .summary("One primitive with all of its versions")
        .answer(200, components::detail_answer),
        HostRoute::put(
            Class::Operator,
            "operator.components.put",
            "/components/{name}",
            handler!(components::put),
        )
        .operator()
        .summary("Install a component; with activate=true also swap to it")
        .query(components::put_query)
        .consumes("application/wasm", charter_store::BLOB_BYTES_MAX)
        .refuses(&[Code::InvalidComponent])
        .answer(201, components::answer),
        HostRoute::post(
            Class::Operator,
            "operator.components.activate",
            "/components/{name}/activate",
            handler!(components::activate),
        )
        .operator()
        .summary("Swap to an installed version")
        .body(components::activate_body)
        .answer(200, components::answer),
        HostRoute::post(
            Class::Operator,
            "operator.components.rollback",
            "/components/{name}/rollback",
            handler!(components::rollback),
        )
        .operator()
        .summary("Go back to the version that served before")
        .body(components::rollback_body)
        .answer(200, components::answer),
        HostRoute::delete(
            Class::Operator,
            "operator.components.delete",
            "/components/{name}/{digest}",
            handler!(components::delete),
        )
        .operator()
        .summary("Remove a version that does not serve")
        .answer(200, components::delete_answer),
        HostRoute::post(
            Class::Operator,
            "operator.credits.create",
            "/credits",
            handler!(credits::create),
        )
        .operator()
        .summary("Give an organization credit")
        .body(credits::body)
        .refuses(&[Code::ResourceNotFound])
        .answer(201, credits::answer),
        HostRoute::get(
            Class::Operator,
            "operator.providers.list",
            "/providers",
            handler!(providers::list),
        )
        .operator()
        .summary("Every binding, without credentials")
        .answer(200, providers::list_answer),
        HostRoute::get(
            Class::Operator,
            "operator.providers.get",
            "/providers/{binding}",
            handler!(providers::get),
        )
        .operator()
        .summary("One binding, without its credential")
        .query(providers::query)
        .answer(200, providers::answer),
        HostRoute::put(
            Class::Operator,
            "operator.providers.put",
            "/providers/{binding}",
            handler!(providers::put),
        )
        .operator()
        .summary("Bind a provider")
        .body(providers::body)
        .answer(200, providers::answer),
        HostRoute::delete(
            Class::Operator,
            "operator.providers.delete",
            "/providers/{binding}",
            handler!(providers::delete),
        )
        .operator()
        .summary("Remove a binding")
        .query(providers::query)
        .answer(200, providers::delete_answer),
        HostRoute::get(Class::Operator, "operator.health", "/health", handler!(health::get))
            .operator()
            .summary("How this replica and its deployment are doing")
            .answer(200, health::answer),
        HostRoute::post(
            Class::Operator,
            "operator.token.rotate",
            "/token/rotate",
            handler!(token::rotate),
        )
        .operator()
        .summary("Replace the operator's token; the new one is shown once")
        .answer(200, token::answer),
    ]
}
