//! Reads at the end of work that is done: its commit waits for a database that is away for a moment,
//! and so do they.

use std::time::Duration;

use crate::error::ReadError;

/// Waits between the tries of a read, in milliseconds: ten seconds in all.
const WAIT_MS: [u64; 7] = [100, 200, 500, 1_000, 2_000, 3_000, 3_200];

/// Patience with the reads of one end.
#[derive(Debug, Default)]
pub struct Patience {
    tries: usize,
}

impl Patience {
    /// Waits before the next try of a read that failed.
    ///
    /// # Errors
    /// The read's own, where another try makes no sense or ten seconds are over.
    pub async fn wait(&mut self, error: ReadError) -> Result<(), ReadError> {
        let passes = !matches!(error, ReadError::Position);
        let Some(wait_ms) = WAIT_MS.get(self.tries).filter(|_| passes) else { return Err(error) };
        self.tries += 1;
        tokio::time::sleep(Duration::from_millis(*wait_ms)).await;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_read_is_tried_for_ten_seconds_and_no_longer() {
        let (begun, mut patience) = (tokio::time::Instant::now(), Patience::default());
        while patience.wait(ReadError::Unavailable(None)).await.is_ok() {}
        assert_eq!(begun.elapsed(), Duration::from_secs(10));
        assert!(Patience::default().wait(ReadError::Position).await.is_err(), "it never passes");
    }
}
