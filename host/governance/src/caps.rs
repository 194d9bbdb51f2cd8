//! The caps that an amount counts against, and where each stands.
//!
//! Outermost first: organization, project, kit (each user of a kit has its budget), user, then what
//! the primitive has set for scopes of its own. Money of a user, and of a scope that a primitive
//! names, is counted whether or not there is a cap, so that a cap which is set later, and the
//! user's own spend report, begin with what is true.

use std::sync::Arc;

use charter_engine::leave::{caps_space, own_scope};
use charter_kernel::calendar::Calendar;
use charter_kernel::governance::gauge::{Cap, Gauge, Look, grant_meter, grant_scope, limit_scope};
use charter_kernel::governance::hold::{Counted, Subject, meters_space};
use charter_kernel::governance::leave::Grounds;
use charter_kernel::governance::limit::Limit;
use charter_kernel::governance::meter::{Meter, Told};
use charter_kernel::governance::policy::Grant;
use charter_kernel::kit::{Budget, Period};
use charter_kernel::money::micro_usd;
use charter_kernel::refusal::Refusal;
use charter_kernel::time::{Instant, Zone};
use charter_kernel::unit::{Draft, Guard, Key, Reach, Row};
use charter_store::{Query, Store, Txn};
use charter_tenancy::directory::{KitRecord, OrganizationRecord, ProjectRecord, UserRecord};
use charter_tenancy::records::organization::Organization;
use charter_tenancy::records::project::Project;
use charter_tenancy::records::user::User;
use charter_tenancy::stored;
use futures::future::try_join_all;
use serde::Deserialize;
use serde_json::Value;

use crate::records::{self, Whose};
use crate::{Governance, sums};

/// Records of one read.
const PAGE: u32 = 1_000;
/// Looks at a meter that others have count, and that begins anew each time.
const LOOKS_MAX: u32 = 3;

/// On whose behalf, with what the organization has set for them.
#[derive(Clone, Debug)]
pub struct Case {
    /// The organization.
    pub organization: Arc<OrganizationRecord>,
    /// The project.
    pub project: Option<Arc<ProjectRecord>>,
    /// The tenant user.
    pub user: Option<Arc<UserRecord>>,
    /// The user's kit.
    pub kit: Option<Arc<KitRecord>>,
    /// Whether there was a user, who is deleted: what has happened counts in what is left.
    pub gone: bool,
}

/// A cap that a primitive has set for a scope of its own.
#[derive(Deserialize)]
struct OwnCap {
    cap_micro_usd: i64,
    period: Period,
    time_zone: String,
}

impl Case {
    /// On whose behalf, as holds keep it.
    pub fn subject(&self, actor: (String, String)) -> Subject {
        Subject {
            organization: self.organization.id.to_string(),
            project: self.project.as_ref().map(|project| project.id.to_string()),
            user: self.user.as_ref().map(|user| user.id.to_string()),
            kit: self.kit.as_ref().map(|kit| kit.id.to_string()),
            actor,
            root: None,
            gone: self.gone,
        }
    }

