//! A database as plainly as one can be written down, and the few words the tests are written in.

use std::collections::BTreeMap;

use charter_kernel::apply::{Head, State, Stored, Touches, apply};
use charter_kernel::ledger::Account;
use charter_kernel::meter::Meter;
use charter_kernel::time::Instant;
use charter_kernel::unit::{
    Applied, Claim, Draft, Guard, Key, LogKey, Reach, Refused, Rejection, Row, Space, Take, Unit,
    Write,
};

/// The moment of every commit.
pub const NOW: Instant = Instant(1_800_000_000_000);

/// Everything that is committed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Database {
    pub rows: BTreeMap<Key, Stored>,
    pub claims: BTreeMap<Claim, Key>,
    pub spaces: BTreeMap<(Reach, Space), u64>,
    pub logs: BTreeMap<LogKey, Head>,
    /// Names of log entries and facts, with their numbers.
    pub entries: Vec<(String, u64)>,
}

impl Database {
    /// A database with these rows.
    pub fn with(writes: Vec<Write>) -> Self {
        let mut database = Self::default();
        database.run(writes).unwrap();
        database
    }

    /// Commits units as one batch.
    pub fn batch(&mut self, units: &[Unit]) -> Vec<Result<Applied, Rejection>> {
        let mut state = self.read(units);
        let answers = units.iter().map(|unit| apply(&mut state, unit, NOW)).collect();
        self.keep(&state);
        answers
    }

    /// Commits one unit.
    pub fn commit(&mut self, unit: Unit) -> Result<Applied, Rejection> {
        self.batch(&[unit]).remove(0)
    }

    /// Commits writes alone.
    pub fn run(&mut self, writes: Vec<Write>) -> Result<Applied, Rejection> {
        self.commit(unit(writes))
    }

    /// The rule that refuses these writes, which leave no trace.
    pub fn refuse(&mut self, writes: Vec<Write>) -> Refused {
        let before = self.clone();
        let refused = match self.run(writes) {
            Err(Rejection::Refused(refused)) => refused,
            other => panic!("not refused: {other:?}"),
        };
        assert_eq!(*self, before, "a refused unit leaves no trace");
        refused
    }

    /// Whether a unit under this guard alone is admitted.
    pub fn admits(&self, guard: Guard) -> Result<(), Rejection> {
        let unit = Unit { guards: vec![guard], ..unit(vec![put("guarded", "{}")]) };
        self.clone().commit(unit).map(drop)
    }

    pub fn row(&self, key: &Key) -> &Row {
        &self.rows[key].row
    }

    pub fn meter(&self, key: &Key) -> Meter {
        serde_json::from_str(&self.row(key).body).unwrap()
    }

    pub fn account(&self, key: &Key) -> Account {
        serde_json::from_str(&self.row(key).body).unwrap()
    }

    /// Reads what units touch, and nothing else.
    fn read(&self, units: &[Unit]) -> State {
        let mut touches = Touches::default();
        units.iter().for_each(|unit| touches.add(unit, true));
        let mut state = State::new(true);
        for key in touches.rows.keys() {
            state.know_row(key.clone(), self.rows.get(key).cloned());
        }
        for wanted in touches.groups.keys() {
            let of_group = |stored: &&Stored| {
                stored.row.lease.as_ref().is_some_and(|lease| lease.group == wanted.group)
            };
            for (key, stored) in self.rows.iter().filter(|(_, stored)| of_group(stored)) {
                if key.space == wanted.space {
                    state.know_row(key.clone(), Some(stored.clone()));
                    touches.spaces.insert((key.reach.clone(), key.space.clone()));
                }
            }
        }
        for claim in &touches.claims {
            state.know_claim(claim.clone(), self.claims.get(claim).cloned());
        }
        for (reach, space) in &touches.spaces {
            let revision = self.spaces.get(&(reach.clone(), space.clone())).copied();
            state.know_space(reach.clone(), space.clone(), revision);
        }
        for log in &touches.logs {
            state.know_log(log.clone(), self.logs.get(log).copied());
        }
        state
    }

    /// Writes what was decided.
    fn keep(&mut self, state: &State) {
        let changes = state.changes();
        for change in &changes.rows {
            assert_eq!(self.rows.get(change.key), change.before);
            match change.after {
                Some(after) => drop(self.rows.insert(change.key.clone(), after.clone())),
                None => drop(self.rows.remove(change.key)),
            }
        }
        for change in &changes.claims {
            match change.after {
                Some(after) => drop(self.claims.insert(change.claim.clone(), after.clone())),
                None => drop(self.claims.remove(change.claim)),
            }
        }
        for change in &changes.spaces {
            self.spaces.insert((change.reach.clone(), change.space.clone()), change.after);
        }
        for change in &changes.logs {
            self.logs.insert(change.log.clone(), change.after);
        }
        let entries = changes.entries.iter().map(|entry| (entry.name.clone(), entry.sequence));
        let facts =
            changes.facts.iter().map(|fact| (fact.fact.name.clone(), fact.sequence.unwrap_or(0)));
        self.entries.extend(entries.chain(facts));
    }
}

pub fn reach() -> Reach {
    Reach::user("u")
}

pub fn space() -> Space {
    Space::of("shelf", "books")
}

pub fn key(id: &str) -> Key {
    Key::new(&reach(), &space(), id)
}

pub fn unit(writes: Vec<Write>) -> Unit {
    Unit { organization: "o".into(), writes, ..Unit::default() }
}

pub fn draft(body: &str) -> Draft {
    Draft { body: body.into(), ..Draft::default() }
}

pub fn insert(id: &str, body: &str) -> Write {
    Write::Insert { key: key(id), draft: draft(body) }
}

pub fn put(id: &str, body: &str) -> Write {
    Write::Put { key: key(id), draft: draft(body) }
}

/// A row that is handed out in this group from then on.
pub fn leased(id: &str, group: &str, due_at: Instant) -> Write {
    let lease = Some((group.to_owned(), due_at));
    Write::Insert { key: key(id), draft: Draft { lease, ..draft("{}") } }
}

/// Hands out due rows of a group under these tokens.
pub fn take(group: &str, until: Instant, tokens: &[&str]) -> Unit {
    let take = Take {
        reach: Some(reach()),
        space: space(),
        group: group.into(),
        until,
        tokens: tokens.iter().map(|token| (*token).to_owned()).collect(),
    };
    Unit { takes: vec![take], ..unit(Vec::new()) }
}

/// A row of the books.
pub fn book<T: serde::Serialize>(key: &Key, row: &T) -> Write {
    Write::Ensure { key: key.clone(), draft: draft(&serde_json::to_string(row).unwrap()) }
}

/// The address of a meter of the user.
pub fn meter(scope: &str) -> Key {
    Key::new(&reach(), &Space::host("meters"), scope)
}

/// The address of an account of the user.
pub fn account(name: &str) -> Key {
    Key::new(&reach(), &Space::host("ledger"), name)
}
