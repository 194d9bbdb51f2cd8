//! How fast requests of one credential may come over HTTP, and what a route of the host looks at
//! ahead of the body.

use charter_kernel::refusal::Refusal;
use charter_registry::served::{Auth, Contract};
use charter_tenancy::identity::Identity;

use super::accept::{Accepted, Body};
use super::admit::Pace;
use super::caller::Caller;
use super::matched::{Matched, Operation};
use super::trail::Trail;
use super::unread;
use crate::app::App;
use crate::bounds::rate::{BucketGate, Kind};
use crate::route::Head;

/// The pace of one request over HTTP: counted once, however often it is run.
pub struct Paced<'a> {
    /// The trail, which notes the rest of the rate for the answer's headers.
    pub trail: &'a mut Trail,
    /// The request.
    pub accepted: &'a mut Accepted,
}

impl Pace for Paced<'_> {
    async fn keep(&mut self, app: &App, matched: &Matched) -> Result<(), Refusal> {
        if !self.accepted.counted {
            self.count(app, matched.caller())?;
        }
        unread::admit(app, self.trail, matched)?;
        self.look_ahead(app, matched).await
    }
}

impl Paced<'_> {
    fn count(&mut self, app: &App, caller: &Caller) -> Result<(), Refusal> {
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
        let Some(standing) = app.bounds.buckets.take(&gates, self.trail.began) else {
            return Ok(());
        };
        let wait = standing.retry_after_s;
        self.trail.rate = Some(standing);
        self.accepted.counted = true;
        wait.map_or(Ok(()), |seconds| Err(Refusal::rate_limited(seconds)))
    }

    /// Asks the question that a route of the host has ahead of the body, once for each request.
    async fn look_ahead(&self, app: &App, matched: &Matched) -> Result<(), Refusal> {
        let Operation::Host(entry) = matched.operation() else { return Ok(()) };
        let (Some(look), Body::Unread(_)) = (entry.route.ahead, &self.accepted.body) else {
            return Ok(());
        };
        let head = Head {
            peer: self.accepted.peer.address,
            began: self.trail.began,
            headers: &self.accepted.headers,
            parameters: matched.parameters(),
        };
        look(app, head).await
    }
}

/// A pinned version may ask for another credential than the active one, by which the sender was
/// identified: who is somebody calls nothing that is open to everybody, which asks for no role.
///
/// # Errors
/// 401, or 403 `session_required`.
pub fn check_credential(identity: &Identity, contract: &Contract) -> Result<(), Refusal> {
    match (&contract.auth, identity) {
        (Auth::Open, Identity::Anonymous)
        | (Auth::Operator | Auth::SharedSecret(_), Identity::Operator { .. })
        | (Auth::Key, Identity::Key(_) | Identity::Session(_))
        | (Auth::Session, Identity::Session(_)) => Ok(()),
        (Auth::Session, Identity::Key(_)) => {
            Err(Refusal::forbidden("session_required", "This needs a person's session."))
        }
        _ => Err(Refusal::unauthorized("This route needs another credential.")),
    }
}
