//! `governance`: leave by the kernel's rules. The policy, the caps of the primitive's own scopes and
//! the user's budget decide; what the test denies is refused before them.
//!
//! A hold is taken at once. If a person would have to decide, the request is refused with
//! `approval_required`: nobody can be asked.

use std::collections::BTreeSet;

use charter_kernel::apply::rule;
use charter_kernel::calendar::Calendar;
use charter_kernel::governance::gauge::{Cap, Gauge, Look};
use charter_kernel::governance::hold::{
    self, Capture, Counted, Hold, OverCapture, Pay, Settler, State as Stand, Subject, meters_space,
    own_record_at, own_spend_space, spend_space,
};
use charter_kernel::governance::leave::{self, Grounds, Person, Terms};
use charter_kernel::governance::meter::Meter;
use charter_kernel::governance::proposal::{self, Proposed};
use charter_kernel::governance::settle::Wish;
use charter_kernel::kit::Period;
use charter_kernel::money::AMOUNT_MAX;
use charter_kernel::refusal::Failure;
use charter_kernel::time::{Instant, Zone};
use charter_kernel::unit::{Draft, Guard, Key, Rejection, Space, Unit};
use charter_sdk::bindings::charter::primitive::governance::Proposal;
use charter_sdk::native::{Answer, Governance, Permit};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::call::{Abort, Permitted, Work};
use crate::world::{Double, World};

/// Regulated actions of one request, and holds that it settles between two commits.
const PERMITS_MAX: usize = 100;
/// How long a hold may outlive its request: 31 days.
const KEEP_MAX_MS: i64 = 31 * 86_400_000;
/// How long a request may take.
const REQUEST_MS: i64 = 30_000;
/// The organization's time zone.
const ZONE: &str = "UTC";

/// A cap of a scope of the primitive's own, as its row keeps it.
#[derive(Deserialize)]
struct OwnCap {
    cap_micro_usd: i64,
    period: Period,
    time_zone: String,
}

impl Work {
    fn subject(&self) -> Subject {
        let scope = &self.call.scope;
        Subject {
            organization: scope.lane().to_owned(),
            project: scope.project().map(|id| id.as_str().to_owned()),
            user: scope.user().map(|id| id.as_str().to_owned()),
            kit: None,
            actor: (scope.actor().kind.as_str().to_owned(), scope.actor().id.clone()),
            root: scope.principal().root.clone(),
            gone: false,
        }
    }

    /// The key of the cap of a scope of the primitive's own.
    fn own(&self, world: &World, scope: &str, id: &str) -> Result<Key, Failure> {
        if scope.is_empty() || id.is_empty() || scope.len() + id.len() > 200 {
            return Err(Failure::invalid("scope", "a scope and its id have 1 to 200 bytes"));
        }
        let id = format!("{}.{scope}:{id}", world.name());
        Ok(Key::new(&self.call.scope.narrowest(), &Space::host("caps"), id))
    }

    /// The gauges of every scope of an amount, outermost first.
    fn gauges(&self, world: &World, own: &[(String, String)]) -> Result<Vec<Gauge>, Failure> {
        let reach = self.call.scope.narrowest();
        let counted = |scope: &str, most: Option<i64>, calendar: Calendar| Cap {
            scope: scope.to_owned(),
            unit: Counted::Money,
            meter: Key::new(&reach, &meters_space(), scope),
            most,
            hard: true,
            calendar,
            guards: Vec::new(),
        };
        let mut caps = Vec::new();
        if self.call.scope.user().is_some() {
            caps.push(counted("kit", None, calendar(Period::Month, ZONE)?));
            if let Some(most) = world.budget {
                caps.push(counted("user", Some(most), calendar(Period::Month, ZONE)?));
            }
        }
        for (scope, id) in own {
            let key = self.own(world, scope, id)?;
            let meter = Key::new(&reach, &meters_space(), key.id.clone());
            // Caps count from their commit on, as they do at the host.
            let Some(row) = world.rows.row(&key) else {
                let uncapped = counted(scope, None, calendar(Period::Month, ZONE)?);
                let guards = vec![Guard::Version { key, version: None }];
                caps.push(Cap { meter, guards, ..uncapped });
                continue;
            };
            let cap: OwnCap = serde_json::from_str(&row.body).map_err(unreadable)?;
            let zone = if cap.time_zone.is_empty() { ZONE } else { &cap.time_zone };
            let calendar = calendar(cap.period, zone)?;
            let guards = Guard::same(key, row).into();
            caps.push(Cap { meter, guards, ..counted(scope, Some(cap.cap_micro_usd), calendar) });
        }
        caps.into_iter().map(|cap| self.gauge(world, cap)).collect()
    }

