//! How much is mailed: so many in an hour for one organization, and so many to one address.
//!
//! The links that somebody asks for at the address itself have a count of their own, from which no
//! organization takes. Organizations share another of the same size: one of them takes half of it,
//! invitations take half of it, and the invitations of one take half of that one's half. So nobody's
//! organization and no agent keeps a person's way in from being mailed, and no invitations of others
//! keep the approvals of the own organization from it. Of what an organization has, for one address and
//! in all, nobody's approvals take more than they leave free, those of one key for several users together no
//! more than twice and those of one project no more than three times as much, and those of whoever does not
//! govern leave a quarter. So no agent, however many users it names, keeps the approvals of others from being
//! mailed.
//!
//! Counted in rows of the very commit that makes a mail, so that it holds across replicas and
//! restarts.

use charter_kernel::hex::sha256;
use charter_kernel::refusal::Refusal;
use charter_kernel::scope::Asker;
use charter_kernel::share;
use charter_kernel::time::Instant;
use charter_store::Txn;
use charter_tenancy::records::Record as _;
use charter_tenancy::records::account::normalize;
use charter_tenancy::records::mail::Quota;
use charter_tenancy::stored;

use crate::settings::Mail;

/// The window.
pub const HOUR_MS: i64 = 3_600_000;

/// The origin of a mail, by which it is counted.
#[derive(Clone, Copy, Debug)]
pub enum Source<'a> {
    /// Somebody asks at the address itself: for a link that signs in, sets a password or proves the
    /// address.
    Asker,
    /// An approval waits.
    Approval {
        /// The organization that owns it.
        organization: &'a str,
        /// The one who asks, as it counts among those of the organization.
        by: &'a Asker,
    },
    /// This organization invites.
    Invitation(&'a str),
}

/// One count that a mail takes from, and its bound.
struct Counter<'a> {
    /// The organization, where the counter is of one.
    organization: Option<&'a str>,
    /// Its name.
    id: String,
    /// How many mails it admits in an hour.
    max: u32,
    /// The one who asks, where those of the organization share what it admits.
    by: Option<&'a Asker>,
}

/// Counts one mail of this origin to this address, if all its counts admit it.
///
/// # Errors
/// When the store cannot be asked.
pub async fn admit(
    limits: &Mail,
    txn: &mut Txn,
    source: Source<'_>,
    to: &str,
    now: Instant,
) -> Result<bool, Refusal> {
    let mut counts = Vec::new();
    for counter in counters(limits, source, to) {
        let quota = count(txn, counter.organization, &counter.id, now).await?;
        if quota.count >= counter.max {
            return Ok(false);
        }
        if let Some(by) = counter.by {
            let Some(shares) = counter.admit_share(by, quota.count, txn, now).await? else {
                return Ok(false);
            };
            counts.extend(shares);
        }
        counts.push(quota);
    }
    for quota in counts {
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

impl Counter<'_> {
    /// The counts of the one who asks, and of those around it, where they leave room for one more mail
    /// beside so many of all; `None` where they leave none.
    async fn admit_share(
        &self,
        by: &Asker,
        all: u32,
        txn: &mut Txn,
        now: Instant,
    ) -> Result<Option<Vec<Quota>>, Refusal> {
        let mut quotas = Vec::new();
        for (kind, name) in ["own", "sharer", "within"].into_iter().zip(share::names_of(by)) {
            let id = format!("{}:{kind}:{}", self.id, sha256(name));
            quotas.push(count(txn, self.organization, &id, now).await?);
        }
        let mut counts = quotas.iter().map(|quota| u64::from(quota.count));
        let of = [(); 3].map(|()| counts.next().unwrap_or(0));
        let held = share::Held { max: self.max.into(), all: all.into(), of };
        Ok(held.leaves_one_to(by).then_some(quotas))
    }
}

/// The counts that a mail takes from. Their names name nobody: they hold a digest.
fn counters<'a>(limits: &Mail, source: Source<'a>, to: &str) -> Vec<Counter<'a>> {
    let address = sha256(&normalize(to));
    let of = |organization, kind: &str, max| Counter {
        organization,
        id: format!("{kind}:{address}"),
        max,
        by: None,
    };
    let (all, in_all) = (limits.recipient_per_hour, limits.organization_per_hour);
    let (organization, by) = match source {
        Source::Asker => return vec![of(None, "asked", all)],
        Source::Approval { organization, by } => (organization, Some(by)),
        Source::Invitation(organization) => (organization, None),
    };
    let own = Some(organization);
    let mut counters = vec![
        of(None, "recipient", all),
        Counter { by, ..of(own, "recipient", half(all)) },
        Counter { organization: own, id: "organization".to_owned(), max: in_all, by },
    ];
    if by.is_none() {
        counters.push(of(None, "invited", half(all)));
        counters.push(of(own, "invited", half(half(all))));
    }
    counters
}

