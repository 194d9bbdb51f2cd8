//! API keys. A key never has more power than its maker: no higher role, no wider pin, no longer
//! life.

use std::collections::BTreeMap;

use charter_governance::lifecycle;
use charter_kernel::authority::{Class, sees_project, sees_user};
use charter_kernel::id::{InvitationId, KeyId, OrganizationId, ProjectId, UserId};
use charter_kernel::manifest::Paging;
use charter_kernel::refusal::{Code, Refusal};
use charter_kernel::role::Role;
use charter_kernel::time::Instant;
use charter_kernel::unit::{self, Draft, Reach, Space, Write};
use charter_store::{Query, Txn};
use charter_tenancy::directory::{KeyRecord, ProjectRecord};
use charter_tenancy::identity::Identity;
use charter_tenancy::place::Place;
use charter_tenancy::records::Record as _;
use charter_tenancy::records::erasure::Erasure;
use charter_tenancy::records::key::{ANCESTORS_MAX, ApiKey};
use charter_tenancy::records::name as names;
use charter_tenancy::records::project::Mode;
use charter_tenancy::records::user::User;
use charter_tenancy::secret::Plain;
use charter_tenancy::stored;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::shape::{
    Actor, Deleted, Moment, Name, Offset, Optional, Reference, check, refuse_faults,
};
use super::{invitations, projects};
use crate::app::App;
use crate::handler;
use crate::reply::AuditLog;
use crate::request::HostRequest;
use crate::route::HostRoute;
use crate::serve::{Answer, Body, Created};

/// How many keys go with the commit that ends what they are pinned to. Any beyond are dead all the
/// same, and left to the workers.
const PINNED_ENDED_MAX: u32 = 400;
/// Keys of one user that its own keys can make: the others are the organization's.
const PINNED_MAX: u64 = 100;
/// The collection of the row by which a user's own keys make others one after the other.
const TURNS: &str = "key_turns";

/// The rows of API keys.
pub fn routes() -> Vec<HostRoute> {
    vec![
        HostRoute::post(Class::OwnCredential, "keys.create", "/auth/keys", handler!(create_key))
            .refuses(&[Code::NotFound])
            .summary("Create an API key; it is shown once"),
        HostRoute::get(Class::DeskRead, "keys.list", "/auth/keys", handler!(list_keys))
            .summary("List API keys")
            .paging(Paging::Offset),
        HostRoute::delete(
            Class::OwnCredential,
            "keys.revoke",
            "/auth/keys/{id}",
            handler!(revoke_key),
        )
        .summary("Revoke an API key and the keys it made"),
    ]
}

/// The body of a new key.
#[derive(Deserialize, JsonSchema)]
pub struct NewKey {
    /// Its name, for people.
    name: Name,
    /// Its role, no higher than its maker's: `developer` where its maker's contains that.
    role: Optional<KeyRole>,
    /// The project that it is pinned to.
    project_id: Option<Reference>,
    /// The tenant user that it is pinned to.
    user_id: Option<Reference>,
    /// The moment of its end.
    expires_at: Option<Moment>,
}

/// A role that a key can have: owning takes a person.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum KeyRole {
    Viewer,
    Developer,
    Approver,
    Admin,
}

impl From<KeyRole> for Role {
    fn from(role: KeyRole) -> Self {
        match role {
            KeyRole::Viewer => Self::Viewer,
            KeyRole::Developer => Self::Developer,
            KeyRole::Approver => Self::Approver,
            KeyRole::Admin => Self::Admin,
        }
    }
}

/// The facts of a key that every answer tells.
#[derive(Serialize, JsonSchema)]
struct Facts {
    /// The key's id.
    id: KeyId,
    /// Its name, for people.
    name: Name,
    /// The first characters of its secret.
    prefix: String,
    /// The project that it is pinned to.
    active_project_id: Option<ProjectId>,
    /// Its role.
    role: Role,
    /// The tenant user that it is pinned to.
    user_id: Option<UserId>,
    /// The moment of its end.
    expires_at: Option<Instant>,
    /// The moment of its creation.
    created_at: Instant,
}

