//! The list styles: which words a query may use, their bounds, and positions that only this
//! deployment can have made.
//!
//! Guests and host routes see unsealed positions; clients see cursors bound to tenant, operation
//! and filters (the envelope's is an id, as the specification wants it). `docs/paging.md` tells it
//! from the outside.

use charter_kernel::cursor::{self, Binding};
use charter_kernel::fault::Fault;
use charter_kernel::limits::{
    ENVELOPE_LIMIT_MAX, KEY_BYTES_MAX, PAGE_LIMIT_DEFAULT, PAGE_LIMIT_MAX,
};
use charter_kernel::manifest::Paging;
use serde_json::{Map, Value};

/// The page that a list was asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// The style; nothing below means anything for [`Paging::None`].
    pub style: Paging,
    /// How many items.
    pub limit: u32,
    /// How many to leave out first, in the offset style.
    pub offset: u32,
    /// The unsealed position, in the cursor style; the id of the last object, in the envelope
    /// style.
    pub position: Option<String>,
    /// The last sequence that the client has, in the log style.
    pub after_seq: u64,
    /// The binding of this list's cursors; absent where the style has none that are sealed.
    seal: Option<Seal>,
}

/// The list that a sealed cursor holds for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seal {
    key: [u8; 32],
    tenant: String,
    operation: String,
    filters: String,
}

impl Seal {
    /// A seal for the list of `operation` in `tenant` under the filters `pairs`.
    pub fn new(key: [u8; 32], tenant: &str, operation: &str, pairs: &[(String, String)]) -> Self {
        let mut filters: Vec<&(String, String)> =
            pairs.iter().filter(|(name, _)| !WORDS.contains(&name.as_str())).collect();
        filters.sort();
        // JSON keeps names and values apart whatever they contain.
        let filters = serde_json::to_string(&filters).unwrap_or_default();
        Self { key, tenant: tenant.into(), operation: operation.into(), filters }
    }
    fn binding(&self) -> Binding<'_> {
        Binding { tenant: &self.tenant, operation: &self.operation, filters: &self.filters }
    }
    /// The cursor of a position; `None` if the position is too long for one.
    pub fn close(&self, position: &str) -> Option<String> {
        cursor::seal(&self.key, self.binding(), position)
    }
}

/// Every word of every style.
const WORDS: [&str; 5] = ["limit", "offset", "cursor", "after", "after_seq"];

/// The words of a style.
pub fn words(style: Paging) -> &'static [&'static str] {
    match style {
        Paging::None => &[],
        Paging::Offset => &["limit", "offset"],
        Paging::Cursor => &["limit", "cursor"],
        Paging::Envelope => &["limit", "after"],
        Paging::Log => &["limit", "after_seq"],
    }
}

/// The largest `limit` of a style.
pub fn limit_max(style: Paging) -> u32 {
    if style == Paging::Envelope { ENVELOPE_LIMIT_MAX } else { PAGE_LIMIT_MAX }
}

impl Page {
    /// Reads the words of `style` from the query. Faults name their parameter; nothing is clamped.
    ///
    /// # Errors
    /// Every fault.
    pub fn read(
        style: Paging,
        pairs: &[(String, String)],
        seal: impl FnOnce() -> Seal,
    ) -> Result<Self, Vec<Fault>> {
        if style == Paging::None {
            return Ok(Self::default());
        }
        let mut faults = Vec::new();
        let mut page = Self { style, limit: PAGE_LIMIT_DEFAULT, ..Self::default() };
        if style == Paging::Cursor {
            page.seal = Some(seal());
        }
        for (at, (name, text)) in pairs.iter().enumerate() {
            if !words(style).contains(&name.as_str()) {
                continue;
            }
            if pairs[..at].iter().any(|(earlier, _)| earlier == name) {
                faults.push(Fault::new(name, "must be given once"));
            } else if let Err(message) = page.word(name, text) {
                faults.push(Fault::new(name, message));
            }
        }
        if faults.is_empty() { Ok(page) } else { Err(faults) }
    }

