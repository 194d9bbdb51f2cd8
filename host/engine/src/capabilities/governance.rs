//! `governance`: leave to take a regulated action.
//!
//! The server decides and takes the hold at once; here a proposal gets its place in the request, so
//! that a re-run is given the same permit, and a permit's end is noted, so that it becomes part of
//! the request's own commit ([`crate::story::permits`]).

use std::sync::Arc;

use charter_kernel::governance::hold::{self, Capture, Hold, OverCapture, Settler, State as Stand};
use charter_kernel::governance::proposal::{self, Proposed as Worded};
use charter_kernel::kit::Period;
use charter_kernel::money::AMOUNT_MAX;
use charter_kernel::refusal::Failure as Refusal;
use charter_kernel::time::Instant;
use charter_kernel::unit::{Draft, Guard, Key, Refused, Rejection, Unit};
use charter_store::CommitError;
use serde_json::{Value, json};
use wasmtime::component::Resource;

use super::events::json as parsed;
use crate::bindings::charter::primitive::governance::{Host, HostPermit, Proposal as Proposed};
use crate::bindings::charter::primitive::types::Failure;
use crate::failure::{
    failure, invalid, not_configured, not_found, undeclared, unread, write_failure,
};
use crate::handles::Permit;
use crate::leave::{Deferred, Granted, Leave, Proposal, Ungranted, caps_space, own_scope};
use crate::run::waiting::Waiting;
use crate::state::{State, Work};
use crate::story::Abort;
use crate::story::permits::{Permitted, Untaken, Wish};

/// Regulated actions of one request, and holds that it settles between two commits.
const PERMITS_MAX: usize = 100;
/// Bytes of a proposal's context, for the person who decides.
const CONTEXT_BYTES_MAX: usize = 64 << 10;
/// Bytes of a scope of a primitive's own and its id.
const SCOPE_BYTES_MAX: usize = 200;
/// Memory that a hold of an earlier request costs, about.
const PERMIT_BYTES: usize = 4 << 10;
/// How long after its request's deadline a hold that nobody settled ends, in milliseconds.
const GRACE_MS: i64 = 10_000;
/// How long a hold may outlive its request: 31 days.
const KEEP_MAX_MS: i64 = 31 * 86_400_000;

impl Work {
    async fn proposal(&mut self, from: Proposed) -> Result<(Proposal, Vec<Guard>), Failure> {
        let declared =
            self.component.manifest.actions.iter().find(|action| action.name == from.action);
        let Some(declared) = declared else {
            return Err(
                undeclared(format!("the manifest declares no action `{}`", from.action)).into()
            );
        };
        let worded = Worded {
            amount: from.amount,
            component: &from.component,
            scopes: from.scopes.len(),
            entity: &from.entity,
            title: &from.title,
            message: &from.message,
        };
        worded.check(declared)?;
        if from.context.len() > CONTEXT_BYTES_MAX {
            let told = format!("`context` has at most {CONTEXT_BYTES_MAX} bytes");
            return Err(invalid("context", told).into());
        }
        for (scope, id) in &from.scopes {
            check_scope("scopes", scope, id)?;
        }
        let spends = declared.spends;
        let capturable = declared.capturable(from.amount.unwrap_or(0), from.pay.is_some());
        let mut guards = Vec::new();
        let mut pay = None;
        if let Some((debited, credited)) = &from.pay {
            let (debited, credited, standing) = self.payment(debited, credited).await?;
            (pay, guards) = (Some((debited, credited)), standing);
        }
        let proposal = Proposal {
            action: from.action,
            spends,
            amount: from.amount,
            capturable,
            reported: false,
            entity: from.entity,
            scopes: from.scopes,
            component: from.component,
            title: from.title,
            message: from.message,
            context: parsed("context", &from.context)?,
            pay,
        };
        Ok((proposal, guards))
    }

    /// When a hold of this request ends by itself.
    fn hold_ends_at(&self) -> Instant {
        let left = self.deadline.saturating_duration_since(tokio::time::Instant::now());
        self.shared
            .clock
            .now()
            .plus_ms(i64::try_from(left.as_millis()).unwrap_or(i64::MAX))
            .plus_ms(GRACE_MS)
    }

