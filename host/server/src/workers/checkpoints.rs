//! Signs a checkpoint of each audit log that grew: after a minute, or a thousand rows.
//!
//! Every host looks, and the first one's checkpoint counts. A row that is overlooked here (one that
//! a slower batch committed behind its number) is signed with the next one, or when somebody asks
//! for a checkpoint.

use std::collections::HashMap;
use std::sync::Arc;

use charter_governance::audit::Log;
use charter_kernel::time::Instant;
use charter_kernel::unit::{Draft, Key, Reach, Space, Unit, Write};

use super::fair::LOOK_EVERY;
use crate::app::App;

/// Rows after which a checkpoint is signed at once.
const ROWS: u64 = 1_000;
/// How long a row waits for its checkpoint.
const WAIT_MS: i64 = 60_000;
/// Rows looked at in one turn.
const TURN_ROWS: u32 = 50_000;
/// Logs that wait at one time; more are signed at once.
const WAITING_MAX: usize = 10_000;

struct Waiting {
    since: Instant,
    rows: u64,
}

impl Waiting {
    /// A log that seems to wait since later than now waits since before the clock was set back.
    fn is_due(&self, now: Instant) -> bool {
        self.rows >= ROWS || !(0..WAIT_MS).contains(&now.0.saturating_sub(self.since.0))
    }
}

/// Never ends by itself.
pub(super) async fn run(app: Arc<App>) {
    let mut waiting: HashMap<String, Waiting> = HashMap::new();
    let mut at = mark(&app).await;
    let mut marked = at;
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let now = app.clock.now();
        match app.store.count_audit_rows_since(at, TURN_ROWS).await {
            Ok((found, last)) => {
                for (organization, rows) in found {
                    waiting.entry(organization).or_insert(Waiting { since: now, rows: 0 }).rows +=
                        rows;
                }
                at = last;
            }
            Err(error) => tracing::warn!(
                error = &error as &dyn std::error::Error,
                "new audit rows could not be looked for"
            ),
        }
        let full = waiting.len() > WAITING_MAX;
        let due: Vec<String> = waiting
            .iter()
            .filter(|(_, found)| full || found.is_due(now))
            .map(|(organization, _)| organization.clone())
            .collect();
        for organization in due {
            match Log::of(&app.store, &organization).checkpoint().await {
                Ok(_) => drop(waiting.remove(&organization)),
                Err(refusal) => tracing::warn!(
                    organization,
                    message = refusal.message,
                    "an audit log could not be signed yet"
                ),
            }
        }
        if waiting.is_empty() && at != marked && keep(&app, at).await {
            marked = at;
        }
    }
}

fn key() -> Key {
    Key::new(&Reach::deployment(), &Space::host("audit_mark"), "signed")
}

/// Up to where all rows were signed before.
async fn mark(app: &App) -> u64 {
    let row = app.store.get(&key()).await.ok().flatten();
    row.and_then(|row| row.body.parse().ok()).unwrap_or(0)
}

async fn keep(app: &App, at: u64) -> bool {
    let draft = Draft { body: at.to_string(), ..Draft::default() };
    let unit = Unit { writes: vec![Write::Put { key: key(), draft }], ..Unit::default() };
    app.store.commit(unit).await.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_due_by_its_rows_its_age_or_a_clock_that_was_set_back() {
        let is_due = |rows, age_ms| {
            Waiting { since: Instant(WAIT_MS), rows }.is_due(Instant(WAIT_MS + age_ms))
        };
        assert!(!is_due(1, 0) && !is_due(1, WAIT_MS - 1));
        assert!(is_due(1, WAIT_MS) && is_due(ROWS, 0) && is_due(1, -1));
    }
}
