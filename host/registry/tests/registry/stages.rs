//! The life cycle as a whole: whatever an operator does in whatever order, the states, what serves
//! and what a rollback goes to are those of a model that fits on a page.

use std::collections::BTreeMap;

use charter_registry::components::State;
use proptest::prelude::*;

use crate::bed::{BUILDS, Bed, settings};

/// One thing that an operator does with the nth build.
#[derive(Clone, Copy, Debug)]
enum Does {
    Install(usize),
    Activate(usize),
    Rollback,
    Remove(usize),
    Restart,
}

fn does() -> impl Strategy<Value = Does> {
    let build = 0..BUILDS.len();
    prop_oneof![
        2 => build.clone().prop_map(Does::Install),
        4 => build.clone().prop_map(Does::Activate),
        2 => Just(Does::Rollback),
        1 => build.prop_map(Does::Remove),
        1 => Just(Does::Restart),
    ]
}

/// The versions that are installed, the one that serves, and those that served before it.
#[derive(Debug, Default)]
struct Model {
    installed: Vec<usize>,
    served: Vec<usize>,
    active: Option<usize>,
    history: Vec<usize>,
}

impl Model {
    fn predecessor(&self) -> Option<usize> {
        let other = |n: &&usize| self.installed.contains(n) && self.active != Some(**n);
        self.history.iter().rev().find(other).copied()
    }

    /// Whether the step is taken.
    fn takes(&mut self, step: Does) -> bool {
        match step {
            Does::Install(n) => {
                if !self.installed.contains(&n) {
                    self.installed.push(n);
                    self.served.retain(|served| *served != n);
                }
                true
            }
            Does::Activate(n) => {
                let is_there = self.installed.contains(&n);
                if is_there && self.active != Some(n) {
                    self.history.extend(self.active);
                    self.active = Some(n);
                    self.served.push(n);
                }
                is_there
            }
            Does::Rollback => {
                let Some(to) = self.predecessor() else { return false };
                // All that came after it are no predecessors of it.
                while self.history.pop().is_some_and(|last| last != to) {}
                self.active = Some(to);
                true
            }
            Does::Remove(n) => {
                let goes = self.installed.contains(&n)
                    && (self.active != Some(n) || self.installed.len() == 1);
                if goes {
                    self.installed.retain(|installed| *installed != n);
                    self.history.retain(|known| *known != n);
                }
                if goes && self.active == Some(n) {
                    (self.active, self.history) = (None, Vec::new());
                }
                goes
            }
            Does::Restart => true,
        }
    }

    fn state(&self, n: usize) -> State {
        match n {
            n if self.active == Some(n) => State::Active,
            n if self.served.contains(&n) => State::Retired,
            _ => State::Staged,
        }
    }
}

/// Does it; whether the step was taken.
async fn step(bed: &mut Bed, digests: &[String], step: Does) -> bool {
    match step {
        Does::Install(n) => bed.install(crate::fixture::probe(BUILDS[n])).await.is_ok(),
        Does::Activate(n) => {
            let all = &crate::bed::ALL;
            bed.registry.activate("probe", &digests[n], "o", all, &|_, _| None).await.is_ok()
        }
        Does::Rollback => bed.rollback(None).await.is_ok(),
        Does::Remove(n) => bed.registry.remove("probe", &digests[n], &|_, _| None).await.is_ok(),
        Does::Restart => {
            bed.registry = bed.restarted(settings()).await;
            true
        }
    }
}

async fn follow(all: Vec<Does>) {
    let mut bed = Bed::new().await;
    let digests: Vec<String> =
        BUILDS.iter().map(|build| crate::bed::digest(&crate::fixture::probe(*build))).collect();
    let mut model = Model::default();
    let mut blobs = BTreeMap::new();
    for (at, one) in all.iter().enumerate() {
        let told = format!("{:?} of {all:?}", &all[..=at]);
        assert_eq!(step(&mut bed, &digests, *one).await, model.takes(*one), "{told}");
        let serving = bed.serving();
        assert_eq!(serving.as_ref(), model.active.map(|n| &digests[n]), "{told}");
        let inventory = bed.registry.inventory();
        let back = inventory.predecessor("probe").map(|back| back.digest.clone());
        assert_eq!(back.as_ref(), model.predecessor().map(|n| &digests[n]), "{told}");
        for (n, digest) in digests.iter().enumerate() {
            let state = inventory.by_digest(digest).map(|version| version.state);
            let wanted = model.installed.contains(&n).then(|| model.state(n));
            assert_eq!(state, wanted, "{n}: {told}");
            if let Some(version) = inventory.by_digest(digest) {
                blobs.insert(version.blob(), n);
            }
            for blob in blobs.iter().filter(|(_, of)| **of == n).map(|(blob, _)| blob) {
                let named = inventory.by_digest(digest).is_some_and(|known| known.blob() == *blob);
                let kept = bed.store.blob_exists(blob).await.unwrap();
                assert_eq!(kept, named, "bytes of {n}: {told}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4))]

    #[test]
    fn whatever_is_done_in_whatever_order_the_states_are_those_of_the_model(
        all in proptest::collection::vec(does(), 8..16)
    ) {
        let installs = (0..BUILDS.len()).map(Does::Install);
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(follow(installs.take(3).chain(all).collect()));
    }
}
