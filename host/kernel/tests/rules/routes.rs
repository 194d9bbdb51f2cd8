//! Templates, paths and the table: the more specific route wins, and no two owners share a path.

use charter_kernel::limits::{PATH_BYTES_MAX, PATH_SEGMENTS_MAX};
use charter_kernel::route::{Found, Missing, Path, Segment, Table, Template};
use proptest::prelude::*;

fn template(text: &str) -> Template {
    Template::parse(text).unwrap()
}

fn path(text: &str) -> Path {
    Path::parse(text).unwrap()
}

/// A table of one owner's routes, each with its own template as its value.
fn table(routes: &[(&str, &str)]) -> Table<String> {
    let mut table = Table::new();
    for (method, text) in routes {
        table.insert("notes", method, template(text), (*text).to_owned()).unwrap();
    }
    table
}

fn find<'t>(table: &'t Table<String>, method: &str, text: &str) -> Option<&'t str> {
    table.find(method, &path(text)).ok().map(|found| found.value.as_str())
}

#[test]
fn a_template_breaks_one_rule_at_a_time() {
    let table = [
        ("notes", "must start with a slash"),
        ("//a", ""),
        ("/a b", ""),
        ("/{", "a parameter ends its segment"),
        ("/{id}x", "a parameter ends its segment"),
        ("/{}", ""),
        ("/{a*}/b", "a tail is last"),
        ("/x-{a*}", ""),
        ("/{a}/{a}", "has the parameter a twice"),
        ("/{a}/{a*}", "has the parameter a twice"),
    ];
    for (text, words) in table {
        let faults = Template::parse(text).unwrap_err();
        assert_eq!(faults.len(), 1, "{text}: {faults:?}");
        assert!(faults[0].contains(words), "{text}: {faults:?}");
    }
    assert!(Template::parse(&"/a".repeat(PATH_SEGMENTS_MAX)).is_ok());
    assert!(Template::parse(&"/a".repeat(PATH_SEGMENTS_MAX + 1)).is_err());
    assert!(Template::parse(&format!("/{}", "a".repeat(PATH_BYTES_MAX))).is_err());
}

#[test]
fn a_template_is_its_segments() {
    let parts = template("/a/{id}/run-{n}/{rest*}");
    let parameter =
        |prefix: &str, name: &str| Segment::Parameter { prefix: prefix.into(), name: name.into() };
    let expected = [
        Segment::Literal("a".into()),
        parameter("", "id"),
        parameter("run-", "n"),
        Segment::Tail("rest".into()),
    ];
    assert_eq!(parts.segments(), expected);
    assert_eq!(parts.parameters().collect::<Vec<_>>(), ["id", "n", "rest"]);
    assert_eq!(template("/").to_string(), "/");
}

#[test]
fn templates_overlap_where_one_path_fits_both() {
    let table = [
        ("/a", "/a", true),
        ("/a", "/b", false),
        ("/a", "/{x}", true),
        ("/{x}", "/{y}", true),
        ("/a/{x}", "/{y}/b", true),
        ("/a/{x}", "/{y}", false),
        ("/run-{x}", "/run-1", true),
        ("/run-{x}", "/run-", false),
        ("/run-{x}", "/run-2-{y}", true),
        ("/run-{x}", "/walk-{y}", false),
        ("/a/{rest*}", "/a/b/c", true),
        ("/a/{rest*}", "/a", false),
        ("/{rest*}", "/{other*}", true),
        ("/", "/", true),
        ("/", "/{rest*}", false),
    ];
    for (left, right, expected) in table {
        assert_eq!(template(left).overlaps(&template(right)), expected, "{left} {right}");
        assert_eq!(template(right).overlaps(&template(left)), expected, "{right} {left}");
    }
}

#[test]
fn the_more_specific_route_wins() {
    let table = table(&[
        ("GET", "/a/b"),
        ("GET", "/a/{x}"),
        ("GET", "/a/run-{n}"),
        ("GET", "/a/run-2-{n}"),
        ("GET", "/a/{rest*}"),
        ("POST", "/a/b"),
    ]);
    let found = [
        ("/a/b", "/a/b"),
        ("/a/c", "/a/{x}"),
        ("/a/run-7", "/a/run-{n}"),
        ("/a/run-2-7", "/a/run-2-{n}"),
        ("/a/run-", "/a/{x}"),
        ("/a/b/c", "/a/{rest*}"),
    ];
    for (text, expected) in found {
        assert_eq!(find(&table, "GET", text), Some(expected), "{text}");
    }
    assert_eq!(find(&table, "GET", "/a"), None, "a tail is one segment or more");
}

