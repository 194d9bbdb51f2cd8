//! Removes what deleted users and projects and revoked keys leave behind: in bounded batches, each
//! fenced by the lease of its record, so that a crash only means that the next one goes on from
//! there.
//!
//! Keys go first, and what was told of a user; what waits for people on its behalf is canceled. For
//! the rest it waits for the primitives that were told of the end: they may still want to read what
//! goes. They are told again of a user's end when money of it came free that was set aside, and
//! each day while one of them has failed and holds money of it; what they have of the user stays
//! until neither is so. As long as a provider may tell a primitive by a hook what has happened on the
//! user's behalf, the documents of that primitive stay: half a year, or until it closes the hook. The
//! record of a user stays and is looked at again, less and less often: what began before the end is
//! written down after it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use charter_engine::hook::{self, HookRecord};
use charter_engine::job::{JobRecord, jobs, schedules};
use charter_governance::{approvals, aside, lifecycle};
use charter_kernel::refusal::Refusal;
use charter_kernel::time::Instant;
use charter_kernel::unit::{Guard, Key, Reach, Taken, Unit, Write};
use charter_store::{CommitError, Query, ReadError};
use charter_tenancy::records::approval::{Approval, KEPT_MS as APPROVALS_KEPT_MS, Status};
use charter_tenancy::records::erasure::{ERASURES, Erasure};
use charter_tenancy::records::grant::Given;
use charter_tenancy::records::key::ApiKey;
use charter_tenancy::records::webhook::{Delivery, TENANT, Webhook};
use charter_tenancy::records::{Record as _, USER};

use super::due::Due;
use super::until_drained;
use crate::app::App;

/// Records worked on side by side: each is long work for the store.
const PLACES: usize = 4;
/// How long one look at a record may take before another may take it up.
pub(super) const LEASE_MS: i64 = 60_000;
/// Rows, or log entries, of one batch.
const BATCH_ROWS: u32 = 200;
/// Batches of one record before the others have their turn.
const BATCHES_MAX: u32 = 50;
/// Until the next look at a record whose primitives are still at work.
const WAIT_MS: i64 = 2_000;
/// How long after its end something of a deleted user may still be written down, and is forgotten:
/// as long as the longest of what can be decided later is kept.
const LOOKED_AFTER_MS: i64 = APPROVALS_KEPT_MS;
/// The longest wait for the next look while money is set aside to leave an account: primitives are
/// told within that time that it is free.
const ASIDE_WAIT_MS_MAX: i64 = 60 * 60 * 1_000;
/// How long after a primitive has failed it is told again, while accounts of its hold money.
const FAILED_WAIT_MS: i64 = 24 * 60 * 60 * 1_000;
/// How long after the end of a user providers may still tell what has happened on its behalf: as
/// long as card networks let merchants capture, refund and lose disputes.
const TOLD_MS: i64 = 180 * 24 * 60 * 60 * 1_000;
/// How long a primitive that was told is waited for. One that was uninstalled meanwhile never ends
/// its job.
const WAIT_MS_MAX: i64 = 24 * 60 * 60 * 1_000;

/// Until the host drains. An erasure takes as long as it takes: it stops there, and goes on at the next host.
pub(super) async fn run(app: Arc<App>) {
    let takes = |_: &App, kind: &str| kind == ERASURES;
    let due = Due { space: Erasure::all(), takes, lease_ms: LEASE_MS, places: PLACES };
    due.each(&app, |taken| until_drained(&app, erase_one(app.clone(), taken))).await;
}

/// The rest of a record after a look at it.
enum Left {
    /// Nothing: the record goes.
    Nothing,
    /// Look again then.
    Until(Instant),
}

