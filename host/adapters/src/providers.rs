//! Bindings: which provider answers for a name, at which address, with which credential.
//!
//! Set by the operator through the API (rows, which win) or the configuration. A copy is kept in
//! memory, so that asking costs no read. Knows nothing of protocols; credentials are sealed in the
//! database, opened here, and never shown.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use charter_kernel::scope::Scope;
use charter_store::Store;
use charter_tenancy::operator::Act;
use charter_tenancy::secret::Secret;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::hooks::stripe;
use crate::settings;

mod address;
mod record;

pub use address::{is_address, port};
pub use record::{BindingFault, BindingInput, Whose};

/// One binding, with its credential.
#[derive(Clone, Debug)]
pub struct Binding {
    /// Its name: `https://<name>.binding/`.
    pub name: String,
    /// The tenants that it serves.
    pub whose: Whose,
    /// The protocol.
    pub kind: String,
    /// The address of requests: an origin and a path that they stay below.
    pub url: String,
    /// The credential that the host adds to each request.
    pub credential: Option<Secret>,
    /// The secrets that sign the provider's own calls: the current one, and beside it a former one.
    pub webhook_secrets: [Option<Secret>; 2],
    /// Further members that the protocol asks for.
    pub options: Value,
    /// Whether it comes from the configuration, and so cannot be changed by the API.
    pub configured: bool,
}

impl Binding {
    /// Whether it only pretends: a test project reaches such bindings alone.
    pub fn is_sandbox(&self) -> bool {
        self.kind == "sandbox"
            || self.options.get("sandbox").and_then(Value::as_bool).unwrap_or(false)
    }

    /// Whether a provider of this kind calls: the host knows how its calls are signed.
    pub fn calls(kind: &str) -> bool {
        kind == stripe::KIND
    }

    /// The secrets that may sign the provider's calls now; none where it does not call.
    pub fn calling_secrets(&self) -> Vec<&str> {
        let secrets = self.webhook_secrets.iter().filter(|_| Self::calls(&self.kind));
        secrets.flatten().map(Secret::reveal).collect()
    }

    /// The operator's view: everything but the credential and the secrets. `webhook_url` is where
    /// the provider is to call, if it does.
    pub fn report(&self, webhook_url: Option<String>) -> BindingReport {
        let presence = |secret: &Option<Secret>| match secret {
            Some(_) => Presence::Set,
            None => Presence::None,
        };
        BindingReport {
            name: self.name.clone(),
            kind: self.kind.clone(),
            url: self.url.clone(),
            credential: presence(&self.credential),
            webhook_secret: presence(&self.webhook_secrets[0]),
            webhook_secret_previous: presence(&self.webhook_secrets[1]),
            webhook_url,
            options: self.options.clone(),
            scope: self.whose.clone(),
            source: if self.configured { Source::Configuration } else { Source::Api },
        }
    }
}

/// A binding without its secrets.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct BindingReport {
    /// Its name: `https://<name>.binding/`.
    pub name: String,
    /// The protocol.
    pub kind: String,
    /// The address.
    pub url: String,
    /// Whether it has a credential.
    pub credential: Presence,
    /// Whether it has a secret that the provider's own calls are signed with.
    pub webhook_secret: Presence,
    /// Whether it has a former one, which signs as well.
    pub webhook_secret_previous: Presence,
    /// The address that the provider is to call.
    pub webhook_url: Option<String>,
    /// Further settings of the protocol.
    #[schemars(with = "serde_json::Map<String, Value>")]
    pub options: Value,
    /// The tenants that it serves.
    pub scope: Whose,
    /// The place that it is set in.
    pub source: Source,
}

/// Whether a secret is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Presence {
    /// It is.
    Set,
    /// There is none.
    None,
}

/// The place that a binding is set in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The configuration, which alone changes it.
    Configuration,
    /// The API.
    Api,
}

type Bindings = BTreeMap<(String, Whose), Arc<Binding>>;

/// All bindings. Cheap to clone.
#[derive(Clone)]
pub struct Providers {
    store: Store,
    configured: Arc<Bindings>,
    current: Arc<RwLock<Arc<Bindings>>>,
    /// One refresh at a time, so that an older state never replaces a newer one.
    refreshing: Arc<tokio::sync::Mutex<()>>,
}

impl Providers {
    /// Reads the bindings of the deployment beside those of the configuration.
    ///
    /// # Errors
    /// When the store cannot be read, or a credential cannot be opened.
    pub async fn open(
        store: Store,
        configured: &BTreeMap<String, settings::Provider>,
    ) -> Result<Self, BindingFault> {
        let configured = configured.iter().map(|(name, provider)| {
            let binding = Binding {
                name: name.clone(),
                whose: Whose::Deployment,
                kind: provider.kind.clone(),
                url: provider.url.clone(),
                credential: provider.credential.clone(),
                webhook_secrets: [
                    provider.webhook_secret.clone(),
                    provider.webhook_secret_previous.clone(),
                ],
                options: provider.options.clone(),
                configured: true,
            };
            ((name.clone(), Whose::Deployment), Arc::new(binding))
        });
        let configured: Arc<Bindings> = Arc::new(configured.collect());
        let providers = Self {
            store,
            current: Arc::new(RwLock::new(configured.clone())),
            configured,
            refreshing: Arc::default(),
        };
        providers.refresh().await?;
        Ok(providers)
    }

