//! One declared route and the function behind it.

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::answer::Answer;
use crate::bindings::Request;
use crate::contract::Contract;
use crate::failure::Result;
use crate::handler::Handler;

/// The mount at which an operation is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Mount {
    /// `/v1/…`.
    Company,
    /// `/v1/users/{user_id}/…`.
    User,
    /// At the root, without `/v1`.
    Root,
    /// `/v1/operator/…`.
    Operator,
}

/// The role an operation needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    /// Any role.
    Read,
    /// Developer and above.
    Write,
    /// Admin and above.
    Admin,
}

/// The subject of an operation, which says which credentials may call it. Without one the host
/// derives it: a regulated action, else a read or change of one profile, or of the project or
/// organization where all collections are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Authority {
    /// Reads what belongs to one profile.
    ProfileRead,
    /// Changes it.
    ProfileChange,
    /// Shows a secret of it.
    ProfileSecret,
    /// Spends, sends or binds for one profile, by leave.
    Regulated,
    /// Moves money that is another's, without leave.
    OthersMoney,
    /// Reads what a person or an agent looks after: the profile's, project's or organization's.
    DeskRead,
    /// Changes it.
    DeskChange,
    /// Reads what belongs to all of a project.
    ProjectRead,
    /// Changes it.
    ProjectChange,
    /// Reads what belongs to all of the organization.
    OrganizationRead,
    /// Changes it.
    OrganizationChange,
    /// Gives more room than there was.
    Loosening,
}

/// The error catalogue of an operation's refusals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Catalogue {
    /// The primary API's codes.
    Primary,
    /// The typed catalogue's codes.
    Typed,
}

/// The part that an operation plays in paying.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Pays {
    /// Buys credit.
    Topup,
    /// Subscribes to a plan.
    Subscribe,
    /// Shows the plans.
    ViewPlans,
}

/// A handler with its types forgotten.
type Serve = dyn Fn(&Request) -> Result<Answer>;

