//! `secrets`: encrypted values of the caller's scope, one primitive's apart from another's.
//!
//! A value is sealed by the store under the organization's data key, bound to its row; plain text
//! is never logged and never indexed. A signing key's private half never leaves this file.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use charter_kernel::manifest::CollectionReach;
use charter_kernel::unit::{Draft, Key, Space};
use charter_store::{Order, Query};
use ed25519_dalek::{Signer, SigningKey};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::bindings::charter::primitive::secrets::Host;
use crate::bindings::charter::primitive::types::Failure;
use crate::failure::{failure, invalid, not_found, unread, write_failure};
use crate::state::{State, Work};

/// Bytes of a secret.
const VALUE_BYTES_MAX: usize = 64 << 10;
/// Bytes of a secret's name.
const NAME_BYTES_MAX: usize = 200;
/// Secrets that `names` answers.
const NAMES_MAX: usize = 10_000;

/// The body of a row in `host.secrets`.
#[derive(Serialize, Deserialize)]
struct Sealed {
    name: String,
    /// `value`, or the algorithm of a signing key.
    kind: String,
    /// Base64 of what the store sealed.
    sealed: String,
}

fn space() -> Space {
    Space::host("secrets")
}

impl Work {
    fn secret(&self, name: &str) -> Result<Key, Failure> {
        if name.is_empty() || name.len() > NAME_BYTES_MAX || name.contains('\0') {
            return Err(invalid(
                "name",
                format!("a secret's name has 1 to {NAME_BYTES_MAX} bytes"),
            )
            .into());
        }
        let narrowest =
            [CollectionReach::User, CollectionReach::Project, CollectionReach::Organization];
        let reach = narrowest.into_iter().find_map(|reach| self.call.scope.reach(reach));
        let reach = reach.ok_or_else(|| {
            failure("invalid_input", "a secret needs a caller that belongs to an organization")
        })?;
        Ok(Key::new(&reach, &space(), format!("{}/{name}", self.component.manifest.name)))
    }

    /// The context that a sealed value is bound to: another row's does not open here.
    fn context(key: &Key) -> String {
        format!("secret:{}:{}", key.reach.as_str(), key.id)
    }

    async fn seal_into(&mut self, name: &str, kind: &str, value: &[u8]) -> Result<(), Failure> {
        let key = self.secret(name)?;
        let sealed =
            self.shared.store.seal(self.call.scope.lane(), &Self::context(&key), value).await;
        let sealed = sealed.map_err(|error| seal_failure(&error))?;
        let body = Sealed { name: name.into(), kind: kind.into(), sealed: STANDARD.encode(sealed) };
        let draft = Draft {
            user: self.call.scope.user().map(|id| id.as_str().to_owned()),
            body: serde_json::to_string(&body)
                .map_err(|_| failure("internal_error", "the secret cannot be written"))?,
            index: vec![("primitive".into(), self.component.manifest.name.clone())],
            ..Draft::default()
        };
        self.txn.put(key, draft).await.map_err(|error| write_failure(&error))?;
        Ok(())
    }

    async fn unseal(
        &mut self,
        name: &str,
    ) -> Result<Option<(String, Zeroizing<Vec<u8>>)>, Failure> {
        let key = self.secret(name)?;
        let Some(row) = self.txn.get(&key).await.map_err(|error| unread(&error))? else {
            return Ok(None);
        };
        let damaged = || failure("internal_error", "the secret cannot be read");
        let body: Sealed = serde_json::from_str(&row.body).map_err(|_| damaged())?;
        let sealed = STANDARD.decode(&body.sealed).map_err(|_| damaged())?;
        let value =
            self.shared.store.unseal(self.call.scope.lane(), &Self::context(&key), &sealed).await;
        Ok(Some((body.kind, Zeroizing::new(value.map_err(|error| seal_failure(&error))?.to_vec()))))
    }
}