    fn gauge(&self, world: &World, cap: Cap) -> Result<Gauge, Failure> {
        let row = world.rows.row(&cap.meter);
        let known = row.map(|row| Ok((serde_json::from_str::<Meter>(&row.body)?, row.version)));
        Ok(match cap.look(known.transpose().map_err(unreadable)?, world.now) {
            Look::Counted(gauge) => gauge,
            Look::Unsummed(unsummed) => {
                let (cap, since) = (unsummed.cap(), unsummed.since());
                let is_own = cap.is_own();
                let space = if is_own { own_spend_space() } else { spend_space() };
                let reach = self.call.scope.narrowest();
                let rows = world.rows.of(Some(&reach), &space);
                let rows = rows.filter(|(key, _)| match is_own {
                    true => own_record_at(&cap.meter, &key.id).is_some_and(|at| at >= since),
                    false => cap.is_recorded() && key.id >= since.to_string(),
                });
                let spent = rows.filter_map(|(_, row)| {
                    serde_json::from_str::<Value>(&row.body).ok()?["spent_micro_usd"].as_i64()
                });
                let spent = spent.sum();
                unsummed.sum_up(spent)
            }
        })
    }

    /// The terms of a hold.
    fn terms(
        &mut self,
        world: &mut World,
        asked: &Proposal,
        reported: bool,
    ) -> Result<Terms, Failure> {
        let declared = world.installed.action(&asked.action)?.clone();
        let proposed = Proposed {
            amount: asked.amount,
            component: &asked.component,
            scopes: asked.scopes.len(),
            entity: &asked.entity,
            title: &asked.title,
            message: &asked.message,
        };
        proposed.check(&declared)?;
        super::events::json("context", &asked.context)?;
        let pay = match &asked.pay {
            None => None,
            Some((from, to)) => {
                let (from, to) = self.payment(world, from, to)?;
                Some(Pay { from, to, memo: asked.title.clone() })
            }
        };
        Ok(Terms {
            primitive: world.name().to_owned(),
            action: asked.action.clone(),
            entity: asked.entity.clone(),
            component: asked.component.clone(),
            title: asked.title.clone(),
            spends: declared.spends,
            amount: asked.amount,
            capturable: match reported {
                true => 0,
                false => declared.capturable(asked.amount.unwrap_or(0), pay.is_some()),
            },
            reported,
            pay,
            subject: self.subject(),
            request: self.call.request.clone(),
            ordinal: u32::try_from(self.asked.permits).unwrap_or(u32::MAX),
            at: world.now,
            until: world.now.plus_ms(REQUEST_MS),
        })
    }

