//! The types of two worlds, compared part by part, so that a component that does not fit is told
//! which part differs and how.
//!
//! Works on wasmparser's view of a binary, before anything is compiled. Resources are the same when
//! their names are.

use std::borrow::Cow;
use std::collections::HashMap;

use wasmparser::component_types::{
    ComponentAnyTypeId, ComponentDefinedType, ComponentEntityType, ComponentFuncTypeId,
    ComponentInstanceType, ComponentInstanceTypeId, ComponentItem, ComponentValType, RecordType,
    ResourceId,
};
use wasmparser::types::TypesRef;

/// One side of a comparison: its types, and what its resources are called.
pub(crate) struct Side<'a> {
    types: TypesRef<'a>,
    resources: HashMap<ResourceId, String>,
}

impl<'a> Side<'a> {
    /// The types of one binary; `named` yields each interface's items, whose resources are known by
    /// their names.
    pub(crate) fn new<'b>(
        types: TypesRef<'a>,
        interfaces: impl Iterator<Item = &'b ComponentItem>,
    ) -> Self {
        let mut resources = HashMap::new();
        for item in interfaces {
            let ComponentEntityType::Instance(id) = item.ty else { continue };
            for (name, export) in &types[id].exports {
                if let ComponentEntityType::Type { referenced, created } = export.ty {
                    for id in [referenced, created] {
                        if let ComponentAnyTypeId::Resource(resource) = id {
                            resources.entry(resource.resource()).or_insert_with(|| name.clone());
                        }
                    }
                }
            }
        }
        Self { types, resources }
    }

    /// The items of an interface.
    pub(crate) fn exports(&self, id: ComponentInstanceTypeId) -> &ComponentInstanceType {
        &self.types[id]
    }

    fn resource(&self, id: ResourceId) -> &str {
        self.resources.get(&id).map_or("a resource", String::as_str)
    }

    /// A type as one would write it in WIT, nested ones by their kind.
    fn name(&self, ty: ComponentValType) -> String {
        let id = match ty {
            ComponentValType::Primitive(primitive) => return primitive.to_string(),
            ComponentValType::Type(id) => id,
        };
        let optional =
            |ty: &Option<ComponentValType>| ty.map_or_else(|| "_".into(), |ty| self.name(ty));
        match &self.types[id] {
            ComponentDefinedType::Primitive(primitive) => primitive.to_string(),
            ComponentDefinedType::Record(record) => {
                let fields: Vec<&str> = record.fields.keys().map(|name| name.as_str()).collect();
                format!("record {{{}}}", fields.join(", "))
            }
            ComponentDefinedType::Variant(variant) => {
                let cases: Vec<&str> = variant.cases.keys().map(|name| name.as_str()).collect();
                format!("variant {{{}}}", cases.join(", "))
            }
            ComponentDefinedType::Enum(names) => {
                format!(
                    "enum {{{}}}",
                    names.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(", ")
                )
            }
            ComponentDefinedType::Flags(names) => {
                format!(
                    "flags {{{}}}",
                    names.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(", ")
                )
            }
            ComponentDefinedType::List { element, .. } => format!("list<{}>", self.name(*element)),
            ComponentDefinedType::FixedLengthList { element, length, .. } => {
                format!("list<{}, {length}>", self.name(*element))
            }
            ComponentDefinedType::Map { key, value, .. } => {
                format!("map<{}, {}>", self.name(*key), self.name(*value))
            }
            ComponentDefinedType::Tuple(tuple) => {
                format!(
                    "tuple<{}>",
                    tuple.types.iter().map(|ty| self.name(*ty)).collect::<Vec<_>>().join(", ")
                )
            }
            ComponentDefinedType::Option { ty, .. } => format!("option<{}>", self.name(*ty)),
            ComponentDefinedType::Result { ok, err, .. } => {
                format!("result<{}, {}>", optional(ok), optional(err))
            }
            ComponentDefinedType::Own(id) => format!("own<{}>", self.resource(id.resource())),
            ComponentDefinedType::Borrow(id) => format!("borrow<{}>", self.resource(id.resource())),
            ComponentDefinedType::Future { ty, .. } => format!("future<{}>", optional(ty)),
            ComponentDefinedType::Stream { ty, .. } => format!("stream<{}>", optional(ty)),
        }
    }
}

