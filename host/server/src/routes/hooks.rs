//! Inbound URLs: who calls them has no credential, and is believed by the hook's own scheme.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;
use charter_engine::hook::{HookRecord, Scheme};
use charter_kernel::refusal::Refusal;
use charter_store::Txn;
use serde_json::{Value, json};

use crate::app::App;
use crate::hooks::question::{self, Said};
use crate::hooks::{self, signature, stripe};
use crate::providers::Binding;
use crate::reply::{Counter, Reply};
use crate::request::HostRequest;
use crate::routes::{Head, shape};

/// Secrets that one call of a provider is checked with: the deployment's own first.
const SECRETS_MAX: usize = 256;

/// What a call is answered.
pub fn answer() -> Value {
    shape::object(&[("received", json!({"const": true}))])
}

fn received(counter: Counter) -> Reply {
    Reply::ok(&json!({"received": true})).counting(counter)
}

fn unknown(app: &App) -> Refusal {
    app.hooks.unknown.fetch_add(1, Relaxed);
    Refusal::not_found()
}

fn unsigned(app: &App) -> Refusal {
    app.hooks.unsigned.fetch_add(1, Relaxed);
    Refusal::unauthorized("The call is not signed as it should be, or not lately.")
}

/// Whether there is such a hook, ahead of the body: nothing is read for one that there is not. Only
/// calls of hooks that there are not count, so that a client address that many senders share is
/// never closed to those who call their own.
///
/// # Errors
/// 404 for a hook that is unknown, closed or revoked; 429 after too many.
pub async fn exists(app: &App, head: Head<'_>) -> Result<(), Refusal> {
    let mut txn = app.store.begin("").reading();
    let found = hooks::find(app, &mut txn, head.parameter("id")).await?;
    // A provider that calls one address for everybody calls no hook by its id.
    let callable = found.filter(|hook| !matches!(hook.record.scheme, Scheme::Binding(_)));
    if callable.is_some() { Ok(()) } else { Err(missed(app, head)) }
}

/// Whether anything is bound under this name that calls, ahead of the body.
///
/// # Errors
/// 404 where nothing is; 429 after too many.
pub async fn provider_exists(app: &App, head: Head<'_>) -> Result<(), Refusal> {
    let bound = !app.adapters.providers.calling(head.parameter("binding")).is_empty();
    if bound { Ok(()) } else { Err(missed(app, head)) }
}

fn missed(app: &App, head: Head<'_>) -> Refusal {
    let counted = app.strangers.admit(&app.strangers.unknown_hook(head.peer), head.began);
    counted.err().unwrap_or_else(|| unknown(app))
}

/// `POST /v1/hooks/{id}`: a call of one hook. The primitive is told in the commit before this
/// answers, each event once.
///
/// # Errors
/// 404 for a hook that is unknown, closed or revoked; 401 where the call is not signed.
pub async fn receive(app: &App, request: &HostRequest, txn: &mut Txn) -> Result<Reply, Refusal> {
    let hook =
        hooks::find(app, txn, request.parameter("id")).await?.ok_or_else(|| unknown(app))?.record;
    let secret = hooks::secret(app, &hook).await?.unwrap_or_default();
    let (headers, body) = (&request.headers, &request.bytes);
    let signed = match hook.scheme {
        Scheme::StandardWebhooks => signature::standard(headers, body, &secret, request.now),
        Scheme::HmacSha256 => signature::plain(headers, body, &secret),
        Scheme::None => Some(signature::Signed { event: None }),
        // Its provider calls elsewhere.
        Scheme::Binding(_) => return Err(unknown(app)),
    };
    let signed = signed.ok_or_else(|| unsigned(app))?;
    hooks::take(app, request, txn, &hook, signed.event.as_deref()).await.map(received)
}

