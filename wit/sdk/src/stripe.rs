//! Stripe's API, as primitives use it that are bound to it: form-encoded requests of one pinned
//! version, and what its refusals mean.
//!
//! Knows neither documents nor jobs. Each change has an idempotency key, so that asking again does
//! nothing twice.

use serde_json::Value;

use crate::exchange::{Request, Response, encode};
use crate::failure::Failure;
use crate::http;

/// The kind of such bindings in manifests.
pub const KIND: &str = "stripe";
/// The version of the API whose shapes are meant, whatever the account's own is.
pub const VERSION: &str = "2024-06-20";
/// Characters of the provider's own words that are handed on.
const MESSAGE_CHARS_MAX: usize = 300;

/// Members of a request, as a form.
#[derive(Clone, Debug, Default)]
pub struct Form(String);

impl Form {
    /// Adds a member: `metadata[key]` and the like are names too.
    pub fn with(mut self, name: &str, value: &str) -> Self {
        if !self.0.is_empty() {
            self.0.push('&');
        }
        encode(&mut self.0, name);
        self.0.push('=');
        encode(&mut self.0, value);
        self
    }
}

/// Why there is no answer.
#[derive(Debug)]
pub enum Refused {
    /// Asking again would be answered the same.
    Final(Failure),
    /// Nobody knows whether it was done: the same request, under its key, is asked again.
    Unsure(Failure),
}

impl From<Refused> for Failure {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Final(failure) | Refused::Unsure(failure) => failure,
        }
    }
}

/// The account that is bound under a name.
#[derive(Clone, Copy, Debug)]
pub struct Stripe(&'static str);

impl Stripe {
    /// The account behind this binding.
    pub const fn of_binding(binding: &'static str) -> Self {
        Self(binding)
    }

    /// Sends a form; the same key is the same request for ever.
    pub fn post(self, path: &str, form: Form, key: &str) -> Result<Value, Refused> {
        let request = http::binding(self.0)
            .post(path)
            .header("content-type", "application/x-www-form-urlencoded");
        let mut request = request.header("idempotency-key", key);
        request.body = form.0.into_bytes();
        send(request)
    }

    /// Asks for an object.
    pub fn get(self, path: &str, query: &[(&str, &str)]) -> Result<Value, Refused> {
        send(query.iter().fold(http::binding(self.0).get(path), |request, (name, value)| {
            request.query(name, value)
        }))
    }
}

fn send(request: Request) -> Result<Value, Refused> {
    read(
        &request
            .header("stripe-version", VERSION)
            .send()
            .map_err(|error| Refused::Unsure(error.into()))?,
    )
}

fn read(answer: &Response) -> Result<Value, Refused> {
    let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    match answer.status {
        200..=299 if body.is_object() => Ok(body),
        402 => Err(Refused::Final(decline_failure(&body))),
        // Another request under the same key is on its way, or there are too many, or the provider
        // is in trouble.
        200..=299 | 409 | 429 | 500..=599 => Err(Refused::Unsure(Failure::provider(format!(
            "the provider answered {}",
            answer.status
        )))),
        status => {
            let told = format!("the provider refuses with {status}: {}", message(&body));
            Err(Refused::Final(Failure::provider(told).reason(code(&body))))
        }
    }
}

/// Turns the provider's refusal of a payment into the caller's failure.
fn decline_failure(body: &Value) -> Failure {
    Failure::new("payment_rejected", format!("the payment was declined: {}", message(body)))
        .reason(code(body))
}

fn code(body: &Value) -> &str {
    let error = &body["error"];
    let plain = |text: &&str| {
        !text.is_empty()
            && text.len() <= 60
            && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
    };
    error["code"]
        .as_str()
        .or_else(|| error["type"].as_str())
        .filter(plain)
        .unwrap_or("provider_refused")
}

fn message(body: &Value) -> String {
    let told = body["error"]["message"].as_str().unwrap_or("no reason was given");
    told.chars().filter(|c| !c.is_control()).take(MESSAGE_CHARS_MAX).collect()
}

/// A text that may be an id at the provider.
pub fn is_id(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= 255
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// A text member of an answer that must be there.
pub fn text(of: &Value, member: &str) -> Result<String, Refused> {
    let found = of[member].as_str().filter(|text| !text.is_empty());
    let absent =
        || Refused::Unsure(Failure::provider(format!("the provider's answer has no {member}")));
    found.map(str::to_owned).ok_or_else(absent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_is_encoded() {
        let form = Form::default().with("metadata[a b]", "ü&=").with("mode", "payment");
        assert_eq!(form.0, "metadata%5Ba%20b%5D=%C3%BC%26%3D&mode=payment");
    }

    #[test]
    fn a_refusal_says_whether_it_is_worth_asking_again() {
        let answer =
            |status, body: &str| read(&Response { status, headers: Vec::new(), body: body.into() });
        let told = r#"{"error": {"type": "card_error", "code": "card_declined", "message": "Your card was declined."}}"#;
        let Err(Refused::Final(failure)) = answer(402, told) else { panic!("a decline is final") };
        assert_eq!(
            (failure.code(), failure.reason_text()),
            ("payment_rejected", Some("card_declined"))
        );
        assert!(failure.message().contains("Your card was declined."));
        for status in [409, 429, 500, 503] {
            assert!(matches!(answer(status, "{}"), Err(Refused::Unsure(_))), "{status}");
        }
        assert!(matches!(answer(200, "<html>"), Err(Refused::Unsure(_))));
        let Err(Refused::Final(failure)) = answer(400, r#"{"error": {"type": "Hm!"}}"#) else {
            panic!("final")
        };
        assert_eq!(
            (failure.code(), failure.reason_text()),
            ("provider_error", Some("provider_refused"))
        );
        assert!(answer(200, r#"{"id": "pi_1"}"#).is_ok());
    }
}