    fn word(&mut self, name: &str, text: &str) -> Result<(), String> {
        match name {
            "limit" => {
                let max = limit_max(self.style);
                let limit = number(text)
                    .and_then(|limit| u32::try_from(limit).ok())
                    .filter(|limit| (1..=max).contains(limit));
                self.limit = limit.ok_or_else(|| format!("must be 1..{max}"))?;
            }
            "offset" => {
                let offset = number(text).and_then(|offset| u32::try_from(offset).ok());
                self.offset = offset.ok_or_else(|| format!("must be 0..{}", u32::MAX))?;
            }
            "after_seq" => {
                self.after_seq = number(text).ok_or("must be a whole number, 0 or above")?;
            }
            // `cursor` and `after`: an empty one is the first page, as clients that loop over pages
            // send it.
            _ if text.is_empty() => {}
            // The id of the last object, as it is: it only says where to go on within what the
            // caller sees anyway.
            "after" if text.len() <= KEY_BYTES_MAX => self.position = Some(text.to_owned()),
            "after" => return Err("must be the id of the last object".into()),
            _ => {
                let opened =
                    self.seal.as_ref().map(|seal| cursor::open(&seal.key, seal.binding(), text));
                self.position = match opened {
                    Some(Ok(position)) => Some(position),
                    Some(Err(error)) => return Err(error.to_string()),
                    None => None,
                };
            }
        }
        Ok(())
    }

    /// The words as a guest's query shows them: defaults filled in, positions unsealed.
    pub fn show(&self, query: &mut Map<String, Value>) {
        match self.style {
            Paging::None => return,
            Paging::Offset => drop(query.insert("offset".into(), self.offset.into())),
            Paging::Cursor => self.show_position("cursor", query),
            Paging::Envelope => self.show_position("after", query),
            Paging::Log => drop(query.insert("after_seq".into(), self.after_seq.into())),
        }
        query.insert("limit".into(), self.limit.into());
    }

    fn show_position(&self, word: &str, query: &mut Map<String, Value>) {
        if let Some(position) = &self.position {
            query.insert(word.into(), position.clone().into());
        }
    }

    /// The sealed cursor of the position where the next page begins.
    pub fn cursor(&self, position: &str) -> Option<String> {
        self.seal.as_ref()?.close(position)
    }
}

/// Plain decimal digits: no sign, no spaces, no leading plus.
fn number(text: &str) -> Option<u64> {
    (!text.is_empty() && text.len() <= 19 && text.bytes().all(|byte| byte.is_ascii_digit()))
        .then(|| text.parse().ok())?
}

