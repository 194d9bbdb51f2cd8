//! The memory and table limits of one call, summed over all its memories and tables, and what the
//! host holds for it beside them: what it read, wrote, told and was handed, and what just crosses.
//!
//! wasmtime's own limits count per memory, so a component with four of them would get four times as
//! much. Counts against the process's and the tenant's bytes too, and remembers that a limit was
//! met, so that the trap that follows is told apart.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use crate::room::ByteCounts;
use crate::sandbox::{FIT, TABLES_ELEMENTS_MAX};

/// Core instances of one call.
const INSTANCES_MAX: usize = 256;

/// The memory and tables that one call has taken.
#[derive(Debug)]
pub(crate) struct Limiter {
    memory_max: usize,
    /// The most that it could hold if no other call did.
    alone: usize,
    memory: usize,
    /// Bytes in the host.
    held: usize,
    elements: usize,
    bytes: Arc<ByteCounts>,
    /// The process's gauge.
    gauge: Arc<AtomicI64>,
    /// The limit that was met last, if any.
    pub(crate) met: Option<MemoryLimit>,
}

/// A limit of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemoryLimit {
    /// The call's own.
    Call,
    /// The room that it shares with other calls: they have it now.
    Room,
}

impl Limiter {
    pub(crate) fn new(memory_max: usize, bytes: Arc<ByteCounts>, gauge: Arc<AtomicI64>) -> Self {
        Self {
            memory_max,
            alone: bytes.alone(),
            memory: 0,
            held: 0,
            elements: 0,
            bytes,
            gauge,
            met: None,
        }
    }

    /// From now on so many bytes are held in the host.
    ///
    /// # Errors
    /// The limit that keeps the call from holding them: what was held before still is.
    pub(crate) fn hold(&mut self, bytes: usize) -> Result<(), MemoryLimit> {
        match self.memory.saturating_add(bytes) <= self.memory_max {
            true => self.reserve(bytes),
            false => Err(MemoryLimit::Call),
        }
    }

    /// The bytes that it knows of in the host.
    #[cfg(test)]
    pub(crate) fn held(&self) -> usize {
        self.held
    }

    /// The same for what is not known to be needed: the call's own limit does not count yet.
    ///
    /// # Errors
    /// As [`Limiter::hold`].
    pub(crate) fn reserve(&mut self, bytes: usize) -> Result<(), MemoryLimit> {
        if self.memory.saturating_add(bytes) > self.alone {
            return Err(MemoryLimit::Call);
        }
        let more = bytes.saturating_sub(self.held);
        if !self.bytes.take(more) {
            return Err(MemoryLimit::Room);
        }
        self.bytes.give(self.held.saturating_sub(bytes));
        self.held = bytes;
        Ok(())
    }

    /// Whether it is within the limits; remembers one that is met.
    fn admit(&mut self, limit: Option<MemoryLimit>) -> bool {
        self.met = limit.or(self.met);
        limit.is_none()
    }
}

impl Drop for Limiter {
    fn drop(&mut self) {
        self.bytes.give(self.memory + self.held);
        self.gauge.fetch_sub(self.memory as i64, Relaxed);
    }
}

impl wasmtime::ResourceLimiter for Limiter {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let grown = desired.saturating_sub(current);
        let all = self.memory.saturating_add(self.held).saturating_add(grown);
        let limit = match all > self.memory_max.min(self.alone) {
            true => Some(MemoryLimit::Call),
            false => (!self.bytes.take(grown)).then_some(MemoryLimit::Room),
        };
        if !self.admit(limit) {
            return Ok(false);
        }
        self.memory += grown;
        self.gauge.fetch_add(grown as i64, Relaxed);
        Ok(true)
    }
    fn table_growing(
        &mut self,
        current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let grown = desired.saturating_sub(current);
        let is_too_much = self.elements.saturating_add(grown) > TABLES_ELEMENTS_MAX;
        if !self.admit(is_too_much.then_some(MemoryLimit::Call)) {
            return Ok(false);
        }
        self.elements += grown;
        Ok(true)
    }
    fn instances(&self) -> usize {
        INSTANCES_MAX
    }
    fn tables(&self) -> usize {
        FIT.tables as usize
    }
    fn memories(&self) -> usize {
        FIT.memories as usize
    }
}

#[cfg(test)]
mod tests;
