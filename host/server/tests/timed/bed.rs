//! A whole server of this process on a data folder of its own, whose clock the test moves.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};

use charter_kernel::time::{Clock, Instant};
use charter_server::cli::serve::{Running, start};
use charter_server::config::{Config, Layers};

/// Noon of a day in 2027, in UTC: when each server starts.
const NOON: i64 = 1_800_014_400_000;

/// A clock that stands until it is moved.
#[derive(Debug)]
struct Hands(AtomicI64);

impl Clock for Hands {
    fn now(&self) -> Instant {
        Instant(self.0.load(Ordering::SeqCst))
    }
}

/// The server. Its folder goes with it.
pub(crate) struct Timed {
    running: Option<Running>,
    clock: Arc<Hands>,
    folder: PathBuf,
}

impl Timed {
    /// Starts one, with this environment.
    pub(crate) async fn start(environment: &[(&str, &str)]) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "charter-timed-{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        );
        let folder = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&folder);
        let clock = Arc::new(Hands(AtomicI64::new(NOON)));
        let mut timed = Self { running: None, clock, folder };
        timed.run(environment).await;
        timed
    }

    /// Ends it, and starts one on the same folder and with the same clock.
    pub(crate) async fn restart(&mut self) {
        self.stop().await;
        self.run(&[]).await;
    }

    async fn run(&mut self, environment: &[(&str, &str)]) {
        let flags = vec![
            ("data.dir", "--data", self.folder.display().to_string()),
            ("http.listen", "--listen", "127.0.0.1:0".to_owned()),
        ];
        let environment = environment
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        let config = Config::read(Layers { flags, environment, ..Layers::default() })
            .expect("the configuration is whole");
        let running = start(config, self.clock.clone()).await.expect("a server starts");
        self.running = Some(running);
    }

    /// The running server.
    pub(crate) fn running(&self) -> &Running {
        self.running.as_ref().expect("it runs until it is stopped")
    }

    /// The time at the server.
    pub(crate) fn now(&self) -> Instant {
        self.running().app.clock.now()
    }

    /// Moves the clock.
    pub(crate) fn pass(&self, ms: i64) {
        self.clock.0.fetch_add(ms, Ordering::SeqCst);
    }

    /// Ends it, once.
    pub(crate) async fn stop(&mut self) {
        if let Some(running) = self.running.take() {
            running.stop().await;
        }
    }
}

impl Drop for Timed {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
