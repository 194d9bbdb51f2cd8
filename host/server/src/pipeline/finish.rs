//! The request's own part of a guest's commit, beside the guest's writes: the audit row and the
//! idempotent answer.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use charter_engine::job::jobs;
use charter_engine::{Answer, AnswerBody, Ending, EndingResult, Finish};
use charter_governance::approvals::{Content, Run};
use charter_kernel::refusal::{EFFECT_WITHOUT_RECORD, Failure, Refusal};
use charter_kernel::unit::{Key, Reach, Rejection};
use charter_registry::served::{Served, ServedOperation};
use charter_store::{CommitError, Store, Txn};
use charter_tenancy::records::approval::Approval;
use charter_tenancy::stored;
use futures::future::BoxFuture;

use super::answer;
use super::audit::{CHANGES_MAX, Decision, Subject, leaves_row};
use super::claim::{Claim, Kept};
use super::respond::{self, Answered, Wording};
use crate::bounds::answers::AnswerRoom;
use crate::bounds::memory::Full;
use crate::paging::Page;

/// See the module.
pub struct Finisher {
    /// The store, which seals answers.
    pub store: Store,
    /// The subject of the audit row; absent for the anonymous.
    pub subject: Option<Subject>,
    /// The idempotency claim.
    pub claim: Option<Arc<Claim>>,
    /// How refusals are worded.
    pub wording: Wording,
    /// The component version.
    pub served: Arc<Served>,
    /// The operation.
    pub operation: Arc<ServedOperation>,
    /// The page that was asked for.
    pub page: Page,
    /// The approval by which the request is made, where it is made by one.
    pub approved: Option<Approved>,
    /// The room for the answer of a change, where it goes to a client.
    pub room: Option<Arc<AnswerRoom>>,
    /// Set once it has failed after an effect.
    pub acted: AtomicBool,
    /// The answer as its record has it, for who waits.
    pub rendered: Mutex<Option<Answered>>,
}

/// The approval by which a request is made.
pub struct Approved {
    /// The approval, under its lease.
    pub run: Arc<Run>,
    /// The reach of the request, and so of a job that answers it.
    pub reach: Reach,
}

impl Approved {
    /// The request was answered: that ends the approval, or has it wait for the job that answers.
    async fn note_answer(
        &self,
        txn: &mut Txn,
        answer: &Answer,
        answered: &Answered,
        (of, is_secret): (&ServedOperation, bool),
    ) -> Result<(), Refusal> {
        if let AnswerBody::Job(id) = &answer.body {
            let job = Key::new(&self.reach, &jobs(), id.as_str());
            return self.run.await_job(txn, job, of.status).await;
        }
        let content = match answered.body.as_whole() {
            Some(body) if !is_secret => Content::Whole(body),
            _ => Content::Withheld,
        };
        self.run.end(txn, Ok((answered.status.as_u16(), content))).await
    }
}

/// The failure of a unit whose end, the request's or the run's own part, cannot be written: so
/// nothing of it is committed.
pub(crate) fn fail_unit(refusal: Refusal) -> CommitError {
    tracing::error!(message = refusal.message, "the end of what was done cannot be written");
    CommitError::Failed
}

impl Finish for Finisher {
    fn finish<'a>(
        &'a self,
        txn: &'a mut Txn,
        ending: Ending<'a>,
    ) -> BoxFuture<'a, Result<(), CommitError>> {
        Box::pin(async move {
            let failure = match ending.result {
                EndingResult::Answered(answer) => {
                    let answered = self.note_answer(txn, ending, answer).await?;
                    *self.lock_rendered() = Some(answered);
                    return Ok(());
                }
                EndingResult::Pending { approval, record } => {
                    let waiting = self.note_pending(txn, ending, (approval, record)).await?;
                    *self.lock_rendered() = Some(waiting);
                    return Ok(());
                }
                EndingResult::Refused(failure) => {
                    return self.note_refusal(txn, ending, failure).await;
                }
                EndingResult::Trapped(_) | EndingResult::OutOfMemory => Refusal::internal(),
                EndingResult::Deadline if ending.dispatched => {
                    answer::word_failure(&self.served, &Failure::late_after_effect())
                }
                EndingResult::Deadline => Refusal::deadline_exceeded(),
                EndingResult::ClientGone => Refusal::internal().reason("client_gone"),
            };
            let failure = match ending.dispatched {
                true => failure.reason(EFFECT_WITHOUT_RECORD),
                false => failure,
            };
            self.note_failure(txn, ending, &failure).await
        })
    }

    fn has_room(&self, answer: &Answer) -> bool {
        let bytes = match &answer.body {
            AnswerBody::Json(text) => text.len(),
            AnswerBody::Bytes { bytes, .. } => bytes.len(),
            AnswerBody::None
            | AnswerBody::Job(_)
            | AnswerBody::Follow { .. }
            | AnswerBody::Blob(_) => 0,
        };
        self.room.as_ref().is_none_or(|room| room.take(bytes).is_ok())
    }
}

impl Finisher {
    /// Why there was no room for its answer, where there was none.
    pub fn no_room(&self) -> Option<Full> {
        self.room.as_ref()?.no_room()
    }

    /// The answer of the attempt that was committed.
    pub fn take_rendered(&self) -> Option<Answered> {
        self.lock_rendered().take()
    }

    fn lock_rendered(&self) -> MutexGuard<'_, Option<Answered>> {
        self.rendered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the answer may show a secret: the operation's own, or one that another primitive has
    /// shown it.
    fn shows_secret(&self, ending: Ending<'_>) -> bool {
        self.operation.contract.class.shows_secret() || ending.shown
    }

