//! Projects of an organization, live or test. Each has a default user and a default kit of its own.

use charter_governance::caps;
use charter_governance::lifecycle::{self, Told};
use charter_kernel::authority::{Class, sees_project};
use charter_kernel::id::{KitId, OrganizationId, ProjectId, UserId};
use charter_kernel::kit::Budget;
use charter_kernel::manifest::{Access, Paging};
use charter_kernel::refusal::Refusal;
use charter_kernel::time::Instant;
use charter_kernel::unit::Reach;
use charter_store::Txn;
use charter_tenancy::records::kit::StoredKit;
use charter_tenancy::records::name as names;
use charter_tenancy::records::project::{Mode, PROJECTS_MAX, Project};
use charter_tenancy::records::user::User;
use charter_tenancy::stored;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::organization::{change_budget, is_agreed, may_open_room};
use super::pins;
use super::shape::{Deleted, Name, Offset, Optional, check, present, refuse_faults};
use super::{auth, keys, webhooks};
use crate::app::App;
use crate::handler;
use crate::reply::AuditLog;
use crate::request::HostRequest;
use crate::route::HostRoute;
use crate::serve::{Answer, Body, Created};

/// The rows of projects.
pub fn routes() -> Vec<HostRoute> {
    vec![
        HostRoute::post(
            Class::OrganizationChange,
            "projects.create",
            "/projects",
            handler!(create_project),
        )
        .access(Access::Admin)
        .summary("Create a project"),
        HostRoute::get(Class::ProjectRead, "projects.list", "/projects", handler!(list_projects))
            .summary("List projects")
            .paging(Paging::Offset),
        HostRoute::get(Class::ProjectRead, "projects.get", "/projects/{id}", handler!(get_project))
            .summary("One project"),
        HostRoute::patch(
            Class::ProjectChange,
            "projects.update",
            "/projects/{id}",
            handler!(update_project),
        )
        .summary("Change a project"),
        HostRoute::delete(
            Class::Loosening,
            "projects.delete",
            "/projects/{id}",
            handler!(delete_project),
        )
        .summary("Delete an empty project"),
        HostRoute::post(
            Class::Loosening,
            "projects.restore",
            "/projects/{id}/restore",
            handler!(restore_project),
        )
        .summary("Let a project spend again whose budget was frozen"),
    ]
}

/// The body of a new project.
#[derive(Deserialize, JsonSchema)]
pub struct NewProject {
    /// Its name, for people.
    name: Name,
    /// The providers that it reaches: all, or those that are bound as a sandbox.
    #[serde(default)]
    mode: Mode,
}

/// A project.
#[derive(Serialize, JsonSchema)]
struct ProjectItem {
    /// The project's id.
    id: ProjectId,
    /// Its name, for people.
    name: Name,
    /// The providers that it reaches: all, or those that are bound as a sandbox.
    mode: Mode,
    /// Whether it is the organization's default project.
    default: bool,
    /// The profile that the account itself acts as in it.
    default_user_id: UserId,
    /// The kit of users that were assigned none.
    default_kit_id: KitId,
    /// The spend cap of all its users together.
    budget: Option<Budget>,
    /// The moment of its creation.
    created_at: Instant,
}

impl ProjectItem {
    fn of(project: &Project, default: &ProjectId) -> Self {
        Self {
            id: project.id.clone(),
            name: project.name.as_str().into(),
            mode: project.mode,
            default: project.id == *default,
            default_user_id: project.default_user.clone(),
            default_kit_id: project.default_kit.clone(),
            budget: project.budget,
            created_at: project.created_at,
        }
    }
}

/// One project.
#[derive(Serialize, JsonSchema)]
pub struct ProjectAnswer {
    project: ProjectItem,
}

/// A page of projects.
#[derive(Serialize, JsonSchema)]
pub struct ProjectPage {
    projects: Vec<ProjectItem>,
    #[serde(flatten)]
    page: Offset,
}

