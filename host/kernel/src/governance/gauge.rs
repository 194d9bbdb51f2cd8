//! A cap, and where it stands: which window counts now, what its meter says there, and what has to
//! be written first so that the meter counts in it.
//!
//! Pure: the caller reads the meter's row and, where that does not know yet what was spent, sums up
//! the spend records. Invariant: an amount is reserved only on a meter that knows what was spent in
//! its window, or in the unit that tells it.

use super::hold::{Charge, Counted, is_own, meters_space};
use super::policy::Grant;
use crate::calendar::{Calendar, Window};
use crate::meter::{Admission, Count, Meter, Told};
use crate::time::Instant;
use crate::unit::{Guard, Key, Reach, Write};

/// The beginning of a grant's scope.
const GRANT: &str = "grant:";
/// The beginning of a limit's scope.
const LIMIT: &str = "limit:";

/// A cap, and where its amounts are counted.
#[derive(Clone, Debug)]
pub struct Cap {
    /// `organization`, `project`, `kit`, `user`, a scope of the primitive's own, or `limit:` or
    /// `grant:` and an id.
    pub scope: String,
    /// The kind of thing that is counted.
    pub unit: Counted,
    /// The meter's row.
    pub meter: Key,
    /// The most, in micro-US-dollars or times; absent where the amount is only counted.
    pub most: Option<i64>,
    /// Whether an excess is refused; otherwise it takes a person's leave.
    pub hard: bool,
    /// The period it is counted over.
    pub calendar: Calendar,
    /// Conditions that the row which the cap was read from must still meet.
    pub guards: Vec<Guard>,
}

/// A cap, as its meter was found.
#[derive(Clone, Debug)]
pub enum Look {
    /// The meter knows what was spent.
    Counted(Gauge),
    /// The spend records are summed up first.
    Unsummed(Unsummed),
}

/// A meter that does not count in the window yet.
#[derive(Clone, Debug)]
pub struct Unsummed {
    cap: Cap,
    window: Window,
    known: Meter,
    version: Option<u64>,
}

/// A cap, and where it stands.
#[derive(Clone, Debug)]
pub struct Gauge {
    /// The cap.
    pub cap: Cap,
    /// The window that counts now.
    pub window: Window,
    /// The amounts there.
    pub count: Count,
    /// Whether nothing is admitted until a person has looked.
    pub frozen: bool,
    opening: Option<Opening>,
}

/// The start of a meter in a window.
#[derive(Clone, Copy, Debug)]
struct Opening {
    /// The sum of what the spend records say.
    spent: i64,
    /// Its row when they were summed up.
    as_of: AsOf,
}

/// A meter's row at a moment.
#[derive(Clone, Copy, Debug)]
enum AsOf {
    /// Of this version; `None` where there was none.
    Version(Option<u64>),
    /// Of the very moment at which the records were read.
    Told(Told),
}

/// The meter of a grant: `count` or `amount`.
pub fn grant_meter(grant: &Grant, kind: &str) -> Key {
    Key::new(&Reach::user(&grant.user_id), &meters_space(), format!("{GRANT}{}:{kind}", grant.id))
}

/// Whether a meter is a grant's.
pub fn is_grants(meter: &Key) -> bool {
    meter.id.starts_with(GRANT)
}

/// The scope of a grant.
pub fn grant_scope(id: &str) -> String {
    format!("{GRANT}{id}")
}

/// The scope of a limit.
pub fn limit_scope(id: &str) -> String {
    format!("{LIMIT}{id}")
}

impl Cap {
    /// Whether it is of a scope of a primitive's own. Its meter counts at all times: each proposal
    /// that names the scope is counted there, whether or not it has a cap.
    pub fn is_own(&self) -> bool {
        is_own(&self.meter)
    }

    /// Whether it comes and goes, so that its meter does not count at all times.
    fn comes_and_goes(&self) -> bool {
        !self.is_own() && matches!(self.scope.as_str(), "organization" | "project" | "user")
    }

