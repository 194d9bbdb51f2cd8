//! `ledger`: double-entry accounts of the caller's scope.
//!
//! An account is named within its primitive and lies with the user, else with the project or
//! organization; `credit` is the organization's own, `@<user>/<account>` another user's of the same
//! project. Money leaves `credit` and others' accounts by leave only, and comes into `credit` only
//! from accounts that cannot be overdrawn. Only the primitive that the operator has named as the
//! one that bills opens one that can be, brings money from it, and takes back to it what its
//! provider gave back; that one's accounts are the organization's.

use charter_kernel::governance::hold::{CREDIT, Pay, accounts_space, entries, entries_of};
use charter_kernel::id::UserId;
use charter_kernel::ledger::{Account, Normal as Side, Phase};
use charter_kernel::money::AMOUNT_MAX;
use charter_kernel::refusal::Failure as Refusal;
use charter_kernel::unit::{Guard, Key, Reach, Write};

use crate::bindings::charter::primitive::ledger::{Balance, Entry, Host, Normal};
use crate::bindings::charter::primitive::types::Failure;
use crate::failure::{failure, invalid, not_configured, not_found, unread};
use crate::state::{State, Work};

/// Bytes of an account's name.
const NAME_BYTES_MAX: usize = 200;
/// The first character in the name of another user's account.
const ANOTHERS: char = '@';
/// Entries of one page.
const PAGE_MAX: u32 = 200;

impl Work {
    /// The key of an account of the caller's.
    fn account(&self, name: &str) -> Result<Key, Failure> {
        let scope = &self.call.scope;
        if name == CREDIT {
            return Ok(Key::new(&Reach::organization(scope.lane()), &accounts_space(), CREDIT));
        }
        if name.starts_with(ANOTHERS) {
            return Err(
                invalid("account", "another user's account is neither opened nor read").into()
            );
        }
        let reach =
            if self.bills() { Reach::organization(scope.lane()) } else { scope.narrowest() };
        self.own_account(&reach, name)
    }

