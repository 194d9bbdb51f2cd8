//! On whose behalf a request runs: the proof that tenancy was resolved.
//!
//! The fields are private. A `Scope` is built in one place of the server, after the credential was
//! checked and the project and user were found to belong to its organization; everything below
//! takes the scope and cannot widen it. A guest sees its fields, never makes one.

use crate::id::{OrganizationId, ProjectId, UserId};
use crate::manifest::CollectionReach;
use crate::role::Role;
use crate::unit::Reach;

/// Organization, project, user, actor and role of one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    organization: Option<OrganizationId>,
    project: Option<ProjectId>,
    test: bool,
    user: Option<UserId>,
    subject: Subject,
    actor: Actor,
    role: Option<Role>,
}

/// How the tenant user was named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Subject {
    /// `/v1/users/{user_id}/…`.
    Path,
    /// `X-Service-User-Id`.
    Header,
    /// The key is pinned to the user.
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

/// What kind of caller acts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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

/// Who acts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Actor {
    /// What kind of caller it is.
    pub kind: ActorKind,
    /// Its id; empty for the anonymous.
    pub id: String,
}

impl Actor {
    /// The actor of this kind and id.
    pub fn new(kind: ActorKind, id: impl Into<String>) -> Self {
        Self { kind, id: id.into() }
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
/// made.
#[derive(Clone, Debug)]
#[must_use]
pub struct Proof(Scope);

impl Proof {
    /// The actor's credential was verified (or the actor is the host, or nobody). Without more this
    /// is the scope of the deployment's own calls: no organization, no tenant data.
    pub fn of(actor: Actor) -> Self {
        Self(Scope {
            organization: None,
            project: None,
            test: false,
            user: None,
            subject: Subject::None,
            actor,
            role: None,
        })
    }
    /// The actor belongs to this organization, and the organization is active.
    pub fn organization(mut self, id: OrganizationId) -> Self {
        self.0.organization = Some(id);
        self
    }
    /// The project was found in that organization, and no pin of the key forbids it. `test`: it
    /// reaches sandboxes only.
    pub fn project(mut self, id: ProjectId, test: bool) -> Self {
        self.0.project = Some(id);
        self.0.test = test;
        self
    }
    /// The user was found in that project, and no pin of the key hides it.
    pub fn user(mut self, id: UserId, subject: Subject) -> Self {
        self.0.user = Some(id);
        self.0.subject = subject;
        self
    }
    /// The role that the credential has now.
    pub fn role(mut self, role: Role) -> Self {
        self.0.role = Some(role);
        self
    }
    /// The scope.
    pub fn scope(self) -> Scope {
        self.0
    }
}

impl Scope {
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
    /// Who acts.
    pub fn actor(&self) -> &Actor {
        &self.actor
    }
    /// The actor's role; absent for the host, hooks and the anonymous.
    pub fn role(&self) -> Option<Role> {
        self.role
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

    /// Whether it may write to collections of that reach. What everyone reads, only the operator
    /// and the host itself write.
    pub fn may_write(&self, reach: CollectionReach) -> bool {
        match reach {
            CollectionReach::Deployment => {
                self.organization.is_none()
                    && matches!(self.actor.kind, ActorKind::Operator | ActorKind::System)
            }
            _ => self.reach(reach).is_some(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::uuid_v7;
    use crate::time::Instant;

    fn id(n: u8) -> String {
        uuid_v7(Instant(1), [n; 10])
    }

    #[test]
    fn a_scope_reaches_only_what_was_proven() {
        let (organization, project, user) = (
            OrganizationId::parse(&id(1)).unwrap(),
            ProjectId::parse(&id(2)).unwrap(),
            UserId::parse(&id(3)).unwrap(),
        );
        let wide = Proof::of(Actor::new(ActorKind::Key, "k"))
            .organization(organization)
            .project(project, true)
            .scope();
        assert_eq!(wide.reach(CollectionReach::User), None);
        assert_eq!(wide.reach(CollectionReach::Project), Some(Reach::project(&id(2))));
        assert_eq!(wide.reach(CollectionReach::Organization), Some(Reach::organization(&id(1))));
        assert!(wide.is_test());
        let narrow = Proof(wide).user(user, Subject::Path).scope();
        assert_eq!(narrow.reach(CollectionReach::User), Some(Reach::user(&id(3))));
        assert!(!narrow.may_write(CollectionReach::Deployment));
    }

    #[test]
    fn the_deployment_has_no_tenant_data_and_alone_writes_its_own() {
        let operator = Proof::of(Actor::new(ActorKind::Operator, "o")).scope();
        assert_eq!(operator.reach(CollectionReach::Organization), None);
        assert_eq!(operator.lane(), "");
        assert!(operator.may_write(CollectionReach::Deployment));
        assert!(!operator.may_write(CollectionReach::Organization));
        assert!(!Proof::of(Actor::anonymous()).scope().may_write(CollectionReach::Deployment));
    }
}
