//! `hooks`: inbound URLs of the caller's scope. Opening and closing ride in the request's commit;
//! the server's route checks each call and tells the primitive by a signal.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use charter_kernel::hex::hex;
use charter_kernel::share;
use charter_kernel::unit::{Key, Reach, Write};
use charter_store::Query;
use zeroize::Zeroizing;

use crate::bindings::charter::primitive::hooks::{Hook, Host};
use crate::bindings::charter::primitive::types::Failure;
use crate::failure::{
    failure, invalid, not_configured, not_found, undeclared, unread, write_failure,
};
use crate::hook::{
    BY, BY_PROJECT, HOOKS_MAX, HookRecord, OWN, REFERENCE_BYTES_MAX, SIGNAL, Scheme, Wanted, hooks,
};
use crate::job::Owner;
use crate::job::room::{Part, Shared, part_of};
use crate::state::{State, Work};

/// The prefix of a secret, as receivers of webhooks know it.
const SECRET_PREFIX: &str = "whsec_";

impl Work {
    /// The owner in whose scope a document's hook is told: the document's own.
    fn hook_owner(&self, document: &Key) -> Result<Owner, Failure> {
        let scope = &self.call.scope;
        if scope.organization().is_none() {
            return Err(invalid(
                "document",
                "a hook needs a caller that belongs to an organization",
            )
            .into());
        }
        let mut owner = Owner::of_reach(&document.reach, Some(scope.lane().to_owned()));
        if document.reach == Reach::deployment() {
            return Err(
                invalid("collection", "a document that everyone shares has no hooks").into()
            );
        }
        if owner.user.is_some() {
            owner.project = scope.project().map_or_else(String::new, |id| id.as_str().to_owned());
        }
        owner.root.clone_from(&scope.principal().root);
        Ok(owner)
    }

    /// A scheme that can be checked here.
    fn scheme(&self, text: &str) -> Result<Scheme, Failure> {
        let told = "is one of standard-webhooks, hmac-sha256, none and binding:<name>";
        let scheme = Scheme::parse(text).ok_or_else(|| invalid("scheme", told))?;
        let manifest = &self.component.manifest;
        if !manifest.signals.iter().any(|signal| signal == SIGNAL) {
            return Err(undeclared(
                "the manifest asks for no signal `hook`: nothing would hear the calls",
            )
            .into());
        }
        if let Scheme::Binding(name) = &scheme
            && !manifest.providers.iter().any(|provider| provider.name == *name)
        {
            return Err(undeclared(format!("the manifest declares no provider `{name}`")).into());
        }
        Ok(scheme)
    }

    /// A new secret, and how it is kept.
    async fn hook_secret(&self, id: &str) -> Result<(String, String), Failure> {
        let bytes = Zeroizing::new(self.shared.random::<32>()?);
        let secret = format!("{SECRET_PREFIX}{}", STANDARD.encode(*bytes));
        let sealed = self
            .shared
            .store
            .seal(self.call.scope.lane(), &HookRecord::context(id), secret.as_bytes())
            .await;
        let sealed = sealed.map_err(|error| {
            tracing::error!(%error, "a hook's secret could not be sealed");
            failure("internal_error", "the hook's secret cannot be sealed")
        })?;
        Ok((secret, STANDARD.encode(sealed)))
    }

    /// The organization's hooks that have a URL of their own and this entry, with what this request has
    /// opened and closed, which a count does not see.
    async fn hooks_open(
        &mut self,
        organization: &str,
        entry: Option<(&str, &str)>,
    ) -> Result<u64, Failure> {
        let entries: Vec<_> = std::iter::once((OWN, "1")).chain(entry).collect();
        let all = Query::all(&Reach::organization(organization), &hooks());
        let asked = entries.iter().fold(all, |asked, (field, value)| asked.equal(field, *value));
        let mut open = self.txn.count(&asked).await.map_err(|error| unread(&error))?;
        let counts = |index: &[(String, String)]| {
            let has = |(field, value): &(&str, &str)| {
                index.iter().any(|(own, its)| own == field && its == value)
            };
            entries.iter().all(has)
        };
        for write in &self.txn.unit().writes {
            match write {
                Write::Insert { key, draft } if key.space == hooks() && counts(&draft.index) => {
                    open += 1;
                }
                Write::Remove { key, .. } if key.space == hooks() => {
                    let closed = self.txn.store().get(key).await.map_err(|error| unread(&error))?;
                    let was_own = closed.is_some_and(|row| counts(&row.index));
                    open = open.saturating_sub(u64::from(was_own));
                }
                _ => {}
            }
        }
        Ok(open)
    }

    /// Whether there is room for one more hook with a URL of its own.
    async fn has_room_for_hook(
        &mut self,
        organization: &str,
        part: &Part,
    ) -> Result<bool, Failure> {
        let free = part.max().saturating_sub(self.hooks_open(organization, None).await?);
        let Some(Shared { project, own }) = part.sharer() else { return Ok(free > 0) };
        let of_project = self.hooks_open(organization, Some((BY_PROJECT, project))).await?;
        let own = self.hooks_open(organization, Some((BY, own))).await?;
        Ok(share::leaves(free, of_project, own))
    }

