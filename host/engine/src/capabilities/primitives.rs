//! `primitives`: another primitive, called as the same caller, through the server's own pipeline.
//!
//! A mutation commits on its own and counts as an effect: the outer request's claim goes before it,
//! and the guest is not run again after it. Depth is bounded. The organization's standing is a row
//! of the call's own commit, and the biller's to write.

use charter_kernel::governance::proposal::check_call_scopes;
use charter_kernel::limits::NESTED_DEPTH_MAX;
use charter_kernel::standing::{Reason, Standing};
use charter_kernel::unit::{Draft, Guard};

use crate::bindings::charter::primitive::primitives::{Host, Reply};
use crate::bindings::charter::primitive::types::Failure;
use crate::failure::{failure, invalid, not_configured, unread, write_failure};
use crate::host::Nested;
use crate::state::{State, Work};

impl Host for State {
    async fn call(
        &mut self,
        operation: String,
        parameters: Vec<(String, String)>,
        body: Option<String>,
        idempotency_key: Option<String>,
        scopes: Vec<(String, String)>,
    ) -> Result<Reply, Failure> {
        let pairs = parameters.iter().chain(&scopes).flat_map(|(name, value)| [name, value]);
        let texts = pairs.chain(&body).chain(&idempotency_key).chain([&operation]);
        self.hold(texts.map(String::len).sum())?;
        check_call_scopes(&scopes)?;
        let work = self.work()?;
        let host = work
            .shared
            .host()
            .ok_or_else(|| not_configured("nested calls", "the server's pipeline"))?;
        if work.call.lineage.depth() >= NESTED_DEPTH_MAX {
            return Err(failure(
                "state_conflict",
                format!("calls of primitives nest at most {NESTED_DEPTH_MAX} deep"),
            )
            .into());
        }
        let mutates = host.mutates(&operation);
        if mutates {
            let work = self.work_that_changes()?;
            let (shared, call, marks) =
                (work.shared.clone(), work.call.clone(), work.story.marks.clone());
            let _commit = marks.begin_commit().await?;
            work.end_others().await?;
            shared.admit_effect(&call, &marks).await?;
            marks.dispatch();
        }
        let work = self.work()?;
        // Reads have no keys, and what is read may differ when a job is run again: only changes are
        // numbered.
        work.nested += u32::from(mutates);
        let lineage = work.call.lineage.child(work.nested);
        let nested = Nested {
            request: work.call.request_id.clone(),
            scope: work.call.scope.clone(),
            credential: work.credential(),
            primitive: work.component.manifest.name.clone(),
            operation,
            parameters,
            body,
            headers: Vec::new(),
            idempotency_key: idempotency_key.unwrap_or_else(|| lineage.key().to_owned()),
            lineage,
            deadline_ms: work
                .deadline
                .saturating_duration_since(tokio::time::Instant::now())
                .as_millis()
                .try_into()
                .unwrap_or(u32::MAX),
            repeatable: work.call.gateway.as_ref().is_some_and(|gateway| gateway.is_repeatable()),
        };
        let reply = match host.call(nested).await {
            Err(refused) if mutates && refused.denies_effect() => {
                self.work()?.story.marks.deny_effect();
                return Err(refused.into());
            }
            reply => reply?,
        };
        if reply.secret {
            self.work()?.call.shown.set();
        }
        // The call's effects stand; only the answer has no room.
        self.hold(reply.body.len())?;
        Ok(Reply { status: reply.status, body: reply.body })
    }

    async fn tools(&mut self) -> Result<String, Failure> {
        let work = self.work()?;
        let host =
            work.shared.host().ok_or_else(|| not_configured("tools", "the server's pipeline"))?;
        let tools = host.tools(&work.call.scope).await?.to_string();
        self.hold(tools.len())?;
        Ok(tools)
    }

    async fn set_standing(&mut self, reason: Option<String>) -> Result<(), Failure> {
        self.hold(reason.as_ref().map_or(0, String::len))?;
        let work = self.mutation()?;
        if !work.bills() {
            return Err(failure(
                "forbidden",
                "the operator has not named this primitive as the one that bills",
            )
            .into());
        }
        let reason = match reason {
            None => None,
            Some(name) => Some(
                Reason::parse(&name)
                    .ok_or_else(|| invalid("reason", "is no reason that stops anything"))?,
            ),
        };
        work.stand(reason).await
    }
}

impl Work {
    /// The guards under which others change things for it.
    fn credential(&self) -> Vec<Guard> {
        self.call.credential.iter().cloned().chain(self.story.marks.conditions()).collect()
    }

    /// Whether the component is the one that bills.
    pub(super) fn bills(&self) -> bool {
        self.shared.host().is_some_and(|host| host.bills(&self.component.manifest.name))
    }

    /// Has the organization stand so from this request's commit on. A standing that is so already
    /// keeps its time.
    async fn stand(&mut self, reason: Option<Reason>) -> Result<(), Failure> {
        let Some(organization) = self.call.scope.organization() else {
            return Err(invalid(
                "reason",
                "nobody's standing is set: the caller names no organization",
            )
            .into());
        };
        let key = Standing::address(organization.as_str());
        let row = self.txn.get(&key).await.map_err(|error| unread(&error))?;
        let before = row.and_then(|row| serde_json::from_str::<Standing>(&row.body).ok());
        match reason {
            None => drop(self.txn.remove(&key, None).await.map_err(|error| write_failure(&error))?),
            Some(reason) if before.is_some_and(|before| before.reason == reason) => {}
            Some(reason) => {
                let body = serde_json::to_string(&Standing { reason, since: self.now });
                let body =
                    body.map_err(|_| failure("internal_error", "the standing cannot be written"))?;
                self.txn
                    .put(key, Draft { body, ..Draft::default() })
                    .await
                    .map_err(|error| write_failure(&error))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
