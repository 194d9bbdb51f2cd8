//! The files of the code cache that are run: those that this deployment wrote whole, for this
//! engine and this component, in a folder of its own.

use std::os::unix::fs::symlink;
use std::sync::atomic::AtomicI64;

use charter_kernel::time::Instant;
use proptest::prelude::*;

use super::*;

/// A clock that says how often it was asked, in seconds.
struct Ticks(AtomicI64);

impl Clock for Ticks {
    fn now(&self) -> Instant {
        Instant(1_000 * self.0.fetch_add(1, Relaxed))
    }
}

/// A folder that is gone with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("charter-cache-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn engine(optimized: bool) -> Engine {
    let level = if optimized { wasmtime::OptLevel::Speed } else { wasmtime::OptLevel::None };
    Engine::new(wasmtime::Config::new().cranelift_opt_level(level)).unwrap()
}

fn open(folder: &Folder, key: u8, engine: &Engine, bytes_max: u64) -> CodeCache {
    let clock = Arc::new(Ticks(AtomicI64::new(1_000)));
    CodeCache::open(&folder.0, bytes_max, [key; 32], engine, clock).unwrap()
}

/// The least that is a component.
const EMPTY: &[u8] = b"\0asm\x0d\0\x01\0";
const DIGEST: &str = "sha256:aa";

fn fill(folder: &Folder, engine: &Engine) -> CodeCache {
    let cache = open(folder, 1, engine, 1 << 30);
    cache.store(DIGEST, "{\"a\":1}", &Code::new(engine, EMPTY).unwrap());
    cache
}

fn text(cache: &CodeCache, engine: &Engine, digest: &str) -> Option<String> {
    cache.load(engine, digest).map(|(text, _)| text)
}

#[test]
fn what_was_kept_comes_back_to_the_same_deployment_engine_and_component() {
    let (folder, one, other) = (Folder::new("same"), engine(false), engine(true));
    let cache = fill(&folder, &one);
    assert_eq!(text(&cache, &one, DIGEST).as_deref(), Some("{\"a\":1}"));
    assert_eq!(text(&cache, &one, "sha256:bb"), None, "another component");
    let again = open(&folder, 1, &one, 1 << 30);
    assert_eq!(text(&again, &one, DIGEST).as_deref(), Some("{\"a\":1}"), "after a restart");
    let faster = open(&folder, 1, &other, 1 << 30);
    assert_eq!(text(&faster, &other, DIGEST), None, "another engine looks elsewhere");
    assert!(text(&again, &one, DIGEST).is_some(), "and takes nothing away");
}

#[test]
fn a_file_that_another_deployment_wrote_is_not_run_and_goes() {
    let (folder, one) = (Folder::new("foreign"), engine(false));
    let own = fill(&folder, &one);
    let path = own.file(DIGEST);
    let foreign = open(&folder, 2, &one, 1 << 30);
    assert_eq!(text(&foreign, &one, DIGEST), None);
    assert!(!path.exists());
}

#[test]
fn a_file_in_the_place_of_another_components_or_engines_is_not_run() {
    let (folder, one, other) = (Folder::new("moved"), engine(false), engine(true));
    let cache = fill(&folder, &one);
    fs::copy(cache.file(DIGEST), cache.file("sha256:bb")).unwrap();
    assert_eq!(text(&cache, &one, "sha256:bb"), None);
    let faster = open(&folder, 1, &other, 1 << 30);
    fs::copy(cache.file(DIGEST), faster.file(DIGEST)).unwrap();
    assert_eq!(text(&faster, &other, DIGEST), None);
    assert!(text(&cache, &one, DIGEST).is_some());
}

#[test]
fn code_in_its_place_without_a_mac_is_not_run() {
    let (folder, one) = (Folder::new("bare"), engine(false));
    let cache = open(&folder, 1, &one, 1 << 30);
    let code = Code::new(&one, EMPTY).unwrap().serialize().unwrap();
    let bare = [&2_u32.to_le_bytes()[..], b"{}", &code].concat();
    for file in [
        code.clone(),
        bare.clone(),
        [MAGIC.to_vec(), bare.clone()].concat(),
        [MAGIC.to_vec(), vec![0; MAC_BYTES], bare].concat(),
    ] {
        fs::write(cache.file(DIGEST), file).unwrap();
        assert_eq!(text(&cache, &one, DIGEST), None);
    }
}

