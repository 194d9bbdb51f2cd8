//! Account kits: which primitives a user has, at which version and under which policy.
//!
//! A kit is data that an organization owns; [`decide`] is the gate that each call of a primitive
//! passes. Knows no primitive: names and gates come from manifests.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::id::KitId;
use crate::manifest::Gate;
use crate::refusal::{Code, Refusal};

/// A reusable bundle of primitives and policy, assigned to users. Closed on the wire: an unknown
/// member is refused.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kit {
    /// Its id.
    pub id: KitId,
    /// For people; unique in the organization.
    pub name: String,
    /// By primitive name. A primitive that is not named follows its gate.
    #[serde(default)]
    pub primitives: BTreeMap<String, Entry>,
    /// The spend cap of each user of the kit; absent means none.
    #[serde(default)]
    pub budget: Option<Budget>,
    /// The third-party connections that its users may use.
    #[serde(default)]
    pub connections: Connections,
    /// How much its users may call.
    #[serde(default)]
    pub limits: Limits,
    /// The row's version, for `expected_version`.
    #[serde(default)]
    pub version: u64,
}

/// A kit's word on one primitive.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// Whether its users may call it.
    pub enabled: bool,
    /// The component version they get; the active one if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub version: Option<String>,
    /// Values of the settings that the primitive lets a kit set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxProperties" = 100))]
    pub policy: Option<Map<String, Value>>,
}

impl Entry {
    /// On, at the active version.
    pub fn on() -> Self {
        Self { enabled: true, version: None, policy: None }
    }
    /// Off.
    pub fn off() -> Self {
        Self { enabled: false, version: None, policy: None }
    }
    /// The entry of a default kit for a primitive that is being installed: opt-in ones are off.
    pub fn by_default(gate: Gate) -> Self {
        if gate == Gate::OptIn { Self::off() } else { Self::on() }
    }
}

/// The highest cap, in cents: its micro-dollars still fit a 64-bit integer.
pub const CAP_CENTS_MAX: u64 = 900_000_000_000_000;

/// A spend cap over a period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Budget {
    /// Whole cents, positive.
    #[schemars(range(min = 1, max = CAP_CENTS_MAX))]
    pub cap_cents: u64,
    /// The period it is counted over.
    pub period: Period,
    /// Whether an excess is refused; otherwise it waits for approval.
    #[serde(default = "yes")]
    pub hard: bool,
}

impl Budget {
    /// Whether going from one budget to another lets more be spent: a higher cap, another period,
    /// an excess that is no longer refused, or no budget any more.
    pub fn loosens(before: Option<Self>, after: Option<Self>) -> bool {
        match (before, after) {
            (None, _) => false,
            (Some(_), None) => true,
            (Some(before), Some(after)) => {
                after.cap_cents > before.cap_cents
                    || after.period != before.period
                    || (before.hard && !after.hard)
            }
        }
    }
}

fn yes() -> bool {
    true
}

/// The period that a cap is counted over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Period {
    /// A calendar day.
    Day,
    /// A calendar week, from Monday.
    Week,
    /// A calendar month.
    Month,
    /// A calendar year.
    Year,
    /// Ever.
    Total,
}

impl Period {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Day, Self::Week, Self::Month, Self::Year, Self::Total];

    /// Its name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Period::Day => "day",
            Period::Week => "week",
            Period::Month => "month",
            Period::Year => "year",
            Period::Total => "total",
        }
    }
}

/// The third-party connections that a kit's users may use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Connections {
    /// Whether every toolkit is reachable or only those listed.
    pub mode: ConnectionMode,
    /// The toolkits of mode `listed`.
    #[schemars(length(max = 200), inner(length(min = 1, max = 200)))]
    pub toolkits: Vec<String>,
}

/// Whether every toolkit is reachable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ConnectionMode {
    /// All of them.
    #[default]
    Open,
    /// Only the listed ones.
    Listed,
}

/// How much a kit's users may call; absent means what the operator set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Requests of one user in a minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = u32::MAX))]
    pub requests_per_minute: Option<u32>,
}

