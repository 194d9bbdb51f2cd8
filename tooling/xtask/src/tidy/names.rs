//! The names of functions and the openings of comments, as people read them.
//!
//! A participle (`told`, `shown`) says neither what a function does nor to what, and a sentence that
//! opens with `What` or `Who` in the place of a noun does not name its subject.

use super::prose::{self, Place};
use super::{File, Files};
use crate::rust::{self, Code, Kind};

/// Participles that do not end in `ed`.
const IRREGULAR: [&str; 45] = [
    "begun",
    "bound",
    "broken",
    "brought",
    "built",
    "caught",
    "chosen",
    "done",
    "drawn",
    "driven",
    "fallen",
    "found",
    "given",
    "gone",
    "grown",
    "held",
    "hidden",
    "kept",
    "known",
    "laid",
    "led",
    "left",
    "lent",
    "lost",
    "made",
    "meant",
    "met",
    "mistaken",
    "overdrawn",
    "paid",
    "risen",
    "said",
    "seen",
    "sent",
    "shown",
    "sold",
    "spent",
    "stood",
    "sworn",
    "taken",
    "thrown",
    "told",
    "undone",
    "withdrawn",
    "written",
];
/// Words that end in `ed` and are no participles.
const NOUNS: [&str; 7] = ["bed", "embed", "feed", "need", "seed", "speed", "succeed"];
/// Words after a participle that leave it one: `pinned_to`, `caught_up`.
const PARTICLES: [&str; 12] =
    ["after", "as", "at", "before", "by", "for", "in", "now", "of", "once", "to", "up"];
/// Names that others gave: HTTP's statuses, OpenAPI's members, error codes and the WIT's functions.
const GIVEN: [&str; 8] = [
    "accepted",
    "created",
    "deprecated",
    "dispatched",
    "overloaded",
    "spent",
    "unauthorized",
    "undeclared",
];

/// Modules that only tests are built with.
const TEST_MODULES: [&str; 2] = ["tests", "bed"];

pub(super) fn faults(files: &Files) -> Vec<String> {
    let mut faults = Vec::new();
    for file in files.below(&["host/", "plugins/", "tooling/", "tests/", "wit/"]) {
        let fault = |place: &Place, rule: &str| {
            format!("{}:{}: {}: {rule}", file.path, place.line, place.text)
        };
        if is_source(file) {
            let rule = "a verb names a function, or the noun that it answers; no participle does";
            faults.extend(participles(&file.text).iter().map(|place| fault(place, rule)));
        }
        if file.path.ends_with(".rs") || file.path.ends_with(".wit") {
            let rule = "name the subject: no sentence opens with a relative";
            let (_, openings) = prose::sentences(&rust::tokens(&file.text));
            faults.extend(openings.iter().map(|place| fault(place, rule)));
        }
    }
    faults
}

/// Whether a file is code that a crate builds for its users.
fn is_source(file: &File) -> bool {
    let is_test = file.path.starts_with("tests/")
        || file.path.split('/').any(|part| TEST_MODULES.contains(&part.trim_end_matches(".rs")));
    file.path.ends_with(".rs") && !is_test
}

/// The functions of a text that a participle names, its tests apart.
fn participles(text: &str) -> Vec<Place> {
    let code = Code::of(text);
    let words: Vec<_> = code.tokens.iter().filter(|token| !token.is_comment()).collect();
    let named = words.windows(2).filter(|pair| pair[0].text == "fn" && pair[1].kind == Kind::Word);
    named
        .filter(|pair| is_participle(pair[1].text))
        .map(|pair| Place { line: pair[1].line, text: pair[1].text.to_owned() })
        .collect()
}

/// Whether a name is a participle alone, or one with a particle behind it. A participle before a
/// noun is an adjective: `shared_secret`.
pub(super) fn is_participle(name: &str) -> bool {
    let mut words = name.split('_');
    let first = words.next().unwrap_or_default();
    let is_regular = first.len() > 3 && first.ends_with("ed") && !NOUNS.contains(&first);
    (is_regular || IRREGULAR.contains(&first))
        && words.all(|word| PARTICLES.contains(&word))
        && !GIVEN.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<String> {
        faults(&Files(vec![File { path: path.into(), text: text.into() }]))
    }

    #[test]
    fn a_participle_names_no_function() {
        for name in ["told", "shown", "pinned_to", "caught_up", "taken_before"] {
            assert_eq!(found("host/a/src/b.rs", &format!("fn {name}() {{}}")).len(), 1, "{name}");
        }
        for name in ["tell", "need", "shared_secret", "told_apart", "accepted", "token"] {
            assert_eq!(found("wit/a/src/b.rs", &format!("fn {name}() {{}}")), [""; 0], "{name}");
        }
        assert_eq!(found("host/a/src/b.rs", "struct A { told: fn() }"), [""; 0]);
    }

    #[test]
    fn tests_name_their_fixtures_as_they_like() {
        let told = "fn told() {}";
        for path in
            ["host/a/src/b/tests.rs", "host/a/src/bed/c.rs", "host/a/tests/b.rs", "tests/e2e/b.rs"]
        {
            assert_eq!(found(path, told), [""; 0], "{path}");
        }
        let inline = format!("#[cfg(test)]\nmod tests {{\n{told}\n}}\n");
        assert_eq!(found("host/a/src/b.rs", &inline), [""; 0]);
    }

    #[test]
    fn a_comment_names_its_subject() {
        let faults = found("tests/e2e/b.rs", "//! The rules. Who asks is known.\nfn a() {}\n");
        assert_eq!(faults.len(), 1);
        assert!(faults[0].starts_with("tests/e2e/b.rs:1: Who asks is known."), "{faults:?}");
        assert_eq!(found("wit/a.wit", "/// Where it lies.\ninterface a {}\n").len(), 1);
        assert_eq!(found("docs/a.md", "Who asks is known."), [""; 0]);
        assert_eq!(found("host/a/src/b.rs", "// Who asks?\nfn a() {}\n"), [""; 0]);
    }
}
