//! The cost of open streams that nobody sends anything on: resident memory of the host before and
//! after.

use anyhow::{Result, bail};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::load;
use crate::table::Row;
use crate::tools::{self, Scratch, Tools};

/// Organizations, of which each may have a thousand streams.
const ORGANIZATIONS: usize = 4;
const STREAMS_EACH: usize = 500;
/// The most that they may cost together.
const BYTES_MAX: u64 = 64_000_000;

/// The rows of this part.
pub async fn measure(tools: &Tools) -> Result<Vec<Row>> {
    let scratch = Scratch::new(tools, "streams")?;
    let charter = tools.server(&scratch.0).await?;
    let mut keys = Vec::new();
    for n in 0..tools.pace.count(ORGANIZATIONS) {
        keys.push(tools::register(&charter, &format!("streams{n}")).await?);
    }
    // The first stream also makes what all of them share, and is not counted.
    let mut open = vec![stream(&charter.address, &keys[0]).await?];
    let before = charter.resident()?;
    for key in &keys {
        for _ in 0..tools.pace.count(STREAMS_EACH) {
            open.push(stream(&charter.address, key).await?);
        }
    }
    let cost = charter.resident()?.saturating_sub(before);
    Ok(vec![Row {
        name: "2,000 idle event streams",
        figure: format!("{:.1} MB", cost as f64 / 1e6),
        target: "< 64 MB".into(),
        reached: cost < BYTES_MAX,
        detail: format!("{} KB each", cost / 1_000 / (open.len() as u64 - 1)),
    }])
}

/// A stream whose head has come.
async fn stream(address: &str, key: &str) -> Result<TcpStream> {
    let mut socket = TcpStream::connect(address).await?;
    let authorization = format!("Bearer {key}");
    let headers = [("authorization", authorization.as_str()), ("accept", "text/event-stream")];
    socket.write_all(&load::request("GET", "/v1/events", &headers, None)).await?;
    let mut head = Vec::new();
    while !head.windows(4).any(|window| window == b"\r\n\r\n") {
        if socket.read_buf(&mut head).await? == 0 {
            bail!("a stream was closed: {}", String::from_utf8_lossy(&head));
        }
    }
    if !head.starts_with(b"HTTP/1.1 200") {
        bail!("a stream was refused: {}", String::from_utf8_lossy(&head));
    }
    Ok(socket)
}
