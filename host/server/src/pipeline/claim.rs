//! Idempotency: whether a key was used before, and the record that the request's own commit leaves.
//!
//! The record is a row of `host.idempotency` in the organization's reach; its answer is sealed. It
//! is written in the commit of the effect and shared by all replicas. A request that commits in
//! several units claims it with the first one, and every later unit is fenced by the record's
//! owner.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use charter_engine::Claiming;
use charter_governance::approvals::DECIDE_MS;
use charter_kernel::fault::Fault;
use charter_kernel::id::RequestId;
use charter_kernel::idempotency::{self, ClientKey, Fingerprint, Recall, Record, State};
use charter_kernel::limits::{
    IDEMPOTENCY_KEPT_MS, LATER_BACKOFF_MS, LATER_KEPT_MS, LATER_RUNS_MAX, UNIT_BYTES_MAX,
};
use charter_kernel::refusal::{Code, Refusal};
use charter_kernel::scope::{Actor, ActorKind, Level};
use charter_kernel::time::Instant;
use charter_kernel::unit::{Draft, Guard, Key, Reach, Space, Write};
use charter_registry::served::Contract;
use charter_store::{ReadError, SealError, Store, Txn};
use charter_tenancy::identity::Identity;
use charter_tenancy::records::EXPIRES;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use super::caller::Caller;
use super::respond::Answered;
use super::validate::Validated;
use crate::app::App;
use crate::bounds::running::Entered;
use crate::http::body::Body;

/// The collection of records, in the reach of the organization.
pub const COLLECTION: &str = "idempotency";
/// The indexed owner: the fence.
const OWNER: &str = "owner";
/// When a request that is still running may be asked for again.
const RUNNING_RETRY_S: u32 = 1;
/// Bytes of an answer that a record keeps; a larger one is recorded as not replayable.
const ANSWER_BYTES_MAX: usize = 2816 << 10;
/// The bytes that sealing adds to an answer, at most.
const SEAL_BYTES_MAX: usize = 256;

/// The meaning of the key for this request.
pub enum Claimed {
    /// It was answered before; this is the answer.
    Replay(Answered),
    /// It was accepted before, and this job's result is the answer.
    Job(String),
    /// It waits for people, or has waited: what became of this approval is the answer.
    Approval(String),
    /// It is new, or there is none.
    Free(Option<Arc<Claim>>),
}

/// A claim that is to be made.
#[derive(Debug)]
pub struct Claim {
    key: Key,
    organization: String,
    fingerprint: Fingerprint,
    /// The party that the request is about.
    level: Option<Level>,
    owner: String,
    expires_at: Instant,
    /// The version of an expired record that it takes the place of.
    replaces: Option<u64>,
    /// Holds the key on this replica while the request runs.
    _running: Entered,
}

/// The key that the request was sent under, where one counts: it is a change, and of somebody.
///
/// # Errors
/// The fault of the header.
pub fn client_key(
    caller: &Caller,
    contract: &Contract,
    header: Option<&HeaderValue>,
) -> Result<Option<ClientKey>, Fault> {
    let Some(header) = header else { return Ok(None) };
    let by_operator = matches!(caller.identity(), Identity::Operator { .. });
    let is_somebody = caller.place().is_some() || by_operator;
    if !contract.mutates || !is_somebody {
        return Ok(None);
    }
    let wrong = |message| Fault::new("Idempotency-Key", message);
    let text = header.to_str().map_err(|_| wrong("must be 1 to 255 visible ASCII characters"))?;
    ClientKey::parse(text).map(Some).map_err(wrong)
}

