//! A stream that notes when its peer stalls, so that the connection's watch can close it.
//!
//! hyper bounds the time of a head only together with the idle time before it, and the time of a
//! write not at all; this notes the two moments apart. Costs one relaxed load a read and a write.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

/// The progress of one connection, as far as it is known. Moments are milliseconds since it was
/// accepted, plus one; 0 means never.
pub(super) struct Progress {
    accepted: Instant,
    /// Requests being answered.
    in_flight: AtomicU32,
    /// Whether any request has arrived.
    served: AtomicBool,
    /// When the last answer was ready.
    idle_since: AtomicU64,
    /// When bytes of a head began to arrive.
    head_since: AtomicU64,
    /// Since when the peer takes no bytes.
    stalled_since: AtomicU64,
    /// Answers, and pieces of them, that wait for the peer's leave to be written (RFC 9113, 5.2).
    owed: AtomicU32,
    /// Bytes of answers that the peer let be written: those of pings and of other frames are none.
    taken: AtomicU64,
    /// When so much had been taken as counts for progress, and how much that was.
    moved: (AtomicU64, AtomicU64),
}

/// Bytes of answers that a peer takes within the patience of a write, where some are owed to it.
const MOVED_BYTES: u64 = 16 << 10;

/// The limits of [`Progress`].
#[derive(Clone, Copy)]
pub(super) struct Patience {
    pub(super) head: Duration,
    pub(super) idle: Duration,
    pub(super) write: Duration,
}

/// The action that the watch should take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WatchAction {
    Fine,
    /// Idle for long: say goodbye and close.
    Retire,
    /// Stalled: drop.
    Cut,
}

impl Progress {
    pub(super) fn new() -> Self {
        Self {
            accepted: Instant::now(),
            in_flight: AtomicU32::new(0),
            served: AtomicBool::new(false),
            idle_since: AtomicU64::new(1),
            head_since: AtomicU64::new(0),
            stalled_since: AtomicU64::new(0),
            owed: AtomicU32::new(0),
            taken: AtomicU64::new(0),
            moved: (AtomicU64::new(1), AtomicU64::new(0)),
        }
    }
    /// Something waits for the peer's leave, until what is returned is dropped.
    pub(super) fn owe(self: &Arc<Self>) -> Owed {
        self.owed.fetch_add(1, Relaxed);
        Owed(self.clone())
    }
    /// Whether the peer has taken next to nothing of what is owed to it, for so long.
    fn is_withheld(&self, patience: Duration) -> bool {
        let (now, taken) = (self.now(), self.taken.load(Relaxed));
        let (since, before) = (self.moved.0.load(Relaxed), self.moved.1.load(Relaxed));
        if self.owed.load(Relaxed) == 0 || taken.saturating_sub(before) >= MOVED_BYTES {
            self.moved.0.store(now, Relaxed);
            self.moved.1.store(taken, Relaxed);
            return false;
        }
        now.saturating_sub(since) > patience.as_millis() as u64
    }
    /// A request has arrived; dropping what is returned says that its answer is ready.
    pub(super) fn request(self: &Arc<Self>) -> InFlight {
        self.in_flight.fetch_add(1, Relaxed);
        self.served.store(true, Relaxed);
        self.head_since.store(0, Relaxed);
        InFlight(self.clone())
    }
    /// The action for now.
    pub(super) fn action(&self, patience: Patience, http2: bool) -> WatchAction {
        let late = |since: &AtomicU64, limit: Duration| {
            let since = since.load(Relaxed);
            since != 0 && self.now().saturating_sub(since) > limit.as_millis() as u64
        };
        if late(&self.stalled_since, patience.write) || self.is_withheld(patience.write) {
            return WatchAction::Cut;
        }
        if self.in_flight.load(Relaxed) > 0 {
            return WatchAction::Fine;
        }
        let served = self.served.load(Relaxed);
        // HTTP/2 peers send frames that begin no request (pings, window updates): only their first
        // head is timed.
        if !served && self.now() > patience.head.as_millis() as u64
            || !http2 && late(&self.head_since, patience.head)
        {
            return WatchAction::Cut;
        }
        if served && late(&self.idle_since, patience.idle) {
            WatchAction::Retire
        } else {
            WatchAction::Fine
        }
    }
    fn now(&self) -> u64 {
        self.accepted.elapsed().as_millis() as u64 + 1
    }
}

/// A request being answered.
pub(super) struct InFlight(Arc<Progress>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.idle_since.store(self.0.now(), Relaxed);
        self.0.in_flight.fetch_sub(1, Relaxed);
    }
}

/// Something that waits for the peer's leave.
pub(super) struct Owed(Arc<Progress>);

impl Owed {
    /// The peer took so many bytes of it.
    pub(super) fn count(&self, bytes: usize) {
        self.0.taken.fetch_add(bytes as u64, Relaxed);
    }
}

impl Drop for Owed {
    fn drop(&mut self) {
        self.0.owed.fetch_sub(1, Relaxed);
    }
}

/// Bytes of one connection that are read before it is the others' turn: frames that begin no request are
/// read as fast as they come.
const TURN_BYTES: usize = 4 << 10;

/// The stream.
pub(super) struct Watched<T> {
    inner: T,
    progress: Arc<Progress>,
    /// Bytes that were read in this turn.
    turn: usize,
}

