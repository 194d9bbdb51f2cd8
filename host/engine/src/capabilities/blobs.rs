//! `blobs`: linked; this version has no object store to bind it to.

use crate::bindings::charter::primitive::blobs::{Blob, Host, Link};
use crate::bindings::charter::primitive::types::Failure;
use crate::failure::not_configured;
use crate::state::State;

fn missing<T>() -> Result<T, Failure> {
    Err(not_configured("the object store", "object_store").into())
}

impl Host for State {
    async fn write(
        &mut self,
        _key: String,
        _content_type: String,
        _bytes: Vec<u8>,
    ) -> Result<Blob, Failure> {
        missing()
    }
    async fn read(
        &mut self,
        _key: String,
        _offset: u64,
        _length: u32,
    ) -> Result<Option<Vec<u8>>, Failure> {
        missing()
    }
    async fn stat(&mut self, _key: String) -> Result<Option<Blob>, Failure> {
        missing()
    }
    async fn remove(&mut self, _key: String) -> Result<bool, Failure> {
        missing()
    }
    async fn presign_put(
        &mut self,
        _key: String,
        _content_type: Option<String>,
        _size_max: u64,
    ) -> Result<Link, Failure> {
        missing()
    }
    async fn presign_get(&mut self, _key: String) -> Result<Link, Failure> {
        missing()
    }
}
