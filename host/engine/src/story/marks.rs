//! The marks of one attempt: what it has done that no further run of its guest undoes, what is
//! being committed for it, and why it is over.
//!
//! Shared with the requests in flight to the outside. The end of an attempt waits for the commits
//! that have begun, and lets none begin after.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use charter_kernel::refusal::Failure;
use charter_kernel::unit::{Guard, Key, Refused};
use tokio::sync::{Notify, OwnedMutexGuard};

use super::permits::Untaken;

/// A request's effects on the world outside its transaction.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    /// Something left the host, or was committed: the guest is not run again.
    pub(crate) dispatched: AtomicBool,
    /// How many effects stand, as far as anybody knows: a change of another primitive's that says
    /// that nothing was done is none.
    effects: AtomicU32,
    /// The idempotency claim is committed.
    pub(crate) claimed: tokio::sync::OnceCell<()>,
    /// Holds that leave was given for and that are not taken yet: with the request's own commit, or
    /// before anything leaves the host.
    pub(crate) untaken: tokio::sync::Mutex<Vec<Untaken>>,
    /// Holds are taken when they are asked for: an attempt that put that off was refused by a rule,
    /// or something has left already.
    at_once: AtomicBool,
    /// The guards that leave was given under, beside those that the request was admitted under.
    conditions: Mutex<Vec<Guard>>,
    /// Set once: the attempt is over whatever the guest says.
    abort: OnceLock<Abort>,
    commits: Mutex<Commits>,
    /// Told when the commit under way has ended.
    idle: Notify,
    /// Held by the commit under way: what one of them does, the next one knows.
    turn: Arc<tokio::sync::Mutex<()>>,
}

/// The commits of an attempt before its end. The end waits for them and lets none begin after, so
/// that what was committed is known, however the guest ends.
#[derive(Debug, Default)]
struct Commits {
    is_under_way: bool,
    /// Whether the attempt has ended.
    closed: bool,
}

/// A commit before the end of its attempt, from before it is asked for until what came of it is
/// noted.
#[derive(Debug)]
pub(crate) struct Commit {
    marks: Arc<Marks>,
    _turn: OwnedMutexGuard<()>,
}

impl Drop for Commit {
    fn drop(&mut self) {
        self.marks.lock_commits().is_under_way = false;
        self.marks.idle.notify_waiters();
    }
}

impl Marks {
    /// Begins a commit before the end, after those that the guest asked for earlier, where the
    /// attempt has not ended by then.
    pub(crate) async fn begin_commit(self: &Arc<Self>) -> Result<Commit, Failure> {
        let turn = self.turn.clone().lock_owned().await;
        let mut commits = self.lock_commits();
        if commits.closed || self.abort_cause().is_some() {
            return Err(over());
        }
        commits.is_under_way = true;
        Ok(Commit { marks: self.clone(), _turn: turn })
    }
    /// The attempt has ended: no commit begins any more.
    pub(crate) fn close(&self) {
        self.lock_commits().closed = true;
    }
    /// Ends the attempt, unless something is being committed or has left the host.
    fn close_untouched(&self) -> bool {
        let mut commits = self.lock_commits();
        commits.closed |= !commits.is_under_way && !self.is_dispatched();
        commits.closed
    }
    /// Resolves once nothing is being committed.
    pub(crate) async fn idle(&self) {
        loop {
            let told = self.idle.notified();
            if !self.lock_commits().is_under_way {
                return;
            }
            told.await;
        }
    }
    /// Ends the attempt as soon as nothing is being committed; never where something has left the
    /// host.
    pub(crate) async fn close_while_untouched(&self) {
        while !self.close_untouched() {
            self.idle().await;
            if self.is_dispatched() {
                std::future::pending::<()>().await;
            }
        }
    }
    fn lock_commits(&self) -> std::sync::MutexGuard<'_, Commits> {
        self.commits.lock().unwrap_or_else(PoisonError::into_inner)
    }
    pub(crate) fn is_dispatched(&self) -> bool {
        self.dispatched.load(SeqCst)
    }
    pub(crate) fn dispatch(&self) {
        self.dispatched.store(true, SeqCst);
        self.effects.fetch_add(1, SeqCst);
    }
    /// One that was dispatched came to nothing, as its own refusal says. The guest is not run again
    /// in any case.
    pub(crate) fn deny_effect(&self) {
        self.effects.fetch_sub(1, SeqCst);
    }
    /// Whether something may have been done, so that no refusal says otherwise.
    pub(crate) fn has_acted(&self) -> bool {
        self.effects.load(SeqCst) > 0
    }
    /// Whether holds may be taken later than they are asked for.
    pub(crate) fn defers(&self) -> bool {
        !self.at_once.load(SeqCst)
    }
    /// From now on they may not.
    pub(crate) fn take_at_once(&self) {
        self.at_once.store(true, SeqCst);
    }
    /// From now on this must hold too: leave was given under it.
    pub(crate) fn require(&self, conditions: Vec<Guard>) {
        self.lock_conditions().extend(conditions);
    }
    /// The guards that leave was given under, beside those that the request was admitted under.
    pub(crate) fn conditions(&self) -> Vec<Guard> {
        self.lock_conditions().clone()
    }
    fn lock_conditions(&self) -> std::sync::MutexGuard<'_, Vec<Guard>> {
        self.conditions.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// For another attempt: nothing was dispatched, the claim stays made, the leave stays given, and
    /// what was decided and not taken is decided anew.
    pub(crate) fn again(&self) -> Self {
        Self {
            claimed: self.claimed.clone(),
            conditions: Mutex::new(self.conditions()),
            at_once: AtomicBool::new(!self.defers()),
            ..Self::default()
        }
    }
    /// Ends the attempt; the first reason counts.
    pub(crate) fn abort(&self, why: Abort) {
        let _ = self.abort.set(why);
    }
    pub(crate) fn abort_cause(&self) -> Option<&Abort> {
        self.abort.get()
    }
    /// A rule has refused holds that were to be taken later, a cap perhaps: the guest is run again
    /// and asks for them at once.
    pub(crate) fn again_at_once(&self, abort: Abort) -> Abort {
        match abort {
            Abort::Refused(_) => {
                self.take_at_once();
                Abort::Conflict(Vec::new())
            }
            other => other,
        }
    }
}

/// Why an attempt is over whatever its guest says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Abort {
    /// The rows that it read have changed.
    Conflict(Vec<Key>),
    /// A rule refused a checkpoint.
    Refused(Refused),
    /// The idempotency claim, a job's fence or another guard of the caller is gone.
    Restart,
    /// A person decides: the approval's id.
    Pending(String),
    /// Revoked.
    Inactive,
    /// The store takes no writes.
    Unavailable(u32),
    /// There is no room for its answer.
    NoRoom,
}

/// The failure that a guest sees whose attempt has ended, should it look.
pub(crate) fn over() -> Failure {
    crate::failure::failure("state_conflict", "this attempt is over: return")
}

#[cfg(test)]
mod tests;
