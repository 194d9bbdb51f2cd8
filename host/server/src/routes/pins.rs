//! Has the pins of a kit follow what it says: in the same commit, so that no version is removed
//! from under its users.

use charter_kernel::refusal::Refusal;
use charter_registry::components::{Inventory, State, Version};
use charter_store::Txn;
use charter_tenancy::records::Record as _;
use charter_tenancy::records::kit::StoredKit;
use charter_tenancy::records::pin::Pin;
use charter_tenancy::stored;

/// Writes what has changed between a kit and what becomes of it; `None` where there is none yet, or
/// none any more.
///
/// # Errors
/// 400 for a version that was removed or quarantined meanwhile, 409 for one whose indexes are not
/// built.
pub async fn follow(
    txn: &mut Txn,
    before: Option<&StoredKit>,
    after: Option<&StoredKit>,
) -> Result<(), Refusal> {
    let [before, after] = [before, after].map(|kit| kit.map(Pin::all).unwrap_or_default());
    for pin in before.iter().filter(|pin| !after.contains(pin)) {
        stored::remove(txn, pin).await?;
    }
    for pin in after.iter().filter(|pin| !before.contains(pin)) {
        // The registry's copy, by which the body was checked, may be a moment old. This row is
        // validated at the commit.
        let found =
            stored::get::<Version>(txn, &Version::address(&pin.primitive, &pin.version)).await?;
        let live = found.filter(|found| found.record.state != State::Quarantined);
        let Some(live) = live else {
            let message =
                format!("must be a live version of {}, not {}", pin.primitive, pin.version);
            return Err(Refusal::invalid(format!("primitives.{}.version", pin.primitive), message));
        };
        require_built(txn, &live.record).await?;
        let draft = pin.draft().map_err(stored::unreadable)?;
        txn.put(pin.key(), draft).await.map_err(stored::breaking)?;
    }
    Ok(())
}

/// It finds the documents of before it was installed. Another version may come to serve meanwhile:
/// the indexes stay built.
async fn require_built(txn: &mut Txn, version: &Version) -> Result<(), Refusal> {
    let inventory = Inventory::read(txn, true).await.map_err(stored::reading)?;
    if inventory.finds_all(version) {
        return Ok(());
    }
    let message = format!(
        "The indexes of {} {} are not built: it would not find each document.",
        version.name, version.version
    );
    Err(Refusal::state_conflict("index_not_built", message)
        .hint("Have the operator install it again, which builds them, or activate it."))
}
