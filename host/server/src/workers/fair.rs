//! Due rows of many organizations, taken under leases as their [`Round`] has it.
//!
//! Knows the names of lease groups, and nothing of what a row says or of what is done with it.

use std::collections::BTreeMap;
use std::time::Duration;

use charter_engine::job::sharer_of;
use charter_kernel::lease::{self, organization_and_kind};
use charter_kernel::unit::{Space, Take, Taken, Unit};
use charter_store::{CommitError, GroupsDue, ReadError};
use futures::future::join_all;
use tokio::time::Instant;

use super::round::{DueGroup, Round};
use crate::app::App;

/// How often what should not be missed is looked for, although something wakes it.
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Groups that are looked at in one look; the next one goes on behind them.
const GROUPS_MAX: usize = 10_000;
/// Groups that are read at once. An organization that has more has so many looked at in each look, one
/// page after the other, so that many groups of one make no others' rows slow.
const PAGE: u32 = 256;
/// How often a further page of a large organization's groups is looked at, at least.
const LARGE_EVERY: Duration = Duration::from_millis(200);
/// Organizations that have more than a page, and are looked at so.
const LARGE_MAX: usize = 64;
/// A look at many groups takes its time: so many times as long, and [`LOOK_EVERY`] at most, the next
/// one waits.
const REST: u32 = 4;
/// The shortest wait for what falls due.
const WAIT_MIN: Duration = Duration::from_millis(5);

/// Behind every name that begins as the one before it.
const END: &str = "\u{10FFFF}";

/// The reason why nothing was taken.
#[derive(Debug, thiserror::Error)]
pub(super) enum LookError {
    #[error("what is due cannot be read")]
    Read(#[from] ReadError),
    #[error(transparent)]
    Commit(#[from] CommitError),
}

/// Due rows of one kind, across all tenants.
pub(super) struct Fair {
    /// The space of the rows.
    space: Space,
    /// How long the work on one may take before another may take it up.
    lease_ms: i64,
    round: Round,
    /// The last group of the look before, where there were more behind it.
    after: String,
    /// The last group that was looked at of each organization that has more than a page.
    large: BTreeMap<String, String>,
    /// Groups that may have more of what is due than was taken of them in the look before.
    more: Vec<String>,
    /// When the next of the groups that were looked at since the first one is due.
    next: Option<charter_kernel::time::Instant>,
    rested_at: Instant,
}

/// The findings of a look.
pub(super) struct Looked {
    /// Rows that were taken, each with its group, which [`Fair::leave`] wants back.
    pub(super) taken: Vec<(String, Taken)>,
    /// When to look again at the latest.
    pub(super) wait: Duration,
}

/// How long to wait for what falls due then.
fn wait_for(app: &App, next: Option<charter_kernel::time::Instant>) -> Duration {
    next.map_or(LOOK_EVERY, |next| {
        let in_ms = next.0.saturating_sub(app.clock.now().0);
        Duration::from_millis(u64::try_from(in_ms).unwrap_or(0)).clamp(WAIT_MIN, LOOK_EVERY)
    })
}

/// A group by its name.
fn due_of(group: &str) -> DueGroup<'_> {
    let (organization, kind) = organization_and_kind(group);
    DueGroup { group, organization, sharer: sharer_of(kind) }
}

impl Fair {
    /// Rows of this space, so many at once.
    pub(super) fn new(space: Space, lease_ms: i64, places: usize) -> Self {
        let (round, rested_at) = (Round::new(places), Instant::now());
        let (after, large, more) = (String::new(), BTreeMap::new(), Vec::new());
        Self { space, lease_ms, round, after, large, more, next: None, rested_at }
    }