    async fn note_answer(
        &self,
        txn: &mut Txn,
        ending: Ending<'_>,
        answer: &Answer,
    ) -> Result<Answered, CommitError> {
        let answered = answer::render(&self.operation, &self.page, answer);
        self.audit(txn, answered.status.as_u16(), None)?;
        self.keep(txn, ending, &answered).await?;
        if let Some(approved) = &self.approved {
            let of = (&*self.operation, self.shows_secret(ending));
            let noted = approved.note_answer(txn, answer, &answered, of).await;
            noted.map_err(fail_unit)?;
        }
        Ok(answered)
    }

    /// The request waits for people. Asked again under its key, it is told of the same approval.
    async fn note_pending(
        &self,
        txn: &mut Txn,
        ending: Ending<'_>,
        (approval, record): (&str, &str),
    ) -> Result<Answered, CommitError> {
        let waiting = serde_json::from_str::<Approval>(record).map_err(|error| {
            tracing::error!(%error, approval, "an approval that is being made cannot be read");
            CommitError::Failed
        })?;
        let answered = answer::waiting(&waiting);
        self.audit(txn, answered.status.as_u16(), None)?;
        self.keep(txn, ending, &answered).await?;
        Ok(answered)
    }

    async fn note_refusal(
        &self,
        txn: &mut Txn,
        ending: Ending<'_>,
        failure: &Failure,
    ) -> Result<(), CommitError> {
        let refusal = answer::word_failure(&self.served, failure);
        let answered = respond::render_refusal(&self.wording, &refusal);
        let status = answered.status.as_u16();
        let is_over = !refusal.should_retry() || ending.dispatched;
        match &self.approved {
            Some(approved) if is_over => {
                approved.run.end(txn, Err(refusal.to_rest())).await.map_err(fail_unit)?;
            }
            Some(approved) if ending.claimed => approved.run.give_up(txn),
            _ => {}
        }
        self.audit(txn, status, Some(&refusal))?;
        if refusal.is_kept(self.wording.catalogue) || ending.dispatched {
            self.keep(txn, ending, &answered).await?;
        } else if ending.claimed {
            self.claim.iter().for_each(|claim| claim.give_up(txn));
        } else if let Some(claim) = &self.claim {
            // Another replica may have done meanwhile what this one has found no room for: both
            // answer what that one did.
            let taken = claim.is_taken(&self.store).await;
            if taken.map_err(|error| fail_unit(stored::reading(error)))? {
                let keys = vec![claim.key().clone()];
                return Err(CommitError::Rejected(Rejection::Conflict { keys }));
            }
        }
        Ok(())
    }

    async fn note_failure(
        &self,
        txn: &mut Txn,
        ending: Ending<'_>,
        refusal: &Refusal,
    ) -> Result<(), CommitError> {
        self.audit(txn, refusal.status(self.wording.catalogue), Some(refusal))?;
        if ending.dispatched {
            self.acted.store(true, SeqCst);
            if let Some(approved) = &self.approved {
                approved.run.end(txn, Err(refusal.to_rest())).await.map_err(fail_unit)?;
            }
            self.keep(txn, ending, &respond::render_refusal(&self.wording, refusal)).await?;
        } else if ending.claimed {
            self.claim.iter().for_each(|claim| claim.give_up(txn));
            self.approved.iter().for_each(|approved| approved.run.give_up(txn));
        }
        Ok(())
    }

    fn audit(
        &self,
        txn: &mut Txn,
        status: u16,
        refused: Option<&Refusal>,
    ) -> Result<(), CommitError> {
        let Some(subject) = &self.subject else { return Ok(()) };
        let mutates = self.operation.contract.mutates;
        let leaves = refused.map_or(mutates, |refusal| leaves_row(mutates, refusal, status));
        if !leaves {
            return Ok(());
        }
        let named = refused
            .map(|refusal| (refusal.row(self.wording.catalogue).0, refusal.reason.as_deref()));
        let changes = txn.changes(CHANGES_MAX);
        let decision = Decision { status, refused: named, changes: &changes, details: None };
        let row =
            subject.fact(decision).map_err(|error| fail_unit(stored::no_randomness(error)))?;
        txn.fact(row);
        Ok(())
    }

    async fn keep(
        &self,
        txn: &mut Txn,
        ending: Ending<'_>,
        answered: &Answered,
    ) -> Result<(), CommitError> {
        let Some(claim) = &self.claim else { return Ok(()) };
        let job = match &ending.result {
            EndingResult::Answered(Answer { body: AnswerBody::Job(id), .. }) => Some(id.as_str()),
            _ => None,
        };
        let (status, body) = (answered.status.as_u16(), answered.body.as_whole());
        let approval = match ending.result {
            EndingResult::Pending { approval, .. } => Some(approval),
            _ => None,
        };
        // That it waits, for people or a job, is no secret, and what the key is answered by.
        let is_secret = approval.is_none() && job.is_none() && self.shows_secret(ending);
        let kept = Kept { status, headers: &answered.headers, body, job, approval, is_secret };
        if let Err(error) = claim.finish(&self.store, txn, kept, ending.claimed).await {
            tracing::error!(error = &error as &dyn std::error::Error, "an answer cannot be sealed");
            if !ending.dispatched {
                return Err(CommitError::Failed);
            }
            // Without its record the effect could be repeated: the record stays in doubt instead.
            claim.in_doubt(txn);
        }
        Ok(())
    }
}
