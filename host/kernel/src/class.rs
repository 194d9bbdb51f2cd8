//! The classes of operations, as far as authority goes: the rows of the matrix in
//! [`crate::authority`], by name.
//!
//! A manifest may name some of them; what each allows is no matter of this list.

use serde::{Deserialize, Serialize};

/// The kind of thing that an operation does, as far as authority goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// Anybody may: what it shows is public, or its own token proves the caller.
    Open,
    /// A provider's or a stranger's call, which the document it belongs to gives its power.
    Inbound,
    /// The operator's.
    Operator,
    /// Reads what belongs to one profile.
    ProfileRead,
    /// Changes what belongs to one profile.
    ProfileChange,
    /// Shows a secret of one profile.
    ProfileSecret,
    /// Spends, sends or binds for one profile, by leave.
    Regulated,
    /// Moves money that is another's, without leave.
    OthersMoney,
    /// Reads webhooks, jobs and approvals: those of a named profile, else of the project or the
    /// organization.
    DeskRead,
    /// Changes them.
    DeskChange,
    /// Reads what belongs to all of a project.
    ProjectRead,
    /// Changes it.
    ProjectChange,
    /// Shows what the organization is called.
    OrganizationName,
    /// Reads what belongs to all of the organization.
    OrganizationRead,
    /// Changes it.
    OrganizationChange,
    /// Gives more room than there was: raises caps, widens rules, restores users.
    Loosening,
    /// Says yes or no where a policy asks a person.
    Deciding,
    /// Makes and revokes credentials no wider than one's own.
    OwnCredential,
    /// Acts of a signed-in person on the own session and account.
    OwnSession,
    /// Takes somebody out of the organization: oneself, or as who administers it another.
    Membership,
}

impl Class {
    /// All of them.
    pub const ALL: [Self; 20] = [
        Self::Open,
        Self::Inbound,
        Self::Operator,
        Self::ProfileRead,
        Self::ProfileChange,
        Self::ProfileSecret,
        Self::Regulated,
        Self::OthersMoney,
        Self::DeskRead,
        Self::DeskChange,
        Self::ProjectRead,
        Self::ProjectChange,
        Self::OrganizationName,
        Self::OrganizationRead,
        Self::OrganizationChange,
        Self::Loosening,
        Self::Deciding,
        Self::OwnCredential,
        Self::OwnSession,
        Self::Membership,
    ];

    /// Its name in manifests and in the matrix.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Inbound => "inbound",
            Self::Operator => "operator",
            Self::ProfileRead => "profile_read",
            Self::ProfileChange => "profile_change",
            Self::ProfileSecret => "profile_secret",
            Self::Regulated => "regulated",
            Self::OthersMoney => "others_money",
            Self::DeskRead => "desk_read",
            Self::DeskChange => "desk_change",
            Self::ProjectRead => "project_read",
            Self::ProjectChange => "project_change",
            Self::OrganizationName => "organization_name",
            Self::OrganizationRead => "organization_read",
            Self::OrganizationChange => "organization_change",
            Self::Loosening => "loosening",
            Self::Deciding => "deciding",
            Self::OwnCredential => "own_credential",
            Self::OwnSession => "own_session",
            Self::Membership => "membership",
        }
    }

    /// Whether a manifest may say it of an operation that takes a key: the others are the host's.
    pub fn is_declarable(self) -> bool {
        !matches!(
            self,
            Self::Open
                | Self::Inbound
                | Self::Operator
                | Self::OrganizationName
                | Self::Deciding
                | Self::OwnCredential
                | Self::OwnSession
                | Self::Membership
        )
    }
}
