//! Proves the books of a deployment: that they sum to zero, and that balances, holds and meters say
//! the same.
//!
//! Reads what is committed as of one moment and changes nothing, so that it may run beside a host
//! that spends meanwhile.

use std::collections::BTreeMap;

use charter_kernel::calendar::Slot;
use charter_kernel::governance::hold::{
    Counted, Hold, accounts_space, entries_of, meters_space, space,
};
use charter_kernel::governance::meter::Meter;
use charter_kernel::ledger::Account;
use charter_kernel::unit::{Key, Row, Space};
use charter_store::{ReadError, Snapshot, Store};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Rows of one read.
const PAGE: u32 = 1_000;

/// The counts of what was looked at, and the differences.
#[derive(Debug, Default)]
pub struct Report {
    /// Accounts.
    pub accounts: usize,
    /// Entries of their logs.
    pub entries: u64,
    /// Holds.
    pub holds: usize,
    /// Meters.
    pub meters: usize,
    /// Each difference, in words.
    pub faults: Vec<String>,
}

/// The sums that holds under way set aside, until what stands beside them is taken off.
#[derive(Default)]
struct Held {
    /// Of accounts.
    pending: BTreeMap<Key, i128>,
    /// Of meters, within the cap and beyond it.
    reserved: BTreeMap<(Key, Slot, bool), i128>,
}

/// Looks at all of it.
///
/// # Errors
/// When the store cannot be read.
pub async fn verify(store: &Store) -> Result<Report, ReadError> {
    let mut report = Report::default();
    let mut moment = store.snapshot().await?;
    let mut held = sum_holds(&mut moment, &mut report).await?;
    verify_meters(&mut moment, &mut report, &mut held).await?;
    verify_accounts(&mut moment, &mut report, &mut held).await?;
    Ok(report)
}

/// The sums of all holds under way.
async fn sum_holds(moment: &mut Snapshot, report: &mut Report) -> Result<Held, ReadError> {
    let mut held = Held::default();
    read_rows(moment, &space(), report, |report, key, hold: Hold| {
        report.holds += 1;
        if hold.state.is_over() {
            if hold.amount.is_some() && (hold.state.as_str() == "captured") != hold.actual.is_some()
            {
                report.faults.push(format!(
                    "the hold {} is {} and says otherwise",
                    key.id,
                    hold.state.as_str()
                ));
            }
            return;
        }
        if hold.reported {
            // Nothing is set aside for it.
            return;
        }
        for charge in hold.charges {
            let beyond = charge.unit == Counted::Money && charge.admission.is_beyond();
            *held.reserved.entry((charge.meter, charge.slot, beyond)).or_default() +=
                i128::from(charge.amount);
        }
        if let (Some(pay), Some(amount)) = (hold.pay, hold.amount) {
            *held.pending.entry(pay.from).or_default() += i128::from(amount);
            *held.pending.entry(pay.to).or_default() -= i128::from(amount);
        }
    })
    .await?;
    Ok(held)
}

/// Whether each meter reserves what its holds do, and each hold has its meter.
async fn verify_meters(
    moment: &mut Snapshot,
    report: &mut Report,
    held: &mut Held,
) -> Result<(), ReadError> {
    read_rows(moment, &meters_space(), report, |report, key, meter: Meter| {
        report.meters += 1;
        for (slot, count) in &meter.counts {
            for (beyond, stands) in [(false, count.reserved), (true, count.over_reserved)] {
                let held = held.reserved.remove(&(key.clone(), slot.clone(), beyond)).unwrap_or(0);
                if held != i128::from(stands) {
                    report.faults.push(format!(
                        "the meter {} of {} reserves {stands} in {}, and its holds {held}",
                        key.id,
                        key.reach.as_str(),
                        slot.as_str()
                    ));
                }
            }
        }
    })
    .await?;
    let left = std::mem::take(&mut held.reserved);
    for ((meter, slot, _), held) in left.into_iter().filter(|(_, held)| *held != 0) {
        let (id, reach) = (&meter.id, meter.reach.as_str());
        report.faults.push(format!(
            "holds reserve {held} in {} of the meter {id} of {reach}, which has none",
            slot.as_str()
        ));
    }
    Ok(())
}

/// Whether all accounts sum to zero, and each says what its holds and its entries do.
async fn verify_accounts(
    moment: &mut Snapshot,
    report: &mut Report,
    held: &mut Held,
) -> Result<(), ReadError> {
    let mut accounts = Vec::new();
    let mut sum = 0_i128;
    read_rows(moment, &accounts_space(), report, |report, key, account: Account| {
        report.accounts += 1;
        sum += i128::from(account.debits) - i128::from(account.credits);
        let stands = account.pending_debits - account.pending_credits;
        let held = held.pending.remove(&key).unwrap_or(0);
        if i128::from(stands) != held {
            let (id, reach) = (&key.id, key.reach.as_str());
            report.faults.push(format!(
                "the account {id} of {reach} sets {stands} aside, and its holds {held}"
            ));
        }
        accounts.push((key, account));
    })
    .await?;
    if sum != 0 {
        report.faults.push(format!("debits and credits differ by {sum}"));
    }
    for (key, account) in accounts {
        let (debits, credits) = sum_entries(moment, &key, report).await?;
        if (debits, credits) != (i128::from(account.debits), i128::from(account.credits)) {
            let (id, reach) = (&key.id, key.reach.as_str());
            report.faults.push(format!(
                "the account {id} of {reach} says {}/{}, its entries {debits}/{credits}",
                account.debits, account.credits
            ));
        }
    }
    Ok(())
}

/// The sums of an account's entries: debits and credits.
async fn sum_entries(
    moment: &mut Snapshot,
    account: &Key,
    report: &mut Report,
) -> Result<(i128, i128), ReadError> {
    let (mut debits, mut credits, mut after) = (0, 0, 0);
    loop {
        let page = moment.log_read(&entries_of(account), after, PAGE).await?;
        for entry in &page.entries {
            let told: Value = serde_json::from_str(&entry.payload).unwrap_or_default();
            let amount = i128::from(told["amount_micro_usd"].as_i64().unwrap_or(0));
            *(if entry.name == "debit" { &mut debits } else { &mut credits }) += amount;
            (after, report.entries) = (entry.sequence, report.entries + 1);
        }
        if !page.full {
            return Ok((debits, credits));
        }
    }
}

/// Every row of a space, decoded; one that cannot be is a fault.
async fn read_rows<T: DeserializeOwned>(
    moment: &mut Snapshot,
    space: &Space,
    report: &mut Report,
    mut look: impl FnMut(&mut Report, Key, T),
) -> Result<(), ReadError> {
    let mut after: Option<Key> = None;
    loop {
        let page: Vec<(Key, Row)> = moment.scan(space, after.as_ref(), PAGE).await?;
        let Some((last, _)) = page.last() else { return Ok(()) };
        after = Some(last.clone());
        for (key, row) in page {
            match serde_json::from_str(&row.body) {
                Ok(record) => look(report, key, record),
                Err(error) => report.faults.push(format!(
                    "{} {} cannot be read: {error}",
                    space.as_str(),
                    key.id
                )),
            }
        }
    }
}
