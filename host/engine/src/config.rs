//! The engine's settings at start: limits, each with a name and a unit, and the folder of its code
//! cache.
//!
//! Reads no environment and no file.

use std::path::PathBuf;

use charter_kernel::limits::{JOBS_WAITING_MAX, SCHEDULES_MAX};

/// The engine's settings.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// The folder of compiled code: a directory of ours alone, made with mode 0700. `None` compiles
    /// at every start.
    pub cache_dir: Option<PathBuf>,
    /// How large it may grow; the oldest files go first.
    pub cache_bytes_max: u64,
    /// Instances alive at once: the size of the pool.
    pub instances_max: u32,
    /// Linear memory of one call, summed over its memories.
    pub guest_memory_bytes_max: usize,
    /// CPU time of one call; past it the guest is stopped.
    pub cpu_ms_max: u64,
    /// Size of an uploaded component.
    pub component_bytes_max: usize,
    /// Large components compiled at once; small ones are beside them.
    pub compilations_max: usize,
    /// How often a request is run again after a conflict.
    pub reruns_max: u32,
    /// Bytes that one call may log.
    pub log_bytes_max: usize,
    /// Bytes of an answer's body.
    pub answer_bytes_max: usize,
    /// Jobs of one organization that wait or run.
    pub jobs_waiting_max: u64,
    /// Schedules of one organization.
    pub schedules_max: u64,
    /// The limits of admission.
    pub admission: AdmissionConfig,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            cache_dir: None,
            cache_bytes_max: 2 << 30,
            instances_max: 512,
            guest_memory_bytes_max: 64 << 20,
            cpu_ms_max: 2_000,
            component_bytes_max: 32 << 20,
            compilations_max: 1,
            reruns_max: 5,
            log_bytes_max: 64 << 10,
            answer_bytes_max: 16 << 20,
            jobs_waiting_max: JOBS_WAITING_MAX,
            schedules_max: SCHEDULES_MAX,
            admission: AdmissionConfig::default(),
        }
    }
}

/// Concurrency, below the size of the pool. Of each of these places, and of the bytes, one
/// organization alone gets half at most, and less where others hold some: there is always room for
/// the next one.
#[derive(Clone, Debug)]
pub struct AdmissionConfig {
    /// Short calls at once.
    pub short_max: usize,
    /// Long calls at once.
    pub long_max: usize,
    /// Jobs and providers' questions at once beyond both, where callers hold those.
    pub runs_max: usize,
    /// Nested calls at once, of all depths: reserves that outer calls cannot use up.
    pub nested_max: usize,
    /// Calls of one organization at once.
    pub tenant_max: usize,
    /// Calls of one primitive at once.
    pub primitive_max: usize,
    /// Calls waiting for a place.
    pub queue_max: usize,
    /// How long one waits at most, in milliseconds.
    pub wait_ms_max: u64,
    /// Guest memory and bodies of all calls together.
    pub bytes_max: usize,
    /// Calls that wait for a change (long polls): they hold no place and no instance.
    pub parked_max: usize,
    /// The same for one organization, however many are free.
    pub parked_tenant_max: usize,
}

impl Default for AdmissionConfig {
    fn default() -> Self {
        Self {
            short_max: 256,
            long_max: 128,
            runs_max: 24,
            nested_max: 96,
            tenant_max: 64,
            primitive_max: 192,
            queue_max: 1_024,
            wait_ms_max: 2_000,
            bytes_max: 2 << 30,
            parked_max: 16_384,
            parked_tenant_max: 1_024,
        }
    }
}

/// Why the engine did not start.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The sandbox refused its settings, even the smallest ones.
    #[error("the sandbox cannot be set up on this machine")]
    Sandbox(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The cache directory is not ours alone.
    #[error("the code cache {} {fault}", path.display())]
    Cache {
        /// The directory.
        path: PathBuf,
        /// The fault of the directory.
        fault: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_is_let_in_finds_an_instance_and_room_for_the_next() {
        let EngineConfig { instances_max, guest_memory_bytes_max, admission, .. } =
            EngineConfig::default();
        let AdmissionConfig { short_max, long_max, runs_max, nested_max, tenant_max, .. } =
            admission;
        let places = short_max + long_max + runs_max + nested_max;
        assert!(places <= instances_max as usize);
        let all = [short_max, long_max, admission.primitive_max, admission.queue_max];
        assert!(all.iter().all(|places| tenant_max < *places), "no organization alone fills one");
        assert!(admission.parked_tenant_max < admission.parked_max);
        assert!(admission.primitive_max < short_max + long_max, "no primitive alone fills all");
        assert!(guest_memory_bytes_max < admission.bytes_max / 16, "a call is within an agent's");
    }
}
