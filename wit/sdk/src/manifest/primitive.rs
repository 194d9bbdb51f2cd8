//! A primitive: what it declares, and the functions that serve it.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use crate::answer::Answer;
use crate::bindings::{
    Answer as RawAnswer, Caller, Failure as RawFailure, Request, Signal as RawSignal,
};
use crate::documents::{Collection, CollectionSpec};
use crate::failure::{Failure, Result};
use crate::manifest::declared::{Action, DeclaredAction, ErrorCode, Event, Provider, Setting};
use crate::manifest::operation::Operation;
use crate::signals::{Reaction, Signal};

/// The meaning of a kit that does not name the primitive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Gate {
    /// Allowed.
    #[default]
    Open,
    /// Denied.
    Strict,
    /// Denied, and the default kit leaves it off.
    OptIn,
}

/// A reaction with its types forgotten.
type React = dyn Fn(Signal) -> Result<Option<Answer>>;

/// A primitive: the one value that a component is made of. See the crate's page for a whole one.
pub struct Primitive {
    pub(crate) name: &'static str,
    version: &'static str,
    title: &'static str,
    summary: &'static str,
    description: &'static str,
    gate: Gate,
    capabilities: Vec<&'static str>,
    pub(crate) operations: Vec<Operation>,
    pub(crate) collections: Vec<CollectionSpec>,
    actions: Vec<DeclaredAction>,
    events: Vec<Event>,
    errors: Vec<ErrorCode>,
    providers: Vec<Provider>,
    settings: Vec<fn() -> Setting>,
    signals: Vec<(&'static str, Box<React>)>,
    speaks_for: Vec<&'static str>,
    deprecation: Option<Value>,
}

impl Primitive {
    /// A primitive of this name (lower-case kebab) and version: `Primitive::new("notes",
    /// env!("CARGO_PKG_VERSION"))`.
    pub fn new(name: &'static str, version: &'static str) -> Self {
        Self {
            name,
            version,
            title: name,
            summary: "",
            description: "",
            gate: Gate::Open,
            capabilities: Vec::new(),
            operations: Vec::new(),
            collections: Vec::new(),
            actions: Vec::new(),
            events: Vec::new(),
            errors: Vec::new(),
            providers: Vec::new(),
            settings: Vec::new(),
            signals: Vec::new(),
            speaks_for: Vec::new(),
            deprecation: None,
        }
    }
    /// For people, in lists.
    #[must_use]
    pub fn title(mut self, title: &'static str) -> Self {
        self.title = title;
        self
    }
    /// One line.
    #[must_use]
    pub fn summary(mut self, summary: &'static str) -> Self {
        self.summary = summary;
        self
    }
    /// Markdown.
    #[must_use]
    pub fn description(mut self, description: &'static str) -> Self {
        self.description = description;
        self
    }
    /// Sets the meaning of a kit that does not name it, if not that it is allowed.
    #[must_use]
    pub fn gate(mut self, gate: Gate) -> Self {
        self.gate = gate;
        self
    }
    /// A capability that it uses, by the interface's name: `secrets`, `leases`, `events`, `http`,
    /// `public-web`. Collections bring `documents` with them.
    #[must_use]
    pub fn uses(mut self, capability: &'static str) -> Self {
        if !self.capabilities.contains(&capability) {
            self.capabilities.push(capability);
        }
        self
    }
    /// A collection of documents.
    #[must_use]
    pub fn collection<T: JsonSchema>(mut self, collection: &Collection<T>) -> Self {
        self.collections.push(collection.spec());
        let capability = if collection.is_leased() { "leases" } else { "documents" };
        self.uses("documents").uses(capability)
    }
    /// A route.
    #[must_use]
    pub fn operation(mut self, operation: Operation) -> Self {
        self.operations.push(operation);
        self
    }
    /// A regulated action.
    #[must_use]
    pub fn action(mut self, action: Action) -> Self {
        self.actions.push(DeclaredAction { action, overrun: None });
        self.uses("governance")
    }
    /// A regulated action whose cost is known afterwards only: a capture may be `overrun` times
    /// (1 to 2) what was held, unless an account of the ledger pays it.
    #[must_use]
    pub fn estimated_action(mut self, action: Action, overrun: f64) -> Self {
        self.actions.push(DeclaredAction { action, overrun: Some(overrun) });
        self.uses("governance")
    }
    /// An event that it emits.
    #[must_use]
    pub fn event(mut self, name: &'static str, description: &'static str) -> Self {
        let (webhook, payload, formerly) = (true, None, Vec::new());
        self.events.push(Event { name, description, webhook, payload, formerly });
        self.uses("events")
    }
    /// A name that the event which was declared last had before: a webhook that asks for it hears
    /// the event still.
    #[must_use]
    pub fn formerly(mut self, name: &'static str) -> Self {
        if let Some(event) = self.events.last_mut() {
            event.formerly.push(name);
        }
        self
    }
    /// A further first word of its events and audit actions, beside its name; the operator agrees
    /// to it when the primitive is activated.
    #[must_use]
    pub fn speaks_for(mut self, word: &'static str) -> Self {
        self.speaks_for.push(word);
        self
    }
    /// An error code of its own.
    #[must_use]
    pub fn error(mut self, code: &'static str, status: u16, meaning: &'static str) -> Self {
        self.errors.push(ErrorCode { code, status, meaning });
        self
    }
    /// A provider that the operator can bind.
    #[must_use]
    pub fn provider(
        mut self,
        name: &'static str,
        kinds: &'static [&'static str],
        description: &'static str,
    ) -> Self {
        self.providers.push(Provider { name, description, kinds, required: false });
        self.uses("http")
    }
    /// Something that the operator or a kit can set.
    #[must_use]
    pub fn setting(mut self, setting: fn() -> Setting) -> Self {
        self.settings.push(setting);
        self.uses("settings")
    }
    /// Reacts to a signal: `created`, `revoked`, `event`, …. For jobs see [`Primitive::job`], for
    /// calls [`Primitive::hook`].
    #[must_use]
    pub fn on<R: Reaction>(
        mut self,
        kind: &'static str,
        react: impl Fn(Signal) -> Result<R> + 'static,
    ) -> Self {
        self.signals.push((kind, Box::new(move |signal| react(signal)?.into_answer())));
        self
    }
    /// Reacts to a call of one of the URLs that it opened.
    #[must_use]
    pub fn hook<R: Reaction>(
        self,
        told: impl Fn(crate::hooks::Received) -> Result<R> + 'static,
    ) -> Self {
        self.on("hook", move |signal| told(crate::hooks::Received::of(&signal)?)).uses("hooks")
    }
    /// Answers a bound provider that calls and waits. A failure is the provider's refusal; so is
    /// taking longer than 1.5 seconds.
    #[must_use]
    pub fn question<T: Serialize>(
        self,
        answer: impl Fn(crate::hooks::Received) -> Result<T> + 'static,
    ) -> Self {
        let ask = move |signal| Answer::json(&answer(crate::hooks::Received::of(&signal)?)?);
        self.on("question", ask).uses("hooks")
    }
    /// Runs its due jobs of this name.
    #[must_use]
    pub fn job<R: Reaction>(
        mut self,
        name: &'static str,
        run: impl Fn(crate::jobs::Run) -> Result<R> + 'static,
    ) -> Self {
        let react = move |signal: Signal| run(crate::jobs::Run::of(&signal)?)?.into_answer();
        self.signals.push((name, Box::new(react)));
        self.uses("jobs")
    }
    /// The whole family is deprecated: headers on every answer of its routes, refusals included.
    #[must_use]
    pub fn deprecated(mut self, id: &str, announced: &str, link: &str, note: &str) -> Self {
        self.deprecation =
            Some(json!({ "id": id, "announced": announced, "link": link, "note": note }));
        self
    }

