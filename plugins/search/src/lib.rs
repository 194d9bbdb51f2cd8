//! The outside world, read: web search through a bound engine, any public page as markdown, and
//! research that cites its sources.
//!
//! This file is the declaration. `engine` asks the search engine, `page` fetches and reads one
//! page, `research` puts both before a model. Nothing is kept, and nothing pretends: what is not
//! bound is 501.

mod address;
mod charset;
mod engine;
mod page;
mod research;

#[cfg(test)]
mod tests;

use charter_sdk::prelude::*;

/// The binding of the search engine.
pub(crate) const ENGINE: &str = "search.engine";
/// The binding of the language model.
pub(crate) const MODEL: &str = "llm.upstream";

/// The primitive.
pub fn primitive() -> Primitive {
    Primitive::new("search", env!("CARGO_PKG_VERSION"))
        .title("Search")
        .summary("Web search, public pages as markdown, and research with citations.")
        .uses("public-web")
        .uses("settings")
        .provider(ENGINE, &["searxng"], "A search engine that answers like SearXNG: GET /search?q=&format=json.")
        .provider(MODEL, &["openai"], "A language model with OpenAI's POST /v1/chat/completions; its option `model` names it.")
        .operation(
            post("search.web", "/search", engine::search)
                .summary("Search the web")
                .needs(&[ENGINE])
                .deadline_ms(20_000),
        )
        .operation(
            post("search.url", "/search/url", page::read)
                .summary("Read a public page as markdown, with its links")
                .description(
                    "Follows up to five redirects. HTML, plain text, markdown, JSON and XML of at most 2 MiB are read, in any charset of \
                     the web; anything else is 415 `unsupported_media_type`. A page that is longer, or that has more elements than can be \
                     read, is 413 `payload_too_large`, `reason: page_too_large`. Only public addresses are reached.",
                )
                .deadline_ms(60_000),
        )
        .operation(
            post("search.research", "/search/research", research::research)
                .summary("Answer a question from web pages, with citations")
                .needs(&[ENGINE, MODEL])
                .deadline_ms(180_000),
        )
}

charter_sdk::export!(primitive);
