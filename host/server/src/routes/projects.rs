//! Projects of an organization, live or test. Each has a default user and a default kit of its own.

use charter_kernel::authority::sees_project;
use charter_kernel::id::{OrganizationId, ProjectId};
use charter_kernel::kit::Budget;
use charter_kernel::refusal::Refusal;
use charter_kernel::unit::Reach;
use charter_store::Txn;
use serde::Deserialize;
use serde_json::{Value, json};

use super::shape::{self, budget, check, checked, id, instant, name, nullable, object, present};
use super::{auth, keys, kits::pins, stored};
use crate::app::App;
use crate::governance::caps;
use crate::lifecycle::{self, Told};
use crate::records::kit::StoredKit;
use crate::records::name as names;
use crate::records::project::{Mode, PROJECTS_MAX, Project};
use crate::records::user::User;
use crate::reply::Reply;
use crate::request::HostRequest;

fn item() -> Value {
    object(&[
        ("id", id()),
        ("name", name()),
        ("mode", mode()),
        ("default", json!({"type": "boolean"})),
        ("default_user_id", id()),
        ("default_kit_id", id()),
        ("budget", nullable(&budget())),
        ("created_at", instant()),
    ])
}

fn mode() -> Value {
    json!({"enum": ["live", "test"]})
}

/// The answer of one project's routes.
pub fn answer() -> Value {
    object(&[("project", item())])
}

/// The answer of the list.
pub fn list_answer() -> Value {
    shape::page("projects", &item())
}

fn view(project: &Project, default: &ProjectId) -> Value {
    json!({
        "id": project.id,
        "name": project.name,
        "mode": project.mode,
        "default": project.id == *default,
        "default_user_id": project.default_user,
        "default_kit_id": project.default_kit,
        "budget": project.budget,
        "created_at": project.created_at,
    })
}

#[derive(Deserialize)]
struct Create {
    name: String,
    #[serde(default)]
    mode: Mode,
}

/// The body of a new project.
pub fn create_body() -> Value {
    object(&[("name", name()), ("mode?", mode())])
}

/// Makes a project.
///
/// # Errors
/// 403 for a pinned key.
pub async fn create(app: &App, request: &HostRequest, txn: &mut Txn) -> Result<Reply, Refusal> {
    let organization = &request.place()?.organization;
    let body: Create = request.body_as()?;
    let mut faults = Vec::new();
    check(&mut faults, "name", names::fault(&body.name));
    checked(faults)?;
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
    let like = Some((default.record, kit.record));
    let wanted = (organization.id.clone(), body.name.as_str(), body.mode);
    let project = auth::new_project(app, txn, request, wanted, like).await?;
    let shown = view(&project, &organization.default_project);
    let note = json!({"after": shown});
    Ok(Reply::created(&json!({"project": shown}))
        .about("project", project.id.to_string())
        .noting(note))
}

/// The organization's projects; a pinned key sees its own.
///
/// # Errors
/// When the store cannot be asked.
pub async fn list(_: &App, request: &HostRequest, txn: &mut Txn) -> Result<Reply, Refusal> {
    let place = request.place()?;
    let (limit, offset) = (request.page.limit, request.page.offset);
    let default = &place.organization.default_project;
    if request.principal()?.project.as_ref().is_some() {
        let own = stored::get::<Project>(
            txn,
            &Project::address(&place.organization.id, &place.project.id),
        )
        .await?;
        let items = own
            .iter()
            .filter(|_| offset == 0)
            .map(|project| view(&project.record, default))
            .collect();
        return Ok(Reply::ok(&shape::listed("projects", items, (limit, offset), false)));
    }
    let reach = Reach::organization(place.organization.id.as_str());
    let (projects, more) = stored::list::<Project>(txn, &reach, &[], limit, offset).await?;
    let items = projects.iter().map(|project| view(&project.record, default)).collect();
    Ok(Reply::ok(&shape::listed("projects", items, (limit, offset), more)))
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

async fn named(request: &HostRequest, txn: &mut Txn) -> Result<Project, Refusal> {
    let organization = &request.place()?.organization;
    let id = match request.parameter("id") {
        "default" => organization.default_project.clone(),
        text => ProjectId::parse(text).ok_or_else(Refusal::not_found)?,
    };
    let found = stored::get::<Project>(txn, &Project::address(&organization.id, &id)).await?;
    let project = found.ok_or_else(Refusal::not_found)?.record;
    sees_project(&request.place()?.scope, &project.id)?;
    Ok(project)
}

/// One project.
///
/// # Errors
/// 404 for another organization's.
pub async fn get(_: &App, request: &HostRequest, txn: &mut Txn) -> Result<Reply, Refusal> {
    let project = named(request, txn).await?;
    let shown = view(&project, &request.place()?.organization.default_project);
    Ok(Reply::ok(&json!({"project": shown})))
}

#[derive(Deserialize)]
struct Change {
    name: Option<String>,
    #[serde(default, deserialize_with = "present")]
    budget: Option<Option<Budget>>,
}

/// The body of a change. The mode never changes: keys say it in their prefix.
pub fn change_body() -> Value {
    object(&[("name?", name()), ("budget?", nullable(&budget()))])
}

/// Changes a project.
///
/// # Errors
/// 404 for another organization's, 403 for a looser budget without the authority to loosen.
pub async fn patch(_: &App, request: &HostRequest, txn: &mut Txn) -> Result<Reply, Refusal> {
    let body: Change = request.body_as()?;
    let mut faults = Vec::new();
    check(&mut faults, "name", body.name.as_deref().and_then(names::fault));
    checked(faults)?;
    let mut project = named(request, txn).await?;
    let organization = &request.place()?.organization;
    let before = view(&project, &organization.default_project);
    if let Some(wanted) = body.budget {
        if Budget::loosens(project.budget, wanted) {
            request.place()?.may_loosen()?;
        }
        if project.budget.is_none() && wanted.is_some() {
            caps::begin(txn, "project", &Reach::project(project.id.as_str())).await?;
        }
        project.budget = wanted;
    }
    if let Some(name) = body.name {
        project.name = name;
    }
    stored::replace(txn, &project, "name").await?;
    let shown = view(&project, &organization.default_project);
    let note = json!({"before": before, "after": shown});
    Ok(Reply::ok(&json!({"project": shown})).about("project", project.id.to_string()).noting(note))
}

/// Deletes a project that has no users and kits but its own default ones. Its keys are revoked, and
/// what it owns goes soon after.
///
/// # Errors
/// 409 for the default project, and for one that is in use.
pub async fn delete(app: &App, request: &HostRequest, txn: &mut Txn) -> Result<Reply, Refusal> {
    let organization = &request.place()?.organization;
    request.place()?.may_loosen()?;
    let project = named(request, txn).await?;
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
    let mut signals = Vec::new();
    for user in &users {
        let test = lifecycle::is_test(&project);
        let told = Told { user: &user.record, test, now: request.now, request: &request.id };
        signals.extend(told.delete(&app.governance, txn).await?);
    }
    for kit in &kits {
        stored::remove(txn, &kit.record).await?;
        pins::follow(txn, Some(&kit.record), None).await?;
    }
    stored::remove(txn, &project).await?;
    lifecycle::erase(txn, organization.id.as_str(), &reach, signals, request.now).await?;
    let note = json!({"before": view(&project, &organization.default_project)});
    Ok(Reply::ok(&json!({"id": project.id, "deleted": true}))
        .about("project", project.id.to_string())
        .noting(note))
}