/// Half of a count, and all of a count of one.
fn half(all: u32) -> u32 {
    all.div_ceil(2)
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

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::Arc;

    use charter_kernel::scope::Sharer;
    use charter_kernel::time::Clock;
    use charter_store::{Store, StoreConfig};

    use super::*;

    const NOW: Instant = Instant(1_700_000_000_000);
    const TO: &str = "owner@example.com";

    struct Still;

    impl Clock for Still {
        fn now(&self) -> Instant {
            NOW
        }
    }

    /// A store in which mails to one address are counted.
    struct Bed {
        store: Store,
        folder: PathBuf,
    }

    impl Drop for Bed {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }

    impl Bed {
        async fn new(name: &str) -> Self {
            let name = format!("charter-quota-{}-{name}", std::process::id());
            let folder = std::env::temp_dir().join(name);
            let _ = std::fs::remove_dir_all(&folder);
            std::fs::create_dir_all(&folder).unwrap();
            let mut config = StoreConfig::new(&folder, Arc::new(Still));
            config.ballast_bytes = 1024 * 1024;
            Self { store: Store::open(config).await.unwrap(), folder }
        }

        /// Whether one mail to this address is admitted.
        async fn admits(&self, source: Source<'_>, to: &str, now: Instant) -> bool {
            let limits = Mail {
                hosted_domains: Vec::new(),
                organization_per_hour: 100,
                recipient_per_hour: 30,
            };
            let mut txn = self.store.begin("");
            let admits = admit(&limits, &mut txn, source, to, now).await.unwrap();
            txn.commit().await.unwrap();
            admits
        }

        /// How many of so many mails to one address are admitted.
        async fn send(&self, mails: u32, source: Source<'_>, now: Instant) -> u32 {
            let mut admitted = 0;
            for _ in 0..mails {
                admitted += u32::from(self.admits(source, TO, now).await);
            }
            admitted
        }

        /// How many of so many mails to as many addresses are admitted.
        async fn send_to_many(&self, mails: u32, source: Source<'_>) -> u32 {
            let mut admitted = 0;
            for n in 0..mails {
                admitted += u32::from(self.admits(source, &format!("{n}@example.com"), NOW).await);
            }
            admitted
        }

        /// How many of the mails about approvals to one address are admitted, of as many people as would
        /// have them.
        async fn send_of_people(&self, organization: &str, now: Instant) -> u32 {
            let mut admitted = 0;
            for person in 0..9 {
                let by = unpinned(&format!("account {person}"));
                admitted += self.send(9, approval(organization, &by), now).await;
            }
            admitted
        }
    }

    fn approval<'a>(organization: &'a str, by: &'a Asker) -> Source<'a> {
        Source::Approval { organization, by }
    }

    fn unpinned(name: &str) -> Asker {
        Asker { sharer: Sharer { within: None, name: name.into() }, name: name.into() }
    }

    fn pinned(within: &str, name: &str) -> Asker {
        let sharer = Sharer { within: Some(within.into()), name: name.into() };
        Asker { sharer, name: name.into() }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn who_asks_at_an_address_gets_a_link_whatever_organizations_send_there() {
        let bed = Bed::new("asker").await;
        for organization in ["a", "b"] {
            assert_eq!(bed.send_of_people(organization, NOW).await, 15);
        }
        let by = unpinned("account 0");
        let other = approval("c", &by);
        assert_eq!(bed.send(1, other, NOW).await, 0, "an address gets 30 of them");
        assert_eq!(bed.send(34, Source::Asker, NOW).await, 30, "a stranger floods no address");
        let next = NOW.plus_ms(HOUR_MS);
        assert_eq!(bed.send(34, Source::Asker, next).await, 30);
        assert_eq!(bed.send(1, other, next).await, 1);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn what_one_asks_for_leaves_mails_of_its_organization_to_the_others() {
        let bed = Bed::new("sharer").await;
        let [one, two] = ["one", "two"].map(|user| pinned("p", user));
        let (project, other) = (pinned("p", "p"), pinned("q", "q"));
        let person = unpinned("account 0");
        assert_eq!(bed.send(34, approval("a", &one), NOW).await, 6);
        assert_eq!(
            bed.send(34, approval("a", &project), NOW).await,
            3,
            "its users' are not its own"
        );
        assert_eq!(bed.send(34, approval("a", &two), NOW).await, 0, "their project has nine");
        assert_eq!(bed.send(34, approval("a", &other), NOW).await, 2);
        assert_eq!(bed.send(34, approval("a", &person), NOW).await, 2);
        assert_eq!(bed.send(34, approval("b", &one), NOW).await, 6, "another organization's");
        let next = NOW.plus_ms(HOUR_MS);
        assert_eq!(bed.send(34, approval("a", &one), next).await, 6, "in each hour anew");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn what_one_asks_many_people_for_leaves_mails_to_the_others() {
        let bed = Bed::new("many").await;
        for (by, mails) in [
            (pinned("p", "p"), 38),
            (pinned("q", "one"), 19),
            (unpinned("account 0"), 22),
            (unpinned("account 1"), 11),
        ] {
            assert_eq!(bed.send_to_many(60, approval("a", &by)).await, mails, "{by:?}");
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn invitations_leave_half_to_approvals_however_many_organizations_invite() {
        let bed = Bed::new("invited").await;
        assert_eq!(bed.send(34, Source::Invitation("a"), NOW).await, 8);
        assert_eq!(bed.send(34, Source::Invitation("b"), NOW).await, 7);
        assert_eq!(bed.send(34, Source::Invitation("c"), NOW).await, 0);
        assert_eq!(bed.send_of_people("a", NOW).await, 7, "the rest of its half");
        assert_eq!(bed.send_of_people("d", NOW).await, 8, "the rest of all");
    }

    #[test]
    fn the_smallest_count_admits_one_mail() {
        for (all, part) in [(1, 1), (2, 1), (3, 2), (30, 15)] {
            assert_eq!(half(all), part);
        }
    }
}
