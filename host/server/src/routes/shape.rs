//! Texts and parts that the host's bodies and answers share, and the shape of their lists.

use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;

use charter_kernel::fault::Fault;
use charter_kernel::id::{AccountId, read_one};
use charter_kernel::refusal::Refusal;
use charter_kernel::time::Instant;
use charter_tenancy::directory::password;
use charter_tenancy::records::{account, name};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize};

use crate::paging::Page;

pub use crate::schema::Optional;

/// The longest page of a list.
pub const PAGE_MAX: u32 = charter_kernel::limits::PAGE_LIMIT_MAX;

/// Declares texts of the wire: each a newtype whose schema is the one beside it. The schema alone
/// checks a text; a value that the host makes itself is as its records have it.
macro_rules! texts {
    ($($(#[$doc:meta])* $name:ident$(<$most:ident>)? = $schema:tt;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name$(<const $most: usize>)?(pub String);

        impl$(<const $most: usize>)? JsonSchema for $name$(<$most>)? {
            fn inline_schema() -> bool {
                true
            }
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }
            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!($schema)
            }
        }

        /// Some are secrets: none prints itself.
        impl$(<const $most: usize>)? fmt::Debug for $name$(<$most>)? {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(stringify!($name))
            }
        }

        impl$(<const $most: usize>)? Deref for $name$(<$most>)? {
            type Target = str;
            fn deref(&self) -> &str {
                &self.0
            }
        }

        impl$(<const $most: usize>)? From<&str> for $name$(<$most>)? {
            fn from(text: &str) -> Self {
                Self(text.to_owned())
            }
        }
    )*};
}

texts! {
    /// An e-mail address that is kept; [`account::email_fault`] decides. The format of the name
    /// would refuse those that are not ASCII.
    Email = {
        "type": "string", "minLength": 1, "maxLength": account::EMAIL_BYTES_MAX,
        "pattern": email_pattern(), "x-words": "must be an e-mail address",
    };
    /// An id of a record that is known by its text.
    Id = {"type": "string", "format": "uuid", "minLength": 1, "maxLength": 64};
    /// An e-mail address that is looked for: one that nobody has is nobody's.
    KnownEmail = {"type": "string", "minLength": 1, "maxLength": account::EMAIL_BYTES_MAX};
    /// One line of text that shows something.
    Line<MAX> = {
        "type": "string", "minLength": 1, "maxLength": MAX,
        "pattern": r"^\P{Cc}*[^\p{Cc}\s]\P{Cc}*$", "x-words": "must be one line of text, and not blank",
    };
    /// A moment that a request names.
    Moment = {"type": "string", "format": "date-time"};
    /// A password that is set; [`password::fault`] decides.
    NewPassword = {
        "type": "string", "minLength": password::PASSWORD_CHARACTERS_MIN,
        "maxLength": password::PASSWORD_BYTES_MAX,
    };
    /// The secret of a link.
    Token = {"type": "string", "minLength": 1, "maxLength": 200};
    /// A password that is tried.
    TriedPassword = {"type": "string", "minLength": 1, "maxLength": password::PASSWORD_BYTES_MAX};
}

/// An id in a request, whatever it is: one that names nothing is absent. It is read in the one
/// spelling that is compared and kept.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Reference(#[serde(deserialize_with = "read_one")] String);

impl JsonSchema for Reference {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "Reference".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "minLength": 1, "maxLength": 64})
    }
}

impl Deref for Reference {
    type Target = str;
    fn deref(&self) -> &str {
        &self.0
    }
}

/// A name that people give; [`name::fault`] decides.
pub type Name = Line<{ name::CHARACTERS_MAX }>;

/// The reason that a person gives.
pub type Reason = Line<1_000>;

fn email_pattern() -> String {
    const LABEL: &str = r"[\p{Alphabetic}\p{N}]([\p{Alphabetic}\p{N}-]*[\p{Alphabetic}\p{N}])?";
    format!(r"^\s*[^\s\p{{Cc}}@]{{1,64}}@{LABEL}(\.{LABEL})+\s*$")
}

impl Moment {
    /// The moment, unless it lies beyond what a timestamp can say.
    pub fn instant(&self) -> Option<Instant> {
        Instant::parse(&self.0)
    }
}

/// The word of an answer that can only be yes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Yes;

impl Serialize for Yes {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bool(true)
    }
}

impl JsonSchema for Yes {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "Yes".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"const": true})
    }
}

/// The answer to a deletion.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Deleted {
    /// The id of the record that is gone.
    pub id: Id,
    /// True.
    pub deleted: Yes,
}

impl Deleted {
    /// The answer for this id.
    pub fn of(id: &str) -> Self {
        Self { id: id.into(), deleted: Yes }
    }
}

/// The answer where it must not tell whether anything happened.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Nothing {}

/// An organization or a project, by its name.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Named {
    /// Its id.
    pub id: Id,
    /// Its name, for people.
    pub name: Name,
}

impl Named {
    /// The answer's part of a record with this id and name.
    pub fn of(id: &str, name: &str) -> Self {
        Self { id: id.into(), name: name.into() }
    }
}

/// The actor of a change: an account, a key, a component.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Actor {
    /// The kind of actor.
    #[serde(rename = "type")]
    pub kind: String,
    /// The actor's id.
    pub id: String,
}

impl From<&(String, String)> for Actor {
    fn from((kind, id): &(String, String)) -> Self {
        Self { kind: kind.clone(), id: id.clone() }
    }
}

