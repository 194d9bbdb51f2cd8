//! Where the request acts: organization, project and tenant user are found and checked against the
//! credential's pins.
//!
//! The one place that makes a [`Scope`] of a request. What is another tenant's reads as absent; the
//! one exception is a key that is pinned to another project of its own organization.

use std::sync::Arc;

use charter_kernel::id::{OrganizationId, ProjectId, UserId};
use charter_kernel::refusal::Refusal;
use charter_kernel::role::Role;
use charter_kernel::scope::{Actor, ActorKind, Proof, Scope, Subject};
use http::{HeaderMap, HeaderName};

use super::identify::{Identified, unreadable};
use super::trail::Trail;
use crate::app::App;
use crate::directory::{OrganizationRecord, ProjectRecord, UserRecord};
use crate::request::{Identity, Place};

/// Names the project.
pub const PROJECT: HeaderName = HeaderName::from_static("x-service-project-id");
/// Names the tenant user.
pub const USER: HeaderName = HeaderName::from_static("x-service-user-id");

/// A request whose place is known, where it has one.
pub struct Scoped {
    /// The stage before.
    pub identified: Identified,
}

/// What the credential says of its holder.
struct Holder<'a> {
    actor: Actor,
    organization: &'a OrganizationId,
    role: Role,
    project: Option<&'a ProjectId>,
    user: Option<&'a UserId>,
}

fn holder(identity: &Identity) -> Option<Holder<'_>> {
    match identity {
        Identity::Anonymous | Identity::Operator => None,
        Identity::Key(key) => Some(Holder {
            actor: Actor::new(ActorKind::Key, key.id.as_str()),
            organization: &key.organization,
            role: key.role,
            project: key.project.as_ref(),
            user: key.user.as_ref(),
        }),
        Identity::Session(session) => Some(Holder {
            actor: Actor::new(ActorKind::Session, session.id.as_str()),
            organization: &session.organization,
            role: session.role,
            project: None,
            user: None,
        }),
    }
}

/// Resolves the place of a request that has a credential of an organization.
pub async fn resolve(
    app: &App,
    trail: &mut Trail,
    identified: Identified,
) -> Result<Scoped, Refusal> {
    let identity = trail.identity.clone();
    let Some(holder) = holder(&identity) else { return Ok(Scoped { identified }) };
    let accepted = &identified.located.accepted;
    let organization = app.directory.organization(holder.organization).await.map_err(unreadable)?;
    let organization = organization.ok_or_else(|| {
        Refusal::unauthorized("The organization of this credential does not exist.")
    })?;
    let named = match &identified.located.project {
        Some(segment) => Some(segment.as_str()),
        None => text(&accepted.headers, &PROJECT)?,
    };
    let project = project(app, &holder, &organization, named).await?;
    let (user, subject) = user(app, &holder, &project, &identified).await?;
    let mut proof = Proof::of(holder.actor)
        .organization(organization.id.clone())
        .project(project.id.clone(), project.test)
        .role(holder.role);
    if let Some(user) = &user {
        proof = proof.user(user.id.clone(), subject);
    }
    trail.place = Some(Place { scope: proof.scope(), organization, project, user });
    Ok(Scoped { identified })
}

/// The place of a scope that was proven by an outer request: its records, as they are now.
///
/// # Errors
/// 404 where one of them is gone since.
pub async fn place_of(app: &App, scope: &Scope) -> Result<Place, Refusal> {
    let (Some(organization), Some(project)) = (scope.organization(), scope.project()) else {
        return Err(Refusal::not_found());
    };
    let organization = app
        .directory
        .organization(organization)
        .await
        .map_err(unreadable)?
        .ok_or_else(Refusal::not_found)?;
    let project = app
        .directory
        .project(&organization.id, project)
        .await
        .map_err(unreadable)?
        .ok_or_else(Refusal::not_found)?;
    let user = match scope.user() {
        Some(id) => Some(
            app.directory
                .user(&project.id, id)
                .await
                .map_err(unreadable)?
                .ok_or_else(Refusal::not_found)?,
        ),
        None => None,
    };
    Ok(Place { scope: scope.clone(), organization, project, user })
}

/// Path prefix, header, pin, default: in this order.
async fn project(
    app: &App,
    holder: &Holder<'_>,
    organization: &OrganizationRecord,
    named: Option<&str>,
) -> Result<Arc<ProjectRecord>, Refusal> {
    let id = match (named, holder.project) {
        (Some(text), _) => ProjectId::parse(text).ok_or_else(Refusal::not_found)?,
        (None, Some(pinned)) => pinned.clone(),
        (None, None) => organization.default_project.clone(),
    };
    // Found first: a foreign project reads as absent even to a key that is pinned elsewhere.
    let found = app
        .directory
        .project(&organization.id, &id)
        .await
        .map_err(unreadable)?
        .ok_or_else(Refusal::not_found)?;
    match holder.project {
        Some(pinned) if *pinned != found.id => Err(Refusal::forbidden(
            "key_project_mismatch",
            "The API key is pinned to another project.",
        )),
        _ => Ok(found),
    }
}

/// Path, header, pin, default profile: in this order.
async fn user(
    app: &App,
    holder: &Holder<'_>,
    project: &ProjectRecord,
    identified: &Identified,
) -> Result<(Option<Arc<UserRecord>>, Subject), Refusal> {
    let located = &identified.located;
    let (named, subject) = match &located.user {
        Some(segment) => (Some(segment.as_str()), Subject::Path),
        None => (text(&located.accepted.headers, &USER)?, Subject::Header),
    };
    let (id, subject) = match (named, holder.user) {
        (None | Some("default" | "me"), Some(pinned)) => {
            (pinned.clone(), if named.is_some() { subject } else { Subject::Credential })
        }
        (None, None) => (project.default_user.clone(), Subject::Default),
        (Some("default" | "me"), None) => (project.default_user.clone(), subject),
        (Some(text), pinned) => {
            let id = UserId::parse(text).ok_or_else(Refusal::not_found)?;
            // A key that is pinned to a user sees that user alone.
            if pinned.is_some_and(|pinned| *pinned != id) {
                return Err(Refusal::not_found());
            }
            (id, subject)
        }
    };
    let found = app.directory.user(&project.id, &id).await.map_err(unreadable)?;
    match found {
        Some(user) => Ok((Some(user), subject)),
        // The default profile may have been deleted: the company mount then has no subject.
        None if subject == Subject::Default => Ok((None, Subject::None)),
        None => Err(Refusal::not_found()),
    }
}

fn text<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Result<Option<&'h str>, Refusal> {
    match headers.get(name).map(|value| value.to_str()) {
        None => Ok(None),
        Some(Ok(text)) => Ok(Some(text.trim())),
        Some(Err(_)) => Err(Refusal::invalid(name.as_str(), "must be visible ASCII")),
    }
}
