//! Host work that is simply run again when what it read has changed.

use charter_kernel::unit::Rejection;

use crate::error::{CommitError, TransactError};
use crate::store::Store;
use crate::txn::Txn;

/// Attempts before a conflict is handed to the caller. With tickets the second succeeds unless a space was searched.
const ATTEMPTS_MAX: u32 = 8;

impl Store {
    /// Runs `body` on a transaction and commits it; on a conflict waits for its turn at the rows in question and runs it again.
    /// The body must not do anything that cannot be done twice.
    pub async fn transact<T, E>(
        &self,
        organization: &str,
        mut body: impl AsyncFnMut(&mut Txn) -> Result<T, E>,
    ) -> Result<T, TransactError<E>> {
        let mut ticket = None;
        let mut attempt = 0;
        loop {
            attempt += 1;
            let mut txn = self.begin(organization);
            if let Some(ticket) = ticket.take() {
                txn.hold(ticket);
            }
            let answer = match body(&mut txn).await {
                Ok(answer) => answer,
                Err(error) => {
                    if let Err(error) = txn.abandon().await {
                        tracing::warn!(%error, "rows that were handed out could not be given back; their leases will end");
                    }
                    return Err(TransactError::Body(error));
                }
            };
            match txn.commit().await {
                Ok(_) => return Ok(answer),
                Err(CommitError::Rejected(Rejection::Conflict { keys })) if attempt < ATTEMPTS_MAX => {
                    ticket = Some(self.ticket(&keys).await);
                }
                Err(error) => return Err(TransactError::Commit(error)),
            }
        }
    }
}
