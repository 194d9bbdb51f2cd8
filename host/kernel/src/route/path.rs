//! A request's path, decoded once.
//!
//! Each segment is percent-decoded on its own, and what decoding could turn into structure (a
//! slash, a dot segment, NUL) is refused, so nothing behind the table ever decodes again or sees a
//! path with two readings.

use crate::limits::{PATH_BYTES_MAX, PATH_SEGMENTS_MAX};

/// The decoded segments of a request's path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path(Vec<String>);

/// Why a request's path cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathFault {
    /// It has too many bytes or segments.
    #[error("must be at most {PATH_BYTES_MAX} bytes and {PATH_SEGMENTS_MAX} segments")]
    Long,
    /// It is not percent-encoded UTF-8.
    #[error("must be percent-encoded UTF-8")]
    Encoding,
    /// It holds a control character, an encoded slash or a dot segment.
    #[error("must hold no control character and no slash in any segment, and no segment . or ..")]
    Forbidden,
    /// It does not start with a slash, or has an empty segment; no template matches such a path.
    #[error("must start with a slash and have no empty segment")]
    Empty,
}

impl Path {
    /// Reads the path of a request, without its query.
    ///
    /// # Errors
    /// The first rule that it breaks.
    pub fn parse(raw: &str) -> Result<Self, PathFault> {
        if raw.len() > PATH_BYTES_MAX {
            return Err(PathFault::Long);
        }
        let rest = raw.strip_prefix('/').ok_or(PathFault::Empty)?;
        if rest.is_empty() {
            return Ok(Self(Vec::new()));
        }
        if rest.bytes().filter(|byte| *byte == b'/').count() >= PATH_SEGMENTS_MAX {
            return Err(PathFault::Long);
        }
        rest.split('/').map(segment).collect::<Result<_, _>>().map(Self)
    }

    /// Its decoded segments.
    pub fn segments(&self) -> &[String] {
        &self.0
    }

    /// The path without its first `count` segments.
    #[must_use]
    pub fn below(&self, count: usize) -> Self {
        Self(self.0.iter().skip(count).cloned().collect())
    }

    /// A path of decoded segments, such as a mount put before the rest.
    pub fn of(segments: Vec<String>) -> Self {
        Self(segments)
    }
}

fn segment(raw: &str) -> Result<String, PathFault> {
    if raw.is_empty() {
        return Err(PathFault::Empty);
    }
    let text = decode(raw).ok_or(PathFault::Encoding)?;
    let forbidden = text == "."
        || text == ".."
        || text.chars().any(|c| c.is_control() || c == '/' || c == '\\');
    if forbidden { Err(PathFault::Forbidden) } else { Ok(text) }
}

/// Percent-decodes (RFC 3986, section 2.1); a plus stays a plus. `None` for a broken escape or what
/// is not UTF-8.
pub(crate) fn decode(raw: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(raw.len());
    let mut rest = raw.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let (high, low) = (rest.next()?, rest.next()?);
                digit(high)? << 4 | digit(low)?
            }
            other => other,
        });
    }
    String::from_utf8(bytes).ok()
}

fn digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn segments_are_decoded_one_by_one() {
        assert_eq!(Path::parse("/a%20b/%C3%A4/x+y").unwrap().segments(), ["a b", "ä", "x+y"]);
        assert!(Path::parse("/").unwrap().segments().is_empty());
    }

    #[test]
    fn what_has_two_readings_is_refused() {
        for (raw, fault) in [
            ("", PathFault::Empty),
            ("a", PathFault::Empty),
            ("//a", PathFault::Empty),
            ("/a/", PathFault::Empty),
            ("/a%2Fb", PathFault::Forbidden),
            ("/a%2fb", PathFault::Forbidden),
            ("/a%5Cb", PathFault::Forbidden),
            ("/.", PathFault::Forbidden),
            ("/%2e%2E", PathFault::Forbidden),
            ("/a%00", PathFault::Forbidden),
            ("/a%0a", PathFault::Forbidden),
            ("/%", PathFault::Encoding),
            ("/%4", PathFault::Encoding),
            ("/%+1", PathFault::Encoding),
            ("/%zz", PathFault::Encoding),
            ("/%ff", PathFault::Encoding),
            ("/%C0%AF", PathFault::Encoding),
        ] {
            assert_eq!(Path::parse(raw), Err(fault), "{raw}");
        }
        // Decoding happens once: what is encoded twice stays encoded once.
        assert_eq!(Path::parse("/%252e%252e").unwrap().segments(), ["%2e%2e"]);
    }

    #[test]
    fn length_and_depth_are_bounded() {
        assert!(Path::parse(&"/a".repeat(PATH_SEGMENTS_MAX)).is_ok());
        assert_eq!(Path::parse(&"/a".repeat(PATH_SEGMENTS_MAX + 1)), Err(PathFault::Long));
        assert_eq!(Path::parse(&format!("/{}", "a".repeat(PATH_BYTES_MAX))), Err(PathFault::Long));
    }

    proptest! {
        #[test]
        fn no_path_panics_and_what_passes_is_clean(raw in "(/|%|[0-9a-f]|\\.|\\PC){0,60}") {
            if let Ok(path) = Path::parse(&raw) {
                for segment in path.segments() {
                    prop_assert!(!segment.is_empty() && !segment.contains('/') && segment != "..");
                }
            }
        }
    }
}
