//! A scope carries what was proven and nothing else: reaches, levels, pins and powers.

use charter_kernel::id::{OrganizationId, ProjectId, UserId, uuid_v7};
use charter_kernel::manifest::CollectionReach;
use charter_kernel::role::Role;
use charter_kernel::scope::{Actor, ActorKind, Level, Principal, Proof, Scope, Subject};
use charter_kernel::time::Instant;
use charter_kernel::unit::Reach;

const REACHES: [CollectionReach; 4] = [
    CollectionReach::User,
    CollectionReach::Project,
    CollectionReach::Organization,
    CollectionReach::Deployment,
];

fn id(n: u8) -> String {
    uuid_v7(Instant(1), [n; 10])
}

fn user(n: u8) -> UserId {
    UserId::parse(&id(n)).unwrap()
}

fn project(n: u8) -> ProjectId {
    ProjectId::parse(&id(n)).unwrap()
}

fn proof(principal: Principal) -> Proof {
    Proof::of(principal).organization(OrganizationId::parse(&id(1)).unwrap())
}

fn key() -> Principal {
    Principal::of(Actor::new(ActorKind::Key, "k"))
}

fn reaches(scope: &Scope) -> [Option<Reach>; 4] {
    REACHES.map(|reach| scope.reach(reach))
}

#[test]
fn each_level_that_is_proven_adds_its_reach() {
    let deployment = Some(Reach::deployment());
    let nobody = Proof::of(key()).scope();
    assert_eq!(reaches(&nobody), [None, None, None, deployment.clone()]);
    assert_eq!((nobody.narrowest(), nobody.lane()), (Reach::deployment(), ""));
    let organization = Some(Reach::organization(&id(1)));
    let wide = proof(key()).scope();
    assert_eq!(reaches(&wide), [None, None, organization.clone(), deployment.clone()]);
    assert_eq!((wide.narrowest(), wide.lane()), (Reach::organization(&id(1)), id(1).as_str()));
    let middle = proof(key()).project(project(2), true, true).scope();
    assert_eq!(middle.narrowest(), Reach::project(&id(2)));
    assert!(middle.is_test() && !wide.is_test());
    let narrow = proof(key()).project(project(2), false, true).user(user(3), Subject::Path).scope();
    let all = [Some(Reach::user(&id(3))), Some(Reach::project(&id(2))), organization, deployment];
    assert_eq!((reaches(&narrow), narrow.narrowest()), (all, Reach::user(&id(3))));
    assert_eq!((narrow.user(), narrow.project()), (Some(&user(3)), Some(&project(2))));
    assert_eq!(narrow.organization().map(OrganizationId::as_str), Some(id(1).as_str()));
}

#[test]
fn what_is_not_reached_is_not_written() {
    for (kind, writes) in [
        (ActorKind::Key, false),
        (ActorKind::Session, false),
        (ActorKind::Agent, false),
        (ActorKind::Hook, false),
        (ActorKind::Anonymous, false),
        (ActorKind::Operator, true),
        (ActorKind::System, true),
    ] {
        let alone = Proof::of(Principal::of(Actor::new(kind, "x"))).scope();
        assert_eq!(alone.may_write(CollectionReach::Deployment), writes, "{kind:?}");
        assert!(!alone.may_write(CollectionReach::User), "{kind:?}");
        let tenant = proof(Principal::of(Actor::new(kind, "x"))).scope();
        assert!(!tenant.may_write(CollectionReach::Deployment), "{kind:?} for a tenant");
        assert!(tenant.may_write(CollectionReach::Organization), "{kind:?}");
        assert!(!tenant.may_write(CollectionReach::Project), "{kind:?}");
    }
}

#[test]
fn a_request_is_about_what_it_names() {
    let level = |named: bool, subject| {
        let scope = proof(key()).project(project(2), false, named).user(user(3), subject).scope();
        (scope.level(), scope.user_named().is_some(), scope.subject())
    };
    for subject in [Subject::Path, Subject::Header, Subject::Credential] {
        assert_eq!(level(false, subject), (Level::User, true, subject));
        assert_eq!(level(true, subject), (Level::User, true, subject));
    }
    assert_eq!(level(true, Subject::Default), (Level::Project, false, Subject::Default));
    assert_eq!(level(false, Subject::Default), (Level::Organization, false, Subject::Default));
    let nobody = proof(key()).project(project(2), false, true).scope();
    assert_eq!((nobody.level(), nobody.subject()), (Level::Project, Subject::None));
}

