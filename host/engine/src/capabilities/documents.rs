//! `documents`: the caller's own documents, through the call's transaction.
//!
//! A guest names collections of its manifest; the reach comes from the scope. Reads are validated
//! at the commit, writes are buffered until then.

use charter_kernel::document::{Written, draft, encode};
use charter_kernel::id::uuid_v7;
use charter_kernel::unit::{Claim, Draft, Key, Row};
use charter_store::{Order as By, Query as Find, TESTS_MAX, Test as Wanted};

use crate::bindings::charter::primitive::documents::{Document, Host, Order, Page, Query, Test};
use crate::bindings::charter::primitive::types::Failure;
use crate::component::CollectionPlan;
use crate::failure::{invalid, not_found, unread, write_failure};
use crate::state::{State, Work};

/// Documents that one call of `remove-matching` removes.
const REMOVED_MAX: u32 = 200;
/// Documents of one page.
const PAGE_MAX: u32 = 1_000;

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
    /// The key of a document in one of the component's collections.
    pub(super) fn key(&self, collection: &str, id: &str, write: bool) -> Result<Key, Failure> {
        let plan = self.component.collection(collection)?;
        let scope = &self.call.scope;
        let reach = if write { plan.reach_to_write(scope)? } else { plan.reach(scope)? };
        Ok(Key::new(&reach, &plan.space, id))
    }

    /// The row that a document's body becomes.
    fn draft(
        &self,
        plan: &CollectionPlan,
        body: String,
        due_at: Option<i64>,
    ) -> Result<Draft, Failure> {
        let user = self.call.scope.user().map(|id| id.as_str());
        let written = Written { user, body, due_at, now: self.now };
        Ok(draft(&plan.declared, &plan.further(), written)?)
    }

    /// A fresh id, which sorts by age.
    pub(crate) fn fresh_id(&self) -> Result<String, Failure> {
        Ok(uuid_v7(self.shared.clock.now(), self.shared.random()?))
    }

    fn find(&self, query: Query) -> Result<Find, Failure> {
        let component = self.component.clone();
        let plan = component.collection(&query.collection)?;
        Ok(Find {
            reach: plan.reach(&self.call.scope)?,
            space: plan.space.clone(),
            matching: matching(plan, query.matching)?,
            order: match query.order {
                Order::Newest => By::Newest,
                Order::Oldest => By::Oldest,
            },
            limit: query.limit.clamp(1, PAGE_MAX),
            after: query.after,
            offset: query.offset.unwrap_or(0),
            relaxed: query.relaxed,
        })
    }
}

fn matching(
    plan: &CollectionPlan,
    tests: Vec<(String, Test)>,
) -> Result<Vec<(String, Wanted)>, Failure> {
    if tests.len() > TESTS_MAX {
        let told = format!("a query has at most {TESTS_MAX} tests, and this one {}", tests.len());
        return Err(invalid("matching", told).into());
    }
    let mut matching = Vec::with_capacity(tests.len());
    for (field, test) in tests {
        let wanted = match test {
            Test::Equal(value) => Wanted::Equal(encode(&plan.declared, &field, &value)?),
            Test::Between((low, high)) => {
                let bound = |value: Option<String>| {
                    value.map(|value| encode(&plan.declared, &field, &value)).transpose()
                };
                Wanted::Between(bound(low)?, bound(high)?)
            }
        };
        matching.push((field, wanted));
    }
    Ok(matching)
}

impl Host for State {
    async fn insert(
        &mut self,
        collection: String,
        body: String,
        due_at: Option<i64>,
    ) -> Result<Document, Failure> {
        self.hold(collection.len() + body.len())?;
        let work = self.mutation()?;
        let id = work.fresh_id()?;
        let key = work.key(&collection, &id, true)?;
        let component = work.component.clone();
        let plan = component.collection(&collection)?;
        let draft = work.draft(plan, body, due_at)?;
        let row = work.txn.insert(key, draft).await.map_err(|error| write_failure(&error))?;
        Ok(document(&id, row))
    }

    async fn get(&mut self, collection: String, id: String) -> Result<Option<Document>, Failure> {
        self.make_room()?;
        let work = self.work()?;
        let key = work.key(&collection, &id, false)?;
        let row = work.txn.get(&key).await.map_err(|error| unread(&error))?;
        self.hold(row.as_ref().map_or(0, |row| row.body.len()))?;
        Ok(row.map(|row| document(&id, row)))
    }

    async fn lookup(
        &mut self,
        collection: String,
        field: String,
        value: String,
    ) -> Result<Option<Document>, Failure> {
        self.make_room()?;
        let work = self.work()?;
        let component = work.component.clone();
        let plan = component.collection(&collection)?;
        if !plan.declared.unique.contains(&field) {
            return Err(crate::failure::undeclared(format!(
                "`{collection}.{field}` is not declared unique"
            ))
            .into());
        }
        let reach = plan.reach(&work.call.scope)?;
        let value = encode(&plan.declared, &field, &value)?;
        let claim = Claim::unique(&reach, &plan.space, &field, &value);
        let Some(holder) = work.txn.lookup(&claim).await.map_err(|error| unread(&error))? else {
            return Ok(None);
        };
        let row = work.txn.get(&holder).await.map_err(|error| unread(&error))?;
        self.hold(row.as_ref().map_or(0, |row| row.body.len()))?;
        Ok(row.map(|row| document(&holder.id, row)))
    }

