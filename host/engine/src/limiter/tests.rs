//! The memory and tables that one call may take, all of which are given back.

use charter_kernel::scope::Sharer;
use proptest::prelude::*;
use wasmtime::ResourceLimiter as _;

use super::*;
use crate::admission::Admission;
use crate::config::AdmissionConfig;

/// A limiter of so many bytes, below so many of the process.
fn limiter(max: usize, all: usize) -> (Limiter, Arc<AtomicI64>) {
    let admission = admission(all);
    let tenant = admission.tenant("t");
    let gauge = Arc::<AtomicI64>::default();
    (Limiter::new(max, admission.bytes(&tenant, &owner()), gauge.clone()), gauge)
}

#[test]
fn memories_count_together_and_a_limit_that_was_met_is_remembered() {
    let (mut limiter, gauge) = limiter(100, 1_000);
    assert!(limiter.memory_growing(0, 60, None).unwrap());
    assert!(limiter.memory_growing(0, 40, Some(1)).unwrap(), "another memory");
    assert_eq!(limiter.met, None);
    assert!(!limiter.memory_growing(40, 41, None).unwrap());
    assert_eq!(limiter.met, Some(MemoryLimit::Call));
    assert_eq!(gauge.load(Relaxed), 100);
    assert!(limiter.memory_growing(40, 40, None).unwrap(), "no growth at all is none too much");
    assert!(!limiter.memory_growing(0, usize::MAX, None).unwrap());
    drop(limiter);
    assert_eq!(gauge.load(Relaxed), 0);
}

#[test]
fn a_call_below_its_own_limit_meets_the_tenants_share_of_all() {
    let (mut limiter, gauge) = limiter(1_000, 256);
    assert!(limiter.memory_growing(0, 56, None).unwrap());
    assert!(!limiter.memory_growing(56, 57, None).unwrap());
    assert_eq!(limiter.met, Some(MemoryLimit::Call), "nobody else has any");
    assert_eq!(gauge.load(Relaxed), 56, "what was refused is not counted");
}

#[test]
fn elements_of_all_tables_count_together() {
    let (mut limiter, _) = limiter(1, 1);
    let half = TABLES_ELEMENTS_MAX / 2;
    assert!(limiter.table_growing(0, half, None).unwrap());
    assert!(limiter.table_growing(0, half, None).unwrap());
    assert_eq!(limiter.met, None);
    assert!(!limiter.table_growing(half, half + 1, None).unwrap());
    assert_eq!(limiter.met, Some(MemoryLimit::Call));
    let counts = (limiter.instances(), limiter.tables(), limiter.memories());
    assert_eq!(counts, (INSTANCES_MAX, FIT.tables as usize, FIT.memories as usize));
}

fn owner() -> Sharer {
    Sharer { within: None, name: "key ada".into() }
}

fn admission(bytes_max: usize) -> Admission {
    Admission::new(AdmissionConfig { bytes_max, ..AdmissionConfig::default() })
}

fn of(admission: &Admission, tenant: &str, max: usize) -> Limiter {
    Limiter::new(max, admission.bytes(&admission.tenant(tenant), &owner()), Arc::default())
}

#[test]
fn what_the_host_holds_for_a_call_counts_as_the_guests_own_memory_does() {
    let admission = admission(1_000);
    let mut call = of(&admission, "t", 100);
    assert!(call.hold(60).is_ok() && call.memory_growing(0, 40, None).unwrap());
    assert_eq!(call.hold(61), Err(MemoryLimit::Call), "the call has a hundred");
    assert!(!call.memory_growing(40, 41, None).unwrap());
    // Bytes that have crossed are held no more.
    assert!(call.hold(10).is_ok() && call.memory_growing(40, 90, None).unwrap());
    assert_eq!((call.hold(10), call.hold(0)), (Ok(()), Ok(())));
}

#[test]
fn what_calls_hold_together_is_their_tenants_share_and_comes_back_with_their_end() {
    let admission = admission(256);
    let (mut one, mut two) = (of(&admission, "t", 100), of(&admission, "t", 100));
    assert_eq!((one.hold(30), two.hold(27)), (Ok(()), Err(MemoryLimit::Room)));
    assert_eq!(two.hold(26), Ok(()));
    let mut other = of(&admission, "other", 100);
    assert_eq!(other.hold(42), Ok(()));
    assert_eq!(other.hold(43), Err(MemoryLimit::Room), "less where others hold some");
    drop((one, two, other));
    assert_eq!(of(&admission, "t", 100).hold(56), Ok(()));
}

proptest! {
    #[test]
    fn whatever_grows_the_gauge_is_what_was_admitted_and_goes_back(
        grows in prop::collection::vec((0_usize..64, 0_usize..64), 0..40),
    ) {
        let (mut limiter, gauge) = limiter(200, 1_000);
        let mut admitted = 0;
        for (current, more) in grows {
            if limiter.memory_growing(current, current + more, None).unwrap() {
                admitted += more;
            }
            prop_assert!(admitted <= 200);
            prop_assert_eq!(gauge.load(Relaxed), i64::try_from(admitted).unwrap());
        }
        drop(limiter);
        prop_assert_eq!(gauge.load(Relaxed), 0);
    }
}
