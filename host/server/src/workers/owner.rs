//! Whose work a job is: its owner's scope, proven anew from the directory at each run, and the
//! component version that the owner's kit names.
//!
//! What is done to a user rather than by it (`lifecycle::is_told`) arrives whatever its standing
//! and its kit say, and what tells of its end needs no user any more.

use std::sync::Arc;

use charter_engine::hook::{QUESTION, SIGNAL};
use charter_engine::job::{JobRecord, Owner};
use charter_kernel::id::UserId;
use charter_kernel::refusal::Code;
use charter_kernel::scope::{Actor, ActorKind, Principal, Scope};
use charter_kernel::unit::Guard;
use serde_json::{Value, json};

use super::approvals;
use crate::app::App;
use crate::directory::{ProjectRecord, UserRecord};
use crate::lifecycle::{Change, is_told};
use crate::pipeline::gate;
use crate::place::{self, Party, Unplaced};
use crate::records::user::User;
use crate::records::{ACTIVE, STATUS};
use crate::served::Served;

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

    /// Who acts: the host by a job, or the caller of an inbound URL, with the authority of the
    /// profile whose work it is and no more.
    fn principal(&self) -> Principal {
        let actor = match [SIGNAL, QUESTION].contains(&self.signal) {
            true => {
                let hook = self.payload["hook_id"].as_str().unwrap_or_default();
                Actor::new(ActorKind::Hook, hook)
            }
            false => Actor::system("job"),
        };
        Principal {
            user: self.owner.user.as_deref().and_then(UserId::parse),
            root: self.owner.root.clone(),
            ..Principal::of(actor)
        }
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
    let primitive = live.primitive(work.primitive).ok_or_else(|| missing(work.primitive))?;
    let (change, told) = (Change::of(work.signal), is_told(work.signal, work.payload));
    let owner = place::Owner {
        organization: &work.owner.organization,
        project: &work.owner.project,
        user: work.owner.user.as_deref(),
    };
    let principal = work.principal();
    if change == Some(Change::Deleted) {
        let test = work.payload["test"].as_bool().unwrap_or_default();
        let party =
            app.directory.party_of_deleted(principal, owner, test).await.map_err(unplaced)?;
        let served = primitive.active().clone();
        return Ok(Admitted { guards: guards(&party, told), scope: party.scope, served });
    }
    let party = app.directory.party(principal, owner).await.map_err(unplaced)?;
    let served = match (&party.project, told) {
        (None, _) => primitive.active().clone(),
        (Some(_), _) => match gate::decide(app, primitive, party.kit.as_deref()).await {
            Ok(served) => served,
            Err(refusal) if told && refusal.code == Code::Forbidden => primitive.active().clone(),
            Err(refusal) => return Err(approvals::told(&refusal)),
        },
    };
    Ok(Admitted { guards: guards(&party, told), scope: party.scope, served })
}

/// What must still hold of a party when something of it is committed.
fn guards(party: &Party, told: bool) -> Vec<Guard> {
    let mut guards: Vec<Guard> = party.organization.iter().map(|found| found.guard()).collect();
    if let (Some(user), Some(project)) = (&party.user, &party.project) {
        guards.push(if told { unchanged(user, project) } else { user.guard() });
    }
    guards
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

fn missing(primitive: &str) -> Value {
    json!({"code": "not_configured", "message": format!("{primitive} is not installed.")})
}

fn gone(what: &str) -> Value {
    json!({"code": "state_conflict", "reason": "owner_gone", "message": format!("The job's {what} is gone.")})
}

fn unplaced(why: Unplaced) -> Value {
    match why {
        Unplaced::Gone(what) => gone(what),
        Unplaced::Unread => {
            json!({"code": "overloaded", "message": "The directory could not be read."})
        }
    }
}
