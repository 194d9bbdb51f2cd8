//! Whose work a job is: its owner's scope, proven anew from the directory at each run, and the component version that the
//! owner's kit names.
//!
//! A life-cycle signal, or the question after a hold in doubt, is done to a user rather than by it: neither its standing nor its kit keeps it from arriving, and the one
//! that tells of its end needs no user any more.

use std::sync::Arc;

use charter_engine::job::JobRecord;
use charter_kernel::id::{OrganizationId, ProjectId, UserId};
use charter_kernel::scope::{Actor, ActorKind, Proof, Scope, Subject};
use charter_kernel::unit::{Guard, Reach};
use charter_store::{Order, Query};
use serde_json::{Value, json};

use crate::app::App;
use crate::directory::{ProjectRecord, UserRecord};
use crate::lifecycle::{Change, is_told};
use crate::records::project::Project;
use crate::records::user::User;
use crate::records::{ACTIVE, Record as _, STATUS};
use crate::served::{Primitive, Served};

/// Projects that one look for a user's reads at once.
const PROJECTS_A_PAGE: u32 = 100;

/// A job that may run.
pub(super) struct Admitted {
    /// What it may reach.
    pub(super) scope: Scope,
    /// What must still hold at each of its commits.
    pub(super) guards: Vec<Guard>,
    /// What runs it.
    pub(super) served: Arc<Served>,
}

/// Proves whose work it is. The failure is what the job's record then says.
pub(super) async fn admit(app: &App, record: &JobRecord) -> Result<Admitted, Value> {
    let live = app.registry.current();
    let primitive = live.primitive(&record.primitive).ok_or_else(|| missing(record))?;
    let change = Change::of(&record.signal);
    let (owner, active) = (&record.owner, || primitive.active().clone());
    let proof = Proof::of(actor(record));
    if owner.organization.is_empty() && owner.project.is_empty() && owner.user.is_none() {
        return Ok(Admitted { scope: proof.scope(), guards: Vec::new(), served: active() });
    }
    let organization = OrganizationId::parse(&owner.organization).ok_or_else(|| gone("organization"))?;
    let organization = app.directory.organization(&organization).await.map_err(unread)?.ok_or_else(|| gone("organization"))?;
    let proof = proof.organization(organization.id.clone());
    let mut guards = vec![organization.guard()];
    let user = owner.user.as_deref().map(|user| UserId::parse(user).ok_or_else(|| gone("user"))).transpose()?;
    if change == Some(Change::Deleted) {
        let project = ProjectId::parse(&owner.project).ok_or_else(|| gone("project"))?;
        let test = record.payload["test"].as_bool().unwrap_or_default();
        let user = user.ok_or_else(|| gone("user"))?;
        let scope = proof.project(project, test).user(user, Subject::Credential).scope();
        return Ok(Admitted { scope, guards, served: active() });
    }
    let project = match (ProjectId::parse(&owner.project), &user) {
        (Some(project), _) => app.directory.project(&organization.id, &project).await.map_err(unread)?,
        (None, Some(user)) => project_of(app, &organization.id, user).await?,
        (None, None) => return Ok(Admitted { scope: proof.scope(), guards, served: active() }),
    };
    let project = project.ok_or_else(|| gone("project"))?;
    let mut proof = proof.project(project.id.clone(), project.test);
    let mut kit = None;
    if let Some(user) = user {
        let user = app.directory.user(&project.id, &user).await.map_err(unread)?.ok_or_else(|| gone("user"))?;
        guards.push(if is_told(&record.signal) { unchanged(&user, &project) } else { user.guard() });
        proof = proof.user(user.id.clone(), Subject::Credential);
        kit = user.kit.clone();
    }
    let kit = app.directory.kit(&project, kit.as_ref()).await.map_err(unread)?;
    let gate = primitive.active().manifest.gate;
    let decided = match &kit {
        Some(kit) => kit.decide(&primitive.name, gate),
        None => charter_kernel::kit::decide(&primitive.name, gate, None),
    };
    let pinned = match decided {
        Ok(pinned) => pinned,
        Err(_) if is_told(&record.signal) => None,
        Err(denied) => return Err(json!({"code": "forbidden", "message": denied.to_string()})),
    };
    let served = version(app, primitive, pinned).await.ok_or_else(|| missing(record))?;
    Ok(Admitted { scope: proof.scope(), guards, served })
}

/// Who acts: the host by a job, or whoever called an inbound URL.
fn actor(record: &JobRecord) -> Actor {
    if record.signal == charter_engine::hook::SIGNAL {
        return Actor::new(ActorKind::Hook, record.payload["hook_id"].as_str().unwrap_or_default());
    }
    Actor::system("job")
}

async fn version(app: &App, primitive: &Primitive, pinned: Option<&str>) -> Option<Arc<Served>> {
    match pinned {
        None => Some(primitive.active().clone()),
        Some(version) => app.registry.pinned(&primitive.name, version).await,
    }
}

/// The user is there, and in the standing that it was found in: once it is deleted, nothing may be written for it any more.
fn unchanged(user: &UserRecord, project: &ProjectRecord) -> Guard {
    let standing = if user.active { ACTIVE } else { "revoked" };
    Guard::Entry { key: User::address(&project.id, &user.id), field: STATUS.into(), value: standing.into() }
}

/// The project of a user of which nothing else is known: a name's holder is known by its reach only.
async fn project_of(app: &App, organization: &OrganizationId, user: &UserId) -> Result<Option<Arc<ProjectRecord>>, Value> {
    let mut query = Query::all(&Reach::organization(organization.as_str()), &Project::space()).limit(PROJECTS_A_PAGE);
    query.order = Order::Oldest;
    loop {
        let page = app.store.find(&query).await.map_err(unread)?;
        for (key, _) in &page.items {
            let Some(id) = ProjectId::parse(&key.id) else { continue };
            if app.directory.user(&id, user).await.map_err(unread)?.is_some() {
                return app.directory.project(organization, &id).await.map_err(unread);
            }
        }
        match page.next {
            Some(next) => query.after = Some(next),
            None => return Ok(None),
        }
    }
}

fn missing(record: &JobRecord) -> Value {
    json!({"code": "not_configured", "message": format!("{} is not installed.", record.primitive)})
}

fn gone(what: &str) -> Value {
    json!({"code": "state_conflict", "reason": "owner_gone", "message": format!("The job's {what} is gone.")})
}

fn unread<E>(_: E) -> Value {
    json!({"code": "overloaded", "message": "The directory could not be read."})
}
