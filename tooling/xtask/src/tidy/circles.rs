//! Files that import each other in a circle, and folders that import upwards.
//!
//! A reader of one file of a circle has to read them all, so circles stay small: at most
//! [`FILES_MAX`] files of a crate, and no folder within one.

use std::collections::{BTreeMap, BTreeSet};

use super::Files;
use crate::rust::imports::{self, Graph, Module};
use crate::workspace::Workspace;

/// The largest circle of files that a crate may have.
const FILES_MAX: usize = 12;

/// The circles of one crate.
#[derive(Debug)]
pub(super) struct Circles {
    pub(super) package: String,
    /// The files of the largest circle, by their modules.
    pub(super) files: Vec<String>,
    /// The folders of the crate that reach each other in the largest circle, with the files between
    /// them.
    pub(super) folders: Vec<String>,
}

pub(super) fn faults(workspace: &Workspace, files: &Files) -> Vec<String> {
    all(workspace, files).iter().flat_map(Circles::faults).collect()
}

/// The circles of every crate.
pub(super) fn all(workspace: &Workspace, files: &Files) -> Vec<Circles> {
    let of = |package: &crate::workspace::Package| {
        let folder = package.folder.strip_prefix(&workspace.root).ok()?;
        let below = format!("{}/src/", folder.display());
        let sources = files
            .rust()
            .filter_map(|file| Some((file.path.strip_prefix(&below)?, file.text.as_str())));
        let graph = imports::graph(&sources.collect::<Vec<_>>());
        let name = |circle: Vec<Module>| circle.iter().map(|module| module.join("/")).collect();
        Some(Circles {
            package: package.name.clone(),
            files: name(largest(&graph, |circle| circle.len() > 1)),
            folders: name(largest_of_folders(&graph)),
        })
    };
    workspace.packages.iter().filter_map(of).collect()
}

impl Circles {
    fn faults(&self) -> Vec<String> {
        let fault = |found: &[String], max: usize, kind: &str, way_out: &str| {
            (found.len() > max).then(|| {
                let (package, names) = (&self.package, found.join(", "));
                format!(
                    "{package}: {} {kind} import each other in a circle, and at most {max} may: {way_out} ({names})",
                    found.len()
                )
            })
        };
        let way_out = "move what several need into a file that imports none of them";
        let upwards = "a folder imports only what lies below it";
        fault(&self.files, FILES_MAX, "files", way_out)
            .into_iter()
            .chain(fault(&self.folders, 0, "folders", upwards))
            .collect()
    }
}

/// The largest circle that a folder is in, among what lies directly below one folder.
fn largest_of_folders(graph: &Graph) -> Vec<Module> {
    let holders: BTreeSet<&[String]> =
        graph.keys().flat_map(|file| (0..file.len()).map(|depth| &file[..depth])).collect();
    let counts =
        |circle: &[Module]| circle.len() > 1 && circle.iter().any(|room| is_folder(graph, room));
    let found = holders.into_iter().map(|holder| largest(&rooms(graph, holder), counts));
    found.max_by_key(Vec::len).unwrap_or_default()
}

/// The same graph between what lies directly below a folder: a folder there is one with its file.
fn rooms(graph: &Graph, holder: &[String]) -> Graph {
    let room = |file: &Module| {
        (file.len() > holder.len() && file.starts_with(holder))
            .then(|| file[..=holder.len()].to_vec())
    };
    let mut rooms = Graph::new();
    for (file, imported) in graph {
        let Some(own) = room(file) else { continue };
        let others = imported.iter().filter_map(room).filter(|other| *other != own);
        rooms.entry(own.clone()).or_default().extend(others);
    }
    rooms
}

fn is_folder(graph: &Graph, room: &[String]) -> bool {
    graph.keys().any(|file| file.len() > room.len() && file.starts_with(room))
}

