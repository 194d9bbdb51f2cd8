//! The arguments of handlers: each argument's type says where it comes from, and its schema goes
//! into the manifest.
//!
//! The host has checked path, query and body against those schemas before the guest runs; a value
//! that still does not fit (a number beyond its type) is the caller's fault and refused as such.

use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde::de::value::{Error as PathError, MapDeserializer};
use serde_json::Value;

use crate::bindings::Request;
use crate::contract::Contract;
use crate::failure::{Failure, Result};
use crate::schema;
use crate::time::{Instant, now};

pub use crate::bindings::Caller;

/// Something a handler can take.
pub trait Extract: Sized {
    /// Declares the argument in the manifest.
    fn declare(contract: &mut Contract);
    /// Reads it from the request.
    fn extract(request: &Request) -> Result<Self>;
}

/// The path's parameters: a struct with one text field for each `{name}`.
#[derive(Clone, Debug)]
pub struct Path<T>(pub T);

impl<T: DeserializeOwned + JsonSchema> Extract for Path<T> {
    fn declare(contract: &mut Contract) {
        contract.path_schema = Some(schema::of_answer::<T>());
    }
    fn extract(request: &Request) -> Result<Self> {
        let pairs = request.parameters.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let read = T::deserialize(MapDeserializer::<_, PathError>::new(pairs));
        read.map(Self).map_err(|error| Failure::new("invalid_input", error.to_string()))
    }
}

/// The commonest path: `/things/{id}`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct ById {
    /// The id.
    #[schemars(length(min = 1, max = 200))]
    pub id: String,
}

/// The query: a struct of optional or defaulted members.
#[derive(Clone, Debug)]
pub struct Query<T>(pub T);

impl<T: DeserializeOwned + JsonSchema> Extract for Query<T> {
    fn declare(contract: &mut Contract) {
        let schema = schema::of_request::<T>();
        contract.paging = crate::paging::style_of(&schema);
        contract.query = Some(schema);
    }
    fn extract(request: &Request) -> Result<Self> {
        let text = if request.query.is_empty() { "{}" } else { &request.query };
        read(text).map(Self)
    }
}

/// The JSON body.
#[derive(Clone, Debug)]
pub struct Body<T>(pub T);

impl<T: DeserializeOwned + JsonSchema> Extract for Body<T> {
    fn declare(contract: &mut Contract) {
        contract.body = Some(schema::of_request::<T>());
    }
    fn extract(request: &Request) -> Result<Self> {
        read(request.body.as_deref().unwrap_or("{}")).map(Self)
    }
}

fn read<T: DeserializeOwned>(text: &str) -> Result<T> {
    serde_json::from_str(text).map_err(|error| Failure::new("invalid_input", error.to_string()))
}

/// The raw body of an operation that declares [`crate::Operation::consumes`].
#[derive(Clone, Debug)]
pub struct Bytes(pub Vec<u8>);

impl Extract for Bytes {
    fn declare(_: &mut Contract) {}
    fn extract(request: &Request) -> Result<Self> {
        Ok(Self(request.bytes.clone().unwrap_or_default()))
    }
}

/// Those request headers that the operation declares.
#[derive(Clone, Debug)]
pub struct Headers(pub Vec<(String, String)>);

impl Headers {
    /// One header's value; the name in lower case.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(held, _)| held == name).map(|(_, value)| value.as_str())
    }
}

impl Extract for Headers {
    fn declare(_: &mut Contract) {}
    fn extract(request: &Request) -> Result<Self> {
        Ok(Self(request.headers.clone()))
    }
}

/// The calling principal.
impl Extract for Caller {
    fn declare(_: &mut Contract) {}
    fn extract(request: &Request) -> Result<Self> {
        Ok(request.caller.clone())
    }
}

/// Facts about this run of the request.
#[derive(Clone, Debug)]
pub struct Context {
    /// The request's id, as the caller sees it.
    pub request_id: String,
    /// When the request was admitted: the same on every run of it.
    pub started_at: Instant,
    /// Everything that the host said, for what this SDK does not know yet.
    pub facts: Value,
}

impl Extract for Context {
    fn declare(_: &mut Contract) {}
    fn extract(request: &Request) -> Result<Self> {
        let facts: Value = serde_json::from_str(&request.context).unwrap_or_default();
        let started_at =
            facts.get("started_at").and_then(Value::as_i64).map_or_else(now, Instant::from_ms);
        Ok(Self { request_id: request.id.clone(), started_at, facts })
    }
}

/// The request as it came, for what the typed arguments cannot say.
impl Extract for Request {
    fn declare(_: &mut Contract) {}
    fn extract(request: &Request) -> Result<Self> {
        Ok(request.clone())
    }
}
