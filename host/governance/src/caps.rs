//! Which caps an amount counts against, and where each stands.
//!
//! Outermost first: organization, project, kit (each user of a kit has its budget), user, then what
//! the primitive has set for scopes of its own. Money of a user is counted whether or not there is
//! a cap, so that a budget which is set later, and the user's own spend report, begin with what is
//! true.

use std::sync::Arc;

use charter_engine::leave::{caps_space, own_scope};
use charter_kernel::governance::calendar::{Calendar, Window};
use charter_kernel::governance::hold::{Counted, Subject, meters_space, spend_space};
use charter_kernel::governance::meter::{Count, Meter};
use charter_kernel::governance::policy::Grant;
use charter_kernel::kit::{Budget, Period};
use charter_kernel::refusal::Refusal;
use charter_kernel::time::Instant;
use charter_kernel::unit::{Draft, Guard, Key, Reach, Row, Write};
use charter_store::{Order, Query, Txn};
use charter_tenancy::directory::{KitRecord, OrganizationRecord, ProjectRecord, UserRecord};
use charter_tenancy::stored;
use serde::Deserialize;
use serde_json::Value;

use crate::Governance;

/// Micro-US-dollars of a cent.
pub const MICRO_USD_PER_CENT: i64 = 10_000;
/// Records of one read.
const PAGE: u32 = 1_000;

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
}

/// One scope, its cap and where it stands.
#[derive(Clone, Debug)]
pub struct Standing {
    /// `organization`, `project`, `kit`, `user`, a scope of the primitive's own, or `limit:` and
    /// its id.
    pub scope: String,
    /// What is counted.
    pub unit: Counted,
    /// The meter's row.
    pub meter: Key,
    /// In micro-US-dollars; absent where the amount is only counted.
    pub cap: Option<i64>,
    /// Whether an excess is refused; otherwise it takes a person's leave.
    pub hard: bool,
    /// The window that counts now.
    pub window: Window,
    /// What stands there.
    pub count: Count,
    /// What has to be written first, so that the meter counts in this window.
    pub opens: Option<Opening>,
    /// What the cap was read from.
    pub guard: Option<Guard>,
}

/// A meter that does not count in the window yet.
#[derive(Clone, Debug)]
pub enum Opening {
    /// It is made by whoever comes first.
    Made(Meter),
    /// It counts by another period or zone so far, at this version of its row.
    Anew(Meter, u64),
}

/// A cap that a primitive has set for a scope of its own.
#[derive(Deserialize)]
struct OwnCap {
    cap_micro_usd: i64,
    period: Period,
    time_zone: String,
}

