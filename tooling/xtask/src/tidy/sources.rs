//! The rules that hold for each file by itself.

use super::Files;

/// Names that say nothing about what a file is for.
const NAMELESS: [&str; 8] =
    ["utils", "util", "helpers", "helper", "common", "manager", "service", "misc"];

pub(super) fn faults(files: &Files) -> Vec<String> {
    let mut faults = Vec::new();
    for file in files.rust() {
        let opening = file
            .text
            .strip_prefix("#![")
            .map_or(file.text.as_str(), |rest| rest.split_once('\n').map_or("", |split| split.1));
        if !opening.trim_start().starts_with("//!") {
            faults.push(format!(
                "{}: opens without `//!`: say what it is, what it must not know, and its invariant",
                file.path
            ));
        }
        let stem = file.path.rsplit('/').next().unwrap_or_default().trim_end_matches(".rs");
        if stem == "mod" {
            faults.push(format!(
                "{}: no `mod.rs`: a module's file stands beside its folder and has its name",
                file.path
            ));
        }
        if file.path.split('/').any(|part| NAMELESS.contains(&part.trim_end_matches(".rs"))) {
            faults.push(format!("{}: name it after what it is for", file.path));
        }
    }
    // Written in two halves, so that this file passes its own check.
    let elsewhere = concat!("../", "shared");
    for file in files.iter().filter(|file| file.text.contains(elsewhere)) {
        faults.push(format!(
            "{}: refers to {elsewhere}, which is not part of the repository",
            file.path
        ));
    }
    faults
}
