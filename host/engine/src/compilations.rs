//! The turns of compilations: large components few at a time (`compilations_max`), small ones, and
//! looks at any, beside them.
//!
//! Knows no component: whoever loads one asks here for its turn.

use std::sync::Arc;

use tokio::sync::Semaphore;

/// Small components compiled, and components looked at, at once.
pub(crate) const SMALL_MAX: usize = 2;

/// The turns of compilations.
#[derive(Debug)]
pub(crate) struct Turns {
    pub(crate) large: Arc<Semaphore>,
    pub(crate) small: Arc<Semaphore>,
}

impl Turns {
    /// Turns for so many large components at once.
    pub(crate) fn new(large: usize) -> Self {
        Self {
            large: Arc::new(Semaphore::new(large.max(1))),
            small: Arc::new(Semaphore::new(SMALL_MAX)),
        }
    }

    /// The turns of looking at a component.
    pub(crate) fn looking(&self) -> Arc<Semaphore> {
        self.small.clone()
    }
}
