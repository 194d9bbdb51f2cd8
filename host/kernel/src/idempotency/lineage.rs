//! Lineage: which call of which call a call is, from the request on.
//!
//! Keys of nested changes derive from it: two calls never share one, however equal they are, and
//! the same request, run again, finds the keys of its first run.

/// The request that a call belongs to, and its place among the calls on the way to it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Lineage {
    key: String,
    depth: u8,
}

impl Lineage {
    /// The outermost call of a request: `request` is what no other request is called.
    pub fn outermost(request: impl Into<String>) -> Self {
        Self { key: request.into(), depth: 0 }
    }

    /// The nested call that this one makes as its so many-th.
    #[must_use]
    pub fn child(&self, ordinal: u32) -> Self {
        Self { key: format!("{}/{ordinal}", self.key), depth: self.depth.saturating_add(1) }
    }

    /// How many calls it lies in.
    pub fn depth(&self) -> u8 {
        self.depth
    }

    /// The idempotency key of the call, where its caller gives none.
    pub fn key(&self) -> &str {
        &self.key
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::idempotency::ClientKey;

    fn descend(request: &str, ordinals: &[u32]) -> Lineage {
        ordinals
            .iter()
            .fold(Lineage::outermost(request), |lineage, ordinal| lineage.child(*ordinal))
    }

    #[test]
    fn a_call_of_the_first_call_is_not_one_of_the_second() {
        let request = Lineage::outermost("r");
        let (first, second) = (request.child(1), request.child(2));
        assert_ne!(first.child(1), second.child(1));
        assert_eq!((request.depth(), first.depth(), first.child(1).depth()), (0, 1, 2));
        assert_eq!(first.child(1).key(), "r/1/1");
    }

    proptest! {
        #[test]
        fn a_key_says_the_request_and_the_whole_way(
            one in prop::collection::vec(any::<u32>(), 0..5),
            other in prop::collection::vec(any::<u32>(), 0..5),
            requests in prop::sample::select(vec![("r", "r"), ("r", "s"), ("r", "r1")]),
        ) {
            let (a, b) = (descend(requests.0, &one), descend(requests.1, &other));
            prop_assert_eq!(a.key() == b.key(), requests.0 == requests.1 && one == other);
            prop_assert_eq!(usize::from(a.depth()), one.len());
        }

        #[test]
        fn every_key_is_one_that_a_client_could_send(ordinals in prop::collection::vec(any::<u32>(), 0..5)) {
            let lineage = descend("01933b1e-0000-7000-8000-000000000000", &ordinals);
            prop_assert!(ClientKey::parse(lineage.key()).is_ok());
        }
    }
}
