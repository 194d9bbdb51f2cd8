//! Whether the request is well formed: path, query, page, body, idempotency key. All faults are named
//! at once.
//!
//! Schemas were compiled when the route was loaded. A JSON body goes on as the text that was sent;
//! nothing is written again.

use std::ops::Deref;

use bytes::Bytes;
use charter_kernel::fault::Fault;
use charter_kernel::idempotency::ClientKey;
use charter_kernel::refusal::Refusal;
use charter_kernel::schema::{coerce_query, parse_json};
use charter_registry::served::{Auth, BodyRule, Contract};
use http::HeaderValue;
use serde_json::{Map, Value};

use super::admit::Admitted;
use super::caller::Caller;
use super::claim;
use super::matched::Operation;
use crate::app::App;
use crate::paging::{self, Page, Seal};

/// Bytes of a body that is parsed at once, on the thread that serves others.
const QUICK_BODY_BYTES_MAX: usize = 256 << 10;
/// The values of such a body: many small ones take long, and a hundred times their bytes.
const QUICK_BODY_VALUES_MAX: usize = 4_096;

/// The input that is sent along with a request for an operation.
#[derive(Default)]
pub struct Sent {
    /// The query's pairs, decoded.
    pub pairs: Vec<(String, String)>,
    /// The body.
    pub bytes: Bytes,
    /// The body's media type.
    pub content_type: Option<HeaderValue>,
    /// The idempotency key.
    pub key: Option<HeaderValue>,
}

/// A request that is admitted and well formed. Only [`validate`] makes one.
pub struct Validated {
    admitted: Admitted,
    pairs: Vec<(String, String)>,
    content_type: Option<HeaderValue>,
    query: Map<String, Value>,
    page: Page,
    bytes: Bytes,
    body: Value,
    key: Option<ClientKey>,
}

/// Checks everything.
///
/// # Errors
/// 400 with all faults, or 503 where a check's turn does not come.
pub async fn validate(app: &App, admitted: Admitted, sent: Sent) -> Result<Validated, Refusal> {
    let Sent { pairs, bytes, content_type, key } = sent;
    let mut faults = Vec::new();
    let (caller, contract) = (admitted.caller(), admitted.operation().contract());
    path(contract, admitted.parameters(), &mut faults);
    let seal = || Seal::new(app.cursor_key, &tenant(caller), &contract.id, &pairs);
    let page = Page::read(contract.paging, &pairs, seal).unwrap_or_else(|found| {
        faults.extend(found);
        Page::default()
    });
    let query = query(contract, &pairs, &mut faults);
    let body = body(app, &admitted, &bytes, &mut faults).await?;
    let key = claim::client_key(caller, contract, key.as_ref()).unwrap_or_else(|fault| {
        faults.push(fault);
        None
    });
    match faults.is_empty() {
        true => Ok(Validated { admitted, pairs, content_type, query, page, bytes, body, key }),
        false => Err(Refusal::faults(faults)),
    }
}

impl Deref for Validated {
    type Target = Admitted;

    fn deref(&self) -> &Admitted {
        &self.admitted
    }
}

impl Validated {
    /// The query's pairs, as they were sent.
    pub fn pairs(&self) -> &[(String, String)] {
        &self.pairs
    }

