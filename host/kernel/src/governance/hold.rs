//! A hold: leave for one regulated action, and the money that is set aside for it.
//!
//! Its states move by compare-and-set: held → dispatched → captured, voided or in doubt. Each move
//! is data, the guards and writes of a unit: the caller commits it, alone or with the request's own
//! work. Invariant: what a hold reserved is released exactly once, in the window that admitted it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::policy::Decision;
use crate::calendar::Slot;
use crate::json_text;
use crate::lease;
use crate::ledger::Phase;
use crate::meter::{Admission, Tally};
use crate::refusal::Failure;
use crate::time::Instant;
use crate::unit::{Draft, Guard, Key, LogKey, Reach, Space, Write};

/// The indexed field that says where a hold stands, for as long as it is not over.
pub const STATE: &str = "state";
/// The index field of a hold's turn, as long.
const TURN: &str = "turn";

/// The kind of holds that fall due when their request should have settled them.
pub const OPEN: &str = "open";
/// The kind of holds in doubt: each is due when its primitive is to be asked.
pub const DOUBT: &str = "doubt";
/// The kind of holds that wait for people; each is due when nobody's word counts any more.
pub const WAITING: &str = "waiting";
/// How long a hold that has ended is kept, in milliseconds: 90 days.
pub const KEPT_MS: i64 = 90 * 86_400_000;
/// The width of a spend record, in milliseconds: a quarter of an hour, so that each time zone's
/// days are whole records.
pub const RECORD_MS: i64 = 15 * 60_000;

/// The state of a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// A person has yet to decide.
    Pending,
    /// Leave was given; nothing has left the host.
    Held,
    /// An effect may have left the host: from here on a crash means doubt.
    Dispatched,
    /// It happened.
    Captured,
    /// It did not happen.
    Voided,
    /// Nobody knows whether it happened.
    InDoubt,
}

impl State {
    /// Its name on the wire and in the index.
    pub fn as_str(self) -> &'static str {
        match self {
            State::Pending => "pending",
            State::Held => "held",
            State::Dispatched => "dispatched",
            State::Captured => "captured",
            State::Voided => "voided",
            State::InDoubt => "in_doubt",
        }
    }

    /// The kind of its row, as that falls due; one that is over does not.
    fn kind(self) -> Option<&'static str> {
        match self {
            State::Held | State::Dispatched => Some(OPEN),
            State::InDoubt => Some(DOUBT),
            State::Pending => Some(WAITING),
            State::Captured | State::Voided => None,
        }
    }

    /// Whether its amounts are released.
    pub fn is_over(self) -> bool {
        matches!(self, State::Captured | State::Voided)
    }
}

/// Leave for one regulated action.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    /// Its state.
    pub state: State,
    /// The primitive that acts.
    pub primitive: String,
    /// `<primitive>.<verb>`.
    pub action: String,
    /// The thing it is done to.
    pub entity: String,
    /// The purpose of the money, in spend reports.
    pub component: String,
    /// For the person who decides or looks.
    pub title: String,
    /// The amount that it sets aside, in micro-US-dollars; absent where no money moves.
    pub amount: Option<i64>,
    /// Whether its amount counts against caps, as its action declares. Absent in rows of earlier
    /// builds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spends: Option<bool>,
    /// The most that its primitive may capture of it; of one that is reported, what was captured of it
    /// before, all at once. Absent in rows of earlier builds: what they hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capturable: Option<i64>,
    /// Whether a provider has signed that it happened, with no leave for it: nothing was set aside.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reported: bool,
    /// Its reservations, outermost scope first.
    pub charges: Vec<Charge>,
    /// The accounts that the capture posts between.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pay: Option<Pay>,
    /// Why it was given.
    pub decision: Decision,
    /// On whose behalf.
    pub subject: Subject,
    /// The request that asked.
    pub request: String,
    /// Its place among the request's regulated actions.
    pub ordinal: u32,
    /// When it was given.
    pub at: Instant,
    /// When it ends by itself.
    pub until: Instant,
    /// Whether it outlives its request.
    #[serde(default)]
    pub kept: bool,
    /// The later request that settles it now, where one does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settler: Option<Settler>,
    /// How often a later request has taken it up or left it: a request that stood still meanwhile, and knows
    /// an earlier turn, changes nothing of it. Absent where none has, and in rows of earlier builds.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub turn: u32,
    /// The amount that was truly spent, once it is captured; of one that is captured in parts, so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actual: Option<i64>,
    /// Whether a part of it was captured by itself: what is told of it is a further part.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_parts: bool,
    /// When it was captured or voided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Instant>,
}

