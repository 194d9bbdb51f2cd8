//! Account kits: which primitives a project's users have, at which version, under which budget and
//! limits.
//!
//! Knows primitives only as the registry names them.

use std::collections::BTreeMap;

use charter_kernel::authority::Class;
use charter_kernel::fault::Fault;
use charter_kernel::id::KitId;
use charter_kernel::kit::{Budget, Connections, Entry, Limits};
use charter_kernel::manifest::{Gate, Paging};
use charter_kernel::refusal::Refusal;
use charter_kernel::time::Instant;
use charter_kernel::unit::Reach;
use charter_store::Txn;
use charter_tenancy::records::kit::{KITS_MAX, PRIMITIVES_MAX, StoredKit, loosens};
use charter_tenancy::records::name as names;
use charter_tenancy::records::user::User;
use charter_tenancy::stored::{self, Versioned};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::shape::{Deleted, Name, Offset, Optional, check, present, refuse_faults};
use super::{pins, projects};
use crate::app::App;
use crate::handler;
use crate::request::HostRequest;
use crate::route::HostRoute;
use crate::serve::{Answer, Body, Created};

/// A primitive that is installed, as a kit can name it.
#[derive(Clone, Debug)]
pub struct Installed {
    /// Its name.
    pub name: String,
    /// The gate for kits that do not list it.
    pub gate: Gate,
    /// The versions that a kit can pin.
    pub versions: Vec<String>,
    /// The settings that a kit can set.
    pub settings: Vec<String>,
}

/// The rows of account kits.
pub fn routes() -> Vec<HostRoute> {
    vec![
        HostRoute::post(Class::ProjectChange, "kits.create", "/kits", handler!(create_kit))
            .summary("Create an account kit"),
        HostRoute::get(Class::ProjectRead, "kits.list", "/kits", handler!(list_kits))
            .summary("List account kits")
            .paging(Paging::Offset),
        HostRoute::get(Class::ProjectRead, "kits.get", "/kits/{id}", handler!(get_kit))
            .summary("One account kit"),
        HostRoute::patch(Class::ProjectChange, "kits.update", "/kits/{id}", handler!(update_kit))
            .summary("Change an account kit for all of its users"),
        HostRoute::delete(Class::ProjectChange, "kits.delete", "/kits/{id}", handler!(delete_kit))
            .summary("Delete an account kit that nobody is assigned to"),
    ]
}

/// The body of a new kit.
#[derive(Deserialize, JsonSchema)]
pub struct NewKit {
    /// Its name, for people; unique in the project.
    name: Name,
    /// By primitive: whether its users may call it, at which version, under which settings.
    #[serde(default)]
    #[schemars(extend("maxProperties" = PRIMITIVES_MAX))]
    primitives: BTreeMap<String, Entry>,
    /// The spend cap of each of its users.
    budget: Option<Budget>,
    /// The third-party connections that its users may use.
    #[serde(default)]
    connections: Connections,
    /// How much its users may call.
    #[serde(default)]
    limits: Limits,
}

/// The body of a change. Primitives merge by name, null takes one out; everything else is replaced.
#[derive(Deserialize, JsonSchema)]
pub struct KitChange {
    /// Its name, for people; unique in the project.
    name: Optional<Name>,
    /// By primitive: the entry that replaces the one before, or null.
    #[schemars(extend("maxProperties" = PRIMITIVES_MAX))]
    primitives: Optional<BTreeMap<String, Option<Entry>>>,
    /// The spend cap of each of its users; null for none.
    #[serde(default, deserialize_with = "present")]
    budget: Option<Option<Budget>>,
    /// The third-party connections that its users may use.
    connections: Optional<Connections>,
    /// How much its users may call.
    limits: Optional<Limits>,
    /// The version that the change is of: another one is refused.
    #[schemars(range(min = 1))]
    expected_version: Optional<u64>,
}

/// An account kit.
#[derive(Serialize, JsonSchema)]
struct Kit {
    /// The kit's id.
    id: KitId,
    /// Its name, for people.
    name: Name,
    /// Whether it is the project's default kit.
    default: bool,
    /// By primitive. A default kit names every installed one.
    #[schemars(extend("maxProperties" = PRIMITIVES_MAX))]
    primitives: BTreeMap<String, Entry>,
    /// The spend cap of each of its users.
    budget: Option<Budget>,
    /// The third-party connections that its users may use.
    connections: Connections,
    /// How much its users may call.
    limits: Limits,
    /// Its version, for `expected_version`.
    version: u64,
    /// The moment of its creation.
    created_at: Instant,
}

