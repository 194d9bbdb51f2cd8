//! The bounds of what a primitive may propose: a proposal's amounts and texts.
//!
//! Knows no policy and no cap: a proposal that fits is decided by them.

use crate::governance::hold::Word;
use crate::manifest::Action;
use crate::money::AMOUNT_MAX;
use crate::refusal::Failure;

/// Scopes of a primitive's own that one action counts in.
const SCOPES_MAX: usize = 4;
/// Bytes of the name of a component: spend records are found by it.
const COMPONENT_BYTES_MAX: usize = 100;
/// Bytes of a text of a proposal.
const TEXT_BYTES_MAX: usize = 2_000;

/// A proposal, as its primitive words it.
#[derive(Clone, Copy, Debug)]
pub struct Proposed<'a> {
    /// In micro-US-dollars; absent where none is known.
    pub amount: Option<i64>,
    /// The purpose of the money.
    pub component: &'a str,
    /// How many scopes of the primitive's own it counts in.
    pub scopes: usize,
    /// The thing it is done to.
    pub entity: &'a str,
    /// For the person who decides.
    pub title: &'a str,
    /// For the person who decides.
    pub message: &'a str,
}

/// Scopes are named in proposals: what a primitive calls another for counts in none of its own.
///
/// # Errors
/// `invalid_request` where a call names some.
pub fn check_call_scopes(scopes: &[(String, String)]) -> Result<(), Failure> {
    if scopes.is_empty() {
        return Ok(());
    }
    let told =
        "a call counts in no scopes of its caller's: name them in the caller's own proposals";
    Err(Failure::invalid("scopes", told))
}

impl Proposed<'_> {
    /// Checks it by the bounds and by its action's declaration.
    ///
    /// # Errors
    /// The first bound that it exceeds.
    pub fn check(&self, declared: &Action) -> Result<(), Failure> {
        if self.amount.is_some_and(|amount| !(0..=AMOUNT_MAX).contains(&amount)) {
            let told = format!("an amount is 0 to {AMOUNT_MAX} micro-US-dollars");
            return Err(Failure::invalid("amount", told));
        }
        if declared.spends && self.amount.is_none() {
            // An amount that no cap could be asked about would pass them all.
            return Err(Failure::undeclared(format!(
                "`{}` spends, so a proposal of it names an amount",
                declared.name
            )));
        }
        if self.component.is_empty()
            || self.component.len() > COMPONENT_BYTES_MAX
            || self.component.contains(char::is_control)
        {
            let told = format!("a component has 1 to {COMPONENT_BYTES_MAX} visible bytes");
            return Err(Failure::invalid("component", told));
        }
        if self.scopes > SCOPES_MAX {
            let told = format!("an action counts in at most {SCOPES_MAX} scopes of its primitive");
            return Err(Failure::invalid("scopes", told));
        }
        let texts = [("entity", self.entity), ("title", self.title), ("message", self.message)];
        match texts.into_iter().find(|(_, text)| text.len() > TEXT_BYTES_MAX) {
            Some((name, _)) => {
                Err(Failure::invalid(name, format!("`{name}` has at most {TEXT_BYTES_MAX} bytes")))
            }
            None => Ok(()),
        }
    }
}

/// The amount that a provider's signed word says has moved, in micro-US-dollars: no other word
/// reports any.
///
/// # Errors
/// If the word is another's, or the amount is none that can have moved.
pub fn reported_amount(amount: Option<i64>, word: Word) -> Result<i64, Failure> {
    if word != Word::Provider {
        let told = "only while a bound provider's signed word is heard is anything reported";
        return Err(Failure::undeclared(told));
    }
    amount.filter(|amount| (1..=AMOUNT_MAX).contains(amount)).ok_or_else(|| {
        let told = format!("what is reported is 1 to {AMOUNT_MAX} micro-US-dollars");
        Failure::invalid("amount", told)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_provider_alone_reports_and_only_what_can_have_moved() {
        assert_eq!(reported_amount(Some(AMOUNT_MAX), Word::Provider).ok(), Some(AMOUNT_MAX));
        for amount in [None, Some(0), Some(-1), Some(AMOUNT_MAX + 1)] {
            let refused =
                reported_amount(amount, Word::Provider).expect_err("no such amount moves");
            assert_eq!(refused.param.as_deref(), Some("amount"), "{amount:?}");
        }
        assert!(reported_amount(Some(1), Word::Asker).is_err());
    }

    fn fault(spends: bool, of: Proposed<'_>) -> Option<String> {
        let declared = Action {
            name: "notes.buy".into(),
            title: "Buy".into(),
            description: String::new(),
            risk: "low".into(),
            spends,
            overrun: None,
        };
        of.check(&declared).err().map(|failure| failure.param.unwrap_or(failure.code))
    }

    #[test]
    fn a_proposal_beyond_a_bound_is_refused_at_the_member() {
        let long = "x".repeat(TEXT_BYTES_MAX + 1);
        let fits = Proposed {
            amount: Some(AMOUNT_MAX),
            component: "notes",
            scopes: SCOPES_MAX,
            entity: "thing",
            title: &long[..TEXT_BYTES_MAX],
            message: "",
        };
        assert_eq!(fault(true, fits), None);
        assert_eq!(fault(false, Proposed { amount: None, ..fits }), None);
        let component = &long[..COMPONENT_BYTES_MAX];
        assert_eq!(fault(true, Proposed { component, ..fits }), None);
        for (of, member) in [
            (Proposed { amount: Some(-1), ..fits }, "amount"),
            (Proposed { amount: Some(AMOUNT_MAX + 1), ..fits }, "amount"),
            (Proposed { amount: None, ..fits }, "internal_error"),
            (Proposed { component: "", ..fits }, "component"),
            (Proposed { component: "a\nb", ..fits }, "component"),
            (Proposed { component: &long[..COMPONENT_BYTES_MAX + 1], ..fits }, "component"),
            (Proposed { scopes: SCOPES_MAX + 1, ..fits }, "scopes"),
            (Proposed { entity: &long, ..fits }, "entity"),
            (Proposed { title: &long, ..fits }, "title"),
            (Proposed { message: &long, ..fits }, "message"),
        ] {
            assert_eq!(fault(true, of).as_deref(), Some(member), "{of:?}");
        }
    }
}
