//! The abilities of a guest beyond computing: one file an interface, each scoped to the call's
//! caller.
//!
//! None of them takes an organization, project or reach from the guest. Each answers a failure
//! rather than trapping; what this deployment or version does not have answers `not_configured` and
//! names what is missing.

use charter_kernel::apply::text_fits;
use charter_kernel::limits::KEY_BYTES_MAX;
use wasmtime::component::{HasSelf, Linker};

use crate::bindings::Primitive;
use crate::bindings::charter::primitive::types::Failure;
use crate::failure::invalid;
use crate::state::State;

mod answering;
mod blobs;
mod dns;
mod documents;
mod events;
mod governance;
mod hooks;
mod jobs;
mod leases;
mod ledger;
mod log;
mod mail;
mod names;
mod primitives;
mod rates;
mod secrets;
mod settings;
mod streams;

/// Adds every interface to a linker: once for the process.
pub(crate) fn link(linker: &mut Linker<State>) -> wasmtime::Result<()> {
    wasmtime_wasi::p2::add_to_linker_async(linker)?;
    wasmtime_wasi_http::p2::add_only_http_to_linker_async(linker)?;
    Primitive::add_to_linker::<_, HasSelf<_>>(linker, |state| state)
}

/// Refuses a text that no database holds as a key, before anything keeps it.
fn check_key(param: &str, text: &str) -> Result<(), Failure> {
    if text_fits(text) {
        return Ok(());
    }
    let told = format!("`{param}` has at most {KEY_BYTES_MAX} bytes and no NUL");
    Err(invalid(param, told).into())
}

/// `types` holds shapes only.
impl crate::bindings::charter::primitive::types::Host for State {}

#[cfg(test)]
mod memory;

#[cfg(test)]
mod tests {
    use crate::bindings::charter::primitive::{answering, blobs, dns, mail, types};
    use crate::run::bed::{Bed, user};
    use crate::state::State;

    /// The code of a failure, and the one thing that it says is missing.
    fn missing<T>(said: Result<T, types::Failure>) -> (String, String) {
        let failure = said.err().expect("it is not there");
        let details: serde_json::Value =
            serde_json::from_str(&failure.details.unwrap_or_default()).unwrap();
        (failure.code, details["missing"][0].as_str().unwrap_or_default().to_owned())
    }

    #[tokio::test]
    async fn what_this_deployment_lacks_is_named_and_not_trapped_on() {
        let bed = Bed::new().await;
        let mut guest: State = bed.attempt(bed.call(user(3)));
        let (guest, key) = (&mut guest, || "k".to_owned());
        let said = [
            missing(blobs::Host::write(guest, key(), key(), vec![1]).await),
            missing(blobs::Host::read(guest, key(), 0, 1).await),
            missing(blobs::Host::stat(guest, key()).await),
            missing(blobs::Host::remove(guest, key()).await),
            missing(blobs::Host::presign_put(guest, key(), None, 1).await),
            missing(blobs::Host::presign_get(guest, key()).await),
            missing(mail::Host::domain_of(guest, key()).await),
            missing(mail::Host::queue(guest, key(), vec![key()], key()).await),
            missing(dns::Host::lookup(guest, key(), key()).await),
            missing(answering::Host::start(guest, 200, Vec::new()).await),
        ];
        let named = [vec!["object_store"; 6], vec!["mail_transport"; 2], vec!["dns_resolver"]];
        let named = named.concat().into_iter().chain(["answering"]);
        for (said, missing) in said.into_iter().zip(named) {
            assert_eq!(said, ("not_configured".to_owned(), missing.to_owned()));
        }
    }

    #[tokio::test]
    async fn who_describes_itself_calls_nothing_and_is_found_out() {
        use crate::bindings::charter::primitive::documents::Host as _;
        let bed = Bed::new().await;
        let mut guest = bed.attempt(bed.call(user(3)));
        guest.work = None;
        let said = guest.get("notes".into(), "x".into()).await;
        assert!(said.is_err() && guest.unsealed);
    }

    #[tokio::test]
    async fn an_attempt_that_is_over_is_over_for_each_capability() {
        use crate::bindings::charter::primitive::{documents, ledger, streams};
        let bed = Bed::new().await;
        let mut guest = bed.attempt(bed.call(user(3)));
        guest.work().unwrap().story.marks.abort(crate::story::Abort::Inactive);
        let word = |said: Result<(), types::Failure>| said.unwrap_err().code;
        let guest = &mut guest;
        for code in [
            word(documents::Host::get(guest, "notes".into(), "x".into()).await.map(drop)),
            word(documents::Host::insert(guest, "notes".into(), "{}".into(), None).await.map(drop)),
            word(documents::Host::checkpoint(guest).await),
            word(ledger::Host::balance_of(guest, "credit".into()).await.map(drop)),
            word(streams::Host::append(guest, "l".into(), "n".into(), "1".into()).await),
        ] {
            assert_eq!(code, "state_conflict");
        }
    }
}
