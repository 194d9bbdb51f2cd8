//! The one resolver: who asks, in which organization, project and user, with which kit.
//!
//! The only maker of a [`Scope`]. A request over HTTP, a nested call, an approved request, a job
//! and a hook's call are all placed here, so that pins, foreign ids and absent records mean the
//! same to each of them. Another tenant's records read as absent; the one exception is a key that
//! is pinned to another project of its own organization.

use std::sync::Arc;

use charter_kernel::authority;
use charter_kernel::id::{KeyId, OrganizationId, ProjectId, UserId};
use charter_kernel::refusal::Refusal;
use charter_kernel::scope::{Actor, ActorKind, Naming, Principal, Proof, Scope, Subject};
use charter_kernel::unit::Guard;

use crate::directory::{
    Directory, KitRecord, OrganizationRecord, ProjectRecord, Unreadable, UserRecord,
};
use crate::records::organization::Loosening;

/// The place at which a request acts: the organization of its credential, and the project, user and
/// kit that were named or defaulted. Only this file makes one.
#[derive(Clone, Debug)]
pub struct Place {
    scope: Scope,
    organization: Arc<OrganizationRecord>,
    project: Arc<ProjectRecord>,
    user: Option<Arc<UserRecord>>,
    kit: Option<Arc<KitRecord>>,
}

/// The owner of work that runs later: as much of a place as its record names. The deployment's own
/// names nothing.
#[derive(Clone, Debug)]
pub struct Party {
    scope: Scope,
    organization: Option<Arc<OrganizationRecord>>,
    project: Option<Arc<ProjectRecord>>,
    user: Option<Arc<UserRecord>>,
    kit: Option<Arc<KitRecord>>,
}

/// The project and user that a request names by path or header.
#[derive(Clone, Copy, Debug, Default)]
pub struct Named<'a> {
    /// The project's id.
    pub project: Option<&'a str>,
    /// The user's id, `me` or `default`, and where it stands.
    pub user: Option<(&'a str, Subject)>,
}

/// The owner of work that runs later, as its record names it.
#[derive(Clone, Copy, Debug)]
pub struct Owner<'a> {
    /// The organization; empty for the deployment's own.
    pub organization: &'a str,
    /// The project; empty for the organization's own, and for a user of whom no more is known.
    pub project: &'a str,
    /// The tenant user.
    pub user: Option<&'a str>,
}

/// The rest of the authority that something was asked with.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Left {
    /// The principal who asked, with the power that they have still.
    pub principal: Principal,
    /// The guards of the credential that must still hold at a commit.
    pub guards: Vec<Guard>,
}

/// Why work has no place any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unplaced {
    /// This record is gone: `organization`, `project` or `user`.
    Gone(&'static str),
    /// The directory could not be asked.
    Unread,
}

impl From<Unreadable> for Unplaced {
    fn from(_: Unreadable) -> Self {
        Self::Unread
    }
}

impl From<Unreadable> for Refusal {
    fn from(_: Unreadable) -> Self {
        // Nothing was done.
        Refusal::overloaded(1)
    }
}

impl Place {
    /// The proof that the kernel and the engine ask for.
    pub fn scope(&self) -> &Scope {
        &self.scope
    }
    /// The credential's organization.
    pub fn organization(&self) -> &Arc<OrganizationRecord> {
        &self.organization
    }
    /// The selected project.
    pub fn project(&self) -> &Arc<ProjectRecord> {
        &self.project
    }
    /// The selected tenant user; absent where none was named and the project has no default.
    pub fn user(&self) -> Option<&Arc<UserRecord>> {
        self.user.as_ref()
    }
    /// The kit that applies: the user's, else the project's.
    pub fn kit(&self) -> Option<&Arc<KitRecord>> {
        self.kit.as_ref()
    }

    /// Whether who asks may give more room than there is, here.
    ///
    /// # Errors
    /// 403 `loosening_not_allowed` with what it would take.
    pub fn may_loosen(&self) -> Result<(), Refusal> {
        authority::loosen(&self.scope)
    }

