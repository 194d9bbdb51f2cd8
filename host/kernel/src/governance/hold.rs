//! A hold: leave for one regulated action, and the money that is set aside for it.
//!
//! Its states move by compare-and-set: held → dispatched → captured, voided or in doubt. Each move
//! is data, the guards and writes of a unit: the caller commits it, alone or with the request's own
//! work. Invariant: what a hold reserved is released exactly once, in the window that admitted it.

use serde::{Deserialize, Serialize};

use super::meter::{Admission, Slot, Tally};
use super::policy::Decision;
use crate::json_text;
use crate::ledger::Phase;
use crate::time::Instant;
use crate::unit::{Draft, Guard, Key, LogKey, Reach, Space, Write};

/// The indexed field that says where a hold stands, for as long as it is not over.
pub const STATE: &str = "state";

/// The group of holds that fall due when their request should have settled them.
pub const OPEN: &str = "open";
/// The lease group of holds in doubt: each is due when its primitive is to be asked.
pub const DOUBT: &str = "doubt";
/// The group of holds that wait for people.
const WAITING: &str = "waiting";
/// How long a hold that has ended is kept, in milliseconds: 90 days.
pub const KEPT_MS: i64 = 90 * 86_400_000;
/// The width of a spend record, in milliseconds: a quarter of an hour, so that each time zone's
/// days are whole records.
pub const RECORD_MS: i64 = 15 * 60_000;

/// Where a hold stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
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

    /// The group in which its row falls due; one that is over does not.
    fn group(self) -> Option<&'static str> {
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
    /// Where it stands.
    pub state: State,
    /// Whose action it is.
    pub primitive: String,
    /// `<primitive>.<verb>`.
    pub action: String,
    /// What it is done to.
    pub entity: String,
    /// What the money is for, in spend reports.
    pub component: String,
    /// For the person who decides or looks.
    pub title: String,
    /// In micro-US-dollars; absent where no money moves.
    pub amount: Option<i64>,
    /// What was reserved for it, outermost scope first.
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
    /// What was truly spent, once it is captured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actual: Option<i64>,
    /// When it was captured or voided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Instant>,
}

/// Who settles a hold that outlived its request.
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
    /// What is reserved.
    pub amount: i64,
    /// Under which rule.
    pub admission: Admission,
    /// What is counted.
    pub unit: Counted,
}

/// What a meter counts.
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
    /// Which is debited.
    pub from: Key,
    /// Which is credited.
    pub to: Key,
    /// What the entries say.
    pub memo: String,
}

/// A step of a hold, for a unit: committed whole or not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The hold as it stands after.
    pub hold: Hold,
    /// What must still be so.
    pub guards: Vec<Guard>,
    /// What becomes of it.
    pub writes: Vec<Write>,
}

/// The largest amount, in micro-US-dollars: nine thousand million dollars. Sums of a thousand of
/// them still fit.
pub const AMOUNT_MAX: i64 = 9_000_000_000_000_000;
/// Spaces whose rows outlive whom they are about: without them no sum could be proved. See also
/// [`is_book`].
pub const BOOKS: [&str; 4] = ["host.holds", "host.ledger", "host.meters", "host.spend"];
/// What the logs of accounts' entries begin with; they stay, too.
pub const BOOKS_LOGS: &str = "host.ledger.";

/// Whether a space is one of [`BOOKS`]. Their rows are never made anew under a former one's key,
/// whoever searches them takes what there is, and nobody waits for their changes or asks how many
/// there are: so they have neither revisions nor sizes, and who only adds to them shares nothing.
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

/// The space of meters: one row for each scope that has a cap.
pub fn meters_space() -> Space {
    Space::host("meters")
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
    /// Who may settle its holds and shares its spend records: the user, else the project, else the
    /// organization.
    pub fn reach(&self) -> Reach {
        match (&self.user, &self.project) {
            (Some(user), _) => Reach::user(user),
            (None, Some(project)) => Reach::project(project),
            (None, None) => Reach::organization(&self.organization),
        }
    }
}

impl Hold {
    /// Where a hold of this id lies.
    pub fn key(&self, id: &str) -> Key {
        key(&self.subject.organization, id)
    }

    /// Takes the hold: every charge is admitted, or none.
    pub fn taken(&self, id: &str) -> Vec<Write> {
        let mut writes = self.reserved();
        writes.push(Write::Insert { key: self.key(id), draft: self.draft(self.until) });
        writes
    }

    /// Takes the hold and makes a first step of it, in one unit.
    pub fn taken_with(&self, id: &str, step: Step) -> Vec<Write> {
        let (mut writes, own) = (self.reserved(), self.key(id));
        writes.extend(step.writes.into_iter().map(|write| match write {
            Write::Replace { key, draft, .. } if key == own => Write::Insert { key, draft },
            other => other,
        }));
        writes
    }