/// A person's account, and whether its address is proved.
#[derive(Serialize, JsonSchema)]
pub struct AccountItem {
    /// The account's id.
    id: AccountId,
    /// Its address.
    email: String,
    /// Whether a mailed link has proved the address.
    email_verified: bool,
}

impl AccountItem {
    /// The answer's part of an account.
    pub fn of(account: &account::Account) -> Self {
        Self {
            id: account.id.clone(),
            email: account.email.clone(),
            email_verified: account.is_verified(),
        }
    }
}

/// The answer of what ends sessions.
#[derive(Serialize, JsonSchema)]
pub struct EndedSessions {
    /// How many sessions ended.
    pub sessions_ended: usize,
}

/// The position of a page in a list.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct Offset {
    /// How many items the page holds at most.
    pub limit: u32,
    /// How many items were left out before it.
    pub offset: u32,
    /// Whether there is another page.
    pub has_more: bool,
}

impl Offset {
    /// The page that was asked for.
    pub fn of(page: &Page, has_more: bool) -> Self {
        Self { limit: page.limit, offset: page.offset, has_more }
    }
}

/// The position of a page in a list that goes on at a cursor.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Cursor {
    /// How many items the page holds at most.
    pub limit: u32,
    /// Whether there is another page.
    pub has_more: bool,
    /// The `cursor` of the next page.
    pub next_cursor: Option<String>,
}

impl Cursor {
    /// The page that was asked for; `next` is the position of the one behind it.
    pub fn of(page: &Page, next: Option<&str>) -> Self {
        Self {
            limit: page.limit,
            has_more: next.is_some(),
            next_cursor: next.and_then(|position| page.cursor(position)),
        }
    }
}

/// Adds the fault of a field, if it has one.
pub fn check(faults: &mut Vec<Fault>, field: &str, fault: Option<&'static str>) {
    faults.extend(fault.map(|message| Fault::new(field, message)));
}

/// Refuses where there are faults.
///
/// # Errors
/// `invalid_input` with all of them.
pub fn refuse_faults(faults: Vec<Fault>) -> Result<(), Refusal> {
    if faults.is_empty() { Ok(()) } else { Err(Refusal::faults(faults)) }
}

/// Reads a member of a PATCH that tells "absent" from "null": `#[serde(default, deserialize_with =
/// "present")]`.
///
/// # Errors
/// When the value does not fit.
pub fn present<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<Option<T>>, D::Error> {
    Option::<T>::deserialize(from).map(Some)
}

#[cfg(test)]
mod tests {
    use charter_kernel::schema::Schema;
    use serde_json::json;

    use super::*;
    use crate::schema::of_request;

    fn admits<T: JsonSchema>(text: &str) -> bool {
        Schema::compile(&of_request::<T>()).unwrap().validate(&json!(text)).is_ok()
    }

    #[test]
    fn a_schema_refuses_what_the_rule_behind_it_refuses_and_nothing_else() {
        let long = |n: usize| "x".repeat(n);
        for text in [
            "Acme, Inc.",
            "Ünï",
            " a ",
            "",
            "  ",
            "two\nlines",
            "a\u{0}",
            "\u{85}",
            &long(128),
            &long(129),
        ] {
            assert_eq!(admits::<Name>(text), name::fault(text).is_none(), "{text:?}");
        }
        let far = format!("a@{}.com", long(300));
        for text in [
            "ann@example.com",
            "ann+tag@mail.example.co.uk",
            "änn@exämple.de",
            "a@b.co",
            "",
            "ann",
            "ann@",
            "@example.com",
            "ann@example",
            "an n@example.com",
            "a@-x.com",
            "a@x-.com",
            "a@b..c",
            "a@b@c.com",
            "some\u{0}one@example.com",
            &far,
        ] {
            assert_eq!(admits::<Email>(text), account::email_fault(text).is_none(), "{text:?}");
        }
        assert!(admits::<Email>(" ann@example.com "), "it is trimmed");
        for text in ["correct horse", "pässwörd", "short", "", &long(1025)] {
            let fits = password::fault(text, "a@b.co").is_none();
            assert_eq!(admits::<NewPassword>(text), fits, "{text:?}");
        }
    }

    #[test]
    fn a_fault_of_a_pattern_reads_as_a_sentence() {
        #[derive(Deserialize, JsonSchema)]
        #[expect(dead_code, reason = "only its schema is read")]
        struct Sent {
            email: Email,
            name: Name,
        }
        let faults = Schema::compile(&of_request::<Sent>()).unwrap();
        let faults = faults.validate(&json!({"email": "nobody@x", "name": " "})).unwrap_err();
        let words: Vec<_> = faults.iter().map(ToString::to_string).collect();
        assert_eq!(
            words,
            ["email must be an e-mail address", "name must be one line of text, and not blank"]
        );
    }

    #[test]
    fn a_member_that_may_be_absent_takes_null_only_where_null_means_something() {
        #[derive(Deserialize, JsonSchema)]
        #[expect(dead_code, reason = "only its schema is read")]
        struct Sent {
            name: Optional<Name>,
            #[serde(default, deserialize_with = "present")]
            note: Option<Option<Name>>,
        }
        let schema = Schema::compile(&of_request::<Sent>()).unwrap();
        assert!(schema.validate(&json!({})).is_ok());
        assert!(schema.validate(&json!({"name": "a", "note": null})).is_ok());
        assert!(schema.validate(&json!({"name": null})).is_err());
        assert!(schema.validate(&json!({"note": " "})).is_err());
    }
}
