//! Reads while the deployment is small, and while it holds a million users.
//!
//! The large one is made of the small one's backup: its users and queues are repeated under other
//! ids, and the file is restored. Gigabytes and minutes, so this part runs only when it is asked
//! for by name.

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::load::{self, Plan, Report, Requests};
use crate::server::Server;
use crate::table::Row;
use crate::tools::{self, Scratch, Tools};

/// Users of the small deployment, each with a queue: what is read, in both.
pub const SMALL: usize = 1_000;
/// Users of the large one, unless another number is asked for.
pub const LARGE: usize = 1_000_000;
/// Documents of each user that is added.
const DOCUMENTS: usize = 10;
/// Reads a second: far from what either can do, so that their time is not spent in queues.
const RATE: f64 = 2_000.0;
const ROUNDS: usize = 3;

/// The rows of this part.
pub async fn measure(tools: &Tools, users: usize) -> Result<Vec<Row>> {
    let (small, large) = (Scratch::new(tools, "scale-small")?, Scratch::new(tools, "scale-large")?);
    // Only queues are read: nothing else is compiled.
    let components = small.0.join("components");
    std::fs::create_dir_all(&components)?;
    std::fs::copy(tools.components.join("queue.wasm"), components.join("queue.wasm"))?;
    let charter = Server::charter(&tools.charter, &small.0, &components)?;
    charter.reachable().await?;
    let key = tools::register(&charter, "scale").await?;
    let reads = furnish(tools, &charter, &key).await?;
    drop(charter);

    let (taken, grown) = (large.0.join("small.jsonl"), large.0.join("large.jsonl"));
    command(tools, &["backup"], &taken, &small.0)?;
    grow(&taken, &grown, users).context("repeat the backup's users")?;
    std::fs::copy(small.0.join("master.key"), large.0.join("master.key"))?;
    command(tools, &["restore"], &grown, &large.0)?;
    std::fs::remove_file(&grown)?;

    let servers = [
        Server::charter(&tools.charter, &small.0, &components)?,
        Server::charter(&tools.charter, &large.0, &components)?,
    ];
    let mut p99 = [Vec::new(), Vec::new()];
    for server in &servers {
        server.reachable().await?;
        read(tools, server, &reads, 5.0).await?;
    }
    for _ in 0..tools.pace.count(ROUNDS) {
        for (server, p99) in servers.iter().zip(&mut p99) {
            p99.push(read(tools, server, &reads, 10.0).await?.percentile(0.99));
        }
    }
    p99.iter_mut().for_each(|rounds| rounds.sort_unstable());
    let [small, large] = p99.map(|rounds| rounds[rounds.len() / 2]);
    let ratio = large.as_secs_f64() / small.as_secs_f64();
    Ok(vec![Row {
        name: "read p99, a large deployment / a small one",
        figure: format!("{ratio:.2} ×"),
        target: "≤ 1.5 ×".into(),
        reached: ratio <= 1.5,
        detail: format!(
            "{large:?} with {users} users and {} documents, {small:?} with {SMALL}",
            users * DOCUMENTS
        ),
    }])
}

