//! The headers that tell clients of a deprecated family, made once when its component is loaded.

use charter_kernel::manifest::Deprecation;
use charter_kernel::time::Instant;

/// `Deprecation` (RFC 9745), `Link`, `Warning: 299` and `X-Service-Deprecation-Id`. There is no
/// `Sunset`.
#[derive(Clone, Debug, Default)]
pub struct Deprecated {
    headers: Vec<(&'static str, String)>,
}

impl Deprecated {
    /// The headers of a declared deprecation.
    pub fn new(declared: &Deprecation) -> Self {
        let mut headers = Vec::new();
        if let Some(at) = Instant::parse(&format!("{}T00:00:00Z", declared.announced)) {
            headers.push(("deprecation", format!("@{}", at.0.div_euclid(1_000))));
        }
        if !declared.link.is_empty() {
            headers.push(("link", format!("<{}>; rel=\"deprecation\"", declared.link)));
        }
        let note =
            if declared.note.is_empty() { "This route is deprecated." } else { &declared.note };
        headers.push(("warning", format!("299 - \"{}\"", note.replace(['"', '\\'], "'"))));
        headers.push(("x-service-deprecation-id", declared.id.clone()));
        Self { headers }
    }

    /// Names in lower case, and values. One that makes no header value is to be left out.
    pub fn headers(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.headers.iter().map(|(name, value)| (*name, value.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn the_date_is_a_structured_one_and_there_is_no_sunset() {
        let declared = Deprecation {
            id: "dep.primitive.old".into(),
            announced: "2026-07-29".into(),
            link: "https://example.com/old".into(),
            note: "Use \"new\".".into(),
        };
        let deprecated = Deprecated::new(&declared);
        let headers: BTreeMap<_, _> = deprecated.headers().collect();
        assert_eq!(headers["deprecation"], "@1785283200");
        assert_eq!(headers["link"], "<https://example.com/old>; rel=\"deprecation\"");
        assert_eq!(headers["warning"], "299 - \"Use 'new'.\"");
        assert_eq!(headers["x-service-deprecation-id"], "dep.primitive.old");
        assert!(!headers.contains_key("sunset"));
    }
}
