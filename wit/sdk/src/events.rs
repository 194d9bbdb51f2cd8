//! Facts for others. They are kept even when the request is refused afterwards: a refusal is a fact
//! too.

use serde::Serialize;

use crate::failure::Result;
use crate::host::events as host;

/// Tells the live stream and subscribed webhooks; the manifest declares the name.
pub fn emit<T: Serialize>(name: &str, payload: &T) -> Result<()> {
    Ok(host::emit(name, &serde_json::to_string(payload)?)?)
}

/// A row in the audit log beside the host's own: who read what, and why it was let.
pub fn audit<T: Serialize>(
    action: &str,
    entity_type: &str,
    entity_id: &str,
    details: &T,
) -> Result<()> {
    Ok(host::audit(action, entity_type, entity_id, &serde_json::to_string(details)?)?)
}
