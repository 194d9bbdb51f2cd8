//! The OpenAPI 3.1 description: every route of the host and every operation of the live primitives,
//! at each mount.
//!
//! Read from the declarations and nothing else, and made once for each state of the registry.

use bytes::Bytes;
use charter_kernel::manifest::Mount;
use charter_registry::served::template_at;
use serde_json::{Map, Value, json};

use crate::app::App;

mod operation;
mod schemas;

use operation::Described;
use schemas::Schemas;

/// The version of the API, as its specification counts.
const API_VERSION: &str = "2.0.0";

/// The document as JSON text.
pub fn text(app: &App) -> Bytes {
    let revision = app.registry.current().revision();
    app.description.text(revision, || Bytes::from(document(app).to_string()))
}

/// The document.
pub fn document(app: &App) -> Value {
    let mut paths: Map<String, Value> = Map::new();
    let mut tags = vec![
        json!({"name": "host", "description": "The platform itself: accounts, users, kits, status."}),
    ];
    let mut schemas = Schemas::default();
    for entry in app.routes.entries() {
        for mount in entry.route.mounts {
            let described = Described::host(&entry.route, *mount);
            add(
                &mut paths,
                *mount,
                entry.route.path,
                entry.route.method,
                described.write(&mut schemas),
            );
        }
    }
    for primitive in app.registry.current().primitives() {
        let manifest = &primitive.active().manifest;
        tags.push(json!({"name": manifest.name, "description": manifest.summary}));
        for declared in &manifest.operations {
            for mount in declared.mounts() {
                let described = Described::guest(manifest, declared, *mount);
                add(
                    &mut paths,
                    *mount,
                    &declared.path,
                    &declared.method,
                    described.write(&mut schemas),
                );
            }
        }
    }
    let servers = app
        .config
        .http
        .public_url
        .as_ref()
        .map_or_else(|| json!([{"url": "/"}]), |url| json!([{"url": url}]));
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Charter",
            "version": API_VERSION,
            "description": INTRODUCTION,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": servers,
        "tags": tags,
        "paths": paths,
        "components": {
            "securitySchemes": {
                "key": {"type": "http", "scheme": "bearer", "description": "A workspace API key."},
                "session": {"type": "apiKey", "in": "cookie", "name": crate::pipeline::identify::COOKIE, "description": "A signed-in person; changes need X-Service-CSRF."},
                "operator": {"type": "http", "scheme": "bearer", "description": "The operator's token."},
            },
            "schemas": schemas.into_components(),
        },
    })
}

const INTRODUCTION: &str = "Each route below /v1 is also served below /v1/projects/{project_id}. Lists, errors and idempotency work the same way everywhere; \
see x-request-id on every response.";

fn add(paths: &mut Map<String, Value>, mount: Mount, path: &str, method: &str, operation: Value) {
    // A tail parameter has no spelling in OpenAPI: it reads as a plain one.
    let path = template_at(mount, path).replace("*}", "}");
    let item = paths.entry(path).or_insert_with(|| json!({}));
    if let Some(members) = item.as_object_mut() {
        members.insert(method.to_ascii_lowercase(), operation);
    }
}
