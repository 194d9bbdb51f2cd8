//! A log, or what happens in an organization, as an event stream (WHATWG, Server-sent events),
//! served by the host without keeping a guest alive.
//!
//! Bounded: a reader that does not take what is sent is closed and can resume with `Last-Event-ID`.
//! A credential that was revoked ends its streams within seconds, however slowly they are read, and
//! so does a kit that says no.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use charter_kernel::refusal::Refusal;
use charter_kernel::scope::Scope;
use charter_kernel::unit::{FactKind, Guard};
use charter_registry::served::{Served, ServedOperation};
use charter_store::{Changed, LogEntry, Store};
use charter_tenancy::identity::Identity;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use tokio::sync::mpsc;
use tokio::time::{Instant as Ticks, Interval, MissedTickBehavior};

use super::caller::Caller;
use super::respond::Answered;
use super::{gate, unread};
use crate::app::App;
use crate::bounds::holder::Holder;
use crate::bounds::streams::{OpenStream, Room};
use crate::events::{self, Position, Source};
use crate::http::body::Body;

/// When somebody with too many streams may ask for another.
const STREAMS_RETRY_S: u32 = 5;
/// Pieces that wait for a slow reader: they go out whatever has become of the credential.
const PIECES_MAX: usize = 1;
/// Entries read at once.
const ENTRIES_MAX: u32 = 100;
/// How often a silent stream says that it is alive.
const HEARTBEAT: Duration = Duration::from_secs(25);
/// How often the credential is looked at again.
const RECHECK: Duration = Duration::from_secs(4);
/// How long a reader may take nothing.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a client waits before it comes again.
const RETRY: &str = "retry: 3000\n\n";

/// Serves what comes, to the caller of the host's route or of this operation of a primitive.
///
/// # Errors
/// 429 where there is no place for another stream; 409 `answer_dropped` where the change that it
/// answers was made.
pub fn stream(
    app: &Arc<App>,
    caller: &Caller,
    operation: Option<(&Served, &ServedOperation)>,
    source: Source,
) -> Result<Answered, Refusal> {
    let is_made = operation.is_some_and(|(_, operation)| operation.contract.mutates);
    let holder = Holder::of(caller.identity());
    let place = app.bounds.streams.take(caller.organization(), &holder).ok_or_else(|| {
        if is_made {
            let refusal = unread::answer_dropped();
            return refusal.hint("Close streams that are not read, and read what it made.");
        }
        Refusal::rate_limited(STREAMS_RETRY_S)
            .hint("Close streams that are not read before opening another.")
    })?;
    let (sender, pieces) = mpsc::channel(PIECES_MAX);
    let guards = caller.credential();
    let operation =
        operation.map(|(served, it)| (served.name().to_owned(), it.contract.id.clone()));
    let following = Following {
        app: app.clone(),
        store: app.store.reading_for(caller.organization()),
        identity: caller.identity().clone(),
        guards,
        scope: caller.place().map(|place| place.scope().clone()),
        operation,
        source,
        sender,
        checked: Ticks::now(),
        heartbeat: tick_every(HEARTBEAT),
        recheck: tick_every(RECHECK),
        place,
    };
    app.tasks.spawn(following.run());
    let mut headers = HeaderMap::with_capacity(12);
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    Ok(Answered { status: StatusCode::OK, headers, body: Body::pieces(pieces) })
}

struct Following {
    app: Arc<App>,
    /// Reads for the caller's organization.
    store: Store,
    identity: Identity,
    /// The guards of the credential that must go on to hold.
    guards: Vec<Guard>,
    /// The scope of the caller. A deleted user's log has no more to say; revoked ones are still
    /// read.
    scope: Option<Scope>,
    /// The primitive, and the operation of it, that the kit must go on to give.
    operation: Option<(String, Arc<str>)>,
    source: Source,
    sender: mpsc::Sender<Bytes>,
    /// When the credential was last looked at.
    checked: Ticks,
    heartbeat: Interval,
    recheck: Interval,
    place: OpenStream,
}