/// What is to be counted where.
struct Wanted {
    scope: String,
    unit: Counted,
    meter: Key,
    budget: Option<(i64, bool)>,
    calendar: Calendar,
    guard: Option<Guard>,
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
        }
    }

    /// Requires that all of what decides is as it was read.
    pub fn guards(&self) -> Vec<Guard> {
        let mut guards = vec![self.organization.guard(), self.organization.guard_loosening()];
        guards.extend(self.project.as_ref().map(|project| project.guard()));
        guards.extend(self.user.iter().flat_map(|user| [user.guard(), user.guard_kit()]));
        guards.extend(self.kit.as_ref().map(|kit| kit.guard()));
        guards
    }

    fn calendar(&self, period: Period) -> Result<Calendar, Refusal> {
        Calendar::new(period, &self.organization.time_zone).map_err(|fault| {
            tracing::error!(%fault.message, organization = %self.organization.id, "an organization's time zone cannot be read");
            Refusal::internal()
        })
    }

    fn wanted(&self) -> Result<Vec<Wanted>, Refusal> {
        let mut all = Vec::new();
        let mut add = |scope: &str,
                       reach: Reach,
                       budget: Option<&Budget>,
                       always: bool|
         -> Result<(), Refusal> {
            if budget.is_none() && !always {
                return Ok(());
            }
            // What has no budget is reported by the calendar month.
            let calendar = self.calendar(budget.map_or(Period::Month, |budget| budget.period))?;
            let budget = budget.map(|budget| (micro_usd(budget.cap_cents), budget.hard));
            all.push(Wanted {
                scope: scope.into(),
                unit: Counted::Money,
                meter: Key::new(&reach, &meters_space(), scope),
                budget,
                calendar,
                guard: None,
            });
            Ok(())
        };
        let organization = Reach::organization(self.organization.id.as_str());
        add("organization", organization, self.organization.budget.as_ref(), false)?;
        if let Some(project) = &self.project {
            add("project", Reach::project(project.id.as_str()), project.budget.as_ref(), false)?;
        }
        if let Some(user) = &self.user {
            let reach = Reach::user(user.id.as_str());
            add(
                "kit",
                reach.clone(),
                self.kit.as_ref().and_then(|kit| kit.kit.budget.as_ref()),
                true,
            )?;
            add("user", reach, user.budget.as_ref(), false)?;
        }
        Ok(all)
    }

    /// Where every scope of an amount stands, outermost first; `own` are the primitive's scopes.
    ///
    /// # Errors
    /// When the store cannot be asked.
    pub async fn standings(
        &self,
        governance: &Governance,
        txn: &Txn,
        primitive: &str,
        own: &[(String, String)],
        now: Instant,
    ) -> Result<Vec<Standing>, Refusal> {
        let mut wanted = self.wanted()?;
        let reach = self.subject(Default::default()).reach();
        for (scope, id) in own {
            let key = Key::new(&reach, &caps_space(), own_scope(primitive, scope, id));
            let Some(row) = txn.get_relaxed(&key).await.map_err(stored::reading)? else { continue };
            let cap: OwnCap = serde_json::from_str(&row.body).map_err(|_| Refusal::internal())?;
            let calendar = match cap.time_zone.as_str() {
                "" => self.calendar(cap.period)?,
                zone => Calendar::new(cap.period, zone).map_err(|_| Refusal::internal())?,
            };
            let meter = Key::new(&reach, &meters_space(), key.id.clone());
            let guard = Some(Guard::Unchanged { key, version: row.version });
            wanted.push(Wanted {
                scope: scope.clone(),
                unit: Counted::Money,
                meter,
                budget: Some((cap.cap_micro_usd, true)),
                calendar,
                guard,
            });
        }
        let mut standings = Vec::with_capacity(wanted.len());
        for one in wanted {
            standings.push(self.standing(governance, txn, one, now).await?);
        }
        Ok(standings)
    }

    /// Where a grant that is used stands: how often, and for how much.
    ///
    /// # Errors
    /// When the store cannot be asked.
    pub async fn grant(
        &self,
        governance: &Governance,
        txn: &Txn,
        grant: &Grant,
        now: Instant,
    ) -> Result<Vec<Standing>, Refusal> {
        let mut standings = Vec::new();
        for (kind, unit, most) in [
            ("count", Counted::Times, grant.max_uses.map(i64::from)),
            ("amount", Counted::Money, grant.cap_micro_usd),
        ] {
            let Some(most) = most else { continue };
            let (scope, meter) = (format!("grant:{}", grant.id), grant_meter(grant, kind));
            let calendar = self.calendar(Period::Total)?;
            let wanted =
                Wanted { scope, unit, meter, budget: Some((most, true)), calendar, guard: None };
            standings.push(self.standing(governance, txn, wanted, now).await?);
        }
        Ok(standings)
    }

    /// Where the limits on an action stand: how often, and for how much.
    ///
    /// # Errors
    /// When the store cannot be asked.
    pub async fn limits(
        &self,
        governance: &Governance,
        txn: &Txn,
        action: &str,
        now: Instant,
    ) -> Result<Vec<Standing>, Refusal> {
        let Some(user) = &self.user else { return Ok(Vec::new()) };
        let reach = Reach::user(user.id.as_str());
        let mut standings = Vec::new();
        for limit in
            self.organization.limits.iter().filter(|limit| limit.counts(action, user.id.as_str()))
        {
            let most = [
                ("count", Counted::Times, limit.max_count),
                ("amount", Counted::Money, limit.max_amount_micro_usd),
            ];
            for (kind, unit, most) in most {
                let Some(most) = most else { continue };
                let scope = format!("limit:{}", limit.id);
                let meter = Key::new(&reach, &meters_space(), format!("{scope}:{kind}"));
                let calendar = self.calendar(limit.period)?;
                let wanted = Wanted {
                    scope,
                    unit,
                    meter,
                    budget: Some((most, true)),
                    calendar,
                    guard: None,
                };
                standings.push(self.standing(governance, txn, wanted, now).await?);
            }
        }
        Ok(standings)
    }

    async fn standing(
        &self,
        governance: &Governance,
        txn: &Txn,
        wanted: Wanted,
        now: Instant,
    ) -> Result<Standing, Refusal> {
        let Wanted { scope, unit, meter, budget, calendar, guard } = wanted;
        let row = txn.get_relaxed(&meter).await.map_err(stored::reading)?;
        let known: Option<Meter> = row
            .as_ref()
            .map(|row| serde_json::from_str(&row.body))
            .transpose()
            .map_err(|_| Refusal::internal())?;
        let mut window = calendar.window(now);
        let (count, opens) = match (known, row) {
            (Some(known), Some(row)) if !known.current.is_alike(&window.slot) => {
                let mut anew = known;
                let spent = self.spent(governance, &meter, &scope, window.starts).await?;
                anew.counted_anew(window.slot.clone(), spent);
                (anew.now(), Some(Opening::Anew(anew, row.version)))
            }
            // Another host's clock was ahead: a window is never gone back from.
            (Some(known), _) if known.current.follows(&window.slot) => {
                window.slot = known.current.clone();
                (known.now(), None)
            }
            (Some(known), _) => (known.count(&window.slot), None),
            (None, _) => {
                let opened = Meter::opened(
                    window.slot.clone(),
                    self.spent(governance, &meter, &scope, window.starts).await?,
                );
                (opened.now(), Some(Opening::Made(opened)))
            }
        };
        let (cap, hard) = budget.map_or((None, true), |(cap, hard)| (Some(cap), hard));
        Ok(Standing { scope, unit, meter, cap, hard, window, count, opens, guard })
    }

    /// What the spend records of a scope say was spent since a moment.
    async fn spent(
        &self,
        governance: &Governance,
        meter: &Key,
        scope: &str,
        since: Instant,
    ) -> Result<i64, Refusal> {
        let mut sum = 0_i64;
        let mut add = |row: &Row| {
            let body: Value = serde_json::from_str(&row.body).unwrap_or_default();
            sum = sum.saturating_add(body["spent_micro_usd"].as_i64().unwrap_or(0));
        };
        // What a primitive counts by itself begins with its cap, and a limit with its first use.
        if !matches!(scope, "organization" | "project" | "kit" | "user") {
            return Ok(0);
        }
        if matches!(scope, "kit" | "user") {
            let mut query = Query::all(&meter.reach, &spend_space()).limit(PAGE).relaxed();
            query.order = Order::Oldest;
            query.after = Some(since.to_string());
            loop {
                let page = governance.store.find(&query).await.map_err(stored::reading)?;
                page.items.iter().for_each(|(_, row)| add(row));
                let Some(next) = page.next else { return Ok(sum) };
                query.after = Some(next);
            }
        }
        let mut from = format!("{} {since}", self.organization.id);
        let to = format!("{} ~", self.organization.id);
        let mut after = None;
        loop {
            let page = governance
                .store
                .indexed(&spend_space(), "found", (&from, &to), after.as_ref(), PAGE)
                .await;
            let page = page.map_err(stored::reading)?;
            for (_, _, row) in &page {
                let body: Value = serde_json::from_str(&row.body).unwrap_or_default();
                let project = self.project.as_ref().map(|project| project.id.as_str());
                if scope == "organization" || body["project"].as_str() == project {
                    add(row);
                }
            }
            let Some((value, key, _)) = page.into_iter().nth(PAGE as usize - 1) else {
                return Ok(sum);
            };
            (from, after) = (value, Some(key));
        }
    }
}

