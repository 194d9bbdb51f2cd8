//! The amounts that a request took from rates of its primitive, and their way back where the
//! request comes to nothing.

use charter_kernel::governance::rate::Rate;
use charter_kernel::refusal::Failure as Refusal;
use charter_kernel::time::Instant;
use charter_kernel::unit::{Draft, Key};
use charter_store::{Store, Txn, WriteError};

use crate::failure::{failure, unread, write_failure};

/// The amount that one request took of a rate, by its place in the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RateRecord {
    pub(crate) key: Key,
    pub(crate) amount: u32,
    pub(crate) per_seconds: u32,
    /// The moment at which it was taken.
    pub(crate) at: Instant,
    /// The attempt that asked for it last, or [`super::COMMITTED`].
    pub(crate) attempt: u32,
}

fn read(row: Option<&str>) -> Result<Rate, Refusal> {
    let unreadable = |_| failure("internal_error", "the rate cannot be read");
    row.map_or(Ok(Rate::default()), |body| serde_json::from_str(body).map_err(unreadable))
}

/// Changes the row of a rate, in a transaction.
pub(crate) async fn change<T>(
    txn: &mut Txn,
    key: &Key,
    with: impl FnOnce(&mut Rate) -> Result<T, Refusal>,
) -> Result<T, Refusal> {
    let row = txn.get(key).await.map_err(|error| unread(&error))?;
    let mut rate = read(row.as_ref().map(|row| row.body.as_str()))?;
    let changed = with(&mut rate)?;
    let body = serde_json::to_string(&rate)
        .map_err(|_| failure("internal_error", "the rate cannot be written"))?;
    let written: Result<_, WriteError> =
        txn.put(key.clone(), Draft { body, ..Draft::default() }).await;
    written.map(|_| changed).map_err(|error| write_failure(&error))
}

impl RateRecord {
    /// Gives it back. An amount that cannot be given back counts until its window ends.
    pub(crate) async fn give_back(self, store: &Store, organization: &str) {
        let key = self.key.clone();
        let given = store
            .transact(organization, async |txn: &mut Txn| {
                change(txn, &key, |rate| {
                    rate.give_back(self.at);
                    Ok(())
                })
                .await
            })
            .await;
        if given.is_err() {
            tracing::warn!(
                organization,
                rate = key.id,
                "a rate could not be given back; it counts until its time is over"
            );
        }
    }
}
