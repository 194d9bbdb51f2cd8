//! The seam at which a host meets the SDK natively: one trait for each interface of
//! `primitive.wit`, whose functions are the ones that a guest calls. `charter-double` implements
//! them for tests; under wasm32 the generated imports stand in their place.
//!
//! Knows no host. Invariant: a thread has one host, the one that was installed last.

use std::cell::RefCell;
use std::rc::Rc;

use crate::bindings::charter::primitive as raw;
use crate::bindings::charter::primitive::types::Failure;
use crate::exchange::{Error, Request, Response};

/// The result of a capability call.
pub type Answer<T> = std::result::Result<T, Failure>;

thread_local! {
    static HOST: RefCell<Option<Rc<dyn Host>>> = const { RefCell::new(None) };
}

/// Has this host serve the thread's capability calls from now on.
pub fn install(host: Rc<dyn Host>) {
    HOST.replace(Some(host));
}

fn host() -> Rc<dyn Host> {
    HOST.with_borrow(Clone::clone)
        .unwrap_or_else(|| panic!("no host is installed on this thread: make a test double first"))
}

/// Declares for each interface a trait, and a module of functions that call the thread's host.
macro_rules! interfaces {
    ($($interface:ident as $trait:ident {
        $(fn $name:ident($($argument:ident: $kind:ty),*) $(-> $answer:ty)?;)*
    })*) => {
        $(
        #[doc = concat!("The interface `", stringify!($interface), "`.")]
        pub trait $trait {
            $(
            #[doc = concat!("`", stringify!($interface), ".", stringify!($name), "`.")]
            fn $name(&self, $($argument: $kind),*) $(-> $answer)?;
            )*
        }

        pub(crate) mod $interface {
            pub(crate) use crate::native::*;

            $(
            pub(crate) fn $name($($argument: $kind),*) $(-> $answer)? {
                <dyn Host as $trait>::$name(&*host(), $($argument),*)
            }
            )*
        }
        )*

        /// All that a primitive can ask for.
        pub trait Host: $($trait +)* {}
        impl<T: $($trait +)*> Host for T {}
    };
}