    /// The grounds that a proposal of theirs is decided by.
    pub fn grounds<'a>(&'a self, subject: &'a Subject, zone: &'a Zone, at: Instant) -> Grounds<'a> {
        Grounds { policy: &self.organization.policy, zone, subject, at }
    }

    /// The time zone in which the organization's days begin.
    ///
    /// # Errors
    /// If the zone cannot be read.
    pub fn zone(&self) -> Result<Zone, Refusal> {
        Zone::parse(&self.organization.time_zone).ok_or_else(Refusal::internal)
    }

    /// Requires that all of what decides is as it was read.
    pub fn guards(&self) -> Vec<Guard> {
        let mut guards = self.guards_of_scopes();
        guards.extend(self.user.as_ref().map(|user| user.guard()));
        guards
    }

    /// Requires that the scopes are as they were read: what has happened counts there, also for a
    /// user that was revoked since.
    pub fn guards_of_scopes(&self) -> Vec<Guard> {
        let mut guards = vec![self.organization.guard(), self.organization.guard_loosening()];
        guards.extend(self.project.as_ref().map(|project| project.guard()));
        guards.extend(self.user.as_ref().map(|user| user.guard_kit()));
        guards.extend(self.kit.as_ref().map(|kit| kit.guard()));
        guards
    }

    /// The row of the scope that a cap's meter lies in.
    pub(crate) fn row_of(&self, cap: &Cap) -> Key {
        let of_user = self.user.as_ref().filter(|_| !cap.meter.reach.is_shared());
        let of_project = self.project.as_ref();
        let of_project = of_project.filter(|of| cap.meter.reach == Reach::project(of.id.as_str()));
        match (of_user, of_project) {
            (Some(user), _) => User::address(&user.project, &user.id),
            (None, Some(project)) => Project::address(&project.organization, &project.id),
            (None, None) => Organization::address(&self.organization.id),
        }
    }

    fn calendar(&self, period: Period) -> Result<Calendar, Refusal> {
        Calendar::new(period, &self.organization.time_zone).map_err(|fault| {
            tracing::error!(%fault.message, organization = %self.organization.id, "an organization's time zone cannot be read");
            Refusal::internal()
        })
    }

    /// The caps that the host knows of, outermost first.
    fn caps(&self) -> Result<Vec<Cap>, Refusal> {
        let mut all = Vec::new();
        let mut add = |scope: &str, reach: Reach, budget: &Budget| -> Result<(), Refusal> {
            all.push(Cap {
                most: Some(micro_usd(budget.cap_cents)),
                hard: budget.hard,
                ..self.without_budget(scope, &reach, budget.period)?
            });
            Ok(())
        };
        if let Some(budget) = &self.organization.budget {
            let reach = Reach::organization(self.organization.id.as_str());
            add("organization", reach, budget)?;
        }
        if let Some(project) = &self.project
            && let Some(budget) = &project.budget
        {
            add("project", Reach::project(project.id.as_str()), budget)?;
        }
        let Some(user) = &self.user else { return Ok(all) };
        let reach = Reach::user(user.id.as_str());
        match self.kit.as_ref().and_then(|kit| kit.kit.budget.as_ref()) {
            Some(budget) => add("kit", reach.clone(), budget)?,
            // A user without a budget is reported on by the calendar month.
            None => all.push(self.without_budget("kit", &reach, Period::Month)?),
        }
        if let Some(budget) = &user.budget {
            all.push(Cap {
                most: Some(micro_usd(budget.cap_cents)),
                hard: budget.hard,
                ..self.without_budget("user", &reach, budget.period)?
            });
        }
        Ok(all)
    }

    /// A scope whose money is counted, and capped by nothing.
    fn without_budget(&self, scope: &str, reach: &Reach, period: Period) -> Result<Cap, Refusal> {
        Ok(Cap {
            scope: scope.to_owned(),
            unit: Counted::Money,
            meter: Key::new(reach, &meters_space(), scope),
            most: None,
            hard: true,
            calendar: self.calendar(period)?,
            guards: Vec::new(),
        })
    }

    /// The gauge of every scope of an amount, outermost first; `own` are the primitive's scopes.
    ///
    /// # Errors
    /// When the store cannot be asked.
    pub async fn gauges(
        &self,
        governance: &Governance,
        txn: &Txn,
        primitive: &str,
        own: &[(String, String)],
        now: Instant,
    ) -> Result<Vec<Gauge>, Refusal> {
        let mut caps = self.caps()?;
        let reach = self.subject(Default::default()).reach();
        let key = |(scope, id): &(String, String)| {
            Key::new(&reach, &caps_space(), own_scope(primitive, scope, id))
        };
        let keys: Vec<Key> = own.iter().map(key).collect();
        let rows = read_rows(txn, &keys).await?;
        for (((scope, _), key), row) in own.iter().zip(keys).zip(rows) {
            caps.push(self.own_cap(scope, key, row)?);
        }
        self.read(governance, txn, caps, now).await
    }

    /// The cap of a scope of a primitive's own, by its row. Without one its money is counted by the
    /// calendar month, until a cap comes.
    fn own_cap(&self, scope: &str, key: Key, row: Option<Row>) -> Result<Cap, Refusal> {
        let uncapped = Cap {
            meter: Key::new(&key.reach, &meters_space(), key.id.clone()),
            ..self.without_budget(scope, &key.reach, Period::Month)?
        };
        let Some(row) = row else {
            return Ok(Cap { guards: vec![Guard::Version { key, version: None }], ..uncapped });
        };
        let cap: OwnCap = serde_json::from_str(&row.body).map_err(|_| Refusal::internal())?;
        let calendar = match cap.time_zone.as_str() {
            "" => self.calendar(cap.period)?,
            zone => Calendar::new(cap.period, zone).map_err(|_| Refusal::internal())?,
        };
        Ok(Cap {
            most: Some(cap.cap_micro_usd),
            calendar,
            guards: Guard::same(key, &row).into(),
            ..uncapped
        })
    }

    /// The gauges of a grant that is used: how often, and for how much.
    ///
    /// # Errors
    /// When the store cannot be asked.
    pub async fn grant(
        &self,
        governance: &Governance,
        txn: &Txn,
        grant: &Grant,
        now: Instant,
    ) -> Result<Vec<Gauge>, Refusal> {
        let most = [
            ("count", Counted::Times, grant.max_uses.map(i64::from)),
            ("amount", Counted::Money, grant.cap_micro_usd),
        ];
        let mut caps = Vec::new();
        for (kind, unit, most) in most.into_iter().filter(|(.., most)| most.is_some()) {
            caps.push(Cap {
                scope: grant_scope(&grant.id),
                unit,
                meter: grant_meter(grant, kind),
                most,
                hard: true,
                calendar: self.calendar(Period::Total)?,
                guards: Vec::new(),
            });
        }
        self.read(governance, txn, caps, now).await
    }

    /// The gauges of the limits on an action: how often, and for how much. Each user has meters of
    /// its own, and so has what is nobody's: the organization's own actions count there together.
    ///
    /// # Errors
    /// When the store cannot be asked.
    pub async fn limits(
        &self,
        governance: &Governance,
        txn: &Txn,
        action: &str,
        now: Instant,
    ) -> Result<Vec<Gauge>, Refusal> {
        let reach = self.subject(Default::default()).reach();
        let user = self.user.as_ref().map(|user| user.id.as_str());
        let mut caps = Vec::new();
        let counts = |limit: &&Limit| limit.counts(action, user);
        for limit in self.organization.limits.iter().filter(counts) {
            let most = [
                ("count", Counted::Times, limit.max_count),
                ("amount", Counted::Money, limit.max_amount_micro_usd),
            ];
            for (kind, unit, most) in most.into_iter().filter(|(.., most)| most.is_some()) {
                let scope = limit_scope(&limit.id);
                caps.push(Cap {
                    meter: Key::new(&reach, &meters_space(), format!("{scope}:{kind}")),
                    scope,
                    unit,
                    most,
                    hard: true,
                    calendar: self.calendar(limit.period)?,
                    guards: Vec::new(),
                });
            }
        }
        self.read(governance, txn, caps, now).await
    }

    /// The gauges of caps, by the rows of their meters.
    async fn read(
        &self,
        governance: &Governance,
        txn: &Txn,
        caps: Vec<Cap>,
        now: Instant,
    ) -> Result<Vec<Gauge>, Refusal> {
        let mut gauges = Vec::with_capacity(caps.len());
        let rows = read_rows(txn, caps.iter().map(|cap| &cap.meter)).await?;
        for (cap, row) in caps.into_iter().zip(rows) {
            gauges.push(self.gauge(governance, txn, (cap, row), now).await?);
        }
        Ok(gauges)
    }

    /// The gauge of a cap. A meter that had to be waited for is looked at again.
    async fn gauge(
        &self,
        governance: &Governance,
        txn: &Txn,
        (cap, mut row): (Cap, Option<Row>),
        now: Instant,
    ) -> Result<Gauge, Refusal> {
        for _ in 0..LOOKS_MAX {
            let known = row.as_ref().map(read_meter).transpose()?;
            let unsummed = match cap.clone().look(known, now) {
                Look::Counted(gauge) => return Ok(gauge),
                Look::Unsummed(unsummed) => unsummed,
            };
            let spent = governance.sums.make(&governance.store, self, &unsummed, now).await?;
            if let Some(spent) = spent {
                return Ok(unsummed.sum_up(spent));
            }
            row = txn.get_relaxed(&cap.meter).await.map_err(stored::reading)?;
        }
        Err(sums::busy())
    }

    /// The same sum as [`Case::sum_spent`], of all from a moment on: what many have spent is summed up by
    /// the database, as of one moment, with what the cap's meter had been told of by then.
    pub(crate) async fn sum_recent(
        &self,
        store: &Store,
        cap: &Cap,
        since: Instant,
    ) -> Result<(i64, Option<Told>), Refusal> {
        let times = (since, Instant::LAST);
        if cap.is_own() || !cap.meter.reach.is_shared() {
            return Ok((self.sum_spent(store, cap, times).await?, None));
        }
        let project = self.project.as_ref().filter(|_| cap.scope == "project");
        let project = project.map(|project| project.id.as_str());
        let organization = self.organization.id.as_str();
        let sum = records::sum_at_once(store, organization, project, times, &cap.meter).await?;
        Ok((sum.0, sum.1.and_then(|meter| meter.told)))
    }

    /// The sum of the spend records of a cap's scope from a moment on, or up to another.
    pub(crate) async fn sum_spent(
        &self,
        store: &Store,
        cap: &Cap,
        times: (Instant, Instant),
    ) -> Result<i64, Refusal> {
        Ok(self.sum_few(store, cap, times, usize::MAX).await?.unwrap_or_default())
    }

    /// The same sum, or nothing where there are more than so many records.
    pub(crate) async fn sum_few(
        &self,
        store: &Store,
        cap: &Cap,
        times: (Instant, Instant),
        most: usize,
    ) -> Result<Option<i64>, Refusal> {
        let whose = match cap.meter.reach.is_shared() {
            _ if cap.is_own() => Whose::Scope(&cap.meter),
            true => Whose::Organization(self.organization.id.as_str()),
            false => Whose::User(&cap.meter.reach),
        };
        let of_all = cap.is_own() || cap.scope != "project";
        let project = self.project.as_ref().map(|project| project.id.as_str());
        let (mut sum, mut looked) = (0_i64, 0);
        let add = |record: &Value| {
            looked += 1;
            if looked > most {
                return Err(sums::busy());
            }
            if of_all || record["project"].as_str() == project {
                sum = sum.saturating_add(records::spent(record));
            }
            Ok(())
        };
        let read = records::each(store, whose, times, add).await;
        if looked > most {
            return Ok(None);
        }
        read.map(|()| Some(sum))
    }
}