    async fn replace(
        &mut self,
        collection: String,
        id: String,
        body: String,
        expected: Option<u64>,
    ) -> Result<Document, Failure> {
        self.hold(collection.len() + id.len() + body.len())?;
        let work = self.mutation()?;
        let key = work.key(&collection, &id, true)?;
        let component = work.component.clone();
        let plan = component.collection(&collection)?;
        let mut draft = work.draft(plan, body, None)?;
        draft.user = None;
        draft.lease = None;
        let row =
            work.txn.replace(key, draft, expected).await.map_err(|error| write_failure(&error))?;
        Ok(document(&id, row))
    }

    async fn remove(
        &mut self,
        collection: String,
        id: String,
        expected: Option<u64>,
    ) -> Result<bool, Failure> {
        self.hold(collection.len() + id.len())?;
        let work = self.mutation()?;
        let key = work.key(&collection, &id, true)?;
        Ok(work.txn.remove(&key, expected).await.map_err(|error| write_failure(&error))?)
    }

    async fn remove_matching(&mut self, query: Query) -> Result<bool, Failure> {
        self.make_room()?;
        let work = self.mutation()?;
        work.key(&query.collection, "", true)?;
        let mut find = work.find(query)?;
        (find.limit, find.offset, find.after) = (find.limit.min(REMOVED_MAX), 0, None);
        let page = work.txn.find(&find).await.map_err(|error| unread(&error))?;
        let more = page.has_more();
        self.hold(page.items.iter().map(|(_, row)| row.body.len()).sum())?;
        let work = self.mutation()?;
        for (key, _) in page.items {
            work.txn.remove(&key, None).await.map_err(|error| write_failure(&error))?;
        }
        Ok(more)
    }

    async fn find(&mut self, query: Query) -> Result<Page, Failure> {
        self.make_room()?;
        let work = self.work()?;
        let find = work.find(query)?;
        let page = work.txn.find(&find).await.map_err(|error| unread(&error))?;
        let has_more = page.has_more();
        self.hold(page.items.iter().map(|(_, row)| row.body.len()).sum())?;
        Ok(Page {
            next: page.next,
            has_more,
            items: page.items.into_iter().map(|(key, row)| document(&key.id, row)).collect(),
        })
    }

    async fn count(
        &mut self,
        collection: String,
        tests: Vec<(String, Test)>,
        relaxed: bool,
    ) -> Result<u64, Failure> {
        self.hold(collection.len())?;
        let work = self.work()?;
        let find = work.find(Query {
            collection,
            matching: tests,
            order: Order::Newest,
            limit: 1,
            after: None,
            offset: None,
            relaxed,
        })?;
        Ok(work.txn.count(&find).await.map_err(|error| unread(&error))?)
    }

    async fn search(
        &mut self,
        collection: String,
        text: String,
        limit: u32,
    ) -> Result<Vec<Document>, Failure> {
        self.make_room()?;
        let work = self.work()?;
        let component = work.component.clone();
        let plan = component.collection(&collection)?;
        if plan.declared.searchable.is_empty() {
            return Err(crate::failure::undeclared(format!(
                "`{collection}` declares no searchable field"
            ))
            .into());
        }
        let reach = plan.reach(&work.call.scope)?;
        let found = work
            .txn
            .search(&reach, &plan.space, &text, limit.clamp(1, 200))
            .await
            .map_err(|error| unread(&error))?;
        self.hold(found.iter().map(|(_, row)| row.body.len()).sum())?;
        Ok(found.into_iter().map(|(key, row)| document(&key.id, row)).collect())
    }

    async fn add(
        &mut self,
        collection: String,
        id: String,
        field: String,
        amount: i64,
    ) -> Result<(), Failure> {
        self.hold(collection.len() + id.len() + field.len())?;
        let work = self.mutation()?;
        let key = work.key(&collection, &id, true)?;
        let component = work.component.clone();
        let declared = &component.collection(&collection)?.declared;
        let known = |field: &str| {
            declared.indexes.iter().any(|index| index.field == field)
                || declared.unique.iter().any(|unique| unique == field)
                || declared.leased.as_ref().is_some_and(|leased| leased.by == field)
        };
        if field.is_empty() || field.contains('.') {
            return Err(invalid("field", "only a top-level member can be added to").into());
        }
        if known(&field) {
            return Err(crate::failure::undeclared(format!(
                "`{collection}.{field}` is indexed: it changes by replace only"
            ))
            .into());
        }
        if work.txn.get_relaxed(&key).await.map_err(|error| unread(&error))?.is_none() {
            return Err(not_found("the document").into());
        }
        work.txn.add(&key, &field, amount).map_err(|refused| crate::failure::rule(&refused))?;
        Ok(())
    }

    async fn checkpoint(&mut self) -> Result<(), Failure> {
        self.mutation()?.checkpoint().await
    }
}

#[cfg(test)]
mod tests;
