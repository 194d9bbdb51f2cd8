//! The matrix of authority: each operation is of one [`Class`], and this table says what each
//! principal may do with operations of that class.
//!
//! Authority is a property of the credential, proved once, and only ever cut. Nothing here asks how
//! a subject was named, where an operation is mounted, or what runs it and when: a [`Scope`] is all
//! that a decision sees. `tests/authority.tsv` says the same in one readable table, and a sweep
//! holds every route of a running server against it.

pub use crate::class::Class;
use crate::id::{ProjectId, UserId};
use crate::manifest::{Access, CollectionReach, Manifest, Operation};
use crate::refusal::Refusal;
use crate::role::Role;
use crate::scope::{ActorKind, Level, Principal, Scope};

/// The least power that a class takes of each kind of credential; `None` where none is enough.
#[derive(Clone, Copy, Debug)]
struct Row {
    /// A key without pins.
    key: Option<Power>,
    /// A key that is pinned to a project, within it.
    project: Option<Power>,
    /// A key that is pinned to a user, for that user.
    user: Option<Power>,
    /// A person's session.
    session: Option<Power>,
}

/// The powers that a role is a set of, in the words of refusals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Power {
    Read,
    Write,
    Administer,
    Decide,
}

impl Power {
    fn is_of(self, role: Role) -> bool {
        match self {
            Self::Read => role.allows(Access::Read),
            Self::Write => role.allows(Access::Write),
            Self::Administer => role.allows(Access::Admin),
            Self::Decide => role.decides(),
        }
    }

    /// The power that an operation asks for beyond what its class does.
    fn at_least(self, access: Access) -> Self {
        match (self, access) {
            (Self::Read, Access::Write) => Self::Write,
            (Self::Read | Self::Write, Access::Admin) => Self::Administer,
            (own, _) => own,
        }
    }

    /// The narrowest role that has it, and the verb.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Read => ("viewer", "read"),
            Self::Write => ("developer", "write"),
            Self::Administer => ("admin", "administer"),
            Self::Decide => ("approver", "decide"),
        }
    }
}

impl Class {
    /// The class of a primitive's operation: what its manifest says, else what follows from its
    /// credential, its action, its access and the reach of what the primitive keeps.
    pub fn of(manifest: &Manifest, operation: &Operation) -> Self {
        let changes = operation.mutates() && operation.access != Access::Read;
        match (operation.auth.as_str(), operation.authority) {
            ("none", _) => return Self::Open,
            ("operator", _) => return Self::Operator,
            ("key" | "session", Some(declared)) => return declared,
            ("key", None) if operation.action.is_some() => return Self::Regulated,
            ("key", None) => {}
            // A person does by hand what is a person's: the desk of a profile is that.
            ("session", None) if changes => return Self::DeskChange,
            ("session", None) => return Self::DeskRead,
            _ => return Self::Inbound,
        }
        let all = |reach| manifest.keeps_all_in(reach);
        match (all(CollectionReach::Organization), all(CollectionReach::Project), changes) {
            (true, _, false) => Self::OrganizationRead,
            (true, _, true) => Self::OrganizationChange,
            (_, true, false) => Self::ProjectRead,
            (_, true, true) => Self::ProjectChange,
            (_, _, false) => Self::ProfileRead,
            (_, _, true) => Self::ProfileChange,
        }
    }

    /// The class at the level that a request is about: a desk is a profile's, a project's or the
    /// organization's.
    #[must_use]
    pub fn at(self, level: Level) -> Self {
        match (self, level) {
            (Self::DeskRead, Level::Project) => Self::ProjectRead,
            (Self::DeskRead, Level::Organization) => Self::OrganizationRead,
            (Self::DeskChange, Level::Project) => Self::ProjectChange,
            (Self::DeskChange, Level::Organization) => Self::OrganizationChange,
            (class, _) => class,
        }
    }

    /// Whether what a route of the host does at this level is the organization's and no project's,
    /// whichever project the request has defaulted to: who is pinned to a project hears nothing of
    /// it. Of a primitive's operations [`Class::is_whole`] says that: its desks are profiles'.
    pub fn is_of_organization(self, level: Level) -> bool {
        match self.at(level) {
            Self::OrganizationName
            | Self::OrganizationRead
            | Self::OrganizationChange
            | Self::Deciding
            | Self::OwnSession
            | Self::Membership => true,
            Self::OwnCredential | Self::Loosening => level == Level::Organization,
            _ => false,
        }
    }