#[test]
fn a_pin_to_another_project_or_user_names_nothing() {
    let pinned = Principal { project: Some(project(9)), user: Some(user(9)), ..key() };
    let other =
        proof(pinned.clone()).project(project(2), false, false).user(user(3), Subject::Default);
    assert_eq!(
        (other.clone().scope().level(), other.scope().subject()),
        (Level::Organization, Subject::Default)
    );
    let own =
        proof(pinned).project(project(9), false, false).user(user(9), Subject::Default).scope();
    assert_eq!((own.level(), own.subject()), (Level::User, Subject::Credential));
}

#[test]
fn a_pin_cuts_the_power_and_never_widens_it() {
    let with = |role, user: Option<UserId>, project: Option<ProjectId>| Principal {
        role,
        user,
        project,
        ..key()
    };
    for role in Role::ALL {
        let free = with(Some(role), None, None);
        assert_eq!(
            (free.power(), free.is_pinned(), free.is_pinned_to_user()),
            (Some(role), false, false)
        );
        let to_user = with(Some(role), Some(user(3)), None);
        let to_project = with(Some(role), None, Some(project(2)));
        assert!(to_user.is_pinned() && to_user.is_pinned_to_user());
        assert!(to_project.is_pinned() && !to_project.is_pinned_to_user());
        for pinned in [to_user, to_project] {
            let power = pinned.power().unwrap();
            assert!(power.no_higher_than(role) && power.no_higher_than(Role::Developer), "{role}");
        }
    }
    assert_eq!(with(Some(Role::Owner), Some(user(3)), None).power(), Some(Role::Developer));
    assert_eq!(with(None, Some(user(3)), None).power(), None);
}

#[test]
fn names_towards_guests_are_as_the_interface_has_them() {
    let subjects = [
        (Subject::Path, "path"),
        (Subject::Header, "header"),
        (Subject::Credential, "credential"),
        (Subject::Default, "default"),
        (Subject::None, "none"),
    ];
    for (subject, name) in subjects {
        assert_eq!(subject.as_str(), name);
    }
    let kinds = [
        (ActorKind::Key, "key"),
        (ActorKind::Session, "session"),
        (ActorKind::Agent, "agent"),
        (ActorKind::Operator, "operator"),
        (ActorKind::Hook, "hook"),
        (ActorKind::System, "system"),
        (ActorKind::Anonymous, "anonymous"),
    ];
    for (kind, name) in kinds {
        assert_eq!(kind.as_str(), name);
        assert_eq!(serde_json::to_value(kind).unwrap(), name);
    }
    assert_eq!(Actor::system("jobs"), Actor::new(ActorKind::System, "jobs"));
    assert_eq!(Actor::anonymous().id, "");
}

#[test]
fn a_principal_of_an_earlier_build_has_no_pins() {
    let row = r#"{"actor":{"kind":"key","id":"k"}}"#;
    assert_eq!(serde_json::from_str::<Principal>(row).unwrap(), key());
    let scope = proof(Principal { role: Some(Role::Viewer), ..key() }).scope();
    assert_eq!((scope.role(), scope.actor().id.as_str()), (Some(Role::Viewer), "k"));
    assert_eq!(scope.principal().role, scope.role());
}

#[test]
fn a_credential_is_an_actor_that_others_see_the_beginning_of() {
    let id = "0123456789abcdef0123456789abcdef";
    let hook = Actor::by_credential(ActorKind::Hook, id);
    assert_eq!((hook.id.as_str(), hook.whole_id()), ("01234567…", id));
    assert!(!format!("{hook:?}").contains("9abcdef"), "{hook:?}");
    let kept = serde_json::to_string(&hook).unwrap();
    assert_eq!(serde_json::from_str::<Actor>(&kept).unwrap(), hook);
    // As earlier builds have kept it, and as it is kept of all others.
    let plain = format!(r#"{{"kind":"hook","id":"{id}"}}"#);
    let former: Actor = serde_json::from_str(&plain).unwrap();
    assert_eq!((former.whole_id(), serde_json::to_string(&former).unwrap()), (id, plain));
}