    /// The leave that this place of the request was given before, if it proposes the same again.
    fn repeat_permit(&mut self, proposal: &Proposal) -> Option<String> {
        let (attempt, place) = (self.story.attempt, self.permits);
        let is_before = |one: &&mut Permitted| one.place == place && one.attempt != attempt;
        let record = self.story.permits.iter_mut().find(is_before)?;
        if record.proposal.as_ref() != Some(proposal) {
            return None;
        }
        (record.attempt, record.wish) = (attempt, None);
        Some(record.id.clone())
    }

    async fn leave(&mut self, proposal: Proposal, parties: Vec<Guard>) -> Result<String, Failure> {
        // All that the guest has under way beside is over, or waits until this is decided.
        let _commit = self.story.marks.begin_commit().await?;
        if self.story.marks.is_dispatched() {
            return Err(undeclared("leave is asked for before anything leaves the host").into());
        }
        if self.permits >= PERMITS_MAX {
            return Err(failure(
                "payload_too_large",
                format!("one request takes at most {PERMITS_MAX} regulated actions"),
            )
            .into());
        }
        if let Some(id) = self.repeat_permit(&proposal) {
            self.permits += 1;
            return Ok(id);
        }
        let gateway = self
            .call
            .gateway
            .clone()
            .ok_or_else(|| not_configured("governance of regulated actions", "governance"))?;
        let untaken = self.story.marks.untaken.lock().await;
        // A request that waits takes none of these holds.
        let decided = untaken.iter().flat_map(|untaken| untaken.facts.clone()).collect();
        drop(untaken);
        let leave = Leave {
            scope: self.call.scope.clone(),
            primitive: self.component.manifest.name.clone(),
            request: self.call.request_id.clone(),
            ordinal: u32::try_from(self.permits).unwrap_or(u32::MAX),
            proposal: proposal.clone(),
            guards: self.call.guards.iter().cloned().chain(parties).collect(),
            until: self.hold_ends_at(),
            defers: self.story.marks.defers(),
            waiting: Some(Arc::new(Waiting {
                call: self.call.clone(),
                is_claimed: self.story.marks.claimed.initialized(),
                decided,
            })),
        };
        self.end_others().await?;
        let granted = match gateway.authorize(leave).await {
            Ok(granted) => granted,
            Err(Ungranted::Refused(refused)) => return Err((*refused).into()),
            Err(Ungranted::Pending { approval }) => {
                self.story.marks.abort(Abort::Pending(approval));
                return Err(failure("forbidden", "a person decides: return").into());
            }
            Err(Ungranted::Uncommitted(error)) => return Err(self.abort_commit(error)),
        };
        self.record_permit(Some(proposal), granted).await
    }

    async fn record_permit(
        &mut self,
        proposal: Option<Proposal>,
        granted: Granted,
    ) -> Result<String, Failure> {
        let Granted { id, hold, conditions, untaken } = granted;
        self.story.marks.require(conditions);
        let late = match untaken {
            None => false,
            Some(Deferred { unit, facts }) => {
                let mut all = self.story.marks.untaken.lock().await;
                all.push(Untaken { id: id.clone(), hold: hold.clone(), unit, facts });
                // Something was on its way out while this was decided.
                !self.story.marks.defers()
            }
        };
        let bytes = proposal.as_ref().map_or(PERMIT_BYTES, Proposal::memory_bytes);
        let (attempt, place) = (self.story.attempt, self.permits);
        let record =
            Permitted { proposal, place, id: id.clone(), hold, wish: None, attempt, bytes };
        // Leave that an earlier attempt was given at this place, and this one did not ask for, is
        // voided at the end.
        let at = self.story.permits.iter().position(|one| one.place >= place);
        self.story.permits.insert(at.unwrap_or(self.story.permits.len()), record);
        self.permits += 1;
        if late {
            self.shared.take_untaken(&self.call, &self.story.marks).await?;
        }
        Ok(id)
    }

    fn permit(&mut self, id: &str) -> Result<&mut Permitted, Failure> {
        let attempt = self.story.attempt;
        let record = self
            .story
            .permits
            .iter_mut()
            .find(|record| record.id == id && record.attempt == attempt);
        record.ok_or_else(|| Wish::second().into())
    }

