//! A version that keeps trapping for several organizations is stepped back from, once, by itself.

use charter_registry::components::State;
use charter_registry::served::Reserved;
use charter_registry::settings::{Breaker, Components, Settings};

use crate::bed::{Bed, proved, settings};

#[tokio::test(flavor = "multi_thread")]
async fn it_goes_back_to_what_served_and_keeps_the_bad_one_out() {
    let bed = Bed::new().await;
    let good = bed.serve(900_002).await;
    let bad = bed.serve(900_003).await;
    assert_eq!(bed.trap(&bad, &["one", "two"], 4).await, 1);
    assert_eq!(bed.serving().as_ref(), Some(&good));
    let row = bed.version(&bad);
    assert_eq!(row.state, State::Quarantined);
    assert!(row.reason.unwrap().contains("trapped too often"));
    assert_eq!(bed.registry.inventory().activations["probe"].by, "breaker");
    assert!(bed.registry.load_pinned("probe", "1.0.900003").await.is_none());
    let restarted = bed.restarted(settings()).await;
    assert_eq!(restarted.current().primitive("probe").unwrap().active.digest(), good);
}

#[tokio::test(flavor = "multi_thread")]
async fn traps_that_go_on_while_it_steps_back_are_one_step() {
    let bed = Bed::new().await;
    bed.serve(900_001).await;
    let good = bed.serve(900_002).await;
    let bad = bed.serve(900_003).await;
    assert_eq!(bed.trap(&bad, &["one", "two", "three"], 6).await, 1);
    assert_eq!(bed.serving().as_ref(), Some(&good));
    // Late traps of calls that ran on the bad one count against it alone.
    assert_eq!(bed.trap(&bad, &["one", "two", "three"], 6).await, 0);
    assert_eq!(bed.serving(), Some(good));
}

#[tokio::test(flavor = "multi_thread")]
async fn it_does_not_leave_where_it_went_itself() {
    let bed = Bed::new().await;
    let first = bed.serve(900_001).await;
    let second = bed.serve(900_002).await;
    let third = bed.serve(900_003).await;
    assert_eq!(bed.trap(&third, &["one", "two"], 4).await, 1);
    assert_eq!(bed.trap(&second, &["one", "two"], 8).await, 0);
    let step = bed.rollback(Some(&second)).await.unwrap();
    assert_eq!(step.active.digest, first);
    assert_eq!(bed.registry.step_backs(), 1);
    assert_ne!(bed.version(&second).state, State::Quarantined);
}

#[tokio::test(flavor = "multi_thread")]
async fn with_nothing_to_go_back_to_it_stays() {
    let bed = Bed::new().await;
    let only = bed.serve(900_001).await;
    assert_eq!(bed.trap(&only, &["one", "two"], 20).await, 0);
    assert_eq!(bed.serving(), Some(only.clone()));
    assert_eq!(bed.version(&only).state, State::Active);
}

#[tokio::test(flavor = "multi_thread")]
async fn calm_calls_one_organization_or_a_switch_keep_it_still() {
    for (what, traps_min, organizations, calls, traps) in [
        ("few traps among many calls", 4, &["one", "two"][..], 40, 4),
        ("one organization's own input", 4, &["one"][..], 40, 40),
        ("fewer traps than it takes", 100, &["one", "two"][..], 20, 20),
        ("it is switched off", 0, &["one", "two"][..], 40, 40),
    ] {
        let breaker = Breaker { traps_min, rate_min: 0.5, window_ms: 60_000 };
        let components = Components { breaker, ..settings().components };
        let set = Settings { components, ..settings() };
        let bed = Bed::with(set, Reserved::default()).await;
        bed.serve(900_002).await;
        let bad = bed.serve(900_003).await;
        // Calm calls come first: the rate is of the whole window.
        for n in 0..calls {
            for organization in organizations {
                let trapped = n >= calls - traps;
                let step = bed.registry.observe("probe", &bad, proved(organization), trapped);
                assert!(step.is_none(), "{what}");
            }
        }
        assert_eq!(bed.serving(), Some(bad), "{what}");
    }
}
