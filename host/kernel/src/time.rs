//! Moments, as milliseconds since the Unix epoch, and the clock as an argument.

use std::borrow::Cow;
use std::fmt;

use jiff::civil::{Date, DateTime};
use jiff::fmt::temporal::{Pieces, PiecesOffset};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, Zoned};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Milliseconds since the Unix epoch, UTC. On the wire `2026-11-20T23:15:00.123Z`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Instant(pub i64);

impl Instant {
    /// The last moment that has a timestamp on the wire: the end of the year 9999.
    pub const LAST: Self = Self(253_402_300_799_999);

    /// The moment so many milliseconds after the epoch, or the nearest one that has a timestamp on
    /// the wire: what could be written and never read again is no moment.
    pub fn nearest(ms: i64) -> Self {
        Self(ms).clamp(Self(0), Self::LAST)
    }
    /// This much later, or earlier where negative; saturating.
    pub fn plus_ms(self, ms: i64) -> Self {
        Self(self.0.saturating_add(ms))
    }
    /// Reads an RFC 3339 timestamp, up to [`Instant::LAST`] inclusive.
    pub fn parse(text: &str) -> Option<Self> {
        match text.parse::<Timestamp>() {
            Ok(at) => Some(Self(at.as_millisecond())),
            Err(_) => late(text),
        }
    }
}

/// The moment from which years, months and days of the calendar are counted.
const EPOCH: DateTime = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);

/// A moment of the last day: the calendar ends there for every offset, a timestamp of the library a
/// day earlier for all.
fn late(text: &str) -> Option<Instant> {
    let pieces = Pieces::parse(text).ok()?;
    let ahead_s = match pieces.offset()? {
        PiecesOffset::Zulu => 0,
        PiecesOffset::Numeric(offset) => offset.offset().seconds(),
        _ => return None,
    };
    let since = pieces.date().to_datetime(pieces.time()?).duration_since(EPOCH)
        - SignedDuration::from_secs(ahead_s.into());
    let at = Instant(i64::try_from(since.as_millis()).ok()?);
    (at > Instant(0) && at <= Instant::LAST).then_some(at)
}

impl fmt::Display for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Ok(at) = Timestamp::from_millisecond(self.0) {
            return write!(f, "{at:.3}");
        }
        match EPOCH.checked_add(SignedDuration::from_millis(self.0)) {
            Ok(at) if self.0 > 0 => write!(f, "{at:.3}Z"),
            _ => write!(f, "{}", self.0),
        }
    }
}

impl Serialize for Instant {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl JsonSchema for Instant {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "Instant".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "format": "date-time"})
    }
}

impl<'de> Deserialize<'de> for Instant {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        Self::parse(&text).ok_or_else(|| serde::de::Error::custom("not an RFC 3339 timestamp"))
    }
}

/// An IANA time zone: where calendar days and hours of the day begin.
#[derive(Clone, Debug)]
pub struct Zone(TimeZone);

impl Zone {
    /// The zone of a name such as `Europe/Zurich`.
    pub fn parse(name: &str) -> Option<Self> {
        TimeZone::get(name).ok().map(Self)
    }
    /// A moment on the zone's clocks; `None` beyond the calendar.
    pub(crate) fn local(&self, at: Instant) -> Option<Zoned> {
        Some(Timestamp::from_millisecond(at.0).ok()?.to_zoned(self.0.clone()))
    }
    /// A day's first moment; where the zone skips midnight, the first after the gap.
    pub(crate) fn midnight(&self, date: Date) -> Option<Instant> {
        date.to_zoned(self.0.clone()).ok().map(|at| Instant(at.timestamp().as_millisecond()))
    }
}

/// The source of the time. Tests hand in a clock that they move.
pub trait Clock: Send + Sync + 'static {
    /// The current moment.
    fn now(&self) -> Instant;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_day_is_read_and_written_to_its_end() {
        for (text, written) in [
            ("2026-11-20T23:15:00.123Z", "2026-11-20T23:15:00.123Z"),
            ("9999-12-30T22:00:01Z", "9999-12-30T22:00:01.000Z"),
            ("9999-12-31T23:59:59Z", "9999-12-31T23:59:59.000Z"),
            ("9999-12-31T23:59:59.999Z", "9999-12-31T23:59:59.999Z"),
            ("9999-12-31T23:59:59+02:00", "9999-12-31T21:59:59.000Z"),
            ("9999-12-31T21:59:59-02:00", "9999-12-31T23:59:59.000Z"),
        ] {
            let at = Instant::parse(text).unwrap();
            assert_eq!(at.to_string(), written, "{text}");
            assert_eq!(Instant::parse(written), Some(at), "{written}");
        }
        assert_eq!(Instant::nearest(i64::MAX), Instant::LAST);
        assert_eq!(Instant::nearest(i64::MIN), Instant(0));
        assert_eq!(Instant::parse("9999-12-31T23:59:59.999Z"), Some(Instant::LAST));
    }

    #[test]
    fn what_is_no_moment_or_lies_beyond_the_last_is_refused() {
        for text in [
            "9999-12-31T23:59:59-00:01",
            "9999-12-31T23:59:59",
            "9999-12-31",
            "9999-12-32T00:00:00Z",
            "soon",
            "",
        ] {
            assert_eq!(Instant::parse(text), None, "{text}");
        }
        assert_eq!(Instant(i64::MAX).to_string(), i64::MAX.to_string());
    }
}