impl Kit {
    /// A default kit names every installed primitive: one that it says nothing about is as the
    /// primitive's manifest has it.
    fn of(kit: &StoredKit, version: u64, installed: &[Installed]) -> Self {
        let mut primitives = kit.primitives.clone();
        if kit.default {
            for primitive in installed {
                primitives
                    .entry(primitive.name.clone())
                    .or_insert_with(|| Entry::by_default(primitive.gate));
            }
        }
        Self {
            id: kit.id.clone(),
            name: kit.name.as_str().into(),
            default: kit.default,
            primitives,
            budget: kit.budget,
            connections: kit.connections.clone(),
            limits: kit.limits,
            version,
            created_at: kit.created_at,
        }
    }
}

/// One kit.
#[derive(Serialize, JsonSchema)]
pub struct KitAnswer {
    kit: Kit,
}

/// A page of kits.
#[derive(Serialize, JsonSchema)]
pub struct KitPage {
    kits: Vec<Kit>,
    #[serde(flatten)]
    page: Offset,
}

/// The primitives that are installed now.
fn list_installed(app: &App) -> Vec<Installed> {
    let (live, inventory) = (app.registry.current(), app.registry.inventory());
    // Not those in this replica's memory: what is pinned is loaded when it is asked for.
    let pinnable = |name: &str| -> Vec<String> {
        let versions = inventory.live().filter(|version| version.name == name);
        versions.map(|version| version.version.clone()).collect()
    };
    let known = live.primitives().map(|primitive| {
        let manifest = &primitive.active().manifest;
        let by_kit = manifest.settings.iter().filter(|setting| setting.by == "kit");
        Installed {
            name: primitive.name.clone(),
            gate: manifest.gate,
            versions: pinnable(&primitive.name),
            settings: by_kit.map(|setting| setting.key.clone()).collect(),
        }
    });
    known.collect()
}

/// The faults of a body's names of primitives: a kit names only installed ones, so that a typing
/// error is found when it is made.
fn primitive_faults(named: &BTreeMap<String, Entry>, installed: &[Installed]) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (name, entry) in named {
        let path = format!("primitives.{name}");
        let Some(primitive) = installed.iter().find(|primitive| primitive.name == *name) else {
            faults.push(Fault::new(path, "is not an installed primitive"));
            continue;
        };
        if let Some(version) =
            entry.version.as_ref().filter(|version| !primitive.versions.contains(version))
        {
            let known = primitive.versions.join(", ");
            faults.push(Fault::new(
                format!("{path}.version"),
                format!("must be a live version of {name}, not {version}: {known}"),
            ));
        }
        for setting in entry.policy.iter().flat_map(serde_json::Map::keys) {
            if !primitive.settings.contains(setting) {
                faults.push(Fault::new(
                    format!("{path}.policy.{setting}"),
                    format!("is not a setting of {name} that a kit can set"),
                ));
            }
        }
    }
    faults
}

/// Makes a kit. It gives nobody anything until a user is moved to it.
///
/// # Errors
/// 400 for a primitive that is not installed, 409 for a name that is taken.
pub async fn create_kit(
    app: &App,
    request: &HostRequest,
    txn: &mut Txn,
    Body(body): Body<NewKit>,
) -> Result<Created<KitAnswer>, Refusal> {
    let place = request.place()?;
    let installed = list_installed(app);
    let mut faults = primitive_faults(&body.primitives, &installed);
    check(&mut faults, "name", names::fault(&body.name));
    refuse_faults(faults)?;
    projects::still_there(txn, &place.organization().id, &place.project().id).await?;
    let reach = Reach::project(place.project().id.as_str());
    if stored::count::<StoredKit>(txn, &reach, &[]).await? >= KITS_MAX {
        return Err(Refusal::state_conflict(
            "too_many_kits",
            "The project has as many kits as it can have.",
        ));
    }
    let kit = StoredKit {
        id: KitId::new(request.now, stored::random()?),
        organization: place.organization().id.clone(),
        project: place.project().id.clone(),
        name: body.name.0,
        default: false,
        primitives: body.primitives,
        budget: body.budget,
        connections: body.connections,
        limits: body.limits,
        created_at: request.now,
    };
    let version = stored::insert(txn, &kit, "name").await?;
    pins::follow(txn, None, Some(&kit)).await?;
    let answer = KitAnswer { kit: Kit::of(&kit, version, &installed) };
    let note = json!({"after": answer.kit});
    Ok(Created::of(&answer).about("kit", kit.id.to_string()).noting(note))
}

