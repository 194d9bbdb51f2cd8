//! How often a route was called, how that ended and how long it took.

use std::time::Duration;

use charter_registry::stats::{BOUNDS_US, RequestOutcome, RouteStats};
use proptest::prelude::*;

#[test]
fn a_status_is_counted_by_name_or_as_the_first_of_its_hundred() {
    let stats = RouteStats::default();
    for (status, counted_as) in
        [(200, 200), (201, 201), (299, 200), (404, 404), (418, 400), (599, 500), (307, 307)]
    {
        let before: u64 = stats.statuses().find(|(of, _)| *of == counted_as).unwrap().1;
        stats.record(status, RequestOutcome::Answered, Duration::ZERO);
        let after = stats.statuses().find(|(of, _)| *of == counted_as).unwrap().1;
        assert_eq!(after, before + 1, "{status}");
    }
}

#[test]
fn an_outcome_is_counted_under_its_own_label() {
    let stats = RouteStats::default();
    for (n, outcome) in RequestOutcome::ALL.into_iter().enumerate() {
        for _ in 0..=n {
            stats.record(200, outcome, Duration::ZERO);
        }
    }
    for (n, outcome) in RequestOutcome::ALL.into_iter().enumerate() {
        assert_eq!(stats.count(outcome), n as u64 + 1, "{}", outcome.label());
    }
    let mut labels = RequestOutcome::ALL.map(RequestOutcome::label).to_vec();
    labels.sort_unstable();
    labels.dedup();
    assert_eq!(labels.len(), RequestOutcome::ALL.len());
}

#[test]
fn a_time_falls_into_the_first_bucket_that_holds_it() {
    for (us, bucket) in [(0, 0), (250, 0), (251, 1), (500, 1), (30_000_000, 13), (30_000_001, 14)] {
        let stats = RouteStats::default();
        stats.record(200, RequestOutcome::Answered, Duration::from_micros(us));
        let mut wanted = vec![0; BOUNDS_US.len() + 1];
        wanted[bucket] = 1;
        assert_eq!(stats.latency(), wanted, "{us}");
        assert_eq!(stats.latency_sum_us(), us);
    }
}

proptest! {
    #[test]
    fn each_request_is_counted_once_in_each_way(
        requests in proptest::collection::vec((100_u16..600, 0_usize..7, 0_u64..60_000_000), 0..50),
    ) {
        let stats = RouteStats::default();
        for (status, outcome, us) in &requests {
            stats.record(*status, RequestOutcome::ALL[*outcome], Duration::from_micros(*us));
        }
        let count = requests.len() as u64;
        prop_assert_eq!(stats.statuses().map(|(_, count)| count).sum::<u64>(), count);
        prop_assert_eq!(RequestOutcome::ALL.map(|outcome| stats.count(outcome)).iter().sum::<u64>(), count);
        prop_assert_eq!(stats.latency().iter().sum::<u64>(), count);
    }
}
