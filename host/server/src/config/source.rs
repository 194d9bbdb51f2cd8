//! The layers a configuration is read from: a TOML file, under the environment, under flags.
//!
//! Knows no setting by name; it hands out values by key, remembers what was asked for, and so finds
//! what nobody asked for. It never stops at the first fault, because a person who fixes one at a
//! time restarts a server ten times.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::setting::{Raw, Setting};

/// The fault of one key, and the way out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The key as the person wrote it: `http.listen`, `CHARTER_HTTP_LISTEN` or `--listen`.
    pub key: String,
    /// The fault and the remedy.
    pub message: String,
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.key, self.message)
    }
}

/// One line of the printed reference.
#[derive(Clone, Debug)]
pub struct Entry {
    /// `section.key`.
    pub key: String,
    /// The value while it is not set, as TOML; empty where there is none.
    pub default: String,
    /// Its meaning.
    pub about: &'static str,
}

/// Variables of the command-line client and of tests, which share the prefix but are no settings of
/// the host.
const FOREIGN: [&str; 4] = ["CHARTER_URL", "CHARTER_KEY", "CHARTER_CONFIG", "CHARTER_TEST_"];

/// The layers, and what was found wrong with them so far.
#[derive(Default)]
pub(super) struct Source {
    file: BTreeMap<String, toml::Table>,
    environment: BTreeMap<String, String>,
    flags: BTreeMap<String, (&'static str, String)>,
    asked: BTreeSet<String>,
    asked_variables: BTreeSet<String>,
    pub(super) entries: Vec<Entry>,
    pub(super) faults: Vec<Fault>,
}

impl Source {
    /// Takes the layers apart. `flags` are `section.key`, the flag as typed, and its text.
    pub(super) fn new(
        file: toml::Table,
        environment: impl IntoIterator<Item = (String, String)>,
        flags: impl IntoIterator<Item = (&'static str, &'static str, String)>,
    ) -> Self {
        let flags =
            flags.into_iter().map(|(key, flag, text)| (key.to_owned(), (flag, text))).collect();
        let mut source = Self { flags, ..Self::default() };
        for (name, value) in file {
            match value {
                toml::Value::Table(table) => {
                    source.file.insert(name, table);
                }
                _ => source.fault(
                    name,
                    "stands outside a section; settings live in sections such as [http]",
                ),
            }
        }
        source.environment = environment
            .into_iter()
            .filter(|(name, _)| {
                name.starts_with("CHARTER_")
                    && !FOREIGN.iter().any(|foreign| name.starts_with(foreign))
            })
            .collect();
        source
    }

    /// Notes a fault.
    pub(super) fn fault(&mut self, key: impl Into<String>, message: impl Into<String>) {
        self.faults.push(Fault { key: key.into(), message: message.into() });
    }

