//! Durable sends through the whole pipeline, and the committer alone, beside a writer of one transaction a request.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::load::{self, Plan};
use crate::server::Server;
use crate::table::Row;
use crate::tools::{self, Scratch, Tools};

const CONNECTIONS: usize = 64;

/// The rows of this part.
pub async fn measure(tools: &Tools) -> Result<Vec<Row>> {
    let scratch = Scratch::new(tools, "sends")?;
    let charter = Server::charter(&tools.charter, &scratch.0, &tools.components)?;
    charter.reachable().await?;
    let key = tools::register(&charter, "sends").await?;
    let mut requests = Vec::new();
    for n in 0..CONNECTIONS {
        let queue = tools::queue(&charter, &key, &format!("send-{n}")).await?;
        let body = r#"{"messages":[{"body":{"company":"Initech","employees":42}}]}"#;
        let authorization = format!("Bearer {key}");
        requests.push(load::request(
            "POST",
            &format!("/v1/queue/{queue}/messages"),
            &[("authorization", &authorization)],
            Some(body),
        ));
    }
    let plan =
        Plan { address: charter.address.clone(), connections: CONNECTIONS, duration: Duration::from_secs(6), rate: None };
    let make: load::Requests = Arc::new(move |connection, _| requests[connection].clone());
    load::run(&Plan { duration: Duration::from_secs(2), ..plan.clone() }, Arc::clone(&make)).await;
    let report = load::run(&plan, make).await;
    if let Some(failure) = &report.first_failure {
        eprintln!("{} sends were not 2xx; the first: {failure}", report.failed);
    }
    let sends = report.rate();
    drop(charter);

    let store = tools::figures(&tools.committer, &[&scratch.0.to_string_lossy()])?;
    let (writer, committer) = (figure(&store, "sqlite_writer_32")?, figure(&store, "sqlite_committer_32")?);
    let mut rows = vec![
        ratio("durable sends / a transaction per request", sends, figure(&store, "sqlite_writer_1")?.max(writer), "≥ 5 ×", 5.0),
        Row {
            name: "durable sends / the committer alone",
            figure: format!("{:.0} %", 100.0 * sends / figure(&store, "sqlite_committer_64")?),
            target: "≥ 30 %",
            reached: sends / figure(&store, "sqlite_committer_64")? >= 0.30,
            detail: format!("{sends:.0}/s and {:.0}/s", figure(&store, "sqlite_committer_64")?),
        },
        ratio("committer at 32 in flight / that writer, SQLite", committer, writer, "≥ 10 ×", 10.0),
    ];
    if store.get("postgres_committer_32").is_some() {
        let (writer, committer) = (figure(&store, "postgres_writer_32")?, figure(&store, "postgres_committer_32")?);
        rows.push(ratio("committer / 32 connections one by one, PostgreSQL", committer, writer, "≥ 4 ×", 4.0));
        let (writer, committer) = (figure(&store, "postgres_writer_hot_32")?, figure(&store, "postgres_committer_hot_32")?);
        rows.push(ratio("the same on one hot row, PostgreSQL", committer, writer, "≥ 15 ×", 15.0));
    }
    let instantiate = tools::figures(&tools.instantiate, &[&tools.components.join("queue.wasm").to_string_lossy()])?;
    let micros = figure(&instantiate, "instantiate_p50_us")?;
    rows.push(Row {
        name: "instantiate, p50",
        figure: format!("{micros:.1} µs"),
        target: "≤ 10 µs",
        reached: micros <= 10.0,
        detail: format!("p99 {:.1} µs", figure(&instantiate, "instantiate_p99_us")?),
    });
    Ok(rows)
}

fn figure(figures: &Value, name: &str) -> Result<f64> {
    figures[name].as_f64().with_context(|| format!("no figure {name}"))
}

fn ratio(name: &'static str, ours: f64, theirs: f64, target: &'static str, least: f64) -> Row {
    Row {
        name,
        figure: format!("{:.1} ×", ours / theirs),
        target,
        reached: ours / theirs >= least,
        detail: format!("{ours:.0}/s and {theirs:.0}/s"),
    }
}
