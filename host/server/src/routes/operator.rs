//! The operator's routes, below `/v1/operator`: components, providers, health, the token.

pub mod components;
pub mod credits;
pub mod health;
pub mod providers;
pub mod token;

use charter_kernel::refusal::Refusal;
use charter_tenancy::identity::Identity;
use charter_tenancy::operator::{self, Act};
use charter_tenancy::stored;
use serde_json::Value;

use crate::pipeline::audit::{Decision, Subject};
use crate::request::HostRequest;
use crate::route::HostRoute;

/// The audit row of what the operator does, for the commit of its own that does it, and what must
/// hold of the operator's token then.
///
/// # Errors
/// When the operating system gives no randomness.
fn act(
    request: &HostRequest,
    operation: &str,
    status: u16,
    entity: (&str, &str),
    details: &Value,
) -> Result<Act, Refusal> {
    let subject = Subject::of_operator(request, operation).ok_or_else(Refusal::internal)?;
    let details = Some(details).filter(|details| !details.is_null());
    let decision = Decision { status, refused: None, changes: &[], details };
    let fact = subject.about(entity.0, entity.1).fact(decision);
    let guards = match request.identity {
        Identity::Operator { token: Some(version) } => vec![operator::guard(version)],
        _ => Vec::new(),
    };
    Ok(Act { row: fact.map_err(stored::no_randomness)?, guards })
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
