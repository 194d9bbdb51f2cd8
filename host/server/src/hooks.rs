//! Calls of inbound URLs: whose they are, whether they are signed, and what the primitive is told,
//! in the commit before the answer.
//!
//! The caller is a stranger. An unknown, a closed and a revoked hook look the same; a call that is
//! not signed writes nothing and is counted. The same event twice is one signal. Knows of providers
//! only what the files of their kinds say.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use charter_engine::hook::HookRecord;
use charter_engine::job;
use charter_engine::job::room::{Part, part_of, with_beyond};
use charter_governance::lifecycle::Called;
use charter_kernel::hex::hex;
use charter_kernel::refusal::Refusal;
use charter_kernel::scope::{Behind, Scope};
use charter_kernel::unit::{Claim, beginning};
use charter_store::Txn;
use charter_tenancy::place::{Owner, Unplaced};
use charter_tenancy::records::Record as _;
use charter_tenancy::stored;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use self::event::HookEvent;
use crate::app::App;
use crate::bounds::rate::{BucketGate, Kind};
use crate::pipeline::owner::{inbound, of_owner, place_told};
use crate::request::HostRequest;

mod event;
pub mod question;

/// Bytes of a call's body.
pub const BODY_BYTES_MAX: usize = 256 << 10;
/// Calls of one hook within a minute.
const CALLS_PER_MINUTE: u32 = 600;
/// Bytes of a media type that the primitive is told.
const MEDIA_TYPE_BYTES_MAX: usize = 200;

/// A hook that may be called now, and the scope that its calls are told in.
pub struct LiveHook {
    /// Its record.
    pub record: HookRecord,
    /// Its scope.
    pub scope: Scope,
}

/// The hook of this id, unless it, its document, its tenant or its primitive is gone.
///
/// # Errors
/// When the store cannot be asked.
pub async fn find(app: &App, txn: &mut Txn, id: &str) -> Result<Option<LiveHook>, Refusal> {
    // Ids are short and plain: nothing else is looked up.
    if id.len() != 32 || !id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Ok(None);
    }
    find_by_name(app, txn, &HookRecord::name(id), id).await
}

/// The hook of what the provider that is bound under this name calls so.
///
/// # Errors
/// When the store cannot be asked.
pub async fn find_by_reference(
    app: &App,
    txn: &mut Txn,
    binding: &str,
    reference: &str,
) -> Result<Option<LiveHook>, Refusal> {
    find_by_name(app, txn, &HookRecord::reference_name(binding, reference), reference).await
}

async fn find_by_name(
    app: &App,
    txn: &mut Txn,
    name: &Claim,
    id: &str,
) -> Result<Option<LiveHook>, Refusal> {
    let Some(key) = txn.lookup(name).await.map_err(stored::reading)? else { return Ok(None) };
    let Some(row) = txn.get(&key).await.map_err(stored::reading)? else { return Ok(None) };
    let record: HookRecord = serde_json::from_str(&row.body).map_err(|error| {
        tracing::error!(%error, hook = beginning(id), "a hook cannot be read");
        Refusal::internal()
    })?;
    if !app.registry.current().listens(charter_engine::hook::SIGNAL, &record.primitive) {
        return Ok(None);
    }
    if txn.get_relaxed(&record.document_key()).await.map_err(stored::reading)?.is_none() {
        return Ok(None);
    }
    Ok(scope(app, &record).await?.map(|scope| LiveHook { record, scope }))
}

/// The scope of a hook, as long as everybody in it is there and not revoked. A provider that tells
/// what has happened tells it of those too who are revoked or deleted.
async fn scope(app: &App, record: &HookRecord) -> Result<Option<Scope>, Refusal> {
    let owner = &record.owner;
    let principal = of_owner(inbound(&record.id, record.provider().is_some()), owner);
    let owner = Owner {
        organization: &owner.organization,
        project: &owner.project,
        user: owner.user.as_deref(),
    };
    let told = record.provider().is_some();
    let placed = match told {
        true => place_told(app, principal, owner).await,
        false => app.directory.party(principal, owner).await,
    };
    match placed {
        Ok(party) => {
            let told = told || party.user().is_none_or(|user| user.active);
            Ok(Some(party.into_scope()).filter(|_| told))
        }
        Err(Unplaced::Gone(_)) => Ok(None),
        Err(Unplaced::Unread) => Err(Refusal::overloaded(1)),
    }
}

