//! An event stream, read by a public client as it comes.

use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use bytes::Bytes;
use eventsource_stream::{Event, Eventsource as _};
use futures::StreamExt as _;
use http_body_util::BodyExt as _;
use tokio::task::AbortHandle;

use crate::client::{Call, runtime};

/// Nothing that is read from a stream takes longer to come.
const PATIENCE: Duration = Duration::from_secs(60);

/// An open stream; dropping it hangs up.
#[derive(Debug)]
pub struct Stream {
    events: Receiver<Event>,
    reader: AbortHandle,
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

impl Stream {
    /// Opens it.
    #[track_caller]
    pub fn open(call: Call<'_>) -> Self {
        let (http, message) = call.message().unwrap_or_else(|fault| panic!("{fault}"));
        let answer = runtime()
            .block_on(async move { tokio::time::timeout(PATIENCE, http.request(message)).await });
        let answer =
            answer.expect("the stream opens in time").unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(answer.status(), 200);
        assert_eq!(answer.headers()["content-type"], "text/event-stream");
        let (sender, events) = channel();
        let reader = runtime().spawn(async move {
            let bytes = answer
                .into_body()
                .into_data_stream()
                .map(|piece| piece.map(|bytes: Bytes| bytes.to_vec()));
            let mut read = std::pin::pin!(bytes.eventsource());
            while let Some(Ok(event)) = read.next().await {
                if sender.send(event).is_err() {
                    return;
                }
            }
        });
        Self { events, reader: reader.abort_handle() }
    }

    /// The next event; `None` once the server has hung up.
    pub fn next(&self) -> Option<Event> {
        match self.events.recv_timeout(PATIENCE) {
            Ok(event) => Some(event),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("nothing came within {PATIENCE:?}"),
        }
    }

    /// The next event of a type.
    #[track_caller]
    pub fn next_of(&self, kind: &str) -> Event {
        loop {
            let event = self.next().unwrap_or_else(|| panic!("the stream ended before a {kind}"));
            if event.event == kind {
                return event;
            }
        }
    }
}
