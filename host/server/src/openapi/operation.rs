//! One operation at one mount, as OpenAPI writes it.

use charter_kernel::authority::Class;
use charter_kernel::manifest::{self, Access, Catalogue, Manifest, Mount, Paging};
use charter_kernel::refusal::Code;
use charter_kernel::route::Template;
use charter_registry::served::{Auth, template_at};
use serde_json::{Map, Value, json};

use super::schemas::Schemas;
use crate::paging;
use crate::route::HostRoute;

/// The description of an operation, whoever serves it.
pub(super) struct Described {
    id: String,
    mount: Mount,
    path: String,
    mutates: bool,
    tag: String,
    summary: String,
    description: String,
    auth: Auth,
    catalogue: Catalogue,
    paging: Paging,
    path_schema: Option<Value>,
    query: Option<Value>,
    body: Option<Value>,
    consumes: Option<String>,
    produces: Option<String>,
    status: u16,
    answer: Option<Value>,
    answers: Vec<(String, Value)>,
    deprecated: bool,
    /// The regulated action that it takes.
    action: Option<String>,
    /// Its class and the access it asks for beyond that, as the table of authority has them.
    authority: (Class, Access),
    streams: bool,
    refuses: Vec<Code>,
}

impl Described {
    pub(super) fn host(route: &HostRoute, mount: Mount) -> Self {
        Self {
            id: route.id.into(),
            mount,
            path: route.path.into(),
            mutates: route.method != "GET",
            tag: "host".into(),
            summary: route.summary.into(),
            description: String::new(),
            auth: route.auth.into(),
            catalogue: route.catalogue,
            paging: route.paging,
            path_schema: None,
            query: route.shapes.query.map(|schema| schema()),
            body: route.shapes.body.map(|schema| schema()),
            consumes: route.consumes.map(|(media, _)| media.into()),
            produces: route.produces.map(Into::into),
            status: route.shapes.status,
            answer: route.shapes.answer.map(|schema| schema()),
            answers: Vec::new(),
            deprecated: false,
            action: None,
            authority: (route.class, route.access),
            streams: false,
            refuses: route.refuses.to_vec(),
        }
    }

    pub(super) fn guest(manifest: &Manifest, declared: &manifest::Operation, mount: Mount) -> Self {
        let outside =
            manifest.capabilities.iter().any(|asked| asked == "http" || asked == "public-web");
        let mut refuses = vec![Code::BillingBlocked];
        refuses.extend(declared.llm_routing.then_some(Code::LlmRoutingRequiresPayment));
        refuses.extend(outside.then_some(Code::ProviderError));
        Self {
            id: declared.id.clone(),
            mount,
            path: declared.path.clone(),
            mutates: declared.mutates(),
            tag: manifest.name.clone(),
            summary: declared.summary.clone(),
            description: declared.description.clone(),
            auth: charter_registry::served::auth(&declared.auth),
            catalogue: declared.catalogue,
            paging: declared.paging,
            path_schema: declared.path_schema.clone(),
            query: declared.query.clone(),
            body: declared.body.clone(),
            consumes: declared.consumes.clone(),
            produces: declared.produces.clone(),
            status: declared.status,
            answer: declared.answer.clone(),
            answers: declared.answers.clone().into_iter().collect(),
            deprecated: manifest.deprecation.is_some() && declared.deprecated.unwrap_or(true),
            action: declared.action.clone(),
            authority: (Class::of(manifest, declared), declared.access),
            streams: declared.streams,
            refuses,
        }
    }

