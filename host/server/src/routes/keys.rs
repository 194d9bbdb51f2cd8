//! API keys. A key never has more power than its maker: no higher role, no wider pin, no longer
//! life.

use std::collections::BTreeMap;

use charter_kernel::id::{KeyId, OrganizationId, ProjectId, UserId};
use charter_kernel::refusal::Refusal;
use charter_kernel::role::Role;
use charter_kernel::time::Instant;
use charter_kernel::unit::Reach;
use charter_store::Txn;
use charter_tenancy::secret::Plain;
use serde::Deserialize;
use serde_json::{Value, json};

use super::shape::{self, check, checked, id, instant, name, nullable, object, reference};
use super::{invitations, projects, stored};
use crate::app::App;
use crate::directory::{KeyRecord, ProjectRecord};
use crate::lifecycle;
use crate::records::erasure::Erasure;
use crate::records::key::{ANCESTOR, ANCESTORS_MAX, ApiKey};
use crate::records::name as names;
use crate::records::project::Mode;
use crate::records::user::User;
use crate::reply::Reply;
use crate::request::{HostRequest, Identity, Place};
use charter_kernel::authority::{sees_project, sees_user};

/// Roles that a key can have. Deciding and owning take a person.
const ROLES: [Role; 4] = [Role::Viewer, Role::Developer, Role::Approver, Role::Admin];
/// How many keys one unit removes; a key with more descendants is removed last, after units for
/// them.
const DESCENDANTS_A_UNIT: u32 = 400;
/// How many such units one revocation commits. What is left over is dead all the same, not listed,
/// and left to the workers.
const UNITS_MAX: usize = 100;

#[derive(Deserialize)]
struct Create {
    name: String,
    role: Option<Role>,
    project_id: Option<String>,
    user_id: Option<String>,
    expires_at: Option<String>,
}

/// The body of a new key.
pub fn create_body() -> Value {
    object(&[
        ("name", name()),
        ("role?", json!({"enum": ROLES.map(Role::as_str)})),
        ("project_id?", nullable(&reference())),
        ("user_id?", nullable(&reference())),
        ("expires_at?", nullable(&instant())),
    ])
}

/// Its answer: the only one that shows the key.
pub fn create_answer() -> Value {
    object(&[
        ("id", id()),
        ("name", name()),
        ("prefix", json!({"type": "string"})),
        ("key", json!({"type": "string"})),
        ("active_project_id", nullable(&id())),
        ("role", json!({"type": "string"})),
        ("user_id", nullable(&id())),
        ("expires_at", nullable(&instant())),
        ("created_at", instant()),
    ])
}

fn item() -> Value {
    object(&[
        ("id", id()),
        ("name", name()),
        ("prefix", json!({"type": "string"})),
        ("active_project_id", nullable(&id())),
        ("role", json!({"type": "string"})),
        ("user_id", nullable(&id())),
        (
            "made_by",
            object(&[("type", json!({"type": "string"})), ("id", json!({"type": "string"}))]),
        ),
        ("expires_at", nullable(&instant())),
        ("created_at", instant()),
    ])
}

/// The answer of the list.
pub fn list_answer() -> Value {
    shape::page("keys", &item())
}

