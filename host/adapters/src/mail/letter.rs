//! The words of each mail, and the message that they become.
//!
//! The words of a primitive, an agent or a stranger are one line here, cut, without controls and
//! without an address that a reader's program would make a link of: the only link of a mail is the
//! host's.

use std::time::{Duration, SystemTime};

use charter_kernel::line::is_turn;
use charter_kernel::money::dollars;
use charter_kernel::time::Instant;
use lettre::address::Envelope;
use lettre::message::header::{ContentType, HeaderName, HeaderValue};
use lettre::message::{Mailbox, Message};
use lettre::{Address, message::header::ContentTransferEncoding};
use serde::{Deserialize, Serialize};

use super::domains;

/// Characters of a line that somebody else wrote.
const LINE_CHARS_MAX: usize = 160;

/// A mail's words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Letter {
    /// One line.
    pub subject: String,
    /// Plain text.
    pub text: String,
}

/// The question that a person is asked.
pub struct Question<'a> {
    /// The line that the primitive words.
    pub title: &'a str,
    /// `<primitive>.<verb>`.
    pub action: &'a str,
    /// In micro-US-dollars.
    pub amount: Option<i64>,
    /// The organization's name.
    pub organization: Option<&'a str>,
    /// For whom: the tenant user's name.
    pub whom: Option<&'a str>,
    /// Until when a word counts.
    pub until: Instant,
    /// How many people must approve.
    pub people: u8,
}

/// One line of what somebody else wrote.
pub fn line(text: &str) -> String {
    // Marks of direction turn around what follows them: they go, and controls become spaces.
    let goes = |c: char| is_turn(c) || c == '\u{feff}';
    let breaks =
        |c: char| c.is_control() || c.is_whitespace() || matches!(c, '\u{2028}' | '\u{2029}');
    let plain: String =
        text.chars().filter(|c| !goes(*c)).map(|c| if breaks(c) { ' ' } else { c }).collect();
    let words: Vec<&str> = plain.split(' ').filter(|word| !word.is_empty()).collect();
    let joined = unlink(&words.join(" "));
    match joined.char_indices().nth(LINE_CHARS_MAX) {
        Some((at, _)) => format!("{}…", &joined[..at]),
        None => joined,
    }
}

/// The text without what a mail program takes for an address: of the web, with or without a scheme,
/// or of a mailbox.
fn unlink(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        let (before, after) =
            (plain.chars().next_back().unwrap_or(' '), *letters.peek().unwrap_or(&' '));
        let is_inner = before != ' ' && after != ' ';
        let is_of_number = before.is_ascii_digit() && after.is_ascii_digit();
        let is_dot = matches!(letter, '.' | '\u{3002}' | '\u{ff0e}' | '\u{ff61}');
        match letter {
            '@' => plain.push_str(" @ "),
            ':' if after == '/' => plain.push_str(": "),
            letter if is_dot && is_inner && !is_of_number => plain.extend([letter, ' ']),
            letter => plain.push(letter),
        }
    }
    plain
}

/// A person is asked, and has a link to answer by.
pub fn approval(asked: &Question<'_>, link: &str) -> Letter {
    let mut facts =
        vec![format!("What:    {}", line(asked.title)), format!("Action:  {}", asked.action)];
    facts.extend(asked.amount.map(|amount| format!("Amount:  {}", dollars(amount))));
    facts.extend(asked.organization.map(|name| format!("In:      {}", line(name))));
    facts.extend(asked.whom.map(|whom| format!("For:     {}", line(whom))));
    facts.push(format!("Until:   {}", asked.until));
    if asked.people > 1 {
        facts.push(format!("People:  {} of you must approve", asked.people));
    }
    let text = format!(
        "An action waits for your approval.\n\n{}\n\nSee it, and approve or deny it:\n\n{link}\n\n\
         The link is yours alone: do not forward it. Opening it decides nothing. It counts once, and until the time above.\n",
        facts.join("\n")
    );
    Letter { subject: format!("Approval needed: {}", line(asked.title)), text }
}

/// More waits than is mailed one by one.
pub fn summary(base: &str, until: Instant) -> Letter {
    let text = format!(
        "More actions wait for approval than are mailed one by one.\n\n\
         Those that come until {until} are not mailed to you. See all of them:\n\n\
         charter approvals list --url {base}\n\nor GET {base}/v1/approvals?status=pending_approval, signed in.\n"
    );
    Letter { subject: "More approvals are waiting".into(), text }
}

/// A person signs in by a link.
pub fn sign_in(link: &str, until: Instant) -> Letter {
    let text = format!(
        "Somebody, we hope you, asked to sign in with this address.\n\n{link}\n\n\
         The link counts once, until {until}. If it was not you, do nothing: without it nobody gets in.\n"
    );
    Letter { subject: "Your sign-in link".into(), text }
}