/// `POST /v1/hooks/providers/{binding}`: an event of a provider that calls one address for
/// everybody. It is for the hook that it names, if its binding is the one that serves that hook;
/// what is for none is answered all the same, so that it is not sent for days. Where the provider
/// waits for an answer, it is the hook's primitive that answers, and a no where nobody does.
///
/// # Errors
/// 404 where nothing is bound that calls; 401 where the event is not signed.
pub async fn provider(app: &App, request: &HostRequest, txn: &mut Txn) -> Result<Reply, Refusal> {
    let name = request.parameter("binding");
    let bindings = app.adapters.providers.calling(name);
    if bindings.is_empty() {
        return Err(unknown(app));
    }
    let presented =
        stripe::Presented::read(&request.headers, request.now).ok_or_else(|| unsigned(app))?;
    let signed = signing(bindings, presented, request.bytes.clone()).await;
    if signed.is_empty() {
        return Err(unsigned(app));
    }
    let unmatched: Counter = |app| &app.hooks.unmatched;
    let Some(event) = stripe::event(&request.bytes) else { return Ok(received(unmatched)) };
    let hook = meant(app, txn, name, &event, &signed).await?;
    let Some(asked) = &event.question else {
        return match hook {
            Some(hook) => {
                hooks::take(app, request, txn, &hook, Some(&event.id)).await.map(received)
            }
            None => Ok(received(unmatched)),
        };
    };
    // What the primitive does is its own commit.
    *txn = app.store.begin("");
    let said = match hook {
        Some(hook) => question::ask(app, request, &hook, &event.id).await,
        None => Said::Unanswered,
    };
    Ok(match said {
        Said::Answered(answer) => reply(asked, Some(answer), |app| &app.hooks.answered),
        Said::Declined => reply(asked, None, |app| &app.hooks.declined),
        Said::Unanswered => reply(asked, None, |app| &app.hooks.unanswered),
    })
}

/// The answer to a question.
fn reply(asked: &stripe::Question, answer: Option<Value>, counter: Counter) -> Reply {
    let (name, value) = asked.header();
    Reply::ok(&asked.reply(answer)).header(name, value).counting(counter)
}

/// The bindings that have signed a call. Each secret costs a pass over the body, and a stranger
/// causes it: apart from where requests are served, and for so many secrets at most.
async fn signing(
    bindings: Vec<Arc<Binding>>,
    presented: stripe::Presented,
    body: Bytes,
) -> Vec<Arc<Binding>> {
    let looked_at = move || {
        let mut known: HashMap<String, bool> = HashMap::new();
        let mut signs = |secret: &str| match known.get(secret).copied() {
            Some(signs) => signs,
            None if known.len() >= SECRETS_MAX => false,
            None => *known.entry(secret.to_owned()).or_insert(presented.signs(&body, secret)),
        };
        let signed = |binding: &Arc<Binding>| {
            binding.calling_secrets().into_iter().fold(false, |any, secret| signs(secret) | any)
        };
        bindings.into_iter().filter(signed).collect()
    };
    tokio::task::spawn_blocking(looked_at).await.unwrap_or_default()
}

/// The hook that an event is for, where one of the bindings that may have signed it serves that
/// hook.
async fn meant(
    app: &App,
    txn: &mut Txn,
    name: &str,
    event: &stripe::Event,
    signed: &[Arc<Binding>],
) -> Result<Option<HookRecord>, Refusal> {
    let serves = |hook: &hooks::Live| {
        let serving = app.adapters.providers.resolve(&hook.scope, name);
        hook.record.provider() == Some(name)
            && serving.is_some_and(|serving| signed.iter().any(|one| one.whose == serving.whose))
    };
    for id in &event.hooks {
        if let Some(hook) = hooks::find(app, txn, id).await?.filter(serves) {
            return Ok(Some(hook.record));
        }
    }
    let Some(reference) = &event.reference else { return Ok(None) };
    Ok(hooks::referred(app, txn, name, reference).await?.filter(serves).map(|hook| hook.record))
}
