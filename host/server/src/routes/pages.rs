//! The few pages for people that the host serves: what a one-time link of a mail leads to.
//!
//! Plain HTML: no script, no style, nothing from anywhere. Everything on a page is escaped, and the
//! forms of one lead to this host alone. A page changes nothing when it is opened, since mail
//! scanners open links too; its buttons do.

use charter_kernel::refusal::Refusal;
use charter_kernel::schema::parse_query;
use charter_tenancy::records::account::Account;
use http::{HeaderMap, HeaderName, header};
use schemars::JsonSchema;
use serde::Deserialize;

use super::shape::Optional;
use crate::app::App;
use crate::html::HTML;
use crate::request::HostRequest;
use crate::route::HostRoute;

pub mod address;
pub mod approval;
pub mod invitation;
pub mod password;
pub mod sign_in;

/// Bytes of what a form sends.
pub const FORM_BYTES_MAX: usize = 16 << 10;

/// The header in which browsers say where a request comes from.
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The rows of pages: opening one changes nothing, its form does.
pub fn open(rows: Vec<HostRoute>) -> Vec<HostRoute> {
    rows.into_iter().map(|route| route.root().open().produces(HTML)).collect()
}

/// The query of a page.
#[derive(Deserialize, JsonSchema)]
pub struct LinkQuery {
    /// The secret of the link.
    #[schemars(length(max = 200))]
    token: Optional<String>,
}

impl LinkQuery {
    /// The secret; empty where none was given.
    fn token(&self) -> &str {
        self.token.0.as_deref().unwrap_or_default()
    }
}

/// A caution to whoever holds a link that acts for an account: until its address is proved, somebody
/// else may have registered with it. `advice` says what not to do then. Empty once it is proved.
fn caution(account: &Account, advice: &str) -> String {
    if account.is_verified() {
        return String::new();
    }
    format!(
        "<p>Nobody has proved this address yet. Who registered with it did so at {}, and has keys that go on: if that \
         was not you, {advice}, and ask for a proof of your address instead.</p>\n",
        account.created_at
    )
}

/// The fields that a form of ours has sent.
pub struct Form(Vec<(String, String)>);

impl Form {
    /// Reads it, where it comes from a page of this host.
    ///
    /// # Errors
    /// 400 for what is no form, 403 for another site's.
    pub fn read(app: &App, request: &HostRequest) -> Result<Self, Refusal> {
        let base = charter_adapters::public::base(&app.adapters);
        if !own_page(&request.headers, &base, app.config.http.public_url.is_some()) {
            return Err(Refusal::forbidden(
                "cross_site",
                "A form of another site does nothing here.",
            ));
        }
        let text = std::str::from_utf8(&request.bytes)
            .map_err(|_| Refusal::invalid("body", "must be a form"))?;
        Ok(Self(parse_query(text).map_err(|_| Refusal::invalid("body", "must be a form"))?))
    }

    /// A field; empty where it was not sent.
    pub fn field(&self, name: &str) -> &str {
        self.0.iter().find(|(field, _)| field == name).map_or("", |(_, value)| value)
    }
}

/// Whether a form may come from a page of ours. Our pages send no referrer, for which browsers say
/// that the origin is `null`: then what they say of the site decides. No other address counts
/// that the request was sent to, if the operator has said which is ours.
fn own_page(headers: &HeaderMap, base: &str, is_public: bool) -> bool {
    let text = |name: &HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    if text(&FETCH_SITE).is_some_and(|site| !matches!(site, "same-origin" | "none")) {
        return false;
    }
    match text(&header::ORIGIN) {
        None | Some("null") => true,
        Some(origin) => {
            let host = |address: &str| {
                address
                    .parse::<http::Uri>()
                    .ok()?
                    .authority()
                    .map(|host| host.as_str().to_ascii_lowercase())
            };
            let addressed = text(&header::HOST).filter(|_| !is_public).map(str::to_ascii_lowercase);
            let from = host(origin);
            from.is_some() && (from == host(base) || from == addressed)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_of_another_site_is_not_ours() {
        let asked = |pairs: &[(&'static str, &str)], is_public: bool| {
            let headers: HeaderMap = pairs
                .iter()
                .map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap()))
                .collect();
            own_page(&headers, "https://api.example.com", is_public)
        };
        let own = |pairs: &[(&'static str, &str)]| asked(pairs, false);
        assert!(own(&[("sec-fetch-site", "same-origin"), ("origin", "null")]));
        assert!(own(&[("origin", "https://api.example.com")]));
        assert!(own(&[("origin", "http://127.0.0.1:8080"), ("host", "127.0.0.1:8080")]));
        assert!(own(&[]));
        assert!(!own(&[("sec-fetch-site", "cross-site"), ("origin", "null")]));
        assert!(!own(&[("sec-fetch-site", "same-site"), ("origin", "https://x.example.com")]));
        assert!(!own(&[("origin", "https://evil.example.net"), ("host", "api.example.com")]));
        assert!(!own(&[("sec-fetch-site", "same-origin"), ("origin", "https://evil.example.net")]));
        // A name of somebody else's that leads here.
        let rebound = [("origin", "http://evil.example.net"), ("host", "evil.example.net")];
        assert!(own(&rebound) && !asked(&rebound, true));
        assert!(asked(&[("origin", "https://api.example.com"), ("host", "10.0.0.7:8080")], true));
    }
}
