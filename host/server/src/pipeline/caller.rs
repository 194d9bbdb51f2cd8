//! The caller, and the place of the request: what the credential proved and the one resolver found.
//!
//! Only this file makes a [`Caller`], and every face begins with one. The guards of a caller at
//! the commit are named here, so that each face requires the same.

use std::sync::Arc;

use charter_kernel::authority::Class;
use charter_kernel::refusal::Refusal;
use charter_kernel::scope::{Actor, ActorKind, Level, Scope};
use charter_kernel::unit::Guard;
use charter_tenancy::identity::Identity;
use charter_tenancy::place::{self, Named, Place};

use crate::app::App;

/// See the module.
#[derive(Clone, Debug)]
pub struct Caller {
    identity: Identity,
    place: Option<Place>,
    /// The guards of the credential of a scope that was proven before: its identity is not known.
    again: Vec<Guard>,
}

impl Caller {
    /// The sender of a request, and the place that the request names; a sender without an
    /// organization has none.
    ///
    /// # Errors
    /// As [`charter_tenancy::directory::Directory::place`].
    pub async fn resolve(app: &App, identity: Identity, named: Named<'_>) -> Result<Self, Refusal> {
        let place = match identity.principal() {
            Some((principal, organization)) => {
                Some(app.directory.place(principal, organization, named).await?)
            }
            None => None,
        };
        Ok(Self { identity, place, again: Vec::new() })
    }

    /// The caller of a scope that was proven before, as its records are now. `credential`: the
    /// guards that it was proven under.
    ///
    /// # Errors
    /// 404 where one of them is gone since.
    pub async fn resolve_again(
        app: &App,
        scope: &Scope,
        credential: &[Guard],
    ) -> Result<Self, Refusal> {
        let place = app.directory.place_again(scope).await?;
        let again = app.directory.renew(credential.to_vec()).await?;
        Ok(Self { identity: Identity::Anonymous, place: Some(place), again })
    }

    /// Requires that the credential of a scope that was proven before still counts, with the role
    /// that it had.
    ///
    /// # Errors
    /// As [`charter_tenancy::directory::Directory::require_credential`].
    pub async fn require_credential(&self, app: &App) -> Result<(), Refusal> {
        app.directory.require_credential(&self.again).await
    }

    /// The caller as a party to an operation of this class: to what is the organization's no
    /// project and no profile is a party that nobody named.
    #[must_use]
    pub fn party_to(self: Arc<Self>, class: Class) -> Arc<Self> {
        let named = |place: &&Place| place.scope().level() != Level::Organization;
        match self.place.as_ref().filter(|place| class.is_whole() && !named(place)) {
            Some(place) => {
                Arc::new(Self { place: Some(place.of_organization()), ..(*self).clone() })
            }
            None => self,
        }
    }

    /// The caller of an operation of this class that one of theirs calls. Out of what is the
    /// organization's alone, all else is the default profile's, as for a request that names nobody:
    /// its kit and its standing are asked.
    ///
    /// # Errors
    /// As [`charter_tenancy::directory::Directory::place`].
    pub async fn call_on(self, app: &App, class: Class) -> Result<Arc<Self>, Refusal> {
        let placed = match &self.place {
            Some(place) if !class.is_whole() && place.scope().project().is_none() => {
                let (principal, id) = (place.scope().principal().clone(), &place.organization().id);
                Some(app.directory.place(principal, id, Named::default()).await?)
            }
            _ => None,
        };
        let caller = match placed {
            Some(_) => Self { place: placed, ..self },
            None => self,
        };
        Ok(Arc::new(caller).party_to(class))
    }

    /// The sender's identity.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The place at which it acts; absent for the anonymous and the operator.
    pub fn place(&self) -> Option<&Place> {
        self.place.as_ref()
    }

    /// The organization whose work it is; empty for the deployment's own.
    pub fn organization(&self) -> &str {
        self.place.as_ref().map_or("", |place| place.organization().id.as_str())
    }

    /// The scope of its calls.
    pub fn scope(&self) -> Scope {
        match (&self.place, &self.identity) {
            (Some(place), _) => place.scope().clone(),
            (None, Identity::Operator { .. }) => {
                place::of_deployment(Actor::new(ActorKind::Operator, "operator"))
            }
            (None, _) => place::of_deployment(Actor::anonymous()),
        }
    }

    /// The guards of the credential alone. Made when they are asked for: reads need none.
    pub fn credential(&self) -> Vec<Guard> {
        match &self.identity {
            Identity::Anonymous => self.again.clone(),
            identity => identity.guards(),
        }
    }

    /// The guards of a change to the account itself. The default profile that nobody named is no
    /// party to it.
    pub fn guards(&self) -> Vec<Guard> {
        let mut guards = self.credential();
        let Some(place) = &self.place else { return guards };
        guards.push(place.organization().guard());
        guards.extend(loosening(place));
        let named = place.user().into_iter().filter(|_| place.scope().level() == Level::User);
        guards.extend(named.map(|user| user.guard()));
        guards
    }

    /// The guards of a change to a profile: its user is active, and the kit that admitted the
    /// change is the one that it was.
    pub fn profile_guards(&self) -> Vec<Guard> {
        let mut guards = self.credential();
        let Some(place) = &self.place else { return guards };
        guards.push(place.organization().guard());
        guards.extend(loosening(place));
        guards.extend(place.user().into_iter().flat_map(|user| [user.guard(), user.guard_kit()]));
        guards.extend(place.kit().into_iter().map(|kit| kit.guard()));
        guards
    }
}

/// Requires the organization's rule about who may loosen as it was asked, where it decides: a
/// person's session may under each rule, and whoever may not by role or pins may under none.
fn loosening(place: &Place) -> Option<Guard> {
    let by_session = place.scope().actor().kind == ActorKind::Session;
    let by_rule = !by_session && place.may_loosen().is_ok();
    by_rule.then(|| place.organization().guard_loosening())
}
