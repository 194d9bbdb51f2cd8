//! The interfaces that decide little: logs, secrets, settings, the operator's log, the clock and the
//! outside world.

use charter_kernel::apply::rule;
use charter_kernel::refusal::{Failure, Refusal};
use charter_kernel::unit::{Draft, Key, LogKey, Space, Write};
use charter_sdk::bindings::charter::primitive::{log, streams};
use charter_sdk::http::{Error, Request, Response};
use charter_sdk::native::{Answer, Clock, Log, Outside, Secrets, Settings, Streams};
use serde_json::{Value, json};

use super::events::json as parsed;
use crate::call::Work;
use crate::world::{Double, World, raw};

/// Bytes of the name of a secret or a log.
const NAME_BYTES_MAX: usize = 200;
/// Bytes of a secret.
const VALUE_BYTES_MAX: usize = 64 << 10;
/// Entries of one read of a log.
const READ_MAX: u32 = 1_000;

/// A capability that the double does not have.
pub(super) fn refuse_unsupported<T>(what: &str) -> Answer<T> {
    Err(raw(Refusal::not_configured(&[what]).to_failure()))
}

fn require_name(param: &str, name: &str) -> Result<(), Failure> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX || name.contains('\0') {
        let told = format!("a name has 1 to {NAME_BYTES_MAX} bytes");
        return Err(Failure::invalid(param, told));
    }
    Ok(())
}

impl Work {
    fn log(&self, world: &World, name: &str) -> Result<LogKey, Failure> {
        require_name("log", name)?;
        let log = format!("{}.{name}", world.name());
        Ok(LogKey { reach: self.call.scope.narrowest(), log })
    }

    fn secret(&self, world: &World, name: &str) -> Result<Key, Failure> {
        require_name("name", name)?;
        let id = format!("{}/{name}", world.name());
        Ok(Key::new(&self.call.scope.narrowest(), &Space::host("secrets"), id))
    }
}

impl Streams for Double {
    fn append(&self, log: &str, name: &str, payload: &str) -> Answer<()> {
        self.changing("streams", |world, work| {
            let log = work.log(world, log)?;
            parsed("payload", payload)?;
            let (name, payload) = (name.to_owned(), payload.to_owned());
            work.txn.write(Write::Append { log, name, payload });
            Ok(())
        })
    }

    fn read(&self, log: &str, after: u64, limit: u32) -> Answer<Vec<streams::Entry>> {
        self.reading("streams", |world, work| {
            let log = work.log(world, log)?;
            let entries = world.rows.entries(&log, after).take(limit.clamp(1, READ_MAX) as usize);
            let entries = entries.map(|entry| streams::Entry {
                sequence: entry.sequence,
                at: entry.at.0,
                name: entry.name.clone(),
                payload: entry.payload.clone(),
            });
            Ok(entries.collect())
        })
    }

    fn head(&self, log: &str) -> Answer<u64> {
        self.reading("streams", |world, work| Ok(world.rows.head(&work.log(world, log)?)))
    }

    fn close(&self, log: &str) -> Answer<()> {
        self.changing("streams", |world, work| {
            let log = work.log(world, log)?;
            work.txn.write(Write::Close { log });
            Ok(())
        })
    }
}

impl Secrets for Double {
    fn put(&self, name: &str, value: &[u8]) -> Answer<()> {
        self.changing("secrets", |world, work| {
            if value.len() > VALUE_BYTES_MAX {
                let told = format!("a secret has at most {VALUE_BYTES_MAX} bytes");
                return Err(Failure::new("payload_too_large", told));
            }
            let key = work.secret(world, name)?;
            let draft = Draft { body: json!({ "value": value }).to_string(), ..Draft::default() };
            let put = work.txn.put(&world.rows, key, draft);
            put.map(drop).map_err(|refused| rule(&refused))
        })
    }

    fn get(&self, name: &str) -> Answer<Option<Vec<u8>>> {
        self.reading("secrets", |world, work| {
            let key = work.secret(world, name)?;
            let row = work.txn.get(&world.rows, &key);
            let value = |body: &str| -> Option<Vec<u8>> {
                let kept: Value = serde_json::from_str(body).ok()?;
                serde_json::from_value(kept["value"].clone()).ok()
            };
            Ok(row.and_then(|row| value(&row.body)))
        })
    }

    fn remove(&self, name: &str) -> Answer<bool> {
        self.changing("secrets", |world, work| {
            let key = work.secret(world, name)?;
            work.txn.remove(&world.rows, &key, None).map_err(|refused| rule(&refused))
        })
    }

    fn names(&self) -> Answer<Vec<String>> {
        self.reading("secrets", |world, work| {
            let (reach, own) = (work.call.scope.narrowest(), format!("{}/", world.name()));
            let space = Space::host("secrets");
            let rows = world.rows.of(Some(&reach), &space);
            let names = rows.filter_map(|(key, _)| key.id.strip_prefix(&own).map(str::to_owned));
            Ok(names.collect())
        })
    }

    fn generate(&self, _: &str, _: &str) -> Answer<Vec<u8>> {
        refuse_unsupported("keys")
    }

    fn sign(&self, _: &str, _: &[u8]) -> Answer<Vec<u8>> {
        refuse_unsupported("keys")
    }
}

impl Settings for Double {
    fn get(&self, key: &str) -> Answer<Option<String>> {
        self.reading("settings", |world, _| {
            let declared =
                world.installed.manifest.settings.iter().find(|setting| setting.key == key);
            let declared = declared.ok_or_else(|| {
                Failure::undeclared(format!("the manifest declares no setting `{key}`"))
            })?;
            let value = world.settings.get(key).unwrap_or(&declared.default);
            Ok((!value.is_null()).then(|| value.to_string()))
        })
    }

    fn bindings(&self, provider: &str) -> Answer<String> {
        self.reading("settings", |world, _| {
            let mut declared = world.installed.manifest.providers.iter();
            if !declared.any(|declared| declared.name == provider) {
                let told = format!("the manifest declares no provider `{provider}`");
                return Err(Failure::undeclared(told));
            }
            let unbound = || {
                json!({ "name": provider, "kind": null, "state": "unbound", "sandbox": false, "options": {} })
            };
            let binding = world.bindings.get(provider).cloned().unwrap_or_else(unbound);
            Ok(json!([binding]).to_string())
        })
    }
}

impl Log for Double {
    fn write(&self, _: log::Level, _: &str, _: &[(String, String)]) {}
}

impl Clock for Double {
    fn now_ms(&self) -> i64 {
        self.with(|world| world.now.0)
    }
}

impl Outside for Double {
    fn send(&self, request: &Request) -> Result<Response, Error> {
        let is_read = ["GET", "HEAD", "OPTIONS"].contains(&request.method.as_str());
        let providers = self.with(|world| {
            if let Some(work) = world.work.as_mut().filter(|_| !is_read) {
                work.story.is_dispatched = true;
            }
            world.outside.clone()
        });
        let response = providers.iter().find_map(|provider| provider(request));
        let nobody = || Error::Unreachable(format!("nothing answers {}", request.url));
        let response = response.ok_or_else(nobody)?;
        if response.body.len() > request.body_bytes_max {
            return Err(Error::TooLarge);
        }
        Ok(response)
    }
}
