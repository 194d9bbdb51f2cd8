//! Components: install, activate, roll back, remove, look at.
//!
//! Each step commits by itself in the registry, its audit row with it, before the request's own
//! commit: taking it again changes nothing.

use std::collections::BTreeSet;

use charter_kernel::refusal::Refusal;
use charter_kernel::unit::Fact;
use charter_store::Txn;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::app::App;
use crate::components::{
    Activated, Consent, LifeCycleError, Upload, Version, digest_of, shown_version,
};
use crate::reply::Reply;
use crate::request::HostRequest;
use crate::routes::shape;

/// Who acts, in the activation's row.
const BY: &str = "operator";

fn digest() -> Value {
    json!({"type": "string", "pattern": "^(sha256:)?[0-9a-f]{64}$"})
}

fn version() -> Value {
    let text = || json!({"type": "string"});
    json!({
        "type": "object",
        "properties": {
            "name": text(), "version": text(), "digest": text(),
            "state": {"enum": ["staged", "active", "draining", "retired", "quarantined"]},
            "installed_at": shape::instant(),
            "reason": {"type": ["string", "null"]},
            "asks": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["name", "version", "digest", "state", "installed_at", "reason", "asks"],
    })
}

fn summary() -> Value {
    json!({
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "title": {"type": ["string", "null"]},
            "active": {"anyOf": [version(), {"type": "null"}]},
            "versions_installed": {"type": "integer"},
            "calls": {"type": "integer"},
            "traps": {"type": "integer"},
            "p50_us": {"type": "integer"},
            "p99_us": {"type": "integer"},
        },
        "required": ["name", "active", "versions_installed", "calls", "traps"],
    })
}

/// The list's schema.
pub fn list_answer() -> Value {
    shape::object(&[("components", json!({"type": "array", "items": summary()}))])
}

/// One primitive's schema.
pub fn detail_answer() -> Value {
    shape::object(&[("component", summary())])
}

/// One version's schema.
pub fn answer() -> Value {
    json!({
        "type": "object",
        "properties": {"component": version(), "previous": {"type": ["string", "null"]}, "changed": {"type": "boolean"}},
        "required": ["component"],
    })
}

/// The query of an upload.
pub fn put_query() -> Value {
    shape::object(&[
        ("activate?", json!({"type": "boolean", "default": false})),
        ("agree?", agree()),
    ])
}

/// What the operator agrees to: `*`, or what the component asks for with commas between.
fn agree() -> Value {
    json!({"type": "string", "maxLength": 4_096})
}

/// The body of an activation.
pub fn activate_body() -> Value {
    shape::object(&[("digest", digest()), ("agree?", agree())])
}

/// The body of a rollback.
pub fn rollback_body() -> Value {
    shape::object(&[("from?", digest())])
}

/// What a removal answers.
pub fn delete_answer() -> Value {
    shape::object(&[("digest", digest()), ("deleted", json!({"const": true}))])
}

/// `GET /v1/operator/components`
pub async fn list(app: &App, _: &HostRequest, _: &mut Txn) -> Result<Reply, Refusal> {
    Ok(Reply::ok(&json!({"components": app.registry.listed()})))
}

/// `GET /v1/operator/components/{name}`
pub async fn get(app: &App, request: &HostRequest, _: &mut Txn) -> Result<Reply, Refusal> {
    let name = request.parameter("name");
    let mut component =
        app.registry.detailed(name).ok_or_else(|| LifeCycleError::Absent(name.to_owned()))?;
    component["memory_bytes_max"] = json!(app.config.engine.memory_bytes_max);
    Ok(Reply::ok(&json!({"component": component})))
}

/// `PUT /v1/operator/components/{name}`
pub async fn put(app: &App, request: &HostRequest, _: &mut Txn) -> Result<Reply, Refusal> {
    let signature = request
        .headers
        .get("x-component-signature")
        .and_then(|value| value.to_str().ok())
        .map(str::to_owned);
    let name = request.parameter("name");
    let upload = Upload { name: Some(name.to_owned()), bytes: request.bytes.clone(), signature };
    let kept = row(request, "operator.components.put", 201);
    let installed = app.registry.install(upload, &kept).await?;
    let version = installed.version;
    if request.query.get("activate").and_then(Value::as_bool) == Some(true) {
        let consent = Consent::read(request.query_text("agree").unwrap_or_default());
        let row = row(request, "operator.components.activate", 201);
        let (name, digest) = (&version.name, &version.digest);
        let activated = app.registry.activate(name, digest, BY, &consent, &row).await?;
        return Ok(Reply::created(&shown(&activated)).audited());
    }
    let body =
        json!({"component": shown_version(&version, &BTreeSet::new()), "changed": installed.fresh});
    Ok(Reply::created(&body).audited())
}

/// `POST /v1/operator/components/{name}/activate`
pub async fn activate(app: &App, request: &HostRequest, _: &mut Txn) -> Result<Reply, Refusal> {
    #[derive(Deserialize)]
    struct Body {
        digest: String,
        #[serde(default)]
        agree: String,
    }
    let body: Body = request.body_as()?;
    let (name, digest) = (request.parameter("name"), digest_of(&body.digest));
    let consent = Consent::read(&body.agree);
    let row = row(request, "operator.components.activate", 200);
    let activated = app.registry.activate(name, &digest, BY, &consent, &row).await?;
    Ok(Reply::ok(&shown(&activated)).audited())
}

/// `POST /v1/operator/components/{name}/rollback`
pub async fn rollback(app: &App, request: &HostRequest, _: &mut Txn) -> Result<Reply, Refusal> {
    let from = request.body.get("from").and_then(Value::as_str).map(digest_of);
    let row = row(request, "operator.components.rollback", 200);
    let name = request.parameter("name");
    let activated = app.registry.rollback(name, from.as_deref(), BY, &row).await?;
    Ok(Reply::ok(&shown(&activated)).audited())
}

/// `DELETE /v1/operator/components/{name}/{digest}`
pub async fn delete(app: &App, request: &HostRequest, _: &mut Txn) -> Result<Reply, Refusal> {
    let digest = digest_of(request.parameter("digest"));
    let row = row(request, "operator.components.delete", 200);
    app.registry.remove(request.parameter("name"), &digest, &row).await?;
    Ok(Reply::ok(&json!({"digest": digest, "deleted": true})).audited())
}

fn shown(activated: &Activated) -> Value {
    json!({
        "component": shown_version(&activated.active, &BTreeSet::new()),
        "previous": activated.previous,
        "changed": activated.changed,
    })
}

/// The audit row of a step, whether or not it changes anything.
fn row(
    request: &HostRequest,
    operation: &'static str,
    status: u16,
) -> impl Fn(&Version, bool) -> Option<Fact> {
    move |version, _| {
        let details = json!({"version": version.version, "digest": version.digest});
        super::row(request, operation, status, ("component", &version.name), &details).ok()
    }
}
