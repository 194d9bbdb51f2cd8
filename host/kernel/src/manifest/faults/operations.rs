//! The rules about operations: ids, paths, mounts, authentication, schemas and what they refer to.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{Manifest, Mount, Operation, compiles, names, paths_of, unique};
use crate::class::Class;
use crate::fault::Fault;
use crate::limits::SHORT_DEADLINE_MS_MAX;
use crate::route::{Segment, Table, Template};

/// Request headers that carry credentials: no guest sees one.
const CREDENTIAL_HEADERS: [&str; 5] =
    ["authorization", "cookie", "proxy-authorization", "x-service-csrf", "idempotency-key"];

/// First words of paths that nobody but the operator of the address may answer: what browsers,
/// crawlers and certificate authorities ask for by themselves, and what people take for the
/// service's own pages.
const ROOT_RESERVED: [&str; 17] = [
    ".well-known",
    "apple-app-site-association",
    "apple-touch-icon.png",
    "clientaccesspolicy.xml",
    "crossdomain.xml",
    "dashboard",
    "favicon.ico",
    "index.html",
    "invitation",
    "invite",
    "login",
    "logout",
    "robots.txt",
    "security.txt",
    "signin",
    "signup",
    "sitemap.xml",
];

pub(super) fn check(manifest: &Manifest, faults: &mut Vec<Fault>) {
    let mut table = Table::new();
    for (at, operation) in manifest.operations.iter().enumerate() {
        let mut own = Vec::new();
        identity(manifest, operation, &mut own);
        paths(operation, &mut table, &mut own);
        authentication(manifest, operation, &mut own);
        content(operation, &mut own);
        time(operation, &mut own);
        schemas(operation, &mut own);
        references(manifest, operation, &mut own);
        paying(manifest, operation, at, &mut own);
        faults.extend(own.into_iter().map(|fault| fault.within(&format!("operations.{at}"))));
    }
    unique(
        manifest
            .operations
            .iter()
            .enumerate()
            .map(|(at, op)| (format!("operations.{at}.id"), op.id.as_str())),
        faults,
    );
}

fn identity(manifest: &Manifest, operation: &Operation, faults: &mut Vec<Fault>) {
    if !names::belongs(&operation.id, &manifest.name) {
        let message = format!(
            "must be {}.<verb>, the verb in lower-case letters, digits and underscores",
            manifest.name
        );
        faults.push(Fault::new("id", message));
    }
    if operation.deprecated == Some(true) && manifest.deprecation.is_none() {
        faults.push(Fault::new(
            "deprecated",
            "must be left out: the manifest has no deprecation that it could belong to",
        ));
    }
}

fn paths(operation: &Operation, table: &mut Table<()>, faults: &mut Vec<Fault>) {
    let template = match Template::parse(&operation.path) {
        Ok(template) if template.segments().is_empty() => {
            return faults.push(Fault::new("path", "must name something below its mount"));
        }
        Ok(template) => template,
        Err(found) => {
            return faults.extend(found.into_iter().map(|message| Fault::new("path", message)));
        }
    };
    for (mount, path) in paths_of(operation) {
        if mount == Mount::Root
            && let Some(message) = at_root(&template)
        {
            faults.push(Fault::new("path", message));
        }
        match Template::parse(&path).map(|full| table.insert("", &operation.method, full, ())) {
            Ok(Ok(())) => {}
            Ok(Err(overlap)) => {
                faults.push(Fault::new(
                    "path",
                    format!("is taken: another operation has {} {}", overlap.method, overlap.other),
                ));
            }
            Err(found) => faults.extend(
                found
                    .into_iter()
                    .map(|message| Fault::new("path", format!("{message}, as {path}"))),
            ),
        }
    }
    parameters(&template, operation.path_schema.as_ref(), faults);
}