    /// Whether a primitive's operation of it is the organization's own: no project, profile or kit is
    /// a party to it that nobody named.
    pub fn is_whole(self) -> bool {
        matches!(self, Self::OrganizationRead | Self::OrganizationChange)
    }

    /// Whether its answers show a secret: nothing keeps them.
    pub fn shows_secret(self) -> bool {
        self == Self::ProfileSecret
    }

    /// Whether it takes a credential that counts at the very moment, also where the host does later
    /// what was asked with it: what spends, binds or shows a secret.
    pub fn is_asked_anew(self) -> bool {
        matches!(self, Self::ProfileSecret | Self::Regulated | Self::OthersMoney)
    }

    /// The class of what changes where this one reads.
    fn changing(self) -> Self {
        match self {
            Self::ProfileRead => Self::ProfileChange,
            Self::DeskRead => Self::DeskChange,
            Self::ProjectRead => Self::ProjectChange,
            Self::OrganizationRead => Self::OrganizationChange,
            class => class,
        }
    }

    fn row(self) -> Option<Row> {
        use Power::{Administer, Decide, Read, Write};
        const fn row(columns: [Option<Power>; 4]) -> Option<Row> {
            let [key, project, user, session] = columns;
            Some(Row { key, project, user, session })
        }
        let (read, write, admin, decide) =
            (Some(Read), Some(Write), Some(Administer), Some(Decide));
        match self {
            Self::Open | Self::Inbound | Self::Operator => None,
            Self::ProfileRead | Self::DeskRead => row([read, read, read, read]),
            Self::ProfileChange | Self::ProfileSecret | Self::Regulated => {
                row([write, write, write, None])
            }
            Self::OthersMoney => row([admin, None, None, None]),
            Self::DeskChange => row([write, write, write, write]),
            Self::ProjectRead | Self::OrganizationName => row([read, read, None, read]),
            Self::ProjectChange => row([write, write, None, write]),
            Self::OrganizationRead => row([read, None, None, read]),
            Self::OrganizationChange => row([write, None, None, write]),
            Self::Loosening => row([admin, None, None, admin]),
            Self::Deciding => row([None, None, None, decide]),
            Self::OwnCredential => row([write, write, write, read]),
            Self::OwnSession => row([None, None, None, read]),
            Self::Membership => row([admin, None, None, read]),
        }
    }
}

/// Whether the principal of a scope may call an operation of this class that asks for `access`.
///
/// Pins are asked before roles, so that a pinned key learns of its pin whatever its role is.
///
/// # Errors
/// 403 with the reason `pinned`, `key_required`, `session_required`, `person_required` or
/// `role_insufficient`; the last names the role that it takes.
pub fn admit(scope: &Scope, class: Class, access: Access) -> Result<(), Refusal> {
    admit_principal(scope.principal(), class.at(scope.level()), access)
}

/// The same of a principal by itself, at the level that the class names.
///
/// # Errors
/// As [`admit`].
pub fn admit_principal(principal: &Principal, class: Class, access: Access) -> Result<(), Refusal> {
    let Some(row) = class.row() else {
        // Callers of what is open have no role; one that has a role has no more power here than elsewhere.
        let power = Power::Read.at_least(access);
        let role = principal.role.filter(|role| class == Class::Open && !power.is_of(*role));
        return role.map_or(Ok(()), |role| Err(insufficient(role, power)));
    };
    let is_session = principal.actor.kind == ActorKind::Session;
    let by_session = is_session || principal.by_session;
    let column = match principal {
        _ if is_session => row.session,
        principal if principal.is_pinned_to_user() => row.user,
        principal if principal.is_pinned() => row.project,
        _ => row.key,
    };
    // The host's later work for a session has no power that either lacks.
    let column = column.filter(|_| !by_session || row.session.is_some());
    let power = column.ok_or_else(|| match class {
        Class::Deciding => person_required(),
        Class::OwnSession => session_required(),
        _ if by_session => key_required(),
        class => refuse_pinned(class),
    })?;
    let power = power.at_least(access);
    if power == Power::Administer && principal.is_pinned() {
        // A pin is narrower than anything that is administered, whatever the role.
        return Err(refuse_pinned(class));
    }
    // The host's own work has the profile's power: it changes, and neither administers nor decides.
    let role = principal.role.unwrap_or(Role::Developer);
    if power.is_of(role) { Ok(()) } else { Err(insufficient(role, power)) }
}

