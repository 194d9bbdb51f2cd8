//! `ledger`: accounts and transfers by the kernel's rules.
//!
//! Money leaves `credit` and others' accounts by leave only; only the primitive that bills opens an
//! account that may go negative.

use charter_kernel::governance::hold::{CREDIT, Pay, accounts_space, entries, entries_of};
use charter_kernel::ledger::{Account, Normal as Side, Phase};
use charter_kernel::money::AMOUNT_MAX;
use charter_kernel::refusal::Failure;
use charter_kernel::unit::{Key, Reach, Write};
use charter_sdk::bindings::charter::primitive::ledger::{Balance, Entry, Normal};
use charter_sdk::native::{Answer, Ledger};
use serde_json::Value;

use crate::call::Work;
use crate::world::{Double, World};

/// Bytes of an account's name.
const NAME_BYTES_MAX: usize = 200;
/// The first character in the name of another user's account.
const ANOTHERS: char = '@';
/// Entries of one page.
const PAGE_MAX: u32 = 200;

impl Work {
    /// The key of an account of the caller's.
    fn account(&self, world: &World, name: &str) -> Result<Key, Failure> {
        let organization = Reach::organization(self.call.scope.lane());
        if name == CREDIT {
            return Ok(Key::new(&organization, &accounts_space(), CREDIT));
        }
        if name.starts_with(ANOTHERS) {
            let told = "another user's account is neither opened nor read";
            return Err(Failure::invalid("account", told));
        }
        let reach = if world.bills { organization } else { self.call.scope.narrowest() };
        own_account(world, &reach, name)
    }

    /// The key of a party of a payment.
    fn party(&self, world: &World, name: &str) -> Result<Key, Failure> {
        let another = name.strip_prefix(ANOTHERS).and_then(|rest| rest.split_once('/'));
        let Some((user, account)) = another else { return self.account(world, name) };
        match world.users.contains(user) {
            true => own_account(world, &Reach::user(user), account),
            false => Err(Failure::not_found("user")),
        }
    }

    /// The accounts that a proposal pays between.
    pub(super) fn payment(
        &self,
        world: &World,
        from: &str,
        to: &str,
    ) -> Result<(Key, Key), Failure> {
        if from.starts_with(ANOTHERS) && self.call.scope.principal().is_pinned_to_user() {
            let told = "a credential that is pinned to one user takes nothing from another";
            return Err(Failure {
                reason: Some("pinned_to_user".into()),
                ..Failure::new("forbidden", told)
            });
        }
        let (debited, credited) = (self.party(world, from)?, self.party(world, to)?);
        self.require_cover(world, &debited, &credited)?;
        Ok((debited, credited))
    }

    /// Nothing that could be overdrawn pays into `credit`, unless by the biller.
    fn require_cover(&self, world: &World, from: &Key, to: &Key) -> Result<(), Failure> {
        if to.id != CREDIT || world.bills || !self.may_go_negative(world, from) {
            return Ok(());
        }
        let told = "`credit` takes nothing from an account that may go negative";
        Err(Failure::invalid("to_account", told))
    }

    /// Money that a provider has told of moves between accounts of its primitive's own.
    pub(super) fn keeps_what_is_told(&self, world: &World, to: &Key) -> Result<(), Failure> {
        let own = to.id.starts_with(&format!("{}.", world.installed.manifest.name));
        if own && to.reach == self.call.scope.narrowest() || world.bills {
            return Ok(());
        }
        let told =
            "what is reported is paid to an account of the primitive's own, where it is told";
        Err(Failure::new("forbidden", told))
    }

    fn may_go_negative(&self, world: &World, key: &Key) -> bool {
        let row = self.txn.get_relaxed(&world.rows, key);
        row.and_then(|row| read(&row.body).ok()).is_some_and(|account| account.may_go_negative)
    }

