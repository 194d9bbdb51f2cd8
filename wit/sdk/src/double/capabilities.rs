//! The doubles of the smaller capabilities, each with the generated function's signature.

use crate::bindings::charter::primitive::types::Failure as Raw;
use crate::failure::Failure;

type Result<T> = std::result::Result<T, Raw>;

fn unsupported(what: &str) -> Raw {
    Failure::not_configured(&[what]).into()
}

pub(crate) mod clock {
    pub(crate) fn now_ms() -> i64 {
        crate::double::state::with(|state| state.now_ms)
    }
}

pub(crate) mod events {
    use super::{Failure, Result};
    use crate::double::state::{Audited, Emitted, with};

    pub(crate) fn emit(name: &str, payload: &str) -> Result<()> {
        let payload = serde_json::from_str(payload).map_err(Failure::from)?;
        with(|state| state.events.push(Emitted { name: name.into(), payload }));
        Ok(())
    }

    pub(crate) fn audit(
        action: &str,
        entity_type: &str,
        entity_id: &str,
        details: &str,
    ) -> Result<()> {
        let details = serde_json::from_str(details).map_err(Failure::from)?;
        let row = Audited {
            action: action.into(),
            entity_type: entity_type.into(),
            entity_id: entity_id.into(),
            details,
        };
        with(|state| state.audits.push(row));
        Ok(())
    }
}

pub(crate) mod streams {
    use super::{Failure, Result};
    use crate::bindings::charter::primitive::streams::Entry;
    use crate::double::state::with;

    pub(crate) fn append(log: &str, name: &str, payload: &str) -> Result<()> {
        with(|state| {
            let at = state.now_ms;
            let (entries, closed) = state.logs.entry(log.into()).or_default();
            if *closed {
                return Err(Failure::conflict("the log is closed").into());
            }
            let sequence = entries.len() as u64 + 1;
            entries.push(Entry { sequence, at, name: name.into(), payload: payload.into() });
            Ok(())
        })
    }

    pub(crate) fn read(log: &str, after: u64, limit: u32) -> Result<Vec<Entry>> {
        with(|state| {
            let entries =
                state.logs.get(log).map(|(entries, _)| entries.iter()).into_iter().flatten();
            Ok(entries
                .filter(|entry| entry.sequence > after)
                .take(limit as usize)
                .cloned()
                .collect())
        })
    }

    pub(crate) fn head(log: &str) -> Result<u64> {
        Ok(with(|state| state.logs.get(log).map_or(0, |(entries, _)| entries.len() as u64)))
    }

    pub(crate) fn close(log: &str) -> Result<()> {
        with(|state| state.logs.entry(log.into()).or_default().1 = true);
        Ok(())
    }
}

pub(crate) mod jobs {
    use super::{Result, unsupported};
    use crate::bindings::charter::primitive::jobs::{Job, Schedule};
    use crate::double::state::with;

    pub(crate) fn enqueue(job: &Job) -> Result<String> {
        with(|state| {
            let live = state.jobs.iter().find(|(_, live)| job.key.is_some() && live.key == job.key);
            if let Some((id, _)) = live {
                return Ok(id.clone());
            }
            let id = state.next_id();
            state.jobs.insert(id.clone(), job.clone());
            Ok(id)
        })
    }

    pub(crate) fn cancel(id: &str) -> Result<bool> {
        Ok(with(|state| state.jobs.remove(id).is_some()))
    }

    pub(crate) fn cancel_key(key: &str) -> Result<bool> {
        with(|state| {
            let held = state.jobs.len();
            state.jobs.retain(|_, job| job.key.as_deref() != Some(key));
            Ok(state.jobs.len() < held)
        })
    }

    pub(crate) fn progress(_id: &str, _fraction: f32, _note: &str) -> Result<()> {
        Ok(())
    }

    pub(crate) fn set_schedule(_schedule: &Schedule) -> Result<i64> {
        Err(unsupported("schedules"))
    }

    pub(crate) fn remove_schedule(_key: &str) -> Result<bool> {
        Err(unsupported("schedules"))
    }
}

pub(crate) mod hooks {
    use super::{Failure, Result};
    use crate::bindings::charter::primitive::hooks::Hook;
    use crate::double::state::with;

