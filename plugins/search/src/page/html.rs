//! HTML to title, markdown and links: the article where there is one, else the whole body.

mod attributes;
mod parse;
mod shape;

use std::collections::BTreeSet;

use charter_sdk::prelude::*;
use dom_query::{Document, NodeData, NodeRef};
use dom_smoothie::{Config, Readability, TextMode};

use self::parse::{DEPTH_MAX, parse};
use self::shape::Shape;
use super::{Link, Page};
use crate::address::Address;

/// Links that are handed out.
const LINKS_MAX: usize = 500;
/// Characters of a link's text.
const LINK_TEXT_CHARS_MAX: usize = 300;
/// Bytes that a link's text is read from.
const LINK_TEXT_BYTES_MAX: usize = 4 * LINK_TEXT_CHARS_MAX + 1_024;
/// Bytes of the references that are made absolute.
const REFERENCES_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Elements, depth and copied bytes up to which the article is looked for; a larger page is read
/// whole. The search's cost grows with the square of the depth.
const ARTICLE: Shape =
    Shape { elements: 20_000, depth: 200, nested: 32, copied: 64 << 20, indented: 1_000_000 };
/// Up to which a page is read at all: the markdown is written by recursion, within a guest's stack
/// and memory.
const READABLE: Shape = Shape {
    elements: 200_000,
    depth: DEPTH_MAX,
    nested: 100,
    copied: 256 << 20,
    indented: 2_000_000,
};
/// The elements that hold no text at all; most of a large page's bytes.
const CODE: &str = "script, style, template, iframe, svg, canvas, object";
/// The elements that hold text, but not the page's own.
const NOISE: &str =
    "head, noscript, form, nav, header, footer, aside, [hidden], [aria-hidden=true]";

/// Reads a page. One that is made to cost is refused before it costs a whole call's memory, stack
/// or time.
pub(super) fn read(address: &Address, html: &str) -> Result<Page> {
    let document = parse(html).ok_or_else(too_large)?;
    let base =
        document.select_single("base[href]").attr("href").and_then(|href| address.join(&href));
    let base = base.as_ref().unwrap_or(address);
    let links = links(&document, base);
    document.select(CODE).remove();
    let shape = Shape::of(&document);
    if !shape.fits(&READABLE) || !absolute(&document, base) {
        return Err(too_large());
    }
    let title = one_line(&document.select_single("head title").text());
    let (title, markdown) = match shape.fits(&ARTICLE).then(|| article(&document, base)).flatten() {
        Some((article_title, markdown)) => {
            (if article_title.is_empty() { title } else { article_title }, markdown)
        }
        None => (title, whole(&document)),
    };
    Ok(Page { url: address.text(), title, markdown, links })
}

fn too_large() -> Failure {
    Failure::too_large("url", "the page has more elements than can be read")
        .reason("page_too_large")
}

/// The article, where the page has one that is worth the name.
fn article(document: &Document, base: &Address) -> Option<(String, String)> {
    let config = Config { text_mode: TextMode::Markdown, ..Config::default() };
    let article = Readability::with_document(document.clone(), Some(&base.text()), Some(config))
        .ok()?
        .parse()
        .ok()?;
    let markdown = article.text_content.trim().to_owned();
    (!markdown.is_empty()).then(|| (one_line(&article.title), markdown))
}

/// Everything but the noise.
fn whole(document: &Document) -> String {
    document.select(NOISE).remove();
    document.md(None).trim().to_owned()
}

/// The page's links, each address once, in their order.
fn links(document: &Document, base: &Address) -> Vec<Link> {
    let mut seen = BTreeSet::new();
    let anchors = document.select("a[href]");
    let found = anchors.nodes().iter().filter_map(|anchor| {
        let url = base.join(&anchor.attr("href")?)?.text();
        seen.insert(url.clone()).then(|| Link { text: link_text(anchor), url })
    });
    found.take(LINKS_MAX).collect()
}

/// The text of a link, as far as it is handed out.
fn link_text(anchor: &NodeRef<'_>) -> String {
    let mut text = String::new();
    for node in anchor.descendants_it() {
        node.query(|node| {
            if let NodeData::Text { contents } = &node.data {
                let room = LINK_TEXT_BYTES_MAX.saturating_sub(text.len());
                text.push_str(&contents[..contents.floor_char_boundary(room)]);
            }
        });
        if text.len() + 4 > LINK_TEXT_BYTES_MAX {
            break;
        }
    }
    one_line(&text).chars().take(LINK_TEXT_CHARS_MAX).collect()
}

/// Makes the references that end up in the markdown absolute; false if they are too long together.
fn absolute(document: &Document, base: &Address) -> bool {
    let mut room = REFERENCES_BYTES_MAX;
    for (selector, attribute) in [("a[href]", "href"), ("img[src]", "src")] {
        for element in document.select(selector).iter() {
            let target = element.attr(attribute).and_then(|reference| base.join(&reference));
            let Some(target) = target.map(|target| target.text()) else { continue };
            let Some(left) = room.checked_sub(target.len()) else { return false };
            room = left;
            element.set_attr(attribute, &target);
        }
    }
    true
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
