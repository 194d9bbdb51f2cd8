//! Any text as a manifest: faults, never a panic; and what passes is a manifest again when the host
//! writes it.
#![no_main]

use charter_kernel::manifest::faults;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(manifest) = faults::read(text) {
        let written = serde_json::to_string(&manifest).expect("a manifest is JSON");
        let again = faults::read(&written).expect("what the host writes of a manifest is one");
        assert_eq!(manifest.operations.len(), again.operations.len());
        let _ = faults::host_path_faults(&manifest, &["/v1/auth"]);
    }
});
