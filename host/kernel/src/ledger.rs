//! Double-entry accounts: what a transfer does to both sides, and when it may not.
//!
//! A transfer debits one account and credits another by the same amount, so the sum over all
//! accounts is zero whatever happens; a balance is what the debits and credits say and is never
//! set. Amounts are whole micro-US-dollars.

use serde::{Deserialize, Serialize};

pub use crate::unit::Phase;
use crate::unit::{Draft, Key, Write};

/// One account, as its row keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// The side that makes its balance grow.
    pub normal: Normal,
    /// Whether its balance may fall below zero.
    #[serde(default)]
    pub may_go_negative: bool,
    /// Whether it takes part in no new transfer.
    #[serde(default)]
    pub frozen: bool,
    /// The sum of what was posted on its debit side.
    pub debits: i64,
    /// The sum of what was posted on its credit side.
    pub credits: i64,
    /// Reserved on its debit side.
    #[serde(default)]
    pub pending_debits: i64,
    /// Reserved on its credit side.
    #[serde(default)]
    pub pending_credits: i64,
}

/// The side that makes an account's balance grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Normal {
    /// Money that the deployment has or has spent: cash at a provider, fees.
    Debit,
    /// Money that it owes: credit, card balances.
    Credit,
}

/// Why a transfer was not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denied {
    /// The account that would have fallen below zero has only this much.
    Overdrawn {
        /// Whether it is the debited account.
        debited: bool,
        /// Its available amount.
        available: i64,
    },
    /// An account takes part in no new transfer.
    Frozen {
        /// Whether it is the debited account.
        debited: bool,
    },
    /// The amount is negative, or a sum would be out of range.
    OutOfRange,
}

/// The amounts of an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Balance {
    /// Posted.
    pub posted: i64,
    /// Set aside to come.
    pub pending_in: i64,
    /// Set aside to go.
    pub pending_out: i64,
    /// Posted without what is set aside to go.
    pub available: i64,
}

impl Account {
    /// An account of money owed to somebody, which nobody overdraws: credit, a balance.
    pub fn credit() -> Self {
        Self::new(Normal::Credit, false)
    }

    /// The row's content.
    pub fn draft(&self) -> Draft {
        // Numbers and words always serialize.
        Draft { body: serde_json::to_string(self).unwrap_or_default(), ..Draft::default() }
    }

    /// Opens it there, unless there is one.
    pub fn open(&self, key: &Key) -> Write {
        Write::Ensure { key: key.clone(), draft: self.draft() }
    }

    /// An account without a balance.
    pub fn new(normal: Normal, may_go_negative: bool) -> Self {
        let (debits, credits, pending_debits, pending_credits) = (0, 0, 0, 0);
        Self {
            normal,
            may_go_negative,
            frozen: false,
            debits,
            credits,
            pending_debits,
            pending_credits,
        }
    }

    /// Its amounts.
    pub fn balance(&self) -> Balance {
        let (posted, pending_in, pending_out) = match self.normal {
            Normal::Debit => (
                self.debits.saturating_sub(self.credits),
                self.pending_debits,
                self.pending_credits,
            ),
            Normal::Credit => (
                self.credits.saturating_sub(self.debits),
                self.pending_credits,
                self.pending_debits,
            ),
        };
        Balance { posted, pending_in, pending_out, available: posted.saturating_sub(pending_out) }
    }

    /// Whether its sums can still count a transfer of so much.
    pub fn counts(&self, amount: i64) -> bool {
        [self.debits, self.credits].iter().all(|sum| sum.checked_add(amount).is_some())
    }

    /// Whether money comes out of it that never came in: nothing bounds one that may go negative, nor one
    /// that grows when it is debited.
    pub fn is_source(&self) -> bool {
        self.may_go_negative || self.normal == Normal::Debit
    }

    /// The most that it can give: nothing bounds one that may go negative.
    fn gives(&self) -> i64 {
        if self.may_go_negative { i64::MAX } else { self.balance().available }
    }
}

