//! The call's part of the unit by which it waits for a person.

use std::fmt;
use std::sync::Arc;

use charter_kernel::unit::{Fact, Key};
use charter_store::{CommitError, Txn};
use futures::FutureExt as _;
use futures::future::BoxFuture;

use crate::call::{Call, Ending, EndingResult};
use crate::leave::Waits;

/// A call whose claim is committed, or is not.
pub(crate) struct Waiting {
    pub(crate) call: Arc<Call>,
    pub(crate) is_claimed: bool,
    /// The decisions on earlier actions of the request.
    pub(crate) decided: Vec<Fact>,
}

impl fmt::Debug for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiting").field("is_claimed", &self.is_claimed).finish_non_exhaustive()
    }
}

impl Waits for Waiting {
    fn note<'a>(
        &'a self,
        txn: &'a mut Txn,
        approval: &'a str,
        record: &'a str,
    ) -> BoxFuture<'a, Result<(), CommitError>> {
        if let Some(claim) = self.call.claim.as_ref().filter(|_| self.is_claimed) {
            txn.guard(claim.fence.clone());
        }
        self.decided.iter().for_each(|fact| txn.fact(fact.clone()));
        let result = EndingResult::Pending { approval, record };
        let shown = self.call.shown.is_set();
        let ending = Ending { result, claimed: self.is_claimed, dispatched: false, shown };
        self.call.finish.finish(txn, ending).boxed()
    }

    fn conflicts_on(&self, keys: &[Key]) -> bool {
        self.call.claim.as_ref().is_some_and(|claim| keys.contains(&claim.key))
    }
}
