//! Due rows of many organizations, taken under leases as their [`Round`] has it.
//!
//! Knows the names of lease groups, and nothing of what a row says or of what is done with it.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;
use std::time::Duration;

use charter_engine::job::sharer_of;
use charter_kernel::lease::{self, organization_and_kind};
use charter_kernel::unit::{Applied, Space, Take, Taken, Unit, Write};
use charter_store::{Bell, CommitError, GroupDue, GroupsDue, ReadError};
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use tokio::time::Instant;

use super::round::{DueGroup, Round};
use crate::app::App;

/// How often what should not be missed is looked for, although something wakes it.
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Groups that are looked at in one look; the next one goes on behind them.
const GROUPS_MAX: usize = 10_000;
/// Groups that are read at once. An organization that has more is large, and has so many looked at in its
/// turn, one page after the other, so that many groups of one make no others' rows slow.
const PAGE: u32 = 256;
/// How often it is a large organization's turn.
const LARGE_EVERY: Duration = Duration::from_millis(200);
/// How long a look waits for the rows of one organization to be taken. Those that take longer are the next
/// looks': nobody's rows wait behind the commits of others.
const TAKE_WAIT: Duration = Duration::from_millis(20);
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
    /// Rings for groups that somebody has just put rows in.
    bell: Arc<Bell>,
    /// How long the work on one may take before another may take it up.
    lease_ms: i64,
    round: Round,
    /// The last group of the look before, where there were more behind it.
    after: String,
    /// The organizations that have more than a page of groups.
    large: BTreeMap<String, Large>,
    large_turn: Turn,
    /// Rows that are being taken.
    taking: FuturesUnordered<BoxFuture<'static, TakeEnded>>,
    /// Their groups.
    taking_of: BTreeSet<String>,
    /// Rows that are taken, each with its group, and not handed out yet.
    taken: Vec<(String, Taken)>,
    /// Groups that may have more of what is due than was taken of them in the look before, and those that
    /// somebody has told of.
    more: Vec<String>,
    /// When the next of the groups that were looked at since the first one is due.
    next: Option<charter_kernel::time::Instant>,
    rested_at: Instant,
}

/// An organization that has more than a page of groups.
#[derive(Default)]
struct Large {
    /// The last group that was looked at.
    after: String,
    /// Those of its last page that were due, as far as nothing was taken of them since.
    due: Vec<GroupDue>,
    /// Whether there were any.
    had_due: bool,
}

/// The turns of large organizations.
struct Turn {
    /// The one that had the last.
    last: String,
    /// When it is the next one's.
    at: Instant,
    /// When it is that of one of whose last page nothing is left.
    rested_at: Instant,
}

/// The end of taking so many rows of a group.
struct TakeEnded {
    group: String,
    asked: usize,
    applied: Result<Applied, CommitError>,
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
    pub(super) fn new(bell: Arc<Bell>, space: Space, lease_ms: i64, places: usize) -> Self {
        let (round, rested_at) = (Round::new(places), Instant::now());
        let (after, large, more) = (String::new(), BTreeMap::new(), Vec::new());
        let large_turn = Turn { last: String::new(), at: rested_at, rested_at };
        let next = None;
        let (taking, taking_of, taken) = (FuturesUnordered::new(), BTreeSet::new(), Vec::new());
        Self {
            space,
            bell,
            lease_ms,
            round,
            after,
            large,
            large_turn,
            taking,
            taking_of,
            taken,
            more,
            next,
            rested_at,
        }
    }

