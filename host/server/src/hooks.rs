//! Calls of inbound URLs: whose they are, whether they are signed, and what the primitive is told,
//! in the commit before the answer.
//!
//! Whoever calls is a stranger. An unknown, a closed and a revoked hook look the same; a call that
//! is not signed writes nothing and is counted. The same event twice is one signal. Knows of
//! providers only what the files of their kinds say.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
pub use charter_adapters::hooks::{path, provider_path, signature, stripe};
use charter_engine::hook::HookRecord;
use charter_kernel::hex::hex;
use charter_kernel::id::UserId;
use charter_kernel::refusal::Refusal;
use charter_kernel::route::Path;
use charter_kernel::scope::{Actor, ActorKind, Principal, Scope};
use charter_kernel::unit::Claim;
use charter_store::Txn;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use self::event::HookEvent;
use crate::app::App;
use crate::lifecycle::Called;
use crate::metrics::Metrics;
use crate::pipeline::rate::{Gate, Kind};
use crate::place::{Owner, Unplaced};
use crate::records::Record as _;
use crate::reply::Counter;
use crate::request::HostRequest;
use crate::routes::stored;

mod event;
pub mod question;

/// Bytes of a call's body.
pub const BODY_BYTES_MAX: usize = 256 << 10;
/// Characters of a hook's id that logs show.
const ID_CHARS_SHOWN: usize = 8;
/// Calls of one hook within a minute.
const CALLS_PER_MINUTE: u32 = 600;
/// Bytes of a media type that the primitive is told.
const MEDIA_TYPE_BYTES_MAX: usize = 200;

/// What became of calls, since the start of this replica.
#[derive(Debug, Default)]
pub struct Counts {
    /// Told to a primitive.
    pub taken: AtomicU64,
    /// Told before.
    pub repeated: AtomicU64,
    /// For no hook that there is.
    pub unknown: AtomicU64,
    /// Without a signature that counts.
    pub unsigned: AtomicU64,
    /// A provider's, signed, and about nothing that a hook was opened for.
    pub unmatched: AtomicU64,
    /// Questions that a primitive has answered.
    pub answered: AtomicU64,
    /// Questions that a primitive, a rule or a cap has refused.
    pub declined: AtomicU64,
    /// Questions that were refused because nobody answered.
    pub unanswered: AtomicU64,
}

impl Counts {
    /// Shows them at each scrape.
    pub fn show(self: &Arc<Self>, metrics: &Metrics) {
        type Read = fn(&Counts) -> &AtomicU64;
        let shown: [(&'static str, &'static str, Read); 8] = [
            ("hook_calls_taken", "Calls of inbound URLs that were told to a primitive", |counts| {
                &counts.taken
            }),
            ("hook_calls_repeated", "Calls whose event had been told before", |counts| {
                &counts.repeated
            }),
            ("hook_calls_unknown", "Calls for no hook that there is", |counts| &counts.unknown),
            ("hook_calls_unsigned", "Calls without a signature that counts", |counts| {
                &counts.unsigned
            }),
            (
                "hook_calls_unmatched",
                "Signed calls of providers that no hook was opened for",
                |counts| &counts.unmatched,
            ),
            (
                "hook_questions_answered",
                "Questions of providers that a primitive has answered",
                |counts| &counts.answered,
            ),
            (
                "hook_questions_declined",
                "Questions of providers that a primitive, a rule or a cap has refused",
                |counts| &counts.declined,
            ),
            (
                "hook_questions_unanswered",
                "Questions of providers that were refused because nobody answered",
                |counts| &counts.unanswered,
            ),
        ];
        for (name, help, read) in shown {
            let counts = self.clone();
            metrics.gauge(name, help, move || read(&counts).load(Relaxed) as f64);
        }
    }
}

/// A hook that may be called now, and the scope that its calls are told in.
pub struct Live {
    /// Its record.
    pub record: HookRecord,
    /// Its scope.
    pub scope: Scope,
}

/// The hook of this id, unless it, its document, its tenant or its primitive is gone.
///
/// # Errors
/// When the store cannot be asked.
pub async fn find(app: &App, txn: &mut Txn, id: &str) -> Result<Option<Live>, Refusal> {
    // Ids are short and plain: nothing else is looked up.
    if id.len() != 32 || !id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Ok(None);
    }
    named(app, txn, &HookRecord::name(id), id).await
}

/// The hook of what the provider that is bound under this name calls so.
///
/// # Errors
/// When the store cannot be asked.
pub async fn referred(
    app: &App,
    txn: &mut Txn,
    binding: &str,
    reference: &str,
) -> Result<Option<Live>, Refusal> {
    named(app, txn, &HookRecord::reference_name(binding, reference), reference).await
}

