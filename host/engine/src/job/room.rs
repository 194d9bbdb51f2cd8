//! The room that an organization has for jobs that wait, and for what else waits beside them: the part
//! of it that each who asks finds.
//!
//! Invariant: whoever is not the organization itself leaves as much of its part as
//! [`charter_kernel::share`] says.

use std::collections::HashMap;

use charter_kernel::lease::{groups_of, organization_and_kind};
use charter_kernel::scope::Behind;
use charter_kernel::share;
use charter_kernel::unit::Space;
use charter_store::{ReadError, Store};
use serde::{Deserialize, Serialize};

use super::{parked_groups_of, sharer_of};

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
    sharer: Option<Shared>,
}

/// The names of those who share what an organization has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shared {
    /// The project.
    pub project: String,
    /// The user within, or the project itself.
    pub own: String,
}

/// Rows that may wait beside those that were counted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Beside {
    /// All of them.
    pub(crate) all: u64,
    /// Those of the project.
    pub(crate) project: u64,
    /// Those of one's own.
    pub(crate) own: u64,
}

/// The rows of an organization that wait, as a count found them.
#[derive(Clone, Debug, Default)]
pub struct Waiting {
    all: u64,
    /// Those of each project and each user that has more than little.
    names: HashMap<String, u64>,
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

    /// Those who share it, if it is not the organization's own.
    pub(crate) fn sharer(&self) -> Option<&Shared> {
        self.sharer.as_ref()
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
        let mut groups = store.rows_by_group(space, &groups_of(organization), max).await?;
        let parked = parked_groups_of(organization);
        groups.extend(store.rows_by_group(space, &parked, max).await?);
        Ok(Self::of_groups(&groups))
    }

    pub(crate) fn of_groups(groups: &[(String, u64)]) -> Self {
        let all = groups.iter().map(|(_, rows)| rows).sum();
        let mut names: HashMap<String, u64> = HashMap::new();
        for (group, rows) in groups {
            if let Some(Shared { project, own }) = sharer(group) {
                *names.entry(project).or_default() += rows;
                *names.entry(own).or_default() += rows;
            }
        }
        // No more names are kept than there are such parts.
        let little = all / LITTLE_PART;
        names.retain(|_, rows| *rows > little);
        Self { all, names, little }
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
        self.leaves_beside(Beside::default(), part)
    }

    /// The same where these may wait, too.
    pub(crate) fn leaves_beside(&self, beside: Beside, part: &Part) -> bool {
        let free = part.max.saturating_sub(self.all.saturating_add(beside.all));
        let Some(Shared { project, own }) = part.sharer() else { return free > 0 };
        let counted = |name: &str| self.names.get(name).copied().unwrap_or(self.little);
        share::leaves(
            free,
            counted(project).saturating_add(beside.project),
            counted(own).saturating_add(beside.own),
        )
    }
}

/// The names of those whose rows a group holds, where they share.
fn sharer(group: &str) -> Option<Shared> {
    let (project, user) = sharer_of(organization_and_kind(group).1)?;
    // No project's name has a slash.
    Some(Shared { project: project.to_owned(), own: format!("{project}/{user}") })
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
        let (own, one, two) = ("o/shop", "o/shop/pinned/p/one", "o/shop/pinned/q/two");
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

    /// As many rows of each of these groups, one after the other, as find room.
    fn fill(max: u64, names: impl Iterator<Item = String>) -> Vec<(String, u64)> {
        let mut groups: Vec<(String, u64)> = Vec::new();
        for name in names {
            let (at, part) = (groups.len(), Part::of_group(max, &name));
            groups.push((name, 0));
            while Waiting::of_groups(&groups).leaves(&part) {
                groups[at].1 += 1;
            }
        }
        groups
    }

    #[test]
    fn however_many_fill_the_room_the_next_one_finds_some() {
        let groups = fill(5_000, (0..9).map(|at| format!("o/shop/pinned/p{at}/{at}")));
        assert!(groups.iter().all(|(_, rows)| *rows > 0), "{groups:?}");
    }

    #[test]
    fn the_users_of_one_project_leave_room_to_those_of_others() {
        let groups = fill(500, (0..20).map(|at| format!("o/shop/pinned/p/{at}")));
        let waiting = Waiting::of_groups(&groups);
        assert_eq!(waiting.all, 375, "three quarters");
        assert!(waiting.leaves(&Part::of_group(500, "o/shop/pinned/other/one")));
        assert!(waiting.leaves(&Part::of_group(500, "o/shop/names/sender")));
    }

    #[test]
    fn those_who_have_little_are_counted_without_their_names() {
        let groups: Vec<_> = (0..5_000).map(|n| (format!("o/shop/pinned/p/{n}"), 2)).collect();
        let waiting = Waiting::of_groups(&groups);
        assert_eq!((waiting.all, waiting.names.len(), waiting.little), (10_000, 1, 19));
        assert!(waiting.leaves(&Part::of_group(10_020, "o/shop/pinned/q/1")));
        assert!(!waiting.leaves(&Part::of_group(10_019, "o/shop/pinned/q/1")));
    }

    #[test]
    fn what_may_wait_beside_counts_as_whose_it_is() {
        let waiting = waiting(&[("o/shop/pinned/p/one", 10)]);
        let [one, two] = ["one", "two"].map(|user| format!("o/shop/pinned/p/{user}"));
        let [one, two] = [one, two].map(|group| Part::of_group(100, &group));
        let beside = |all, project, own| Beside { all, project, own };
        assert!(waiting.leaves_beside(beside(39, 39, 39), &one));
        assert!(!waiting.leaves_beside(beside(40, 40, 40), &one));
        assert!(waiting.leaves_beside(beside(40, 40, 0), &two), "it is another's");
        assert!(waiting.leaves_beside(beside(57, 57, 0), &two));
        assert!(!waiting.leaves_beside(beside(75, 75, 0), &two), "its project's");
        let whole = Part::whole(100);
        assert!(waiting.leaves_beside(beside(89, 0, 0), &whole));
        assert!(!waiting.leaves_beside(beside(90, 0, 0), &whole));
    }
}
