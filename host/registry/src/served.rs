//! Component versions with everything precomputed that a request needs, and the global table of
//! what is live.
//!
//! A [`Served`] is immutable; a [`Live`] is replaced whole at each activation, so that a request
//! sees one state from start to end. Knows no primitive by name: all of it comes from manifests.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use charter_engine::Component;
use charter_kernel::authority;
use charter_kernel::fault::Fault;
use charter_kernel::manifest::{
    self, Access, CallLength, Catalogue, ErrorCode, Manifest, Mount, Paging,
};
use charter_kernel::route::{Table, Template};
use charter_kernel::schema::Schema;

use crate::stats::RouteStats;

mod deprecated;
mod live;
mod reserved;

pub use deprecated::Deprecated;
pub use live::{Entry, Live, Primitive};
pub use reserved::Reserved;

/// The mounts, in the order of what is kept by mount.
pub const MOUNTS: [Mount; 4] = [Mount::Company, Mount::User, Mount::Root, Mount::Operator];

/// The credential that a route asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Auth {
    /// None.
    Open,
    /// An API key, or a session with the role.
    Key,
    /// A person's session.
    Session,
    /// The operator's token.
    Operator,
    /// An inbound URL of the deployment.
    Hook,
    /// The secret of this binding.
    SharedSecret(String),
}

/// The body that a route takes.
#[derive(Debug)]
pub enum BodyRule {
    /// None; one that is sent is refused unless it is empty.
    None,
    /// JSON under a schema.
    Json(Schema),
    /// Bytes of this media type, at most so many.
    Raw {
        /// The media type, such as `application/wasm` or `image/*`.
        media_type: String,
        /// The limit, where it is not the server's.
        size_max: Option<usize>,
    },
}

/// The words that every route says of itself, the host's own and the primitives'.
#[derive(Debug)]
pub struct Contract {
    /// The operation's id.
    pub id: Arc<str>,
    /// Its method; one of the manifest's closed set.
    pub method: &'static str,
    /// Below its mount.
    pub path: Template,
    /// The credential that it asks for.
    pub auth: Auth,
    /// The class of its callers.
    pub class: authority::Class,
    /// The power that it takes beyond its class.
    pub access: Access,
    /// Whether it changes anything.
    pub mutates: bool,
    /// The codes that its refusals use.
    pub catalogue: Catalogue,
    /// The list style.
    pub paging: Paging,
    /// Path parameters, where a schema was declared.
    pub path_schema: Option<Schema>,
    /// The query, where a schema was declared.
    pub query: Option<Schema>,
    /// The body.
    pub body: BodyRule,
    /// Whether a person's browser shows what it answers: its refusals are pages too.
    pub page: bool,
    /// Its counters.
    pub counters: Counters,
}

/// The counters of a route at each mount, kept once they were looked up.
#[derive(Debug, Default)]
pub struct Counters([OnceLock<Arc<RouteStats>>; MOUNTS.len()]);

impl Contract {
    /// The counters of the route at a mount; `find` looks them up by method and template.
    pub fn stats(
        &self,
        mount: Mount,
        find: impl FnOnce(&'static str, &str) -> Arc<RouteStats>,
    ) -> Arc<RouteStats> {
        self.counters.0[mount as usize]
            .get_or_init(|| find(self.method, &template_at(mount, &self.path.to_string())))
            .clone()
    }
}

/// The template of a route as clients see it.
pub fn template_at(mount: Mount, path: &str) -> String {
    match mount {
        Mount::Company => format!("/v1{path}"),
        Mount::User => format!("/v1/users/{{user_id}}{path}"),
        Mount::Root => path.to_owned(),
        Mount::Operator => format!("/v1/operator{path}"),
    }
}

/// One operation of a component version.
#[derive(Debug)]
pub struct ServedOperation {
    /// The words that it shares with host routes.
    pub contract: Contract,
    /// The status of an answer that names none.
    pub status: u16,
    /// Media type of an answer that is not JSON.
    pub produces: Option<String>,
    /// Request headers that the guest may see, by their names in lower case.
    pub headers: Vec<String>,
    /// Providers without which it can do nothing.
    pub needs: Vec<String>,
    /// How long a call may take, where it says so.
    pub deadline_ms: Option<u32>,
    /// The concurrency class that it counts against.
    pub class: CallLength,
    /// Whether the family's deprecation holds for it.
    pub deprecated: bool,
    /// Whether it can answer as an event stream.
    pub streams: bool,
    /// Whether it routes to a language model.
    pub llm_routing: bool,
    /// Its place among the manifest's operations.
    pub declared: usize,
}

/// One component version, ready to serve.
#[derive(Debug)]
pub struct Served {
    /// Its manifest.
    pub manifest: Arc<Manifest>,
    /// The loaded component.
    pub component: Arc<Component>,
    /// Its operations, in the manifest's order.
    pub operations: Vec<Arc<ServedOperation>>,
    /// The headers of its deprecation.
    pub deprecated: Option<Arc<Deprecated>>,
    tables: HashMap<Mount, Table<Arc<ServedOperation>>>,
}

impl Served {
    /// Precomputes what serving it takes.
    ///
    /// # Errors
    /// Every fault of its paths, methods and schemas. A manifest that was checked has none.
    pub fn new(component: Arc<Component>) -> Result<Self, Vec<Fault>> {
        let manifest = component.manifest().clone();
        let mut faults = Vec::new();
        let mut tables: HashMap<Mount, Table<Arc<ServedOperation>>> = HashMap::new();
        let mut operations = Vec::with_capacity(manifest.operations.len());
        for (at, declared) in manifest.operations.iter().enumerate() {
            let within = format!("operations.{at}");
            let Some(operation) = operation(&manifest, at, declared, &within, &mut faults) else {
                continue;
            };
            let operation = Arc::new(operation);
            for mount in declared.mounts() {
                let table = tables.entry(*mount).or_default();
                let path = operation.contract.path.clone();
                if let Err(overlap) =
                    table.insert(&manifest.name, &declared.method, path, operation.clone())
                {
                    faults.push(Fault::new(format!("{within}.path"), overlap.to_string()));
                }
            }
            operations.push(operation);
        }
        let deprecated =
            manifest.deprecation.as_ref().map(|declared| Arc::new(Deprecated::new(declared)));
        if faults.is_empty() {
            Ok(Self { manifest, component, operations, deprecated, tables })
        } else {
            Err(faults)
        }
    }

