//! The programs that the tests run: the `charter` binary, the primitives and the fixtures, built
//! once a test process.
//!
//! `cargo xtask test` builds them beforehand and says where they are; a plain `cargo test` builds
//! them here.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use xtask::workspace::Workspace;
use xtask::{components, test};

/// The paths of the artefacts.
#[derive(Debug)]
pub struct Artefacts {
    /// The `charter` binary.
    pub charter: PathBuf,
    /// One file for each primitive.
    pub components: PathBuf,
    /// One file for each fixture.
    pub fixtures: PathBuf,
    /// One file for each guest that only the benchmarks know.
    pub bench: PathBuf,
    /// The root of the repository.
    pub root: PathBuf,
}

impl Artefacts {
    /// Builds what was not built beforehand.
    pub fn get() -> &'static Self {
        static BUILT: OnceLock<Artefacts> = OnceLock::new();
        BUILT.get_or_init(|| {
            Self::build()
                .unwrap_or_else(|error| panic!("cannot build what the tests run: {error:#}"))
        })
    }

    /// The bytes of a fixture.
    pub fn fixture(&self, name: &str) -> Vec<u8> {
        let path = self.fixtures.join(format!("{name}.wasm"));
        std::fs::read(&path)
            .unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()))
    }

    /// The hostile component with this text behind its operations: `,{…}` declares one more, and
    /// `],"events":[{…}` goes on with another member of the manifest.
    pub fn hostile_declaring(&self, text: &str) -> Vec<u8> {
        let mut wasm = self.fixture("hostile");
        let blanks = wasm.windows(8_000).position(|bytes| bytes.iter().all(|byte| *byte == b' '));
        let at = blanks.unwrap_or_else(|| panic!("the hostile component has no blanks"));
        assert!(text.len() <= 8_000, "the blanks are too few for {} bytes", text.len());
        wasm[at..at + text.len()].copy_from_slice(text.as_bytes());
        wasm
    }

    /// The bytes of a primitive.
    pub fn component(&self, name: &str) -> Vec<u8> {
        let path = self.components.join(format!("{name}.wasm"));
        std::fs::read(&path)
            .unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()))
    }

    /// The probe as another build: the number stands in its version and in its answers.
    pub fn probe(&self, build: u32) -> Vec<u8> {
        let mut wasm = self.fixture("probe");
        let (old, new) = (b"900000", build.to_string().into_bytes());
        assert_eq!(old.len(), new.len(), "a build is a number of six digits");
        let places: Vec<usize> =
            (0..wasm.len() - old.len()).filter(|at| &wasm[*at..at + old.len()] == old).collect();
        assert!(!places.is_empty(), "the probe does not say its build");
        for at in places {
            wasm[at..at + old.len()].copy_from_slice(&new);
        }
        wasm
    }

    fn build() -> Result<Self, Box<dyn std::error::Error>> {
        let given = |name: &str| std::env::var_os(name).map(PathBuf::from);
        let workspace = Workspace::find()?;
        Ok(Self {
            charter: given(test::BINARY).map_or_else(|| components::host(&workspace, false), Ok)?,
            components: given(test::COMPONENTS)
                .map_or_else(|| components::primitives(&workspace), Ok)?,
            fixtures: given(test::FIXTURES).map_or_else(|| components::fixtures(&workspace), Ok)?,
            bench: given(test::BENCHMARKS)
                .map_or_else(|| components::benchmarks(&workspace), Ok)?,
            root: workspace.root,
        })
    }
}

/// A folder that is removed when it is dropped.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// A new, empty folder that only we may read.
    pub fn new() -> Self {
        use std::os::unix::fs::DirBuilderExt;
        use std::sync::atomic::{AtomicU32, Ordering};
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "charter-test-{}-{}",
            std::process::id(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        );
        let path = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&path);
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&path);
        made.unwrap_or_else(|error| panic!("cannot make {}: {error}", path.display()));
        Self(path)
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Default for Folder {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
