//! The doubles of `governance` and `ledger`: accounts that are never overdrawn, leave that is given
//! unless the test denies it. No policies and no caps but the primitive's own: the end-to-end tests
//! have those.

use super::state::{Account, Permitted, with};
use crate::bindings::charter::primitive::types::Failure as Raw;
use crate::failure::Failure;

type Result<T> = std::result::Result<T, Raw>;

fn overdrawn(available: i64) -> Raw {
    let details = serde_json::json!({ "available_micro_usd": available });
    Failure::new("insufficient_credits", "the account does not cover the amount")
        .details(details)
        .into()
}

impl Account {
    fn available(&self) -> i64 {
        self.posted - self.aside
    }
    fn give(&self, amount: i64) -> Result<()> {
        if self.frozen {
            return Err(Failure::conflict("the account is frozen").reason("FROZEN").into());
        }
        if amount > self.available() && !self.may_go_negative {
            Err(overdrawn(self.available()))
        } else {
            Ok(())
        }
    }
}

pub(crate) mod governance {
    use super::{Failure, Permitted, Result, with};
    use crate::bindings::charter::primitive::governance::Proposal;

    /// A permit of the double: its id, under which the double keeps the hold.
    #[derive(Debug)]
    pub(crate) struct Permit(String);

    pub(crate) fn authorize(proposal: &Proposal) -> Result<Permit> {
        with(|state| {
            if let Some(denial) = state.denied.get(&proposal.action) {
                return Err(denial.clone().into());
            }
            let amount = proposal.amount.unwrap_or(0);
            for (scope, id) in &proposal.scopes {
                let at = format!("{scope}:{id}");
                let spent = state.spent.get(&at).copied().unwrap_or(0);
                if state.caps.get(&at).is_some_and(|cap| spent + amount > *cap) {
                    return Err(Failure::new(
                        "budget_exceeded",
                        "the amount exceeds what is left of the budget",
                    )
                    .into());
                }
            }
            if let Some((from, _)) = &proposal.pay {
                let account = state.accounts.entry(from.clone()).or_default();
                account.give(amount)?;
                account.aside += amount;
            }
            for (scope, id) in &proposal.scopes {
                *state.spent.entry(format!("{scope}:{id}")).or_default() += amount;
            }
            let id = state.next_id();
            state.permits.insert(id.clone(), Permitted { proposal: proposal.clone(), open: true });
            Ok(Permit(id))
        })
    }

    pub(crate) fn reopen(permit: &str) -> Result<Permit> {
        let open = with(|state| state.permits.get(permit).map(|permit| permit.open));
        match open {
            Some(true) => Ok(Permit(permit.into())),
            Some(false) => Err(Failure::conflict("the permit is settled already")
                .reason("PERMIT_SETTLED")
                .into()),
            None => Err(Failure::not_found("permit").into()),
        }
    }

    pub(crate) fn set_cap(
        scope: &str,
        id: &str,
        cap: Option<i64>,
        _period: &str,
        _time_zone: &str,
    ) -> Result<()> {
        let at = format!("{scope}:{id}");
        with(|state| match cap {
            Some(cap) => state.caps.insert(at, cap),
            None => state.caps.remove(&at),
        });
        Ok(())
    }

    pub(crate) fn take(rate: &str, reach: &str, amount: u32, per_seconds: u32) -> Result<()> {
        with(|state| {
            let (now, per) = (state.now_ms, i64::from(per_seconds) * 1_000);
            let taken = state.rates.entry(format!("{reach}:{rate}")).or_default();
            taken.retain(|at| now - at < per);
            if taken.len() >= amount as usize {
                let wait = taken.first().map_or(per, |first| first + per - now);
                let wait = u32::try_from((wait + 999) / 1_000).unwrap_or(u32::MAX);
                return Err(Failure::new("rate_limited", "this is done too often")
                    .retry_after(wait)
                    .into());
            }
            taken.push(now);
            Ok(())
        })
    }