/// The largest circle that counts.
fn largest(graph: &Graph, counts: impl Fn(&[Module]) -> bool) -> Vec<Module> {
    let circles = circles(graph).into_iter().filter(|circle| counts(circle));
    circles.max_by_key(Vec::len).unwrap_or_default()
}

/// Files that all reach each other, each set once: the strongly connected components.
fn circles(graph: &Graph) -> Vec<Vec<Module>> {
    let reached: BTreeMap<_, _> =
        graph.keys().map(|module| (module, reachable(graph, module))).collect();
    let mut known = BTreeSet::new();
    let mut circles = Vec::new();
    for module in graph.keys().filter(|module| reached[module].contains(*module)) {
        if known.contains(module) {
            continue;
        }
        let circle: Vec<Module> = reached[module]
            .iter()
            .filter(|other| reached.get(*other).is_some_and(|theirs| theirs.contains(module)))
            .map(|other| (*other).clone())
            .collect();
        known.extend(circle.iter().cloned());
        circles.push(circle);
    }
    circles
}

/// Everything that a module imports, directly or through others.
fn reachable<'a>(graph: &'a Graph, from: &Module) -> BTreeSet<&'a Module> {
    let mut reached = BTreeSet::new();
    let mut open: Vec<&Module> = graph.get(from).into_iter().flatten().collect();
    while let Some(module) = open.pop() {
        if reached.insert(module) {
            open.extend(graph.get(module).into_iter().flatten());
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(edges: &[(&str, &[&str])]) -> Graph {
        let module = |path: &str| imports::module(path);
        edges
            .iter()
            .map(|(from, to)| (module(from), to.iter().map(|to| module(to)).collect()))
            .collect()
    }

    #[test]
    fn the_largest_circle_is_found_and_a_chain_is_none() {
        let graph = graph(&[
            ("a", &["b"]),
            ("b", &["c", "d"]),
            ("c", &["a"]),
            ("d", &["e"]),
            ("e", &["d"]),
            ("f", &["a", "e"]),
        ]);
        let found = circles(&graph);
        assert_eq!(found.len(), 2);
        assert_eq!(largest(&graph, |_| true).concat(), ["a", "b", "c"]);
    }

    #[test]
    fn folders_count_as_one_with_their_file() {
        let graph = graph(&[("a", &["a/x"]), ("a/x", &["b"]), ("b", &["a"]), ("c", &["a"])]);
        assert_eq!(largest(&rooms(&graph, &[]), |_| true).concat(), ["a", "b"]);
        assert_eq!(largest_of_folders(&graph).concat(), ["a", "b"]);
        assert!(is_folder(&graph, &["a".to_owned()]) && !is_folder(&graph, &["b".to_owned()]));
    }

    #[test]
    fn folders_within_folders_are_held_to_the_same() {
        let graph = graph(&[("r/a", &["r/p/x"]), ("r/p", &["r/p/x"]), ("r/p/x", &["r/a"])]);
        let found: Vec<String> =
            largest_of_folders(&graph).iter().map(|room| room.join("/")).collect();
        assert_eq!(found, ["r/a", "r/p"]);
    }

    #[test]
    fn a_crate_with_a_large_circle_is_told_what_to_do() {
        let circle = |files: usize| Circles {
            package: "charter-store".into(),
            files: vec!["x".into(); files],
            folders: Vec::new(),
        };
        assert!(circle(FILES_MAX).faults().is_empty());
        let faults = circle(FILES_MAX + 1).faults();
        assert_eq!(faults.len(), 1);
        assert!(faults[0].contains("at most 12") && faults[0].contains("move what several need"));
    }

    #[test]
    fn a_folder_in_a_circle_of_any_size_is_told_of() {
        let folders = vec!["a".to_owned(), "b".to_owned()];
        let circle = Circles { package: "charter-store".into(), files: Vec::new(), folders };
        let faults = circle.faults();
        assert_eq!(faults.len(), 1);
        assert!(faults[0].contains("a folder imports only what lies below it (a, b)"));
    }
}
