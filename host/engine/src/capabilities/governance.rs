//! `governance`: linked; this version takes no regulated action, so every proposal is refused before anything is held.

use wasmtime::component::Resource;

use crate::bindings::charter::primitive::governance::{Host, HostPermit, Proposal};
use crate::bindings::charter::primitive::types::Failure;
use crate::failure::not_configured;
use crate::state::State;

/// Leave to take a regulated action. Nobody can hold one here: none is ever made.
#[derive(Debug)]
pub enum Permit {}

fn missing<T>() -> Result<T, Failure> {
    Err(not_configured("governance of regulated actions", "governance").into())
}

impl Host for State {
    async fn authorize(&mut self, _proposal: Proposal) -> Result<Resource<Permit>, Failure> {
        missing()
    }
    async fn reopen(&mut self, _permit: String) -> Result<Resource<Permit>, Failure> {
        missing()
    }
    async fn set_cap(
        &mut self,
        _scope: String,
        _id: String,
        _cap: Option<i64>,
        _period: String,
        _time_zone: String,
    ) -> Result<(), Failure> {
        missing()
    }
    async fn spent(&mut self, _scope: String, _id: String, _by: String) -> Result<String, Failure> {
        missing()
    }
    async fn take(&mut self, _rate: String, _reach: String, _amount: u32, _per_seconds: u32) -> Result<(), Failure> {
        missing()
    }
}

impl HostPermit for State {
    async fn id(&mut self, _permit: Resource<Permit>) -> String {
        String::new()
    }
    async fn idempotency_key(&mut self, _permit: Resource<Permit>) -> String {
        String::new()
    }
    async fn dispatched(&mut self, _permit: Resource<Permit>) -> Result<(), Failure> {
        missing()
    }
    async fn capture(&mut self, _permit: Resource<Permit>, _actual: i64) -> Result<(), Failure> {
        missing()
    }
    async fn cancel(&mut self, _permit: Resource<Permit>) -> Result<(), Failure> {
        missing()
    }
    async fn keep(&mut self, _permit: Resource<Permit>, _until: i64) -> Result<(), Failure> {
        missing()
    }
    async fn drop(&mut self, permit: Resource<Permit>) -> wasmtime::Result<()> {
        self.table.delete(permit)?;
        Ok(())
    }
}
