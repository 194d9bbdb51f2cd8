//! One public page: fetched with its redirects followed, and read by its content type.

mod html;

use charter_sdk::http::{self, Error, Response};
use charter_sdk::prelude::*;

use crate::address::Address;
use crate::charset;

/// Redirects that are followed.
const REDIRECTS_MAX: usize = 5;
/// Bytes of a page.
const PAGE_BYTES_MAX: usize = 2 * 1024 * 1024;
/// How the page's server is asked.
const ACCEPT: &str = "text/html,application/xhtml+xml,text/markdown;q=0.9,text/plain;q=0.8,application/json;q=0.8,application/xml;q=0.7";
const USER_AGENT: &str =
    concat!("Mozilla/5.0 (compatible; CharterSearch/", env!("CARGO_PKG_VERSION"), ")");

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Ask {
    /// An `http` or `https` address, without credentials.
    #[schemars(length(min = 1, max = 2_048))]
    url: String,
}

/// A page, read.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Page {
    /// The page's address, after redirects.
    pub(crate) url: String,
    /// Empty where it has none.
    pub(crate) title: String,
    /// The page's text.
    pub(crate) markdown: String,
    /// The page's links, each address once, at most 500.
    pub(crate) links: Vec<Link>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct Link {
    pub(crate) text: String,
    pub(crate) url: String,
}

pub(crate) fn read(Body(ask): Body<Ask>) -> Result<Page> {
    let address = Address::parse(&ask.url)
        .ok_or_else(|| Failure::invalid("url", "must be an http or https address"))?;
    fetch(address)
}

/// Fetches and reads a page.
pub(crate) fn fetch(mut address: Address) -> Result<Page> {
    for hop in 0..=REDIRECTS_MAX {
        let response = ask(&address, hop > 0)?;
        let Some(location) = redirect(&response) else { return understand(&address, &response) };
        address = address
            .join(location)
            .ok_or_else(|| Failure::provider("the page redirects to no web address"))?;
    }
    Err(Failure::provider(format!("the page redirects more than {REDIRECTS_MAX} times")))
}

fn ask(address: &Address, redirected: bool) -> Result<Response> {
    let request =
        http::get(&address.text()).header("accept", ACCEPT).header("accept-encoding", "identity");
    request.header("user-agent", USER_AGENT).timeout(15_000).at_most(PAGE_BYTES_MAX).send().map_err(
        |error| match error {
            // The host's reason names addresses and rules of its network, which are the operator's
            // and not the caller's business.
            Error::BadUrl | Error::Denied(_) if redirected => {
                Failure::provider("the page redirects to no public web address")
                    .reason("address_refused")
            }
            Error::BadUrl | Error::Denied(_) => {
                Failure::invalid("url", "must lead to a public web address")
                    .reason("address_refused")
            }
            Error::TooLarge => {
                Failure::too_large("url", "the page has more than 2 MiB").reason("page_too_large")
            }
            error => error.into(),
        },
    )
}

fn redirect(response: &Response) -> Option<&str> {
    matches!(response.status, 301 | 302 | 303 | 307 | 308).then(|| response.header("location"))?
}

fn understand(address: &Address, response: &Response) -> Result<Page> {
    if !response.is_success() {
        let failure = Failure::provider(format!("the page answered {}", response.status));
        return Err(failure.details(json!({ "status": response.status })));
    }
    if let Some(encoding) =
        response.header("content-encoding").filter(|encoding| !is_plain(encoding))
    {
        let failure = Failure::provider(
            "the page is sent compressed or otherwise encoded, which was not asked for",
        );
        return Err(failure
            .reason("content_encoding")
            .details(json!({ "content_encoding": encoding })));
    }
    let content_type = response.header("content-type").unwrap_or_default();
    let text = charset::decode(&response.body, content_type);
    let page = |title: String, markdown: String| Page {
        url: address.text(),
        title,
        markdown,
        links: Vec::new(),
    };
    Ok(match kind(content_type, &text) {
        Kind::Html => html::read(address, &text)?,
        Kind::Markdown => page(heading(&text), text.into_owned()),
        Kind::Plain => page(String::new(), text.into_owned()),
        Kind::Fenced(language) => {
            page(String::new(), format!("```{language}\n{}\n```\n", text.trim_end()))
        }
        Kind::Other => {
            let failure =
                Failure::new("unsupported_media_type", "the page is of a kind that is not read");
            return Err(failure.param("url").details(json!({ "content_type": content_type })));
        }
    })
}

/// Whether a `Content-Encoding` leaves the content as it is.
fn is_plain(encoding: &str) -> bool {
    encoding
        .split(',')
        .map(str::trim)
        .all(|coding| coding.is_empty() || coding.eq_ignore_ascii_case("identity"))
}

/// The treatment of a content type.
#[derive(Debug, PartialEq, Eq)]
enum Kind {
    Html,
    Markdown,
    Plain,
    Fenced(&'static str),
    Other,
}

fn kind(content_type: &str, text: &str) -> Kind {
    let media_type = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match media_type.as_str() {
        "text/html" | "application/xhtml+xml" => Kind::Html,
        "text/markdown" | "text/x-markdown" => Kind::Markdown,
        "application/json" => Kind::Fenced("json"),
        "application/xml" | "text/xml" => Kind::Fenced("xml"),
        "" if text.contains('\0') => Kind::Other,
        "" if text.trim_start().starts_with('<') => Kind::Html,
        "" => Kind::Plain,
        other if other.ends_with("+json") => Kind::Fenced("json"),
        other if other.ends_with("+xml") => Kind::Fenced("xml"),
        other if other.starts_with("text/") => Kind::Plain,
        _ => Kind::Other,
    }
}

/// The first heading of a markdown text.
fn heading(text: &str) -> String {
    let line = text.lines().find_map(|line| line.strip_prefix("# "));
    line.unwrap_or_default().trim().to_owned()
}
