//! Bindings: which provider answers for a name.

use charter_adapters::hooks;
use charter_adapters::kinds::Wish;
use charter_adapters::mail::relay;
use charter_adapters::providers::{Binding, BindingFault, BindingInput, BindingReport, Whose};
use charter_adapters::public;
use charter_kernel::authority::Class;
use charter_kernel::id::{OrganizationId, ProjectId};
use charter_kernel::refusal::Refusal;
use charter_store::Txn;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::app::App;
use crate::handler;
use crate::request::HostRequest;
use crate::route::HostRoute;
use crate::routes::shape::{Optional, Yes};
use crate::serve::{Answer, Body, Params};

/// Characters of a binding's name.
const NAME_CHARS_MAX: usize = 80;

/// The rows of bindings.
pub fn routes() -> Vec<HostRoute> {
    vec![
        HostRoute::get(
            Class::Operator,
            "operator.providers.list",
            "/providers",
            handler!(list_providers),
        )
        .operator()
        .summary("Every binding, without credentials"),
        HostRoute::get(
            Class::Operator,
            "operator.providers.get",
            "/providers/{binding}",
            handler!(get_provider),
        )
        .operator()
        .summary("One binding, without its credential"),
        HostRoute::put(
            Class::Operator,
            "operator.providers.put",
            "/providers/{binding}",
            handler!(put_provider),
        )
        .operator()
        .summary("Bind a provider"),
        HostRoute::delete(
            Class::Operator,
            "operator.providers.delete",
            "/providers/{binding}",
            handler!(delete_provider),
        )
        .operator()
        .summary("Remove a binding"),
    ]
}

/// The query: the binding of the deployment where neither is given.
#[derive(Deserialize, JsonSchema)]
pub struct ScopeQuery {
    /// The binding of this organization.
    #[schemars(with = "Optional<OrganizationId>")]
    organization_id: Optional<String>,
    /// The binding of this project.
    #[schemars(with = "Optional<ProjectId>")]
    project_id: Optional<String>,
}

/// The tenants whose binding a request names: as it says, where an earlier build has kept one so,
/// else in the one spelling that is compared.
///
/// # Errors
/// 400 where it names both: a binding is of one scope.
fn whose(app: &App, request: &HostRequest, asked: ScopeQuery) -> Result<Whose, Refusal> {
    let named = match (asked.project_id.0, asked.organization_id.0) {
        (Some(_), Some(_)) => {
            let told = "A binding is of an organization or of a project: name one of them.";
            return Err(Refusal::invalid("organization_id", told));
        }
        (Some(id), None) => Whose::Project(id),
        (None, Some(id)) => Whose::Organization(id),
        (None, None) => Whose::Deployment,
    };
    Ok(match app.adapters.providers.get(request.parameter("binding"), &named) {
        Some(_) => named,
        None => named.canonical(),
    })
}

/// Every binding.
#[derive(Serialize, JsonSchema)]
pub struct ProviderList {
    providers: Vec<BindingReport>,
}

/// One binding.
#[derive(Serialize, JsonSchema)]
pub struct ProviderAnswer {
    provider: BindingReport,
}

/// The answer to a removal.
#[derive(Serialize, JsonSchema)]
pub struct RemovedProvider {
    /// The binding's name.
    name: String,
    deleted: Yes,
}

/// A binding, and the address that its provider is to call, if it does.
fn report(app: &App, binding: &Binding) -> BindingReport {
    let address =
        || format!("{}{}", public::base(&app.adapters), hooks::provider_path(&binding.name));
    binding.report(Binding::calls(&binding.kind).then(address))
}

fn binding_refusal(error: &BindingFault) -> Refusal {
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
pub async fn list_providers(
    app: &App,
    _: &HostRequest,
    _: &mut Txn,
) -> Result<Answer<ProviderList>, Refusal> {
    let all = app.adapters.providers.all();
    let providers = all.iter().map(|binding| report(app, binding)).collect();
    Ok(Answer::of(&ProviderList { providers }))
}

/// `GET /v1/operator/providers/{binding}`
pub async fn get_provider(
    app: &App,
    request: &HostRequest,
    _: &mut Txn,
    Params(asked): Params<ScopeQuery>,
) -> Result<Answer<ProviderAnswer>, Refusal> {
    let binding = app
        .adapters
        .providers
        .get(request.parameter("binding"), &whose(app, request, asked)?)
        .ok_or_else(Refusal::not_found)?;
    Ok(Answer::of(&ProviderAnswer { provider: report(app, &binding) }))
}

/// `PUT /v1/operator/providers/{binding}`
pub async fn put_provider(
    app: &App,
    request: &HostRequest,
    _: &mut Txn,
    Body(input): Body<BindingInput>,
) -> Result<Answer<ProviderAnswer>, Refusal> {
    let name = request.parameter("binding");
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-._".contains(c);
    if name.is_empty() || name.len() > NAME_CHARS_MAX || !name.chars().all(fits) {
        return Err(Refusal::invalid(
            "binding",
            "A binding's name has lower-case letters, digits, dots and dashes only.",
        ));
    }
    let calls = [&input.webhook_secret, &input.webhook_secret_previous]
        .into_iter()
        .any(|secret| matches!(secret, Some(Some(_))));
    if calls && !Binding::calls(&input.kind) {
        let told = "is for providers that call, and none of this kind does";
        return Err(Refusal::invalid("webhook_secret", told));
    }
    fits_kind(app, name, &input)?;
    let details = json!({"kind": input.kind});
    let act = super::act(request, "operator.providers.put", 200, ("provider", name), &details)?;
    let binding = app
        .adapters
        .providers
        .set(name, input, act)
        .await
        .map_err(|error| binding_refusal(&error))?;
    Ok(Answer::of(&ProviderAnswer { provider: report(app, &binding) }).mark_audited())
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
        Some(given) => given.as_ref().is_some_and(|secret| !secret.reveal().is_empty()),
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
pub async fn delete_provider(
    app: &App,
    request: &HostRequest,
    _: &mut Txn,
    Params(asked): Params<ScopeQuery>,
) -> Result<Answer<RemovedProvider>, Refusal> {
    let name = request.parameter("binding");
    let whose = whose(app, request, asked)?;
    if app.adapters.providers.get(name, &whose).is_some_and(|binding| binding.configured) {
        return Err(Refusal::state_conflict(
            "configured",
            "The binding comes from the configuration: remove it there.",
        ));
    }
    let about = ("provider", name);
    let act = super::act(request, "operator.providers.delete", 200, about, &Value::Null)?;
    let removed = app.adapters.providers.remove(name, &whose, act).await;
    match removed.map_err(|error| binding_refusal(&error))? {
        true => {
            let answer = RemovedProvider { name: name.to_owned(), deleted: Yes };
            Ok(Answer::of(&answer).mark_audited())
        }
        false => Err(Refusal::not_found()),
    }
}
