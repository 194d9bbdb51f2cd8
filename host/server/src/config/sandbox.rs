//! The guests' means: the engine's limits, the sources of components, and the destinations of
//! outbound requests.

use std::collections::BTreeMap;
use std::path::PathBuf;

use charter_adapters::kinds::Wish;
use charter_adapters::providers::Binding;
use charter_adapters::settings::{Egress, Provider};
use charter_kernel::limits::{CALL_MS_MAX, JOBS_WAITING_MAX, SCHEDULES_MAX};
use charter_registry::settings::{Breaker, Components};
use serde_json::json;

use super::Secret;
use super::source::{Section, Source};

/// `[engine]`
#[derive(Clone, Debug)]
pub struct Engine {
    /// Instances at once; the pool's size.
    pub instances_max: u32,
    /// Bytes of one call's memories together.
    pub memory_bytes_max: usize,
    /// Bytes that all calls hold together: guest memory, bodies, buffers.
    pub total_bytes_max: usize,
    /// Short calls at once.
    pub short_calls_max: usize,
    /// Long calls at once (long polls, streams, outside calls).
    pub long_calls_max: usize,
    /// Calls at once of one organization.
    pub tenant_calls_max: usize,
    /// Calls at once of one primitive.
    pub primitive_calls_max: usize,
    /// Calls that may wait for a place.
    pub queue_max: usize,
    /// How long one waits at most.
    pub queue_ms_max: u64,
    /// Time of computing that a call may use.
    pub compute_ms_max: u64,
    /// Bytes of a component's file.
    pub component_bytes_max: usize,
    /// Components compiled at once.
    pub compilations_max: usize,
    /// Bytes of the cache of compiled code.
    pub cache_bytes_max: u64,
    /// How long a version that nobody calls stays in memory.
    pub resident_ms: u64,
}

impl Engine {
    pub(super) fn read(mut of: Section<'_>) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self {
            instances_max: of.within(
                "instances_max",
                512,
                (4, 10_000),
                "instances at once; the pool's size",
            ),
            memory_bytes_max: of.within(
                "memory_bytes_max",
                64 << 20,
                (1 << 20, 1 << 30),
                "bytes of one call's memories",
            ),
            total_bytes_max: of.within(
                "total_bytes_max",
                2 << 30,
                (16 << 20, 1 << 40),
                "bytes that all calls hold together",
            ),
            short_calls_max: of.within("short_calls_max", 256, (1, 10_000), "short calls at once"),
            long_calls_max: of.within(
                "long_calls_max",
                128,
                (1, 10_000),
                "long polls, streams and outside calls at once",
            ),
            tenant_calls_max: of.within(
                "tenant_calls_max",
                64,
                (1, 10_000),
                "calls at once of one organization",
            ),
            primitive_calls_max: of.within(
                "primitive_calls_max",
                192,
                (1, 10_000),
                "calls at once of one primitive",
            ),
            queue_max: of.within(
                "queue_max",
                1_024,
                (0, 100_000),
                "calls that may wait for a place before 429 or 503",
            ),
            queue_ms_max: of.within(
                "queue_ms_max",
                2_000,
                (0, 60_000),
                "how long a call waits for a place",
            ),
            compute_ms_max: of.within(
                "compute_ms_max",
                2_000,
                (10, 600_000),
                "time of computing that a call may use",
            ),
            component_bytes_max: of.within(
                "component_bytes_max",
                32 << 20,
                (1 << 16, 64 << 20),
                "bytes of a component's file",
            ),
            compilations_max: of.within(
                "compilations_max",
                cores,
                (1, 64),
                "components compiled at once; the machine's cores",
            ),
            cache_bytes_max: of.within(
                "cache_bytes_max",
                2 << 30,
                (1 << 20, 1 << 40),
                "bytes of the cache of compiled code",
            ),
            resident_ms: of.within(
                "resident_ms",
                60_000,
                (0, 86_400_000),
                "how long a version that nobody calls stays in memory",
            ),
        }
    }
}

/// `[components]`
pub(super) fn components(mut of: Section<'_>) -> Components {
    let texts: Vec<String> = of.take(
        "signing_keys",
        Vec::new(),
        "ed25519 public keys (base64 of 32 bytes, or PEM) of which one must have signed each component; none: unsigned ones are admitted",
    );
    let mut signing_keys = Vec::new();
    for text in texts {
        match charter_registry::components::signature::public_key(&text) {
            Some(key) => signing_keys.push(key),
            None => of.fault(
                "signing_keys",
                format!("holds {text:?}, which is no ed25519 public key in base64 or PEM"),
            ),
        }
    }
    let traps_min = of.within(
        "breaker_traps_min",
        10,
        (0, 1_000_000),
        "traps within the window that step a version back; 0: never",
    );
    let rate_min: f64 = of.take(
        "breaker_rate_min",
        0.2,
        "part of the window's calls that must have trapped, 0 to 1",
    );
    if rate_min > 1.0 {
        of.fault("breaker_rate_min", "must be from 0 to 1");
    }
    let window_ms =
        of.within("breaker_window_ms", 60_000, (1_000, 3_600_000), "the breaker's window");
    Components {
        dir: of.optional(
            "dir",
            "a folder of .wasm files that is watched: what is new in it is installed and activated",
        ),
        signing_keys,
        replica_wait_ms: of.within(
            "replica_wait_ms",
            30_000,
            (100, 600_000),
            "how long an activation waits for other replicas",
        ),
        breaker: Breaker { traps_min, rate_min, window_ms },
    }
}

