//! The gateway that every regulated action passes: policy, then caps, then the hold, in one unit.
//!
//! Knows no primitive: an action is a name that a manifest declares. The rules are the kernel's;
//! here they meet the organization's records and the rows of its meters. Invariant: leave is
//! committed together with the hold behind it, under the very policy, kit and budgets that decided.

pub mod approvals;
pub mod caps;
pub mod decide;
pub mod gateway;
pub mod verify;

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
