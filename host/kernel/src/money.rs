//! Units of money: the wire speaks of whole cents, the ledger and every cap count micro-US-dollars.
//!
//! Whole numbers only; what would be out of range is the largest amount there is, never another one.

/// Micro-US-dollars of a cent.
const MICRO_USD_PER_CENT: i64 = 10_000;

/// The largest amount, in micro-US-dollars: nine thousand million dollars. Sums of a thousand of
/// them still fit.
pub const AMOUNT_MAX: i64 = 9_000_000_000_000_000;

/// Cents as the ledger counts.
pub fn micro_usd(cents: u64) -> i64 {
    i64::try_from(cents).unwrap_or(i64::MAX).saturating_mul(MICRO_USD_PER_CENT)
}

/// Whole cents of what the ledger counts, rounded down.
pub fn cents(micro_usd: i64) -> i64 {
    micro_usd.div_euclid(MICRO_USD_PER_CENT)
}

/// Micro-US-dollars as dollars, exactly, for people.
pub fn dollars(micro_usd: i64) -> String {
    let (whole, rest) = (micro_usd / 1_000_000, (micro_usd % 1_000_000).abs());
    let text = format!("${whole}.{rest:06}");
    let cut = text.trim_end_matches('0').len().max(text.len() - 4);
    text[..cut].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cents_and_micro_dollars_are_the_same_money() {
        assert_eq!((micro_usd(1_250), cents(12_500_000)), (12_500_000, 1_250));
        assert_eq!((cents(19_999), cents(-1), micro_usd(u64::MAX)), (1, -1, i64::MAX));
    }

    #[test]
    fn an_amount_has_two_digits_or_as_many_as_it_needs() {
        let told = [
            (0, "$0.00"),
            (1_000_000, "$1.00"),
            (1_250_000, "$1.25"),
            (1_000_001, "$1.000001"),
            (1_005_000, "$1.005"),
        ];
        for (micro_usd, text) in told {
            assert_eq!(dollars(micro_usd), text);
        }
    }
}