    /// The Operation Object.
    pub(super) fn write(&self, schemas: &mut Schemas) -> Value {
        let suffix = if self.mount == Mount::User { ".user" } else { "" };
        let mut operation = json!({
            "operationId": format!("{}{suffix}", self.id),
            "tags": [self.tag],
            "summary": self.summary,
            "parameters": self.parameters(schemas),
            "responses": self.responses(schemas),
            "security": self.security(),
        });
        let Some(members) = operation.as_object_mut() else { return operation };
        if !self.description.is_empty() {
            members.insert("description".into(), self.description.clone().into());
        }
        if self.deprecated {
            members.insert("deprecated".into(), true.into());
        }
        if let Some(action) = &self.action {
            members.insert("x-regulated-action".into(), action.clone().into());
        }
        members.insert("x-authority".into(), self.authority.0.as_str().into());
        if self.authority.1 == Access::Admin {
            members.insert("x-role".into(), "admin".into());
        }
        if let Some(body) = self.request_body(schemas) {
            members.insert("requestBody".into(), body);
        }
        operation
    }

    fn parameters(&self, schemas: &mut Schemas) -> Vec<Value> {
        let mut parameters = Vec::new();
        let full = template_at(self.mount, &self.path);
        let names: Vec<String> = Template::parse(&full)
            .map(|template| template.parameters().map(Into::into).collect())
            .unwrap_or_default();
        let schema = self
            .path_schema
            .as_ref()
            .map(|schema| schemas.place(&format!("{}.path", self.id), schema));
        for name in names {
            let declared =
                schema.as_ref().and_then(|schema| schema.get("properties")?.get(&name).cloned());
            let schema = declared.unwrap_or_else(|| json!({"type": "string"}));
            let mut parameter =
                json!({"name": name, "in": "path", "required": true, "schema": schema});
            if name == "user_id" && self.mount == Mount::User {
                parameter["description"] =
                    "A tenant user's id, or default or me for the account's own profile.".into();
            }
            parameters.push(parameter);
        }
        parameters.extend(self.query_parameters(schemas));
        if matches!(self.auth, Auth::Key | Auth::Session) {
            parameters.push(header(
                "X-Service-Project-Id",
                "The project; the key's, else the organization's default if absent.",
            ));
            if self.mount == Mount::Company {
                parameters.push(header(
                    "X-Service-User-Id",
                    "The tenant user; the account's default profile if absent.",
                ));
            }
        }
        if self.mutates
            && self
                .security()
                .as_array()
                .is_some_and(|all| all.iter().any(|one| one.get("session").is_some()))
        {
            parameters.push(header(
                "X-Service-CSRF",
                "The session's token, where the change is made by cookie.",
            ));
        }
        if self.mutates && self.auth != Auth::Open {
            let mut key =
                header("Idempotency-Key", "Makes a retry of this request safe for 24 hours.");
            key["schema"] = json!({"type": "string", "minLength": 1, "maxLength": 255});
            parameters.push(key);
        }
        parameters
    }

    fn query_parameters(&self, schemas: &mut Schemas) -> Vec<Value> {
        let words = paging::words(self.paging);
        let mut parameters = Vec::new();
        if let Some(query) = &self.query {
            let placed = schemas.place(&format!("{}.query", self.id), query);
            let required: Vec<&str> = placed
                .get("required")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .collect();
            let properties = placed.get("properties").and_then(Value::as_object);
            for (name, schema) in
                properties.into_iter().flatten().filter(|(name, _)| !words.contains(&name.as_str()))
            {
                let required = required.contains(&name.as_str());
                parameters.push(
                    json!({"name": name, "in": "query", "required": required, "schema": schema}),
                );
            }
        }
        for word in words {
            let schema = match *word {
                "limit" => {
                    json!({"type": "integer", "minimum": 1, "maximum": paging::limit_max(self.paging), "default": 20})
                }
                "offset" | "after_seq" => json!({"type": "integer", "minimum": 0, "default": 0}),
                _ => json!({"type": "string", "description": "Opaque; from the page before."}),
            };
            parameters
                .push(json!({"name": word, "in": "query", "required": false, "schema": schema}));
        }
        parameters
    }

