//! The cost of checking, counted instead of done: of a schema at install, of a value before it is
//! validated.
//!
//! A validator visits one value once for each way that leads to a subschema, and ways multiply: a
//! chain of references that each stand twice doubles with every link. So visits are counted with
//! multiplicity, in the three passes that the validator makes: to test whether a value fits, to
//! mark which members were seen (`unevaluated…`), and to tell what is wrong. A count is an upper
//! bound: nothing is assumed to fail early.

use serde_json::Value;

use super::graph::{Graph, Node, Place, VISIT_STEPS, size};
use crate::limits::{JSON_DEPTH_MAX, SCHEMA_NESTED_MAX};

/// The purpose of a visit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pass {
    /// To test whether the value fits.
    Test,
    /// To mark the members that were seen.
    Mark,
    /// To tell what is wrong.
    Tell,
}

/// The passes that a subschema for the same value is visited in.
fn passes(pass: Pass, place: Place) -> &'static [Pass] {
    match (pass, place) {
        (Pass::Test, _) | (Pass::Tell, Place::Asked) => &[Pass::Test],
        (Pass::Mark, _) => &[Pass::Test, Pass::Mark],
        (Pass::Tell, Place::Must) => &[Pass::Tell],
        (Pass::Tell, Place::May) => &[Pass::Test, Pass::Tell],
    }
}

/// A fault in the shape of a schema, and the node that has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// It leads back to itself without going into the value.
    Endless(usize),
    /// More subschemas are within each other than can be.
    Nested(usize),
}

impl Graph {
    /// The nodes in an order in which each stands after those that it applies to the same value.
    pub(super) fn order(&self) -> Result<Vec<usize>, Shape> {
        #[derive(Clone, Copy, PartialEq)]
        enum Seen {
            Not,
            OnTheWay,
            Done,
        }
        fn visit(
            graph: &Graph,
            at: usize,
            depth: usize,
            seen: &mut [Seen],
            order: &mut Vec<usize>,
        ) -> Result<(), Shape> {
            match seen[at] {
                Seen::Done => return Ok(()),
                Seen::OnTheWay => return Err(Shape::Endless(at)),
                Seen::Not if depth > SCHEMA_NESTED_MAX => return Err(Shape::Nested(at)),
                Seen::Not => seen[at] = Seen::OnTheWay,
            }
            for (_, next) in &graph.nodes[at].in_place {
                visit(graph, *next, depth + 1, seen, order)?;
            }
            seen[at] = Seen::Done;
            order.push(at);
            Ok(())
        }
        let mut seen = vec![Seen::Not; self.nodes.len()];
        let mut order = Vec::with_capacity(self.nodes.len());
        for at in 0..self.nodes.len() {
            visit(self, at, 0, &mut seen, &mut order)?;
        }
        Ok(order)
    }

    /// How often, at most, one value is visited for each node that is applied to it.
    pub(super) fn visits(&self, order: &[usize]) -> Vec<u64> {
        let mut counts = vec![[0_u64; 3]; self.nodes.len()];
        for &at in order {
            let node = &self.nodes[at];
            let mut count = [1_u64; 3];
            for pass in [Pass::Mark, Pass::Test, Pass::Tell] {
                let sum = &mut count[pass as usize];
                for (place, next) in &node.in_place {
                    for below in passes(pass, *place) {
                        *sum = sum.saturating_add(counts[*next][*below as usize]);
                    }
                }
            }
            if node.marks() {
                let [test, mark, tell] = count;
                count = [test.saturating_add(mark), mark, tell.saturating_add(mark)];
            }
            counts[at] = count;
        }
        counts.into_iter().map(|count| count[Pass::Tell as usize]).collect()
    }

    /// How many subschemas are within each other, at most, while the deepest value is checked: the
    /// depth of the validator's stack.
    pub(super) fn nesting(&self, order: &[usize]) -> usize {
        let mut deepest = vec![0; self.nodes.len()];
        for _ in 0..=JSON_DEPTH_MAX {
            let mut here = vec![0; self.nodes.len()];
            for &at in order {
                let node = &self.nodes[at];
                let in_place = node.in_place.iter().map(|(_, next)| here[*next]);
                let below = node.below().map(|next| deepest[next]);
                here[at] = 1 + in_place.chain(below).max().unwrap_or(0);
            }
            if here == deepest {
                break;
            }
            deepest = here;
        }
        deepest[0]
    }

