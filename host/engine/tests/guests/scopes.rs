//! Scopes of callers, as the resolver would make them: shared by the tests within the engine and
//! beside it. Knows neither an engine nor a store.

use charter_kernel::id::{OrganizationId, ProjectId, UserId};
use charter_kernel::role::Role;
use charter_kernel::scope::{Actor, ActorKind, Principal, Proof, Scope, Subject};
use charter_kernel::time::Instant;

/// An id of an organization, a project or a user.
pub fn id(n: u8) -> String {
    charter_kernel::id::uuid_v7(Instant(1), [n; 10])
}

/// A key without pins, of this role.
pub fn key(role: Role) -> Principal {
    Principal { role: Some(role), ..Principal::of(Actor::new(ActorKind::Key, "k")) }
}

/// The scope of a principal at no organization.
pub fn alone(principal: Principal) -> Scope {
    Proof::of(principal).scope()
}

/// The scope of a principal at an organization, and at its project and user where one is named.
pub fn scope(
    principal: Principal,
    organization: u8,
    project: Option<u8>,
    user: Option<u8>,
) -> Scope {
    let mut proof =
        Proof::of(principal).organization(OrganizationId::parse(&id(organization)).unwrap());
    if let Some(project) = project {
        proof = proof.project(ProjectId::parse(&id(project)).unwrap(), false, true);
    }
    if let Some(user) = user {
        proof = proof.user(UserId::parse(&id(user)).unwrap(), Subject::Path);
    }
    proof.scope()
}

/// A developer's key, for one of the users of the first organization's first project.
pub fn user(n: u8) -> Scope {
    scope(key(Role::Developer), 1, Some(2), Some(n))
}