    /// The same for what is the organization's: no project, profile or kit that nobody named is a
    /// party to it, so that none of them is asked.
    #[must_use]
    pub fn of_organization(&self) -> Self {
        let principal = self.scope.principal().clone();
        let scope = proof_in(principal, &self.organization).scope();
        let scope = scope.cut_to_session(self.scope.loosens_by_session());
        Self { scope, user: None, kit: None, ..self.clone() }
    }
}

impl Party {
    /// The proof.
    pub fn scope(&self) -> &Scope {
        &self.scope
    }
    /// The proof alone.
    pub fn into_scope(self) -> Scope {
        self.scope
    }
    /// The organization.
    pub fn organization(&self) -> Option<&Arc<OrganizationRecord>> {
        self.organization.as_ref()
    }
    /// The project.
    pub fn project(&self) -> Option<&Arc<ProjectRecord>> {
        self.project.as_ref()
    }
    /// The tenant user.
    pub fn user(&self) -> Option<&Arc<UserRecord>> {
        self.user.as_ref()
    }
    /// The kit that applies, where there is a project.
    pub fn kit(&self) -> Option<&Arc<KitRecord>> {
        self.kit.as_ref()
    }
}

/// The proof of a principal in an organization.
fn proof_in(principal: Principal, organization: &OrganizationRecord) -> Proof {
    let session_only = asks_for_session(organization);
    Proof::of(principal).organization(organization.id.clone()).loosens_by_session(session_only)
}

/// Whether only a person's session loosens something in an organization.
fn asks_for_session(organization: &OrganizationRecord) -> bool {
    organization.loosening == Loosening::Session
}

/// The scope of the deployment's own calls: no organization, no tenant data.
pub fn of_deployment(actor: Actor) -> Scope {
    Proof::of(Principal::of(actor)).scope()
}

impl Directory {
    /// Places a request of a credential.
    ///
    /// # Errors
    /// 401 where its organization is gone, 404 for what is absent or another tenant's, 403
    /// `key_project_mismatch` for another project than the key's.
    pub async fn place(
        &self,
        principal: Principal,
        organization: &OrganizationId,
        named: Named<'_>,
    ) -> Result<Place, Refusal> {
        let organization = self.organization(organization).await?.ok_or_else(|| {
            Refusal::unauthorized("The organization of this credential does not exist.")
        })?;
        let project = self.resolve_project(&principal, &organization, named.project).await?;
        let (user, subject) = self.resolve_user(&principal, &project, named.user).await?;
        let proof = proof_in(principal, &organization);
        let mut proof = proof.project(project.id.clone(), project.test, named.project.is_some());
        if let Some(user) = &user {
            proof = proof.user(user.id.clone(), subject);
        }
        let kit = self.kit_of(&project, user.as_deref()).await?;
        Ok(Place { scope: proof.scope(), organization, project, user, kit })
    }

    /// The records of a scope that was proven before, as they are now. If the organization asks
    /// for a person's session by now, the scope does too.
    ///
    /// # Errors
    /// 404 where one of them is gone since.
    pub async fn place_again(&self, scope: &Scope) -> Result<Place, Refusal> {
        let Party { scope, organization, project, user, kit } = self.party_again(scope).await?;
        let organization = organization.ok_or_else(Refusal::not_found)?;
        let project = match scope.project() {
            Some(_) => project.ok_or_else(Refusal::not_found)?,
            // No party to what is asked; but every place is in one.
            None => self.resolve_project(scope.principal(), &organization, None).await?,
        };
        if scope.user().is_some() && user.is_none() {
            return Err(Refusal::not_found());
        }
        Ok(Place { scope, organization, project, user, kit })
    }

    /// The same, as far as the records are there still: some actions outlive their user.
    ///
    /// # Errors
    /// When the directory cannot be asked.
    pub async fn party_again(&self, scope: &Scope) -> Result<Party, Unreadable> {
        let organization = match scope.organization() {
            Some(id) => self.organization(id).await?,
            None => None,
        };
        let project = match (&organization, scope.project()) {
            (Some(organization), Some(id)) => self.project(&organization.id, id).await?,
            _ => None,
        };
        let user = match (&project, scope.user()) {
            (Some(project), Some(id)) => self.user(&project.id, id).await?,
            _ => None,
        };
        let kit = match &project {
            Some(project) => self.kit_of(project, user.as_deref()).await?,
            None => None,
        };
        let session_only = organization.as_deref().is_some_and(asks_for_session);
        let scope = scope.clone().cut_to_session(session_only);
        Ok(Party { scope, organization, project, user, kit })
    }