    fn own_account(&self, reach: &Reach, name: &str) -> Result<Key, Failure> {
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            return Err(invalid(
                "account",
                format!("an account's name has 1 to {NAME_BYTES_MAX} bytes"),
            )
            .into());
        }
        Ok(Key::new(reach, &accounts_space(), format!("{}.{name}", self.component.manifest.name)))
    }

    /// The key of a party of a payment, and the guards that must go on to hold if it is another
    /// user.
    async fn party(&mut self, name: &str) -> Result<(Key, Vec<Guard>), Failure> {
        let Some((user, account)) =
            name.strip_prefix(ANOTHERS).and_then(|rest| rest.split_once('/'))
        else {
            return Ok((self.account(name)?, Vec::new()));
        };
        let host = self
            .shared
            .host()
            .ok_or_else(|| not_configured("other users' accounts", "the server's pipeline"))?;
        let user = UserId::parse(user).ok_or_else(|| not_found("user"))?;
        let guards = host.standing_of(&self.call.scope, &user).await?;
        Ok((self.own_account(&Reach::user(user.as_str()), account)?, guards))
    }

    /// The accounts that a proposal pays between. Another user's receiving account is opened.
    pub(super) async fn payment(
        &mut self,
        from: &str,
        to: &str,
    ) -> Result<(Key, Key, Vec<Guard>), Failure> {
        if from.starts_with(ANOTHERS) && self.call.scope.principal().is_pinned_to_user() {
            let told = "a credential that is pinned to one user takes nothing from another";
            return Err(Refusal {
                reason: Some("pinned_to_user".into()),
                ..failure("forbidden", told)
            }
            .into());
        }
        let (debited, mut guards) = self.party(from).await?;
        let (credited, more) = self.party(to).await?;
        guards.extend(more);
        self.require_cover(&debited, &credited).await?;
        Ok((debited, credited, guards))
    }

    /// The organization's `credit` is everybody's to be paid from and to look at what it has; to
    /// stop it, to read what others moved on it, and to report what has left it, is the biller's.
    pub(super) fn is_billers(&self, account: &Key) -> Result<(), Failure> {
        if account.id != CREDIT || self.bills() {
            return Ok(());
        }
        let told = "only the primitive that bills freezes `credit`, reads its entries, or reports what has left it";
        Err(failure("forbidden", told).into())
    }

    /// Whether the primitive has named the account.
    fn is_own(&self, account: &Key) -> bool {
        account.id.starts_with(&format!("{}.", self.component.manifest.name))
    }

    /// Money that a provider has told of moves between accounts of its primitive's own: it overdraws
    /// them, and brings nothing to others that was never there. The biller alone says what came in.
    pub(super) fn keeps_what_is_told(&self, to: &Key) -> Result<(), Failure> {
        let here = to.reach == self.call.scope.narrowest();
        if self.is_own(to) && here || self.bills() {
            return Ok(());
        }
        let told =
            "what is reported is paid to an account of the primitive's own, where it is told";
        Err(failure("forbidden", told).into())
    }

    /// Nothing that could be overdrawn pays into `credit`, unless by the biller: what was open
    /// before it was named, or after, counts.
    async fn require_cover(&self, from: &Key, to: &Key) -> Result<(), Failure> {
        if to.id != CREDIT || self.bills() {
            return Ok(());
        }
        let row = self.txn.get_relaxed(from).await.map_err(|error| unread(&error))?;
        let account = row.map(|row| account(&row.body)).transpose()?;
        match account.filter(|account| account.may_go_negative) {
            Some(_) => Err(invalid(
                "to_account",
                "`credit` takes nothing from an account that may go negative",
            )
            .into()),
            None => Ok(()),
        }
    }

    /// Whether what leaves `credit` goes back to where the biller brought it from: an account of
    /// its own that may go negative.
    async fn takes_back(&self, to: &Key) -> Result<bool, Failure> {
        if !self.bills() || !self.is_own(to) {
            return Ok(false);
        }
        let row = self.txn.get_relaxed(to).await.map_err(|error| unread(&error))?;
        let account = row.map(|row| account(&row.body)).transpose()?;
        Ok(account.is_some_and(|account| account.may_go_negative))
    }

    async fn read(&mut self, key: &Key) -> Result<Account, Failure> {
        // Locked first: what is taken while the row is read would count in neither.
        let untaken = self.story.marks.untaken.lock().await;
        let row = self.txn.get_relaxed(key).await.map_err(|error| unread(&error))?;
        let paid: Vec<(&Pay, i64)> = untaken
            .iter()
            .filter_map(|untaken| untaken.hold.pay.as_ref().zip(untaken.hold.amount))
            .collect();
        let mut account = match row {
            Some(row) => account(&row.body)?,
            // Before anybody has funded it.
            None if key.id == CREDIT || paid.iter().any(|(pay, _)| pay.to == *key) => {
                Account::credit()
            }
            None => return Err(not_found("the account").into()),
        };
        // Payments that the request has leave for count, taken or not.
        for (pay, amount) in paid {
            if pay.from == *key {
                account.pending_debits = account.pending_debits.saturating_add(amount);
            }
            if pay.to == *key {
                account.pending_credits = account.pending_credits.saturating_add(amount);
            }
        }
        Ok(account)
    }

    /// The name by which the caller knows an account.
    fn name_of(&self, id: &str) -> String {
        id.strip_prefix(&format!("{}.", self.component.manifest.name)).unwrap_or(id).to_owned()
    }
}

fn account(body: &str) -> Result<Account, charter_kernel::refusal::Failure> {
    serde_json::from_str(body).map_err(|_| failure("internal_error", "the account cannot be read"))
}

impl Host for State {
    async fn open(
        &mut self,
        name: String,
        normal: Normal,
        may_go_negative: bool,
    ) -> Result<(), Failure> {
        self.hold(name.len())?;
        let work = self.mutation()?;
        let key = work.account(&name)?;
        if key.id == CREDIT {
            return Ok(());
        }
        if may_go_negative && !work.bills() {
            let told = "only the primitive that bills opens an account that may go negative";
            return Err(failure("forbidden", told).into());
        }
        let side = if matches!(normal, Normal::Debit) { Side::Debit } else { Side::Credit };
        work.txn.write(Account::new(side, may_go_negative).open(&key));
        Ok(())
    }