impl Following {
    async fn run(mut self) {
        if !self.send(RETRY.into()).await {
            return;
        }
        let mut changed = self.subscribe();
        loop {
            match self.catch_up().await {
                Some(true) => {}
                Some(false) | None => return,
            }
            let change = async {
                tokio::select! {
                    () = changed.0.wait() => {}
                    () = wait_either(&mut changed.1) => {}
                }
            };
            // Looks again now and then, whether it was told of a change or not.
            if self.wait_for(tokio::time::timeout(RECHECK, change)).await.is_none() {
                return;
            }
        }
    }

    /// Waits, and meanwhile says that the stream is alive and looks at its credential; `None` where
    /// the stream ends.
    async fn wait_for<T>(&mut self, awaited: impl Future<Output = T>) -> Option<T> {
        tokio::pin!(awaited);
        loop {
            tokio::select! {
                came = &mut awaited => return Some(came),
                _ = self.heartbeat.tick() => {
                    let beat = format!(": heartbeat {}\n\n", self.app.clock.now().0);
                    if !self.send(beat.into()).await {
                        return None;
                    }
                }
                _ = self.recheck.tick() => if !self.still_holds().await { return None },
                () = self.sender.closed() => return None,
                () = self.app.draining.cancelled() => return None,
            }
        }
    }

    /// Subscribes to what it follows.
    fn subscribe(&self) -> (Changed, Option<Changed>) {
        let store = &self.app.store;
        match &self.source {
            Source::Log(log, _) => (store.log_changes(log), None),
            Source::Events(organization, _) => {
                let changed = |kind| store.facts_changes(kind, organization);
                (changed(FactKind::Event), Some(changed(FactKind::Audit)))
            }
        }
    }

    /// Sends what there is; false once it has come to its end, `None` where the reader or the store
    /// is gone.
    async fn catch_up(&mut self) -> Option<bool> {
        loop {
            // No page is read for a reader that takes none.
            drop(self.slot().await?);
            let place = self.place.clone();
            let room: Room = self.wait_for(async move { place.room().await }).await?;
            let (text, next, more) = match &self.source {
                Source::Log(log, after) => {
                    // The head first: what is appended after it was read as closed cannot be.
                    let head = self.store.log_head(log).await.ok()?;
                    let entries = self.store.log_read(log, *after, ENTRIES_MAX).await.ok()?;
                    let entries = entries.entries;
                    let Some(last) = entries.last() else { return Some(!head.closed) };
                    let over = head.closed && last.sequence >= head.head;
                    (frames(&entries), Source::Log(log.clone(), last.sequence), !over)
                }
                Source::Events(organization, after) => {
                    let (text, next) = self.read_frames(organization, *after).await?;
                    if next == *after {
                        return Some(true);
                    }
                    (text, Source::Events(organization.clone(), next), true)
                }
            };
            self.source = next;
            if !self.send(room.fill(text)).await {
                return None;
            }
            if !more {
                return Some(false);
            }
        }
    }

    /// Frames of what happened behind a position, and the position behind them.
    async fn read_frames(&self, organization: &str, after: Position) -> Option<(String, Position)> {
        let store = &self.app.store;
        // The head first: events behind it that are not there are past their time.
        let head = store.facts_head(FactKind::Event, organization).await.ok()?;
        let events =
            store.facts(FactKind::Event, organization, after.event, ENTRIES_MAX).await.ok()?;
        let rows =
            store.facts(FactKind::Audit, organization, after.audit, ENTRIES_MAX).await.ok()?;
        let (mut at, mut text) = (after, String::new());
        let first = events.first().map_or(head, |event| event.sequence - 1);
        if first > after.event {
            at.event = first;
            let missed = first - after.event;
            // Writing to a string cannot fail.
            let _ =
                write!(text, "event: gap\nid: {}\ndata: {{\"missed\":{missed}}}\n\n", at.number());
        }
        // By time, but each kind in its own order: a position covers all that was told before it.
        let (mut events, mut rows) = (events.iter().peekable(), rows.iter().peekable());
        loop {
            let row = match (events.peek(), rows.peek()) {
                (Some(event), Some(row)) if event.fact.at <= row.fact.at => events.next(),
                (Some(_), None) => events.next(),
                _ => rows.next(),
            };
            let Some(row) = row else { break };
            match row.fact.kind {
                FactKind::Event => at.event = row.sequence,
                FactKind::Audit => at.audit = row.sequence,
            }
            let (kind, data) = events::stream_entry(row);
            let _ =
                write!(text, "event: {}\nid: {}\ndata: {data}\n\n", one_line(&kind), at.number());
        }
        Some((text, at))
    }