    /// The manifest.
    pub fn describe(&self) -> String {
        let mut manifest = json!({
            "name": self.name,
            "version": self.version,
            "title": self.title,
            "summary": self.summary,
            "description": self.description,
            "gate": self.gate,
            "capabilities": self.capabilities,
            "operations": self.operations.iter().map(Operation::describe).collect::<Vec<_>>(),
            "actions": self.actions,
            "collections": self.collections,
            "events": self.events,
            "errors": self.errors,
            "providers": self.providers,
            "settings": self.settings.iter().map(|setting| setting()).collect::<Vec<_>>(),
            "signals": self.signal_kinds(),
        });
        if !self.speaks_for.is_empty() {
            manifest["speaks_for"] = json!(self.speaks_for);
        }
        if let Some(deprecation) = &self.deprecation {
            manifest["deprecation"] = deprecation.clone();
        }
        manifest.to_string()
    }

    fn signal_kinds(&self) -> Vec<&'static str> {
        let mut kinds: Vec<_> =
            self.signals.iter().map(|(name, _)| if is_kind(name) { name } else { "job" }).collect();
        kinds.sort_unstable();
        kinds.dedup();
        kinds
    }

    /// Serves one request.
    pub fn handle(&self, request: &Request) -> Result<RawAnswer, RawFailure> {
        let operation = self.operations.iter().find(|operation| operation.id == request.operation);
        let answer = match operation {
            Some(operation) => operation.run(request),
            None => Err(Failure::internal(format!(
                "the component has no operation {}",
                request.operation
            ))),
        };
        answer.map(|answer| answer.0).map_err(RawFailure::from)
    }

    /// Reacts to one signal. One that nobody wants is no fault: a host of a newer interface may
    /// send it.
    pub fn react(
        &self,
        caller: Caller,
        signal: RawSignal,
    ) -> Result<Option<RawAnswer>, RawFailure> {
        let signal = Signal::of(caller, signal)?;
        let wanted = if signal.kind == "job" {
            signal.payload["name"].as_str().unwrap_or_default()
        } else {
            &signal.kind
        };
        let Some(react) =
            self.signals.iter().find(|(name, _)| *name == wanted).map(|(_, react)| react)
        else {
            return Ok(None);
        };
        Ok(react(signal)?.map(|answer| answer.0))
    }
}

/// Whether a reaction's name is a signal kind; every other is a job's name.
fn is_kind(name: &str) -> bool {
    let of_what_comes = ["hook", "question", "mail", "bounce", "name", "approval", "event"];
    let of_what_becomes =
        ["created", "revoked", "restored", "deleted", "registered", "credit", "doubt"];
    of_what_comes.contains(&name) || of_what_becomes.contains(&name)
}
