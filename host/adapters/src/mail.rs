//! The host's own mail: approval links, sign-in links, invitations.
//!
//! A mail is a row of the commit that causes it, and a worker sends it: at least once, under one
//! Message-ID. Its words, which hold a link, are sealed while it waits and gone with the row. Knows
//! no primitive, and no primitive mails through here.

use charter_kernel::id::uuid_v7;
use charter_kernel::refusal::{Code, Refusal};
use charter_kernel::time::Instant;
use charter_kernel::unit::Write;
use charter_tenancy::records::mail::{About, Notice};
use charter_tenancy::stored;
use serde_json::json;

use crate::Adapters;
use crate::providers::{Binding, Whose};
use crate::public;

pub mod domains;
pub mod invited;
pub mod letter;
pub mod links;
pub mod outbox;
pub mod quota;
pub mod relay;
mod reply;
pub mod smtp;
mod wire;

/// The needs of any mail.
pub struct Ready {
    /// Through which relay.
    pub relay: relay::Relay,
    /// The address that links lead to, without a slash at its end.
    pub base: String,
}

/// Why nothing can be mailed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Missing {
    /// No relay is bound.
    Relay,
    /// Nothing says where links would lead.
    Base,
    /// The binding does not fit its kind.
    Unfit(String),
}

impl Missing {
    /// The refusal of a request that would mail.
    pub fn refusal(&self, what: &str) -> Refusal {
        let (missing, message, hint) = match self {
            Self::Relay => (
                "mail_relay",
                "has no mail relay",
                "The operator binds `mail.relay`, kind `smtp-submission`.",
            ),
            Self::Base => (
                "http.public_url",
                "does not say where its links lead",
                "The operator sets http.public_url.",
            ),
            Self::Unfit(_) => (
                "mail_relay",
                "has a mail relay that cannot be used",
                "The operator binds `mail.relay` anew.",
            ),
        };
        Refusal::new(
            Code::NotConfigured,
            format!("This deployment {message}, so it can send no {what}."),
        )
        .hint(hint)
        .detail("missing", json!([missing]))
    }
}

fn binding(adapters: &Adapters) -> Option<std::sync::Arc<Binding>> {
    adapters.providers.get(relay::BINDING, &Whose::Deployment)
}

/// The relay, and where links lead.
///
/// # Errors
/// The part that is missing.
pub fn ready(adapters: &Adapters) -> Result<Ready, Missing> {
    let binding = binding(adapters).ok_or(Missing::Relay)?;
    let base = public::base_of_links(adapters).ok_or(Missing::Base)?;
    let relay = relay::Relay::of(&binding).map_err(|fault| Missing::Unfit(fault.to_string()))?;
    Ok(Ready { relay, base })
}

/// Whether this deployment receives the address's mail, or that is not certain: no link goes there.
pub fn is_hosted(adapters: &Adapters, email: &str) -> bool {
    let settings = &adapters.settings;
    domains::is_hosted(&settings.mail.hosted_domains, settings.public_url.as_deref(), email)
}

/// The row that has people told of something, in the commit of what they are told of; nothing where
/// no relay is bound.
///
/// # Errors
/// When the operating system has no randomness.
pub fn notice(adapters: &Adapters, about: About, now: Instant) -> Result<Option<Write>, Refusal> {
    if binding(adapters).is_none() {
        return Ok(None);
    }
    if public::base_of_links(adapters).is_none() {
        tracing::error!(
            "a mail relay is bound, and http.public_url is not set: links would lead nowhere, and nothing is mailed"
        );
        return Ok(None);
    }
    let notice = Notice { id: uuid_v7(now, stored::random()?), about, created_at: now };
    let draft = notice.due(now).map_err(stored::unreadable)?;
    Ok(Some(Write::Insert { key: charter_tenancy::records::Record::key(&notice), draft }))
}
