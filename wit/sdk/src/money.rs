//! Units of money: callers speak of whole cents, the ledger counts micro-US-dollars.

/// Micro-US-dollars of a cent.
const MICRO_USD_PER_CENT: i64 = 10_000;

/// Cents as the ledger counts. An amount out of range becomes the largest amount there is: bound it
/// in the schema.
pub fn micro_usd(cents: u64) -> i64 {
    i64::try_from(cents).unwrap_or(i64::MAX).saturating_mul(MICRO_USD_PER_CENT)
}

/// Whole cents of what the ledger counts, rounded down.
pub fn cents(micro_usd: i64) -> i64 {
    micro_usd.div_euclid(MICRO_USD_PER_CENT)
}

/// An amount of cents, for people: `12.50 USD`.
pub fn dollars(cents: u64) -> String {
    format!("{}.{:02} USD", cents / 100, cents % 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cents_and_micro_dollars_are_the_same_money() {
        assert_eq!(
            (micro_usd(1_250), cents(12_500_000), dollars(1_250)),
            (12_500_000, 1_250, "12.50 USD".into())
        );
        assert_eq!((cents(19_999), cents(-1), micro_usd(u64::MAX)), (1, -1, i64::MAX));
        assert_eq!(dollars(5), "0.05 USD");
    }
}