    /// One section.
    pub(super) fn section(&mut self, name: &'static str) -> Section<'_> {
        Section { source: self, name: name.into() }
    }

    /// The named sections below one: `[providers.search]`, `CHARTER_PROVIDERS_SEARCH_URL`.
    pub(super) fn section_names(&mut self, parent: &'static str, keys: &[&str]) -> Vec<String> {
        let mut names: BTreeSet<String> = BTreeSet::new();
        for (name, value) in self.file.remove(parent).unwrap_or_default() {
            self.name_sections(parent, name, value, keys, &mut names);
        }
        let prefix = format!("CHARTER_{}_", parent.to_uppercase());
        for variable in self.environment.keys() {
            let rest = variable.strip_prefix(&prefix).unwrap_or_default();
            // The longest key wins, so that `…_CREDENTIAL_FILE` is not the credential of a binding
            // called `…-file`.
            let key = keys
                .iter()
                .filter(|key| rest.ends_with(&format!("_{}", key.to_uppercase())))
                .max_by_key(|key| key.len());
            if let Some(name) = key
                .and_then(|key| rest.get(..rest.len() - key.len() - 1))
                .filter(|name| !name.is_empty())
            {
                // A binding that the file names keeps the file's spelling; otherwise
                // `SEARCH_ENGINE` is `search.engine`.
                if !names.iter().any(|known| variable_part(known) == name) {
                    names.insert(name.to_lowercase().replace('_', "."));
                }
            }
        }
        names.into_iter().collect()
    }

    /// The sections below one whose keys others know, as JSON: `[primitives.<name>]`, and
    /// `CHARTER_PRIMITIVES_<NAME>`, an object whose members come before the file's.
    pub(super) fn tables(&mut self, parent: &str) -> BTreeMap<String, Map<String, Value>> {
        let mut found: BTreeMap<String, Map<String, Value>> = BTreeMap::new();
        for (name, value) in self.file.remove(parent).unwrap_or_default() {
            match serde_json::to_value(value) {
                Ok(Value::Object(members)) => drop(found.insert(name, members)),
                _ => self.fault(
                    format!("{parent}.{name}"),
                    format!("must be a section of its own, [{parent}.{name}]"),
                ),
            }
        }
        let prefix = format!("CHARTER_{}_", parent.to_uppercase());
        let named = |(variable, text): (&String, &String)| {
            Some((variable.clone(), variable.strip_prefix(&prefix)?.to_owned(), text.clone()))
        };
        let variables: Vec<_> = self.environment.iter().filter_map(named).collect();
        for (variable, part, text) in variables {
            match serde_json::from_str(if text.is_empty() { "{}" } else { &text }) {
                Ok(Value::Object(members)) => {
                    let name = part.to_lowercase().replace('_', "-");
                    found.entry(name).or_default().extend(members);
                }
                _ => self.fault(&*variable, "must be a JSON object: values by the setting's key"),
            }
            self.asked_variables.insert(variable);
        }
        found
    }

    /// A section, or the sections within it: `[providers.search.engine]` is the binding
    /// `search.engine`.
    fn name_sections(
        &mut self,
        parent: &str,
        name: String,
        value: toml::Value,
        keys: &[&str],
        names: &mut BTreeSet<String>,
    ) {
        let toml::Value::Table(table) = value else {
            return self.fault(
                format!("{parent}.{name}"),
                format!("must be a section of its own, [{parent}.{name}]"),
            );
        };
        let is_outer = !table.is_empty()
            && table.iter().all(|(key, value)| value.is_table() && !keys.contains(&key.as_str()));
        if is_outer {
            for (inner, value) in table {
                self.name_sections(parent, format!("{name}.{inner}"), value, keys, names);
            }
        } else {
            self.file.insert(format!("{parent}.{name}"), table);
            names.insert(name);
        }
    }

    /// A section below another.
    pub(super) fn section_of(&mut self, parent: &str, name: &str) -> Section<'_> {
        Section { source: self, name: format!("{parent}.{name}") }
    }

    /// Everything that nobody asked for is a fault, with the nearest known name.
    pub(super) fn finish(&mut self) {
        let known: Vec<String> = self.asked.iter().cloned().collect();
        let mut faults = Vec::new();
        for (section, table) in &self.file {
            let is_known =
                known.iter().any(|key| key.rsplit_once('.').is_some_and(|(of, _)| of == section));
            if !is_known {
                let sections =
                    known.iter().filter_map(|key| key.rsplit_once('.')).map(|(of, _)| of);
                faults.push(Fault {
                    key: format!("[{section}]"),
                    message: unknown("section", section, sections),
                });
                continue;
            }
            for key in table.keys() {
                let full = format!("{section}.{key}");
                if !self.asked.contains(&full) {
                    faults.push(Fault {
                        message: unknown("setting", &full, known.iter().map(String::as_str)),
                        key: full,
                    });
                }
            }
        }
        for name in self.environment.keys().filter(|name| !self.asked_variables.contains(*name)) {
            let message =
                unknown("variable", name, self.asked_variables.iter().map(String::as_str));
            faults.push(Fault { key: name.clone(), message });
        }
        self.faults.append(&mut faults);
    }
}

/// `is no known setting; did you mean …?`
fn unknown<'a>(what: &str, name: &str, known: impl Iterator<Item = &'a str>) -> String {
    let nearest = known.map(|known| (distance(name, known), known)).min();
    match nearest {
        Some((distance, known)) if distance <= 1 + name.len() / 4 => {
            format!("is no known {what}; did you mean {known}?")
        }
        _ => format!("is no known {what}; `charter config` lists all of them"),
    }
}

