//! `events`: facts for others. Kept apart from the documents, because they stand even when the guest refuses.

use charter_kernel::unit::{Fact, FactKind};
use serde_json::{Value, json};

use crate::bindings::charter::primitive::events::Host;
use crate::bindings::charter::primitive::types::Failure;
use crate::failure::{failure, undeclared};
use crate::state::{State, Work};

/// Facts of one request.
const FACTS_MAX: usize = 200;
/// Bytes of one fact's body.
const FACT_BYTES_MAX: usize = 64 << 10;

impl Work {
    fn fact(&mut self, kind: FactKind, name: String, body: Value) -> Result<(), Failure> {
        let body = body.to_string();
        if self.facts.len() >= FACTS_MAX || body.len() > FACT_BYTES_MAX {
            return Err(failure("payload_too_large", "too many events or audit rows, or one that is too large").into());
        }
        let fact = Fact {
            id: self.fresh_id()?,
            kind,
            organization: self.call.scope.lane().to_owned(),
            at: self.shared.clock.now(),
            name,
            body,
        };
        self.facts.push(fact);
        Ok(())
    }

    fn about(&self) -> serde_json::Map<String, Value> {
        let scope = &self.call.scope;
        let mut about = serde_json::Map::new();
        about.insert("project".into(), json!(scope.project().map(|id| id.as_str())));
        about.insert("user".into(), json!(scope.user().map(|id| id.as_str())));
        about.insert("actor".into(), json!({ "type": scope.actor().kind.as_str(), "id": scope.actor().id }));
        about.insert("primitive".into(), json!(self.component.manifest.name));
        about.insert("request_id".into(), json!(self.call.request_id));
        about
    }
}

/// JSON text from a guest as a value.
pub(super) fn json(param: &str, text: &str) -> Result<Value, Failure> {
    charter_kernel::schema::parse_json(text.as_bytes())
        .map_err(|_| crate::failure::invalid(param, format!("`{param}` is not JSON text")).into())
}

impl Host for State {
    async fn emit(&mut self, name: String, payload: String) -> Result<(), Failure> {
        let work = self.work()?;
        if !work.component.manifest.events.iter().any(|event| event.name == name) {
            return Err(undeclared(format!("the manifest declares no event `{name}`")).into());
        }
        let mut body = work.about();
        body.insert("payload".into(), json("payload", &payload)?);
        work.fact(FactKind::Event, name, Value::Object(body))
    }

    async fn audit(&mut self, action: String, entity_type: String, entity_id: String, details: String) -> Result<(), Failure> {
        let work = self.work()?;
        let mut body = work.about();
        body.insert("entity".into(), json!({ "type": entity_type, "id": entity_id }));
        body.insert("details".into(), json("details", &details)?);
        work.fact(FactKind::Audit, action, Value::Object(body))
    }
}
