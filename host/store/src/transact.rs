//! Host work that is simply run again when what it read has changed.

use charter_kernel::unit::{Key, Rejection};

use crate::error::{CommitError, TransactError};
use crate::store::Store;
use crate::ticket::Ticket;
use crate::txn::Txn;

/// Attempts before a conflict is handed to the caller. With tickets the second succeeds unless a
/// space was searched.
const ATTEMPTS_MAX: u32 = 8;

/// An attempt's body. Implemented by every `async |txn| …` whose future can be sent; nobody
/// implements it by hand. It says what `AsyncFnMut` cannot yet: that the future is `Send`, for
/// whichever lifetime the transaction has.
pub trait Body<'a, T, E> {
    /// One attempt.
    type Attempt: Future<Output = Result<T, E>> + Send;
    /// Begins an attempt.
    fn attempt(&mut self, txn: &'a mut Txn) -> Self::Attempt;
}

impl<'a, T, E, F, A> Body<'a, T, E> for F
where
    F: FnMut(&'a mut Txn) -> A,
    A: Future<Output = Result<T, E>> + Send,
{
    type Attempt = A;
    fn attempt(&mut self, txn: &'a mut Txn) -> A {
        self(txn)
    }
}

/// The attempts at one piece of host work: each has its turn at the rows that the one before found
/// changed.
pub struct Attempts<'a> {
    store: &'a Store,
    organization: &'a str,
    ticket: Option<Ticket>,
    left: u32,
}

impl Attempts<'_> {
    /// Begins the next attempt; nothing where there were as many as there may be.
    pub fn begin(&mut self) -> Option<Txn> {
        self.left = self.left.checked_sub(1)?;
        let mut txn = self.store.begin(self.organization);
        if let Some(ticket) = self.ticket.take() {
            txn.hold(ticket);
        }
        Some(txn)
    }

    /// Waits for a turn at the rows of a conflict.
    pub async fn wait_turn(&mut self, keys: &[Key]) {
        self.ticket = Some(self.store.ticket(keys).await);
    }
}

impl Store {
    /// Attempts at work of this organization that is run again while what it reads changes.
    pub fn attempts<'a>(&'a self, organization: &'a str) -> Attempts<'a> {
        Attempts { store: self, organization, ticket: None, left: ATTEMPTS_MAX }
    }

    /// Runs `body` on a transaction and commits it; on a conflict waits for its turn at the rows in
    /// question and runs it again. The body must not do anything that cannot be done twice.
    pub async fn transact<T, E, F>(
        &self,
        organization: &str,
        mut body: F,
    ) -> Result<T, TransactError<E>>
    where
        T: Send,
        E: Send,
        F: AsyncFnMut(&mut Txn) -> Result<T, E> + for<'a> Body<'a, T, E>,
    {
        let mut attempts = self.attempts(organization);
        while let Some(mut txn) = attempts.begin() {
            let answer = match Body::attempt(&mut body, &mut txn).await {
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
                Err(CommitError::Rejected(Rejection::Conflict { keys })) if attempts.left > 0 => {
                    attempts.wait_turn(&keys).await;
                }
                Err(error) => return Err(TransactError::Commit(error)),
            }
        }
        Err(TransactError::Commit(CommitError::Overloaded { retry_after_s: 1 }))
    }
}
