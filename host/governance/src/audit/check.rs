//! Verifying an export offline: nothing but the file and the public key is needed.
//!
//! Rows are read one at a time. A fault is named as closely as it can be: by its row where the
//! row tells on itself, else by the checkpoints that it lies between.

use std::collections::{BTreeMap, BTreeSet};
use std::io::BufRead;

use charter_kernel::hex::sha256;
use charter_kernel::id::canonical;
use charter_kernel::merkle::{self, Frontier, Hash};
use charter_kernel::note::{Checkpoint, Verifier};
use ed25519_dalek::{Signature, VerifyingKey};
use serde_json::Value;

use super::REMOVALS;
use super::export::{FORMAT, Head, Line, member};
use super::text;

/// Bytes of a line.
const LINE_BYTES_MAX: u64 = 1 << 20;
/// Faults that are told; one that is cut off has many.
const FAULTS_MAX: usize = 50;

/// The findings.
#[derive(Debug, Default)]
pub struct Report {
    /// The log.
    pub origin: String,
    /// Rows before the first one.
    pub after: u64,
    /// The last row.
    pub to: u64,
    /// Rows whose private half was erased.
    pub erased: u64,
    /// Users of such rows of whose removal no row here tells: it may stand before them.
    pub unexplained: u64,
    /// Checkpoints that hold.
    pub checkpoints: usize,
    /// The key that signed.
    pub key: String,
    /// In plain words; empty where all is well.
    pub faults: Vec<String>,
}

/// Verifies a note.
///
/// # Errors
/// In plain words.
pub fn checkpoint(note: &str, key: &Verifier) -> Result<Checkpoint, String> {
    let (signed, signature) =
        key.signature_of(note).ok_or_else(|| format!("{} did not sign it", key.text()))?;
    let verifying =
        VerifyingKey::from_bytes(&key.key).map_err(|_| "the public key is none".to_owned())?;
    let verified = verifying.verify_strict(signed.as_bytes(), &Signature::from_bytes(&signature));
    verified.map_err(|_| "its signature is not the key's".to_owned())?;
    let found = Checkpoint::parse(signed).ok_or_else(|| "it says nothing".to_owned())?;
    if found.origin == key.name {
        Ok(found)
    } else {
        Err(format!("it is of another log, {}", found.origin))
    }
}

struct Check {
    report: Report,
    tree: Frontier,
    /// Not yet reached, oldest first.
    waiting: std::collections::VecDeque<Checkpoint>,
    /// The last size at which the rows so far were found to be those that were signed.
    good: u64,
    /// Rows are missing or out of place, so roots say nothing more.
    broken: bool,
    /// Users of rows without their private half, each with the first such row.
    halved: BTreeMap<String, u64>,
    /// Users who were removed, as rows here say.
    removed: BTreeSet<String>,
}

/// Verifies an export: with `key` instead of the one that it names itself, and against a checkpoint
/// that was kept from before.
///
/// # Errors
/// The error, if the file is no export at all.
pub fn export(
    mut from: impl BufRead,
    key: Option<&Verifier>,
    since: Option<&str>,
) -> Result<Report, String> {
    let first = line(&mut from)?.ok_or("the file is empty")?;
    let head: Head = serde_json::from_str(&first)
        .map_err(|_| "the first line is not that of an export".to_owned())?;
    if head.format != FORMAT {
        return Err(format!("the file is {}, not {FORMAT}", head.format));
    }
    let mut check = Check::begin(&head, key, since)?;
    check.compare();
    while let Some(text) = line(&mut from)? {
        match serde_json::from_str::<Line>(&text) {
            Ok(row) => check.row(&row),
            Err(_) => {
                check.fault(format!("the line after row {} is no row", check.report.to));
                check.broken = true;
            }
        }
    }
    Ok(check.end())
}

fn line(from: &mut impl BufRead) -> Result<Option<String>, String> {
    let mut text = String::new();
    let read = std::io::Read::take(&mut *from, LINE_BYTES_MAX).read_line(&mut text);
    let read = read.map_err(|error| format!("the file cannot be read: {error}"))?;
    if read as u64 == LINE_BYTES_MAX {
        return Err("a line is longer than any row".into());
    }
    Ok((read > 0).then_some(text))
}

