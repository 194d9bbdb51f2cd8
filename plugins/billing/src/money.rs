//! The words and units for money.

/// Micro-US-dollars of a cent.
const MICRO_USD_PER_CENT: i64 = 10_000;

/// Cents as the ledger counts. The schemas bound them far below the integer's range.
pub(crate) fn micro_usd(cents: u64) -> i64 {
    i64::try_from(cents).unwrap_or(i64::MAX).saturating_mul(MICRO_USD_PER_CENT)
}

/// An amount, for people.
pub(crate) fn dollars(cents: u64) -> String {
    format!("{}.{:02} USD", cents / 100, cents % 100)
}

/// Whole cents of what the ledger counts; none where it is less than nothing.
pub(crate) fn cents(micro_usd: i64) -> u64 {
    u64::try_from(micro_usd.max(0) / MICRO_USD_PER_CENT).unwrap_or_default()
}