    /// The body's media type; empty where none was sent.
    pub fn content_type(&self) -> &str {
        self.content_type.as_ref().and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// The query, coerced; without the words of paging.
    pub fn query(&self) -> &Map<String, Value> {
        &self.query
    }

    /// The page that is asked for.
    pub fn page(&self) -> &Page {
        &self.page
    }

    /// The body as it was sent.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The body, parsed, of a route of the host; else `Null`.
    pub fn into_body(self) -> Value {
        self.body
    }

    /// The idempotency key, where one counts.
    pub fn key(&self) -> Option<&ClientKey> {
        self.key.as_ref()
    }
}

/// A body that is not there counts as an empty object. One that takes long to read or to check is
/// read and checked off the threads that serve others. A primitive's goes on as it was sent: its
/// values are kept no longer than they are checked.
async fn body(
    app: &App,
    admitted: &Admitted,
    bytes: &Bytes,
    faults: &mut Vec<Fault>,
) -> Result<Value, Refusal> {
    let operation = admitted.operation();
    let BodyRule::Json(schema) = &operation.contract().body else { return Ok(Value::Null) };
    let is_kept = matches!(operation, Operation::Host(_));
    let organization = admitted.caller().organization();
    let sharer = || admitted.caller().scope().sharer();
    if is_long(bytes) {
        let (size, bytes, schema) = (bytes.len(), bytes.clone(), schema.clone());
        let read = move || {
            let value = parse_json(&bytes).map_err(|fault| vec![fault])?;
            schema.validate(&value)?;
            Ok(if is_kept { value } else { Value::Null })
        };
        let read: Result<Value, Vec<Fault>> =
            app.bounds.checks.run((organization, &sharer()), size, read).await?;
        return Ok(read.unwrap_or_else(|found| {
            faults.extend(found);
            Value::Null
        }));
    }
    let value = match parse_json(if bytes.is_empty() { b"{}" } else { bytes }) {
        Ok(value) => value,
        Err(fault) => {
            faults.push(fault);
            return Ok(Value::Null);
        }
    };
    let (value, checked) = match schema.validate_quickly(&value) {
        Some(checked) => (value, checked),
        None => {
            let schema = schema.clone();
            let check = move || {
                let checked = schema.validate(&value);
                (value, checked)
            };
            app.bounds.checks.run((organization, &sharer()), bytes.len(), check).await?
        }
    };
    faults.extend(checked.err().into_iter().flatten());
    Ok(if is_kept { value } else { Value::Null })
}

/// Whether it takes long to read a body: by its bytes, or by as many values as it may have.
fn is_long(bytes: &[u8]) -> bool {
    let begins = |byte: &&u8| matches!(byte, b'{' | b'[' | b',');
    bytes.len() > QUICK_BODY_BYTES_MAX
        || bytes.iter().filter(begins).count() > QUICK_BODY_VALUES_MAX
}

/// The tenant whose lists the cursors are of.
fn tenant(caller: &Caller) -> String {
    match caller.place() {
        Some(place) => {
            let user = place.user().map_or("", |user| user.id.as_str());
            format!("{}/{}/{user}", place.organization().id, place.project().id)
        }
        None => String::new(),
    }
}

fn path(contract: &Contract, parameters: &[(String, String)], faults: &mut Vec<Fault>) {
    let found = |name: &&str| parameters.iter().any(|(own, _)| own == name);
    let missing = contract.path.parameters().filter(|name| !found(name));
    faults.extend(missing.map(|name| Fault::new(name, "is required")));
    let Some(schema) = &contract.path_schema else { return };
    if let Err(found) = coerce_query(Some(schema), parameters, &[]) {
        faults.extend(found);
    }
}

fn query(
    contract: &Contract,
    pairs: &[(String, String)],
    faults: &mut Vec<Fault>,
) -> Map<String, Value> {
    let words = paging::words(contract.paging);
    let rest: Vec<(String, String)> =
        pairs.iter().filter(|(name, _)| !words.contains(&name.as_str())).cloned().collect();
    // A client that probes an open route (a load balancer, a browser) may send more than the route
    // knows.
    if contract.query.is_none() && (rest.is_empty() || contract.auth == Auth::Open) {
        return Map::new();
    }
    match coerce_query(contract.query.as_ref(), &rest, words) {
        Ok(Value::Object(mut members)) => {
            // Defaults of words that the schema repeats are the page's business.
            words.iter().for_each(|word| drop(members.remove(*word)));
            members
        }
        Ok(_) => Map::new(),
        Err(found) => {
            faults.extend(found.into_iter().filter(|fault| !words.contains(&fault.path.as_str())));
            Map::new()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_of_many_values_takes_as_long_as_a_large_one() {
        let of = |value: &str, count: usize| format!("[{}]", vec![value; count].join(","));
        assert!(!is_long(of("1", 4_000).as_bytes()));
        assert!(is_long(of("{\"a\":0}", 4_000).as_bytes()));
        assert!(is_long(of("1", 5_000).as_bytes()));
        assert!(
            !is_long(&[b'x'; QUICK_BODY_BYTES_MAX]) && is_long(&[b'x'; QUICK_BODY_BYTES_MAX + 1])
        );
    }
}
