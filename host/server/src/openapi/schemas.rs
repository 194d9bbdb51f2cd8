//! The schemas of the description: those of the declarations, with their local definitions moved to
//! where OpenAPI keeps them.

use charter_kernel::manifest::Catalogue;
use charter_kernel::refusal::Code;
use serde_json::{Map, Value, json};

/// Collected definitions.
pub(super) struct Schemas {
    components: Map<String, Value>,
}

impl Default for Schemas {
    fn default() -> Self {
        let mut components = Map::new();
        components.insert("Error".into(), error());
        components.insert("Problem".into(), problem());
        Self { components }
    }
}

impl Schemas {
    /// A declared schema, its `$defs` hoisted under `name`.
    pub(super) fn place(&mut self, name: &str, schema: &Value) -> Value {
        let mut schema = schema.clone();
        let Some(members) = schema.as_object_mut() else { return schema };
        members.remove("$schema");
        let definitions: Vec<(String, Value)> = ["$defs", "definitions"]
            .into_iter()
            .filter_map(|word| members.remove(word))
            .filter_map(|found| if let Value::Object(found) = found { Some(found) } else { None })
            .flatten()
            .collect();
        let prefix = component_name(name);
        for (own, mut definition) in definitions {
            redirect(&mut definition, &prefix);
            self.components.insert(format!("{prefix}.{}", component_name(&own)), definition);
        }
        redirect(&mut schema, &prefix);
        schema
    }

    pub(super) fn into_components(self) -> Map<String, Value> {
        self.components
    }
}

/// Points local references at the hoisted definitions.
fn redirect(schema: &mut Value, prefix: &str) {
    match schema {
        Value::Object(members) => {
            if let Some(Value::String(reference)) = members.get_mut("$ref") {
                let own = reference
                    .strip_prefix("#/$defs/")
                    .or_else(|| reference.strip_prefix("#/definitions/"));
                if let Some(own) = own {
                    *reference = format!("#/components/schemas/{prefix}.{}", component_name(own));
                }
            }
            members.values_mut().for_each(|member| redirect(member, prefix));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| redirect(item, prefix)),
        _ => {}
    }
}

/// OpenAPI allows letters, digits, dot, hyphen and underscore in a component's name.
fn component_name(name: &str) -> String {
    name.chars()
        .map(|c| if c.is_ascii_alphanumeric() || ".-_".contains(c) { c } else { '_' })
        .collect()
}

fn error() -> Value {
    json!({
        "type": "object",
        "required": ["error"],
        "properties": {"error": {
            "type": "object",
            "required": ["type", "code", "message", "request_id", "param"],
            "properties": members(),
        }},
    })
}

fn problem() -> Value {
    let mut properties = members();
    if let Some(properties) = properties.as_object_mut() {
        properties.insert("title".into(), json!({"type": "string"}));
        properties.insert("status".into(), json!({"type": "integer"}));
        properties.insert("detail".into(), json!({"type": "string"}));
        properties.insert("instance".into(), json!({"type": "string"}));
        properties.insert(
            "kind".into(),
            json!({"type": "string", "description": "What stands in error.type elsewhere."}),
        );
    }
    json!({"type": "object", "description": "RFC 9457, where Accept asks for application/problem+json.", "properties": properties})
}

fn members() -> Value {
    let mut codes: Vec<&str> = Code::ALL
        .iter()
        .flat_map(|code| [code.name(Catalogue::Primary), code.name(Catalogue::Typed)])
        .collect();
    codes.sort_unstable();
    codes.dedup();
    json!({
        "type": {"type": "string"},
        "code": {"type": "string", "description": "Branch on this. A primitive may declare further codes.", "examples": codes},
        "message": {"type": "string"},
        "request_id": {"type": "string"},
        "param": {"type": ["string", "null"]},
        "hint": {"type": "string"},
        "reason": {"type": "string"},
        "details": {"type": "object"},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_definitions_become_components() {
        let mut schemas = Schemas::default();
        let declared = json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "properties": {"a": {"$ref": "#/$defs/One"}},
            "$defs": {"One": {"items": {"$ref": "#/$defs/Two"}}, "Two": {"type": "string"}},
        });
        let placed = schemas.place("things.create.body", &declared);
        assert_eq!(
            placed,
            json!({"type": "object", "properties": {"a": {"$ref": "#/components/schemas/things.create.body.One"}}})
        );
        let components = schemas.into_components();
        assert_eq!(
            components["things.create.body.One"]["items"]["$ref"],
            "#/components/schemas/things.create.body.Two"
        );
        assert_eq!(components["things.create.body.Two"], json!({"type": "string"}));
    }
}