/// The project's kits.
///
/// # Errors
/// When the store cannot be asked.
pub async fn list_kits(
    app: &App,
    request: &HostRequest,
    txn: &mut Txn,
) -> Result<Answer<KitPage>, Refusal> {
    let place = request.place()?;
    let (limit, offset) = (request.page.limit, request.page.offset);
    let reach = Reach::project(place.project().id.as_str());
    let (kits, more) = stored::list::<StoredKit>(txn, &reach, &[], limit, offset).await?;
    let installed = list_installed(app);
    let kits = kits.iter().map(|kit| Kit::of(&kit.record, kit.version, &installed)).collect();
    Ok(Answer::of(&KitPage { kits, page: Offset::of(&request.page, more) }))
}

async fn find(request: &HostRequest, txn: &mut Txn) -> Result<Versioned<StoredKit>, Refusal> {
    let place = request.place()?;
    let id = match request.parameter("id") {
        "default" => place.project().default_kit.clone(),
        text => KitId::parse(text).ok_or_else(Refusal::not_found)?,
    };
    let found =
        stored::get::<StoredKit>(txn, &StoredKit::address(&place.project().id, &id)).await?;
    found.ok_or_else(Refusal::not_found)
}

/// One kit.
///
/// # Errors
/// 404 for another project's.
pub async fn get_kit(
    app: &App,
    request: &HostRequest,
    txn: &mut Txn,
) -> Result<Answer<KitAnswer>, Refusal> {
    let kit = find(request, txn).await?;
    Ok(Answer::of(&KitAnswer { kit: Kit::of(&kit.record, kit.version, &list_installed(app)) }))
}

/// Changes a kit, for all of its users at once.
///
/// # Errors
/// 409 for a stale `expected_version`, 403 where it would loosen without the authority to.
pub async fn update_kit(
    app: &App,
    request: &HostRequest,
    txn: &mut Txn,
    Body(body): Body<KitChange>,
) -> Result<Answer<KitAnswer>, Refusal> {
    let place = request.place()?;
    let installed = list_installed(app);
    let mut faults = primitive_faults(&entries(body.primitives.0.as_ref()), &installed);
    check(&mut faults, "name", body.name.0.as_deref().and_then(names::fault));
    refuse_faults(faults)?;
    let found = find(request, txn).await?;
    if body.expected_version.0.is_some_and(|expected| expected != found.version) {
        return Err(Refusal::version_conflict(found.version));
    }
    let before = found.record;
    let after = apply(&before, body);
    if after.primitives.len() > PRIMITIVES_MAX {
        return Err(Refusal::invalid(
            "primitives",
            format!("A kit names at most {PRIMITIVES_MAX} primitives."),
        ));
    }
    if loosens(&before, &after) {
        place.may_loosen()?;
    }
    let version = stored::replace(txn, &after, "name").await?;
    pins::follow(txn, Some(&before), Some(&after)).await?;
    let answer = KitAnswer { kit: Kit::of(&after, version, &installed) };
    let before = Kit::of(&before, found.version, &installed);
    let note = json!({"before": before, "after": answer.kit});
    Ok(Answer::of(&answer).about("kit", after.id.to_string()).noting(note))
}

/// The entries that a change sets.
fn entries(primitives: Option<&BTreeMap<String, Option<Entry>>>) -> BTreeMap<String, Entry> {
    let set = primitives
        .into_iter()
        .flatten()
        .filter_map(|(name, entry)| Some((name.clone(), entry.clone()?)));
    set.collect()
}

/// The kit after a change.
fn apply(before: &StoredKit, body: KitChange) -> StoredKit {
    let mut after = before.clone();
    for (name, entry) in body.primitives.0.into_iter().flatten() {
        match entry {
            Some(entry) => after.primitives.insert(name, entry),
            None => after.primitives.remove(&name),
        };
    }
    after.name = body.name.0.map_or(after.name, |name| name.0);
    after.budget = body.budget.unwrap_or(after.budget);
    after.connections = body.connections.0.unwrap_or(after.connections);
    after.limits = body.limits.0.unwrap_or(after.limits);
    after
}