/// Levenshtein's edit distance.
fn distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (i, from) in left.chars().enumerate() {
        let mut corner = i;
        row[0] = i + 1;
        for (j, to) in right.iter().enumerate() {
            let step = if from == *to { corner } else { 1 + corner.min(row[j]).min(row[j + 1]) };
            corner = std::mem::replace(&mut row[j + 1], step);
        }
    }
    row[right.len()]
}

/// A name as it stands within a variable.
fn variable_part(name: &str) -> String {
    name.to_uppercase().replace(['.', '-'], "_")
}

/// The settings of one section.
pub(super) struct Section<'a> {
    source: &'a mut Source,
    name: String,
}

impl Section<'_> {
    /// A setting that may be left out.
    pub(super) fn optional<T: Setting>(
        &mut self,
        key: &'static str,
        about: &'static str,
    ) -> Option<T> {
        self.note(key, String::new(), about);
        self.read(key)
    }

    /// A setting with a default.
    pub(super) fn take<T: Setting>(
        &mut self,
        key: &'static str,
        default: T,
        about: &'static str,
    ) -> T {
        self.note(key, default.show(), about);
        self.read(key).unwrap_or(default)
    }

    /// A number with a default, within a range.
    pub(super) fn within<T: Setting + PartialOrd + Copy>(
        &mut self,
        key: &'static str,
        default: T,
        (least, most): (T, T),
        about: &'static str,
    ) -> T {
        let value = self.take(key, default, about);
        if value < least || value > most {
            let message = format!("must be from {} to {}", least.show(), most.show());
            self.fault(key, message);
            return default;
        }
        value
    }

    /// One of a few words.
    pub(super) fn choice<T: Copy>(
        &mut self,
        key: &'static str,
        choices: &[(&'static str, T)],
        about: &'static str,
    ) -> Option<T> {
        let default = choices.first()?;
        self.note(key, format!("\"{}\"", default.0), about);
        let Some(word) = self.read::<String>(key) else { return Some(default.1) };
        if let Some((_, value)) = choices.iter().find(|(name, _)| *name == word) {
            return Some(*value);
        }
        let words = choices.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
        self.fault(key, format!("is {word:?}; it must be one of: {words}"));
        Some(default.1)
    }

    /// Notes a fault of one of this section's keys, under the name that the person used.
    pub(super) fn fault(&mut self, key: &str, message: impl Into<String>) {
        let full = format!("{}.{key}", self.name);
        let variable = self.variable(key);
        let shown = if let Some((flag, _)) = self.source.flags.get(&full) {
            (*flag).to_owned()
        } else if self.source.environment.contains_key(&variable) {
            variable
        } else {
            full
        };
        self.source.fault(shown, message);
    }

    fn note(&mut self, key: &str, default: String, about: &'static str) {
        let full = format!("{}.{key}", self.name);
        if self.source.asked.insert(full.clone()) {
            self.source.entries.push(Entry { key: full, default, about });
        }
        let variable = self.variable(key);
        self.source.asked_variables.insert(variable);
    }

    fn variable(&self, key: &str) -> String {
        format!("CHARTER_{}_{}", variable_part(&self.name), key.to_uppercase())
    }

    fn read<T: Setting>(&mut self, key: &str) -> Option<T> {
        let full = format!("{}.{key}", self.name);
        let raw = if let Some((_, text)) = self.source.flags.get(&full) {
            Raw::Text(text.clone())
        } else if let Some(text) =
            self.source.environment.get(&self.variable(key)).filter(|text| !text.is_empty())
        {
            Raw::Text(text.clone())
        } else {
            Raw::Toml(self.source.file.get(&self.name)?.get(key)?.clone())
        };
        match T::read(&raw) {
            Ok(value) => Some(value),
            Err(message) => {
                self.fault(key, message);
                None
            }
        }
    }
}
