//! Webhooks, the deliveries to them, and how far each organization's events have been handed out.

use charter_kernel::id::OrganizationId;
use charter_kernel::time::Instant;
use charter_kernel::unit::{Draft, Key, Reach, Space};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{EXPIRES, Record, USER, Unreadable, entry};

/// The most webhooks of an organization.
pub const WEBHOOKS_MAX: u64 = 100;
/// The most former secrets that sign beside a webhook's own.
pub const PREVIOUS_MAX: usize = 8;
/// The indexed field by which an organization's feed is found behind its events.
pub const AFTER: &str = "after";
/// The indexed field of a webhook's one tenant.
pub const TENANT: &str = "tenant";
/// The indexed field of a webhook that the host has switched off.
pub const OFF: &str = "off";
/// The lease group of deliveries that are over.
pub const ENDED: &str = "ended";
/// How long a delivery that is over is kept: 30 days.
const KEPT_MS: i64 = 30 * 86_400_000;

/// A subscription.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Webhook {
    /// Its id.
    pub id: String,
    /// The organization that owns it.
    pub organization: OrganizationId,
    /// The one project whose events it hears; all of them where absent.
    #[serde(default)]
    pub project_id: Option<String>,
    /// The one tenant whose events it hears; all of them where absent.
    pub tenant_user_id: Option<String>,
    /// The URL that events are sent to.
    pub url: String,
    /// The events that it hears.
    pub event_types: Vec<String>,
    /// The secret that signs, sealed.
    pub secret: String,
    /// The former secrets that still sign, sealed, each with its end; the newest first.
    #[serde(default)]
    pub previous: Vec<(String, Instant)>,
    /// Whether anything is delivered.
    pub active: bool,
    /// Why the host has switched it off.
    #[serde(default)]
    pub disabled_reason: Option<String>,
    /// Deliveries in a row that failed for good.
    #[serde(default)]
    pub failures: u32,
    /// Events up to this one happened before it.
    pub since: u64,
    /// When it was last switched on again: what happened before that is not told.
    #[serde(default)]
    pub resumed_at: Option<Instant>,
    /// When it was made.
    pub created_at: Instant,
}

impl Webhook {
    /// The address of the webhook of this id.
    pub fn address(organization: &str, id: &str) -> Key {
        Key::new(&Reach::organization(organization), &Self::space(), id)
    }

    /// Whether it hears an event of then, which goes by these names: its own, and former ones.
    pub fn hears(
        &self,
        names: &[&str],
        (project, user): (Option<&str>, Option<&str>),
        at: Instant,
    ) -> bool {
        if self.resumed_at.is_some_and(|resumed| at < resumed) {
            return false;
        }
        let within = |own: &Option<String>, of: Option<&str>| {
            own.as_deref().is_none_or(|own| of == Some(own))
        };
        let tenant = within(&self.project_id, project) && within(&self.tenant_user_id, user);
        let is_asked_for = |kind: &String| kind == "*" || names.contains(&kind.as_str());
        self.active && tenant && self.event_types.iter().any(is_asked_for)
    }
}

impl Record for Webhook {
    const COLLECTION: &'static str = "webhooks";

    fn key(&self) -> Key {
        Self::address(self.organization.as_str(), &self.id)
    }

    fn index(&self) -> Vec<(String, String)> {
        let tenant = self.tenant_user_id.iter().map(|user| entry(TENANT, user));
        tenant.chain(self.disabled_reason.iter().map(|_| entry(OFF, "1"))).collect()
    }
}

/// How far an organization's events have been handed out to its webhooks.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Feed {
    /// The organization.
    pub organization: String,
    /// The last event that was.
    pub after: u64,
}

impl Feed {
    /// The one id in its space.
    pub const ID: &'static str = "events";

    /// The address of an organization's feed.
    pub fn address(reach: &Reach) -> Key {
        Key::new(reach, &Self::space(), Self::ID)
    }
}

impl Record for Feed {
    const COLLECTION: &'static str = "feeds";

    fn key(&self) -> Key {
        Self::address(&Reach::organization(&self.organization))
    }

    fn index(&self) -> Vec<(String, String)> {
        vec![entry(AFTER, self.after.to_string())]
    }
}

/// The state of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DeliveryOutcome {
    /// It is tried, or tried again.
    Pending,
    /// The endpoint took it.
    Succeeded,
    /// All its tries failed.
    Failed,
    /// Its webhook was switched off before.
    Dropped,
}

/// One try.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Attempt {
    /// When.
    pub at: Instant,
    /// The status that the endpoint answered.
    pub status: Option<u16>,
    /// Why there is no answer.
    pub error: Option<String>,
    /// How long it took.
    pub duration_ms: u64,
}

/// An event on its way to one webhook.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Delivery {
    /// Its id.
    pub id: String,
    /// The organization that owns it.
    pub organization: String,
    /// To which webhook.
    pub webhook: String,
    /// The event, by which an endpoint knows a repetition.
    pub event_id: String,
    /// Its type.
    pub event: String,
    /// The tenant user that the event is about: it goes with them. Absent in rows of builds that did
    /// not note it.
    #[serde(default)]
    pub user: Option<String>,
    /// The exact bytes that are sent and signed.
    pub body: String,
    /// Its state.
    pub status: DeliveryOutcome,
    /// Its tries so far.
    #[serde(default)]
    pub attempts: Vec<Attempt>,
    /// When it was made.
    pub created_at: Instant,
    /// When it was over.
    #[serde(default)]
    pub ended_at: Option<Instant>,
}

impl Delivery {
    /// The address of the delivery of this id.
    pub fn address(organization: &str, id: &str) -> Key {
        Key::new(&Reach::organization(organization), &Self::space(), id)
    }

    /// The space of deliveries.
    pub fn all() -> Space {
        Self::space()
    }

    /// The row's content; due then among its webhook's as long as it is pending, and after that for
    /// nobody.
    ///
    /// # Errors
    /// Never: its maps have text keys.
    pub fn due(&self, at: Instant) -> Result<Draft, Unreadable> {
        let group = if self.status == DeliveryOutcome::Pending { &self.webhook } else { ENDED };
        Ok(Draft { lease: Some((group.to_owned(), at)), ..self.draft()? })
    }
}

impl Record for Delivery {
    const COLLECTION: &'static str = "deliveries";

    fn key(&self) -> Key {
        Self::address(&self.organization, &self.id)
    }

    fn index(&self) -> Vec<(String, String)> {
        let mut index = vec![entry("webhook", &self.webhook)];
        index.extend(self.user.iter().map(|user| entry(USER, user)));
        index.extend(self.ended_at.map(|at| entry(EXPIRES, at.plus_ms(KEPT_MS).to_string())));
        index
    }
}