/// Makes a key.
///
/// # Errors
/// 403 when it would have more power than its maker.
pub async fn create(app: &App, request: &HostRequest, txn: &mut Txn) -> Result<Reply, Refusal> {
    let place = request.place()?;
    let body: Create = request.body_as()?;
    let mut faults = Vec::new();
    check(&mut faults, "name", names::fault(&body.name));
    let wanted_end = body.expires_at.as_deref().map(Instant::parse);
    let end_fault = match wanted_end {
        Some(None) => Some("must be a moment until the end of the year 9999"),
        Some(Some(end)) if end <= request.now => Some("must be in the future"),
        _ => None,
    };
    check(&mut faults, "expires_at", end_fault);
    checked(faults)?;
    let maker = Maker::of(&request.identity)?;
    let role = maker.role(body.role)?;
    let expires_at = maker.end(wanted_end.flatten())?;
    let ancestors = maker.ancestors()?;
    let project = pinned_to(app, place, body.project_id.as_deref()).await?;
    let within = project.as_deref().unwrap_or(&place.project);
    let user = user_of(txn, place, within, body.user_id.as_deref()).await?;
    // A key that is pinned to a user acts in that user's project only.
    let project = if user.is_some() { Some(within.clone()) } else { project.as_deref().cloned() };
    if let Some(project) = &project {
        projects::still_there(txn, &place.organization.id, &project.id).await?;
    }
    let mode =
        if project.as_ref().is_some_and(|project| project.test) { Mode::Test } else { Mode::Live };
    let secret = Plain::generate(mode.key_prefix()).map_err(stored::no_randomness)?;
    let key = ApiKey {
        id: KeyId::new(request.now, stored::random()?),
        organization: place.organization.id.clone(),
        name: body.name,
        prefix: secret.prefix(),
        digest: secret.digest().stored(),
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
    let mut answer = view(&key);
    answer["key"] = json!(secret.reveal());
    if let Some(members) = answer.as_object_mut() {
        members.remove("made_by");
    }
    Ok(Reply::created(&answer)
        .about("key", key.id.to_string())
        .noting(json!({"after": view(&key)})))
}

/// Inserts a key and makes it findable by its secret.
///
/// # Errors
/// When the store cannot be asked.
pub async fn insert(txn: &mut Txn, key: &ApiKey) -> Result<(), Refusal> {
    use crate::records::Record as _;
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
    use crate::records::Record as _;
    txn.unclaim(&ApiKey::claim(&key.digest), &key.key());
    stored::remove(txn, key).await
}

/// What bounds a new key: the key or the person that makes it.
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

/// The project that the new key is pinned to: the maker's own pin at least.
async fn pinned_to(
    app: &App,
    place: &Place,
    wanted: Option<&str>,
) -> Result<Option<std::sync::Arc<ProjectRecord>>, Refusal> {
    let pinned = place.scope.principal().project.clone();
    let wanted = match wanted {
        Some(text) => {
            Some(ProjectId::parse(text).ok_or_else(|| Refusal::resource_not_found("project_id"))?)
        }
        None => pinned,
    };
    let Some(id) = wanted else { return Ok(None) };
    let found = app.directory.project(&place.organization.id, &id).await?;
    let project = found.ok_or_else(|| Refusal::resource_not_found("project_id"))?;
    sees_project(&place.scope, &project.id)?;
    Ok(Some(project))
}

/// The user that the new key is pinned to: the maker's own pin at least.
async fn user_of(
    txn: &mut Txn,
    place: &Place,
    project: &ProjectRecord,
    wanted: Option<&str>,
) -> Result<Option<UserId>, Refusal> {
    let pinned = place.scope.principal().user.as_ref();
    let absent = || Refusal::resource_not_found("user_id");
    let id = match wanted {
        Some("default" | "me") => pinned.unwrap_or(&project.default_user).clone(),
        Some(text) => UserId::parse(text).ok_or_else(absent)?,
        None => match pinned {
            Some(pinned) => pinned.clone(),
            None => return Ok(None),
        },
    };
    sees_user(&place.scope, &id).map_err(|_| absent())?;
    let user =
        stored::get::<User>(txn, &User::address(&project.id, &id)).await?.ok_or_else(absent)?;
    Ok(Some(user.record.id))
}

fn view(key: &ApiKey) -> Value {
    json!({
        "id": key.id,
        "name": key.name,
        "prefix": key.prefix,
        "active_project_id": key.project,
        "role": key.role,
        "user_id": key.user,
        "made_by": {"type": key.made_by.0, "id": key.made_by.1},
        "expires_at": key.expires_at,
        "created_at": key.created_at,
    })
}

/// The organization's keys, without their secrets. A pinned key sees those with its own pin.
///
/// # Errors
/// When the store cannot be asked.
pub async fn list(_: &App, request: &HostRequest, txn: &mut Txn) -> Result<Reply, Refusal> {
    let place = request.place()?;
    let reach = Reach::organization(place.organization.id.as_str());
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
            items.push(view(&key.record));
        }
    }
    Ok(Reply::ok(&shape::listed("keys", items, (limit, offset), more)))
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

