//! The table of routes: a tree of segments.
//!
//! At each segment a literal beats a prefixed parameter, the longer prefix beats the shorter, any
//! of them beats a plain parameter, and that beats a tail; where the better branch has no route of
//! the method, the next one is tried. A lookup visits each node at most once, so no path costs more
//! than the table is large.

use std::collections::BTreeMap;

use super::{Path, Segment, Template};

/// Routes of several owners, by method and template.
#[derive(Clone, Debug)]
pub struct Table<T> {
    root: Node<T>,
    routes: Vec<(String, String, Template)>,
}

#[derive(Clone, Debug)]
struct Node<T> {
    literals: BTreeMap<String, Node<T>>,
    /// Longest prefix first; a plain parameter has the empty prefix and so is last.
    parameters: Vec<(String, Node<T>)>,
    tail: BTreeMap<String, Route<T>>,
    here: BTreeMap<String, Route<T>>,
}

#[derive(Clone, Debug)]
struct Route<T> {
    owner: String,
    template: Template,
    value: T,
}

/// A route that fits a request.
#[derive(Debug, PartialEq, Eq)]
pub struct Found<'t, T> {
    /// The value that was put into the table.
    pub value: &'t T,
    /// The owner of the route.
    pub owner: &'t str,
    /// The template that fits.
    pub template: &'t Template,
    /// Its parameters by name, in the order of the path.
    pub parameters: Vec<(String, String)>,
}

/// Why no route fits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Missing {
    /// No template fits the path.
    Path,
    /// Templates fit the path, but have other methods: the value of `Allow`.
    Method {
        /// `GET, HEAD, POST`, sorted.
        allow: String,
    },
}

/// A route that cannot stand beside one in the table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{method} {template} overlaps {method} {other}, which {owner} serves")]
pub struct Overlap {
    /// The method of both.
    pub method: String,
    /// The template that was to be inserted.
    pub template: String,
    /// The template in the table.
    pub other: String,
    /// The owner of that one.
    pub owner: String,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self { root: Node::default(), routes: Vec::new() }
    }
}

impl<T> Default for Node<T> {
    fn default() -> Self {
        Self {
            literals: BTreeMap::new(),
            parameters: Vec::new(),
            tail: BTreeMap::new(),
            here: BTreeMap::new(),
        }
    }
}

impl<T> Table<T> {
    /// An empty table.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a route.
    ///
    /// # Errors
    /// [`Overlap`] where a path would fit a route of another owner too, even a less specific one:
    /// an owner must never take requests from another. Within one owner only templates that differ
    /// in nothing but names collide.
    pub fn insert(
        &mut self,
        owner: &str,
        method: &str,
        template: Template,
        value: T,
    ) -> Result<(), Overlap> {
        if let Some((other_owner, _, other)) =
            self.routes.iter().find(|(other_owner, other_method, other)| {
                other_method == method
                    && if other_owner == owner {
                        same_shape(other, &template)
                    } else {
                        other.overlaps(&template)
                    }
            })
        {
            return Err(Overlap {
                method: method.into(),
                template: template.to_string(),
                other: other.to_string(),
                owner: other_owner.clone(),
            });
        }
        self.routes.push((owner.into(), method.into(), template.clone()));
        let route = Route { owner: owner.into(), template: template.clone(), value };
        self.root.place(template.segments()).insert(method.into(), route);
        Ok(())
    }

    /// The value at exactly this method and template, whatever its parameters are called.
    pub fn get_mut(&mut self, method: &str, template: &Template) -> Option<&mut T> {
        self.root.place(template.segments()).get_mut(method).map(|route| &mut route.value)
    }