/// One declared route.
pub struct Operation {
    pub(crate) id: &'static str,
    pub(crate) method: &'static str,
    pub(crate) path: &'static str,
    summary: &'static str,
    description: &'static str,
    deadline_ms: Option<u32>,
    run: Box<Serve>,
    contract: fn(&mut Contract),
    /// Every call makes the whole declaration: the words that most operations have cost nothing
    /// before the manifest is asked for.
    more: Vec<(&'static str, Value)>,
    answers: Vec<(u16, fn() -> Value)>,
}

macro_rules! method {
    ($name:ident, $method:literal, $says:literal) => {
        #[doc = $says]
        pub fn $name<A, H: Handler<A>>(
            id: &'static str,
            path: &'static str,
            handler: H,
        ) -> Operation {
            Operation::new(id, $method, path, handler)
        }
    };
}

method!(
    get,
    "GET",
    "A read: nothing that it writes is kept. `id` is `<primitive>.<verb>`, `path` stands below `/v1`."
);
method!(post, "POST", "A mutation that makes or does something.");
method!(put, "PUT", "A mutation that sets something by name.");
method!(patch, "PATCH", "A mutation that changes members of something.");
method!(delete, "DELETE", "A mutation that removes something.");

impl Operation {
    fn new<A, H: Handler<A>>(
        id: &'static str,
        method: &'static str,
        path: &'static str,
        handler: H,
    ) -> Self {
        Self {
            id,
            method,
            path,
            summary: "",
            description: "",
            deadline_ms: None,
            run: Box::new(move |request| handler.run(request)),
            contract: <H as Handler<A>>::declare,
            more: Vec::new(),
            answers: Vec::new(),
        }
    }
    fn with(mut self, word: &'static str, value: impl Into<Value>) -> Self {
        self.more.push((word, value.into()));
        self
    }
    /// One line: what it does.
    #[must_use]
    pub fn summary(mut self, text: &'static str) -> Self {
        self.summary = text;
        self
    }
    /// Markdown: limits, refusals, what a caller should know.
    #[must_use]
    pub fn description(mut self, text: &'static str) -> Self {
        self.description = text;
        self
    }
    /// Serves it at these mounts, instead of both the company and the user mount.
    #[must_use]
    pub fn mounts(self, mounts: &[Mount]) -> Self {
        self.with("mounts", json!(mounts))
    }
    /// How a caller proves itself, if not by key: `session`, `operator`, `hook`,
    /// `shared_secret:<binding>` or `none`.
    #[must_use]
    pub fn auth(self, how: &'static str) -> Self {
        self.with("auth", how)
    }
    /// The role it needs, if not the usual one (any role reads, a developer writes).
    #[must_use]
    pub fn access(self, access: Access) -> Self {
        self.with("access", json!(access))
    }
    /// Names its subject, if that does not follow from the rest.
    #[must_use]
    pub fn authority(self, authority: Authority) -> Self {
        self.with("authority", json!(authority))
    }
    /// The error catalogue, if not the primary one.
    #[must_use]
    pub fn catalogue(self, catalogue: Catalogue) -> Self {
        self.with("catalogue", json!(catalogue))
    }
    /// Another status than the return type says.
    #[must_use]
    pub fn status(self, status: u16) -> Self {
        self.with("status", status)
    }
    /// A further answer: its status and, by its type, its schema.
    #[must_use]
    pub fn answers<T: schemars::JsonSchema>(mut self, status: u16) -> Self {
        self.answers.push((status, crate::schema::of_answer::<T>));
        self
    }
    /// The media type of a body that is not JSON; take it as [`crate::Bytes`].
    #[must_use]
    pub fn consumes(self, media_type: &'static str) -> Self {
        self.with("consumes", media_type)
    }
    /// The media type of an answer that is not JSON.
    #[must_use]
    pub fn produces(self, media_type: &'static str) -> Self {
        self.with("produces", media_type)
    }
    /// Request headers that it may see, lower case; take them as [`crate::Headers`].
    #[must_use]
    pub fn headers(self, names: &[&'static str]) -> Self {
        self.with("headers", json!(names))
    }
    /// The regulated action that it takes.
    #[must_use]
    pub fn action(self, name: &'static str) -> Self {
        self.with("action", name)
    }
    /// It can answer as an event stream.
    #[must_use]
    pub fn streams(self) -> Self {
        self.with("streams", true)
    }
    /// It is not offered to models as a tool.
    #[must_use]
    pub fn no_tool(self) -> Self {
        self.with("tool", false)
    }
    /// Providers without which the host answers 501 before the primitive runs.
    #[must_use]
    pub fn needs(self, providers: &[&'static str]) -> Self {
        self.with("needs", json!(providers))
    }
    /// A caller who is refused for not having paid is told its method and path, if the primitive is
    /// the biller.
    #[must_use]
    pub fn pays(self, what: Pays) -> Self {
        self.with("pays", json!(what))
    }
    /// It routes to a language model, which only bought credit pays for.
    #[must_use]
    pub fn llm_routing(self) -> Self {
        self.with("llm_routing", true)
    }
    /// How long a call may take; from two seconds on it counts as a long one, with a concurrency of
    /// its own.
    #[must_use]
    pub fn deadline_ms(mut self, ms: u32) -> Self {
        self.deadline_ms = Some(ms);
        self
    }

    pub(crate) fn run(&self, request: &Request) -> Result<Answer> {
        (self.run)(request)
    }

    pub(crate) fn contract(&self) -> Contract {
        let mut contract = Contract::default();
        (self.contract)(&mut contract);
        contract
    }

    pub(crate) fn describe(&self) -> Value {
        let contract = self.contract();
        let mut words = Map::new();
        let mut set = |word: &str, value: Value| words.insert(word.into(), value);
        set("id", self.id.into());
        set("method", self.method.into());
        set("path", self.path.into());
        set("access", if self.method == "GET" { "read" } else { "write" }.into());
        set("status", if contract.status == 0 { 200 } else { contract.status }.into());
        for (word, text) in [("summary", self.summary), ("description", self.description)] {
            if !text.is_empty() {
                set(word, text.into());
            }
        }
        if contract.long {
            set("class", "long".into());
        }
        if let Some(ms) = self.deadline_ms {
            set("deadline_ms", ms.into());
            set("class", if ms >= 2_000 { "long" } else { "short" }.into());
        }
        if let Some(style) = contract.paging {
            set("paging", style.into());
        }
        let schemas = [
            ("path_schema", contract.path_schema),
            ("query", contract.query),
            ("body", contract.body),
            ("answer", contract.answer),
        ];
        for (word, schema) in schemas {
            schema.map(|schema| set(word, schema));
        }
        if !self.answers.is_empty() {
            set(
                "answers",
                self.answers
                    .iter()
                    .map(|(status, schema)| (status.to_string(), schema()))
                    .collect(),
            );
        }
        for (word, value) in &self.more {
            set(word, value.clone());
        }
        words.into()
    }
}