/// The reason that keeps a path from being served at the root.
fn at_root(template: &Template) -> Option<String> {
    let Some(Segment::Literal(first)) = template.segments().first() else {
        return Some("must begin with a word of its own at the root mount".to_owned());
    };
    let first = first.to_ascii_lowercase();
    if first == "v1" {
        return Some("must not lie below /v1 at the root mount; use the company mount".to_owned());
    }
    ROOT_RESERVED.contains(&first.as_str()).then(|| {
        format!("must not begin with /{first} at the root mount: browsers, certificate authorities or people trust what stands there")
    })
}

/// The schema of the path's parameters must speak of the parameters that there are, of all of them
/// and of no other.
fn parameters(template: &Template, schema: Option<&Value>, faults: &mut Vec<Fault>) {
    let Some(schema) = schema else { return };
    let names: BTreeSet<&str> = template.parameters().collect();
    let described: BTreeSet<&str> = schema
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .map(|(name, _)| name.as_str())
        .collect();
    let required: BTreeSet<&str> = schema
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    for name in names.difference(&described) {
        faults
            .push(Fault::new("path_schema", format!("must describe the path's parameter {name}")));
    }
    for name in described.union(&required).filter(|name| !names.contains(*name)) {
        faults.push(Fault::new(
            "path_schema",
            format!("must not describe {name}: the path has no such parameter"),
        ));
    }
}

/// The classes that an operation may declare, for people.
fn declarable() -> String {
    let mut classes: Vec<&str> =
        Class::ALL.into_iter().filter(|class| class.is_declarable()).map(Class::as_str).collect();
    let last = classes.pop().unwrap_or_default();
    format!("must be {} or {last}, and only where auth is key or session", classes.join(", "))
}

fn authentication(manifest: &Manifest, operation: &Operation, faults: &mut Vec<Fault>) {
    match operation.auth.split_once(':') {
        None if ["key", "session", "operator", "hook", "none"]
            .contains(&operation.auth.as_str()) => {}
        Some(("shared_secret", binding))
            if manifest.providers.iter().any(|provider| provider.name == binding) => {}
        Some(("shared_secret", binding)) => {
            faults.push(Fault::new(
                "auth",
                format!("must name a declared provider, not {binding:?}"),
            ));
        }
        _ => faults.push(Fault::new(
            "auth",
            "must be key, session, operator, hook, shared_secret:<binding> or none",
        )),
    }
    if let Some(class) = operation.authority {
        let by_key = matches!(operation.auth.as_str(), "key" | "session");
        if !by_key || !class.is_declarable() {
            faults.push(Fault::new("authority", declarable()));
        }
        let reads =
            [Class::ProfileRead, Class::DeskRead, Class::ProjectRead, Class::OrganizationRead];
        if operation.action.is_some() && reads.contains(&class) {
            faults.push(Fault::new(
                "authority",
                "must not be a read: the operation takes a regulated action",
            ));
        }
    }
    let mounts = operation.mounts();
    if mounts.contains(&Mount::Operator) && operation.auth != "operator" {
        faults.push(Fault::new("auth", "must be operator at the operator mount"));
    }
    if operation.auth == "operator" && mounts.iter().any(|mount| *mount != Mount::Operator) {
        faults.push(Fault::new("mounts", "must be operator alone where auth is operator"));
    }
    if mounts.contains(&Mount::User) && !["key", "session"].contains(&operation.auth.as_str()) {
        faults.push(Fault::new(
            "mounts",
            "must not hold user: only a key or session can name one of its users",
        ));
    }
    let mut seen = BTreeSet::new();
    if !mounts.iter().all(|mount| seen.insert(*mount)) {
        faults.push(Fault::new("mounts", "must not hold a mount twice"));
    }
}

