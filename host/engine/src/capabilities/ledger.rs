//! `ledger`: double-entry accounts of the caller's scope.
//!
//! An account is named within its primitive and lies with the user, else with the project or
//! organization; `credit` is the organization's own, `@<user>/<account>` another user's of the same
//! project. Money leaves `credit` and others' accounts by leave only. Only the primitive that the
//! operator has named as the one that bills opens sources, which money comes out of that never came
//! in, pays from them, and takes back to them what its provider gave back; that one's accounts are
//! the organization's.

use charter_kernel::governance::books::{self, Books};
use charter_kernel::governance::hold::{CREDIT, Pay, entries, entries_of};
use charter_kernel::id::UserId;
use charter_kernel::ledger::{Account, Normal as Side, Phase};
use charter_kernel::unit::{Guard, Key, Reach, Write};

use crate::bindings::charter::primitive::ledger::{Balance, Entry, Host, Normal};
use crate::bindings::charter::primitive::types::Failure;
use crate::failure::{failure, invalid, not_configured, not_found, unread};
use crate::state::{State, Work};

/// Entries of one page.
const PAGE_MAX: u32 = 200;

impl Work {
    /// The primitive's books, as this call sees them.
    pub(super) fn books(&self) -> Books<'_> {
        let primitive = &self.component.manifest.name;
        Books { primitive, bills: self.bills(), scope: &self.call.scope }
    }

    /// The key of a party of a payment, and the guards that must go on to hold if it is another
    /// user.
    async fn party(&mut self, name: &str) -> Result<(Key, Vec<Guard>), Failure> {
        let Some((user, account)) = books::another(name) else {
            return Ok((self.books().account(name)?, Vec::new()));
        };
        let host = self
            .shared
            .host()
            .ok_or_else(|| not_configured("other users' accounts", "the server's pipeline"))?;
        let user = UserId::parse(user).ok_or_else(|| not_found("user"))?;
        let guards = host.standing_of(&self.call.scope, &user).await?;
        Ok((self.books().own(&Reach::user(user.as_str()), account)?, guards))
    }

    /// The accounts that a proposal pays between. Another user's receiving account is opened.
    pub(super) async fn payment(
        &mut self,
        from: &str,
        to: &str,
    ) -> Result<(Key, Key, Vec<Guard>), Failure> {
        self.books().check_payer(from)?;
        let (debited, mut guards) = self.party(from).await?;
        let (credited, more) = self.party(to).await?;
        guards.extend(more);
        self.require_no_source(&debited).await?;
        Ok((debited, credited, guards))
    }

    /// No source pays, unless by the biller: what was open before it was named, or after, counts.
    async fn require_no_source(&self, from: &Key) -> Result<(), Failure> {
        if self.books().needs_source_check(from)
            && let Some(account) = self.find_account(from).await?
        {
            self.books().check_source(&account)?;
        }
        Ok(())
    }

    /// The account, if it is open.
    async fn find_account(&self, key: &Key) -> Result<Option<Account>, Failure> {
        let row = self.txn.get_relaxed(key).await.map_err(|error| unread(&error))?;
        Ok(row.map(|row| account(&row.body)).transpose()?)
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
        let key = work.books().account(&name)?;
        if key.id == CREDIT {
            return Ok(());
        }
        let side = if matches!(normal, Normal::Debit) { Side::Debit } else { Side::Credit };
        let account = Account::new(side, may_go_negative);
        work.books().check_source(&account)?;
        work.txn.write(account.open(&key));
        Ok(())
    }

    async fn freeze(&mut self, name: String, frozen: bool) -> Result<(), Failure> {
        self.hold(name.len())?;
        let work = self.mutation_of_money()?;
        let key = work.books().account(&name)?;
        work.books().check_billers(&key)?;
        if work.txn.get(&key).await.map_err(|error| unread(&error))?.is_none() {
            return Err(not_found("the account").into());
        }
        work.txn.write(Write::Freeze { account: key, frozen });
        Ok(())
    }

    async fn balance_of(&mut self, name: String) -> Result<Balance, Failure> {
        let work = self.work()?;
        let key = work.books().account(&name)?;
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
        let from = work.books().account(&from_account)?;
        let (to, guards) = work.party(&to_account).await?;
        let is_taken_back = from.id == CREDIT
            && work.books().may_take_back(&to)
            && work.find_account(&to).await?.is_some_and(|account| account.is_source());
        Books::check_leaves(&from, is_taken_back)?;
        work.require_no_source(&from).await?;
        books::check_amount(amount)?;
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
        let key = work.books().account(&name)?;
        work.books().check_billers(&key)?;
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
        let books = self.work()?.books();
        let entries = found.into_iter().map(|entry| {
            let told: serde_json::Value = serde_json::from_str(&entry.payload).unwrap_or_default();
            let text = |member: &str| told[member].as_str().unwrap_or_default().to_owned();
            let amount = told["amount_micro_usd"].as_i64().unwrap_or_default();
            let grows = (entry.name == "debit") == (normal == Side::Debit);
            Entry {
                id: text("transfer"),
                at: entry.at.0,
                amount: if grows { amount } else { -amount },
                counter_account: books.name_of(&text("counter_account")).to_owned(),
                memo: text("memo"),
                reference: text("reference"),
            }
        });
        Ok((entries.collect(), next))
    }
}

#[cfg(test)]
mod tests;
