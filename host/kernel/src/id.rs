//! The one alphabetical list of typed ids.
//!
//! Every id is a lower-case UUID (RFC 9562), made as version 7 so that ids sort by age. An id is
//! parsed once, where it enters; holding one says that its text is well formed, nothing about what
//! it names. Randomness and time are arguments.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::time::Instant;

/// Declares the ids: each a newtype over the lower-case text of a UUID.
macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident)*) => {$(
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(String);

        impl $name {
            /// Reads a UUID in its hyphenated form, either case; `None` for anything else.
            pub fn parse(text: &str) -> Option<Self> {
                read(text).map(Self)
            }
            /// A new id; see [`uuid_v7`].
            pub fn new(now: Instant, random: [u8; 10]) -> Self {
                Self(uuid_v7(now, random))
            }
            /// Its lower-case text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
            /// Gives up the type for the text.
            pub fn into_string(self) -> String {
                self.0
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.serialize_str(&self.0)
            }
        }

        impl JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }
            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({"type": "string", "format": "uuid", "minLength": 1, "maxLength": 64})
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let text = String::deserialize(from)?;
                Self::parse(&text).ok_or_else(|| serde::de::Error::custom("not a UUID"))
            }
        }
    )*};
}

ids! {
    /// A person who signs in.
    AccountId
    /// A regulated request that waits for a person.
    ApprovalId
    /// An event or audit fact.
    FactId
    /// Leave and funds held for one regulated action.
    HoldId
    /// An inbound URL.
    HookId
    /// A membership offered by mail.
    InvitationId
    /// A piece of durable work.
    JobId
    /// An API key.
    KeyId
    /// An account kit.
    KitId
    /// A person's place in an organization.
    MemberId
    /// A customer of the deployment.
    OrganizationId
    /// A part of an organization.
    ProjectId
    /// One request, in `x-request-id`.
    RequestId
    /// A recurring job.
    ScheduleId
    /// A browser session.
    SessionId
    /// A tenant user: one agent profile.
    UserId
    /// An outbound webhook subscription.
    WebhookId
}

/// The text of a new UUIDv7: 48 bits of milliseconds, then 74 of the 80 random bits.
///
/// Two ids of one millisecond are in no order; who needs one (a log) has sequence numbers. Moments
/// before 1970 count as 1970.
pub fn uuid_v7(now: Instant, random: [u8; 10]) -> String {
    let ms = u64::try_from(now.0).unwrap_or(0);
    uuid::Builder::from_unix_timestamp_millis(ms, &random).into_uuid().hyphenated().to_string()
}

/// The one spelling of a hyphenated UUID. Braced, URN and bare forms are refused: one id has one
/// spelling up to case.
fn read(text: &str) -> Option<String> {
    if text.len() != 36 {
        return None;
    }
    uuid::Uuid::try_parse(text).ok().map(|id| id.hyphenated().to_string())
}

/// Whether a text is a UUID as ids are written here, in either case.
pub fn is_id(text: &str) -> bool {
    read(text).is_some()
}

/// The one spelling of an id, where it is one; else the text as it is.
pub fn canonical(text: String) -> String {
    read(&text).unwrap_or(text)
}

/// Reads an id as a client or a former build has written it, in the one spelling that is compared.
///
/// # Errors
/// If it is no text.
pub fn read_one<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    String::deserialize(from).map(canonical)
}

/// Reads a set of ids as a client or a former build has written it, each in the one spelling that is
/// compared. Another text is left as it is, for the check of what is saved to name.
///
/// # Errors
/// If it is neither a list of texts nor null.
pub fn read_set<'de, D: Deserializer<'de>>(from: D) -> Result<Option<BTreeSet<String>>, D::Error> {
    let set = Option::<Vec<String>>::deserialize(from)?;
    Ok(set.map(|set| set.into_iter().map(canonical).collect()))
}

/// Reads a list of texts, of which those that are ids are read as [`read_one`] does.
///
/// # Errors
/// If it is neither a list of texts nor null.
pub fn read_list<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Vec<String>>, D::Error> {
    let list = Option::<Vec<String>>::deserialize(from)?;
    Ok(list.map(|list| list.into_iter().map(canonical).collect()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ids_are_version_7_and_sort_by_age() {
        let older = uuid_v7(Instant(1_700_000_000_000), [255; 10]);
        let newer = uuid_v7(Instant(1_700_000_000_001), [0; 10]);
        assert!(older < newer);
        assert_eq!(&older[14..15], "7");
        assert!(UserId::parse(&older).is_some());
    }

    #[test]
    fn upper_case_is_folded_and_other_spellings_are_refused() {
        let id = uuid_v7(Instant(1), [7; 10]);
        assert_eq!(UserId::parse(&id.to_uppercase()).map(UserId::into_string), Some(id.clone()));
        for text in [
            "",
            "me",
            "default",
            &id.replace('-', ""),
            &format!("{{{id}}}"),
            &format!("urn:uuid:{id}"),
            &format!("{id} "),
        ] {
            assert_eq!(UserId::parse(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn every_moment_and_randomness_make_an_id(ms in any::<i64>(), random in any::<[u8; 10]>()) {
            let id = KeyId::new(Instant(ms), random);
            prop_assert_eq!(KeyId::parse(id.as_str()), Some(id.clone()));
            let json = serde_json::to_string(&id).unwrap();
            prop_assert_eq!(serde_json::from_str::<KeyId>(&json).unwrap(), id);
        }
    }
}
