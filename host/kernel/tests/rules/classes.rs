//! The class of each operation, and the powers that each class takes.

use charter_kernel::authority::{Class, admit, loosen, sees_project, sees_user};
use charter_kernel::id::{OrganizationId, ProjectId, UserId, uuid_v7};
use charter_kernel::manifest::{Access, Manifest, Operation};
use charter_kernel::refusal::Refusal;
use charter_kernel::role::Role;
use charter_kernel::scope::{Actor, ActorKind, Level, Principal, Proof, Scope, Subject};
use charter_kernel::time::Instant;
use serde_json::{Value, json};

fn manifest(reaches: &[&str]) -> Manifest {
    let collections: Vec<Value> = reaches
        .iter()
        .enumerate()
        .map(|(at, reach)| json!({ "name": format!("c{at}"), "reach": reach }))
        .collect();
    serde_json::from_value(json!({
        "name": "notes", "version": "1.0.0", "title": "Notes", "collections": collections,
    }))
    .unwrap()
}

fn operation(changes: &Value) -> Operation {
    let mut operation = json!({ "id": "notes.send", "method": "POST", "path": "/notes" });
    operation.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
    serde_json::from_value(operation).unwrap()
}

fn class(reaches: &[&str], changes: &Value) -> Class {
    Class::of(&manifest(reaches), &operation(changes))
}

fn id(n: u8) -> String {
    uuid_v7(Instant(1), [n; 10])
}

fn key(role: Role) -> Principal {
    Principal { role: Some(role), ..Principal::of(Actor::new(ActorKind::Key, "k")) }
}

fn session(role: Role) -> Principal {
    Principal { role: Some(role), ..Principal::of(Actor::new(ActorKind::Session, "s")) }
}

fn scope(principal: Principal, subject: Subject) -> Scope {
    Proof::of(principal)
        .organization(OrganizationId::parse(&id(1)).unwrap())
        .project(ProjectId::parse(&id(2)).unwrap(), false, false)
        .user(UserId::parse(&id(3)).unwrap(), subject)
        .scope()
}

fn refusal(principal: Principal, class: Class, access: Access) -> Refusal {
    admit(&scope(principal, Subject::Path), class, access).unwrap_err()
}

#[test]
fn a_class_follows_from_credential_action_and_reach() {
    let user: &[&str] = &["user"];
    let table = [
        (user, json!({ "auth": "none" }), Class::Open),
        (user, json!({ "auth": "operator" }), Class::Operator),
        (user, json!({ "auth": "hook" }), Class::Inbound),
        (user, json!({ "auth": "shared_secret:relay" }), Class::Inbound),
        (user, json!({}), Class::ProfileChange),
        (user, json!({ "method": "GET" }), Class::ProfileRead),
        (user, json!({ "access": "read" }), Class::ProfileRead),
        (user, json!({ "action": "notes.send" }), Class::Regulated),
        (user, json!({ "auth": "session" }), Class::DeskChange),
        (user, json!({ "auth": "session", "method": "GET" }), Class::DeskRead),
        (user, json!({ "auth": "session", "access": "read" }), Class::DeskRead),
        (&["project"], json!({}), Class::ProjectChange),
        (&["project"], json!({ "method": "GET" }), Class::ProjectRead),
        (&["organization"], json!({}), Class::OrganizationChange),
        (&["organization", "organization"], json!({ "method": "GET" }), Class::OrganizationRead),
        (&["organization", "user"], json!({}), Class::ProfileChange),
        (&["project", "organization"], json!({ "method": "GET" }), Class::ProfileRead),
        (&["deployment"], json!({}), Class::ProfileChange),
        (&[], json!({}), Class::ProfileChange),
    ];
    for (reaches, changes, expected) in table {
        assert_eq!(class(reaches, &changes), expected, "{reaches:?} {changes}");
    }
}

#[test]
fn what_a_manifest_declares_goes_before_what_follows() {
    let declared = |auth: &str| {
        class(
            &["organization"],
            &json!({ "auth": auth, "authority": "loosening", "action": "notes.x" }),
        )
    };
    assert_eq!((declared("key"), declared("session")), (Class::Loosening, Class::Loosening));
    assert_eq!((declared("none"), declared("operator")), (Class::Open, Class::Operator));
    assert_eq!(declared("hook"), Class::Inbound, "and gives nobody else anything");
}

#[test]
fn each_class_has_one_name_and_some_are_the_hosts_alone() {
    let mut names: Vec<&str> = Class::ALL.iter().map(|class| class.as_str()).collect();
    for class in Class::ALL {
        assert_eq!(serde_json::to_value(class).unwrap(), class.as_str());
    }
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), Class::ALL.len());
    let declarable: Vec<&str> = Class::ALL
        .iter()
        .filter(|class| class.is_declarable())
        .map(|class| class.as_str())
        .collect();
    let expected = [
        "profile_read",
        "profile_change",
        "profile_secret",
        "regulated",
        "others_money",
        "desk_read",
        "desk_change",
        "project_read",
        "project_change",
        "organization_read",
        "organization_change",
        "loosening",
    ];
    assert_eq!(declarable, expected);
}