/// Makes a project, with the budget and the kit of the default one.
///
/// # Errors
/// 403 for a pinned key, and where it would be more room than the caller may give.
pub async fn create_project(
    app: &App,
    request: &HostRequest,
    txn: &mut Txn,
    Body(body): Body<NewProject>,
) -> Result<Created<ProjectAnswer>, Refusal> {
    let organization = request.place()?.organization();
    let mut faults = Vec::new();
    check(&mut faults, "name", names::fault(&body.name));
    refuse_faults(faults)?;
    let reach = Reach::organization(organization.id.as_str());
    if stored::count::<Project>(txn, &reach, &[]).await? >= PROJECTS_MAX {
        return Err(Refusal::state_conflict(
            "too_many_projects",
            "The organization has as many projects as it can have.",
        ));
    }
    let default = Project::address(&organization.id, &organization.default_project);
    let default = stored::get::<Project>(txn, &default).await?.ok_or_else(Refusal::not_found)?;
    let kit = StoredKit::address(&default.record.id, &default.record.default_kit);
    let kit = stored::get::<StoredKit>(txn, &kit).await?.ok_or_else(Refusal::not_found)?;
    let (default, kit) = (default.record, kit.record);
    if default.budget.is_some() || kit.budget.is_some() {
        may_open_room(txn, request.place()?).await?;
    }
    let like = Some((default, kit));
    let wanted = (organization.id.clone(), &*body.name, body.mode);
    let project = auth::new_project(app, txn, request, wanted, like).await?;
    let shown = ProjectItem::of(&project, &organization.default_project);
    let note = json!({"after": shown});
    Ok(Created::of(&ProjectAnswer { project: shown })
        .about("project", project.id.to_string())
        .noting(note))
}

/// The organization's projects; a pinned key sees its own.
///
/// # Errors
/// When the store cannot be asked.
pub async fn list_projects(
    _: &App,
    request: &HostRequest,
    txn: &mut Txn,
) -> Result<Answer<ProjectPage>, Refusal> {
    let place = request.place()?;
    let (limit, offset) = (request.page.limit, request.page.offset);
    let default = &place.organization().default_project;
    if request.principal()?.project.as_ref().is_some() {
        let own = stored::get::<Project>(
            txn,
            &Project::address(&place.organization().id, &place.project().id),
        )
        .await?;
        let own = own.iter().filter(|_| offset == 0);
        let projects = own.map(|project| ProjectItem::of(&project.record, default)).collect();
        let page = Offset::of(&request.page, false);
        return Ok(Answer::of(&ProjectPage { projects, page }));
    }
    let reach = Reach::organization(place.organization().id.as_str());
    let (projects, more) = stored::list::<Project>(txn, &reach, &[], limit, offset).await?;
    let projects =
        projects.iter().map(|project| ProjectItem::of(&project.record, default)).collect();
    Ok(Answer::of(&ProjectPage { projects, page: Offset::of(&request.page, more) }))
}

/// Requires at the commit that the project is still there: nobody moves into one that is being
/// deleted.
///
/// # Errors
/// 404 where it is gone.
pub async fn still_there(
    txn: &mut Txn,
    organization: &OrganizationId,
    project: &ProjectId,
) -> Result<(), Refusal> {
    let found = stored::get::<Project>(txn, &Project::address(organization, project)).await?;
    found.map(drop).ok_or_else(Refusal::not_found)
}

async fn find(request: &HostRequest, txn: &mut Txn) -> Result<Project, Refusal> {
    let organization = request.place()?.organization();
    let id = match request.parameter("id") {
        "default" => organization.default_project.clone(),
        text => ProjectId::parse(text).ok_or_else(Refusal::not_found)?,
    };
    let found = stored::get::<Project>(txn, &Project::address(&organization.id, &id)).await?;
    let project = found.ok_or_else(Refusal::not_found)?.record;
    sees_project(request.place()?.scope(), &project.id)?;
    Ok(project)
}

/// One project.
///
/// # Errors
/// 404 for another organization's.
pub async fn get_project(
    _: &App,
    request: &HostRequest,
    txn: &mut Txn,
) -> Result<Answer<ProjectAnswer>, Refusal> {
    let project = find(request, txn).await?;
    let project = ProjectItem::of(&project, &request.place()?.organization().default_project);
    Ok(Answer::of(&ProjectAnswer { project }))
}

/// The body of a change. The mode never changes: keys say it in their prefix.
#[derive(Deserialize, JsonSchema)]
pub struct ProjectChange {
    /// Its name, for people.
    name: Optional<Name>,
    /// The spend cap of all its users together; null for none.
    #[serde(default, deserialize_with = "present")]
    budget: Option<Option<Budget>>,
}