interfaces! {
    documents as Documents {
        fn insert(collection: &str, body: &str, due_at: Option<i64>) -> Answer<raw::documents::Document>;
        fn get(collection: &str, id: &str) -> Answer<Option<raw::documents::Document>>;
        fn lookup(collection: &str, field: &str, value: &str) -> Answer<Option<raw::documents::Document>>;
        fn replace(collection: &str, id: &str, body: &str, expected: Option<u64>) -> Answer<raw::documents::Document>;
        fn remove(collection: &str, id: &str, expected: Option<u64>) -> Answer<bool>;
        fn remove_matching(query: &raw::documents::Query) -> Answer<bool>;
        fn find(query: &raw::documents::Query) -> Answer<raw::documents::Page>;
        fn count(collection: &str, matching: &[(String, raw::documents::Test)], relaxed: bool) -> Answer<u64>;
        fn search(collection: &str, text: &str, limit: u32) -> Answer<Vec<raw::documents::Document>>;
        fn add(collection: &str, id: &str, field: &str, amount: i64) -> Answer<()>;
        fn checkpoint() -> Answer<()>;
    }
    leases as Leases {
        fn take(collection: &str, group: &str, limit: u32, until: i64) -> Answer<Vec<raw::leases::Leased>>;
        fn extend(token: &str, until: i64) -> Answer<()>;
        fn release(token: &str, due_at: i64) -> Answer<()>;
        fn settle(token: &str) -> Answer<()>;
        fn defer(collection: &str, id: &str, due_at: i64) -> Answer<()>;
        fn standing_of(collection: &str, group: &str) -> Answer<raw::leases::Standing>;
        fn purge(collection: &str, group: &str) -> Answer<bool>;
    }
    governance as Governance {
        fn authorize(proposal: &raw::governance::Proposal) -> Answer<Permit>;
        fn report(proposal: &raw::governance::Proposal) -> Answer<()>;
        fn reopen(permit: &str) -> Answer<Permit>;
        fn dispatched(permit: &str) -> Answer<()>;
        fn capture(permit: &str, actual: i64) -> Answer<()>;
        fn capture_part(permit: &str, actual: i64, until: i64) -> Answer<()>;
        fn cancel(permit: &str) -> Answer<()>;
        fn keep(permit: &str, until: i64) -> Answer<()>;
        fn set_cap(scope: &str, id: &str, cap: Option<i64>, period: &str, time_zone: &str) -> Answer<()>;
        fn take(rate: &str, reach: &str, amount: u32, per_seconds: u32) -> Answer<()>;
    }
    ledger as Ledger {
        fn open(account: &str, normal: raw::ledger::Normal, may_go_negative: bool) -> Answer<()>;
        fn freeze(account: &str, frozen: bool) -> Answer<()>;
        fn balance_of(account: &str) -> Answer<raw::ledger::Balance>;
        fn transfer(from: &str, to: &str, amount: i64, memo: &str, reference: &str) -> Answer<String>;
        fn entries(account: &str, after: Option<&str>, limit: u32) -> Answer<(Vec<raw::ledger::Entry>, Option<String>)>;
    }
    events as Events {
        fn emit(name: &str, payload: &str) -> Answer<()>;
        fn audit(action: &str, entity_type: &str, entity_id: &str, details: &str) -> Answer<()>;
    }
    streams as Streams {
        fn append(log: &str, name: &str, payload: &str) -> Answer<()>;
        fn read(log: &str, after: u64, limit: u32) -> Answer<Vec<raw::streams::Entry>>;
        fn head(log: &str) -> Answer<u64>;
        fn close(log: &str) -> Answer<()>;
    }
    jobs as Jobs {
        fn enqueue(job: &raw::jobs::Job) -> Answer<String>;
        fn cancel(id: &str) -> Answer<bool>;
        fn cancel_key(key: &str) -> Answer<bool>;
        fn progress(id: &str, fraction: f32, note: &str) -> Answer<()>;
        fn set_schedule(schedule: &raw::jobs::Schedule) -> Answer<i64>;
        fn remove_schedule(key: &str) -> Answer<bool>;
    }
    hooks as Hooks {
        fn open(collection: &str, document: &str, scheme: &str) -> Answer<raw::hooks::Hook>;
        fn refer(id: &str, reference: &str) -> Answer<()>;
        fn close(id: &str) -> Answer<bool>;
    }
    secrets as Secrets {
        fn put(name: &str, value: &[u8]) -> Answer<()>;
        fn get(name: &str) -> Answer<Option<Vec<u8>>>;
        fn remove(name: &str) -> Answer<bool>;
        fn names() -> Answer<Vec<String>>;
        fn generate(name: &str, algorithm: &str) -> Answer<Vec<u8>>;
        fn sign(name: &str, message: &[u8]) -> Answer<Vec<u8>>;
    }
    settings as Settings {
        fn get(key: &str) -> Answer<Option<String>>;
        fn bindings(provider: &str) -> Answer<String>;
    }
    primitives as Primitives {
        fn call(operation: &str, parameters: &[(String, String)], body: Option<&str>, idempotency_key: Option<&str>, scopes: &[(String, String)]) -> Answer<raw::primitives::Reply>;
        fn set_standing(reason: Option<&str>) -> Answer<()>;
    }
    log as Log {
        fn write(level: raw::log::Level, message: &str, fields: &[(String, String)]);
    }
    clock as Clock {
        fn now_ms() -> i64;
    }
    outside as Outside {
        fn send(request: &Request) -> Result<Response, Error>;
    }
}

/// Leave that the host gave, by the id of its hold.
#[derive(Debug)]
pub struct Permit(
    /// The hold's id.
    pub String,
);

impl Permit {
    pub(crate) fn id(&self) -> String {
        self.0.clone()
    }
    pub(crate) fn idempotency_key(&self) -> String {
        self.0.clone()
    }
    pub(crate) fn dispatched(&self) -> Answer<()> {
        governance::dispatched(&self.0)
    }
    pub(crate) fn capture(&self, actual: i64) -> Answer<()> {
        governance::capture(&self.0, actual)
    }
    pub(crate) fn capture_part(&self, actual: i64, until: i64) -> Answer<()> {
        governance::capture_part(&self.0, actual, until)
    }
    pub(crate) fn cancel(&self) -> Answer<()> {
        governance::cancel(&self.0)
    }
    pub(crate) fn keep(&self, until: i64) -> Answer<()> {
        governance::keep(&self.0, until)
    }
}
