//! Any header value as an idempotency key: what passes is bounded, visible ASCII, and spelled bare
//! or quoted it is one key.
#![no_main]

use charter_kernel::idempotency::ClientKey;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|header: &str| {
    if let Ok(key) = ClientKey::parse(header) {
        let text = key.as_str();
        assert!(
            (1..=255).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
        );
        let quoted = format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
        assert_eq!(ClientKey::parse(&quoted).as_ref(), Ok(&key));
    }
});
