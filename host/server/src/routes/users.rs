//! Tenant users: one agent profile each. Revoking one stops its mutations with the next commit, on
//! every replica.

use std::borrow::Cow;
use std::collections::BTreeMap;

use charter_engine::job::room::{Part, ordinary_part_of};
use charter_engine::job::{JobRecord, Owner};
use charter_governance::caps;
use charter_governance::lifecycle::{self, Told};
use charter_kernel::authority::{Class, sees_user};
use charter_kernel::fault::Fault;
use charter_kernel::id::{KitId, UserId};
use charter_kernel::kit::Budget;
use charter_kernel::manifest::Paging;
use charter_kernel::refusal::{Code, Refusal};
use charter_kernel::role::Role;
use charter_kernel::scope::Behind;
use charter_kernel::time::Instant;
use charter_kernel::unit::Reach;
use charter_store::Txn;
use charter_tenancy::directory::ProjectRecord;
use charter_tenancy::place::Place;
use charter_tenancy::records::account::email_fault;
use charter_tenancy::records::kit::StoredKit;
use charter_tenancy::records::name as names;
use charter_tenancy::records::project::Project;
use charter_tenancy::records::user::{
    EXTERNAL_ID_CHARACTERS_MAX, METADATA_ENTRIES_MAX, METADATA_KEY_CHARACTERS_MAX,
    METADATA_VALUE_CHARACTERS_MAX, Revocation as Revoked, User,
};
use charter_tenancy::stored;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::organization::{change_budget, may_open_room};
use super::shape::{
    Deleted, Email, Line, Name, Offset, Optional, Reference, check, present, refuse_faults,
};
use super::{keys, projects};
use crate::app::App;
use crate::handler;
use crate::reply::AuditLog;
use crate::request::HostRequest;
use crate::route::HostRoute;
use crate::serve::{Answer, Body, Created, Params};

/// The longest reason of a revocation, in characters.
const REASON_CHARACTERS_MAX: usize = 1_000;

/// The rows of tenant users.
pub fn routes() -> Vec<HostRoute> {
    vec![
        HostRoute::post(Class::ProjectChange, "users.create", "/users", handler!(create_user))
            .refuses(&[Code::NotFound, Code::ResourceNotFound, Code::DuplicateRecord])
            .summary("Create a tenant user"),
        HostRoute::get(Class::ProjectRead, "users.list", "/users", handler!(list_users))
            .summary("List tenant users")
            .paging(Paging::Offset),
        HostRoute::get(Class::ProfileRead, "users.get", "/users/{id}", handler!(get_user))
            .summary("One tenant user"),
        HostRoute::patch(
            Class::ProjectChange,
            "users.update",
            "/users/{id}",
            handler!(update_user),
        )
        .summary("Change a tenant user"),
        HostRoute::delete(
            Class::ProjectChange,
            "users.delete",
            "/users/{id}",
            handler!(delete_user),
        )
        .summary("Delete a tenant user"),
        HostRoute::post(
            Class::ProjectChange,
            "users.revoke",
            "/users/{id}/revoke",
            handler!(revoke_user),
        )
        .summary("Revoke a tenant user: its changes are refused from the next request on"),
        HostRoute::post(
            Class::Loosening,
            "users.restore",
            "/users/{id}/restore",
            handler!(restore_user),
        )
        .summary("Lift the revocation of a tenant user"),
    ]
}

/// A user's notes of the platform's own.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
struct Metadata(BTreeMap<String, String>);

impl JsonSchema for Metadata {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "Metadata".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "object",
            "maxProperties": METADATA_ENTRIES_MAX,
            "propertyNames": {"minLength": 1, "maxLength": METADATA_KEY_CHARACTERS_MAX},
            "additionalProperties": {"type": "string", "maxLength": METADATA_VALUE_CHARACTERS_MAX},
        })
    }
}

/// The platform's own name of a user.
type ExternalId = Line<EXTERNAL_ID_CHARACTERS_MAX>;

