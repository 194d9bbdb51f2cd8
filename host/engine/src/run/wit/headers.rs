//! The response headers that a guest may set. A guest's answer reaches a browser as data: a header
//! that makes a browser do something is the host's alone.

use charter_kernel::limits::{
    ANSWER_HEADER_BYTES_MAX, ANSWER_HEADERS_MAX, RETRY_AFTER_SECONDS_MAX,
};
use charter_kernel::schema::check_json;

/// The headers that a guest sets; any other is left out.
const ADMITTED: [&str; 6] = [
    "cache-control",
    "content-disposition",
    "content-language",
    "etag",
    "last-modified",
    RETRY_AFTER,
];
/// Its seconds are bounded as those of a refusal are.
const RETRY_AFTER: &str = "retry-after";
/// The one more of a redirect.
const LOCATION: &str = "location";

/// The guest's headers that leave the host, their names in lower case, each once.
///
/// # Errors
/// If there are too many, or too large ones, of whatever name.
pub(super) fn admit(
    given: Vec<(String, String)>,
    redirects: bool,
) -> Result<Vec<(String, String)>, String> {
    if given.len() > ANSWER_HEADERS_MAX {
        return Err(format!(
            "the answer has {} headers; at most {ANSWER_HEADERS_MAX} are taken",
            given.len()
        ));
    }
    let bytes: usize = given.iter().map(|(name, value)| name.len() + value.len()).sum();
    if bytes > ANSWER_HEADER_BYTES_MAX {
        return Err(format!(
            "the answer's headers have {bytes} bytes; at most {ANSWER_HEADER_BYTES_MAX} are taken"
        ));
    }
    let mut headers: Vec<(String, String)> = Vec::new();
    for (mut name, mut value) in given {
        name.make_ascii_lowercase();
        if name == RETRY_AFTER && are_more_than_a_day(&value) {
            value = RETRY_AFTER_SECONDS_MAX.to_string();
        }
        let known = ADMITTED.contains(&name.as_str()) || (redirects && name == LOCATION);
        let again = headers.iter().any(|(other, _)| *other == name);
        if known && !again && http::HeaderValue::from_str(&value).is_ok() {
            headers.push((name, value));
        }
    }
    Ok(headers)
}

/// Whether a text is a number of seconds, and of too many.
fn are_more_than_a_day(text: &str) -> bool {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    // A number that has no place in 32 bits is a larger one.
    is_number && !text.parse::<u32>().is_ok_and(|seconds| seconds <= RETRY_AFTER_SECONDS_MAX)
}

/// Whether bytes may leave under a media type: what is called JSON has to be it.
///
/// # Errors
/// The fault of the bytes.
pub(super) fn media_type(name: &str, bytes: &[u8]) -> Result<(), String> {
    http::HeaderValue::from_str(name)
        .map_err(|_| "the answer's media type is malformed".to_owned())?;
    let essence = name.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    if essence != "application/json" && !essence.ends_with("+json") {
        return Ok(());
    }
    let text =
        std::str::from_utf8(bytes).map_err(|_| format!("the answer is {essence} and not UTF-8"))?;
    check_json(text).map_err(|error| format!("the answer is {essence} and not JSON: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(name: &str, value: &str) -> (String, String) {
        (name.to_owned(), value.to_owned())
    }

    #[test]
    fn seconds_to_wait_are_a_day_at_most() {
        for (said, told) in [
            ("30", "30"),
            ("86400", "86400"),
            ("86401", "86400"),
            ("4294967295", "86400"),
            ("99999999999999999999", "86400"),
            ("Wed, 21 Oct 2026 07:28:00 GMT", "Wed, 21 Oct 2026 07:28:00 GMT"),
        ] {
            let headers = admit(vec![header("Retry-After", said)], false).unwrap();
            assert_eq!(headers, [header("retry-after", told)], "{said}");
        }
    }

    #[test]
    fn only_headers_that_describe_the_content_leave_the_host() {
        let passed = [("ETag", "\"1\""), ("content-disposition", "attachment; filename=\"a.csv\"")];
        for (name, value) in passed {
            let headers = admit(vec![header(name, value)], false).unwrap();
            assert_eq!(headers, [header(&name.to_ascii_lowercase(), value)]);
        }
        for name in [
            "access-control-allow-origin",
            "clear-site-data",
            "connection",
            "content-encoding",
            "content-length",
            "content-security-policy",
            "content-type",
            "idempotency-key",
            "link",
            "location",
            "ratelimit",
            "refresh",
            "service-worker-allowed",
            "set-cookie",
            "transfer-encoding",
            "www-authenticate",
            "x-accel-redirect",
            "x-request-id",
            "x-service-user-id",
            "not a name",
        ] {
            assert_eq!(admit(vec![header(name, "x")], false), Ok(Vec::new()), "{name}");
        }
        assert_eq!(admit(vec![header("etag", "a\r\nb: c")], false), Ok(Vec::new()));
        assert_eq!(admit(vec![header("etag", "1"), header("ETAG", "2")], false).unwrap().len(), 1);
        assert_eq!(admit(vec![header("Location", "/")], true).unwrap(), [header("location", "/")]);
    }

    #[test]
    fn headers_are_bounded_in_number_and_bytes() {
        let many = vec![header("x", "y"); ANSWER_HEADERS_MAX];
        assert!(admit(many.clone(), false).is_ok());
        let more = [many, vec![header("x", "y")]].concat();
        assert!(admit(more, false).unwrap_err().contains("33 headers; at most 32"));
        let large = vec![header("x", &"y".repeat(ANSWER_HEADER_BYTES_MAX))];
        assert!(admit(large, false).unwrap_err().contains("at most 8192"));
    }

    #[test]
    fn what_is_called_json_is_json() {
        assert!(media_type("application/json", b"{}").is_ok());
        assert!(media_type("text/html; charset=utf-8", b"\xff<").is_ok());
        for (name, bytes) in [
            ("application/json", &b"\"\xff\""[..]),
            ("Application/JSON; charset=utf-8", b"{"),
            ("application/problem+json", b""),
            ("a\nb", b""),
        ] {
            assert!(media_type(name, bytes).is_err(), "{name}");
        }
    }
}