#[test]
fn a_desk_alone_depends_on_the_level() {
    for class in Class::ALL {
        let at = [Level::User, Level::Project, Level::Organization].map(|level| class.at(level));
        let expected = match class {
            Class::DeskRead => [Class::DeskRead, Class::ProjectRead, Class::OrganizationRead],
            Class::DeskChange => {
                [Class::DeskChange, Class::ProjectChange, Class::OrganizationChange]
            }
            class => [class; 3],
        };
        assert_eq!(at, expected, "{class:?}");
    }
}

#[test]
fn a_refusal_names_the_least_role_and_the_verb() {
    let table = [
        (Class::ProfileChange, Access::Write, Role::Viewer, "developer", "write"),
        (Class::ProfileChange, Access::Admin, Role::Developer, "admin", "administer"),
        (Class::ProfileRead, Access::Write, Role::Approver, "developer", "write"),
        (Class::OthersMoney, Access::Write, Role::Developer, "admin", "administer"),
        (Class::Loosening, Access::Read, Role::Approver, "admin", "administer"),
    ];
    for (class, access, role, least, verb) in table {
        let refusal = refusal(key(role), class, access);
        assert_eq!(refusal.reason.as_deref(), Some("role_insufficient"), "{class:?}");
        assert_eq!(refusal.details["role"], role.as_str());
        assert_eq!(refusal.details["role_required"], least, "{class:?}");
        assert!(refusal.message.contains(&format!("may not {verb} here")), "{}", refusal.message);
    }
    let decides = refusal(session(Role::Developer), Class::Deciding, Access::Write);
    assert_eq!(decides.details["role_required"], "approver");
    assert!(decides.message.contains("may not decide here"), "{}", decides.message);
}

#[test]
fn a_pinned_key_learns_of_its_pin_and_of_the_class() {
    let pinned = Principal { user: UserId::parse(&id(3)), ..key(Role::Owner) };
    let refusal = refusal(pinned, Class::Loosening, Access::Read);
    assert_eq!(refusal.reason.as_deref(), Some("pinned"));
    assert_eq!(refusal.details["authority"], "loosening");
    assert!(refusal.hint.unwrap().contains("without pins"));
}

#[test]
fn a_credential_of_the_wrong_kind_learns_which_it_takes() {
    let reason = |principal, class| refusal(principal, class, Access::Read).reason.unwrap();
    assert_eq!(reason(key(Role::Owner), Class::Deciding), "person_required");
    assert_eq!(reason(key(Role::Owner), Class::OwnSession), "session_required");
    assert_eq!(reason(session(Role::Owner), Class::Regulated), "key_required");
    assert_eq!(reason(session(Role::Owner), Class::OthersMoney), "key_required");
}

#[test]
fn an_operation_that_asks_for_more_gets_more() {
    let may = |class, access, role| admit(&scope(key(role), Subject::Path), class, access).is_ok();
    assert!(may(Class::ProfileRead, Access::Read, Role::Viewer));
    assert!(!may(Class::ProfileRead, Access::Write, Role::Viewer));
    assert!(may(Class::ProfileRead, Access::Write, Role::Developer));
    assert!(!may(Class::ProfileRead, Access::Admin, Role::Developer));
    assert!(may(Class::ProfileRead, Access::Admin, Role::Admin));
    let decides =
        admit(&scope(session(Role::Approver), Subject::Path), Class::Deciding, Access::Admin);
    assert!(decides.is_ok(), "a decision is a power of its own");
}

#[test]
fn what_is_open_asks_no_role() {
    for class in [Class::Open, Class::Inbound, Class::Operator] {
        let nobody = Proof::of(Principal::of(Actor::anonymous())).scope();
        assert_eq!(admit(&nobody, class, Access::Admin), Ok(()), "{class:?}");
    }
}

#[test]
fn loosening_says_what_it_would_take() {
    let hint = |principal, session_only| {
        let scope = Proof::of(principal).loosens_by_session(session_only).scope();
        loosen(&scope).unwrap_err().hint.unwrap()
    };
    assert!(hint(key(Role::Developer), false).contains("admin key without pins"));
    assert!(hint(key(Role::Admin), true).contains("asks for the session"));
    let no_role = Principal::of(Actor::system("job"));
    assert!(loosen(&scope(no_role, Subject::Path)).is_err());
    let pinned = Principal { project: ProjectId::parse(&id(2)), ..key(Role::Owner) };
    assert!(loosen(&scope(pinned, Subject::Path)).is_err());
}

#[test]
fn without_a_pin_nothing_is_hidden() {
    let free = scope(key(Role::Viewer), Subject::Path);
    assert_eq!(sees_user(&free, &UserId::parse(&id(9)).unwrap()), Ok(()));
    assert_eq!(sees_project(&free, &ProjectId::parse(&id(9)).unwrap()), Ok(()));
}