    pub(crate) fn open(collection: &str, document: &str, scheme: &str) -> Result<Hook> {
        with(|state| {
            if state.rows.get(collection).is_none_or(|rows| !rows.contains_key(document)) {
                return Err(Failure::not_found("document").into());
            }
            let binding = scheme.strip_prefix("binding:");
            if let Some(name) = binding.filter(|name| !state.bindings.contains_key(*name)) {
                return Err(Failure::not_configured(&[name]).into());
            }
            let id = state.next_id();
            state.hooks.insert(id.clone(), (collection.to_owned(), document.to_owned()));
            let url = match binding {
                Some(name) => format!("https://charter.example/v1/hooks/providers/{name}"),
                None => format!("https://charter.example/v1/hooks/{id}"),
            };
            let secret = ["standard-webhooks", "hmac-sha256"]
                .contains(&scheme)
                .then(|| format!("whsec_{id}"));
            Ok(Hook { id, url, secret })
        })
    }

    pub(crate) fn refer(id: &str, reference: &str) -> Result<()> {
        with(|state| {
            if !state.hooks.contains_key(id) {
                return Err(Failure::not_found("hook").into());
            }
            let known =
                state.references.entry(reference.to_owned()).or_insert_with(|| id.to_owned());
            if known == id { Ok(()) } else { Err(Failure::conflict("the name is taken").into()) }
        })
    }

    pub(crate) fn close(id: &str) -> Result<bool> {
        Ok(with(|state| {
            state.references.retain(|_, hook| hook != id);
            state.hooks.remove(id).is_some()
        }))
    }
}

pub(crate) mod secrets {
    use super::{Result, unsupported};
    use crate::double::state::with;

    pub(crate) fn put(name: &str, value: &[u8]) -> Result<()> {
        with(|state| state.secrets.insert(name.into(), value.into()));
        Ok(())
    }

    pub(crate) fn get(name: &str) -> Result<Option<Vec<u8>>> {
        Ok(with(|state| state.secrets.get(name).cloned()))
    }

    pub(crate) fn remove(name: &str) -> Result<bool> {
        Ok(with(|state| state.secrets.remove(name).is_some()))
    }

    pub(crate) fn names() -> Result<Vec<String>> {
        Ok(with(|state| state.secrets.keys().cloned().collect()))
    }

    pub(crate) fn generate(_name: &str, _algorithm: &str) -> Result<Vec<u8>> {
        Err(unsupported("keys"))
    }

    pub(crate) fn sign(_name: &str, _message: &[u8]) -> Result<Vec<u8>> {
        Err(unsupported("keys"))
    }
}

pub(crate) mod settings {
    use super::Result;
    use crate::double::state::with;

    pub(crate) fn get(key: &str) -> Result<Option<String>> {
        Ok(with(|state| state.settings.get(key).map(ToString::to_string)))
    }

    pub(crate) fn bindings(provider: &str) -> Result<String> {
        let unbound = || serde_json::json!({ "name": provider, "kind": null, "state": "unbound", "sandbox": false, "options": {} });
        Ok(with(|state| {
            serde_json::json!([state.bindings.get(provider).cloned().unwrap_or_else(unbound)])
                .to_string()
        }))
    }
}

pub(crate) mod primitives {
    use super::{Failure, Result, unsupported};
    use crate::bindings::charter::primitive::primitives::Reply;
    use crate::double::state::with;

    pub(crate) fn set_standing(reason: Option<&str>) -> Result<()> {
        with(|state| {
            if !state.bills {
                return Err(Failure::forbidden("the primitive is not the one that bills").into());
            }
            state.standing = reason.map(str::to_owned);
            Ok(())
        })
    }

    pub(crate) fn call(
        operation: &str,
        _parameters: &[(String, String)],
        _body: Option<&str>,
        _idempotency_key: Option<&str>,
        _scopes: &[(String, String)],
    ) -> Result<Reply> {
        Err(unsupported(operation))
    }
}

pub(crate) mod log {
    use crate::bindings::charter::primitive::log::Level;

    pub(crate) fn write(_level: Level, _message: &str, _fields: &[(String, String)]) {}
}
