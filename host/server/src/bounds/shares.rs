//! The shares of one bound: each lies in the one around it, and the widest in the whole.
//!
//! One rule: a share takes more only as long as it then has at most as much as was free around it. So
//! one alone gets half of what there is, two a third each, nobody takes the last of it, and there is
//! room for the next. Pure; holds an entry only while a share has something.

use std::collections::HashMap;
use std::sync::Arc;

/// One share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// Its name, which no other share of the bound has.
    pub name: Arc<str>,
    /// How much those within it may have together.
    pub max: usize,
}

/// The shares that one holder counts in, the widest first. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Path {
    /// The shares.
    pub shares: Arc<[Share]>,
    /// The place among them of the one that has room for one of its own beside all others', if any.
    pub floor: Option<usize>,
}

impl Path {
    /// The share that has room of its own.
    pub fn floor(&self) -> Option<&Share> {
        self.shares.get(self.floor?)
    }
}

/// The shares of one bound, and what each has.
#[derive(Debug)]
pub struct Shares {
    all: usize,
    held: usize,
    by_name: HashMap<Arc<str>, usize>,
}

/// The share that has no room for it, counted from the widest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// Its depth.
    pub depth: usize,
    /// Whether it has nothing of its own: what is gone is others'.
    pub by_others: bool,
}

impl Shares {
    /// The shares of a whole of so much.
    pub fn new(all: usize) -> Self {
        Self { all, held: 0, by_name: HashMap::new() }
    }

    /// How much there is of it.
    pub fn all(&self) -> usize {
        self.all
    }

    /// How much all together have.
    pub fn total(&self) -> usize {
        self.held
    }

    /// How much one share has.
    pub fn of(&self, name: &str) -> usize {
        self.by_name.get(name).copied().unwrap_or(0)
    }

    /// Whether a holder may have so much more.
    ///
    /// # Errors
    /// The widest share that has no room for it.
    pub fn admit(&self, path: &[Share], more: usize) -> Result<(), Taken> {
        let mut free = self.all.saturating_sub(self.held);
        for (depth, share) in path.iter().enumerate() {
            let own = self.of(&share.name);
            if own + more > free {
                return Err(Taken { depth, by_others: own == 0 });
            }
            free = share.max.saturating_sub(own);
        }
        Ok(())
    }

    /// Counts so much more.
    pub fn add(&mut self, path: &[Share], more: usize) {
        self.held += more;
        for share in path {
            *self.by_name.entry(share.name.clone()).or_default() += more;
        }
    }

    /// Counts so much less.
    pub fn remove(&mut self, path: &[Share], less: usize) {
        self.held -= less;
        for share in path {
            let Some(own) = self.by_name.get_mut(&share.name) else { continue };
            *own = own.saturating_sub(less);
            if *own == 0 {
                self.by_name.remove(&share.name);
            }
        }
    }

    /// Whether nothing is held.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.held == 0 && self.by_name.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn path(names: [&str; 2]) -> Vec<Share> {
        let inner = Share { name: names.join("/").into(), max: 50 };
        vec![Share { name: names[0].into(), max: 100 }, inner]
    }

    #[test]
    fn one_alone_gets_half_and_there_is_room_for_the_next() {
        let mut shares = Shares::new(usize::MAX);
        let mut fill = |name| {
            let path = path(["o", name]);
            let fits = std::iter::from_fn(|| {
                shares.admit(&path, 1).ok()?;
                shares.add(&path, 1);
                Some(())
            });
            fits.count()
        };
        assert_eq!(["a", "b", "c", "d"].map(&mut fill), [50, 25, 13, 6]);
    }

    proptest! {
        #[test]
        fn no_share_has_more_than_there_is_of_it_and_nothing_is_left_of_what_was_given_back(
            steps in proptest::collection::vec((0..3_u8, 0..3_u8, 1..60_usize), 0..80),
        ) {
            let mut shares = Shares::new(200);
            let mut held = Vec::new();
            for (outer, inner, amount) in steps {
                let path = path([&format!("o{outer}"), &inner.to_string()]);
                let free = 200 - shares.total();
                if shares.admit(&path, amount).is_ok() {
                    shares.add(&path, amount);
                    held.push((path, amount));
                    prop_assert!(amount <= free);
                }
                for outer in (0..3).map(|outer| format!("o{outer}")) {
                    prop_assert!(shares.of(&outer) <= 100);
                }
            }
            for (path, amount) in held {
                shares.remove(&path, amount);
            }
            prop_assert!(shares.is_empty());
        }
    }
}
