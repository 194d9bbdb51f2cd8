//! The records of what was spent: one for each quarter of an hour, user, action and purpose.

use charter_kernel::governance::hold::{own_record, own_record_at, own_spend_space, spend_space};
use charter_kernel::governance::meter::Meter;
use charter_kernel::refusal::Refusal;
use charter_kernel::time::Instant;
use charter_kernel::unit::{Key, Reach, Row};
use charter_store::{Order, Query, Store};
use charter_tenancy::stored;
use serde_json::Value;

/// Records of one read.
const PAGE: u32 = 1_000;
/// The member of a record that says how much.
const SPENT: &str = "spent_micro_usd";

/// The owner of records.
#[derive(Clone, Copy, Debug)]
pub enum Whose<'a> {
    /// An organization's, by its id: those of all its users, and its own.
    Organization(&'a str),
    /// One user's.
    User(&'a Reach),
    /// Those of a scope of a primitive's own, by its meter.
    Scope(&'a Key),
}

/// Looks at each record from one moment on and before another, oldest first.
///
/// # Errors
/// When the store cannot be asked, or `look` has had enough.
pub async fn each(
    store: &Store,
    whose: Whose<'_>,
    (first, until): (Instant, Instant),
    mut look: impl FnMut(&Value) -> Result<(), Refusal>,
) -> Result<(), Refusal> {
    let (from, behind) = (first.to_string(), until.to_string());
    match whose {
        Whose::User(reach) => {
            let mut query = Query::all(reach, &spend_space()).limit(PAGE).relax();
            (query.order, query.after) = (Order::Oldest, Some(from));
            loop {
                let page = store.find(&query).await.map_err(stored::reading)?;
                for (key, row) in &page.items {
                    if key.id >= behind {
                        return Ok(());
                    }
                    look(&body(row))?;
                }
                let Some(next) = page.next else { return Ok(()) };
                query.after = Some(next);
            }
        }
        Whose::Scope(meter) => {
            let mut query = Query::all(&meter.reach, &own_spend_space()).limit(PAGE).relax();
            // The record that begins with the window is one of them.
            (query.order, query.after) =
                (Order::Oldest, Some(own_record(meter, first.plus_ms(-1))));
            let own = format!("{} ", meter.id);
            loop {
                let page = store.find(&query).await.map_err(stored::reading)?;
                for (key, row) in &page.items {
                    let quarter = own_record_at(meter, &key.id);
                    if !key.id.starts_with(&own) || quarter.is_some_and(|quarter| quarter >= until)
                    {
                        return Ok(());
                    }
                    if quarter.is_some() {
                        look(&body(row))?;
                    }
                }
                let Some(next) = page.next else { return Ok(()) };
                query.after = Some(next);
            }
        }
        Whose::Organization(id) => {
            let (mut from, behind) = (format!("{id} {from}"), format!("{id} {behind}"));
            let mut after = None;
            loop {
                let page = store
                    .find_indexed(&spend_space(), "found", (&from, &behind), after.as_ref(), PAGE)
                    .await;
                let page = page.map_err(stored::reading)?;
                for (_, _, row) in page.iter().filter(|(found, ..)| *found < behind) {
                    look(&body(row))?;
                }
                let Some((value, key, _)) = page.into_iter().nth(PAGE as usize - 1) else {
                    return Ok(());
                };
                (from, after) = (value, Some(key));
            }
        }
    }
}

/// The sum of what an organization's records say was spent, or of those of one project: as of one moment,
/// so that it takes little longer than the database does. With it the row of a meter as of that moment.
///
/// # Errors
/// When the store cannot be asked.
pub(crate) async fn sum_at_once(
    store: &Store,
    organization: &str,
    project: Option<&str>,
    (from, until): (Instant, Instant),
    meter: &Key,
) -> Result<(i64, Option<Meter>), Refusal> {
    let (from, behind) = (format!("{organization} {from}"), format!("{organization} {until}"));
    let only = project.map(|project| ("project", project));
    let sum =
        store.sum_indexed(&spend_space(), "found", (&from, &behind), SPENT, only, meter).await;
    let (sum, body) = sum.map_err(stored::reading)?;
    let meter = body.map(|body| serde_json::from_str(&body)).transpose();
    Ok((sum, meter.map_err(|_| Refusal::internal())?))
}

/// The amount that a record says was spent, in micro-US-dollars.
pub fn spent(record: &Value) -> i64 {
    record[SPENT].as_i64().unwrap_or(0)
}

/// The content of a record.
fn body(record: &Row) -> Value {
    serde_json::from_str(&record.body).unwrap_or_default()
}
