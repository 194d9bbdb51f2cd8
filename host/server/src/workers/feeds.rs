//! Hands events out to the webhooks that hear them: a delivery each, in one commit with how far it
//! has come.
//!
//! The events are the outbox, since they rode in the commit of their cause. However often a feed is
//! read and by however many hosts, each event becomes one delivery a webhook: the feed's version
//! guards it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use charter_adapters::webhooks;
use charter_kernel::id::uuid_v7;
use charter_kernel::refusal::Refusal;
use charter_kernel::unit::{FactKind, Guard, Reach, Rejection, Unit, Write};
use charter_store::{CommitError, PAGE_ROWS_MAX, Query, SequencedFact};
use charter_tenancy::records::Record as _;
use charter_tenancy::records::webhook::{
    AFTER, Delivery, DeliveryOutcome, Feed, WEBHOOKS_MAX, Webhook,
};
use charter_tenancy::stored;
use serde_json::Value;

use super::due::Running;
use crate::app::App;

/// How long another host's event may stay unseen.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Between two looks while feeds are handed out.
const PAUSE: Duration = Duration::from_millis(5);
/// Feeds of one look.
const FEEDS_MAX: u32 = 1_000;
/// Feeds that are handed out side by side, so that a large one holds up nobody else's.
const FEEDS_AT_ONCE: usize = 8;
/// Deliveries of one commit.
const DELIVERIES_MAX: usize = 500;
/// Bytes of their bodies after which the next event waits for another turn.
const DELIVERIES_BYTES_MAX: usize = 1 << 20;
/// Bytes of their bodies in one commit.
const UNIT_BYTES_MAX: usize = 2 << 20;

/// Never ends by itself.
pub(super) async fn run(app: Arc<App>) {
    let mut running = Running::default();
    // The last turn of each that is behind still.
    let (mut served, mut turns) = (HashMap::<String, u64>::new(), 0);
    loop {
        let found = app.store.behind(&Feed::space(), Feed::ID, AFTER, FEEDS_MAX).await;
        let found = found.unwrap_or_else(|error| {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "new events could not be looked for"
            );
            Vec::new()
        });
        // One that is new comes before those that had their turn, and those in the order of it.
        let behind: HashSet<&str> = found.iter().map(Reach::as_str).collect();
        served.retain(|reach, _| behind.contains(reach.as_str()));
        let waits = |reach: &&Reach| !running.has(reach.as_str());
        let mut waiting: Vec<Reach> = found.iter().filter(waits).cloned().collect();
        waiting.sort_by_key(|reach| served.get(reach.as_str()).copied());
        waiting.truncate(FEEDS_AT_ONCE.saturating_sub(running.len()));
        for reach in waiting {
            turns += 1;
            served.insert(reach.as_str().to_owned(), turns);
            let app = app.clone();
            running.begin(reach.as_str().to_owned(), async move { turn(&app, &reach).await });
        }
        let (pause, is_full) = match running.len() {
            0 => (Duration::ZERO, false),
            many => (PAUSE, many >= FEEDS_AT_ONCE),
        };
        let next = async {
            tokio::time::sleep(pause).await;
            let _ = tokio::time::timeout(LOOK_EVERY, app.store.next_event()).await;
        };
        tokio::select! {
            () = next, if !is_full => {}
            Some(_) = running.wait_for_end() => {}
        }
        while running.has_ended().is_some() {}
    }
}

