//! The family of a path: a route of the host, or a primitive of the global table.
//!
//! Runs ahead of the credential, so that every later refusal speaks the right catalogue and carries
//! the family's deprecation. Decides nothing that depends on the caller.

use std::sync::Arc;

use charter_kernel::manifest::Mount;
use charter_kernel::refusal::Refusal;
use charter_kernel::route::{Missing, Path};
use charter_registry::served::{Auth, Primitive, ServedOperation};

use super::accept::Accepted;
use super::trail::Trail;
use crate::app::App;
use crate::http::Door;
use crate::table::HostEntry;

/// A request whose owner is known.
pub struct Located<'a> {
    /// The stage before.
    pub accepted: &'a Accepted,
    /// The mount of its path.
    pub mount: Mount,
    /// The project of the path prefix.
    pub project: Option<String>,
    /// The user of the path.
    pub user: Option<String>,
    /// The path below the mount.
    pub path: Path,
    /// The owner.
    pub target: Target,
}

/// The server of a path.
pub enum Target {
    /// The host.
    Host(Arc<HostEntry>, Vec<(String, String)>),
    /// A primitive, and the operation by which the sender is identified.
    Primitive(Arc<Primitive>, Arc<ServedOperation>),
}

impl Target {
    /// The credential that it asks for.
    pub fn auth(&self) -> &Auth {
        match self {
            Self::Host(entry, _) => &entry.contract.auth,
            Self::Primitive(_, operation) => &operation.contract.auth,
        }
    }
}

/// A path without its mount.
struct Mounted {
    mount: Mount,
    project: Option<String>,
    user: Option<String>,
    path: Path,
}

/// Finds the owner.
pub fn locate<'a>(
    app: &App,
    trail: &mut Trail,
    accepted: &'a Accepted,
) -> Result<Located<'a>, Refusal> {
    let live = app.registry.current();
    let mut allow = None;
    let candidates = candidates(&accepted.path);
    if let Some(first) = candidates.last().and_then(|mounted| mounted.path.segments().first()) {
        trail.deprecated = live.deprecation(first).cloned();
    }
    for mounted in candidates {
        if !opens(accepted.peer.door, mounted.mount) {
            continue;
        }
        let method = accepted.method.as_str();
        match app.routes.find(mounted.mount, method, &mounted.path) {
            Ok(found) => {
                let target = Target::Host(found.value.clone(), found.parameters);
                return Ok(note_located(app, trail, accepted, mounted, target));
            }
            Err(missing) => note(&mut allow, missing),
        }
        match live.find(mounted.mount, method, &mounted.path) {
            Ok(found) => {
                let target =
                    Target::Primitive(found.value.primitive.clone(), found.value.operation.clone());
                return Ok(note_located(app, trail, accepted, mounted, target));
            }
            Err(missing) => note(&mut allow, missing),
        }
    }
    match allow {
        None => Err(Refusal::not_found().hint("GET /openapi.json describes every route.")),
        Some(allow) => {
            let refusal = Refusal::method_not_allowed(&allow);
            trail.allow = Some(allow);
            Err(refusal)
        }
    }
}

fn note_located<'a>(
    app: &App,
    trail: &mut Trail,
    accepted: &'a Accepted,
    mounted: Mounted,
    target: Target,
) -> Located<'a> {
    let contract = match &target {
        Target::Host(entry, _) => {
            trail.deprecated = None;
            &entry.contract
        }
        Target::Primitive(_, operation) => {
            if !operation.deprecated {
                trail.deprecated = None;
            }
            &operation.contract
        }
    };
    trail.note(contract);
    trail.page = contract.page;
    trail.stats =
        Some(contract.stats(mounted.mount, |method, path| app.metrics.route(method, path)));
    let Mounted { mount, project, user, path } = mounted;
    Located { accepted, mount, project, user, path, target }
}

/// Methods that other readings of the path have, for `Allow`.
fn note(allow: &mut Option<String>, missing: Missing) {
    if let Missing::Method { allow: more } = missing {
        let joined = match allow.take() {
            None => more,
            Some(known) => {
                let mut methods: Vec<&str> = known.split(", ").chain(more.split(", ")).collect();
                methods.sort_unstable();
                methods.dedup();
                methods.join(", ")
            }
        };
        *allow = Some(joined);
    }
}

