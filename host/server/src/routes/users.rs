//! Tenant users: one agent profile each. Revoking one stops its mutations with the next commit, on
//! every replica.

use std::collections::BTreeMap;

use charter_kernel::authority::sees_user;
use charter_kernel::fault::Fault;
use charter_kernel::id::{KitId, UserId};
use charter_kernel::kit::Budget;
use charter_kernel::refusal::Refusal;
use charter_kernel::unit::{Guard, Reach};
use charter_store::Txn;
use serde::Deserialize;
use serde_json::{Value, json};

use super::shape::{
    self, budget, check, checked, id, instant, name, nullable, object, present, reference,
};
use super::{keys, projects, stored};
use crate::app::App;
use crate::directory::ProjectRecord;
use crate::governance::caps;
use crate::lifecycle::{self, Told};
use crate::records::Record as _;
use crate::records::account::email_fault;
use crate::records::kit::StoredKit;
use crate::records::name as names;
use crate::records::organization::Organization;
use crate::records::project::Project;
use crate::records::user::{
    EXTERNAL_ID_CHARACTERS_MAX, METADATA_ENTRIES_MAX, METADATA_KEY_CHARACTERS_MAX,
    METADATA_VALUE_CHARACTERS_MAX, Revocation, User,
};
use crate::reply::Reply;
use crate::request::{HostRequest, Place};

/// The longest reason of a revocation, in characters.
const REASON_CHARACTERS_MAX: usize = 1_000;

fn status() -> Value {
    json!({"enum": ["active", "revoked"]})
}

fn external_id() -> Value {
    shape::visible(EXTERNAL_ID_CHARACTERS_MAX)
}

fn metadata() -> Value {
    json!({
        "type": "object",
        "maxProperties": METADATA_ENTRIES_MAX,
        "propertyNames": {"minLength": 1, "maxLength": METADATA_KEY_CHARACTERS_MAX},
        "additionalProperties": {"type": "string", "maxLength": METADATA_VALUE_CHARACTERS_MAX},
    })
}

fn item() -> Value {
    object(&[
        ("id", id()),
        ("name", name()),
        ("email", nullable(&json!({"type": "string"}))),
        ("external_id", nullable(&json!({"type": "string"}))),
        ("kit_id", id()),
        ("budget", nullable(&budget())),
        ("status", status()),
        ("metadata", metadata()),
        ("created_at", instant()),
    ])
}

/// The answer of one user's routes.
pub fn answer() -> Value {
    object(&[("user", item())])
}

/// The answer of the list.
pub fn list_answer() -> Value {
    shape::page("users", &item())
}

/// The query of the list.
pub fn list_query() -> Value {
    object(&[("status?", status()), ("external_id?", external_id())])
}

/// What the wire shows of a user. One that was assigned no kit has the project's default kit.
fn view(user: &User, project: &ProjectRecord) -> Value {
    json!({
        "id": user.id,
        "name": user.name,
        "email": user.email,
        "external_id": user.external_id,
        "kit_id": user.kit.as_ref().unwrap_or(&project.default_kit),
        "budget": user.budget,
        "status": user.status(),
        "metadata": user.metadata,
        "created_at": user.created_at,
    })
}

fn shown(user: &User, place: &Place) -> Value {
    json!({"user": view(user, &place.project)})
}

#[derive(Deserialize)]
struct Create {
    name: String,
    email: Option<String>,
    external_id: Option<String>,
    kit_id: Option<String>,
    budget: Option<Budget>,
    #[serde(default)]
    metadata: Option<BTreeMap<String, String>>,
}

/// The body of a new user.
pub fn create_body() -> Value {
    object(&[
        ("name", name()),
        ("email?", nullable(&shape::email())),
        ("external_id?", nullable(&external_id())),
        ("kit_id?", nullable(&reference())),
        ("budget?", nullable(&budget())),
        ("metadata?", nullable(&metadata())),
    ])
}

fn faults_of(name: Option<&str>, email: Option<&str>, external_id: Option<&str>) -> Vec<Fault> {
    let mut faults = Vec::new();
    check(&mut faults, "name", name.and_then(names::fault));
    check(&mut faults, "email", email.and_then(email_fault));
    let blank = external_id.is_some_and(|text| {
        text.trim().is_empty() || text.chars().any(char::is_control) || text.len() > 500
    });
    check(&mut faults, "external_id", blank.then_some("must be visible text of at most 500 bytes"));
    faults
}

