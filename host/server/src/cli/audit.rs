//! `charter audit verify`: an export, offline.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use anyhow::Context as _;
use charter_governance::audit::check;
use charter_kernel::note::Verifier;

use super::{Usage, say};

pub(super) fn verify(file: &Path, key: Option<&str>, since: Option<&Path>) -> anyhow::Result<()> {
    let read = |path: &Path| {
        std::fs::read_to_string(path).with_context(|| format!("{} cannot be read", path.display()))
    };
    let pinned = match key {
        Some(text) => Some(Verifier::parse(text).ok_or_else(|| {
            Usage("--key is `name+id+key`, as GET /v1/audit/checkpoint has it".into())
        })?),
        None => None,
    };
    let since = since.map(read).transpose()?;
    let from: Box<dyn BufRead> = if file == Path::new("-") {
        Box::new(std::io::stdin().lock())
    } else {
        Box::new(BufReader::new(
            File::open(file).with_context(|| format!("{} cannot be read", file.display()))?,
        ))
    };
    let report =
        check::export(from, pinned.as_ref(), since.as_deref()).map_err(anyhow::Error::msg)?;
    if !report.faults.is_empty() {
        for fault in &report.faults {
            say(fault);
        }
        anyhow::bail!("{} is not what was signed", report.origin);
    }
    let erased = match report.erased {
        0 => String::new(),
        rows => format!(", {rows} without their private half, which was erased"),
    };
    say(&format!(
        "{}: rows {} to {} are what was signed{erased}",
        report.origin,
        report.after + 1,
        report.to
    ));
    if report.unexplained > 0 {
        say(&format!(
            "that {} of their users were removed is told by no row here: export from the first row on to see it",
            report.unexplained
        ));
    }
    say(&format!("{} checkpoints hold, signed by {}", report.checkpoints, report.key));
    if pinned.is_none() {
        say(
            "the key is the export's own: give --key with the one that you were told on another way",
        );
    }
    Ok(())
}
