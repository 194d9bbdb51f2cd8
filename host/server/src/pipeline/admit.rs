//! Admission: role, pins, revocation, the way's own pace, billing, and the providers without which
//! the operation can do nothing.
//!
//! The order is that of the answers: who lacks the power learns nothing of what is bound or paid.
//! Rates are counted ahead of it ([`super::rates::count`]), so that a request which is refused here
//! has taken from them as one that is admitted.

use std::ops::Deref;

use charter_kernel::authority::{self, Class};
use charter_kernel::refusal::Refusal;
use charter_kernel::scope::{ActorKind, Level};
use charter_kernel::unit::Guard;
use charter_tenancy::directory::profile_revoked;
use charter_tenancy::place::Place;

use super::caller::Caller;
use super::matched::{Matched, Operation};
use super::standing;
use crate::app::App;

/// Leave to run an operation once the request is well formed. Only [`admit`] makes one.
pub struct Admitted {
    matched: Matched,
    /// The guards of the credential that was asked anew for the host's own work.
    asked_anew: Vec<Guard>,
    /// The guard on the organization's standing when a change is committed.
    standing: Option<Guard>,
}

/// The question that one face asks between the caller's power and the deployment's offer.
pub trait Pace: Send {
    /// Refuses who does not read what it was answered, and what need not come at all.
    fn keep(
        &mut self,
        app: &App,
        matched: &Matched,
    ) -> impl Future<Output = Result<(), Refusal>> + Send;
}

/// The pace of calls that the host makes itself: they come as fast as their callers do.
pub struct Unpaced;

impl Pace for Unpaced {
    async fn keep(&mut self, _: &App, _: &Matched) -> Result<(), Refusal> {
        Ok(())
    }
}

/// Refuses what the caller may not do, what its face does not take, and what the deployment cannot do.
pub async fn admit(app: &App, matched: Matched, pace: &mut impl Pace) -> Result<Admitted, Refusal> {
    let contract = matched.operation().contract();
    let mut asked_anew = Vec::new();
    if let Some(place) = matched.caller().place() {
        authority::admit(place.scope(), contract.class, contract.access)?;
        if place.scope().actor().kind == ActorKind::System && contract.class.is_asked_anew() {
            // A job, which goes on without the credential that asked for it; this does not.
            let left =
                app.directory.cut(place.scope().principal(), &place.organization().id).await?;
            authority::admit_principal(&left.principal, contract.class, contract.access)?;
            asked_anew = left.guards;
        }
        if contract.class == Class::Loosening {
            place.may_loosen()?;
        }
        revocation(place, matched.operation())?;
    }
    pace.keep(app, &matched).await?;
    let mut standing = None;
    if let Operation::Guest(served, operation) = matched.operation() {
        if let Some(place) = matched.caller().place() {
            let organization = &place.organization().id;
            standing =
                standing::ask(app, organization, served.name(), operation.llm_routing).await?;
        }
        needs(app, matched.caller(), &operation.needs)?;
    }
    Ok(Admitted { matched, asked_anew, standing })
}

/// Only changes ask whether the profile is active: a revoked profile's reads keep answering.
fn revocation(place: &Place, operation: &Operation) -> Result<(), Refusal> {
    let mutates = operation.contract().mutates;
    let Some(user) = place.user().filter(|_| mutates) else { return Ok(()) };
    // On the host's own routes the default profile is no party, unless it was named.
    let party = matches!(operation, Operation::Guest(..)) || place.scope().level() == Level::User;
    if party && !user.active { Err(profile_revoked()) } else { Ok(()) }
}

fn needs(app: &App, caller: &Caller, needs: &[String]) -> Result<(), Refusal> {
    if needs.is_empty() {
        return Ok(());
    }
    let missing = match caller.place() {
        Some(place) => app.adapters.providers.missing(place.scope(), needs),
        None => app.adapters.providers.missing_needs(needs),
    };
    if missing.is_empty() { Ok(()) } else { Err(Refusal::not_configured(&missing)) }
}

impl Admitted {
    /// The guards on a change by a primitive: a primitive acts for a profile, whoever named it.
    pub fn guards(&self) -> Vec<Guard> {
        let mut guards = self.caller().profile_guards();
        guards.extend(self.asked_anew.iter().cloned());
        guards.extend(self.standing.clone());
        guards
    }
}

impl Deref for Admitted {
    type Target = Matched;

    fn deref(&self) -> &Matched {
        &self.matched
    }
}
