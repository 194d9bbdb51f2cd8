//! The room that an organization has for jobs that wait, and for what else waits beside them: the part
//! of it that each who asks finds.
//!
//! Invariant: whoever is not the organization itself has no more of its part than it leaves free, so that
//! the next one finds some, however much those before it have.

use std::collections::HashMap;

use charter_kernel::lease::{groups_of, organization_and_kind};
use charter_kernel::scope::Behind;
use charter_kernel::unit::Space;
use charter_store::{ReadError, Store};

use super::sharer_of;

/// Users' credentials and strangers find one part in so many of an organization's room.
const OTHERS_PART: u64 = 2;
/// One part in so many of it is kept from projects' credentials.
const PROJECTS_PART: u64 = 4;

/// One part in so many of the room for jobs is kept for those who govern, due at once, and as much beyond it
/// is for what jobs themselves and providers leave.
const DUE_PART: u64 = 10;

/// When what found no room among the jobs may come again.
pub const RETRY_SECONDS: u32 = 30;

/// Those who have less than one part in so many of what was counted are counted as if they had that much.
const LITTLE_PART: u64 = 512;

/// The room for jobs, with what is beyond it for those that jobs and providers leave.
pub fn with_beyond(all: u64) -> u64 {
    all + all / DUE_PART
}

/// The part of an organization's room, for jobs, schedules or hooks, that what this one asks for finds.
pub fn part_of(all: u64, behind: Behind) -> u64 {
    match behind {
        Behind::User | Behind::Stranger => all / OTHERS_PART,
        Behind::Project => all - all / PROJECTS_PART,
        Behind::Organization => all,
    }
}

/// The same, without what is kept for jobs that are due at once and that those ask for who govern the
/// organization.
pub fn ordinary_part_of(all: u64, behind: Behind) -> u64 {
    part_of(all, behind).min(all - all / DUE_PART)
}

/// The part of an organization's room that one more row finds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Rows of the whole organization.
    max: u64,
    /// Those who share it: no more of it is one's own than it leaves free. None where it is the
    /// organization's own.
    sharer: Option<String>,
}

/// The rows of an organization that wait, as a count found them.
#[derive(Clone, Debug, Default)]
pub struct Waiting {
    all: u64,
    /// Those of everybody who has more than little.
    sharers: HashMap<String, u64>,
    little: u64,
}

impl Part {
    /// So many rows of the whole organization, for one of its own.
    pub fn whole(max: u64) -> Self {
        Self { max, sharer: None }
    }

    /// The same for one of this group.
    pub fn of_group(max: u64, group: &str) -> Self {
        Self { max, sharer: sharer(group) }
    }

    /// Rows of the whole organization.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// The name of those who share it, if it is not the organization's own.
    pub(crate) fn sharer(&self) -> Option<&str> {
        self.sharer.as_deref()
    }
}

impl Waiting {
    /// Counts the rows of a space in an organization's groups, to `max` and no further.
    ///
    /// # Errors
    /// If they cannot be read.
    pub async fn count(
        store: &Store,
        space: &Space,
        organization: &str,
        max: u64,
    ) -> Result<Self, ReadError> {
        let groups = store.rows_by_group(space, &groups_of(organization), max).await?;
        Ok(Self::of_groups(&groups))
    }

    pub(crate) fn of_groups(groups: &[(String, u64)]) -> Self {
        let all = groups.iter().map(|(_, rows)| rows).sum();
        let mut sharers: HashMap<String, u64> = HashMap::new();
        for (group, rows) in groups {
            if let Some(sharer) = sharer(group) {
                *sharers.entry(sharer).or_default() += rows;
            }
        }
        // No more names are kept than there are such parts.
        let little = all / LITTLE_PART;
        sharers.retain(|_, rows| *rows > little);
        Self { all, sharers, little }
    }

    #[cfg(test)]
    pub(crate) fn of_organization(all: u64) -> Self {
        Self { all, ..Self::default() }
    }