/// Changes a project.
///
/// # Errors
/// 404 for another organization's, 403 for a looser budget without the authority to loosen.
pub async fn update_project(
    _: &App,
    request: &HostRequest,
    txn: &mut Txn,
    Body(body): Body<ProjectChange>,
) -> Result<Answer<ProjectAnswer>, Refusal> {
    let mut faults = Vec::new();
    check(&mut faults, "name", body.name.0.as_deref().and_then(names::fault));
    refuse_faults(faults)?;
    let mut project = find(request, txn).await?;
    let organization = request.place()?.organization();
    let before = ProjectItem::of(&project, &organization.default_project);
    if let Some(wanted) = body.budget {
        let place = request.place()?;
        project.budget_agreed = is_agreed(place, project.budget, project.budget_agreed);
        let scope = ("project", Reach::project(project.id.as_str()));
        change_budget(txn, place, scope, &mut project.budget, wanted).await?;
    }
    if let Some(name) = body.name.0 {
        project.name = name.0;
    }
    stored::replace(txn, &project, "name").await?;
    let shown = ProjectItem::of(&project, &organization.default_project);
    let note = json!({"before": before, "after": shown});
    Ok(Answer::of(&ProjectAnswer { project: shown })
        .about("project", project.id.to_string())
        .with_log(AuditLog::Project(project.id))
        .noting(note))
}

/// Lets a project admit amounts again whose caps were frozen because more was captured than was
/// held: whoever restores it has looked.
///
/// # Errors
/// 404 for another organization's, 403 without the authority to loosen.
pub async fn restore_project(
    _: &App,
    request: &HostRequest,
    txn: &mut Txn,
) -> Result<Answer<ProjectAnswer>, Refusal> {
    let place = request.place()?;
    let project = find(request, txn).await?;
    place.may_loosen()?;
    caps::thaw(txn, &Reach::project(project.id.as_str())).await?;
    let shown = ProjectItem::of(&project, &place.organization().default_project);
    Ok(Answer::of(&ProjectAnswer { project: shown })
        .about("project", project.id.to_string())
        .with_log(AuditLog::Project(project.id)))
}

/// Deletes a project that has no users and kits but its own default ones. Its keys are revoked,
/// its webhooks go with it, and what it owns goes soon after.
///
/// # Errors
/// 409 for the default project, and for one that is in use.
pub async fn delete_project(
    app: &App,
    request: &HostRequest,
    txn: &mut Txn,
) -> Result<Answer<Deleted>, Refusal> {
    let organization = request.place()?.organization();
    request.place()?.may_loosen()?;
    let project = find(request, txn).await?;
    if project.id == organization.default_project {
        return Err(Refusal::state_conflict(
            "default_project",
            "The default project of an organization stays.",
        ));
    }
    let reach = Reach::project(project.id.as_str());
    let (users, more_users) = stored::list::<User>(txn, &reach, &[], 2, 0).await?;
    let (kits, more_kits) = stored::list::<StoredKit>(txn, &reach, &[], 2, 0).await?;
    // Validated at the commit: nobody moves in meanwhile.
    let tenants = stored::count::<User>(txn, &reach, &[]).await?;
    let bundles = stored::count::<StoredKit>(txn, &reach, &[]).await?;
    let others = users.iter().any(|user| user.record.id != project.default_user)
        || kits.iter().any(|kit| !kit.record.default);
    if others || more_users || more_kits || tenants > 1 || bundles > 1 {
        return Err(Refusal::state_conflict("project_in_use", "The project has users or kits.")
            .hint("Delete them first."));
    }
    keys::remove_pinned(txn, &organization.id, ("project_id", project.id.as_str())).await?;
    webhooks::remove_of_project(app, txn, (&organization.id, &project.id)).await?;
    let mut signals = Vec::new();
    for user in &users {
        let test = lifecycle::is_test(&project);
        let behind = request.place()?.scope().principal().behind();
        let told =
            Told { user: &user.record, test, now: request.now, request: &request.id, behind };
        signals.extend(told.delete(&app.governance, txn).await?);
    }
    for kit in &kits {
        stored::remove(txn, &kit.record).await?;
        pins::follow(txn, Some(&kit.record), None).await?;
    }
    stored::remove(txn, &project).await?;
    lifecycle::erase(txn, organization.id.as_str(), &reach, signals, request.now).await?;
    let note = json!({"before": ProjectItem::of(&project, &organization.default_project)});
    Ok(Answer::of(&Deleted::of(project.id.as_str()))
        .about("project", project.id.to_string())
        .with_log(AuditLog::Organization)
        .noting(note))
}
