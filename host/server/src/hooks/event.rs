//! Events that primitives were told of by their hooks, kept as long as a sender may send them
//! again.

use charter_engine::hook::HookRecord;
use charter_kernel::hex::sha256;
use charter_kernel::time::Instant;
use charter_kernel::unit::{Key, Reach};
use charter_tenancy::records::{EXPIRES, Record, entry};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// How long an event is known again: a week. Senders try for three days.
const KEPT_MS: i64 = 7 * 86_400_000;

/// That an event was told, or asked.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HookEvent {
    /// The organization of the hook that it came by.
    pub organization: String,
    /// SHA-256 of the hook's id and the event's.
    pub digest: String,
    /// When it was told.
    pub at: Instant,
    /// The answer that its sender got, if it asked and the primitive had one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<Value>,
}

impl HookEvent {
    /// That this event is told now.
    pub fn new(hook: &HookRecord, event: &str, now: Instant) -> Self {
        let digest = sha256(&format!("{}\0{event}", hook.id));
        Self { organization: hook.owner.organization.clone(), digest, at: now, answer: None }
    }
}

impl Record for HookEvent {
    const COLLECTION: &'static str = "hook_events";

    fn key(&self) -> Key {
        Key::new(&Reach::organization(&self.organization), &Self::space(), self.digest.as_str())
    }

    fn index(&self) -> Vec<(String, String)> {
        vec![entry(EXPIRES, self.at.plus_ms(KEPT_MS).to_string())]
    }
}
