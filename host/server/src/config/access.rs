//! Who gets in: registration, sessions, rates, and the operator's own door.

use std::net::SocketAddr;
use std::path::PathBuf;

use super::Secret;
use super::source::Section;

/// Who may register.
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
    /// Who may register.
    pub registration: Registration,
    /// How long a session lasts.
    pub session_hours: u32,
    /// Sign-in attempts an account and an address get in a minute.
    pub attempts_per_minute: u32,
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
                "sign-in attempts of one account or address",
            ),
            hashes_max: of.within(
                "hashes_max",
                4,
                (1, 256),
                "passwords checked at once; each takes 19 MiB",
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
            && !crate::operator::is_strong(given.reveal())
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