    /// Takes what is due of groups whose kind is `wanted`, as far as there are places.
    pub(super) async fn look(
        &mut self,
        app: &App,
        wanted: impl Fn(&str) -> bool,
    ) -> Result<Looked, LookError> {
        let began = Instant::now();
        // A group that was just told of does not wait for those that are read.
        let is_rested = began >= self.rested_at;
        let next_of_large = if is_rested { self.scan_large(app).await? } else { None };
        let scanned = if is_rested { self.scan(app).await? } else { GroupsDue::default() };
        let GroupsDue { due: mut groups, next, last } = scanned;
        if is_rested {
            self.rested_at = Instant::now() + (REST * began.elapsed()).min(LOOK_EVERY);
        }
        groups.extend(self.large.values().flat_map(|large| large.due.iter().cloned()));
        groups.sort_by_key(|group| group.due);
        // A look at all that there is knows better than those before it.
        let is_whole = is_rested && self.after.is_empty();
        let before = self.next.filter(|_| !is_whole);
        let next = next.into_iter().chain(next_of_large).chain(before).min();
        let is_all = is_whole && last.is_none() && self.large.is_empty();
        let mut wait = if last.is_some() { Duration::ZERO } else { wait_for(app, next) };
        let now = Instant::now();
        if !self.large.is_empty() {
            wait = wait.min(self.large_turn.at.saturating_duration_since(now));
        }
        wait = wait.max(self.rested_at.saturating_duration_since(now));
        self.next = next;
        if is_rested {
            self.after = last.unwrap_or_default();
        }
        let mut told = self.bell.take();
        let mut more = std::mem::take(&mut self.more);
        if is_all {
            // Of all others nothing is due.
            let due: HashSet<&str> = groups.iter().map(|group| group.name.as_str()).collect();
            more.retain(|name| due.contains(name.as_str()));
        }
        told.retain(|name| !more.contains(name));
        more.extend(told);
        let known: HashSet<&str> = more.iter().map(String::as_str).collect();
        let found = groups.iter().map(|group| group.name.as_str());
        let found = found.filter(|name| !known.contains(name));
        let names = more.iter().map(String::as_str).chain(found);
        let due: Vec<_> = names
            .filter(|name| wanted(organization_and_kind(name).1) && !self.taking_of.contains(*name))
            .map(due_of)
            .collect();
        let counts = self.round.pick(&due);
        // Those that found no place now stand behind those of which rows are taken.
        let placeless = due.iter().zip(&counts).filter(|(_, count)| **count == 0);
        let waiting: Vec<_> = placeless
            .filter(|(due, _)| known.contains(due.group))
            .map(|(due, _)| due.group.to_owned())
            .collect();
        // They may have become more since what is under way was begun.
        let taking = more.iter().filter(|name| self.taking_of.contains(*name)).cloned();
        let waiting: Vec<_> = taking.chain(waiting).collect();
        for (due, count) in due.into_iter().zip(counts).filter(|(_, count)| *count > 0) {
            self.begin(app, due, count);
        }
        self.more.extend(waiting);
        let is_left = self.collect().await?;
        self.more.truncate(PAGE as usize);
        let wait = if self.taking.is_empty() { wait } else { wait.min(TAKE_WAIT) };
        // Places that groups did not need are those of the next ones, at once. Each such look forgets one.
        let wait = if is_left && !self.more.is_empty() { Duration::ZERO } else { wait };
        Ok(Looked { taken: std::mem::take(&mut self.taken), wait })
    }

    /// Reads a page of the groups of the large organization whose turn it is; answers when the next of them
    /// is due.
    async fn scan_large(
        &mut self,
        app: &App,
    ) -> Result<Option<charter_kernel::time::Instant>, ReadError> {
        let began = Instant::now();
        let Some((name, after)) = self.next_large(began) else { return Ok(None) };
        let start = lease::groups_of(&name);
        let end = start.clone() + END;
        let page = app.store.groups_due(&self.space, (&after, Some(&end)), PAGE).await?;
        let had_due = !page.due.is_empty();
        if page.last.is_none() && after == start {
            // It is large no more: the next look reads it with the others.
            self.large.remove(&name);
        } else {
            let after = page.last.unwrap_or(start);
            self.large.insert(name.clone(), Large { after, due: page.due, had_due });
        }
        let every = LARGE_EVERY / u32::try_from(self.large.len()).unwrap_or(1).max(1);
        let (now, rest) = (Instant::now(), REST * began.elapsed());
        self.large_turn = Turn { last: name, at: now + every.max(rest), rested_at: now + rest };
        Ok(page.next)
    }

    /// The large organization whose turn it is, with the last of its groups that was looked at: of whose
    /// last page nothing is left, or the next one.
    fn next_large(&self, now: Instant) -> Option<(String, String)> {
        let is_used_up = |large: &Large| large.had_due && large.due.is_empty();
        let used_up = || self.large.iter().find(|(_, large)| is_used_up(large));
        let Turn { last, at, rested_at } = &self.large_turn;
        let behind = || self.large.range::<str, _>((Excluded(last.as_str()), Unbounded)).next();
        let turn = match (now >= *at, now >= *rested_at) {
            (true, _) => behind().or_else(|| self.large.first_key_value()),
            (false, true) => used_up(),
            (false, false) => None,
        };
        turn.map(|(name, large)| (name.clone(), large.after.clone()))
    }

