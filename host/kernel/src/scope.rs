//! On whose behalf a request runs: the proof that tenancy was resolved.
//!
//! The fields are private. A `Scope` is built in one place, the resolver of `host/tenancy`, after the
//! credential was checked and the project and user were found to belong to its organization;
//! everything below takes the scope and cannot widen it. A guest sees its fields, never makes one.
//! The [`Principal`] says who acts, with which role and under which pins: a property of
//! the credential, which no way of naming a subject changes.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::id::{OrganizationId, ProjectId, UserId};
use crate::manifest::{Access, CollectionReach};
use crate::role::Role;
use crate::time::Instant;
use crate::unit::{Reach, beginning};

/// Organization, project, user and principal of one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    organization: Option<OrganizationId>,
    project: Option<ProjectId>,
    project_named: bool,
    test: bool,
    user: Option<UserId>,
    subject: Subject,
    by_session_only: bool,
    principal: Principal,
}

/// The caller, as the credential proves it: the same however the subject of a request was named.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Principal {
    /// Kind and id.
    pub actor: Actor,
    /// The role that the credential has now; absent for the host, hooks and the anonymous.
    #[serde(default)]
    pub role: Option<Role>,
    /// The one project that the credential acts in.
    #[serde(default)]
    pub project: Option<ProjectId>,
    /// The one tenant user that the credential acts for.
    #[serde(default)]
    pub user: Option<UserId>,
    /// The account of the person behind it: who signed in, or who stands at the end of a key's
    /// chain of makers. Four eyes compare these.
    #[serde(default)]
    pub root: Option<String>,
    /// The credential that asked, where the host does it later: what takes one is done only as long
    /// as this one counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential: Option<Actor>,
    /// Whether a session asked, where the host does it later: it does nothing that a session may
    /// not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_session: bool,
    /// Since when the person of a session is a member: a member who was removed and came back has
    /// not asked for what this one did. Absent for keys, and in rows of earlier builds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member_since: Option<Instant>,
    /// The one who asked, where the host does it later: a run has the pins of its owner, whoever asked for it.
    #[serde(default, skip_serializing_if = "Behind::is_organization")]
    pub behind: Behind,
}

/// The one who stands behind what is asked for, as far as that bounds how much of it may wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Behind {
    /// A credential that is not pinned, the host by itself, or a provider.
    #[default]
    Organization,
    /// A credential that is pinned to a project.
    Project,
    /// A credential that is pinned to a tenant user.
    User,
    /// Anybody: a caller without a credential, of an inbound URL whose events nobody signs, or a sender
    /// to a name.
    Stranger,
}

/// The name by which a principal counts among those who share what an organization has at once. A
/// person's sessions count beside the person's keys, so that what these do keeps nobody from deciding
/// about them, and what an agent does counts as the agent's whoever does it, but for who can only read: a
/// viewer may make a key with the pins of any agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Sharer {
    /// The project whose part of what pinned credentials have together it shares, if it is pinned, or the one
    /// whose part it is otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<Arc<str>>,
    /// Its name among the others.
    pub name: Arc<str>,
}

/// The one who asks, as a [`Sharer`] and for whom.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asker {
    /// The one who asks.
    pub sharer: Sharer,
    /// Its name for whom it asks.
    pub name: Arc<str>,
}

impl Behind {
    fn is_organization(&self) -> bool {
        *self == Self::Organization
    }

    /// Whether it is a pinned credential.
    pub fn is_pinned(self) -> bool {
        matches!(self, Self::Project | Self::User)
    }
}

impl Principal {
    /// A principal without role, pins and person: the host, a hook, the operator, or nobody.
    pub fn of(actor: Actor) -> Self {
        Self {
            actor,
            role: None,
            project: None,
            user: None,
            root: None,
            credential: None,
            by_session: false,
            member_since: None,
            behind: Behind::Organization,
        }
    }

