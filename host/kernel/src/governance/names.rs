//! Lists of names as numbers: whether one has all of another is asked of many pairs, and costs what
//! the two have.

use std::collections::HashMap;

/// Numbers names as they come.
#[derive(Debug, Default)]
pub(super) struct Names<'a>(HashMap<&'a str, usize>);

/// A list of names: their numbers, ascending.
#[derive(Debug)]
pub(super) struct Numbers(Vec<usize>);

impl<'a> Names<'a> {
    pub(super) fn number(&mut self, names: impl IntoIterator<Item = &'a String>) -> Numbers {
        let mut number = |name: &'a String| {
            let next = self.0.len();
            *self.0.entry(name).or_insert(next)
        };
        let mut numbers: Vec<usize> = names.into_iter().map(&mut number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        Numbers(numbers)
    }
}

impl Numbers {
    /// Whether each name of the other list is in this one.
    pub(super) fn contain(&self, other: &Self) -> bool {
        let mut own = self.0.iter();
        self.0.len() >= other.0.len()
            && other.0.iter().all(|wanted| own.find(|one| *one >= wanted) == Some(wanted))
    }
}
