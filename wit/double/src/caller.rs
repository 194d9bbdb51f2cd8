//! On whose behalf a request of a test runs.
//!
//! The ids are fixed: a test has one organization and one project, and users as it names them.

use charter_kernel::id::{OrganizationId, ProjectId, UserId};
use charter_kernel::role::Role;
use charter_kernel::scope::{Actor, ActorKind, Principal, Proof, Scope, Subject};
use charter_sdk::Caller;

/// The organization of every test.
pub const ORGANIZATION: &str = "01970000-0000-7000-8000-00000000000a";
/// Its project.
pub const PROJECT: &str = "01970000-0000-7000-8000-00000000000b";
/// The tenant user of requests that name no other.
pub const USER: &str = "01970000-0000-7000-8000-00000000000c";

/// The caller of requests that name no other: an admin's key, for the default profile.
pub(crate) fn usual() -> Caller {
    Caller {
        organization: ORGANIZATION.into(),
        project: PROJECT.into(),
        user: Some(USER.into()),
        subject: "default".into(),
        actor: ("key".into(), "key".into()),
        role: Some("admin".into()),
    }
}

/// The same on behalf of another user.
pub(crate) fn user(id: &str) -> Caller {
    Caller { user: Some(id.into()), subject: "path".into(), ..usual() }
}

/// The host itself, in the scope of a user, or of the whole project where there is none.
pub(crate) fn of_signal(kind: &str, user: Option<&str>) -> Caller {
    Caller {
        user: user.map(str::to_owned),
        subject: if user.is_some() { "path" } else { "none" }.into(),
        actor: (kind.into(), kind.into()),
        role: None,
        ..usual()
    }
}

/// The scope that the host would have resolved for this caller.
///
/// # Panics
/// If an id is no UUID.
pub(crate) fn scope(caller: &Caller) -> Scope {
    let (kind, id) = &caller.actor;
    let kind = [ActorKind::Session, ActorKind::Agent, ActorKind::Operator, ActorKind::Hook]
        .into_iter()
        .chain([ActorKind::System, ActorKind::Anonymous])
        .find(|known| known.as_str() == kind)
        .unwrap_or(ActorKind::Key);
    let user = caller.user.as_deref().map(|id| {
        UserId::parse(id).unwrap_or_else(|| panic!("a user's id is a UUID, and not {id:?}"))
    });
    let mut principal = Principal::of(Actor::new(kind, id.clone()));
    principal.role = caller.role.as_deref().and_then(Role::parse);
    principal.user = user.clone().filter(|_| caller.subject == "credential");
    let mut proof = Proof::of(principal);
    if let Some(organization) = OrganizationId::parse(&caller.organization) {
        proof = proof.organization(organization);
    }
    if let Some(project) = ProjectId::parse(&caller.project) {
        proof = proof.project(project, false, false);
    }
    let subject = match caller.subject.as_str() {
        "path" => Subject::Path,
        "header" => Subject::Header,
        "credential" => Subject::Credential,
        _ => Subject::Default,
    };
    match user {
        Some(user) => proof.user(user, subject).scope(),
        None => proof.scope(),
    }
}

/// The caller as a guest sees the scope.
pub(crate) fn of_scope(scope: &Scope) -> Caller {
    Caller {
        organization: scope.lane().to_owned(),
        project: scope.project().map_or_else(String::new, |id| id.as_str().to_owned()),
        user: scope.user().map(|id| id.as_str().to_owned()),
        subject: scope.subject().as_str().to_owned(),
        actor: (scope.actor().kind.as_str().to_owned(), scope.actor().id.clone()),
        role: scope.principal().power().map(|role| role.as_str().to_owned()),
    }
}
