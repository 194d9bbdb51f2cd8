//! Durable sends through the whole pipeline, beside the committer alone and a writer of one
//! transaction a request.

use std::sync::Arc;

use anyhow::Result;

use crate::committer;
use crate::load::{self, Plan};
use crate::table::Row;
use crate::tools::{self, Scratch, Tools};

const CONNECTIONS: usize = 64;

/// The rows of this part.
pub async fn measure(tools: &Tools) -> Result<Vec<Row>> {
    let committer = committer::sqlite(tools).await?;
    let scratch = Scratch::new(tools, "sends")?;
    let charter = tools.server(&scratch.0).await?;
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
        duration: tools.pace.time(6.0),
        rate: None,
    };
    let make: load::Requests = Arc::new(move |connection, _| requests[connection].clone());
    load::run(&Plan { duration: tools.pace.time(2.0), ..plan.clone() }, Arc::clone(&make)).await;
    let sends = load::run(&plan, make).await.rate()?;
    drop(charter);

    let (writer, alone) = (committer.writer(), committer.committer());
    Ok(vec![
        Row::at_least("durable sends / a transaction per request", sends, writer, 5.0),
        Row::share("durable sends / the committer alone", sends, alone, 0.30),
    ])
}
