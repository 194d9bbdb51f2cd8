//! Days, windows and occurrences where clocks change: nothing is counted twice or skipped.

use charter_kernel::calendar::{Calendar, Window};
use charter_kernel::kit::Period;
use charter_kernel::schedule::{Schedule, next_occurrence};
use charter_kernel::time::{Instant, Zone};
use proptest::prelude::*;

const HOUR: i64 = 3_600_000;

fn at(text: &str) -> Instant {
    Instant::parse(text).unwrap()
}

fn window(period: Period, zone: &str, text: &str) -> Window {
    Calendar::new(period, zone).unwrap().window(at(text))
}

fn hours(window: &Window) -> i64 {
    (window.ends.unwrap().0 - window.starts.0) / HOUR
}

/// The next occurrences after a moment.
fn occurrences(cron: &str, zone: &str, after: &str, count: usize) -> Vec<String> {
    let schedule = Schedule::parse(cron, zone).unwrap();
    let next = |at: &Instant| schedule.next_after(*at);
    std::iter::successors(next(&at(after)), next).take(count).map(|at| at.to_string()).collect()
}

#[test]
fn a_day_is_as_long_as_its_clocks_make_it() {
    let table = [
        ("Europe/Zurich", "2026-03-29T12:00:00Z", 23),
        ("Europe/Zurich", "2026-10-25T12:00:00Z", 25),
        ("Europe/Zurich", "2026-10-26T12:00:00Z", 24),
        ("America/New_York", "2026-03-08T12:00:00Z", 23),
        ("America/New_York", "2026-11-01T12:00:00Z", 25),
        ("Asia/Tokyo", "2026-03-29T12:00:00Z", 24),
        ("UTC", "2026-03-29T12:00:00Z", 24),
    ];
    for (zone, text, expected) in table {
        assert_eq!(hours(&window(Period::Day, zone, text)), expected, "{zone} {text}");
    }
}

#[test]
fn half_an_hour_and_a_skipped_day_are_counted_as_they_are() {
    // Lord Howe moves its clocks by half an hour.
    let long = window(Period::Day, "Australia/Lord_Howe", "2026-04-05T00:00:00Z");
    assert_eq!(long.ends.unwrap().0 - long.starts.0, 24 * HOUR + HOUR / 2);
    // Samoa went without the 30th of December 2011.
    let before = window(Period::Day, "Pacific/Apia", "2011-12-30T09:00:00Z");
    let after = window(Period::Day, "Pacific/Apia", "2011-12-30T11:00:00Z");
    assert_eq!((before.slot.first(), after.slot.first()), ("2011-12-29", "2011-12-31"));
    assert_eq!(hours(&after), 24);
}

#[test]
fn an_hour_that_comes_twice_is_in_one_window() {
    let first = window(Period::Day, "Europe/Zurich", "2026-10-25T00:30:00Z");
    let second = window(Period::Day, "Europe/Zurich", "2026-10-25T01:30:00Z");
    assert_eq!(first, second);
    assert_eq!(first.slot.as_str(), "day Europe/Zurich 2026-10-25");
}

#[test]
fn a_moment_on_the_edge_belongs_to_what_begins() {
    for (period, edge) in [
        (Period::Day, "2026-11-21T00:00:00Z"),
        (Period::Week, "2026-11-23T00:00:00Z"),
        (Period::Month, "2026-12-01T00:00:00Z"),
        (Period::Year, "2027-01-01T00:00:00Z"),
    ] {
        let after = Calendar::new(period, "UTC").unwrap().window(at(edge));
        let before = Calendar::new(period, "UTC").unwrap().window(at(edge).plus_ms(-1));
        assert_eq!((before.ends, after.starts), (Some(at(edge)), at(edge)), "{period:?}");
        assert!(after.slot.follows(&before.slot) && after.slot.is_alike(&before.slot));
    }
    let ever = window(Period::Total, "UTC", "2026-11-21T00:00:00Z");
    assert_eq!((ever.slot.as_str(), ever.ends, ever.starts), ("total ever", None, Instant(0)));
}

#[test]
fn windows_of_another_zone_or_period_do_not_follow_each_other() {
    let text = "2026-11-21T12:00:00Z";
    let (utc, zurich) =
        (window(Period::Day, "UTC", text), window(Period::Day, "Europe/Zurich", text));
    let week = window(Period::Week, "UTC", text);
    assert!(!utc.slot.is_alike(&zurich.slot) && !utc.slot.is_alike(&week.slot));
    assert!(!utc.slot.follows(&week.slot) && !week.slot.follows(&utc.slot));
}

