//! HTML to title, markdown and links: the article where there is one, else the whole body.

use std::collections::BTreeSet;

use charter_sdk::prelude::*;
use dom_query::Document;
use dom_smoothie::{Config, Readability, TextMode};

use super::{Link, Page};
use crate::address::Address;

/// Links that are handed out.
const LINKS_MAX: usize = 500;
/// Characters of a link's text.
const LINK_TEXT_CHARS_MAX: usize = 300;
/// Tags of a page: what parses within a call's memory.
const TAGS_MAX: usize = 200_000;
/// Nesting up to which the article is looked for: the search's cost grows with the square of it.
const NESTING_MAX: usize = 200;
/// Nesting up to which a page is read at all.
const NESTING_READ_MAX: usize = 2_000;
/// Elements that have no end tag, or may leave it out.
const UNENDED: [&str; 28] = [
    "area", "base", "body", "br", "col", "colgroup", "dd", "dt", "embed", "head", "hr", "html", "img", "input", "li", "link",
    "meta", "option", "p", "source", "tbody", "td", "tfoot", "th", "thead", "tr", "track", "wbr",
];
/// Elements up to which the article is looked for; a larger page is read whole.
const ELEMENTS_MAX: usize = 20_000;
/// What is no text at all; most of a large page's bytes.
const CODE: &str = "script, style, template, iframe, svg, canvas, object";
/// What is text, but not the page's own.
const NOISE: &str = "head, noscript, form, nav, header, footer, aside, [hidden], [aria-hidden=true]";

/// Reads a page.
pub(super) fn read(address: &Address, html: &str) -> Result<Page> {
    // A hostile page is refused here, before it costs a whole call's memory or time.
    let nesting = nesting(html);
    if nesting > NESTING_READ_MAX || html.bytes().filter(|byte| *byte == b'<').count() > TAGS_MAX {
        return Err(Failure::provider("the page has more elements than can be read").reason("page_too_large"));
    }
    let document = Document::from(html);
    let base = document.select_single("base[href]").attr("href").and_then(|href| address.join(&href));
    let base = base.as_ref().unwrap_or(address);
    let links = links(&document, base);
    document.select(CODE).remove();
    absolute(&document, base);
    let title = one_line(&document.select_single("head title").text());
    let (title, markdown) = match (nesting <= NESTING_MAX).then(|| article(&document, base)).flatten() {
        Some((article_title, markdown)) => (if article_title.is_empty() { title } else { article_title }, markdown),
        None => (title, whole(&document)),
    };
    Ok(Page { url: address.text(), title, markdown, links })
}

/// How deep elements may stand within each other, as the text's tags have it: an estimate that costs one pass.
fn nesting(html: &str) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    for tag in html.split('<').skip(1) {
        let (ends, tag) = tag.strip_prefix('/').map_or((false, tag), |tag| (true, tag));
        let name = &tag[..tag.bytes().position(|byte| !byte.is_ascii_alphanumeric()).unwrap_or(tag.len())];
        if name.is_empty() || UNENDED.iter().any(|unended| name.eq_ignore_ascii_case(unended)) {
            continue;
        }
        let ends_itself = || tag.split('>').next().is_some_and(|tag| tag.ends_with('/'));
        match ends {
            true => depth = depth.saturating_sub(1),
            false if ends_itself() => {}
            false => depth += 1,
        }
        deepest = deepest.max(depth);
    }
    deepest
}

/// The article, where the page has one that is worth the name.
fn article(document: &Document, base: &Address) -> Option<(String, String)> {
    // Asked before the copy is made: a guest's memory does not hold a huge page twice.
    if document.select("*").length() > ELEMENTS_MAX {
        return None;
    }
    let config = Config { text_mode: TextMode::Markdown, ..Config::default() };
    let article = Readability::with_document(document.clone(), Some(&base.text()), Some(config)).ok()?.parse().ok()?;
    let markdown = article.text_content.trim().to_owned();
    (!markdown.is_empty()).then(|| (one_line(&article.title), markdown))
}

/// Everything but the noise.
fn whole(document: &Document) -> String {
    document.select(NOISE).remove();
    document.md(None).trim().to_owned()
}

/// Where the page leads to, each address once, in its order.
fn links(document: &Document, base: &Address) -> Vec<Link> {
    let mut seen = BTreeSet::new();
    let anchors = document.select("a[href]");
    let found = anchors.iter().filter_map(|anchor| {
        let url = base.join(&anchor.attr("href")?)?.text();
        let text: String = one_line(&anchor.text()).chars().take(LINK_TEXT_CHARS_MAX).collect();
        seen.insert(url.clone()).then_some(Link { text, url })
    });
    found.take(LINKS_MAX).collect()
}

/// Makes the references that end up in the markdown absolute.
fn absolute(document: &Document, base: &Address) {
    for (selector, attribute) in [("a[href]", "href"), ("img[src]", "src")] {
        for element in document.select(selector).iter() {
            let target = element.attr(attribute).and_then(|reference| base.join(&reference));
            if let Some(target) = target {
                element.set_attr(attribute, &target.text());
            }
        }
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