    fn reserved(&self) -> Vec<Write> {
        let mut writes: Vec<Write> = self.charges.iter().map(Charge::reserved).collect();
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
    pub fn dispatched(&self, id: &str) -> Step {
        let next = Self { state: State::Dispatched, ..self.clone() };
        // One that a later request settles is in doubt when that one is over.
        let due_at = self.settler.as_ref().map_or(self.until, |settler| settler.until);
        let replaced = next.replaced(id, due_at);
        self.step(id, next, vec![replaced])
    }

    /// It outlives its request.
    pub fn kept(&self, id: &str, until: Instant) -> Step {
        let next = Self { kept: true, until, settler: None, ..self.clone() };
        let replaced = next.replaced(id, until);
        self.step(id, next, vec![replaced])
    }

    /// A later request settles it, alone: `version` is the row's, so that of two at once one finds
    /// it taken.
    pub fn reopened(&self, id: &str, version: u64, settler: Settler) -> Step {
        let next = Self { settler: Some(settler), ..self.clone() };
        let replaced = next.replaced(id, self.until);
        let mut step = self.step(id, next, vec![replaced]);
        step.guards.push(Guard::Version { key: self.key(id), version: Some(version) });
        step
    }

    /// The settler leaves it as it was.
    pub fn returned(&self, id: &str) -> Step {
        let next = Self { settler: None, ..self.clone() };
        let replaced = next.replaced(id, next.until);
        self.step(id, next, vec![replaced])
    }

    /// It happened, and this is what was spent: recorded as it is, also where it is more than was
    /// held. Then the narrowest scope admits nothing more until a person has looked.
    pub fn captured(&self, id: &str, actual: i64, now: Instant) -> Step {
        let money = self.amount.map(|_| actual);
        let next =
            Self { state: State::Captured, actual: money, ended_at: Some(now), ..self.clone() };
        let over = self.amount.is_some_and(|held| actual > held);
        let narrowest = self.charges.iter().rposition(|charge| charge.unit == Counted::Money);
        let ends = self.charges.iter().enumerate().map(|(at, charge)| {
            let spent = if charge.unit == Counted::Money { actual } else { charge.amount };
            charge.ended(spent, over && narrowest == Some(at) && !self.is_wide(charge))
        });
        let mut writes: Vec<Write> = ends.collect();
        if let (Some(pay), Some(held)) = (&self.pay, self.amount) {
            let phase = Phase::Settle { reserved: held };
            writes.push(Write::Transfer {
                from: pay.from.clone(),
                to: pay.to.clone(),
                amount: actual,
                phase,
            });
            writes.extend(entries(pay, actual, id, &self.component));
        }
        if let Some(spent) = money {
            writes.extend(self.recorded(spent));
        }
        writes.push(next.replaced(id, now));
        self.step(id, next, writes)
    }

    /// It did not happen.
    pub fn voided(&self, id: &str, now: Instant) -> Step {
        let next = Self { state: State::Voided, ended_at: Some(now), ..self.clone() };
        let mut writes: Vec<Write> =
            self.charges.iter().map(|charge| charge.ended(0, false)).collect();
        if let (Some(pay), Some(amount)) = (&self.pay, self.amount) {
            writes.push(Write::Transfer {
                from: pay.from.clone(),
                to: pay.to.clone(),
                amount,
                phase: Phase::Void,
            });
        }
        writes.push(next.replaced(id, now));
        self.step(id, next, writes)
    }

    /// Nobody knows whether it happened: what it reserved stays reserved until a person, or the
    /// primitive, says what became of it.
    pub fn doubted(&self, id: &str) -> Step {
        let next = Self { state: State::InDoubt, ..self.clone() };
        let replaced = next.replaced(id, next.until);
        self.step(id, next, vec![replaced])
    }

    /// Over-capture never stops a whole organization.
    fn is_wide(&self, charge: &Charge) -> bool {
        charge.scope == "organization"
    }

    fn step(&self, id: &str, hold: Self, writes: Vec<Write>) -> Step {
        let guard = Guard::Entry {
            key: self.key(id),
            field: STATE.into(),
            value: self.state.as_str().into(),
        };
        Step { hold, guards: vec![guard], writes }
    }

    fn replaced(&self, id: &str, due_at: Instant) -> Write {
        Write::Replace { key: self.key(id), draft: self.draft(due_at), expected: None }
    }

    fn draft(&self, due_at: Instant) -> Draft {
        let state = (STATE.to_owned(), self.state.as_str().to_owned());
        let index = if self.state.is_over() { Vec::new() } else { vec![state] };
        let lease = self.state.group().map(|group| (group.to_owned(), due_at));
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

    /// What it adds to the record of the quarter of an hour in which it was admitted.
    fn recorded(&self, spent: i64) -> [Write; 3] {
        let quarter = Instant(self.at.0 - self.at.0.rem_euclid(RECORD_MS));
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
        [Write::Ensure { key: key.clone(), draft }, add("spent_micro_usd", spent), add("count", 1)]
    }
}

/// What a spend record says beside its sums.
#[derive(Serialize)]
struct Spent<'a> {
    at: Instant,
    action: &'a str,
    primitive: &'a str,
    component: &'a str,
    project: Option<&'a str>,
    user: Option<&'a str>,
}

/// What an account's log says of a transfer.
#[derive(Serialize)]
struct Entry<'a> {
    transfer: &'a str,
    amount_micro_usd: i64,
    counter_account: &'a str,
    memo: &'a str,
    reference: &'a str,
}

impl Charge {
    fn reserved(&self) -> Write {
        let (meter, slot) = (self.meter.clone(), self.slot.clone());
        Write::Reserve { meter, slot, amount: self.amount, admission: self.admission }
    }

    fn ended(&self, spent: i64, freezes: bool) -> Write {
        let beyond = self.admission == Admission::Beyond;
        let tally = Tally { released: self.amount, spent, beyond, freezes };
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
