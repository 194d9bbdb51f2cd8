//! The rules of a primitive's own rates, over a real store: bounds, who shares one, and that a place
//! of a request takes once.

use charter_kernel::role::Role;
use charter_kernel::scope::Scope;

use super::*;
use crate::bindings::charter::primitive::governance::Host as _;
use crate::run::bed::{Bed, key, long, scope, user};
use crate::state::State;

async fn take(
    bed: &Bed,
    by: &Scope,
    (rate, reach): (&str, &str),
    (amount, per_seconds): (u32, u32),
) -> Result<(), String> {
    let (rate, reach) = (rate.to_owned(), reach.to_owned());
    let take = async |guest: &mut State| guest.take(rate, reach, amount, per_seconds).await;
    bed.by(by.clone(), take).await
}

#[tokio::test]
async fn a_rate_beyond_its_bounds_is_refused() {
    let bed = Bed::new().await;
    let (most, over) = (long(100), long(101));
    for (of, rate, word) in [
        (("send", "everybody"), (1, 1), "invalid_input:reach"),
        (("send", "deployment"), (1, 1), "invalid_input:reach"),
        (("send", ""), (1, 1), "invalid_input:reach"),
        (("", "user"), (1, 1), "invalid_input:rate"),
        ((over.as_str(), "user"), (1, 1), "invalid_input:rate"),
        (("send", "user"), (AMOUNT_MAX + 1, 1), "invalid_input:rate"),
        (("send", "user"), (1, 0), "invalid_input:rate"),
        (("send", "user"), (1, PER_SECONDS_MAX + 1), "invalid_input:rate"),
        (("send", "user"), (0, 60), "rate_limited"),
    ] {
        assert_eq!(take(&bed, &user(3), of, rate).await, Err(word.into()), "{of:?} {rate:?}");
    }
    let bounds = (AMOUNT_MAX, PER_SECONDS_MAX);
    assert_eq!(take(&bed, &user(3), (&most, "user"), bounds).await, Ok(()));
    let above = scope(key(Role::Admin), 1, Some(2), None);
    let nobodys = take(&bed, &above, ("send", "user"), (1, 1)).await;
    assert_eq!(nobodys, Err("invalid_input:reach".into()));
    let viewer = scope(key(Role::Viewer), 1, Some(2), Some(3));
    let refused = take(&bed, &viewer, ("send", "user"), (1, 1)).await;
    assert_eq!(refused, Err("forbidden:role_insufficient".into()));
}

#[tokio::test]
async fn a_rate_is_shared_by_whom_it_names_until_its_time_is_over() {
    let bed = Bed::new().await;
    let other_project = scope(key(Role::Developer), 1, Some(8), Some(9));
    let elsewhere = scope(key(Role::Developer), 9, Some(5), Some(7));
    // Whether each of these meets what the first user took: a colleague, another project of the
    // organization, another organization.
    for (reach, shared) in [
        ("user", [false, false, false]),
        ("project", [true, false, false]),
        ("organization", [true, true, false]),
    ] {
        let rate = (reach, reach);
        assert_eq!(take(&bed, &user(3), rate, (1, 60)).await, Ok(()));
        assert_eq!(take(&bed, &user(3), rate, (1, 60)).await, Err("rate_limited".into()));
        for (by, shared) in [&user(4), &other_project, &elsewhere].into_iter().zip(shared) {
            let said = take(&bed, by, rate, (1, 60)).await;
            assert_eq!(said.is_err(), shared, "{reach}: {by:?}");
        }
    }
    bed.hands.turn(60_000);
    assert_eq!(take(&bed, &user(3), ("organization", "organization"), (1, 60)).await, Ok(()));
}

#[tokio::test]
async fn who_is_too_early_learns_when_it_is_time() {
    let bed = Bed::new().await;
    take(&bed, &user(3), ("send", "user"), (1, 60)).await.unwrap();
    bed.hands.turn(20_000);
    let mut guest = bed.attempt(bed.call(user(3)));
    let refused = guest.take("send".into(), "user".into(), 1, 60).await.unwrap_err();
    let wait = refused.retry_after_seconds.unwrap();
    assert!((39..=40).contains(&wait), "{wait}");
    bed.hands.turn(i64::from(wait) * 1_000);
    assert!(guest.take("send".into(), "user".into(), 1, 60).await.is_ok(), "the wait is enough");
}

#[tokio::test]
async fn a_place_of_a_request_takes_once_however_often_it_is_run() {
    let bed = Bed::new().await;
    let mut guest = bed.attempt(bed.call(user(3)));
    for run in 1..4 {
        let work = guest.work().unwrap();
        (work.story.attempt, work.rates) = (run, 0);
        for _ in 0..2 {
            assert!(guest.take("send".into(), "user".into(), 3, 60).await.is_ok(), "run {run}");
        }
    }
    let work = guest.work().unwrap();
    assert_eq!(work.story.rates.len(), 2);
    // An amount that is given back is there again.
    for rate in std::mem::take(&mut work.story.rates) {
        rate.give_back(bed.store(), user(3).lane()).await;
    }
    for left in (0..3).rev() {
        assert_eq!(take(&bed, &user(3), ("send", "user"), (3, 60)).await, Ok(()), "{left} left");
    }
    assert_eq!(take(&bed, &user(3), ("send", "user"), (3, 60)).await, Err("rate_limited".into()));
}

#[tokio::test]
async fn one_request_takes_from_so_many_rates() {
    let bed = Bed::new().await;
    let said = bed.by(user(3), async |guest| {
        for n in 0..=TAKEN_MAX {
            guest.take(format!("rate-{n}"), "user".into(), 1, 60).await?;
        }
        Ok(())
    });
    assert_eq!(said.await, Err("internal_error:UNDECLARED".into()));
}