async fn erase_one(app: Arc<App>, taken: Taken) {
    let Ok(erasure) = Erasure::read(&taken.row) else { return };
    let (key, token) = (taken.key, taken.token);
    let left = match look(&app, &erasure, &key, &token).await {
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
        let keys = keys(app, erasure, now).await.map_err(unread)?;
        if keys.is_empty() {
            break;
        }
        if batches == BATCHES_MAX {
            return Ok(Left::Until(now));
        }
        remove(app, erasure, (key, token), keys).await?;
        batches += 1;
    }
    let erasure = &note_aside(app, erasure, (key, token)).await?;
    forget_approvals(app, erasure, (key, token)).await?;
    if at_work(app, erasure, now).await.map_err(unread)? {
        return Ok(Left::Until(now.plus_ms(WAIT_MS)));
    }
    let erasure = &note_failed(app, erasure, (key, token), now).await?;
    if let Some(due_at) = await_money(app, erasure, (key, token), now).await? {
        return Ok(Left::Until(due_at));
    }
    let reach = Reach::from_store(erasure.reach.clone());
    let listeners = read_listeners(app, erasure, now).await.map_err(unread)?;
    let mut from = String::new();
    for _ in 0..BATCHES_MAX {
        let mut keys = app.store.reach_keys(&reach, &from, BATCH_ROWS).await.map_err(unread)?;
        if keys.is_empty() {
            let logs = app.store.forget_logs(&reach, BATCH_ROWS).await?;
            let private = match erasure.user() {
                Some(user) => app.store.forget_private(user, BATCH_ROWS).await?,
                None => false,
            };
            return Ok(match logs || private {
                true => Left::Until(now),
                false => look_later(erasure, now, !listeners.is_empty()),
            });
        }
        if let Some((at, next)) = find_kept(&keys, &listeners) {
            keys.truncate(at);
            from = next;
        }
        if !keys.is_empty() {
            remove(app, erasure, (key, token), keys).await?;
        }
    }
    Ok(Left::Until(now))
}

/// The next look at a record of which nothing is left now. A request that began before its user was
/// deleted, a hold that ends later and a decision that comes later are still written down.
fn look_later(erasure: &Erasure, now: Instant, is_listened: bool) -> Left {
    let next = now.plus_ms(wait_ms(erasure, now));
    match is_looked_after(erasure, now) {
        true if is_listened => Left::Until(next.min(erasure.since.plus_ms(TOLD_MS))),
        true => Left::Until(next),
        false => Left::Nothing,
    }
}

/// The first of these rows, in order, that a primitive keeps which listens still, and the space
/// behind all of that primitive's.
fn find_kept(keys: &[Key], listeners: &BTreeSet<String>) -> Option<(usize, String)> {
    let listener = |key: &Key| {
        let (primitive, _) = key.space.as_str().split_once('.')?;
        // The first text behind all those that begin so.
        listeners.contains(primitive).then(|| format!("{primitive}/"))
    };
    keys.iter().enumerate().find_map(|(at, key)| Some((at, listener(key)?)))
}

/// The primitives that providers tell still what has happened on behalf of a deleted user: what they
/// have of it says what that means.
async fn read_listeners(
    app: &App,
    erasure: &Erasure,
    now: Instant,
) -> Result<BTreeSet<String>, ReadError> {
    let Some(user) = erasure.user() else { return Ok(BTreeSet::new()) };
    let (_, told) = read_hooks(app, erasure, (hook::USER, user), now).await?;
    Ok(told.into_iter().map(|hook| hook.primitive).collect())
}

/// The hooks that end with what is removed, and those by which providers tell of a deleted user
/// still: these end half a year after it.
async fn read_hooks(
    app: &App,
    erasure: &Erasure,
    (field, id): (&str, &str),
    now: Instant,
) -> Result<(Vec<Key>, Vec<HookRecord>), ReadError> {
    let is_told = |hook: &HookRecord| match erasure.user() {
        Some(_) => hook.provider().is_some() && now < erasure.since.plus_ms(TOLD_MS),
        // The end of its user says when.
        None => hook.provider().is_some() && hook.owner.user.is_some(),
    };
    let reach = Reach::organization(&erasure.organization);
    let mut query = Query::all(&reach, &hook::hooks()).equal(field, id).limit(BATCH_ROWS).relax();
    let (mut ended, mut told) = (Vec::new(), Vec::new());
    loop {
        let page = app.store.find(&query).await?;
        for (key, row) in page.items {
            match serde_json::from_str(&row.body).ok().filter(is_told) {
                Some(hook) => told.push(hook),
                None => ended.push(key),
            }
        }
        if page.next.is_none() {
            return Ok((ended, told));
        }
        query.after = page.next;
    }
}

