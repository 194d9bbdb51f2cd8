//! The end-to-end tests: one binary, one file for each noun. The harness is the library beside it.
#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

mod accounts;
mod cases;
mod cli;
mod crash;
mod drain;
mod faults;
mod governance;
mod guards;
mod hostile;
mod idempotency;
mod jobs;
mod keys;
mod kits;
mod lifecycle;
mod members;
mod other_language;
mod pins;
mod projects;
mod replay;
mod replicas;
mod rules;
mod scaffold;
mod secrets;
mod signatures;
mod small_hosts;
mod streams;
mod sweeps;
mod telemetry;
mod telling;
mod tenancy;
mod tls;
mod tour;
mod users;
mod watch;
mod wire;
