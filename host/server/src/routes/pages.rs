//! The few pages for people that the host serves: what a one-time link of a mail leads to.
//!
//! Plain HTML: no script, no style, nothing from anywhere. Whatever a page shows is escaped, and
//! the forms of one lead to this host alone. A page changes nothing when it is opened, since mail
//! scanners open links too; its buttons do.

use charter_kernel::refusal::Refusal;
use charter_kernel::schema::parse_query;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};

use crate::app::App;
use crate::reply::Reply;
use crate::request::HostRequest;

pub mod address;
pub mod approval;
pub mod invitation;
pub mod password;
pub mod sign_in;

/// The media type of a page.
pub const HTML: &str = "text/html; charset=utf-8";
/// The media type of what a form sends.
pub const FORM: &str = "application/x-www-form-urlencoded";
/// Bytes of what a form sends.
pub const FORM_BYTES_MAX: usize = 16 << 10;

/// What browsers say of where a request comes from.
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The query of a page: the token of a link.
pub fn query() -> serde_json::Value {
    let token = serde_json::json!({"type": "string", "maxLength": 200});
    super::shape::object(&[("token?", token)])
}

/// Text as it stands in a page, in an attribute too.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            // What turns text around would let one field look like another.
            '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {}
            c if c.is_control() && !matches!(c, '\n' | '\t') => {}
            c => escaped.push(c),
        }
    }
    escaped
}

/// A page with this heading; `body` is HTML, its text escaped already.
pub fn page(status: StatusCode, heading: &str, body: &str) -> Reply {
    let heading = escape(heading);
    let text = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"robots\" content=\"noindex\">\n<title>{heading}</title>\n</head>\n\
         <body>\n<h1>{heading}</h1>\n{body}\n</body>\n</html>\n"
    );
    let mut reply = Reply::text(HTML, text);
    reply.status = status;
    guard(&mut reply.headers);
    reply
}

/// What keeps a page to itself: no script runs in it, nobody frames it, its address goes nowhere
/// and is kept nowhere.
fn guard(headers: &mut HeaderMap) {
    const POLICY: &str =
        "default-src 'none'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'";
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
}

/// A refusal as a page.
pub fn refused(status: StatusCode, refusal: &Refusal) -> Reply {
    let heading = match status.as_u16() {
        404 => "This link does not count",
        409 => "It is decided",
        429 => "Not so fast",
        403 => "You may not do this",
        _ => "This did not work",
    };
    let hint = refusal
        .hint
        .as_deref()
        .map(|hint| format!("\n<p>{}</p>", escape(hint)))
        .unwrap_or_default();
    page(status, heading, &format!("<p>{}</p>{hint}", escape(&refusal.message)))
}

/// A row of a table of facts.
pub fn fact(name: &str, value: &str) -> String {
    format!("<dt>{}</dt>\n<dd>{}</dd>\n", escape(name), escape(value))
}

/// What a form of ours has sent.
pub struct Form(Vec<(String, String)>);

impl Form {
    /// Reads it, where it comes from a page of this host.
    ///
    /// # Errors
    /// 400 for what is no form, 403 for another site's.
    pub fn read(app: &App, request: &HostRequest) -> Result<Self, Refusal> {
        if !own_page(&request.headers, Some(&crate::public::base(&app.adapters))) {
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
/// that the origin is `null`: then what they say of the site decides.
fn own_page(headers: &HeaderMap, base: Option<&str>) -> bool {
    let text = |name: &HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    if let Some(site) = text(&FETCH_SITE) {
        return matches!(site, "same-origin" | "none");
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
            let addressed = text(&header::HOST).map(str::to_ascii_lowercase);
            let from = host(origin);
            from.is_some() && (from == base.and_then(host) || from == addressed)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_is_shown_is_markup() {
        assert_eq!(
            escape("<script>\"a\" & 'b'\u{0}\u{202e}</script>"),
            "&lt;script&gt;&quot;a&quot; &amp; &#39;b&#39;&lt;/script&gt;"
        );
    }

    #[test]
    fn a_form_of_another_site_is_not_ours() {
        let own = |pairs: &[(&'static str, &str)]| {
            let headers: HeaderMap = pairs
                .iter()
                .map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap()))
                .collect();
            own_page(&headers, Some("https://api.example.com"))
        };
        assert!(own(&[("sec-fetch-site", "same-origin"), ("origin", "null")]));
        assert!(own(&[("origin", "https://api.example.com")]));
        assert!(own(&[("origin", "http://127.0.0.1:8080"), ("host", "127.0.0.1:8080")]));
        assert!(own(&[]));
        assert!(!own(&[("sec-fetch-site", "cross-site"), ("origin", "null")]));
        assert!(!own(&[("sec-fetch-site", "same-site"), ("origin", "https://x.example.com")]));
        assert!(!own(&[("origin", "https://evil.example.net"), ("host", "api.example.com")]));
    }
}
