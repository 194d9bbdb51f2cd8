//! One answer, and what tests ask of it. Every complaint shows the whole exchange.

use bytes::Bytes;
use http::HeaderMap;
use serde_json::Value;

/// The answer of the server.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The request line, for complaints.
    pub request: String,
    /// The status.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
}

impl Answer {
    /// The header's value, where it is there and text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// The body as JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("no JSON ({error}) in {self}"))
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Expects a status and answers the body as JSON (null where there is none).
    #[track_caller]
    pub fn expect(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "expected {status} from {self}");
        if self.body.is_empty() { Value::Null } else { self.json() }
    }

    /// Expects an error with this status and code, in the envelope that every error has; answers
    /// `error`.
    #[track_caller]
    pub fn expect_error(&self, status: u16, code: &str) -> Value {
        let error = self.error();
        assert_eq!(
            (self.status, error["code"].as_str()),
            (status, Some(code)),
            "expected {status} {code} from {self}"
        );
        error
    }

    /// The error of an answer that is one, after checking that its envelope is whole.
    #[track_caller]
    pub fn error(&self) -> Value {
        let error = self.json()["error"].clone();
        for member in ["type", "code", "message"] {
            assert!(
                error[member].as_str().is_some_and(|text| !text.is_empty()),
                "no error.{member} in {self}"
            );
        }
        assert_eq!(
            error["request_id"].as_str(),
            self.header("x-request-id"),
            "error.request_id differs from the header in {self}"
        );
        assert!(
            error.as_object().is_some_and(|error| error.contains_key("param")),
            "no error.param in {self}"
        );
        assert!(
            matches!(self.header("x-should-retry"), Some("true" | "false")),
            "no x-should-retry in {self}"
        );
        error
    }
}

impl std::fmt::Display for Answer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(formatter, "{}\n{}", self.request, self.status)?;
        for (name, value) in &self.headers {
            writeln!(formatter, "{name}: {}", String::from_utf8_lossy(value.as_bytes()))?;
        }
        let text = self.text();
        match text.char_indices().nth(4000) {
            Some((end, _)) => write!(formatter, "\n{}… ({} bytes)", &text[..end], self.body.len()),
            None => write!(formatter, "\n{text}"),
        }
    }
}
