//! How much of a cap is spent and reserved: one row for each scope that has, or once had, a cap.
//! Users and primitives' own scopes are counted without one, too.
//!
//! Spending while no cap stands is in the spend records. A cap that comes, or comes again,
//! therefore begins with their sum ([`Meter::begin`]), and its row is there from the cap's own
//! commit on, so that a capture which the sum misses changes the row that the sum is written to.
//!
//! The committer decides [`Meter::reserve`] under the row's lock, one caller after another, so of N
//! callers at once exactly those are admitted that the cap admits. Invariant: within each window
//! `spent + reserved <= cap` at every admission; what waits for a person beyond a soft cap, or was let
//! through, stands beside it for as long as the cap is soft, as `over`, and at every admission there `over_reserved <= cap`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::calendar::{Calendar, Slot};
use crate::time::Instant;

/// The amounts in one window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    /// Captured.
    #[serde(default)]
    pub spent: i64,
    /// Held.
    #[serde(default)]
    pub reserved: i64,
    /// Captured beyond a soft cap, by a person's leave.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub over_spent: i64,
    /// Held beyond a soft cap: pending or by a person's leave.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub over_reserved: i64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_zero(amount: &i64) -> bool {
    *amount == 0
}

impl Count {
    /// The amounts where nothing stands beside the cap: what was let through beyond an earlier soft
    /// one counts with the rest.
    #[must_use]
    pub fn whole(self) -> Self {
        Self {
            spent: self.spent.saturating_add(self.over_spent),
            reserved: self.reserved.saturating_add(self.over_reserved),
            ..Self::default()
        }
    }

    fn holds_nothing(&self) -> bool {
        self.reserved == 0 && self.over_reserved == 0
    }
}

/// A scope's amounts. Units are the cap's: micro-US-dollars, or times.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meter {
    /// The window that admissions count in; it never goes back.
    pub current: Slot,
    /// Nothing more is admitted: more was captured than was held, and a person has to look.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub frozen: bool,
    /// Whether it counts all that was spent in its window. If not, because its cap is new or its
    /// row an earlier build's, the spend records are summed up first.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub whole: bool,
    /// The current window, and others in which something is still held: a hold counts where it was
    /// admitted.
    pub counts: BTreeMap<Slot, Count>,
    /// The tallies of it: a sum of spend records, which takes a while, is of a moment of these, and what
    /// was captured after it is added. Absent before the first one, and in rows of earlier builds, which
    /// leave it out of those that they write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub told: Option<Told>,
}

/// All that a meter was told of as spent, one tally after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Told {
    /// The moment of the first one.
    pub since: Instant,
    /// How much.
    pub spent: i64,
    /// The last moment of it.
    pub at: Instant,
}

/// Under which rule an amount is reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", from = "Kept")]
pub enum Admission {
    /// Within this cap, with all that stands in the window.
    Within(i64),
    /// Within this soft cap: what people let through stands beside it.
    Beside(i64),
    /// Beyond this soft cap: a person decides, or has decided. All that is held beyond it is bounded
    /// by the cap once more.
    Beyond(i64),
}

impl Admission {
    /// Whether it is beyond a soft cap.
    pub fn is_beyond(self) -> bool {
        matches!(self, Self::Beyond(_))
    }

    /// The bound of what is held under it.
    pub fn most(self) -> i64 {
        let (Self::Within(most) | Self::Beside(most) | Self::Beyond(most)) = self;
        most
    }
}

/// An admission, as a row keeps it.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kept {
    Within(i64),
    Beside(i64),
    Beyond(i64),
    #[serde(untagged)]
    Earlier(Unbounded),
}

/// An admission that an earlier build has kept: nothing bounded what was held beyond a soft cap.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Unbounded {
    Beyond,
}

impl From<Kept> for Admission {
    fn from(kept: Kept) -> Self {
        match kept {
            Kept::Within(most) => Self::Within(most),
            Kept::Beside(most) => Self::Beside(most),
            Kept::Beyond(most) => Self::Beyond(most),
            Kept::Earlier(Unbounded::Beyond) => Self::Beyond(i64::MAX),
        }
    }
}

