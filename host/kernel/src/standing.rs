//! How an organization stands with who bills it, and what is stopped while it stands so.

use serde::{Deserialize, Serialize};

use crate::time::Instant;
use crate::unit::{Key, Reach, Space};

/// The row's id: an organization has one standing.
const ID: &str = "standing";

/// Why something is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// There never was a plan.
    NoSubscription,
    /// The trial is over, and nothing was subscribed to.
    TrialExpired,
    /// The subscription has ended.
    SubscriptionCancelled,
    /// The subscription is not paid for.
    SubscriptionPastDue,
    /// Nothing is left to spend.
    CreditsExhausted,
    /// All credit was given, and only bought credit pays for model calls.
    LlmRoutingRequiresPayment,
}

impl Reason {
    /// Every reason.
    pub const ALL: [Self; 6] = [
        Self::NoSubscription,
        Self::TrialExpired,
        Self::SubscriptionCancelled,
        Self::SubscriptionPastDue,
        Self::CreditsExhausted,
        Self::LlmRoutingRequiresPayment,
    ];

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoSubscription => "no_subscription",
            Self::TrialExpired => "trial_expired",
            Self::SubscriptionCancelled => "subscription_cancelled",
            Self::SubscriptionPastDue => "subscription_past_due",
            Self::CreditsExhausted => "credits_exhausted",
            Self::LlmRoutingRequiresPayment => "llm_routing_requires_payment",
        }
    }

    /// The reason of this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == name)
    }

    /// Whether it stops an operation, which either routes to a language model or does not.
    pub fn stops(self, llm_routing: bool) -> bool {
        self != Self::LlmRoutingRequiresPayment || llm_routing
    }
}

/// The standing, as its row keeps it. Nothing is stopped where there is no row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    /// Why.
    pub reason: Reason,
    /// Since when.
    pub since: Instant,
}

impl Standing {
    /// The address of an organization's.
    pub fn address(organization: &str) -> Key {
        Key::new(&Reach::organization(organization), &Self::space(), ID)
    }

    /// The space of all of them.
    pub fn space() -> Space {
        Space::host("standings")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_known_by_its_name() {
        for reason in Reason::ALL {
            assert_eq!(Reason::parse(reason.as_str()), Some(reason));
            assert_eq!(serde_json::to_value(reason).unwrap(), reason.as_str());
        }
        assert_eq!(Reason::parse("because"), None);
    }

    #[test]
    fn credit_that_was_given_stops_model_calls_alone() {
        for reason in Reason::ALL {
            assert!(reason.stops(true));
            assert_eq!(reason.stops(false), reason != Reason::LlmRoutingRequiresPayment);
        }
    }
}
