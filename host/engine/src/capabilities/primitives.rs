//! `primitives`: another primitive, called as the same caller, through the server's own pipeline.
//!
//! A mutation commits on its own and counts as an effect: the outer request's claim goes before it, and the guest is not run
//! again after it. Depth is bounded.

use crate::bindings::charter::primitive::primitives::{Host, Reply};
use crate::bindings::charter::primitive::types::Failure;
use crate::failure::{failure, not_configured};
use crate::host::Nested;
use crate::state::State;

/// How deep calls may nest.
const DEPTH_MAX: u8 = 4;

impl Host for State {
    async fn call(
        &mut self,
        operation: String,
        parameters: Vec<(String, String)>,
        body: Option<String>,
        idempotency_key: Option<String>,
        scopes: Vec<(String, String)>,
    ) -> Result<Reply, Failure> {
        let work = self.work()?;
        let host = work.shared.host().ok_or_else(|| not_configured("nested calls", "the server's pipeline"))?;
        if work.call.depth >= DEPTH_MAX {
            return Err(failure("state_conflict", format!("calls of primitives nest at most {DEPTH_MAX} deep")).into());
        }
        let mutates = host.mutates(&operation);
        if mutates {
            let work = self.mutation()?;
            let (shared, call, marks) = (work.shared.clone(), work.call.clone(), work.story.marks.clone());
            shared.force_claim(&call, &marks).await?;
            marks.dispatch();
        }
        let work = self.work()?;
        work.nested += 1;
        let derived = || format!("{}:{}:{}", work.call.request_id, work.component.manifest.name, work.nested);
        let nested = Nested {
            request: work.call.request_id.clone(),
            scope: work.call.scope.clone(),
            primitive: work.component.manifest.name.clone(),
            operation,
            parameters,
            body,
            idempotency_key: idempotency_key.unwrap_or_else(derived),
            scopes,
            depth: work.call.depth + 1,
            deadline_ms: work
                .deadline
                .saturating_duration_since(tokio::time::Instant::now())
                .as_millis()
                .try_into()
                .unwrap_or(u32::MAX),
        };
        let reply = host.call(nested).await?;
        Ok(Reply { status: reply.status, body: reply.body })
    }

    async fn tools(&mut self) -> Result<String, Failure> {
        let work = self.work()?;
        let host = work.shared.host().ok_or_else(|| not_configured("tools", "the server's pipeline"))?;
        Ok(host.tools(&work.call.scope).await?.to_string())
    }

    async fn set_standing(&mut self, reason: Option<String>) -> Result<(), Failure> {
        let work = self.mutation()?;
        let host = work.shared.host().ok_or_else(|| not_configured("billing standing", "the server's pipeline"))?;
        let (shared, call, marks) = (work.shared.clone(), work.call.clone(), work.story.marks.clone());
        shared.force_claim(&call, &marks).await?;
        marks.dispatch();
        Ok(host.set_standing(&call.scope, &work.component.manifest.name, reason).await?)
    }
}
