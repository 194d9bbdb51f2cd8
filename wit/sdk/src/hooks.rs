//! Inbound URLs: whoever calls one is heard by [`Primitive::hook`](crate::Primitive::hook), in the
//! scope of the document that it belongs to, once the host has checked the call. Each event is told
//! once.

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::failure::{Failure, Result};
use crate::host::hooks as host;
use crate::signals::Signal;
use crate::time::Instant;

/// How the host checks calls before anybody hears of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme<'a> {
    /// The headers of Standard Webhooks, not older than five minutes.
    StandardWebhooks,
    /// `X-Service-Signature`: hexadecimal HMAC-SHA256 of the body under the secret as it is shown.
    HmacSha256,
    /// Nothing but the URL, which nobody guesses.
    None,
    /// The provider of this name calls one URL for everybody, and signs as its kind does. Its calls
    /// reach the hook whose id the primitive has put into the provider's object.
    Binding(&'a str),
}

/// An open hook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hook {
    /// Its id.
    pub id: String,
    /// The URL at which it is called.
    pub url: String,
    /// The secret with which its calls are signed, if it has one of its own; shown this once.
    pub secret: Option<String>,
}

/// Opens a hook of a document, with this request's commit. Close it when the document goes: until
/// then its calls are refused.
pub fn open(collection: &str, document: &str, scheme: Scheme<'_>) -> Result<Hook> {
    let name = match scheme {
        Scheme::StandardWebhooks => "standard-webhooks".to_owned(),
        Scheme::HmacSha256 => "hmac-sha256".to_owned(),
        Scheme::None => "none".to_owned(),
        Scheme::Binding(name) => format!("binding:{name}"),
    };
    let hook = host::open(collection, document, &name)?;
    Ok(Hook { id: hook.id, url: hook.url, secret: hook.secret })
}

/// Tells the host what the bound provider itself calls the hook's object: events that name no hook
/// reach it by that.
pub fn refer(id: &str, reference: &str) -> Result<()> {
    Ok(host::refer(id, reference)?)
}

/// Closes a hook; false where there is none.
pub fn close(id: &str) -> Result<bool> {
    Ok(host::close(id)?)
}

/// A call that the host has checked.
#[derive(Clone, Debug, Deserialize)]
pub struct Received {
    /// The hook.
    pub hook_id: String,
    /// The collection of the document that it belongs to.
    pub collection: String,
    /// That document's id.
    pub document: String,
    /// The sender's id of the event, else a digest of the body.
    pub event_id: String,
    /// The body's media type, as the sender says.
    pub content_type: Option<String>,
    /// When it came.
    pub received_at: Instant,
    /// The binding whose provider called, where it calls one URL for everybody.
    #[serde(default)]
    pub provider: Option<String>,
    /// The body, where it is text.
    pub body: Option<String>,
    /// The body in base64, where it is not.
    pub body_base64: Option<String>,
}

impl Received {
    pub(crate) fn of(signal: &Signal) -> Result<Self> {
        Ok(serde_json::from_value(signal.payload.clone())?)
    }

    /// The JSON body. One that is none, or of another shape, is the sender's fault: the signal
    /// fails, and is tried again.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T> {
        let text = self.body.as_deref().unwrap_or_default();
        serde_json::from_str(text).map_err(|error| {
            Failure::provider(format!("the call's body has an unknown shape: {error}"))
        })
    }
}