    pub(super) fn of_biller(&self, world: &World, account: &Key) -> Result<(), Failure> {
        if account.id != CREDIT || world.bills {
            return Ok(());
        }
        let told = "only the primitive that bills freezes `credit`, reads its entries, or reports what has left it";
        Err(Failure::new("forbidden", told))
    }

    fn known_account(&self, world: &World, key: &Key) -> Result<Account, Failure> {
        match self.txn.get_relaxed(&world.rows, key) {
            Some(row) => read(&row.body),
            None if key.id == CREDIT => Ok(Account::credit()),
            None => Err(Failure::not_found("the account")),
        }
    }
}

fn own_account(world: &World, reach: &Reach, name: &str) -> Result<Key, Failure> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        let told = format!("an account's name has 1 to {NAME_BYTES_MAX} bytes");
        return Err(Failure::invalid("account", told));
    }
    Ok(Key::new(reach, &accounts_space(), format!("{}.{name}", world.name())))
}

fn read(body: &str) -> Result<Account, Failure> {
    serde_json::from_str(body)
        .map_err(|_| Failure::new("internal_error", "the account cannot be read"))
}

impl Ledger for Double {
    fn open(&self, account: &str, normal: Normal, may_go_negative: bool) -> Answer<()> {
        self.changing("ledger", |world, work| {
            let key = work.account(world, account)?;
            if key.id == CREDIT {
                return Ok(());
            }
            if may_go_negative && !world.bills {
                let told = "only the primitive that bills opens an account that may go negative";
                return Err(Failure::new("forbidden", told));
            }
            let side = if normal == Normal::Debit { Side::Debit } else { Side::Credit };
            work.txn.write(Account::new(side, may_go_negative).open(&key));
            Ok(())
        })
    }

    fn freeze(&self, account: &str, frozen: bool) -> Answer<()> {
        self.changing("ledger", |world, work| {
            let key = work.account(world, account)?;
            work.of_biller(world, &key)?;
            if work.txn.get(&world.rows, &key).is_none() {
                return Err(Failure::not_found("the account"));
            }
            work.txn.write(Write::Freeze { account: key, frozen });
            Ok(())
        })
    }

    fn balance_of(&self, account: &str) -> Answer<Balance> {
        self.reading("ledger", |world, work| {
            let key = work.account(world, account)?;
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
            let (from, to) = (work.account(world, from)?, work.party(world, to)?);
            let is_taken_back = world.bills
                && to.id.starts_with(&format!("{}.", world.name()))
                && work.may_go_negative(world, &to);
            if from.id == CREDIT && !is_taken_back {
                let told = "money leaves `credit` by leave only: name it as `pay` of a proposal";
                return Err(Failure::invalid("from_account", told));
            }
            work.require_cover(world, &from, &to)?;
            if !(0..=AMOUNT_MAX).contains(&amount) {
                let told = format!("an amount is 0 to {AMOUNT_MAX} micro-US-dollars");
                return Err(Failure::invalid("amount", told));
            }
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
            let key = work.account(world, account)?;
            work.of_biller(world, &key)?;
            let after: u64 = after.map_or(Ok(0), str::parse).map_err(|_| {
                Failure::invalid("after", "this position does not belong to this account")
            })?;
            let limit = limit.clamp(1, PAGE_MAX) as usize;
            let normal = work.known_account(world, &key)?.normal;
            let log = entries_of(&key);
            let found: Vec<_> = world.rows.entries(&log, after).take(limit + 1).collect();
            let page = &found[..found.len().min(limit)];
            let next = page.last().filter(|_| found.len() > limit);
            let own = format!("{}.", world.name());
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
                    counter_account: counter.strip_prefix(&own).unwrap_or(&counter).to_owned(),
                    memo: text("memo"),
                    reference: text("reference"),
                }
            };
            Ok((page.iter().map(entry).collect(), next.map(|entry| entry.sequence.to_string())))
        })
    }
}
