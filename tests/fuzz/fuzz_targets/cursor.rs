//! Any text as a cursor: nothing verifies that was not handed out, and everything that was does, in
//! its own list only.
#![no_main]

use charter_kernel::cursor::{Binding, open, seal};
use libfuzzer_sys::fuzz_target;

const KEY: [u8; 32] = [7; 32];

fuzz_target!(|input: (&str, &str, &str, &str)| {
    let (text, position, tenant, filters) = input;
    let binding = Binding { tenant, operation: "things.list", filters };
    let foreign = Binding { operation: "others.list", ..binding };
    assert!(open(&KEY, binding, text).is_err(), "nobody can make a cursor without the key");
    if let Some(cursor) = seal(&KEY, binding, position) {
        assert_eq!(open(&KEY, binding, &cursor).as_deref(), Ok(position));
        assert!(open(&KEY, foreign, &cursor).is_err());
    }
});
