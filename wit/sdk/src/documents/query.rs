//! Finding documents: a filter, then what to do with what it matches.

use std::marker::PhantomData;

use serde::de::DeserializeOwned;

use crate::bindings::charter::primitive::documents::{Order, Query, Test};
use crate::documents::doc::Doc;
use crate::failure::Result;
use crate::host::documents as host;
use crate::paging::{After, Cursor, Envelope, Offset};

/// A selection of a collection's documents, and their order.
#[must_use]
#[derive(Clone, Debug)]
pub struct Filter<T> {
    query: Query,
    kind: PhantomData<fn() -> T>,
}

/// A page of documents.
#[derive(Clone, Debug)]
pub struct Found<T> {
    /// The documents: fewer than asked for where a page's bytes are full.
    pub items: Vec<Doc<T>>,
    /// The position behind the last one, raw.
    pub next: Option<String>,
    /// Whether there are more.
    pub has_more: bool,
}

impl<T> Envelope<T> {
    /// A page found in a collection, each item worded for the caller.
    pub fn of<D>(found: Found<D>, word: impl FnMut(Doc<D>) -> T) -> Self {
        let next_cursor = found.has_more.then_some(found.next).flatten();
        Self {
            has_more: next_cursor.is_some(),
            data: found.items.into_iter().map(word).collect(),
            next_cursor,
        }
    }
}

impl<T: DeserializeOwned> Filter<T> {
    pub(crate) fn new(collection: &str) -> Self {
        let query = Query {
            collection: collection.into(),
            matching: Vec::new(),
            order: Order::Newest,
            limit: 200,
            after: None,
            offset: None,
            relaxed: false,
        };
        Self { query, kind: PhantomData }
    }
    /// An indexed field has this value.
    pub fn and(mut self, field: &str, value: impl ToString) -> Self {
        self.query.matching.push((field.into(), Test::Equal(value.to_string())));
        self
    }
    /// An indexed field lies between these values, both included; `None` leaves an end open.
    pub fn between(mut self, field: &str, least: Option<String>, most: Option<String>) -> Self {
        self.query.matching.push((field.into(), Test::Between((least, most))));
        self
    }
    /// Oldest first, instead of newest first.
    pub fn oldest_first(mut self) -> Self {
        self.query.order = Order::Oldest;
        self
    }
    /// Leaves the read out of the commit's validation: what it answers may have changed by then.
    pub fn relax(mut self) -> Self {
        self.query.relaxed = true;
        self
    }
    /// At most so many.
    pub fn limit(mut self, limit: u32) -> Self {
        self.query.limit = limit;
        self
    }

    /// The page that the caller asked for, style `offset`. Oldest first, so that what is inserted
    /// in the middle of somebody's walk moves nothing that was shown. As long as it was asked for,
    /// in however many parts large documents come: its caller goes on behind so many.
    pub fn page(mut self, page: Offset) -> Result<Found<T>> {
        self.query.order = Order::Oldest;
        (self.query.limit, self.query.offset) = (page.limit, Some(page.offset));
        let mut found = find(&self.query)?;
        while found.has_more && found.items.len() < page.limit as usize && found.next.is_some() {
            let left = page.limit as usize - found.items.len();
            self.query.limit = u32::try_from(left).unwrap_or(page.limit);
            (self.query.offset, self.query.after) = (None, found.next.take());
            let more = find(&self.query)?;
            found.items.extend(more.items);
            (found.next, found.has_more) = (more.next, more.has_more);
        }
        Ok(found)
    }
    /// The page that the caller asked for, style `cursor`.
    pub fn page_at(mut self, page: Cursor) -> Result<Found<T>> {
        (self.query.limit, self.query.after) = (page.limit, page.cursor);
        self.find()
    }
    /// The page that the caller asked for, style `envelope`.
    pub fn page_after(mut self, page: After) -> Result<Found<T>> {
        (self.query.limit, self.query.after) = (page.limit, page.after);
        self.find()
    }
    /// The first page.
    pub fn find(self) -> Result<Found<T>> {
        find(&self.query)
    }
    /// The first match.
    pub fn first(self) -> Result<Option<Doc<T>>> {
        Ok(self.limit(1).find()?.items.pop())
    }
    /// How many match.
    pub fn count(self) -> Result<u64> {
        Ok(host::count(&self.query.collection, &self.query.matching, self.query.relaxed)?)
    }
    /// Removes matches, bounded a call; true while more are left: `while filter.clone().remove()? {
    /// checkpoint()?; }`.
    pub fn remove(self) -> Result<bool> {
        Ok(host::remove_matching(&self.query)?)
    }
}

fn find<T: DeserializeOwned>(query: &Query) -> Result<Found<T>> {
    let page = host::find(query)?;
    let items = page.items.into_iter().map(Doc::read).collect::<Result<_>>()?;
    Ok(Found { items, next: page.next, has_more: page.has_more })
}
