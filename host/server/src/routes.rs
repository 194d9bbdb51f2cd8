//! The one list of the host's own routes. A route is declared here and nowhere else: router,
//! validation, OpenAPI and sweeps read this list. Knows no primitive.
//!
//! Adding one: a row in the `routes()` of `routes/<noun>.rs`, and beside it a handler, an `async fn`
//! of `(&App, &HostRequest, &mut Txn)` and, as it needs them, a [`crate::serve::Body`] and a
//! [`crate::serve::Params`], whose types are the schemas, as the type of its [`crate::serve::Answer`] is. Its writes
//! go into the `Txn` and are committed by the pipeline together with the audit row and the
//! idempotent answer; on a conflict the handler is run again. A handler must therefore have no other
//! effect that matters, unless it is idempotent.

use crate::route::HostRoute;

pub mod addresses;
pub mod approvals;
pub mod audit;
pub mod auth;
pub mod events;
mod gather;
pub mod governance;
pub mod grants;
pub mod health;
pub mod holds;
pub mod hooks;
pub mod invitations;
pub mod jobs;
pub mod keys;
pub mod kits;
pub mod ledger;
pub mod limits;
mod links;
pub mod logs;
pub mod members;
pub mod metrics;
pub mod openapi;
pub mod operator;
pub mod organization;
pub mod pages;
pub mod passwords;
pub mod pins;
pub mod projects;
pub mod register_guide;
pub mod sessions;
pub mod shape;
pub mod skill;
pub mod spend;
pub mod status;
pub mod usage;
pub mod users;
pub mod webhooks;

/// Every route of the host.
pub fn all() -> Vec<HostRoute> {
    let nouns = [
        health::routes(),
        skill::routes(),
        register_guide::routes(),
        openapi::routes(),
        metrics::routes(),
        status::routes(),
        usage::routes(),
        limits::routes(),
        jobs::routes(),
        auth::routes(),
        addresses::routes(),
        passwords::routes(),
        invitations::routes(),
        sessions::routes(),
        keys::routes(),
        organization::routes(),
        members::routes(),
        pages::open(pages::approval::routes()),
        pages::open(pages::sign_in::routes()),
        pages::open(pages::address::routes()),
        pages::open(pages::password::routes()),
        pages::open(pages::invitation::routes()),
        projects::routes(),
        users::routes(),
        kits::routes(),
        events::routes(),
        logs::routes(),
        audit::routes(),
        webhooks::routes(),
        hooks::routes(),
        governance::routes(),
        grants::routes(),
        holds::routes(),
        ledger::routes(),
        spend::routes(),
        approvals::routes(),
        operator::routes(),
    ];
    nouns.concat()
}

#[cfg(test)]
mod tests;
