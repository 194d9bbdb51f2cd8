//! A customer of the deployment.

use charter_kernel::governance::limit::Limit;
use charter_kernel::governance::policy::Policy;
use charter_kernel::id::{OrganizationId, ProjectId};
use charter_kernel::kit::Budget;
use charter_kernel::time::Instant;
use charter_kernel::unit::{Key, Reach, Space};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ACTIVE, Record, STATUS, entry};

/// A customer of the deployment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Organization {
    /// Its id.
    pub id: OrganizationId,
    /// Its name.
    pub name: String,
    /// The project of requests that name none.
    pub default_project: ProjectId,
    /// The rule about who may loosen.
    #[serde(default)]
    pub loosening: Loosening,
    /// Since when it is so, where it was changed: what keys have offered before counts no more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loosening_since: Option<Instant>,
    /// The IANA time zone in which its calendar days, and the hours of its rules, begin.
    #[serde(default = "utc")]
    pub time_zone: String,
    /// The spend cap of all of it together.
    #[serde(default)]
    pub budget: Option<Budget>,
    /// Whether somebody who may loosen has set the budget: a cap that anybody set for themselves is
    /// no reason to let them make what has caps of its own beneath it.
    #[serde(default = "yes")]
    pub budget_agreed: bool,
    /// The policy of regulated actions.
    #[serde(default)]
    pub policy: Policy,
    /// How often users may take which actions.
    #[serde(default)]
    pub limits: Vec<Limit>,
    /// How often the policy was written.
    #[serde(default)]
    pub policy_version: u64,
    /// Whether an owner of it has ever had an address that was proved: making one takes more than a
    /// request then.
    #[serde(default)]
    pub proved: bool,
    /// When it was made.
    pub created_at: Instant,
}

/// Budgets of earlier builds count.
pub(super) fn yes() -> bool {
    true
}

fn utc() -> String {
    "UTC".into()
}

/// The credentials that may raise caps, restore users, move kits, invite members and widen keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Loosening {
    /// An owner's or admin's session, and admin keys that are pinned to no user.
    #[default]
    Key,
    /// An owner's or admin's session only.
    Session,
}

impl Organization {
    /// The address of the organization of this id.
    pub fn address(id: &OrganizationId) -> Key {
        Key::new(&Reach::organization(id.as_str()), &Space::host(Self::COLLECTION), id.as_str())
    }
}

impl Record for Organization {
    const COLLECTION: &'static str = "organizations";

    fn key(&self) -> Key {
        Self::address(&self.id)
    }

    fn index(&self) -> Vec<(String, String)> {
        vec![entry(STATUS, ACTIVE)]
    }
}