/// Looks the key up. `request` is the id of who claims it.
///
/// # Errors
/// If another request has the key, or had it for something else.
pub async fn claim(
    app: &App,
    request: &RequestId,
    validated: &Validated,
) -> Result<Claimed, Refusal> {
    let Some(client) = validated.key() else { return Ok(Claimed::Free(None)) };
    let contract = validated.operation().contract();
    let caller = validated.caller();
    let (organization, mut key) = address(caller, Actor::whole_id, &contract.id, client);
    let made = idempotency::Request {
        method: contract.method,
        // Below its mount: project and user are part of the record's place, so that `me` and an id
        // are one.
        path: &contract.path.fill(validated.parameters()),
        query: validated.pairs(),
        content_type: validated.content_type(),
        body: validated.bytes(),
    };
    let fingerprint = Fingerprint::new(&app.fingerprint_key, made);
    let level = caller.place().map(|place| place.scope().level());
    let running = match app.bounds.running.enter(&key, &fingerprint) {
        Ok(entered) => entered,
        Err(other) => return Err(if other == fingerprint { still_running() } else { mismatch() }),
    };
    let store = app.store.reading_for(&organization);
    let mut row = store.get(&key).await.map_err(charter_tenancy::stored::reading)?;
    if row.is_none()
        && let Some(former) = former_address(caller, &contract.id, client)
    {
        row = store.get(&former).await.map_err(charter_tenancy::stored::reading)?;
        if row.is_some() {
            key = former;
        }
    }
    let now = app.clock.now();
    let replaces = match &row {
        None => None,
        Some(row) => {
            let record: Record =
                serde_json::from_str(&row.body).map_err(|error| unreadable_record(&error))?;
            if record.expires_at > now {
                if !record.is_at(level) {
                    return Err(mismatch());
                }
                return resume(app, &organization, &key, record, &fingerprint).await;
            }
            Some(row.version)
        }
    };
    let owner = request.as_str().to_owned();
    let later = caller.place().is_some_and(|place| runs_later(place.scope().actor().kind));
    let expires_at = now.plus_ms(lifetime_ms(later, app.config.jobs.backoff_ms_max));
    let claim = Claim {
        key,
        organization,
        fingerprint,
        level,
        owner,
        expires_at,
        replaces,
        _running: running,
    };
    Ok(Claimed::Free(Some(Arc::new(claim))))
}

/// Whether what such an actor does is a job's or a signal's, which the host runs again by itself,
/// under the same keys, long after a client would have given up. A nested call is of the same actor
/// as the outermost one.
///
/// An approved request has the actor who asked. It is made again within the day that people have to
/// decide, and never past its first change of another primitive's: its keys need no longer than a
/// client's.
fn runs_later(kind: ActorKind) -> bool {
    matches!(kind, ActorKind::System | ActorKind::Hook)
}

/// How long a record is kept, in milliseconds: as long as the outermost request may be run again.
fn lifetime_ms(later: bool, backoff_ms_max: u64) -> i64 {
    if !later {
        return IDEMPOTENCY_KEPT_MS;
    }
    let backoff = i64::try_from(backoff_ms_max).unwrap_or(i64::MAX);
    let beyond = backoff.saturating_sub(LATER_BACKOFF_MS).max(0);
    LATER_KEPT_MS.saturating_add(beyond.saturating_mul(LATER_RUNS_MAX))
}

/// The organization whose record it is, and where the record lies.
fn address(
    caller: &Caller,
    known_as: impl Fn(&Actor) -> &str,
    operation: &str,
    client: &ClientKey,
) -> (String, Key) {
    let place = caller.place();
    let organization = place.map(|place| place.organization().id.to_string()).unwrap_or_default();
    let (kind, principal) = place.map_or(("operator", "operator"), |place| {
        let actor = place.scope().actor();
        (actor.kind.as_str(), known_as(actor))
    });
    let id = idempotency::record_id(idempotency::RecordPlace {
        organization: &organization,
        project: place.map_or("", |place| place.project().id.as_str()),
        // The organization's own keys are filed with the default profile's.
        user: place.map_or("", |place| match place.user() {
            Some(user) => user.id.as_str(),
            None => place.project().default_user.as_str(),
        }),
        principal: (kind, principal),
        operation,
        key: client,
    });
    let reach = if organization.is_empty() {
        Reach::deployment()
    } else {
        Reach::organization(&organization)
    };
    let key = Key::new(&reach, &Space::host(COLLECTION), id);
    (organization, key)
}

/// The place in which former builds have filed what an inbound URL's signal has others do: under the
/// beginning of the URL's id.
fn former_address(caller: &Caller, operation: &str, client: &ClientKey) -> Option<Key> {
    let actor = caller.place()?.scope().actor();
    let is_shown_whole = actor.whole_id() == actor.id;
    (!is_shown_whole).then(|| address(caller, |actor| &actor.id, operation, client).1)
}

