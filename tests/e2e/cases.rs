//! Every case that a primitive carries, at both mounts and on both databases.

use charter_tests::{cases, on_both};

on_both! {
    fn every_case_of_every_primitive_passes(world) {
        let all = cases::all();
        assert!(!all.is_empty(), "no primitive carries a case");
        for (_, path) in all {
            for mount in ["company", "user"] {
                cases::run(world, &path, mount);
            }
        }
    }
}