    /// Whether the spend records know what was spent in its scope. A limit begins with its first
    /// use, and a grant with its own.
    pub fn is_recorded(&self) -> bool {
        self.is_own() || self.comes_and_goes() || self.scope == "kit"
    }

    /// Whether it is a budget that people have set, and bounds money.
    pub fn is_budget(&self) -> bool {
        !self.is_own() && self.is_recorded() && self.most.is_some()
    }

    /// The limit of the organization that it is, by its id.
    pub fn limit(&self) -> Option<&str> {
        self.scope.strip_prefix(LIMIT)
    }

    /// The amounts in a window as it counts them: beside a soft cap stands what people let through.
    fn standing(&self, meter: &Meter, window: &Window) -> Count {
        let count = meter.standing(&window.slot);
        if self.hard { count.whole() } else { count }
    }

    /// Looks at the cap by its meter's row, at that version.
    pub fn look(self, row: Option<(Meter, u64)>, now: Instant) -> Look {
        let mut window = self.calendar.window(now);
        let Some((known, version)) = row else {
            let known = Meter::begin(None);
            return Look::Unsummed(Unsummed { cap: self, window, known, version: None });
        };
        // Another host's clock was ahead: a window is never gone back from.
        if known.current.follows(&window.slot) {
            window.slot = known.current.clone();
        }
        let is_whole = known.whole || !self.comes_and_goes();
        if !is_whole || !known.current.is_alike(&window.slot) {
            return Look::Unsummed(Unsummed { cap: self, window, known, version: Some(version) });
        }
        let count = self.standing(&known, &window);
        Look::Counted(Gauge { cap: self, window, count, frozen: known.frozen, opening: None })
    }
}

impl Unsummed {
    /// The cap.
    pub fn cap(&self) -> &Cap {
        &self.cap
    }

    /// The first moment of what is summed up.
    pub fn since(&self) -> Instant {
        self.window.starts
    }

    /// The gauge of the cap, by the sum of the spend records.
    pub fn sum_up(self, spent: i64) -> Gauge {
        let as_of = AsOf::Version(self.version);
        self.open(Opening { spent, as_of })
    }

    /// The same by a sum as of a moment at which the meter had been told of so much: what it is told of
    /// after that is added.
    pub fn sum_up_as_of(self, spent: i64, told: Told) -> Gauge {
        self.open(Opening { spent, as_of: AsOf::Told(told) })
    }

    fn open(self, opening: Opening) -> Gauge {
        let Self { cap, window, mut known, .. } = self;
        // Without a moment nothing can have moved.
        let _ = known.open(&window.slot, opening.spent, None);
        let count = cap.standing(&known, &window);
        let opening = Some(opening);
        Gauge { cap, window, count, frozen: known.frozen, opening }
    }
}

impl Gauge {
    /// Whether there is a way beyond it where it is full: a person, or to do without the grant.
    pub fn gives_way(&self) -> bool {
        !self.cap.hard || self.cap.scope.starts_with(GRANT)
    }

    /// Whether it admits so much more.
    pub fn admits(&self, amount: i64) -> bool {
        let more = if self.cap.unit == Counted::Times { 1 } else { amount };
        let stands = self.count.spent.saturating_add(self.count.reserved).saturating_add(more);
        self.cap.most.is_none_or(|most| stands <= most)
    }

    /// Whether so much more may wait for a person, or be let through by one, where it is full.
    pub fn admits_beyond(&self, amount: i64) -> bool {
        let stands = self.count.over_reserved.saturating_add(amount);
        !self.cap.hard && self.cap.most.is_none_or(|most| stands <= most)
    }

