//! The windows of a calendar period, and the one that a moment falls into.
//!
//! Windows are named by local date text, so that a name says the same on every host, and later
//! windows of one period sort behind earlier ones.

use jiff::ToSpan;
use serde::{Deserialize, Serialize};

use crate::fault::Fault;
use crate::kit::Period;
use crate::time::{Instant, Zone};

/// The window of a period that an amount is counted in: `day Europe/Zurich 2026-11-21`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Slot(String);

impl Slot {
    /// The window `first` of a period and zone.
    pub fn new(basis: &str, first: &str) -> Self {
        Self(format!("{basis} {first}"))
    }
    /// No window: where a hold stands in a scope that had no cap when it was taken.
    pub fn without_cap() -> Self {
        Self::new("uncapped", "ever")
    }
    /// Its text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
    fn parts(&self) -> (&str, &str) {
        self.0.rsplit_once(' ').unwrap_or((&self.0, ""))
    }
    /// The first day of the window, as local date text; `ever` where it has none.
    pub fn first(&self) -> &str {
        self.parts().1
    }
    /// Whether it is a later window of the same period and zone.
    pub fn follows(&self, other: &Self) -> bool {
        let ((basis, first), (others, earlier)) = (self.parts(), other.parts());
        basis == others && first > earlier
    }
    /// Whether both are windows of the same period and zone.
    pub fn is_alike(&self, other: &Self) -> bool {
        self.parts().0 == other.parts().0
    }
}

/// A period, read in an IANA time zone.
#[derive(Clone, Debug)]
pub struct Calendar {
    period: Period,
    zone: Zone,
    basis: String,
}

/// One window of a calendar.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    /// The slot that its amounts are counted in.
    pub slot: Slot,
    /// Its first moment; the epoch where it has none.
    pub starts: Instant,
    /// The first moment after it; `None` where it never ends.
    pub ends: Option<Instant>,
}

impl Calendar {
    /// The calendar of a period in a zone.
    ///
    /// # Errors
    /// The fault of `time_zone`.
    pub fn new(period: Period, time_zone: &str) -> Result<Self, Fault> {
        let fault = || {
            Fault::new("time_zone", "must be the name of an IANA time zone, such as Europe/Zurich")
        };
        let zone = Zone::parse(time_zone).ok_or_else(fault)?;
        let basis = match period {
            Period::Total => "total".to_owned(),
            period => format!("{} {time_zone}", period.as_str()),
        };
        Ok(Self { period, zone, basis })
    }

    /// The calendar of a slot's period and zone; `None` where it has none.
    pub fn of(slot: &Slot) -> Option<Self> {
        let basis = slot.parts().0;
        let (period, zone) = basis.split_once(' ').unwrap_or((basis, "UTC"));
        let period = Period::ALL.into_iter().find(|known| known.as_str() == period)?;
        Self::new(period, zone).ok()
    }