/// The secret of a hook that has one.
///
/// # Errors
/// When it does not open.
pub async fn secret(app: &App, record: &HookRecord) -> Result<Option<String>, Refusal> {
    let broken = || {
        tracing::error!(hook = beginning(&record.id), "a hook's secret cannot be opened");
        Refusal::internal()
    };
    let Some(sealed) = &record.secret else { return Ok(None) };
    let sealed = STANDARD.decode(sealed).map_err(|_| broken())?;
    let opened = app
        .store
        .unseal(&record.owner.organization, &HookRecord::context(&record.id), &sealed)
        .await;
    String::from_utf8(opened.map_err(|_| broken())?).map(Some).map_err(|_| broken())
}

/// Has the primitive told of an event, once, in this transaction's commit. Answers what the call
/// counts as.
///
/// # Errors
/// `rate_limited` where the hook is called too often, or when the store cannot be asked.
pub async fn take(
    app: &App,
    request: &HostRequest,
    txn: &mut Txn,
    hook: &HookRecord,
    event: Option<&str>,
) -> Result<Arc<AtomicU64>, Refusal> {
    // The rest is the organization's own work, as long as the hook is there.
    *txn = app.store.begin(&hook.owner.organization);
    if txn.get(&hook.key()).await.map_err(stored::reading)?.is_none() {
        return Err(Refusal::not_found());
    }
    let event = match event {
        Some(id) => id.to_owned(),
        None => format!("sha256:{}", hex(&Sha256::digest(&request.bytes))),
    };
    let note = HookEvent::new(hook, &event, request.now);
    if stored::get::<HookEvent>(txn, &note.key()).await?.is_some() {
        return Ok(app.hooks.repeated.clone());
    }
    enter(app, request, hook)?;
    // A provider's word has happened; anybody calls the others.
    let all = app.config.jobs.waiting_max;
    let part = match hook.provider() {
        Some(_) => Part::whole(with_beyond(all)),
        None => {
            let group = job::line_of(&hook.primitive, &hook.owner);
            Part::of_group(part_of(all, Behind::Stranger), &group)
        }
    };
    if app.jobs_are_full(&hook.owner.organization, &part).await {
        let told = "Too much waits for the one that the call is for.";
        return Err(App::word_jobs_full(told));
    }
    stored::insert(txn, &note, "event").await?;
    let payload = payload(request, hook, &event);
    Called { hook, payload, now: request.now, request: &request.id }.tell(txn).await?;
    Ok(app.hooks.taken.clone())
}

/// Takes one of the calls that a hook may have in a minute.
fn enter(app: &App, request: &HostRequest, hook: &HookRecord) -> Result<(), Refusal> {
    let gate = BucketGate::per_minute(Kind::Hook, hook.id.as_str(), CALLS_PER_MINUTE);
    match app
        .bounds
        .buckets
        .take(&[gate], request.began)
        .and_then(|standing| standing.retry_after_s)
    {
        Some(wait) => Err(Refusal::rate_limited(wait)),
        None => Ok(()),
    }
}

/// The payload of the primitive's signal.
fn payload(request: &HostRequest, hook: &HookRecord, event: &str) -> Value {
    let media =
        request.headers.get(http::header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let mut payload = json!({
        "hook_id": hook.id,
        "collection": hook.collection,
        "document": hook.document.1,
        "event_id": event,
        "content_type": media.filter(|text| text.len() <= MEDIA_TYPE_BYTES_MAX),
        "received_at": request.now,
        "provider": hook.provider(),
    });
    match std::str::from_utf8(&request.bytes) {
        Ok(text) => payload["body"] = text.into(),
        Err(_) => payload["body_base64"] = STANDARD.encode(&request.bytes).into(),
    }
    payload
}