impl Facts {
    fn of(key: &ApiKey) -> Self {
        Self {
            id: key.id.clone(),
            name: key.name.as_str().into(),
            prefix: key.prefix.clone(),
            active_project_id: key.project.clone(),
            role: key.role,
            user_id: key.user.clone(),
            expires_at: key.expires_at,
            created_at: key.created_at,
        }
    }
}

/// A new key, in the only answer that shows its secret.
#[derive(Serialize, JsonSchema)]
pub struct MadeKey {
    #[serde(flatten)]
    facts: Facts,
    /// The secret: `Authorization: Bearer <key>`.
    key: String,
}

/// An API key, without its secret.
#[derive(Serialize, JsonSchema)]
struct Key {
    #[serde(flatten)]
    facts: Facts,
    /// The account or the key that made it.
    made_by: Actor,
}

impl Key {
    fn of(key: &ApiKey) -> Self {
        Self { facts: Facts::of(key), made_by: (&key.made_by).into() }
    }
}

/// A page of keys.
#[derive(Serialize, JsonSchema)]
pub struct KeyPage {
    keys: Vec<Key>,
    #[serde(flatten)]
    page: Offset,
}

/// The answer to a revocation.
#[derive(Serialize, JsonSchema)]
pub struct RevokedKey {
    #[serde(flatten)]
    gone: Deleted,
    /// The invitations that the key had offered, and that ended with it.
    invitations: Vec<InvitationId>,
}

/// Makes a key.
///
/// # Errors
/// 403 when it would have more power than its maker.
pub async fn create_key(
    app: &App,
    request: &HostRequest,
    txn: &mut Txn,
    Body(body): Body<NewKey>,
) -> Result<Created<MadeKey>, Refusal> {
    let place = request.place()?;
    let mut faults = Vec::new();
    check(&mut faults, "name", names::fault(&body.name));
    let wanted_end = body.expires_at.as_ref().map(Moment::instant);
    let end_fault = match wanted_end {
        Some(None) => Some("must be a moment until the end of the year 9999"),
        Some(Some(end)) if end <= request.now => Some("must be in the future"),
        _ => None,
    };
    check(&mut faults, "expires_at", end_fault);
    refuse_faults(faults)?;
    let maker = Maker::of(&request.identity)?;
    has_room(txn, place).await?;
    let role = maker.role(body.role.0.map(Role::from))?;
    let expires_at = maker.end(wanted_end.flatten())?;
    let ancestors = maker.ancestors()?;
    let project = pin_project(app, place, body.project_id.as_deref()).await?;
    let within = project.as_deref().unwrap_or(place.project());
    let user = user_of(txn, place, within, body.user_id.as_deref()).await?;
    // A key that is pinned to a user acts in that user's project only.
    let project = if user.is_some() { Some(within.clone()) } else { project.as_deref().cloned() };
    if let Some(project) = &project {
        projects::still_there(txn, &place.organization().id, &project.id).await?;
    }
    let mode =
        if project.as_ref().is_some_and(|project| project.test) { Mode::Test } else { Mode::Live };
    let secret = Plain::generate(mode.key_prefix()).map_err(stored::no_randomness)?;
    let key = ApiKey {
        id: KeyId::new(request.now, stored::random()?),
        organization: place.organization().id.clone(),
        name: body.name.0,
        prefix: secret.prefix(),
        digest: secret.digest().hex(),
        role,
        project: project.map(|project| project.id),
        user,
        made_by: request.identity.actor(),
        root: request.principal()?.root.clone(),
        ancestors,
        created_at: request.now,
        expires_at,
    };
    insert(txn, &key).await?;
    let answer = MadeKey { facts: Facts::of(&key), key: secret.reveal().to_owned() };
    Ok(Created::of(&answer)
        .about("key", key.id.to_string())
        .with_log(log_of(&key))
        .noting(json!({"after": Key::of(&key)})))
}

/// The log that tells of a key: that of its pins.
fn log_of(key: &ApiKey) -> AuditLog {
    let project = key.project.as_ref().map(ProjectId::as_str);
    AuditLog::of(project, key.user.as_ref().map(UserId::as_str))
}

/// Inserts a key and makes it findable by its secret.
///
/// # Errors
/// When the store cannot be asked.
pub async fn insert(txn: &mut Txn, key: &ApiKey) -> Result<(), Refusal> {
    stored::insert(txn, key, "name").await?;
    // 256 random bits are nobody else's.
    txn.claim(&ApiKey::claim(&key.digest), &key.key()).await.map_err(stored::reading)?;
    Ok(())
}