    /// The charge of an amount in it; `beyond` it where a person has a say.
    pub fn charge(&self, amount: i64, beyond: bool) -> Charge {
        let most = self.cap.most.unwrap_or(i64::MAX);
        Charge {
            scope: self.cap.scope.clone(),
            meter: self.cap.meter.clone(),
            slot: self.window.slot.clone(),
            amount: if self.cap.unit == Counted::Times { 1 } else { amount },
            admission: match (beyond, self.cap.hard) {
                (true, _) => Admission::Beyond(most),
                (false, true) => Admission::Within(most),
                (false, false) => Admission::Beside(most),
            },
            unit: self.cap.unit,
        }
    }

    /// Conditions that must still hold when something is reserved in it.
    pub fn guards(&self) -> impl Iterator<Item = Guard> {
        // A capture after the sum was made would be missed: the row must be the one that was read.
        // A scope that counts at all times has nothing to sum up before its first row.
        let version = match self.opening.map(|opening| opening.as_of) {
            Some(AsOf::Version(version)) if version.is_some() || self.cap.comes_and_goes() => {
                Some(version)
            }
            _ => None,
        };
        let unchanged =
            version.map(|version| Guard::Version { key: self.cap.meter.clone(), version });
        unchanged.into_iter().chain(self.cap.guards.clone())
    }