/// Debits `from` and credits `to`, or leaves both as they were.
pub fn transfer(
    from: &mut Account,
    to: &mut Account,
    amount: i64,
    phase: Phase,
) -> Result<(), Denied> {
    if amount < 0 {
        return Err(Denied::OutOfRange);
    }
    if matches!(phase, Phase::Post | Phase::Reserve) {
        for (account, debited) in [(&*from, true), (&*to, false)] {
            let shrinks = (account.normal == Normal::Credit) == debited;
            if account.frozen {
                return Err(Denied::Frozen { debited });
            }
            if shrinks && amount > account.gives() {
                return Err(Denied::Overdrawn { debited, available: account.balance().available });
            }
        }
    }
    let (posts, pends) = match phase {
        Phase::Post => (amount, 0),
        Phase::Reserve => (0, amount),
        Phase::Settle { reserved } => (amount, -reserved),
        Phase::Void => (0, -amount),
    };
    let sums = (
        from.debits.checked_add(posts),
        from.pending_debits.checked_add(pends),
        to.credits.checked_add(posts),
        to.pending_credits.checked_add(pends),
    );
    let (Some(debits), Some(pending_debits), Some(credits), Some(pending_credits)) = sums else {
        return Err(Denied::OutOfRange);
    };
    (from.debits, from.pending_debits) = (debits, pending_debits);
    (to.credits, to.pending_credits) = (credits, pending_credits);
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn credit(available: i64) -> Account {
        Account { credits: available, ..Account::new(Normal::Credit, false) }
    }

    #[test]
    fn an_account_counts_what_its_sums_have_room_for() {
        let full = credit(i64::MAX - 5);
        assert!(full.counts(5) && !full.counts(6));
        let owed = Account { debits: i64::MAX - 5, ..Account::new(Normal::Debit, true) };
        assert!(owed.counts(5) && !owed.counts(6));
        for (amount, expected) in [(5, Ok(())), (6, Err(Denied::OutOfRange))] {
            let (mut from, mut to) = (owed, full);
            assert_eq!(transfer(&mut from, &mut to, amount, Phase::Post), expected);
        }
    }

    #[test]
    fn an_account_gives_no_more_than_it_has() {
        let (mut a, mut b) = (credit(10), credit(0));
        let denied = transfer(&mut a, &mut b, 11, Phase::Post);
        assert_eq!(denied, Err(Denied::Overdrawn { debited: true, available: 10 }));
        transfer(&mut a, &mut b, 10, Phase::Post).unwrap();
        assert_eq!((a.balance().available, b.balance().available), (0, 10));
    }

    #[test]
    fn what_is_set_aside_is_not_given_twice() {
        let (mut a, mut b) = (credit(10), credit(0));
        transfer(&mut a, &mut b, 7, Phase::Reserve).unwrap();
        assert_eq!(
            transfer(&mut a, &mut b, 4, Phase::Reserve),
            Err(Denied::Overdrawn { debited: true, available: 3 })
        );
        let set_aside = Balance { posted: 10, pending_in: 0, pending_out: 7, available: 3 };
        assert_eq!((a.balance(), b.balance().pending_in), (set_aside, 7));
        transfer(&mut a, &mut b, 5, Phase::Settle { reserved: 7 }).unwrap();
        assert_eq!((a.balance().available, b.balance().available), (5, 5));
        transfer(&mut a, &mut b, 5, Phase::Reserve).unwrap();
        transfer(&mut a, &mut b, 5, Phase::Void).unwrap();
        assert_eq!(a.balance(), Balance { posted: 5, pending_in: 0, pending_out: 0, available: 5 });
    }

    #[test]
    fn a_debit_account_shrinks_when_it_is_credited() {
        let (mut owed, mut cash) =
            (Account::new(Normal::Credit, true), Account::new(Normal::Debit, false));
        let denied = transfer(&mut owed, &mut cash, 1, Phase::Post);
        assert_eq!(denied, Err(Denied::Overdrawn { debited: false, available: 0 }));
        transfer(&mut cash, &mut owed, 8, Phase::Post).unwrap();
        assert_eq!((cash.balance().posted, owed.balance().posted), (8, 8));
    }

    #[test]
    fn a_frozen_account_takes_part_in_nothing_new_and_what_happened_is_posted() {
        let (mut a, mut b) = (credit(10), credit(0));
        transfer(&mut a, &mut b, 4, Phase::Reserve).unwrap();
        b.frozen = true;
        assert_eq!(
            transfer(&mut a, &mut b, 1, Phase::Post),
            Err(Denied::Frozen { debited: false })
        );
        transfer(&mut a, &mut b, 12, Phase::Settle { reserved: 4 }).unwrap();
        assert_eq!(a.balance().posted, -2, "what was truly spent is posted");
    }

    #[test]
    fn sums_out_of_range_change_nothing() {
        let (mut a, mut b) =
            (Account::new(Normal::Debit, true), Account { credits: i64::MAX, ..credit(0) });
        let before = (a, b);
        assert_eq!(transfer(&mut a, &mut b, 1, Phase::Post), Err(Denied::OutOfRange));
        assert_eq!(transfer(&mut a, &mut b, -1, Phase::Post), Err(Denied::OutOfRange));
        assert_eq!((a, b), before);
    }

    proptest! {
        #[test]
        fn the_sum_is_zero_and_nobody_gives_what_it_lacks(steps in prop::collection::vec((0usize..3, 0usize..3, 0i64..50, 0u8..4), 0..80)) {
            let mut accounts = [Account::new(Normal::Debit, true), Account::new(Normal::Credit, false), Account::new(Normal::Credit, false)];
            let mut aside: Vec<(usize, usize, i64)> = Vec::new();
            for (from, to, amount, how) in steps {
                let (from, to, amount, phase) = match how {
                    0 => (from, to, amount, Phase::Post),
                    1 => (from, to, amount, Phase::Reserve),
                    how => {
                        let Some((from, to, reserved)) = aside.pop() else { continue };
                        if how == 2 { (from, to, amount.min(reserved), Phase::Settle { reserved }) } else { (from, to, reserved, Phase::Void) }
                    }
                };
                if from == to {
                    continue;
                }
                let (mut debited, mut credited) = (accounts[from], accounts[to]);
                if transfer(&mut debited, &mut credited, amount, phase).is_ok() {
                    (accounts[from], accounts[to]) = (debited, credited);
                    if phase == Phase::Reserve {
                        aside.push((from, to, amount));
                    }
                }
                prop_assert_eq!(accounts.iter().map(|account| account.debits - account.credits).sum::<i64>(), 0);
                prop_assert_eq!(accounts.iter().map(|account| account.pending_debits - account.pending_credits).sum::<i64>(), 0);
                let pending: i64 = aside.iter().map(|(_, _, amount)| amount).sum();
                prop_assert_eq!(accounts.iter().map(|account| account.pending_debits).sum::<i64>(), pending);
                for account in &accounts {
                    prop_assert!(account.may_go_negative || account.balance().available >= 0);
                }
            }
        }
    }
}
