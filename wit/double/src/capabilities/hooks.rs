//! `hooks`: inbound URLs of documents, opened and closed with the request's commit.

use charter_kernel::apply::rule;
use charter_kernel::refusal::Failure;
use charter_kernel::unit::{Claim, Draft, Key, Reach, Space};
use charter_sdk::bindings::charter::primitive::hooks::Hook;
use charter_sdk::native::{Answer, Hooks};
use serde::{Deserialize, Serialize};

use crate::call::Work;
use crate::caller::ORGANIZATION;
use crate::world::{Double, World};

/// A hook, as its row keeps it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct HookRecord {
    pub(crate) collection: String,
    pub(crate) document: Key,
    /// The binding whose provider calls it, where one does.
    pub(crate) provider: Option<String>,
}

impl HookRecord {
    /// The space of hooks.
    pub(crate) fn space() -> Space {
        Space::host("hooks")
    }

    /// The key of a hook.
    pub(crate) fn address(id: &str) -> Key {
        Key::new(&Reach::organization(ORGANIZATION), &Self::space(), id)
    }
}

impl Work {
    /// A scheme that can be checked; the binding's name where it is a provider's.
    fn provider(&self, world: &World, scheme: &str) -> Result<Option<String>, Failure> {
        let manifest = &world.installed.manifest;
        if !manifest.signals.iter().any(|signal| signal == "hook") {
            let told = "the manifest asks for no signal `hook`: nothing would hear the calls";
            return Err(Failure::undeclared(told));
        }
        let Some(name) = scheme.strip_prefix("binding:") else {
            return match ["standard-webhooks", "hmac-sha256", "none"].contains(&scheme) {
                true => Ok(None),
                false => Err(Failure::invalid(
                    "scheme",
                    "is one of standard-webhooks, hmac-sha256, none and binding:<name>",
                )),
            };
        };
        if !manifest.providers.iter().any(|provider| provider.name == name) {
            let told = format!("the manifest declares no provider `{name}`");
            return Err(Failure::undeclared(told));
        }
        match world.bindings.contains_key(name) {
            true => Ok(Some(name.to_owned())),
            false => {
                let refusal = charter_kernel::refusal::Refusal::not_configured(&[name]);
                Err(refusal.to_failure())
            }
        }
    }
}

impl Hooks for Double {
    fn open(&self, collection: &str, document: &str, scheme: &str) -> Answer<Hook> {
        self.changing("hooks", |world, work| {
            let (_, reach, space) = work.place(world, collection, true)?;
            let provider = work.provider(world, scheme)?;
            let document = Key::new(&reach, &space, document);
            if work.txn.get(&world.rows, &document).is_none() {
                return Err(Failure::not_found("the document"));
            }
            let id = world.fresh_id();
            let url = match &provider {
                Some(name) => format!("https://charter.example/v1/hooks/providers/{name}"),
                None => format!("https://charter.example/v1/hooks/{id}"),
            };
            let is_keyed = provider.is_none() && scheme != "none";
            let record = HookRecord { collection: collection.to_owned(), document, provider };
            let body = serde_json::to_string(&record).unwrap_or_default();
            let draft = Draft { body, ..Draft::default() };
            work.txn
                .insert(&world.rows, HookRecord::address(&id), draft)
                .map_err(|refused| rule(&refused))?;
            let secret = is_keyed.then(|| format!("whsec_{id}"));
            Ok(Hook { id, url, secret })
        })
    }

    fn refer(&self, id: &str, reference: &str) -> Answer<()> {
        self.changing("hooks", |world, work| {
            let key = HookRecord::address(id);
            if work.txn.get(&world.rows, &key).is_none() {
                return Err(Failure::not_found("the hook"));
            }
            let claim = Claim::name(&format!("hook-reference.{}", world.name()), reference);
            match work.txn.lookup(&world.rows, &claim).filter(|holder| *holder != key) {
                Some(_) => Err(Failure::new("state_conflict", "the name is taken")),
                None => {
                    work.txn.write(charter_kernel::unit::Write::Claim { claim, holder: key });
                    Ok(())
                }
            }
        })
    }

    fn close(&self, id: &str) -> Answer<bool> {
        self.changing("hooks", |world, work| {
            let key = HookRecord::address(id);
            work.txn.remove(&world.rows, &key, None).map_err(|refused| rule(&refused))
        })
    }
}
