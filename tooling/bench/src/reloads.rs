//! Activations under load, and what a thousand of them leave behind.

use std::time::Duration;

use anyhow::Result;
use serde_json::json;

use crate::load::{self, Plan};
use crate::server::{OPERATOR, Server};
use crate::table::Row;
use crate::tools::{self, Scratch, Tools};

const CONNECTIONS: usize = 32;

/// The rows of this part.
pub async fn measure(tools: &Tools) -> Result<Vec<Row>> {
    let scratch = Scratch::new(tools, "reloads")?;
    let charter = tools.server(&scratch.0).await?;
    let key = tools::register(&charter, "reloads").await?;
    let queue = tools::queue(&charter, &key, "reload").await?;
    let wasm = std::fs::read(tools.components.join("queue.wasm"))?;
    let mut digests = Vec::new();
    for version in ["0.1.1", "0.1.2"] {
        let staged = charter.upload("queue", &tools::set_version(&wasm, version), false).await?;
        digests.push(staged["component"]["digest"].as_str().unwrap_or_default().to_owned());
    }

    let read = load::request(
        "GET",
        &format!("/v1/queue/{queue}"),
        &[("authorization", &format!("Bearer {key}"))],
        None,
    );
    let plan = Plan {
        address: charter.address.clone(),
        connections: CONNECTIONS,
        duration: tools.pace.time(5.0),
        rate: None,
    };
    let full = load::run(&plan, load::repeat(read.clone())).await.rate()?;
    let calm_plan = Plan { duration: tools.pace.time(30.0), rate: Some(full * 0.7), ..plan };
    let calm = load::run(&calm_plan, load::repeat(read.clone())).await;
    let (storm, swaps) = tokio::join!(
        load::run(&calm_plan, load::repeat(read)),
        activations(&charter, &digests, tools.pace.count(100), Duration::from_millis(290))
    );
    swaps?;
    let ratio = storm.percentile(0.99).as_secs_f64() / calm.percentile(0.99).as_secs_f64();
    let mut rows = vec![
        Row {
            name: "reload storm: failed requests",
            figure: storm.failed.to_string(),
            target: "0".into(),
            reached: storm.failed == 0,
            detail: storm
                .first_failure
                .clone()
                .unwrap_or_else(|| format!("{} answered during 100 activations", storm.ok)),
        },
        Row {
            name: "reload storm: p99 / calm p99",
            figure: format!("{ratio:.2} ×"),
            target: "≤ 1.5 ×".into(),
            reached: ratio <= 1.5,
            detail: format!(
                "{:?} and {:?} at {:.0}/s",
                storm.percentile(0.99),
                calm.percentile(0.99),
                full * 0.7
            ),
        },
    ];

    activations(&charter, &digests, tools.pace.count(200), Duration::ZERO).await?;
    let before = charter.resident()?;
    activations(&charter, &digests, tools.pace.count(1_000), Duration::ZERO).await?;
    let growth = charter.resident()? as f64 / before as f64;
    rows.push(Row {
        name: "memory after 1,000 reloads / before",
        figure: format!("{growth:.3} ×"),
        target: "flat (≤ 1.05 ×)".into(),
        reached: growth <= 1.05,
        detail: format!("{} MiB before", before >> 20),
    });
    Ok(rows)
}

async fn activations(
    charter: &Server,
    digests: &[String],
    count: usize,
    pause: Duration,
) -> Result<()> {
    for n in 0..count {
        let body = json!({"digest": digests[n % digests.len()]});
        charter
            .json("POST", "/v1/operator/components/queue/activate", OPERATOR, Some(&body))
            .await?;
        tokio::time::sleep(pause).await;
    }
    Ok(())
}
