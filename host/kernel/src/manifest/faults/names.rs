//! The rules about names: of the primitive, its version, capabilities, actions and signals.

use super::{Manifest, unique};
use crate::fault::Fault;
pub(super) use crate::manifest::words::belongs;
use crate::manifest::words::is_word;

/// Every capability, by name: the imports of the interface, and the two ways out by HTTP.
pub const CAPABILITIES: [&str; 19] = [
    "answering",
    "blobs",
    "dns",
    "documents",
    "events",
    "governance",
    "hooks",
    "http",
    "jobs",
    "leases",
    "ledger",
    "log",
    "mail",
    "names",
    "primitives",
    "public-web",
    "secrets",
    "settings",
    "streams",
];

/// Names that no primitive may take: each begins a space of the host's own.
const RESERVED: [&str; 2] = ["host", "name"];

/// First words of the host's own events and audit actions.
const HOST_WORDS: [&str; 4] = ["activity", "approval", "component", "webhook"];

/// Signal kinds that a manifest may ask for.
const SIGNALS: [&str; 15] = [
    "approval",
    "bounce",
    "created",
    "credit",
    "deleted",
    "doubt",
    "event",
    "hook",
    "job",
    "mail",
    "name",
    "question",
    "registered",
    "restored",
    "revoked",
];

pub(super) fn check(manifest: &Manifest, faults: &mut Vec<Fault>) {
    if RESERVED.contains(&manifest.name.as_str()) {
        faults.push(Fault::new(
            "name",
            format!("must not be {}: the host keeps that name for itself", manifest.name),
        ));
    }
    if let Err(error) = semver::Version::parse(&manifest.version) {
        faults.push(Fault::new(
            "version",
            format!("must be a semantic version such as 1.0.0: {error}"),
        ));
    }
    for (at, capability) in manifest.capabilities.iter().enumerate() {
        if !CAPABILITIES.contains(&capability.as_str()) {
            let known = CAPABILITIES.join(", ");
            faults
                .push(Fault::new(format!("capabilities.{at}"), format!("must be one of {known}")));
        }
    }
    unique(number("capabilities", manifest.capabilities.iter().map(String::as_str)), faults);
    for (at, action) in manifest.actions.iter().enumerate() {
        if !belongs(&action.name, &manifest.name) {
            let message = format!(
                "must be {}.<verb>, the verb in lower-case letters, digits and underscores",
                manifest.name
            );
            faults.push(Fault::new(format!("actions.{at}.name"), message));
        }
        if action.overrun.is_some() && !action.spends {
            let message = "is only for an action whose amount counts against caps (`spends`)";
            faults.push(Fault::new(format!("actions.{at}.overrun"), message));
        }
    }
    let actions = manifest
        .actions
        .iter()
        .enumerate()
        .map(|(at, action)| (format!("actions.{at}.name"), action.name.as_str()));
    unique(actions, faults);
    for (at, signal) in manifest.signals.iter().enumerate() {
        let of_event = signal.strip_prefix("event:").is_some_and(is_dotted);
        if !of_event && !SIGNALS.contains(&signal.as_str()) {
            let message = format!("must be one of {}, or event:<name>", SIGNALS.join(", "));
            faults.push(Fault::new(format!("signals.{at}"), message));
        }
    }
    for (at, word) in manifest.speaks_for.iter().enumerate() {
        if !is_word(&word.replace('-', "_")) || HOST_WORDS.contains(&word.as_str()) {
            faults.push(Fault::new(
                format!("speaks_for.{at}"),
                format!("must be one word in lower case, and none of {}", HOST_WORDS.join(", ")),
            ));
        }
    }
    unique(number("speaks_for", manifest.speaks_for.iter().map(String::as_str)), faults);
    unique(number("signals", manifest.signals.iter().map(String::as_str)), faults);
    let has = |list: &[String], name: &str| list.iter().any(|item| item == name);
    if has(&manifest.capabilities, "hooks") && !has(&manifest.signals, "hook") {
        faults.push(Fault::new(
            "signals",
            "must hold hook: the capability hooks opens URLs whose calls are told by it",
        ));
    }
}

/// The items of a list with their paths.
pub(super) fn number<'a>(
    list: &str,
    items: impl Iterator<Item = &'a str>,
) -> impl Iterator<Item = (String, &'a str)> {
    items.enumerate().map(move |(at, item)| (format!("{list}.{at}"), item))
}

/// Whether a name has two or more dotted parts.
fn is_dotted(name: &str) -> bool {
    name.contains('.') && name.split('.').all(|part| is_word(&part.replace('-', "_")))
}
