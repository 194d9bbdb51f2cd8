//! `settings`: what the operator and the caller's kit have set; the manifest's default where they
//! have not.

use crate::bindings::charter::primitive::settings::Host;
use crate::bindings::charter::primitive::types::Failure;
use crate::failure::{not_configured, undeclared};
use crate::state::State;

impl Host for State {
    async fn get(&mut self, key: String) -> Result<Option<String>, Failure> {
        let work = self.work()?;
        let component = work.component.clone();
        let Some(declared) = component.manifest.settings.iter().find(|setting| setting.key == key)
        else {
            return Err(undeclared(format!("the manifest declares no setting `{key}`")).into());
        };
        let set = match work.shared.host() {
            Some(host) => host.setting(&work.call.scope, &component.manifest.name, &key).await?,
            None => None,
        };
        let value = set.as_ref().unwrap_or(&declared.default);
        Ok((!value.is_null()).then(|| value.to_string()))
    }

    async fn bindings(&mut self, provider: String) -> Result<String, Failure> {
        let work = self.work()?;
        let name = &work.component.manifest.name;
        if !work.component.manifest.providers.iter().any(|declared| declared.name == provider) {
            return Err(
                undeclared(format!("the manifest declares no provider `{provider}`")).into()
            );
        }
        let host = work.shared.host().ok_or_else(|| not_configured("bindings", "bindings"))?;
        Ok(host.bindings(&work.call.scope, name, &provider).await?.to_string())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::run::bed::{Bed, user};

    #[tokio::test]
    async fn a_setting_is_declared_and_has_its_default_until_it_is_set() {
        let bed = Bed::new().await;
        let get =
            async |key: &str| bed.by(user(3), async |guest| guest.get(key.into()).await).await;
        assert_eq!(get("tone").await, Ok(Some("\"calm\"".into())));
        assert_eq!(get("bare").await, Ok(None));
        for key in ["", "Tone", "anothers"] {
            assert_eq!(get(key).await, Err("internal_error:UNDECLARED".into()), "{key}");
        }
        let set = json!({ "tone": { "loud": true }, "bare": null, "anothers": 1 });
        *bed.desk.settings.lock().unwrap() = serde_json::from_value(set).unwrap();
        assert_eq!(get("tone").await, Ok(Some("{\"loud\":true}".into())));
        assert_eq!(get("bare").await, Ok(None), "nothing was set");
        assert_eq!(get("anothers").await, Err("internal_error:UNDECLARED".into()));
    }

    #[tokio::test]
    async fn bindings_are_told_of_declared_providers_alone() {
        let bed = Bed::new().await;
        let bindings = async |provider: &str| {
            bed.by(user(3), async |guest| guest.bindings(provider.into()).await).await
        };
        let told = json!([{ "name": "shop.peer", "for": "shop" }]).to_string();
        assert_eq!(bindings("shop.peer").await, Ok(told));
        for provider in ["", "other.peer", "shop.pee"] {
            let said = bindings(provider).await;
            assert_eq!(said, Err("internal_error:UNDECLARED".into()), "{provider}");
        }
    }
}
