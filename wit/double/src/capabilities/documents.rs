//! `documents`, through the attempt's transaction.

use charter_kernel::apply::rule;
use charter_kernel::document::{Written, draft, encode};
use charter_kernel::index::Further;
use charter_kernel::manifest::Collection;
use charter_kernel::refusal::Failure;
use charter_kernel::unit::{Claim, Draft, Key, Reach, Row, Space};
use charter_sdk::bindings::charter::primitive::documents::{
    Document, Order, Page, Query as Asked, Test as Wanted,
};
use charter_sdk::native::{Answer, Documents};

use crate::call::Work;
use crate::find::{Query, Test};
use crate::world::{Double, World};

/// Documents that one call of `remove-matching` removes.
const REMOVED_MAX: usize = 200;
/// Documents of one page.
const PAGE_MAX: u32 = 1_000;
/// Tests of one query.
const TESTS_MAX: usize = 16;

/// A row as the guest sees it.
pub(super) fn document(id: &str, row: Row) -> Document {
    Document {
        id: id.to_owned(),
        user: row.user,
        version: row.version,
        created_at: row.created_at.0,
        updated_at: row.updated_at.0,
        body: row.body,
    }
}

impl Work {
    /// The address of a collection's documents for the caller.
    pub(super) fn place(
        &self,
        world: &World,
        name: &str,
        is_written: bool,
    ) -> Result<(Collection, Reach, Space), Failure> {
        let declared = world.installed.collection(name)?.clone();
        let scope = &self.call.scope;
        if is_written && !scope.may_write(declared.reach) {
            let told = format!("this caller may not write to the collection `{name}`");
            return Err(Failure::new("forbidden", told));
        }
        let reach = scope.reach(declared.reach).ok_or_else(|| {
            let told = format!(
                "the collection `{name}` needs a caller that names whose documents it means"
            );
            Failure::new("invalid_input", told)
        })?;
        let space = Space::of(world.name(), name);
        Ok((declared, reach, space))
    }

    fn draft(
        &self,
        world: &World,
        declared: &Collection,
        body: &str,
        due_at: Option<i64>,
    ) -> Result<Draft, Failure> {
        let user = self.call.scope.user().map(|id| id.as_str());
        let written = Written { user, body: body.to_owned(), due_at, now: world.now };
        draft(declared, &Further::default(), written)
    }

    fn query(&self, world: &World, asked: &Asked) -> Result<Query, Failure> {
        let (declared, reach, space) = self.place(world, &asked.collection, false)?;
        if asked.matching.len() > TESTS_MAX {
            let told = format!(
                "a query has at most {TESTS_MAX} tests, and this one {}",
                asked.matching.len()
            );
            return Err(Failure::invalid("matching", told));
        }
        let matching = asked.matching.iter().map(|(field, test)| {
            let encoded = |value: &String| encode(&declared, field, value);
            let test = match test {
                Wanted::Equal(value) => Test::Equal(encoded(value)?),
                Wanted::Between((low, high)) => Test::Between(
                    low.as_ref().map(encoded).transpose()?,
                    high.as_ref().map(encoded).transpose()?,
                ),
            };
            Ok((field.clone(), test))
        });
        Ok(Query {
            matching: matching.collect::<Result<_, Failure>>()?,
            reach,
            space,
            newest_first: asked.order == Order::Newest,
            limit: asked.limit.clamp(1, PAGE_MAX) as usize,
            after: asked.after.clone(),
            offset: asked.offset.unwrap_or(0) as usize,
            relaxed: asked.relaxed,
        })
    }
}

fn word_refused(refused: charter_kernel::unit::Refused) -> Failure {
    rule(&refused)
}

impl Documents for Double {
    fn insert(&self, collection: &str, body: &str, due_at: Option<i64>) -> Answer<Document> {
        self.changing("documents", |world, work| {
            let (declared, reach, space) = work.place(world, collection, true)?;
            let draft = work.draft(world, &declared, body, due_at)?;
            let id = world.fresh_id();
            let key = Key::new(&reach, &space, id.clone());
            let row = work.txn.insert(&world.rows, key, draft).map_err(word_refused)?;
            Ok(document(&id, row))
        })
    }

    fn get(&self, collection: &str, id: &str) -> Answer<Option<Document>> {
        self.reading("documents", |world, work| {
            let (_, reach, space) = work.place(world, collection, false)?;
            let row = work.txn.get(&world.rows, &Key::new(&reach, &space, id));
            Ok(row.map(|row| document(id, row)))
        })
    }

