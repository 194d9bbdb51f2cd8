//! A blocking HTTP client over the server's own HTTP library: tests read top to bottom, and load
//! comes from threads.

use std::sync::OnceLock;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;
use tokio::runtime::Runtime;

use crate::answer::Answer;

/// No answer takes longer; the longest long poll is 20 s.
const PATIENCE: Duration = Duration::from_secs(600);

/// The library's client.
pub(crate) type Http = legacy::Client<HttpConnector, Full<Bytes>>;

/// A client of one server, with the credential and headers that it sends each time.
#[derive(Clone, Debug)]
pub struct Client {
    base: String,
    headers: HeaderMap,
    http: Http,
}

impl Client {
    /// A client of the server at `base` (`http://127.0.0.1:1234`), without a credential.
    pub fn new(base: &str) -> Self {
        let http = legacy::Client::builder(TokioExecutor::new())
            .pool_max_idle_per_host(64)
            .build(HttpConnector::new());
        Self { base: base.trim_end_matches('/').to_owned(), headers: HeaderMap::new(), http }
    }

    /// A client that speaks HTTP/2 from its first byte, without having asked.
    pub fn http2(base: &str) -> Self {
        let http = legacy::Client::builder(TokioExecutor::new())
            .http2_only(true)
            .build(HttpConnector::new());
        Self { http, ..Self::new(base) }
    }

    /// A client whose connections come from this address of the machine.
    pub fn from(base: &str, address: [u8; 4]) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_local_address(Some(address.into()));
        let http = legacy::Client::builder(TokioExecutor::new()).build(connector);
        Self { http, ..Self::new(base) }
    }

    /// The server's address.
    pub fn base(&self) -> &str {
        &self.base
    }

    /// The same client of another server (another replica, or the same one restarted).
    pub fn at(&self, base: &str) -> Self {
        Self {
            base: base.trim_end_matches('/').to_owned(),
            headers: self.headers.clone(),
            ..Self::new(base)
        }
    }

    /// The same client with a bearer credential.
    pub fn bearer(&self, credential: &str) -> Self {
        self.with("authorization", &format!("Bearer {credential}"))
    }

    /// The same client that always sends this header.
    pub fn with(&self, name: &str, value: &str) -> Self {
        let mut client = self.clone();
        client.headers.insert(header_name(name), header_value(value));
        client
    }

    /// The same client without that header.
    pub fn without(&self, name: &str) -> Self {
        let mut client = self.clone();
        client.headers.remove(name);
        client
    }

    /// Starts a request.
    pub fn call(&self, method: &str, path: &str) -> Call<'_> {
        let method = Method::from_bytes(method.as_bytes())
            .unwrap_or_else(|error| panic!("{method}: {error}"));
        Call {
            client: self,
            method,
            path: path.to_owned(),
            headers: self.headers.clone(),
            body: Bytes::new(),
        }
    }

    /// GET.
    pub fn get(&self, path: &str) -> Answer {
        self.call("GET", path).send()
    }

    /// POST with a JSON body.
    pub fn post(&self, path: &str, body: &Value) -> Answer {
        self.call("POST", path).json(body).send()
    }

    /// PUT with a JSON body.
    pub fn put(&self, path: &str, body: &Value) -> Answer {
        self.call("PUT", path).json(body).send()
    }

    /// PATCH with a JSON body.
    pub fn patch(&self, path: &str, body: &Value) -> Answer {
        self.call("PATCH", path).json(body).send()
    }

    /// DELETE without a body.
    pub fn delete(&self, path: &str) -> Answer {
        self.call("DELETE", path).send()
    }
}

/// One request being made.
#[derive(Clone, Debug)]
pub struct Call<'a> {
    client: &'a Client,
    method: Method,
    path: String,
    headers: HeaderMap,
    body: Bytes,
}

impl Call<'_> {
    /// The client that makes it.
    pub fn client(&self) -> &Client {
        self.client
    }

    /// The request's method.
    pub fn method(&self) -> &str {
        self.method.as_str()
    }

    /// The request's path, with its query.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Sends this header.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.insert(header_name(name), header_value(value));
        self
    }

    /// Sends this idempotency key.
    pub fn idempotency_key(self, key: &str) -> Self {
        self.header("idempotency-key", key)
    }

    /// Sends this JSON.
    pub fn json(self, body: &Value) -> Self {
        self.header("content-type", "application/json").bytes(body.to_string())
    }

    /// Sends these bytes; says nothing of their type.
    pub fn bytes(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    /// Sends it and waits for the whole answer.
    #[track_caller]
    pub fn send(self) -> Answer {
        let line = format!("{} {}{}", self.method, self.client.base, self.path);
        self.attempt().unwrap_or_else(|fault| panic!("{line}: {fault}"))
    }

    /// The request as the library sends it, and the client that does.
    pub(crate) fn message(self) -> Result<(Http, Request<Full<Bytes>>), String> {
        let mut message = Request::builder()
            .method(self.method)
            .uri(format!("{}{}", self.client.base, self.path))
            .body(Full::new(self.body))
            .map_err(|error| error.to_string())?;
        *message.headers_mut() = self.headers;
        Ok((self.client.http.clone(), message))
    }

    /// Sends it and waits for the whole answer, which a dying server may not give.
    pub fn attempt(self) -> Result<Answer, String> {
        let shown = match std::str::from_utf8(&self.body) {
            Ok(text) => text.chars().take(2000).collect::<String>(),
            Err(_) => format!("({} bytes)", self.body.len()),
        };
        let request = format!("{} {}{}\n{shown}", self.method, self.client.base, self.path);
        let (http, message) = self.message()?;
        runtime().block_on(async move {
            let exchange = async move {
                let (parts, body) =
                    http.request(message).await.map_err(|error| chain(&error))?.into_parts();
                let body = body.collect().await.map_err(|error| chain(&error))?.to_bytes();
                Ok(Answer { request, status: parts.status.as_u16(), headers: parts.headers, body })
            };
            tokio::time::timeout(PATIENCE, exchange)
                .await
                .map_err(|_| format!("no answer within {PATIENCE:?}"))?
        })
    }
}

/// One runtime for all clients of the process.
pub(crate) fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| {
        let built =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        built.unwrap_or_else(|error| panic!("cannot start the client's runtime: {error}"))
    })
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}

fn header_name(name: &str) -> HeaderName {
    name.parse().unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn header_value(value: &str) -> HeaderValue {
    value.parse().unwrap_or_else(|error| panic!("{value}: {error}"))
}
