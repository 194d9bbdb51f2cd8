//! A path template, parsed.

use std::fmt;

use crate::limits::{PATH_BYTES_MAX, PATH_SEGMENTS_MAX};

/// One segment of a template.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Segment {
    /// Matches itself.
    Literal(String),
    /// Matches any one segment that starts with the prefix, and has more.
    Parameter {
        /// The text before the brace; empty for a plain parameter.
        prefix: String,
        /// The parameter's name.
        name: String,
    },
    /// Matches the rest of the path: one segment or more.
    Tail(String),
}

/// A path template such as `/boards/{id}/cards`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Template(Vec<Segment>);

impl Template {
    /// Reads a template.
    ///
    /// # Errors
    /// Every rule that it breaks, as sentences.
    pub fn parse(text: &str) -> Result<Self, Vec<String>> {
        let Some(rest) = text.strip_prefix('/') else {
            return Err(vec!["must start with a slash".into()]);
        };
        if text.len() > PATH_BYTES_MAX {
            return Err(vec![format!("must be at most {PATH_BYTES_MAX} bytes")]);
        }
        let texts: Vec<&str> = if rest.is_empty() { Vec::new() } else { rest.split('/').collect() };
        if texts.len() > PATH_SEGMENTS_MAX {
            return Err(vec![format!("must have at most {PATH_SEGMENTS_MAX} segments")]);
        }
        let (mut segments, mut faults) = (Vec::new(), Vec::new());
        for (at, text) in texts.iter().enumerate() {
            match segment(text) {
                Ok(Segment::Tail(_)) if at + 1 < texts.len() => {
                    faults.push(format!("has {text} before its end; a tail is last"))
                }
                Ok(segment) => segments.push(segment),
                Err(fault) => faults.push(fault),
            }
        }
        let mut names: Vec<&str> = segments.iter().filter_map(Segment::parameter).collect();
        names.sort_unstable();
        if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            faults.push(format!("has the parameter {} twice", twice[0]));
        }
        if faults.is_empty() { Ok(Self(segments)) } else { Err(faults) }
    }

    /// Its segments.
    pub fn segments(&self) -> &[Segment] {
        &self.0
    }

    /// The names of its parameters, in order.
    pub fn parameters(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(Segment::parameter)
    }

    /// The path that has these parameters, without its first slash. A parameter that is not given
    /// is empty.
    pub fn fill(&self, parameters: &[(String, String)]) -> String {
        let value = |name: &str| {
            parameters.iter().find(|(own, _)| own == name).map_or("", |(_, value)| value)
        };
        let segment = |segment: &Segment| match segment {
            Segment::Literal(text) => text.clone(),
            Segment::Parameter { prefix, name } => format!("{prefix}{}", value(name)),
            Segment::Tail(name) => value(name).to_owned(),
        };
        self.0.iter().map(segment).collect::<Vec<_>>().join("/")
    }

    /// Whether some path matches both templates.
    pub fn overlaps(&self, other: &Template) -> bool {
        overlap(&self.0, &other.0)
    }
}

impl Segment {
    /// The name of the parameter that it fills.
    pub fn parameter(&self) -> Option<&str> {
        match self {
            Segment::Literal(_) => None,
            Segment::Parameter { name, .. } | Segment::Tail(name) => Some(name),
        }
    }
}

impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("/");
        }
        for segment in &self.0 {
            match segment {
                Segment::Literal(text) => write!(f, "/{text}")?,
                Segment::Parameter { prefix, name } => write!(f, "/{prefix}{{{name}}}")?,
                Segment::Tail(name) => write!(f, "/{{{name}*}}")?,
            }
        }
        Ok(())
    }
}

fn overlap(left: &[Segment], right: &[Segment]) -> bool {
    match (left, right) {
        ([], []) => true,
        ([Segment::Tail(_)], [_, ..]) | ([_, ..], [Segment::Tail(_)]) => true,
        ([], _) | (_, []) => false,
        ([a, left @ ..], [b, right @ ..]) => meet(a, b) && overlap(left, right),
    }
}

