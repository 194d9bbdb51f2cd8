//! A loaded component: its digest, its manifest, and what every call needs precomputed.
//!
//! Shared, and immutable but for what its neighbours look for; dropping the last `Arc` unloads the
//! code. Nothing of a call is kept here.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use charter_kernel::authority::Class;
use charter_kernel::index::Further;
use charter_kernel::manifest::{Collection, Manifest, Operation};
use charter_kernel::refusal::Failure;
use charter_kernel::scope::Scope;
use charter_kernel::unit::{Reach, Space};
use charter_store::Lobby;

use crate::bindings::PrimitivePre;
use crate::failure::{failure, undeclared};
use crate::state::State;
use crate::stats::PrimitiveStats;

/// A loaded component, ready to be called.
pub struct Component {
    pub(crate) digest: String,
    pub(crate) manifest: Arc<Manifest>,
    pub(crate) collections: HashMap<String, CollectionPlan>,
    pub(crate) classes: HashMap<String, Class>,
    pub(crate) http: bool,
    pub(crate) public_web: bool,
    pub(crate) pre: PrimitivePre<State>,
    pub(crate) stats: Arc<PrimitiveStats>,
    pub(crate) places: Arc<Lobby>,
}

/// One collection as calls use it.
#[derive(Debug)]
pub(crate) struct CollectionPlan {
    pub(crate) declared: Collection,
    pub(crate) space: Space,
    /// The imports of the other live versions: the one part of a component that changes while it is
    /// loaded.
    further: RwLock<Arc<Further>>,
}

impl Component {
    /// `sha256:<hex>` of the component's bytes.
    pub fn digest(&self) -> &str {
        &self.digest
    }
    /// The component's manifest.
    pub fn manifest(&self) -> &Arc<Manifest> {
        &self.manifest
    }
    /// Its outcome counters.
    pub fn stats(&self) -> &Arc<PrimitiveStats> {
        &self.stats
    }

    /// Has it write what these versions of the same primitive look for, too. Calls that run see it
    /// with their next write.
    pub fn stand_beside(&self, others: &[&Manifest]) {
        for plan in self.collections.values() {
            let further =
                Further::of(&plan.declared, others.iter().flat_map(|other| &other.collections));
            if *plan.further() != further {
                *plan.further.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(further);
            }
        }
    }

    /// The class of an operation's callers; that of regulated actions, which takes the power to
    /// change, for one that it does not declare.
    pub(crate) fn class(&self, operation: &str) -> Class {
        self.classes.get(operation).copied().unwrap_or(Class::Regulated)
    }

    /// A declared collection.
    pub(crate) fn collection(&self, name: &str) -> Result<&CollectionPlan, Failure> {
        self.collections
            .get(name)
            .ok_or_else(|| undeclared(format!("the manifest declares no collection `{name}`")))
    }
}

/// The class of each operation.
pub(crate) fn classes(manifest: &Manifest) -> HashMap<String, Class> {
    let class = |operation: &Operation| (operation.id.clone(), Class::of(manifest, operation));
    manifest.operations.iter().map(class).collect()
}

impl CollectionPlan {
    /// Plans of all declared collections.
    pub(crate) fn all(manifest: &Manifest) -> HashMap<String, Self> {
        let plan = |declared: &Collection| {
            let space = Space::of(&manifest.name, &declared.name);
            (
                declared.name.clone(),
                Self { declared: declared.clone(), space, further: RwLock::default() },
            )
        };
        manifest.collections.iter().map(plan).collect()
    }

    /// See [`Component::stand_beside`].
    pub(crate) fn further(&self) -> Arc<Further> {
        self.further.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The reach of such documents under a scope.
    pub(crate) fn reach(&self, scope: &Scope) -> Result<Reach, Failure> {
        scope.reach(self.declared.reach).ok_or_else(|| {
            failure(
                "invalid_input",
                format!(
                    "the collection `{}` needs a caller that names whose documents it means",
                    self.declared.name
                ),
            )
        })
    }

    /// The same, where the scope may also write.
    pub(crate) fn reach_to_write(&self, scope: &Scope) -> Result<Reach, Failure> {
        if scope.may_write(self.declared.reach) {
            return self.reach(scope);
        }
        Err(failure(
            "forbidden",
            format!("this caller may not write to the collection `{}`", self.declared.name),
        ))
    }
}

impl std::fmt::Debug for Component {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Component({} {} {})", self.manifest.name, self.manifest.version, self.digest)
    }
}

#[cfg(test)]
mod tests;
