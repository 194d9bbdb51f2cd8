//! HTML to title, markdown and links: the article where there is one, else the whole body.

use std::collections::BTreeSet;

use dom_query::Document;
use dom_smoothie::{Config, Readability, TextMode};

use super::{Link, Page};
use crate::address::Address;

/// Links that are handed out.
const LINKS_MAX: usize = 500;
/// Characters of a link's text.
const LINK_TEXT_CHARS_MAX: usize = 300;
/// Elements up to which the article is looked for; a larger page is read whole.
const ELEMENTS_MAX: usize = 20_000;
/// What is no text at all; most of a large page's bytes.
const CODE: &str = "script, style, template, iframe, svg, canvas, object";
/// What is text, but not the page's own.
const NOISE: &str = "head, noscript, form, nav, header, footer, aside, [hidden], [aria-hidden=true]";

/// Reads a page.
pub(super) fn read(address: &Address, html: &str) -> Page {
    let document = Document::from(html);
    let base = document.select_single("base[href]").attr("href").and_then(|href| address.join(&href));
    let base = base.as_ref().unwrap_or(address);
    let links = links(&document, base);
    document.select(CODE).remove();
    absolute(&document, base);
    let title = one_line(&document.select_single("head title").text());
    let (title, markdown) = match article(&document, base) {
        Some((article_title, markdown)) => (if article_title.is_empty() { title } else { article_title }, markdown),
        None => (title, whole(&document)),
    };
    Page { url: address.text(), title, markdown, links }
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