#[test]
fn a_job_of_a_skipped_hour_runs_once_and_of_a_repeated_one_once() {
    let spring = occurrences("30 2 * * *", "America/New_York", "2026-03-07T12:00:00Z", 3);
    assert_eq!(
        spring,
        ["2026-03-08T07:00:00.000Z", "2026-03-09T06:30:00.000Z", "2026-03-10T06:30:00.000Z"]
    );
    let autumn = occurrences("30 1 * * *", "America/New_York", "2026-10-31T12:00:00Z", 3);
    assert_eq!(
        autumn,
        ["2026-11-01T05:30:00.000Z", "2026-11-02T06:30:00.000Z", "2026-11-03T06:30:00.000Z"]
    );
}

#[test]
fn cron_reads_lists_steps_ranges_and_names() {
    let table = [
        ("0 0 1 1 *", "2026-11-21T00:00:00Z", "2027-01-01T00:00:00.000Z"),
        ("0 0 29 2 *", "2026-11-21T00:00:00Z", "2028-02-29T00:00:00.000Z"),
        ("*/20 * * * *", "2026-11-21T00:21:00Z", "2026-11-21T00:40:00.000Z"),
        ("0 9-17/4 * * *", "2026-11-21T09:00:00Z", "2026-11-21T13:00:00.000Z"),
        ("15,45 8 * * *", "2026-11-21T08:15:00Z", "2026-11-21T08:45:00.000Z"),
        ("0 12 * * FRI", "2026-11-21T00:00:00Z", "2026-11-27T12:00:00.000Z"),
        ("0 12 * MAR *", "2026-11-21T00:00:00Z", "2027-03-01T12:00:00.000Z"),
    ];
    for (cron, after, expected) in table {
        assert_eq!(occurrences(cron, "UTC", after, 1), [expected], "{cron}");
    }
    assert_eq!(next_occurrence("0 0 31 4 *", "UTC", at("2026-11-21T00:00:00Z")), Ok(None));
    let long = format!("{} * * * *", "1,".repeat(100) + "1");
    assert_eq!(Schedule::parse(&long, "UTC").unwrap_err().path, "cron");
}

#[test]
fn a_moment_beyond_the_calendar_has_no_day() {
    let calendar = Calendar::new(Period::Day, "UTC").unwrap();
    let beyond = calendar.window(Instant(i64::MAX));
    assert_eq!((beyond.slot.first(), beyond.ends), ("ever", None));
    assert_eq!(Schedule::parse("* * * * *", "UTC").unwrap().next_after(Instant(i64::MAX)), None);
    assert_eq!(Instant(5).plus_ms(i64::MAX), Instant(i64::MAX));
    assert_eq!((Instant::nearest(-1), Instant::nearest(7)), (Instant(0), Instant(7)));
    assert!(Zone::parse("Europe/Zurich").is_some() && Zone::parse("Europe/Nowhere").is_none());
}

proptest! {
    #[test]
    fn a_moment_reads_as_it_was_written(ms in 1..=Instant::LAST.0) {
        let text = Instant(ms).to_string();
        prop_assert_eq!(Instant::parse(&text), Some(Instant(ms)));
        let json = serde_json::to_string(&Instant(ms)).unwrap();
        prop_assert_eq!(serde_json::from_str::<Instant>(&json).unwrap(), Instant(ms));
    }

    #[test]
    fn texts_of_moments_sort_as_they_do(a in 1..=Instant::LAST.0, b in 1..=Instant::LAST.0) {
        prop_assert_eq!(Instant(a).to_string().cmp(&Instant(b).to_string()), a.cmp(&b));
    }

    #[test]
    fn a_window_holds_its_moments_and_no_other(ms in 0..4_000_000_000_000_i64, period in 0..4_usize) {
        let period = [Period::Day, Period::Week, Period::Month, Period::Year][period];
        let calendar = Calendar::new(period, "America/Sao_Paulo").unwrap();
        let own = calendar.window(Instant(ms));
        let (starts, ends) = (own.starts, own.ends.unwrap());
        prop_assert_eq!(&calendar.window(starts), &own);
        prop_assert_eq!(&calendar.window(ends.plus_ms(-1)), &own);
        prop_assert_ne!(calendar.window(ends).slot, own.slot.clone());
        prop_assert_ne!(calendar.window(starts.plus_ms(-1)).slot, own.slot);
    }

    #[test]
    fn occurrences_go_forward(ms in 0..4_000_000_000_000_i64, minute in 0..60_u8, hour in 0..24_u8) {
        let cron = format!("{minute} {hour} * * *");
        let schedule = Schedule::parse(&cron, "Europe/Zurich").unwrap();
        let first = schedule.next_after(Instant(ms)).unwrap();
        let second = schedule.next_after(first).unwrap();
        prop_assert!(first.0 > ms && second.0 - first.0 >= 22 * HOUR && second.0 - first.0 <= 26 * HOUR);
    }
}
