//! From bytes to text, as browsers do it: byte order mark, then the header, then what the page says
//! of itself, then a look at the bytes.

use std::borrow::Cow;

use encoding_rs::{Encoding, UTF_8, WINDOWS_1252};

/// Bytes of a page in which its own word on its charset is looked for (HTML standard: the first
/// 1,024).
const PRESCAN_BYTES: usize = 1_024;

/// The text of a body. Undecodable bytes become U+FFFD.
pub(crate) fn decode<'a>(bytes: &'a [u8], content_type: &str) -> Cow<'a, str> {
    let declared = label_in(content_type)
        .or_else(|| prescan(bytes))
        .and_then(|label| Encoding::for_label(label.as_bytes()));
    let guess = || if std::str::from_utf8(bytes).is_ok() { UTF_8 } else { WINDOWS_1252 };
    // `decode` lets a byte order mark win over whatever is declared.
    declared.unwrap_or_else(guess).decode(bytes).0
}

/// The value of `charset=` in a header, a `<meta>` or an XML declaration.
fn label_in(text: &str) -> Option<String> {
    let lower = text.to_ascii_lowercase();
    let after = ["charset", "encoding"]
        .iter()
        .find_map(|word| lower.split_once(word))
        .map(|(_, after)| after.trim_start())?;
    let value = after.strip_prefix('=')?.trim_start().trim_start_matches(['"', '\'']);
    let label: String =
        value.chars().take_while(|c| c.is_ascii_alphanumeric() || "-_:.".contains(*c)).collect();
    (!label.is_empty()).then_some(label)
}

/// The charset that the page declares. A page whose declaration can be read byte by byte is not in
/// UTF-16, whatever it says.
fn prescan(bytes: &[u8]) -> Option<String> {
    let head = String::from_utf8_lossy(&bytes[..bytes.len().min(PRESCAN_BYTES)]);
    let declarations = head.split('<').filter(|tag| {
        let tag = tag.get(..4).unwrap_or_default();
        tag.eq_ignore_ascii_case("meta") || tag.eq_ignore_ascii_case("?xml")
    });
    let label = declarations.filter_map(|tag| label_in(tag.split('>').next()?)).next()?;
    Some(if label.starts_with("utf-16") { "utf-8".into() } else { label })
}

#[cfg(test)]
mod tests {
    use super::decode;

    #[test]
    fn the_charset_is_found_where_browsers_look() {
        assert_eq!(decode(b"caf\xe9", "text/html; charset=ISO-8859-1"), "café");
        assert_eq!(
            decode(b"<meta charset='windows-1251'>\xcc\xe8\xf0", "text/html"),
            "<meta charset='windows-1251'>Мир"
        );
        let equivalent = b"<meta http-equiv=\"Content-Type\" content=\"text/html; charset=shift_jis\">\x93\xfa\x96\x7b";
        assert!(decode(equivalent, "text/html").ends_with("日本"));
        assert!(
            decode(b"<?xml version=\"1.0\" encoding=\"ISO-8859-2\"?>\xb1", "text/xml")
                .ends_with('ą')
        );
        assert_eq!(decode(b"\xef\xbb\xbfn\xc3\xa9", "text/html; charset=iso-8859-1"), "né");
        assert_eq!(decode(b"\xff\xfeh\x00i\x00", "text/plain"), "hi");
        assert_eq!(decode("naïve".as_bytes(), "text/plain"), "naïve");
        assert_eq!(decode(b"na\xefve", "text/plain"), "naïve");
    }
}
