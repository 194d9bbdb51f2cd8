//! Follows what other replicas, or the command line, have changed: components, bindings, the
//! operator's token.

use std::sync::Arc;
use std::time::Duration;

use charter_store::Epoch;

use crate::app::App;

/// After a failure the next look waits so long.
const PAUSE: Duration = Duration::from_millis(500);

/// Never ends by itself.
pub(super) async fn run(app: Arc<App>) {
    let mut epochs = app.store.epoch();
    let mut seen = epochs.borrow_and_update().clone();
    loop {
        if epochs.changed().await.is_err() {
            return;
        }
        let now = epochs.borrow_and_update().clone();
        if !catch_up(&app, &seen, &now).await {
            // A missed change is looked at again with the next one, or after a pause.
            tokio::time::sleep(PAUSE).await;
            epochs.mark_changed();
            continue;
        }
        seen = now;
    }
}

/// Reads again what was written since.
async fn catch_up(app: &App, before: &Epoch, now: &Epoch) -> bool {
    let changed = |space: &str| before.spaces.get(space) != now.spaces.get(space);
    let mut fine = true;
    if changed("host.components") || changed("host.activations") {
        fine &=
            app.registry.refresh().await.inspect_err(|error| unread(error, "components")).is_ok();
    }
    if changed("host.bindings") {
        fine &= app
            .adapters
            .providers
            .refresh()
            .await
            .inspect_err(|error| unread(error, "bindings"))
            .is_ok();
    }
    if changed("host.operator") {
        let refreshed = app.operator.refresh().await;
        fine &= refreshed
            .inspect_err(|error| tracing::warn!(%error, "the operator's token cannot be read"))
            .is_ok();
    }
    fine
}

fn unread(error: &(dyn std::error::Error + 'static), what: &str) {
    tracing::warn!(error, what, "what was changed cannot be read");
}
