//! How a page of the host looks, and what keeps it to itself.
//!
//! Plain HTML: no script, no style, nothing from anywhere. All text of a page is escaped.

use charter_kernel::refusal::Refusal;
use http::{HeaderMap, HeaderValue, StatusCode, header};

use crate::reply::Reply;

/// The media type of a page.
pub const HTML: &str = "text/html; charset=utf-8";
/// The media type of what a form sends.
pub const FORM: &str = "application/x-www-form-urlencoded";

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
            // Characters that turn text around would let one field look like another.
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

/// Keeps a page to itself: no script runs in it, nobody frames it, its address goes nowhere and is
/// kept nowhere.
fn guard(headers: &mut HeaderMap) {
    const POLICY: &str =
        "default-src 'none'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'";
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
}

/// A refusal as a page.
pub fn refusal_page(status: StatusCode, refusal: &Refusal) -> Reply {
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
}