    /// All of them.
    pub(crate) fn all(&self) -> u64 {
        self.all
    }

    /// Whether there is room for one more.
    pub fn leaves(&self, part: &Part) -> bool {
        self.leaves_beside(0, part)
    }

    /// The same where so many more may wait, and nobody knows whose.
    pub(crate) fn leaves_beside(&self, others: u64, part: &Part) -> bool {
        let free = part.max.saturating_sub(self.all.saturating_add(others));
        let own = part.sharer().map_or(0, |name| {
            let counted = self.sharers.get(name).copied().unwrap_or(self.little);
            counted.saturating_add(others)
        });
        own < free
    }
}

/// The name of those whose rows a group holds, wherever they share: of a project and a user.
fn sharer(group: &str) -> Option<String> {
    sharer_of(organization_and_kind(group).1).map(|(project, user)| format!("{project}/{user}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows of these groups.
    fn waiting(groups: &[(&str, u64)]) -> Waiting {
        let groups: Vec<_> =
            groups.iter().map(|(name, rows)| ((*name).to_owned(), *rows)).collect();
        Waiting::of_groups(&groups)
    }

    #[test]
    fn who_is_not_the_organization_leaves_as_much_free_as_it_has() {
        let (own, one, two) = ("o/shop", "o/shop/pinned/p/one", "o/shop/pinned/p/two");
        for (groups, group, leaves) in [
            (vec![], one, true),
            (vec![(one, 49)], one, true),
            (vec![(one, 50)], one, false),
            (vec![(one, 50)], two, true),
            (vec![(one, 50), (two, 24)], two, true),
            (vec![(one, 50), (two, 25)], two, false),
            (vec![(one, 50), (own, 49)], two, true),
            (vec![(one, 50), (own, 50)], two, false),
            (vec![(one, 50), (own, 49)], own, true),
            (vec![(one, 50), (own, 50)], own, false),
            // Of several primitives together.
            (vec![(one, 25), ("o/shelf/pinned/p/one", 25)], one, false),
            (vec![("o/shop/names", 25), ("o/shelf/names", 25)], "o/shop/names", false),
            (vec![("o/shop/names", 50)], one, true),
        ] {
            let found = waiting(&groups).leaves(&Part::of_group(100, group));
            assert_eq!(found, leaves, "{groups:?} {group}");
        }
    }

    #[test]
    fn however_many_fill_the_room_the_next_one_finds_some() {
        let mut groups: Vec<(String, u64)> = Vec::new();
        for at in 0..9 {
            groups.push((format!("o/shop/pinned/p/{at}"), 0));
            while Waiting::of_groups(&groups).leaves(&Part::of_group(5_000, &groups[at].0)) {
                groups[at].1 += 1;
            }
            assert!(groups[at].1 > 0, "{groups:?}");
        }
    }

    #[test]
    fn those_who_have_little_are_counted_without_their_names() {
        let groups: Vec<_> = (0..5_000).map(|n| (format!("o/shop/pinned/p/{n}"), 2)).collect();
        let waiting = Waiting::of_groups(&groups);
        assert_eq!((waiting.all, waiting.sharers.len(), waiting.little), (10_000, 0, 19));
        assert!(waiting.leaves(&Part::of_group(10_020, &groups[0].0)));
        assert!(!waiting.leaves(&Part::of_group(10_019, &groups[0].0)));
    }

    #[test]
    fn what_may_wait_beside_counts_as_anybodys() {
        let waiting = waiting(&[("o/shop/pinned/p/one", 10)]);
        let (one, whole) = (Part::of_group(100, "o/shop/pinned/p/one"), Part::whole(100));
        assert!(waiting.leaves_beside(39, &one) && !waiting.leaves_beside(40, &one));
        assert!(waiting.leaves_beside(89, &whole) && !waiting.leaves_beside(90, &whole));
    }
}
