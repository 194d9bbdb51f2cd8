//! Threads that give way: their work is long, and others wait for less.

/// How much they give way: half-way to the lowest priority.
const NICENESS: i32 = 10;

/// Lowers the priority of this thread, for as long as it lives; elsewhere than on Linux it would be
/// the process's.
pub fn give_way() {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::nice(NICENESS) {
        tracing::debug!(%error, "a thread keeps its priority");
    }
}
