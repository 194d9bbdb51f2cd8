//! Any request path against any template: a parsed path has one reading, and a match gives back
//! what stood in the path.
#![no_main]

use charter_kernel::route::{Path, Table, Template};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (&str, [&str; 3])| {
    let (raw, templates) = input;
    let mut table = Table::new();
    for (at, text) in templates.into_iter().enumerate() {
        if let Ok(template) = Template::parse(text) {
            assert_eq!(
                Template::parse(&template.to_string()).as_ref().map(ToString::to_string),
                Ok(template.to_string())
            );
            let _ = table.insert("owner", "GET", template, at);
        }
    }
    let Ok(path) = Path::parse(raw) else { return };
    for segment in path.segments() {
        assert!(!segment.is_empty() && segment != "." && segment != "..");
        assert!(!segment.contains(['/', '\\', '\0']));
    }
    if let Ok(found) = table.find("GET", &path) {
        for (_, value) in &found.parameters {
            assert!(raw.len() >= value.len(), "a parameter is part of the path");
        }
    }
});