/// The narrower of the budgets that bind a user alone, its kit's and its own, with its scope. It is
/// the one with the lower cap, of two alike the hard one, and else the user's own.
pub fn narrower_budget(
    kit: Option<&KitRecord>,
    user: Option<&UserRecord>,
) -> Option<(&'static str, Budget)> {
    let of_kit = kit.and_then(|kit| kit.kit.budget).map(|budget| ("kit", budget));
    let own = user.and_then(|user| user.budget).map(|budget| ("user", budget));
    own.into_iter().chain(of_kit).min_by_key(|(_, budget)| (budget.cap_cents, !budget.hard))
}

/// A meter as its row keeps it, and the row's version.
pub(crate) fn read_meter(row: &Row) -> Result<(Meter, u64), Refusal> {
    let meter = serde_json::from_str(&row.body).map_err(|_| Refusal::internal())?;
    Ok((meter, row.version))
}

/// The rows with these keys, asked for together: PostgreSQL answers all of them in one round trip.
async fn read_rows(
    txn: &Txn,
    keys: impl IntoIterator<Item = &Key>,
) -> Result<Vec<Option<Row>>, Refusal> {
    let rows = try_join_all(keys.into_iter().map(|key| txn.get_relaxed(key))).await;
    rows.map_err(stored::reading)
}