    /// Has the meter count in the window, before anything is reserved.
    pub fn opening(&self) -> Option<Write> {
        let Opening { spent, as_of } = self.opening?;
        let (meter, slot) = (self.cap.meter.clone(), self.window.slot.clone());
        let since = match as_of {
            AsOf::Version(_) => None,
            AsOf::Told(told) => Some(told),
        };
        Some(Write::Open { meter, slot, spent, since })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kit::Period;

    const NOW: Instant = Instant(1_795_600_000_000);

    fn cap(scope: &str) -> Cap {
        Cap {
            scope: scope.into(),
            unit: Counted::Money,
            meter: Key::new(&Reach::organization("o"), &meters_space(), scope),
            most: Some(100),
            hard: true,
            calendar: Calendar::new(Period::Day, "UTC").unwrap(),
            guards: Vec::new(),
        }
    }

    fn row(scope: &str, whole: bool, spent: i64) -> Option<(Meter, u64)> {
        let slot = cap(scope).calendar.window(NOW).slot;
        Some((Meter { whole, ..Meter::new(slot, spent) }, 7))
    }

    fn gauge(scope: &str, row: Option<(Meter, u64)>, sum: i64) -> Gauge {
        match cap(scope).look(row, NOW) {
            Look::Counted(gauge) => gauge,
            Look::Unsummed(unsummed) => unsummed.sum_up(sum),
        }
    }

    fn version(gauge: &Gauge) -> Vec<Option<u64>> {
        let of = |guard| match guard {
            Guard::Version { version, .. } => version,
            other => panic!("{other:?}"),
        };
        gauge.guards().map(of).collect()
    }

    #[test]
    fn a_meter_that_counts_at_all_times_is_believed() {
        for whole in [true, false] {
            let kit = gauge("kit", row("kit", whole, 40), 99);
            assert_eq!((kit.count.spent, kit.opening().is_some()), (40, false), "{whole}");
        }
        let standing = gauge("organization", row("organization", true, 40), 99);
        assert_eq!((standing.count.spent, standing.guards().count()), (40, 0));
    }

    #[test]
    fn a_cap_that_is_new_begins_with_the_sum_of_what_was_spent_as_long_as_its_row_is_the_same() {
        let stale = gauge("organization", row("organization", false, 40), 59);
        assert_eq!((stale.count.spent, version(&stale)), (59, vec![Some(7)]));
        let first = gauge("user", None, 12);
        assert_eq!((first.count.spent, version(&first)), (12, vec![None]));
        assert!(matches!(first.opening(), Some(Write::Open { spent: 12, .. })));
        // Nothing can have been spent before the first row of a kit's meter, so those who come
        // first do not stand in each other's way.
        assert_eq!(version(&gauge("kit", None, 0)), Vec::new());
    }

    #[test]
    fn a_scope_of_a_primitives_own_counts_at_all_times_and_is_no_budget() {
        let id = "shop.card:c1";
        // The name that the primitive gives it changes nothing.
        for scope in ["card", "user", "kit"] {
            let own = Cap { scope: scope.into(), ..cap(id) };
            assert!(own.is_own() && own.is_recorded() && !own.is_budget(), "{scope}");
            assert!(!cap(scope).is_own(), "{scope}");
        }
        assert!(!cap("limit:a.b:count").is_own() && !cap("grant:a.b:count").is_own());
        let standing = gauge(id, row(id, false, 40), 99);
        assert_eq!((standing.count.spent, standing.opening().is_some()), (40, false));
        let month = Calendar::new(Period::Month, "UTC").unwrap().window(NOW).slot;
        let other = gauge(id, Some((Meter::new(month, 80), 3)), 20);
        assert_eq!((other.count.spent, version(&other)), (20, vec![Some(3)]));
    }

    #[test]
    fn another_period_is_summed_up_anew_and_a_later_window_stays() {
        let month = Calendar::new(Period::Month, "UTC").unwrap().window(NOW).slot;
        let other = gauge("kit", Some((Meter::new(month, 80), 3)), 20);
        assert_eq!((other.count.spent, version(&other)), (20, vec![Some(3)]));
        let tomorrow = cap("kit").calendar.window(NOW.plus_ms(86_400_000)).slot;
        let ahead = gauge("kit", Some((Meter::new(tomorrow.clone(), 5), 3)), 99);
        assert_eq!((ahead.count.spent, &ahead.window.slot), (5, &tomorrow));
        // Nor where it is counted anew.
        let anew = gauge("user", Some((Meter::begin(Some(Meter::new(tomorrow.clone(), 5))), 3)), 9);
        assert_eq!((anew.count.spent, anew.window.slot), (9, tomorrow));
    }

    #[test]
    fn what_was_let_through_stands_beside_a_soft_cap_alone() {
        let look = |hard| {
            let (mut meter, version) = row("user", true, 60).unwrap();
            meter
                .counts
                .values_mut()
                .for_each(|count| (count.over_spent, count.over_reserved) = (5, 7));
            let mut day = cap("user");
            day.hard = hard;
            match day.look(Some((meter, version)), NOW) {
                Look::Counted(gauge) => {
                    (gauge.count.spent, gauge.count.reserved, gauge.admits(28), gauge.admits(29))
                }
                Look::Unsummed(_) => panic!("it counts"),
            }
        };
        assert_eq!((look(false), look(true)), ((60, 0, true, true), (65, 7, true, false)));
    }

    #[test]
    fn it_admits_what_is_left_and_counts_times_once() {
        let money = gauge("kit", row("kit", true, 60), 0);
        assert!(money.admits(40) && !money.admits(41) && !money.admits(i64::MAX));
        let times = Gauge {
            cap: Cap { unit: Counted::Times, most: Some(61), ..money.cap.clone() },
            ..money.clone()
        };
        assert!(times.admits(1_000));
        assert_eq!(times.charge(1_000, false).amount, 1);
        assert_eq!(money.charge(9, true).admission, Admission::Beyond(100));
        let within = |hard, beyond| {
            let cap = Cap { hard, ..money.cap.clone() };
            Gauge { cap, ..money.clone() }.charge(9, beyond).admission
        };
        assert_eq!(
            (within(true, false), within(false, false)),
            (Admission::Within(100), Admission::Beside(100))
        );
        let soft = Gauge {
            cap: Cap { hard: false, ..money.cap.clone() },
            count: Count { over_reserved: 70, ..money.count },
            ..money.clone()
        };
        assert!(soft.admits_beyond(30) && !soft.admits_beyond(31) && !money.admits_beyond(1));
        let open = Gauge { cap: Cap { most: None, ..money.cap.clone() }, ..money };
        assert!(open.admits(i64::MAX));
        assert_eq!(open.charge(9, false).admission, Admission::Within(i64::MAX));
    }
}
