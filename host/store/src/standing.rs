//! The numbers of groups of leased rows, asked for many groups by one statement.
//!
//! A group may hold millions of rows, so they are not counted one by one: the committer keeps each
//! group's size, and only the part of the index that lies in the future (held or put off), usually
//! short, is counted, up to a bound.

use std::collections::BTreeSet;
use std::sync::Arc;

use charter_kernel::time::Clock;
use charter_kernel::unit::{Reach, Space};

use crate::dialect::Dialect;
use crate::reader::Questions;
use crate::sql::{Query, Row, query};

/// Rows of the future that are counted one by one; beyond it held and put-off rows are told apart
/// by this sample. Stands as a number in the statements.
pub(crate) const COUNTED_MAX: i64 = 20_000;
/// The weight of a held row beside the one that every row counts, so that one pass gives both
/// numbers.
const HELD: i64 = 1_000_000;

/// A group of a leased collection.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Group {
    pub(crate) reach: Reach,
    pub(crate) space: Space,
    pub(crate) name: String,
}

/// The numbers of a group at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    pub(crate) total: i64,
    pub(crate) future: i64,
    pub(crate) held: i64,
    pub(crate) oldest: Option<i64>,
}

/// Standings of groups, by one statement for all who ask at one moment.
pub(crate) struct Groups {
    pub(crate) clock: Arc<dyn Clock>,
}

/// The size, then the future part: one statement, one moment.
const STANDING: &str = "SELECT {reach}, {space}, {group}, \
     CAST(COALESCE((SELECT g.total FROM group_sizes g WHERE g.reach = {reach} AND g.space = {space} \
       AND g.lease_group = {group}), 0) AS BIGINT), \
     CAST(COALESCE((SELECT SUM(f.counted) FROM (SELECT CASE WHEN d.lease_token IS NULL THEN 1 ELSE 1000001 END AS counted \
       FROM documents d WHERE d.reach = {reach} AND d.space = {space} AND d.lease_group = {group} \
       AND d.due_at > {now} ORDER BY d.due_at LIMIT 20000) f), 0) AS BIGINT), \
     (SELECT o.created_at FROM documents o WHERE o.reach = {reach} AND o.space = {space} \
       AND o.lease_group = {group} AND (o.due_at <= {now} OR o.lease_token IS NULL) ORDER BY o.created_at LIMIT 1)";

/// The statement with the places of its parameters, or columns, filled in.
fn standing(places: [&str; 4]) -> String {
    let names = ["{reach}", "{space}", "{group}", "{now}"];
    names
        .iter()
        .zip(places)
        .fold(STANDING.to_owned(), |text, (name, place)| text.replace(name, place))
}

impl Questions for Groups {
    type Asked = Group;
    type Found = Seen;

    fn one(&self, dialect: Dialect, group: &Group) -> Query {
        let places = ["CAST($1 AS TEXT)", "CAST($2 AS TEXT)", "CAST($3 AS TEXT)", "$4"];
        let sql = dialect.assemble(&[STANDING, "one"], || standing(places));
        query(sql)
            .bind(group.reach.as_str())
            .bind(group.space.as_str())
            .bind(group.name.as_str())
            .bind(self.clock.now().0)
    }

    fn all(&self, dialect: Dialect, asked: &BTreeSet<Group>) -> Query {
        let groups: Vec<_> = asked
            .iter()
            .map(|group| (group.reach.as_str(), group.space.as_str(), &group.name))
            .collect();
        let places = ["k.value->>0", "k.value->>1", "k.value->>2", "$2"];
        let sql = dialect
            .assemble(&[STANDING, "all"], || format!("{} FROM {{each:$1}} k", standing(places)));
        query(sql).bind(serde_json::to_string(&groups).unwrap_or_default()).bind(self.clock.now().0)
    }

    fn decode(row: Row) -> sqlx::Result<(Group, Seen)> {
        let (reach, space) =
            (Reach::from_store(row.try_get(0)?), Space::from_store(row.try_get(1)?));
        let counted: i64 = row.try_get(4)?;
        let seen = Seen {
            total: row.try_get(3)?,
            future: counted % HELD,
            held: counted / HELD,
            oldest: row.try_get(5)?,
        };
        Ok((Group { reach, space, name: row.try_get(2)? }, seen))
    }
}