/// Why an amount was not reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denied {
    /// The cap does not admit it; what stands in the window now.
    Over(Count),
    /// Nothing is admitted until a person has looked.
    Frozen,
    /// The row counts in a later window, or by another period: ask again with what it has now.
    Moved,
}

/// The effect of a hold's end on its amounts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tally {
    /// The amount that was held and is no longer.
    pub released: i64,
    /// The amount that was truly spent.
    pub spent: i64,
    /// Whether it was admitted beyond a soft cap.
    pub beyond: bool,
    /// Whether the scope is frozen by it.
    pub freezes: bool,
    /// When.
    pub at: Instant,
}

impl Meter {
    /// A row for a scope whose spending in the window is known.
    pub fn new(current: Slot, spent: i64) -> Self {
        let counts = BTreeMap::from([(current.clone(), Count { spent, ..Count::default() })]);
        Self { current, frozen: false, whole: true, counts, told: None }
    }

    /// The row of a scope whose cap begins, or begins again: what was spent meanwhile is not known
    /// yet. `before` is the row that an earlier cap has left.
    pub fn begin(before: Option<Self>) -> Self {
        let none = || Self::new(Slot::without_cap(), 0);
        Self { whole: false, ..before.unwrap_or_else(none) }
    }

    /// The scope counts in a window from now on, from what its spend records say: `spent` is what
    /// they have seen there, what a person let through beyond a soft cap included. A held amount
    /// stays where it was admitted. A row that counts by that period already is left as it is. Records
    /// that were read as of a moment of the row's count with what it was told of `since`.
    ///
    /// # Errors
    /// [`Denied::Moved`] where nobody knows what it was told of since.
    pub fn open(&mut self, slot: &Slot, spent: i64, since: Option<Told>) -> Result<(), Denied> {
        if self.whole && self.current.is_alike(slot) {
            return Ok(());
        }
        let more = since.map_or(Some(0), |since| self.told_since(since, slot));
        let spent = spent.saturating_add(more.ok_or(Denied::Moved)?);
        self.current = slot.clone();
        self.whole = true;
        let count = self.counts.entry(slot.clone()).or_default();
        count.spent = spent.saturating_sub(count.over_spent).max(0);
        self.forget();
        Ok(())
    }

    /// The amount that it was told of after a moment, if that is known, and nothing of it was in a later
    /// window.
    fn told_since(&self, since: Told, slot: &Slot) -> Option<i64> {
        let told = self.told.filter(|told| told.since == since.since)?;
        let more = told.spent.checked_sub(since.spent).filter(|more| *more >= 0)?;
        let is_over = || Some(Calendar::of(slot)?.window(told.at).slot.follows(slot));
        let moved = told.at > since.at && is_over()?;
        (!moved).then_some(more)
    }

    /// The amounts in the current window.
    pub fn now(&self) -> Count {
        self.count(&self.current)
    }

    /// The amounts in a window.
    pub fn count(&self, slot: &Slot) -> Count {
        self.counts.get(slot).copied().unwrap_or_default()
    }

    /// The amounts that an admission in a window counts with: those there, and those held under
    /// another period or zone, because these are counted in the window that finds them spent.
    pub fn standing(&self, slot: &Slot) -> Count {
        let others = self.counts.iter().filter(|(other, _)| !other.is_alike(slot));
        others.fold(self.count(slot), |sum, (_, other)| Count {
            reserved: sum.reserved.saturating_add(other.reserved),
            over_reserved: sum.over_reserved.saturating_add(other.over_reserved),
            ..sum
        })
    }

