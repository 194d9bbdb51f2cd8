//! Money in words: amounts are integers of micro-US-dollars, and never fractions of any other kind.

/// Micro-US-dollars as dollars, exactly.
pub fn dollars(micro_usd: i64) -> String {
    let (whole, rest) = (micro_usd / 1_000_000, (micro_usd % 1_000_000).abs());
    let text = format!("${whole}.{rest:06}");
    let cut = text.trim_end_matches('0').len().max(text.len() - 4);
    text[..cut].to_owned()
}

#[cfg(test)]
mod tests {
    use super::dollars;

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
