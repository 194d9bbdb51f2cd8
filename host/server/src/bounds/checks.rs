//! Checks of bodies that take long: on threads of their own, few at once, one for each organization, whose
//! own take turns.
//!
//! A check is bounded by its schema's limits, so that one takes a second at most; an organization
//! that asks for many waits for its own.

use std::sync::Arc;

use charter_kernel::refusal::Refusal;
use charter_kernel::scope::Sharer;
use tokio::sync::Semaphore;

use super::lines::{Lines, in_time};

/// Bytes of the largest body whose check waits for no larger one's.
const SMALL_BYTES_MAX: usize = 64 << 10;

/// The places for long checks: those of small bodies have their own.
#[derive(Debug)]
pub struct Checks {
    small: Places,
    large: Places,
}

/// Places, and who waits for them.
#[derive(Debug)]
struct Places {
    places: Arc<Semaphore>,
    lines: Lines,
}

impl Checks {
    /// On a machine of so many cores: one place less, and one at least.
    pub fn beside(cores: usize) -> Self {
        let places = || Places::new(cores.saturating_sub(1).max(1));
        Self { small: places(), large: places() }
    }

    /// Runs a check of a body of so many bytes, which this one of an organization has sent, once it is
    /// its turn.
    ///
    /// # Errors
    /// If the turn does not come in time, or the check panics.
    pub async fn run<T: Send + 'static>(
        &self,
        (organization, by): (&str, &Sharer),
        bytes: usize,
        check: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Refusal> {
        let places = if bytes <= SMALL_BYTES_MAX { &self.small } else { &self.large };
        places.run((organization, by), check).await
    }
}

impl Places {
    fn new(count: usize) -> Self {
        Self { places: Arc::new(Semaphore::new(count)), lines: Lines::new(1) }
    }

    async fn run<T: Send + 'static>(
        &self,
        (organization, by): (&str, &Sharer),
        check: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Refusal> {
        let turn = in_time(async {
            let first = self.lines.turn(organization, by).await;
            let place = self.places.clone().acquire_owned().await;
            (place, first)
        });
        let turn = turn.await?;
        // The turn ends with the check, also where the request is given up before.
        let done = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            check()
        });
        done.await.map_err(|error| {
            tracing::error!(%error, "a body's check panicked");
            Refusal::internal()
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use futures::future::Either;
    use futures::stream::FuturesOrdered;
    use futures::{FutureExt as _, StreamExt as _};

    use super::super::lines::tests::{agent, person};
    use super::*;

    #[tokio::test]
    async fn an_organization_with_many_checks_waits_for_its_own() {
        let checks = Places::new(2);
        let (go, wait) = mpsc::channel::<()>();
        let one = person("one");
        let hog = checks.run(("hog", &one), move || wait.recv().is_ok());
        let mut again = Box::pin(checks.run(("hog", &one), || true));
        let mut hog = Box::pin(hog);
        assert!(futures::poll!(&mut hog).is_pending());
        assert!(futures::poll!(&mut again).is_pending());
        assert!(checks.run(("other", &one), || true).await.is_ok(), "a place is left");
        go.send(()).unwrap();
        assert!(hog.await.unwrap() && again.await.unwrap());
        assert!(checks.lines.is_empty());
    }

    #[tokio::test]
    async fn one_with_many_checks_leaves_turns_to_others_of_its_organization() {
        let checks = Places::new(1);
        let (go, wait) = mpsc::channel::<()>();
        let (hog, other) = (agent("project", "hog"), agent("project", "other"));
        let mut first = Box::pin(checks.run(("o", &hog), move || wait.recv().is_ok()));
        assert!(futures::poll!(&mut first).is_pending());
        let mut waiting: FuturesOrdered<_> =
            (0..20).map(|_| checks.run(("o", &hog), || "hog").boxed()).collect();
        assert!(futures::poll!(waiting.next()).is_pending());
        let mut late = checks.run(("o", &other), || "other").boxed();
        assert!(futures::poll!(&mut late).is_pending());
        go.send(()).unwrap();
        assert!(first.await.unwrap());
        let rest = waiting.collect::<Vec<_>>();
        let (rest, late) = match futures::future::select(late, rest.boxed()).await {
            Either::Left((late, rest)) => (rest.await.len(), late),
            Either::Right((rest, _)) => panic!("all of these came before: {rest:?}"),
        };
        assert_eq!((rest, late.unwrap()), (20, "other"));
    }

    #[tokio::test]
    async fn a_small_body_waits_for_no_large_one() {
        let (checks, one) =
            (Checks { small: Places::new(1), large: Places::new(1) }, person("one"));
        let (go, wait) = mpsc::channel::<()>();
        let mut large =
            Box::pin(checks.run(("hog", &one), SMALL_BYTES_MAX + 1, move || wait.recv().is_ok()));
        assert!(futures::poll!(&mut large).is_pending());
        assert!(checks.run(("hog", &one), SMALL_BYTES_MAX, || true).await.is_ok());
        go.send(()).unwrap();
        assert!(large.await.unwrap());
    }
}