#[test]
fn a_folder_that_is_not_ours_alone_stops_the_start() {
    let one = engine(false);
    let refused = |folder: &Folder| {
        let clock = Arc::new(Ticks(AtomicI64::new(0)));
        let opened = CodeCache::open(&folder.0, 1, [1; 32], &one, clock);
        opened.err().map(|error| error.to_string())
    };
    let folder = Folder::new("mode");
    assert_eq!(refused(&folder), None);
    assert_eq!(
        fs::metadata(&folder.0).unwrap().permissions().mode() & 0o777,
        0o700,
        "as it is made"
    );
    for mode in [0o755, 0o750, 0o701, 0o770, 0o707] {
        fs::set_permissions(&folder.0, fs::Permissions::from_mode(mode)).unwrap();
        assert!(refused(&folder).is_some_and(|fault| fault.contains("0700")), "{mode:o}");
    }
    fs::set_permissions(&folder.0, fs::Permissions::from_mode(0o700)).unwrap();
    assert_eq!(refused(&folder), None);
    let link = Folder(folder.0.join("link"));
    symlink(&folder.0, &link.0).unwrap();
    assert!(refused(&link).is_some_and(|fault| fault.contains("no directory")), "a link elsewhere");
    fs::remove_file(&link.0).unwrap();
    let file = Folder(folder.0.join("file"));
    fs::write(&file.0, "x").unwrap();
    assert!(refused(&file).is_some());
    let below = Folder(file.0.join("below"));
    assert!(refused(&below).is_some());
}

#[test]
fn the_least_used_files_go_first_and_what_is_left_fits() {
    let (folder, one) = (Folder::new("evict"), engine(false));
    let cache = open(&folder, 1, &one, 1 << 30);
    let code = Code::new(&one, EMPTY).unwrap();
    for digest in ["a", "b", "c"] {
        cache.store(digest, "{}", &code);
    }
    // Ages are those of the last use.
    for digest in ["b", "a", "c"] {
        assert!(cache.load(&one, digest).is_some());
    }
    let size = fs::metadata(cache.file("a")).unwrap().len();
    let smaller = open(&folder, 1, &one, 2 * size);
    smaller.evict();
    let left = ["a", "b", "c"].map(|digest| smaller.file(digest).exists());
    assert_eq!(left, [true, false, true]);
    let none = open(&folder, 1, &one, 0);
    none.evict();
    assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 0);
}

#[test]
fn a_manifest_of_any_size_comes_back_whole_and_nothing_unfinished_is_left() {
    let (folder, one) = (Folder::new("whole"), engine(false));
    let cache = open(&folder, 1, &one, 1 << 30);
    let code = Code::new(&one, EMPTY).unwrap();
    for manifest in [String::new(), "ü".repeat(100_000)] {
        cache.store(DIGEST, &manifest, &code);
        assert_eq!(text(&cache, &one, DIGEST), Some(manifest));
    }
    let files: Vec<_> = fs::read_dir(&folder.0).unwrap().map(|file| file.unwrap()).collect();
    assert_eq!(files.len(), 1);
    assert_eq!(files[0].metadata().unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_file_that_is_cut_or_changed_anywhere_is_a_miss() {
    let (folder, one) = (Folder::new("torn"), engine(false));
    let cache = fill(&folder, &one);
    let whole = fs::read(cache.file(DIGEST)).unwrap();
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) };
    let mut runner = proptest::test_runner::TestRunner::new(config);
    let damage = (0..whole.len(), any::<bool>(), 1_u8..=255);
    let run = runner.run(&damage, |(at, cuts, change)| {
        let mut file = whole.clone();
        match cuts {
            true => file.truncate(at),
            false => file[at] ^= change,
        }
        prop_assert!(cache.verify(DIGEST, &file).is_none());
        Ok(())
    });
    run.unwrap();
    assert!(cache.verify(DIGEST, &whole).is_some());
    assert!(cache.verify(DIGEST, &[&whole[..], b"\0"].concat()).is_none(), "nor one that grew");
}
