//! Account kits: which primitives a project's users have, at which version, under which budget and
//! limits.
//!
//! Knows primitives only as the registry names them.

use std::collections::BTreeMap;

use charter_kernel::fault::Fault;
use charter_kernel::id::KitId;
use charter_kernel::kit::{Budget, Connections, Entry, Limits};
use charter_kernel::manifest::Gate;
use charter_kernel::refusal::Refusal;
use charter_kernel::unit::Reach;
use charter_store::Txn;
use serde::Deserialize;
use serde_json::{Value, json};

use super::projects;
use super::shape::{self, budget, check, checked, id, instant, name, nullable, object, present};
use super::stored::{self, Versioned};
use crate::app::App;
use crate::records::kit::{KITS_MAX, PRIMITIVES_MAX, StoredKit, loosens};
use crate::records::name as names;
use crate::records::user::User;
use crate::reply::Reply;
use crate::request::HostRequest;

pub mod pins;

/// A primitive that is installed, as a kit can name it.
#[derive(Clone, Debug)]
pub struct Installed {
    /// Its name.
    pub name: String,
    /// What a kit that does not name it means.
    pub gate: Gate,
    /// The versions that a kit can pin.
    pub versions: Vec<String>,
    /// The settings that a kit can set.
    pub settings: Vec<String>,
}

fn entry() -> Value {
    object(&[
        ("enabled", json!({"type": "boolean"})),
        ("version?", nullable(&json!({"type": "string", "minLength": 1, "maxLength": 64}))),
        ("policy?", nullable(&json!({"type": "object", "maxProperties": 100}))),
    ])
}

fn primitives(entry: &Value) -> Value {
    json!({"type": "object", "maxProperties": PRIMITIVES_MAX, "additionalProperties": entry})
}

fn connections() -> Value {
    object(&[
        ("mode?", json!({"enum": ["open", "listed"]})),
        (
            "toolkits?",
            json!({"type": "array", "maxItems": 200, "items": {"type": "string", "minLength": 1, "maxLength": 200}}),
        ),
    ])
}

fn limits() -> Value {
    object(&[(
        "requests_per_minute?",
        nullable(&json!({"type": "integer", "minimum": 1, "maximum": u32::MAX})),
    )])
}

fn item() -> Value {
    object(&[
        ("id", id()),
        ("name", name()),
        ("default", json!({"type": "boolean"})),
        ("primitives", primitives(&entry())),
        ("budget", nullable(&budget())),
        ("connections", connections()),
        ("limits", limits()),
        ("version", json!({"type": "integer"})),
        ("created_at", instant()),
    ])
}

/// The answer of one kit's routes.
pub fn answer() -> Value {
    object(&[("kit", item())])
}

/// The answer of the list.
pub fn list_answer() -> Value {
    shape::page("kits", &item())
}

