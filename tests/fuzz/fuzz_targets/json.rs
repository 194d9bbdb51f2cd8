//! Any bytes as a JSON body: what passes reads the same to every reader.
#![no_main]

use charter_kernel::schema::parse_json;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(value) = parse_json(bytes) {
        assert_eq!(serde_json::from_slice::<serde_json::Value>(bytes).ok().as_ref(), Some(&value));
        assert_eq!(parse_json(value.to_string().as_bytes()).as_ref(), Ok(&value));
    }
});