    /// The one who stands behind what it asks for.
    pub fn behind(&self) -> Behind {
        match self.actor.kind {
            ActorKind::System => self.behind,
            ActorKind::Anonymous => Behind::Stranger,
            // Of an event that is signed it has no role.
            ActorKind::Hook if self.role.is_some() => Behind::Stranger,
            ActorKind::Hook => Behind::Organization,
            _ if self.is_pinned_to_user() => Behind::User,
            _ if self.is_pinned() => Behind::Project,
            _ => Behind::Organization,
        }
    }

    /// The host, doing later what this principal asks for now: with no power that it lacks, and
    /// without the power to administer or decide, which ends with the request.
    #[must_use]
    pub fn hand_on(&self) -> Self {
        let is_credential = matches!(self.actor.kind, ActorKind::Key | ActorKind::Session);
        // A stranger leaves the host no more than to change what its primitive keeps.
        let role = match self.actor.kind {
            ActorKind::Anonymous => Some(Role::Viewer),
            _ => self.role,
        };
        Self {
            actor: Actor::system("job"),
            role: role.map(|role| role.intersect(Role::Developer)),
            credential: self.credential.clone().or(is_credential.then(|| self.actor.clone())),
            by_session: self.by_session || self.actor.kind == ActorKind::Session,
            behind: self.behind(),
            ..self.clone()
        }
    }

    /// The same for what goes on for ever, on a schedule: it belongs to the profile, and outlives
    /// the credential that set it up. A job keeps the one it was asked with: it may count no more.
    #[must_use]
    pub fn hand_over(&self) -> Self {
        Self { credential: self.credential.clone(), ..self.hand_on() }
    }

    /// Whether it governs the organization: it loosens what binds others or, as a person, decides.
    pub fn governs(&self) -> bool {
        let may =
            |role: Role| role.loosens() || self.actor.kind == ActorKind::Session && role.decides();
        !self.behind().is_pinned() && self.role.is_some_and(may)
    }

    /// The person behind a credential that has the pins of an agent and cannot act as one: anybody who reads
    /// may make it, and takes nothing from the agent by it.
    fn reader(&self) -> Option<&str> {
        let reads = self.role.is_some_and(|role| !role.allows(Access::Write));
        (reads && self.behind().is_pinned()).then(|| self.root.as_deref().unwrap_or_default())
    }

    /// The role that counts within the pins: a pinned credential administers nothing, whatever its
    /// role is.
    pub fn power(&self) -> Option<Role> {
        match self.role {
            Some(role) if self.is_pinned() => Some(role.intersect(Role::Developer)),
            role => role,
        }
    }

    /// Whether the credential acts for one tenant user only.
    pub fn is_pinned_to_user(&self) -> bool {
        self.user.is_some()
    }

    /// Whether the credential acts in one project, or for one tenant user, only.
    pub fn is_pinned(&self) -> bool {
        self.user.is_some() || self.project.is_some()
    }

    /// Whether it sees the sum that a scope has spent, or has: a pin hides the sums of others with
    /// its own.
    pub fn sees_sum_of(&self, scope: &str) -> bool {
        match scope {
            "organization" => !self.is_pinned(),
            "project" => !self.is_pinned_to_user(),
            _ => true,
        }
    }
}

/// How the tenant user was named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Subject {
    /// `/v1/users/{user_id}/…`.
    Path,
    /// `X-Service-User-Id`.
    Header,
    /// The credential is pinned to the user, whether or not the request names it as well.
    Credential,
    /// Nobody was named: the account's own profile.
    Default,
    /// There is no user.
    None,
}

impl Subject {
    /// Its name towards guests.
    pub fn as_str(self) -> &'static str {
        match self {
            Subject::Path => "path",
            Subject::Header => "header",
            Subject::Credential => "credential",
            Subject::Default => "default",
            Subject::None => "none",
        }
    }
}

/// How a request named its project and its user: what of it is somebody's follows from this.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Naming {
    /// Whether it named the project, or the credential is pinned to that.
    pub project: bool,
    /// How it named the user.
    pub user: Subject,
}

