//! The rules about collections: names, indexed and unique fields, leases, schemas of bodies.

use serde_json::Value;

use super::{Manifest, compiles, names, unique};
use crate::fault::Fault;
use crate::manifest::{Collection, IndexType};

pub(super) fn check(manifest: &Manifest, faults: &mut Vec<Fault>) {
    for (at, collection) in manifest.collections.iter().enumerate() {
        let mut own = Vec::new();
        unique(
            collection
                .indexes
                .iter()
                .enumerate()
                .map(|(at, index)| (format!("indexes.{at}.field"), index.field.as_str())),
            &mut own,
        );
        unique(names::number("unique", collection.unique.iter().map(String::as_str)), &mut own);
        unique(
            names::number("searchable", collection.searchable.iter().map(String::as_str)),
            &mut own,
        );
        compiles(collection.body.as_ref(), "body", &mut own);
        fields(collection, &mut own);
        lease_group(collection, &mut own);
        faults.extend(own.into_iter().map(|fault| fault.within(&format!("collections.{at}"))));
    }
    let collections = manifest.collections.iter().enumerate();
    unique(
        collections
            .map(|(at, collection)| (format!("collections.{at}.name"), collection.name.as_str())),
        faults,
    );
}

/// Declared fields must exist where the body's schema is closed: a misspelt index would silently
/// find nothing.
fn fields(collection: &Collection, faults: &mut Vec<Fault>) {
    let indexed = collection
        .indexes
        .iter()
        .enumerate()
        .map(|(at, index)| (format!("indexes.{at}.field"), &index.field));
    let unique =
        collection.unique.iter().enumerate().map(|(at, field)| (format!("unique.{at}"), field));
    let searchable = collection
        .searchable
        .iter()
        .enumerate()
        .map(|(at, field)| (format!("searchable.{at}"), field));
    for (path, field) in indexed.chain(unique).chain(searchable) {
        if !may_have(collection, field) {
            faults.push(Fault::new(
                path,
                format!("must be a member of the body's schema, which has no {field:?}"),
            ));
        }
    }
}

fn lease_group(collection: &Collection, faults: &mut Vec<Fault>) {
    let Some(leased) = &collection.leased else { return };
    if collection
        .indexes
        .iter()
        .any(|index| index.field == leased.by && index.kind != IndexType::Text)
    {
        faults.push(Fault::new("leased.by", "must be a text: the index declares it otherwise"));
    }
    if !may_have(collection, &leased.by) {
        faults.push(Fault::new(
            "leased.by",
            format!("must be a member of the body's schema, which has no {:?}", leased.by),
        ));
    }
    let kind = collection
        .body
        .as_ref()
        .and_then(|body| member(body, &leased.by))
        .and_then(|schema| schema.get("type"));
    if kind.is_some_and(|kind| kind != "string") {
        faults.push(Fault::new(
            "leased.by",
            "must be a text: the body's schema declares it otherwise",
        ));
    }
}

/// Whether a body can have the field. Only the top level is looked at, and only where the schema is
/// closed.
fn may_have(collection: &Collection, field: &str) -> bool {
    let Some(body) = &collection.body else { return true };
    let closed = body.get("additionalProperties") == Some(&Value::Bool(false));
    let top = field.split('.').next().unwrap_or(field);
    !closed || member(body, top).is_some()
}

fn member<'s>(body: &'s Value, field: &str) -> Option<&'s Value> {
    body.get("properties")?.get(field)
}
