//! The owner of a job: its scope, proven anew from the directory at each run, and the component
//! version that the owner's kit names.
//!
//! A signal of something that is done to a user rather than by it (`lifecycle::is_told`) arrives
//! whatever its standing and its kit say. The signal of its end needs no user any more, nor does what
//! a provider says has happened.

use std::sync::Arc;

use charter_engine::hook::{QUESTION, SIGNAL};
use charter_engine::job::{JobRecord, NAME, Owner, Payload};
use charter_governance::lifecycle::{Change, is_told};
use charter_kernel::id::{ProjectId, UserId};
use charter_kernel::refusal::{Code, Refusal};
use charter_kernel::role::Role;
use charter_kernel::scope::{Actor, ActorKind, Behind, Principal, Scope};
use charter_kernel::unit::Guard;
use charter_registry::served::Served;
use charter_tenancy::directory::{ProjectRecord, UserRecord, profile_revoked};
use charter_tenancy::place::{self, Party, Unplaced};
use charter_tenancy::records::erasure::Erasure;
use charter_tenancy::records::user::User;
use charter_tenancy::records::{ACTIVE, Record as _, STATUS};

use super::gate;
use crate::app::App;

/// Work to run, and its owner.
pub(crate) struct Work<'a> {
    /// By which primitive.
    pub(crate) primitive: &'a str,
    /// The kind of the signal.
    pub(crate) signal: &'a str,
    /// The signal's payload.
    pub(crate) payload: &'a Payload,
    /// In whose scope.
    pub(crate) owner: &'a Owner,
    /// The principal who asked for it, if somebody did.
    pub(crate) asked: Option<&'a Principal>,
    /// Whether a pinned credential or a stranger had asked for it, or caused it.
    pub(crate) pinned: bool,
}

impl<'a> Work<'a> {
    /// A job's.
    pub(crate) fn of(record: &'a JobRecord) -> Self {
        Self {
            primitive: &record.primitive,
            signal: &record.signal,
            payload: &record.payload,
            owner: &record.owner,
            asked: record.asked.as_ref(),
            pinned: record.pinned,
        }
    }

    /// The principal who acts: the host by a job, or the caller of an inbound URL, with the
    /// authority of the profile whose work it is and no more.
    fn principal(&self) -> Principal {
        let by = match (self.asked, self.signal) {
            (Some(asked), _) => asked.clone(),
            (None, SIGNAL | QUESTION) => {
                let [hook, provider] = self.payload.members(["hook_id", "provider"]);
                inbound(hook.as_str().unwrap_or_default(), provider.is_string())
            }
            (None, NAME) => {
                Principal { role: Some(Role::Viewer), behind: Behind::Stranger, ..system() }
            }
            (None, _) if self.pinned => Principal { behind: Behind::User, ..system() },
            (None, _) => system(),
        };
        let own = of_owner(by, self.owner);
        match self.asked {
            // It has the project's pin that it was asked with.
            Some(asked) => Principal { project: asked.project.clone(), ..own },
            None => own,
        }
    }

    fn place(&self) -> place::Owner<'a> {
        place::Owner {
            organization: &self.owner.organization,
            project: &self.owner.project,
            user: self.owner.user.as_deref(),
        }
    }
}

fn system() -> Principal {
    Principal::of(Actor::system("job"))
}

/// The principal of work that is an owner's and that nobody has asked for: with the authority of a profile, or of a project
/// by itself, and of nothing beyond it.
pub(crate) fn of_owner(by: Principal, owner: &Owner) -> Principal {
    let user = owner.user.as_deref().and_then(UserId::parse);
    let project = if user.is_none() { ProjectId::parse(&owner.project) } else { None };
    Principal { user, project, root: owner.root.clone(), ..by }
}

/// The caller of an inbound URL: a primitive changes what it keeps itself on anybody's word, and
/// does more, such as to spend or to call others, only on a provider's that is `signed`.
pub(crate) fn inbound(hook: &str, signed: bool) -> Principal {
    let role = if signed { None } else { Some(Role::Viewer) };
    Principal { role, ..Principal::of(Actor::by_credential(ActorKind::Hook, hook)) }
}

/// Work that may run. Only [`admit`] makes it.
pub(crate) struct Admitted {
    scope: Scope,
    /// On whose work it is.
    party: Vec<Guard>,
    /// On the work itself.
    work: Vec<Guard>,
    served: Arc<Served>,
}

impl Admitted {
    fn new(party: Party, told: bool, served: Arc<Served>) -> Self {
        let guards = guards(&party, told);
        Self { scope: party.into_scope(), party: guards, work: Vec::new(), served }
    }

    /// The component version that runs it.
    pub(crate) fn version(&self) -> &Arc<Served> {
        &self.served
    }

    /// Adds guards on the work itself that must hold at each of its commits.
    pub(crate) fn require(&mut self, guards: impl IntoIterator<Item = Guard>) {
        self.work.extend(guards);
    }

    /// The scope that it may reach, the guards on whose work it is and on the work itself, and the
    /// version that runs it.
    pub(super) fn into_parts(self) -> (Scope, [Vec<Guard>; 2], Arc<Served>) {
        (self.scope, [self.party, self.work], self.served)
    }
}