impl Naming {
    /// As of work that is one profile's.
    pub const PROFILE: Self = Self { project: false, user: Subject::Path };
}

/// How much of an organization a request is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// One tenant user, who was named or to whom the credential is pinned.
    User,
    /// One project, which was named or to which the credential is pinned.
    Project,
    /// All of it.
    Organization,
}

/// The kinds of callers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ActorKind {
    /// An API key.
    Key,
    /// A person's browser session.
    Session,
    /// An agent that runs on the deployment.
    Agent,
    /// The operator's token.
    Operator,
    /// An inbound URL.
    Hook,
    /// The host itself: jobs, schedules, signals.
    System,
    /// Nobody that was identified.
    Anonymous,
}

impl ActorKind {
    /// Its name towards guests and in audit rows.
    pub fn as_str(self) -> &'static str {
        match self {
            ActorKind::Key => "key",
            ActorKind::Session => "session",
            ActorKind::Agent => "agent",
            ActorKind::Operator => "operator",
            ActorKind::Hook => "hook",
            ActorKind::System => "system",
            ActorKind::Anonymous => "anonymous",
        }
    }
}

/// The caller by kind and id.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Actor {
    /// Its kind.
    pub kind: ActorKind,
    /// Its id; empty for the anonymous.
    pub id: String,
    /// The whole of it, where its id is a credential and others see the beginning only.
    #[serde(default, skip_serializing_if = "Whole::is_absent")]
    whole: Whole,
}

/// A credential that nobody is shown.
#[derive(Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
struct Whole(Option<String>);

impl Whole {
    fn is_absent(&self) -> bool {
        self.0.is_none()
    }
}

impl fmt::Debug for Whole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_absent() { "-" } else { "…" })
    }
}

impl Actor {
    /// The actor of this kind and id.
    pub fn new(kind: ActorKind, id: impl Into<String>) -> Self {
        Self { kind, id: id.into(), whole: Whole::default() }
    }
    /// The actor of this kind whose id is a credential: it is shown by its beginning.
    pub fn by_credential(kind: ActorKind, credential: &str) -> Self {
        Self { whole: Whole(Some(credential.to_owned())), ..Self::new(kind, beginning(credential)) }
    }
    /// The id that no other actor of its kind has. Nobody is shown it.
    pub fn whole_id(&self) -> &str {
        self.whole.0.as_deref().unwrap_or(&self.id)
    }
    /// The host itself, doing `what`.
    pub fn system(what: &str) -> Self {
        Self::new(ActorKind::System, what)
    }
    /// Nobody that was identified.
    pub fn anonymous() -> Self {
        Self::new(ActorKind::Anonymous, "")
    }
}

/// Collects what was proven about a request. Call a method only where the check that it names was
/// made. Only the resolver and tests build one.
#[derive(Clone, Debug)]
#[must_use]
pub struct Proof(Scope);

impl Proof {
    /// The principal's credential was verified (or the actor is the host, or nobody). Without more
    /// this is the scope of the deployment's own calls: no organization, no tenant data.
    pub fn of(principal: Principal) -> Self {
        Self(Scope {
            organization: None,
            project: None,
            project_named: false,
            test: false,
            user: None,
            subject: Subject::None,
            by_session_only: false,
            principal,
        })
    }
    /// The actor belongs to this organization, and the organization is active.
    pub fn organization(mut self, id: OrganizationId) -> Self {
        self.0.organization = Some(id);
        self
    }
    /// The organization asks for a person's session whenever something is loosened.
    pub fn loosens_by_session(mut self, only: bool) -> Self {
        self.0.by_session_only = only;
        self
    }
    /// The project was found in that organization, and no pin of the credential forbids it. `test`:
    /// it reaches sandboxes only. `named`: the request names it.
    pub fn project(mut self, id: ProjectId, test: bool, named: bool) -> Self {
        self.0.project_named = named || self.0.principal.project.as_ref() == Some(&id);
        self.0.project = Some(id);
        self.0.test = test;
        self
    }
    /// The user was found in that project, and no pin of the credential hides it.
    pub fn user(mut self, id: UserId, subject: Subject) -> Self {
        let pinned = self.0.principal.user.as_ref() == Some(&id);
        self.0.user = Some(id);
        self.0.subject = if pinned { Subject::Credential } else { subject };
        self
    }
    /// The scope.
    pub fn scope(self) -> Scope {
        self.0
    }
}

