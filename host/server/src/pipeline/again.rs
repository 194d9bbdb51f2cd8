//! How often one request is run from the top: another request had its idempotency key, or what it
//! was admitted under has changed.

use charter_kernel::refusal::Refusal;

/// Runs of one request.
const RUNS_MAX: u32 = 4;

/// Counts the runs of one request.
#[derive(Debug, Default)]
pub struct Runs(u32);

impl Runs {
    /// Begins the next run, and answers how many came before it.
    ///
    /// # Errors
    /// 503 where it was run as often as it may be.
    pub fn begin(&mut self) -> Result<u32, Refusal> {
        let before = self.0;
        self.0 += 1;
        if before < RUNS_MAX { Ok(before) } else { Err(Refusal::overloaded(1)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_run_so_often_and_no_more() {
        let mut runs = Runs::default();
        assert!((0..RUNS_MAX).all(|before| runs.begin().ok() == Some(before)));
        assert!(runs.begin().is_err());
    }
}
