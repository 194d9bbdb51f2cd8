//! A deployment that has compiled some components before, copied for each test: none compiles what
//! another has compiled.
//!
//! Shared by the tests of the crates that run components. Code is cached under a key of its
//! deployment, so the copy is of a whole data folder.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};

use charter_engine::{Engine, EngineConfig};
use charter_kernel::time::{Clock, Instant};
use charter_store::{Store, StoreConfig};

/// The time of the deployment that is copied.
struct Once;

impl Clock for Once {
    fn now(&self) -> Instant {
        Instant(1_600_000_000_000)
    }
}

/// A folder of its own, below the system's for temporary files.
pub fn folder() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name = format!("charter-guests-{}-{}", std::process::id(), NEXT.fetch_add(1, SeqCst));
    let folder = std::env::temp_dir().join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// The deployment in a folder.
pub async fn open(folder: &Path, config: EngineConfig, clock: Arc<dyn Clock>) -> (Store, Engine) {
    let mut of_store = StoreConfig::new(folder, clock.clone());
    of_store.ballast_bytes = 1024 * 1024;
    let store = Store::open(of_store).await.unwrap();
    let config = EngineConfig { cache_dir: Some(folder.join("code")), ..config };
    let engine = Engine::new(config, store.clone(), clock).unwrap();
    (store, engine)
}

/// Copies the deployment that has compiled these into a folder. They are the same for all tests of
/// a process: the first call names them.
pub async fn copy(folder: &Path, components: fn() -> Vec<Vec<u8>>) {
    static MADE: OnceLock<Vec<(PathBuf, Vec<u8>)>> = OnceLock::new();
    let files = tokio::task::spawn_blocking(move || MADE.get_or_init(|| make(components)));
    std::fs::create_dir_all(folder.join("code")).unwrap();
    for (name, bytes) in files.await.unwrap() {
        std::fs::write(folder.join(name), bytes).unwrap();
        only_ours(&folder.join(name), 0o600);
    }
    only_ours(&folder.join("code"), 0o700);
}

fn make(components: fn() -> Vec<Vec<u8>>) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = folder();
    let compile = async {
        let (store, engine) = open(&folder, EngineConfig::default(), Arc::new(Once)).await;
        for wasm in components() {
            engine.stage(wasm.into()).await.unwrap();
        }
        store.close().await;
    };
    // A runtime is not begun within another one.
    std::thread::scope(|scope| {
        let run = || tokio::runtime::Runtime::new().unwrap().block_on(compile);
        scope.spawn(run).join().unwrap();
    });
    let mut files = Vec::new();
    for within in [PathBuf::new(), PathBuf::from("code")] {
        for entry in std::fs::read_dir(folder.join(&within)).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() {
                let name = within.join(path.file_name().unwrap());
                files.push((name, std::fs::read(&path).unwrap()));
            }
        }
    }
    let _ = std::fs::remove_dir_all(&folder);
    files
}

/// Keys and code that others could write are refused at the start.
fn only_ours(path: &Path, mode: u32) {
    let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
    std::fs::set_permissions(path, mode).unwrap();
}
