//! Every class × every principal, held against the table that people read.

use std::collections::BTreeMap;

use super::*;
use crate::id::{OrganizationId, ProjectId, UserId, uuid_v7};
use crate::scope::{Actor, Principal, Proof, Subject};
use crate::time::Instant;

/// Columns of credentials that have a role.
const CREDENTIALS: [&str; 4] = ["key", "project", "user", "session"];
const MATRIX: &str = include_str!("../../../../tests/authority.tsv");

fn id(n: u8) -> String {
    uuid_v7(Instant(1), [n; 10])
}

/// The cells of a class, by column.
fn rows() -> BTreeMap<&'static str, BTreeMap<&'static str, &'static str>> {
    let mut lines = MATRIX.lines().filter(|line| !line.starts_with('#'));
    let columns: Vec<&str> = lines.next().unwrap().split('\t').skip(1).collect();
    let row = |line: &'static str| {
        let mut cells = line.split('\t');
        let class = cells.next().unwrap();
        (class, columns.iter().copied().zip(cells).collect())
    };
    lines.map(row).collect()
}

fn principal(column: &str, role: Role) -> Principal {
    let kind = if column == "session" { ActorKind::Session } else { ActorKind::Key };
    let project = (column == "project").then(|| ProjectId::parse(&id(2)).unwrap());
    let user = (column == "user").then(|| UserId::parse(&id(3)).unwrap());
    Principal { role: Some(role), project, user, ..Principal::of(Actor::new(kind, "a")) }
}

/// About the organization, unless a pin narrows it.
fn scope(principal: Principal, subject: Subject) -> Scope {
    Proof::of(principal)
        .organization(OrganizationId::parse(&id(1)).unwrap())
        .project(ProjectId::parse(&id(2)).unwrap(), false, false)
        .user(UserId::parse(&id(3)).unwrap(), subject)
        .scope()
}

fn reason(class: Class, access: Access, principal: Principal) -> Option<String> {
    // A named user: the level at which a desk is a profile's.
    let scope = scope(principal, Subject::Path);
    admit(&scope, class, access).err().and_then(|refusal| refusal.reason)
}

/// The roles that a cell admits.
fn admits(cell: &str, role: Role) -> bool {
    match cell {
        "-" => false,
        "anyone" => true,
        least => {
            let least = Role::parse(least).unwrap();
            match least {
                Role::Approver => role.decides(),
                least => least.no_higher_than(role),
            }
        }
    }
}

#[test]
fn the_table_has_a_row_for_each_class_and_no_other() {
    let rows = rows();
    let named: Vec<&str> = Class::ALL.iter().map(|class| class.as_str()).collect();
    assert_eq!(rows.len(), named.len());
    for class in named {
        assert_eq!(rows[class].len(), 8, "{class}");
    }
}

#[test]
fn components_do_what_their_callers_may_and_only_what_manifests_can_declare() {
    for (class, cells) in rows() {
        let class = Class::ALL.into_iter().find(|known| known.as_str() == class).unwrap();
        let told = if class.is_declarable() { "caller" } else { "-" };
        assert_eq!(cells["component"], told, "{class:?}");
    }
}

#[test]
fn each_principal_may_do_what_its_cell_says_and_nothing_else() {
    for (class, cells) in rows() {
        let class = Class::ALL.into_iter().find(|known| known.as_str() == class).unwrap();
        if class == Class::Operator {
            // The token was checked before; no role has a part in it.
            continue;
        }
        for column in CREDENTIALS {
            let cell = cells[column];
            for role in Role::ALL {
                let denied = reason(class, Access::Read, principal(column, role));
                let told = format!("{} by {column} as {role}: {denied:?}", class.as_str());
                assert_eq!(denied.is_none(), admits(cell, role), "{told}");
            }
        }
    }
}

#[test]
fn an_operation_can_ask_for_more_than_its_class_and_never_for_less() {
    for class in Class::ALL {
        for column in CREDENTIALS {
            for role in Role::ALL {
                let by = |access| reason(class, access, principal(column, role)).is_none();
                assert!(by(Access::Read) || !by(Access::Write), "{class:?} {column} {role}");
                assert!(by(Access::Write) || !by(Access::Admin), "{class:?} {column} {role}");
                let open = matches!(class, Class::Open | Class::Inbound | Class::Operator);
                let decides = class == Class::Deciding;
                let pinned = ["project", "user"].contains(&column);
                let admin = open || decides || (role.allows(Access::Admin) && !pinned);
                assert!(admin || !by(Access::Admin), "{class:?} {column} {role}");
            }
        }
    }
}

#[test]
fn a_pin_is_told_before_a_role_and_a_kind_of_credential_before_both() {
    let why = |class, column, role| reason(class, Access::Read, principal(column, role));
    let told = |class, column, role| why(class, column, role).unwrap_or_default();
    assert_eq!(told(Class::Loosening, "user", Role::Viewer), "pinned");
    assert_eq!(told(Class::Loosening, "project", Role::Admin), "pinned");
    assert_eq!(told(Class::Loosening, "key", Role::Developer), "role_insufficient");
    assert_eq!(told(Class::Deciding, "user", Role::Viewer), "person_required");
    assert_eq!(told(Class::Regulated, "session", Role::Viewer), "key_required");
    assert_eq!(told(Class::OwnSession, "key", Role::Owner), "session_required");
    for column in ["project", "user"] {
        let administers = reason(Class::Regulated, Access::Admin, principal(column, Role::Admin));
        assert_eq!(administers.as_deref(), Some("pinned"), "{column}");
    }
}