/// What a revocation answers.
pub fn deleted() -> Value {
    object(&[
        ("id", id()),
        ("deleted", json!({"const": true})),
        ("invitations", json!({"type": "array", "items": id()})),
    ])
}

/// Revokes a key and the keys that it made, directly or through others. What any of them has
/// offered ends, and the answer names it.
///
/// # Errors
/// 404 for a key that the caller does not see, 403 for one that is not theirs to revoke.
pub async fn delete(_: &App, request: &HostRequest, txn: &mut Txn) -> Result<Reply, Refusal> {
    let place = request.place()?;
    let id = KeyId::parse(request.parameter("id")).ok_or_else(Refusal::not_found)?;
    let found = stored::get::<ApiKey>(txn, &ApiKey::address(&place.organization.id, &id)).await?;
    let key = found.ok_or_else(Refusal::not_found)?.record;
    // The same as the list: a pinned key sees those with its own pins.
    let own = place.scope.principal();
    let within = own.user.as_ref().is_none_or(|pinned| key.user.as_ref() == Some(pinned))
        && own.project.as_ref().is_none_or(|pinned| key.project.as_ref() == Some(pinned));
    if !within {
        return Err(Refusal::not_found());
    }
    if !is_own(&key, &request.identity) && !request.identity.role().is_some_and(Role::loosens) {
        return Err(Refusal::forbidden(
            "not_your_key",
            "Only an owner or admin revokes keys that others made.",
        ));
    }
    let revoked = remove_with_descendants(txn, &key).await?;
    // A key that it makes until this is committed is not among them.
    lifecycle::note(txn, &Erasure::of_key(&key, request.now)).await?;
    let ended = invitations::end_of(txn, &key.organization, key.id.as_str(), None).await?;
    let note = json!({"before": view(&key), "revoked": revoked, "invitations": ended});
    let answer = json!({"id": key.id, "deleted": true, "invitations": ended});
    Ok(Reply::ok(&answer).about("key", key.id.to_string()).noting(note))
}

/// Removes a key and the keys that it made; answers how many went. The key itself goes in the
/// caller's commit, and with it everything that descends from it stops to count at once.
///
/// # Errors
/// When the store cannot be asked.
pub async fn remove_with_descendants(txn: &mut Txn, key: &ApiKey) -> Result<usize, Refusal> {
    let reach = Reach::organization(key.organization.as_str());
    let mut gone = 1;
    for _ in 0..UNITS_MAX {
        let (made, more) = stored::list::<ApiKey>(
            txn,
            &reach,
            &[(ANCESTOR, key.id.as_str())],
            DESCENDANTS_A_UNIT,
            0,
        )
        .await?;
        gone += made.len();
        for descendant in &made {
            remove(txn, &descendant.record).await?;
        }
        if !more {
            break;
        }
        txn.checkpoint().await.map_err(stored::committing)?;
    }
    remove(txn, key).await?;
    Ok(gone)
}

/// Removes the keys that are pinned to what goes away: `("user_id", id)` or `("project_id", id)`.
/// One that is made until the caller's commit goes with what else is erased after it.
///
/// # Errors
/// When the store cannot be asked.
pub async fn remove_pinned(
    txn: &mut Txn,
    organization: &OrganizationId,
    pin: (&str, &str),
) -> Result<(), Refusal> {
    let reach = Reach::organization(organization.as_str());
    for _ in 0..UNITS_MAX {
        let (pinned, more) =
            stored::list::<ApiKey>(txn, &reach, &[pin], DESCENDANTS_A_UNIT, 0).await?;
        for key in &pinned {
            remove(txn, &key.record).await?;
        }
        if !more {
            break;
        }
        txn.checkpoint().await.map_err(stored::committing)?;
    }
    Ok(())
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
