//! How a refusal reads on the wire: the superset envelope, and RFC 9457 for who asks for it.

use serde_json::{Map, Value, json};

use super::code::{kind, retryable};
use super::{Catalogue, Refusal};

impl Refusal {
    /// Its name and HTTP status in a catalogue.
    pub fn row(&self, catalogue: Catalogue) -> (&str, u16) {
        match &self.own {
            Some(own) => (&own.code, own.status),
            None => self.code.row(catalogue),
        }
    }

    /// Its HTTP status in a catalogue.
    pub fn status(&self, catalogue: Catalogue) -> u16 {
        self.row(catalogue).1
    }

    /// The value of `x-should-retry`.
    pub fn should_retry(&self) -> bool {
        let asks_again = match &self.own {
            Some(own) => retryable(own.status),
            None => self.code.should_retry(),
        };
        asks_again && !self.is_final
    }

    /// Whether it is the answer to its idempotency key: the thing that was asked for is absent, or its
    /// state does not admit it. A fault of the request or its credential, a lack of room, and a
    /// refusal that may not come the next time are no answers: under the key it is asked again.
    pub fn is_kept(&self, catalogue: Catalogue) -> bool {
        let status = self.status(catalogue);
        (400..500).contains(&status)
            && !matches!(status, 400 | 401 | 402 | 403 | 408 | 429)
            && !self.should_retry()
    }

    /// Status and body: `{error: {type, code, message, request_id, param, hint?, reason?, details?,
    /// …}}`.
    pub fn render(&self, catalogue: Catalogue, request_id: &str) -> (u16, Value) {
        let (_, status) = self.row(catalogue);
        let mut members = self.members(catalogue, request_id);
        members.insert("type".into(), kind(status).into());
        (status, json!({ "error": members }))
    }

    /// Status and body in the format of RFC 9457, with the envelope's members beside the standard
    /// ones.
    pub fn problem(&self, catalogue: Catalogue, request_id: &str) -> (u16, Value) {
        let (code, status) = self.row(catalogue);
        let code = code.to_owned();
        let mut members = self.members(catalogue, request_id);
        members.insert("type".into(), "about:blank".into());
        members.insert("title".into(), code.replace('_', " ").into());
        members.insert("status".into(), status.into());
        members.insert("detail".into(), self.message.clone().into());
        members.insert("instance".into(), format!("urn:uuid:{request_id}").into());
        members.insert("kind".into(), kind(status).into());
        (status, Value::Object(members))
    }

    fn members(&self, catalogue: Catalogue, request_id: &str) -> Map<String, Value> {
        // The envelope's own members come last, so that no extra member can replace one.
        let mut members = self.extra.clone();
        for (name, text) in [("hint", &self.hint), ("reason", &self.reason)] {
            if let Some(text) = text {
                members.insert(name.into(), text.clone().into());
            }
        }
        if !self.details.is_empty() {
            members.insert("details".into(), self.details.clone().into());
        }
        members.insert("param".into(), self.param.clone().into());
        members.insert("request_id".into(), request_id.into());
        members.insert("message".into(), self.message.clone().into());
        members.insert("code".into(), self.row(catalogue).0.into());
        members
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::Fault;
    use crate::refusal::{Code, Declared};

    #[test]
    fn both_catalogues_share_one_envelope() {
        let refusal = Refusal::faults(vec![
            Fault::new("name", "must be a string"),
            Fault::new("size", "must be at most 3"),
        ]);
        let (status, primary) = refusal.render(Catalogue::Primary, "r-1");
        let (_, typed) = refusal.render(Catalogue::Typed, "r-1");
        assert_eq!(status, 400);
        assert_eq!(primary["error"]["code"], "invalid_input");
        assert_eq!(typed["error"]["code"], "validation_failed");
        for body in [primary, typed] {
            assert_eq!(body["error"]["type"], "invalid_request");
            assert_eq!(body["error"]["request_id"], "r-1");
            assert_eq!(body["error"]["param"], "name");
            assert_eq!(
                body["error"]["details"]["faults"][1],
                json!({"path": "size", "message": "must be at most 3"})
            );
        }
    }

    #[test]
    fn what_is_refused_for_good_reads_the_same_and_is_asked_for_no_more() {
        let own = Declared { code: "shelf_full".into(), status: 429 };
        let declared = Refusal { own: Some(own), ..Refusal::rate_limited(2) };
        for refusal in [Refusal::overloaded(1), Refusal::deadline_exceeded(), declared] {
            assert!(refusal.should_retry(), "{refusal:?}");
            let last = refusal.clone().for_good();
            assert_eq!((last.should_retry(), last.retry_after_seconds), (false, None));
            for catalogue in [Catalogue::Primary, Catalogue::Typed] {
                assert_eq!(last.render(catalogue, "r"), refusal.render(catalogue, "r"));
            }
        }
    }

    #[test]
    fn param_is_null_and_optional_members_are_absent() {
        let (_, body) = Refusal::not_found().render(Catalogue::Primary, "r");
        assert_eq!(body["error"].get("param"), Some(&Value::Null));
        for absent in ["hint", "reason", "details"] {
            assert_eq!(body["error"].get(absent), None, "{absent}");
        }
    }

    #[test]
    fn a_breached_cap_reads_as_each_catalogue_says() {
        let refusal =
            Refusal::new(Code::BudgetExceeded, "The cap is used up.").detail("scope", "user");
        let (status, body) = refusal.render(Catalogue::Primary, "r");
        assert_eq!(
            (status, &body["error"]["code"], &body["error"]["reason"]),
            (403, &json!("forbidden"), &json!("budget_exceeded"))
        );
        let (status, body) = refusal.render(Catalogue::Typed, "r");
        assert_eq!((status, &body["error"]["code"]), (402, &json!("budget_exceeded")));
    }

    #[test]
    fn extra_members_never_replace_the_envelopes_own() {
        let refusal = Refusal::not_found()
            .extra("code", "spoofed")
            .extra("request_id", "spoofed")
            .extra("balance", 3);
        let (_, body) = refusal.render(Catalogue::Primary, "r");
        assert_eq!(body["error"]["code"], "not_found");
        assert_eq!(body["error"]["request_id"], "r");
        assert_eq!(body["error"]["balance"], 3);
    }

    #[test]
    fn a_problem_document_has_the_standard_members_and_ours() {
        let (status, body) = Refusal::rate_limited(7).problem(Catalogue::Typed, "r");
        assert_eq!(
            (status, &body["status"], &body["code"]),
            (429, &json!(429), &json!("rate_limited"))
        );
        assert_eq!(body["title"], "rate limited");
        assert_eq!(body["detail"], body["message"]);
    }
}
