//! Access: registration, sessions, rates, and the operator's own door.

use std::net::SocketAddr;
use std::path::PathBuf;

use super::Secret;
use super::source::Section;

/// The people who may register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Registration {
    /// Anyone.
    Open,
    /// People whom a member invited.
    Invitation,
    /// Nobody; the operator creates organizations.
    Closed,
}

/// `[auth]`
#[derive(Clone, Debug)]
pub struct Auth {
    /// The people who may register.
    pub registration: Registration,
    /// How long a session lasts.
    pub session_hours: u32,
    /// Sign-in attempts that one client address has in a minute for one account.
    pub attempts_per_minute: u32,
    /// Registrations that one client address has in an hour; 0: any number.
    pub registrations_per_hour: u32,
    /// Invitations that one client address has in an hour; 0: any number.
    pub invitations_per_hour: u32,
    /// Mails with a link that one client address asks for in an hour; 0: any number.
    pub links_per_hour: u32,
    /// Calls of inbound URLs that do not exist, of one client address in a minute; 0: any number.
    pub unknown_hooks_per_minute: u32,
    /// Calls of one inbound URL that are not signed as it asks, of one client address in a minute;
    /// 0: any number.
    pub unsigned_hooks_per_minute: u32,
    /// Password hashes computed at once; each takes 19 MiB.
    pub hashes_max: usize,
}

impl Auth {
    pub(super) fn read(mut of: Section<'_>) -> Self {
        let registration = [
            ("open", Registration::Open),
            ("invitation", Registration::Invitation),
            ("closed", Registration::Closed),
        ];
        Self {
            registration: of
                .choice("registration", &registration, "open, invitation or closed")
                .unwrap_or(Registration::Closed),
            session_hours: of.within(
                "session_hours",
                14 * 24,
                (1, 24 * 365),
                "how long a session lasts",
            ),
            attempts_per_minute: of.within(
                "attempts_per_minute",
                10,
                (1, 10_000),
                "sign-in attempts of one client address for one account; twenty times as many for all",
            ),
            registrations_per_hour: of.take(
                "registrations_per_hour",
                20,
                "registrations of one client address; 0: no limit",
            ),
            invitations_per_hour: of.take(
                "invitations_per_hour",
                100,
                "invitations of one client address; 0: no limit",
            ),
            links_per_hour: of.take(
                "links_per_hour",
                300,
                "mails with a link that one client address asks for; 0: no limit",
            ),
            unknown_hooks_per_minute: of.take(
                "unknown_hooks_per_minute",
                60,
                "calls of inbound URLs that do not exist, of one client address; 0: no limit",
            ),
            unsigned_hooks_per_minute: of.take(
                "unsigned_hooks_per_minute",
                60,
                "wrongly signed calls of one inbound URL, of one client address; 0: no limit",
            ),
            hashes_max: of.within(
                "hashes_max",
                4,
                (1, 256),
                "passwords hashed at once, of new ones half as many; each takes 19 MiB",
            ),
        }
    }
}

/// `[rates]`: token buckets; 0 means none.
#[derive(Clone, Copy, Debug)]
pub struct Rates {
    /// Requests a minute of one key.
    pub key_per_minute: u32,
    /// Requests a minute of one organization.
    pub organization_per_minute: u32,
    /// How many requests may come at once; a minute's worth where 0.
    pub burst: u32,
}

impl Rates {
    pub(super) fn read(mut of: Section<'_>) -> Self {
        Self {
            key_per_minute: of.take(
                "key_per_minute",
                0,
                "requests a minute of one key; 0: no limit",
            ),
            organization_per_minute: of.take(
                "organization_per_minute",
                0,
                "requests a minute of one organization; 0: no limit",
            ),
            burst: of.take("burst", 0, "requests that may come at once; 0: a minute's worth"),
        }
    }
}

/// `[operator]`
#[derive(Clone, Debug)]
pub struct Operator {
    /// The token given by the operator; otherwise one is made at first start.
    pub token: Option<Secret>,
    /// A listener of its own: then the public one serves no operator route.
    pub listen: Option<SocketAddr>,
}

impl Operator {
    pub(super) fn read(mut of: Section<'_>) -> Self {
        let mut token: Option<Secret> = of.optional(
            "token",
            "the operator's token, 22 characters at least; made at first start if not set",
        );
        if let Some(path) =
            of.optional::<PathBuf>("token_file", "a file that holds the operator's token")
        {
            match std::fs::read_to_string(&path) {
                Ok(text) => token = Some(Secret::new(text.trim().to_owned())),
                Err(error) => {
                    of.fault("token_file", format!("cannot be read: {}: {error}", path.display()))
                }
            }
        }
        if let Some(given) = &token
            && !charter_tenancy::operator::is_strong(given.reveal())
        {
            of.fault(
                "token",
                "is too weak: 128 bits at least, such as the output of `openssl rand -base64 24`",
            );
        }
        Self {
            token,
            listen: of.optional(
                "listen",
                "serves the operator's routes on an address of their own, and nowhere else",
            ),
        }
    }
}
