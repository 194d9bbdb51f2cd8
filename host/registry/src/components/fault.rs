//! Why a step of a component's life cycle was not taken.

use charter_kernel::fault::Fault;
use charter_kernel::refusal::{Code, Refusal};
use charter_store::{CommitError, ReadError, WriteError};
use charter_tenancy::records::pin::Pin;
use serde_json::{Value, json};

/// Why a step was not taken. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum LifeCycleError {
    /// The component is not fit; every fault of it.
    #[error("the component is not fit: {}", faults(.0))]
    Unfit(Vec<Fault>),
    /// There is no such primitive or version.
    #[error("there is no {0}")]
    Absent(String),
    /// It stands where the step cannot be taken.
    #[error("{message}")]
    State {
        /// For programs.
        reason: &'static str,
        /// For people, with the way out.
        message: String,
    },
    /// Kits pin the version that was to go.
    #[error("{version} is pinned by kits ({all}): their users would be left with none")]
    Pinned {
        /// Name and number.
        version: String,
        /// The kits, or the first of many.
        kits: Vec<Pin>,
        /// How many there are.
        all: u64,
    },
    /// Another replica is not ready.
    #[error("{0}")]
    Lags(String),
    /// The store did not take it.
    #[error(transparent)]
    Store(#[from] StoreFault),
}

/// The store could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum StoreFault {
    /// Reading.
    #[error("the store cannot be read")]
    Read(#[from] ReadError),
    /// Writing.
    #[error("the store did not take the change")]
    Commit(#[from] CommitError),
    /// A record that this build cannot read or write.
    #[error(transparent)]
    Record(#[from] charter_tenancy::records::Unreadable),
}

impl From<ReadError> for LifeCycleError {
    fn from(error: ReadError) -> Self {
        Self::Store(error.into())
    }
}

impl From<CommitError> for LifeCycleError {
    fn from(error: CommitError) -> Self {
        Self::Store(error.into())
    }
}

impl From<charter_tenancy::records::Unreadable> for LifeCycleError {
    fn from(error: charter_tenancy::records::Unreadable) -> Self {
        Self::Store(error.into())
    }
}

impl From<WriteError> for LifeCycleError {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Read(error) => error.into(),
            WriteError::Refused(refused) => CommitError::Rejected(refused.into()).into(),
        }
    }
}

impl From<LifeCycleError> for Refusal {
    fn from(error: LifeCycleError) -> Self {
        match error {
            LifeCycleError::Unfit(faults) => {
                let mut refusal = Refusal::faults(faults);
                refusal.code = Code::InvalidComponent;
                refusal
            }
            LifeCycleError::Absent(what) => Refusal {
                message: format!("There is no component {what}."),
                ..Refusal::not_found()
            },
            LifeCycleError::State { reason, message } => Refusal::state_conflict(reason, message),
            LifeCycleError::Pinned { ref kits, all, .. } => {
                let named = kits
                    .iter()
                    .map(|pin| json!({"id": pin.kit, "organization_id": pin.organization, "project_id": pin.project}));
                Refusal::state_conflict("pinned", error.to_string())
                    .hint("Have the kits in details.kits pin another version, or none, first.")
                    .detail("kits", named.collect::<Value>())
                    .detail("kits_total", all)
            }
            LifeCycleError::Lags(message) => Refusal::new(Code::Overloaded, message)
                .reason("replica_lags")
                .detail("changed", json!(false))
                .retry_after(5),
            LifeCycleError::Store(fault) => {
                tracing::error!(
                    error = &fault as &dyn std::error::Error,
                    "the component registry could not use the store"
                );
                Refusal::overloaded(1)
            }
        }
    }
}

fn faults(faults: &[Fault]) -> String {
    faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}