    /// Commits that an effect is about to leave the host, under everything that the request was
    /// admitted under.
    async fn dispatching(&mut self, id: &str) -> Result<(), Failure> {
        let (shared, call, marks) =
            (self.shared.clone(), self.call.clone(), self.story.marks.clone());
        let _commit = marks.begin_commit().await?;
        shared.take_untaken(&call, &marks).await?;
        shared.force_claim(&call, &marks).await?;
        let record = self.permit(id)?;
        if record.hold.state != Stand::Held {
            return Ok(());
        }
        let step = record.hold.dispatch(id);
        let guards = step.guards.into_iter().chain(call.standing(&marks)).collect();
        let unit = Unit {
            organization: call.scope.lane().to_owned(),
            guards,
            writes: step.writes,
            ..Unit::default()
        };
        if let Err(error) = self.shared.store.commit(unit).await {
            return Err(self.abort_commit(error));
        }
        marks.dispatch();
        self.permit(id)?.hold = step.hold;
        Ok(())
    }

    /// A hold of an earlier request that this one may settle, for this request alone.
    async fn reopening(&mut self, id: &str) -> Result<String, Failure> {
        if self.permits >= PERMITS_MAX {
            return Err(failure(
                "payload_too_large",
                format!("one commit settles at most {PERMITS_MAX} holds"),
            )
            .into());
        }
        let scope = &self.call.scope;
        let key = hold::key(scope.lane(), id);
        let known = self
            .story
            .permits
            .iter_mut()
            .find(|record| record.id == id && record.proposal.is_none());
        if let Some(known) = known {
            if known.attempt == self.story.attempt && known.wish.is_some() {
                return Err(Wish::second().into());
            }
            self.permits += usize::from(known.attempt != self.story.attempt);
            (known.attempt, known.wish) = (self.story.attempt, None);
            return Ok(id.to_owned());
        }
        let row = self.txn.get_relaxed(&key).await.map_err(|error| unread(&error))?;
        let row = row.ok_or_else(|| not_found("the permit"))?;
        let hold: Hold = serde_json::from_str(&row.body)
            .map_err(|_| failure("internal_error", "the permit cannot be read"))?;
        let primitive = &self.component.manifest.name;
        if !hold.is_settled_by(primitive, &scope.narrowest(), self.call.word()) {
            return Err(not_found("the permit").into());
        }
        let busy = || Refusal {
            retry_after_seconds: Some(1),
            ..failure("job_not_ready", "another request settles the permit")
        };
        let is_contradicted = hold.is_contradicted(self.call.word());
        if !hold.is_left() && !is_contradicted {
            return Err(hold.refuse_settling().into());
        }
        if hold.has_settler(self.now) {
            return Err(busy().into());
        }
        let settler = Settler { request: self.call.request_id.clone(), until: self.hold_ends_at() };
        let step = match is_contradicted {
            true => hold.contradict(id, row.version, settler),
            false => hold.reopen(id, row.version, settler),
        };
        let unit = Unit {
            organization: scope.lane().to_owned(),
            guards: step.guards,
            writes: step.writes,
            ..Unit::default()
        };
        let _commit = self.story.marks.begin_commit().await?;
        match self.shared.store.commit(unit).await {
            Ok(_) => {
                self.record_permit(
                    None,
                    Granted {
                        id: id.to_owned(),
                        hold: step.hold,
                        conditions: Vec::new(),
                        untaken: None,
                    },
                )
                .await
            }
            Err(CommitError::Rejected(Rejection::Conflict { .. })) => Err(busy().into()),
            Err(CommitError::Rejected(Rejection::Refused(Refused::Inactive { .. }))) => {
                Err(hold.refuse_settling().into())
            }
            Err(error) => Err(self.abort_commit(error)),
        }
    }

    /// The key at which the primitive's own scopes count: with the user, else with the narrowest
    /// scope that the call has.
    fn own_scope_key(&self, scope: &str, id: &str) -> Result<Key, Failure> {
        check_scope("scope", scope, id)?;
        Ok(Key::new(
            &self.call.scope.narrowest(),
            &caps_space(),
            own_scope(&self.component.manifest.name, scope, id),
        ))
    }
}