    /// Sends a piece once the reader takes it, and while the credential counts; false where the
    /// stream ends.
    async fn send(&mut self, piece: Bytes) -> bool {
        let slot = self.slot().await;
        slot.map(|slot| slot.send(piece)).is_some()
    }

    /// Waits until the reader has taken the piece before, while the credential counts; `None` where
    /// the stream ends.
    async fn slot(&mut self) -> Option<mpsc::OwnedPermit<Bytes>> {
        let began = Ticks::now();
        loop {
            let slot = tokio::time::timeout(RECHECK, self.sender.clone().reserve_owned()).await;
            if self.checked.elapsed() >= RECHECK && !self.still_holds().await {
                return None;
            }
            match slot {
                Ok(Ok(slot)) => return Some(slot),
                Err(_) if began.elapsed() < PATIENCE => {}
                Ok(Err(_)) | Err(_) => return None,
            }
        }
    }

    /// Whether the credential still counts, and the kit still gives the operation; a store that
    /// cannot be asked ends the stream.
    async fn still_holds(&mut self) -> bool {
        self.checked = Ticks::now();
        self.identity.lets_go_on(&self.app.directory, &self.guards).await
            && self.is_admitted().await
    }

    /// Whether its place is still there, and the kit that applies by now gives the operation.
    async fn is_admitted(&self) -> bool {
        let Some(scope) = &self.scope else { return true };
        let Ok(caller) = Caller::resolve_again(&self.app, scope, &[]).await else { return false };
        let Some((primitive, id)) = &self.operation else { return true };
        let live = self.app.registry.current();
        let Some(primitive) = live.primitive(primitive) else { return false };
        let gated = gate::gate(&self.app, Arc::new(caller), primitive).await;
        gated.is_ok_and(|gated| gated.into_parts().1.operation(id).is_some())
    }
}

/// Ticks each so often, and not at once; a late tick delays the next.
fn tick_every(period: Duration) -> Interval {
    let mut ticks = tokio::time::interval_at(Ticks::now() + period, period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

fn one_line(name: &str) -> String {
    name.chars().filter(|c| !c.is_control()).collect()
}

/// Waits for the second of two changes where there is one.
async fn wait_either(changed: &mut Option<Changed>) {
    match changed {
        Some(changed) => changed.wait().await,
        None => std::future::pending().await,
    }
}

fn frames(entries: &[LogEntry]) -> String {
    let mut text = String::new();
    for entry in entries {
        // JSON text has no line breaks that are not escaped; a name's are taken out.
        let name = one_line(&entry.name);
        let payload = entry.payload.replace(['\r', '\n'], " ");
        // Writing to a string cannot fail.
        let _ = write!(text, "event: {name}\nid: {}\ndata: {payload}\n\n", entry.sequence);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_one_frame_whatever_it_holds() {
        let entry = |sequence, name: &str, payload: &str| LogEntry {
            sequence,
            at: charter_kernel::time::Instant(1),
            name: name.into(),
            payload: payload.into(),
        };
        let text = frames(&[entry(1, "a", "{\n\"x\": 1\n}"), entry(2, "b\ndata: forged", "{}")]);
        assert_eq!(
            text,
            "event: a\nid: 1\ndata: { \"x\": 1 }\n\nevent: bdata: forged\nid: 2\ndata: {}\n\n"
        );
    }
}
