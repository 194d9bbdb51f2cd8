//! The questions that a request over HTTP is asked once its caller may do what it asks: whether the
//! caller reads what it is answered, and those of a route of the host ahead of the body.

use charter_kernel::refusal::Refusal;
use charter_registry::served::{Auth, Contract};
use charter_tenancy::identity::Identity;

use super::accept::{Accepted, Body};
use super::admit::Pace;
use super::matched::{Matched, Operation};
use super::trail::Trail;
use super::unread;
use crate::app::App;
use crate::route::Head;

/// The pace of one request over HTTP, which is counted by its rates already.
pub struct Paced<'a> {
    /// The trail, which has the room of the answer.
    pub trail: &'a mut Trail,
    /// The request.
    pub accepted: &'a Accepted,
}

impl Pace for Paced<'_> {
    async fn keep(&mut self, app: &App, matched: &Matched) -> Result<(), Refusal> {
        unread::admit(app, self.trail, matched)?;
        self.look_ahead(app, matched).await
    }
}

impl Paced<'_> {
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
