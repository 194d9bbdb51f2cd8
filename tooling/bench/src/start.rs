//! Cold start with fifty components whose compiled code is cached: time to the first answer, and
//! memory.

use std::time::{Duration, Instant};

use anyhow::Result;

use crate::load;
use crate::server::Server;
use crate::table::Row;
use crate::tools::{self, Scratch, Tools};

/// The rows of this part.
pub async fn measure(tools: &Tools) -> Result<Vec<Row>> {
    let scratch = Scratch::new(tools, "start")?;
    let components = scratch.0.join("components");
    std::fs::create_dir_all(&components)?;
    let wasm = std::fs::read(tools.copied_component())?;
    for n in 0..tools.pace.count(50) as u8 {
        let name = format!("bench-{}{}", char::from(b'a' + n / 26), char::from(b'a' + n % 26));
        std::fs::write(components.join(format!("{name}.wasm")), tools::rename(&wasm, &name))?;
    }
    let data = scratch.0.join("data");
    // The first start compiles; it is not measured.
    let first = Server::charter(&tools.charter, &data, &components)?;
    first.reachable().await?;
    let key = tools::register(&first, "start").await?;
    let path = "/v1/bench-ab/ping";
    first.json("GET", path, &key, None).await?;
    drop(first);

    let (mut times, mut resident) = (Vec::new(), 0);
    for _ in 0..tools.pace.count(5) {
        let began = Instant::now();
        let server = Server::charter(&tools.charter, &data, &components)?;
        let request =
            load::request("GET", path, &[("authorization", &format!("Bearer {key}"))], None);
        let mut answer = Vec::new();
        while !matches!(
            load::exchange(&server.address, &mut None, &request, &mut answer).await,
            Ok(200)
        ) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        times.push(began.elapsed());
        resident = server.resident()?;
    }
    times.sort_unstable();
    let median = times[times.len() / 2];
    Ok(vec![
        Row {
            name: "cold start, 50 cached components, to the first answer",
            figure: format!("{} ms", median.as_millis()),
            target: "≤ 300 ms".into(),
            reached: median <= Duration::from_millis(300),
            detail: format!("{times:?}"),
        },
        Row {
            name: "resident then",
            figure: format!("{} MiB", resident >> 20),
            target: "≤ 150 MB".into(),
            reached: resident <= 150_000_000,
            detail: String::new(),
        },
    ])
}
