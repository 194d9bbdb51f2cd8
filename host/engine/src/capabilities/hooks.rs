//! `hooks`: linked; inbound URLs need a public address that this version does not serve hooks at.

use crate::bindings::charter::primitive::hooks::{Hook, Host};
use crate::bindings::charter::primitive::types::Failure;
use crate::failure::not_configured;
use crate::state::State;

fn missing<T>() -> Result<T, Failure> {
    Err(not_configured("inbound URLs", "public_address").into())
}

impl Host for State {
    async fn open(&mut self, _collection: String, _document: String, _scheme: String) -> Result<Hook, Failure> {
        missing()
    }
    async fn close(&mut self, _id: String) -> Result<bool, Failure> {
        missing()
    }
}
