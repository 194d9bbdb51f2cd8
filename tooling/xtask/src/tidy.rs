//! `cargo xtask tidy`: the rules of the repository that no compiler checks, and the figures by
//! which its style is judged.
//!
//! Each check answers faults, each naming the file and what to do; all checks run before anything
//! is reported.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use clap::Args;

use crate::workspace::Workspace;

mod authority;
mod circles;
mod dependencies;
mod docs;
mod figures;
mod layout;
mod names;
mod primitives;
mod prose;
mod sources;

/// The figures to print besides.
#[derive(Args, Debug, Default)]
pub struct Options {
    /// Print the figures of the code besides: sizes, tests, comments, names
    #[arg(long)]
    figures: bool,
    /// Print each place that one figure counts, such as wide, openings or participles
    #[arg(long, value_name = "FIGURE")]
    list: Option<String>,
}

/// Runs every check and fails with all faults; prints figures where they are asked for.
pub fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    if options.figures || options.list.is_some() {
        let files = Files::read(&workspace.root)?;
        if let Some(figure) = &options.list {
            print!("{}", figures::list(workspace, &files, figure).map_err(anyhow::Error::msg)?);
        }
        if options.figures {
            print!("{}", figures::table(workspace, &files));
        }
    }
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
    faults.extend(authority::faults(&files));
    faults.extend(circles::faults(workspace, &files));
    faults.extend(docs::faults(&files));
    faults.extend(names::faults(&files));
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
