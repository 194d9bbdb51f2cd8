//! `GET /metrics`, for the operator.

use std::time::Duration;

use charter_kernel::refusal::Refusal;
use charter_store::Txn;

use crate::app::App;
use crate::mail::outbox;
use crate::metrics::Asked;
use crate::reply::Reply;
use crate::request::HostRequest;

/// The media type of the answer.
pub const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// How long a scrape waits for the database: who scrapes is told of its troubles too.
const ASKED_FOR: Duration = Duration::from_secs(1);

/// All counters in the OpenMetrics text format. What the database holds is left out while it does
/// not answer.
///
/// # Errors
/// When they cannot be written.
pub async fn get(app: &App, _: &HostRequest, _: &mut Txn) -> Result<Reply, Refusal> {
    let waiting = tokio::time::timeout(ASKED_FOR, outbox::waiting(&app.store)).await;
    let mails = waiting.ok().and_then(Result::ok).map(|mails| Asked {
        name: "mails_waiting",
        help: "Mails that wait to be sent, in the whole deployment",
        value: mails as f64,
    });
    app.metrics
        .text(mails.into_iter().collect())
        .map(|text| Reply::text(MEDIA_TYPE, text))
        .map_err(|_| Refusal::internal())
}
