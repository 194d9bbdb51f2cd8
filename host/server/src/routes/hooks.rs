//! Inbound URLs: who calls them has no credential, and is believed by the hook's own scheme.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bytes::Bytes;
use charter_adapters::hooks::{signature, stripe};
use charter_adapters::providers::Binding;
use charter_engine::hook::{HookRecord, Scheme};
use charter_kernel::authority::Class;
use charter_kernel::refusal::{Code, Refusal};
use charter_store::Txn;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::app::App;
use crate::hooks;
use crate::hooks::question::{self, Said};
use crate::reply::Reply;
use crate::request::HostRequest;
use crate::route::{Head, HostRoute};
use crate::routes::shape::Yes;
use crate::serve::Answer;
use crate::{ahead, handler};

/// Secrets that one call of a provider is checked with, beside those that serve a hook which it
/// names: first the deployment's own.
const SECRETS_MAX: usize = 256;

/// Bytes of a body that is read whatever else came from its client address: to tell whether it is
/// signed costs no more than any request.
const SHORT_BYTES: usize = 64 << 10;

/// The rows of inbound URLs. A call is believed by what its hook says of it.
pub fn routes() -> Vec<HostRoute> {
    let routes = [
        HostRoute::post(Class::Inbound, "hooks.receive", "/hooks/{id}", handler!(receive_call))
            .summary("Call an inbound URL")
            .ahead(ahead!(exists)),
        HostRoute::post(
            Class::Inbound,
            "hooks.provider",
            "/hooks/providers/{binding}",
            handler!(receive_provider_event),
        )
        .summary("Call the address of a provider's own webhooks")
        .ahead(ahead!(provider_exists)),
    ];
    let declare = |route: HostRoute| {
        let route = route.open().consumes("*/*", crate::hooks::BODY_BYTES_MAX);
        route.refuses(&[Code::Unauthorized, Code::NotFound, Code::RateLimited])
    };
    routes.into_iter().map(declare).collect()
}

/// The answer to a call.
#[derive(Serialize, JsonSchema)]
pub struct Received {
    received: Yes,
}

/// The answer to a call that is counted there.
fn acknowledge(counter: &Arc<AtomicU64>) -> Answer<Received> {
    Answer::of(&Received { received: Yes }).counting(counter)
}

fn count_unknown(app: &App) -> Refusal {
    app.hooks.unknown.fetch_add(1, Relaxed);
    Refusal::not_found()
}

/// Refuses a call that is not signed as the hook asks, and counts it against its sender.
fn count_unsigned(app: &App, request: &HostRequest, hook: &str) -> Refusal {
    app.hooks.unsigned.fetch_add(1, Relaxed);
    let strangers = &app.bounds.strangers;
    let counted = strangers.admit(&strangers.unsigned_hook(request.peer, hook), request.began);
    let told = "The call is not signed as it should be, or not lately.";
    counted.err().unwrap_or_else(|| Refusal::unauthorized(told))
}

/// Whether there is such a hook, ahead of the body: nothing is read for one that there is not, nor
/// anything long of a client address that has called this one too often without its signature. One
/// that is short is read, and taken if it is signed: everybody's events come from a provider's addresses,
/// and whoever else has an account there can have it call this one.
///
/// # Errors
/// 404 for a hook that is unknown, closed or revoked; 429 after too many.
pub async fn exists(app: &App, head: Head<'_>) -> Result<(), Refusal> {
    let mut txn = app.store.begin("").reading();
    let found = hooks::find(app, &mut txn, head.parameter("id")).await?;
    // A provider that calls one address for everybody calls no hook by its id.
    let callable = found.filter(|hook| !matches!(hook.record.scheme, Scheme::Binding(_)));
    admit_sender(app, head, callable.is_some(), "id")
}

/// Whether anything is bound under this name that calls, ahead of the body.
///
/// # Errors
/// 404 where nothing is; 429 after too many.
pub async fn provider_exists(app: &App, head: Head<'_>) -> Result<(), Refusal> {
    let bound = !app.adapters.providers.calling(head.parameter("binding")).is_empty();
    admit_sender(app, head, bound, "binding")
}

