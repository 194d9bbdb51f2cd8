//! Moments and the clock. On the wire a moment is RFC 3339 in UTC with milliseconds:
//! `2026-11-20T23:15:00.123Z`.
//!
//! Knows no time zone and no leap second: milliseconds since the Unix epoch, as the interface
//! counts them.

use std::borrow::Cow;
use std::ops::{Add, Sub};
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

const DAY_MS: i64 = 86_400_000;

/// A moment, in milliseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(i64);

/// The host's clock. Inside `describe` it stands still.
pub fn now() -> Instant {
    Instant(crate::host::clock::now_ms())
}

impl Instant {
    /// That many milliseconds after the epoch.
    pub const fn from_ms(ms: i64) -> Self {
        Self(ms)
    }
    /// Milliseconds since the epoch.
    pub const fn as_ms(self) -> i64 {
        self.0
    }
    /// That many seconds later.
    #[must_use]
    pub const fn plus_seconds(self, seconds: u32) -> Self {
        Self(self.0.saturating_add(seconds as i64 * 1_000))
    }
    /// How long after `earlier` it is; zero if it is not.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0).max(0).unsigned_abs())
    }
    /// Reads RFC 3339 with `Z` or a numeric offset; digits beyond milliseconds are dropped.
    pub fn parse(text: &str) -> Option<Self> {
        let number = |range: std::ops::Range<usize>| -> Option<i64> {
            let digits = text.get(range)?;
            digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
        };
        let bytes = text.as_bytes();
        let separators = [(4, b"-"), (7, b"-"), (10, b"T"), (13, b":"), (16, b":")];
        if bytes.len() < 20
            || separators.iter().any(|(at, wanted)| !bytes[*at].eq_ignore_ascii_case(&wanted[0]))
        {
            return None;
        }
        let (year, month, day) = (number(0..4)?, number(5..7)?, number(8..10)?);
        let (hour, minute, second) = (number(11..13)?, number(14..16)?, number(17..19)?);
        if !(1..=12).contains(&month)
            || !(1..=31).contains(&day)
            || hour > 23
            || minute > 59
            || second > 60
        {
            return None;
        }
        let mut rest = text.get(19..)?;
        let mut ms = 0;
        if let Some(after) = rest.strip_prefix('.') {
            let digits = after.bytes().take_while(u8::is_ascii_digit).count();
            if digits == 0 {
                return None;
            }
            ms = format!("{:0<3}", &after[..digits.min(3)]).parse().ok()?;
            rest = &after[digits..];
        }
        let offset_minutes = match rest.as_bytes() {
            b"Z" | b"z" => 0,
            [sign @ (b'+' | b'-'), _, _, b':', _, _] => {
                let minutes = rest.get(1..3)?.parse::<i64>().ok()? * 60
                    + rest.get(4..6)?.parse::<i64>().ok()?;
                if *sign == b'-' { -minutes } else { minutes }
            }
            _ => return None,
        };
        let seconds = hour * 3_600 + (minute - offset_minutes) * 60 + second;
        Some(Self(days_before(year, month, day) * DAY_MS + seconds * 1_000 + ms))
    }
}

impl Add<Duration> for Instant {
    type Output = Self;
    fn add(self, by: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(by.as_millis()).unwrap_or(i64::MAX)))
    }
}

impl Sub<Duration> for Instant {
    type Output = Self;
    fn sub(self, by: Duration) -> Self {
        Self(self.0.saturating_sub(i64::try_from(by.as_millis()).unwrap_or(i64::MAX)))
    }
}

/// Days from the epoch to a date of the proleptic Gregorian calendar (years counted from March).
fn days_before(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// The inverse of [`days_before`].
fn date_after(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (era * 400 + year_of_era + i64::from(month <= 2), month, day)
}

impl std::fmt::Display for Instant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (year, month, day) = date_after(self.0.div_euclid(DAY_MS));
        let ms = self.0.rem_euclid(DAY_MS);
        let (seconds, ms) = (ms / 1_000, ms % 1_000);
        let (hour, minute, second) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z")
    }
}

impl Serialize for Instant {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Instant {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| serde::de::Error::custom("not an RFC 3339 date and time"))
    }
}

impl JsonSchema for Instant {
    fn schema_name() -> Cow<'static, str> {
        "Instant".into()
    }
    fn inline_schema() -> bool {
        true
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "format": "date-time" })
    }
}

#[cfg(test)]
mod tests {
    use super::Instant;

    #[test]
    fn a_moment_reads_and_writes_the_same_text() {
        for text in [
            "1970-01-01T00:00:00.000Z",
            "2026-11-20T23:15:00.123Z",
            "2024-02-29T12:00:00.999Z",
            "1969-12-31T23:59:59.001Z",
        ] {
            assert_eq!(Instant::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(
            Instant::parse("2026-11-21T01:15:00.5+02:00").unwrap().to_string(),
            "2026-11-20T23:15:00.500Z"
        );
    }

    #[test]
    fn what_is_no_moment_is_refused() {
        for text in [
            "",
            "2026-11-20",
            "2026-13-20T23:15:00Z",
            "2026-11-20T23:15:00",
            "2026-11-20T23:15:00.Z",
            "x026-11-20T23:15:00Z",
        ] {
            assert_eq!(Instant::parse(text), None, "{text}");
        }
    }
}