/// Whether something of it may come after its end.
fn is_looked_after(erasure: &Erasure, now: Instant) -> bool {
    erasure.user().is_some() && now < erasure.since.plus_ms(LOOKED_AFTER_MS)
}

/// Until the next look: the older the end, the less there is to come.
fn wait_ms(erasure: &Erasure, now: Instant) -> i64 {
    WAIT_MS.max((now.0 - erasure.since.0) / 2)
}

/// Notes the most that was seen set aside to leave each account of a user, where it is more than
/// was known: a request that began before the end may have set some aside right after it. Answers
/// the record as it is now.
async fn note_aside(
    app: &App,
    erasure: &Erasure,
    held: (&Key, &str),
) -> Result<Erasure, CommitError> {
    let mut noted = erasure.clone();
    if erasure.user().is_none() {
        return Ok(noted);
    }
    for (account, amount) in read_aside(app, erasure).await? {
        let known = noted.aside.entry(account).or_insert(0);
        *known = amount.max(*known);
    }
    if noted.aside != erasure.aside {
        commit(app, erasure, held, vec![replace(&noted, held.0)?]).await?;
    }
    Ok(noted)
}

/// Notes the primitives that were told and failed, where accounts of theirs hold money of the user:
/// what they have of it says whose the money is. The jobs that told of the end are looked at no
/// more. Answers the record as it is now.
async fn note_failed(
    app: &App,
    erasure: &Erasure,
    held: (&Key, &str),
    now: Instant,
) -> Result<Erasure, CommitError> {
    let Some(user) = erasure.user().filter(|_| !erasure.after.is_empty()) else {
        return Ok(erasure.clone());
    };
    let holders = read_holders(app, erasure).await?;
    let mut noted = Erasure { after: Vec::new(), ..erasure.clone() };
    for id in &erasure.after {
        let Some((job, _)) = read_job(app, erasure, id).await.map_err(unread)? else { continue };
        if job.state == "succeeded" || !holders.contains(&job.primitive) {
            continue;
        }
        tracing::error!(
            user,
            primitive = job.primitive,
            job = id,
            cause = job.error.as_ref().map(tracing::field::display),
            "a primitive has not returned the money of a deleted user; it is told again in a day"
        );
        noted.failed.insert(job.primitive, now.plus_ms(FAILED_WAIT_MS));
    }
    commit(app, erasure, held, vec![replace(&noted, held.0)?]).await?;
    Ok(noted)
}

/// Has the primitives told of the end of a user again where money came free since they were told
/// last, or one of them failed a day ago. Answers when to look again, while any is set aside, one
/// that failed holds money, or they are told: what they have of the user tells them what money is
/// its own.
async fn await_money(
    app: &App,
    erasure: &Erasure,
    held: (&Key, &str),
    now: Instant,
) -> Result<Option<Instant>, CommitError> {
    if !is_looked_after(erasure, now) {
        return Ok(None);
    }
    let aside = read_aside(app, erasure).await?;
    let is_less = |(account, known): (&String, &i64)| aside.get(account).unwrap_or(&0) < known;
    let mut failed = erasure.failed.clone();
    if !failed.is_empty() {
        let holders = read_holders(app, erasure).await?;
        failed.retain(|primitive, _| holders.contains(primitive));
    }
    let is_due = failed.values().any(|due_at| *due_at <= now);
    if is_due || erasure.aside.iter().any(is_less) {
        let jobs = lifecycle::tell_again(&app.governance, erasure, now).map_err(log_refusal)?;
        let after = jobs.iter().map(|(key, _)| key.id.clone()).collect();
        let failed = keep_untold(app, failed, now);
        let told = Erasure { aside, after, failed, ..erasure.clone() };
        let mut writes = vec![replace(&told, held.0)?];
        writes.extend(jobs.into_iter().map(|(key, draft)| Write::Insert { key, draft }));
        commit(app, erasure, held, writes).await?;
        return Ok(Some(now.plus_ms(WAIT_MS)));
    }
    let wait_ms = wait_ms(erasure, now).min(ASIDE_WAIT_MS_MAX);
    let free_at = (!aside.is_empty()).then(|| now.plus_ms(wait_ms));
    Ok(failed.into_values().chain(free_at).min())
}

