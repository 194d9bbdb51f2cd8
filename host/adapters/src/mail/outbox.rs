//! A mail becomes a row of its cause's commit, its words sealed: they hold a link, and whoever
//! reads the database reads none.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use charter_kernel::id::uuid_v7;
use charter_kernel::refusal::Refusal;
use charter_kernel::time::Instant;
use charter_kernel::unit::Write;
use charter_store::{ReadError, Store, Txn};
use charter_tenancy::records::Record as _;
use charter_tenancy::records::mail::{Cause, Mail};
use charter_tenancy::stored;

use super::domains;
use super::letter::Letter;

/// How long a mail is tried, in milliseconds: six hours.
pub const TRIED_MS: i64 = 6 * 3_600_000;

/// How many of those that wait are counted.
pub const WAITING_MAX: u64 = 20_000;

/// A mail that is to be sent.
pub struct Wanted<'a> {
    /// The organization that owns it; empty for the deployment's own.
    pub organization: &'a str,
    /// To whom.
    pub to: &'a str,
    /// The cause, without which it is not sent.
    pub cause: Cause,
    /// Its words.
    pub letter: Letter,
    /// When its link ends: it is not tried for longer.
    pub until: Instant,
    /// The name that the host goes by.
    pub hello: &'a str,
}

/// The name that a host goes by whose links lead there: what its mails' ids end with, and what it
/// says to the relay.
pub fn hello(base: &str) -> String {
    let bare = domains::host(base).unwrap_or_default();
    match bare.parse::<std::net::IpAddr>() {
        Ok(std::net::IpAddr::V4(ip)) => format!("[{ip}]"),
        Ok(std::net::IpAddr::V6(ip)) => format!("[IPv6:{ip}]"),
        Err(_) => domains::ascii(&bare).unwrap_or_else(|| "localhost".into()),
    }
}

/// The context that the words of a mail are sealed under, so that they open nowhere else.
fn context(id: &str) -> String {
    format!("mail/{id}")
}

/// Adds the mail to the unit.
///
/// # Errors
/// When its words cannot be sealed.
pub async fn enqueue(txn: &mut Txn, wanted: Wanted<'_>, now: Instant) -> Result<(), Refusal> {
    let id = uuid_v7(now, stored::random()?);
    let words = zeroize::Zeroizing::new(
        serde_json::to_vec(&wanted.letter).map_err(|_| Refusal::internal())?,
    );
    let sealed =
        txn.store().seal(wanted.organization, &context(&id), &words).await.map_err(|error| {
            tracing::error!(error = &error as &dyn std::error::Error, "a mail cannot be sealed");
            Refusal::internal()
        })?;
    let mail = Mail {
        message_id: format!("{id}@{}", wanted.hello),
        id,
        organization: wanted.organization.to_owned(),
        to: wanted.to.to_owned(),
        sealed: STANDARD.encode(sealed),
        cause: wanted.cause,
        created_at: now,
        until: wanted.until.min(now.plus_ms(TRIED_MS)),
    };
    let draft = mail.due(now).map_err(stored::unreadable)?;
    txn.write(Write::Insert { key: mail.key(), draft });
    Ok(())
}

/// The words of a mail.
///
/// # Errors
/// Why they cannot be read.
pub async fn open(store: &Store, mail: &Mail) -> Result<Letter, String> {
    let sealed = STANDARD.decode(&mail.sealed).map_err(|error| error.to_string())?;
    let words = store
        .unseal(&mail.organization, &context(&mail.id), &sealed)
        .await
        .map_err(|error| error.to_string())?;
    serde_json::from_slice(&zeroize::Zeroizing::new(words))
        .map_err(|_| "its words cannot be read".to_owned())
}

/// How many mails wait to be sent, whosever they are; counts to [`WAITING_MAX`] and no further.
///
/// # Errors
/// When the store cannot be asked.
pub async fn waiting(store: &Store) -> Result<u64, ReadError> {
    store.in_groups(&Mail::space(), "", WAITING_MAX).await
}

#[cfg(test)]
mod tests {
    use super::hello;

    #[test]
    fn a_host_goes_by_the_name_that_its_links_have() {
        for (base, name) in [
            ("https://api.example.com/base", "api.example.com"),
            ("http://127.0.0.1:8080", "[127.0.0.1]"),
            ("http://[::1]:8080", "[IPv6:::1]"),
            ("no address", "localhost"),
        ] {
            assert_eq!(hello(base), name);
        }
    }
}