async fn named(app: &App, txn: &mut Txn, name: &Claim, id: &str) -> Result<Option<Live>, Refusal> {
    let Some(key) = txn.lookup(name).await.map_err(stored::reading)? else { return Ok(None) };
    let Some(row) = txn.get(&key).await.map_err(stored::reading)? else { return Ok(None) };
    let record: HookRecord = serde_json::from_str(&row.body).map_err(|error| {
        tracing::error!(%error, hook = logged_id(id), "a hook cannot be read");
        Refusal::internal()
    })?;
    if !app
        .registry
        .current()
        .listeners(charter_engine::hook::SIGNAL)
        .any(|name| *name == record.primitive)
    {
        return Ok(None);
    }
    if txn.get_relaxed(&record.document_key()).await.map_err(stored::reading)?.is_none() {
        return Ok(None);
    }
    Ok(scope(app, &record).await?.map(|scope| Live { record, scope }))
}

/// The scope of a hook, as long as everybody in it is there, and not revoked unless it is a
/// provider that tells what has happened.
async fn scope(app: &App, record: &HookRecord) -> Result<Option<Scope>, Refusal> {
    let owner = &record.owner;
    let principal = Principal {
        user: owner.user.as_deref().and_then(UserId::parse),
        root: owner.root.clone(),
        ..Principal::of(Actor::new(ActorKind::Hook, record.id.clone()))
    };
    let owner = Owner {
        organization: &owner.organization,
        project: &owner.project,
        user: owner.user.as_deref(),
    };
    match app.directory.party(principal, owner).await {
        Ok(party) => {
            let told = party.user.is_none_or(|user| user.active) || record.provider().is_some();
            Ok(Some(party.scope).filter(|_| told))
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
        tracing::error!(hook = logged_id(&record.id), "a hook's secret cannot be opened");
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
) -> Result<Counter, Refusal> {
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
        return Ok(|app| &app.hooks.repeated);
    }
    enter(app, request, hook)?;
    stored::insert(txn, &note, "event").await?;
    let payload = payload(request, hook, &event);
    Called { hook, payload, now: request.now, request: &request.id }.tell(txn).await?;
    Ok(|app| &app.hooks.taken)
}

/// Takes one of the calls that a hook may have in a minute.
fn enter(app: &App, request: &HostRequest, hook: &HookRecord) -> Result<(), Refusal> {
    let gate = Gate::per_minute(Kind::Hook, hook.id.as_str(), CALLS_PER_MINUTE);
    match app.buckets.take(&[gate], request.began).and_then(|standing| standing.retry_after_s) {
        Some(wait) => Err(Refusal::rate_limited(wait)),
        None => Ok(()),
    }
}

/// What the primitive is told.
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

/// A path as logs show it: the id of a hook is all that a call of it needs where its scheme is
/// `none`, so only its beginning is shown.
pub fn logged_path(path: &str) -> Cow<'_, str> {
    let decoded = match path.contains('%') {
        true => Path::parse(path).map_or(Cow::Borrowed(path), |path| {
            Cow::Owned(format!("/{}", path.segments().join("/")))
        }),
        false => Cow::Borrowed(path),
    };
    match decoded.split_once("/hooks/") {
        Some((_, "providers")) => Cow::Borrowed(path),
        Some((_, id)) if id.starts_with("providers/") => Cow::Borrowed(path),
        Some((mount, id)) => Cow::Owned(format!("{mount}/hooks/{}", logged_id(id))),
        None => Cow::Borrowed(path),
    }
}

/// The beginning of a hook's id: enough to tell it from others.
pub fn logged_id(id: &str) -> String {
    let shown: String = id.chars().take(ID_CHARS_SHOWN).collect();
    format!("{shown}…")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_log_line_shows_what_a_call_needs() {
        let id = "0123456789abcdef0123456789abcdef";
        for path in [
            format!("/v1/hooks/{id}"),
            format!("/v1/projects/p/hooks/{id}"),
            format!("/v1/h%6fok%73/{id}"),
            "/v1/hooks/%30123456789abcdef0123456789abcdef".to_string(),
            format!("/v1/hooks//{id}"),
        ] {
            let shown = logged_path(&path);
            assert!(!shown.contains("9abcdef"), "{path}: {shown}");
        }
        assert_eq!(logged_path(&format!("/v1/hooks/{id}")), "/v1/hooks/01234567…");
        for path in ["/v1/hooks/providers/stripe", "/v1/webhooks/1", "/v1/users/a%20b"] {
            assert_eq!(logged_path(path), path);
        }
    }
}
