//! Searches over the committed rows: pages by index, counts, full text, and what a leased group
//! holds.
//!
//! Compares encoded values only, as a database does. Knows no request.

use charter_kernel::time::Instant;
use charter_kernel::unit::{Key, Reach, Row, Space};

use crate::rows::Rows;

/// The condition on an encoded index value.
#[derive(Clone, Debug)]
pub(crate) enum Test {
    Equal(String),
    Between(Option<String>, Option<String>),
}

/// A selection of rows, and one page of them.
#[derive(Clone, Debug)]
pub(crate) struct Query {
    pub(crate) reach: Reach,
    pub(crate) space: Space,
    pub(crate) matching: Vec<(String, Test)>,
    pub(crate) newest_first: bool,
    pub(crate) limit: usize,
    pub(crate) after: Option<String>,
    pub(crate) offset: usize,
    pub(crate) relaxed: bool,
}

/// Rows of one page, and where the next one begins.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) items: Vec<(Key, Row)>,
    pub(crate) next: Option<String>,
}

/// The counts of a leased group.
#[derive(Debug, Default)]
pub(crate) struct GroupStanding {
    pub(crate) ready: u64,
    pub(crate) held: u64,
    pub(crate) waiting: u64,
    pub(crate) oldest: Option<Instant>,
}

impl Test {
    fn passes(&self, value: &str) -> bool {
        match self {
            Self::Equal(wanted) => value == wanted,
            Self::Between(low, high) => {
                low.as_ref().is_none_or(|low| value >= low.as_str())
                    && high.as_ref().is_none_or(|high| value <= high.as_str())
            }
        }
    }
}

impl Query {
    fn matches(&self, row: &Row) -> bool {
        self.matching.iter().all(|(field, test)| {
            row.index.iter().any(|(name, value)| name == field && test.passes(value))
        })
    }
}

impl Rows {
    /// How many rows match.
    pub(crate) fn count(&self, query: &Query) -> u64 {
        let rows = self.of(Some(&query.reach), &query.space);
        rows.filter(|(_, row)| query.matches(row)).count() as u64
    }

    /// One page of what matches.
    pub(crate) fn find(&self, query: &Query) -> Page {
        let mut found: Vec<_> = self.of(Some(&query.reach), &query.space).collect();
        if query.newest_first {
            found.reverse();
        }
        let is_behind = |id: &str| match &query.after {
            None => true,
            Some(after) if query.newest_first => id < after.as_str(),
            Some(after) => id > after.as_str(),
        };
        let wanted =
            found.into_iter().filter(|(key, row)| is_behind(&key.id) && query.matches(row));
        let mut items: Vec<(Key, Row)> = wanted
            .skip(query.offset)
            .take(query.limit + 1)
            .map(|(key, row)| (key.clone(), row.clone()))
            .collect();
        let is_cut = items.len() > query.limit;
        items.truncate(query.limit);
        let next = items.last().filter(|_| is_cut).map(|(key, _)| key.id.clone());
        Page { items, next }
    }

    /// Rows whose text has all of the words, newest first.
    pub(crate) fn search(
        &self,
        reach: &Reach,
        space: &Space,
        text: &str,
        limit: usize,
    ) -> Vec<(Key, Row)> {
        let words = words(text);
        let has_all = |row: &Row| {
            let held = self::words(row.text.as_deref().unwrap_or_default());
            words.iter().all(|word| held.contains(word))
        };
        let rows = self.of(Some(reach), space).rev().filter(|(_, row)| has_all(row));
        let found = rows.map(|(key, row)| (key.clone(), row.clone()));
        if words.is_empty() { Vec::new() } else { found.take(limit).collect() }
    }

    /// The counts of a group now.
    pub(crate) fn standing(
        &self,
        reach: &Reach,
        space: &Space,
        group: &str,
        now: Instant,
    ) -> GroupStanding {
        let mut standing = GroupStanding::default();
        for (_, row) in self.of(Some(reach), space) {
            let Some(lease) = row.lease.as_ref().filter(|lease| lease.group == group) else {
                continue;
            };
            let is_held = lease.token.is_some() && lease.due_at > now;
            match lease.due_at > now {
                false => standing.ready += 1,
                true if is_held => standing.held += 1,
                true => standing.waiting += 1,
            }
            if !is_held {
                let oldest = standing.oldest.map_or(row.created_at, |at| at.min(row.created_at));
                standing.oldest = Some(oldest);
            }
        }
        standing
    }

    /// When the next leased row of a space is due, of those that are not yet.
    pub(crate) fn next_due(&self, reach: &Reach, space: &Space, now: Instant) -> Option<Instant> {
        let leases = self.of(Some(reach), space).filter_map(|(_, row)| row.lease.as_ref());
        leases.map(|lease| lease.due_at).filter(|due_at| *due_at > now).min()
    }
}

/// Lower-case words.
fn words(text: &str) -> Vec<String> {
    let lower = text.to_lowercase();
    let words = lower.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    words.map(str::to_owned).collect()
}