/// Admits a call of the hook that a parameter names, if it is there.
fn admit_sender(app: &App, head: Head<'_>, is_there: bool, named: &str) -> Result<(), Refusal> {
    let strangers = &app.bounds.strangers;
    if !is_there {
        strangers.admit(&strangers.unknown_hook(head.peer), head.began)?;
        return Err(count_unknown(app));
    }
    match head.content_length() {
        Some(bytes) if bytes <= SHORT_BYTES => Ok(()),
        _ => {
            let hook = head.parameter(named);
            strangers.look(&strangers.unsigned_hook(head.peer, hook), head.began)
        }
    }
}

/// `POST /v1/hooks/{id}`: a call of one hook. The primitive is told in the commit before this
/// answers, each event once.
///
/// # Errors
/// 404 for a hook that is unknown, closed or revoked; 401 where the call is not signed.
pub async fn receive_call(
    app: &App,
    request: &HostRequest,
    txn: &mut Txn,
) -> Result<Answer<Received>, Refusal> {
    let id = request.parameter("id");
    let hook = hooks::find(app, txn, id).await?.ok_or_else(|| count_unknown(app))?.record;
    let secret = hooks::secret(app, &hook).await?.unwrap_or_default();
    let (headers, body) = (&request.headers, &request.bytes);
    let signed = match hook.scheme {
        Scheme::StandardWebhooks => signature::standard(headers, body, &secret, request.now),
        Scheme::HmacSha256 => signature::plain(headers, body, &secret),
        Scheme::None => Some(signature::Signed { event: None }),
        // Its provider calls elsewhere.
        Scheme::Binding(_) => return Err(count_unknown(app)),
    };
    let signed = signed.ok_or_else(|| count_unsigned(app, request, id))?;
    hooks::take(app, request, txn, &hook, signed.event.as_deref())
        .await
        .map(|counter| acknowledge(&counter))
}

/// `POST /v1/hooks/providers/{binding}`: an event of a provider that calls one address for
/// everybody. It is for the hook that it names, if its binding is the one that serves that hook;
/// what is for none is answered all the same, so that it is not sent for days. If the provider
/// waits for an answer, the hook's primitive gives it, and a no if there is none.
///
/// # Errors
/// 404 where nothing is bound that calls; 401 where the event is not signed.
pub async fn receive_provider_event(
    app: &App,
    request: &HostRequest,
    txn: &mut Txn,
) -> Result<Answer<Received>, Refusal> {
    let name = request.parameter("binding");
    let bindings = app.adapters.providers.calling(name);
    if bindings.is_empty() {
        return Err(count_unknown(app));
    }
    let presented = stripe::Presented::read(&request.headers, request.now)
        .ok_or_else(|| count_unsigned(app, request, name))?;
    let event = stripe::event(&request.bytes);
    let named = match &event {
        Some(event) => find_named(app, txn, name, event).await?,
        None => Vec::new(),
    };
    let presented = Arc::new(presented);
    let signed = |by| signing(by, presented.clone(), request.bytes.clone());
    // Those that serve a hook which it names are looked at, however many others there are, and
    // however often this address has called without a signature.
    let serving = named.iter().map(|(_, serving)| serving.clone()).collect();
    let mut signers = signed(serving).await;
    if signers.is_empty() {
        let strangers = &app.bounds.strangers;
        strangers.look(&strangers.unsigned_hook(request.peer, name), request.began)?;
        signers = signed(bindings).await;
    }
    if signers.is_empty() {
        return Err(count_unsigned(app, request, name));
    }
    let unmatched = &app.hooks.unmatched;
    let Some(event) = event else { return Ok(acknowledge(unmatched)) };
    let is_signed = |serving: &Binding| signers.iter().any(|one| one.whose == serving.whose);
    let hook = named.into_iter().find(|(_, serving)| is_signed(serving)).map(|(hook, _)| hook);
    let Some(asked) = &event.question else {
        return match hook {
            Some(hook) => hooks::take(app, request, txn, &hook, Some(&event.id))
                .await
                .map(|counter| acknowledge(&counter)),
            None => Ok(acknowledge(unmatched)),
        };
    };
    // The primitive's work is its own commit.
    *txn = app.store.begin("");
    let said = match hook {
        Some(hook) => question::ask(app, request, &hook, &event.id).await,
        None => Said::Unanswered,
    };
    Ok(match said {
        Said::Answered(answer) => reply(asked, Some(answer), &app.hooks.answered),
        Said::Declined => reply(asked, None, &app.hooks.declined),
        Said::Unanswered => reply(asked, None, &app.hooks.unanswered),
    })
}

