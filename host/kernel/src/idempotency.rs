//! Idempotency keys: what makes two requests the same one, and what the second one gets.
//!
//! A record lives in the scope of organization, project, user, principal, operation and key, so
//! that no caller can replay another's answer. Knows nothing of how records are stored or sealed.

use hmac::{Hmac, KeyInit as _, Mac as _};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::hex::hex;
use crate::limits::IDEMPOTENCY_KEY_CHARS_MAX;
use crate::scope::Level;
use crate::time::Instant;

mod lineage;

pub use lineage::Lineage;

/// A key as a client sent it, 1–255 visible ASCII characters.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClientKey(String);

impl ClientKey {
    /// Reads the value of `Idempotency-Key`, bare or as a quoted string of structured fields (RFC
    /// 8941): both spell one key.
    ///
    /// # Errors
    /// A sentence that says what a key looks like.
    pub fn parse(header: &str) -> Result<Self, &'static str> {
        const RULE: &str = "must be 1 to 255 visible ASCII characters, bare or in double quotes";
        let header = header.trim_matches([' ', '\t']);
        let key = match header.strip_prefix('"') {
            Some(rest) => unquote(rest).ok_or(RULE)?,
            None => header.to_owned(),
        };
        let fits = (1..=IDEMPOTENCY_KEY_CHARS_MAX).contains(&key.len())
            && key.bytes().all(|byte| byte.is_ascii_graphic());
        if fits { Ok(Self(key)) } else { Err(RULE) }
    }

    /// The key without quotes.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The text behind an opening quote, up to a closing one that ends the value.
fn unquote(rest: &str) -> Option<String> {
    let mut key = String::new();
    let mut characters = rest.chars();
    loop {
        match characters.next()? {
            '"' => return characters.next().is_none().then_some(key),
            '\\' => key.push(characters.next().filter(|next| matches!(next, '"' | '\\'))?),
            other => key.push(other),
        }
    }
}

/// The parts of a request that make it the same request.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The method.
    pub method: &'a str,
    /// The path after mounts, `default` and `me` were resolved.
    pub path: &'a str,
    /// The decoded query, in any order.
    pub query: &'a [(String, String)],
    /// The value of `Content-Type`; empty if there is none.
    pub content_type: &'a str,
    /// The body's bytes.
    pub body: &'a [u8],
}

/// The fingerprint of what makes a request the same request.
///
/// A record keeps it under a key: a body may hold a password or a short secret, and nobody who reads the
/// rows and has no key of the deployment's is to try them out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint {
    keyed: [u8; 32],
    /// The digest that earlier builds have kept.
    bare: [u8; 32],
}

/// The beginning of a keyed fingerprint in a record.
const KEYED: &str = "hmac-sha256:";

impl Fingerprint {
    /// The fingerprint of a request under a key of the deployment's.
    pub fn new(key: &[u8; 32], request: Request<'_>) -> Self {
        let bare = digest(request);
        let keyed = match Hmac::<Sha256>::new_from_slice(key) {
            Ok(mac) => mac.chain_update(bare).finalize().into_bytes().into(),
            // HMAC takes keys of any length.
            Err(_) => [0; 32],
        };
        Self { keyed, bare }
    }

    /// As a record keeps it.
    fn text(&self) -> String {
        format!("{KEYED}{}", hex(&self.keyed))
    }

    fn is_kept_as(&self, kept: &str) -> bool {
        if kept.starts_with(KEYED) { kept == self.text() } else { kept == hex(&self.bare) }
    }
}

/// SHA-256 over what makes a request the same request. Each part is preceded by its length, so
/// parts cannot run together.
fn digest(request: Request<'_>) -> [u8; 32] {
    let mut query: Vec<&(String, String)> = request.query.iter().collect();
    query.sort();
    let mut hash = Sha256::new();
    let mut part = |bytes: &[u8]| {
        hash.update((bytes.len() as u64).to_be_bytes());
        hash.update(bytes);
    };
    part(request.method.as_bytes());
    part(request.path.as_bytes());
    part(&(query.len() as u64).to_be_bytes());
    for (name, value) in query {
        part(name.as_bytes());
        part(value.as_bytes());
    }
    part(request.content_type.as_bytes());
    part(request.body);
    hash.finalize().into()
}

