//! Violations in words: where, and what would be right. Never shows the value that was sent: it may
//! be a secret.

use jsonschema::ValidationError;
use jsonschema::error::{TypeKind, ValidationErrorKind as Kind};
use serde_json::Value;

use crate::fault::{Fault, join};

/// Adds the faults of one violation.
pub(super) fn describe(error: &ValidationError<'_>, schema: &Value, faults: &mut Vec<Fault>) {
    let path = to_dots(error.instance_path().as_str());
    match error.kind() {
        Kind::Required { property } => {
            let name = property.as_str().unwrap_or_default();
            faults.push(Fault::new(join(&path, name), "is required"));
        }
        Kind::AdditionalProperties { unexpected } | Kind::UnevaluatedProperties { unexpected } => {
            let known = names_known(schema, error.schema_path().as_str());
            for name in unexpected {
                let name: String = name.chars().take(64).collect();
                faults.push(Fault::new(join(&path, &name), format!("is not a known field{known}")));
            }
        }
        Kind::AnyOf { context } | Kind::OneOfNotValid { context } => {
            match likely_branch(context, error.instance_path().as_str()) {
                Some(branch) => branch.iter().for_each(|error| describe(error, schema, faults)),
                None => faults.push(Fault::new(path, one_of(context))),
            }
        }
        kind => faults.push(Fault::new(path, sentence(kind, error, schema))),
    }
}

/// The keyword beside a pattern that says it in words, which go on from the field's name: `must be
/// an e-mail address`.
const WORDS: &str = "x-words";

fn sentence(kind: &Kind, error: &ValidationError<'_>, schema: &Value) -> String {
    match kind {
        Kind::Type { kind } => format!("must be {}", types(kind)),
        Kind::Enum { options } => format!("must be one of {}", list(options)),
        Kind::Constant { expected_value } => format!("must be {expected_value}"),
        Kind::Minimum { limit } => keyword_beside(schema, error, "maximum")
            .map_or(format!("must be at least {limit}"), |most| format!("must be {limit}..{most}")),
        Kind::Maximum { limit } => keyword_beside(schema, error, "minimum")
            .map_or(format!("must be at most {limit}"), |least| {
                format!("must be {least}..{limit}")
            }),
        Kind::ExclusiveMinimum { limit } => format!("must be more than {limit}"),
        Kind::ExclusiveMaximum { limit } => format!("must be less than {limit}"),
        Kind::MultipleOf { multiple_of } => format!("must be a multiple of {multiple_of}"),
        Kind::MinLength { limit: 1 } => "must not be empty".into(),
        Kind::MinLength { limit } => format!("must have at least {limit} characters"),
        Kind::MaxLength { limit } => format!("must have at most {limit} characters"),
        Kind::MinItems { limit: 1 } => "must not be empty".into(),
        Kind::MinItems { limit } => format!("must have at least {limit} items"),
        Kind::MaxItems { limit } => format!("must have at most {limit} items"),
        Kind::AdditionalItems { limit } => format!("must have at most {limit} items"),
        Kind::MinProperties { limit } => format!("must have at least {limit} members"),
        Kind::MaxProperties { limit } => format!("must have at most {limit} members"),
        Kind::UniqueItems => "must not hold an item twice".into(),
        Kind::Contains => "must contain an item that its schema asks for".into(),
        Kind::Pattern { pattern } => match keyword_beside(schema, error, WORDS) {
            Some(Value::String(words)) => words,
            _ => format!("must match the pattern {pattern}"),
        },
        Kind::Format { format } => format!("must be {}", format_words(format)),
        Kind::FalseSchema => "must be left out".into(),
        Kind::Not { .. } => "is of a form that is ruled out".into(),
        Kind::OneOfMultipleValid { .. } => {
            "fits several of the allowed forms; it must fit one".into()
        }
        Kind::PropertyNames { error } => {
            format!("has a member name that {}", sentence(error.kind(), error, schema))
        }
        _ => "is not valid".into(),
    }
}