/// `[jobs]`
#[derive(Clone, Debug)]
pub struct Jobs {
    /// Jobs that this replica runs at once.
    pub concurrency: usize,
    /// Time that one run may take where the job names none.
    pub deadline_ms: u32,
    /// Longest wait between two attempts.
    pub backoff_ms_max: u64,
    /// Jobs of one organization that wait or run.
    pub waiting_max: u64,
    /// Schedules of one organization.
    pub schedules_max: u64,
}

impl Jobs {
    pub(super) fn read(mut of: Section<'_>) -> Self {
        Self {
            concurrency: of.within(
                "concurrency",
                32,
                (1, 1_000),
                "jobs that this replica runs at once; one organization alone gets half of them at most",
            ),
            deadline_ms: of.within(
                "deadline_ms",
                60_000,
                (100, CALL_MS_MAX),
                "time one run may take where the job names none",
            ),
            backoff_ms_max: of.within(
                "backoff_ms_max",
                3_600_000,
                (1_000, 86_400_000),
                "longest wait between two attempts",
            ),
            waiting_max: of.within(
                "waiting_max",
                JOBS_WAITING_MAX,
                (1, 1_000_000),
                "jobs of one organization that wait or run",
            ),
            schedules_max: of.within(
                "schedules_max",
                SCHEDULES_MAX,
                (1, 100_000),
                "schedules of one organization",
            ),
        }
    }
}

/// `[egress]`
pub(super) fn egress(mut of: Section<'_>) -> Egress {
    Egress {
        allow: of.take(
            "allow",
            Vec::new(),
            "private ranges that outbound requests may reach, such as 10.1.0.0/16",
        ),
        connect_timeout_ms: of.within("connect_timeout_ms", 5_000, (10, 60_000), "time to connect"),
        timeout_ms: of.within(
            "timeout_ms",
            60_000,
            (10, CALL_MS_MAX.into()),
            "time of one whole exchange",
        ),
        response_bytes_max: of.within(
            "response_bytes_max",
            32 << 20,
            (1024, 1 << 32),
            "bytes of one answer",
        ),
        tenant_connections_max: of.within(
            "tenant_connections_max",
            64,
            (1, 10_000),
            "outbound requests at once of one organization",
        ),
    }
}

/// The settings of a binding.
const KEYS: [&str; 9] = [
    "kind",
    "url",
    "credential",
    "credential_file",
    "webhook_secret",
    "webhook_secret_file",
    "webhook_secret_previous",
    "webhook_secret_previous_file",
    "options",
];

/// `[providers.<name>]`: the bindings, by name.
pub(super) fn providers(source: &mut Source) -> BTreeMap<String, Provider> {
    let names = source.section_names("providers", &KEYS);
    names
        .into_iter()
        .map(|name| (name.clone(), provider(source.section_of("providers", &name), &name)))
        .collect()
}

fn provider(mut of: Section<'_>, name: &str) -> Provider {
    let kind = of.take("kind", "http".to_owned(), "the protocol it speaks");
    let url: Option<String> = of.optional("url", "its address");
    if url.is_none() {
        of.fault("url", "is missing: a binding needs an address");
    }
    let url = url.unwrap_or_default();
    let credential = secret(
        &mut of,
        ("credential", "what the host adds to each request"),
        ("credential_file", "a file that holds the credential"),
    );
    let webhook_secret = secret(
        &mut of,
        ("webhook_secret", "what the provider's own calls are signed with"),
        ("webhook_secret_file", "a file that holds what the provider's own calls are signed with"),
    );
    let webhook_secret_previous = secret(
        &mut of,
        ("webhook_secret_previous", "what they were signed with before, while it is rotated"),
        ("webhook_secret_previous_file", "a file that holds what they were signed with before"),
    );
    if !Binding::calls(&kind) && (webhook_secret.is_some() || webhook_secret_previous.is_some()) {
        of.fault(
            "webhook_secret",
            format!("is for providers that call, and none of the kind {kind} does"),
        );
    }
    let options = match of.optional::<toml::Value>(
        "options",
        "what the protocol wants beside: a table, in the environment as JSON",
    ) {
        None => json!({}),
        Some(table @ toml::Value::Table(_)) => serde_json::to_value(&table).unwrap_or_default(),
        Some(_) => {
            of.fault("options", "must be a table");
            json!({})
        }
    };
    if !url.is_empty() {
        let wish = Wish {
            name,
            kind: &kind,
            url: &url,
            options: &options,
            credential: credential.is_some(),
        };
        if let Some((field, message)) = wish.fault() {
            of.fault(field, message);
        }
    }
    Provider { kind, url, credential, webhook_secret, webhook_secret_previous, options }
}

/// A secret that is given as text or as a file; the file wins. Each key with its meaning.
fn secret(
    of: &mut Section<'_>,
    (key, about): (&'static str, &'static str),
    (file, about_file): (&'static str, &'static str),
) -> Option<Secret> {
    let given: Option<Secret> = of.optional(key, about);
    let Some(path) = of.optional::<PathBuf>(file, about_file) else { return given };
    match std::fs::read_to_string(&path) {
        Ok(text) => Some(Secret::new(text.trim().to_owned())),
        Err(error) => {
            of.fault(file, format!("cannot be read: {}: {error}", path.display()));
            given
        }
    }
}