/// The gate shut: the kit does not let its users call the primitive.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the account kit does not enable {primitive}")]
pub struct Denied {
    /// The primitive.
    pub primitive: String,
}

/// `error.details.reason` of a shut gate.
pub const DISABLED_REASON: &str = "primitive_disabled_by_kit";

impl From<Denied> for Refusal {
    fn from(denied: Denied) -> Self {
        Refusal::new(
            Code::Forbidden,
            format!("The account kit does not enable {}.", denied.primitive),
        )
        .hint(
            "Enable the primitive in the kit that the user is assigned to, or assign another kit.",
        )
        .reason(DISABLED_REASON)
        .detail("reason", DISABLED_REASON)
        .detail("primitive", denied.primitive)
    }
}

/// Whether a kit admits a primitive, and the version it pins. No kit is a kit that names nothing.
///
/// # Errors
/// [`Denied`] where the kit switches the primitive off, or does not name it and its gate is strict
/// or opt-in.
pub fn decide<'k>(
    primitive: &str,
    gate: Gate,
    kit: Option<&'k Kit>,
) -> Result<Option<&'k str>, Denied> {
    let entry = kit.and_then(|kit| kit.primitives.get(primitive));
    match (entry, gate) {
        (Some(entry), _) if entry.enabled => Ok(entry.version.as_deref()),
        (None, Gate::Open) => Ok(None),
        (Some(_), _) | (None, Gate::Strict | Gate::OptIn) => {
            Err(Denied { primitive: primitive.into() })
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn kit(primitives: Value) -> Kit {
        let id = crate::id::uuid_v7(crate::time::Instant(1), [1; 10]);
        serde_json::from_value(
            json!({"id": id, "name": "default", "primitives": primitives, "budget": null}),
        )
        .unwrap()
    }

    #[test]
    fn an_unnamed_primitive_follows_its_gate() {
        let kit = kit(json!({}));
        for kit in [None, Some(&kit)] {
            assert_eq!(decide("mail", Gate::Open, kit), Ok(None));
            assert!(decide("mail", Gate::Strict, kit).is_err());
            assert!(decide("mail", Gate::OptIn, kit).is_err());
        }
    }

    #[test]
    fn a_named_primitive_follows_the_kit() {
        let kit = kit(
            json!({"on": {"enabled": true, "version": "1.2.0"}, "off": {"enabled": false, "version": "1.2.0"}}),
        );
        for gate in [Gate::Open, Gate::Strict, Gate::OptIn] {
            assert_eq!(decide("on", gate, Some(&kit)), Ok(Some("1.2.0")));
            assert!(decide("off", gate, Some(&kit)).is_err());
        }
    }

    #[test]
    fn the_refusal_says_which_primitive_and_why() {
        let refusal = Refusal::from(Denied { primitive: "mail".into() });
        let (status, body) = refusal.render(crate::manifest::Catalogue::Typed, "r");
        assert_eq!(status, 403);
        assert_eq!(body["error"]["code"], "forbidden");
        assert_eq!(body["error"]["details"]["reason"], "primitive_disabled_by_kit");
    }

    #[test]
    fn a_kit_is_closed() {
        let id = crate::id::uuid_v7(crate::time::Instant(1), [1; 10]);
        for body in [
            json!({"id": id, "name": "k", "colour": 1}),
            json!({"id": id, "name": "k", "primitives": {"a": {"enabled": true, "pin": "1"}}}),
            json!({"id": id, "name": "k", "budget": {"cap_cents": 1, "period": "day", "soft": true}}),
            json!({"id": id, "name": "k", "budget": {"cap_cents": 1, "period": "hour"}}),
            json!({"id": id, "name": "k", "limits": {"calls": 1}}),
        ] {
            assert!(serde_json::from_value::<Kit>(body.clone()).is_err(), "{body}");
        }
    }

    #[test]
    fn a_default_kit_leaves_opt_in_primitives_off() {
        assert!(Entry::by_default(Gate::Open).enabled);
        assert!(Entry::by_default(Gate::Strict).enabled);
        assert!(!Entry::by_default(Gate::OptIn).enabled);
    }
}
