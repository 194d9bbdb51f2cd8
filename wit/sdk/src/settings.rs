//! The settings of the operator and the kit, and the bound providers.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::failure::Result;
use crate::host::settings as host;

/// A declared setting's value: the kit's, else the operator's, else the manifest's default.
pub fn get<T: DeserializeOwned>(key: &str) -> Result<Option<T>> {
    Ok(host::get(key)?.map(|text| serde_json::from_str(&text)).transpose()?)
}

/// A provider's binding, without its credential.
#[derive(Clone, Debug, Deserialize)]
pub struct Binding {
    /// Its name.
    #[serde(default)]
    pub name: String,
    /// The protocol it speaks.
    #[serde(default)]
    pub kind: String,
    /// `bound`, `unbound`, `rejected` or `unreachable`.
    #[serde(default)]
    pub state: String,
    /// Whether it only pretends.
    #[serde(default)]
    pub sandbox: bool,
    /// The operator's settings of it: a model's name, a region.
    #[serde(default)]
    pub options: Value,
}

impl Binding {
    /// A text option.
    pub fn option(&self, name: &str) -> Option<&str> {
        self.options.get(name).and_then(Value::as_str)
    }
}

/// The binding of a provider that the manifest asks for, where it is bound.
pub fn binding(provider: &str) -> Result<Option<Binding>> {
    // One that is not bound is told of too, and has no kind.
    let bindings: Vec<Value> = serde_json::from_str(&host::bindings(provider)?)?;
    let bound = bindings.into_iter().find(|binding| binding["state"] == "bound");
    Ok(bound.map(serde_json::from_value).transpose()?)
}