impl Standing {
    /// Whether there is a way beyond it where it is full: a person, or to do without the grant.
    pub fn gives_way(&self) -> bool {
        !self.hard || self.scope.starts_with("grant:")
    }

    /// The write that makes the meter count in the window, before anything is reserved.
    ///
    /// # Errors
    /// When the row cannot be written.
    pub async fn open(&self, txn: &mut Txn) -> Result<(), Refusal> {
        let draft = |meter: &Meter| -> Result<Draft, Refusal> {
            let body = serde_json::to_string(meter).map_err(|_| Refusal::internal())?;
            Ok(Draft { body, ..Draft::default() })
        };
        match &self.opens {
            None => {}
            Some(Opening::Made(meter)) => {
                txn.write(Write::Ensure { key: self.meter.clone(), draft: draft(meter)? })
            }
            Some(Opening::Anew(meter, version)) => {
                // What was captured since the sum was made would be missed: the row must be the one
                // that was read.
                txn.guard(Guard::Version { key: self.meter.clone(), version: Some(*version) });
                txn.write(Write::Replace {
                    key: self.meter.clone(),
                    draft: draft(meter)?,
                    expected: None,
                });
            }
        }
        Ok(())
    }
}

/// The meter of a grant: `count` or `amount`.
pub fn grant_meter(grant: &Grant, kind: &str) -> Key {
    Key::new(&Reach::user(&grant.user_id), &meters_space(), format!("grant:{}:{kind}", grant.id))
}

/// Cents as the ledger counts.
pub fn micro_usd(cents: u64) -> i64 {
    i64::try_from(cents).unwrap_or(i64::MAX).saturating_mul(MICRO_USD_PER_CENT)
}