/// Removes a key, and what its secret is found by.
///
/// # Errors
/// When the store cannot be asked.
pub async fn remove(txn: &mut Txn, key: &ApiKey) -> Result<(), Refusal> {
    txn.unclaim(&ApiKey::claim(&key.digest), &key.key());
    stored::remove(txn, key).await
}

/// The maker that bounds a new key: the key or the person that makes it.
struct Maker<'a> {
    role: Role,
    key: Option<&'a KeyRecord>,
}

impl<'a> Maker<'a> {
    fn of(identity: &'a Identity) -> Result<Self, Refusal> {
        let role = identity
            .role()
            .ok_or_else(|| Refusal::unauthorized("Making a key takes a key or a session."))?;
        let key = match identity {
            Identity::Key(key) => Some(&**key),
            _ => None,
        };
        Ok(Self { role, key })
    }

    fn role(&self, wanted: Option<Role>) -> Result<Role, Refusal> {
        let wanted = wanted.unwrap_or(if Role::Developer.no_higher_than(self.role) {
            Role::Developer
        } else {
            Role::Viewer
        });
        if wanted.no_higher_than(self.role) {
            return Ok(wanted);
        }
        Err(wider(
            "role",
            format!("A key's role can be no higher than its maker's, which is {}.", self.role),
        ))
    }

    fn end(&self, wanted: Option<Instant>) -> Result<Option<Instant>, Refusal> {
        match (self.key.and_then(|key| key.expires_at), wanted) {
            (Some(own), Some(wanted)) if wanted > own => Err(wider(
                "expires_at",
                format!("A key ends no later than the key that makes it, which ends at {own}."),
            )),
            (own, wanted) => Ok(wanted.or(own)),
        }
    }

    fn ancestors(&self) -> Result<Vec<KeyId>, Refusal> {
        let Some(key) = self.key else { return Ok(Vec::new()) };
        if key.ancestors.len() >= ANCESTORS_MAX {
            return Err(Refusal::forbidden(
                "key_too_deep",
                "This key descends from too many keys to make another.",
            )
            .hint("Make the key with a session, or with the key that made this one."));
        }
        Ok(std::iter::once(&key.id).chain(&key.ancestors).cloned().collect())
    }
}

fn wider(param: &str, message: String) -> Refusal {
    Refusal::forbidden("key_wider_than_maker", message).param(param)
}

/// Whether a key that is pinned to a user may make another.
///
/// # Errors
/// 409 where the user has as many as its own keys can make.
async fn has_room(txn: &mut Txn, place: &Place) -> Result<(), Refusal> {
    let Some(user) = place.scope().principal().user.as_ref() else { return Ok(()) };
    // One after the other, of one user: whoever finds that another came in between counts once more.
    let turn = unit::Key::new(&Reach::user(user.as_str()), &Space::host(TURNS), "own");
    txn.get(&turn).await.map_err(stored::reading)?;
    txn.write(Write::Put { key: turn, draft: Draft { body: "{}".into(), ..Draft::default() } });
    let reach = Reach::organization(place.organization().id.as_str());
    let of_user = Query::all(&reach, &ApiKey::space()).equal("user_id", user.as_str()).relax();
    if txn.count(&of_user).await.map_err(stored::reading)? < PINNED_MAX {
        return Ok(());
    }
    let told = "The key's user has as many keys as its own keys can make.";
    Err(Refusal::state_conflict("too_many_keys", told)
        .hint("Revoke some, or make it with a key without pins."))
}

/// The project that the new key is pinned to: the maker's own pin at least.
async fn pin_project(
    app: &App,
    place: &Place,
    wanted: Option<&str>,
) -> Result<Option<std::sync::Arc<ProjectRecord>>, Refusal> {
    let pinned = place.scope().principal().project.clone();
    let wanted = match wanted {
        Some(text) => {
            Some(ProjectId::parse(text).ok_or_else(|| Refusal::resource_not_found("project_id"))?)
        }
        None => pinned,
    };
    let Some(id) = wanted else { return Ok(None) };
    let found = app.directory.project(&place.organization().id, &id).await?;
    let project = found.ok_or_else(|| Refusal::resource_not_found("project_id"))?;
    sees_project(place.scope(), &project.id)?;
    Ok(Some(project))
}