#[test]
fn a_desk_is_as_wide_as_what_is_named() {
    let key = |role| principal("key", role);
    let by = |subject, role| {
        let scope = scope(key(role), subject);
        [Class::DeskRead, Class::DeskChange].map(|class| class.at(scope.level()))
    };
    assert_eq!(by(Subject::Path, Role::Viewer), [Class::DeskRead, Class::DeskChange]);
    let wide = [Class::OrganizationRead, Class::OrganizationChange];
    assert_eq!(by(Subject::Default, Role::Viewer), wide);
    // A pin narrows before anything is asked, so that both pins have a desk.
    for column in ["project", "user"] {
        let pinned = scope(principal(column, Role::Developer), Subject::Default);
        assert!(admit(&pinned, Class::DeskChange, Access::Write).is_ok(), "{column}");
    }
}

#[test]
fn an_admin_without_pins_loosens_and_an_organization_can_ask_for_a_session_always() {
    let may = |column, role, session_only| {
        let proof = Proof::of(principal(column, role)).loosens_by_session(session_only);
        loosen(&proof.scope()).is_ok()
    };
    for role in Role::ALL {
        let admin = role.allows(Access::Admin);
        assert_eq!(may("session", role, false), admin, "{role}");
        assert_eq!(may("session", role, true), admin, "{role}");
        assert_eq!(may("key", role, false), admin, "{role}");
        assert!(!may("key", role, true), "{role}");
        assert!(!may("project", role, false) && !may("user", role, false), "{role}");
    }
}

#[test]
fn a_pin_hides_other_users_and_names_other_projects() {
    let (own, other) = (UserId::parse(&id(3)).unwrap(), UserId::parse(&id(8)).unwrap());
    let pinned = scope(principal("user", Role::Owner), Subject::Path);
    assert!(sees_user(&pinned, &own).is_ok());
    assert_eq!(sees_user(&pinned, &other), Err(Refusal::not_found()));
    let (own, other) = (ProjectId::parse(&id(2)).unwrap(), ProjectId::parse(&id(8)).unwrap());
    let pinned = scope(principal("project", Role::Owner), Subject::Path);
    assert!(sees_project(&pinned, &own).is_ok());
    assert_eq!(sees_project(&pinned, &other), Err(project_mismatch()));
}

#[test]
fn the_hosts_own_work_changes_and_never_administers() {
    let job = || Principal::of(Actor::system("job"));
    for class in [Class::ProfileChange, Class::Regulated, Class::OrganizationChange] {
        assert_eq!(reason(class, Access::Write, job()), None, "{class:?}");
    }
    for class in [Class::Loosening, Class::OthersMoney, Class::Deciding] {
        assert!(reason(class, Access::Read, job()).is_some(), "{class:?}");
    }
}

#[test]
fn what_runs_later_for_a_session_has_no_power_that_the_session_lacks() {
    for role in Role::ALL {
        let session = principal("session", role);
        // The profile that it is about is its pin.
        for (column, later) in [
            ("key", session.hand_on()),
            ("key", session.hand_over()),
            ("user", Principal { user: principal("user", role).user, ..session.hand_on() }),
            (
                "project",
                Principal { project: principal("project", role).project, ..session.hand_over() },
            ),
        ] {
            for class in Class::ALL {
                let lacks = |column| reason(class, Access::Read, principal(column, role));
                let asked = lacks("session").or_else(|| lacks(column));
                let told = reason(class, Access::Read, later.clone());
                assert!(asked.is_none() || told.is_some(), "{class:?} by {role:?}: {asked:?}");
            }
            let told = reason(Class::ProfileChange, Access::Write, later);
            assert_eq!(told.as_deref(), Some("key_required"));
        }
    }
}

#[test]
fn a_class_says_whose_it_is_and_whether_it_is_asked_again() {
    use Class::{
        Deciding, DeskChange, DeskRead, Loosening, Membership, OrganizationChange,
        OrganizationName, OrganizationRead, OthersMoney, OwnCredential, OwnSession, ProfileSecret,
        Regulated,
    };
    let always =
        [OrganizationName, OrganizationRead, OrganizationChange, Deciding, OwnSession, Membership];
    let unnamed = [OwnCredential, Loosening, DeskRead, DeskChange];
    for class in Class::ALL {
        for level in [Level::User, Level::Project, Level::Organization] {
            let is_unnamed = level == Level::Organization && unnamed.contains(&class);
            let expected = always.contains(&class) || is_unnamed;
            assert_eq!(class.is_of_organization(level), expected, "{class:?} {level:?}");
        }
        assert_eq!(class.is_whole(), [OrganizationRead, OrganizationChange].contains(&class));
        let anew = [ProfileSecret, Regulated, OthersMoney];
        assert_eq!(class.is_asked_anew(), anew.contains(&class), "{class:?}");
    }
}

#[test]
fn the_secret_of_a_profile_is_what_no_kept_answer_shows() {
    let showing: Vec<Class> = Class::ALL.into_iter().filter(|class| class.shows_secret()).collect();
    assert_eq!(showing, [Class::ProfileSecret]);
}

#[test]
fn it_takes_the_power_to_change_whatever_reads_and_to_move_money_whatever_runs() {
    for role in Role::ALL {
        let by_key = scope(principal("key", role), Subject::Path);
        for class in [Class::ProfileRead, Class::DeskRead, Class::ProjectRead] {
            assert_eq!(change(&by_key, class).is_ok(), role.allows(Access::Write), "{role}");
        }
        assert_eq!(move_money(&by_key).is_ok(), role.allows(Access::Write), "{role}");
    }
    let host = Principal::of(Actor::new(ActorKind::System, "host"));
    assert!(move_money(&scope(host, Subject::Path)).is_ok(), "a hook's word has no role");
}
