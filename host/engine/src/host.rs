//! The server's side of the engine, asked on a guest's behalf: bindings, settings, tools and nested
//! calls.
//!
//! The server implements it; the engine never learns how an operation is routed.

use charter_kernel::id::UserId;
use charter_kernel::idempotency::Lineage;
use charter_kernel::scope::Scope;
use charter_kernel::unit::Guard;
use futures::future::BoxFuture;
use serde_json::Value;

use charter_kernel::refusal::Failure;

use crate::hook::Wanted;

/// The server's side of the capabilities `settings` and `primitives`.
pub trait Host: Send + Sync + 'static {
    /// The value that the operator or the caller's kit has set; `None` leaves the manifest's
    /// default.
    fn setting<'a>(
        &'a self,
        scope: &'a Scope,
        primitive: &'a str,
        key: &'a str,
    ) -> BoxFuture<'a, Result<Option<Value>, Failure>>;
    /// `[{name, kind, state, sandbox, options}]` of a provider that the manifest asks for.
    fn bindings<'a>(
        &'a self,
        scope: &'a Scope,
        primitive: &'a str,
        provider: &'a str,
    ) -> BoxFuture<'a, Result<Value, Failure>>;
    /// The operations that the caller's kit offers as tools.
    fn tools<'a>(&'a self, scope: &'a Scope) -> BoxFuture<'a, Result<Value, Failure>>;
    /// Another primitive, called as the same caller.
    fn call(&self, nested: Nested) -> BoxFuture<'_, Result<Reply, Failure>>;
    /// Whether calling this operation changes anything: an unknown one counts as changing.
    fn mutates(&self, operation: &str) -> bool;
    /// The guards that hold as long as another user of the caller's project is there and not
    /// revoked; `not_found` for anyone else.
    fn standing_of<'a>(
        &'a self,
        scope: &'a Scope,
        user: &'a UserId,
    ) -> BoxFuture<'a, Result<Vec<Guard>, Failure>>;
    /// The URL at which providers call the wanted hook; `not_configured` where its calls could not
    /// be checked.
    fn hook_address(&self, hook: Wanted<'_>) -> Result<String, Failure>;
    /// Whether the operator has named this primitive as the one that bills.
    fn bills(&self, primitive: &str) -> bool;
}

/// A call from one primitive to another.
#[derive(Clone, Debug)]
pub struct Nested {
    /// The outer request's id.
    pub request: String,
    /// The outer caller.
    pub scope: Scope,
    /// The guards of the outer caller's credential, which a change must be committed under.
    pub credential: Vec<Guard>,
    /// The calling primitive; empty where a client's request is made again.
    pub primitive: String,
    /// The operation's id.
    pub operation: String,
    /// Path parameters, and query members where the operation has no such path parameter.
    pub parameters: Vec<(String, String)>,
    /// UTF-8 JSON text.
    pub body: Option<String>,
    /// The headers that the operation sees.
    pub headers: Vec<(String, String)>,
    /// The key given, or the lineage's.
    pub idempotency_key: String,
    /// The call's place in the outer request. The server hands it to [`crate::Call::lineage`].
    pub lineage: Lineage,
    /// The rest of the outer deadline.
    pub deadline_ms: u32,
    /// Whether the outer call can be made again once a person has decided.
    pub repeatable: bool,
}

/// The reply of a nested call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The HTTP status it would have had.
    pub status: u16,
    /// UTF-8 JSON text; `null` for none.
    pub body: String,
    /// Whether it may show a secret.
    pub secret: bool,
}