impl State {
    /// The kind and the value of a secret, held beside so many bytes that cross.
    async fn read_secret(
        &mut self,
        name: &str,
        crossing: usize,
    ) -> Result<Option<(String, Zeroizing<Vec<u8>>)>, Failure> {
        self.make_room_beside(crossing)?;
        let found = self.work()?.unseal(name).await?;
        let bytes = found.as_ref().map_or(0, |(_, value)| value.len());
        self.hold(crossing.saturating_add(bytes))?;
        Ok(found)
    }
}

fn seal_failure(error: &charter_store::SealError) -> Failure {
    tracing::error!(%error, "a secret could not be sealed or opened");
    failure("internal_error", "the secret cannot be sealed or opened").into()
}

impl Host for State {
    async fn put(&mut self, name: String, value: Vec<u8>) -> Result<(), Failure> {
        let value = Zeroizing::new(value);
        self.hold(name.len() + value.len())?;
        let work = self.mutation()?;
        if value.len() > VALUE_BYTES_MAX {
            return Err(failure(
                "payload_too_large",
                format!("a secret has at most {VALUE_BYTES_MAX} bytes"),
            )
            .into());
        }
        work.seal_into(&name, "value", &value).await
    }

    async fn get(&mut self, name: String) -> Result<Option<Vec<u8>>, Failure> {
        match self.read_secret(&name, 0).await? {
            Some((kind, value)) if kind == "value" => Ok(Some(value.to_vec())),
            Some(_) => {
                Err(failure("forbidden", "a signing key's private half is not handed out").into())
            }
            None => Ok(None),
        }
    }

    async fn remove(&mut self, name: String) -> Result<bool, Failure> {
        self.hold(name.len())?;
        let work = self.mutation()?;
        let key = work.secret(&name)?;
        Ok(work.txn.remove(&key, None).await.map_err(|error| write_failure(&error))?)
    }

    async fn names(&mut self) -> Result<Vec<String>, Failure> {
        let work = self.work()?;
        let own = work.component.manifest.name.clone();
        let key = work.secret("any")?;
        let mut query = Query::all(&key.reach, &key.space).equal("primitive", &*own).limit(1_000);
        query.order = Order::Oldest;
        let (mut names, mut bytes) = (Vec::<String>::new(), 0);
        while names.len() < NAMES_MAX {
            // Of rows with large values a page has fewer: it ends when its bytes are full.
            self.make_room_beside(bytes)?;
            let page = self.work()?.txn.find(&query).await.map_err(|error| unread(&error))?;
            let name = |id: &str| id.strip_prefix(&*own)?.strip_prefix('/').map(str::to_owned);
            names.extend(page.items.iter().filter_map(|(key, _)| name(&key.id)));
            bytes = names.iter().map(String::len).sum();
            self.hold(bytes)?;
            match page.next {
                Some(next) => query.after = Some(next),
                None => break,
            }
        }
        Ok(names)
    }

    async fn generate(&mut self, name: String, algorithm: String) -> Result<Vec<u8>, Failure> {
        self.hold(name.len() + algorithm.len())?;
        let work = self.mutation()?;
        if algorithm != "ed25519" {
            return Err(
                invalid("algorithm", "the host makes keys of the algorithm `ed25519`").into()
            );
        }
        let private = Zeroizing::new(work.shared.random::<32>()?);
        let public = SigningKey::from_bytes(&private).verifying_key().to_bytes().to_vec();
        work.seal_into(&name, "ed25519", &*private).await?;
        Ok(public)
    }

    async fn sign(&mut self, name: String, message: Vec<u8>) -> Result<Vec<u8>, Failure> {
        let Some((kind, private)) = self.read_secret(&name, message.len()).await? else {
            return Err(not_found("the key").into());
        };
        let private: Option<&[u8; 32]> = private.as_slice().try_into().ok();
        match private.filter(|_| kind == "ed25519") {
            Some(private) => Ok(SigningKey::from_bytes(private).sign(&message).to_bytes().to_vec()),
            None => Err(invalid("name", "this secret is no signing key").into()),
        }
    }
}

#[cfg(test)]
mod tests;