    /// Reads the groups of all but the large organizations.
    async fn scan(&mut self, app: &App) -> Result<GroupsDue, ReadError> {
        let organization = |group: &str| organization_and_kind(group).0.to_owned();
        let (mut all, mut after, mut seen) = (GroupsDue::default(), self.after.clone(), 0);
        loop {
            let mut large = self.large.keys().map(|name| lease::groups_of(name));
            let large = large.find(|start| *start > after);
            let within = (after.as_str(), large.as_deref());
            let page = app.store.groups_due(&self.space, within, PAGE).await?;
            all.next = all.next.into_iter().chain(page.next).min();
            all.due.extend(page.due);
            let Some(last) = page.last else {
                let Some(start) = large else { break };
                after = start + END;
                continue;
            };
            seen += PAGE as usize;
            let name = organization(&last);
            if organization(&after) == name && self.large.len() < LARGE_MAX {
                after = lease::groups_of(&name) + END;
                self.large.insert(name, Large { after: last, ..Large::default() });
            } else {
                after = last;
            }
            if seen >= GROUPS_MAX {
                all.last = Some(after);
                break;
            }
        }
        Ok(all)
    }

    /// Begins to take so many rows of a group, in its organization's turn.
    fn begin(&mut self, app: &App, due: DueGroup<'_>, count: usize) {
        let take = Take {
            reach: None,
            space: self.space.clone(),
            group: due.group.to_owned(),
            until: app.clock.now().plus_ms(self.lease_ms),
            tokens: (0..count).map(|_| uuid::Uuid::now_v7().to_string()).collect(),
        };
        let organization = due.organization.to_owned();
        let unit = Unit { organization, takes: vec![take], ..Unit::default() };
        let (store, group) = (app.store.clone(), due.group.to_owned());
        self.taking_of.insert(group.clone());
        if let Some(large) = self.large.get_mut(due.organization) {
            large.due.retain(|due| due.name != group);
        }
        let take =
            async move { TakeEnded { applied: store.commit(unit).await, group, asked: count } };
        self.taking.push(take.boxed());
    }

    /// Collects the rows that are taken by now; answers whether a group had fewer than were asked for. The
    /// first are waited for, and the others no longer than it takes to look.
    async fn collect(&mut self) -> Result<bool, CommitError> {
        let (mut failed, mut is_left) = (None, false);
        let mut until = Instant::now() + TAKE_WAIT;
        while let Ok(Some(ended)) = tokio::time::timeout_at(until, self.taking.next()).await {
            let TakeEnded { group, asked, applied } = ended;
            self.taking_of.remove(&group);
            let taken: Vec<_> = match applied {
                Ok(applied) => applied.taken.into_iter().flatten().collect(),
                Err(error) => {
                    failed = Some(error);
                    Vec::new()
                }
            };
            is_left |= taken.len() < asked;
            for _ in taken.len()..asked {
                self.round.leave(&due_of(&group));
            }
            if taken.len() == asked && !self.more.contains(&group) {
                self.more.push(group.clone());
            }
            self.taken.extend(taken.into_iter().map(|taken| (group.clone(), taken)));
            until = until.min(Instant::now() + WAIT_MIN);
        }
        // The next look finds the ones that could not be taken; others' work goes on.
        failed.filter(|_| self.taken.is_empty()).map_or(Ok(is_left), Err)
    }

    /// Gives back what is taken yet, for the next host: until its lease ends nobody else would take it.
    pub(super) async fn give_back(&mut self, app: &App) {
        for (group, taken) in std::mem::take(&mut self.taken) {
            release(app, &group, taken).await;
        }
        let until = Instant::now() + LOOK_EVERY;
        while let Ok(Some(ended)) = tokio::time::timeout_at(until, self.taking.next()).await {
            let Ok(applied) = ended.applied else { continue };
            for taken in applied.taken.into_iter().flatten() {
                release(app, &ended.group, taken).await;
            }
        }
    }

    /// The work on a row of this group is over.
    pub(super) fn leave(&mut self, group: &str) {
        self.round.leave(&due_of(group));
    }
}

/// Gives back a row of this group, as if nobody had taken it.
async fn release(app: &App, group: &str, Taken { key, token, .. }: Taken) {
    let write = Write::Release { key, token, due_at: app.clock.now(), undo: true };
    let organization = organization_and_kind(group).0.to_owned();
    let unit = Unit { organization, writes: vec![write], ..Unit::default() };
    if let Err(error) = app.store.commit_settling(unit).await {
        tracing::debug!(%error, group, "a row that was taken last waits for its lease to end");
    }
}
