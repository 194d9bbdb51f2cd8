//! The rows of `host.hooks`: inbound URLs, as the capability `hooks` opens them and the server's
//! route finds them.
//!
//! A hook's row lies with its organization, so that an organization's hooks are counted and go with
//! it; its id, which nobody guesses, is a name of the whole deployment. Knows nothing of HTTP.

use charter_kernel::scope::Scope;
use charter_kernel::time::Instant;
use charter_kernel::unit::{Claim, Draft, HOOKS, Key, Reach, Space};
use serde::{Deserialize, Serialize};

use crate::job::Owner;
use crate::job::room::Shared;

/// The most hooks of an organization that have a URL of their own. One by which a provider calls for
/// a document is bounded as documents are.
pub const HOOKS_MAX: u64 = 10_000;

/// The indexed fields of those who have opened a hook, where they share what the organization has.
pub const BY: &str = "by";
/// See above: their project.
pub const BY_PROJECT: &str = "by_project";
/// The indexed field of the tenant user that a hook ends with.
pub const USER: &str = "user";
/// The indexed field of the project that a hook ends with.
pub const PROJECT: &str = "project";

/// The indexed field of a hook that has a URL of its own.
pub const OWN: &str = "own";

/// The signal by which a primitive hears of a call.
pub const SIGNAL: &str = "hook";
/// The signal by which it hears of one whose caller waits for what it answers.
pub const QUESTION: &str = "question";

/// The prefix in the name of a binding's scheme.
const BINDING: &str = "binding:";
/// The space of hooks' names.
const NAMES: &str = "host.hook";
/// The space of what providers call the objects that hooks are of.
const REFERENCES: &str = "host.hook_reference";
/// Bytes of what a provider calls an object.
pub const REFERENCE_BYTES_MAX: usize = 200;
/// Bytes of a binding's name within a scheme.
const BINDING_BYTES_MAX: usize = 80;

/// The space of hooks.
pub fn hooks() -> Space {
    Space::host(HOOKS)
}

/// How the host checks a call before the guest hears of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Scheme {
    /// The headers of Standard Webhooks.
    StandardWebhooks,
    /// `X-Service-Signature`: hexadecimal HMAC-SHA256 of the body.
    HmacSha256,
    /// Nothing but the URL itself.
    None,
    /// Calls come to the provider that is bound under this name, which signs them all alike.
    Binding(String),
}

impl Scheme {
    /// The scheme of this name.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "standard-webhooks" => Some(Self::StandardWebhooks),
            "hmac-sha256" => Some(Self::HmacSha256),
            "none" => Some(Self::None),
            _ => {
                let name = text.strip_prefix(BINDING)?;
                (!name.is_empty() && name.len() <= BINDING_BYTES_MAX)
                    .then(|| Self::Binding(name.to_owned()))
            }
        }
    }

    /// Whether a hook has a URL of its own.
    pub fn has_url(&self) -> bool {
        !matches!(self, Self::Binding(_))
    }

    /// Whether a hook has a secret of its own.
    pub fn is_keyed(&self) -> bool {
        matches!(self, Self::StandardWebhooks | Self::HmacSha256)
    }
}

impl From<Scheme> for String {
    fn from(scheme: Scheme) -> Self {
        match scheme {
            Scheme::StandardWebhooks => "standard-webhooks".into(),
            Scheme::HmacSha256 => "hmac-sha256".into(),
            Scheme::None => "none".into(),
            Scheme::Binding(name) => format!("{BINDING}{name}"),
        }
    }
}

impl TryFrom<String> for Scheme {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text).ok_or_else(|| format!("{text} is no scheme of hooks"))
    }
}

/// A hook that is about to be opened.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// The scope that opens it.
    pub scope: &'a Scope,
    /// In whose scope its calls are told.
    pub owner: &'a Owner,
    /// Its id.
    pub id: &'a str,
    /// How its calls are to be checked.
    pub scheme: &'a Scheme,
}

/// The body of a row in `host.hooks`; its id is the hook's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HookRecord {
    /// 128 random bits in hexadecimal.
    pub id: String,
    /// In whose scope calls are told.
    pub owner: Owner,
    /// The primitive that opened it, and hears of its calls.
    pub primitive: String,
    /// The collection of the document that it belongs to.
    pub collection: String,
    /// That document: reach and id.
    pub document: (String, String),
    /// How its calls are checked.
    pub scheme: Scheme,
    /// The secret that its calls are signed with, sealed, in base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
    /// The provider's own name of the object that it is of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// Those who have opened it, where it is not the organization itself. Absent in rows of earlier builds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Shared>,
    /// When it was opened.
    pub opened_at: Instant,
}

impl HookRecord {
    /// The key of the hook with this id.
    pub fn address(organization: &str, id: &str) -> Key {
        Key::new(&Reach::organization(organization), &hooks(), id)
    }

    /// The name by which a hook is found in the whole deployment.
    pub fn name(id: &str) -> Claim {
        Claim::name(NAMES, id)
    }

