//! WASI that grants nothing: no files, no environment, no arguments, no sockets. Clocks and
//! randomness only.
//!
//! A guest's output is kept, up to a bound, for the operator's log: a panic's message arrives this
//! way.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use charter_kernel::line::one_line;
use charter_kernel::time::Clock;
use tokio::io::AsyncWrite;
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};
use wasmtime_wasi::p2::{OutputStream, Pollable, StreamResult};
use wasmtime_wasi::random::Deterministic;
use wasmtime_wasi::{HostMonotonicClock, HostWallClock, WasiCtx};

/// Random bytes that one call of `get-random-bytes` may ask for.
const RANDOM_BYTES_MAX: u64 = 64 << 10;
/// Bytes of a guest's output that are kept.
const OUTPUT_BYTES_MAX: usize = 16 << 10;
/// The bytes that one write to a guest's output may hold.
const WRITE_BYTES_MAX: usize = 64 << 10;

/// The output of a guest; the rest is dropped.
#[derive(Clone, Debug, Default)]
pub(crate) struct Printed(Arc<Mutex<Vec<u8>>>);

impl Printed {
    fn keep(&self, bytes: &[u8]) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let room = OUTPUT_BYTES_MAX.saturating_sub(kept.len());
        kept.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }
    /// The text so far, as one line.
    pub(crate) fn text(&self) -> String {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        one_line(String::from_utf8_lossy(&kept).trim_end()).into_owned()
    }
}

impl IsTerminal for Printed {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for Printed {
    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        Box::new(tokio::io::sink())
    }
    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }
}

#[wasmtime_wasi::async_trait]
impl Pollable for Printed {
    async fn ready(&mut self) {}
}

impl OutputStream for Printed {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.keep(&bytes);
        Ok(())
    }
    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }
    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(WRITE_BYTES_MAX)
    }
}

/// The host's clock, as a guest sees it.
struct Wall(Arc<dyn Clock>);

impl HostWallClock for Wall {
    fn resolution(&self) -> Duration {
        Duration::from_millis(1)
    }
    fn now(&self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.now().0).unwrap_or(0))
    }
}

/// A clock that stands still, for `describe`.
struct Still;

impl HostWallClock for Still {
    fn resolution(&self) -> Duration {
        Duration::from_millis(1)
    }
    fn now(&self) -> Duration {
        Duration::ZERO
    }
}

impl HostMonotonicClock for Still {
    fn resolution(&self) -> u64 {
        1_000_000
    }
    fn now(&self) -> u64 {
        0
    }
}

/// The context of a call.
pub(crate) fn of_call(clock: &Arc<dyn Clock>, printed: &Printed) -> WasiCtx {
    let mut builder = WasiCtx::builder();
    builder
        .max_random_size(RANDOM_BYTES_MAX)
        .allow_tcp(false)
        .allow_udp(false)
        .allow_ip_name_lookup(false)
        .stdout(printed.clone())
        .stderr(printed.clone())
        .wall_clock(Wall(clock.clone()));
    builder.build()
}

/// The context of `describe`: the same bytes whenever and wherever it runs.
pub(crate) fn describe_context(printed: &Printed) -> WasiCtx {
    let mut builder = WasiCtx::builder();
    builder
        .max_random_size(RANDOM_BYTES_MAX)
        .allow_tcp(false)
        .allow_udp(false)
        .allow_ip_name_lookup(false)
        .stderr(printed.clone())
        .secure_random(Deterministic::new(vec![7, 3, 1]))
        .insecure_random(Deterministic::new(vec![7, 3, 1]))
        .insecure_random_seed(0)
        .wall_clock(Still)
        .monotonic_clock(Still);
    builder.build()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, Ordering::SeqCst};

    use charter_kernel::time::Instant;

    use super::*;

    struct At(AtomicI64);

    impl Clock for At {
        fn now(&self) -> Instant {
            Instant(self.0.load(SeqCst))
        }
    }

    #[test]
    fn what_a_guest_prints_is_one_bounded_line() {
        let printed = Printed::default();
        assert_eq!(printed.text(), "");
        printed.keep(b"panicked at\nERROR forged line\r\x1b[2J\0");
        printed.keep(b"\xff\xfe\n\n");
        let text = printed.text();
        assert!(!text.contains(char::is_control), "{text:?}");
        assert!(text.starts_with("panicked at") && text.contains("forged line"), "{text:?}");
        let copy = printed.clone();
        for _ in 0..3 {
            copy.keep(&vec![b'x'; OUTPUT_BYTES_MAX]);
        }
        let kept = printed.0.lock().unwrap().len();
        assert_eq!(kept, OUTPUT_BYTES_MAX, "the rest is dropped");
        copy.keep(b"more");
        assert_eq!(printed.0.lock().unwrap().len(), OUTPUT_BYTES_MAX);
    }

    #[test]
    fn a_guests_wall_clock_is_the_hosts_and_stands_still_while_it_describes_itself() {
        let clock = Arc::new(At(AtomicI64::new(1_700_000_000_123)));
        let wall = Wall(clock.clone());
        assert_eq!(wall.now(), Duration::from_millis(1_700_000_000_123));
        clock.0.store(-5, SeqCst);
        assert_eq!(wall.now(), Duration::ZERO, "no guest sees a time before its epoch");
        assert_eq!(HostWallClock::now(&Still), Duration::ZERO);
        assert_eq!(HostMonotonicClock::now(&Still), HostMonotonicClock::now(&Still));
        let second = Duration::from_secs(1);
        assert!(wall.resolution() < second && HostWallClock::resolution(&Still) < second);
        assert!(HostMonotonicClock::resolution(&Still) > 0);
    }

    #[tokio::test]
    async fn output_is_taken_whole_and_is_no_terminal() {
        let mut printed = Printed::default();
        assert!(!printed.is_terminal());
        assert!(printed.check_write().unwrap() > 0);
        printed.write(Bytes::from_static(b"a ")).unwrap();
        printed.p2_stream().write(Bytes::from_static(b"b")).unwrap();
        printed.flush().unwrap();
        printed.ready().await;
        assert_eq!(printed.text(), "a b");
    }
}
