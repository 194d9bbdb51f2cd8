//! Calls of inbound URLs, counted by their end.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::Metrics;

/// Counts of calls by their end, since the start of this replica.
#[derive(Debug, Default)]
pub struct Counts {
    /// Told to a primitive.
    pub taken: Arc<AtomicU64>,
    /// Told before.
    pub repeated: Arc<AtomicU64>,
    /// For no hook that there is.
    pub unknown: Arc<AtomicU64>,
    /// Without a signature that counts.
    pub unsigned: Arc<AtomicU64>,
    /// A provider's, signed, and about nothing that a hook was opened for.
    pub unmatched: Arc<AtomicU64>,
    /// Questions that a primitive has answered.
    pub answered: Arc<AtomicU64>,
    /// Questions that a primitive, a rule or a cap has refused.
    pub declined: Arc<AtomicU64>,
    /// Questions that were refused because nobody answered.
    pub unanswered: Arc<AtomicU64>,
}

impl Counts {
    /// Shows them at each scrape.
    pub fn show(&self, metrics: &Metrics) {
        type Read = fn(&Counts) -> &Arc<AtomicU64>;
        let shown: [(&'static str, &'static str, Read); 8] = [
            ("hook_calls_taken", "Calls of inbound URLs that were told to a primitive", |counts| {
                &counts.taken
            }),
            ("hook_calls_repeated", "Calls whose event had been told before", |counts| {
                &counts.repeated
            }),
            ("hook_calls_unknown", "Calls for no hook that there is", |counts| &counts.unknown),
            ("hook_calls_unsigned", "Calls without a signature that counts", |counts| {
                &counts.unsigned
            }),
            (
                "hook_calls_unmatched",
                "Signed calls of providers that no hook was opened for",
                |counts| &counts.unmatched,
            ),
            (
                "hook_questions_answered",
                "Questions of providers that a primitive has answered",
                |counts| &counts.answered,
            ),
            (
                "hook_questions_declined",
                "Questions of providers that a primitive, a rule or a cap has refused",
                |counts| &counts.declined,
            ),
            (
                "hook_questions_unanswered",
                "Questions of providers that were refused because nobody answered",
                |counts| &counts.unanswered,
            ),
        ];
        for (name, help, read) in shown {
            let count = read(self).clone();
            metrics.gauge(name, help, move || count.load(Relaxed) as f64);
        }
    }
}
