//! The relay that the host's mail goes through: what a binding of kind `smtp-submission` says,
//! checked.

use std::net::IpAddr;

use charter_tenancy::secret::Secret;
use lettre::message::Mailbox;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use serde_json::Value;

use crate::providers::{self, Binding};

/// The binding's name.
pub const BINDING: &str = "mail.relay";
/// Its kind.
pub const KIND: &str = "smtp-submission";
/// The names of its options.
const OPTIONS: [&str; 4] = ["user", "from", "ca", "plain"];
/// Bytes of a user's name.
const USER_BYTES_MAX: usize = 512;
/// Bytes of certificates.
const CA_BYTES_MAX: usize = 64 << 10;

/// How the connection is made private.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Security {
    /// TLS from the first byte: `smtps://`.
    Wrapped,
    /// STARTTLS, or nothing is sent: `smtp://`.
    Upgraded,
    /// None, on this machine alone: `smtp://` with `plain`.
    None,
}

/// A relay.
#[derive(Clone, Debug)]
pub struct Relay {
    /// Its name or address.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// How the connection is made private.
    pub security: Security,
    /// The user and the password that sign in.
    pub login: Option<(String, Secret)>,
    /// The mailbox that mails are from.
    pub from: Mailbox,
    /// Authorities that are trusted beside the public ones.
    pub authorities: Vec<CertificateDer<'static>>,
}

/// The fault of a binding, by its field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfit {
    /// `url`, `credential` or `options.<name>`.
    pub field: String,
    /// The fault and its remedy.
    pub message: String,
}

impl std::fmt::Display for Unfit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.field, self.message)
    }
}

fn unfit(field: &str, message: impl Into<String>) -> Unfit {
    Unfit { field: field.to_owned(), message: message.into() }
}

impl Relay {
    /// The relay of a binding.
    ///
    /// # Errors
    /// The member that does not fit.
    pub fn of(binding: &Binding) -> Result<Self, Unfit> {
        if binding.kind != KIND {
            return Err(unfit("kind", format!("must be {KIND}")));
        }
        let mut relay = Self::read(&binding.url, &binding.options, binding.credential.is_some())?;
        relay.login = match (option(&binding.options, "user")?, &binding.credential) {
            (Some(user), Some(password)) => Some((user.to_owned(), password.clone())),
            _ => None,
        };
        Ok(relay)
    }

    /// Everything that a binding says but for its credential; of that only whether there is one.
    ///
    /// # Errors
    /// The member that does not fit.
    pub fn read(url: &str, options: &Value, credential: bool) -> Result<Self, Unfit> {
        if let Some(unknown) = options
            .as_object()
            .into_iter()
            .flatten()
            .find(|(name, _)| !OPTIONS.contains(&name.as_str()))
        {
            return Err(unfit(
                &format!("options.{}", unknown.0),
                format!("is no option; there are {}", OPTIONS.join(", ")),
            ));
        }
        let plain = match options.get("plain") {
            None | Some(Value::Null) => false,
            Some(Value::Bool(plain)) => *plain,
            Some(_) => return Err(unfit("options.plain", "must be true or false")),
        };
        let (host, port, security) = address(url, plain)?;
        match (option(options, "user")?, credential) {
            (Some(user), _)
                if user.is_empty()
                    || user.len() > USER_BYTES_MAX
                    || user.chars().any(char::is_control) =>
            {
                return Err(unfit("options.user", "must be one line of at most 512 bytes"));
            }
            (Some(_), false) => {
                return Err(unfit("credential", "is missing: it is the password of options.user"));
            }
            (None, true) => {
                return Err(unfit(
                    "options.user",
                    "is missing: the credential is somebody's password",
                ));
            }
            _ => {}
        }
        let from = option(options, "from")?
            .ok_or_else(|| unfit("options.from", "is missing: whom mails are from"))?;
        let wrong = "must be a mailbox such as `Charter <charter@example.com>`";
        let from: Mailbox = from.parse().map_err(|_| unfit("options.from", wrong))?;
        if !from.email.to_string().is_ascii()
            || from.name.as_deref().is_some_and(|name| name.chars().any(char::is_control))
        {
            return Err(unfit("options.from", wrong));
        }
        let authorities = option(options, "ca")?.map(authorities).transpose()?.unwrap_or_default();
        Ok(Self { host, port, security, login: None, from, authorities })
    }
}

fn option<'v>(options: &'v Value, name: &str) -> Result<Option<&'v str>, Unfit> {
    match options.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(unfit(&format!("options.{name}"), "must be text")),
    }
}

