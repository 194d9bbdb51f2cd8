//! The fixtures' components, and further ones made of them by replacing texts of the built file.
//!
//! Shared by the tests of the crates that run components; knows neither an engine nor a store.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The fixtures that no test can do without.
const PACKAGES: [&str; 7] = [
    "probe",
    "hostile",
    "script",
    "wrong-world",
    "forbidden-import",
    "undeclared-import",
    "malformed",
];
/// Blanks of the hostile component's manifest, behind its operations.
const BLANKS: usize = 8_000;

/// The bytes of a fixture. Builds all of them once a test process, unless `cargo xtask test` has
/// done so.
pub fn fixture(name: &str) -> Vec<u8> {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let folder = BUILT.get_or_init(|| match std::env::var_os("CHARTER_TEST_FIXTURES") {
        Some(given) => given.into(),
        None => build(),
    });
    let plain = folder.join(format!("{name}.wasm"));
    let built = folder.join(format!("charter_fixture_{}.wasm", name.replace('-', "_")));
    std::fs::read(if plain.exists() { plain } else { built }).unwrap()
}

fn build() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut build = Command::new(env!("CARGO"));
    build.current_dir(&root);
    build.args(["build", "--quiet", "--profile", "component", "--target", "wasm32-wasip2"]);
    for package in PACKAGES {
        build.args(["--package", &format!("charter-fixture-{package}")]);
    }
    assert!(build.status().unwrap().success(), "the fixtures do not build");
    root.join("target/wasm32-wasip2/component")
}

/// The component with each occurrence of a text replaced by one of the same length.
pub fn rewrite(mut wasm: Vec<u8>, old: &str, new: &str) -> Vec<u8> {
    assert_eq!(old.len(), new.len());
    let places: Vec<usize> =
        (0..=wasm.len() - old.len()).filter(|at| wasm[*at..].starts_with(old.as_bytes())).collect();
    assert!(!places.is_empty(), "the component does not say {old:?}");
    for at in places {
        wasm[at..at + new.len()].copy_from_slice(new.as_bytes());
    }
    wasm
}

/// The probe as another build: the number, of six digits, stands in its version and its answers.
pub fn probe(build: u32) -> Vec<u8> {
    rewrite(fixture("probe"), "900000", &build.to_string())
}

/// The hostile component with this text behind its operations: `,{…}` declares one more, and
/// `],"events":[{…}` goes on with another member of the manifest.
pub fn declaring(text: &str) -> Vec<u8> {
    let blanks = " ".repeat(BLANKS);
    rewrite(fixture("hostile"), &blanks, &format!("{text:<BLANKS$}"))
}