impl Host for State {
    async fn authorize(&mut self, proposal: Proposed) -> Result<Resource<Permit>, Failure> {
        self.hold(text_bytes(&proposal))?;
        let work = self.mutation()?;
        let (proposal, guards) = work.proposal(proposal).await?;
        let id = work.leave(proposal, guards).await?;
        Ok(self
            .table
            .push(Permit { id })
            .map_err(|_| failure("payload_too_large", "too many handles"))?)
    }

    async fn report(&mut self, asked: Proposed) -> Result<(), Failure> {
        self.hold(text_bytes(&asked))?;
        let work = self.mutation()?;
        let amount = proposal::reported_amount(asked.amount, work.call.word())?;
        let (proposal, guards) = work.proposal(asked).await?;
        if let Some((from, to)) = &proposal.pay {
            work.books().check_billers(from)?;
            work.books().check_told(to)?;
        }
        let proposal = Proposal { reported: true, capturable: 0, ..proposal };
        let id = work.leave(proposal, guards).await?;
        let permit = work.permit(&id)?;
        permit.wish = Some(Wish::Capture(permit.hold.capture_told(amount)));
        Ok(())
    }

    async fn reopen(&mut self, permit: String) -> Result<Resource<Permit>, Failure> {
        self.hold(permit.len())?;
        let id = self.mutation_of_money()?.reopening(&permit).await?;
        Ok(self
            .table
            .push(Permit { id })
            .map_err(|_| failure("payload_too_large", "too many handles"))?)
    }

    async fn set_cap(
        &mut self,
        scope: String,
        id: String,
        cap: Option<i64>,
        period: String,
        time_zone: String,
    ) -> Result<(), Failure> {
        self.hold(scope.len() + id.len() + period.len() + time_zone.len())?;
        let work = self.mutation_of_money()?;
        let key = work.own_scope_key(&scope, &id)?;
        let Some(cap) = cap else {
            work.txn.remove(&key, None).await.map_err(|error| write_failure(&error))?;
            return Ok(());
        };
        let period: Period = serde_json::from_value(Value::from(period)).map_err(|_| {
            invalid("period", "a period is `total`, `day`, `week`, `month` or `year`")
        })?;
        if !(0..=AMOUNT_MAX).contains(&cap) {
            return Err(
                invalid("cap", format!("a cap is 0 to {AMOUNT_MAX} micro-US-dollars")).into()
            );
        }
        // None named: the organization's, whatever it is by then.
        if !time_zone.is_empty() && charter_kernel::time::Zone::parse(&time_zone).is_none() {
            return Err(invalid(
                "time_zone",
                "a time zone is an IANA name, or empty for the organization's",
            )
            .into());
        }
        let body =
            json!({ "cap_micro_usd": cap, "period": period, "time_zone": time_zone }).to_string();
        work.txn
            .put(key, Draft { body, ..Draft::default() })
            .await
            .map_err(|error| write_failure(&error))?;
        Ok(())
    }

    async fn spent(&mut self, scope: String, id: String, _by: String) -> Result<String, Failure> {
        let work = self.work()?;
        let _commit = work.story.marks.begin_commit().await?;
        work.shared.take_untaken(&work.call, &work.story.marks).await?;
        let cap = work.own_scope_key(&scope, &id)?;
        let key = Key::new(&cap.reach, &hold::meters_space(), &cap.id);
        let cap = work.txn.get_relaxed(&cap).await.map_err(|error| unread(&error))?;
        let cap: Value =
            cap.and_then(|row| serde_json::from_str(&row.body).ok()).unwrap_or_default();
        let meter = work.txn.get_relaxed(&key).await.map_err(|error| unread(&error))?;
        let meter: Option<charter_kernel::governance::meter::Meter> =
            meter.and_then(|row| serde_json::from_str(&row.body).ok());
        let now = meter.as_ref().map(|meter| meter.now()).unwrap_or_default();
        let start = meter.as_ref().map(|meter| meter.current.first().to_owned());
        let entry = json!({ "key": id, "spent": now.spent, "reserved": now.reserved, "cap": cap["cap_micro_usd"], "period_start": start });
        Ok(Value::Array(vec![entry]).to_string())
    }

    async fn take(
        &mut self,
        rate: String,
        reach: String,
        amount: u32,
        per_seconds: u32,
    ) -> Result<(), Failure> {
        self.mutation()?.take_rate(&rate, &reach, amount, per_seconds).await
    }
}