/// Seals the `next_cursor` of a guest's page, leaving every other byte as the guest wrote it. A
/// page without one is unchanged.
pub fn seal_answer(page: &Page, json: String) -> String {
    use serde_json::value::RawValue;
    if page.seal.is_none() {
        return json;
    }
    let position = {
        #[derive(serde::Deserialize)]
        struct Next<'a> {
            #[serde(borrow, default)]
            next_cursor: Option<&'a RawValue>,
        }
        let Ok(Next { next_cursor: Some(raw) }) = serde_json::from_str::<Next<'_>>(&json) else {
            return json;
        };
        let Ok(Some(position)) = serde_json::from_str::<Option<String>>(raw.get()) else {
            return json;
        };
        // The raw value borrows from the text: its place there is where it is replaced.
        let start = raw.get().as_ptr() as usize - json.as_ptr() as usize;
        (position, start, raw.get().len())
    };
    let (position, start, length) = position;
    let sealed = page.cursor(&position).map_or(Value::Null, Value::String);
    format!("{}{}{}", &json[..start], sealed, &json[start + length..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(query: &[(&str, &str)]) -> Vec<(String, String)> {
        query.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn read(style: Paging, query: &[(&str, &str)]) -> Result<Page, Vec<Fault>> {
        let pairs = pairs(query);
        Page::read(style, &pairs, || Seal::new([1; 32], "u/1", "things.list", &pairs))
    }

    #[test]
    fn a_limit_out_of_range_is_refused_in_every_style_and_never_clamped() {
        for (style, max) in [
            (Paging::Offset, 200),
            (Paging::Cursor, 200),
            (Paging::Envelope, 100),
            (Paging::Log, 200),
        ] {
            assert_eq!(read(style, &[]).unwrap().limit, 20);
            assert_eq!(read(style, &[("limit", &max.to_string())]).unwrap().limit, max);
            for wrong in
                ["0", &(max + 1).to_string(), "-1", "+1", "1.0", "", "x", "99999999999999999999"]
            {
                let faults = read(style, &[("limit", wrong)]).unwrap_err();
                assert_eq!(faults, [Fault::new("limit", format!("must be 1..{max}"))], "{wrong}");
            }
        }
    }

    #[test]
    fn a_cursor_comes_back_under_the_same_filters_only() {
        let first = read(Paging::Cursor, &[("status", "open"), ("limit", "2")]).unwrap();
        let cursor = first.cursor("42").unwrap();
        let next = read(Paging::Cursor, &[("limit", "9"), ("cursor", &cursor), ("status", "open")])
            .unwrap();
        assert_eq!((next.position.as_deref(), next.limit), (Some("42"), 9));
        for foreign in [
            vec![("cursor", cursor.as_str())],
            vec![("cursor", cursor.as_str()), ("status", "done")],
        ] {
            assert_eq!(read(Paging::Cursor, &foreign).unwrap_err()[0].path, "cursor");
        }
        assert_eq!(read(Paging::Cursor, &[("cursor", "forged")]).unwrap_err()[0].path, "cursor");
        assert_eq!(read(Paging::Cursor, &[("cursor", "")]).unwrap().position, None);
    }

    #[test]
    fn all_faults_are_named_and_a_word_is_given_once() {
        let faults =
            read(Paging::Offset, &[("limit", "0"), ("offset", "x"), ("offset", "1")]).unwrap_err();
        assert_eq!(
            faults.iter().map(|fault| fault.path.as_str()).collect::<Vec<_>>(),
            ["limit", "offset", "offset"]
        );
    }

    #[test]
    fn a_guest_sees_defaults_and_unsealed_positions() {
        let mut query = Map::new();
        read(Paging::Offset, &[]).unwrap().show(&mut query);
        assert_eq!(Value::Object(query), serde_json::json!({"limit": 20, "offset": 0}));
        let mut query = Map::new();
        read(Paging::Envelope, &[("after", "id-7")]).unwrap().show(&mut query);
        assert_eq!(Value::Object(query), serde_json::json!({"limit": 20, "after": "id-7"}));
    }

    #[test]
    fn only_the_next_position_of_a_page_is_replaced() {
        let page = read(Paging::Cursor, &[]).unwrap();
        let sealed = seal_answer(
            &page,
            r#"{"items": [1.0, {"next_cursor":"inner"}], "next_cursor" : "p\"1", "z":0}"#.into(),
        );
        let cursor = page.cursor("p\"1").unwrap();
        assert_eq!(
            sealed,
            format!(
                r#"{{"items": [1.0, {{"next_cursor":"inner"}}], "next_cursor" : "{cursor}", "z":0}}"#
            )
        );
        for same in [r#"{"next_cursor":null}"#, r#"{"items":[]}"#, "[]"] {
            assert_eq!(seal_answer(&page, same.into()), same);
        }
        let plain = read(Paging::Envelope, &[]).unwrap();
        assert_eq!(seal_answer(&plain, r#"{"next_cursor":"x"}"#.into()), r#"{"next_cursor":"x"}"#);
    }
}