/// The place of a record.
#[derive(Clone, Copy, Debug)]
pub struct RecordPlace<'a> {
    /// The organization.
    pub organization: &'a str,
    /// The project; empty for none.
    pub project: &'a str,
    /// The tenant user; empty for none.
    pub user: &'a str,
    /// The credential: kind and id of the actor.
    pub principal: (&'a str, &'a str),
    /// The operation's id.
    pub operation: &'a str,
    /// The key.
    pub key: &'a ClientKey,
}

/// The id of a record's row: a digest, so that it is short and says nothing.
pub fn record_id(place: RecordPlace<'_>) -> String {
    let mut hash = Sha256::new();
    let (kind, id) = place.principal;
    for part in [
        place.organization,
        place.project,
        place.user,
        kind,
        id,
        place.operation,
        place.key.as_str(),
    ] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part.as_bytes());
    }
    hex(&hash.finalize())
}

/// The kept part of a request that came with a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The request's [`Fingerprint`]; in rows of earlier builds, its bare digest.
    pub fingerprint: String,
    /// How far it came.
    pub state: State,
    /// The answer's status, once done.
    #[serde(default)]
    pub status: u16,
    /// The answer's headers that are replayed.
    #[serde(default)]
    pub headers: Vec<(String, String)>,
    /// The answer's body, sealed by the store.
    #[serde(default)]
    pub body: String,
    /// The approval that the request waits by: the kept answer says only that it waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<String>,
    /// The job whose result is the answer: the kept one says only that it was accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// The party that the request was about. Absent where it was of no organization, and in records of builds
    /// that did not note it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<Level>,
    /// The run that owns the record: every later commit of the request checks it.
    #[serde(default)]
    pub owner: String,
    /// When it may be forgotten.
    pub expires_at: Instant,
}

/// How far a request came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It runs, or waits for an approval.
    Running,
    /// It was answered.
    Done,
    /// It was answered by a stream, which is not kept.
    Streamed,
    /// It was answered by more than is kept.
    Large,
    /// Something left the host and no outcome is known.
    InDoubt,
}

/// The answer to a request whose key is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recall {
    /// The kept answer.
    Replay,
    /// 409: the key belongs to another request.
    Mismatch,
    /// 409 with `Retry-After`: still running, or its outcome is in doubt.
    Running,
    /// 409: the answer was a stream.
    Streamed,
    /// 409: the answer was too large to be kept.
    Large,
}

impl Record {
    /// The record of a request that begins.
    pub fn begin(fingerprint: &Fingerprint, owner: String, expires_at: Instant) -> Self {
        Self {
            fingerprint: fingerprint.text(),
            state: State::Running,
            status: 0,
            headers: Vec::new(),
            body: String::new(),
            approval: None,
            job: None,
            level: None,
            owner,
            expires_at,
        }
    }

    /// Whether it may be of a request at this level: who names the default profile asks for another
    /// thing than who names nobody.
    pub fn is_at(&self, level: Option<Level>) -> bool {
        self.level.is_none() || self.level == level
    }
}