    /// Decides a proposal and takes its hold.
    fn authorize(
        &mut self,
        world: &mut World,
        asked: &Proposal,
        reported: bool,
    ) -> Result<String, Failure> {
        let terms = self.terms(world, asked, reported)?;
        if let Some(pay) = terms.pay.as_ref().filter(|_| reported) {
            self.books(world).check_billers(&pay.from)?;
        }
        if self.story.is_dispatched {
            let told = "leave is asked for before anything leaves the host";
            return Err(Failure::undeclared(told));
        }
        if self.asked.permits >= PERMITS_MAX {
            let told = format!("one request takes at most {PERMITS_MAX} regulated actions");
            return Err(Failure::new("payload_too_large", told));
        }
        let worded = format!("{asked:?} {reported}");
        if let Some(id) = self.repeat_permit(&worded) {
            return Ok(id);
        }
        if let Some(denial) = world.denied.get(&asked.action).filter(|_| !reported) {
            return Err(denial.clone());
        }
        let id = world.fresh_id();
        let hold = self.take_hold(world, terms, &id, &asked.scopes)?;
        self.record_permit(Some(worded), &id, hold);
        Ok(id)
    }

    fn take_hold(
        &mut self,
        world: &mut World,
        terms: Terms,
        id: &str,
        own: &[(String, String)],
    ) -> Result<Hold, Failure> {
        let zone = Zone::parse(ZONE).ok_or_else(|| Failure::new("internal_error", ZONE))?;
        let grounds =
            Grounds { policy: &world.policy, zone: &zone, subject: &terms.subject, at: terms.at };
        let decision = grounds.decide(&terms.to_asked(), &[], &BTreeSet::new());
        let course = match leave::course(&decision, false, Person::Absent) {
            // It has happened.
            _ if terms.reported => leave::Course::Taken,
            Ok(course) => course,
            Err(no) => {
                let refusal = no.refusal(&decision).to_failure();
                if no == leave::No::ApprovalRequired {
                    self.abort = Some(Abort::Refused(refusal.clone()));
                }
                return Err(refusal);
            }
        };
        let gauges = if terms.spends { self.gauges(world, own)? } else { Vec::new() };
        let spends = leave::Spender::of(&self.call.scope).may_spend(terms.pay.as_ref(), &gauges);
        if !terms.reported {
            spends.map_err(|no| no.refusal(&decision).to_failure())?;
        }
        let charges = leave::charges(&gauges, terms.amount, &BTreeSet::new());
        let hold = terms.hold(decision, course, charges);
        let (guards, mut writes) = leave::prepare(&hold, &gauges);
        writes.extend(hold.take(id));
        let organization = self.call.scope.lane().to_owned();
        let unit = Unit { organization, guards, writes, ..Unit::default() };
        match world.commit(&unit) {
            Ok(()) => Ok(hold),
            Err(Rejection::Refused(refused)) => {
                let refusal = leave::refusal(&refused, &hold, &gauges, self.call.scope.principal());
                Err(refusal.map_or_else(|| rule(&refused), |refusal| refusal.to_failure()))
            }
            Err(conflict) => Err(self.reject(conflict)),
        }
    }

    /// Counts what a provider has signed as having happened.
    fn report(&mut self, world: &mut World, asked: &Proposal) -> Result<(), Failure> {
        let amount = proposal::reported_amount(asked.amount, self.call.word)?;
        if let Some((from, to)) = &asked.pay {
            let (_, to) = self.payment(world, from, to)?;
            self.books(world).check_told(&to)?;
        }
        let id = self.authorize(world, asked, true)?;
        let capture = self.permit(&id)?.hold.capture_told(amount);
        self.wish(&id, Wish::Capture(capture))
    }

    /// The leave that this place of the request was given before, if it proposes the same again.
    fn repeat_permit(&mut self, worded: &str) -> Option<String> {
        let attempt = self.story.attempt;
        let record = self.story.permits.get_mut(self.asked.permits)?;
        if record.attempt == attempt || record.proposal.as_deref() != Some(worded) {
            return None;
        }
        (record.attempt, record.wish) = (attempt, None);
        self.asked.permits += 1;
        Some(record.id.clone())
    }