    /// The name by which the hook of a provider's object is found in the whole deployment.
    pub fn reference_name(binding: &str, reference: &str) -> Claim {
        Claim::name(REFERENCES, &format!("{binding}/{reference}"))
    }

    /// The provider that calls for it, where that calls one URL for everybody.
    pub fn provider(&self) -> Option<&str> {
        match &self.scheme {
            Scheme::Binding(name) => Some(name),
            _ => None,
        }
    }

    /// The name that it has by its provider's object.
    pub fn reference_claim(&self) -> Option<Claim> {
        Some(Self::reference_name(self.provider()?, self.reference.as_ref()?))
    }

    /// The hook's key.
    pub fn key(&self) -> Key {
        Self::address(&self.owner.organization, &self.id)
    }

    /// The key of its document.
    pub fn document_key(&self) -> Key {
        let (reach, id) = &self.document;
        Key::new(
            &Reach::from_store(reach.clone()),
            &Space::of(&self.primitive, &self.collection),
            id.as_str(),
        )
    }

    /// The context that its secret is sealed under, so that it opens nowhere else.
    pub fn context(id: &str) -> String {
        format!("hook/{id}")
    }

    /// The row's content.
    ///
    /// # Errors
    /// Never: it has text keys only.
    pub fn draft(&self) -> Result<Draft, serde_json::Error> {
        let entry = |field: &str, value: &str| (field.to_owned(), value.to_owned());
        let mut index = Vec::new();
        if !self.owner.project.is_empty() {
            index.push(entry(PROJECT, &self.owner.project));
        }
        index.extend(self.owner.user.as_deref().map(|user| entry(USER, user)));
        index.extend(self.scheme.has_url().then(|| entry(OWN, "1")));
        if let Some(Shared { project, own }) = &self.by {
            index.extend([entry(BY, own), entry(BY_PROJECT, project)]);
        }
        Ok(Draft { body: serde_json::to_string(self)?, index, ..Draft::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scheme_is_known_by_its_name() {
        for name in
            ["standard-webhooks", "hmac-sha256", "none", "binding:stripe", "binding:llm.upstream"]
        {
            assert_eq!(Scheme::parse(name).map(String::from).as_deref(), Some(name));
        }
        for name in ["", "hmac", "binding:", "None"] {
            assert_eq!(Scheme::parse(name), None, "{name}");
        }
    }

    fn record(scheme: &str) -> HookRecord {
        HookRecord {
            id: "h".into(),
            owner: Owner { organization: "o".into(), ..Owner::default() },
            primitive: "shop".into(),
            collection: "notes".into(),
            document: ("u/a".into(), "n".into()),
            scheme: Scheme::parse(scheme).unwrap(),
            secret: None,
            reference: Some("cus_1".into()),
            by: None,
            opened_at: Instant(0),
        }
    }

    #[test]
    fn a_hook_lies_with_its_organization_and_leads_to_its_document() {
        let hook = record("none");
        assert_eq!(hook.key(), HookRecord::address("o", "h"));
        assert_ne!(hook.key(), HookRecord::address("p", "h"));
        let document = hook.document_key();
        let place = (document.reach.as_str(), document.space.as_str(), document.id.as_str());
        assert_eq!(place, ("u/a", "shop.notes", "n"));
        assert_ne!(HookRecord::context("h"), HookRecord::context("i"), "a secret opens in its own");
        let body = hook.draft().unwrap().body;
        assert_eq!(serde_json::from_str::<HookRecord>(&body).unwrap(), hook);
        let unknown = body.replace("\"none\"", "\"md5\"");
        assert!(serde_json::from_str::<HookRecord>(&unknown).is_err(), "what cannot be checked");
    }

    #[test]
    fn only_a_hook_that_a_provider_calls_is_found_by_the_providers_object() {
        for scheme in ["none", "hmac-sha256", "standard-webhooks"] {
            assert_eq!((record(scheme).provider(), record(scheme).reference_claim()), (None, None));
        }
        let hook = record("binding:shop.peer");
        let name = HookRecord::reference_name("shop.peer", "cus_1");
        assert_eq!(
            (hook.provider(), hook.reference_claim()),
            (Some("shop.peer"), Some(name.clone()))
        );
        assert_ne!(HookRecord::reference_name("other.peer", "cus_1"), name);
        let none = HookRecord { reference: None, ..hook };
        assert_eq!(none.reference_claim(), None);
    }

    #[test]
    fn a_hook_goes_with_its_project_and_user() {
        let of = |project: &str, user: Option<&str>| {
            let user = user.map(str::to_owned);
            let owner = Owner { project: project.into(), user, ..Owner::default() };
            HookRecord { owner, ..record("none") }.draft().unwrap().index
        };
        let entry = |field: &str, value: &str| (field.to_owned(), value.to_owned());
        let own = entry(OWN, "1");
        assert_eq!(of("", None), std::slice::from_ref(&own));
        assert_eq!(of("p", None), [entry(PROJECT, "p"), own.clone()]);
        assert_eq!(of("p", Some("u")), [entry(PROJECT, "p"), entry(USER, "u"), own]);
        assert_eq!(record("binding:shop.peer").draft().unwrap().index, []);
    }
}
