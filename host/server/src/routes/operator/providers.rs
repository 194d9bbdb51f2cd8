//! Bindings: which provider answers for a name.

use charter_adapters::kinds::Wish;
use charter_kernel::refusal::Refusal;
use charter_store::Txn;
use serde_json::{Value, json};

use crate::app::App;
use crate::hooks;
use crate::mail::relay;
use crate::providers::{Binding, BindingFault, BindingInput, Whose};
use crate::public;
use crate::reply::Reply;
use crate::request::HostRequest;
use crate::routes::shape;

/// Characters of a binding's name.
const NAME_CHARS_MAX: usize = 80;

fn whose() -> Value {
    json!({"oneOf": [
        {"const": "deployment"},
        shape::object(&[("organization", shape::id())]),
        shape::object(&[("project", shape::id())]),
    ]})
}

fn binding() -> Value {
    shape::object(&[
        ("name", json!({"type": "string"})),
        ("kind", json!({"type": "string"})),
        ("url", json!({"type": "string"})),
        ("credential", json!({"enum": ["set", "none"]})),
        ("webhook_secret", json!({"enum": ["set", "none"]})),
        ("webhook_secret_previous", json!({"enum": ["set", "none"]})),
        ("webhook_url", json!({"type": ["string", "null"]})),
        ("options", json!({"type": "object"})),
        ("scope", whose()),
        ("source", json!({"enum": ["configuration", "api"]})),
    ])
}

/// The list's schema.
pub fn list_answer() -> Value {
    shape::object(&[("providers", json!({"type": "array", "items": binding()}))])
}

/// One binding's schema.
pub fn answer() -> Value {
    shape::object(&[("provider", binding())])
}

/// What a removal answers.
pub fn delete_answer() -> Value {
    shape::object(&[("name", json!({"type": "string"})), ("deleted", json!({"const": true}))])
}

/// Whose binding is meant; the deployment's where neither is given.
pub fn query() -> Value {
    shape::object(&[("organization_id?", shape::id()), ("project_id?", shape::id())])
}

/// What is set.
pub fn body() -> Value {
    shape::object(&[
        ("kind", json!({"type": "string", "minLength": 1, "maxLength": 64})),
        ("url", json!({"type": "string", "minLength": 1, "maxLength": 2048})),
        ("credential?", json!({"type": ["string", "null"], "maxLength": 16384, "writeOnly": true})),
        (
            "webhook_secret?",
            json!({"type": ["string", "null"], "maxLength": 1024, "writeOnly": true}),
        ),
        (
            "webhook_secret_previous?",
            json!({"type": ["string", "null"], "maxLength": 1024, "writeOnly": true}),
        ),
        ("options?", json!({"type": "object"})),
        ("scope?", whose()),
    ])
}

fn of_query(request: &HostRequest) -> Whose {
    if let Some(id) = request.query_text("project_id") {
        return Whose::Project(id.to_owned());
    }
    request
        .query_text("organization_id")
        .map_or(Whose::Deployment, |id| Whose::Organization(id.to_owned()))
}

/// A binding, and where its provider is to call, where it does.
fn shown(app: &App, binding: &Binding) -> Value {
    let mut shown = binding.shown();
    let address =
        || format!("{}{}", public::base(&app.adapters), hooks::provider_path(&binding.name));
    shown["webhook_url"] = Binding::calls(&binding.kind).then(address).into();
    shown
}

fn failed(error: &BindingFault) -> Refusal {
    if let BindingFault::Elsewhere(field) = error {
        return Refusal::invalid(
            *field,
            "must be given again, or as null: the address has another origin, and a secret goes nowhere else by itself",
        );
    }
    tracing::error!(error = error as &dyn std::error::Error, "a binding could not be read or set");
    Refusal::overloaded(1)
}

