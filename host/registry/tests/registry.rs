//! The life of components over a real store and a real engine: installed, activated, rolled back,
//! pinned, stepped back from, removed and watched for.
//!
//! Knows no HTTP. Invariant: a test names what an operator or a caller could notice, and fails when
//! the rule behind it is taken away.

#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]
#![expect(
    unreachable_pub,
    dead_code,
    reason = "files belong to other tests as well and offer them more than is used here"
)]

#[path = "../../engine/tests/guests/fixture.rs"]
mod fixture;
#[path = "../../../tests/src/postgres.rs"]
mod postgres;
#[path = "../../engine/tests/guests/template.rs"]
mod template;
#[path = "../../../tests/src/tether.rs"]
mod tether;

#[path = "registry/activation.rs"]
mod activation;
#[path = "registry/backfill.rs"]
mod backfill;
#[path = "registry/bed.rs"]
mod bed;
#[path = "registry/breaker.rs"]
mod breaker;
#[path = "registry/consent.rs"]
mod consent;
#[path = "registry/counters.rs"]
mod counters;
#[path = "registry/installs.rs"]
mod installs;
#[path = "registry/inventory.rs"]
mod inventory;
#[path = "registry/live.rs"]
mod live;
#[path = "registry/manifests.rs"]
mod manifests;
#[path = "registry/pinned.rs"]
mod pinned;
#[path = "registry/quarantine.rs"]
mod quarantine;
#[path = "registry/refusals.rs"]
mod refusals;
#[path = "registry/removal.rs"]
mod removal;
#[path = "registry/replicas.rs"]
mod replicas;
#[path = "registry/report.rs"]
mod report;
#[path = "registry/reserved.rs"]
mod reserved;
#[path = "registry/resident.rs"]
mod resident;
#[path = "registry/rollback.rs"]
mod rollback;
#[path = "registry/rows.rs"]
mod rows;
#[path = "registry/served.rs"]
mod served;
#[path = "registry/settings.rs"]
mod settings;
#[path = "registry/shared.rs"]
mod shared;
#[path = "registry/signatures.rs"]
mod signatures;
#[path = "registry/stages.rs"]
mod stages;
#[path = "registry/watch.rs"]
mod watch;