    async fn open_hook(
        &mut self,
        collection: &str,
        document: &str,
        scheme: &str,
    ) -> Result<Hook, Failure> {
        let key = self.key(collection, document, true)?;
        let owner = self.hook_owner(&key)?;
        let scheme = self.scheme(scheme)?;
        if self.txn.get(&key).await.map_err(|error| unread(&error))?.is_none() {
            return Err(not_found("the document").into());
        }
        let max = part_of(HOOKS_MAX, self.call.scope.principal().behind());
        let part = Part::of_group(max, &self.own_group());
        if scheme.has_url() && !self.has_room_for_hook(&owner.organization, &part).await? {
            let told = format!(
                "of the {max} hooks with a URL of their own that leave room for this one, those of who asks are as \
                 many as the organization has free: close some"
            );
            return Err(failure("state_conflict", told).into());
        }
        let id = hex(&self.shared.random::<16>()?);
        let host =
            self.shared.host().ok_or_else(|| not_configured("inbound URLs", "the server"))?;
        let caller = &self.call.scope;
        let url =
            host.hook_address(Wanted { scope: caller, owner: &owner, id: &id, scheme: &scheme })?;
        let (secret, sealed) = match scheme.is_keyed() {
            true => {
                self.hook_secret(&id).await.map(|(secret, sealed)| (Some(secret), Some(sealed)))?
            }
            false => (None, None),
        };
        let record = HookRecord {
            id: id.clone(),
            owner,
            primitive: self.component.manifest.name.clone(),
            collection: collection.to_owned(),
            document: (key.reach.as_str().to_owned(), key.id),
            scheme,
            secret: sealed,
            reference: None,
            by: part.sharer().cloned(),
            opened_at: self.now,
        };
        let draft =
            record.draft().map_err(|_| failure("internal_error", "the hook cannot be written"))?;
        self.txn.insert(record.key(), draft).await.map_err(|error| write_failure(&error))?;
        self.txn
            .claim(&HookRecord::name(&id), &record.key())
            .await
            .map_err(|error| unread(&error))?;
        Ok(Hook { id, url, secret })
    }

    /// The hook of this id, where it belongs to a document that the caller may write.
    async fn own_hook(&mut self, id: &str) -> Result<Option<HookRecord>, Failure> {
        let key = HookRecord::address(self.call.scope.lane(), id);
        let Some(row) = self.txn.get(&key).await.map_err(|error| unread(&error))? else {
            return Ok(None);
        };
        let record: HookRecord = serde_json::from_str(&row.body)
            .map_err(|_| failure("internal_error", "the hook cannot be read"))?;
        let own = record.primitive == self.component.manifest.name
            && self
                .key(&record.collection, &record.document.1, true)
                .is_ok_and(|key| key == record.document_key());
        Ok(own.then_some(record))
    }

    async fn refer_hook(&mut self, id: &str, reference: String) -> Result<(), Failure> {
        let mut hook = self.own_hook(id).await?.ok_or_else(|| not_found("the hook"))?;
        if hook.provider().is_none() {
            return Err(invalid("id", "is no hook that a provider calls one URL for").into());
        }
        if reference.is_empty()
            || reference.len() > REFERENCE_BYTES_MAX
            || reference.contains(char::is_control)
        {
            return Err(invalid(
                "reference",
                format!("has 1 to {REFERENCE_BYTES_MAX} visible bytes"),
            )
            .into());
        }
        if hook.reference.as_ref() == Some(&reference) {
            return Ok(());
        }
        let key = hook.key();
        if let Some(name) = hook.reference_claim() {
            self.txn.unclaim(&name, &key);
        }
        hook.reference = Some(reference);
        let draft =
            hook.draft().map_err(|_| failure("internal_error", "the hook cannot be written"))?;
        self.txn.replace(key.clone(), draft, None).await.map_err(|error| write_failure(&error))?;
        if let Some(name) = hook.reference_claim() {
            let is_free = self.txn.claim(&name, &key).await.map_err(|error| unread(&error))?;
            if !is_free {
                let told = "the provider's object leads to another hook already";
                return Err(failure("state_conflict", told).into());
            }
        }
        Ok(())
    }
}

impl Host for State {
    async fn open(
        &mut self,
        collection: String,
        document: String,
        scheme: String,
    ) -> Result<Hook, Failure> {
        self.hold(collection.len() + document.len() + scheme.len())?;
        self.mutation()?.open_hook(&collection, &document, &scheme).await
    }

    async fn refer(&mut self, id: String, reference: String) -> Result<(), Failure> {
        self.hold(id.len() + reference.len())?;
        self.mutation()?.refer_hook(&id, reference).await
    }

    async fn close(&mut self, id: String) -> Result<bool, Failure> {
        self.hold(id.len())?;
        let work = self.mutation()?;
        let Some(record) = work.own_hook(&id).await? else { return Ok(false) };
        work.txn.unclaim(&HookRecord::name(&record.id), &record.key());
        if let Some(name) = record.reference_claim() {
            work.txn.unclaim(&name, &record.key());
        }
        Ok(work.txn.remove(&record.key(), None).await.map_err(|error| write_failure(&error))?)
    }
}

#[cfg(test)]
mod tests;
