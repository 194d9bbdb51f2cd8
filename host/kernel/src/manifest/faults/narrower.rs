//! The duty of a newer live version to an older one: it must not forbid what the older may have
//! written.
//!
//! Documents are shared, so after a swap the newer reads what the older wrote, and after a rollback
//! the other way round. The comparison is structural and errs towards refusing: what it cannot
//! compare must stay equal.

use std::collections::BTreeSet;

use serde_json::Value;

use super::Manifest;
use crate::fault::{Fault, join};
use crate::limits::FAULTS_MAX;
use crate::manifest::Collection;

/// Levels of a schema that are compared.
const DEPTH_MAX: usize = 32;
/// Pairs of subschemas that are compared for one collection. Two ways may lead to one pair, so that
/// the ways of a small schema are more than can be gone.
const PAIRS_MAX: usize = 10_000;

/// Every collection and index of `new` that is narrower than `old`'s, a version that is still live.
pub fn narrowings(old: &Manifest, new: &Manifest) -> Vec<Fault> {
    let mut faults = Vec::new();
    for before in &old.collections {
        match new.collections.iter().position(|after| after.name == before.name) {
            None => faults.push(Fault::new(
                "collections",
                format!("must still hold {}, which version {} uses", before.name, old.version),
            )),
            Some(at) => {
                let mut own = Vec::new();
                collection(before, &new.collections[at], &mut own);
                let within = |fault: Fault| fault.within(&format!("collections.{at}"));
                faults.extend(own.into_iter().map(within).map(|fault| Fault {
                    message: format!("{}, as in the live version {}", fault.message, old.version),
                    ..fault
                }));
            }
        }
    }
    faults
}

fn collection(before: &Collection, after: &Collection, faults: &mut Vec<Fault>) {
    if before.reach != after.reach {
        faults.push(Fault::new("reach", "must stay"));
    }
    if before.leased != after.leased {
        faults.push(Fault::new("leased", "must stay"));
    }
    for index in &before.indexes {
        match after.indexes.iter().find(|other| other.field == index.field) {
            Some(other) if other.kind == index.kind => {}
            Some(_) => {
                faults.push(Fault::new("indexes", format!("must keep the type of {}", index.field)))
            }
            None => faults.push(Fault::new("indexes", format!("must keep {}", index.field))),
        }
    }
    if before.unique.iter().collect::<BTreeSet<_>>() != after.unique.iter().collect() {
        faults.push(Fault::new("unique", format!("must stay [{}]", before.unique.join(", "))));
    }
    for field in before.searchable.iter().filter(|field| !after.searchable.contains(field)) {
        faults.push(Fault::new("searchable", format!("must keep {field}")));
    }
    if let Some(body) = &after.body {
        let anything = Value::Bool(true);
        let old = before.body.as_ref().unwrap_or(&anything);
        let mut comparison = Comparison { old, new: body, seen: BTreeSet::new() };
        comparison.schemas(old, body, "body", 0, faults);
        if comparison.seen.len() > PAIRS_MAX {
            let message = format!("must stay: it leads to more than {PAIRS_MAX} comparisons");
            faults.push(Fault::new("body", message));
        }
        faults.truncate(FAULTS_MAX);
    }
}

/// A schema that is an object.
type Members = serde_json::Map<String, Value>;

/// Two schemas' documents, for their references, and the pairs that were compared.
struct Comparison<'s> {
    old: &'s Value,
    new: &'s Value,
    seen: BTreeSet<(*const Value, *const Value)>,
}

/// Keywords whose smaller value admits less, and those whose larger does.
const AT_MOST: [&str; 6] =
    ["maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties", "maxContains"];
const AT_LEAST: [&str; 6] =
    ["minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties", "minContains"];
/// Keywords that are compared as a whole.
const WHOLE: [&str; 18] = [
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "if",
    "then",
    "else",
    "pattern",
    "format",
    "const",
    "multipleOf",
    "uniqueItems",
    "contains",
    "prefixItems",
    "patternProperties",
    "propertyNames",
    "dependentRequired",
    "unevaluatedProperties",
];

/// Keywords that explain a value and rule out none.
const ANNOTATIONS: [&str; 8] = [
    "$comment",
    "default",
    "deprecated",
    "description",
    "examples",
    "readOnly",
    "title",
    "writeOnly",
];
/// Keywords whose members are names and no keywords.
const NAMED: [&str; 5] =
    ["$defs", "dependentRequired", "dependentSchemas", "patternProperties", "properties"];
/// Keywords that hold values as they are.
const LITERAL: [&str; 2] = ["const", "enum"];