    fn record_permit(&mut self, proposal: Option<String>, id: &str, hold: Hold) {
        let attempt = self.story.attempt;
        let record = Permitted { proposal, id: id.to_owned(), hold, wish: None, attempt };
        let place = self.asked.permits.min(self.story.permits.len());
        self.story.permits.insert(place, record);
        self.asked.permits += 1;
    }

    fn permit(&mut self, id: &str) -> Result<&mut Permitted, Failure> {
        let attempt = self.story.attempt;
        let mut records = self.story.permits.iter_mut();
        let record = records.find(|record| record.id == id && record.attempt == attempt);
        record.ok_or_else(Wish::second)
    }

    /// The amount of a hold that is to be captured, within what bounds it.
    fn admit_capture(&mut self, id: &str, actual: i64) -> Result<Capture, Failure> {
        if !(0..=AMOUNT_MAX).contains(&actual) {
            let told = format!("an amount is 0 to {AMOUNT_MAX} micro-US-dollars");
            return Err(Failure::invalid("actual", told));
        }
        let word = self.call.word;
        let capture = self.permit(id)?.hold.admit_capture(actual, word);
        capture.map_err(OverCapture::to_failure)
    }

    fn wish(&mut self, id: &str, wish: Wish) -> Result<(), Failure> {
        let record = self.permit(id)?;
        if record.wish.is_some() {
            return Err(Wish::second());
        }
        record.wish = Some(wish);
        Ok(())
    }

    /// A hold of an earlier request that this one may settle, for this request alone.
    fn reopen(&mut self, world: &mut World, id: &str) -> Result<String, Failure> {
        if self.asked.permits >= PERMITS_MAX {
            let told = format!("one commit settles at most {PERMITS_MAX} holds");
            return Err(Failure::new("payload_too_large", told));
        }
        let known = self.story.permits.iter_mut();
        if let Some(known) =
            known.into_iter().find(|record| record.id == id && record.proposal.is_none())
        {
            if known.attempt == self.story.attempt && known.wish.is_some() {
                return Err(Wish::second());
            }
            (known.attempt, known.wish) = (self.story.attempt, None);
            return Ok(id.to_owned());
        }
        let absent = || Failure::not_found("the permit");
        let key = hold::key(self.call.scope.lane(), id);
        let row = self.txn.get_relaxed(&world.rows, &key).ok_or_else(absent)?;
        let hold: Hold = serde_json::from_str(&row.body).map_err(unreadable)?;
        let reach = self.call.scope.narrowest();
        if !hold.is_settled_by(world.name(), &reach, self.call.word) {
            return Err(absent());
        }
        let is_contradicted = hold.is_contradicted(self.call.word);
        if !hold.is_left() && !is_contradicted {
            return Err(hold.refuse_settling());
        }
        let busy = || Failure {
            retry_after_seconds: Some(1),
            ..Failure::new("job_not_ready", "another request settles the permit")
        };
        if hold.has_settler(world.now) {
            return Err(busy());
        }
        let until = world.now.plus_ms(REQUEST_MS);
        let settler = Settler { request: self.call.request.clone(), until };
        let step = match is_contradicted {
            true => hold.contradict(id, row.version, settler),
            false => hold.reopen(id, row.version, settler),
        };
        let organization = self.call.scope.lane().to_owned();
        let unit =
            Unit { organization, guards: step.guards, writes: step.writes, ..Unit::default() };
        match world.commit(&unit) {
            Ok(()) => self.record_permit(None, id, step.hold),
            Err(Rejection::Conflict { .. }) => return Err(busy()),
            Err(Rejection::Refused(_)) => return Err(hold.refuse_settling()),
        }
        Ok(id.to_owned())
    }

    fn dispatch(&mut self, world: &mut World, id: &str) -> Result<(), Failure> {
        let record = self.permit(id)?;
        if record.hold.state != Stand::Held {
            return Ok(());
        }
        let step = record.hold.dispatch(id);
        let unit = Unit { guards: step.guards, writes: step.writes, ..Unit::default() };
        world.commit(&unit).map_err(|rejection| self.reject(rejection))?;
        self.story.is_dispatched = true;
        self.permit(id)?.hold = step.hold;
        Ok(())
    }
}

