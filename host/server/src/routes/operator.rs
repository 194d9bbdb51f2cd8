//! The operator's routes, below `/v1/operator`: components, providers, health, the token.

pub mod components;
pub mod credits;
pub mod health;
pub mod providers;
pub mod token;

use charter_kernel::refusal::Refusal;
use charter_kernel::unit::Fact;
use charter_tenancy::stored;
use serde_json::Value;

use crate::pipeline::audit::{Decision, Subject};
use crate::request::HostRequest;
use crate::route::HostRoute;

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

/// The operator's rows.
pub fn routes() -> Vec<HostRoute> {
    let nouns = [
        components::routes(),
        credits::routes(),
        providers::routes(),
        health::routes(),
        token::routes(),
    ];
    nouns.concat()
}
