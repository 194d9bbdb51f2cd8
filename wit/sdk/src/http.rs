//! Outbound HTTP: to a provider that the operator bound (`https://<binding>.binding/…`, the host
//! adds the credential), or with the capability `public-web` to any public page. Every call is
//! bounded in time and bytes; redirects are answers, not followed.
//!
//! Holds no credential and no address of a provider: the host knows both.

#[cfg(any(target_arch = "wasm32", test))]
mod code;
#[cfg(target_arch = "wasm32")]
mod wasi;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::failure::{Failure, Result};

/// How long a call may take, where nothing else is said.
pub const TIMEOUT_MS_DEFAULT: u32 = 15_000;
/// How many bytes of a response's body are read, where nothing else is said.
pub const BODY_BYTES_MAX_DEFAULT: usize = 4 * 1024 * 1024;

/// A provider by its binding's name, as the manifest declares it.
#[derive(Clone, Debug)]
pub struct Binding(String);

/// The provider of this name.
pub fn binding(name: &str) -> Binding {
    Binding(name.into())
}

impl Binding {
    /// A `GET` of a path below the binding's URL.
    pub fn get(&self, path: &str) -> Request {
        self.request("GET", path)
    }
    /// A `POST`.
    pub fn post(&self, path: &str) -> Request {
        self.request("POST", path)
    }
    /// Any method.
    pub fn request(&self, method: &str, path: &str) -> Request {
        Request::new(method, format!("https://{}.binding/{}", self.0, path.trim_start_matches('/')))
    }
}

/// A `GET` of a public page: wherever the URL comes from, it reaches no provider.
pub fn get(url: &str) -> Request {
    Request { public: true, ..Request::new("GET", url.into()) }
}

/// Whether the host would take the URL for a provider's: `https://<binding>.binding/…`, in whatever
/// case.
fn names_a_provider(url: &str) -> bool {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#', '\\']).next().unwrap_or_default();
    let host =
        authority.rsplit('@').next().unwrap_or_default().split(':').next().unwrap_or_default();
    let last = host.trim_end_matches('.').rsplit('.').next().unwrap_or_default();
    last.eq_ignore_ascii_case("binding")
}

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
    public: bool,
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
    /// Sends it and reads the whole answer, whatever its status.
    pub fn send(self) -> Result<Response, Error> {
        if self.public && names_a_provider(&self.url) {
            return Err(Error::BadUrl);
        }
        #[cfg(target_arch = "wasm32")]
        return wasi::send(&self);
        #[cfg(not(target_arch = "wasm32"))]
        crate::double::http::send(&self)
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

/// What came back.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_public_page_is_no_provider_however_it_is_written() {
        for provider in [
            "https://llm.upstream.binding/v1",
            "http://LLM.upstream.Binding:443/",
            "https://x.binding./",
            "https://binding",
            "https://user@x.binding?q",
            "https://x.binding\\@example.com/",
        ] {
            assert_eq!(get(provider).send(), Err(Error::BadUrl), "{provider}");
        }
        for public in [
            "https://binding.example/",
            "https://bookbinding/",
            "https://example.com/x.binding",
            "http://192.0.2.1/",
        ] {
            assert!(!names_a_provider(public), "{public}");
        }
    }
}