/// Of those that failed, the ones that cannot be told now: no installed version asks for it. Each
/// is looked for again in a day.
fn keep_untold(
    app: &App,
    mut failed: BTreeMap<String, Instant>,
    now: Instant,
) -> BTreeMap<String, Instant> {
    let live = app.governance.registry.current();
    let signal = lifecycle::Change::Deleted.signal();
    failed.retain(|primitive, _| !live.listens(signal, primitive));
    for due_at in failed.values_mut().filter(|due_at| **due_at <= now) {
        *due_at = now.plus_ms(FAILED_WAIT_MS);
    }
    failed
}

/// The primitives whose accounts hold money of it.
async fn read_holders(app: &App, erasure: &Erasure) -> Result<BTreeSet<String>, CommitError> {
    let reach = Reach::from_store(erasure.reach.clone());
    aside::holders(&app.store, &reach).await.map_err(unread)
}

/// The amounts that are set aside now to leave its accounts.
async fn read_aside(app: &App, erasure: &Erasure) -> Result<BTreeMap<String, i64>, CommitError> {
    let reach = Reach::from_store(erasure.reach.clone());
    aside::set_aside(&app.store, &reach).await.map_err(unread)
}

/// The record's new content.
fn replace(erasure: &Erasure, key: &Key) -> Result<Write, CommitError> {
    let draft = erasure.draft().map_err(|_| CommitError::Failed)?;
    Ok(Write::Replace { key: key.clone(), draft, expected: None })
}

/// Takes from the approvals of a deleted user what they say of the user. That they were stays. One
/// that waits for people is canceled: nobody is left to make its request for.
async fn forget_approvals(
    app: &App,
    erasure: &Erasure,
    held: (&Key, &str),
) -> Result<(), CommitError> {
    let Some(user) = erasure.user() else { return Ok(()) };
    let reach = Reach::organization(&erasure.organization);
    let query = Query::all(&reach, &Approval::space()).equal(USER, user).limit(BATCH_ROWS).relax();
    for _ in 0..BATCHES_MAX {
        let (mut waiting, mut writes) = (Vec::new(), Vec::new());
        for (key, row) in app.store.find(&query).await.map_err(unread)?.items {
            let Ok(approval) = Approval::read(&row) else { continue };
            if approval.status == Status::PendingApproval {
                waiting.push((approval, row.version));
            } else if let Ok(draft) = approval.forget().draft() {
                writes.push(Write::Replace { key, draft, expected: Some(row.version) });
            }
        }
        if waiting.is_empty() && writes.is_empty() {
            break;
        }
        for (approval, version) in waiting {
            match cancel_approval(app, erasure, held, approval, version).await {
                // A person's word came at the same moment: the next batch finds what it made of it.
                Err(CommitError::Rejected(_)) => {}
                canceled => canceled?,
            }
        }
        if !writes.is_empty() {
            match commit(app, erasure, held, writes).await {
                // One of them is at work: the next batch finds what became of it.
                Err(CommitError::Rejected(_)) => {}
                forgot => forgot?,
            }
        }
    }
    Ok(())
}

