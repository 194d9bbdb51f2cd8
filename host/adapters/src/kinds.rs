//! Whether a binding says what its kind asks for: the one place that knows every kind.

use serde_json::Value;

use crate::mail::relay;
use crate::providers::is_address;

/// A binding as somebody wants it.
#[derive(Clone, Copy, Debug)]
pub struct Wish<'a> {
    /// Its name.
    pub name: &'a str,
    /// The protocol.
    pub kind: &'a str,
    /// The address.
    pub url: &'a str,
    /// Further members that the protocol asks for.
    pub options: &'a Value,
    /// Whether it has a credential.
    pub credential: bool,
}

impl Wish<'_> {
    /// The fault of it, if any, and the field that has it.
    pub fn fault(&self) -> Option<(&'static str, String)> {
        let unfit = match self.kind {
            relay::KIND => relay::Relay::read(self.url, self.options, self.credential).err()?,
            kind if self.name == relay::BINDING => {
                return Some((
                    "kind",
                    format!("is {kind}; what the host mails goes through {}", relay::KIND),
                ));
            }
            _ if is_address(self.url) => return None,
            _ => {
                return Some((
                    "url",
                    "must be an http or https address with a port from 1 to 65535, if any, and without user, query and fragment".into(),
                ));
            }
        };
        match unfit.field.as_str() {
            "url" => Some(("url", unfit.message)),
            "credential" => Some(("credential", unfit.message)),
            field => {
                let name = field.strip_prefix("options.").unwrap_or(field);
                Some(("options", format!("`{name}` {}", unfit.message)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::Wish;

    #[test]
    fn a_mail_relay_is_what_its_kind_says() {
        let (from, none) = (json!({"from": "a@example.com"}), json!({}));
        let fault = |name, kind, url, options| -> &str {
            let wish = Wish { name, kind, url, options, credential: false };
            wish.fault().map_or("", |(field, _)| field)
        };
        assert_eq!(fault("mail.relay", "smtp-submission", "smtp://relay.example.com", &from), "");
        assert_eq!(fault("mail.relay", "http", "http://relay.example.com", &from), "kind");
        assert_eq!(
            fault("mail.relay", "smtp-submission", "http://relay.example.com", &from),
            "url"
        );
        assert_eq!(fault("other", "smtp-submission", "smtp://relay.example.com", &none), "options");
        assert_eq!(fault("other", "http", "smtp://relay.example.com", &from), "url");
    }
}