    /// The same off the async threads: a manifest has as many schemas and patterns as its component
    /// likes, and each of them is compiled.
    ///
    /// # Errors
    /// The same.
    pub async fn prepare(component: Arc<Component>) -> Result<Self, Vec<Fault>> {
        let prepared = tokio::task::spawn_blocking(move || Self::new(component)).await;
        prepared.unwrap_or_else(|error| {
            tracing::error!(%error, "preparing a component panicked");
            Err(vec![Fault::new("", "the component's operations could not be prepared")])
        })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.manifest.name
    }
    /// Its version.
    pub fn version(&self) -> &str {
        &self.manifest.version
    }
    /// Its digest.
    pub fn digest(&self) -> &str {
        self.component.digest()
    }
    /// The operations that it serves at a mount.
    pub fn table(&self, mount: Mount) -> Option<&Table<Arc<ServedOperation>>> {
        self.tables.get(&mount)
    }
    /// One of its operations, by id.
    pub fn operation(&self, id: &str) -> Option<&Arc<ServedOperation>> {
        self.operations.iter().find(|operation| &*operation.contract.id == id)
    }
    /// Error codes of its own.
    pub fn errors(&self) -> &[ErrorCode] {
        &self.manifest.errors
    }
}

fn operation(
    manifest: &Manifest,
    at: usize,
    declared: &manifest::Operation,
    within: &str,
    faults: &mut Vec<Fault>,
) -> Option<ServedOperation> {
    let mut compile = |what: &str, schema: &Option<serde_json::Value>| {
        schema
            .as_ref()
            .and_then(|schema| compile_schema(schema, &format!("{within}.{what}"), faults))
    };
    let path_schema = compile("path_schema", &declared.path_schema);
    let query = compile("query", &declared.query);
    let body = compile("body", &declared.body);
    let Some(method) = method(&declared.method) else {
        faults.push(Fault::new(
            format!("{within}.method"),
            "must be GET, POST, PUT, PATCH or DELETE",
        ));
        return None;
    };
    let body = match (body, &declared.consumes) {
        (_, Some(media_type)) => BodyRule::Raw { media_type: media_type.clone(), size_max: None },
        (Some(schema), None) => BodyRule::Json(schema),
        (None, None) => BodyRule::None,
    };
    let path = template(&declared.path, within, faults)?;
    let headers = declared.headers.iter().map(|name| name.to_ascii_lowercase()).collect();
    Some(ServedOperation {
        contract: Contract {
            id: declared.id.as_str().into(),
            method,
            path,
            auth: auth(&declared.auth),
            class: authority::Class::of(manifest, declared),
            access: access(declared),
            mutates: declared.mutates(),
            catalogue: declared.catalogue,
            paging: declared.paging,
            path_schema,
            query,
            body,
            page: false,
            counters: Counters::default(),
        },
        status: declared.status,
        produces: declared.produces.clone(),
        headers,
        needs: declared.needs.clone(),
        deadline_ms: declared.deadline_ms,
        class: declared.class,
        deprecated: manifest.deprecation.is_some() && declared.deprecated.unwrap_or(true),
        streams: declared.streams,
        llm_routing: declared.llm_routing,
        declared: at,
    })
}

/// `write` is what an operation asks for that says nothing: a read then asks for reading.
fn access(declared: &manifest::Operation) -> Access {
    match declared.access {
        Access::Write if !declared.mutates() => Access::Read,
        access => access,
    }
}

/// The credential of a declaration. An unknown word asks for the operator: fail closed.
pub fn auth(declared: &str) -> Auth {
    match declared {
        "none" => Auth::Open,
        "key" => Auth::Key,
        "session" => Auth::Session,
        "hook" => Auth::Hook,
        other => match other.strip_prefix("shared_secret:") {
            Some(binding) => Auth::SharedSecret(binding.to_owned()),
            None => Auth::Operator,
        },
    }
}

fn method(declared: &str) -> Option<&'static str> {
    ["GET", "POST", "PUT", "PATCH", "DELETE"].into_iter().find(|method| *method == declared)
}

fn template(path: &str, within: &str, faults: &mut Vec<Fault>) -> Option<Template> {
    match Template::parse(path) {
        Ok(template) => Some(template),
        Err(texts) => {
            faults.extend(texts.into_iter().map(|text| Fault::new(format!("{within}.path"), text)));
            None
        }
    }
}

/// A schema, compiled; its faults are added where it has any.
pub fn compile_schema(
    schema: &serde_json::Value,
    within: &str,
    faults: &mut Vec<Fault>,
) -> Option<Schema> {
    match Schema::compile(schema) {
        Ok(schema) => Some(schema),
        Err(found) => {
            faults.extend(found.into_iter().map(|fault| fault.within(within)));
            None
        }
    }
}