/// The body of a new user.
#[derive(Deserialize, JsonSchema)]
pub struct NewUser {
    /// Its name, for people.
    name: Name,
    /// The address at which it is reached.
    email: Option<Email>,
    /// The platform's own name of it, unique in the project.
    external_id: Option<ExternalId>,
    /// Its kit; the project's default kit where absent.
    kit_id: Option<Reference>,
    /// Its own spend cap, beside its kit's.
    budget: Option<Budget>,
    /// Notes of the platform's own.
    metadata: Option<Metadata>,
}

/// The body of a change. Null takes a value away; metadata is replaced as a whole.
#[derive(Deserialize, JsonSchema)]
pub struct UserChange {
    /// Its name, for people.
    name: Optional<Name>,
    /// The address at which it is reached.
    #[serde(default, deserialize_with = "present")]
    email: Option<Option<Email>>,
    /// The platform's own name of it, unique in the project.
    #[serde(default, deserialize_with = "present")]
    external_id: Option<Option<ExternalId>>,
    /// Its kit; the project's default kit where null.
    #[serde(default, deserialize_with = "present")]
    kit_id: Option<Option<Reference>>,
    /// Its own spend cap, beside its kit's.
    #[serde(default, deserialize_with = "present")]
    budget: Option<Option<Budget>>,
    /// Notes of the platform's own.
    metadata: Optional<Metadata>,
}

/// The body of a revocation.
#[derive(Deserialize, JsonSchema)]
pub struct Revocation {
    /// The reason, for the audit log.
    #[schemars(length(max = REASON_CHARACTERS_MAX))]
    reason: Option<String>,
}

/// The query of the list.
#[derive(Deserialize, JsonSchema)]
pub struct UserQuery {
    /// Those in this state alone.
    status: Optional<Status>,
    /// The one with this name of the platform's own.
    external_id: Optional<ExternalId>,
}

/// Whether a user may change anything.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Status {
    /// It may.
    Active,
    /// Its changes are refused.
    Revoked,
}

impl Status {
    fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Revoked => "revoked",
        }
    }
    fn of(user: &User) -> Self {
        if user.revoked.is_some() { Self::Revoked } else { Self::Active }
    }
}

/// A tenant user: one agent profile.
#[derive(Serialize, JsonSchema)]
struct UserItem {
    /// The user's id.
    id: UserId,
    /// Its name, for people.
    name: Name,
    /// The address at which it is reached.
    email: Option<String>,
    /// The platform's own name of it.
    external_id: Option<String>,
    /// Its kit.
    kit_id: KitId,
    /// Its own spend cap, beside its kit's.
    budget: Option<Budget>,
    /// Whether it may change anything.
    status: Status,
    /// Notes of the platform's own.
    metadata: Metadata,
    /// The moment of its creation.
    created_at: Instant,
}

impl UserItem {
    /// A user that was assigned no kit has the project's default kit.
    fn of(user: &User, project: &ProjectRecord) -> Self {
        Self {
            id: user.id.clone(),
            name: user.name.as_str().into(),
            email: user.email.clone(),
            external_id: user.external_id.clone(),
            kit_id: user.kit.as_ref().unwrap_or(&project.default_kit).clone(),
            budget: user.budget,
            status: Status::of(user),
            metadata: Metadata(user.metadata.clone()),
            created_at: user.created_at,
        }
    }
}

/// One user.
#[derive(Serialize, JsonSchema)]
pub struct UserAnswer {
    user: UserItem,
}

impl UserAnswer {
    fn of(user: &User, place: &Place) -> Self {
        Self { user: UserItem::of(user, place.project()) }
    }
}

