//! A load generator that costs little itself: fixed request bytes over kept-alive HTTP/1.1
//! connections, responses framed by `Content-Length`. It knows nothing of what it asks for; it
//! counts what comes back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The result of one run.
#[derive(Debug, Default, Clone)]
pub struct Report {
    /// The server that was asked.
    pub address: String,
    /// Answers whose status was 2xx.
    pub ok: u64,
    /// Everything else, lost connections included.
    pub failed: u64,
    /// How long the run took.
    pub elapsed: Duration,
    /// Every latency, sorted.
    pub latencies: Vec<Duration>,
    /// The first unexpected answer, for the person who reads the table.
    pub first_failure: Option<String>,
}

impl Report {
    /// Answers a second. Some may have failed, and the first is printed; a run of which more than
    /// one in a hundred failed measured something else.
    pub fn rate(&self) -> Result<f64> {
        if let Some(failure) = &self.first_failure {
            let text = format!("{} answers were not 2xx; the first: {failure}", self.failed);
            if self.failed * 100 > self.ok {
                bail!("{text}");
            }
            eprintln!("{text}");
        }
        if self.ok == 0 {
            bail!("{} answered nothing", self.address);
        }
        Ok(self.ok as f64 / self.elapsed.as_secs_f64())
    }

    /// The latency that this share of the answers stayed under.
    pub fn percentile(&self, share: f64) -> Duration {
        let last = self.latencies.len().saturating_sub(1);
        self.latencies.get((last as f64 * share) as usize).copied().unwrap_or_default()
    }
}

/// How a run is driven.
#[derive(Clone)]
pub struct Plan {
    /// `127.0.0.1:port`.
    pub address: String,
    /// Connections, each with one request in flight.
    pub connections: usize,
    /// When to stop.
    pub duration: Duration,
    /// At most this many requests a second over all connections; as fast as possible if absent.
    pub rate: Option<f64>,
}

/// One request's bytes. `{n}` in the body or head of a template is not touched: requests are made
/// by the caller.
pub type Requests = Arc<dyn Fn(usize, u64) -> Vec<u8> + Send + Sync>;

/// A request whose bytes never change.
pub fn repeat(bytes: Vec<u8>) -> Requests {
    Arc::new(move |_, _| bytes.clone())
}

/// The bytes of a request with an optional JSON body.
pub fn request(method: &str, path: &str, headers: &[(&str, &str)], body: Option<&str>) -> Vec<u8> {
    let mut text = format!("{method} {path} HTTP/1.1\r\nhost: charter\r\n");
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    if let Some(body) = body {
        text.push_str(&format!(
            "content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        ));
    } else {
        text.push_str("\r\n");
    }
    text.into_bytes()
}

/// Drives `plan` and reports.
pub async fn run(plan: &Plan, requests: Requests) -> Report {
    let stop = Arc::new(AtomicBool::new(false));
    let began = Instant::now();
    let mut tasks = Vec::with_capacity(plan.connections);
    for connection in 0..plan.connections {
        let (plan, stop, requests) = (plan.clone(), Arc::clone(&stop), Arc::clone(&requests));
        tasks.push(tokio::spawn(async move { drive(connection, &plan, &stop, &requests).await }));
    }
    tokio::time::sleep(plan.duration).await;
    stop.store(true, Ordering::Relaxed);
    let mut whole = Report { address: plan.address.clone(), ..Report::default() };
    for task in tasks {
        let Ok(part) = task.await else { continue };
        whole.ok += part.ok;
        whole.failed += part.failed;
        whole.latencies.extend(part.latencies);
        whole.first_failure = whole.first_failure.or(part.first_failure);
    }
    whole.elapsed = began.elapsed();
    whole.latencies.sort_unstable();
    whole
}

async fn drive(connection: usize, plan: &Plan, stop: &AtomicBool, requests: &Requests) -> Report {
    let mut report = Report::default();
    let mut socket: Option<TcpStream> = None;
    let mut buffer = Vec::with_capacity(64 * 1024);
    let pause = plan.rate.map(|rate| Duration::from_secs_f64(plan.connections as f64 / rate));
    let mut next = tokio::time::Instant::now();
    let mut count = 0;
    while !stop.load(Ordering::Relaxed) {
        if let Some(pause) = pause {
            tokio::time::sleep_until(next).await;
            next = (next + pause).max(tokio::time::Instant::now() - pause);
        }
        let bytes = requests(connection, count);
        count += 1;
        let began = Instant::now();
        match exchange(&plan.address, &mut socket, &bytes, &mut buffer).await {
            Ok(status) if (200..300).contains(&status) => {
                report.ok += 1;
                report.latencies.push(began.elapsed());
            }
            Ok(status) => {
                report.failed += 1;
                report.first_failure.get_or_insert_with(|| {
                    format!("{status}: {}", String::from_utf8_lossy(&buffer))
                });
            }
            Err(error) => {
                socket = None;
                report.failed += 1;
                report.first_failure.get_or_insert_with(|| format!("{error:#}"));
            }
        }
    }
    report
}

/// Sends one request and reads its whole answer; `buffer` then holds the answer's bytes.
pub async fn exchange(
    address: &str,
    socket: &mut Option<TcpStream>,
    request: &[u8],
    buffer: &mut Vec<u8>,
) -> Result<u16> {
    if socket.is_none() {
        let fresh = TcpStream::connect(address).await.context("connect")?;
        fresh.set_nodelay(true)?;
        *socket = Some(fresh);
    }
    let Some(stream) = socket.as_mut() else { bail!("no connection") };
    stream.write_all(request).await.context("write")?;
    buffer.clear();
    loop {
        if let Some((status, head, length)) = head(buffer) {
            while buffer.len() < head + length {
                fill(stream, buffer).await?;
            }
            return Ok(status);
        }
        fill(stream, buffer).await?;
    }
}

async fn fill(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Result<()> {
    let read = stream.read_buf(buffer).await.context("read")?;
    if read == 0 {
        bail!("the server closed the connection");
    }
    Ok(())
}

/// Status, length of the head, and length of the body, once the head is complete.
fn head(bytes: &[u8]) -> Option<(u16, usize, usize)> {
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    let text = std::str::from_utf8(&bytes[..end]).ok()?;
    let status = text.get(9..12)?.parse().ok()?;
    let length = text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
    });
    Some((status, end, length.unwrap_or(0)))
}
