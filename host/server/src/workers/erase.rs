//! Removes what deleted users and projects and revoked keys leave behind: in bounded batches, each
//! fenced by the lease of its record, so that a crash only means that the next one goes on from
//! there.
//!
//! Keys go first. For the rest it waits for the primitives that were told of the end: they may
//! still want to read what goes.

use std::sync::Arc;

use charter_engine::hook;
use charter_engine::job::{JobRecord, jobs};
use charter_kernel::time::Instant;
use charter_kernel::unit::{Guard, Key, Reach, Taken, Unit, Write};
use charter_store::{CommitError, Query, ReadError};
use charter_tenancy::records::Record as _;
use charter_tenancy::records::erasure::{ERASURE_GROUP, Erasure};
use charter_tenancy::records::key::ApiKey;
use charter_tenancy::records::webhook::{TENANT, Webhook};

use super::due::Due;
use crate::app::App;

/// Records taken at once.
const TAKEN_MAX: usize = 4;
/// How long one look at a record may take before another may take it up.
const LEASE_MS: i64 = 60_000;
/// Rows, or log entries, of one batch.
const BATCH_ROWS: u32 = 200;
/// Batches of one record before the others have their turn.
const BATCHES_MAX: u32 = 50;
/// Until the next look at a record whose primitives are still at work.
const WAIT_MS: i64 = 2_000;
/// How long they are waited for. A primitive that was uninstalled meanwhile never ends its job.
const WAIT_MS_MAX: i64 = 24 * 60 * 60 * 1_000;

/// Never ends by itself.
pub(super) async fn run(app: Arc<App>) {
    let due = Due { space: Erasure::all(), group: ERASURE_GROUP.into(), lease_ms: LEASE_MS };
    due.each(&app, TAKEN_MAX, |taken| erase_one(&app, taken)).await;
}

/// The rest of a record after a look at it.
enum Left {
    /// Nothing: the record goes.
    Nothing,
    /// Look again then.
    Until(Instant),
}

async fn erase_one(app: &App, taken: Taken) {
    let Ok(erasure) = Erasure::read(&taken.row) else { return };
    let (key, token) = (taken.key, taken.token);
    let left = match look(app, &erasure, &key, &token).await {
        Ok(left) => left,
        Err(error) => {
            // Its lease ends, and somebody takes it up again.
            tracing::warn!(%error, reach = erasure.reach, "what was deleted is not all removed yet");
            return;
        }
    };
    let write = match left {
        Left::Nothing => Write::Settle { key, token },
        Left::Until(due_at) => Write::Release { key, token, due_at, undo: true },
    };
    let unit = Unit { organization: erasure.organization, writes: vec![write], ..Unit::default() };
    if let Err(error) = app.store.commit(unit).await {
        tracing::debug!(%error, reach = erasure.reach, "an erasure was taken up by another");
    }
}

async fn look(app: &App, erasure: &Erasure, key: &Key, token: &str) -> Result<Left, CommitError> {
    let now = app.clock.now();
    for _ in 0..BATCHES_MAX {
        let keys = keys(app, erasure).await.map_err(unread)?;
        if keys.is_empty() {
            break;
        }
        remove(app, erasure, (key, token), keys).await?;
    }
    if now < erasure.since.plus_ms(WAIT_MS_MAX) && at_work(app, erasure).await.map_err(unread)? {
        return Ok(Left::Until(now.plus_ms(WAIT_MS)));
    }
    let reach = Reach::from_store(erasure.reach.clone());
    for _ in 0..BATCHES_MAX {
        let keys = app.store.reach_keys(&reach, BATCH_ROWS).await.map_err(unread)?;
        if keys.is_empty() {
            let logs = app.store.forget_logs(&reach, BATCH_ROWS).await?;
            let private = match erasure.user() {
                Some(user) => app.store.forget_private(user, BATCH_ROWS).await?,
                None => false,
            };
            return Ok(if logs || private { Left::Until(now) } else { Left::Nothing });
        }
        remove(app, erasure, (key, token), keys).await?;
    }
    Ok(Left::Until(now))
}

/// API keys, webhooks and hooks that end with what is removed.
async fn keys(app: &App, erasure: &Erasure) -> Result<Vec<Key>, ReadError> {
    let reach = Reach::organization(&erasure.organization);
    let keys = erasure.keys().map(|(field, id)| (ApiKey::space(), field, id));
    let webhooks = erasure.user().map(|user| (Webhook::space(), TENANT, user));
    let mut found = Vec::new();
    let hooks = erasure
        .user()
        .map(|id| (hook::hooks(), hook::USER, id))
        .or_else(|| erasure.project().map(|id| (hook::hooks(), hook::PROJECT, id)));
    for (space, field, value) in keys.into_iter().chain(webhooks).chain(hooks) {
        let query = Query::all(&reach, &space).equal(field, value).limit(BATCH_ROWS).relax();
        found.extend(app.store.find(&query).await?.items.into_iter().map(|(key, _)| key));
    }
    Ok(found)
}

/// Removes a batch of rows, as long as the record is held under its lease.
async fn remove(
    app: &App,
    erasure: &Erasure,
    held: (&Key, &str),
    keys: Vec<Key>,
) -> Result<(), CommitError> {
    let (key, token) = (held.0.clone(), held.1.to_owned());
    let guards = vec![Guard::Lease { key: key.clone(), token: token.clone() }];
    let extend = Write::Extend { key, token, until: app.clock.now().plus_ms(LEASE_MS) };
    let removals = keys.into_iter().map(|key| Write::Remove { key, expected: None });
    let writes = removals.chain(std::iter::once(extend)).collect();
    app.store
        .commit(Unit {
            organization: erasure.organization.clone(),
            guards,
            writes,
            ..Unit::default()
        })
        .await?;
    Ok(())
}

/// Whether a primitive that was told has not ended its work.
async fn at_work(app: &App, erasure: &Erasure) -> Result<bool, ReadError> {
    let reach = Reach::organization(&erasure.organization);
    for id in &erasure.after {
        let Some(row) = app.store.get(&Key::new(&reach, &jobs(), id.clone())).await? else {
            continue;
        };
        if serde_json::from_str::<JobRecord>(&row.body).is_ok_and(|job| job.state == "queued") {
            return Ok(true);
        }
    }
    Ok(false)
}

fn unread(error: ReadError) -> CommitError {
    tracing::warn!(
        error = &error as &dyn std::error::Error,
        "what is to be removed cannot be read"
    );
    CommitError::Failed
}
