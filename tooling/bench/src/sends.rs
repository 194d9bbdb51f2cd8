//! Durable sends through the whole pipeline, beside the committer alone and a writer of one
//! transaction a request.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;

use crate::committer::Figures;
use crate::load::{self, Plan};
use crate::server::Server;
use crate::table::Row;
use crate::tools::{self, Scratch, Tools};

const CONNECTIONS: usize = 64;

/// The rows of this part.
pub async fn measure(tools: &Tools, committer: &Figures) -> Result<Vec<Row>> {
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
    let plan = Plan {
        address: charter.address.clone(),
        connections: CONNECTIONS,
        duration: Duration::from_secs(6),
        rate: None,
    };
    let make: load::Requests = Arc::new(move |connection, _| requests[connection].clone());
    load::run(&Plan { duration: Duration::from_secs(2), ..plan.clone() }, Arc::clone(&make)).await;
    let report = load::run(&plan, make).await;
    if let Some(failure) = &report.first_failure {
        eprintln!("{} sends were not 2xx; the first: {failure}", report.failed);
    }
    let sends = report.rate();
    drop(charter);

    let writer = committer.writer(false, 1).max(committer.writer(false, 32));
    let alone = committer.rate(false, CONNECTIONS as u64);
    Ok(vec![
        Row::at_least("durable sends / a transaction per request", sends, writer, 5.0),
        Row::share("durable sends / the committer alone", sends, alone, 0.30),
    ])
}