/// The request that settles a hold which outlived its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settler {
    /// The request.
    pub request: String,
    /// From when on another may.
    pub until: Instant,
}

/// On whose behalf a hold was given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subject {
    /// The organization.
    pub organization: String,
    /// The project.
    pub project: Option<String>,
    /// The tenant user.
    pub user: Option<String>,
    /// The user's kit.
    pub kit: Option<String>,
    /// Kind and id of who acted.
    pub actor: (String, String),
    /// The account of the person behind the actor. Absent in rows of earlier builds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root: Option<String>,
    /// Whether its user is deleted, and only told of: an over-capture stops nobody then.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub gone: bool,
}

/// An amount that stands reserved in one scope.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Charge {
    /// `organization`, `project`, `user`, `limit`, `grant` or a scope of the primitive's own.
    pub scope: String,
    /// The scope's meter.
    pub meter: Key,
    /// The window that it was admitted in.
    pub slot: Slot,
    /// The reserved amount.
    pub amount: i64,
    /// Under which rule.
    pub admission: Admission,
    /// The kind of thing that is counted.
    pub unit: Counted,
}

/// The kind of thing that a meter counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Counted {
    /// Micro-US-dollars: a capture counts what was truly spent.
    Money,
    /// How often: a capture counts once.
    Times,
}

/// The accounts that a capture posts between.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pay {
    /// The account that is debited.
    pub from: Key,
    /// The account that is credited.
    pub to: Key,
    /// The text of the entries.
    pub memo: String,
}

/// The speaker who says that an action happened, and what it cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// The primitive that asked for leave, or a person who resolves a doubt.
    Asker,
    /// A provider that has signed it: what it says has happened.
    Provider,
}

/// An amount that a hold captures. [`Hold::admit_capture`] alone makes one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capture {
    actual: i64,
    freezes: bool,
}

/// More was to be captured than a hold bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OverCapture {
    /// The amount that was to be captured.
    pub actual: i64,
    /// The most that may be captured of it, in micro-US-dollars.
    pub left: i64,
}

impl OverCapture {
    /// The failure of the primitive that asked for it.
    pub fn to_failure(self) -> Failure {
        let Self { actual, left } = self;
        let details = json!({ "left_micro_usd": left, "amount_micro_usd": actual }).to_string();
        Failure {
            reason: Some("over_held".into()),
            hint: Some(
                "Capture what is left of it at most, and ask for leave for the rest.".into(),
            ),
            details: Some(details),
            ..Failure::new("state_conflict", "more was to be captured than was held")
        }
    }
}

/// A step of a hold, for a unit: committed whole or not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The hold as it stands after.
    pub hold: Hold,
    /// Conditions that must still hold.
    pub guards: Vec<Guard>,
    /// Changes.
    pub writes: Vec<Write>,
}

impl Step {
    /// The same of a hold as its row had it in this version, whoever settles it.
    #[must_use]
    pub fn of_row(self, key: &Key, version: u64) -> Self {
        let mut step = self.in_any_turn();
        step.guards.push(Guard::Version { key: key.clone(), version: Some(version) });
        step
    }

