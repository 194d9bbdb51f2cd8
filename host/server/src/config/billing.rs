//! The biller of the deployment's organizations.

use super::source::Section;

/// `[billing]`
#[derive(Clone, Debug)]
pub struct Billing {
    /// The primitive that bills; nobody is billed where it is empty.
    pub primitive: String,
    /// Whether an organization that does not pay is refused.
    pub enforce: bool,
}

impl Billing {
    pub(super) fn read(mut of: Section<'_>) -> Self {
        let billing = Self {
            primitive: of.take(
                "primitive",
                String::new(),
                "the primitive that bills organizations; empty: nobody is billed",
            ),
            enforce: of.take(
                "enforce",
                false,
                "refuse what an organization has not paid for; nothing is refused where false",
            ),
        };
        if billing.enforce && billing.primitive.is_empty() {
            of.fault("enforce", "needs billing.primitive: without it nobody could pay");
        }
        billing
    }

    /// Whether this primitive is the one that bills.
    pub fn is(&self, primitive: &str) -> bool {
        !self.primitive.is_empty() && self.primitive == primitive
    }
}
