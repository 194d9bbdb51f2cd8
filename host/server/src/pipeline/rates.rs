//! The rates of requests over HTTP: of a credential, of its organization, and of a tenant user by the
//! kit.
//!
//! Knows who asks and where, and nothing of what is asked. Calls that the host makes itself come as
//! fast as their callers do: they are counted nowhere.

use charter_kernel::refusal::Refusal;
use charter_tenancy::identity::Identity;

use super::caller::Caller;
use super::trail::Trail;
use crate::app::App;
use crate::bounds::rate::{BucketGate, Kind};

/// Takes one token of each rate that the caller has: once for each request, however often it is run,
/// and ahead of kit and authority, so that a request which they refuse counts as one that they allow.
///
/// # Errors
/// 429 where a rate is used up.
pub fn count(app: &App, trail: &mut Trail, caller: &Caller) -> Result<(), Refusal> {
    if trail.rate.is_some() {
        return Ok(());
    }
    let Some(place) = caller.place() else { return Ok(()) };
    let rates = &app.config.rates;
    let per_user = place.kit().and_then(|kit| kit.kit.limits.requests_per_minute).unwrap_or(0);
    if rates.key_per_minute == 0 && rates.organization_per_minute == 0 && per_user == 0 {
        return Ok(());
    }
    let key = match caller.identity() {
        Identity::Key(key) => key.id.as_str(),
        Identity::Session(session) => session.id.as_str(),
        Identity::Operator { .. } | Identity::Anonymous => return Ok(()),
    };
    let user = place.user().map_or("", |user| user.id.as_str());
    let gates = [
        BucketGate::per_minute(
            Kind::Organization,
            caller.organization(),
            rates.organization_per_minute,
        ),
        BucketGate::per_minute(Kind::Key, key, rates.key_per_minute),
        BucketGate::per_minute(Kind::User, user, per_user),
    ]
    .map(|gate| gate.burst(rates.burst));
    let Some(standing) = app.bounds.buckets.take(&gates, trail.began) else {
        return Ok(());
    };
    let wait = standing.retry_after_s;
    trail.rate = Some(standing);
    wait.map_or(Ok(()), |seconds| Err(Refusal::rate_limited(seconds)))
}
