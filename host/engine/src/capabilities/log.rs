//! `log`: a guest's lines in the operator's log, bounded in bytes a call.

use crate::bindings::charter::primitive::log::{Host, Level};
use crate::state::State;

impl Host for State {
    async fn write(&mut self, level: Level, message: String, fields: Vec<(String, String)>) {
        let Some(work) = self.work.as_mut() else { return };
        let bytes = message.len()
            + fields.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>();
        if work.log_bytes_left == 0 {
            return;
        }
        if bytes > work.log_bytes_left {
            work.log_bytes_left = 0;
            tracing::warn!(
                primitive = work.component.manifest.name,
                request = work.call.request_id,
                "the primitive has logged as much as one call may; the rest is dropped"
            );
            return;
        }
        work.log_bytes_left -= bytes;
        let (primitive, request) = (&work.component.manifest.name, &work.call.request_id);
        match level {
            Level::Debug => {
                tracing::debug!(target: "charter::guest", primitive, request, ?fields, "{message}")
            }
            Level::Info => {
                tracing::info!(target: "charter::guest", primitive, request, ?fields, "{message}")
            }
            Level::Warn => {
                tracing::warn!(target: "charter::guest", primitive, request, ?fields, "{message}")
            }
            Level::Error => {
                tracing::error!(target: "charter::guest", primitive, request, ?fields, "{message}")
            }
        }
    }
}
