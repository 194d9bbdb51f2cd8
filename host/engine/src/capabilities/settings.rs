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
