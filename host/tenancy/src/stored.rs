//! Records within a host route: reading, writing and listing them, with the store's errors in the
//! words of the wire.

use charter_kernel::refusal::{Code, Refusal};
use charter_kernel::unit::{Claim, Key, Reach, Refused, Row};
use charter_store::{CommitError, Order, Query, ReadError, Txn, WriteError};

use crate::records::{Record, Unreadable};

/// Rows read at once where all of them are read.
const PAGE_ROWS: u32 = 200;

/// A record and its row's version.
#[derive(Debug)]
pub struct Versioned<R> {
    /// The record as it was read.
    pub record: R,
    /// 1 at insert, one more at each write.
    pub version: u64,
}

/// Reads a record; what was read is validated at the commit.
///
/// # Errors
/// When the store cannot be asked.
pub async fn get<R: Record>(txn: &mut Txn, key: &Key) -> Result<Option<Versioned<R>>, Refusal> {
    let row = txn.get(key).await.map_err(reading)?;
    row.map(|row| decode(&row)).transpose()
}

/// Reads the record that holds a claim.
///
/// # Errors
/// When the store cannot be asked.
pub async fn holder<R: Record>(
    txn: &mut Txn,
    claim: &Claim,
) -> Result<Option<Versioned<R>>, Refusal> {
    match txn.lookup(claim).await.map_err(reading)? {
        Some(key) => get(txn, &key).await,
        None => Ok(None),
    }
}

/// Inserts a record. `param` is the field to blame when one of its unique values is taken.
///
/// # Errors
/// `duplicate_record`, or when the store cannot be asked.
pub async fn insert<R: Record>(txn: &mut Txn, record: &R, param: &str) -> Result<u64, Refusal> {
    let draft = record.draft().map_err(unreadable)?;
    let row = txn.insert(record.key(), draft).await.map_err(|error| writing(error, param))?;
    Ok(row.version)
}

/// Replaces a record that was read.
///
/// # Errors
/// `duplicate_record`, or when the store cannot be asked.
pub async fn replace<R: Record>(txn: &mut Txn, record: &R, param: &str) -> Result<u64, Refusal> {
    let draft = record.draft().map_err(unreadable)?;
    let row =
        txn.replace(record.key(), draft, None).await.map_err(|error| writing(error, param))?;
    Ok(row.version)
}

/// Removes a record.
///
/// # Errors
/// When the store cannot be asked.
pub async fn remove<R: Record>(txn: &mut Txn, record: &R) -> Result<(), Refusal> {
    txn.remove(&record.key(), None).await.map(|_| ()).map_err(|error| writing(error, ""))
}

/// A page of records, oldest first, so that one inserted during a walk neither hides nor repeats
/// another; and whether there are more.
///
/// # Errors
/// When the store cannot be asked.
pub async fn list<R: Record>(
    txn: &mut Txn,
    reach: &Reach,
    matching: &[(&str, &str)],
    limit: u32,
    offset: u32,
) -> Result<(Vec<Versioned<R>>, bool), Refusal> {
    let mut query = Query::all(reach, &R::space()).limit(limit).relax();
    query.order = Order::Oldest;
    query.offset = offset;
    for (field, value) in matching {
        query = query.equal(field, *value);
    }
    let page = txn.find(&query).await.map_err(reading)?;
    let more = page.has_more();
    let records = page.items.iter().map(|(_, row)| decode(row)).collect::<Result<_, _>>()?;
    Ok((records, more))
}

/// How many records match; validated at the commit.
///
/// # Errors
/// When the store cannot be asked.
pub async fn count<R: Record>(
    txn: &mut Txn,
    reach: &Reach,
    matching: &[(&str, &str)],
) -> Result<u64, Refusal> {
    let mut query = Query::all(reach, &R::space());
    for (field, value) in matching {
        query = query.equal(field, *value);
    }
    txn.count(&query).await.map_err(reading)
}

/// All records of a collection of the deployment. One that this build cannot read is logged and
/// left out; `relaxed` leaves them out of the commit's validation.
///
/// # Errors
/// When the store cannot be read.
pub async fn all<R: Record>(txn: &mut Txn, relaxed: bool) -> Result<Vec<R>, ReadError> {
    let mut query = Query::all(&Reach::deployment(), &R::space()).limit(PAGE_ROWS);
    query.order = Order::Oldest;
    query.relaxed = relaxed;
    let mut found = Vec::new();
    loop {
        let page = txn.find(&query).await?;
        found.extend(page.items.iter().filter_map(|(_, row)| R::read(row).ok()));
        match page.next {
            Some(next) => query.after = Some(next),
            None => return Ok(found),
        }
    }
}

fn decode<R: Record>(row: &Row) -> Result<Versioned<R>, Refusal> {
    Ok(Versioned { record: R::read(row).map_err(unreadable)?, version: row.version })
}

/// A failed read in the words of the wire.
pub fn reading(error: ReadError) -> Refusal {
    match error {
        ReadError::Overloaded | ReadError::Unavailable(_) => Refusal::overloaded(1),
        error => {
            tracing::error!(error = &error as &dyn std::error::Error, "a host route cannot read");
            Refusal::internal()
        }
    }
}

fn writing(error: WriteError, param: &str) -> Refusal {
    match error {
        WriteError::Refused(Refused::ClaimLost { .. }) => {
            Refusal::duplicate(param, format!("Another one with this {param} exists."))
        }
        WriteError::Refused(Refused::Missing { .. }) => Refusal::not_found(),
        WriteError::Refused(Refused::Stale { current, .. }) => Refusal::version_conflict(current),
        WriteError::Refused(refused) => {
            tracing::error!(%refused, "a host route broke a rule of the store");
            Refusal::internal()
        }
        WriteError::Read(error) => reading(error),
    }
}

/// A write that only a fault of the host itself, or the store, can refuse.
pub fn breaking(error: WriteError) -> Refusal {
    writing(error, "")
}

/// A commit in the middle of a request that did not succeed, in the words of the wire. Nothing was
/// lost: a retry goes on from there.
pub fn committing(error: CommitError) -> Refusal {
    match error {
        CommitError::Overloaded { retry_after_s } => Refusal::overloaded(retry_after_s),
        CommitError::Rejected(_) | CommitError::ReadOnly { .. } => Refusal::overloaded(1),
        CommitError::Failed => Refusal::internal(),
    }
}

/// A unit that provably was not committed, and that nobody's rule refused.
pub fn commit_refusal(error: &CommitError) -> Refusal {
    match error {
        CommitError::Overloaded { retry_after_s } => Refusal::overloaded(*retry_after_s),
        CommitError::ReadOnly { reason } => {
            Refusal::new(Code::Overloaded, format!("Changes are not taken now: {reason}."))
                .retry_after(30)
                .reason("read_only")
        }
        CommitError::Rejected(_) | CommitError::Failed => {
            tracing::error!(%error, "a unit could not be committed");
            Refusal::internal()
        }
    }
}

/// A record that this build cannot read; the log says which.
pub fn unreadable(_: Unreadable) -> Refusal {
    Refusal::internal()
}

/// Random bits for a new id.
///
/// # Errors
/// When the operating system gives no randomness.
pub fn random() -> Result<[u8; 10], Refusal> {
    let mut bits = [0; 10];
    getrandom::fill(&mut bits).map_err(no_randomness)?;
    Ok(bits)
}

/// The operating system gave no randomness.
pub fn no_randomness(error: getrandom::Error) -> Refusal {
    tracing::error!(%error, "the operating system has no randomness");
    Refusal::internal()
}