/// Proves whose work it is.
///
/// # Errors
/// Why it cannot run.
pub(crate) async fn admit(app: &App, work: &Work<'_>) -> Result<Admitted, Refusal> {
    let live = app.registry.current();
    let primitive = live.primitive(work.primitive).ok_or_else(|| missing(work.primitive))?;
    let (change, told) = (Change::of(work.signal), is_told(work.signal, work.payload));
    let (principal, owner) = (work.principal(), work.place());
    if change == Some(Change::Deleted) {
        let [test] = work.payload.members(["test"]);
        let test = test.as_bool().unwrap_or_default();
        let party = app.directory.party_of_deleted(principal, owner, test).await;
        return Ok(Admitted::new(party.map_err(word_unplaced)?, told, primitive.active().clone()));
    }
    let party = match work.signal {
        SIGNAL if told => place_told(app, principal, owner).await,
        _ => app.directory.party(principal, owner).await,
    };
    let party = party.map_err(word_unplaced)?;
    let served = match party.project() {
        None => primitive.active().clone(),
        Some(_) => match gate::decide(app, primitive, party.kit().map(AsRef::as_ref)).await {
            // Nor does a pin of a version that does not serve.
            Err(refusal) if told && is_kits(&refusal) => primitive.active().clone(),
            decided => decided?,
        },
    };
    Ok(Admitted::new(party, told, served))
}

/// Whether it is the kit that keeps a primitive from its user, or its pin.
fn is_kits(refusal: &Refusal) -> bool {
    matches!(refusal.code, Code::Forbidden | Code::NotConfigured)
}

/// Places what a provider says has happened: also of a user who is deleted, for as long as what
/// comes after its end is looked after.
pub(crate) async fn place_told(
    app: &App,
    principal: Principal,
    owner: place::Owner<'_>,
) -> Result<Party, Unplaced> {
    let placed = app.directory.party(principal.clone(), owner).await;
    let (Err(gone @ Unplaced::Gone(_)), Some(user)) = (&placed, owner.user) else { return placed };
    let key = Erasure::of_user(owner.organization, user);
    let row = app.store.get(&key).await.map_err(|_| Unplaced::Unread)?;
    let erasure = row.and_then(|row| Erasure::read(&row).ok()).ok_or(*gone)?;
    let owner = place::Owner { project: &erasure.project, ..owner };
    app.directory.party_of_deleted(principal, owner, erasure.test).await
}

/// The refusal of work that was stopped because somebody is revoked: its profile, or by whose
/// credential it had asked for leave.
pub(crate) async fn word_revocation(app: &App, work: &Work<'_>) -> Refusal {
    let party = match app.directory.party(work.principal(), work.place()).await {
        Ok(party) => party,
        Err(why) => return word_unplaced(why),
    };
    if party.user().is_some_and(|user| !user.active) {
        return profile_revoked();
    }
    if let (Some(asked), Some(organization)) = (work.asked, party.organization())
        && let Err(refusal) = app.directory.cut(asked, &organization.id).await
    {
        return refusal;
    }
    // They were restored meanwhile.
    Refusal::overloaded(1)
}

/// The guards on a party when something of it is committed: as those of a change to a profile, but
/// for what it is told whatever its standing and its kit say.
fn guards(party: &Party, told: bool) -> Vec<Guard> {
    let mut guards: Vec<Guard> =
        party.organization().into_iter().map(|found| found.guard()).collect();
    match (party.user(), party.project()) {
        (Some(user), Some(project)) if told => guards.push(standing_guard(user, project)),
        (Some(user), _) => guards.extend([user.guard(), user.guard_kit()]),
        (None, _) => {}
    }
    guards.extend(party.kit().filter(|_| !told).map(|kit| kit.guard()));
    guards
}

/// The user is there, and in the standing that it was found in: once it is deleted, nothing may be
/// written for it any more.
fn standing_guard(user: &UserRecord, project: &ProjectRecord) -> Guard {
    let standing = if user.active { ACTIVE } else { "revoked" };
    Guard::Entry {
        key: User::address(&project.id, &user.id),
        field: STATUS.into(),
        value: standing.into(),
    }
}

fn missing(primitive: &str) -> Refusal {
    Refusal::new(Code::NotConfigured, format!("{primitive} is not installed."))
}

fn word_unplaced(why: Unplaced) -> Refusal {
    match why {
        Unplaced::Gone(what) => {
            Refusal::state_conflict("owner_gone", format!("The job's {what} is gone."))
        }
        Unplaced::Unread => Refusal::new(Code::Overloaded, "The directory could not be read."),
    }
}

#[cfg(test)]
mod tests {
    use charter_kernel::authority::{Class, admit_principal};
    use charter_kernel::id::uuid_v7;
    use charter_kernel::manifest::Access;
    use charter_kernel::time::Instant;

    use super::*;

    #[test]
    fn who_acts_on_what_is_an_owners_reaches_nothing_beyond_it() {
        let id = |n: u8| uuid_v7(Instant(1), [n; 10]);
        let organization = Owner { organization: id(1), ..Owner::default() };
        let project = Owner { project: id(2), ..organization.clone() };
        let user = Owner { user: Some(id(3)), ..project.clone() };
        let may = |owner: &Owner, class: Class| {
            let caller = of_owner(inbound("h", true), owner);
            admit_principal(&caller, class, Access::Write).is_ok()
        };
        for (class, admitted) in [
            (Class::OrganizationRead, [true, false, false]),
            (Class::OrganizationChange, [true, false, false]),
            (Class::ProjectChange, [true, true, false]),
            (Class::ProfileChange, [true, true, true]),
        ] {
            let found = [&organization, &project, &user].map(|owner| may(owner, class));
            assert_eq!(found, admitted, "{class:?}");
        }
    }
}