impl<T> Watched<T> {
    pub(super) fn new(inner: T, progress: Arc<Progress>) -> Self {
        Self { inner, progress, turn: 0 }
    }
    fn wrote<R>(&self, polled: Poll<R>) -> Poll<R> {
        let stalled = &self.progress.stalled_since;
        match (&polled, stalled.load(Relaxed)) {
            (Poll::Pending, 0) => stalled.store(self.progress.now(), Relaxed),
            (Poll::Ready(_), since) if since != 0 => stalled.store(0, Relaxed),
            _ => {}
        }
        polled
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Watched<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.turn >= TURN_BYTES {
            self.turn = 0;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let before = into.filled().len();
        let polled = Pin::new(&mut self.inner).poll_read(cx, into);
        self.turn = if polled.is_ready() { self.turn + into.filled().len() - before } else { 0 };
        let progress = &self.progress;
        if polled.is_ready()
            && progress.head_since.load(Relaxed) == 0
            && progress.in_flight.load(Relaxed) == 0
        {
            progress.head_since.store(progress.now(), Relaxed);
        }
        polled
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Watched<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.inner).poll_write(cx, bytes);
        self.wrote(polled)
    }
    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.inner).poll_write_vectored(cx, bytes);
        self.wrote(polled)
    }
    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.inner).poll_flush(cx);
        self.wrote(polled)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Patience = Patience {
        head: Duration::from_secs(10),
        idle: Duration::from_secs(75),
        write: Duration::from_secs(30),
    };

    #[tokio::test]
    async fn who_sends_without_end_gives_others_their_turn() {
        let mut stream = Watched::new(tokio::io::repeat(0), Arc::new(Progress::new()));
        let (mut into, mut read, mut pauses) = ([0; 4 << 10], 0, 0);
        let mut cx = Context::from_waker(std::task::Waker::noop());
        while read < 64 << 10 {
            let mut buffer = ReadBuf::new(&mut into);
            match Pin::new(&mut stream).poll_read(&mut cx, &mut buffer) {
                Poll::Ready(_) => read += buffer.filled().len(),
                Poll::Pending => pauses += 1,
            }
        }
        assert_eq!(pauses, 15);
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_connection_is_cut_and_an_idle_one_retired() {
        let progress = Arc::new(Progress::new());
        assert_eq!(progress.action(PATIENCE, false), WatchAction::Fine);
        tokio::time::advance(Duration::from_secs(11)).await;
        assert_eq!(progress.action(PATIENCE, true), WatchAction::Cut);
        let request = progress.request();
        tokio::time::advance(Duration::from_secs(600)).await;
        assert_eq!(progress.action(PATIENCE, false), WatchAction::Fine);
        drop(request);
        tokio::time::advance(Duration::from_secs(70)).await;
        assert_eq!(progress.action(PATIENCE, false), WatchAction::Fine);
        tokio::time::advance(Duration::from_secs(6)).await;
        assert_eq!(progress.action(PATIENCE, false), WatchAction::Retire);
    }

    #[tokio::test(start_paused = true)]
    async fn a_second_head_that_trickles_in_is_cut() {
        let progress = Arc::new(Progress::new());
        drop(progress.request());
        progress.head_since.store(progress.now(), Relaxed);
        tokio::time::advance(Duration::from_secs(11)).await;
        assert_eq!(progress.action(PATIENCE, false), WatchAction::Cut);
        assert_eq!(progress.action(PATIENCE, true), WatchAction::Fine);
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_withholds_its_leave_is_cut_unless_nothing_is_owed() {
        let progress = Arc::new(Progress::new());
        drop(progress.request());
        let request = progress.request();
        let act = || progress.action(PATIENCE, true);
        tokio::time::advance(Duration::from_secs(600)).await;
        assert_eq!(act(), WatchAction::Fine, "an answer takes as long as it takes");
        let owed = progress.owe();
        for _ in 0..6 {
            tokio::time::advance(Duration::from_secs(20)).await;
            owed.count(16 << 10);
            assert_eq!(act(), WatchAction::Fine, "it is taken, slowly");
        }
        tokio::time::advance(Duration::from_secs(20)).await;
        owed.count(17);
        assert_eq!(act(), WatchAction::Fine);
        tokio::time::advance(Duration::from_secs(11)).await;
        assert_eq!(act(), WatchAction::Cut, "next to nothing is no progress");
        drop(owed);
        assert_eq!(act(), WatchAction::Fine, "a stream that is silent owes nothing");
        drop(request);
    }

    #[tokio::test(start_paused = true)]
    async fn bytes_that_are_of_no_answer_are_no_progress() {
        let progress = Arc::new(Progress::new());
        let mut stream = Watched::new(tokio::io::sink(), progress.clone());
        drop(progress.request());
        let _owed = progress.owe();
        let pings = vec![0; 64 << 10];
        for _ in 0..31 {
            tokio::time::advance(Duration::from_secs(1)).await;
            let written = tokio::io::AsyncWriteExt::write_all(&mut stream, &pings).await;
            written.expect("a sink takes all");
        }
        assert_eq!(progress.action(PATIENCE, true), WatchAction::Cut);
    }
}
