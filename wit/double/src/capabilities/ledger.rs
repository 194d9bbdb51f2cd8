//! `ledger`: accounts and transfers by the kernel's rules.
//!
//! Money leaves `credit` and others' accounts by leave only; only the primitive that bills opens an
//! account that may go negative.

use charter_kernel::governance::books::{self, Books};
use charter_kernel::governance::hold::{CREDIT, Pay, entries, entries_of};
use charter_kernel::ledger::{Account, Normal as Side, Phase};
use charter_kernel::refusal::Failure;
use charter_kernel::unit::{Key, Reach, Write};
use charter_sdk::bindings::charter::primitive::ledger::{Balance, Entry, Normal};
use charter_sdk::native::{Answer, Ledger};
use serde_json::Value;

use crate::call::Work;
use crate::world::{Double, World};

/// Entries of one page.
const PAGE_MAX: u32 = 200;

impl Work {
    /// The primitive's books, as this call sees them.
    pub(super) fn books<'a>(&'a self, world: &'a World) -> Books<'a> {
        Books { primitive: world.name(), bills: world.bills, scope: &self.call.scope }
    }

    /// The key of a party of a payment.
    fn party(&self, world: &World, name: &str) -> Result<Key, Failure> {
        let books = self.books(world);
        match books::another(name) {
            None => books.account(name),
            Some((user, account)) if world.users.contains(user) => {
                books.own(&Reach::user(user), account)
            }
            Some(_) => Err(Failure::not_found("user")),
        }
    }

    /// The accounts that a proposal pays between.
    pub(super) fn payment(
        &self,
        world: &World,
        from: &str,
        to: &str,
    ) -> Result<(Key, Key), Failure> {
        self.books(world).check_payer(from)?;
        let (debited, credited) = (self.party(world, from)?, self.party(world, to)?);
        self.require_no_source(world, &debited)?;
        Ok((debited, credited))
    }

    /// No source pays, unless by the biller.
    fn require_no_source(&self, world: &World, from: &Key) -> Result<(), Failure> {
        let books = self.books(world);
        let looks =
            books.needs_source_check(from).then(|| self.find_account(world, from)).flatten();
        looks.map_or(Ok(()), |account| books.check_source(&account))
    }

    fn find_account(&self, world: &World, key: &Key) -> Option<Account> {
        self.txn.get_relaxed(&world.rows, key).and_then(|row| read(&row.body).ok())
    }

    fn known_account(&self, world: &World, key: &Key) -> Result<Account, Failure> {
        match self.txn.get_relaxed(&world.rows, key) {
            Some(row) => read(&row.body),
            None if key.id == CREDIT => Ok(Account::credit()),
            None => Err(Failure::not_found("the account")),
        }
    }
}

fn read(body: &str) -> Result<Account, Failure> {
    serde_json::from_str(body)
        .map_err(|_| Failure::new("internal_error", "the account cannot be read"))
}

impl Ledger for Double {
    fn open(&self, account: &str, normal: Normal, may_go_negative: bool) -> Answer<()> {
        self.changing("ledger", |world, work| {
            let key = work.books(world).account(account)?;
            if key.id == CREDIT {
                return Ok(());
            }
            let side = if normal == Normal::Debit { Side::Debit } else { Side::Credit };
            let account = Account::new(side, may_go_negative);
            work.books(world).check_source(&account)?;
            work.txn.write(account.open(&key));
            Ok(())
        })
    }

    fn freeze(&self, account: &str, frozen: bool) -> Answer<()> {
        self.changing("ledger", |world, work| {
            let key = work.books(world).account(account)?;
            work.books(world).check_billers(&key)?;
            if work.txn.get(&world.rows, &key).is_none() {
                return Err(Failure::not_found("the account"));
            }
            work.txn.write(Write::Freeze { account: key, frozen });
            Ok(())
        })
    }

    fn balance_of(&self, account: &str) -> Answer<Balance> {
        self.reading("ledger", |world, work| {
            let key = work.books(world).account(account)?;
            let balance = work.known_account(world, &key)?.balance();
            Ok(Balance {
                posted: balance.posted,
                pending_in: balance.pending_in,
                pending_out: balance.pending_out,
                available: balance.available,
            })
        })
    }

    fn transfer(
        &self,
        from: &str,
        to: &str,
        amount: i64,
        memo: &str,
        reference: &str,
    ) -> Answer<String> {
        self.changing("ledger", |world, work| {
            let (from, to) = (work.books(world).account(from)?, work.party(world, to)?);
            let is_taken_back = work.books(world).may_take_back(&to)
                && work.find_account(world, &to).is_some_and(|account| account.is_source());
            Books::check_leaves(&from, is_taken_back)?;
            work.require_no_source(world, &from)?;
            books::check_amount(amount)?;
            let id = world.fresh_id();
            if to.id == CREDIT || to.reach != from.reach {
                work.txn.write(Account::credit().open(&to));
            }
            let (debited, credited) = (from.clone(), to.clone());
            let phase = Phase::Post;
            work.txn.write(Write::Transfer { from: debited, to: credited, amount, phase });
            let pay = Pay { from, to, memo: memo.to_owned() };
            entries(&pay, amount, &id, reference)
                .into_iter()
                .for_each(|entry| work.txn.write(entry));
            Ok(id)
        })
    }

    fn entries(
        &self,
        account: &str,
        after: Option<&str>,
        limit: u32,
    ) -> Answer<(Vec<Entry>, Option<String>)> {
        self.reading("ledger", |world, work| {
            let key = work.books(world).account(account)?;
            work.books(world).check_billers(&key)?;
            let after: u64 = after.map_or(Ok(0), str::parse).map_err(|_| {
                Failure::invalid("after", "this position does not belong to this account")
            })?;
            let limit = limit.clamp(1, PAGE_MAX) as usize;
            let normal = work.known_account(world, &key)?.normal;
            let log = entries_of(&key);
            let found: Vec<_> = world.rows.entries(&log, after).take(limit + 1).collect();
            let page = &found[..found.len().min(limit)];
            let next = page.last().filter(|_| found.len() > limit);
            let books = work.books(world);
            let entry = |entry: &&charter_kernel::apply::NewEntry| {
                let told: Value = serde_json::from_str(&entry.payload).unwrap_or_default();
                let text = |member: &str| told[member].as_str().unwrap_or_default().to_owned();
                let amount = told["amount_micro_usd"].as_i64().unwrap_or_default();
                let grows = (entry.name == "debit") == (normal == Side::Debit);
                let counter = text("counter_account");
                Entry {
                    id: text("transfer"),
                    at: entry.at.0,
                    amount: if grows { amount } else { -amount },
                    counter_account: books.name_of(&counter).to_owned(),
                    memo: text("memo"),
                    reference: text("reference"),
                }
            };
            Ok((page.iter().map(entry).collect(), next.map(|entry| entry.sequence.to_string())))
        })
    }
}