    /// Takes the steps of checking a value from what is left; `None` once nothing is.
    pub(super) fn spend(&self, value: &Value, pass: Pass, left: &mut u64) -> Option<()> {
        self.visit(0, value, pass, left)
    }

    fn visit(&self, at: usize, value: &Value, pass: Pass, left: &mut u64) -> Option<()> {
        let node = &self.nodes[at];
        node.spend(value, left)?;
        if pass == Pass::Tell {
            // A keyword that does not hold is asked again for its words.
            node.spend(value, left)?;
        }
        if pass != Pass::Mark && node.marks() {
            self.visit(at, value, Pass::Mark, left)?;
        }
        for (place, next) in &node.in_place {
            for below in passes(pass, *place) {
                self.visit(*next, value, *below, left)?;
            }
        }
        match value {
            Value::Object(members) => members
                .iter()
                .try_for_each(|(name, value)| self.member(node, name, value, pass, left)),
            Value::Array(items) => items
                .iter()
                .enumerate()
                .try_for_each(|(number, item)| self.item(node, number, item, pass, left)),
            _ => Some(()),
        }
    }

    fn member(
        &self,
        node: &Node,
        name: &str,
        value: &Value,
        pass: Pass,
        left: &mut u64,
    ) -> Option<()> {
        take(left, node.per_name_byte.saturating_mul(name.len() as u64).saturating_add(1))?;
        if let Some(next) = node.unevaluated_properties {
            self.leftover(next, value, pass, left)?;
        }
        if pass == Pass::Mark {
            return Some(());
        }
        if let Some(next) = node.names {
            self.visit(next, &Value::String(name.into()), pass, left)?;
        }
        let named = node.properties.get(name).copied();
        let other = if named.is_none() { node.additional } else { None };
        for next in named.into_iter().chain(other).chain(node.patterned.iter().copied()) {
            self.visit(next, value, pass, left)?;
        }
        Some(())
    }

    fn item(
        &self,
        node: &Node,
        number: usize,
        item: &Value,
        pass: Pass,
        left: &mut u64,
    ) -> Option<()> {
        take(left, 1)?;
        if let Some(next) = node.unevaluated_items {
            self.leftover(next, item, pass, left)?;
        }
        if let Some(next) = node.contains {
            self.visit(next, item, Pass::Test, left)?;
        }
        match node.prefix.get(number).copied().or(node.items) {
            Some(next) if pass != Pass::Mark => self.visit(next, item, pass, left),
            _ => Some(()),
        }
    }

    fn leftover(&self, next: usize, value: &Value, pass: Pass, left: &mut u64) -> Option<()> {
        self.visit(next, value, Pass::Test, left)?;
        if pass == Pass::Tell { self.visit(next, value, pass, left) } else { Some(()) }
    }
}

impl Node {
    /// Takes the steps of one visit, without those of the subschemas.
    fn spend(&self, value: &Value, left: &mut u64) -> Option<()> {
        take(left, self.own)?;
        match value {
            Value::String(text) => take(left, self.per_byte.saturating_mul(text.len() as u64)),
            Value::Array(items) if self.distinct => take(left, distinct(items)),
            _ => Some(()),
        }
    }
}

/// Steps of comparing the items of an array: plain ones are hashed, and of arrays and objects
/// enough can be made that hash alike.
fn distinct(items: &[Value]) -> u64 {
    let plain = |item: &Value| match item {
        Value::Number(number) => {
            number.as_i64().is_some_and(|number| number.unsigned_abs() < 1 << 53)
        }
        Value::Array(_) | Value::Object(_) => false,
        _ => true,
    };
    let sizes = items.iter().map(size).sum::<u64>();
    let count = items.len() as u64;
    if items.iter().all(plain) {
        sizes.saturating_add(count * VISIT_STEPS)
    } else {
        sizes.saturating_mul(count)
    }
}

fn take(left: &mut u64, steps: u64) -> Option<()> {
    *left = left.checked_sub(steps)?;
    Some(())
}

#[cfg(test)]
mod tests;
