//! `GET /metrics`, for the operator.

use charter_kernel::refusal::Refusal;
use charter_store::Txn;

use crate::app::App;
use crate::reply::Reply;
use crate::request::HostRequest;

/// The media type of the answer.
pub const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// All counters in the OpenMetrics text format.
///
/// # Errors
/// When they cannot be written.
pub async fn get(app: &App, _: &HostRequest, _: &mut Txn) -> Result<Reply, Refusal> {
    app.metrics.text().map(|text| Reply::text(MEDIA_TYPE, text)).map_err(|_| Refusal::internal())
}
