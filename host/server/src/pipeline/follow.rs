//! A log as an event stream (WHATWG, Server-sent events), served by the host without keeping a guest alive.
//!
//! Bounded: a reader that does not take what is sent is closed and can resume with `Last-Event-ID`. A credential that was
//! revoked ends its streams within seconds.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use charter_kernel::refusal::Refusal;
use charter_kernel::time::Instant;
use charter_kernel::unit::{Guard, Key, LogKey};
use charter_store::LogEntry;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use tokio::sync::mpsc;

use super::respond::Answered;
use super::trail::Trail;
use crate::app::App;
use crate::http::body::Body;
use crate::records::user::User;
use crate::request::Identity;

mod places;

pub use places::{Place, Places};

/// When somebody with too many streams may ask for another.
const STREAMS_RETRY_S: u32 = 5;
/// Pieces that wait for a slow reader.
const PIECES_MAX: usize = 16;
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

/// Serves the log from the entry after `after`.
///
/// # Errors
/// 429 where the organization has too many streams open; a change that was made already is answered all the same.
pub fn stream(app: &Arc<App>, trail: &Trail, log: LogKey, after: u64) -> Result<Answered, Refusal> {
    let organization = trail.place.as_ref().map_or("", |place| place.organization.id.as_str());
    let place = app.streams.take(organization, trail.mutates).ok_or_else(|| {
        Refusal::rate_limited(STREAMS_RETRY_S).hint("Close streams that are not read before opening another.")
    })?;
    let (sender, pieces) = mpsc::channel(PIECES_MAX);
    let guards = super::host::guards(&trail.identity, None);
    let ends = match &trail.identity {
        Identity::Key(key) => key.expires_at,
        Identity::Session(session) => Some(session.expires_at),
        Identity::Operator | Identity::Anonymous => None,
    };
    let user = trail.place.as_ref().and_then(|place| place.user.as_ref());
    let user = user.map(|user| User::address(&user.project, &user.id));
    let following = Following { app: app.clone(), guards, ends, user, log, after, sender, _place: place };
    app.tasks.spawn(following.run());
    let mut headers = HeaderMap::with_capacity(12);
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    Ok(Answered { status: StatusCode::OK, headers, body: Body::pieces(pieces) })
}

struct Following {
    app: Arc<App>,
    /// What of the credential must go on to hold.
    guards: Vec<Guard>,
    /// When the credential ends by itself.
    ends: Option<Instant>,
    /// Whose log it is: one that was deleted has no more to say. Revoked ones are still read.
    user: Option<Key>,
    log: LogKey,
    after: u64,
    sender: mpsc::Sender<Bytes>,
    _place: Place,
}

impl Following {
    async fn run(mut self) {
        if !self.send(RETRY.into()).await {
            return;
        }
        let mut changed = self.app.store.log_changed(&self.log);
        let mut heartbeat = tokio::time::interval(HEARTBEAT);
        let mut recheck = tokio::time::interval(RECHECK);
        heartbeat.reset();
        recheck.reset();
        loop {
            match self.catch_up().await {
                Some(true) => {}
                Some(false) | None => return,
            }
            tokio::select! {
                () = changed.wait() => {}
                _ = heartbeat.tick() => {
                    let beat = format!(": heartbeat {}\n\n", self.app.clock.now().0);
                    if !self.send(beat).await {
                        return;
                    }
                }
                _ = recheck.tick() => if !self.still_holds().await { return },
                () = self.sender.closed() => return,
                () = self.app.draining.cancelled() => return,
            }
        }
    }

    /// Sends what there is; false once the log is closed and all of it was sent, `None` where the reader or the store is gone.
    async fn catch_up(&mut self) -> Option<bool> {
        loop {
            // The head first: what is appended after it was read as closed cannot be.
            let head = self.app.store.log_head(&self.log).await.ok()?;
            let entries = self.app.store.log_read(&self.log, self.after, ENTRIES_MAX).await.ok()?;
            let Some(last) = entries.last() else { return Some(!head.closed) };
            self.after = last.sequence;
            if !self.send(frames(&entries)).await {
                return None;
            }
            if head.closed && self.after >= head.head {
                return Some(false);
            }
        }
    }

    async fn send(&self, text: String) -> bool {
        matches!(tokio::time::timeout(PATIENCE, self.sender.send(text.into())).await, Ok(Ok(())))
    }

    /// Whether the credential still counts; a store that cannot be asked ends the stream.
    async fn still_holds(&self) -> bool {
        if self.ends.is_some_and(|end| end <= self.app.clock.now()) {
            return false;
        }
        if let Some(user) = &self.user
            && !matches!(self.app.store.get(user).await, Ok(Some(_)))
        {
            return false;
        }
        for guard in &self.guards {
            let Guard::Entry { key, field, value } = guard else { continue };
            let Ok(Some(row)) = self.app.store.get(key).await else { return false };
            if !row.index.iter().any(|(at, is)| at == field && is == value) {
                return false;
            }
        }
        true
    }
}

fn frames(entries: &[LogEntry]) -> String {
    let mut text = String::new();
    for entry in entries {
        // JSON text has no line breaks that are not escaped; a name's are taken out.
        let name: String = entry.name.chars().filter(|c| !c.is_control()).collect();
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
            at: Instant(1),
            name: name.into(),
            payload: payload.into(),
        };
        let text = frames(&[entry(1, "a", "{\n\"x\": 1\n}"), entry(2, "b\ndata: forged", "{}")]);
        assert_eq!(text, "event: a\nid: 1\ndata: { \"x\": 1 }\n\nevent: bdata: forged\nid: 2\ndata: {}\n\n");
    }
}
