//! `cargo xtask bench`: what Charter costs and what it gains, as ratios within one run on one
//! machine.
//!
//! Every figure stands beside its yardstick, measured in the same minutes by the same load
//! generator. Absolute figures are printed for people; only ratios are compared with targets.

mod bare;
mod committer;
mod decision;
mod governed;
mod instances;
mod load;
mod race;
mod reads;
mod reloads;
mod scale;
mod sends;
mod server;
mod start;
mod streams;
mod table;
mod tools;

use anyhow::Result;

fn main() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let mut arguments = std::env::args().skip(1);
    let (first, second, third) =
        (arguments.next().unwrap_or_default(), arguments.next(), arguments.next());
    runtime.block_on(async {
        if first == "bare" {
            return bare::serve(second.unwrap_or_default().into()).await;
        }
        let tools = tools::Tools::find(first.into())?;
        let wanted = |name: &str| second.as_deref().is_none_or(|only| only == name);
        let mut rows = Vec::new();
        if wanted("reads") {
            rows.extend(reads::measure(&tools).await?);
        }
        if wanted("sends") || wanted("committer") {
            let sqlite = committer::sqlite(&tools)?;
            rows.extend(sends::measure(&tools, &sqlite).await?);
            rows.extend(committer::measure(&tools, &sqlite)?);
        }
        if wanted("decision") {
            rows.extend(decision::measure()?);
        }
        if wanted("governed") {
            rows.extend(governed::measure(&tools).await?);
        }
        if wanted("instances") {
            rows.extend(instances::measure(&tools)?);
        }
        if wanted("reloads") {
            rows.extend(reloads::measure(&tools).await?);
        }
        if wanted("start") {
            rows.extend(start::measure(&tools).await?);
        }
        if wanted("streams") {
            rows.extend(streams::measure(&tools).await?);
        }
        if second.as_deref() == Some("race") {
            rows.extend(race::measure(&tools).await?);
        }
        if second.as_deref() == Some("scale") {
            let users = third.as_deref().map_or(Ok(scale::LARGE), str::parse)?;
            rows.extend(scale::measure(&tools, users).await?);
        }
        table::print(&rows);
        Ok(())
    })
}