    /// Places work that runs later, by who does it and whose it is: that of a user is this
    /// profile's. Whether the user is active is for the caller to ask.
    ///
    /// # Errors
    /// The record that is gone.
    pub async fn party(&self, principal: Principal, owner: Owner<'_>) -> Result<Party, Unplaced> {
        self.party_of_request(principal, owner, Naming::PROFILE).await
    }

    /// The same for a request that is made again: it names whom it named before, so that what it
    /// calls of the organization's own does not become the default profile's.
    ///
    /// # Errors
    /// The record that is gone.
    pub async fn party_of_request(
        &self,
        principal: Principal,
        owner: Owner<'_>,
        naming: Naming,
    ) -> Result<Party, Unplaced> {
        let nobody =
            |scope| Party { scope, organization: None, project: None, user: None, kit: None };
        if owner.organization.is_empty() && owner.project.is_empty() && owner.user.is_none() {
            return Ok(nobody(Proof::of(principal).scope()));
        }
        let gone = Unplaced::Gone;
        let id = OrganizationId::parse(owner.organization).ok_or(gone("organization"))?;
        let organization = self.organization(&id).await?.ok_or(gone("organization"))?;
        let proof = proof_in(principal, &organization);
        let user = owner.user.map(|user| UserId::parse(user).ok_or(gone("user"))).transpose()?;
        let project = match (ProjectId::parse(owner.project), &user) {
            (Some(project), _) => self.project(&organization.id, &project).await?,
            (None, Some(user)) => self.project_of(&organization.id, user).await?,
            (None, None) => {
                let party = nobody(proof.scope());
                return Ok(Party { organization: Some(organization), ..party });
            }
        };
        let project = project.ok_or(gone("project"))?;
        let mut proof = proof.project(project.id.clone(), project.test, naming.project);
        let user = match user {
            Some(id) => Some(self.user(&project.id, &id).await?.ok_or(gone("user"))?),
            None => None,
        };
        if let Some(user) = &user {
            proof = proof.user(user.id.clone(), naming.user);
        }
        let kit = self.kit_of(&project, user.as_deref()).await?;
        Ok(Party {
            scope: proof.scope(),
            organization: Some(organization),
            project: Some(project),
            user,
            kit,
        })
    }

    /// Places the last word to a primitive about a user who is deleted: no record of it is left to
    /// be found.
    ///
    /// # Errors
    /// The record that is gone, or the id that is none.
    pub async fn party_of_deleted(
        &self,
        principal: Principal,
        owner: Owner<'_>,
        test: bool,
    ) -> Result<Party, Unplaced> {
        let whole = Owner { project: "", user: None, ..owner };
        let party = self.party(principal, whole).await?;
        let gone = Unplaced::Gone;
        let project = ProjectId::parse(owner.project).ok_or(gone("project"))?;
        let user = owner.user.and_then(UserId::parse).ok_or(gone("user"))?;
        let organization = party.scope.organization().cloned().ok_or(gone("organization"))?;
        let proof = Proof::of(party.scope.principal().clone()).organization(organization);
        let proof = proof.project(project, test, false).user(user, Subject::Path);
        Ok(Party { scope: proof.scope(), ..party })
    }

    /// The same principal about one of its users: what reports and simulations ask of others.
    ///
    /// # Errors
    /// 403 `key_project_mismatch`, 404 for what is absent or beyond a pin.
    pub async fn place_of_user(
        &self,
        place: &Place,
        project: &ProjectId,
        user: &UserId,
    ) -> Result<Place, Refusal> {
        let named =
            Named { project: Some(project.as_str()), user: Some((user.as_str(), Subject::Path)) };
        self.place(place.scope.principal().clone(), &place.organization.id, named).await
    }