/// A page of users.
#[derive(Serialize, JsonSchema)]
pub struct UserPage {
    users: Vec<UserItem>,
    #[serde(flatten)]
    page: Offset,
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
pub async fn create_user(
    app: &App,
    request: &HostRequest,
    txn: &mut Txn,
    Body(body): Body<NewUser>,
) -> Result<Created<UserAnswer>, Refusal> {
    let place = request.place()?;
    refuse_faults(faults_of(Some(&body.name), body.email.as_deref(), body.external_id.as_deref()))?;
    require_room(app, place).await?;
    projects::still_there(txn, &place.organization().id, &place.project().id).await?;
    let kit = match &body.kit_id {
        Some(wanted) => assign_kit(txn, place, None, wanted).await?,
        None => None,
    };
    let within = kit.as_ref().unwrap_or(&place.project().default_kit);
    bounds_another(txn, place, within).await?;
    let user = User {
        id: UserId::new(request.now, stored::random()?),
        organization: place.organization().id.clone(),
        project: place.project().id.clone(),
        name: body.name.0,
        email: body.email.map(|email| email.0),
        external_id: body.external_id.map(|id| id.0),
        kit,
        budget: body.budget,
        revoked: None,
        metadata: body.metadata.unwrap_or_default().0,
        created_at: request.now,
    };
    stored::insert(txn, &user, "external_id").await?;
    signal(request, place, &user).tell(&app.governance, txn, lifecycle::Change::Created).await?;
    let answer = UserAnswer::of(&user, place);
    let note = json!({"after": answer.user});
    Ok(Created::of(&answer).about("user", user.id.to_string()).noting(note))
}

/// A capped kit bounds each user by itself. One more user of it is therefore more room, unless a cap
/// of the project or the organization, set by who may loosen, bounds all of them together: then it
/// takes that authority.
async fn bounds_another(txn: &mut Txn, place: &Place, kit: &KitId) -> Result<(), Refusal> {
    let (project, organization) = (place.project(), place.organization());
    let kit = stored::get::<StoredKit>(txn, &StoredKit::address(&project.id, kit)).await?;
    if kit.is_none_or(|kit| kit.record.budget.is_none()) {
        return Ok(());
    }
    let project = Project::address(&organization.id, &project.id);
    let project = stored::get::<Project>(txn, &project).await?.ok_or_else(Refusal::not_found)?;
    if project.record.budget.is_some() && project.record.budget_agreed {
        return Ok(());
    }
    may_open_room(txn, place).await
}

/// Refuses a change of users whose news find no room among the jobs of the organization: those who
/// govern it make it in any case.
async fn require_room(app: &App, place: &Place) -> Result<(), Refusal> {
    let by = place.scope().principal();
    let behind = by.behind();
    if behind == Behind::Organization && by.role.is_none_or(Role::loosens) {
        return Ok(());
    }
    let owner = Owner {
        organization: place.organization().id.to_string(),
        project: place.project().id.to_string(),
        user: by.user.as_ref().map(ToString::to_string),
        root: None,
    };
    // They wait among those of the users; the room is that of jobs which their maker asks for.
    let own = JobRecord {
        asked: Some(by.hand_on()),
        pinned: behind.is_pinned(),
        ..JobRecord::of_signal("news", "", owner, app.clock.now())
    };
    let max = ordinary_part_of(app.config.jobs.waiting_max, behind);
    let part = Part::of_group(max, &own.group());
    if !app.jobs_are_full(place.organization().id.as_str(), &part).await {
        return Ok(());
    }
    let told = "Too much waits in the organization for news of one more user.";
    Err(App::word_jobs_full(told))
}

/// The life-cycle signal of a user, for primitives that want to hear of it.
fn signal<'a>(request: &'a HostRequest, place: &Place, user: &'a User) -> Told<'a> {
    let behind = place.scope().principal().behind();
    Told { user, test: place.project().test, now: request.now, request: &request.id, behind }
}

/// The kit of this id, if the caller may assign it. A user moves from the default kit, or from
/// another, to one that allows more or less: nobody compares the two, so each move takes the
/// authority to loosen.
async fn assign_kit(
    txn: &mut Txn,
    place: &Place,
    before: Option<&KitId>,
    wanted: &str,
) -> Result<Option<KitId>, Refusal> {
    let absent = || Refusal::resource_not_found("kit_id");
    let id = KitId::parse(wanted).ok_or_else(absent)?;
    // Read also where it stays: the commit checks that it is still there.
    stored::get::<StoredKit>(txn, &StoredKit::address(&place.project().id, &id))
        .await?
        .ok_or_else(absent)?;
    let after = (id != place.project().default_kit).then_some(id);
    if before != after.as_ref() {
        place.may_loosen()?;
    }
    Ok(after)
}

/// The project's users, oldest first.
///
/// # Errors
/// When the store cannot be asked.
pub async fn list_users(
    _: &App,
    request: &HostRequest,
    txn: &mut Txn,
    Params(asked): Params<UserQuery>,
) -> Result<Answer<UserPage>, Refusal> {
    let place = request.place()?;
    let (limit, offset) = (request.page.limit, request.page.offset);
    let (status, external) = (asked.status.0, asked.external_id.0.as_deref());
    let (users, more) = if let Some(external) = external {
        let found =
            stored::holder::<User>(txn, &User::external_claim(&place.project().id, external))
                .await?;
        (found.into_iter().collect(), false)
    } else {
        let reach = Reach::project(place.project().id.as_str());
        let matching: Vec<(&str, &str)> =
            status.iter().map(|status| ("status", status.as_str())).collect();
        stored::list::<User>(txn, &reach, &matching, limit, offset).await?
    };
    let single = external.is_some();
    let fits = |user: &User| {
        status.is_none_or(|status| Status::of(user) == status)
            && external.is_none_or(|external| user.external_id.as_deref() == Some(external))
            && (!single || offset == 0)
    };
    let items = users
        .iter()
        .filter(|user| fits(&user.record))
        .map(|user| UserItem::of(&user.record, place.project()))
        .collect();
    Ok(Answer::of(&UserPage { users: items, page: Offset::of(&request.page, more) }))
}

/// The user of the path. `default` and `me` are the account's own profile: the pinned one, or the
/// project's default.
async fn find(request: &HostRequest, txn: &mut Txn) -> Result<User, Refusal> {
    let place = request.place()?;
    let id = match request.parameter("id") {
        "default" | "me" => {
            request.principal()?.user.as_ref().unwrap_or(&place.project().default_user).clone()
        }
        text => UserId::parse(text).ok_or_else(Refusal::not_found)?,
    };
    sees_user(request.place()?.scope(), &id)?;
    let found = stored::get::<User>(txn, &User::address(&place.project().id, &id)).await?;
    Ok(found.ok_or_else(Refusal::not_found)?.record)
}

/// One user.
///
/// # Errors
/// 404 for another project's.
pub async fn get_user(
    _: &App,
    request: &HostRequest,
    txn: &mut Txn,
) -> Result<Answer<UserAnswer>, Refusal> {
    let user = find(request, txn).await?;
    Ok(Answer::of(&UserAnswer::of(&user, request.place()?)))
}

/// Changes a user.
///
/// # Errors
/// 403 for a move to another kit, or a looser budget, without the authority to loosen, and to a
/// pinned key for what the platform knows the user by.
pub async fn update_user(
    _: &App,
    request: &HostRequest,
    txn: &mut Txn,
    Body(body): Body<UserChange>,
) -> Result<Answer<UserAnswer>, Refusal> {
    let place = request.place()?;
    refuse_faults(faults_of(
        body.name.0.as_deref(),
        body.email.as_ref().and_then(Option::as_deref),
        body.external_id.as_ref().and_then(Option::as_deref),
    ))?;
    let mut user = find(request, txn).await?;
    let before = UserItem::of(&user, place.project());
    if let Some(wanted) = body.kit_id {
        let wanted =
            wanted.map_or_else(|| place.project().default_kit.to_string(), |kit| kit.to_string());
        user.kit = assign_kit(txn, place, user.kit.as_ref(), &wanted).await?;
    }
    if let Some(wanted) = body.budget {
        let scope = ("user", Reach::user(user.id.as_str()));
        change_budget(txn, place, scope, &mut user.budget, wanted).await?;
    }
    if let Some(name) = body.name.0 {
        user.name = name.0;
    }
    if let Some(email) = body.email {
        user.email = email.map(|email| email.0);
    }
    if let Some(external_id) = body.external_id {
        user.external_id = external_id.map(|id| id.0);
    }
    if let Some(metadata) = body.metadata.0 {
        user.metadata = metadata.0;
    }
    stored::replace(txn, &user, "external_id").await?;
    let answer = UserAnswer::of(&user, place);
    let note = json!({"before": before, "after": answer.user});
    Ok(Answer::of(&answer).about("user", user.id.to_string()).noting(note))
}

/// Deletes a user and revokes the keys that are pinned to it. The user's own rows go soon after.
///
/// # Errors
/// 409 for a project's default user.
pub async fn delete_user(
    app: &App,
    request: &HostRequest,
    txn: &mut Txn,
) -> Result<Answer<Deleted>, Refusal> {
    let place = request.place()?;
    let user = find(request, txn).await?;
    if user.id == place.project().default_user {
        return Err(Refusal::state_conflict(
            "default_user",
            "The default user of a project stays.",
        )
        .hint("Revoke it instead."));
    }
    require_room(app, place).await?;
    keys::remove_pinned(txn, &place.organization().id, ("user_id", user.id.as_str())).await?;
    signal(request, place, &user).delete(&app.governance, txn).await?;
    // The row stays whole for ever: it names who is gone, and says nothing else of them.
    let note = json!({"before": {"id": user.id, "status": user.status()}});
    Ok(Answer::of(&Deleted::of(user.id.as_str())).about("user", user.id.to_string()).noting(note))
}

/// Revokes a user: its mutations are refused from the next commit on. Its reads go on; rotate its
/// keys for more.
///
/// # Errors
/// 404 for another project's.
pub async fn revoke_user(
    app: &App,
    request: &HostRequest,
    txn: &mut Txn,
    Body(Revocation { reason }): Body<Revocation>,
) -> Result<Answer<UserAnswer>, Refusal> {
    let mut user = find(request, txn).await?;
    let note = json!({"before": {"status": user.status()}, "after": {"status": "revoked"}, "reason": reason});
    if user.revoked.is_none() {
        user.revoked = Some(Revoked { at: request.now, reason });
        stored::replace(txn, &user, "id").await?;
        signal(request, request.place()?, &user)
            .tell(&app.governance, txn, lifecycle::Change::Revoked)
            .await?;
    }
    let answer = UserAnswer::of(&user, request.place()?);
    Ok(Answer::of(&answer).about("user", user.id.to_string()).noting(note))
}

/// Lets a revoked user act again, and one whose caps were frozen because more was captured than was
/// held: whoever restores it has looked.
///
/// # Errors
/// 403 without the authority to loosen.
pub async fn restore_user(
    app: &App,
    request: &HostRequest,
    txn: &mut Txn,
) -> Result<Answer<UserAnswer>, Refusal> {
    let place = request.place()?;
    let mut user = find(request, txn).await?;
    place.may_loosen()?;
    let note = json!({"before": {"status": user.status()}, "after": {"status": "active"}});
    caps::thaw(txn, &Reach::user(user.id.as_str())).await?;
    if user.revoked.take().is_some() {
        stored::replace(txn, &user, "id").await?;
        signal(request, place, &user)
            .tell(&app.governance, txn, lifecycle::Change::Restored)
            .await?;
    }
    let answer = UserAnswer::of(&user, place);
    Ok(Answer::of(&answer)
        .about("user", user.id.to_string())
        .with_log(AuditLog::Project(user.project.clone()))
        .noting(note))
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
        let change: UserChange = serde_json::from_value(json!({"email": null})).unwrap();
        assert_eq!(change.email, Some(None));
        assert_eq!(change.external_id, None);
    }
}
