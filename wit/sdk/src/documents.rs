//! Documents of the caller's own scope, typed: `const NOTES: Collection<Note> =
//! Collection::new("notes");`
//!
//! Reads are validated at the commit and writes are buffered until it; on a conflict the host runs
//! the request again, so there is no retry code here and none in a primitive.

mod doc;
mod query;

pub use doc::{At, Doc};
pub use query::{Filter, Found};

use std::cell::Cell;
use std::marker::PhantomData;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use crate::bindings::charter::primitive::documents as raw;
use crate::failure::Result;
use crate::host::documents as host;
use crate::time::Instant;

/// The reach of a collection: the users who share its documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reach {
    /// One tenant user.
    User,
    /// All users of a project.
    Project,
    /// All projects of an organization.
    Organization,
    /// Everyone; for catalogues that the operator fills.
    Deployment,
}

/// A field that queries may match: a member of the body, dotted for nested ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Index {
    field: &'static str,
    #[serde(rename = "type")]
    kind: &'static str,
}

impl Index {
    /// Compared by bytes.
    pub const fn text(field: &'static str) -> Self {
        Self { field, kind: "text" }
    }
    /// Compared as 64-bit integers.
    pub const fn integer(field: &'static str) -> Self {
        Self { field, kind: "integer" }
    }
    /// Compared as moments.
    pub const fn instant(field: &'static str) -> Self {
        Self { field, kind: "instant" }
    }
}

/// A collection of documents of one type.
#[derive(Debug)]
pub struct Collection<T> {
    name: &'static str,
    reach: Reach,
    indexes: &'static [Index],
    unique: &'static [&'static str],
    searchable: &'static [&'static str],
    leased_by: Option<&'static str>,
    kind: PhantomData<fn() -> T>,
}

/// A collection's declaration.
#[derive(Clone, Copy, Debug)]
pub struct CollectionSpec {
    name: &'static str,
    reach: Reach,
    indexes: &'static [Index],
    unique: &'static [&'static str],
    searchable: &'static [&'static str],
    leased_by: Option<&'static str>,
    body: fn() -> Value,
}

impl Serialize for CollectionSpec {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut words = json!({
            "name": self.name,
            "reach": self.reach,
            "indexes": self.indexes,
            "unique": self.unique,
            "searchable": self.searchable,
            "body": (self.body)(),
        });
        if let Some(by) = self.leased_by {
            words["leased"] = json!({ "by": by });
        }
        words.serialize(serializer)
    }
}

impl<T> Collection<T> {
    /// A collection of this name, lower case, unique within the primitive; each tenant user has
    /// documents of their own.
    pub const fn new(name: &'static str) -> Self {
        Self {
            name,
            reach: Reach::User,
            indexes: &[],
            unique: &[],
            searchable: &[],
            leased_by: None,
            kind: PhantomData,
        }
    }
    /// Sets who shares its documents.
    #[must_use]
    pub const fn reach(mut self, reach: Reach) -> Self {
        self.reach = reach;
        self
    }
    /// Fields that [`Collection::matching`] may name.
    #[must_use]
    pub const fn index(mut self, indexes: &'static [Index]) -> Self {
        self.indexes = indexes;
        self
    }
    /// Fields whose values are unique; absent ones are not claimed.
    #[must_use]
    pub const fn unique(mut self, fields: &'static [&'static str]) -> Self {
        self.unique = fields;
        self
    }
    /// Fields that [`Collection::search`] reads.
    #[must_use]
    pub const fn searchable(mut self, fields: &'static [&'static str]) -> Self {
        self.searchable = fields;
        self
    }
    /// Documents are handed out under leases, within one value of this field; see
    /// [`crate::leases`].
    #[must_use]
    pub const fn lease_by(mut self, field: &'static str) -> Self {
        self.leased_by = Some(field);
        self
    }
    /// Its name.
    pub const fn name(&self) -> &'static str {
        self.name
    }
    pub(crate) const fn is_leased(&self) -> bool {
        self.leased_by.is_some()
    }
}