/// The user that the new key is pinned to: the maker's own pin at least.
async fn user_of(
    txn: &mut Txn,
    place: &Place,
    project: &ProjectRecord,
    wanted: Option<&str>,
) -> Result<Option<UserId>, Refusal> {
    let pinned = place.scope().principal().user.as_ref();
    let absent = || Refusal::resource_not_found("user_id");
    let id = match wanted {
        Some("default" | "me") => pinned.unwrap_or(&project.default_user).clone(),
        Some(text) => UserId::parse(text).ok_or_else(absent)?,
        None => match pinned {
            Some(pinned) => pinned.clone(),
            None => return Ok(None),
        },
    };
    sees_user(place.scope(), &id).map_err(|_| absent())?;
    let user =
        stored::get::<User>(txn, &User::address(&project.id, &id)).await?.ok_or_else(absent)?;
    Ok(Some(user.record.id))
}

/// The organization's keys, without their secrets. A pinned key sees those with its own pin.
///
/// # Errors
/// When the store cannot be asked.
pub async fn list_keys(
    _: &App,
    request: &HostRequest,
    txn: &mut Txn,
) -> Result<Answer<KeyPage>, Refusal> {
    let place = request.place()?;
    let reach = Reach::organization(place.organization().id.as_str());
    let mut matching = Vec::new();
    if let Some(user) = request.principal()?.user.as_ref() {
        matching.push(("user_id", user.as_str()));
    }
    if let Some(project) = request.principal()?.project.as_ref() {
        matching.push(("project_id", project.as_str()));
    }
    let (limit, offset) = (request.page.limit, request.page.offset);
    let (keys, more) = stored::list::<ApiKey>(txn, &reach, &matching, limit, offset).await?;
    let mut known = BTreeMap::new();
    let mut items = Vec::new();
    for key in &keys {
        if counts(txn, &key.record, &mut known).await? {
            items.push(Key::of(&key.record));
        }
    }
    Ok(Answer::of(&KeyPage { keys: items, page: Offset::of(&request.page, more) }))
}

