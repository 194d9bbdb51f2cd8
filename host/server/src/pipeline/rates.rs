//! The rates of requests over HTTP: of a credential, of its organization, and of a tenant user by the
//! kit.
//!
//! Knows who asks and where, and nothing of what is asked. Calls that the host makes itself come as
//! fast as their callers do: they are counted nowhere. Invariant: nobody keeps others from their organization by
//! what it asks for, and nobody who does not govern it, and no key, those people from it who do.

use charter_kernel::refusal::Refusal;
use charter_kernel::scope::{Level, Sharer};
use charter_tenancy::identity::Identity;
use charter_tenancy::place::Place;

use super::caller::Caller;
use super::trail::Trail;
use crate::app::App;
use crate::bounds::rate::{BucketGate, Kind};

/// One part in so many of an organization's rate is kept from whoever does not govern it.
const OTHERS_LEAVE: u32 = 4;
/// One part in so many of it is kept from all keys, for the sessions of people who govern.
const KEYS_LEAVE: u32 = 16;
/// An organization's bucket holds so many, however few may come at once: each of these parts is one at least.
const BURST_MIN: u32 = 16;

/// Takes one token of each rate that the caller has: once for each request, however often it is run,
/// and ahead of kit and authority, so that a request which they refuse counts as one that they allow.
/// `is_primitives` says that it is for a primitive, which acts for a profile whoever named it.
///
/// # Errors
/// 429 where a rate is used up.
pub fn count(
    app: &App,
    trail: &mut Trail,
    caller: &Caller,
    is_primitives: bool,
) -> Result<(), Refusal> {
    if trail.rate.is_some() {
        return Ok(());
    }
    let Some(place) = caller.place() else { return Ok(()) };
    let rates = &app.config.rates;
    let per_user = place.kit().and_then(|kit| kit.kit.limits.requests_per_minute).unwrap_or(0);
    if rates.key_per_minute == 0 && rates.organization_per_minute == 0 && per_user == 0 {
        return Ok(());
    }
    let scope = place.scope();
    let Sharer { within, name } = scope.sharer();
    let governs = scope.principal().governs();
    let (own, kept, user) = match caller.identity() {
        Identity::Key(key) => {
            // However many keys an agent makes for itself, they are one.
            let own = if key.user.is_some() { &*name } else { key.id.as_str() };
            let user = user(place, if governs { "governors" } else { &name }, is_primitives);
            (own, KEYS_LEAVE, user)
        }
        Identity::Session(session) => (session.account.as_str(), 0, None),
        Identity::Operator { .. } | Identity::Anonymous => return Ok(()),
    };
    let leaving = if governs { kept } else { OTHERS_LEAVE };
    let privileged = (leaving == 0).then_some("sessions that govern");
    let per_organization = BucketGate::per_minute(
        Kind::Organization,
        caller.organization(),
        rates.organization_per_minute,
    );
    let person = scope.principal().root.as_deref().unwrap_or_default();
    let around = within.as_ref().unwrap_or(&name);
    let per_user = if user.is_some() { per_user } else { 0 };
    let burst_of_all = if rates.burst > 0 { rates.burst.max(BURST_MIN) } else { 0 };
    let gates = [
        per_organization
            .leaving(leaving)
            .burst(burst_of_all)
            .for_sharer([&*name, around, person])
            .of_privileged(privileged),
        BucketGate::per_minute(Kind::Key, own, rates.key_per_minute).burst(rates.burst),
        BucketGate::per_minute(Kind::User, user.unwrap_or_default(), per_user).burst(rates.burst),
    ];
    let Some(standing) = app.bounds.buckets.take(&gates, trail.began) else {
        return Ok(());
    };
    let wait = standing.retry_after_s;
    trail.rate = Some(standing);
    wait.map_or(Ok(()), |seconds| Err(Refusal::rate_limited(seconds)))
}

/// The bucket of the tenant user for whom it asks, where the user is a party: on the host's own routes the
/// default profile is none, unless it was named. Each who asks for the user has one of its own, and those who
/// govern have one together, so that those who act for the user are not kept from it by the user's own.
fn user(place: &Place, by: &str, is_primitives: bool) -> Option<String> {
    let user = place.user().filter(|_| is_primitives || place.scope().level() == Level::User)?;
    Some(format!("{by} {}", user.id))
}