/// The end of a hold that is to outlive its request.
fn latest(world: &World, until: i64) -> Instant {
    Instant(until).min(world.now.plus_ms(KEEP_MAX_MS))
}

fn calendar(period: Period, zone: &str) -> Result<Calendar, Failure> {
    Calendar::new(period, zone).map_err(|fault| Failure::new("internal_error", fault.to_string()))
}

fn unreadable(error: serde_json::Error) -> Failure {
    Failure::new("internal_error", format!("a row of the host cannot be read: {error}"))
}

impl Governance for Double {
    fn authorize(&self, proposal: &Proposal) -> Answer<Permit> {
        self.changing("governance", |world, work| {
            Ok(Permit(work.authorize(world, proposal, false)?))
        })
    }

    fn report(&self, proposal: &Proposal) -> Answer<()> {
        self.changing("governance", |world, work| work.report(world, proposal))
    }

    fn reopen(&self, permit: &str) -> Answer<Permit> {
        self.changing("governance", |world, work| Ok(Permit(work.reopen(world, permit)?)))
    }

    fn dispatched(&self, permit: &str) -> Answer<()> {
        self.changing("governance", |world, work| work.dispatch(world, permit))
    }

    fn capture(&self, permit: &str, actual: i64) -> Answer<()> {
        self.changing("governance", |_, work| {
            let capture = work.admit_capture(permit, actual)?;
            work.wish(permit, Wish::Capture(capture))
        })
    }

    fn capture_part(&self, permit: &str, actual: i64, until: i64) -> Answer<()> {
        self.changing("governance", |world, work| {
            let part = work.admit_capture(permit, actual)?;
            work.wish(permit, Wish::Part(part, latest(world, until)))
        })
    }

    fn cancel(&self, permit: &str) -> Answer<()> {
        self.changing("governance", |_, work| work.wish(permit, Wish::Cancel))
    }

    fn keep(&self, permit: &str, until: i64) -> Answer<()> {
        self.changing("governance", |world, work| {
            work.wish(permit, Wish::Keep(latest(world, until)))
        })
    }

    fn set_cap(
        &self,
        scope: &str,
        id: &str,
        cap: Option<i64>,
        period: &str,
        time_zone: &str,
    ) -> Answer<()> {
        self.changing("governance", |world, work| {
            let key = work.own(world, scope, id)?;
            let Some(cap) = cap else {
                let removed = work.txn.remove(&world.rows, &key, None);
                return removed.map(drop).map_err(|refused| rule(&refused));
            };
            let period: Period = serde_json::from_value(period.into()).map_err(|_| {
                let told = "a period is `total`, `day`, `week`, `month` or `year`";
                Failure::invalid("period", told)
            })?;
            if !(0..=AMOUNT_MAX).contains(&cap) {
                let told = format!("a cap is 0 to {AMOUNT_MAX} micro-US-dollars");
                return Err(Failure::invalid("cap", told));
            }
            if !time_zone.is_empty() && Zone::parse(time_zone).is_none() {
                let told = "a time zone is an IANA name, or empty for the organization's";
                return Err(Failure::invalid("time_zone", told));
            }
            let body = json!({ "cap_micro_usd": cap, "period": period, "time_zone": time_zone });
            let draft = Draft { body: body.to_string(), ..Draft::default() };
            let put = work.txn.put(&world.rows, key, draft);
            put.map(drop).map_err(|refused| rule(&refused))
        })
    }

    fn take(&self, rate: &str, reach: &str, amount: u32, per_seconds: u32) -> Answer<()> {
        self.changing("governance", |world, work| {
            work.take_rate(world, rate, reach, (amount, per_seconds))
        })
    }
}
