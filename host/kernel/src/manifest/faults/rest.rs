//! The rules about events, error codes, providers, settings and deprecation.

use serde_json::Value;

use super::{Manifest, compiles, unique};
use crate::fault::Fault;
use crate::refusal::Code;
use crate::schema::Schema;

/// Events of the host's own.
const HOST_EVENTS: [&str; 6] = [
    "activity.logged",
    "approval.resolved",
    "component.activated",
    "component.rolled_back",
    "webhook.disabled",
    "webhook.test",
];

/// Names that an event had before.
const FORMER_NAMES_MAX: usize = 8;
/// Bytes of one of them.
const FORMER_NAME_BYTES_MAX: usize = 100;

pub(super) fn check(manifest: &Manifest, faults: &mut Vec<Fault>) {
    own_words(manifest, faults);
    whatever_its_words(manifest, faults);
}

/// The same where an earlier build has installed the version, which let events begin with any word.
pub(super) fn check_installed(manifest: &Manifest, faults: &mut Vec<Fault>) {
    for (at, event) in manifest.events.iter().enumerate() {
        if !manifest.tells(&event.name) && !is_former_name(&event.name) {
            let told = "must be a name in lower case, with dots, that the host has not";
            faults.push(Fault::new(format!("events.{at}.name"), told));
        }
    }
    whatever_its_words(manifest, faults);
}

fn whatever_its_words(manifest: &Manifest, faults: &mut Vec<Fault>) {
    events(manifest, faults);
    errors(manifest, faults);
    unique(
        manifest
            .providers
            .iter()
            .enumerate()
            .map(|(at, p)| (format!("providers.{at}.name"), p.name.as_str())),
        faults,
    );
    settings(manifest, faults);
    deprecation(manifest, faults);
}

fn own_words(manifest: &Manifest, faults: &mut Vec<Fault>) {
    for (at, event) in manifest.events.iter().enumerate() {
        if !manifest.tells(&event.name) {
            let message = format!(
                "must be {}.<past participle> in lower case, or begin with a word of `speaks_for`",
                manifest.name
            );
            faults.push(Fault::new(format!("events.{at}.name"), message));
        }
    }
}

fn events(manifest: &Manifest, faults: &mut Vec<Fault>) {
    for (at, event) in manifest.events.iter().enumerate() {
        let path = format!("events.{at}.name");
        if manifest.tells(&event.name) && HOST_EVENTS.contains(&event.name.as_str()) {
            faults.push(Fault::new(path, format!("must not be {}: the host emits it", event.name)));
        }
        compiles(event.payload.as_ref(), &format!("events.{at}.payload"), faults);
        if event.formerly.len() > FORMER_NAMES_MAX {
            let told = format!("must be at most {FORMER_NAMES_MAX} names");
            faults.push(Fault::new(format!("events.{at}.formerly"), told));
        }
        for (which, former) in event.formerly.iter().enumerate() {
            let stands = manifest.events.iter().any(|event| event.name == *former);
            if stands || !is_former_name(former) {
                let told = "must be a name in lower case, with dots, that no event has";
                faults.push(Fault::new(format!("events.{at}.formerly.{which}"), told));
            }
        }
    }
    unique(
        manifest
            .events
            .iter()
            .enumerate()
            .map(|(at, event)| (format!("events.{at}.name"), event.name.as_str())),
        faults,
    );
}

/// Whether an event can have been called so: not what the host's own are.
fn is_former_name(name: &str) -> bool {
    let word = |word: &str| {
        !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
    };
    name.len() <= FORMER_NAME_BYTES_MAX
        && name.contains('.')
        && name.split('.').all(word)
        && !HOST_EVENTS.contains(&name)
}

fn errors(manifest: &Manifest, faults: &mut Vec<Fault>) {
    for (at, error) in manifest.errors.iter().enumerate() {
        if Code::parse(&error.code).is_some() || error.code == "approval_required" {
            faults.push(Fault::new(
                format!("errors.{at}.code"),
                format!("must not be {}: the host has that code", error.code),
            ));
        }
    }
    unique(
        manifest
            .errors
            .iter()
            .enumerate()
            .map(|(at, error)| (format!("errors.{at}.code"), error.code.as_str())),
        faults,
    );
}

fn settings(manifest: &Manifest, faults: &mut Vec<Fault>) {
    for (at, setting) in manifest.settings.iter().enumerate() {
        if setting.schema.is_null() {
            continue;
        }
        match Schema::compile(&setting.schema) {
            Err(found) => faults.extend(
                found.into_iter().map(|fault| fault.within(&format!("settings.{at}.schema"))),
            ),
            Ok(schema) if setting.default != Value::Null => {
                let found = schema.validate(&setting.default).err().unwrap_or_default();
                faults.extend(
                    found.into_iter().map(|fault| fault.within(&format!("settings.{at}.default"))),
                );
            }
            Ok(_) => {}
        }
    }
    unique(
        manifest
            .settings
            .iter()
            .enumerate()
            .map(|(at, setting)| (format!("settings.{at}.key"), setting.key.as_str())),
        faults,
    );
}

fn deprecation(manifest: &Manifest, faults: &mut Vec<Fault>) {
    let Some(deprecation) = &manifest.deprecation else { return };
    if deprecation.announced.parse::<jiff::civil::Date>().is_err() {
        faults.push(Fault::new("deprecation.announced", "must be a date such as 2026-07-29"));
    }
    // Both become values of response headers.
    for (name, text) in
        [("id", &deprecation.id), ("link", &deprecation.link), ("note", &deprecation.note)]
    {
        if text.chars().any(|c| c.is_control() || matches!(c, '<' | '>' | '"')) {
            faults.push(Fault::new(
                format!("deprecation.{name}"),
                "must not hold control characters, quotes or angle brackets",
            ));
        }
    }
    let link = &deprecation.link;
    if !(link.is_empty()
        || link.starts_with("https://")
        || link.starts_with("http://")
        || link.starts_with('/'))
    {
        faults.push(Fault::new("deprecation.link", "must be a URL"));
    }
}