    fn request_body(&self, schemas: &mut Schemas) -> Option<Value> {
        if let Some(media) = &self.consumes {
            return Some(json!({"required": true, "content": {media.as_str(): {"schema": {}}}}));
        }
        let body = self.body.as_ref()?;
        let required =
            body.get("required").and_then(Value::as_array).is_some_and(|names| !names.is_empty());
        let schema = schemas.place(&format!("{}.body", self.id), body);
        Some(json!({"required": required, "content": {"application/json": {"schema": schema}}}))
    }

    fn responses(&self, schemas: &mut Schemas) -> Value {
        let mut responses = Map::new();
        let mut content = Map::new();
        match (&self.produces, &self.answer) {
            (Some(media), _) => {
                drop(content.insert(media.clone(), json!({"schema": {"type": "string"}})))
            }
            (None, Some(answer)) => {
                let schema = schemas.place(&format!("{}.answer", self.id), answer);
                content.insert("application/json".into(), json!({"schema": schema}));
            }
            (None, None) => drop(content.insert("application/json".into(), json!({"schema": {}}))),
        }
        if self.streams {
            content.insert("text/event-stream".into(), json!({"schema": {"type": "string"}}));
        }
        let success = if self.status == 204 {
            json!({"description": "Done."})
        } else {
            json!({"description": "Success.", "content": content})
        };
        responses.insert(self.status.to_string(), success);
        for (status, schema) in &self.answers {
            let schema = schemas.place(&format!("{}.{status}", self.id), schema);
            responses.insert(
                status.clone(),
                json!({"description": "As declared.", "content": {"application/json": {"schema": schema}}}),
            );
        }
        for code in self.refusals() {
            let (name, status) = code.row(self.catalogue);
            let entry = responses
                .entry(status.to_string())
                .or_insert_with(|| refusal_response(String::new()));
            if let Some(Value::String(text)) = entry.get_mut("description") {
                if !text.is_empty() {
                    text.push_str(", ");
                }
                text.push_str(name);
            }
        }
        responses.insert("default".into(), refusal_response("Any other refusal.".into()));
        Value::Object(responses)
    }

    /// The host's own refusals that this operation can meet.
    fn refusals(&self) -> Vec<Code> {
        let mut codes = vec![Code::InvalidInput, Code::InternalError, Code::Overloaded];
        if self.auth != Auth::Open {
            codes.extend([Code::Unauthorized, Code::Forbidden, Code::RateLimited]);
        }
        if self.path.contains('{') || self.mount == Mount::User || self.tag != "host" {
            codes.push(Code::NotFound);
        }
        if self.body.is_some() || self.consumes.is_some() {
            codes.extend([Code::RequestTimeout, Code::PayloadTooLarge, Code::UnsupportedMediaType]);
        }
        if self.mutates && self.auth != Auth::Open {
            codes.extend([Code::IdempotencyConflict, Code::JobNotReady, Code::StateConflict]);
        }
        if self.tag != "host" {
            codes.extend([Code::NotConfigured, Code::DeadlineExceeded]);
        }
        codes.extend(
            self.refuses.iter().filter(|code| !codes.contains(code)).copied().collect::<Vec<_>>(),
        );
        codes
    }

    fn security(&self) -> Value {
        match &self.auth {
            Auth::Open | Auth::Hook => json!([]),
            Auth::Operator | Auth::SharedSecret(_) => json!([{"operator": []}]),
            Auth::Session => json!([{"session": []}]),
            Auth::Key if self.tag == "host" || !self.mutates => {
                json!([{"key": []}, {"session": []}])
            }
            Auth::Key => json!([{"key": []}]),
        }
    }
}

fn header(name: &str, description: &str) -> Value {
    json!({"name": name, "in": "header", "required": false, "description": description, "schema": {"type": "string"}})
}

fn refusal_response(description: String) -> Value {
    json!({
        "description": description,
        "content": {
            "application/json": {"schema": {"$ref": "#/components/schemas/Error"}},
            "application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}},
        },
    })
}
