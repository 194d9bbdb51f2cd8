//! The words for how a conversation with a relay failed.
//!
//! A relay sees its own password and the links of mails, and may say them back. Invariant: of its
//! reply the reply code and the enhanced status code are passed on, and none of its text, nor any
//! name of its certificate.

use std::fmt;
use std::io;

use lettre::transport::smtp::Error;
use rustls::CertificateError;

use super::wire::TooMuch;

/// The words for an answer that says nothing in the protocol's terms.
pub(super) const UNFIT: &str = "the relay's answer does not fit the protocol";

/// A reply code (RFC 5321, section 4.2), and the enhanced status code that goes with it (RFC 3463).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    code: u16,
    /// The subject and the detail; the class is the code's first digit.
    status: Option<(u16, u16)>,
}

impl Verdict {
    /// The code of a reply, and the enhanced one that its text begins with.
    pub(super) fn of(code: u16, text: &str) -> Self {
        let word = text.split_whitespace().next().unwrap_or_default();
        Self { code, status: status(code / 100, word) }
    }

    /// Reads a line of a reply; nothing if it is none.
    pub(super) fn read(line: &str) -> Option<Self> {
        let (code, rest) = line.split_at_checked(3)?;
        let code = number(code).filter(|code| (200..600).contains(code))?;
        let text = match rest.as_bytes().first() {
            None => "",
            Some(b' ' | b'-') => &rest[1..],
            Some(_) => return None,
        };
        Some(Self::of(code, text))
    }

    /// Whether it has this reply code.
    pub(super) fn is(self, code: u16) -> bool {
        self.code == code
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the relay said {}", self.code)?;
        match self.status {
            Some((subject, detail)) => write!(f, " {}.{subject}.{detail}", self.code / 100),
            None => Ok(()),
        }
    }
}

/// The subject and the detail of an enhanced status code, where the word is one of this class (RFC
/// 2034, section 4).
fn status(class: u16, word: &str) -> Option<(u16, u16)> {
    let mut parts = word.split('.').map(number);
    let (own, subject, detail) = (parts.next()??, parts.next()??, parts.next()??);
    let fits = own == class && matches!(class, 2 | 4 | 5) && parts.next().is_none();
    fits.then_some((subject, detail))
}

/// The number of one to three digits.
fn number(digits: &str) -> Option<u16> {
    let fits = digits.len() <= 3 && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| fits)
}

/// The words for an error of the SMTP client, whose own words hold the relay's.
pub(super) fn client_failure(error: &Error) -> String {
    let source = std::error::Error::source(error);
    if let Some(code) = error.status() {
        let text = source.map(|source| source.to_string()).unwrap_or_default();
        return Verdict::of(code.into(), &text).to_string();
    }
    match source.and_then(|source| source.downcast_ref::<io::Error>()) {
        Some(error) => connection_failure(error),
        None => UNFIT.to_owned(),
    }
}

/// The words for an error of the connection: the operating system's, or ours.
pub(super) fn connection_failure(error: &io::Error) -> String {
    let Some(inner) = error.get_ref() else { return error.to_string() };
    if let Some(error) = inner.downcast_ref::<TooMuch>() {
        return error.to_string();
    }
    match inner.downcast_ref::<rustls::Error>() {
        Some(error) => tls_failure(error),
        None => error.kind().to_string(),
    }
}

fn tls_failure(error: &rustls::Error) -> String {
    use rustls::Error::{AlertReceived, InvalidCertificate, InvalidMessage, PeerIncompatible};

    let words = match error {
        InvalidCertificate(fault) => certificate_fault(fault),
        InvalidMessage(_) => "what it speaks there is no TLS",
        PeerIncompatible(_) => "it speaks no version of TLS that the host speaks",
        // An alert is one byte.
        AlertReceived(alert) => return format!("it gave the alert {alert:?}"),
        _ => "it does not keep to TLS",
    };
    words.to_owned()
}

