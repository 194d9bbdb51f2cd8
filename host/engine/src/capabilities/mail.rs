//! `mail`: linked; this version has no outbound mail queue to bind it to.

use crate::bindings::charter::primitive::mail::{Domain, Host};
use crate::bindings::charter::primitive::types::Failure;
use crate::failure::not_configured;
use crate::state::State;

fn missing<T>() -> Result<T, Failure> {
    Err(not_configured("outbound mail", "mail_transport").into())
}

impl Host for State {
    async fn domain_of(&mut self, _name: String) -> Result<Domain, Failure> {
        missing()
    }
    async fn queue(
        &mut self,
        _sender: String,
        _recipients: Vec<String>,
        _message_blob: String,
    ) -> Result<String, Failure> {
        missing()
    }
}