    async fn freeze(&mut self, name: String, frozen: bool) -> Result<(), Failure> {
        self.hold(name.len())?;
        let work = self.mutation_of_money()?;
        let key = work.account(&name)?;
        work.is_billers(&key)?;
        if work.txn.get(&key).await.map_err(|error| unread(&error))?.is_none() {
            return Err(not_found("the account").into());
        }
        work.txn.write(Write::Freeze { account: key, frozen });
        Ok(())
    }

    async fn balance_of(&mut self, name: String) -> Result<Balance, Failure> {
        let work = self.work()?;
        let key = work.account(&name)?;
        let balance = work.read(&key).await?.balance();
        Ok(Balance {
            posted: balance.posted,
            pending_in: balance.pending_in,
            pending_out: balance.pending_out,
            available: balance.available,
        })
    }

    async fn transfer(
        &mut self,
        from_account: String,
        to_account: String,
        amount: i64,
        memo: String,
        reference: String,
    ) -> Result<String, Failure> {
        // Both sides' entries say them.
        let accounts = from_account.len() + to_account.len();
        self.hold(accounts + 2 * (memo.len() + reference.len()))?;
        let work = self.mutation_of_money()?;
        let from = work.account(&from_account)?;
        let (to, guards) = work.party(&to_account).await?;
        if from.id == CREDIT && !work.takes_back(&to).await? {
            return Err(invalid(
                "from_account",
                "money leaves `credit` by leave only: name it as `pay` of a proposal",
            )
            .into());
        }
        work.require_cover(&from, &to).await?;
        if !(0..=AMOUNT_MAX).contains(&amount) {
            return Err(invalid(
                "amount",
                format!("an amount is 0 to {AMOUNT_MAX} micro-US-dollars"),
            )
            .into());
        }
        let id = work.fresh_id()?;
        if to.id == CREDIT || to.reach != from.reach {
            work.txn.write(Account::credit().open(&to));
        }
        for guard in guards {
            work.txn.guard(guard);
        }
        work.txn.write(Write::Transfer {
            from: from.clone(),
            to: to.clone(),
            amount,
            phase: Phase::Post,
        });
        for entry in entries(&Pay { from, to, memo }, amount, &id, &reference) {
            work.txn.write(entry);
        }
        Ok(id)
    }

    async fn entries(
        &mut self,
        name: String,
        after: Option<String>,
        limit: u32,
    ) -> Result<(Vec<Entry>, Option<String>), Failure> {
        self.make_room()?;
        let work = self.work()?;
        let key = work.account(&name)?;
        work.is_billers(&key)?;
        let after: u64 = match after {
            Some(text) => text
                .parse()
                .map_err(|_| invalid("after", "this position does not belong to this account"))?,
            None => 0,
        };
        let limit = limit.clamp(1, PAGE_MAX);
        let normal = work.read(&key).await?.normal;
        let page = work
            .txn
            .log_read(&entries_of(&key), after, limit + 1)
            .await
            .map_err(|error| unread(&error))?;
        let mut found = page.entries;
        found.truncate(limit as usize);
        let next = found.last().filter(|_| page.full).map(|entry| entry.sequence.to_string());
        self.hold(found.iter().map(|entry| entry.payload.len()).sum())?;
        let work = self.work()?;
        let entries = found.into_iter().map(|entry| {
            let told: serde_json::Value = serde_json::from_str(&entry.payload).unwrap_or_default();
            let text = |member: &str| told[member].as_str().unwrap_or_default().to_owned();
            let amount = told["amount_micro_usd"].as_i64().unwrap_or_default();
            let grows = (entry.name == "debit") == (normal == Side::Debit);
            Entry {
                id: text("transfer"),
                at: entry.at.0,
                amount: if grows { amount } else { -amount },
                counter_account: work.name_of(&text("counter_account")),
                memo: text("memo"),
                reference: text("reference"),
            }
        });
        Ok((entries.collect(), next))
    }
}

#[cfg(test)]
mod tests;