/// The answer to a question.
fn reply(
    asked: &stripe::Question,
    answer: Option<Value>,
    counter: &Arc<AtomicU64>,
) -> Answer<Received> {
    let (name, value) = asked.header();
    Answer::other(Reply::ok(&asked.reply(answer))).header(name, value).counting(counter)
}

/// The bindings that have signed a call. Each secret costs a pass over the body, and a stranger
/// causes it: apart from where requests are served.
async fn signing(
    bindings: Vec<Arc<Binding>>,
    presented: Arc<stripe::Presented>,
    body: Bytes,
) -> Vec<Arc<Binding>> {
    if bindings.is_empty() {
        return bindings;
    }
    let looked_at = move || signers(bindings, |secret| presented.signs(&body, secret));
    tokio::task::spawn_blocking(looked_at).await.unwrap_or_default()
}

/// The bindings of which a secret signs. Each secret is asked about once, however many bindings
/// have it, and [`SECRETS_MAX`] of them at most.
fn signers(bindings: Vec<Arc<Binding>>, signs: impl Fn(&str) -> bool) -> Vec<Arc<Binding>> {
    let mut known: HashMap<String, bool> = HashMap::new();
    let mut once = |secret: &str| match known.get(secret).copied() {
        Some(signs) => signs,
        None if known.len() >= SECRETS_MAX => false,
        None => *known.entry(secret.to_owned()).or_insert_with(|| signs(secret)),
    };
    let signed = |binding: &Arc<Binding>| {
        binding.calling_secrets().into_iter().fold(false, |any, secret| once(secret) | any)
    };
    bindings.into_iter().filter(signed).collect()
}

/// The hooks that an event may be for, the likeliest first, each with the binding that serves it.
async fn find_named(
    app: &App,
    txn: &mut Txn,
    name: &str,
    event: &stripe::Event,
) -> Result<Vec<(HookRecord, Arc<Binding>)>, Refusal> {
    let mut found = Vec::new();
    for id in &event.hooks {
        found.extend(hooks::find(app, txn, id).await?);
    }
    if let Some(reference) = &event.reference {
        found.extend(hooks::find_by_reference(app, txn, name, reference).await?);
    }
    let served = found.into_iter().filter(|hook| hook.record.provider() == Some(name));
    let served = served.filter_map(|hook| {
        let serving = app.adapters.providers.resolve(&hook.scope, name)?;
        Some((hook.record, serving))
    });
    Ok(served.collect())
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use charter_adapters::providers::Whose;
    use charter_tenancy::secret::Secret;

    use super::*;

    /// A binding of an organization, whose provider signs with one of these.
    fn binding(organization: usize, secrets: [Option<&str>; 2]) -> Arc<Binding> {
        let webhook_secrets = secrets.map(|secret| secret.map(|text| Secret::new(text.to_owned())));
        Arc::new(Binding {
            name: "billing".into(),
            whose: Whose::Organization(organization.to_string()),
            kind: stripe::KIND.into(),
            url: "https://example.com".into(),
            credential: None,
            webhook_secrets,
            options: Value::Null,
            configured: false,
        })
    }

    #[test]
    fn a_secret_that_many_bindings_have_is_looked_at_once() {
        for (signing, signers_found) in [("new", 3), ("former", 3), ("other", 0)] {
            let bindings = (0..3).map(|n| binding(n, [Some("new"), Some("former")])).collect();
            let asked = RefCell::new(Vec::new());
            let found = signers(bindings, |secret| {
                asked.borrow_mut().push(secret.to_owned());
                secret == signing
            });
            assert_eq!(found.len(), signers_found, "{signing}");
            assert_eq!(asked.into_inner(), ["new", "former"], "{signing}");
        }
    }

    #[test]
    fn a_call_is_checked_with_so_many_secrets_and_no_more() {
        let own: Vec<String> = (0..300).map(|n| format!("secret-{n}")).collect();
        let of = |n: usize| binding(n, [Some(own[n].as_str()), None]);
        for (signing, is_found) in [(0, true), (255, true), (256, false), (299, false)] {
            let asked = RefCell::new(0);
            let found = signers((0..300).map(of).collect(), |secret| {
                *asked.borrow_mut() += 1;
                secret == own[signing]
            });
            let whose: Vec<&Whose> = found.iter().map(|binding| &binding.whose).collect();
            let wanted = Whose::Organization(signing.to_string());
            assert_eq!(whose, if is_found { vec![&wanted] } else { Vec::new() });
            assert_eq!(asked.into_inner(), 256);
        }
    }
}
