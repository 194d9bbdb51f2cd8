//! `events`: facts for others, kept even where the request is refused. The names are the manifest's
//! to allow.

use charter_kernel::refusal::Failure;
use charter_kernel::schema::parse_json;
use charter_kernel::unit::{Fact, FactKind};
use charter_sdk::native::{Answer, Events};
use serde_json::{Value, json};

use crate::call::Work;
use crate::world::{Double, World};

/// Facts of one request.
const FACTS_MAX: usize = 200;
/// Bytes of a kind of things in an audit row.
const KIND_BYTES_MAX: usize = 64;
/// Bytes of one fact's body.
const FACT_BYTES_MAX: usize = 64 << 10;

impl Work {
    fn fact(&mut self, world: &mut World, kind: FactKind, name: &str, body: Value) -> Fact {
        Fact {
            id: world.fresh_id(),
            kind,
            organization: self.call.scope.lane().to_owned(),
            at: world.now,
            name: name.to_owned(),
            body: body.to_string(),
            private: None,
            user: None,
        }
    }

    fn tell(&mut self, fact: Fact) -> Result<(), Failure> {
        if self.facts.len() >= FACTS_MAX || fact.body.len() > FACT_BYTES_MAX {
            let told = "too many events or audit rows, or one that is too large";
            return Err(Failure::new("payload_too_large", told));
        }
        self.facts.push(fact);
        Ok(())
    }
}

/// JSON text from a guest as a value.
pub(super) fn json(param: &str, text: &str) -> Result<Value, Failure> {
    parse_json(text.as_bytes())
        .map_err(|_| Failure::invalid(param, format!("`{param}` is not JSON text")))
}

fn is_kind(text: &str) -> bool {
    text.len() <= KIND_BYTES_MAX
        && text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"_.-".contains(&b))
}

impl Events for Double {
    fn emit(&self, name: &str, payload: &str) -> Answer<()> {
        self.reading("events", |world, work| {
            if !world.installed.manifest.events.iter().any(|event| event.name == name) {
                let told = format!("the manifest declares no event `{name}`");
                return Err(Failure::undeclared(told));
            }
            let body = json("payload", payload)?;
            let fact = work.fact(world, FactKind::Event, name, body);
            work.tell(fact)
        })
    }

    fn audit(&self, action: &str, entity_type: &str, entity_id: &str, details: &str) -> Answer<()> {
        self.reading("events", |world, work| {
            if !world.installed.manifest.tells(action) {
                let told = format!("`action` must be {}.<verb>, in lower case", world.name());
                return Err(Failure::invalid("action", told));
            }
            if !is_kind(entity_type) {
                let told = "`entity_type` must be a word in lower case";
                return Err(Failure::invalid("entity_type", told));
            }
            let details = json("details", details)?;
            let body =
                json!({ "entity_type": entity_type, "entity_id": entity_id, "details": details });
            let fact = work.fact(world, FactKind::Audit, action, body);
            work.tell(fact)
        })
    }
}