    /// Reserves an amount, or leaves the row as it was. Amounts are not negative.
    pub fn reserve(
        &mut self,
        slot: &Slot,
        amount: i64,
        admission: Admission,
    ) -> Result<(), Denied> {
        if self.frozen {
            return Err(Denied::Frozen);
        }
        let opens = slot.follows(&self.current);
        if *slot != self.current && !opens {
            return Err(Denied::Moved);
        }
        let mut count = self.count(slot);
        let standing = match admission {
            Admission::Within(_) => self.standing(slot).whole(),
            Admission::Beside(_) | Admission::Beyond(_) => self.standing(slot),
        };
        let over = Denied::Over(standing);
        match admission {
            Admission::Within(cap) | Admission::Beside(cap) => {
                let stands = standing
                    .spent
                    .checked_add(standing.reserved)
                    .and_then(|stands| stands.checked_add(amount));
                if amount < 0 || stands.is_none_or(|stands| stands > cap) {
                    return Err(over);
                }
                count.reserved += amount;
            }
            Admission::Beyond(cap) => {
                let stands = standing.over_reserved.checked_add(amount);
                if amount < 0 || stands.is_none_or(|stands| stands > cap) {
                    return Err(over);
                }
                count.over_reserved += amount;
            }
        }
        self.counts.insert(slot.clone(), count);
        if opens {
            self.current = slot.clone();
            self.forget();
        }
        Ok(())
    }

    /// Ends a hold. It counts in the window that admitted it, or, where that was of another period
    /// or of no cap, in the one that its moment falls into. Never refused: what was spent was spent.
    pub fn tally(&mut self, slot: &Slot, tally: Tally) {
        if let Some(held) = self.counts.get_mut(slot) {
            let reserved = if tally.beyond { &mut held.over_reserved } else { &mut held.reserved };
            *reserved = reserved.saturating_sub(tally.released);
        }
        // Nothing was set aside for what a provider alone has told of: it may be the first in its window.
        if slot.follows(&self.current) {
            self.current = slot.clone();
        }
        let counted = match slot.is_alike(&self.current) {
            true => slot,
            false => {
                self.current = self.window(tally.at);
                &self.current
            }
        };
        let count = self.counts.entry(counted.clone()).or_default();
        let spent = if tally.beyond { &mut count.over_spent } else { &mut count.spent };
        *spent = spent.saturating_add(tally.spent);
        let first = Told { since: tally.at, spent: 0, at: tally.at };
        let told = self.told.get_or_insert(first);
        if tally.spent != 0 {
            told.spent = told.spent.saturating_add(tally.spent);
            told.at = told.at.max(tally.at);
        }
        self.frozen |= tally.freezes;
        self.forget();
    }

    /// The window of its period that a moment falls into; none goes back.
    fn window(&self, at: Instant) -> Slot {
        let now = Calendar::of(&self.current).map(|calendar| calendar.window(at).slot);
        now.filter(|now| now.follows(&self.current)).unwrap_or_else(|| self.current.clone())
    }