/// One turn of a feed. One that fails is looked at again after a while.
async fn turn(app: &App, reach: &Reach) {
    if let Err(refusal) = hand_out(app, reach).await {
        tracing::warn!(
            reach = reach.as_str(),
            message = refusal.message,
            "events could not be handed out yet"
        );
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Hands out the next events of an organization.
async fn hand_out(app: &App, reach: &Reach) -> Result<(), Refusal> {
    let key = Feed::address(reach);
    let Some(row) = app.store.get(&key).await.map_err(stored::reading)? else { return Ok(()) };
    let feed = Feed::read(&row).map_err(stored::unreadable)?;
    let query = Query::all(reach, &Webhook::space())
        .limit(u32::try_from(WEBHOOKS_MAX).unwrap_or(PAGE_ROWS_MAX))
        .relax();
    let found = app.store.find(&query).await.map_err(stored::reading)?;
    let webhooks: Vec<Webhook> =
        found.items.iter().filter_map(|(_, row)| Webhook::read(row).ok()).collect();
    let limit = u32::try_from(DELIVERIES_MAX / webhooks.len().max(1)).unwrap_or(1).max(1);
    let organization = &feed.organization;
    let head =
        app.store.facts_head(FactKind::Event, organization).await.map_err(stored::reading)?;
    let events = app
        .store
        .facts(FactKind::Event, organization, feed.after, limit)
        .await
        .map_err(stored::reading)?;
    let (parts, read_to) = deliveries(app, organization, &events, &webhooks)?;
    // Events that were past their time before anybody read them leave nothing behind their head.
    let after = read_to.unwrap_or(head);
    let next = Feed { after, ..feed.clone() }.draft().map_err(stored::unreadable)?;
    let last = parts.len() - 1;
    for (n, mut part) in parts.into_iter().enumerate() {
        // One event to many webhooks may take several commits. Only the last says that it was handed
        // out: a host that dies between them hands it out again, under the same event's id.
        if n == last {
            let (key, draft) = (key.clone(), next.clone());
            part.writes.push(Write::Replace { key, draft, expected: None });
        }
        let guards = vec![Guard::Unchanged { key: key.clone(), version: row.version }];
        let organization = feed.organization.clone();
        let unit = Unit { organization, guards, writes: part.writes, ..Unit::default() };
        match app.store.commit(unit).await {
            Ok(_) => app.adapters.deliveries_wanted.name(reach, &part.webhooks),
            // Another host has handed them out.
            Err(CommitError::Rejected(Rejection::Conflict { .. })) => return Ok(()),
            Err(error) => return Err(charter_tenancy::stored::commit_refusal(&error)),
        }
    }
    Ok(())
}

/// The deliveries of these events in parts that a commit takes, and the last event that they are of.
fn deliveries(
    app: &App,
    organization: &str,
    events: &[SequencedFact],
    webhooks: &[Webhook],
) -> Result<(Vec<Part>, Option<u64>), Refusal> {
    let (now, mut parts) = (app.store.now(), vec![Part::default()]);
    let mut read_to = None;
    let live = app.registry.current();
    for event in events {
        // A part that is full ends with a whole event, where the next one begins.
        if parts.last().is_some_and(|part| part.bytes > DELIVERIES_BYTES_MAX) {
            break;
        }
        let body: Value = serde_json::from_str(&event.fact.body).unwrap_or_default();
        let (name, user) = (&event.fact.name, body["user"].as_str());
        let primitive = body["primitive"].as_str();
        let whose = (body["project"].as_str(), user);
        read_to = Some(event.sequence);
        // Its user is erased: there is nothing to deliver any more.
        let Some(payload) = event.fact.payload(&body) else { continue };
        let names: Vec<&str> =
            std::iter::once(name.as_str()).chain(live.former_names(name)).collect();
        for hears in webhooks.iter().filter(|webhook| {
            event.sequence > webhook.since && webhook.hears(&names, whose, event.fact.at)
        }) {
            let delivery = Delivery {
                id: uuid_v7(now, stored::random()?),
                organization: organization.to_owned(),
                webhook: hears.id.clone(),
                event_id: event.fact.id.clone(),
                event: name.clone(),
                user: user.map(str::to_owned),
                body: webhooks::body(name, primitive, payload.clone(), user, event.fact.at),
                status: DeliveryOutcome::Pending,
                attempts: Vec::new(),
                created_at: now,
                ended_at: None,
            };
            let draft = delivery.due(now).map_err(stored::unreadable)?;
            let bytes = draft.body.len();
            if parts.last().is_none_or(|part| part.bytes + bytes > UNIT_BYTES_MAX) {
                parts.push(Part::default());
            }
            if let Some(part) = parts.last_mut() {
                part.bytes += bytes;
                part.webhooks.insert(delivery.webhook.clone());
                part.writes.push(Write::Insert { key: delivery.key(), draft });
            }
        }
    }
    Ok((parts, read_to))
}

/// Deliveries of one commit.
#[derive(Default)]
struct Part {
    writes: Vec<Write>,
    bytes: usize,
    /// The webhooks that they go to.
    webhooks: HashSet<String>,
}