    impl Permit {
        pub(crate) fn id(&self) -> String {
            self.0.clone()
        }
        pub(crate) fn idempotency_key(&self) -> String {
            self.0.clone()
        }
        #[expect(clippy::unused_self, reason = "the interface's signature")]
        pub(crate) fn dispatched(&self) -> Result<()> {
            Ok(())
        }
        pub(crate) fn capture(&self, actual: i64) -> Result<()> {
            let held = with(|state| {
                let permit = state.permits.get(&self.0).filter(|_| !state.is_told);
                permit.map(|permit| permit.proposal.amount.unwrap_or(0))
            });
            if let Some(left) = held.filter(|held| actual > *held) {
                return Err(Failure::conflict("more was to be captured than was held")
                    .reason("over_held")
                    .details(serde_json::json!({ "left_micro_usd": left }))
                    .into());
            }
            self.end(actual)
        }
        pub(crate) fn cancel(&self) -> Result<()> {
            self.end(0)
        }
        #[expect(clippy::unused_self, reason = "the interface's signature")]
        pub(crate) fn keep(&self, _until: i64) -> Result<()> {
            Ok(())
        }

        fn end(&self, actual: i64) -> Result<()> {
            with(|state| {
                let Some(permit) = state.permits.get_mut(&self.0).filter(|permit| permit.open)
                else {
                    return Err(Failure::conflict("the permit is settled already").into());
                };
                permit.open = false;
                let held = permit.proposal.amount.unwrap_or(0);
                let (title, component) =
                    (permit.proposal.title.clone(), permit.proposal.component.clone());
                for (scope, id) in &permit.proposal.scopes {
                    *state.spent.entry(format!("{scope}:{id}")).or_default() += actual - held;
                }
                if let Some((from, to)) = permit.proposal.pay.clone() {
                    let account = state.accounts.entry(from.clone()).or_default();
                    account.aside -= held;
                    state.post(&self.0, &from, &to, actual, &title, &component);
                }
                Ok(())
            })
        }
    }
}

pub(crate) mod ledger {
    use super::{Failure, Result, with};
    use crate::bindings::charter::primitive::ledger::{Balance, Entry, Normal};

    pub(crate) fn open(account: &str, _normal: Normal, may_go_negative: bool) -> Result<()> {
        with(|state| {
            if may_go_negative && !state.bills {
                return Err(Failure::forbidden(
                    "only the primitive that bills opens an account that may go negative",
                )
                .into());
            }
            state.accounts.entry(account.into()).or_default().may_go_negative |= may_go_negative;
            Ok(())
        })
    }

    pub(crate) fn freeze(account: &str, frozen: bool) -> Result<()> {
        with(|state| match state.accounts.get_mut(account) {
            Some(account) => {
                account.frozen = frozen;
                Ok(())
            }
            None => Err(Failure::not_found("account").into()),
        })
    }

    pub(crate) fn balance_of(account: &str) -> Result<Balance> {
        if account.starts_with('@') {
            return Err(Failure::invalid("account", "another user's account is not read").into());
        }
        with(|state| match state.accounts.get(account) {
            Some(found) => Ok(Balance {
                posted: found.posted,
                pending_in: 0,
                pending_out: found.aside,
                available: found.posted - found.aside,
            }),
            None if account == "credit" => {
                Ok(Balance { posted: 0, pending_in: 0, pending_out: 0, available: 0 })
            }
            None => Err(Failure::not_found("account").into()),
        })
    }

    pub(crate) fn transfer(
        from: &str,
        to: &str,
        amount: i64,
        memo: &str,
        reference: &str,
    ) -> Result<String> {
        with(|state| {
            if from.starts_with('@') {
                return Err(Failure::invalid(
                    "account",
                    "money leaves another user's account by leave only",
                )
                .into());
            }
            state.accounts.get(from).ok_or_else(|| Failure::not_found("account"))?.give(amount)?;
            let id = state.next_id();
            state.post(&id, from, to, amount, memo, reference);
            Ok(id)
        })
    }

    pub(crate) fn entries(
        account: &str,
        after: Option<&str>,
        limit: u32,
    ) -> Result<(Vec<Entry>, Option<String>)> {
        with(|state| {
            let entries = state
                .accounts
                .get(account)
                .map(|account| account.entries.clone())
                .unwrap_or_default();
            let from: usize = after.and_then(|after| after.parse().ok()).unwrap_or(0);
            let page: Vec<Entry> =
                entries.iter().skip(from).take(limit as usize).cloned().collect();
            let next = from + page.len();
            Ok((page, (next < entries.len()).then(|| next.to_string())))
        })
    }
}
