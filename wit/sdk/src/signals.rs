//! Signals, which come from the host rather than from a caller: due jobs, hooks, mail, life-cycle
//! changes, others' events.

use serde_json::Value;

use crate::answer::Answer;
use crate::bindings::{Caller, Signal as Raw};
use crate::failure::Result;

/// One signal, in the scope of whom it concerns.
#[derive(Clone, Debug)]
pub struct Signal {
    /// `job`, `hook`, `question`, `mail`, `bounce`, `name`, `approval`, `event`, `created`,
    /// `revoked`, `restored`, `deleted`, `registered`, `credit`, `doubt`.
    pub kind: String,
    /// Its content.
    pub payload: Value,
    /// Key of a large content in the object store.
    pub blob: Option<String>,
    /// In whose scope it is.
    pub caller: Caller,
}

impl Signal {
    pub(crate) fn of(caller: Caller, signal: Raw) -> Result<Self> {
        let payload = serde_json::from_str(&signal.payload)?;
        Ok(Self { kind: signal.kind, payload, blob: signal.blob, caller })
    }
}

/// The result of a reaction: nothing, or an [`Answer`] where someone waits for it.
pub trait Reaction {
    /// The answer, if any.
    fn into_answer(self) -> Result<Option<Answer>>;
}

impl Reaction for () {
    fn into_answer(self) -> Result<Option<Answer>> {
        Ok(None)
    }
}

impl Reaction for Answer {
    fn into_answer(self) -> Result<Option<Answer>> {
        Ok(Some(self))
    }
}
