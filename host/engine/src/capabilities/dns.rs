//! `dns`: linked; this version has no resolver to bind it to.

use crate::bindings::charter::primitive::dns::Host;
use crate::bindings::charter::primitive::types::Failure;
use crate::failure::not_configured;
use crate::state::State;

impl Host for State {
    async fn lookup(&mut self, _name: String, _kind: String) -> Result<Vec<String>, Failure> {
        Err(not_configured("name look-ups", "dns_resolver").into())
    }
}