/// Ends an approval that nobody has decided on, and forgets what was asked, in one unit.
async fn cancel_approval(
    app: &App,
    erasure: &Erasure,
    held: (&Key, &str),
    approval: Approval,
    version: u64,
) -> Result<(), CommitError> {
    let now = app.clock.now();
    let approval =
        Approval { status: Status::Canceled, resolved_at: Some(now), ..approval }.forget();
    let mut txn = app.store.begin(&erasure.organization);
    approvals::drop_request(&mut txn, &approval, now).await.map_err(log_refusal)?;
    let draft = approval.due(now.plus_ms(APPROVALS_KEPT_MS)).map_err(|_| CommitError::Failed)?;
    txn.write(Write::Replace { key: approval.key(), draft, expected: Some(version) });
    commit_unit(app, held, txn.into_unit()).await
}

/// API keys, webhooks, deliveries, grants, hooks and schedules that end with what is removed.
async fn keys(app: &App, erasure: &Erasure, now: Instant) -> Result<Vec<Key>, ReadError> {
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
    for (space, field, value) in keys.into_iter().chain(of_user.into_iter().flatten()) {
        let query = Query::all(&reach, &space).equal(field, value).limit(BATCH_ROWS).relax();
        found.extend(app.store.find(&query).await?.items.into_iter().map(|(key, _)| key));
        if found.len() >= BATCH_ROWS as usize {
            break;
        }
    }
    let of_user = erasure.user().map(|id| (hook::USER, id));
    if let Some(of) = of_user.or(erasure.project().map(|id| (hook::PROJECT, id)))
        && found.len() < BATCH_ROWS as usize
    {
        let (mut ended, _) = read_hooks(app, erasure, of, now).await?;
        ended.truncate(BATCH_ROWS as usize);
        found.extend(ended);
    }
    if erasure.user().is_some() && found.len() < BATCH_ROWS as usize {
        // Each occurrence would be refused, for as long as the other rows wait.
        let own = Reach::from_store(erasure.reach.clone());
        let query = Query::all(&own, &schedules()).limit(BATCH_ROWS).relax();
        found.extend(app.store.find(&query).await?.items.into_iter().map(|(key, _)| key));
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
    writes: Vec<Write>,
) -> Result<(), CommitError> {
    let organization = erasure.organization.clone();
    commit_unit(app, held, Unit { organization, writes, ..Unit::default() }).await
}

/// Commits a unit, as long as the record is held under its lease.
async fn commit_unit(app: &App, held: (&Key, &str), mut unit: Unit) -> Result<(), CommitError> {
    let (key, token) = (held.0.clone(), held.1.to_owned());
    unit.guards.push(Guard::Lease { key: key.clone(), token: token.clone() });
    unit.writes.push(Write::Extend { key, token, until: app.clock.now().plus_ms(LEASE_MS) });
    app.store.commit(unit).await.map(drop)
}

/// Whether a primitive that was told has not ended its work, and is still waited for.
async fn at_work(app: &App, erasure: &Erasure, now: Instant) -> Result<bool, ReadError> {
    for id in &erasure.after {
        let Some((job, told_at)) = read_job(app, erasure, id).await? else { continue };
        // Since it was told, which may be long after the end.
        if now < told_at.plus_ms(WAIT_MS_MAX) && job.state == "queued" {
            return Ok(true);
        }
    }
    Ok(false)
}

/// A job that tells of it, and since when there is one.
async fn read_job(
    app: &App,
    erasure: &Erasure,
    id: &str,
) -> Result<Option<(JobRecord, Instant)>, ReadError> {
    let reach = Reach::organization(&erasure.organization);
    let row = app.store.get(&Key::new(&reach, &jobs(), id)).await?;
    Ok(row.and_then(|row| Some((serde_json::from_str(&row.body).ok()?, row.created_at))))
}

fn log_refusal(refusal: Refusal) -> CommitError {
    tracing::warn!(message = refusal.message, "what is to be ended cannot be ended yet");
    CommitError::Failed
}

fn unread(error: ReadError) -> CommitError {
    tracing::warn!(
        error = &error as &dyn std::error::Error,
        "what is to be removed cannot be read"
    );
    CommitError::Failed
}