impl Check {
    /// A check of rows behind such a first line, which has faults of its own.
    fn begin(head: &Head, key: Option<&Verifier>, since: Option<&str>) -> Result<Self, String> {
        let own = Verifier::parse(&head.public_key).ok_or("the first line has no public key")?;
        let key = key.unwrap_or(&own);
        let mut faults = Vec::new();
        if *key != own {
            faults.push(format!("the export names another key, {}", head.public_key));
        }
        // The key's own name is printed: it is signed with each checkpoint.
        if head.origin != key.name {
            faults.push(format!(
                "the export says that it is of {}, its key of {}",
                head.origin, key.name
            ));
        }
        let mut waiting: Vec<Checkpoint> = Vec::new();
        let kept = since.map(|note| (note, "the checkpoint that was kept"));
        for (note, name) in
            head.checkpoints.iter().map(|note| (note.as_str(), "a checkpoint")).chain(kept)
        {
            match checkpoint(note, key) {
                Ok(found) if found.size < head.after => {
                    faults.push(format!(
                        "{name} is of {} rows, and the export begins behind them",
                        found.size
                    ));
                }
                Ok(found) => waiting.push(found),
                Err(why) => faults.push(format!("{name} does not hold: {why}")),
            }
        }
        waiting.sort_by_key(|found| found.size);
        let roots: Option<Vec<Hash>> = head.frontier.iter().map(|root| text::hash(root)).collect();
        let tree = roots.and_then(|roots| Frontier::of(head.after, roots));
        let tree = tree.ok_or("the first line has no roots for the rows before it")?;
        let report = Report {
            origin: key.name.clone(),
            after: head.after,
            to: head.after,
            key: key.text(),
            faults,
            ..Report::default()
        };
        Ok(Self {
            report,
            tree,
            waiting: waiting.into(),
            good: head.after,
            broken: false,
            halved: BTreeMap::new(),
            removed: BTreeSet::new(),
        })
    }

    fn fault(&mut self, text: String) {
        if self.report.faults.len() < FAULTS_MAX {
            self.report.faults.push(text);
        }
    }

    fn row(&mut self, row: &Line) {
        let expected = self.report.to + 1;
        let (seq, last) = (row.seq, self.report.to);
        match seq {
            _ if seq == expected => self.report.to = seq,
            _ if seq > expected && seq == expected + 1 => {
                self.fault(format!("row {expected} is missing"))
            }
            _ if seq > expected => {
                self.fault(format!("rows {expected} to {} are missing", seq - 1))
            }
            _ => self.fault(format!("row {seq} stands behind row {last}, out of its place")),
        }
        if seq != expected {
            self.broken = true;
            self.report.to = last.max(seq);
        }
        let hash = merkle::leaf(row.leaf.as_bytes());
        if text::hash(&row.hash) != Some(hash) {
            self.fault(format!("row {seq} was edited: it is not what its hash says"));
        }
        match &row.private {
            Some(private)
                if member(&row.leaf, "private_sha256")
                    .is_none_or(|hash| hash != sha256(private)) =>
            {
                self.fault(format!(
                    "row {seq} was edited: its private half is not what its leaf says"
                ));
            }
            Some(private) => self.note_removal(&row.leaf, private),
            None => {
                self.report.erased += 1;
                // An earlier build's row may name its user in capitals.
                match member(&row.leaf, "on_behalf_of").map(canonical) {
                    Some(user) => drop(self.halved.entry(user).or_insert(seq)),
                    None => self.fault(format!(
                        "the private half of row {seq} was left out: only rows of users are ever erased"
                    )),
                }
            }
        }
        self.tree.push(hash);
        self.compare();
    }

    /// A user's private halves go once a row says that the user was removed.
    fn note_removal(&mut self, leaf: &str, private: &str) {
        let is = |name: &str, value: &str| member(leaf, name).as_deref() == Some(value);
        let removal = REMOVALS.iter().find(|(action, _)| is("action", action));
        if let Some((_, user)) = removal.filter(|_| is("decision", "allowed")) {
            let private: Option<Value> = serde_json::from_str(private).ok();
            let user = private.as_ref().and_then(|private| private.pointer(user)?.as_str());
            self.removed.extend(user.map(|user| canonical(user.to_owned())));
        }
    }

    /// Compares with the checkpoints of this size.
    fn compare(&mut self) {
        let (size, root) = (self.tree.size(), self.tree.root());
        while let Some(found) = self.waiting.pop_front_if(|found| found.size <= size) {
            if self.broken || found.size < size {
                continue;
            }
            if found.root == root {
                (self.good, self.report.checkpoints) = (size, self.report.checkpoints + 1);
            } else {
                self.fault(format!(
                    "rows {} to {size} are not those that were signed",
                    self.good + 1
                ));
            }
        }
    }

    fn end(mut self) -> Report {
        for (user, seq) in std::mem::take(&mut self.halved) {
            if self.removed.contains(&user) {
                continue;
            }
            // The removal may stand before the first row here.
            if self.report.after > 0 {
                self.report.unexplained += 1;
            } else {
                self.fault(format!(
                    "the private half of row {seq} was left out: no row says that its user was removed"
                ));
            }
        }
        let (to, last) = (self.report.to, self.waiting.back().map(|found| found.size));
        if let Some(size) = last {
            self.fault(format!(
                "the export ends with row {to}, but {size} rows were signed: it was cut off"
            ));
        } else if self.report.faults.is_empty() && to == self.report.after {
            self.fault("the export holds no row: there is nothing to verify".to_owned());
        } else if self.good < to && self.report.faults.is_empty() {
            self.fault(format!("no checkpoint holds for the rows from {} on", self.good + 1));
        }
        self.report
    }
}