/// Whether a call of an operation of this class may change something. An operation that asks for
/// `access: read` is admitted by a class that reads, whatever its method; what it then changes takes
/// the power to change, so that who may only read changes nothing by any operation.
///
/// # Errors
/// As of [`admit`].
pub fn change(scope: &Scope, class: Class) -> Result<(), Refusal> {
    admit(scope, class.changing(), Access::Write)
}

/// Whether the principal of a scope may move money, or what bounds it, by whatever runs for it. The
/// host's own work and a provider's signed word have no role, and may.
///
/// # Errors
/// 403 `role_insufficient`, naming the role that it takes.
pub fn move_money(scope: &Scope) -> Result<(), Refusal> {
    match scope.role() {
        Some(role) if !Power::Write.is_of(role) => Err(insufficient(role, Power::Write)),
        _ => Ok(()),
    }
}

/// Whether the principal of a scope may give more room than there is.
///
/// # Errors
/// 403 `loosening_not_allowed` with what it would take.
pub fn loosen(scope: &Scope) -> Result<(), Refusal> {
    let principal = scope.principal();
    let session_only = scope.loosens_by_session();
    let by_session = principal.actor.kind == ActorKind::Session;
    let loosens = principal.role.is_some_and(Role::loosens) && !principal.is_pinned();
    if loosens && (by_session || !session_only) {
        return Ok(());
    }
    let hint = if session_only {
        "This organization asks for the session of an owner or admin."
    } else {
        "It takes the session of an owner or admin, or an admin key without pins."
    };
    let told = "This would loosen what the organization has set.";
    Err(Refusal::forbidden("loosening_not_allowed", told).hint(hint))
}

/// Hides other users from a credential that is pinned to one.
///
/// # Errors
/// 404, as if there were none.
pub fn sees_user(scope: &Scope, user: &UserId) -> Result<(), Refusal> {
    match &scope.principal().user {
        Some(pinned) if pinned != user => Err(Refusal::not_found()),
        _ => Ok(()),
    }
}

/// Refuses another project than the one that the credential is pinned to.
///
/// # Errors
/// 403 `key_project_mismatch`.
pub fn sees_project(scope: &Scope, project: &ProjectId) -> Result<(), Refusal> {
    match &scope.principal().project {
        Some(pinned) if pinned != project => Err(project_mismatch()),
        _ => Ok(()),
    }
}

/// The answer to a key that is pinned to another project of its organization.
pub fn project_mismatch() -> Refusal {
    Refusal::forbidden("key_project_mismatch", "The API key is pinned to another project.")
}

fn key_required() -> Refusal {
    let told = "Changes of primitives need an API key; the cookie serves their reads.";
    Refusal::forbidden("key_required", told)
}

fn session_required() -> Refusal {
    Refusal::forbidden("session_required", "This needs a person's session.")
}

fn person_required() -> Refusal {
    let told = "Only people decide: it takes the session of an owner, admin or approver.";
    Refusal::forbidden("person_required", told).hint("Sign in with POST /v1/auth/login.")
}

fn refuse_pinned(class: Class) -> Refusal {
    let told = "The key is pinned, and this is about more than what it is pinned to.";
    Refusal::forbidden("pinned", told)
        .hint("Use a key without pins.")
        .detail("authority", class.as_str())
}

fn insufficient(role: Role, power: Power) -> Refusal {
    let (least, verb) = power.words();
    let told = format!("The role {role} may not {verb} here: it takes the role {least}.");
    Refusal::forbidden("role_insufficient", told)
        .detail("role", role.as_str())
        .detail("role_required", least)
}

#[cfg(test)]
mod tests;
