//! The server's answers to a guest's questions about its surroundings.
//!
//! Bindings are told without address and credential. Settings come from the caller's kit, else from
//! the operator, else the manifest's defaults hold.

use std::net::SocketAddr;
use std::sync::Arc;

use charter_adapters::egress::Gate;
use charter_adapters::hooks;
use charter_adapters::providers::Whose;
use charter_adapters::public;
use charter_engine::hook::{Scheme, Wanted};
use charter_engine::{Failure, Host, Nested, Reply};
use charter_kernel::id::UserId;
use charter_kernel::refusal::Refusal;
use charter_kernel::scope::Scope;
use charter_kernel::unit::Guard;
use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::{gate, nested};
use crate::app::App;

/// Hands the engine its way out, and the server's answers to guests' questions. `own` is where the
/// host really listens: a configured port may be 0.
pub fn attach(app: &Arc<App>, own: Vec<SocketAddr>) {
    let host: Arc<dyn Host> = app.clone();
    let gate = Gate::new(app.config.egress.clone(), app.adapters.providers.clone(), own);
    let gate = Arc::new(gate);
    app.engine.attach(&host, gate.clone());
    // Attached once, before anything is served.
    let _ = app.adapters.gate.set(gate);
}

impl Host for App {
    fn setting<'a>(
        &'a self,
        scope: &'a Scope,
        primitive: &'a str,
        key: &'a str,
    ) -> BoxFuture<'a, Result<Option<Value>, Failure>> {
        Box::pin(setting(self, scope, primitive, key))
    }

    fn bindings<'a>(
        &'a self,
        scope: &'a Scope,
        _primitive: &'a str,
        provider: &'a str,
    ) -> BoxFuture<'a, Result<Value, Failure>> {
        Box::pin(async move { Ok(self.adapters.providers.describe(scope, provider)) })
    }

    fn tools<'a>(&'a self, scope: &'a Scope) -> BoxFuture<'a, Result<Value, Failure>> {
        Box::pin(tools(self, scope))
    }

    fn call(&self, call: Nested) -> BoxFuture<'_, Result<Reply, Failure>> {
        Box::pin(
            async move { self::call(self, &call).await.map_err(|refusal| refusal.to_failure()) },
        )
    }

    fn mutates(&self, operation: &str) -> bool {
        self.registry
            .current()
            .operation(operation)
            .is_none_or(|known| known.operation.contract.mutates)
    }

    fn standing_of<'a>(
        &'a self,
        scope: &'a Scope,
        user: &'a UserId,
    ) -> BoxFuture<'a, Result<Vec<Guard>, Failure>> {
        Box::pin(async move {
            standing_of(self, scope, user).await.map_err(|refusal| refusal.to_failure())
        })
    }

    fn hook_address(&self, hook: Wanted<'_>) -> Result<String, Failure> {
        if let Scheme::Binding(name) = hook.scheme {
            // A provider whose calls nobody could check would be called in vain; so would one that
            // serves only a part of those who are to be told.
            let missing = match self.adapters.providers.resolve(hook.scope, name) {
                None => Some(name.clone()),
                Some(binding)
                    if matches!(binding.whose, Whose::Project(_))
                        && hook.owner.project.is_empty() =>
                {
                    Some(format!("{name} of the organization"))
                }
                Some(binding) if binding.calling_secrets().is_empty() => {
                    Some(format!("{name}.webhook_secret"))
                }
                Some(_) => None,
            };
            if let Some(missing) = missing {
                return Err(Refusal::not_configured(&[missing]).to_failure());
            }
        }
        Ok(format!("{}{}", public::base(&self.adapters), hooks::path(hook.id, hook.scheme)))
    }

    fn bills(&self, primitive: &str) -> bool {
        self.config.billing.is(primitive)
    }
}

async fn standing_of(app: &App, scope: &Scope, user: &UserId) -> Result<Vec<Guard>, Refusal> {
    let absent = || Refusal::resource_not_found("user");
    let project = scope.project().ok_or_else(absent)?;
    let found = app
        .directory
        .user(project, user)
        .await
        .map_err(|_| Refusal::overloaded(1))?
        .ok_or_else(absent)?;
    if !found.active {
        return Err(Refusal::state_conflict(
            "profile_revoked",
            "The other user's profile is revoked.",
        ));
    }
    Ok(vec![found.guard()])
}

/// Calls another primitive, and answers as the calling one is told.
async fn call(app: &App, nested: &Nested) -> Result<Reply, Refusal> {
    let (answered, secret) = nested::run(app, nested).await?;
    let status = answered.status.as_u16();
    let Some(bytes) = answered.body.as_whole() else {
        return Err(Refusal::state_conflict(
            "streamed",
            "An operation that streams cannot be called by a primitive.",
        ));
    };
    let body = if bytes.is_empty() {
        "null".to_owned()
    } else {
        String::from_utf8_lossy(bytes).into_owned()
    };
    if status < 400 {
        return Ok(Reply { status, body, secret });
    }
    // A refusal that was kept under the call's key.
    let kept: Value = serde_json::from_str(&body).unwrap_or_default();
    Err(Refusal::from_rest(&kept["error"], "The call was refused."))
}

/// The operations that the caller's kit offers as tools: `[{name, operation, description, mutates,
/// input_schema}]`.
///
/// # Errors
/// When the directory cannot be asked.
async fn tools(app: &App, scope: &Scope) -> Result<Value, Failure> {
    let place = app.directory.place_again(scope).await.map_err(|refusal| refusal.to_failure())?;
    let mut tools = Vec::new();
    for primitive in app.registry.current().primitives() {
        let Ok(served) = gate::decide(app, primitive, place.kit().map(AsRef::as_ref)).await else {
            continue;
        };
        for declared in served
            .manifest
            .operations
            .iter()
            .filter(|declared| declared.tool && declared.auth == "key")
        {
            tools.push(json!({
                "name": declared.id.replace(['.', '-'], "_"),
                "operation": declared.id,
                "description": if declared.description.is_empty() { &declared.summary } else { &declared.description },
                "mutates": declared.mutates(),
                "input_schema": {"path": declared.path_schema, "query": declared.query, "body": declared.body},
            }));
        }
    }
    Ok(Value::Array(tools))
}

/// The value that the caller's kit sets, where the primitive lets a kit set it; else the
/// operator's.
///
/// # Errors
/// When the directory cannot be asked.
async fn setting(
    app: &App,
    scope: &Scope,
    primitive: &str,
    key: &str,
) -> Result<Option<Value>, Failure> {
    let set = app.config.primitives.get(primitive, key).cloned();
    let live = app.registry.current();
    let declared = live
        .primitive(primitive)
        .and_then(|found| found.active().manifest.settings.iter().find(|own| own.key == key));
    if declared.is_none_or(|declared| declared.by != "kit") {
        return Ok(set);
    }
    let place = app.directory.place_again(scope).await.map_err(|refusal| refusal.to_failure())?;
    let policy = place.kit().and_then(|kit| kit.kit.primitives.get(primitive)?.policy.clone());
    Ok(policy.and_then(|policy| policy.get(key).cloned()).or(set))
}
