//! Limits: how often a user may take an action in a period, and for how much in all.
//!
//! A budget bounds money that leaves, a limit everything regulated: mails sent, money charged.
//! Each counts on a meter of its own for each user, and on one for what is the organization's own.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::policy::{IDS_WORDS, NAMED_MAX, action_matches, are_ids, is_glob};
use crate::fault::Fault;
use crate::id::read_set;
use crate::kit::Period;
use crate::money::AMOUNT_MAX;

/// Most limits of an organization.
pub const LIMITS_MAX: usize = 50;
/// Characters of an id.
const ID_CHARS_MAX: usize = 100;

/// How often, and for how much, in a period. Closed on the wire.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Limit {
    /// Named in refusals.
    #[schemars(length(min = 1, max = ID_CHARS_MAX))]
    pub id: String,
    /// The actions that count: `shop.buy`, `shop.*`, `*`.
    #[schemars(length(min = 1, max = NAMED_MAX), inner(length(min = 1, max = 200)))]
    pub actions: Vec<String>,
    /// The users it bounds; every user, each by itself, and the organization's own actions, once for
    /// the organization, where absent.
    #[serde(default, deserialize_with = "read_set", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<String>")]
    #[schemars(length(min = 1, max = NAMED_MAX), inner(length(min = 1, max = 200)))]
    pub users: Option<BTreeSet<String>>,
    /// The period it is counted over, in the organization's time zone.
    pub period: Period,
    /// How often.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub max_count: Option<i64>,
    /// For how much in all, in micro-US-dollars.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub max_amount_micro_usd: Option<i64>,
}

impl Limit {
    /// Whether it counts this action of this user; of nobody's, where none is a party to it.
    pub fn counts(&self, action: &str, user: Option<&str>) -> bool {
        self.actions.iter().any(|glob| action_matches(glob, action))
            && self.users.as_ref().is_none_or(|users| user.is_some_and(|user| users.contains(user)))
    }

    /// Whether it bounds all that `other` does, and as tightly.
    fn bounds_at_least(&self, other: &Self) -> bool {
        let as_tight = |mine: Option<i64>, others: Option<i64>| match (mine, others) {
            (_, None) => true,
            (Some(mine), Some(others)) => mine <= others,
            (None, Some(_)) => false,
        };
        let as_wide = match (&self.users, &other.users) {
            (None, _) => true,
            (Some(mine), Some(others)) => mine.is_superset(others),
            (Some(_), None) => false,
        };
        // Under another id it would count from nothing.
        self.id == other.id
            && self.period == other.period
            && as_wide
            && other.actions.iter().all(|glob| self.actions.contains(glob))
            && as_tight(self.max_count, other.max_count)
            && as_tight(self.max_amount_micro_usd, other.max_amount_micro_usd)
    }
}

/// Everything that is wrong with a list of limits, by dotted path.
pub fn faults(limits: &[Limit]) -> Vec<Fault> {
    let mut faults = Vec::new();
    if limits.len() > LIMITS_MAX {
        faults.push(Fault::new("limits", format!("must have at most {LIMITS_MAX} limits")));
    }
    let mut seen = BTreeSet::new();
    for (at, limit) in limits.iter().enumerate() {
        let mut fault = |member: &str, message: String| {
            faults.push(Fault::new(format!("limits.{at}.{member}"), message))
        };
        let visible = |c: char| c.is_ascii_graphic();
        if limit.id.is_empty() || limit.id.len() > ID_CHARS_MAX || !limit.id.chars().all(visible) {
            fault("id", format!("must have 1 to {ID_CHARS_MAX} visible ASCII characters"));
        } else if !seen.insert(&limit.id) {
            fault("id", "is the id of an earlier limit too".into());
        }
        if limit.actions.is_empty()
            || limit.actions.len() > NAMED_MAX
            || !limit.actions.iter().all(|glob| is_glob(glob))
        {
            fault(
                "actions",
                format!(
                    "must name 1 to {NAMED_MAX} actions: `shop.buy`, `shop.*` or `*`, in lower case"
                ),
            );
        }
        if !limit.users.as_ref().is_none_or(are_ids) {
            fault("users", format!("must name 1 to {NAMED_MAX} {IDS_WORDS}"));
        }
        if limit.max_count.is_none() && limit.max_amount_micro_usd.is_none() {
            fault("max_count", "or `max_amount_micro_usd` is required".into());
        }
        for (member, most) in
            [("max_count", limit.max_count), ("max_amount_micro_usd", limit.max_amount_micro_usd)]
        {
            if most.is_some_and(|most| !(0..=AMOUNT_MAX).contains(&most)) {
                fault(member, format!("must be 0 to {AMOUNT_MAX}"));
            }
        }
    }
    faults
}

