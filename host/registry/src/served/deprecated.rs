//! The headers of a deprecated family, made once when its component is loaded.

use charter_kernel::manifest::Deprecation;
use charter_kernel::time::Instant;
use http::{HeaderMap, HeaderName, HeaderValue, header};

const DEPRECATION: HeaderName = HeaderName::from_static("deprecation");
const DEPRECATION_ID: HeaderName = HeaderName::from_static("x-service-deprecation-id");

/// `Deprecation` (RFC 9745), `Link`, `Warning: 299` and `X-Service-Deprecation-Id`. There is no
/// `Sunset`.
#[derive(Clone, Debug, Default)]
pub struct Deprecated {
    headers: HeaderMap,
}

impl Deprecated {
    /// The headers of a declared deprecation. A member that makes no header value is left out.
    pub fn new(declared: &Deprecation) -> Self {
        let mut headers = HeaderMap::new();
        let mut put = |name: HeaderName, value: String| {
            if let Ok(value) = HeaderValue::from_str(&value) {
                headers.insert(name, value);
            }
        };
        if let Some(at) = Instant::parse(&format!("{}T00:00:00Z", declared.announced)) {
            put(DEPRECATION, format!("@{}", at.0.div_euclid(1_000)));
        }
        if !declared.link.is_empty() {
            put(header::LINK, format!("<{}>; rel=\"deprecation\"", declared.link));
        }
        let note =
            if declared.note.is_empty() { "This route is deprecated." } else { &declared.note };
        put(header::WARNING, format!("299 - \"{}\"", note.replace(['"', '\\'], "'")));
        put(DEPRECATION_ID, declared.id.clone());
        Self { headers }
    }

    /// Adds them to an answer.
    pub fn announce(&self, answer: &mut HeaderMap) {
        for (name, value) in &self.headers {
            answer.insert(name.clone(), value.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_date_is_a_structured_one_and_there_is_no_sunset() {
        let declared = Deprecation {
            id: "dep.primitive.old".into(),
            announced: "2026-07-29".into(),
            link: "https://example.com/old".into(),
            note: "Use \"new\".".into(),
        };
        let mut headers = HeaderMap::new();
        Deprecated::new(&declared).announce(&mut headers);
        assert_eq!(headers["deprecation"], "@1785283200");
        assert_eq!(headers["link"], "<https://example.com/old>; rel=\"deprecation\"");
        assert_eq!(headers["warning"], "299 - \"Use 'new'.\"");
        assert_eq!(headers["x-service-deprecation-id"], "dep.primitive.old");
        assert!(!headers.contains_key("sunset"));
    }
}