    /// Reads what was changed since.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn refresh(&self) -> Result<(), BindingFault> {
        let _one = self.refreshing.lock().await;
        let mut bindings = (*self.configured).clone();
        for binding in record::all(&self.store).await? {
            bindings.insert((binding.name.clone(), binding.whose.clone()), Arc::new(binding));
        }
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(bindings);
        Ok(())
    }

    fn current(&self) -> Arc<Bindings> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The binding of this name that serves the scope: its project's, else its organization's, else
    /// the deployment's. A test project gets sandboxes only.
    pub fn resolve(&self, scope: &Scope, name: &str) -> Option<Arc<Binding>> {
        let current = self.current();
        let project = scope.project().map(|id| Whose::Project(id.to_string()));
        let organization = scope.organization().map(|id| Whose::Organization(id.to_string()));
        let levels = [project, organization, Some(Whose::Deployment)];
        levels
            .into_iter()
            .flatten()
            .filter_map(|whose| current.get(&(name.to_owned(), whose)))
            .find(|binding| !scope.is_test() || binding.is_sandbox())
            .cloned()
    }

    /// Those of `needs` that nothing is bound to in the scope.
    pub fn missing(&self, scope: &Scope, needs: &[String]) -> Vec<String> {
        needs.iter().filter(|name| self.resolve(scope, name).is_none()).cloned().collect()
    }

    /// Those of `needs` that nothing is bound to for the deployment as a whole, for status pages.
    pub fn missing_needs(&self, needs: &[String]) -> Vec<String> {
        let current = self.current();
        needs
            .iter()
            .filter(|name| !current.contains_key(&((*name).clone(), Whose::Deployment)))
            .cloned()
            .collect()
    }

    /// The guests' view of a provider: `[{name, kind, state, sandbox, options}]`, without address
    /// and credential.
    pub fn describe(&self, scope: &Scope, name: &str) -> Value {
        match self.resolve(scope, name) {
            None => {
                json!([{"name": name, "kind": null, "state": "unbound", "sandbox": false, "options": {}}])
            }
            Some(binding) => json!([{
                "name": name,
                "kind": binding.kind,
                "state": "bound",
                "sandbox": binding.is_sandbox(),
                "options": binding.options,
            }]),
        }
    }

    /// Whether this is the deployment's shared secret of a binding. Takes the same time whatever
    /// was presented.
    pub fn admits(&self, name: &str, presented: &str) -> bool {
        let current = self.current();
        let Some(binding) = current.get(&(name.to_owned(), Whose::Deployment)) else {
            return false;
        };
        let Some(credential) = &binding.credential else { return false };
        let (given, kept) =
            (Sha256::digest(presented.as_bytes()), Sha256::digest(credential.reveal().as_bytes()));
        given.ct_eq(&kept).into()
    }

    /// The bindings of this name whose provider calls, whomever they serve.
    pub fn calling(&self, name: &str) -> Vec<Arc<Binding>> {
        let current = self.current();
        let named = current.values().filter(|binding| binding.name == name);
        named.filter(|binding| !binding.calling_secrets().is_empty()).cloned().collect()
    }

    /// All bindings, by name.
    pub fn all(&self) -> Vec<Arc<Binding>> {
        self.current().values().cloned().collect()
    }

    /// One binding.
    pub fn get(&self, name: &str, whose: &Whose) -> Option<Arc<Binding>> {
        self.current().get(&(name.to_owned(), whose.clone())).cloned()
    }

    /// Sets a binding, in one commit with the audit row of that. A credential that is not given stays as it was.
    ///
    /// # Errors
    /// When the store does not take it.
    pub async fn set(
        &self,
        name: &str,
        input: BindingInput,
        act: Act,
    ) -> Result<Arc<Binding>, BindingFault> {
        let whose = input.scope.clone();
        record::set(&self.store, name, input, act).await?;
        self.refresh().await?;
        self.get(name, &whose).ok_or(BindingFault::Lost)
    }

    /// Removes a binding, in one commit with the audit row of that; false where the API set none.
    ///
    /// # Errors
    /// When the store does not take it.
    pub async fn remove(&self, name: &str, whose: &Whose, act: Act) -> Result<bool, BindingFault> {
        let removed = record::remove(&self.store, name, whose, act).await?;
        self.refresh().await?;
        Ok(removed)
    }
}