/// `GET /v1/operator/providers`
pub async fn list(app: &App, _: &HostRequest, _: &mut Txn) -> Result<Reply, Refusal> {
    let all: Vec<Value> =
        app.adapters.providers.all().iter().map(|binding| shown(app, binding)).collect();
    Ok(Reply::ok(&json!({"providers": all})))
}

/// `GET /v1/operator/providers/{binding}`
pub async fn get(app: &App, request: &HostRequest, _: &mut Txn) -> Result<Reply, Refusal> {
    let binding = app
        .adapters
        .providers
        .get(request.parameter("binding"), &of_query(request))
        .ok_or_else(Refusal::not_found)?;
    Ok(Reply::ok(&json!({"provider": shown(app, &binding)})))
}

/// `PUT /v1/operator/providers/{binding}`
pub async fn put(app: &App, request: &HostRequest, _: &mut Txn) -> Result<Reply, Refusal> {
    let name = request.parameter("binding");
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-._".contains(c);
    if name.is_empty() || name.len() > NAME_CHARS_MAX || !name.chars().all(fits) {
        return Err(Refusal::invalid(
            "binding",
            "A binding's name has lower-case letters, digits, dots and dashes only.",
        ));
    }
    let input: BindingInput = request.body_as()?;
    let calls = [&input.webhook_secret, &input.webhook_secret_previous]
        .into_iter()
        .any(|secret| matches!(secret, Some(Some(_))));
    if calls && !Binding::calls(&input.kind) {
        let told = "is for providers that call, and none of this kind does";
        return Err(Refusal::invalid("webhook_secret", told));
    }
    fits_kind(app, name, &input)?;
    let details = json!({"kind": input.kind});
    let row = super::row(request, "operator.providers.put", 200, ("provider", name), &details)?;
    let binding =
        app.adapters.providers.set(name, input, row).await.map_err(|error| failed(&error))?;
    Ok(Reply::ok(&json!({"provider": shown(app, &binding)})).audited())
}

/// Refuses what its kind has no use for.
fn fits_kind(app: &App, name: &str, input: &BindingInput) -> Result<(), Refusal> {
    let kept = || {
        app.adapters
            .providers
            .get(name, &input.scope)
            .is_some_and(|binding| binding.credential.is_some())
    };
    let credential = match &input.credential {
        None => kept(),
        Some(given) => given.as_deref().is_some_and(|text| !text.is_empty()),
    };
    let options = Value::Object(input.options.clone());
    let wish = Wish { name, kind: &input.kind, url: &input.url, options: &options, credential };
    if let Some((field, message)) = wish.fault() {
        return Err(Refusal::invalid(field, message));
    }
    if name != relay::BINDING {
        return Ok(());
    }
    if input.scope != Whose::Deployment {
        return Err(Refusal::invalid(
            "scope",
            "must be deployment: what the host mails goes through one relay",
        ));
    }
    match public::base_of_links(&app.adapters) {
        Some(_) => Ok(()),
        None => Err(Refusal::state_conflict(
            "public_url_missing",
            "The links in mails would lead nowhere.",
        )
        .hint("Set http.public_url, and start the host anew.")),
    }
}

/// `DELETE /v1/operator/providers/{binding}`
pub async fn delete(app: &App, request: &HostRequest, _: &mut Txn) -> Result<Reply, Refusal> {
    let name = request.parameter("binding");
    let whose = of_query(request);
    if app.adapters.providers.get(name, &whose).is_some_and(|binding| binding.configured) {
        return Err(Refusal::state_conflict(
            "configured",
            "The binding comes from the configuration: remove it there.",
        ));
    }
    let about = ("provider", name);
    let row = super::row(request, "operator.providers.delete", 200, about, &Value::Null)?;
    let removed = app.adapters.providers.remove(name, &whose, row).await;
    match removed.map_err(|error| failed(&error))? {
        true => Ok(Reply::ok(&json!({"name": name, "deleted": true})).audited()),
        false => Err(Refusal::not_found()),
    }
}