/// Whether going from one list to another lets more happen. It may say so where nothing is loosened
/// in effect, never the other way round.
pub fn is_loosened(before: &[Limit], after: &[Limit]) -> bool {
    !before.iter().all(|old| after.iter().any(|new| new.bounds_at_least(old)))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn limit(changes: Value) -> Limit {
        let mut limit =
            json!({ "id": "daily", "actions": ["post.send"], "period": "day", "max_count": 10 });
        limit.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        serde_json::from_value(limit).unwrap()
    }

    #[test]
    fn a_limit_counts_its_actions_and_its_users() {
        let all = limit(json!({}));
        assert!(all.counts("post.send", Some("u1")) && !all.counts("post.read", Some("u1")));
        let one = limit(json!({ "users": ["u1"], "actions": ["post.*"] }));
        assert!(one.counts("post.read", Some("u1")) && !one.counts("post.read", Some("u2")));
    }

    #[test]
    fn an_id_is_one_in_either_case() {
        const ID: &str = "01a2189e-29ab-77e4-afdc-a66d6000929a";
        let one = limit(json!({ "users": [ID.to_uppercase()] }));
        assert!(one.counts("post.send", Some(ID)));
        assert_eq!(faults(&[one]), []);
    }

    #[test]
    fn a_limit_that_names_users_counts_nothing_of_nobodys() {
        let all = limit(json!({}));
        assert!(all.counts("post.send", None) && !all.counts("post.read", None));
        assert!(!limit(json!({ "users": ["u1"] })).counts("post.send", None));
    }

    #[test]
    fn loosening_is_what_lets_more_happen() {
        let before = limit(json!({ "users": ["u1"], "max_amount_micro_usd": 5 }));
        let loosened =
            |changes: Value| is_loosened(std::slice::from_ref(&before), &[limit(changes)]);
        let same = json!({ "users": ["u1"], "max_amount_micro_usd": 5 });
        let with = |member: &str, value: Value| {
            let mut changes = same.clone();
            changes[member] = value;
            loosened(changes)
        };
        assert!(!loosened(same.clone()) && is_loosened(std::slice::from_ref(&before), &[]));
        assert!(
            with("max_count", json!(11))
                && with("max_count", Value::Null)
                && with("period", json!("week"))
        );
        assert!(
            with("id", json!("other"))
                && with("actions", json!(["post.read"]))
                && with("users", json!(["u2"]))
        );
        assert!(
            !with("max_count", json!(9))
                && !with("users", json!(["u1", "u2"]))
                && !with("actions", json!(["post.send", "*"]))
        );
        assert!(!is_loosened(&[], &[before]));
    }

    #[test]
    fn each_fault_names_its_field() {
        let of = |changes: Value| {
            faults(&[limit(changes)]).into_iter().map(|fault| fault.path).collect::<Vec<_>>()
        };
        assert_eq!(of(json!({})), Vec::<String>::new());
        assert_eq!(of(json!({ "id": "a b" })), ["limits.0.id"]);
        assert_eq!(of(json!({ "actions": [] })), ["limits.0.actions"]);
        for users in [json!([]), json!(["u1"])] {
            assert_eq!(of(json!({ "users": users })), ["limits.0.users"]);
        }
        assert_eq!(of(json!({ "max_count": null })), ["limits.0.max_count"]);
        assert_eq!(of(json!({ "max_amount_micro_usd": -1 })), ["limits.0.max_amount_micro_usd"]);
        assert_eq!(faults(&[limit(json!({})), limit(json!({}))])[0].path, "limits.1.id");
    }
}