impl Scope {
    /// The name by which its principal counts among those who share what the organization has at once.
    pub fn sharer(&self) -> Sharer {
        let by = &self.principal;
        let id = |kind: &str, id: Option<&str>| format!("{kind} {}", id.unwrap_or_default()).into();
        let project: Arc<str> = id("project", self.project.as_ref().map(ProjectId::as_str));
        let (within, name) = match (by.behind(), by.actor.kind) {
            (Behind::User, _) => (Some(project), id("user", by.user.as_ref().map(UserId::as_str))),
            (Behind::Project, _) => (Some(project.clone()), project),
            (Behind::Stranger, _) => {
                let name: Arc<str> = "strangers".into();
                (Some(name.clone()), name)
            }
            (Behind::Organization, ActorKind::Key) if by.root.is_none() => {
                (None, id("key", Some(&by.actor.id)))
            }
            (Behind::Organization, kind) => (None, id(kind.as_str(), by.root.as_deref())),
        };
        let Some(reader) = by.reader() else { return Sharer { within, name } };
        Sharer {
            within: Some(id("reader", Some(reader))),
            name: format!("{name} read by {reader}").into(),
        }
    }

    /// The one who asks for what waits, where what is asked for the sake of each tenant user counts by itself
    /// as well: agents that have one key between them are several. A person is one, by whatever it asks, and
    /// one who does not govern leaves as much as an agent.
    pub fn asker(&self) -> Asker {
        let mut sharer = self.sharer();
        if let (Behind::Organization, Some(root)) = (self.principal.behind(), &self.principal.root)
        {
            let name: Arc<str> = format!("person {root}").into();
            let within = (!self.principal.governs()).then(|| name.clone());
            sharer = Sharer { within, name };
        }
        let named = self.user_named().filter(|_| self.principal.behind() != Behind::User);
        let name = named
            .map_or(sharer.name.clone(), |user| format!("{} for user {user}", sharer.name).into());
        Asker { sharer, name }
    }

    /// The organization; absent for the deployment's own calls.
    pub fn organization(&self) -> Option<&OrganizationId> {
        self.organization.as_ref()
    }
    /// The organization's id as the committer's lane and a guest's `caller` want it; empty for the
    /// deployment's own calls.
    pub fn lane(&self) -> &str {
        self.organization.as_ref().map_or("", OrganizationId::as_str)
    }
    /// The project.
    pub fn project(&self) -> Option<&ProjectId> {
        self.project.as_ref()
    }
    /// Whether the project is a test project, which reaches only sandbox providers.
    pub fn is_test(&self) -> bool {
        self.test
    }
    /// The tenant user; absent for organization-wide and operator calls.
    pub fn user(&self) -> Option<&UserId> {
        self.user.as_ref()
    }
    /// How the user was named.
    pub fn subject(&self) -> Subject {
        self.subject
    }
    /// How the project and the user were named.
    pub fn naming(&self) -> Naming {
        Naming { project: self.project_named, user: self.subject }
    }
    /// The caller, with role and pins.
    pub fn principal(&self) -> &Principal {
        &self.principal
    }
    /// Kind and id of who acts.
    pub fn actor(&self) -> &Actor {
        &self.principal.actor
    }
    /// The actor's role; absent for the host, hooks and the anonymous.
    pub fn role(&self) -> Option<Role> {
        self.principal.role
    }
    /// Whether only a person's session loosens something here.
    pub fn loosens_by_session(&self) -> bool {
        self.by_session_only
    }
    /// The role that counts here, as guests are told it: without the power to administer where the
    /// credential is pinned, or where the organization asks for a person and this is none.
    pub fn power(&self) -> Option<Role> {
        let is_person = self.principal.actor.kind == ActorKind::Session;
        match self.principal.power() {
            Some(role) if self.by_session_only && !is_person => {
                Some(role.intersect(Role::Developer))
            }
            role => role,
        }
    }
    /// The same where the organization has come to ask for a person's session since: a scope that
    /// was proven is cut, and never widened.
    #[must_use]
    pub fn cut_to_session(mut self, only: bool) -> Self {
        self.by_session_only |= only;
        self
    }
    /// How much of the organization the request is about. The default profile that nobody named
    /// narrows nothing.
    pub fn level(&self) -> Level {
        match self.subject {
            Subject::Path | Subject::Header | Subject::Credential => Level::User,
            Subject::Default | Subject::None if self.project_named => Level::Project,
            Subject::Default | Subject::None => Level::Organization,
        }
    }
    /// The tenant user that the request is about; absent where it is about all of a project or of
    /// the organization.
    pub fn user_named(&self) -> Option<&UserId> {
        self.user.as_ref().filter(|_| self.level() == Level::User)
    }