/// Makes a user.
///
/// # Errors
/// 404 for a kit that does not exist, 409 for an external id that is taken, 403 where one more user
/// is more room than the caller may give.
pub async fn create(app: &App, request: &HostRequest, txn: &mut Txn) -> Result<Reply, Refusal> {
    let place = request.place()?;
    let body: Create = request.body_as()?;
    checked(faults_of(Some(&body.name), body.email.as_deref(), body.external_id.as_deref()))?;
    projects::still_there(txn, &place.organization.id, &place.project.id).await?;
    let kit = match &body.kit_id {
        Some(wanted) => assigned(txn, place, None, wanted).await?,
        None => None,
    };
    let within = kit.as_ref().unwrap_or(&place.project.default_kit);
    bounds_another(txn, place, within).await?;
    let user = User {
        id: UserId::new(request.now, stored::random()?),
        organization: place.organization.id.clone(),
        project: place.project.id.clone(),
        name: body.name,
        email: body.email,
        external_id: body.external_id,
        kit,
        budget: body.budget,
        revoked: None,
        metadata: body.metadata.unwrap_or_default(),
        created_at: request.now,
    };
    stored::insert(txn, &user, "external_id").await?;
    told(request, place, &user).tell(&app.governance, txn, lifecycle::Change::Created).await?;
    let note = json!({"after": view(&user, &place.project)});
    Ok(Reply::created(&shown(&user, place)).about("user", user.id.to_string()).noting(note))
}

/// A capped kit bounds each user by itself. One more user of it is therefore more room, unless a cap
/// of the project or the organization bounds all of them together: then it takes the authority to
/// loosen.
async fn bounds_another(txn: &mut Txn, place: &Place, kit: &KitId) -> Result<(), Refusal> {
    let (project, organization) = (&place.project, &place.organization);
    let kit = stored::get::<StoredKit>(txn, &StoredKit::address(&project.id, kit)).await?;
    if kit.is_none_or(|kit| kit.record.budget.is_none()) {
        return Ok(());
    }
    let project = Project::address(&organization.id, &project.id);
    let project = stored::get::<Project>(txn, &project).await?.ok_or_else(Refusal::not_found)?;
    if project.record.budget.is_some() {
        return Ok(());
    }
    let key = Organization::address(&organization.id);
    let row = txn.get_relaxed(&key).await.map_err(stored::reading)?;
    let row = row.ok_or_else(Refusal::not_found)?;
    // Many make users at once: nobody waits for the organization's row, and it is as it was read.
    txn.guard(Guard::Unchanged { key, version: row.version });
    match Organization::read(&row).map_err(stored::unreadable)?.budget {
        Some(_) => Ok(()),
        None => place.may_loosen(),
    }
}

fn told<'a>(request: &'a HostRequest, place: &Place, user: &'a User) -> Told<'a> {
    Told { user, test: place.project.test, now: request.now, request: &request.id }
}

/// The kit of this id, if the caller may assign it. A user moves from the default kit, or from
/// another, to one that allows more or less: nobody compares the two, so each move takes the
/// authority to loosen.
async fn assigned(
    txn: &mut Txn,
    place: &Place,
    before: Option<&KitId>,
    wanted: &str,
) -> Result<Option<KitId>, Refusal> {
    let absent = || Refusal::resource_not_found("kit_id");
    let id = KitId::parse(wanted).ok_or_else(absent)?;
    // Read also where it stays: the commit checks that it is still there.
    stored::get::<StoredKit>(txn, &StoredKit::address(&place.project.id, &id))
        .await?
        .ok_or_else(absent)?;
    let after = (id != place.project.default_kit).then_some(id);
    if before != after.as_ref() {
        place.may_loosen()?;
    }
    Ok(after)
}