    /// The same whatever its turn is, which an earlier build did not write: of a hold that no later request
    /// takes up.
    #[must_use]
    pub fn in_any_turn(mut self) -> Self {
        self.guards.retain(|guard| !matches!(guard, Guard::Entry { field, .. } if field == TURN));
        self
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_zero(turn: &u32) -> bool {
    *turn == 0
}

/// Spaces whose rows outlive whom they are about: without them no sum could be proved. See also
/// [`is_book`].
pub const BOOKS: [&str; 5] =
    ["host.holds", "host.ledger", "host.meters", "host.own_spend", "host.spend"];
/// The beginning of the names of accounts' logs; they stay, too.
pub const BOOKS_LOGS: &str = "host.ledger.";

/// Whether a space is one of [`BOOKS`]. No row of theirs is made anew under a former one's key, a
/// search takes what there is, and nobody waits for their changes or asks how many there are: so
/// they have neither revisions nor sizes, and units that only add to them share nothing.
pub fn is_book(space: &Space) -> bool {
    BOOKS.contains(&space.as_str())
}

/// The address of an organization's hold. All of its holds lie beside each other, oldest first.
pub fn key(organization: &str, id: &str) -> Key {
    Key::new(&Reach::organization(organization), &space(), id)
}

/// The space of holds; each lies in its organization's reach.
pub fn space() -> Space {
    Space::host("holds")
}

/// The space of spend records, in the reach of the narrowest subject.
pub fn spend_space() -> Space {
    Space::host("spend")
}

/// The space of the spend records of primitives' own scopes, in the reach of their meters.
pub fn own_spend_space() -> Space {
    Space::host("own_spend")
}

/// The space of meters: one row for each scope that has, or once had, a cap, one for each user, and
/// one for each scope of a primitive's own.
pub fn meters_space() -> Space {
    Space::host("meters")
}

/// Whether a meter counts a scope of a primitive's own, `<primitive>.<scope>:<id>`: no meter of the
/// host's has a dot before its first colon.
pub fn is_own(meter: &Key) -> bool {
    meter.id.split_once(':').is_some_and(|(scope, _)| scope.contains('.'))
}

/// The id of the spend record of a scope of a primitive's own, in the quarter of an hour that
/// begins then. Records of one scope lie beside each other, oldest first.
pub fn own_record(meter: &Key, quarter: Instant) -> String {
    format!("{} {quarter}", meter.id)
}

/// The quarter of an hour of a spend record, if the record is that scope's. Ids of scopes may have
/// blanks, so nothing but a moment may follow.
pub fn own_record_at(meter: &Key, id: &str) -> Option<Instant> {
    Instant::parse(id.strip_prefix(meter.id.as_str())?.strip_prefix(' ')?)
}

/// The organization's own account.
pub const CREDIT: &str = "credit";

/// The space of ledger accounts; people's accounts are another.
pub fn accounts_space() -> Space {
    Space::host("ledger")
}

/// The log of an account's entries.
pub fn entries_of(account: &Key) -> LogKey {
    LogKey { reach: account.reach.clone(), log: format!("{BOOKS_LOGS}{}", account.id) }
}

impl Subject {
    /// The reach that may settle its holds and shares its spend records: the user, else the
    /// project, else the organization.
    pub fn reach(&self) -> Reach {
        match (&self.user, &self.project) {
            (Some(user), _) => Reach::user(user),
            (None, Some(project)) => Reach::project(project),
            (None, None) => Reach::organization(&self.organization),
        }
    }

    /// Whether it is the organization by itself: no project and no user is a party.
    fn is_of_organization(&self) -> bool {
        self.user.is_none() && self.project.is_none()
    }

    /// The scopes of the host's own caps that come and go, outermost first, and where their meters
    /// lie.
    fn cap_scopes(&self) -> Vec<(&'static str, Reach)> {
        let organization = Some(("organization", Reach::organization(&self.organization)));
        let project = self.project.as_ref().map(|id| ("project", Reach::project(id)));
        let user = self.user.as_ref().map(|id| ("user", Reach::user(id)));
        [organization, project, user].into_iter().flatten().collect()
    }
}

impl Hold {
    /// The address of a hold of this id.
    pub fn key(&self, id: &str) -> Key {
        key(&self.subject.organization, id)
    }

    /// Takes the hold: every charge is admitted, or none.
    pub fn take(&self, id: &str) -> Vec<Write> {
        let mut writes = self.reserve();
        writes.push(Write::Insert { key: self.key(id), draft: self.draft(self.until) });
        writes
    }

    /// Takes the hold and makes a first step of it, in one unit.
    pub fn take_with(&self, id: &str, step: Step) -> Vec<Write> {
        let (mut writes, own) = (self.reserve(), self.key(id));
        // A scope without a cap when it was decided has none at this unit's commit either.
        let bare = |write: &Write| matches!(write, Write::Tally { slot, .. } if *slot == Slot::without_cap());
        let steps = step.writes.into_iter().filter(|write| !bare(write));
        writes.extend(steps.map(|write| match write {
            Write::Replace { key, draft, .. } if key == own => Write::Insert { key, draft },
            other => other,
        }));
        writes
    }

    /// Whether its amount counts against caps.
    fn is_spending(&self) -> bool {
        // Earlier builds have counted each user's spending by its kit, whatever caps stood.
        let counted = || {
            self.subject.user.is_none() || self.charges.iter().any(|charge| charge.scope == "kit")
        };
        self.amount.is_some() && self.spends.unwrap_or_else(counted)
    }

    /// Counts what was spent in the scopes that had no cap when it was held: where one has come
    /// since, it counts there. Elsewhere there is no meter, and nothing happens.
    fn tally_since(&self, spent: i64, at: Instant) -> impl Iterator<Item = Write> {
        let is_of = |charge: &Charge, scope: &str| charge.scope == scope && !is_own(&charge.meter);
        let uncharged = move |scope: &str| !self.charges.iter().any(|charge| is_of(charge, scope));
        let scopes =
            self.subject.cap_scopes().into_iter().filter(move |(scope, _)| uncharged(scope));
        let tally = Tally { released: 0, spent, beyond: false, freezes: false, at };
        scopes.map(move |(scope, reach)| Write::Tally {
            meter: Key::new(&reach, &meters_space(), scope),
            slot: Slot::without_cap(),
            tally,
        })
    }

    /// So much of an amount as was set aside for it.
    fn aside(&self, amount: i64) -> i64 {
        if self.reported { 0 } else { amount }
    }

    fn reserve(&self) -> Vec<Write> {
        if self.reported {
            return Vec::new();
        }
        let mut writes: Vec<Write> = self.charges.iter().map(Charge::reserve).collect();
        if let (Some(pay), Some(amount)) = (&self.pay, self.amount) {
            writes.push(Write::Transfer {
                from: pay.from.clone(),
                to: pay.to.clone(),
                amount,
                phase: Phase::Reserve,
            });
        }
        writes
    }

    /// An effect is about to leave the host.
    pub fn dispatch(&self, id: &str) -> Step {
        let next = Self { state: State::Dispatched, ..self.clone() };
        // One that a later request settles is in doubt when that one is over.
        let due_at = self.settler.as_ref().map_or(self.until, |settler| settler.until);
        let write = next.replace(id, due_at);
        self.step(id, next, vec![write])
    }

    /// It outlives its request.
    pub fn keep(&self, id: &str, until: Instant) -> Step {
        let next = Self { kept: true, until, ..self.clone().leave() };
        let write = next.replace(id, until);
        self.step(id, next, vec![write])
    }

    /// A later request settles it, alone: `version` is the row's, so that of two at once one finds
    /// it taken.
    pub fn reopen(&self, id: &str, version: u64, settler: Settler) -> Step {
        let next = Self { settler: Some(settler), turn: self.turn + 1, ..self.clone() };
        let write = next.replace(id, self.until);
        self.step(id, next, vec![write]).of_row(&self.key(id), version)
    }

    /// Whether a provider's signed word may say otherwise than its end: that it has happened where it
    /// was given back, or that it was more than was captured.
    pub fn is_contradicted(&self, word: Word) -> bool {
        self.state.is_over() && word == Word::Provider
    }

    /// The failure of who would settle it once more: `PERMIT_SETTLED`, with its state in the details.
    pub fn refuse_settling(&self) -> Failure {
        let details = json!({ "state": self.state.as_str() });
        Failure {
            reason: Some("PERMIT_SETTLED".into()),
            details: Some(details.to_string()),
            ..Failure::new("state_conflict", "the permit is settled already")
        }
    }

    /// The request that hears that word takes it up again, alone. Nothing is set aside for it any
    /// more: what is captured of it, beyond what was before, is beyond what it holds, in every scope that
    /// it was given in. How often it happened is counted already where it was captured.
    pub fn contradict(&self, id: &str, version: u64, settler: Settler) -> Step {
        let due_at = settler.until;
        let counted = self.state == State::Captured;
        let charges = self.charges.iter().cloned().map(|charge| match charge.unit {
            Counted::Times if counted => Charge { amount: 0, ..charge },
            _ => charge,
        });
        let next = Self {
            state: State::InDoubt,
            reported: true,
            capturable: Some(if self.in_parts { 0 } else { self.actual.unwrap_or(0) }),
            charges: charges.collect(),
            settler: Some(settler),
            turn: self.turn + 1,
            ended_at: None,
            ..self.clone()
        };
        let guards = vec![Guard::Version { key: self.key(id), version: Some(version) }];
        let writes = vec![next.replace(id, due_at)];
        Step { hold: next, guards, writes }
    }

    /// The same without its settler, whose turn is over.
    fn leave(self) -> Self {
        Self { turn: self.turn + u32::from(self.settler.is_some()), settler: None, ..self }
    }

    /// The settler leaves it as it was.
    pub fn hand_back(&self, id: &str) -> Step {
        let next = self.clone().leave();
        let write = next.replace(id, next.until);
        self.step(id, next, vec![write])
    }

    /// The most that its own primitive, or a person, may capture of it, in micro-US-dollars.
    pub fn capture_max(&self) -> i64 {
        let money = self.charges.iter().filter(|charge| charge.unit == Counted::Money);
        let charged = || money.map(|charge| charge.amount).max().unwrap_or(0);
        self.capturable.or(self.amount).unwrap_or_else(charged)
    }

    /// Bounds what is captured. A provider's signed word is posted as it is, because it has
    /// happened; beyond the bound the narrowest scope then admits nothing more until a person has
    /// looked.
    ///
    /// # Errors
    /// [`OverCapture`] for anybody else's word beyond the bound: the hold stays as it is.
    pub fn admit_capture(&self, actual: i64, word: Word) -> Result<Capture, OverCapture> {
        match (word, self.capture_told(actual)) {
            (Word::Asker, Capture { freezes: true, .. }) => {
                Err(OverCapture { actual, left: self.capture_max() })
            }
            (_, capture) => Ok(capture),
        }
    }

    /// The same for what a provider has signed: it has happened, and nothing bounds it.
    pub fn capture_told(&self, actual: i64) -> Capture {
        Capture { actual, freezes: actual > self.capture_max() }
    }

    /// It happened, and this is what was spent; of one that was captured all at once and taken up
    /// again, in all.
    pub fn capture(&self, id: &str, capture: Capture, now: Instant) -> Step {
        self.end_with(id, self.without_former(capture), now)
    }

    fn end_with(&self, id: &str, capture: Capture, now: Instant) -> Step {
        let is_told_again = self.reported && self.actual.is_some() && capture.actual == 0;
        let actual = self.spent_with(capture.actual);
        let next = Self {
            state: State::Captured,
            actual,
            settler: None,
            ended_at: Some(now),
            ..self.clone()
        };
        let mut writes = match is_told_again {
            true => Vec::new(),
            false => self.spend(id, capture, now),
        };
        writes.push(next.replace(id, now));
        self.step(id, next, writes)
    }

    /// A capture of one that was captured all at once and taken up again, without what was captured
    /// then.
    fn without_former(&self, capture: Capture) -> Capture {
        let former = self.capturable.filter(|_| self.reported).unwrap_or(0);
        Capture { actual: (capture.actual - former).max(0), ..capture }
    }

    /// A part of it happened, and this is what was spent on it: the rest stays set aside until then,
    /// under the leave that was given. How often something happens is counted with the first part.
    /// A part that leaves nothing is the whole, and one of nothing leaves all of it.
    pub fn capture_part(&self, id: &str, capture: Capture, until: Instant, now: Instant) -> Step {
        let capture = self.without_former(capture);
        if capture.actual == 0 {
            return self.keep(id, until);
        }
        let Some((part, rest)) = self.split(capture.actual) else {
            return self.end_with(id, capture, now);
        };
        let actual = self.spent_with(capture.actual);
        let next =
            Self { state: State::Held, actual, in_parts: true, until, kept: true, ..rest.leave() };
        let mut writes = part.spend(id, capture, now);
        writes.push(next.replace(id, until));
        self.step(id, next, writes)
    }

    /// A part of this amount and the rest, by what each of them sets aside; `None` where nothing
    /// would be left.
    fn split(&self, amount: i64) -> Option<(Self, Self)> {
        let left = self.amount.map(|held| held - amount).filter(|left| *left > 0)?;
        let share = |charge: &Charge| match charge.unit {
            Counted::Money => charge.amount.min(amount),
            Counted::Times => charge.amount,
        };
        let charges = |of: &dyn Fn(&Charge) -> i64| -> Vec<Charge> {
            let charges = self.charges.iter();
            charges.map(|charge| Charge { amount: of(charge), ..charge.clone() }).collect()
        };
        let part = Self { amount: Some(amount), charges: charges(&share), ..self.clone() };
        let rest = Self {
            amount: Some(left),
            capturable: self
                .capturable
                .map(|most| if self.reported { 0 } else { (most - amount).max(0) }),
            charges: charges(&|charge| charge.amount - share(charge)),
            ..self.clone()
        };
        Some((part, rest))
    }

    /// The sum of all that was spent, with what is spent now.
    fn spent_with(&self, now: i64) -> Option<i64> {
        self.amount.map(|_| self.actual.unwrap_or(0).saturating_add(now))
    }

    /// Releases all that it sets aside, and counts and posts what was spent.
    fn spend(&self, id: &str, capture: Capture, now: Instant) -> Vec<Write> {
        let Capture { actual, freezes } = capture;
        let freezes = freezes && !self.subject.is_of_organization() && !self.subject.gone;
        let narrowest = self.charges.iter().rposition(Charge::can_freeze);
        let ends = self.charges.iter().enumerate().map(|(at, charge)| {
            let spent = if charge.unit == Counted::Money { actual } else { charge.amount };
            let freezes = freezes && narrowest == Some(at) && !charge.is_wide();
            charge.end(self.aside(charge.amount), spent, freezes, now)
        });
        let mut writes: Vec<Write> = ends.collect();
        if let (Some(pay), Some(held)) = (&self.pay, self.amount) {
            let phase = Phase::Settle { reserved: self.aside(held) };
            writes.push(Write::Transfer {
                from: pay.from.clone(),
                to: pay.to.clone(),
                amount: actual,
                phase,
            });
            writes.extend(entries(pay, actual, id, &self.component));
        }
        if self.is_spending() {
            writes.extend(self.tally_since(actual, now));
            writes.extend(self.record(actual, now));
            let own = self.charges.iter().filter(|charge| is_own(&charge.meter));
            writes.extend(own.flat_map(|charge| self.record_own(&charge.meter, actual, now)));
        }
        writes
    }

    /// It did not happen; of one that was captured in parts, the rest did not.
    pub fn void(&self, id: &str, now: Instant) -> Step {
        let state = if self.actual.is_some() { State::Captured } else { State::Voided };
        let next = Self { state, settler: None, ended_at: Some(now), ..self.clone() };
        let end = |charge: &Charge| charge.end(self.aside(charge.amount), 0, false, now);
        let mut writes: Vec<Write> = self.charges.iter().map(end).collect();
        if let (Some(pay), Some(amount)) = (&self.pay, self.amount) {
            writes.push(Write::Transfer {
                from: pay.from.clone(),
                to: pay.to.clone(),
                amount: self.aside(amount),
                phase: Phase::Void,
            });
        }
        writes.push(next.replace(id, now));
        self.step(id, next, writes)
    }

    /// Nobody knows whether it happened: what it reserved stays reserved until a person, or the
    /// primitive, says what became of it. One that a later request was to settle is asked about
    /// once that request's time is over, however long it was kept for.
    pub fn doubt(&self, id: &str) -> Step {
        let due_at = self.settler.as_ref().map_or(self.until, |settler| settler.until);
        // The questions about one become rarer with the time since it came in doubt.
        let until = if self.state == State::InDoubt { self.until } else { due_at };
        let next = Self { state: State::InDoubt, until, ..self.clone().leave() };
        let write = next.replace(id, due_at);
        self.step(id, next, vec![write])
    }

    /// Whether a request of this primitive and reach may settle it after its own: one of whom it
    /// was given for; and, of whomever it was given for, one by which a provider's signed word
    /// reaches the organization as a whole.
    pub fn is_settled_by(&self, primitive: &str, reach: &Reach, word: Word) -> bool {
        let whole = Reach::organization(&self.subject.organization);
        let is_told = word == Word::Provider && *reach == whole;
        self.primitive == primitive && (is_told || self.subject.reach() == *reach)
    }

    /// Whether a request after its own may settle it at all, sooner or later.
    pub fn is_left(&self) -> bool {
        self.state == State::InDoubt
            || self.kept && matches!(self.state, State::Held | State::Dispatched)
    }

    /// Whether a later request settles it now. One that was dispatched stays its settler's until it
    /// is in doubt.
    pub fn has_settler(&self, now: Instant) -> bool {
        self.state == State::Dispatched
            || self.settler.as_ref().is_some_and(|settler| settler.until > now)
    }

    /// A step from what it is in memory. Its request alone changes it, up to its end; each one's turn is over
    /// once another one has taken it up.
    fn step(&self, id: &str, hold: Self, writes: Vec<Write>) -> Step {
        let guard = |(field, value)| Guard::Entry { key: self.key(id), field, value };
        Step { hold, guards: self.entries().into_iter().map(guard).collect(), writes }
    }

    /// The entries by which it is found, and known to be as it was.
    fn entries(&self) -> Vec<(String, String)> {
        let state = (STATE.to_owned(), self.state.as_str().to_owned());
        vec![state, (TURN.to_owned(), self.turn.to_string())]
    }

    fn replace(&self, id: &str, due_at: Instant) -> Write {
        Write::Replace { key: self.key(id), draft: self.draft(due_at), expected: None }
    }

    fn draft(&self, due_at: Instant) -> Draft {
        let index = if self.state.is_over() { Vec::new() } else { self.entries() };
        let group = |kind| lease::group(&self.subject.organization, kind);
        let lease = self.state.kind().map(|kind| (group(kind), due_at));
        let unleased = lease.is_none();
        Draft {
            user: self.subject.user.clone(),
            body: json_text(self),
            index,
            lease,
            unleased,
            ..Draft::default()
        }
    }

    /// Its addition to the record of the quarter of an hour in which it is spent: a cap that comes,
    /// or comes again, begins with all that was spent in its window, whenever that was admitted.
    fn record(&self, spent: i64, now: Instant) -> [Write; 3] {
        let quarter = quarter_of(now);
        let id = format!("{quarter} {} {}", self.action, self.component);
        let key = Key::new(&self.subject.reach(), &spend_space(), id);
        let body = json_text(&Spent {
            at: quarter,
            action: &self.action,
            primitive: &self.primitive,
            component: &self.component,
            project: self.subject.project.as_deref(),
            user: self.subject.user.as_deref(),
        });
        let index = vec![("found".to_owned(), format!("{} {quarter}", self.subject.organization))];
        let draft = Draft { user: self.subject.user.clone(), body, index, ..Draft::default() };
        let add =
            |field: &str, amount| Write::Add { key: key.clone(), field: field.into(), amount };
        // An action that happens in parts, or turns out to cost more, happens once.
        let count = i64::from(self.actual.is_none());
        [
            Write::Ensure { key: key.clone(), draft },
            add("spent_micro_usd", spent),
            add("count", count),
        ]
    }

    /// Its addition to the record that a scope of its primitive's own has of the same time.
    fn record_own(&self, meter: &Key, spent: i64, now: Instant) -> [Write; 2] {
        let id = own_record(meter, quarter_of(now));
        let key = Key::new(&meter.reach, &own_spend_space(), id);
        let user = self.subject.user.clone();
        let draft = Draft { user, body: "{}".to_owned(), ..Draft::default() };
        let add =
            Write::Add { key: key.clone(), field: "spent_micro_usd".to_owned(), amount: spent };
        [Write::Ensure { key, draft }, add]
    }
}

/// The quarter of an hour of a moment.
fn quarter_of(at: Instant) -> Instant {
    Instant(at.0 - at.0.rem_euclid(RECORD_MS))
}

/// The content of a spend record beside its sums.
#[derive(Serialize)]
struct Spent<'a> {
    at: Instant,
    action: &'a str,
    primitive: &'a str,
    component: &'a str,
    project: Option<&'a str>,
    user: Option<&'a str>,
}

/// A transfer in an account's log.
#[derive(Serialize)]
struct Entry<'a> {
    transfer: &'a str,
    amount_micro_usd: i64,
    counter_account: &'a str,
    memo: &'a str,
    reference: &'a str,
}