/// A function type on both sides: each difference as `where: expected …, found …`.
pub(crate) fn functions(
    (expected, expected_id): (&Side<'_>, ComponentFuncTypeId),
    (found, found_id): (&Side<'_>, ComponentFuncTypeId),
) -> Vec<String> {
    let (a, b) = (&expected.types[expected_id], &found.types[found_id]);
    let mut differences = Vec::new();
    if a.async_ != b.async_ {
        differences.push(format!("it must {}be async", if a.async_ { "" } else { "not " }));
    }
    if a.params.len() != b.params.len() {
        differences.push(format!("it takes {} parameters, not {}", a.params.len(), b.params.len()));
    }
    for ((name, a), (other, b)) in a.params.iter().zip(b.params.iter()) {
        if name != other {
            differences.push(format!("parameter `{name}` is called `{other}`"));
        }
        value((expected, *a), (found, *b), &format!("parameter `{name}`"), &mut differences);
    }
    optional((expected, a.result), (found, b.result), "its result", &mut differences);
    differences
}

fn optional(
    (expected, a): (&Side<'_>, Option<ComponentValType>),
    (found, b): (&Side<'_>, Option<ComponentValType>),
    at: &str,
    differences: &mut Vec<String>,
) {
    match (a, b) {
        (None, None) => {}
        (Some(a), Some(b)) => value((expected, a), (found, b), at, differences),
        (Some(a), None) => {
            differences.push(format!("{at} must be {}, and there is none", expected.name(a)))
        }
        (None, Some(b)) => differences.push(format!("{at} must be nothing, not {}", found.name(b))),
    }
}

fn value(
    (expected, a): (&Side<'_>, ComponentValType),
    (found, b): (&Side<'_>, ComponentValType),
    at: &str,
    differences: &mut Vec<String>,
) {
    let pair = |a, b, at: &str, differences: &mut Vec<String>| {
        value((expected, a), (found, b), at, differences);
    };
    let differ = |differences: &mut Vec<String>| {
        differences.push(format!("{at} must be {}, not {}", expected.name(a), found.name(b)));
    };
    let (left, right) = (resolve(expected, a), resolve(found, b));
    use ComponentDefinedType as T;
    match (left.as_ref(), right.as_ref()) {
        (T::Primitive(a), T::Primitive(b)) if a == b => {}
        (T::Record(a), T::Record(b)) => record((expected, a), (found, b), at, differences),
        (T::Variant(a), T::Variant(b)) => {
            for (name, case) in &a.cases {
                match b.cases.get(name) {
                    Some(other) => {
                        optional(
                            (expected, case.ty),
                            (found, other.ty),
                            &format!("{at}, case `{name}`"),
                            differences,
                        );
                    }
                    None => differences.push(format!("{at} lacks the case `{name}`")),
                }
            }
            for name in b.cases.keys().filter(|name| !a.cases.contains_key(*name)) {
                differences
                    .push(format!("{at} has the case `{name}`, which the interface does not know"));
            }
        }
        (T::Enum(a), T::Enum(b)) | (T::Flags(a), T::Flags(b)) if a.iter().eq(b.iter()) => {}
        (T::List { element: a, .. }, T::List { element: b, .. }) => {
            pair(*a, *b, &format!("{at}, each item"), differences)
        }
        (T::Option { ty: a, .. }, T::Option { ty: b, .. }) => pair(*a, *b, at, differences),
        (T::Tuple(a), T::Tuple(b)) if a.types.len() == b.types.len() => {
            for (n, (a, b)) in a.types.iter().zip(b.types.iter()).enumerate() {
                pair(*a, *b, &format!("{at}, member {n}"), differences);
            }
        }
        (T::Result { ok: a, err: c, .. }, T::Result { ok: b, err: d, .. }) => {
            optional((expected, *a), (found, *b), &format!("{at}, where it succeeds"), differences);
            optional((expected, *c), (found, *d), &format!("{at}, where it fails"), differences);
        }
        (T::Own(a), T::Own(b)) | (T::Borrow(a), T::Borrow(b))
            if expected.resource(a.resource()) == found.resource(b.resource()) => {}
        _ => differ(differences),
    }
}

fn record(
    (expected, a): (&Side<'_>, &RecordType),
    (found, b): (&Side<'_>, &RecordType),
    at: &str,
    differences: &mut Vec<String>,
) {
    for (name, ty) in &a.fields {
        match b.fields.get(name) {
            Some(other) => {
                let at = format!("{at}, field `{name}`");
                value((expected, *ty), (found, *other), &at, differences);
            }
            None => {
                differences.push(format!("{at} lacks the field `{name}: {}`", expected.name(*ty)))
            }
        }
    }
    for name in b.fields.keys().filter(|name| !a.fields.contains_key(*name)) {
        differences.push(format!("{at} has the field `{name}`, which the interface does not know"));
    }
    if a.fields.len() == b.fields.len()
        && a.fields.keys().all(|name| b.fields.contains_key(name))
        && !a.fields.keys().eq(b.fields.keys())
    {
        differences.push(format!("{at} has its fields in another order"));
    }
}

/// The shape behind a type; a primitive stands for itself.
fn resolve<'s>(side: &'s Side<'_>, ty: ComponentValType) -> Cow<'s, ComponentDefinedType> {
    match ty {
        ComponentValType::Primitive(primitive) => {
            Cow::Owned(ComponentDefinedType::Primitive(primitive))
        }
        ComponentValType::Type(id) => Cow::Borrowed(&side.types[id]),
    }
}

#[cfg(test)]
mod tests;
