//! `events`: facts for others. Kept apart from the documents, because they stand even when the
//! guest refuses.

use charter_kernel::audit::AuditRow;
use charter_kernel::manifest::CollectionReach;
use charter_kernel::unit::Fact;
use charter_store::audit_fact;
use serde_json::{Value, json};

use crate::bindings::charter::primitive::events::Host;
use crate::bindings::charter::primitive::types::Failure;
use crate::failure::{failure, invalid, undeclared};
use crate::state::{State, Work};

/// Facts of one request.
const FACTS_MAX: usize = 200;
/// Bytes of a kind of things in an audit row.
const KIND_BYTES_MAX: usize = 64;
/// Bytes of one fact's body.
const FACT_BYTES_MAX: usize = 64 << 10;

impl Work {
    /// Refuses one more fact of so many bytes where that is too much.
    fn admit_fact(&self, bytes: usize) -> Result<(), Failure> {
        if self.facts.len() < FACTS_MAX && bytes <= FACT_BYTES_MAX {
            return Ok(());
        }
        let told = "too many events or audit rows, or one that is too large";
        Err(failure("payload_too_large", told).into())
    }

    fn tell(&mut self, fact: Fact) -> Result<(), Failure> {
        let bytes = fact.body.len() + fact.private.as_ref().map_or(0, String::len);
        self.admit_fact(bytes)?;
        self.fact_bytes += bytes;
        self.facts.push(fact);
        Ok(())
    }

    /// The project and the user that a fact is of: none where all that the primitive keeps is the
    /// organization's, whichever project and profile the request has defaulted to.
    fn fact_place(&self) -> (Option<&str>, Option<&str>) {
        if self.component.manifest.keeps_all_in(CollectionReach::Organization) {
            return (None, None);
        }
        let scope = &self.call.scope;
        (scope.project().map(|id| id.as_str()), scope.user().map(|id| id.as_str()))
    }

    fn event(&mut self, name: &str, payload: &Value) -> Result<Fact, Failure> {
        let id = self.fresh_id()?;
        let (scope, (project, user)) = (&self.call.scope, self.fact_place());
        let body = json!({
            "project": project,
            "user": user,
            "actor": { "type": scope.actor().kind.as_str(), "id": scope.actor().id },
            "primitive": self.component.manifest.name,
            "request_id": self.call.request_id,
            "payload": payload,
        });
        Ok(Fact::event(id, scope.lane(), self.shared.clock.now(), name, &body))
    }

    fn row(
        &self,
        action: &str,
        (kind, id): (&str, &str),
        details: &Value,
    ) -> Result<Fact, Failure> {
        let (scope, (project, _)) = (&self.call.scope, self.fact_place());
        let row = AuditRow {
            organization: scope.lane(),
            at: self.shared.clock.now(),
            actor: (scope.actor().kind.as_str(), &scope.actor().id),
            account: scope.principal().root.as_deref(),
            on_behalf_of: scope.user().map(|id| id.as_str()),
            project,
            primitive: Some(&self.component.manifest.name),
            action,
            entity_type: Some(kind),
            entity_id: Some(id),
            decision: "allowed",
            request: &self.call.request_id,
            details: Some(details),
            ..AuditRow::default()
        };
        Ok(audit_fact(&row)
            .map_err(|_| failure("internal_error", "the machine gives no randomness"))?)
    }
}

/// Whether a kind of things is one word: what is shown to people says nothing else.
fn is_kind(text: &str) -> bool {
    text.len() <= KIND_BYTES_MAX
        && text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"_.-".contains(&b))
}

/// JSON text from a guest as a value.
pub(super) fn json(param: &str, text: &str) -> Result<Value, Failure> {
    charter_kernel::schema::parse_json(text.as_bytes())
        .map_err(|_| invalid(param, format!("`{param}` is not JSON text")).into())
}

impl Host for State {
    async fn emit(&mut self, name: String, payload: String) -> Result<(), Failure> {
        self.hold(name.len() + payload.len())?;
        let work = self.work()?;
        if !work.component.manifest.events.iter().any(|event| event.name == name) {
            return Err(undeclared(format!("the manifest declares no event `{name}`")).into());
        }
        // A text becomes many times as large as a value.
        work.admit_fact(payload.len())?;
        let fact = work.event(&name, &json("payload", &payload)?)?;
        work.tell(fact)
    }

    async fn audit(
        &mut self,
        action: String,
        entity_type: String,
        entity_id: String,
        details: String,
    ) -> Result<(), Failure> {
        self.hold(action.len() + entity_type.len() + entity_id.len() + details.len())?;
        let work = self.work()?;
        let manifest = &work.component.manifest;
        if !manifest.tells(&action) {
            let name = &manifest.name;
            let message = format!("`action` must be {name}.<verb>, in lower case");
            return Err(invalid("action", message).into());
        }
        if !is_kind(&entity_type) {
            let message = "`entity_type` must be a word in lower case";
            return Err(invalid("entity_type", message.to_owned()).into());
        }
        work.admit_fact(details.len())?;
        let fact = work.row(&action, (&entity_type, &entity_id), &json("details", &details)?)?;
        work.tell(fact)
    }
}

#[cfg(test)]
mod tests;
