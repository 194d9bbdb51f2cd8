//! An organization's events, as others are told of them: events of primitives and of the host, and
//! each audit row as `activity.logged`.
//!
//! Both are facts that rode in the commit of their cause and were numbered right behind it, so
//! nobody is told of what did not happen, and nobody misses what did.

use charter_kernel::refusal::Refusal;
use charter_kernel::unit::{FactKind, LogKey};
use charter_store::{SequencedFact, Store};
use charter_tenancy::stored::reading;
use serde_json::{Value, json};

/// The type under which an audit row is told.
pub const ACTIVITY: &str = "activity.logged";

/// How far somebody has read: the sequence of the last event and of the last audit row.
///
/// As text it is one number that only grows, as the wire has it: the first in the upper half of 64
/// bits, the second in the lower.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// The last event.
    pub event: u64,
    /// The last audit row.
    pub audit: u64,
}

impl Position {
    /// The number.
    pub fn number(self) -> u64 {
        (self.event << 32) | (self.audit & u64::from(u32::MAX))
    }

    /// The position of a number.
    pub fn of(number: u64) -> Self {
        Self { event: number >> 32, audit: number & u64::from(u32::MAX) }
    }

    /// Behind everything that has happened so far.
    ///
    /// # Errors
    /// When the store cannot be asked.
    pub async fn now(store: &Store, organization: &str) -> Result<Self, Refusal> {
        let head = async |kind| store.facts_head_settled(kind, organization).await.map_err(reading);
        Ok(Self { event: head(FactKind::Event).await?, audit: head(FactKind::Audit).await? })
    }
}

/// The source that a stream follows, and the position from which it does.
#[derive(Clone, Debug)]
pub enum Source {
    /// The entries of a log after one.
    Log(LogKey, u64),
    /// An organization's events, behind a position.
    Events(String, Position),
}

/// An audit row as an event says it.
fn activity(row: &SequencedFact) -> Value {
    let parsed = |text: &str| serde_json::from_str::<Value>(text).unwrap_or_default();
    let (body, private) =
        (parsed(&row.fact.body), row.fact.private.as_deref().map(parsed).unwrap_or_default());
    json!({
        "actorType": body["actor"]["type"],
        "actorId": body["actor"]["id"],
        "action": body["action"],
        "entityType": body["entity_type"],
        "entityId": private["entity_id"],
        "agentId": private["details"]["agent_id"],
        "runId": private["details"]["run_id"],
        "details": private["details"],
    })
}

/// A fact as the live stream tells it: its type and its data. The payload of an event whose user was
/// erased is null.
pub fn stream_entry(row: &SequencedFact) -> (String, Value) {
    let body: Value = serde_json::from_str(&row.fact.body).unwrap_or_default();
    let (kind, payload) = match row.fact.kind {
        FactKind::Audit => (ACTIVITY.to_owned(), activity(row)),
        FactKind::Event => (row.fact.name.clone(), row.fact.payload(&body).unwrap_or_default()),
    };
    let data = json!({
        "id": row.fact.id, "companyId": row.fact.organization, "type": kind, "primitive": body["primitive"],
        "createdAt": row.fact.at, "payload": payload,
    });
    (kind, data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_one_number_that_grows_with_either() {
        let at = |event, audit| Position { event, audit };
        for position in [at(0, 0), at(1, 0), at(7, u64::from(u32::MAX)), at(1 << 31, 5)] {
            assert_eq!(Position::of(position.number()), position);
        }
        assert!(at(1, 9).number() < at(1, 10).number() && at(1, 10).number() < at(2, 10).number());
    }
}