impl<T: JsonSchema> Collection<T> {
    pub(crate) const fn spec(&self) -> CollectionSpec {
        CollectionSpec {
            name: self.name,
            reach: self.reach,
            indexes: self.indexes,
            unique: self.unique,
            searchable: self.searchable,
            leased_by: self.leased_by,
            body: crate::schema::of_answer::<T>,
        }
    }
}

impl<T: Serialize + DeserializeOwned> Collection<T> {
    /// A new document; the host gives it an id. Of a leased collection: handed out at once.
    pub fn insert(&self, body: T) -> Result<Doc<T>> {
        self.insert_at(body, None)
    }
    /// A new document of a leased collection, handed out from `due` on.
    pub fn insert_due(&self, body: T, due: Instant) -> Result<Doc<T>> {
        self.insert_at(body, Some(due.as_ms()))
    }
    fn insert_at(&self, body: T, due: Option<i64>) -> Result<Doc<T>> {
        after_write(host::insert(self.name, &serde_json::to_string(&body)?, due)?, body)
    }
    /// The document, with this request's own writes.
    pub fn get(&self, id: &str) -> Result<Option<Doc<T>>> {
        host::get(self.name, id)?.map(Doc::read).transpose()
    }
    /// The document that holds this value of a unique field, as committed.
    pub fn lookup(&self, field: &str, value: &str) -> Result<Option<Doc<T>>> {
        host::lookup(self.name, field, value)?.map(Doc::read).transpose()
    }
    /// New content for a document, as it was read. Its reads are validated at the commit, and
    /// [`checkpoint`] is one: behind it a document that is another by now is 409 `version_conflict`,
    /// so that nothing which was read before undoes what others have written since.
    pub fn replace(&self, at: At, body: T) -> Result<Doc<T>> {
        let expected = CHECKPOINTED.get().then_some(at.version);
        after_write(
            host::replace(self.name, &at.id, &serde_json::to_string(&body)?, expected)?,
            body,
        )
    }
    /// New content, if the document is still at this version; else 409 `version_conflict`.
    pub fn replace_expected(&self, id: &str, version: u64, body: T) -> Result<Doc<T>> {
        after_write(
            host::replace(self.name, id, &serde_json::to_string(&body)?, Some(version))?,
            body,
        )
    }
    /// Removes a document; false if there was none.
    pub fn remove(&self, id: &str) -> Result<bool> {
        Ok(host::remove(self.name, id, None)?)
    }
    /// Adds to an integer member of the body. Commutes: a thousand callers at once do not conflict.
    pub fn add(&self, id: &str, field: &str, amount: i64) -> Result<()> {
        Ok(host::add(self.name, id, field, amount)?)
    }
    /// Full text over the searchable fields, best first.
    pub fn search(&self, text: &str, limit: u32) -> Result<Vec<Doc<T>>> {
        host::search(self.name, text, limit)?.into_iter().map(Doc::read).collect()
    }
    /// The committed documents; narrow them by the filter's methods.
    pub fn all(&self) -> Filter<T> {
        Filter::new(self.name)
    }
    /// The committed documents whose indexed field has this value.
    pub fn matching(&self, field: &str, value: impl ToString) -> Filter<T> {
        self.all().and(field, value)
    }
}

/// The body that was written is the body that was sent: it is not parsed again.
fn after_write<T>(document: raw::Document, body: T) -> Result<Doc<T>> {
    Ok(Doc {
        id: document.id,
        user: document.user,
        version: document.version,
        created_at: Instant::from_ms(document.created_at),
        updated_at: Instant::from_ms(document.updated_at),
        body,
    })
}

thread_local! {
    /// Whether this request has committed a part of its work. A guest has one thread and serves one
    /// request.
    static CHECKPOINTED: Cell<bool> = const { Cell::new(false) };
}

/// Commits what was written so far and goes on; for long work. The code after it is not run again
/// on a conflict: what it writes, it reads behind it.
pub fn checkpoint() -> Result<()> {
    host::checkpoint()?;
    CHECKPOINTED.set(true);
    Ok(())
}
