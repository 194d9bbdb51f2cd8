//! The rows of bindings: what the operator has set through the API, credentials sealed.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use charter_kernel::id::canonical;
use charter_kernel::unit::{Key, Reach};
use charter_store::{CommitError, ReadError, SealError, Store, TransactError, Txn, WriteError};
use charter_tenancy::operator::Act;
use charter_tenancy::records::{Record, Unreadable};
use charter_tenancy::secret::Secret;
use charter_tenancy::stored;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Binding;
use super::address::port;

/// The tenants that a binding serves.
#[derive(
    Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Whose {
    /// Everyone.
    #[default]
    Deployment,
    /// One organization, by id.
    Organization(#[schemars(with = "charter_kernel::id::OrganizationId")] String),
    /// One project, by id.
    Project(#[schemars(with = "charter_kernel::id::ProjectId")] String),
}

impl Whose {
    /// The same, its id in the one spelling that is compared. Another text stays as it is, and is
    /// nobody's.
    #[must_use]
    pub fn canonical(self) -> Self {
        match self {
            Self::Deployment => self,
            Self::Organization(id) => Self::Organization(canonical(id)),
            Self::Project(id) => Self::Project(canonical(id)),
        }
    }
}

/// A binding as the operator sets it.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BindingInput {
    /// The protocol.
    #[schemars(length(min = 1, max = 64))]
    pub kind: String,
    /// The address.
    #[schemars(length(min = 1, max = 2_048))]
    pub url: String,
    /// The credential; absent keeps the one that is there, `null` or empty removes it.
    #[serde(default, deserialize_with = "read_nullable")]
    #[schemars(with = "Option<String>", length(max = 16_384), extend("writeOnly" = true))]
    pub credential: Option<Option<Secret>>,
    /// The secret that signs the provider's own calls; absent keeps it, `null` or empty removes it.
    #[serde(default, deserialize_with = "read_nullable")]
    #[schemars(with = "Option<String>", length(max = 1_024), extend("writeOnly" = true))]
    pub webhook_secret: Option<Option<Secret>>,
    /// The same of a former secret, while it is rotated.
    #[serde(default, deserialize_with = "read_nullable")]
    #[schemars(with = "Option<String>", length(max = 1_024), extend("writeOnly" = true))]
    pub webhook_secret_previous: Option<Option<Secret>>,
    /// Further members that the protocol asks for.
    #[serde(default)]
    pub options: serde_json::Map<String, Value>,
    /// The tenants that it serves.
    #[serde(default, deserialize_with = "read_scope")]
    pub scope: Whose,
}

/// Reads whom a binding serves, in the one spelling that is compared.
fn read_scope<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Whose, D::Error> {
    Whose::deserialize(from).map(Whose::canonical)
}

/// Tells `null` from absent.
fn read_nullable<'de, D>(from: D) -> Result<Option<Option<Secret>>, D::Error>
where
    D: serde::Deserializer<'de>,
{
    Option::<String>::deserialize(from).map(|text| Some(text.map(Secret::new)))
}

/// A binding could not be read or set.
#[derive(Debug, thiserror::Error)]
pub enum BindingFault {
    /// Reading.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// Writing.
    #[error(transparent)]
    Commit(#[from] CommitError),
    /// The credential.
    #[error("a credential cannot be sealed or opened")]
    Seal(#[from] SealError),
    /// The row.
    #[error(transparent)]
    Record(#[from] Unreadable),
    /// Another address, and the credential that was given for the one before.
    #[error("the binding goes elsewhere: give its credential again, or null")]
    Elsewhere(&'static str),
    /// Set and gone again: somebody else removed it at once.
    #[error("the binding was removed while it was set")]
    Lost,
}

/// The row.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Stored {
    name: String,
    whose: Whose,
    kind: String,
    url: String,
    /// Base64 of the sealed credential.
    sealed: Option<String>,
    /// The same of what its calls are signed with, and of the former secret.
    #[serde(default)]
    webhook_secrets: [Option<String>; 2],
    options: Value,
}

impl Stored {
    fn address(name: &str, whose: &Whose) -> Key {
        Key::new(&Reach::deployment(), &Self::space(), id(name, whose))
    }
}

impl Record for Stored {
    const COLLECTION: &'static str = "bindings";

    fn key(&self) -> Key {
        Self::address(&self.name, &self.whose)
    }
}

fn id(name: &str, whose: &Whose) -> String {
    match whose {
        Whose::Deployment => name.to_owned(),
        Whose::Organization(id) => format!("{name}@o/{id}"),
        Whose::Project(id) => format!("{name}@p/{id}"),
    }
}

/// The context that a credential is sealed under, so that it opens nowhere else.
fn context(name: &str, whose: &Whose) -> String {
    format!("binding/{}", id(name, whose))
}

/// The same of what a provider's calls are signed with.
fn calling_context(name: &str, whose: &Whose) -> String {
    format!("binding-webhook/{}", id(name, whose))
}

/// All rows, opened. One whose credential does not open is left out, loudly: its users then read
/// "not configured".
pub(super) async fn all(store: &Store) -> Result<Vec<Binding>, BindingFault> {
    let mut txn = store.begin("");
    let mut bindings = Vec::new();
    for stored in stored::all::<Stored>(&mut txn, true).await? {
        match open(store, &stored).await {
            Ok((credential, webhook_secrets)) => bindings.push(Binding {
                name: stored.name,
                whose: stored.whose,
                kind: stored.kind,
                url: stored.url,
                credential,
                webhook_secrets,
                options: stored.options,
                configured: false,
            }),
            Err(error) => {
                tracing::error!(
                    error = &error as &dyn std::error::Error,
                    binding = stored.name,
                    "a binding's credential cannot be opened"
                );
            }
        }
    }
    Ok(bindings)
}

type Opened = (Option<Secret>, [Option<Secret>; 2]);

async fn open(store: &Store, stored: &Stored) -> Result<Opened, SealError> {
    let calling = calling_context(&stored.name, &stored.whose);
    let [secret, previous] = &stored.webhook_secrets;
    let credential =
        unseal(store, &context(&stored.name, &stored.whose), stored.sealed.as_ref()).await?;
    let secrets = [
        unseal(store, &calling, secret.as_ref()).await?,
        unseal(store, &calling, previous.as_ref()).await?,
    ];
    Ok((credential, secrets))
}

async fn unseal(
    store: &Store,
    context: &str,
    sealed: Option<&String>,
) -> Result<Option<Secret>, SealError> {
    let Some(sealed) = sealed else { return Ok(None) };
    let sealed = STANDARD.decode(sealed).map_err(|_| SealError::Broken)?;
    let bytes = store.unseal("", context, &sealed).await?;
    let text = String::from_utf8(bytes).map_err(|_| SealError::Broken)?;
    Ok(Some(Secret::new(text)))
}

/// A value as it is to be kept: `None` keeps the one that is there, `Some(None)` removes it.
async fn seal(
    store: &Store,
    context: &str,
    given: Option<Option<Secret>>,
) -> Result<Option<Option<String>>, SealError> {
    let Some(given) = given else { return Ok(None) };
    let Some(text) = given.filter(|text| !text.reveal().is_empty()) else { return Ok(Some(None)) };
    Ok(Some(Some(STANDARD.encode(store.seal("", context, text.reveal().as_bytes()).await?))))
}

pub(super) async fn set(
    store: &Store,
    name: &str,
    input: BindingInput,
    act: Act,
) -> Result<(), BindingFault> {
    let calling = calling_context(name, &input.scope);
    let fresh = seal(store, &context(name, &input.scope), input.credential).await?;
    let secret = seal(store, &calling, input.webhook_secret).await?;
    let previous = seal(store, &calling, input.webhook_secret_previous).await?;
    let key = Stored::address(name, &input.scope);
    let options = Value::Object(input.options);
    let set = store.transact("", async |txn: &mut Txn| {
        let (kept, [kept_secret, kept_previous]) = match txn.get(&key).await? {
            Some(row) => {
                let stored = Stored::read(&row)?;
                // A secret was given for one provider: it goes nowhere else by itself.
                if !same_origin(&stored.url, &input.url) {
                    let [kept, kept_previous] = &stored.webhook_secrets;
                    for (name, given, kept) in [
                        ("credential", fresh.is_some(), &stored.sealed),
                        ("webhook_secret", secret.is_some(), kept),
                        ("webhook_secret_previous", previous.is_some(), kept_previous),
                    ] {
                        if !given && kept.is_some() {
                            return Err(BindingFault::Elsewhere(name));
                        }
                    }
                }
                (stored.sealed, stored.webhook_secrets)
            }
            None => (None, [None, None]),
        };
        let stored = Stored {
            name: name.to_owned(),
            whose: input.scope.clone(),
            kind: input.kind.clone(),
            url: input.url.clone(),
            sealed: fresh.clone().unwrap_or(kept),
            webhook_secrets: [
                secret.clone().unwrap_or(kept_secret),
                previous.clone().unwrap_or(kept_previous),
            ],
            options: options.clone(),
        };
        txn.put(key.clone(), stored.draft()?).await.map_err(write_fault)?;
        act.clone().join(txn);
        Ok(())
    });
    set.await.map_err(TransactError::flatten)
}

/// Whether two addresses are one provider's: the same scheme, host and port. An address whose port
/// does not exist is nobody's.
fn same_origin(one: &str, other: &str) -> bool {
    let origin = |text: &str| {
        let uri: http::Uri = text.parse().ok()?;
        let scheme = uri.scheme_str()?.to_ascii_lowercase();
        let standard = match scheme.as_str() {
            "http" => 80,
            "https" => 443,
            // No address can name it: a port that is left out is another than each that is not.
            _ => 0,
        };
        let authority = uri.authority()?;
        Some((scheme, authority.host().to_ascii_lowercase(), port(authority, standard)?))
    };
    one == other || origin(one).is_some_and(|one| Some(one) == origin(other))
}

pub(super) async fn remove(
    store: &Store,
    name: &str,
    whose: &Whose,
    act: Act,
) -> Result<bool, BindingFault> {
    let key = Stored::address(name, whose);
    let removed = store.transact("", async |txn: &mut Txn| {
        let removed = txn.remove(&key, None).await.map_err(write_fault)?;
        if removed {
            act.clone().join(txn);
        }
        Ok::<_, BindingFault>(removed)
    });
    removed.await.map_err(TransactError::flatten)
}

fn write_fault(error: WriteError) -> BindingFault {
    match error {
        WriteError::Read(error) => error.into(),
        WriteError::Refused(refused) => CommitError::Rejected(refused.into()).into(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use charter_kernel::audit::AuditRow;
    use charter_kernel::time::{Clock, Instant};
    use charter_kernel::unit::FactKind;
    use charter_store::{StoreConfig, audit_fact};
    use charter_tenancy::operator::{self, Operator};

    use super::*;

    struct Still;

    impl Clock for Still {
        fn now(&self) -> Instant {
            Instant(1_800_000_000_000)
        }
    }

    /// A store of its own, and its folder.
    async fn store(name: &str) -> (Store, std::path::PathBuf) {
        let name = format!("charter-bindings-{}-{name}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        let mut config = StoreConfig::new(&folder, Arc::new(Still));
        config.ballast_bytes = 1024 * 1024;
        (Store::open(config).await.unwrap(), folder)
    }

    fn row(action: &str) -> Act {
        audit_fact(&AuditRow { action, ..AuditRow::default() }).unwrap().into()
    }

    fn input(url: &str) -> BindingInput {
        let input = serde_json::json!({"kind": "http", "url": url, "credential": "hunter2"});
        serde_json::from_value(input).unwrap()
    }

    /// The addresses that are bound, and the actions of the deployment's rows.
    async fn state(store: &Store) -> (Vec<String>, Vec<String>) {
        store.facts_head_settled(FactKind::Audit, "").await.unwrap();
        let facts = store.facts(FactKind::Audit, "", 0, 100).await.unwrap();
        let actions = facts.into_iter().map(|row| row.fact.name.clone()).collect();
        let bound = all(store).await.unwrap();
        (bound.into_iter().map(|binding| binding.url).collect(), actions)
    }

    #[tokio::test]
    async fn a_binding_is_set_and_removed_with_one_row_and_refused_with_none() {
        const HERE: &str = "https://a.example.com";
        let (store, folder) = store("rows").await;
        set(&store, "engine", input(HERE), row("put")).await.unwrap();
        assert_eq!(state(&store).await, (vec![HERE.into()], vec!["put".into()]));
        // The credential was given for another provider.
        let elsewhere = BindingInput { credential: None, ..input("https://b.example.com") };
        let refused = set(&store, "engine", elsewhere, row("put")).await.unwrap_err();
        assert!(matches!(refused, BindingFault::Elsewhere("credential")), "{refused}");
        let whose = Whose::Deployment;
        assert!(!remove(&store, "nothing", &whose, row("delete")).await.unwrap());
        assert_eq!(state(&store).await, (vec![HERE.into()], vec!["put".into()]));
        assert!(remove(&store, "engine", &whose, row("delete")).await.unwrap());
        assert_eq!(state(&store).await, (Vec::new(), vec!["put".into(), "delete".into()]));
        assert!(!remove(&store, "engine", &whose, row("delete")).await.unwrap());
        assert_eq!(state(&store).await.1, ["put", "delete"]);
        store.close().await;
        let _ = std::fs::remove_dir_all(&folder);
    }

    #[tokio::test]
    async fn no_binding_changes_whose_row_is_not_taken() {
        const HERE: &str = "https://a.example.com";
        let (store, folder) = store("no-rows").await;
        // No store takes a row without a name.
        set(&store, "engine", input(HERE), row("")).await.unwrap_err();
        assert_eq!(state(&store).await, (Vec::new(), Vec::new()));
        set(&store, "engine", input(HERE), row("put")).await.unwrap();
        set(&store, "engine", input("https://b.example.com"), row("")).await.unwrap_err();
        remove(&store, "engine", &Whose::Deployment, row("")).await.unwrap_err();
        assert_eq!(state(&store).await, (vec![HERE.into()], vec!["put".into()]));
        store.close().await;
        let _ = std::fs::remove_dir_all(&folder);
    }

    #[tokio::test]
    async fn no_binding_changes_by_a_token_that_was_replaced() {
        const HERE: &str = "https://a.example.com";
        let (store, folder) = store("tokens").await;
        let (operator, token) = Operator::open(store.clone(), None).await.unwrap();
        let version = operator.admit(token.unwrap().reveal()).await.unwrap();
        let act = |action: &str| Act { guards: vec![operator::guard(version)], ..row(action) };
        set(&store, "engine", input(HERE), act("put")).await.unwrap();
        let mut txn = store.begin("");
        operator::rotate(&mut txn).await.unwrap();
        txn.commit().await.unwrap();
        set(&store, "other", input(HERE), act("put")).await.unwrap_err();
        remove(&store, "engine", &Whose::Deployment, act("delete")).await.unwrap_err();
        assert_eq!(state(&store).await, (vec![HERE.into()], vec!["put".into()]));
        store.close().await;
        let _ = std::fs::remove_dir_all(&folder);
    }

    #[test]
    fn an_input_tells_null_from_absent_and_prints_no_secret() {
        let read = |text: &str| serde_json::from_str::<BindingInput>(text).unwrap();
        let absent = read(r#"{"kind": "http", "url": "https://a.example.com"}"#);
        assert!(absent.credential.is_none());
        let null = read(r#"{"kind": "http", "url": "https://a.example.com", "credential": null}"#);
        assert!(matches!(null.credential, Some(None)));
        let given =
            read(r#"{"kind": "http", "url": "https://a.example.com", "credential": "hunter2"}"#);
        assert!(!format!("{given:?}").contains("hunter2"));
        assert!(given.credential.flatten().is_some_and(|secret| secret.reveal() == "hunter2"));
    }

    #[test]
    fn an_origin_is_scheme_host_and_port() {
        for (one, other, same) in [
            ("https://a.example.com/v1", "https://A.example.com:443/v2", true),
            ("smtp://relay.example.com:25", "smtp://relay.example.com:25", true),
            ("https://a.example.com", "http://a.example.com", false),
            ("https://a.example.com", "https://a.example.com:8443", false),
            ("https://a.example.com", "https://a.example.com.evil.test", false),
            ("https://a.example.com", "nonsense", false),
            // The library reads a port that does not exist as none.
            ("https://a.example.com", "https://a.example.com:99999", false),
            ("https://a.example.com", "https://a.example.com:0", false),
            ("smtp://relay.example.com", "smtp://relay.example.com/", true),
            ("smtp://relay.example.com", "smtp://relay.example.com:25", false),
        ] {
            assert_eq!(same_origin(one, other), same, "{one} {other}");
        }
    }
}