    /// The rest of the authority that something was asked with: the credential must still count,
    /// and has no power that it, or the person behind it, has lost since. A session may have ended,
    /// but its person is the member that they were. A person who left the organization takes nothing
    /// from the keys that they made, but what they had lost before.
    ///
    /// # Errors
    /// 401 where the credential was revoked or has ended.
    pub async fn cut(
        &self,
        asked: &Principal,
        organization: &OrganizationId,
    ) -> Result<Left, Refusal> {
        let revoked = || Refusal::unauthorized("The credential was revoked.");
        let (mut principal, mut guards) = (asked.clone(), Vec::new());
        let mut cut = |role| {
            principal.role = principal.role.map(|asked| asked.intersect(role));
        };
        let credential = asked.credential.as_ref().unwrap_or(&asked.actor);
        let by_session = credential.kind == ActorKind::Session;
        match credential.kind {
            ActorKind::Key => {
                let id = KeyId::parse(&credential.id).ok_or_else(revoked)?;
                let key = self.key_of(organization, &id).await?.ok_or_else(revoked)?;
                cut(key.role);
                guards = key.guards();
            }
            ActorKind::Session if asked.root.is_none() => return Err(revoked()),
            _ => {}
        }
        if let Some(root) = &asked.root {
            match self.membership(organization, root).await? {
                // The organization's keys go on without their makers; a session is its person, as
                // long as the membership lasts that it had.
                Some((now, _))
                    if by_session && asked.member_since.is_some_and(|at| at != now.since) =>
                {
                    return Err(revoked());
                }
                Some((now, member)) => {
                    cut(now.role);
                    // A key's work goes on without its maker, with the role that is left by then.
                    guards.extend(member.into_iter().filter(|one| by_session || !one.is_fence()));
                }
                None if by_session => return Err(revoked()),
                None => {
                    if let Some(role) = self.former_role(organization, root).await? {
                        cut(role);
                    }
                }
            }
        }
        Ok(Left { principal, guards })
    }

    /// The kit that applies: the user's, else the project's.
    async fn kit_of(
        &self,
        project: &ProjectRecord,
        user: Option<&UserRecord>,
    ) -> Result<Option<Arc<KitRecord>>, Unreadable> {
        self.kit(project, user.and_then(|user| user.kit.as_ref())).await
    }

    /// Path prefix, header, pin, default: in this order.
    async fn resolve_project(
        &self,
        principal: &Principal,
        organization: &OrganizationRecord,
        named: Option<&str>,
    ) -> Result<Arc<ProjectRecord>, Refusal> {
        let id = match (named, &principal.project) {
            (Some(text), _) => ProjectId::parse(text).ok_or_else(Refusal::not_found)?,
            (None, Some(pinned)) => pinned.clone(),
            (None, None) => organization.default_project.clone(),
        };
        // Found first: a foreign project reads as absent even to a key that is pinned elsewhere.
        let found = self.project(&organization.id, &id).await?.ok_or_else(Refusal::not_found)?;
        match &principal.project {
            Some(pinned) if *pinned != found.id => Err(authority::project_mismatch()),
            _ => Ok(found),
        }
    }

    /// Path, header, pin, default profile: in this order. `me` and `default` are the pinned user
    /// where there is one.
    async fn resolve_user(
        &self,
        principal: &Principal,
        project: &ProjectRecord,
        named: Option<(&str, Subject)>,
    ) -> Result<(Option<Arc<UserRecord>>, Subject), Refusal> {
        let (id, subject) = match (named, &principal.user) {
            (None, Some(pinned)) => (pinned.clone(), Subject::Credential),
            (None, None) => (project.default_user.clone(), Subject::Default),
            (Some(("default" | "me", subject)), pinned) => {
                (pinned.as_ref().unwrap_or(&project.default_user).clone(), subject)
            }
            (Some((text, subject)), pinned) => {
                let id = UserId::parse(text).ok_or_else(Refusal::not_found)?;
                // A key that is pinned to a user sees that user alone.
                if pinned.as_ref().is_some_and(|pinned| *pinned != id) {
                    return Err(Refusal::not_found());
                }
                (id, subject)
            }
        };
        match self.user(&project.id, &id).await? {
            Some(user) => Ok((Some(user), subject)),
            // The default profile may have been deleted: the company mount then has no subject.
            None if subject == Subject::Default => Ok((None, Subject::None)),
            None => Err(Refusal::not_found()),
        }
    }
}
