//! When a recurring job fires next: five-field cron, read in an IANA time zone.
//!
//! Knows no clock: the moment to look from is an argument. A wall-clock time that a zone skips
//! fires right after the gap, one that happens twice fires once.

use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use jiff::tz::TimeZone;

use crate::fault::Fault;
use crate::time::Instant;

/// Characters of a cron expression.
const CRON_CHARS_MAX: usize = 200;

/// A cron expression and the zone that it is read in, both checked.
#[derive(Clone, Debug)]
pub struct Schedule {
    cron: Cron,
    zone: TimeZone,
}

impl Schedule {
    /// Reads an expression and a zone.
    ///
    /// # Errors
    /// The fault of `cron` or `tz`, whichever is wrong first.
    pub fn parse(cron: &str, tz: &str) -> Result<Self, Fault> {
        let fields = cron.split_ascii_whitespace().count();
        if fields != 5 || cron.len() > CRON_CHARS_MAX {
            return Err(Fault::new(
                "cron",
                "must have exactly five fields: minute, hour, day of month, month, day of week",
            ));
        }
        let parser =
            CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed).build();
        let cron = parser
            .parse(cron)
            .map_err(|error| Fault::new("cron", format!("is no cron expression: {error}")))?;
        let zone = TimeZone::get(tz).map_err(|_| {
            Fault::new("tz", "must be the name of an IANA time zone, such as Europe/Zurich")
        })?;
        Ok(Self { cron, zone })
    }

    /// The first occurrence after a moment; `None` where there is none in the next years (30
    /// February).
    pub fn next_after(&self, after: Instant) -> Option<Instant> {
        let after = jiff::Timestamp::from_millisecond(after.0).ok()?.to_zoned(self.zone.clone());
        let next = self.cron.find_next_occurrence(&after, false).ok()?;
        Some(Instant(next.timestamp().as_millisecond()))
    }
}

/// The first occurrence of `cron`, read in the zone `tz`, after a moment.
///
/// # Errors
/// The fault of `cron` or `tz`.
pub fn next_occurrence(cron: &str, tz: &str, after: Instant) -> Result<Option<Instant>, Fault> {
    Ok(Schedule::parse(cron, tz)?.next_after(after))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn next(cron: &str, tz: &str, after: &str) -> String {
        next_occurrence(cron, tz, Instant::parse(after).unwrap())
            .unwrap()
            .map_or("never".into(), |at| at.to_string())
    }

    #[test]
    fn an_occurrence_lies_strictly_after_the_moment() {
        assert_eq!(
            next("0 9 * * *", "UTC", "2026-11-20T08:59:59.999Z"),
            "2026-11-20T09:00:00.000Z"
        );
        assert_eq!(next("0 9 * * *", "UTC", "2026-11-20T09:00:00Z"), "2026-11-21T09:00:00.000Z");
        assert_eq!(
            next("*/15 * * * MON", "UTC", "2026-11-20T09:00:00Z"),
            "2026-11-23T00:00:00.000Z"
        );
        assert_eq!(next("0 0 30 2 *", "UTC", "2026-11-20T09:00:00Z"), "never");
    }

    #[test]
    fn the_zone_decides_what_nine_in_the_morning_is() {
        assert_eq!(
            next("0 9 * * *", "Europe/Zurich", "2026-07-01T00:00:00Z"),
            "2026-07-01T07:00:00.000Z"
        );
        assert_eq!(
            next("0 9 * * *", "Europe/Zurich", "2026-12-01T00:00:00Z"),
            "2026-12-01T08:00:00.000Z"
        );
    }

    #[test]
    fn a_skipped_time_fires_after_the_gap_and_a_repeated_one_once() {
        // On 2026-03-29 Zurich goes from 02:00 to 03:00, on 2026-10-25 from 03:00 back to 02:00.
        assert_eq!(
            next("30 2 * * *", "Europe/Zurich", "2026-03-28T12:00:00Z"),
            "2026-03-29T01:00:00.000Z"
        );
        assert_eq!(
            next("30 2 * * *", "Europe/Zurich", "2026-10-24T12:00:00Z"),
            "2026-10-25T00:30:00.000Z"
        );
        assert_eq!(
            next("30 2 * * *", "Europe/Zurich", "2026-10-25T00:30:00Z"),
            "2026-10-26T01:30:00.000Z"
        );
    }

    #[test]
    fn faults_name_their_field() {
        let fault = |cron, tz| next_occurrence(cron, tz, Instant(0)).unwrap_err().path;
        for cron in ["", "* * * *", "* * * * * *", "60 * * * *", "a b c d e", "@daily"] {
            assert_eq!(fault(cron, "UTC"), "cron", "{cron}");
        }
        for tz in ["", "Mars/Olympus", "../etc/passwd"] {
            assert_eq!(fault("* * * * *", tz), "tz", "{tz}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(cron in "[0-9*,/LW#A-Z -]{0,24}", tz in "\\PC{0,12}", ms in any::<i64>()) {
            let _ = next_occurrence(&cron, &tz, Instant(ms));
        }

        #[test]
        fn every_minute_is_at_most_a_minute_away(ms in 0i64..4_000_000_000_000) {
            let next = next_occurrence("* * * * *", "America/New_York", Instant(ms)).unwrap().unwrap();
            prop_assert!(next.0 > ms && next.0 - ms <= 60_000);
        }
    }
}