    /// The window that a moment falls into.
    pub fn window(&self, at: Instant) -> Window {
        let never =
            || Window { slot: Slot::new(&self.basis, "ever"), starts: Instant(0), ends: None };
        let Some(today) = self.zone.local(at).map(|at| at.date()) else { return never() };
        let (first, next) = match self.period {
            Period::Total => return never(),
            Period::Day => (today, today.tomorrow()),
            Period::Week => {
                let monday = today
                    .checked_sub(i64::from(today.weekday().to_monday_zero_offset()).days())
                    .unwrap_or(today);
                (monday, monday.checked_add(7.days()))
            }
            Period::Month => (today.first_of_month(), today.last_of_month().tomorrow()),
            Period::Year => (today.first_of_year(), today.last_of_year().tomorrow()),
        };
        Window {
            slot: Slot::new(&self.basis, &first.to_string()),
            starts: self.zone.midnight(first).unwrap_or_default(),
            ends: next.ok().and_then(|next| self.zone.midnight(next)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn window(period: Period, zone: &str, at: &str) -> (String, String, String) {
        let window = Calendar::new(period, zone).unwrap().window(Instant::parse(at).unwrap());
        let ends = window.ends.map_or("never".into(), |at| at.to_string());
        (window.slot.as_str().to_owned(), window.starts.to_string(), ends)
    }

    fn is(window: (String, String, String), slot: &str, starts: &str, ends: &str) {
        assert_eq!(window, (slot.to_owned(), starts.to_owned(), ends.to_owned()));
    }

    #[test]
    fn the_zone_says_which_day_it_is() {
        let at = "2026-11-20T23:30:00Z";
        is(
            window(Period::Day, "UTC", at),
            "day UTC 2026-11-20",
            "2026-11-20T00:00:00.000Z",
            "2026-11-21T00:00:00.000Z",
        );
        let zurich = window(Period::Day, "Europe/Zurich", at);
        is(
            zurich,
            "day Europe/Zurich 2026-11-21",
            "2026-11-20T23:00:00.000Z",
            "2026-11-21T23:00:00.000Z",
        );
    }

    #[test]
    fn weeks_begin_on_monday_and_cross_years() {
        let week = window(Period::Week, "UTC", "2027-01-01T12:00:00Z");
        is(week, "week UTC 2026-12-28", "2026-12-28T00:00:00.000Z", "2027-01-04T00:00:00.000Z");
        let monday = window(Period::Week, "UTC", "2026-11-16T00:00:00Z");
        is(monday, "week UTC 2026-11-16", "2026-11-16T00:00:00.000Z", "2026-11-23T00:00:00.000Z");
    }

    #[test]
    fn months_years_and_all_time_have_their_ends() {
        let month = window(Period::Month, "UTC", "2028-02-29T00:00:00Z");
        is(month, "month UTC 2028-02-01", "2028-02-01T00:00:00.000Z", "2028-03-01T00:00:00.000Z");
        let year = window(Period::Year, "UTC", "2026-12-31T23:59:59.999Z");
        is(year, "year UTC 2026-01-01", "2026-01-01T00:00:00.000Z", "2027-01-01T00:00:00.000Z");
        is(
            window(Period::Total, "Asia/Tokyo", "2026-11-20T00:00:00Z"),
            "total ever",
            "1970-01-01T00:00:00.000Z",
            "never",
        );
    }

    #[test]
    fn days_with_a_clock_change_are_as_long_as_they_are() {
        let long = Calendar::new(Period::Day, "Europe/Zurich")
            .unwrap()
            .window(Instant::parse("2026-10-25T12:00:00Z").unwrap());
        assert_eq!(long.ends.unwrap().0 - long.starts.0, 25 * 3_600_000);
        // Beirut skips midnight on the last Sunday of March.
        let short = Calendar::new(Period::Day, "Asia/Beirut")
            .unwrap()
            .window(Instant::parse("2026-03-29T12:00:00Z").unwrap());
        assert_eq!(short.ends.unwrap().0 - short.starts.0, 23 * 3_600_000);
    }

    #[test]
    fn a_slot_says_which_calendar_it_is_of() {
        let at = Instant::parse("2026-11-20T23:30:00Z").unwrap();
        for period in Period::ALL {
            let slot = Calendar::new(period, "America/Argentina/Ushuaia").unwrap().window(at).slot;
            assert_eq!(Calendar::of(&slot).unwrap().window(at).slot, slot);
        }
        for none in
            [Slot::without_cap(), Slot::new("day Mars/Olympus", "2026-11-20"), Slot::new("", "")]
        {
            assert!(Calendar::of(&none).is_none(), "{none:?}");
        }
    }

    #[test]
    fn a_zone_that_is_none_is_named() {
        for zone in ["", "Mars/Olympus", "../etc/passwd"] {
            assert_eq!(Calendar::new(Period::Day, zone).unwrap_err().path, "time_zone", "{zone}");
        }
    }

    proptest! {
        #[test]
        fn windows_follow_each_other_without_gap(ms in 0i64..4_000_000_000_000, zone in 0usize..4, period in 0usize..4) {
            let zone = ["UTC", "Europe/Zurich", "America/St_Johns", "Australia/Lord_Howe"][zone];
            let period = [Period::Day, Period::Week, Period::Month, Period::Year][period];
            let calendar = Calendar::new(period, zone).unwrap();
            let this = calendar.window(Instant(ms));
            let ends = this.ends.unwrap();
            prop_assert!(this.starts.0 <= ms && ms < ends.0);
            let next = calendar.window(ends);
            prop_assert_eq!(next.starts, ends);
            prop_assert!(next.slot.follows(&this.slot) && !this.slot.follows(&next.slot));
        }
    }
}
