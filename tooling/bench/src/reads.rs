//! Reading one queue through the whole pipeline, beside a bare hyper server and beside `wasmtime
//! serve`.

use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Result;

use crate::load::{self, Plan, Report};
use crate::server::Server;
use crate::table::Row;
use crate::tools::{self, Scratch, Tools};

const CONNECTIONS: usize = 64;

/// The rows of this part.
pub async fn measure(tools: &Tools) -> Result<Vec<Row>> {
    let scratch = Scratch::new(tools, "reads")?;
    let charter = Server::charter(&tools.charter, &scratch.0, &tools.components)?;
    charter.reachable().await?;
    let key = tools::register(&charter, "reads").await?;
    let queue = tools::queue(&charter, &key, "read").await?;
    let path = format!("/v1/queue/{queue}");
    let body = charter.json("GET", &path, &key, None).await?.to_string();

    let bare = Server::start(Command::new(&tools.own).args(["bare", &body]))?;
    let read = load::request("GET", &path, &[("authorization", &format!("Bearer {key}"))], None);
    let plain = load::request("GET", "/", &[], None);
    // Each is warmed up, then they take turns, so that a drifting machine drifts for all.
    let serve = match &tools.wasmtime {
        Some(wasmtime) => {
            let mut command = Command::new(wasmtime);
            command
                .args(["serve", "--addr", "127.0.0.1:0", "-Scli", "--env"])
                .arg(format!("BODY={body}"))
                .arg(&tools.proxy);
            command.stderr(Stdio::piped());
            Some(wasmtime_serve(command)?)
        }
        None => None,
    };
    let (mut ours, mut hyper, mut theirs) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..4 {
        let keep = round > 0;
        collect(&mut hyper, drive(&bare.address, plain.clone()).await, keep);
        collect(&mut ours, drive(&charter.address, read.clone()).await, keep);
        if let Some((_, address)) = &serve {
            collect(&mut theirs, drive(address, plain.clone()).await, keep);
        }
    }
    let (ours, hyper) = (median(ours), median(hyper));
    let mut rows = vec![Row::share("reading one queue / bare hyper", ours, hyper, 0.20)];
    if serve.is_some() {
        rows.push(Row::at_least("reading one queue / wasmtime serve", ours, median(theirs), 2.0));
    }
    Ok(rows)
}

async fn drive(address: &str, request: Vec<u8>) -> Report {
    let plan = Plan {
        address: address.to_owned(),
        connections: CONNECTIONS,
        duration: Duration::from_secs(4),
        rate: None,
    };
    load::run(&plan, load::fixed(request)).await
}

fn collect(into: &mut Vec<f64>, report: Report, keep: bool) {
    if let Some(failure) = &report.first_failure {
        eprintln!("{} answers were not 2xx; the first: {failure}", report.failed);
    }
    if keep {
        into.push(report.rate());
    }
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}

/// `wasmtime serve` says its address on standard error.
fn wasmtime_serve(mut command: Command) -> Result<(Child, String)> {
    use std::io::{BufRead, BufReader};
    let mut child = Child(command.spawn()?);
    let stderr = child.0.stderr.take();
    let mut lines =
        BufReader::new(stderr.ok_or_else(|| anyhow::anyhow!("no standard error"))?).lines();
    let first = lines
        .next()
        .ok_or_else(|| anyhow::anyhow!("wasmtime serve ended without an address"))??;
    let address =
        first.split("http://").nth(1).unwrap_or_default().trim_end_matches('/').to_owned();
    std::thread::spawn(move || lines.for_each(drop));
    Ok((child, address))
}

struct Child(std::process::Child);

impl Drop for Child {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}
