//! `log`: a guest's lines in the operator's log, bounded in bytes a call. Each line costs some beside
//! its text, so that they bound the lines, too.

use crate::bindings::charter::primitive::log::{Host, Level};
use crate::state::State;

/// Bytes that a line has beside its text: when, whose and of which request it is.
const LINE_BYTES: usize = 200;

impl Host for State {
    async fn write(&mut self, level: Level, message: String, fields: Vec<(String, String)>) {
        let Some(work) = self.work.as_mut() else { return };
        let bytes = LINE_BYTES
            + message.len()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::EngineConfig;
    use crate::run::bed::{Bed, long, user};

    #[tokio::test]
    async fn a_call_logs_so_many_bytes_names_values_and_lines_among_them_and_then_nothing() {
        let config = EngineConfig { log_bytes_max: 700, ..EngineConfig::default() };
        let bed = Bed::with(config).await;
        let mut guest = bed.attempt(bed.call(user(3)));
        let left = |guest: &mut State| guest.work.as_ref().unwrap().log_bytes_left;
        let field = || vec![(long(10), long(20))];
        guest.write(Level::Info, long(30), field()).await;
        assert_eq!(left(&mut guest), 640 - LINE_BYTES);
        guest.write(Level::Error, String::new(), Vec::new()).await;
        assert_eq!(left(&mut guest), 640 - 2 * LINE_BYTES, "an empty line is a line");
        guest.write(Level::Warn, long(11), field()).await;
        assert_eq!(left(&mut guest), 0, "what does not fit is the last that is told of");
        guest.write(Level::Debug, long(1), Vec::new()).await;
        assert_eq!(left(&mut guest), 0);
        // Each call begins anew.
        let mut next = bed.attempt(bed.call(user(3)));
        next.write(Level::Info, long(700 - LINE_BYTES), Vec::new()).await;
        assert_eq!(left(&mut next), 0);
    }
}
