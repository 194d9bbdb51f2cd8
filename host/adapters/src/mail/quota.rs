//! How much is mailed: so many in an hour for one organization, and so many to one address, whoever
//! causes them.
//!
//! Counted in rows of the very commit that makes a mail, so that it holds across replicas and
//! restarts.

use charter_kernel::hex::sha256;
use charter_kernel::refusal::Refusal;
use charter_kernel::time::Instant;
use charter_store::Txn;
use charter_tenancy::records::Record as _;
use charter_tenancy::records::account::normalize;
use charter_tenancy::records::mail::Quota;
use charter_tenancy::stored;

use crate::Adapters;

/// The window.
pub const HOUR_MS: i64 = 3_600_000;

/// Counts one mail to this address for this organization, if both admit it; `None` counts the
/// address alone.
///
/// # Errors
/// When the store cannot be asked.
pub async fn admit(
    adapters: &Adapters,
    txn: &mut Txn,
    organization: Option<&str>,
    to: &str,
    now: Instant,
) -> Result<bool, Refusal> {
    let limits = &adapters.settings.mail;
    let recipient = recipient(to);
    let mut counts = vec![(count(txn, None, &recipient, now).await?, limits.recipient_per_hour)];
    if let Some(organization) = organization {
        counts.push((
            count(txn, Some(organization), "organization", now).await?,
            limits.organization_per_hour,
        ));
    }
    if counts.iter().any(|(quota, max)| quota.count >= *max) {
        return Ok(false);
    }
    for (quota, _) in counts {
        put(txn, Quota { count: quota.count + 1, ..quota }).await?;
    }
    Ok(true)
}

/// Until when a person is told nothing more than the one summary, where that was not said within
/// this hour; `None` where it was.
///
/// # Errors
/// When the store cannot be asked.
pub async fn summary(
    txn: &mut Txn,
    organization: &str,
    account: &str,
    now: Instant,
) -> Result<Option<Instant>, Refusal> {
    let quota = count(txn, Some(organization), &format!("summary:{account}"), now).await?;
    if quota.count > 0 {
        return Ok(None);
    }
    let until = quota.began_at.plus_ms(HOUR_MS);
    put(txn, Quota { count: 1, ..quota }).await?;
    Ok(Some(until))
}

/// Names nobody: a digest.
fn recipient(to: &str) -> String {
    format!("recipient:{}", sha256(&normalize(to)))
}

/// The count of the hour of now; zero where another hour has begun.
async fn count(
    txn: &mut Txn,
    organization: Option<&str>,
    id: &str,
    now: Instant,
) -> Result<Quota, Refusal> {
    let found = stored::get::<Quota>(txn, &Quota::address(organization, id))
        .await?
        .map(|found| found.record);
    // An hour that began ahead of now began by a clock that was set back since.
    let current =
        found.filter(|quota| quota.began_at <= now && now < quota.began_at.plus_ms(HOUR_MS));
    Ok(current.unwrap_or_else(|| Quota {
        id: id.to_owned(),
        organization: organization.map(str::to_owned),
        began_at: now,
        count: 0,
        expires_at: now.plus_ms(2 * HOUR_MS),
    }))
}

async fn put(txn: &mut Txn, quota: Quota) -> Result<(), Refusal> {
    let draft = quota.draft().map_err(stored::unreadable)?;
    txn.put(quota.key(), draft).await.map_err(stored::breaking)?;
    Ok(())
}