async fn resume(
    app: &App,
    organization: &str,
    key: &Key,
    record: Record,
    fingerprint: &Fingerprint,
) -> Result<Claimed, Refusal> {
    match idempotency::decide(&record, fingerprint) {
        Recall::Replay => match (record.approval.clone(), record.job.clone()) {
            (Some(approval), _) => Ok(Claimed::Approval(approval)),
            (None, Some(job)) => Ok(Claimed::Job(job)),
            (None, None) => replay(app, organization, key, record).await.map(Claimed::Replay),
        },
        Recall::Mismatch => Err(mismatch()),
        Recall::Running => Err(still_running()),
        Recall::Large => Err(answer_not_kept()),
        Recall::Streamed => Err(Refusal::state_conflict(
            "streamed",
            "The answer to this idempotency key was a stream, which is not kept.",
        )),
    }
}

/// The answer under a key is asked for that nothing has kept.
pub fn answer_not_kept() -> Refusal {
    let message = "The answer to this idempotency key was not kept, since it was too large or shows a secret: what the request did stands.";
    Refusal::state_conflict("answer_not_kept", message)
        .hint("Read it where it lies; a secret is shown again under a fresh key.")
}

fn mismatch() -> Refusal {
    Refusal::new(Code::IdempotencyConflict, "The idempotency key was used for another request.")
        .param("Idempotency-Key")
        .hint("Use a fresh key for a request that differs.")
}

fn still_running() -> Refusal {
    let message =
        "A request with this idempotency key is still running, or its outcome is in doubt.";
    Refusal::new(Code::JobNotReady, message).retry_after(RUNNING_RETRY_S)
}

async fn replay(
    app: &App,
    organization: &str,
    key: &Key,
    record: Record,
) -> Result<Answered, Refusal> {
    let sealed = STANDARD.decode(&record.body).map_err(|error| unreadable_record(&error))?;
    let body = app
        .store
        .unseal(organization, &key.id, &sealed)
        .await
        .map_err(|error| unreadable_record(&error))?;
    let mut headers = HeaderMap::with_capacity(record.headers.len() + 8);
    for (name, value) in &record.headers {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::from_str(value)) {
            headers.append(name, value);
        }
    }
    let status = StatusCode::from_u16(record.status).map_err(|error| unreadable_record(&error))?;
    Ok(Answered { status, headers, body: Body::whole(body) }.mark_replayed())
}

fn unreadable_record(error: &(dyn std::error::Error + 'static)) -> Refusal {
    tracing::error!(error, "an idempotency record cannot be read");
    Refusal::internal()
}

/// Whether the unit has room for the record of an answer of so many bytes beside what it writes.
fn fits(txn: &Txn, bytes: usize) -> bool {
    let (_, written) = charter_kernel::apply::size(txn.unit());
    written + (bytes + SEAL_BYTES_MAX).div_ceil(3) * 4 <= UNIT_BYTES_MAX
}

/// An answer as a record keeps it.
pub struct Kept<'a> {
    /// The status.
    pub status: u16,
    /// Its own headers, without those that every answer carries.
    pub headers: &'a HeaderMap,
    /// The body's bytes; `None` for one that is streamed.
    pub body: Option<&'a Bytes>,
    /// The job whose result the answer is.
    pub job: Option<&'a str>,
    /// The approval that the request waits by.
    pub approval: Option<&'a str>,
    /// Whether the body shows a secret: it is shown to who asks with a role at the moment, in a row
    /// of its own, and lies nowhere meanwhile.
    pub is_secret: bool,
}

impl Claim {
    /// The key of the record.
    pub fn key(&self) -> &Key {
        &self.key
    }

    fn begin(&self) -> Record {
        let record = Record::begin(&self.fingerprint, self.owner.clone(), self.expires_at);
        Record { level: self.level, ..record }
    }

