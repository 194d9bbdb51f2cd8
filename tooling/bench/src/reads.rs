//! Reading one queue through the whole pipeline, beside a bare hyper server and beside `wasmtime
//! serve`.

use std::process::{Command, Stdio};

use anyhow::Result;

use crate::bare::Bare;
use crate::load::{self, Plan};
use crate::table::{Row, median};
use crate::tools::{self, Scratch, Tools};

const CONNECTIONS: usize = 64;

/// The rows of this part.
pub async fn measure(tools: &Tools) -> Result<Vec<Row>> {
    let scratch = Scratch::new(tools, "reads")?;
    let charter = tools.server(&scratch.0).await?;
    let key = tools::register(&charter, "reads").await?;
    let queue = tools::queue(&charter, &key, "read").await?;
    let path = format!("/v1/queue/{queue}");
    let body = charter.json("GET", &path, &key, None).await?.to_string();

    let bare = Bare::start(body.clone().into())?;
    let read = load::request("GET", &path, &[("authorization", &format!("Bearer {key}"))], None);
    let plain = load::request("GET", "/", &[], None);
    // Each is warmed up, then they take turns, so that a drifting machine drifts for all.
    let serve = match &tools.wasmtime {
        Some(wasmtime) => {
            let mut command = Command::new(wasmtime);
            command
                .args(["serve", "--addr", "127.0.0.1:0", "-Scli", "--env"])
                .arg(format!("BODY={body}"))
                .arg(tools.proxy());
            command.stderr(Stdio::piped());
            Some(wasmtime_serve(command)?)
        }
        None => None,
    };
    let (mut ours, mut hyper, mut theirs) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..tools.pace.count(4) {
        let (one, two) = (
            drive(tools, &bare.address, plain.clone()).await?,
            drive(tools, &charter.address, read.clone()).await?,
        );
        let three = match &serve {
            Some((_, address)) => Some(drive(tools, address, plain.clone()).await?),
            None => None,
        };
        if round > 0 {
            hyper.push(one);
            ours.push(two);
            theirs.extend(three);
        }
    }
    let (ours, hyper) = (median(ours), median(hyper));
    let mut rows = vec![Row::share("reading one queue / bare hyper", ours, hyper, 0.20)];
    if serve.is_some() {
        rows.push(Row::at_least("reading one queue / wasmtime serve", ours, median(theirs), 2.0));
    }
    Ok(rows)
}

async fn drive(tools: &Tools, address: &str, request: Vec<u8>) -> Result<f64> {
    let plan = Plan {
        address: address.to_owned(),
        connections: CONNECTIONS,
        duration: tools.pace.time(4.0),
        rate: None,
    };
    load::run(&plan, load::repeat(request)).await.rate()
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