fn content(operation: &Operation, faults: &mut Vec<Fault>) {
    if operation.method == "GET" && (operation.body.is_some() || operation.consumes.is_some()) {
        faults.push(Fault::new("body", "must be left out: a GET has no body"));
    }
    if operation.body.is_some() && operation.consumes.is_some() {
        faults.push(Fault::new(
            "consumes",
            "must be left out where there is a body schema: a body is JSON or it is not",
        ));
    }
    for (name, media_type) in [("consumes", &operation.consumes), ("produces", &operation.produces)]
    {
        if media_type.as_deref().is_some_and(|text| !is_media_type(text)) {
            faults.push(Fault::new(name, "must be a media type such as text/csv"));
        }
    }
    for (at, header) in operation.headers.iter().enumerate() {
        let path = format!("headers.{at}");
        if header.is_empty()
            || !header.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        {
            faults.push(Fault::new(path, "must be a header's name in lower case"));
        } else if CREDENTIAL_HEADERS.contains(&header.as_str()) {
            faults.push(Fault::new(
                path,
                format!("must not be {header}: the host reads it and no guest sees it"),
            ));
        }
    }
}

/// Short calls share their places: one that waits long holds up everybody else's.
fn time(operation: &Operation, faults: &mut Vec<Fault>) {
    let asked = operation.deadline_ms.unwrap_or(0);
    if operation.class == crate::manifest::CallLength::Short && asked > SHORT_DEADLINE_MS_MAX {
        let message = format!(
            "must be at most {SHORT_DEADLINE_MS_MAX} for {}, whose class is short; set `class` to long",
            operation.id
        );
        faults.push(Fault::new("deadline_ms", message));
    }
}

fn is_media_type(text: &str) -> bool {
    let token = |part: &str| {
        !part.is_empty()
            && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$&-^_.+*".contains(&b))
    };
    text.split_once('/').is_some_and(|(kind, rest)| {
        token(kind) && token(rest.split(';').next().unwrap_or_default().trim_end())
    })
}

fn schemas(operation: &Operation, faults: &mut Vec<Fault>) {
    compiles(operation.path_schema.as_ref(), "path_schema", faults);
    compiles(operation.query.as_ref(), "query", faults);
    compiles(operation.body.as_ref(), "body", faults);
    compiles(operation.answer.as_ref(), "answer", faults);
    for (status, schema) in &operation.answers {
        let path = format!("answers.{status}");
        compiles(Some(schema), &path, faults);
        if !status.parse::<u16>().is_ok_and(|status| (200..=599).contains(&status)) {
            faults.push(Fault::new(path, "must be under an HTTP status from 200 to 599"));
        }
    }
    for (name, schema) in [("path_schema", &operation.path_schema), ("query", &operation.query)] {
        if let Some(schema) = schema
            && schema.get("type").and_then(Value::as_str) != Some("object")
        {
            faults.push(Fault::new(
                name,
                "must be of type object: its properties are the parameters",
            ));
        }
    }
}

/// A caller that is refused is told a method and a path that can be used as they are, one of each.
fn paying(manifest: &Manifest, operation: &Operation, at: usize, faults: &mut Vec<Fault>) {
    let Some(pays) = operation.pays else { return };
    if operation.path.contains('{') || !operation.mounts().contains(&Mount::Company) {
        faults.push(Fault::new(
            "pays",
            "must be left out but at the company mount, on a path without parameters",
        ));
    }
    if manifest.operations[..at].iter().any(|other| other.pays == Some(pays)) {
        faults.push(Fault::new("pays", format!("must not be {} twice", pays.as_str())));
    }
}

fn references(manifest: &Manifest, operation: &Operation, faults: &mut Vec<Fault>) {
    for (at, need) in operation.needs.iter().enumerate() {
        if !manifest.providers.iter().any(|provider| &provider.name == need) {
            faults.push(Fault::new(
                format!("needs.{at}"),
                format!("must name a declared provider, not {need:?}"),
            ));
        }
    }
    if let Some(name) = &operation.action
        && !manifest.actions.iter().any(|action| &action.name == name)
    {
        faults.push(Fault::new("action", format!("must name a declared action, not {name:?}")));
    }
}