    fn lookup(&self, collection: &str, field: &str, value: &str) -> Answer<Option<Document>> {
        self.reading("documents", |world, work| {
            let (declared, reach, space) = work.place(world, collection, false)?;
            if !declared.unique.iter().any(|unique| unique == field) {
                let told = format!("`{collection}.{field}` is not declared unique");
                return Err(Failure::undeclared(told));
            }
            let value = encode(&declared, field, value)?;
            let claim = Claim::unique(&reach, &space, field, &value);
            let Some(holder) = work.txn.lookup(&world.rows, &claim) else { return Ok(None) };
            let row = work.txn.get(&world.rows, &holder);
            Ok(row.map(|row| document(&holder.id, row)))
        })
    }

    fn replace(
        &self,
        collection: &str,
        id: &str,
        body: &str,
        expected: Option<u64>,
    ) -> Answer<Document> {
        self.changing("documents", |world, work| {
            let (declared, reach, space) = work.place(world, collection, true)?;
            let drafted = work.draft(world, &declared, body, None)?;
            let draft = Draft { user: None, lease: None, ..drafted };
            let key = Key::new(&reach, &space, id);
            let row = work.txn.replace(&world.rows, key, draft, expected).map_err(word_refused)?;
            Ok(document(id, row))
        })
    }

    fn remove(&self, collection: &str, id: &str, expected: Option<u64>) -> Answer<bool> {
        self.changing("documents", |world, work| {
            let (_, reach, space) = work.place(world, collection, true)?;
            let key = Key::new(&reach, &space, id);
            work.txn.remove(&world.rows, &key, expected).map_err(word_refused)
        })
    }

    fn remove_matching(&self, query: &Asked) -> Answer<bool> {
        self.changing("documents", |world, work| {
            work.place(world, &query.collection, true)?;
            let mut query = work.query(world, query)?;
            (query.limit, query.offset, query.after) = (query.limit.min(REMOVED_MAX), 0, None);
            let page = work.txn.find(&world.rows, &query);
            for (key, _) in page.items {
                work.txn.remove(&world.rows, &key, None).map_err(word_refused)?;
            }
            Ok(page.next.is_some())
        })
    }

    fn find(&self, query: &Asked) -> Answer<Page> {
        self.reading("documents", |world, work| {
            let query = work.query(world, query)?;
            let page = work.txn.find(&world.rows, &query);
            let items = page.items.into_iter().map(|(key, row)| document(&key.id, row));
            Ok(Page { items: items.collect(), has_more: page.next.is_some(), next: page.next })
        })
    }

    fn count(&self, collection: &str, matching: &[(String, Wanted)], relaxed: bool) -> Answer<u64> {
        let asked = Asked {
            collection: collection.into(),
            matching: matching.to_vec(),
            order: Order::Newest,
            limit: 1,
            after: None,
            offset: None,
            relaxed,
        };
        self.reading("documents", |world, work| {
            let query = work.query(world, &asked)?;
            Ok(work.txn.count(&world.rows, &query))
        })
    }

    fn search(&self, collection: &str, text: &str, limit: u32) -> Answer<Vec<Document>> {
        self.reading("documents", |world, work| {
            let (declared, reach, space) = work.place(world, collection, false)?;
            if declared.searchable.is_empty() {
                let told = format!("`{collection}` declares no searchable field");
                return Err(Failure::undeclared(told));
            }
            let found = world.rows.search(&reach, &space, text, limit.clamp(1, 200) as usize);
            Ok(found.into_iter().map(|(key, row)| document(&key.id, row)).collect())
        })
    }

    fn add(&self, collection: &str, id: &str, field: &str, amount: i64) -> Answer<()> {
        self.changing("documents", |world, work| {
            let (declared, reach, space) = work.place(world, collection, true)?;
            if field.is_empty() || field.contains('.') {
                return Err(Failure::invalid("field", "only a top-level member can be added to"));
            }
            let is_known = declared.indexes.iter().any(|index| index.field == field)
                || declared.unique.iter().any(|unique| unique == field)
                || declared.leased.as_ref().is_some_and(|leased| leased.by == field);
            if is_known {
                let told = format!("`{collection}.{field}` is indexed: it changes by replace only");
                return Err(Failure::undeclared(told));
            }
            let key = Key::new(&reach, &space, id);
            if work.txn.get_relaxed(&world.rows, &key).is_none() {
                return Err(Failure::not_found("the document"));
            }
            work.txn.add(&key, field, amount).map_err(word_refused)
        })
    }

    fn checkpoint(&self) -> Answer<()> {
        self.changing("documents", |world, work| work.checkpoint(world))
    }
}
