//! The search engine, as SearXNG answers.

use std::collections::BTreeSet;

use charter_sdk::prelude::*;
use charter_sdk::{http, settings};

use crate::ENGINE;

/// Bytes of the engine's answer.
const ANSWER_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Characters of a snippet and of a title.
const TEXT_CHARS_MAX: usize = 1_000;

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Ask {
    /// The search terms, in the engine's own syntax.
    #[schemars(length(min = 1, max = 1_000), regex(pattern = r"\S"))]
    query: String,
    /// How many results at most.
    #[serde(default = "ten")]
    #[schemars(range(min = 1, max = 50))]
    limit: u32,
}

fn ten() -> u32 {
    10
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct Hit {
    pub(crate) title: String,
    pub(crate) url: String,
    pub(crate) snippet: String,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Results {
    /// Best first, each page once.
    results: Vec<Hit>,
    /// The kind of engine that answered.
    source: String,
}

/// A result as SearXNG tells it, as far as it is used.
#[derive(Deserialize)]
struct Raw {
    #[serde(default)]
    title: Option<String>,
    #[serde(default)]
    url: Option<String>,
    #[serde(default)]
    content: Option<String>,
}

#[derive(Deserialize)]
struct RawResults {
    results: Vec<Raw>,
}

pub(crate) fn search(Body(ask): Body<Ask>) -> Result<Results> {
    let source = settings::binding(ENGINE)?
        .map(|binding| binding.kind)
        .ok_or_else(|| Failure::not_configured(&[ENGINE]))?;
    Ok(Results { results: hits(&ask.query, ask.limit)?, source })
}

/// The best results of the engine, each page once.
pub(crate) fn hits(query: &str, limit: u32) -> Result<Vec<Hit>> {
    let request = http::binding(ENGINE).get("/search").query("q", query).query("format", "json");
    let response = request
        .header("accept", "application/json")
        .timeout(15_000)
        .at_most(ANSWER_BYTES_MAX)
        .send()?;
    let answer: RawResults = response.json()?;
    let mut seen = BTreeSet::new();
    let hits = answer.results.into_iter().filter_map(|raw| {
        let url =
            raw.url.filter(|url| url.starts_with("https://") || url.starts_with("http://"))?;
        seen.insert(url.clone()).then(|| Hit {
            title: text(raw.title),
            snippet: text(raw.content),
            url,
        })
    });
    Ok(hits.take(limit as usize).collect())
}

/// One line of bounded length.
fn text(raw: Option<String>) -> String {
    let words: Vec<_> = raw.iter().flat_map(|raw| raw.split_whitespace()).collect();
    words.join(" ").chars().take(TEXT_CHARS_MAX).collect()
}