    /// The reach of a collection under this scope; `None` where the scope names nobody at that
    /// level.
    pub fn reach(&self, reach: CollectionReach) -> Option<Reach> {
        match reach {
            CollectionReach::User => self.user.as_ref().map(|id| Reach::user(id.as_str())),
            CollectionReach::Project => self.project.as_ref().map(|id| Reach::project(id.as_str())),
            CollectionReach::Organization => {
                self.organization.as_ref().map(|id| Reach::organization(id.as_str()))
            }
            CollectionReach::Deployment => Some(Reach::deployment()),
        }
    }

    /// The reach of the narrowest level that it names: the user, else the project, the
    /// organization, the deployment.
    pub fn narrowest(&self) -> Reach {
        let levels =
            [CollectionReach::User, CollectionReach::Project, CollectionReach::Organization];
        levels.into_iter().find_map(|level| self.reach(level)).unwrap_or_else(Reach::deployment)
    }

    /// Whether it may write to collections of that reach. Catalogues that everyone reads are
    /// written by the operator and the host alone.
    pub fn may_write(&self, reach: CollectionReach) -> bool {
        match reach {
            CollectionReach::Deployment => {
                let is_hosts = match self.actor().kind {
                    ActorKind::Operator => true,
                    // Work that a stranger left to it has a role, and no more power.
                    ActorKind::System => self.principal().role.is_none(),
                    _ => false,
                };
                self.organization.is_none() && is_hosts
            }
            _ => self.reach(reach).is_some(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::uuid_v7;

    fn id(n: u8) -> String {
        uuid_v7(Instant(1), [n; 10])
    }

    fn project() -> ProjectId {
        ProjectId::parse(&id(2)).unwrap()
    }

    fn user() -> UserId {
        UserId::parse(&id(3)).unwrap()
    }

    fn in_organization(principal: Principal) -> Proof {
        Proof::of(principal).organization(OrganizationId::parse(&id(1)).unwrap())
    }

    fn key() -> Principal {
        Principal::of(Actor::new(ActorKind::Key, "k"))
    }

    #[test]
    fn a_scope_reaches_only_what_was_proven() {
        let wide = in_organization(key()).project(project(), true, false).scope();
        assert_eq!(wide.reach(CollectionReach::User), None);
        assert_eq!(wide.reach(CollectionReach::Project), Some(Reach::project(&id(2))));
        assert_eq!(wide.reach(CollectionReach::Organization), Some(Reach::organization(&id(1))));
        assert!(wide.is_test());
        let narrow = Proof(wide).user(user(), Subject::Path).scope();
        assert_eq!(narrow.reach(CollectionReach::User), Some(Reach::user(&id(3))));
        assert!(!narrow.may_write(CollectionReach::Deployment));
    }

    #[test]
    fn the_deployment_has_no_tenant_data_and_alone_writes_its_own() {
        let operator = Proof::of(Principal::of(Actor::new(ActorKind::Operator, "o"))).scope();
        assert_eq!(operator.reach(CollectionReach::Organization), None);
        assert_eq!(operator.lane(), "");
        assert!(operator.may_write(CollectionReach::Deployment));
        assert!(!operator.may_write(CollectionReach::Organization));
        let nobody = Proof::of(Principal::of(Actor::anonymous())).scope();
        assert!(!nobody.may_write(CollectionReach::Deployment));
        // Work that is left to the host has the power of who left it; so has a word sent to a name.
        let later = |by: Principal| Proof::of(by.hand_on()).scope();
        assert!(later(operator.principal().clone()).may_write(CollectionReach::Deployment));
        let stranger = later(nobody.principal().clone());
        assert!(!stranger.may_write(CollectionReach::Deployment));
        assert!(!later(stranger.principal().clone()).may_write(CollectionReach::Deployment));
        let sent = Principal { role: Some(Role::Viewer), ..Principal::of(Actor::system("job")) };
        assert!(!Proof::of(sent).scope().may_write(CollectionReach::Deployment));
    }

    #[test]
    fn a_pin_hides_the_sums_of_others_with_its_own() {
        let to_project = Principal { project: Some(project()), ..key() };
        let to_user = Principal { user: Some(user()), ..key() };
        for (principal, sees) in
            [(key(), [true; 3]), (to_project, [false, true, true]), (to_user, [false, false, true])]
        {
            let sums = ["organization", "project", "user"].map(|sum| principal.sees_sum_of(sum));
            assert_eq!(sums, sees, "{principal:?}");
        }
    }

    #[test]
    fn a_pin_shows_however_the_user_was_named() {
        let pinned = Principal { user: Some(user()), ..key() };
        for named in [Subject::Path, Subject::Header, Subject::Credential, Subject::Default] {
            let scope = in_organization(pinned.clone())
                .project(project(), false, false)
                .user(user(), named)
                .scope();
            assert_eq!(scope.subject(), Subject::Credential, "{named:?}");
            assert_eq!(scope.level(), Level::User, "{named:?}");
            assert!(scope.principal().is_pinned_to_user(), "{named:?}");
        }
    }

    #[test]
    fn the_role_that_counts_is_the_credentials_unless_a_person_is_asked_for() {
        let of = |kind, only| {
            let actor = Principal::of(Actor::new(kind, "a"));
            let principal = Principal { role: Some(Role::Admin), ..actor };
            in_organization(principal).loosens_by_session(only).scope()
        };
        for (kind, only, power) in [
            (ActorKind::Key, false, Role::Admin),
            (ActorKind::Key, true, Role::Developer),
            (ActorKind::Session, true, Role::Admin),
            (ActorKind::Session, false, Role::Admin),
        ] {
            let scope = of(kind, only);
            assert_eq!(scope.power(), Some(power), "{kind:?} {only}");
            assert_eq!((scope.role(), scope.loosens_by_session()), (Some(Role::Admin), only));
        }
        assert_eq!(in_organization(key()).loosens_by_session(true).scope().power(), None);
    }

    #[test]
    fn a_scope_that_was_proven_is_cut_to_sessions_and_never_widened() {
        for (then, now) in [(false, false), (false, true), (true, false), (true, true)] {
            let scope = in_organization(key()).loosens_by_session(then).scope();
            assert_eq!(scope.cut_to_session(now).loosens_by_session(), then || now, "{then} {now}");
        }
    }

    #[test]
    fn what_the_host_does_later_has_no_power_that_who_asked_for_it_lacked() {
        let asked = |role| Principal { role, user: Some(user()), root: Some("a".into()), ..key() };
        let (developer, viewer) = (Some(Role::Developer), Some(Role::Viewer));
        for (role, later) in [
            (Some(Role::Owner), developer),
            (Some(Role::Admin), developer),
            (developer, developer),
            (Some(Role::Approver), viewer),
            (viewer, viewer),
            (None, None),
        ] {
            let later = Principal { role: later, ..asked(role) };
            let job = asked(role).hand_on();
            assert_eq!(job.actor, Actor::system("job"));
            assert_eq!((job.role, &job.user, &job.root), (later.role, &later.user, &later.root));
            assert_eq!(job.credential.as_ref(), Some(&key().actor));
            assert_eq!(job.hand_on(), job, "handed on again it is the same");
            // Its run has its owner's pins, and stands for who had asked.
            let of_owner = Principal { user: None, project: Some(project()), ..job.clone() };
            assert_eq!((job.behind(), of_owner.hand_on().behind()), (Behind::User, Behind::User));
            assert_eq!(asked(role).hand_over().credential, None);
            let session = Principal { actor: Actor::new(ActorKind::Session, "s"), ..asked(role) };
            let later = [session.hand_on(), session.hand_over(), session.hand_on().hand_over()];
            assert!(later.iter().all(|later| later.by_session) && !job.by_session);
            assert_eq!(
                job.hand_over(),
                job,
                "a job's own schedule counts no longer than the job does"
            );
        }
        let hook = Principal::of(Actor::new(ActorKind::Hook, "h")).hand_on();
        assert_eq!(hook.credential, None);
    }

    #[test]
    fn an_agents_requests_and_runs_share_one_part_and_a_persons_keys_and_sessions_have_two() {
        let of =
            |kind| Principal { root: Some("ada".into()), ..Principal::of(Actor::new(kind, "a")) };
        let named = |by: &Principal| {
            let scope = in_organization(by.clone()).project(project(), false, false).scope();
            let Sharer { within, name } = scope.sharer();
            (within.map(|within| within.to_string()), name.to_string())
        };
        let of_project = format!("project {}", id(2));
        let agent = Principal { user: Some(user()), ..of(ActorKind::Key) };
        for by in [&agent, &agent.hand_on(), &agent.hand_over()] {
            assert_eq!(named(by), (Some(of_project.clone()), format!("user {}", id(3))));
        }
        let pinned = Principal { project: Some(project()), ..of(ActorKind::Key) };
        assert_eq!(named(&pinned.hand_on()), (Some(of_project.clone()), of_project));
        let run = Principal { user: Some(user()), ..of(ActorKind::Session).hand_on() };
        for (by, name) in [
            (of(ActorKind::Key), "key ada"),
            (key(), "key k"),
            (of(ActorKind::Session), "session ada"),
            (run, "system ada"),
            (Principal::of(Actor::new(ActorKind::Hook, "h")), "hook "),
        ] {
            assert_eq!(named(&by), (None, name.into()));
        }
        let anybody = Principal {
            role: Some(Role::Viewer),
            ..Principal::of(Actor::new(ActorKind::Hook, "h"))
        };
        assert_eq!(named(&anybody), (Some("strangers".into()), "strangers".into()));
        // A key that can only read is no agent's, whatever pins it has.
        for role in [Role::Viewer, Role::Approver] {
            for (by, of) in
                [(&agent, format!("user {}", id(3))), (&pinned, format!("project {}", id(2)))]
            {
                let reader = Principal { role: Some(role), ..by.clone() };
                let name = format!("{of} read by ada");
                assert_eq!(named(&reader), (Some("reader ada".into()), name.clone()), "{role}");
                assert_eq!(named(&reader.hand_on()), (Some("reader ada".into()), name), "{role}");
            }
        }
    }

    #[test]
    fn agents_that_have_one_key_between_them_ask_each_for_themselves() {
        let asker = |by: &Principal, subject: Subject| {
            let proof = in_organization(by.clone()).project(project(), false, false);
            let Asker { sharer, name } = proof.user(user(), subject).scope().asker();
            assert_eq!(sharer.within.is_some(), by.is_pinned());
            (sharer.name.to_string(), name.to_string())
        };
        let of_project = format!("project {}", id(2));
        let of_user = format!("user {}", id(3));
        let pinned = Principal { project: Some(project()), ..key() };
        let agent = Principal { user: Some(user()), ..pinned.clone() };
        for (by, subject, sharer, name) in [
            (&key(), Subject::Default, "key k", "key k".to_owned()),
            (&key(), Subject::Path, "key k", format!("key k for {of_user}")),
            (&pinned, Subject::Default, &*of_project, of_project.clone()),
            (&pinned, Subject::Header, &of_project, format!("{of_project} for {of_user}")),
            (&agent, Subject::Credential, &of_user, of_user.clone()),
            (&agent, Subject::Path, &of_user, of_user.clone()),
        ] {
            assert_eq!(asker(by, subject), (sharer.to_owned(), name));
        }
    }

    #[test]
    fn a_person_asks_as_one_by_key_by_job_and_by_session_and_leaves_some_unless_it_governs() {
        for role in Role::ALL {
            let by = |kind| Principal {
                root: Some("ada".into()),
                role: Some(role),
                ..Principal::of(Actor::new(kind, "a"))
            };
            let (key, session) = (by(ActorKind::Key), by(ActorKind::Session));
            for (by, governs) in [
                (&key, role.loosens()),
                (&key.hand_on(), false),
                (&session, role.loosens() || role == Role::Approver),
            ] {
                let scope = in_organization(by.clone()).scope();
                let within = (!governs).then(|| "person ada".into());
                let asker = Asker {
                    sharer: Sharer { within, name: "person ada".into() },
                    name: "person ada".into(),
                };
                assert_eq!((by.governs(), scope.asker()), (governs, asker), "{role}");
            }
        }
    }

    #[test]
    fn who_stands_behind_a_request_stands_behind_what_the_host_does_later() {
        let of = |kind| Principal::of(Actor::new(kind, "a"));
        for (by, behind) in [
            (key(), Behind::Organization),
            (Principal { project: Some(project()), ..key() }, Behind::Project),
            (Principal { project: Some(project()), user: Some(user()), ..key() }, Behind::User),
            (of(ActorKind::Session), Behind::Organization),
            (of(ActorKind::Hook), Behind::Organization),
            (Principal { role: Some(Role::Viewer), ..of(ActorKind::Hook) }, Behind::Stranger),
            (Principal::of(Actor::anonymous()), Behind::Stranger),
            (of(ActorKind::System), Behind::Organization),
        ] {
            let later = [by.hand_on(), by.hand_over(), by.hand_on().hand_over()];
            assert!(later.iter().all(|later| later.behind() == behind), "{by:?}");
            assert_eq!((by.behind(), behind.is_pinned()), (behind, by.is_pinned()), "{by:?}");
            let kept = serde_json::to_string(&later[0]).unwrap();
            assert_eq!(serde_json::from_str::<Principal>(&kept).unwrap(), later[0]);
            assert_eq!(kept.contains("behind"), behind != Behind::Organization, "{kept}");
        }
    }

    #[test]
    fn a_request_is_about_no_more_than_what_it_names() {
        let level = |principal: Principal, named: bool, subject: Option<Subject>| {
            let mut proof = in_organization(principal).project(project(), false, named);
            if let Some(subject) = subject {
                proof = proof.user(user(), subject);
            }
            proof.scope().level()
        };
        let pinned = || Principal { project: Some(project()), ..key() };
        assert_eq!(level(key(), false, Some(Subject::Default)), Level::Organization);
        assert_eq!(level(key(), false, None), Level::Organization);
        assert_eq!(level(key(), true, Some(Subject::Default)), Level::Project);
        assert_eq!(level(pinned(), false, Some(Subject::Default)), Level::Project);
        assert_eq!(level(key(), false, Some(Subject::Header)), Level::User);
        assert_eq!(level(pinned(), true, Some(Subject::Path)), Level::User);
    }
}
