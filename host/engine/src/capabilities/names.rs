//! `names`: names unique in the whole deployment. The holder of a name can be reached by it, and
//! learns nothing of the asking party but the payload.

use charter_kernel::unit::Claim;
use serde_json::{Value, json};

use super::jobs::PAYLOAD_BYTES_MAX;
use crate::bindings::charter::primitive::names::Host;
use crate::bindings::charter::primitive::types::Failure;
use crate::failure::{failure, invalid, unread};
use crate::job::{JobRecord, NAME, Owner};
use crate::state::{State, Work};

/// Runs of a delivery.
const ATTEMPTS_MAX: u32 = 10;

impl Work {
    fn name(&self, space: &str, name: &str) -> Result<Claim, Failure> {
        let wrong = |text: &str| text.is_empty() || text.len() > 250 || text.contains('\0');
        if wrong(space) || wrong(name) {
            return Err(invalid("name", "a name and its space have 1 to 250 bytes each").into());
        }
        Ok(Claim::name(&format!("{}.{space}", self.component.manifest.name), name))
    }
}

impl Host for State {
    async fn claim(
        &mut self,
        space: String,
        name: String,
        collection: String,
        document: String,
    ) -> Result<bool, Failure> {
        self.hold(space.len() + name.len() + collection.len() + document.len())?;
        let work = self.mutation()?;
        super::check_key("document", &document)?;
        let claim = work.name(&space, &name)?;
        let holder = work.key(&collection, &document, true)?;
        Ok(work.txn.claim(&claim, &holder).await.map_err(|error| unread(&error))?)
    }

    async fn release(&mut self, space: String, name: String) -> Result<(), Failure> {
        self.hold(space.len() + name.len())?;
        let work = self.mutation()?;
        let claim = work.name(&space, &name)?;
        let Some(holder) = work.txn.lookup(&claim).await.map_err(|error| unread(&error))? else {
            return Ok(());
        };
        // Only a holder within the caller's own reach: the key is made anew from the scope and
        // compared.
        let component = work.component.clone();
        let own =
            component.collections.values().filter(|plan| plan.space == holder.space).any(|plan| {
                plan.reach_to_write(&work.call.scope).is_ok_and(|reach| reach == holder.reach)
            });
        if own {
            work.txn.unclaim(&claim, &holder);
        }
        Ok(())
    }

    async fn deliver(
        &mut self,
        space: String,
        name: String,
        payload: String,
    ) -> Result<bool, Failure> {
        if payload.len() > PAYLOAD_BYTES_MAX {
            return Err(failure(
                "payload_too_large",
                format!("what is sent to a name has at most {PAYLOAD_BYTES_MAX} bytes"),
            )
            .into());
        }
        self.hold(space.len() + name.len() + payload.len())?;
        let work = self.mutation()?;
        let claim = work.name(&space, &name)?;
        let Some(holder) = work.txn.lookup(&claim).await.map_err(|error| unread(&error))? else {
            return Ok(false);
        };
        let payload = json!({
            "space": space,
            "name": name,
            "collection": holder.space.as_str().rsplit_once('.').map(|(_, collection)| collection),
            "document": holder.id,
            "payload": super::events::json("payload", &payload)?,
        });
        let organization =
            work.txn.organization_of(&holder).await.map_err(|error| unread(&error))?;
        if organization.is_none() {
            return Ok(false);
        }
        let owner = Owner::of_reach(&holder.reach, organization);
        work.signal(
            NAME,
            &format!("{}.{space}", work.component.manifest.name),
            payload,
            owner,
            ATTEMPTS_MAX,
        )
        .await?;
        Ok(true)
    }
}

impl Work {
    /// The name of whom what it sends counts as: of an organization, one of those who share what it has.
    fn sender(&self) -> String {
        let scope = &self.call.scope;
        format!("{} {}", scope.lane(), scope.sharer().name)
    }

    /// A signal to this primitive in the scope of `owner`, run as a job after the commit.
    async fn signal(
        &mut self,
        kind: &str,
        name: &str,
        payload: Value,
        owner: Owner,
        attempts_max: u32,
    ) -> Result<String, Failure> {
        let record = JobRecord {
            name: name.into(),
            payload: payload.into(),
            sender: (kind == NAME).then(|| self.sender()),
            attempts_max,
            request: Some(self.call.request_id.clone()),
            ..JobRecord::of_signal(&self.component.manifest.name, kind, owner, self.now)
        };
        self.put_job(record).await
    }
}

#[cfg(test)]
mod tests;
