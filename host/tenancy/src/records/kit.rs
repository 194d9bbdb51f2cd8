//! An account kit as it is kept: what the kernel decides by, and the rest.

use std::collections::BTreeMap;

use charter_kernel::id::{KitId, OrganizationId, ProjectId};
use charter_kernel::kit::{Budget, Connections, Entry, Kit, Limits};
use charter_kernel::time::Instant;
use charter_kernel::unit::{Key, Reach, Space};
use serde::{Deserialize, Serialize};

use super::{Record, entry};

/// How many kits a project can have.
pub const KITS_MAX: u64 = 1_000;
/// How many primitives a kit can name.
pub const PRIMITIVES_MAX: usize = 500;

/// An account kit.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StoredKit {
    /// Its id.
    pub id: KitId,
    /// The organization that owns it.
    pub organization: OrganizationId,
    /// The project whose users it is assigned to.
    pub project: ProjectId,
    /// Its name, unique within the project.
    pub name: String,
    /// Whether it is the project's default kit: what it does not name it has as each primitive's
    /// manifest says, so that a primitive which is installed later joins it.
    pub default: bool,
    /// By primitive name.
    pub primitives: BTreeMap<String, Entry>,
    /// The spend cap of each user of the kit.
    pub budget: Option<Budget>,
    /// Third-party connections.
    pub connections: Connections,
    /// Call limits.
    pub limits: Limits,
    /// When it was made.
    pub created_at: Instant,
}

impl StoredKit {
    /// The address of the kit of this id.
    pub fn address(project: &ProjectId, id: &KitId) -> Key {
        Key::new(&Reach::project(project.as_str()), &Space::host(Self::COLLECTION), id.as_str())
    }

    /// The kit that every project begins with.
    pub fn first(
        id: KitId,
        organization: OrganizationId,
        project: ProjectId,
        now: Instant,
    ) -> Self {
        Self {
            id,
            organization,
            project,
            name: "default".into(),
            default: true,
            primitives: BTreeMap::new(),
            budget: None,
            connections: Connections::default(),
            limits: Limits::default(),
            created_at: now,
        }
    }

    /// The rules that the kernel decides by, and that the wire shows beside `created_at`.
    pub fn rules(&self, version: u64) -> Kit {
        Kit {
            id: self.id.clone(),
            name: self.name.clone(),
            primitives: self.primitives.clone(),
            budget: self.budget,
            connections: self.connections.clone(),
            limits: self.limits,
            version,
        }
    }
}

impl Record for StoredKit {
    const COLLECTION: &'static str = "kits";

    fn key(&self) -> Key {
        Self::address(&self.project, &self.id)
    }

    fn unique(&self) -> Vec<(String, String)> {
        vec![entry("name", self.name.trim().to_lowercase())]
    }
}

/// Whether a change gives the kit's users anything that they did not have: then it takes the
/// authority to loosen.
///
/// Deliberately coarse: what is not plainly a tightening counts as loosening.
pub fn loosens(before: &StoredKit, after: &StoredKit) -> bool {
    primitives_loosen(before, after)
        || Budget::loosens(before.budget, after.budget)
        || (after.connections != before.connections)
        || limits_loosen(before.limits, after.limits)
}

fn primitives_loosen(before: &StoredKit, after: &StoredKit) -> bool {
    let switched_on = |(name, entry): (&String, &Entry)| {
        entry.enabled && before.primitives.get(name) != Some(entry)
    };
    // An entry that says no and goes away may leave an open gate behind.
    let forgotten =
        |(name, entry): (&String, &Entry)| !entry.enabled && !after.primitives.contains_key(name);
    // A pin that goes away moves the users to another version.
    let unpinned = |(name, entry): (&String, &Entry)| {
        entry.enabled
            && (entry.version.is_some() || entry.policy.is_some())
            && !after.primitives.contains_key(name)
    };
    after.primitives.iter().any(switched_on)
        || before.primitives.iter().any(forgotten)
        || before.primitives.iter().any(unpinned)
}

fn limits_loosen(before: Limits, after: Limits) -> bool {
    match (before.requests_per_minute, after.requests_per_minute) {
        (None, _) => false,
        (Some(_), None) => true,
        (Some(before), Some(after)) => after > before,
    }
}

#[cfg(test)]
mod tests {
    use charter_kernel::kit::Period;

    use super::*;

    fn id(n: u8) -> String {
        charter_kernel::id::uuid_v7(Instant(1), [n; 10])
    }

    fn kit() -> StoredKit {
        let (kit, organization, project) = (
            KitId::parse(&id(1)).unwrap(),
            OrganizationId::parse(&id(2)).unwrap(),
            ProjectId::parse(&id(3)).unwrap(),
        );
        StoredKit { default: false, ..StoredKit::first(kit, organization, project, Instant(1)) }
    }

    fn with(entries: &[(&str, Entry)]) -> StoredKit {
        StoredKit {
            primitives: entries
                .iter()
                .map(|(name, entry)| ((*name).into(), entry.clone()))
                .collect(),
            ..kit()
        }
    }

    fn budget(cap_cents: u64, period: Period, hard: bool) -> StoredKit {
        StoredKit { budget: Some(Budget { cap_cents, period, hard }), ..kit() }
    }

    #[test]
    fn switching_on_pinning_and_forgetting_a_no_loosen() {
        let pinned = Entry { version: Some("1.0.0".into()), ..Entry::on() };
        assert!(loosens(&kit(), &with(&[("a", Entry::on())])));
        assert!(loosens(&with(&[("a", Entry::off())]), &with(&[("a", Entry::on())])));
        assert!(loosens(&with(&[("a", Entry::off())]), &kit()));
        assert!(loosens(&with(&[("a", Entry::on())]), &with(&[("a", pinned.clone())])));
        assert!(loosens(&with(&[("a", pinned)]), &kit()));
    }

    #[test]
    fn switching_off_and_renaming_do_not() {
        assert!(!loosens(&with(&[("a", Entry::on())]), &with(&[("a", Entry::off())])));
        assert!(!loosens(&kit(), &with(&[("a", Entry::off())])));
        assert!(!loosens(&kit(), &StoredKit { name: "other".into(), ..kit() }));
    }

    #[test]
    fn a_budget_is_loosened_by_more_by_another_period_and_by_becoming_soft() {
        let day = |cap| budget(cap, Period::Day, true);
        assert!(!loosens(&kit(), &day(5)));
        assert!(loosens(&day(5), &kit()));
        assert!(loosens(&day(5), &day(6)));
        assert!(!loosens(&day(5), &day(4)));
        assert!(loosens(&day(5), &budget(5, Period::Total, true)));
        assert!(loosens(&day(5), &budget(5, Period::Day, false)));
    }

    #[test]
    fn call_limits_loosen_upwards() {
        let limited = |n| StoredKit { limits: Limits { requests_per_minute: n }, ..kit() };
        assert!(loosens(&limited(Some(5)), &limited(Some(6))));
        assert!(loosens(&limited(Some(5)), &limited(None)));
        assert!(!loosens(&limited(None), &limited(Some(5))));
    }
}