/// The project's users, oldest first.
///
/// # Errors
/// When the store cannot be asked.
pub async fn list(_: &App, request: &HostRequest, txn: &mut Txn) -> Result<Reply, Refusal> {
    let place = request.place()?;
    let (limit, offset) = (request.page.limit, request.page.offset);
    let (status, external) = (request.query_text("status"), request.query_text("external_id"));
    let (users, more) = if let Some(external) = external {
        let found =
            stored::holder::<User>(txn, &User::external_claim(&place.project.id, external)).await?;
        (found.into_iter().collect(), false)
    } else {
        let reach = Reach::project(place.project.id.as_str());
        let matching: Vec<(&str, &str)> = status.iter().map(|status| ("status", *status)).collect();
        stored::list::<User>(txn, &reach, &matching, limit, offset).await?
    };
    let single = external.is_some();
    let fits = |user: &User| {
        status.is_none_or(|status| user.status() == status)
            && external.is_none_or(|external| user.external_id.as_deref() == Some(external))
            && (!single || offset == 0)
    };
    let items = users
        .iter()
        .filter(|user| fits(&user.record))
        .map(|user| view(&user.record, &place.project))
        .collect();
    Ok(Reply::ok(&shape::listed("users", items, (limit, offset), more)))
}

/// The user of the path. `default` and `me` are the account's own profile: the pinned one, or the
/// project's default.
async fn named(request: &HostRequest, txn: &mut Txn) -> Result<User, Refusal> {
    let place = request.place()?;
    let id = match request.parameter("id") {
        "default" | "me" => {
            request.principal()?.user.as_ref().unwrap_or(&place.project.default_user).clone()
        }
        text => UserId::parse(text).ok_or_else(Refusal::not_found)?,
    };
    sees_user(&request.place()?.scope, &id)?;
    let found = stored::get::<User>(txn, &User::address(&place.project.id, &id)).await?;
    Ok(found.ok_or_else(Refusal::not_found)?.record)
}

/// One user.
///
/// # Errors
/// 404 for another project's.
pub async fn get(_: &App, request: &HostRequest, txn: &mut Txn) -> Result<Reply, Refusal> {
    let user = named(request, txn).await?;
    Ok(Reply::ok(&shown(&user, request.place()?)))
}

#[derive(Deserialize)]
struct Change {
    name: Option<String>,
    #[serde(default, deserialize_with = "present")]
    email: Option<Option<String>>,
    #[serde(default, deserialize_with = "present")]
    external_id: Option<Option<String>>,
    #[serde(default, deserialize_with = "present")]
    kit_id: Option<Option<String>>,
    #[serde(default, deserialize_with = "present")]
    budget: Option<Option<Budget>>,
    metadata: Option<BTreeMap<String, String>>,
}

/// The body of a change. Null takes a value away; metadata is replaced as a whole.
pub fn change_body() -> Value {
    object(&[
        ("name?", name()),
        ("email?", nullable(&shape::email())),
        ("external_id?", nullable(&external_id())),
        ("kit_id?", nullable(&reference())),
        ("budget?", nullable(&budget())),
        ("metadata?", metadata()),
    ])
}

/// Changes a user.
///
/// # Errors
/// 403 for a move to another kit, or a looser budget, without the authority to loosen, and to a
/// pinned key for what the platform knows the user by.
pub async fn patch(_: &App, request: &HostRequest, txn: &mut Txn) -> Result<Reply, Refusal> {
    let place = request.place()?;
    let body: Change = request.body_as()?;
    let text = |member: &Option<Option<String>>| member.clone().flatten();
    checked(faults_of(
        body.name.as_deref(),
        text(&body.email).as_deref(),
        text(&body.external_id).as_deref(),
    ))?;
    let mut user = named(request, txn).await?;
    let before = view(&user, &place.project);
    if let Some(wanted) = body.kit_id {
        let wanted = wanted.unwrap_or_else(|| place.project.default_kit.to_string());
        user.kit = assigned(txn, place, user.kit.as_ref(), &wanted).await?;
    }
    if let Some(wanted) = body.budget {
        if Budget::loosens(user.budget, wanted) {
            place.may_loosen()?;
        }
        if user.budget.is_none() && wanted.is_some() {
            caps::begin(txn, "user", &Reach::user(user.id.as_str())).await?;
        }
        user.budget = wanted;
    }
    if let Some(name) = body.name {
        user.name = name;
    }
    if let Some(email) = body.email {
        user.email = email;
    }
    if let Some(external_id) = body.external_id {
        user.external_id = external_id;
    }
    if let Some(metadata) = body.metadata {
        user.metadata = metadata;
    }
    stored::replace(txn, &user, "external_id").await?;
    let note = json!({"before": before, "after": view(&user, &place.project)});
    Ok(Reply::ok(&shown(&user, place)).about("user", user.id.to_string()).noting(note))
}