/// The readings of a path, the literal one first: `/v1/users/{id}/revoke` is the host's own before
/// it is `revoke` of a user.
fn candidates(path: &Path) -> Vec<Mounted> {
    let segments = path.segments();
    let mounted = |mount, project: Option<&String>, user: Option<&String>, skip| Mounted {
        mount,
        project: project.cloned(),
        user: user.cloned(),
        path: path.below(skip),
    };
    match segments {
        [v1, operator, ..] if v1 == "v1" && operator == "operator" => {
            vec![mounted(Mount::Operator, None, None, 2)]
        }
        [v1, projects, project, _, ..] if v1 == "v1" && projects == "projects" => {
            let mut readings = vec![mounted(Mount::Company, None, None, 1)];
            readings.extend(
                mounts_below(segments, 3)
                    .into_iter()
                    .map(|(mount, user, skip)| mounted(mount, Some(project), user, skip)),
            );
            readings
        }
        [v1, ..] if v1 == "v1" => mounts_below(segments, 1)
            .into_iter()
            .map(|(mount, user, skip)| mounted(mount, None, user, skip))
            .collect(),
        _ => vec![mounted(Mount::Root, None, None, 0)],
    }
}

/// The company mount, and the user mount where the path could be one.
fn mounts_below(segments: &[String], skip: usize) -> Vec<(Mount, Option<&String>, usize)> {
    let company = (Mount::Company, None, skip);
    match &segments[skip..] {
        [users, user, _, ..] if users == "users" => {
            vec![company, (Mount::User, Some(user), skip + 2)]
        }
        _ => vec![company],
    }
}

fn opens(door: Door, mount: Mount) -> bool {
    match door {
        Door::Both => true,
        Door::Public => mount != Mount::Operator,
        Door::Operator => matches!(mount, Mount::Operator | Mount::Root),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mount, project, user, and what is left of the path.
    type Reading = (Mount, Option<String>, Option<String>, Vec<String>);

    fn readings(path: &str) -> Vec<Reading> {
        let path = Path::parse(path).unwrap();
        let own = |mounted: Mounted| {
            (mounted.mount, mounted.project, mounted.user, mounted.path.segments().to_vec())
        };
        candidates(&path).into_iter().map(own).collect()
    }

    fn reading(
        mount: Mount,
        project: Option<&str>,
        user: Option<&str>,
        rest: &[&str],
    ) -> (Mount, Option<String>, Option<String>, Vec<String>) {
        (
            mount,
            project.map(Into::into),
            user.map(Into::into),
            rest.iter().map(|part| (*part).to_owned()).collect(),
        )
    }

    #[test]
    fn a_path_is_read_at_each_mount_that_it_could_be_below() {
        assert_eq!(readings("/health"), [reading(Mount::Root, None, None, &["health"])]);
        assert_eq!(
            readings("/v1/things/7"),
            [reading(Mount::Company, None, None, &["things", "7"])]
        );
        assert_eq!(
            readings("/v1/operator/providers"),
            [reading(Mount::Operator, None, None, &["providers"])]
        );
        assert_eq!(
            readings("/v1/users/me/things"),
            [
                reading(Mount::Company, None, None, &["users", "me", "things"]),
                reading(Mount::User, None, Some("me"), &["things"])
            ]
        );
        assert_eq!(readings("/v1/users/7"), [reading(Mount::Company, None, None, &["users", "7"])]);
        assert_eq!(
            readings("/v1/projects/p/users/u/things"),
            [
                reading(Mount::Company, None, None, &["projects", "p", "users", "u", "things"]),
                reading(Mount::Company, Some("p"), None, &["users", "u", "things"]),
                reading(Mount::User, Some("p"), Some("u"), &["things"]),
            ]
        );
        assert_eq!(
            readings("/v1/projects/p"),
            [reading(Mount::Company, None, None, &["projects", "p"])]
        );
    }
}