/// The answer of a record to a request with this fingerprint. Whether the record has expired is
/// decided before.
pub fn decide(record: &Record, fingerprint: &Fingerprint) -> Recall {
    if !fingerprint.is_kept_as(&record.fingerprint) {
        return Recall::Mismatch;
    }
    match record.state {
        State::Done => Recall::Replay,
        State::Running | State::InDoubt => Recall::Running,
        State::Streamed => Recall::Streamed,
        State::Large => Recall::Large,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const KEY: [u8; 32] = [7; 32];

    fn print(path: &str, query: &[(&str, &str)], content_type: &str, body: &[u8]) -> Fingerprint {
        let query: Vec<(String, String)> =
            query.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect();
        Fingerprint::new(&KEY, Request { method: "POST", path, query: &query, content_type, body })
    }

    #[test]
    fn nobody_without_the_key_tells_a_body_by_what_is_kept() {
        let request = |body| Request {
            method: "PUT",
            path: "/notes/pin",
            query: &[],
            content_type: "application/json",
            body,
        };
        let print = Fingerprint::new(&KEY, request(b"4821"));
        let kept = Record::begin(&print, "run".into(), Instant(1));
        assert!(!serde_json::to_string(&kept).unwrap().contains(&hex(&print.bare)));
        let guessed = Fingerprint::new(&[8; 32], request(b"4821"));
        assert_eq!(decide(&kept, &guessed), Recall::Mismatch);
        assert_eq!(decide(&kept, &print), Recall::Running);
        // A record of an earlier build is of the same request still.
        let earlier = Record { fingerprint: hex(&print.bare), ..kept };
        assert_eq!(decide(&earlier, &print), Recall::Running);
        assert_eq!(decide(&earlier, &Fingerprint::new(&KEY, request(b"4822"))), Recall::Mismatch);
    }

    #[test]
    fn a_key_is_bare_or_quoted() {
        assert_eq!(ClientKey::parse("\"a-1\"").unwrap(), ClientKey::parse(" a-1 ").unwrap());
        assert_eq!(ClientKey::parse("\"a\\\"b\\\\\"").unwrap().as_str(), "a\"b\\");
        assert_eq!(ClientKey::parse(&"k".repeat(255)).unwrap().as_str().len(), 255);
        for bad in
            ["", "\"\"", "\"", "\"a", "\"a\"b", "\"a\\n\"", "a b", "ä", "\u{7f}", &"k".repeat(256)]
        {
            assert!(ClientKey::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn every_part_counts_and_the_order_of_the_query_does_not() {
        let base = print("/a", &[("x", "1"), ("y", "2")], "application/json", b"{}");
        assert_eq!(base, print("/a", &[("y", "2"), ("x", "1")], "application/json", b"{}"));
        for other in [
            print("/b", &[("x", "1"), ("y", "2")], "application/json", b"{}"),
            print("/a", &[("x", "1")], "application/json", b"{}"),
            print("/a", &[("x", "1y2")], "application/json", b"{}"),
            print("/a", &[("x", "1"), ("y", "2")], "text/plain", b"{}"),
            print("/a", &[("x", "1"), ("y", "2")], "application/json", b"{ }"),
        ] {
            assert_ne!(base, other);
        }
    }

    #[test]
    fn no_two_places_share_a_record() {
        let (a, b) = (ClientKey::parse("a").unwrap(), ClientKey::parse("b").unwrap());
        let place = RecordPlace {
            organization: "o",
            project: "p",
            user: "",
            principal: ("key", "k"),
            operation: "x.y",
            key: &a,
        };
        let ids = [
            record_id(place),
            record_id(RecordPlace { key: &b, ..place }),
            record_id(RecordPlace { principal: ("key", "k2"), ..place }),
            record_id(RecordPlace { project: "", user: "p", ..place }),
            record_id(RecordPlace { organization: "op", project: "", ..place }),
            record_id(RecordPlace { operation: "x.z", ..place }),
        ];
        assert_eq!(ids.iter().collect::<std::collections::BTreeSet<_>>().len(), ids.len());
        assert_eq!(ids[0].len(), 64);
    }

    #[test]
    fn a_record_is_of_who_named_the_same() {
        let mut record = Record::begin(&print("/a", &[], "", b""), "run".into(), Instant(1));
        let earlier = serde_json::to_string(&record).unwrap();
        assert!(!earlier.contains("level"), "{earlier}");
        assert!(record.is_at(Some(Level::User)) && record.is_at(None), "of an earlier build");
        record.level = Some(Level::Organization);
        record = serde_json::from_str(&serde_json::to_string(&record).unwrap()).unwrap();
        assert!(record.is_at(Some(Level::Organization)));
        for other in [Some(Level::User), Some(Level::Project), None] {
            assert!(!record.is_at(other), "{other:?}");
        }
    }

    #[test]
    fn the_second_request_gets_what_the_first_ones_state_says() {
        let print = print("/a", &[], "", b"");
        let mut record = Record::begin(&print, "run".into(), Instant(1));
        for (state, verdict) in [
            (State::Running, Recall::Running),
            (State::Done, Recall::Replay),
            (State::Streamed, Recall::Streamed),
            (State::Large, Recall::Large),
            (State::InDoubt, Recall::Running),
        ] {
            record.state = state;
            assert_eq!(decide(&record, &print), verdict);
            assert_eq!(decide(&record, &self::print("/b", &[], "", b"")), Recall::Mismatch);
        }
    }

    proptest! {
        #[test]
        fn any_visible_key_reads_the_same_bare_and_quoted(key in "[!#-\\[\\]-~][!-~]{0,254}") {
            let quoted = format!("\"{}\"", key.replace('\\', "\\\\").replace('"', "\\\""));
            prop_assert_eq!(ClientKey::parse(&key).unwrap(), ClientKey::parse(&quoted).unwrap());
        }

        #[test]
        fn no_header_panics_and_every_key_is_visible(header in "\\PC*") {
            if let Ok(key) = ClientKey::parse(&header) {
                prop_assert!(key.as_str().bytes().all(|b| b.is_ascii_graphic()));
                prop_assert!((1..=255).contains(&key.as_str().len()));
            }
        }
    }
}
