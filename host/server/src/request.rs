//! The input of a host route's handler: the request after identify, scope, admission and
//! validation.
//!
//! A handler never sees an unchecked field: parameters, query and body have passed the schemas of
//! its route, and the identity has the role that the route asks for.

use std::borrow::Cow;
use std::net::IpAddr;

use bytes::Bytes;
use charter_kernel::refusal::Refusal;
use charter_kernel::scope::Principal;
use charter_kernel::time::Instant;
use charter_tenancy::identity::Identity;
use charter_tenancy::place::Place;
use http::{HeaderMap, Method};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::paging::Page;

/// One request to a host route.
#[derive(Debug)]
pub struct HostRequest {
    /// `x-request-id`.
    pub id: String,
    /// When it was accepted.
    pub now: Instant,
    /// The same by a steady clock, which rates are counted by.
    pub began: std::time::Instant,
    /// The method.
    pub method: Method,
    /// The path as it was requested, without query.
    pub path: String,
    /// The client's address: the connection's, or what a trusted proxy says.
    pub peer: IpAddr,
    /// Whether the connection is encrypted (cookies are then `Secure`).
    pub tls: bool,
    /// The sender's identity.
    pub identity: Identity,
    /// The place at which it acts; absent for anonymous and operator requests.
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
    /// The body as a typed value. The schema has been checked, so that a failure is the route's own
    /// fault. To a schema `5.0` is the integer 5, and so it is here.
    ///
    /// # Errors
    /// `invalid_input` when the body does not fit `T`.
    pub fn body_as<T: DeserializeOwned>(&self) -> Result<T, Refusal> {
        T::deserialize(&*integral(&self.body))
            .map_err(|error| Refusal::invalid("body", error.to_string()))
    }
    /// The acting principal, with role and pins.
    ///
    /// # Errors
    /// As [`HostRequest::place`].
    pub fn principal(&self) -> Result<&Principal, Refusal> {
        Ok(self.place()?.scope().principal())
    }
    /// The organization whose audit log the request reads; the operator reads the deployment's own.
    ///
    /// # Errors
    /// As [`HostRequest::place`].
    pub fn audit_organization(&self) -> Result<&str, Refusal> {
        match self.identity {
            Identity::Operator { .. } => Ok(""),
            _ => Ok(self.place()?.organization().id.as_str()),
        }
    }
    /// The place at which the request acts.
    ///
    /// # Errors
    /// `unauthorized` for an anonymous or operator request: the route's `auth` should have refused
    /// it.
    pub fn place(&self) -> Result<&Place, Refusal> {
        self.place.as_ref().ok_or_else(|| Refusal::unauthorized("This needs a credential."))
    }
}

/// Floats from here on have no fraction whatever was sent, and need not be the number that was.
const EXACT_MAX: f64 = 9_007_199_254_740_992.0;

/// The same value with every number that has no fraction written as an integer.
fn integral(value: &Value) -> Cow<'_, Value> {
    if holds_whole_float(value) {
        Cow::Owned(with_integers(value.clone()))
    } else {
        Cow::Borrowed(value)
    }
}

fn holds_whole_float(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.iter().any(holds_whole_float),
        Value::Object(members) => members.values().any(holds_whole_float),
        value => whole(value).is_some(),
    }
}

fn with_integers(value: Value) -> Value {
    match value {
        Value::Array(items) => items.into_iter().map(with_integers).collect(),
        Value::Object(members) => {
            members.into_iter().map(|(name, value)| (name, with_integers(value))).collect()
        }
        value => whole(&value).map_or(value, Value::from),
    }
}

/// The integer that a float is.
fn whole(value: &Value) -> Option<i64> {
    let Value::Number(number) = value else { return None };
    let float = number
        .as_f64()
        .filter(|float| number.is_f64() && float.fract() == 0.0 && float.abs() < EXACT_MAX)?;
    Some(float as i64)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_number_without_a_fraction_is_an_integer_however_it_is_written() {
        let sent: Value = serde_json::from_str(
            r#"{"a": 5.0, "b": [1e2, -0.0, 0.5, {"c": 3}], "d": "5.0", "e": 1e300}"#,
        )
        .unwrap();
        assert_eq!(
            *integral(&sent),
            json!({"a": 5, "b": [100, 0, 0.5, {"c": 3}], "d": "5.0", "e": 1e300})
        );
        assert!(matches!(integral(&json!({"a": [1, "x", null, 0.25]})), Cow::Borrowed(_)));
    }
}
