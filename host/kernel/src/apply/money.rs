//! Rows of meters and accounts after a reservation, a tally or a transfer.
//!
//! The rules are [`crate::meter`]'s and [`crate::ledger`]'s; this is their way into
//! rows and out.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::calendar::Slot;
use crate::ledger::{self, Account, Phase};
use crate::meter::{self, Admission, Meter, Tally, Told};
use crate::unit::{Key, Refused};

/// The meter's new body, which is its first one where it has none before.
pub(super) fn open(
    key: &Key,
    before: Option<&str>,
    slot: &Slot,
    (spent, since): (i64, Option<Told>),
) -> Result<String, Refused> {
    let mut row = match before {
        Some(body) => read(key, body)?,
        None => Meter::begin(None),
    };
    row.open(slot, spent, since).map_err(|_| Refused::Moved { meter: key.clone() })?;
    encode(key, &row)
}

/// The meter's new body.
pub(super) fn reserve(
    key: &Key,
    body: &str,
    slot: &Slot,
    amount: i64,
    admission: Admission,
) -> Result<String, Refused> {
    let mut row: Meter = read(key, body)?;
    row.reserve(slot, amount, admission).map_err(|denied| match denied {
        meter::Denied::Frozen => Refused::Frozen { key: key.clone() },
        meter::Denied::Moved => Refused::Moved { meter: key.clone() },
        meter::Denied::Over(count) => {
            Refused::OverCap { meter: key.clone(), count, cap: admission.most() }
        }
    })?;
    encode(key, &row)
}

/// The meter's new body.
pub(super) fn tally(key: &Key, body: &str, slot: &Slot, tally: Tally) -> Result<String, Refused> {
    let mut row: Meter = read(key, body)?;
    row.tally(slot, tally);
    encode(key, &row)
}

/// Both accounts' new bodies: the debited one's and the credited one's.
pub(super) fn transfer(
    (from, to): (&Key, &Key),
    (debited, credited): (&str, &str),
    amount: i64,
    phase: Phase,
) -> Result<(String, String), Refused> {
    if from == to {
        return Err(Refused::NotAddable { key: from.clone(), field: "account".into() });
    }
    let (mut debited, mut credited): (Account, Account) =
        (read(from, debited)?, read(to, credited)?);
    ledger::transfer(&mut debited, &mut credited, amount, phase).map_err(
        |denied| match denied {
            ledger::Denied::Overdrawn { debited, available } => {
                Refused::Overdrawn { account: if debited { from } else { to }.clone(), available }
            }
            ledger::Denied::Frozen { debited } => {
                Refused::Frozen { key: if debited { from } else { to }.clone() }
            }
            ledger::Denied::OutOfRange => {
                Refused::NotAddable { key: from.clone(), field: "amount".into() }
            }
        },
    )?;
    Ok((encode(from, &debited)?, encode(to, &credited)?))
}

/// The account's new body.
pub(super) fn freeze(key: &Key, account: &str, frozen: bool) -> Result<String, Refused> {
    let account: Account = read(key, account)?;
    encode(key, &Account { frozen, ..account })
}

/// A row that holds something else is a fault of this build, and refuses like a sum that cannot be
/// made.
fn read<T: DeserializeOwned>(key: &Key, body: &str) -> Result<T, Refused> {
    serde_json::from_str(body)
        .map_err(|_| Refused::NotAddable { key: key.clone(), field: "body".into() })
}

fn encode<T: Serialize>(key: &Key, row: &T) -> Result<String, Refused> {
    serde_json::to_string(row)
        .map_err(|_| Refused::NotAddable { key: key.clone(), field: "body".into() })
}