/// Lets the scopes of a user or a project admit amounts again that more was captured in than was
/// held.
///
/// # Errors
/// When the store cannot be asked.
pub async fn thaw(txn: &mut Txn, reach: &Reach) -> Result<(), Refusal> {
    let mut query = Query::all(reach, &meters_space()).limit(PAGE).relax();
    loop {
        let page = txn.find(&query).await.map_err(stored::reading)?;
        for (key, row) in page.items {
            thaw_meter(txn, key, &row).await?;
        }
        let Some(next) = page.next else { return Ok(()) };
        query.after = Some(next);
    }
}

/// Lets one meter admit again, where it does not.
async fn thaw_meter(txn: &mut Txn, key: Key, row: &Row) -> Result<(), Refusal> {
    let meter: Meter = serde_json::from_str(&row.body).map_err(|_| Refusal::internal())?;
    if !meter.frozen {
        return Ok(());
    }
    // Reservations and captures meanwhile are not written over.
    txn.guard(Guard::Version { key: key.clone(), version: Some(row.version) });
    let body = serde_json::to_string(&Meter { frozen: false, ..meter });
    let body = body.map_err(|_| Refusal::internal())?;
    let draft = Draft { body, ..Draft::default() };
    txn.put(key, draft).await.map_err(stored::breaking).map(drop)
}

/// A cap of the host's begins in this transaction's commit. Spending before it is summed up at
/// its first use; the row that is written here tells that from what is spent meanwhile.
///
/// # Errors
/// When the store cannot be asked.
pub async fn begin(txn: &mut Txn, scope: &str, reach: &Reach) -> Result<(), Refusal> {
    let key = Key::new(reach, &meters_space(), scope);
    let row = txn.get(&key).await.map_err(stored::reading)?;
    let before = row.map(|row| serde_json::from_str(&row.body)).transpose();
    let begun = Meter::begin(before.map_err(|_| Refusal::internal())?);
    let body = serde_json::to_string(&begun).map_err(|_| Refusal::internal())?;
    let draft = Draft { body, ..Draft::default() };
    txn.put(key, draft).await.map_err(stored::breaking).map(drop)
}