/// What is installed now.
fn installed(app: &App) -> Vec<Installed> {
    let (live, catalogue) = (app.registry.current(), app.registry.catalogue());
    // Not those in this replica's memory: what is pinned is loaded when it is asked for.
    let pinnable = |name: &str| -> Vec<String> {
        let versions = catalogue.live().filter(|version| version.name == name);
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

/// What the wire shows of a kit. A default kit names every installed primitive: what it says
/// nothing about is as the primitive's manifest has it.
fn view(kit: &StoredKit, version: u64, installed: &[Installed]) -> Value {
    let mut named = kit.primitives.clone();
    if kit.default {
        for primitive in installed {
            named
                .entry(primitive.name.clone())
                .or_insert_with(|| Entry::by_default(primitive.gate));
        }
    }
    json!({
        "id": kit.id,
        "name": kit.name,
        "default": kit.default,
        "primitives": named,
        "budget": kit.budget,
        "connections": kit.connections,
        "limits": kit.limits,
        "version": version,
        "created_at": kit.created_at,
    })
}

/// What is wrong with what a body says about primitives: a kit names only what is installed, so
/// that a typing error is found when it is made.
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

#[derive(Deserialize)]
struct Create {
    name: String,
    #[serde(default)]
    primitives: BTreeMap<String, Entry>,
    budget: Option<Budget>,
    #[serde(default)]
    connections: Connections,
    #[serde(default)]
    limits: Limits,
}

/// The body of a new kit.
pub fn create_body() -> Value {
    object(&[
        ("name", name()),
        ("primitives?", primitives(&entry())),
        ("budget?", nullable(&budget())),
        ("connections?", connections()),
        ("limits?", limits()),
    ])
}

/// Makes a kit. It gives nobody anything until a user is moved to it.
///
/// # Errors
/// 400 for a primitive that is not installed, 409 for a name that is taken.
pub async fn create(app: &App, request: &HostRequest, txn: &mut Txn) -> Result<Reply, Refusal> {
    let place = request.place()?;
    let body: Create = request.body_as()?;
    let installed = installed(app);
    let mut faults = primitive_faults(&body.primitives, &installed);
    check(&mut faults, "name", names::fault(&body.name));
    checked(faults)?;
    projects::still_there(txn, &place.organization.id, &place.project.id).await?;
    let reach = Reach::project(place.project.id.as_str());
    if stored::count::<StoredKit>(txn, &reach, &[]).await? >= KITS_MAX {
        return Err(Refusal::state_conflict(
            "too_many_kits",
            "The project has as many kits as it can have.",
        ));
    }
    let kit = StoredKit {
        id: KitId::new(request.now, stored::random()?),
        organization: place.organization.id.clone(),
        project: place.project.id.clone(),
        name: body.name,
        default: false,
        primitives: body.primitives,
        budget: body.budget,
        connections: body.connections,
        limits: body.limits,
        created_at: request.now,
    };
    let version = stored::insert(txn, &kit, "name").await?;
    pins::follow(txn, None, Some(&kit)).await?;
    let shown = view(&kit, version, &installed);
    let note = json!({"after": shown});
    Ok(Reply::created(&json!({"kit": shown})).about("kit", kit.id.to_string()).noting(note))
}

/// The project's kits.
///
/// # Errors
/// When the store cannot be asked.
pub async fn list(app: &App, request: &HostRequest, txn: &mut Txn) -> Result<Reply, Refusal> {
    let place = request.place()?;
    let (limit, offset) = (request.page.limit, request.page.offset);
    let reach = Reach::project(place.project.id.as_str());
    let (kits, more) = stored::list::<StoredKit>(txn, &reach, &[], limit, offset).await?;
    let installed = installed(app);
    let items = kits.iter().map(|kit| view(&kit.record, kit.version, &installed)).collect();
    Ok(Reply::ok(&shape::listed("kits", items, (limit, offset), more)))
}

async fn named(request: &HostRequest, txn: &mut Txn) -> Result<Versioned<StoredKit>, Refusal> {
    let place = request.place()?;
    let id = match request.parameter("id") {
        "default" => place.project.default_kit.clone(),
        text => KitId::parse(text).ok_or_else(Refusal::not_found)?,
    };
    let found = stored::get::<StoredKit>(txn, &StoredKit::address(&place.project.id, &id)).await?;
    found.ok_or_else(Refusal::not_found)
}

/// One kit.
///
/// # Errors
/// 404 for another project's.
pub async fn get(app: &App, request: &HostRequest, txn: &mut Txn) -> Result<Reply, Refusal> {
    let kit = named(request, txn).await?;
    Ok(Reply::ok(&json!({"kit": view(&kit.record, kit.version, &installed(app))})))
}

#[derive(Deserialize)]
struct Change {
    name: Option<String>,
    primitives: Option<BTreeMap<String, Option<Entry>>>,
    #[serde(default, deserialize_with = "present")]
    budget: Option<Option<Budget>>,
    connections: Option<Connections>,
    limits: Option<Limits>,
    expected_version: Option<u64>,
}

/// The body of a change. Primitives merge by name, null takes one out; everything else is replaced.
pub fn change_body() -> Value {
    object(&[
        ("name?", name()),
        ("primitives?", primitives(&nullable(&entry()))),
        ("budget?", nullable(&budget())),
        ("connections?", connections()),
        ("limits?", limits()),
        ("expected_version?", json!({"type": "integer", "minimum": 1})),
    ])
}

/// Changes a kit, for all of its users at once.
///
/// # Errors
/// 409 for a stale `expected_version`, 403 where it would loosen without the authority to.
pub async fn patch(app: &App, request: &HostRequest, txn: &mut Txn) -> Result<Reply, Refusal> {
    let place = request.place()?;
    let body: Change = request.body_as()?;
    let installed = installed(app);
    let mut faults = primitive_faults(&entries(body.primitives.as_ref()), &installed);
    check(&mut faults, "name", body.name.as_deref().and_then(names::fault));
    checked(faults)?;
    let found = named(request, txn).await?;
    if body.expected_version.is_some_and(|expected| expected != found.version) {
        return Err(Refusal::version_conflict(found.version));
    }
    let before = found.record;
    let after = changed(&before, body);
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
    let shown = view(&after, version, &installed);
    let note = json!({"before": view(&before, found.version, &installed), "after": shown});
    Ok(Reply::ok(&json!({"kit": shown})).about("kit", after.id.to_string()).noting(note))
}

/// The entries that a change sets.
fn entries(primitives: Option<&BTreeMap<String, Option<Entry>>>) -> BTreeMap<String, Entry> {
    let set = primitives
        .into_iter()
        .flatten()
        .filter_map(|(name, entry)| Some((name.clone(), entry.clone()?)));
    set.collect()
}

fn changed(before: &StoredKit, body: Change) -> StoredKit {
    let mut after = before.clone();
    for (name, entry) in body.primitives.into_iter().flatten() {
        match entry {
            Some(entry) => after.primitives.insert(name, entry),
            None => after.primitives.remove(&name),
        };
    }
    after.name = body.name.unwrap_or(after.name);
    after.budget = body.budget.unwrap_or(after.budget);
    after.connections = body.connections.unwrap_or(after.connections);
    after.limits = body.limits.unwrap_or(after.limits);
    after
}

/// Deletes a kit that no user is assigned to.
///
/// # Errors
/// 409 for the default kit and for one in use.
pub async fn delete(app: &App, request: &HostRequest, txn: &mut Txn) -> Result<Reply, Refusal> {
    let place = request.place()?;
    let kit = named(request, txn).await?;
    if kit.record.default {
        return Err(Refusal::state_conflict("default_kit", "The default kit of a project stays."));
    }
    let reach = Reach::project(place.project.id.as_str());
    // Validated at the commit: nobody is moved to it meanwhile.
    if stored::count::<User>(txn, &reach, &[("kit_id", kit.record.id.as_str())]).await? > 0 {
        return Err(Refusal::state_conflict("kit_in_use", "Users are assigned to the kit.")
            .hint("Move them to another kit first."));
    }
    stored::remove(txn, &kit.record).await?;
    pins::follow(txn, Some(&kit.record), None).await?;
    let note = json!({"before": view(&kit.record, kit.version, &installed(app))});
    Ok(Reply::ok(&json!({"id": kit.record.id, "deleted": true}))
        .about("kit", kit.record.id.to_string())
        .noting(note))
}

#[cfg(test)]
mod tests {
    use charter_kernel::id::{OrganizationId, ProjectId, uuid_v7};
    use charter_kernel::time::Instant;

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
        let shown = view(&kit(), 3, &mail());
        assert_eq!(
            shown["primitives"],
            json!({"mail": {"enabled": true}, "people": {"enabled": false}})
        );
        assert_eq!(shown["version"], 3);
        let other = StoredKit { default: false, ..kit() };
        assert_eq!(view(&other, 1, &mail())["primitives"], json!({}));
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
        let change = |body: Value| serde_json::from_value::<Change>(body).unwrap();
        let one = changed(
            &kit(),
            change(
                json!({"primitives": {"mail": {"enabled": false}}, "budget": {"cap_cents": 5, "period": "day"}}),
            ),
        );
        assert!(!one.primitives["mail"].enabled);
        assert!(one.budget.is_some_and(|budget| budget.hard));
        let two = changed(&one, change(json!({"primitives": {"people": {"enabled": true}}})));
        assert!(
            two.primitives.contains_key("mail")
                && two.primitives.contains_key("people")
                && two.budget.is_some()
        );
        let three = changed(&two, change(json!({"primitives": {"mail": null}, "budget": null})));
        assert!(!three.primitives.contains_key("mail") && three.budget.is_none());
    }
}