/// Deletes a user and revokes the keys that are pinned to it. What it owns goes soon after.
///
/// # Errors
/// 409 for a project's default user.
pub async fn delete(app: &App, request: &HostRequest, txn: &mut Txn) -> Result<Reply, Refusal> {
    let place = request.place()?;
    let user = named(request, txn).await?;
    if user.id == place.project.default_user {
        return Err(Refusal::state_conflict(
            "default_user",
            "The default user of a project stays.",
        )
        .hint("Revoke it instead."));
    }
    keys::remove_pinned(txn, &place.organization.id, ("user_id", user.id.as_str())).await?;
    told(request, place, &user).delete(&app.governance, txn).await?;
    let note = json!({"before": view(&user, &place.project)});
    Ok(Reply::ok(&json!({"id": user.id, "deleted": true}))
        .about("user", user.id.to_string())
        .noting(note))
}

#[derive(Deserialize)]
struct Revoke {
    reason: Option<String>,
}

/// The body of a revocation.
pub fn revoke_body() -> Value {
    object(&[("reason?", nullable(&json!({"type": "string", "maxLength": REASON_CHARACTERS_MAX})))])
}

/// Revokes a user: its mutations are refused from the next commit on. Its reads go on; rotate its
/// keys for more.
///
/// # Errors
/// 404 for another project's.
pub async fn revoke(app: &App, request: &HostRequest, txn: &mut Txn) -> Result<Reply, Refusal> {
    let body: Option<Revoke> = if request.body.is_null() { None } else { Some(request.body_as()?) };
    let mut user = named(request, txn).await?;
    let reason = body.and_then(|body| body.reason);
    let note = json!({"before": {"status": user.status()}, "after": {"status": "revoked"}, "reason": reason});
    if user.revoked.is_none() {
        user.revoked = Some(Revocation { at: request.now, reason });
        stored::replace(txn, &user, "id").await?;
        told(request, request.place()?, &user)
            .tell(&app.governance, txn, lifecycle::Change::Revoked)
            .await?;
    }
    Ok(Reply::ok(&shown(&user, request.place()?)).about("user", user.id.to_string()).noting(note))
}

/// Lets a revoked user act again, and one whose caps were frozen because more was captured than was
/// held: whoever restores it has looked.
///
/// # Errors
/// 403 without the authority to loosen.
pub async fn restore(app: &App, request: &HostRequest, txn: &mut Txn) -> Result<Reply, Refusal> {
    let place = request.place()?;
    let mut user = named(request, txn).await?;
    place.may_loosen()?;
    let note = json!({"before": {"status": user.status()}, "after": {"status": "active"}});
    caps::thaw(txn, &Reach::user(user.id.as_str())).await?;
    if user.revoked.take().is_some() {
        stored::replace(txn, &user, "id").await?;
        told(request, place, &user).tell(&app.governance, txn, lifecycle::Change::Restored).await?;
    }
    Ok(Reply::ok(&shown(&user, place)).about("user", user.id.to_string()).noting(note))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_wrong_field_is_named() {
        let named =
            |faults: Vec<Fault>| faults.into_iter().map(|fault| fault.path).collect::<Vec<_>>();
        assert_eq!(
            named(faults_of(Some(" "), Some("nobody"), Some("\n"))),
            ["name", "email", "external_id"]
        );
        assert!(faults_of(Some("Ann"), Some("ann@example.com"), Some("cus_1")).is_empty());
        assert!(faults_of(None, None, None).is_empty());
    }

    #[test]
    fn null_and_absence_are_two_things_in_a_change() {
        let change: Change = serde_json::from_value(json!({"email": null})).unwrap();
        assert_eq!(change.email, Some(None));
        assert_eq!(change.external_id, None);
    }
}
