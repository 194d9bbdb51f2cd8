//! Due rows of many organizations, taken under leases as their [`Round`] has it.
//!
//! Knows the names of lease groups, and nothing of what a row says or of what is done with it.

use std::time::Duration;

use charter_engine::job::sharer_of;
use charter_kernel::lease::organization_and_kind;
use charter_kernel::unit::{Space, Take, Taken, Unit};
use charter_store::{CommitError, GroupsDue, ReadError};
use futures::future::join_all;
use tokio::time::Instant;

use super::round::{DueGroup, Round};
use crate::app::App;

/// How often what should not be missed is looked for, although something wakes it.
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Groups that are looked for in one look; the next one goes on behind them. Of those that had more than
/// was taken each look takes more, so that many groups of one make no others' rows slow.
const GROUPS_MAX: u32 = 256;
/// A look at many groups takes its time: so many times as long, and [`LOOK_EVERY`] at most, the next
/// one waits.
const REST: u32 = 4;
/// The shortest wait for what falls due.
const WAIT_MIN: Duration = Duration::from_millis(5);

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
        let (after, more) = (String::new(), Vec::new());
        Self { space, lease_ms, round, after, more, next: None, rested_at }
    }

    /// Takes what is due of groups whose kind is `wanted`, as far as there are places.
    pub(super) async fn look(
        &mut self,
        app: &App,
        wanted: impl Fn(&str) -> bool,
    ) -> Result<Looked, LookError> {
        tokio::time::sleep_until(self.rested_at).await;
        let began = Instant::now();
        let found = app.store.groups_due(&self.space, &self.after, GROUPS_MAX).await;
        let GroupsDue { due: mut groups, next, last } = found?;
        self.rested_at = Instant::now() + (REST * began.elapsed()).min(LOOK_EVERY);
        groups.sort_by_key(|group| group.due);
        let next = next.into_iter().chain(self.next.take()).min();
        let wait = if last.is_some() { Duration::ZERO } else { wait_for(app, next) };
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
        self.more.truncate(GROUPS_MAX as usize);
        Ok(Looked { taken, wait })
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