    /// Takes what is due of groups whose kind is `wanted`, as far as there are places.
    pub(super) async fn look(
        &mut self,
        app: &App,
        wanted: impl Fn(&str) -> bool,
    ) -> Result<Looked, LookError> {
        tokio::time::sleep_until(self.rested_at).await;
        let began = Instant::now();
        let GroupsDue { due: mut groups, next, last } = self.scan(app).await?;
        self.rested_at = Instant::now() + (REST * began.elapsed()).min(LOOK_EVERY);
        groups.sort_by_key(|group| group.due);
        let next = next.into_iter().chain(self.next.take()).min();
        let wait = match last {
            Some(_) => Duration::ZERO,
            None if !self.large.is_empty() => wait_for(app, next).min(LARGE_EVERY),
            None => wait_for(app, next),
        };
        self.next = next.filter(|_| last.is_some());
        self.after = last.unwrap_or_default();
        let more = std::mem::take(&mut self.more);
        let found = groups.iter().map(|group| group.name.as_str());
        let found = found.filter(|name| !more.iter().any(|more| more == name));
        let names = more.iter().map(String::as_str).chain(found);
        let due: Vec<_> =
            names.filter(|name| wanted(organization_and_kind(name).1)).map(due_of).collect();
        let counts = self.round.pick(&due);
        // Those that found no place now stand behind those of which rows are taken.
        let waiting = more.iter().filter(|name| {
            due.iter().zip(&counts).any(|(due, count)| due.group == **name && *count == 0)
        });
        let waiting: Vec<_> = waiting.cloned().collect();
        let picked: Vec<_> = due.into_iter().zip(counts).filter(|(_, count)| *count > 0).collect();
        let taken = self.take(app, &picked).await?;
        self.more.extend(waiting);
        self.more.truncate(PAGE as usize);
        Ok(Looked { taken, wait })
    }

    /// Reads a page of each large organization's groups, and the groups of all others.
    async fn scan(&mut self, app: &App) -> Result<GroupsDue, ReadError> {
        let mut all = GroupsDue::default();
        let mut note = |page: GroupsDue| {
            all.next = all.next.into_iter().chain(page.next).min();
            all.due.extend(page.due);
            page.last
        };
        let organization = |group: &str| organization_and_kind(group).0.to_owned();
        for (name, after) in std::mem::take(&mut self.large) {
            let mut page = app.store.groups_due(&self.space, &after, PAGE).await?;
            page.due.retain(|group| organization(&group.name) == name);
            if let Some(last) = note(page).filter(|last| organization(last) == name) {
                self.large.insert(name, last);
            }
        }
        let mut after = self.after.clone();
        let mut seen = 0;
        loop {
            let page = app.store.groups_due(&self.space, &after, PAGE).await?;
            let Some(last) = note(page) else { break };
            seen += PAGE as usize;
            let name = organization(&last);
            let is_its_alone = organization(&after) == name;
            let is_large = self.large.contains_key(&name);
            if is_its_alone && (is_large || self.large.len() < LARGE_MAX) {
                after = lease::groups_of(&name) + END;
                self.large.entry(name).or_insert(last);
            } else {
                after = last;
            }
            if seen >= GROUPS_MAX {
                all.last = Some(after);
                break;
            }
        }
        // A large organization's page may be one of those that are read for all.
        all.due.sort_by(|one, other| one.name.cmp(&other.name));
        all.due.dedup_by(|one, other| one.name == other.name);
        Ok(all)
    }

    async fn take(
        &mut self,
        app: &App,
        picked: &[(DueGroup<'_>, usize)],
    ) -> Result<Vec<(String, Taken)>, CommitError> {
        let until = app.clock.now().plus_ms(self.lease_ms);
        // Each in its organization's turn: nobody's takes wait behind those of others.
        let take = |(due, count): &(DueGroup<'_>, usize)| {
            let take = Take {
                reach: None,
                space: self.space.clone(),
                group: due.group.to_owned(),
                until,
                tokens: (0..*count).map(|_| uuid::Uuid::now_v7().to_string()).collect(),
            };
            let organization = due.organization.to_owned();
            app.store.commit(Unit { organization, takes: vec![take], ..Unit::default() })
        };
        let (mut all, mut failed) = (Vec::new(), None);
        let applied = join_all(picked.iter().map(take)).await;
        for ((due, count), applied) in picked.iter().zip(applied) {
            let taken: Vec<_> = match applied {
                Ok(applied) => applied.taken.into_iter().flatten().collect(),
                Err(error) => {
                    failed = Some(error);
                    Vec::new()
                }
            };
            if taken.len() == *count {
                self.more.push(due.group.to_owned());
            }
            for _ in taken.len()..*count {
                self.round.leave(due);
            }
            all.extend(taken.into_iter().map(|taken| (due.group.to_owned(), taken)));
        }
        // The next look finds the ones that could not be taken; others' work goes on.
        failed.filter(|_| all.is_empty()).map_or(Ok(all), Err)
    }

    /// The work on a row of this group is over.
    pub(super) fn leave(&mut self, group: &str) {
        self.round.leave(&due_of(group));
    }
}
