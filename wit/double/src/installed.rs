//! A primitive as the host installs it: its manifest read and checked, its routes in a table, its
//! schemas compiled. A manifest that the host would refuse fails the test that uses it.
//!
//! Knows no request. Checked once for each manifest of a process.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use charter_kernel::fault::Fault;
use charter_kernel::manifest::faults::read;
use charter_kernel::manifest::{Action, Collection, Manifest, Operation};
use charter_kernel::refusal::Failure;
use charter_kernel::route::{Missing, Path, Table, Template};
use charter_kernel::schema::{Schema, coerce_query, parse_query};
use charter_sdk::Primitive;
use serde_json::Value;

/// The parts of a primitive that every request needs.
#[derive(Debug)]
pub(crate) struct Installed {
    pub(crate) manifest: Manifest,
    routes: Table<usize>,
    schemas: Vec<Schemas>,
}

/// The compiled schemas of one operation.
#[derive(Debug)]
struct Schemas {
    path: Option<Schema>,
    query: Option<Schema>,
    body: Option<Schema>,
}

/// A request's operation, with what was read from its address.
#[derive(Debug)]
pub(crate) struct Routed<'i> {
    pub(crate) operation: &'i Operation,
    pub(crate) parameters: Vec<(String, String)>,
    pub(crate) query: Value,
}

static KNOWN: LazyLock<Mutex<HashMap<String, Arc<Installed>>>> = LazyLock::new(Mutex::default);

impl Installed {
    /// Installs a primitive.
    ///
    /// # Panics
    /// If the host would refuse the manifest.
    pub(crate) fn of(primitive: &Primitive) -> Arc<Self> {
        let text = primitive.describe();
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(installed) = known.get(&text) {
            return installed.clone();
        }
        let installed = Self::read(&text);
        let installed = Arc::new(installed.unwrap_or_else(|faults| {
            let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
            panic!("the host would not install this primitive: {}", faults.join("; "))
        }));
        known.insert(text, installed.clone());
        installed
    }

    fn read(text: &str) -> Result<Self, Vec<Fault>> {
        let manifest = read(text)?;
        let mut routes = Table::new();
        let mut schemas = Vec::new();
        for (at, operation) in manifest.operations.iter().enumerate() {
            let fault = |message: String| vec![Fault::new(&operation.id, message)];
            let template =
                Template::parse(&operation.path).map_err(|faults| fault(faults.join(", ")))?;
            routes
                .insert(&manifest.name, &operation.method, template, at)
                .map_err(|overlap| fault(overlap.to_string()))?;
            let compile = |schema: &Option<Value>| schema.as_ref().map(Schema::compile).transpose();
            schemas.push(Schemas {
                path: compile(&operation.path_schema)?,
                query: compile(&operation.query)?,
                body: compile(&operation.body)?,
            });
        }
        Ok(Self { manifest, routes, schemas })
    }

    /// The operation behind a method and an address, which stands below `/v1`.
    pub(crate) fn route(&self, method: &str, address: &str) -> Result<Routed<'_>, Failure> {
        let (path, query) = address.split_once('?').unwrap_or((address, ""));
        let path = Path::parse(path)
            .map_err(|fault| Failure::invalid("path", format!("The path {fault}.")))?;
        let found = self.routes.find(method, &path).map_err(|missing| match missing {
            Missing::Path => Failure::new("not_found", "There is nothing at this address."),
            Missing::Method { allow } => {
                Failure::new("method_not_allowed", format!("These methods are: {allow}."))
            }
        })?;
        let (operation, schemas) =
            (&self.manifest.operations[*found.value], &self.schemas[*found.value]);
        let parameters: Vec<(String, String)> = found.parameters;
        let named =
            parameters.iter().map(|(name, value)| (name.clone(), value.as_str().into())).collect();
        fits(schemas.path.as_ref(), &Value::Object(named))?;
        let pairs = parse_query(query).map_err(|fault| invalid(&[fault]))?;
        let query =
            coerce_query(schemas.query.as_ref(), &pairs, &[]).map_err(|faults| invalid(&faults))?;
        Ok(Routed { operation, parameters, query })
    }

    /// Checks a body by its operation's schema.
    pub(crate) fn check_body(&self, operation: &str, body: &Value) -> Result<(), Failure> {
        let at = self.manifest.operations.iter().position(|known| known.id == operation);
        fits(at.and_then(|at| self.schemas[at].body.as_ref()), body)
    }

    /// A declared operation.
    pub(crate) fn operation(&self, id: &str) -> Option<&Operation> {
        self.manifest.operations.iter().find(|operation| operation.id == id)
    }

    /// A declared collection.
    pub(crate) fn collection(&self, name: &str) -> Result<&Collection, Failure> {
        let found = self.manifest.collections.iter().find(|collection| collection.name == name);
        found.ok_or_else(|| {
            Failure::undeclared(format!("the manifest declares no collection `{name}`"))
        })
    }

    /// A declared action.
    pub(crate) fn action(&self, name: &str) -> Result<&Action, Failure> {
        let found = self.manifest.actions.iter().find(|action| action.name == name);
        found
            .ok_or_else(|| Failure::undeclared(format!("the manifest declares no action `{name}`")))
    }
}

fn fits(schema: Option<&Schema>, value: &Value) -> Result<(), Failure> {
    schema.map_or(Ok(()), |schema| schema.validate(value)).map_err(|faults| invalid(&faults))
}

fn invalid(faults: &[Fault]) -> Failure {
    charter_kernel::refusal::Refusal::faults(faults.to_vec()).to_failure()
}
