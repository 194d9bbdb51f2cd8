//! The taking of holds that were put off: before anything leaves the host, or is committed apart
//! from the request.
//!
//! A cap may refuse them then: the guest is run again, and its holds are taken when it asks for
//! them, so that it hears the refusal.

use crate::bindings::charter::primitive::types::Failure;
use crate::call::Call;
use crate::shared::Shared;
use crate::story::permits::{Untaken, join};
use crate::story::{Abort, Marks};

impl Shared {
    /// Takes what is not taken yet, and whatever is asked for from here on at once: something is
    /// about to leave the host, to be committed apart from the request, or to be asked that holds
    /// count in. A caller that comes at the same time waits until it is taken, and leaves nothing
    /// if it is not.
    pub(crate) async fn take_untaken(&self, call: &Call, marks: &Marks) -> Result<(), Failure> {
        let mut untaken = marks.untaken.lock().await;
        if let Some(abort) = marks.abort_cause() {
            return Err(abort.failure());
        }
        marks.take_at_once();
        if untaken.is_empty() {
            return Ok(());
        }
        let mut all = self.store.begin(call.scope.lane());
        for Untaken { id, hold, unit, .. } in untaken.iter() {
            unit.facts.iter().for_each(|fact| all.fact(fact.clone()));
            join(&mut all, unit, hold.take(id));
        }
        if let Err(error) = all.commit().await {
            let abort = marks.again_at_once(Abort::of(error, call, marks));
            let told = abort.failure();
            marks.abort(abort);
            return Err(told);
        }
        untaken.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests;
