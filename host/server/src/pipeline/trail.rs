//! The facts known of a request so far, whatever becomes of it: audit, metrics and the rendering of
//! answers and refusals read it.
//!
//! Stages write what they have found out. Nobody is let in by it: whether a request may do what it
//! asks goes by what each stage hands to the next. The form of an answer goes by it (its wording,
//! its headers, the room that it takes up), and so do whether a refusal is kept under its key, and
//! whether the request is counted by its rates already.

use std::sync::Arc;
use std::time::Instant as Elapsed;

use charter_kernel::id::RequestId;
use charter_kernel::manifest::Catalogue;
use charter_kernel::time::Instant;
use charter_registry::served::{Contract, Deprecated};
use http::HeaderValue;

use super::caller::Caller;
use super::respond::Wording;
use crate::bounds::answers::{AnswerRoom, Wire};
use crate::bounds::rate::RateStanding;
use crate::bounds::room::Hold;
use crate::http::Door;
use crate::metrics::{RequestOutcome, RouteStats};

/// See the module.
pub struct Trail {
    /// `x-request-id`.
    pub id: RequestId,
    /// The same as a header's value.
    pub id_header: HeaderValue,
    /// When it was accepted.
    pub at: Instant,
    /// The same by a steady clock, for the latency and for rates.
    pub began: Elapsed,
    /// The listener that it came to.
    pub door: Door,
    /// The error catalogue of its refusals.
    pub catalogue: Catalogue,
    /// Whether the client asked for RFC 9457.
    pub problem: bool,
    /// Whether a person's browser shows the answer.
    pub page: bool,
    /// The connection that it came by.
    pub wire: Wire,
    /// Whether it is anything but a read.
    pub mutates: bool,
    /// Whether the answer must not be cached.
    pub private: bool,
    /// The deprecation of the family that was addressed.
    pub deprecated: Option<Arc<Deprecated>>,
    /// The counters of the route.
    pub stats: Option<Arc<RouteStats>>,
    /// The operation's id.
    pub operation: Option<Arc<str>>,
    /// The caller, and the place.
    pub caller: Option<Arc<Caller>>,
    /// The one whose business it is.
    pub business: Business,
    /// The rest of the buckets, if there are any: once it is known, the request is counted.
    pub rate: Option<RateStanding>,
    /// The methods that the path has, for `Allow`.
    pub allow: Option<String>,
    /// Whether the answer is the connection's last: where the request ends cannot be told for sure.
    pub closes: bool,
    /// Whether an audit row was committed already.
    pub audited: bool,
    /// Whether the answer of a guest may show a secret: its own, or one that it was shown.
    pub shows_secret: bool,
    /// How it ended, where the status does not say.
    pub outcome: Option<RequestOutcome>,
    /// The room that its body takes up.
    pub hold: Option<Hold>,
    /// The room that its answer will take up.
    pub room: Option<Arc<AnswerRoom>>,
}

/// The one whose business a request is, and whose its audit row therefore is: whoever a request names
/// beside them has no part in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Business {
    /// The organization's own, and no project's.
    Organization,
    /// The project's, and no tenant user's.
    Project,
    /// A tenant user's, as far as one is named or is the project's own.
    User,
}

impl Trail {
    /// A request that has just come in.
    pub fn begin(id: RequestId, at: Instant, door: Door, mutates: bool) -> Self {
        // An id is hexadecimal and hyphens.
        let id_header =
            HeaderValue::from_str(id.as_str()).unwrap_or_else(|_| HeaderValue::from_static(""));
        Self {
            id,
            id_header,
            at,
            began: Elapsed::now(),
            door,
            catalogue: Catalogue::Primary,
            problem: false,
            page: false,
            wire: Wire::default(),
            mutates,
            private: false,
            deprecated: None,
            stats: None,
            operation: None,
            caller: None,
            business: Business::User,
            rate: None,
            allow: None,
            closes: false,
            audited: false,
            shows_secret: false,
            outcome: None,
            hold: None,
            room: None,
        }
    }

    /// Notes what is asked, as refusals, answers and rows tell of it.
    pub fn note(&mut self, contract: &Contract) {
        self.catalogue = contract.catalogue;
        self.mutates = contract.mutates;
        self.operation = Some(contract.id.clone());
    }

    /// How its refusals are worded.
    pub fn wording(&self) -> Wording {
        Wording {
            id: self.id.clone(),
            catalogue: self.catalogue,
            problem: self.problem,
            page: self.page,
        }
    }
}
