//! Whose work a job is: its owner's scope, proven anew from the directory at each run, and the
//! component version that the owner's kit names.
//!
//! What is done to a user rather than by it (`lifecycle::is_told`) arrives whatever its standing
//! and its kit say, and what tells of its end needs no user any more.

use std::sync::Arc;

use charter_engine::hook::{QUESTION, SIGNAL};
use charter_engine::job::{JobRecord, Owner};
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

/// What is to be run, and whose it is.
pub(crate) struct Work<'a> {
    /// By which primitive.
    pub(crate) primitive: &'a str,
    /// The kind of the signal.
    pub(crate) signal: &'a str,
    /// What it says.
    pub(crate) payload: &'a Value,
    /// In whose scope.
    pub(crate) owner: &'a Owner,
}

impl<'a> Work<'a> {
    /// A job's.
    pub(super) fn of(record: &'a JobRecord) -> Self {
        Self {
            primitive: &record.primitive,
            signal: &record.signal,
            payload: &record.payload,
            owner: &record.owner,
        }
    }

    /// Who acts: the host by a job, or whoever called an inbound URL.
    fn actor(&self) -> Actor {
        if [SIGNAL, QUESTION].contains(&self.signal) {
            return Actor::new(
                ActorKind::Hook,
                self.payload["hook_id"].as_str().unwrap_or_default(),
            );
        }
        Actor::system("job")
    }
}

/// Work that may run.
pub(crate) struct Admitted {
    /// What it may reach.
    pub(crate) scope: Scope,
    /// What must still hold at each of its commits.
    pub(crate) guards: Vec<Guard>,
    /// What runs it.
    pub(crate) served: Arc<Served>,
}

/// Proves whose work it is. The failure is what the job's record then says.
pub(crate) async fn admit(app: &App, work: &Work<'_>) -> Result<Admitted, Value> {
    let live = app.registry.current();
    let missing = || missing(work.primitive);
    let primitive = live.primitive(work.primitive).ok_or_else(missing)?;
    let (change, told) = (Change::of(work.signal), is_told(work.signal, work.payload));
    let (owner, active) = (work.owner, || primitive.active().clone());
    let proof = Proof::of(work.actor());
    if owner.organization.is_empty() && owner.project.is_empty() && owner.user.is_none() {
        return Ok(Admitted { scope: proof.scope(), guards: Vec::new(), served: active() });
    }
    let organization =
        OrganizationId::parse(&owner.organization).ok_or_else(|| gone("organization"))?;
    let organization = app
        .directory
        .organization(&organization)
        .await
        .map_err(unread)?
        .ok_or_else(|| gone("organization"))?;
    let proof = proof.organization(organization.id.clone());
    let mut guards = vec![organization.guard()];
    let user = owner
        .user
        .as_deref()
        .map(|user| UserId::parse(user).ok_or_else(|| gone("user")))
        .transpose()?;
    if change == Some(Change::Deleted) {
        let project = ProjectId::parse(&owner.project).ok_or_else(|| gone("project"))?;
        let test = work.payload["test"].as_bool().unwrap_or_default();
        let user = user.ok_or_else(|| gone("user"))?;
        let scope = proof.project(project, test).user(user, Subject::Credential).scope();
        return Ok(Admitted { scope, guards, served: active() });
    }
    let project = match (ProjectId::parse(&owner.project), &user) {
        (Some(project), _) => {
            app.directory.project(&organization.id, &project).await.map_err(unread)?
        }
        (None, Some(user)) => project_of(app, &organization.id, user).await?,
        (None, None) => return Ok(Admitted { scope: proof.scope(), guards, served: active() }),
    };
    let project = project.ok_or_else(|| gone("project"))?;
    let mut proof = proof.project(project.id.clone(), project.test);
    let mut kit = None;
    if let Some(user) = user {
        let user = app
            .directory
            .user(&project.id, &user)
            .await
            .map_err(unread)?
            .ok_or_else(|| gone("user"))?;
        guards.push(if told { unchanged(&user, &project) } else { user.guard() });
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
        Err(_) if told => None,
        Err(denied) => return Err(json!({"code": "forbidden", "message": denied.to_string()})),
    };
    let served = version(app, primitive, pinned).await.ok_or_else(missing)?;
    Ok(Admitted { scope: proof.scope(), guards, served })
}

async fn version(app: &App, primitive: &Primitive, pinned: Option<&str>) -> Option<Arc<Served>> {
    match pinned {
        None => Some(primitive.active().clone()),
        Some(version) => app.registry.pinned(&primitive.name, version).await,
    }
}

/// The user is there, and in the standing that it was found in: once it is deleted, nothing may be
/// written for it any more.
fn unchanged(user: &UserRecord, project: &ProjectRecord) -> Guard {
    let standing = if user.active { ACTIVE } else { "revoked" };
    Guard::Entry {
        key: User::address(&project.id, &user.id),
        field: STATUS.into(),
        value: standing.into(),
    }
}

/// The project of a user of which nothing else is known: a name's holder is known by its reach
/// only.
async fn project_of(
    app: &App,
    organization: &OrganizationId,
    user: &UserId,
) -> Result<Option<Arc<ProjectRecord>>, Value> {
    let mut query = Query::all(&Reach::organization(organization.as_str()), &Project::space())
        .limit(PROJECTS_A_PAGE);
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

fn missing(primitive: &str) -> Value {
    json!({"code": "not_configured", "message": format!("{primitive} is not installed.")})
}

fn gone(what: &str) -> Value {
    json!({"code": "state_conflict", "reason": "owner_gone", "message": format!("The job's {what} is gone.")})
}

fn unread<E>(_: E) -> Value {
    json!({"code": "overloaded", "message": "The directory could not be read."})
}
