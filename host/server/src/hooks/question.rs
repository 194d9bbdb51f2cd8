//! Questions of providers: what waits for an answer is answered by the primitive whose hook it is
//! for, at once, and each event once.
//!
//! Deny by default: whatever goes wrong is no answer, and that is the provider's refusal. The
//! primitive's writes, and the fact that it answered so, are one commit before the provider hears
//! of it; the same event again gets the same answer. Nobody can be asked for approval meanwhile, so
//! that what needs one is refused.

use std::sync::Arc;
use std::time::Duration;

use charter_engine::hook::{HookRecord, QUESTION};
use charter_engine::job::Payload;
use charter_engine::{AnswerBody, Claiming, Ending, EndingResult, Finish, Outcome};
use charter_kernel::id::OrganizationId;
use charter_kernel::manifest::CallLength;
use charter_kernel::refusal::Refusal;
use charter_kernel::unit::{Guard, Write};
use charter_store::{CommitError, Txn};
use charter_tenancy::records::{EXPIRES, Record as _, Unreadable};
use futures::future::BoxFuture;
use serde_json::Value;
use tokio::time::Instant;

use super::event::HookEvent;
use super::{enter, payload};
use crate::app::App;
use crate::pipeline::again::Runs;
use crate::pipeline::call::{self, Signaled};
use crate::pipeline::owner::{self, Admitted, Work};
use crate::pipeline::standing;
use crate::request::HostRequest;

/// How long a primitive may take: providers of payments wait two seconds for the whole exchange.
const DEADLINE: Duration = Duration::from_millis(1_500);
/// Bytes of an answer.
const ANSWER_BYTES_MAX: usize = 16 << 10;

/// The end of a question.
#[derive(Debug)]
pub enum Said {
    /// The primitive's answer.
    Answered(Value),
    /// It refuses: a rule, a cap, or one of its own.
    Declined,
    /// It did not get to answer.
    Unanswered,
}

/// Asks the primitive.
pub async fn ask(app: &App, request: &HostRequest, hook: &HookRecord, event: &str) -> Said {
    ask_once(app, request, hook, event).await.unwrap_or_else(|why| {
        tracing::warn!(
            hook = charter_kernel::unit::beginning(&hook.id),
            event,
            request = request.id,
            why,
            "a provider's question was not answered"
        );
        Said::Unanswered
    })
}

async fn ask_once(
    app: &App,
    request: &HostRequest,
    hook: &HookRecord,
    event: &str,
) -> Result<Said, String> {
    let note = Arc::new(HookEvent::new(hook, event, request.now));
    let payload = Payload::from(payload(request, hook, event));
    let until = Instant::now() + DEADLINE;
    let mut runs = Runs::default();
    loop {
        let before = runs.begin().map_err(|_| "others were asked the same again and again")?;
        if let Some(row) = app.store.get(&note.key()).await.map_err(|error| error.to_string())? {
            let known = HookEvent::read(&row).map_err(|error| error.to_string())?;
            return Ok(known.answer.map_or(Said::Declined, Said::Answered));
        }
        if before == 0 {
            enter(app, request, hook).map_err(|refusal| refusal.message)?;
        }
        let admitted =
            admit_question(app, hook, &payload).await.map_err(|refusal| refusal.message)?;
        let signaled = Signaled {
            id: request.id.clone(),
            signal: (QUESTION.to_owned(), payload.text().to_owned()),
            claim: Some(claiming(&note).map_err(|error| error.to_string())?),
            finish: Arc::new(Answering { note: note.clone() }) as Arc<dyn Finish>,
            deadline_ms: u32::try_from(until.saturating_duration_since(Instant::now()).as_millis())
                .unwrap_or(0),
            class: CallLength::Short,
            origin: None,
        };
        match call::react(app, admitted, signaled).await {
            Outcome::Answered(answer) => {
                return Ok(read(&answer.body).map_or(Said::Unanswered, Said::Answered));
            }
            Outcome::Restart => {}
            Outcome::Refused(_) => return Ok(Said::Declined),
            other => return Err(format!("{other:?}")),
        }
    }
}

/// Proves whose question it is, and that its organization has paid.
async fn admit_question(
    app: &App,
    hook: &HookRecord,
    payload: &Payload,
) -> Result<Admitted, Refusal> {
    let (primitive, owner) = (hook.primitive.as_str(), &hook.owner);
    let work = Work { primitive, signal: QUESTION, payload, owner, asked: None, pinned: false };
    let mut admitted = owner::admit(app, &work).await?;
    let organization = OrganizationId::parse(&owner.organization).ok_or_else(Refusal::not_found)?;
    admitted.require(standing::ask(app, &organization, admitted.version().name(), false).await?);
    Ok(admitted)
}

/// The claim of an event, for a primitive that commits in several units.
fn claiming(note: &HookEvent) -> Result<Claiming, Unreadable> {
    let key = note.key();
    let expires =
        note.index().into_iter().find(|(field, _)| field == EXPIRES).map(|(_, value)| value);
    Ok(Claiming {
        writes: vec![Write::Insert { key: key.clone(), draft: note.draft()? }],
        undo: vec![Write::Remove { key: key.clone(), expected: None }],
        guards: vec![Guard::Version { key: key.clone(), version: None }],
        fence: Guard::Entry {
            key: key.clone(),
            field: EXPIRES.into(),
            value: expires.unwrap_or_default(),
        },
        key,
    })
}

/// The JSON of an answer that is not too long.
fn read(body: &AnswerBody) -> Option<Value> {
    match body {
        AnswerBody::Json(text) if text.len() <= ANSWER_BYTES_MAX => serde_json::from_str(text).ok(),
        _ => None,
    }
}

/// Notes what was answered, in the primitive's own commit; of a refusal it notes that.
struct Answering {
    note: Arc<HookEvent>,
}

impl Finish for Answering {
    fn finish<'a>(
        &'a self,
        txn: &'a mut Txn,
        ending: Ending<'a>,
    ) -> BoxFuture<'a, Result<(), CommitError>> {
        Box::pin(async move {
            let answer = match ending.result {
                EndingResult::Answered(answer) => read(&answer.body),
                EndingResult::Refused(_) => None,
                _ => return Ok(()),
            };
            let note = HookEvent { answer, ..(*self.note).clone() };
            let key = note.key();
            let draft = note.draft().map_err(|error| {
                tracing::error!(%error, "an answer to a provider cannot be noted");
                CommitError::Failed
            })?;
            if ending.claimed {
                txn.write(Write::Put { key, draft });
            } else {
                txn.guard(Guard::Version { key: key.clone(), version: None });
                txn.write(Write::Insert { key, draft });
            }
            Ok(())
        })
    }
}