/// A person proves that the address is theirs by a link.
pub fn proof(link: &str, until: Instant) -> Letter {
    let text = format!(
        "Somebody, we hope you, asked to prove that this address is theirs.\n\n{link}\n\n\
         The link counts once, until {until}. It shows who has registered with the address, if anybody has, and asks what is \
         to become of it. If it was not you, do nothing.\n"
    );
    Letter { subject: "Prove your address".into(), text }
}

/// A person sets a new password by a link.
pub fn reset(link: &str, until: Instant) -> Letter {
    let text = format!(
        "Somebody, we hope you, has forgotten the password of this address's account.\n\n{link}\n\n\
         The link sets a new one. It counts once, until {until}. If it was not you, do nothing: the password stays.\n"
    );
    Letter { subject: "Your new password".into(), text }
}

/// A person is invited into an organization.
pub fn invitation(organization: &str, role: &str, link: &str, until: Instant) -> Letter {
    let organization = line(organization);
    let text = format!(
        "You are invited into the organization \"{organization}\" as {role}.\n\n{link}\n\n\
         The link is yours alone and counts once, until {until}. If you expect no invitation, do nothing.\n"
    );
    Letter { subject: format!("Invitation: {organization}"), text }
}

/// A mail as a relay is given it.
pub struct Sent {
    /// From whom, to whom.
    pub envelope: Envelope,
    /// Headers and body.
    pub bytes: Vec<u8>,
}

/// The mailbox of an address, its domain in ASCII; `None` where no mail can have it.
pub fn mailbox(email: &str) -> Option<Mailbox> {
    let (local, domain) = email.trim().rsplit_once('@')?;
    Some(Mailbox::new(None, Address::new(local, domains::ascii(domain)?).ok()?))
}

/// The message, under this Message-ID (without its brackets).
///
/// # Errors
/// Why it cannot be a mail.
pub fn message(
    letter: &Letter,
    from: &Mailbox,
    to: &str,
    id: &str,
    at: Instant,
) -> Result<Sent, String> {
    let to = mailbox(to).ok_or("the address can receive no mail")?;
    let date = SystemTime::UNIX_EPOCH + Duration::from_millis(u64::try_from(at.0).unwrap_or(0));
    let generated =
        HeaderValue::new(HeaderName::new_from_ascii_str("Auto-Submitted"), "auto-generated".into());
    let message = Message::builder()
        .from(from.clone())
        .to(to)
        .date(date)
        .message_id(Some(format!("<{id}>")))
        .subject(line_end_free(&letter.subject))
        .raw_header(generated)
        .header(ContentType::TEXT_PLAIN)
        .header(ContentTransferEncoding::QuotedPrintable)
        .body(letter.text.clone())
        .map_err(|error| error.to_string())?;
    Ok(Sent { envelope: message.envelope().clone(), bytes: message.formatted() })
}

/// The last word against a header within a header: whatever a subject was made of, it is one line.
fn line_end_free(subject: &str) -> String {
    subject.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_wrote_is_one_line_without_links() {
        for (text, shown) in [
            ("Pay\r\nBcc: x@evil.example", "Pay Bcc: x @ evil. example"),
            ("see https://evil.example now", "see https: //evil. example now"),
            ("wwW.evil.com", "wwW. evil. com"),
            ("at charter-approve.com/x?y first", "at charter-approve. com/x?y first"),
            ("mailto:x@evil.example", "mailto:x @ evil. example"),
            ("evil。com", "evil。 com"),
            ("evil\u{ad}.com", "evil\u{ad}. com"),
            ("i\u{2764}.ws", "i\u{2764}. ws"),
            ("Pays 12.50 dollars. Now.", "Pays 12.50 dollars. Now."),
        ] {
            assert_eq!(line(text), shown);
        }
        assert_eq!(line("a\u{202e}b\u{2028}c"), "ab c");
        assert_eq!(line(&"x".repeat(500)).chars().count(), LINE_CHARS_MAX + 1);
    }

    #[test]
    fn no_subject_makes_a_header() {
        let letter = Letter {
            subject: "Hi\r\nBcc: x@evil.example\r\n\r\nBody".into(),
            text: "Ä text".into(),
        };
        let from: Mailbox = "Charter <charter@example.com>".parse().unwrap();
        let sent = message(&letter, &from, "ann@exämple.de", "1@host", Instant(0)).unwrap();
        let text = String::from_utf8(sent.bytes).unwrap();
        let (head, _) = text.split_once("\r\n\r\n").unwrap();
        assert!(!head.lines().any(|line| line.to_ascii_lowercase().starts_with("bcc")), "{head}");
        assert!(
            head.contains("Message-ID: <1@host>") && head.contains("xn--exmple-cua.de"),
            "{head}"
        );
        assert_eq!(sent.envelope.to().len(), 1);
    }

    #[test]
    fn an_address_that_no_mail_can_have_is_said_to_be_one() {
        for email in ["", "ann", "ann@", "a b@example.com", "a\r\n@example.com", "<a>@example.com"]
        {
            assert!(mailbox(email).is_none(), "{email:?}");
        }
    }
}
