//! Admission: role, pins, revocation, rate, billing, and the providers without which the operation
//! can do nothing.

use charter_kernel::authority::{self, Class};
use charter_kernel::refusal::Refusal;
use charter_kernel::scope::Level;
use charter_kernel::unit::Guard;
use charter_tenancy::directory::profile_revoked;

use super::accept::Body;
use super::matched::{Matched, Operation};
use super::rate::{Gate, Kind};
use super::standing;
use super::trail::Trail;
use crate::app::App;
use crate::request::{Identity, Place};
use crate::routes::Head;
use crate::served::{Auth, Contract};

/// A request that may be run once it is well formed.
pub struct Admitted {
    /// The stage before.
    pub matched: Matched,
    /// What must still be so of the organization's standing when a change is committed.
    pub standing: Option<Guard>,
}

/// Refuses what the credential may not do, what comes too fast, and what the deployment cannot do.
pub async fn admit(app: &App, trail: &mut Trail, matched: Matched) -> Result<Admitted, Refusal> {
    let contract = matched.operation.contract();
    credential(&trail.identity, contract)?;
    if let Some(place) = &trail.place {
        authority::admit(&place.scope, contract.class, contract.access)?;
        if contract.class == Class::Loosening {
            place.may_loosen()?;
        }
        revocation(trail, place, &matched.operation)?;
    }
    rate(app, trail)?;
    ahead(app, trail, &matched).await?;
    let mut standing = None;
    if let Operation::Guest(served, operation) = &matched.operation {
        if let Some(place) = &trail.place {
            standing =
                standing::ask(app, &place.organization.id, served.name(), operation.llm_routing)
                    .await?;
        }
        if !operation.needs.is_empty() {
            needs(app, trail, &operation.needs)?;
        }
    }
    Ok(Admitted { matched, standing })
}

/// A pinned version may ask for another credential than the active one, by which the sender was
/// identified.
fn credential(identity: &Identity, contract: &Contract) -> Result<(), Refusal> {
    match (&contract.auth, identity) {
        (Auth::Open, _)
        | (Auth::Operator | Auth::SharedSecret(_), Identity::Operator)
        | (Auth::Key, Identity::Key(_) | Identity::Session(_))
        | (Auth::Session, Identity::Session(_)) => Ok(()),
        (Auth::Session, Identity::Key(_)) => {
            Err(Refusal::forbidden("session_required", "This needs a person's session."))
        }
        _ => Err(Refusal::unauthorized("This route needs another credential.")),
    }
}

/// Only changes ask whether the profile is active: a revoked profile's reads keep answering.
fn revocation(trail: &Trail, place: &Place, operation: &Operation) -> Result<(), Refusal> {
    let Some(user) = place.user.as_ref().filter(|_| trail.mutates) else { return Ok(()) };
    // On the host's own routes the default profile is no party, unless it was named.
    let party = matches!(operation, Operation::Guest(..)) || place.scope.level() == Level::User;
    if party && !user.active { Err(profile_revoked()) } else { Ok(()) }
}

fn rate(app: &App, trail: &mut Trail) -> Result<(), Refusal> {
    let Some(place) = &trail.place else { return Ok(()) };
    if trail.rate.is_some() {
        // Counted already: this is another run of the same request.
        return Ok(());
    }
    let rates = &app.config.rates;
    let per_user =
        place.kit.as_ref().and_then(|kit| kit.kit.limits.requests_per_minute).unwrap_or(0);
    if rates.key_per_minute == 0 && rates.organization_per_minute == 0 && per_user == 0 {
        return Ok(());
    }
    let key = match &trail.identity {
        Identity::Key(key) => key.id.as_str(),
        Identity::Session(session) => session.id.as_str(),
        Identity::Operator | Identity::Anonymous => return Ok(()),
    };
    let user = place.user.as_ref().map_or("", |user| user.id.as_str());
    let organization = place.organization.id.as_str();
    let gates = [
        Gate::per_minute(Kind::Organization, organization, rates.organization_per_minute),
        Gate::per_minute(Kind::Key, key, rates.key_per_minute),
        Gate::per_minute(Kind::User, user, per_user),
    ]
    .map(|gate| gate.burst(rates.burst));
    let Some(standing) = app.buckets.take(&gates, trail.began) else { return Ok(()) };
    let wait = standing.retry_after_s;
    trail.rate = Some(standing);
    wait.map_or(Ok(()), |seconds| Err(Refusal::rate_limited(seconds)))
}

/// What a route of the host looks at ahead of the body, once for each request.
async fn ahead(app: &App, trail: &Trail, matched: &Matched) -> Result<(), Refusal> {
    let accepted = &matched.gated.scoped.identified.located.accepted;
    let Operation::Host(entry) = &matched.operation else { return Ok(()) };
    let (Some(look), Body::Unread(_)) = (entry.route.ahead, &accepted.body) else { return Ok(()) };
    let head = Head {
        peer: accepted.peer.address,
        began: trail.began,
        headers: &accepted.headers,
        parameters: &matched.parameters,
    };
    look(app, head).await
}

fn needs(app: &App, trail: &Trail, needs: &[String]) -> Result<(), Refusal> {
    let missing = match &trail.place {
        Some(place) => app.adapters.providers.missing(&place.scope, needs),
        None => app.adapters.providers.unbound(needs),
    };
    if missing.is_empty() { Ok(()) } else { Err(Refusal::not_configured(&missing)) }
}
