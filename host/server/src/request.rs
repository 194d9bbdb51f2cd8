//! What a host route's handler is given: the request after identify, scope, admission and validation.
//!
//! A handler never sees an unchecked field: parameters, query and body have passed the schemas of its route, and the identity
//! has the role that the route asks for.

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use charter_kernel::scope::Scope;
use charter_kernel::time::Instant;
use http::{HeaderMap, Method};
use serde::de::DeserializeOwned;
use serde_json::Value;

use charter_kernel::refusal::Refusal;

use crate::directory::{KeyRecord, OrganizationRecord, ProjectRecord, SessionRecord, UserRecord};
use crate::pipeline::page::Page;

/// Who sent the request, as its credential proved.
#[derive(Clone, Debug)]
pub enum Identity {
    /// No credential; only routes with `auth: none` see it.
    Anonymous,
    /// An API key.
    Key(Arc<KeyRecord>),
    /// A signed-in person.
    Session(Arc<SessionRecord>),
    /// The deployment's operator.
    Operator,
}

/// Where the request acts: the organization of the credential, and the project and user that were named or defaulted.
#[derive(Clone, Debug)]
pub struct Place {
    /// The proof that the kernel and the engine ask for.
    pub scope: Scope,
    /// The credential's organization.
    pub organization: Arc<OrganizationRecord>,
    /// The selected project.
    pub project: Arc<ProjectRecord>,
    /// The selected tenant user; absent where none was named and the project has no default.
    pub user: Option<Arc<UserRecord>>,
}

/// One request to a host route.
#[derive(Debug)]
pub struct HostRequest {
    /// `x-request-id`.
    pub id: String,
    /// When it was accepted.
    pub now: Instant,
    /// The method.
    pub method: Method,
    /// The path as it was requested, without query.
    pub path: String,
    /// The peer's address.
    pub peer: IpAddr,
    /// Whether the connection is encrypted (cookies are then `Secure`).
    pub tls: bool,
    /// Who.
    pub identity: Identity,
    /// Where; absent for anonymous and operator requests.
    pub place: Option<Place>,
    /// Path parameters, decoded and validated.
    pub parameters: Vec<(String, String)>,
    /// The query as a JSON object, coerced and validated by the route's schema.
    pub query: Value,
    /// Limit and position, where the route is a list.
    pub page: Page,
    /// The JSON body, validated; `Value::Null` without one.
    pub body: Value,
    /// The raw body (uploads).
    pub bytes: Bytes,
    /// All request headers; handlers read, and never log, credentials.
    pub headers: HeaderMap,
}

impl HostRequest {
    /// A path parameter; empty if the route's path does not declare it.
    pub fn parameter(&self, name: &str) -> &str {
        self.parameters.iter().find(|(key, _)| key == name).map_or("", |(_, value)| value)
    }
    /// A text member of the query.
    pub fn query_text(&self, name: &str) -> Option<&str> {
        self.query.get(name).and_then(Value::as_str)
    }
    /// The body as a typed value. The schema has been checked, so that a failure is the route's own fault.
    ///
    /// # Errors
    /// `invalid_input` when the body does not fit `T`.
    pub fn body_as<T: DeserializeOwned>(&self) -> Result<T, Refusal> {
        T::deserialize(&self.body).map_err(|error| Refusal::invalid("body", error.to_string()))
    }
    /// Where the request acts.
    ///
    /// # Errors
    /// `unauthorized` for an anonymous or operator request: the route's `auth` should have refused it.
    pub fn place(&self) -> Result<&Place, Refusal> {
        self.place.as_ref().ok_or_else(|| Refusal::unauthorized("This needs a credential."))
    }
}