    /// Whether another request has taken the key since it was looked up: what this one found in its
    /// way may be that one's work.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn is_taken(&self, store: &Store) -> Result<bool, ReadError> {
        Ok(store.get(&self.key).await?.map(|row| row.version) != self.replaces)
    }

    /// The writes and guards with which the engine makes the claim ahead of the last commit.
    pub fn claiming(&self) -> Claiming {
        let record = self.begin();
        Claiming {
            key: self.key.clone(),
            writes: vec![self.first(self.draft(&record))],
            undo: vec![Write::Remove { key: self.key.clone(), expected: None }],
            guards: vec![Guard::Version { key: self.key.clone(), version: self.replaces }],
            fence: Guard::Entry {
                key: self.key.clone(),
                field: OWNER.into(),
                value: self.owner.clone(),
            },
        }
    }

    /// Adds the finished record to the commit.
    ///
    /// # Errors
    /// When the answer cannot be sealed.
    pub async fn finish(
        &self,
        store: &Store,
        txn: &mut Txn,
        kept: Kept<'_>,
        claimed: bool,
    ) -> Result<(), SealError> {
        let mut record = self.begin();
        record.status = kept.status;
        record.job = kept.job.map(Into::into);
        record.approval = kept.approval.map(Into::into);
        if kept.approval.is_some() {
            // It outlives the approval by as long as any other record its answer: asked again
            // meanwhile it would act twice.
            record.expires_at = self.expires_at.plus_ms(DECIDE_MS);
        }
        match kept.body {
            Some(body)
                if !kept.is_secret && body.len() <= ANSWER_BYTES_MAX && fits(txn, body.len()) =>
            {
                record.state = State::Done;
                record.body =
                    STANDARD.encode(store.seal(&self.organization, &self.key.id, body).await?);
                let named = |(name, value): (&HeaderName, &HeaderValue)| {
                    Some((name.to_string(), value.to_str().ok()?.to_owned()))
                };
                record.headers = kept.headers.iter().filter_map(named).collect();
            }
            Some(_) => record.state = State::Large,
            None => record.state = State::Streamed,
        }
        self.write(txn, &record, claimed);
        Ok(())
    }

    /// Something left the host and no outcome is known: the record stays until it is reconciled or
    /// forgotten.
    pub fn in_doubt(&self, txn: &mut Txn) {
        let mut record = self.begin();
        record.state = State::InDoubt;
        self.write(txn, &record, true);
    }

    /// Nothing happened: the key is free again.
    pub fn give_up(&self, txn: &mut Txn) {
        txn.write(Write::Remove { key: self.key.clone(), expected: None });
    }

    fn write(&self, txn: &mut Txn, record: &Record, claimed: bool) {
        let draft = self.draft(record);
        if claimed {
            txn.write(Write::Put { key: self.key.clone(), draft });
        } else {
            txn.guard(Guard::Version { key: self.key.clone(), version: self.replaces });
            txn.write(self.first(draft));
        }
    }

    fn first(&self, draft: Draft) -> Write {
        match self.replaces {
            None => Write::Insert { key: self.key.clone(), draft },
            Some(version) => {
                Write::Replace { key: self.key.clone(), draft, expected: Some(version) }
            }
        }
    }

    fn draft(&self, record: &Record) -> Draft {
        let index = vec![
            (EXPIRES.to_owned(), record.expires_at.to_string()),
            (OWNER.to_owned(), self.owner.clone()),
        ];
        // A record has text members only: it always serializes.
        Draft { body: serde_json::to_string(record).unwrap_or_default(), index, ..Draft::default() }
    }
}

#[cfg(test)]
mod tests {
    use charter_kernel::limits::CALL_MS_MAX;

    use super::*;

    #[test]
    fn a_change_that_a_job_has_others_make_is_known_as_long_as_the_job_may_be_run_again() {
        let day = 24 * 60 * 60 * 1_000;
        for backoff in [1_000, LATER_BACKOFF_MS, 6 * 60 * 60 * 1_000, day] {
            let waits = (backoff + i64::from(CALL_MS_MAX)) * LATER_RUNS_MAX;
            let kept = lifetime_ms(true, backoff.unsigned_abs());
            assert!(kept >= waits + 5 * day, "{backoff}: {kept}");
            assert_eq!(lifetime_ms(false, backoff.unsigned_abs()), IDEMPOTENCY_KEPT_MS);
        }
        assert_eq!(lifetime_ms(true, LATER_BACKOFF_MS.unsigned_abs()), LATER_KEPT_MS);
        assert_eq!(lifetime_ms(true, u64::MAX), i64::MAX);
    }

    #[test]
    fn an_approved_request_is_made_again_no_longer_than_a_clients_record_is_kept() {
        assert!(lifetime_ms(false, 0) >= DECIDE_MS);
    }

    #[test]
    fn jobs_and_signals_run_later_and_nobody_else() {
        for (kind, later) in [
            (ActorKind::System, true),
            (ActorKind::Hook, true),
            (ActorKind::Key, false),
            (ActorKind::Session, false),
            (ActorKind::Agent, false),
            (ActorKind::Operator, false),
            (ActorKind::Anonymous, false),
        ] {
            assert_eq!(runs_later(kind), later, "{kind:?}");
        }
    }
}
