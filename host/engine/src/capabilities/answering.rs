//! `answering`: linked; no primitive of this version streams what it computes.

use wasmtime::component::Resource;

use crate::bindings::charter::primitive::answering::{Host, HostWriter};
use crate::bindings::charter::primitive::types::Failure;
use crate::failure::not_configured;
use crate::handles::Writer;
use crate::state::State;

fn missing<T>() -> Result<T, Failure> {
    Err(not_configured("streamed answers", "answering").into())
}

impl Host for State {
    async fn start(
        &mut self,
        _status: u16,
        _headers: Vec<(String, String)>,
    ) -> Result<Resource<Writer>, Failure> {
        missing()
    }
}

impl HostWriter for State {
    async fn write(&mut self, _writer: Resource<Writer>, _bytes: Vec<u8>) -> Result<(), Failure> {
        missing()
    }
    async fn finish(&mut self, _writer: Resource<Writer>) -> Result<(), Failure> {
        missing()
    }
    async fn drop(&mut self, writer: Resource<Writer>) -> wasmtime::Result<()> {
        self.table.delete(writer)?;
        Ok(())
    }
}
