//! HTML to a tree at a bounded cost: it is fed to the parser in small pieces, and given up once the
//! parser makes more of them than a page is worth.
//!
//! A parser's work is in no proportion to its input. It opens unclosed formatting elements again in
//! every paragraph, and looks through all open elements for what a tag belongs to: a page of 100 KB
//! can keep it busy for minutes. No estimate by the text's tags holds, because what a tag does
//! depends on all before it. So the work is counted where it is done: at the tree that the parser
//! builds and asks.

use std::borrow::Cow;
use std::cell::{Cell, Ref, RefCell};

use dom_query::{Document, NodeId};
use html5ever::interface::{ElementFlags, NodeOrText, QuirksMode, TreeSink};
use html5ever::tendril::{StrTendril, TendrilSink as _};
use html5ever::tree_builder::TreeBuilderOpts;
use html5ever::{Attribute, ParseOpts, QualName, local_name, ns, parse_document};

use super::attributes::Attributes;

/// Nodes of a page: what fits into a call's memory.
const NODES_MAX: usize = 200_000;
/// Attributes of a page, those included that the parser copies.
const ATTRIBUTES_MAX: usize = 400_000;
/// Attributes of one tag.
const TAG_ATTRIBUTES_MAX: u32 = 1_024;
/// How deep elements stand within each other; browsers nest no deeper either.
pub(super) const DEPTH_MAX: u32 = 512;
/// Steps of the parser's work; an ordinary page of 2 MiB takes two millions.
const WORK_MAX: u64 = 20_000_000;
/// Steps that it takes to compare a formatting element, or one of its attributes, with one that is
/// open.
const COMPARED: u64 = 64;
/// Bytes that are fed at once.
const PIECE_BYTES: usize = 4_096;

/// The page's tree; none if it has more elements than can be read.
pub(super) fn parse(html: &str) -> Option<Document> {
    let tree_builder = TreeBuilderOpts { scripting_enabled: false, ..TreeBuilderOpts::default() };
    let mut parser =
        parse_document(Sink::default(), ParseOpts { tree_builder, ..ParseOpts::default() });
    let mut attributes = Attributes::default();
    for piece in html.split_inclusive('>').flat_map(pieces) {
        let sink = &parser.tokenizer.sink.sink;
        if attributes.read(piece, sink.in_code.get().is_some()) > TAG_ATTRIBUTES_MAX {
            return None;
        }
        parser.process(StrTendril::from_slice(piece));
        if parser.tokenizer.sink.sink.is_exhausted() {
            return None;
        }
    }
    parser.finish()
}

/// A text in pieces of bounded size.
fn pieces(mut text: &str) -> impl Iterator<Item = &str> {
    std::iter::from_fn(move || {
        let (piece, rest) = text.split_at(text.floor_char_boundary(PIECE_BYTES));
        text = rest;
        (!piece.is_empty()).then_some(piece)
    })
}

/// A node of the tree, and its place in [`Sink::placed`].
#[derive(Clone, Copy)]
struct Handle {
    id: NodeId,
    place: usize,
}

/// The place at which a node was put. One whose ancestors are moved afterwards keeps its place:
/// this bounds the parser's work and not the tree, which [`super::shape`] measures.
#[derive(Clone, Copy, Default)]
struct Place {
    /// Elements around it, itself included.
    depth: u32,
    /// Formatting elements among them.
    formats: u32,
}

/// The tree as the parser builds it, with its cost.
struct Sink {
    document: Document,
    placed: RefCell<Vec<Place>>,
    deepest: Cell<u32>,
    attributes: Cell<usize>,
    work: Cell<u64>,
    /// The cost of the element just made, for each formatting element that is open; none if it is
    /// no such element.
    comparing: Cell<Option<u64>>,
    /// The script or style that is open: in it the text has no tags.
    in_code: Cell<Option<NodeId>>,
}

impl Default for Sink {
    fn default() -> Self {
        Self {
            document: Document::default(),
            placed: RefCell::new(vec![Place::default()]),
            deepest: Cell::default(),
            attributes: Cell::default(),
            work: Cell::default(),
            comparing: Cell::default(),
            in_code: Cell::default(),
        }
    }
}

impl Sink {
    fn is_exhausted(&self) -> bool {
        self.work.get() > WORK_MAX
            || self.deepest.get() > DEPTH_MAX
            || self.attributes.get() > ATTRIBUTES_MAX
            || self.document.tree.len() > NODES_MAX
    }

    fn works(&self, steps: u64) {
        self.work.set(self.work.get().saturating_add(steps));
    }

    fn note_node(&self, id: NodeId) -> Handle {
        self.works(1);
        let mut placed = self.placed.borrow_mut();
        placed.push(Place::default());
        Handle { id, place: placed.len() - 1 }
    }