fn address(url: &str, plain: bool) -> Result<(String, u16, Security), Unfit> {
    let wrong =
        || unfit("url", "must be smtp://host:587 or smtps://host:465, without user and path");
    let uri: http::Uri = url.parse().map_err(|_| wrong())?;
    let (security, port) = match uri.scheme_str() {
        Some("smtps") => (Security::Wrapped, 465),
        Some("smtp") => (Security::Upgraded, 587),
        _ => return Err(wrong()),
    };
    let authority = uri.authority().ok_or_else(wrong)?;
    let bare =
        matches!(uri.path(), "" | "/") && uri.query().is_none() && !url.contains(['@', '#', '\\']);
    let host = authority
        .host()
        .trim_start_matches('[')
        .trim_end_matches(']')
        .trim_end_matches('.')
        .to_ascii_lowercase();
    if !bare || rustls_pki_types::ServerName::try_from(host.as_str()).is_err() {
        return Err(wrong());
    }
    let port = providers::port(authority, port).ok_or_else(wrong)?;
    if !plain {
        return Ok((host, port, security));
    }
    let own = host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
    match (security, own) {
        (Security::Wrapped, _) => {
            Err(unfit("options.plain", "contradicts smtps://, which is TLS from the first byte"))
        }
        (_, false) => Err(unfit(
            "options.plain",
            "is for a relay on this machine alone: over a network links go by TLS",
        )),
        (_, true) => Ok((host, port, Security::None)),
    }
}

fn authorities(pem: &str) -> Result<Vec<CertificateDer<'static>>, Unfit> {
    let wrong = || unfit("options.ca", "must be certificates in PEM");
    if pem.len() > CA_BYTES_MAX {
        return Err(wrong());
    }
    let found = CertificateDer::pem_slice_iter(pem.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .map_err(|_| wrong())?;
    let mut roots = rustls::RootCertStore::empty();
    let (added, ignored) = roots.add_parsable_certificates(found.iter().cloned());
    if added == 0 || ignored > 0 { Err(wrong()) } else { Ok(found) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn field(url: &str, options: Value, credential: bool) -> String {
        Relay::read(url, &options, credential)
            .map_or_else(|unfit| unfit.field, |relay| format!("{}:{}", relay.host, relay.port))
    }

    #[test]
    fn an_address_is_a_host_and_says_how_it_is_private() {
        let from = json!({"from": "a@example.com"});
        for (url, told) in [
            ("smtp://relay.example.com", "relay.example.com:587"),
            ("smtps://Relay.Example.com", "relay.example.com:465"),
            ("smtp://[::1]:2525", "::1:2525"),
            ("http://relay.example.com", "url"),
            ("smtp://user:pw@relay.example.com", "url"),
            ("smtp://relay.example.com/path", "url"),
            ("smtp://", "url"),
            ("smtp://relay.example.com:99999", "url"),
            ("smtp://relay.example.com:0", "url"),
            ("relay.example.com:587", "url"),
        ] {
            assert_eq!(field(url, from.clone(), false), told, "{url}");
        }
    }

    #[test]
    fn every_option_is_checked_and_named() {
        let relay = "smtp://relay.example.com";
        for (options, credential, told) in [
            (json!({}), false, "options.from"),
            (json!({"from": "nobody"}), false, "options.from"),
            (json!({"from": "a@b.co\r\nBcc: c@d.co"}), false, "options.from"),
            (json!({"from": "A <a@b.co>", "user": "u"}), false, "credential"),
            (json!({"from": "A <a@b.co>"}), true, "options.user"),
            (json!({"from": "A <a@b.co>", "user": "u\r\n"}), true, "options.user"),
            (json!({"from": "A <a@b.co>", "ca": "none"}), false, "options.ca"),
            (json!({"from": "A <a@b.co>", "plain": true}), false, "options.plain"),
            (json!({"from": "A <a@b.co>", "plain": 1}), false, "options.plain"),
            (json!({"from": "A <a@b.co>", "form": "x"}), false, "options.form"),
            (json!({"from": "A <a@b.co>", "user": "u"}), true, "relay.example.com:587"),
        ] {
            assert_eq!(field(relay, options.clone(), credential), told, "{options}");
        }
    }

    #[test]
    fn plain_text_stays_on_this_machine() {
        let options = json!({"from": "a@b.co", "plain": true});
        let security = |url: &str| Relay::read(url, &options, false).map(|relay| relay.security);
        assert_eq!(security("smtp://127.0.0.1:25"), Ok(Security::None));
        assert_eq!(security("smtp://localhost:25"), Ok(Security::None));
        assert!(security("smtp://10.0.0.1:25").is_err());
        assert!(security("smtps://127.0.0.1:465").is_err());
    }
}
