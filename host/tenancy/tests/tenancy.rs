//! The resolver, its caches, credentials and records, through the crate's public face and over a
//! real store.
//!
//! Knows no HTTP and no engine. Invariant: a test names what a caller could notice, and fails when
//! the rule behind it is taken away.

#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

#[path = "tenancy/bed.rs"]
mod bed;
#[path = "tenancy/caches.rs"]
mod caches;
#[path = "tenancy/cut.rs"]
mod cut;
#[path = "tenancy/deliveries.rs"]
mod deliveries;
#[path = "tenancy/earlier.rs"]
mod earlier;
#[path = "tenancy/emails.rs"]
mod emails;
#[path = "tenancy/endings.rs"]
mod endings;
#[path = "tenancy/guards.rs"]
mod guards;
#[path = "tenancy/identities.rs"]
mod identities;
#[path = "tenancy/keys.rs"]
mod keys;
#[path = "tenancy/kits.rs"]
mod kits;
#[path = "tenancy/looked_up.rs"]
mod looked_up;
#[path = "tenancy/mails.rs"]
mod mails;
#[path = "tenancy/naming.rs"]
mod naming;
#[path = "tenancy/operator.rs"]
mod operator;
#[path = "tenancy/party.rs"]
mod party;
#[path = "tenancy/passwords.rs"]
mod passwords;
#[path = "tenancy/pins.rs"]
mod pins;
#[path = "tenancy/sessions.rs"]
mod sessions;
#[path = "tenancy/stored.rs"]
mod stored;
#[path = "tenancy/unique.rs"]
mod unique;