    /// Takes note that a node is put into another, and hands it on to the tree.
    fn put(&self, child: NodeOrText<Handle>, parent: Place) -> NodeOrText<NodeId> {
        self.works(1);
        match child {
            NodeOrText::AppendText(text) => NodeOrText::AppendText(text),
            NodeOrText::AppendNode(child) => {
                let comparing = self.comparing.take();
                self.works(comparing.unwrap_or(0) * u64::from(parent.formats));
                let (depth, formats) =
                    (parent.depth + 1, parent.formats + u32::from(comparing.is_some()));
                self.deepest.set(self.deepest.get().max(depth));
                self.placed.borrow_mut()[child.place] = Place { depth, formats };
                NodeOrText::AppendNode(child.id)
            }
        }
    }

    fn place(&self, node: &Handle) -> Place {
        self.placed.borrow()[node.place]
    }
}

/// Elements that a parser compares with those that are open, and opens again.
fn is_formatting(name: &QualName) -> bool {
    let among = matches!(
        name.local,
        local_name!("a")
            | local_name!("b")
            | local_name!("big")
            | local_name!("code")
            | local_name!("em")
            | local_name!("font")
            | local_name!("i")
            | local_name!("nobr")
            | local_name!("s")
            | local_name!("small")
            | local_name!("strike")
            | local_name!("strong")
            | local_name!("tt")
            | local_name!("u")
    );
    among && name.ns == ns!(html)
}

impl TreeSink for Sink {
    type Handle = Handle;
    type Output = Option<Document>;
    type ElemName<'a> = Ref<'a, QualName>;

    fn finish(self) -> Option<Document> {
        (!self.is_exhausted()).then_some(self.document)
    }
    /// Every page has errors, and nobody reads them.
    fn parse_error(&self, _: Cow<'static, str>) {}
    fn get_document(&self) -> Handle {
        Handle { id: self.document.get_document(), place: 0 }
    }
    fn elem_name<'a>(&'a self, target: &'a Handle) -> Ref<'a, QualName> {
        self.works(1);
        self.document.elem_name(&target.id)
    }
    fn same_node(&self, x: &Handle, y: &Handle) -> bool {
        self.works(1);
        x.id == y.id
    }
    fn create_element(
        &self,
        name: QualName,
        attributes: Vec<Attribute>,
        flags: ElementFlags,
    ) -> Handle {
        let count = attributes.len() as u64;
        self.attributes.set(self.attributes.get() + attributes.len());
        // Each attribute was compared with those before it.
        self.works(count * count / 2);
        self.comparing.set(is_formatting(&name).then_some(COMPARED * (1 + count)));
        let is_code = matches!(name.local, local_name!("script") | local_name!("style"))
            && name.ns == ns!(html);
        let id = self.document.create_element(name, attributes, flags);
        self.in_code.set(is_code.then_some(id));
        self.note_node(id)
    }
    fn pop(&self, node: &Handle) {
        if self.in_code.get() == Some(node.id) {
            self.in_code.set(None);
        }
    }
    fn create_comment(&self, text: StrTendril) -> Handle {
        self.note_node(self.document.create_comment(text))
    }
    fn create_pi(&self, target: StrTendril, data: StrTendril) -> Handle {
        self.note_node(self.document.create_pi(target, data))
    }
    fn append(&self, parent: &Handle, child: NodeOrText<Handle>) {
        let child = self.put(child, self.place(parent));
        self.document.append(&parent.id, child);
    }
    fn append_before_sibling(&self, sibling: &Handle, child: NodeOrText<Handle>) {
        let Place { depth, formats } = self.place(sibling);
        let child = self.put(child, Place { depth: depth.saturating_sub(1), formats });
        self.document.append_before_sibling(&sibling.id, child);
    }
    fn append_based_on_parent_node(
        &self,
        element: &Handle,
        previous: &Handle,
        child: NodeOrText<Handle>,
    ) {
        if self.document.tree.parent_of(&element.id).is_some() {
            self.append_before_sibling(element, child);
        } else {
            self.append(previous, child);
        }
    }
    fn append_doctype_to_document(
        &self,
        name: StrTendril,
        public_id: StrTendril,
        system_id: StrTendril,
    ) {
        self.document.append_doctype_to_document(name, public_id, system_id);
    }
    fn get_template_contents(&self, target: &Handle) -> Handle {
        Handle { id: self.document.get_template_contents(&target.id), place: target.place }
    }
    fn set_quirks_mode(&self, mode: QuirksMode) {
        self.document.set_quirks_mode(mode);
    }
    /// A second `<html>` or `<body>`: of their attributes none is read, and each would be compared
    /// with all before it.
    fn add_attrs_if_missing(&self, _: &Handle, _: Vec<Attribute>) {}
    fn remove_from_parent(&self, target: &Handle) {
        self.works(1);
        self.document.remove_from_parent(&target.id);
    }
    fn reparent_children(&self, node: &Handle, parent: &Handle) {
        self.works(self.document.tree.child_ids_of_it(&node.id, false).count() as u64);
        self.document.reparent_children(&node.id, &parent.id);
    }
    fn is_mathml_annotation_xml_integration_point(&self, handle: &Handle) -> bool {
        self.document.is_mathml_annotation_xml_integration_point(&handle.id)
    }
}
