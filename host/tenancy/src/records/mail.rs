//! The mail that the host is about to send: notices of events, the mails that they become, and how
//! many there were lately.

use charter_kernel::lease;
use charter_kernel::time::Instant;
use charter_kernel::unit::{Draft, Key, Reach};
use serde::{Deserialize, Serialize};

use super::{EXPIRES, Record, Unreadable, entry};

/// The kind of notices, in names of lease groups.
pub const NOTICES: &str = "notices";
/// The kind of mails, in names of lease groups.
pub const MAILS: &str = "mails";

/// Of what people are to be told. The recipients, if any, are found out behind the request that
/// caused it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum About {
    /// An approval waits.
    Approval {
        /// The organization that owns the approval.
        organization: String,
        /// Its id.
        approval: String,
    },
    /// Somebody wants to sign in with this address, whether or not anybody has it.
    SignIn {
        /// As it was given.
        email: String,
    },
    /// Somebody wants to prove that this address is theirs.
    Proof {
        /// As it was given.
        email: String,
    },
    /// Somebody has forgotten the password of this address's account, whether or not it has one.
    Reset {
        /// As it was given.
        email: String,
    },
}

/// A row of the commit that people are to be told of.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Notice {
    /// Its id.
    pub id: String,
    /// Of what.
    pub about: About,
    /// When it was committed.
    pub created_at: Instant,
}

impl Notice {
    /// The organization whose members are to be told; absent for the deployment's own.
    pub fn organization(&self) -> Option<&str> {
        match &self.about {
            About::Approval { organization, .. } => Some(organization),
            About::SignIn { .. } | About::Proof { .. } | About::Reset { .. } => None,
        }
    }

    /// The row's content, due then.
    ///
    /// # Errors
    /// Never: its maps have text keys.
    pub fn due(&self, at: Instant) -> Result<Draft, Unreadable> {
        let group = lease::group(self.organization().unwrap_or_default(), NOTICES);
        Ok(Draft { lease: Some((group, at)), ..self.draft()? })
    }
}

impl Record for Notice {
    const COLLECTION: &'static str = "mail_notices";

    fn key(&self) -> Key {
        let reach = self.organization().map_or_else(Reach::deployment, Reach::organization);
        Key::new(&reach, &Self::space(), &*self.id)
    }
}

/// The cause of a mail; it is not sent once that is over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// An approval that waits, by the link of one person.
    Approval {
        /// The approval.
        approval: String,
        /// The link's digest.
        link: String,
    },
    /// More approvals than are mailed one by one.
    Summary,
    /// A sign-in link, by its digest.
    SignIn {
        /// The digest.
        link: String,
    },
    /// A link that proves an address or sets a password, by its digest.
    Link {
        /// The digest.
        link: String,
    },
    /// An invitation.
    Invitation {
        /// Its id.
        invitation: String,
    },
}

impl Cause {
    /// The digest of the link that it carries.
    pub fn link(&self) -> Option<&str> {
        match self {
            Self::Approval { link, .. } | Self::SignIn { link } | Self::Link { link } => Some(link),
            Self::Summary | Self::Invitation { .. } => None,
        }
    }
}

/// A mail on its way. It goes when it was sent or given up.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Mail {
    /// Its id; what is before the @ of its Message-ID.
    pub id: String,
    /// The organization that owns it; empty for the deployment's own.
    pub organization: String,
    /// To whom.
    pub to: String,
    /// Its words, sealed, in base64.
    pub sealed: String,
    /// Its Message-ID, without brackets: the same however often it is sent.
    pub message_id: String,
    /// The cause, without which it is not sent.
    pub cause: Cause,
    /// When it was committed.
    pub created_at: Instant,
    /// When it is given up.
    pub until: Instant,
}

impl Mail {
    /// The row's content, due then.
    ///
    /// # Errors
    /// Never: its maps have text keys.
    pub fn due(&self, at: Instant) -> Result<Draft, Unreadable> {
        let group = lease::group(&self.organization, MAILS);
        Ok(Draft { lease: Some((group, at)), ..self.draft()? })
    }
}

impl Record for Mail {
    const COLLECTION: &'static str = "mails";

    fn key(&self) -> Key {
        let reach = match self.organization.as_str() {
            "" => Reach::deployment(),
            organization => Reach::organization(organization),
        };
        Key::new(&reach, &Self::space(), &*self.id)
    }
}

/// How many mails there were in the hour that began then: of one organization or of one who asks in
/// it, to one address or to all.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Quota {
    /// The name of the counter: it holds no address.
    pub id: String,
    /// The organization, where the counter is of one.
    pub organization: Option<String>,
    /// When the hour began.
    pub began_at: Instant,
    /// How many.
    pub count: u32,
    /// When the row can go.
    pub expires_at: Instant,
}

impl Quota {
    /// The address of the counter of this id.
    pub fn address(organization: Option<&str>, id: &str) -> Key {
        let reach = organization.map_or_else(Reach::deployment, Reach::organization);
        Key::new(&reach, &Self::space(), id)
    }
}

impl Record for Quota {
    const COLLECTION: &'static str = "mail_quotas";

    fn key(&self) -> Key {
        Self::address(self.organization.as_deref(), &self.id)
    }

    fn index(&self) -> Vec<(String, String)> {
        vec![entry(EXPIRES, self.expires_at.to_string())]
    }
}