/// Deletes a kit that no user is assigned to.
///
/// # Errors
/// 409 for the default kit and for one in use.
pub async fn delete_kit(
    app: &App,
    request: &HostRequest,
    txn: &mut Txn,
) -> Result<Answer<Deleted>, Refusal> {
    let place = request.place()?;
    let kit = find(request, txn).await?;
    if kit.record.default {
        return Err(Refusal::state_conflict("default_kit", "The default kit of a project stays."));
    }
    let reach = Reach::project(place.project().id.as_str());
    // Validated at the commit: nobody is moved to it meanwhile.
    if stored::count::<User>(txn, &reach, &[("kit_id", kit.record.id.as_str())]).await? > 0 {
        return Err(Refusal::state_conflict("kit_in_use", "Users are assigned to the kit.")
            .hint("Move them to another kit first."));
    }
    stored::remove(txn, &kit.record).await?;
    pins::follow(txn, Some(&kit.record), None).await?;
    let note = json!({"before": Kit::of(&kit.record, kit.version, &list_installed(app))});
    Ok(Answer::of(&Deleted::of(kit.record.id.as_str()))
        .about("kit", kit.record.id.to_string())
        .noting(note))
}

#[cfg(test)]
mod tests {
    use charter_kernel::id::{OrganizationId, ProjectId, uuid_v7};
    use serde_json::Value;

    use super::*;

    fn kit() -> StoredKit {
        let id = |n| uuid_v7(Instant(1), [n; 10]);
        let (kit, organization, project) = (
            KitId::parse(&id(1)).unwrap(),
            OrganizationId::parse(&id(2)).unwrap(),
            ProjectId::parse(&id(3)).unwrap(),
        );
        StoredKit::first(kit, organization, project, Instant(1))
    }

    fn mail() -> Vec<Installed> {
        let mail = |name: &str, gate| Installed {
            name: name.into(),
            gate,
            versions: vec!["1.0.0".into()],
            settings: vec!["daily".into()],
        };
        vec![mail("mail", Gate::Open), mail("people", Gate::OptIn)]
    }

    #[test]
    fn a_default_kit_names_every_installed_primitive() {
        let shown = json!(Kit::of(&kit(), 3, &mail()));
        assert_eq!(
            shown["primitives"],
            json!({"mail": {"enabled": true}, "people": {"enabled": false}})
        );
        assert_eq!(shown["version"], 3);
        let other = StoredKit { default: false, ..kit() };
        assert_eq!(json!(Kit::of(&other, 1, &mail()))["primitives"], json!({}));
    }

    #[test]
    fn a_kit_names_only_what_is_installed() {
        let named = serde_json::from_value(json!({
            "mail": {"enabled": true, "version": "9.9.9", "policy": {"daily": 1, "hourly": 1}},
            "male": {"enabled": true},
        }));
        let faults = primitive_faults(&named.unwrap(), &mail());
        let paths: Vec<_> = faults.iter().map(|fault| fault.path.as_str()).collect();
        assert_eq!(
            paths,
            ["primitives.mail.version", "primitives.mail.policy.hourly", "primitives.male"]
        );
    }

    #[test]
    fn a_change_merges_primitives_and_replaces_the_rest() {
        let change = |body: Value| serde_json::from_value::<KitChange>(body).unwrap();
        let one = apply(
            &kit(),
            change(
                json!({"primitives": {"mail": {"enabled": false}}, "budget": {"cap_cents": 5, "period": "day"}}),
            ),
        );
        assert!(!one.primitives["mail"].enabled);
        assert!(one.budget.is_some_and(|budget| budget.hard));
        let two = apply(&one, change(json!({"primitives": {"people": {"enabled": true}}})));
        assert!(
            two.primitives.contains_key("mail")
                && two.primitives.contains_key("people")
                && two.budget.is_some()
        );
        let three = apply(&two, change(json!({"primitives": {"mail": null}, "budget": null})));
        assert!(!three.primitives.contains_key("mail") && three.budget.is_none());
    }
}