/// The bytes of a proposal as the guest words it.
fn text_bytes(proposal: &Proposed) -> usize {
    let pairs = proposal.scopes.iter().chain(&proposal.pay);
    let pairs: usize = pairs.map(|(one, other)| one.len() + other.len()).sum();
    let Proposed { action, entity, component, title, message, context, .. } = proposal;
    let texts = [action, entity, component, title, message, context];
    pairs + texts.into_iter().map(String::len).sum::<usize>()
}

/// A scope of the primitive's own, and its id: the key of both together ends the scope at the first
/// colon.
fn check_scope(param: &str, scope: &str, id: &str) -> Result<(), Failure> {
    if scope.is_empty() || id.is_empty() || scope.len() + id.len() > SCOPE_BYTES_MAX {
        let told = format!("a scope and its id have 1 to {SCOPE_BYTES_MAX} bytes");
        return Err(invalid(param, told).into());
    }
    if scope.contains(':') {
        return Err(invalid(param, format!("the scope `{scope}` contains a colon")).into());
    }
    Ok(())
}

impl HostPermit for State {
    async fn id(&mut self, permit: Resource<Permit>) -> String {
        self.table.get(&permit).map(|permit| permit.id.clone()).unwrap_or_default()
    }

    async fn idempotency_key(&mut self, permit: Resource<Permit>) -> String {
        self.table.get(&permit).map(|permit| permit.id.clone()).unwrap_or_default()
    }

    async fn dispatched(&mut self, permit: Resource<Permit>) -> Result<(), Failure> {
        let id = self.hold_id(&permit)?;
        self.mutation()?.dispatching(&id).await
    }

    async fn capture(&mut self, permit: Resource<Permit>, actual: i64) -> Result<(), Failure> {
        let capture = self.admit_capture(&permit, actual)?;
        self.wish(&permit, Wish::Capture(capture))
    }

    async fn capture_part(
        &mut self,
        permit: Resource<Permit>,
        actual: i64,
        until: i64,
    ) -> Result<(), Failure> {
        let part = self.admit_capture(&permit, actual)?;
        let until = self.latest(until)?;
        self.wish(&permit, Wish::Part(part, until))
    }

    async fn cancel(&mut self, permit: Resource<Permit>) -> Result<(), Failure> {
        self.wish(&permit, Wish::Cancel)
    }

    async fn keep(&mut self, permit: Resource<Permit>, until: i64) -> Result<(), Failure> {
        let until = self.latest(until)?;
        self.wish(&permit, Wish::Keep(until))
    }

    async fn drop(&mut self, permit: Resource<Permit>) -> wasmtime::Result<()> {
        self.table.delete(permit)?;
        Ok(())
    }
}

impl State {
    fn hold_id(&self, permit: &Resource<Permit>) -> Result<String, Failure> {
        let permit = self.table.get(permit).map_err(|_| undeclared("there is no such permit"))?;
        Ok(permit.id.clone())
    }

    /// The amount of a hold that is to be captured, within what bounds it.
    fn admit_capture(
        &mut self,
        permit: &Resource<Permit>,
        actual: i64,
    ) -> Result<Capture, Failure> {
        if !(0..=AMOUNT_MAX).contains(&actual) {
            let told = format!("an amount is 0 to {AMOUNT_MAX} micro-US-dollars");
            return Err(invalid("actual", told).into());
        }
        let id = self.hold_id(permit)?;
        let work = self.mutation()?;
        let word = work.call.word();
        let capture = work.permit(&id)?.hold.admit_capture(actual, word);
        Ok(capture.map_err(OverCapture::to_failure)?)
    }

    /// The end of a hold that is to outlive its request.
    fn latest(&mut self, until: i64) -> Result<Instant, Failure> {
        let latest = self.mutation()?.now.plus_ms(KEEP_MAX_MS);
        Ok(Instant::nearest(until).min(latest))
    }

    fn wish(&mut self, permit: &Resource<Permit>, wish: Wish) -> Result<(), Failure> {
        let id = self.hold_id(permit)?;
        let record = self.mutation()?.permit(&id)?;
        if record.wish.is_some() {
            return Err(Wish::second().into());
        }
        record.wish = Some(wish);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