impl Comparison<'_> {
    fn schemas(
        &mut self,
        old: &Value,
        new: &Value,
        path: &str,
        depth: usize,
        faults: &mut Vec<Fault>,
    ) {
        let (old, new) = (resolve(self.old, old), resolve(self.new, new));
        let pair = (std::ptr::from_ref(old), std::ptr::from_ref(new));
        if self.seen.len() > PAIRS_MAX || !self.seen.insert(pair) {
            return;
        }
        if old == new || depth > DEPTH_MAX || old == &Value::Bool(false) {
            return;
        }
        let empty = Members::new();
        let Some(new) = new.as_object() else {
            if new == &Value::Bool(false) {
                faults.push(Fault::new(path, "must not rule out every value"));
            }
            return;
        };
        let old = old.as_object().unwrap_or(&empty);
        compare_keywords(old, new, |keyword, message| {
            faults.push(Fault::new(join(path, keyword), message))
        });
        self.members(old, new, path, depth, faults);
    }

    fn members(
        &mut self,
        old: &Members,
        new: &Members,
        path: &str,
        depth: usize,
        faults: &mut Vec<Fault>,
    ) {
        let anything = Value::Bool(true);
        let none = serde_json::Map::new();
        let properties =
            |schema: &'_ Members| schema.get("properties").and_then(Value::as_object).cloned();
        let (before, after) = (
            properties(old).unwrap_or_else(|| none.clone()),
            properties(new).unwrap_or_else(|| none.clone()),
        );
        let (old_more, new_more) = (
            old.get("additionalProperties").unwrap_or(&anything),
            new.get("additionalProperties").unwrap_or(&anything),
        );
        for (name, schema) in &before {
            let at = join(&join(path, "properties"), name);
            match after.get(name) {
                Some(now) => self.schemas(schema, now, &at, depth + 1, faults),
                None => self.schemas(schema, new_more, &at, depth + 1, faults),
            }
        }
        // A member that the older version left open may hold anything that it admitted as
        // additional: a new optional member is the everyday change, so its schema is compared only
        // where the older version was written to keep unknown members.
        if old_more != &Value::Bool(false) && old.contains_key("additionalProperties") {
            for (name, now) in after.iter().filter(|(name, _)| !before.contains_key(*name)) {
                self.schemas(
                    old_more,
                    now,
                    &join(&join(path, "properties"), name),
                    depth + 1,
                    faults,
                );
            }
        }
        if new.contains_key("additionalProperties") {
            self.schemas(
                old_more,
                new_more,
                &join(path, "additionalProperties"),
                depth + 1,
                faults,
            );
        }
        if let Some(items) = new.get("items") {
            self.schemas(
                old.get("items").unwrap_or(&anything),
                items,
                &join(path, "items"),
                depth + 1,
                faults,
            );
        }
    }
}

/// Compares the keywords of two schemas that need no look into either.
fn compare_keywords(old: &Members, new: &Members, mut say: impl FnMut(&str, String)) {
    if let Some(kinds) = types(new.get("type")) {
        match types(old.get("type")) {
            Some(before)
                if before.iter().all(|kind| {
                    kinds.contains(kind) || (*kind == "integer" && kinds.contains("number"))
                }) => {}
            Some(before) => say(
                "type",
                format!("must still admit {}", before.into_iter().collect::<Vec<_>>().join(", ")),
            ),
            None => say("type", "must not be asked for".into()),
        }
    }
    if let Some(options) = new.get("enum").and_then(Value::as_array) {
        match old.get("enum").and_then(Value::as_array) {
            Some(before) if before.iter().all(|option| options.contains(option)) => {}
            _ => say("enum", "must still admit every value".into()),
        }
    }
    let required = |schema: &Members| -> BTreeSet<String> {
        let names = schema.get("required").and_then(Value::as_array).into_iter().flatten();
        names.filter_map(Value::as_str).map(Into::into).collect()
    };
    for name in required(new).difference(&required(old)) {
        say("required", format!("must not ask for {name}"));
    }
    for (keywords, tighter) in [(AT_MOST, f64::lt as fn(&f64, &f64) -> bool), (AT_LEAST, f64::gt)] {
        for keyword in keywords {
            let limit = |schema: &Members| schema.get(keyword).and_then(Value::as_f64);
            match (limit(old), limit(new)) {
                (Some(before), Some(after)) if tighter(&after, &before) => {
                    say(keyword, format!("must not be tighter than {before}"))
                }
                (None, Some(_)) => say(keyword, "must not be set".into()),
                _ => {}
            }
        }
    }
    for keyword in WHOLE {
        let Some(now) = new.get(keyword) else { continue };
        if !old.get(keyword).is_some_and(|before| is_same(keyword, before, now)) {
            say(keyword, "must stay: the host cannot tell whether it admits as much".into());
        }
    }
}

/// Whether what stands under a keyword admits the same, however it is explained.
fn is_same(keyword: &str, old: &Value, new: &Value) -> bool {
    if LITERAL.contains(&keyword) {
        return old == new;
    }
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => {
            let counts = |name: &str| NAMED.contains(&keyword) || !ANNOTATIONS.contains(&name);
            let count = |schema: &Members| schema.keys().filter(|name| counts(name)).count();
            count(old) == count(new)
                && old.iter().filter(|(name, _)| counts(name)).all(|(name, before)| {
                    let keyword = if NAMED.contains(&keyword) { "" } else { name.as_str() };
                    new.get(name).is_some_and(|now| is_same(keyword, before, now))
                })
        }
        (Value::Array(old), Value::Array(new)) => {
            old.len() == new.len()
                && old.iter().zip(new).all(|(before, now)| is_same("", before, now))
        }
        _ => old == new,
    }
}

fn types(kind: Option<&Value>) -> Option<BTreeSet<&str>> {
    match kind? {
        Value::String(one) => Some(BTreeSet::from([one.as_str()])),
        Value::Array(several) => Some(several.iter().filter_map(Value::as_str).collect()),
        _ => None,
    }
}

fn resolve<'s>(root: &'s Value, schema: &'s Value) -> &'s Value {
    let mut schema = schema;
    for _ in 0..8 {
        let next = schema
            .get("$ref")
            .and_then(Value::as_str)
            .and_then(|reference| root.pointer(reference.strip_prefix('#')?));
        match next {
            Some(next) => schema = next,
            None => break,
        }
    }
    schema
}
