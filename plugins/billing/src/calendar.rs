//! Months, as people pay by them.

use charter_sdk::prelude::*;

/// Months of a year.
const MONTHS: i64 = 12;

fn days_of(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// The same day and time so many months later; the last day of a month that is too short for it.
pub(crate) fn months_after(start: Instant, months: u32) -> Instant {
    let text = start.to_string();
    let number = |from: usize, to: usize| {
        text.get(from..to).and_then(|part| part.parse::<i64>().ok()).unwrap_or(1)
    };
    let since_year_zero = number(0, 4) * MONTHS + number(5, 7) - 1 + i64::from(months);
    let (year, month) =
        (since_year_zero.div_euclid(MONTHS), since_year_zero.rem_euclid(MONTHS) + 1);
    let day = number(8, 10).min(days_of(year, month));
    let rest = text.get(10..).unwrap_or_default();
    Instant::parse(&format!("{year:04}-{month:02}-{day:02}{rest}")).unwrap_or(start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_month_later_is_the_same_day_or_the_last_one() {
        let after =
            |start: &str, months| months_after(Instant::parse(start).unwrap(), months).to_string();
        assert_eq!(after("2026-01-15T08:30:00.123Z", 1), "2026-02-15T08:30:00.123Z");
        assert_eq!(after("2026-01-31T00:00:00Z", 1), "2026-02-28T00:00:00.000Z");
        assert_eq!(after("2024-01-31T00:00:00Z", 1), "2024-02-29T00:00:00.000Z");
        assert_eq!(after("2026-01-31T00:00:00Z", 2), "2026-03-31T00:00:00.000Z");
        assert_eq!(after("2026-12-31T23:59:59Z", 14), "2028-02-29T23:59:59.000Z");
    }
}