impl Charge {
    /// Whether it is the organization's: no over-capture stops a whole organization.
    fn is_wide(&self) -> bool {
        self.scope == "organization" && !is_own(&self.meter)
    }

    /// Whether an over-capture may stop its scope. A scope of a primitive's own without a cap is
    /// only counted, and stopping it would leave its user free to go on elsewhere.
    fn can_freeze(&self) -> bool {
        let is_uncapped = self.admission == Admission::Within(i64::MAX);
        self.unit == Counted::Money && !(is_own(&self.meter) && is_uncapped)
    }

    fn reserve(&self) -> Write {
        let (meter, slot) = (self.meter.clone(), self.slot.clone());
        Write::Reserve { meter, slot, amount: self.amount, admission: self.admission }
    }

    fn end(&self, released: i64, spent: i64, freezes: bool, at: Instant) -> Write {
        let beyond = self.admission.is_beyond();
        let tally = Tally { released, spent, beyond, freezes, at };
        Write::Tally { meter: self.meter.clone(), slot: self.slot.clone(), tally }
    }
}

/// The entries of a transfer in both accounts' logs.
pub fn entries(pay: &Pay, amount: i64, id: &str, reference: &str) -> [Write; 2] {
    let entry = |account: &Key, counter: &Key, side: &str| Write::Append {
        log: entries_of(account),
        name: side.into(),
        payload: json_text(&Entry {
            transfer: id,
            amount_micro_usd: amount,
            counter_account: &counter.id,
            memo: &pay.memo,
            reference,
        }),
    };
    [entry(&pay.from, &pay.to, "debit"), entry(&pay.to, &pay.from, "credit")]
}
