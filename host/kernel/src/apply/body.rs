//! The content of a row after a write.

use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::schema::is_reserved;
use crate::time::Instant;
use crate::unit::{Draft, Key, Lease, Refused, Row};

/// The row that a draft makes of the old one, or of none: written `at`, and a row's time never goes
/// back. A lease that somebody holds `now` outlives the replace.
pub fn merge(old: Option<&Row>, draft: &Draft, at: Instant, now: Instant) -> Row {
    let kept = old.and_then(|old| old.lease.as_ref());
    let lease = match (&draft.lease, kept) {
        (None, _) if draft.unleased => None,
        (None, kept) => kept.cloned(),
        (Some((group, _)), Some(kept)) if kept.token.is_some() && kept.due_at > now => {
            Some(Lease { group: group.clone(), ..kept.clone() })
        }
        (Some((group, due_at)), kept) => Some(Lease {
            group: group.clone(),
            due_at: *due_at,
            token: None,
            count: kept.map_or(0, |kept| kept.count),
        }),
    };
    let mut index = draft.index.clone();
    index.sort();
    index.dedup();
    let mut unique = draft.unique.clone();
    unique.sort();
    unique.dedup();
    Row {
        version: old.map_or(1, |old| old.version + 1),
        user: draft.user.clone().or_else(|| old.and_then(|old| old.user.clone())),
        created_at: old.map_or(at, |old| old.created_at),
        updated_at: old.map_or(at, |old| old.updated_at.max(at)),
        body: draft.body.clone(),
        index,
        unique,
        text: draft.text.clone(),
        lease,
    }
}

/// The body with `amount` added to a top-level integer; absent counts as 0. Every other byte of a
/// member's value stays.
pub fn add_to_body(key: &Key, body: &str, field: &str, amount: i64) -> Result<String, Refused> {
    let refused = || Refused::NotAddable { key: key.clone(), field: field.into() };
    if is_reserved(field) {
        return Err(refused());
    }
    let mut members: Members = serde_json::from_str(body).map_err(|_| refused())?;
    let slot = members.0.iter_mut().find(|(name, _)| name == field);
    let old: i64 = match &slot {
        Some((_, value)) => value.get().parse().map_err(|_| refused())?,
        None => 0,
    };
    let new = old.checked_add(amount).ok_or_else(refused)?;
    let value = RawValue::from_string(new.to_string()).map_err(|_| refused())?;
    match slot {
        Some((_, old)) => *old = value,
        None => members.0.push((field.into(), value)),
    }
    serde_json::to_string(&members).map_err(|_| refused())
}

/// A JSON object whose members keep their order and their text.
struct Members(Vec<(String, Box<RawValue>)>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Members;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        from.deserialize_map(Object)
    }
}

impl Serialize for Members {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}
