//! An exchange over HTTP as data: a request that is put together, its response, or why there is none.
//!
//! Sends nothing: [`crate::http`] does.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::failure::{Failure, Result};

/// How long a call may take, where nothing else is said.
pub const TIMEOUT_MS_DEFAULT: u32 = 15_000;
/// How many bytes of a response's body are read, where nothing else is said.
pub const BODY_BYTES_MAX_DEFAULT: usize = 4 * 1024 * 1024;

/// One outbound request. Nothing happens before [`Request::send`].
#[must_use]
#[derive(Clone, Debug)]
pub struct Request {
    /// `GET`, `POST`, ….
    pub method: String,
    /// Absolute, with its query.
    pub url: String,
    /// In order; names in lower case.
    pub headers: Vec<(String, String)>,
    /// The content.
    pub body: Vec<u8>,
    /// How long connecting, the first byte, and each further wait may take.
    pub timeout_ms: u32,
    /// How many bytes of the response's body are read; more is [`Error::TooLarge`].
    pub body_bytes_max: usize,
    /// Whether it may reach public pages only.
    pub(crate) public: bool,
}

impl Request {
    /// A request of this method to this absolute URL.
    pub fn new(method: &str, url: String) -> Self {
        let (timeout_ms, body_bytes_max) = (TIMEOUT_MS_DEFAULT, BODY_BYTES_MAX_DEFAULT);
        Self {
            method: method.into(),
            url,
            headers: Vec::new(),
            body: Vec::new(),
            timeout_ms,
            body_bytes_max,
            public: false,
        }
    }
    /// Adds a query parameter, percent-encoded.
    pub fn query(mut self, name: &str, value: &str) -> Self {
        self.url.push(if self.url.contains('?') { '&' } else { '?' });
        encode(&mut self.url, name);
        self.url.push('=');
        encode(&mut self.url, value);
        self
    }
    /// Adds a header; the name in lower case.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }
    /// Sets a JSON body.
    pub fn json<T: Serialize>(mut self, body: &T) -> Result<Self> {
        self.body = serde_json::to_vec(body)?;
        Ok(self.header("content-type", "application/json"))
    }
    /// See [`Request::timeout_ms`].
    pub fn timeout(mut self, ms: u32) -> Self {
        self.timeout_ms = ms;
        self
    }
    /// See [`Request::body_bytes_max`].
    pub fn at_most(mut self, bytes: usize) -> Self {
        self.body_bytes_max = bytes;
        self
    }
}

/// Percent-encodes everything that is not unreserved (RFC 3986, section 2.3).
pub(crate) fn encode(url: &mut String, text: &str) {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            url.push(char::from(byte));
        } else {
            url.push_str(&format!("%{byte:02X}"));
        }
    }
}

/// The response to a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Response {
    /// The status.
    pub status: u16,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    /// The whole body.
    pub body: Vec<u8>,
}

impl Response {
    /// One header's value; the name in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(held, _)| held == name).map(|(_, value)| value.as_str())
    }
    /// Whether the status is 2xx.
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }
    /// The JSON of a 2xx answer; anything else is the provider's fault, 502.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T> {
        if !self.is_success() {
            return Err(Failure::provider(format!("the provider answered {}", self.status)));
        }
        serde_json::from_slice(&self.body).map_err(|error| {
            Failure::provider(format!("the provider's answer has an unknown shape: {error}"))
        })
    }
}

/// Why there is no response. `?` makes it a refusal: 502, or 504 where time ran out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// The URL cannot be requested at all.
    BadUrl,
    /// The host does not let this request out: an address that is not public, a binding that is not
    /// there.
    Denied(String),
    /// No answer in time.
    Timeout,
    /// More bytes than admitted.
    TooLarge,
    /// Anything else on the way there or back.
    Unreachable(String),
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::BadUrl => f.write_str("the URL cannot be requested"),
            Self::Denied(why) => write!(f, "the request is not let out: {why}"),
            Self::Timeout => f.write_str("no answer in time"),
            Self::TooLarge => f.write_str("the answer is larger than admitted"),
            Self::Unreachable(why) => write!(f, "no answer: {why}"),
        }
    }
}

impl std::error::Error for Error {}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            Error::Timeout => Self::new("deadline_exceeded", error.to_string()),
            error => Self::provider(error.to_string()),
        }
    }
}
