//! Removes what deleted users and projects and revoked keys leave behind: in bounded batches, each
//! fenced by the lease of its record, so that a crash only means that the next one goes on from
//! there.
//!
//! Keys go first, and what was told of a user. For the rest it waits for the primitives that were
//! told of the end: they may still want to read what goes. The record of a user stays and is looked
//! at again, less and less often: what began before the end is written down after it.

use std::sync::Arc;

use charter_engine::hook;
use charter_engine::job::{JobRecord, jobs};
use charter_kernel::time::Instant;
use charter_kernel::unit::{Guard, Key, Reach, Row, Taken, Unit, Write};
use charter_store::{CommitError, Query, ReadError};
use charter_tenancy::records::approval::{Approval, KEPT_MS as APPROVALS_KEPT_MS};
use charter_tenancy::records::erasure::{ERASURE_GROUP, Erasure};
use charter_tenancy::records::grant::Given;
use charter_tenancy::records::key::ApiKey;
use charter_tenancy::records::webhook::{Delivery, TENANT, Webhook};
use charter_tenancy::records::{Record as _, USER};

use super::due::Due;
use crate::app::App;

/// Records taken at once.
const TAKEN_MAX: usize = 16;
/// How long one look at a record may take before another may take it up.
const LEASE_MS: i64 = 60_000;
/// Rows, or log entries, of one batch.
const BATCH_ROWS: u32 = 200;
/// Batches of one record before the others have their turn.
const BATCHES_MAX: u32 = 50;
/// Until the next look at a record whose primitives are still at work.
const WAIT_MS: i64 = 2_000;
/// How long after its end something of a deleted user may still be written down, and is forgotten:
/// as long as the longest of what can be decided later is kept.
const LOOKED_AFTER_MS: i64 = APPROVALS_KEPT_MS;
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
    let mut batches = 0;
    loop {
        let keys = keys(app, erasure).await.map_err(unread)?;
        if keys.is_empty() {
            break;
        }
        if batches == BATCHES_MAX {
            return Ok(Left::Until(now));
        }
        remove(app, erasure, (key, token), keys).await?;
        batches += 1;
    }
    forget_approvals(app, erasure, (key, token)).await?;
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
            return Ok(if logs || private { Left::Until(now) } else { look_later(erasure, now) });
        }
        remove(app, erasure, (key, token), keys).await?;
    }
    Ok(Left::Until(now))
}

/// The next look at a record of which nothing is left now. A request that began before its user was
/// deleted, a hold that ends later and a decision that comes later are still written down: the
/// older the end, the less there is to come.
fn look_later(erasure: &Erasure, now: Instant) -> Left {
    let age_ms = now.0 - erasure.since.0;
    if erasure.user().is_none() || age_ms >= LOOKED_AFTER_MS {
        return Left::Nothing;
    }
    Left::Until(now.plus_ms(WAIT_MS.max(age_ms / 2)))
}

/// Takes from the approvals of a deleted user what they say of the user. That they were stays.
async fn forget_approvals(
    app: &App,
    erasure: &Erasure,
    held: (&Key, &str),
) -> Result<(), CommitError> {
    let Some(user) = erasure.user() else { return Ok(()) };
    let reach = Reach::organization(&erasure.organization);
    let query = Query::all(&reach, &Approval::space()).equal(USER, user).limit(BATCH_ROWS).relax();
    for _ in 0..BATCHES_MAX {
        let found = app.store.find(&query).await.map_err(unread)?.items;
        let forgotten = |(key, row): (Key, Row)| {
            let draft = Approval::read(&row).ok()?.forget().draft().ok()?;
            Some(Write::Replace { key, draft, expected: Some(row.version) })
        };
        let writes: Vec<Write> = found.into_iter().filter_map(forgotten).collect();
        if writes.is_empty() {
            break;
        }
        commit(app, erasure, held, writes).await?;
    }
    Ok(())
}

/// API keys, webhooks, deliveries, grants and hooks that end with what is removed.
async fn keys(app: &App, erasure: &Erasure) -> Result<Vec<Key>, ReadError> {
    let reach = Reach::organization(&erasure.organization);
    let keys = erasure.keys().map(|(field, id)| (ApiKey::space(), field, id));
    let of_user = erasure.user().map(|user| {
        [
            (Webhook::space(), TENANT, user),
            (Delivery::all(), USER, user),
            (Given::space(), USER, user),
        ]
    });
    let mut found = Vec::new();
    let hooks = erasure
        .user()
        .map(|id| (hook::hooks(), hook::USER, id))
        .or_else(|| erasure.project().map(|id| (hook::hooks(), hook::PROJECT, id)));
    for (space, field, value) in keys.into_iter().chain(of_user.into_iter().flatten()).chain(hooks)
    {
        let query = Query::all(&reach, &space).equal(field, value).limit(BATCH_ROWS).relax();
        found.extend(app.store.find(&query).await?.items.into_iter().map(|(key, _)| key));
        if found.len() >= BATCH_ROWS as usize {
            break;
        }
    }
    Ok(found)
}

/// Removes a batch of rows.
async fn remove(
    app: &App,
    erasure: &Erasure,
    held: (&Key, &str),
    keys: Vec<Key>,
) -> Result<(), CommitError> {
    let removal = |key| Write::Remove { key, expected: None };
    commit(app, erasure, held, keys.into_iter().map(removal).collect()).await
}

/// Makes a batch of changes, as long as the record is held under its lease.
async fn commit(
    app: &App,
    erasure: &Erasure,
    held: (&Key, &str),
    mut writes: Vec<Write>,
) -> Result<(), CommitError> {
    let (key, token) = (held.0.clone(), held.1.to_owned());
    let guards = vec![Guard::Lease { key: key.clone(), token: token.clone() }];
    writes.push(Write::Extend { key, token, until: app.clock.now().plus_ms(LEASE_MS) });
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