/// The branch that the value was meant to fit: the only one that takes its type, or else the one
/// with a matching constant.
fn likely_branch<'c, 'e>(
    context: &'c [Vec<ValidationError<'e>>],
    at: &str,
) -> Option<&'c [ValidationError<'e>]> {
    let here = |error: &ValidationError<'_>| error.instance_path().as_str() == at;
    let of_type = |branch: &&Vec<ValidationError<'_>>| {
        !branch.iter().any(|error| here(error) && matches!(error.kind(), Kind::Type { .. }))
    };
    let of_kind = |branch: &&Vec<ValidationError<'_>>| {
        !branch.iter().any(|error| {
            matches!(error.kind(), Kind::Constant { .. })
                || (here(error) && matches!(error.kind(), Kind::Enum { .. }))
        })
    };
    let mut typed = context.iter().filter(of_type);
    let mut tagged = context.iter().filter(of_type).filter(of_kind);
    match (typed.next(), typed.next(), tagged.next(), tagged.next()) {
        (Some(only), None, ..) | (_, _, Some(only), None) => Some(only),
        _ => None,
    }
}

/// The forms of all branches, for a value that fits none.
fn one_of(context: &[Vec<ValidationError<'_>>]) -> String {
    let mut forms: Vec<String> = Vec::new();
    for error in context.iter().flatten() {
        let form = match error.kind() {
            Kind::Type { kind } => types(kind),
            Kind::Constant { expected_value } => expected_value.to_string(),
            Kind::Enum { options } => list(options),
            _ => continue,
        };
        if !forms.contains(&form) && forms.len() < 20 {
            forms.push(form);
        }
    }
    if forms.is_empty() {
        "fits none of the allowed forms".into()
    } else {
        format!("must be {}", forms.join(" or "))
    }
}

fn types(kind: &TypeKind) -> String {
    match kind {
        TypeKind::Single(single) => article(&single.to_string()),
        TypeKind::Multiple(several) => {
            several.iter().map(|one| article(&one.to_string())).collect::<Vec<_>>().join(" or ")
        }
    }
}

fn article(name: &str) -> String {
    match name {
        "null" => "null".into(),
        "array" | "integer" | "object" => format!("an {name}"),
        other => format!("a {other}"),
    }
}

fn format_words(format: &str) -> String {
    match format {
        "uuid" => "a UUID".into(),
        "date-time" => "an RFC 3339 timestamp such as 2026-11-20T23:15:00Z".into(),
        "date" => "a date such as 2026-11-20".into(),
        "email" => "an e-mail address".into(),
        "uri" => "an absolute URL".into(),
        other => format!("of the format {other}"),
    }
}

fn list(options: &Value) -> String {
    let options = options.as_array().map(Vec::as_slice).unwrap_or_default();
    let shown: Vec<String> = options
        .iter()
        .take(20)
        .map(|option| option.as_str().map_or(option.to_string(), Into::into))
        .collect();
    let more = if options.len() > shown.len() { ", …" } else { "" };
    format!("{}{more}", shown.join(", "))
}

/// The keyword beside the violated one.
fn keyword_beside(schema: &Value, error: &ValidationError<'_>, keyword: &str) -> Option<Value> {
    parent(schema, error.schema_path().as_str())?.get(keyword).cloned()
}

fn names_known(schema: &Value, location: &str) -> String {
    let names: Vec<&str> = parent(schema, location)
        .and_then(|parent| parent.get("properties")?.as_object())
        .map(|properties| properties.keys().map(String::as_str).take(20).collect())
        .unwrap_or_default();
    if names.is_empty() { String::new() } else { format!("; known are {}", names.join(", ")) }
}

fn parent<'s>(schema: &'s Value, location: &str) -> Option<&'s Value> {
    schema.pointer(location.rsplit_once('/')?.0)
}

/// A JSON pointer (RFC 6901) as a dotted path.
pub(super) fn to_dots(pointer: &str) -> String {
    pointer
        .split('/')
        .skip(1)
        .map(|name| name.replace("~1", "/").replace("~0", "~"))
        .collect::<Vec<_>>()
        .join(".")
}