    /// Every route: owner, method, template, value; in no order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str, &Template, &T)> {
        let mut all = Vec::new();
        self.root.collect(&mut all);
        all.into_iter()
            .map(|(method, route)| (route.owner.as_str(), method, &route.template, &route.value))
    }

    /// The route of a request. `HEAD` falls back to `GET`.
    ///
    /// # Errors
    /// [`Missing`] says whether the path or only the method is unknown.
    pub fn find(&self, method: &str, path: &Path) -> Result<Found<'_, T>, Missing> {
        let segments = path.segments();
        let mut search = Search { method, allow: Vec::new() };
        let mut route = self.root.search(segments, &mut search);
        if route.is_none() && method == "HEAD" {
            search = Search { method: "GET", allow: Vec::new() };
            route = self.root.search(segments, &mut search);
        }
        match route {
            Some(route) => Ok(Found {
                value: &route.value,
                owner: &route.owner,
                template: &route.template,
                parameters: parameters(&route.template, segments),
            }),
            None if search.allow.is_empty() => Err(Missing::Path),
            None => Err(Missing::Method { allow: allow(search.allow) }),
        }
    }
}

struct Search<'m, 't> {
    method: &'m str,
    allow: Vec<&'t str>,
}

impl<T> Node<T> {
    fn place(&mut self, segments: &[Segment]) -> &mut BTreeMap<String, Route<T>> {
        match segments {
            [] => &mut self.here,
            [Segment::Tail(_), ..] => &mut self.tail,
            [Segment::Literal(text), rest @ ..] => {
                self.literals.entry(text.clone()).or_default().place(rest)
            }
            [Segment::Parameter { prefix, .. }, rest @ ..] => self.parameter(prefix).place(rest),
        }
    }

    fn parameter(&mut self, prefix: &str) -> &mut Node<T> {
        let at = match self.parameters.iter().position(|(other, _)| other == prefix) {
            Some(at) => at,
            None => {
                let at = self.parameters.partition_point(|(other, _)| other.len() >= prefix.len());
                self.parameters.insert(at, (prefix.into(), Node::default()));
                at
            }
        };
        &mut self.parameters[at].1
    }

    fn search<'t>(
        &'t self,
        segments: &[String],
        search: &mut Search<'_, 't>,
    ) -> Option<&'t Route<T>> {
        let Some((first, rest)) = segments.split_first() else {
            return pick(&self.here, search);
        };
        if let Some(node) = self.literals.get(first)
            && let Some(route) = node.search(rest, search)
        {
            return Some(route);
        }
        for (prefix, node) in &self.parameters {
            if first.len() > prefix.len()
                && first.starts_with(prefix.as_str())
                && let Some(route) = node.search(rest, search)
            {
                return Some(route);
            }
        }
        pick(&self.tail, search)
    }

    fn collect<'t>(&'t self, all: &mut Vec<(&'t str, &'t Route<T>)>) {
        all.extend(
            self.here.iter().chain(&self.tail).map(|(method, route)| (method.as_str(), route)),
        );
        let below = self.literals.values().chain(self.parameters.iter().map(|(_, node)| node));
        below.for_each(|node| node.collect(all));
    }
}

fn pick<'t, T>(
    methods: &'t BTreeMap<String, Route<T>>,
    search: &mut Search<'_, 't>,
) -> Option<&'t Route<T>> {
    let found = methods.get(search.method);
    if found.is_none() {
        search.allow.extend(methods.keys().map(String::as_str));
    }
    found
}

fn allow(mut methods: Vec<&str>) -> String {
    if methods.contains(&"GET") {
        methods.push("HEAD");
    }
    methods.sort_unstable();
    methods.dedup();
    methods.join(", ")
}

fn parameters(template: &Template, path: &[String]) -> Vec<(String, String)> {
    let mut named = Vec::new();
    for (at, segment) in template.segments().iter().enumerate() {
        match segment {
            Segment::Literal(_) => {}
            Segment::Parameter { prefix, name } => {
                named.push((name.clone(), path[at][prefix.len()..].to_owned()))
            }
            Segment::Tail(name) => named.push((name.clone(), path[at..].join("/"))),
        }
    }
    named
}

fn same_shape(a: &Template, b: &Template) -> bool {
    let shape = |segment: &Segment| match segment {
        Segment::Literal(text) => (0, text.clone()),
        Segment::Parameter { prefix, .. } => (1, prefix.clone()),
        Segment::Tail(_) => (2, String::new()),
    };
    a.segments().iter().map(shape).eq(b.segments().iter().map(shape))
}

#[cfg(test)]
mod tests;
