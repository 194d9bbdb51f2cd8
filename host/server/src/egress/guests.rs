//! What the server answers to a guest's questions about its surroundings.
//!
//! Bindings are told without address and credential. Settings come from the caller's kit, else the manifest's defaults hold.

use charter_engine::{Failure, Granted, Host, Leave, Nested, Reply, Ungranted};
use charter_kernel::scope::Scope;
use futures::future::BoxFuture;
use serde_json::{Value, json};

use crate::app::App;
use crate::governance::gateway;
use crate::pipeline::nested;

fn missing<T: Send + 'static>(what: &'static str, missing: &'static str) -> BoxFuture<'static, Result<T, Failure>> {
    let failure = Failure {
        code: "not_configured".into(),
        message: format!("{what} are not served by this version"),
        details: Some(json!({ "missing": [missing] }).to_string()),
        ..Failure::default()
    };
    Box::pin(async { Err(failure) })
}

impl Host for App {
    fn setting<'a>(
        &'a self,
        scope: &'a Scope,
        primitive: &'a str,
        key: &'a str,
    ) -> BoxFuture<'a, Result<Option<Value>, Failure>> {
        Box::pin(nested::setting(self, scope, primitive, key))
    }

    fn bindings<'a>(
        &'a self,
        scope: &'a Scope,
        _primitive: &'a str,
        provider: &'a str,
    ) -> BoxFuture<'a, Result<Value, Failure>> {
        Box::pin(async move { Ok(self.providers.described(scope, provider)) })
    }

    fn tools<'a>(&'a self, scope: &'a Scope) -> BoxFuture<'a, Result<Value, Failure>> {
        Box::pin(nested::tools(self, scope))
    }

    fn call(&self, call: Nested) -> BoxFuture<'_, Result<Reply, Failure>> {
        Box::pin(nested::call(self, call))
    }

    fn mutates(&self, operation: &str) -> bool {
        self.registry.current().operation(operation).is_none_or(|known| known.operation.contract.mutates)
    }

    fn authorize(&self, leave: Leave) -> BoxFuture<'_, Result<Granted, Ungranted>> {
        Box::pin(gateway::authorize(self, leave))
    }

    fn set_standing<'a>(
        &'a self,
        _scope: &'a Scope,
        _primitive: &'a str,
        _reason: Option<String>,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        missing("billing standings", "billing")
    }
}
