//! The shape of a parsed tree: what decides how far it can be read before anything recurses over
//! it.
//!
//! Measured in one pass that neither recurses nor allocates by the tree's depth.

use dom_query::{Document, NodeData, NodeId};

/// Bytes of text that an element counts as.
const NODE_BYTES: u64 = 16;

/// The work that a tree asks of a reader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Shape {
    /// Elements of all kinds.
    pub(super) elements: usize,
    /// How deep they stand within each other.
    pub(super) depth: u32,
    /// How deep those stand within each other that the markdown is written for by recursion.
    pub(super) nested: u32,
    /// Bytes of text, each as often as there are elements around it: what is copied where each
    /// element is written apart.
    pub(super) copied: u64,
    /// Lines, each as often as there are lists and quotes around it: what is written to indent
    /// them.
    pub(super) indented: u64,
}

/// The surroundings of a place of the tree.
#[derive(Clone, Copy, Default)]
struct Around {
    depth: u32,
    nested: u32,
    indents: u32,
}

impl Around {
    /// The surroundings of a node's children.
    fn within(self, data: &NodeData, by: i32) -> Self {
        let NodeData::Element(element) = data else { return self };
        let indents = matches!(&*element.name.local, "ul" | "ol" | "blockquote");
        let nests =
            indents || matches!(&*element.name.local, "a" | "b" | "em" | "i" | "strong" | "table");
        let add = |count: u32, is: bool| if is { count.saturating_add_signed(by) } else { count };
        Self {
            depth: add(self.depth, true),
            nested: add(self.nested, nests),
            indents: add(self.indents, indents),
        }
    }
}

impl Shape {
    pub(super) fn of(document: &Document) -> Self {
        let mut shape = Self::default();
        let mut around = Around::default();
        let mut at = Some(document.root().id);
        while let Some(id) = at {
            let child = document.tree.query_node(&id, |node| {
                around = around.within(&node.data, 1);
                shape.count(&node.data, around);
                node.first_child
            });
            at = child.flatten().or_else(|| next(document, id, &mut around));
        }
        shape
    }

    /// Whether nothing of it is more than in the other.
    pub(super) fn fits(&self, most: &Self) -> bool {
        self.elements <= most.elements
            && self.depth <= most.depth
            && self.nested <= most.nested
            && self.copied <= most.copied
            && self.indented <= most.indented
    }

    fn count(&mut self, data: &NodeData, around: Around) {
        let (bytes, lines) = match data {
            NodeData::Element(_) => (NODE_BYTES, 1),
            NodeData::Text { contents } => (
                contents.len() as u64,
                contents.bytes().filter(|byte| *byte == b'\n').count() as u64,
            ),
            _ => (0, 0),
        };
        self.elements += usize::from(matches!(data, NodeData::Element(_)));
        (self.depth, self.nested) = (self.depth.max(around.depth), self.nested.max(around.nested));
        self.copied += bytes * u64::from(around.depth);
        self.indented += lines * u64::from(around.indents);
    }
}

/// The node after one whose children are done, in the order of the text.
fn next(document: &Document, mut id: NodeId, around: &mut Around) -> Option<NodeId> {
    loop {
        let (sibling, parent) = document.tree.query_node(&id, |node| {
            *around = around.within(&node.data, -1);
            (node.next_sibling, node.parent)
        })?;
        if sibling.is_some() {
            return sibling;
        }
        id = parent?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(body: &str) -> Shape {
        let document =
            Document::from(format!("<!doctype html><html><head></head><body>{body}</body></html>"));
        Shape::of(&document)
    }

    #[test]
    fn a_tree_is_measured_as_it_was_parsed() {
        let none = shape("");
        assert_eq!((none.elements, none.depth, none.nested, none.indented), (3, 2, 0, 0));
        let flat = shape("<p>a<p>b<p>c");
        assert_eq!((flat.elements, flat.depth), (6, 3));
        // Tags that the text leaves open stay open.
        assert_eq!(shape(&"<div/>".repeat(50)).depth, 52);
        assert_eq!(shape(&"<div></x>".repeat(50)).depth, 52);
        let quotes = shape(&format!("{}<pre>1\n2\n3</pre>", "<blockquote>".repeat(10)));
        assert_eq!((quotes.nested, quotes.indented), (10, (1..=10).sum::<u64>() + 10 + 20));
        assert_eq!(shape("<div>12345678</div>").copied - none.copied, 3 * 16 + 3 * 8);
    }

    #[test]
    fn depth_does_not_exhaust_the_stack() {
        let document = Document::from("<body>");
        let mut innermost = document.body().unwrap();
        for _ in 0..100_000 {
            let inner = document.tree.new_element("b");
            innermost.append_child(&inner);
            innermost = inner;
        }
        assert_eq!(Shape::of(&document).depth, 100_002);
    }
}
