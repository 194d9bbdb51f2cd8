//! The table by example, and against a matcher that is too simple to be wrong.

use proptest::prelude::*;

use super::*;

fn table(routes: &[(&str, &str)]) -> Table<usize> {
    let mut table = Table::new();
    for (at, (method, template)) in routes.iter().enumerate() {
        table.insert("o", method, Template::parse(template).unwrap(), at).unwrap();
    }
    table
}

fn find<'t>(
    table: &'t Table<usize>,
    method: &str,
    path: &str,
) -> Result<Found<'t, usize>, Missing> {
    table.find(method, &Path::parse(path).unwrap())
}

#[test]
fn the_more_specific_route_wins() {
    let table = table(&[
        ("GET", "/a/{x}"),
        ("GET", "/a/b"),
        ("GET", "/a/b-{y}"),
        ("GET", "/a/{rest*}"),
        ("GET", "/a/{x}/c"),
        ("GET", "/a/b-b-{y}"),
    ]);
    for (path, route) in [
        ("/a/b", 1),
        ("/a/c", 0),
        ("/a/b-1", 2),
        ("/a/b-", 0),
        ("/a/b-b-1", 5),
        ("/a/b/c", 4),
        ("/a/b/d", 3),
        ("/a/b/c/d", 3),
    ] {
        assert_eq!(*find(&table, "GET", path).unwrap().value, route, "{path}");
    }
    assert_eq!(find(&table, "GET", "/a"), Err(Missing::Path));
    assert_eq!(find(&table, "GET", "/"), Err(Missing::Path));
}

#[test]
fn parameters_come_decoded_and_by_name() {
    let table = table(&[("GET", "/p/{id}/reconcile-{what}/{rest*}")]);
    let found = find(&table, "GET", "/p/a%20b/reconcile-x/1/2").unwrap();
    let expected =
        [("id", "a b"), ("what", "x"), ("rest", "1/2")].map(|(n, v)| (n.to_owned(), v.to_owned()));
    assert_eq!(found.parameters, expected);
    assert_eq!(found.template.to_string(), "/p/{id}/reconcile-{what}/{rest*}");
    assert_eq!(found.template.fill(&found.parameters), "p/a b/reconcile-x/1/2");
}

#[test]
fn a_method_is_looked_for_in_every_template_that_fits() {
    let table = table(&[("POST", "/a/b"), ("GET", "/a/{x}"), ("DELETE", "/a/{x}")]);
    assert_eq!(*find(&table, "GET", "/a/b").unwrap().value, 1);
    assert_eq!(*find(&table, "HEAD", "/a/b").unwrap().value, 1);
    let allow = "DELETE, GET, HEAD, POST".to_owned();
    assert_eq!(find(&table, "PUT", "/a/b"), Err(Missing::Method { allow }));
    assert_eq!(
        find(&table, "POST", "/a/c"),
        Err(Missing::Method { allow: "DELETE, GET, HEAD".into() })
    );
}

#[test]
fn owners_cannot_take_requests_from_each_other() {
    let mut table = Table::new();
    let template = |text| Template::parse(text).unwrap();
    table.insert("one", "GET", template("/a/{x}"), ()).unwrap();
    table.insert("one", "GET", template("/a/b"), ()).unwrap();
    let overlap = table.insert("two", "GET", template("/a/stats"), ()).unwrap_err();
    assert_eq!((overlap.other.as_str(), overlap.owner.as_str()), ("/a/{x}", "one"));
    assert!(table.insert("two", "GET", template("/{any*}"), ()).is_err());
    assert!(table.insert("one", "GET", template("/a/{y}"), ()).is_err());
    table.insert("two", "POST", template("/a/stats"), ()).unwrap();
    table.insert("two", "GET", template("/a/{x}/stats"), ()).unwrap();
    assert_eq!(table.iter().count(), 4);
    assert!(table.get_mut("GET", &template("/a/{renamed}")).is_some());
}

/// Fits a template to a path; the rank of each segment says how specific the fit is, smaller is
/// better.
fn naive(template: &Template, path: &[String]) -> Option<Vec<(u8, isize)>> {
    let mut ranks = Vec::new();
    let mut path = path.iter();
    for segment in template.segments() {
        match segment {
            Segment::Literal(text) => {
                (path.next()? == text).then_some(())?;
                ranks.push((0, 0));
            }
            Segment::Parameter { prefix, .. } => {
                let text = path.next()?;
                (text.len() > prefix.len() && text.starts_with(prefix.as_str())).then_some(())?;
                ranks.push((1, -(prefix.len() as isize)));
            }
            Segment::Tail(_) => {
                path.next()?;
                ranks.push((2, 0));
                return Some(ranks);
            }
        }
    }
    path.next().is_none().then_some(ranks)
}

fn templates() -> impl Strategy<Value = Vec<String>> {
    let segment =
        prop_oneof![Just("a"), Just("b"), Just("a-b"), Just("{p}"), Just("a-{p}"), Just("a-b-{p}")];
    let template =
        (prop::collection::vec(segment, 0..4), any::<bool>()).prop_map(|(segments, tail)| {
            let mut text = String::new();
            for (at, segment) in segments.iter().enumerate() {
                text.push('/');
                text.push_str(&segment.replace("{p}", &format!("{{p{at}}}")));
            }
            if tail || text.is_empty() {
                text.push_str("/{rest*}");
            }
            text
        });
    prop::collection::vec(template, 1..12)
}

proptest! {
    #[test]
    fn the_tree_finds_what_a_naive_matcher_finds(
        templates in templates(),
        paths in prop::collection::vec(prop::collection::vec(prop_oneof![Just("a"), Just("b"), Just("a-b"), Just("a-b-c"), Just("a-")], 0..5), 1..10),
    ) {
        let mut table = Table::new();
        let mut kept: Vec<Template> = Vec::new();
        for text in &templates {
            let template = Template::parse(text).unwrap();
            if table.insert("o", "GET", template.clone(), kept.len()).is_ok() {
                kept.push(template);
            }
        }
        for path in paths {
            let path = Path::of(path.into_iter().map(Into::into).collect());
            let best = kept.iter().enumerate().filter_map(|(at, template)| Some((naive(template, path.segments())?, at))).min();
            let found = table.find("GET", &path).ok().map(|found| *found.value);
            prop_assert_eq!(found, best.map(|(_, at)| at));
        }
    }

    #[test]
    fn templates_that_fit_one_path_overlap(templates in templates(), path in prop::collection::vec("a|b|a-b|a-b-c", 1..4)) {
        let fitting: Vec<Template> =
            templates.iter().map(|text| Template::parse(text).unwrap()).filter(|t| naive(t, &path).is_some()).collect();
        for a in &fitting {
            for b in &fitting {
                prop_assert!(a.overlaps(b), "{a} {b}");
            }
        }
    }
}