fn certificate_fault(fault: &CertificateError) -> &'static str {
    match fault {
        CertificateError::UnknownIssuer => "nobody trusted has issued its certificate",
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "its certificate has expired"
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "its certificate is not valid yet"
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "its certificate is for another name"
        }
        _ => "its certificate is not valid",
    }
}

#[cfg(test)]
mod tests {
    use lettre::transport::smtp::client::AsyncSmtpConnection;
    use lettre::transport::smtp::extension::ClientId;
    use tokio::io::AsyncWriteExt as _;

    use super::super::wire::wire;
    use super::*;

    const SECRET: &str = "https://host.example/approvals/a?token=link_secret";

    #[test]
    fn of_a_reply_the_codes_are_passed_on_and_no_text() {
        for (line, told) in [
            (format!("554 5.7.1 suspicious link {SECRET}"), "the relay said 554 5.7.1"),
            (format!("554-5.7.1 {SECRET}"), "the relay said 554 5.7.1"),
            (format!("451 4.3.0\t{SECRET}"), "the relay said 451 4.3.0"),
            (format!("554 {SECRET}"), "the relay said 554"),
            (format!("554 5.7.{SECRET}"), "the relay said 554"),
            (format!("554 5.7.1{SECRET}"), "the relay said 554"),
            ("554".to_owned(), "the relay said 554"),
            // An enhanced code is of the reply's class, has three parts, and those three digits.
            ("554 4.7.1 no".to_owned(), "the relay said 554"),
            ("354 3.0.0 go".to_owned(), "the relay said 354"),
            ("554 5.7.1.1 no".to_owned(), "the relay said 554"),
            ("554 5.7 no".to_owned(), "the relay said 554"),
            ("554 5..1 no".to_owned(), "the relay said 554"),
            ("554 5.+7.1 no".to_owned(), "the relay said 554"),
            ("554 5.1234.1 no".to_owned(), "the relay said 554"),
        ] {
            let verdict = Verdict::read(&line).map(|verdict| verdict.to_string());
            assert_eq!(verdict.as_deref(), Some(told), "{line}");
        }
        for line in [SECRET, "", "55", "5545 no", "654 no", "+54 no", "55é no"] {
            assert_eq!(Verdict::read(line), None, "{line}");
        }
    }

    /// The words for how a session begins with a relay that says this.
    async fn words_for(said: &str) -> String {
        let (near, mut far) = tokio::io::duplex(4096);
        far.write_all(said.as_bytes()).await.unwrap();
        far.shutdown().await.unwrap();
        let wire = wire(near, b"", ([127, 0, 0, 1], 25).into());
        let hello = ClientId::Domain("host.example".into());
        let session = AsyncSmtpConnection::connect_with_transport(wire, &hello).await;
        client_failure(&session.err().unwrap())
    }

    #[tokio::test]
    async fn no_error_of_the_client_is_passed_on_in_its_own_words() {
        for (said, words) in [
            (format!("554 5.3.2 {SECRET}\r\n"), "the relay said 554 5.3.2"),
            (format!("421-4.3.2 {SECRET}\r\n421 4.3.2 {SECRET}\r\n"), "the relay said 421 4.3.2"),
            (format!("220 {SECRET}\r\n550 {SECRET}\r\n"), "the relay said 550"),
            (format!("{SECRET}\r\n"), UNFIT),
            (format!("554-{SECRET}\r\n421 {SECRET}\r\n"), UNFIT),
            (format!("220 {SECRET}"), UNFIT),
        ] {
            assert_eq!(words_for(&said).await, words, "{said}");
        }
    }

    #[test]
    fn no_name_of_a_certificate_is_passed_on() {
        let fault = CertificateError::NotValidForNameContext {
            expected: "relay.example".try_into().unwrap(),
            presented: vec![format!("DnsName(\"{SECRET}\")")],
        };
        let fault = rustls::Error::InvalidCertificate(fault);
        let error = io::Error::new(io::ErrorKind::InvalidData, fault);
        assert_eq!(connection_failure(&error), "its certificate is for another name");
        let other = io::Error::other(SECRET);
        assert_eq!(connection_failure(&other), "other error");
    }
}