/// Whether every key that this one descends from is there: one that was made while its maker was
/// revoked is dead, and goes as soon as the workers come to it. `known` remembers which keys are
/// there.
async fn counts(
    txn: &mut Txn,
    key: &ApiKey,
    known: &mut BTreeMap<KeyId, bool>,
) -> Result<bool, Refusal> {
    for ancestor in &key.ancestors {
        let there = match known.get(ancestor) {
            Some(there) => *there,
            None => {
                let found = txn
                    .get_relaxed(&ApiKey::address(&key.organization, ancestor))
                    .await
                    .map_err(stored::reading)?;
                known.insert(ancestor.clone(), found.is_some());
                found.is_some()
            }
        };
        if !there {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Revokes a key and the keys that it made, directly or through others. The invitations that any of
/// them has offered end, and the answer names them.
///
/// # Errors
/// 404 for a key that the caller does not see, 403 for one that is not theirs to revoke.
pub async fn revoke_key(
    _: &App,
    request: &HostRequest,
    txn: &mut Txn,
) -> Result<Answer<RevokedKey>, Refusal> {
    let place = request.place()?;
    let id = KeyId::parse(request.parameter("id")).ok_or_else(Refusal::not_found)?;
    let found = stored::get::<ApiKey>(txn, &ApiKey::address(&place.organization().id, &id)).await?;
    let key = found.ok_or_else(Refusal::not_found)?.record;
    // The same as the list: a pinned key sees those with its own pins.
    let own = place.scope().principal();
    let within = own.user.as_ref().is_none_or(|pinned| key.user.as_ref() == Some(pinned))
        && own.project.as_ref().is_none_or(|pinned| key.project.as_ref() == Some(pinned));
    if !within {
        return Err(Refusal::not_found());
    }
    if !may_revoke(&key, &request.identity) && !own.power().is_some_and(Role::loosens) {
        return Err(Refusal::forbidden(
            "not_your_key",
            "Only an owner or admin revokes keys that others made, or whose role is higher than one's own.",
        ));
    }
    // Everything that descends from it is dead with this commit, however much that is; the workers
    // remove the rows.
    remove(txn, &key).await?;
    lifecycle::note(txn, &Erasure::of_key(&key, request.now)).await?;
    let ended = invitations::end_of(txn, &key.organization, key.id.as_str(), None).await?;
    let note = json!({"before": Key::of(&key), "invitations": ended});
    let answer = RevokedKey { gone: Deleted::of(key.id.as_str()), invitations: ended };
    Ok(Answer::of(&answer).about("key", key.id.to_string()).with_log(log_of(&key)).noting(note))
}

/// Removes the keys that are pinned to what goes away: `("user_id", id)` or `("project_id", id)`.
/// More of them, and one that is made until the caller's commit, go with what else is erased after
/// it.
///
/// # Errors
/// When the store cannot be asked.
pub async fn remove_pinned(
    txn: &mut Txn,
    organization: &OrganizationId,
    pin: (&str, &str),
) -> Result<(), Refusal> {
    let reach = Reach::organization(organization.as_str());
    let (pinned, _) = stored::list::<ApiKey>(txn, &reach, &[pin], PINNED_ENDED_MAX, 0).await?;
    for key in &pinned {
        remove(txn, &key.record).await?;
    }
    Ok(())
}

/// Whether the key is the caller's own, and one that they could still make: who was demoted since
/// ends no key that is above them.
fn may_revoke(key: &ApiKey, identity: &Identity) -> bool {
    let is_below = identity.role().is_some_and(|role| key.role.no_higher_than(role));
    is_below && is_own(key, identity)
}

/// Whether the caller made the key, through others too, or is it.
fn is_own(key: &ApiKey, identity: &Identity) -> bool {
    match identity {
        Identity::Key(own) => key.id == own.id || key.ancestors.contains(&own.id),
        _ => key.made_by == identity.actor(),
    }
}

#[cfg(test)]
mod tests {
    use charter_kernel::id::uuid_v7;

    use super::*;

    fn id(n: u8) -> String {
        uuid_v7(Instant(1), [n; 10])
    }

    fn record(role: Role, expires_at: Option<i64>, depth: usize) -> KeyRecord {
        KeyRecord {
            id: KeyId::parse(&id(1)).unwrap(),
            organization: OrganizationId::parse(&id(2)).unwrap(),
            name: "maker".into(),
            role,
            project: None,
            user: None,
            expires_at: expires_at.map(Instant),
            ancestors: vec![KeyId::parse(&id(3)).unwrap(); depth],
            root: None,
        }
    }

    #[test]
    fn a_key_gets_no_higher_role_than_its_maker() {
        let maker = record(Role::Developer, None, 0);
        let maker = Maker { role: maker.role, key: Some(&maker) };
        assert_eq!(maker.role(None).unwrap(), Role::Developer);
        assert_eq!(maker.role(Some(Role::Viewer)).unwrap(), Role::Viewer);
        assert!(maker.role(Some(Role::Admin)).is_err());
        assert!(maker.role(Some(Role::Approver)).is_err());
        let person = Maker { role: Role::Approver, key: None };
        assert_eq!(person.role(None).unwrap(), Role::Viewer);
    }

    #[test]
    fn a_key_lives_no_longer_than_its_maker() {
        let maker = record(Role::Admin, Some(100), 0);
        let maker = Maker { role: maker.role, key: Some(&maker) };
        assert_eq!(maker.end(None).unwrap(), Some(Instant(100)));
        assert_eq!(maker.end(Some(Instant(50))).unwrap(), Some(Instant(50)));
        assert!(maker.end(Some(Instant(101))).is_err());
    }

    #[test]
    fn a_key_names_all_keys_that_it_descends_from() {
        let first = record(Role::Admin, None, 0);
        assert_eq!(
            Maker { role: first.role, key: Some(&first) }.ancestors().unwrap(),
            vec![first.id.clone()]
        );
        let deep = record(Role::Admin, None, ANCESTORS_MAX);
        assert!(Maker { role: deep.role, key: Some(&deep) }.ancestors().is_err());
        assert!(Maker { role: Role::Owner, key: None }.ancestors().unwrap().is_empty());
    }
}
