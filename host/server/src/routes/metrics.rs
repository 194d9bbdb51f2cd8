//! `GET /metrics`, for the operator.

use std::time::Duration;

use charter_adapters::mail::outbox;
use charter_kernel::authority::Class;
use charter_kernel::refusal::Refusal;
use charter_store::Txn;

use crate::app::App;
use crate::handler;
use crate::metrics::Sample;
use crate::reply::Reply;
use crate::request::HostRequest;
use crate::route::HostRoute;

/// The media type of the answer.
pub const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// How long a scrape waits for the database: who scrapes is told of its troubles too.
const ASKED_FOR: Duration = Duration::from_secs(1);

/// The row of this route.
pub fn routes() -> Vec<HostRoute> {
    vec![
        HostRoute::get(Class::Operator, "metrics", "/metrics", handler!(get_metrics))
            .operator()
            .root()
            .summary("Metrics in the OpenMetrics text format")
            .produces(MEDIA_TYPE),
    ]
}

/// All counters in the OpenMetrics text format. The database's own numbers are left out while it
/// does not answer.
///
/// # Errors
/// When they cannot be written.
pub async fn get_metrics(app: &App, _: &HostRequest, _: &mut Txn) -> Result<Reply, Refusal> {
    let waiting = tokio::time::timeout(ASKED_FOR, outbox::waiting(&app.store)).await;
    let mails = waiting.ok().and_then(Result::ok).map(|mails| Sample {
        name: "mails_waiting",
        help: "Mails that wait to be sent, in the whole deployment",
        value: mails as f64,
    });
    app.metrics
        .text(mails.into_iter().collect())
        .map(|text| Reply::text(MEDIA_TYPE, text))
        .map_err(|_| Refusal::internal())
}