/// Users, each with a queue; answers the requests that read them.
async fn furnish(tools: &Tools, charter: &Server, key: &str) -> Result<Requests> {
    let authorization = format!("Bearer {key}");
    let mut reads = Vec::with_capacity(SMALL);
    for n in 0..tools.pace.count(SMALL) {
        let user = charter
            .json("POST", "/v1/users", key, Some(&json!({"name": format!("user {n}")})))
            .await?;
        let user = user["user"]["id"].as_str().context("a user's id")?.to_owned();
        let headers =
            [("authorization", authorization.as_str()), ("x-service-user-id", user.as_str())];
        let made = charter
            .send(&load::request("POST", "/v1/queue", &headers, Some(r#"{"name":"queue"}"#)))
            .await?;
        let queue = made["queue"]["id"].as_str().context("a queue's id")?;
        reads.push(load::request("GET", &format!("/v1/queue/{queue}"), &headers, None));
    }
    let next = move |connection: usize, count: u64| {
        let n = (connection as u64 * 7_919 + count).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        reads[n as usize % reads.len()].clone()
    };
    Ok(Arc::new(next))
}

async fn read(tools: &Tools, server: &Server, reads: &Requests, seconds: f64) -> Result<Report> {
    let plan = Plan {
        address: server.address.clone(),
        connections: 16,
        duration: tools.pace.time(seconds),
        rate: Some(RATE),
    };
    let report = load::run(&plan, reads.clone()).await;
    match &report.first_failure {
        Some(failure) => bail!("a read failed: {failure}"),
        None => Ok(report),
    }
}

fn command(tools: &Tools, verb: &[&str], file: &Path, data: &Path) -> Result<()> {
    let done =
        Command::new(&tools.charter).args(verb).arg(file).arg("--data").arg(data).output()?;
    if !done.status.success() {
        bail!("charter {} failed: {}", verb.join(" "), String::from_utf8_lossy(&done.stderr));
    }
    Ok(())
}

/// A row of the backup that is repeated, and the ids in it that are replaced.
struct Pattern {
    line: String,
    user: String,
    queue: Option<String>,
}

impl Pattern {
    fn of(&self, user: usize, queue: usize) -> String {
        let own = format!("{user:08x}-0000-7000-8000-000000000000");
        let line = self.line.replace(&self.user, &own);
        match &self.queue {
            Some(known) => {
                line.replace(known, &format!("{user:08x}-{queue:04x}-7000-9000-000000000000"))
            }
            None => line,
        }
    }
}

/// Writes the backup with more users, each with the rows that one user and its queue have.
fn grow(from: &Path, to: &Path, users: usize) -> Result<()> {
    let lines = BufReader::new(File::open(from)?).lines().collect::<std::io::Result<Vec<_>>>()?;
    let rows: Vec<Value> =
        lines.iter().map(|line| serde_json::from_str(line)).collect::<serde_json::Result<_>>()?;
    let cell = |row: &Value, n: usize| row["row"][n].as_str().unwrap_or_default().to_owned();
    let known =
        rows.iter().find(|row| cell(row, 1) == "queue.queues").context("no queue in the backup")?;
    let (user, queue) = (cell(known, 0).trim_start_matches("u/").to_owned(), cell(known, 2));
    let mut out = Grown {
        file: BufWriter::with_capacity(1 << 20, File::create(to)?),
        digest: Sha256::new(),
        rows: 0,
    };
    let mut table = Vec::new();
    for (line, row) in lines.iter().zip(&rows) {
        if row.get("row").is_none() {
            // The table is over: its added rows, in the order of its key, follow those that were
            // there.
            out.repeat(&std::mem::take(&mut table), users)?;
        }
        if row.get("trailer").is_some() {
            break;
        }
        out.line(line)?;
        let own = cell(row, 0) == format!("u/{user}")
            || (cell(row, 1) == "host.users" && line.contains(&user));
        if own {
            let queue = line.contains(&queue).then(|| queue.clone());
            table.push(Pattern { line: line.clone(), user: user.clone(), queue });
        }
    }
    out.end()
}

/// The file that is written.
struct Grown {
    file: BufWriter<File>,
    digest: Sha256,
    rows: u64,
}

impl Grown {
    fn line(&mut self, line: &str) -> Result<()> {
        self.rows += u64::from(line.starts_with(r#"{"row""#));
        self.digest.update(line);
        self.digest.update("\n");
        writeln!(self.file, "{line}")?;
        Ok(())
    }

    fn repeat(&mut self, patterns: &[Pattern], users: usize) -> Result<()> {
        for pattern in patterns {
            for user in SMALL..users {
                let copies = if pattern.queue.is_some() { DOCUMENTS } else { 1 };
                for queue in 0..copies {
                    self.line(&pattern.of(user, queue))?;
                }
            }
        }
        Ok(())
    }

    fn end(mut self) -> Result<()> {
        let sha256: String =
            self.digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        writeln!(self.file, "{}", json!({"trailer": {"rows": self.rows, "sha256": sha256}}))?;
        Ok(self.file.flush()?)
    }
}