fn meet(a: &Segment, b: &Segment) -> bool {
    match (a, b) {
        (Segment::Literal(a), Segment::Literal(b)) => a == b,
        (Segment::Literal(text), Segment::Parameter { prefix, .. })
        | (Segment::Parameter { prefix, .. }, Segment::Literal(text)) => {
            text.len() > prefix.len() && text.starts_with(prefix.as_str())
        }
        (Segment::Parameter { prefix: a, .. }, Segment::Parameter { prefix: b, .. }) => {
            a.starts_with(b.as_str()) || b.starts_with(a.as_str())
        }
        (Segment::Tail(_), _) | (_, Segment::Tail(_)) => true,
    }
}

fn segment(text: &str) -> Result<Segment, String> {
    let Some((prefix, rest)) = text.split_once('{') else {
        return if is_literal(text) {
            Ok(Segment::Literal(text.into()))
        } else {
            Err(bad_literal(text))
        };
    };
    let name = rest
        .strip_suffix('}')
        .ok_or_else(|| format!("has {text:?}; a parameter ends its segment"))?;
    let (name, tail) = match name.strip_suffix('*') {
        Some(name) => (name, true),
        None => (name, false),
    };
    if !is_name(name) {
        return Err(format!(
            "has the parameter {name:?}; names are lower-case letters, digits and underscores"
        ));
    }
    if !prefix.is_empty() && (!is_literal(prefix) || tail) {
        return Err(format!(
            "has {text:?}; what stands before a parameter is a literal, and a tail stands alone"
        ));
    }
    Ok(if tail {
        Segment::Tail(name.into())
    } else {
        Segment::Parameter { prefix: prefix.into(), name: name.into() }
    })
}

fn bad_literal(text: &str) -> String {
    format!(
        "has the segment {text:?}; a literal is letters, digits, dots, hyphens and underscores, and not empty"
    )
}

fn is_literal(text: &str) -> bool {
    !text.is_empty()
        && text != "."
        && text != ".."
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_read_and_print_the_same() {
        for text in [
            "/",
            "/a",
            "/a/{id}",
            "/a/{id}/b.c",
            "/proxy/{router}/{path*}",
            "/cron/reconcile-{name}",
            "/v1/skill.md",
        ] {
            assert_eq!(Template::parse(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn every_broken_rule_is_named() {
        for bad in [
            "", "a", "/a/", "//", "/{}", "/{Id}", "/{a}b", "/{a*}/b", "/x-{a*}", "/{a}/{a}", "/..",
            "/a b", "/{a", "/a}", "/ä",
        ] {
            assert!(Template::parse(bad).is_err(), "{bad}");
        }
        assert_eq!(Template::parse("/{A}/{B}").unwrap_err().len(), 2);
        assert!(Template::parse(&"/a".repeat(PATH_SEGMENTS_MAX + 1)).is_err());
        assert!(Template::parse(&"/a".repeat(PATH_SEGMENTS_MAX)).is_ok());
    }

    #[test]
    fn templates_overlap_where_one_path_fits_both() {
        let overlaps = |a, b| Template::parse(a).unwrap().overlaps(&Template::parse(b).unwrap());
        for (a, b) in [
            ("/a/{x}", "/a/b"),
            ("/a/{x}", "/{y}/b"),
            ("/a/{x*}", "/a/b/c"),
            ("/r-{x}", "/r-a"),
            ("/r-{x}", "/{y}"),
            ("/a-{x}", "/a-b-{y}"),
        ] {
            assert!(overlaps(a, b) && overlaps(b, a), "{a} {b}");
        }
        for (a, b) in [
            ("/a", "/b"),
            ("/a/{x}", "/a"),
            ("/a/{x*}", "/a"),
            ("/r-{x}", "/r-"),
            ("/r-{x}", "/s-{y}"),
            ("/a/{x}/b", "/a/{x}/c"),
        ] {
            assert!(!overlaps(a, b) && !overlaps(b, a), "{a} {b}");
        }
    }
}
