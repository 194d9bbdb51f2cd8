//! `cargo xtask tidy`: the rules of the repository that no compiler checks. Runs as a test too.
//!
//! Each check answers faults, each naming the file and what to do; all checks run before anything
//! is reported.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use crate::workspace::Workspace;

mod dependencies;
mod layout;
mod primitives;
mod sources;

/// Runs every check and fails with all faults.
pub fn run(workspace: &Workspace) -> Result<()> {
    let faults = faults(workspace)?;
    if faults.is_empty() {
        return Ok(());
    }
    bail!("tidy found {} faults:\n  {}", faults.len(), faults.join("\n  "))
}

/// Every fault of the repository.
pub fn faults(workspace: &Workspace) -> Result<Vec<String>> {
    let files = Files::read(&workspace.root)?;
    let mut faults = Vec::new();
    faults.extend(sources::faults(&files));
    faults.extend(layout::faults(workspace, &files));
    faults.extend(primitives::faults(workspace, &files));
    faults.extend(dependencies::faults(workspace));
    Ok(faults)
}

/// The text files of the repository, as git would commit them now.
struct Files(Vec<File>);

struct File {
    /// Relative to the root, with `/`.
    path: String,
    text: String,
}

impl Files {
    fn read(root: &Path) -> Result<Self> {
        let mut command = std::process::Command::new("git");
        command.current_dir(root).args([
            "ls-files",
            "--cached",
            "--others",
            "--exclude-standard",
            "-z",
        ]);
        let listed = crate::process::output(command)?;
        let paths = listed
            .split(|byte| *byte == 0)
            .filter_map(|path| std::str::from_utf8(path).ok())
            .filter(|path| !path.is_empty());
        let read = |path: &str| {
            Some(File {
                path: path.to_owned(),
                text: std::fs::read_to_string(root.join(PathBuf::from(path))).ok()?,
            })
        };
        let mut files: Vec<File> = paths.filter_map(read).collect();
        files.sort_by(|left, right| left.path.cmp(&right.path));
        files.dedup_by(|left, right| left.path == right.path);
        Ok(Self(files))
    }

    fn iter(&self) -> impl Iterator<Item = &File> {
        self.0.iter()
    }

    fn below<'a>(&'a self, folders: &'a [&'a str]) -> impl Iterator<Item = &'a File> {
        self.iter().filter(move |file| folders.iter().any(|folder| file.path.starts_with(folder)))
    }

    fn rust(&self) -> impl Iterator<Item = &File> {
        self.iter().filter(|file| file.path.ends_with(".rs"))
    }
}
