//! `cargo xtask bench`: what Charter costs and what it gains, as ratios within one run on one
//! machine.
//!
//! Every figure stands beside its yardstick, measured in the same minutes by the same load
//! generator. Absolute figures are printed for people; only ratios are compared with targets. The
//! gate runs all of it at a glance, so that no benchmark rots.

mod bare;
mod clock;
mod committer;
mod decision;
mod governed;
mod instances;
mod load;
mod neighbour;
mod pace;
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

use anyhow::{Context, Result, bail};
use pace::Pace;
use table::Row;
use tools::Tools;
use xtask::bench::{ALWAYS, ASKED_FOR};

/// The server's own.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// `charter-bench <target folder> [part] [users]`.
fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let target = arguments.next().context("run this through `cargo xtask bench`")?;
    let (part, users) = (arguments.next(), arguments.next());
    let users = users.map_or(Ok(scale::LARGE), |users| users.parse())?;
    let tools = Tools::find(target.into(), Pace::Measured)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let parts = part.as_deref().map_or(ALWAYS.to_vec(), |part| vec![part]);
    let mut rows = Vec::new();
    for part in parts {
        rows.extend(runtime.block_on(measure(part, &tools, users))?);
    }
    table::print(&rows);
    Ok(())
}

/// The rows of one part.
async fn measure(part: &str, tools: &Tools, users: usize) -> Result<Vec<Row>> {
    match part {
        "reads" => reads::measure(tools).await,
        "sends" => sends::measure(tools).await,
        "committer" => committer::measure(tools).await,
        "decision" => decision::measure(tools),
        "governed" => governed::measure(tools).await,
        "instances" => instances::measure(tools).await,
        "reloads" => reloads::measure(tools).await,
        "start" => start::measure(tools).await,
        "streams" => streams::measure(tools).await,
        "neighbour" => neighbour::measure(tools).await,
        "race" => race::measure(tools).await,
        "scale" => scale::measure(tools, users).await,
        other => {
            bail!("`{other}` is no part; there are {}, {}", ALWAYS.join(", "), ASKED_FOR.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use charter_tests::artefacts::Artefacts;

    use super::*;

    /// Each part, on the debug build, for a moment: it runs to its end and its figures are numbers.
    /// A few run at once, since each waits for its servers much of the time.
    #[test]
    fn every_benchmark_runs() -> Result<()> {
        let tools = Tools::glance(Artefacts::get());
        let parts = Mutex::new(ALWAYS.iter().chain(&ASKED_FOR));
        let run = || -> Result<()> {
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
            loop {
                let Some(part) = parts.lock().unwrap().next() else { return Ok(()) };
                let rows = runtime.block_on(measure(part, &tools, scale::SMALL + 2));
                let rows = rows.with_context(|| format!("the part {part}"))?;
                assert!(!rows.is_empty(), "{part} measures nothing");
                for row in rows {
                    let is_number = !row.figure.contains("NaN") && !row.figure.contains("inf");
                    assert!(is_number, "{part}: {} is {}", row.name, row.figure);
                }
            }
        };
        std::thread::scope(|scope| {
            let running = [(); 3].map(|()| scope.spawn(run));
            running.into_iter().try_for_each(|one| one.join().expect("no part panics"))
        })
    }
}
