//! A loaded component: its digest, its manifest, and what every call needs precomputed.
//!
//! Immutable and shared; dropping the last `Arc` unloads the code. Nothing of a call is kept here.

use std::collections::HashMap;
use std::sync::Arc;

use charter_kernel::manifest::{Collection, Manifest};
use charter_kernel::unit::Space;
use wasmtime::component::InstancePre;

use crate::bindings::PrimitivePre;
use crate::state::State;
use crate::stats::PrimitiveStats;

/// A loaded component, ready to be called.
pub struct Component {
    pub(crate) digest: String,
    pub(crate) manifest: Arc<Manifest>,
    pub(crate) collections: HashMap<String, CollectionPlan>,
    pub(crate) capabilities: Capabilities,
    pub(crate) pre: PrimitivePre<State>,
    pub(crate) stats: Arc<PrimitiveStats>,
    pub(crate) places: Arc<tokio::sync::Semaphore>,
}

impl Component {
    /// `sha256:<hex>` of the component's bytes.
    pub fn digest(&self) -> &str {
        &self.digest
    }
    /// What it declares.
    pub fn manifest(&self) -> &Arc<Manifest> {
        &self.manifest
    }
    /// Its outcome counters.
    pub fn stats(&self) -> &Arc<PrimitiveStats> {
        &self.stats
    }
}

impl std::fmt::Debug for Component {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Component({} {} {})", self.manifest.name, self.manifest.version, self.digest)
    }
}

/// One collection as calls use it.
#[derive(Debug)]
pub(crate) struct CollectionPlan {
    pub(crate) declared: Collection,
    pub(crate) space: Space,
}