#[test]
fn a_better_branch_without_the_method_gives_way() {
    let table = table(&[("POST", "/a/b"), ("GET", "/a/{x}"), ("DELETE", "/{rest*}")]);
    assert_eq!(find(&table, "GET", "/a/b"), Some("/a/{x}"));
    assert_eq!(find(&table, "DELETE", "/a/b"), Some("/{rest*}"));
    let allow = |method: &str, text: &str| table.find(method, &path(text)).unwrap_err();
    let methods = Missing::Method { allow: "DELETE, GET, HEAD, POST".into() };
    assert_eq!(allow("PUT", "/a/b"), methods);
    assert_eq!(allow("PUT", "/x"), Missing::Method { allow: "DELETE".into() });
    assert_eq!(allow("GET", "/"), Missing::Path);
}

#[test]
fn a_head_is_a_get_unless_it_has_its_own() {
    let plain = table(&[("GET", "/a")]);
    assert_eq!(find(&plain, "HEAD", "/a"), Some("/a"));
    assert_eq!(find(&plain, "HEAD", "/b"), None);
    let mut own = table(&[("GET", "/a")]);
    own.insert("notes", "HEAD", template("/a"), "own".into()).unwrap();
    assert_eq!(find(&own, "HEAD", "/a"), Some("own"));
}

#[test]
fn parameters_are_named_in_the_order_of_the_path() {
    let table = table(&[("GET", "/a/{id}/run-{n}/{rest*}")]);
    let found: Found<'_, String> = table.find("GET", &path("/a/x%20y/run-7/b/c")).unwrap();
    let named: Vec<(&str, &str)> =
        found.parameters.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(named, [("id", "x y"), ("n", "7"), ("rest", "b/c")]);
    assert_eq!(
        (found.owner, found.template.to_string().as_str()),
        ("notes", "/a/{id}/run-{n}/{rest*}")
    );
}

#[test]
fn no_owner_takes_requests_from_another() {
    let mut table = table(&[("GET", "/a/{x}")]);
    let overlap = table.insert("other", "GET", template("/a/b"), String::new()).unwrap_err();
    assert_eq!(overlap.to_string(), "GET /a/b overlaps GET /a/{x}, which notes serves");
    assert!(table.insert("other", "POST", template("/a/b"), String::new()).is_ok());
    assert!(table.insert("notes", "GET", template("/a/b"), String::new()).is_ok(), "its own may");
    let twice = table.insert("notes", "GET", template("/a/{y}"), String::new());
    assert!(twice.is_err(), "but not where they differ in names alone");
    assert_eq!(table.iter().count(), 3);
}

#[test]
fn a_value_is_changed_where_it_stands() {
    let mut table = table(&[("GET", "/a/{x}")]);
    *table.get_mut("GET", &template("/a/{y}")).unwrap() = "new".into();
    assert_eq!(find(&table, "GET", "/a/1"), Some("new"));
    assert_eq!(table.get_mut("POST", &template("/a/{y}")), None);
    assert_eq!(table.get_mut("GET", &template("/a/b")), None);
}

#[test]
fn a_path_is_taken_apart_once() {
    assert_eq!(path("/v1/a/b").below(1), Path::of(vec!["a".into(), "b".into()]));
    assert_eq!(path("/a").below(5).segments(), Vec::<String>::new());
    assert_eq!(path("/%61").segments(), ["a"]);
}

fn segment() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-c]".prop_map(String::from),
        Just("{x}".to_owned()),
        "[ab]-".prop_map(|prefix| format!("{prefix}{{x}}")),
    ]
}

/// A template of up to three segments, each parameter by a name of its own.
fn templates() -> impl Strategy<Value = String> {
    (prop::collection::vec(segment(), 1..4), any::<bool>()).prop_map(|(segments, tail)| {
        let named =
            segments.iter().enumerate().map(|(n, text)| text.replace('x', &format!("p{n}")));
        let text: String = named.map(|segment| format!("/{segment}")).collect();
        if tail { text + "/{rest*}" } else { text }
    })
}

proptest! {
    #[test]
    fn a_template_reads_as_it_prints(text in templates()) {
        let parsed = template(&text);
        prop_assert_eq!(parsed.to_string(), text);
        prop_assert_eq!(Template::parse(&parsed.to_string()), Ok(parsed));
    }

    #[test]
    fn owners_that_do_not_overlap_never_meet(one in templates(), other in templates(), segments in prop::collection::vec("[a-c](-[a-c])?", 1..5)) {
        let mut table = Table::new();
        table.insert("one", "GET", template(&one), ()).unwrap();
        let fits = |text: &str| {
            let mut alone = Table::new();
            alone.insert("x", "GET", template(text), ()).unwrap();
            alone.find("GET", &Path::of(segments.clone())).is_ok()
        };
        match table.insert("other", "GET", template(&other), ()) {
            Ok(()) => prop_assert!(!(fits(&one) && fits(&other)), "{one} {other} {segments:?}"),
            Err(overlap) => prop_assert_eq!(overlap.owner, "one"),
        }
        prop_assert_eq!(table.find("GET", &Path::of(segments.clone())).is_ok(), fits(&one) || (table.iter().count() == 2 && fits(&other)));
    }
}
