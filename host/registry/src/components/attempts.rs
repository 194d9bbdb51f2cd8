//! Host work that is run again when what it read has changed, as a plain loop whose futures can
//! move between threads.

use charter_kernel::unit::Rejection;
use charter_store::{CommitError, Store, Ticket, Txn};

/// Attempts before a conflict is handed on.
const ATTEMPTS_MAX: u32 = 8;

/// The attempts at one piece of work.
pub(crate) struct Attempts<'a> {
    store: &'a Store,
    lane: &'a str,
    made: u32,
    ticket: Option<Ticket>,
}

impl<'a> Attempts<'a> {
    /// None made yet.
    pub(crate) fn new(store: &'a Store, lane: &'a str) -> Self {
        Self { store, lane, made: 0, ticket: None }
    }

    /// The next one.
    pub(crate) fn begin(&mut self) -> Txn {
        self.made += 1;
        let mut txn = self.store.begin(self.lane);
        if let Some(ticket) = self.ticket.take() {
            txn.hold(ticket);
        }
        txn
    }

    /// Commits it; false where it has to be made again.
    pub(crate) async fn commit(&mut self, txn: Txn) -> Result<bool, CommitError> {
        match txn.commit().await {
            Ok(_) => Ok(true),
            Err(CommitError::Rejected(Rejection::Conflict { keys }))
                if self.made < ATTEMPTS_MAX =>
            {
                self.ticket = Some(self.store.ticket(&keys).await);
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }
}