    /// Drops windows that are over and hold nothing.
    fn forget(&mut self) {
        let current = &self.current;
        self.counts.retain(|slot, count| slot == current || !count.holds_nothing());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn day(date: u8) -> Slot {
        Slot::new("day UTC", &format!("2026-11-{date:02}"))
    }

    const NOON: &str = "T12:00:00Z";

    fn noon(date: u8) -> Instant {
        Instant::parse(&format!("2026-11-{date:02}{NOON}")).unwrap()
    }

    fn released(amount: i64, spent: i64) -> Tally {
        Tally { released: amount, spent, beyond: false, freezes: false, at: noon(1) }
    }

    #[test]
    fn a_cap_that_admits_seven_admits_exactly_seven() {
        let mut meter = Meter::new(day(1), 0);
        let admitted = (0..200)
            .filter(|_| meter.reserve(&day(1), 100, Admission::Within(799)).is_ok())
            .count();
        assert_eq!(admitted, 7);
        assert_eq!(meter.now(), Count { reserved: 700, ..Count::default() });
    }

    #[test]
    fn a_window_follows_another_and_never_itself() {
        assert!(day(2).follows(&day(1)) && !day(1).follows(&day(2)));
        assert!(!day(1).follows(&day(1)));
    }

    #[test]
    fn what_nobody_has_beyond_a_cap_is_left_out_of_the_row() {
        let row = |count: Count| serde_json::to_value(count).unwrap();
        assert_eq!(row(Count::default()), serde_json::json!({"spent": 0, "reserved": 0}));
        let beyond = row(Count { over_spent: 1, over_reserved: 2, ..Count::default() });
        assert_eq!((&beyond["over_spent"], &beyond["over_reserved"]), (&1.into(), &2.into()));
    }

    #[test]
    fn what_is_held_under_another_period_counts_with_this_one() {
        let mut meter = Meter::new(day(1), 0);
        let held = Count { reserved: 3, over_reserved: 5, ..Count::default() };
        meter.counts.insert(day(1), held);
        meter.counts.insert(Slot::new("week UTC", "2026-10-26"), held);
        let twice = Count { reserved: 6, over_reserved: 10, ..Count::default() };
        assert_eq!(meter.standing(&day(1)), twice);
    }

    #[test]
    fn a_hold_counts_in_the_window_that_admitted_it() {
        let mut meter = Meter::new(day(1), 0);
        meter.reserve(&day(1), 60, Admission::Within(100)).unwrap();
        meter.reserve(&day(2), 100, Admission::Within(100)).unwrap();
        meter.tally(&day(1), released(60, 50));
        assert_eq!(meter.now(), Count { reserved: 100, ..Count::default() });
        assert_eq!(meter.counts.len(), 1, "a window that is over and holds nothing is forgotten");
    }

    #[test]
    fn what_was_never_held_counts_in_its_own_window_and_opens_it() {
        let mut meter = Meter::new(day(1), 90);
        meter.reserve(&day(1), 10, Admission::Within(100)).unwrap();
        meter.tally(&day(2), released(0, 70));
        assert_eq!((meter.current.clone(), meter.now().spent), (day(2), 70));
        assert_eq!(meter.count(&day(1)).reserved, 10, "what is held stays where it was admitted");
        meter.tally(&day(1), released(0, 5));
        assert_eq!(meter.now().spent, 70, "no window goes back");
    }

    #[test]
    fn windows_never_go_back_and_another_period_has_to_ask() {
        let mut meter = Meter::new(day(2), 0);
        assert_eq!(meter.reserve(&day(1), 1, Admission::Within(10)), Err(Denied::Moved));
        assert_eq!(
            meter.reserve(&Slot::new("week UTC", "2026-11-30"), 1, Admission::Within(10)),
            Err(Denied::Moved)
        );
        assert_eq!(meter, Meter::new(day(2), 0));
    }

    #[test]
    fn counting_by_another_period_keeps_what_is_held() {
        let mut meter = Meter::new(day(2), 0);
        meter.reserve(&day(2), 10, Admission::Within(10)).unwrap();
        let week = Slot::new("week UTC", "2026-10-26");
        meter.open(&week, 7, None).unwrap();
        assert_eq!(meter.now().spent, 7);
        let over = Denied::Over(Count { spent: 7, reserved: 10, ..Count::default() });
        assert_eq!(meter.reserve(&week, 4, Admission::Within(20)), Err(over));
        meter.reserve(&week, 3, Admission::Within(20)).unwrap();
        meter.tally(&day(2), released(10, 9));
        assert_eq!(meter.counts.keys().collect::<Vec<_>>(), [&week]);
        assert_eq!(meter.now(), Count { spent: 16, reserved: 3, ..Count::default() });
    }

    #[test]
    fn a_cap_that_comes_again_counts_anew_and_keeps_what_is_held() {
        let mut meter = Meter::new(day(2), 4);
        meter.reserve(&day(2), 10, Admission::Within(100)).unwrap();
        let mut again = Meter::begin(Some(meter));
        assert!(!again.whole && again.now().reserved == 10);
        again.open(&day(2), 54, None).unwrap();
        again.open(&day(2), 1_000, None).unwrap();
        assert_eq!(again.now(), Count { spent: 54, reserved: 10, ..Count::default() });
        again.tally(&day(2), released(10, 8));
        assert_eq!(again.now().spent, 62);
    }

    #[test]
    fn what_was_held_before_a_first_cap_counts_in_it() {
        let mut meter = Meter::begin(None);
        meter.tally(&Slot::without_cap(), released(0, 5));
        meter.open(&day(3), 6, None).unwrap();
        meter.tally(&Slot::without_cap(), released(0, 50));
        assert_eq!(meter.now(), Count { spent: 56, ..Count::default() });
        assert_eq!(meter.counts.len(), 1);
    }

    #[test]
    fn what_is_captured_while_its_sum_is_made_is_added() {
        let captured = |meter: &mut Meter, amount, date| {
            let tally = Tally { at: noon(date), ..released(0, amount) };
            meter.tally(&Slot::without_cap(), tally);
        };
        let mut meter = Meter::begin(None);
        assert_eq!(meter.told, None);
        captured(&mut meter, 5, 2);
        let (then, sum) = (meter.told, 5);
        assert_eq!(then, Some(Told { since: noon(2), spent: 5, at: noon(2) }));
        captured(&mut meter, 7, 2);
        let mut opened = meter.clone();
        opened.open(&day(2), sum, then).unwrap();
        assert_eq!(opened.now(), Count { spent: 12, ..Count::default() });
        opened.open(&day(2), 1_000, then).unwrap();
        assert_eq!(opened.now().spent, 12, "it counts already");
        // The window is over by then.
        captured(&mut meter, 1, 3);
        assert_eq!(meter.clone().open(&day(2), sum, then), Err(Denied::Moved));
        assert_eq!(meter.clone().open(&day(3), sum, meter.told), Ok(()), "nothing since");
        // Of a clock that was ahead nothing is left.
        let mut behind = meter.clone();
        let then_ahead = behind.told;
        captured(&mut behind, 2, 2);
        behind.open(&day(2), sum, then_ahead).unwrap();
        assert_eq!(behind.now().spent, sum + 2);
        // An earlier build has written the row, and what was told of begins anew.
        let mut anew = Meter { told: None, ..meter.clone() };
        assert_eq!(anew.clone().open(&day(3), sum, then), Err(Denied::Moved));
        captured(&mut anew, 100, 3);
        assert_eq!(anew.open(&day(3), sum, then), Err(Denied::Moved));
        // It is told of what is captured beyond a cap, too; and goes on as caps come and go.
        let before = Meter::begin(Some(meter));
        let mut beyond = before.clone();
        let tally = Tally { beyond: true, at: noon(3), ..released(0, 4) };
        beyond.tally(&Slot::without_cap(), tally);
        beyond.open(&day(3), 20, before.told).unwrap();
        assert_eq!(beyond.now().spent, 24);
    }

    #[test]
    fn a_row_of_an_earlier_build_is_counted_anew() {
        let row = r#"{"current":"day UTC 2026-11-02","counts":{"day UTC 2026-11-02":{"spent":9,"reserved":3,"over_spent":2}}}"#;
        let mut meter: Meter = serde_json::from_str(row).unwrap();
        assert!(!meter.whole);
        // The records know of all of it; what a person let through stands beside the cap.
        meter.open(&day(2), 61, None).unwrap();
        assert_eq!((meter.whole, meter.now().spent, meter.now().reserved), (true, 59, 3));
    }

    #[test]
    fn what_a_person_let_through_stands_beside_the_cap() {
        let mut meter = Meter::new(day(1), 90);
        assert!(meter.reserve(&day(1), 50, Admission::Beside(100)).is_err());
        meter.reserve(&day(1), 50, Admission::Beyond(100)).unwrap();
        meter.tally(&day(1), Tally { beyond: true, ..released(50, 45) });
        meter.reserve(&day(1), 10, Admission::Beside(100)).unwrap();
        assert_eq!(
            meter.now(),
            Count { spent: 90, reserved: 10, over_spent: 45, over_reserved: 0 }
        );
    }

    #[test]
    fn nothing_stands_beside_a_cap_that_has_become_hard() {
        let mut meter = Meter::new(day(1), 90);
        meter.reserve(&day(1), 50, Admission::Beyond(100)).unwrap();
        meter.tally(&day(1), Tally { beyond: true, ..released(30, 30) });
        // 90 and 30 were spent, 20 are held.
        let all = Count { spent: 120, reserved: 20, ..Count::default() };
        assert_eq!(meter.now().whole(), all);
        let over = Err(Denied::Over(all));
        assert_eq!(meter.reserve(&day(1), 11, Admission::Within(150)), over);
        meter.reserve(&day(1), 10, Admission::Within(150)).unwrap();
        let mut again = Meter::begin(Some(meter));
        again.open(&day(1), 120, None).unwrap();
        assert_eq!(again.now().whole(), Count { spent: 120, reserved: 30, ..Count::default() });
    }

    #[test]
    fn what_was_held_under_another_period_counts_when_it_is_captured() {
        let week = Slot::new("week UTC", "2026-10-26");
        for held in [Slot::without_cap(), week] {
            let mut meter = Meter::new(day(2), 7);
            meter.counts.insert(held.clone(), Count { reserved: 50, ..Count::default() });
            let mut early = meter.clone();
            meter.tally(&held, Tally { at: noon(3), ..released(50, 50) });
            assert_eq!((&meter.current, meter.now().spent), (&day(3), 50), "{held:?}");
            assert_eq!(meter.reserve(&day(3), 51, Admission::Within(100)).map_err(drop), Err(()));
            // A host whose clock is behind goes back to no window.
            early.tally(&held, Tally { at: noon(1), ..released(50, 50) });
            assert_eq!((&early.current, early.now().spent), (&day(2), 57), "{held:?}");
        }
    }

    #[test]
    fn what_is_held_beyond_a_soft_cap_is_bounded_by_it_once_more() {
        let beyond = Admission::Beyond(100);
        let mut meter = Meter::new(day(1), 90);
        meter.reserve(&day(1), 60, beyond).unwrap();
        let over = Denied::Over(Count { spent: 90, over_reserved: 60, ..Count::default() });
        assert_eq!(meter.reserve(&day(1), 41, beyond), Err(over));
        assert!(meter.reserve(&day(1), i64::MAX, beyond).is_err());
        meter.reserve(&day(1), 40, beyond).unwrap();
        // All that was let through and spent leaves room for the next; what is held goes on counting,
        // under another period too.
        meter.tally(&day(1), Tally { beyond: true, ..released(40, 40) });
        let week = Slot::new("week UTC", "2026-10-26");
        meter.open(&week, 130, None).unwrap();
        assert!(meter.reserve(&week, 41, beyond).is_err());
        meter.reserve(&week, 40, beyond).unwrap();
        assert!(Meter::new(day(1), 0).reserve(&day(1), 1, Admission::Beyond(0)).is_err());
    }

    #[test]
    fn an_admission_of_an_earlier_build_is_read() {
        let read = |text: &str| serde_json::from_str::<Admission>(text).ok();
        assert_eq!(read(r#""beyond""#), Some(Admission::Beyond(i64::MAX)));
        assert_eq!((read(r#""within""#), read(r#"{"above":1}"#)), (None, None));
        for admission in [
            Admission::Within(7),
            Admission::Beside(7),
            Admission::Beyond(7),
            Admission::Beyond(i64::MAX),
        ] {
            let kept = serde_json::to_string(&admission).unwrap();
            assert_eq!(read(&kept), Some(admission), "{kept}");
        }
        assert_eq!((Admission::Within(7).most(), Admission::Beyond(8).most()), (7, 8));
    }

    #[test]
    fn a_frozen_scope_admits_nothing() {
        let mut meter = Meter::new(day(1), 0);
        meter.reserve(&day(1), 10, Admission::Within(10)).unwrap();
        meter.tally(&day(1), Tally { freezes: true, ..released(10, 25) });
        assert_eq!(meter.now().spent, 25, "what was spent was spent");
        assert_eq!(meter.reserve(&day(2), 0, Admission::Within(100)), Err(Denied::Frozen));
    }

    #[test]
    fn no_amount_wraps_around() {
        let mut meter = Meter::new(day(1), i64::MAX);
        assert!(meter.reserve(&day(1), 1, Admission::Within(i64::MAX)).is_err());
        assert!(meter.reserve(&day(1), -1, Admission::Within(i64::MAX)).is_err());
        meter.tally(&day(1), released(i64::MIN, i64::MAX));
        assert_eq!(meter.now().spent, i64::MAX);
    }

    /// A step that a caller can make on a meter.
    #[derive(Clone, Debug)]
    enum Step {
        Reserve { date: u8, amount: i64 },
        End { which: usize, spent: i64 },
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let reserve = (1u8..5, 0i64..60).prop_map(|(date, amount)| Step::Reserve { date, amount });
        let end = (any::<usize>(), 0i64..60).prop_map(|(which, spent)| Step::End { which, spent });
        prop::collection::vec(prop_oneof![2 => reserve, 1 => end], 0..60)
    }

    proptest! {
        /// However amounts come and end, no more is held beyond a soft cap than the cap.
        #[test]
        fn no_more_is_held_beyond_a_soft_cap_than_the_cap(steps in steps(), cap in 0i64..200) {
            let mut meter = Meter::new(day(1), 0);
            let mut held: Vec<i64> = Vec::new();
            for step in steps {
                match step {
                    Step::Reserve { amount, .. } => {
                        let admits = held.iter().sum::<i64>() + amount <= cap;
                        let admitted = meter.reserve(&day(1), amount, Admission::Beyond(cap)).is_ok();
                        prop_assert_eq!(admitted, admits);
                        held.extend(admits.then_some(amount));
                    }
                    Step::End { which, spent } if !held.is_empty() => {
                        let amount = held.swap_remove(which % held.len());
                        let ended = Tally { beyond: true, ..released(amount, spent) };
                        meter.tally(&day(1), ended);
                    }
                    Step::End { .. } => {}
                }
                prop_assert_eq!(meter.now().over_reserved, held.iter().sum::<i64>());
                prop_assert!(meter.now().over_reserved <= cap && meter.now().reserved == 0);
            }
        }

        /// Against the plainest book there is: each hold by itself, summed up whenever somebody
        /// asks.
        #[test]
        fn a_meter_says_what_the_book_of_holds_says(steps in steps(), cap in 0i64..200) {
            let mut meter = Meter::new(day(1), 0);
            let (mut latest, mut held, mut spent) = (1, Vec::new(), BTreeMap::<u8, i64>::new());
            for step in steps {
                match step {
                    Step::Reserve { date, amount } => {
                        let reserved: i64 = held.iter().filter(|(at, _)| *at == date).map(|(_, amount)| amount).sum();
                        let admits = date >= latest && spent.get(&date).unwrap_or(&0) + reserved + amount <= cap;
                        prop_assert_eq!(meter.reserve(&day(date), amount, Admission::Within(cap)).is_ok(), admits);
                        if admits {
                            latest = date;
                            held.push((date, amount));
                        }
                    }
                    Step::End { which, spent: wanted } if !held.is_empty() => {
                        let (date, amount) = held.swap_remove(which % held.len());
                        let truly = wanted.min(amount);
                        meter.tally(&day(date), released(amount, truly));
                        *spent.entry(date).or_default() += truly;
                    }
                    Step::End { .. } => {}
                }
                let now = meter.now();
                prop_assert!(now.spent + now.reserved <= cap);
                let reserved: i64 = held.iter().map(|(_, amount)| amount).sum();
                prop_assert_eq!(meter.counts.values().map(|count| count.reserved).sum::<i64>(), reserved);
            }
        }
    }
}
