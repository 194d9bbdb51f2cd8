//! One route of the host, as the list in [`crate::routes`] declares it: its path, the credential and
//! the class that it takes, and the handler, whose types say what it reads and answers.
//!
//! Knows no route by name.

use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;

use charter_kernel::authority::Class;
use charter_kernel::manifest::{Access, Catalogue, Mount, Paging};
use charter_kernel::refusal::{Code, Refusal};
use http::HeaderMap;

use crate::app::App;
use crate::serve::{BoundHandler, Handler, Shapes};

/// A request whose body was not read yet.
#[derive(Clone, Copy, Debug)]
pub struct Head<'a> {
    /// The client's address.
    pub peer: IpAddr,
    /// When it was accepted, by a steady clock.
    pub began: std::time::Instant,
    /// All request headers.
    pub headers: &'a HeaderMap,
    /// Path parameters, decoded and not validated.
    pub parameters: &'a [(String, String)],
}

impl Head<'_> {
    /// The bytes of the body, where its sender says so.
    pub fn content_length(&self) -> Option<usize> {
        self.headers.get(http::header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
    }

    /// A path parameter; empty if the route's path does not declare it.
    pub fn parameter(&self, name: &str) -> &str {
        self.parameters.iter().find(|(key, _)| key == name).map_or("", |(_, value)| value)
    }
}

/// The check ahead of the body: whether the client may try at all.
pub type Ahead =
    for<'a> fn(&'a App, Head<'a>) -> Pin<Box<dyn Future<Output = Result<(), Refusal>> + Send + 'a>>;

/// Makes an [`Ahead`] of an `async fn(&App, Head<'_>) -> Result<(), Refusal>`.
#[macro_export]
macro_rules! ahead {
    ($function:path) => {
        |app, head| Box::pin($function(app, head))
    };
}

/// The credential that a host route asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Auth {
    /// None; the route takes no idempotency key and leaves no audit row.
    Open,
    /// An API key or a session.
    Key,
    /// A person's session.
    Session,
    /// The operator's token.
    Operator,
}

/// One route of the host.
#[derive(Clone, Copy)]
pub struct HostRoute {
    /// `<noun>.<verb>`: the name in metrics, audit rows and OpenAPI, and the operation of
    /// idempotency records.
    pub id: &'static str,
    /// `GET`, `POST`, …
    pub method: &'static str,
    /// Below the mount: `/kits/{id}` under `/v1`; the whole path for [`Mount::Root`].
    pub path: &'static str,
    /// The mounts at which it is served.
    pub mounts: &'static [Mount],
    /// The credential that it asks for.
    pub auth: Auth,
    /// The class of callers who may call it.
    pub class: Class,
    /// The power that it needs beyond what its class takes. Owning is checked by the handler.
    pub access: Access,
    /// The error catalogue of its refusals.
    pub catalogue: Catalogue,
    /// One line for OpenAPI.
    pub summary: &'static str,
    /// The schemas of its query, body and answer, and the answer's status.
    pub shapes: Shapes,
    /// Media type of a raw body, and its largest size in bytes.
    pub consumes: Option<(&'static str, usize)>,
    /// Media type of an answer that is not JSON.
    pub produces: Option<&'static str>,
    /// The list style.
    pub paging: Paging,
    /// How many rows it reads beyond those that its request names: few of an organization's run at once.
    pub walks: Option<Walk>,
    /// The codes that it refuses with, beside those of its kind of route.
    pub refuses: &'static [Code],
    /// The check ahead of the body.
    pub ahead: Option<Ahead>,
    /// The handler that answers.
    pub handler: Handler,
}

/// How many rows a route reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Walk {
    /// A page.
    Page,
    /// As many as there are.
    All,
}

impl HostRoute {
    const fn new(
        method: &'static str,
        id: &'static str,
        path: &'static str,
        class: Class,
        handler: BoundHandler,
    ) -> Self {
        Self {
            id,
            method,
            path,
            mounts: &[Mount::Company],
            auth: Auth::Key,
            class,
            access: Access::Read,
            catalogue: Catalogue::Primary,
            summary: "",
            consumes: None,
            produces: None,
            paging: Paging::None,
            walks: None,
            refuses: &[],
            ahead: None,
            shapes: handler.shapes,
            handler: handler.run,
        }
    }
    /// A `GET` of this class.
    pub const fn get(
        class: Class,
        id: &'static str,
        path: &'static str,
        handler: BoundHandler,
    ) -> Self {
        Self::new("GET", id, path, class, handler)
    }
    /// A `POST` of this class.
    pub const fn post(
        class: Class,
        id: &'static str,
        path: &'static str,
        handler: BoundHandler,
    ) -> Self {
        Self::new("POST", id, path, class, handler)
    }
    /// A `PUT` of this class.
    pub const fn put(
        class: Class,
        id: &'static str,
        path: &'static str,
        handler: BoundHandler,
    ) -> Self {
        Self::new("PUT", id, path, class, handler)
    }
    /// A `PATCH` of this class.
    pub const fn patch(
        class: Class,
        id: &'static str,
        path: &'static str,
        handler: BoundHandler,
    ) -> Self {
        Self::new("PATCH", id, path, class, handler)
    }
    /// A `DELETE` of this class.
    pub const fn delete(
        class: Class,
        id: &'static str,
        path: &'static str,
        handler: BoundHandler,
    ) -> Self {
        Self::new("DELETE", id, path, class, handler)
    }
    /// Needs no credential.
    #[must_use]
    pub const fn open(mut self) -> Self {
        self.auth = Auth::Open;
        self
    }
    /// Needs a person's session.
    #[must_use]
    pub const fn session(mut self) -> Self {
        self.auth = Auth::Session;
        self
    }
    /// The operator's, below `/v1/operator`.
    #[must_use]
    pub const fn operator(mut self) -> Self {
        self.auth = Auth::Operator;
        self.class = Class::Operator;
        self.mounts = &[Mount::Operator];
        self
    }
    /// The same of the deployment's own, for the operator, under this id.
    #[must_use]
    pub const fn for_operator(self, id: &'static str) -> Self {
        let mut own = self.operator();
        own.id = id;
        own
    }
    /// At the root, without `/v1`.
    #[must_use]
    pub const fn root(mut self) -> Self {
        self.mounts = &[Mount::Root];
        self
    }
    /// At the company mount and below `/v1/users/{user_id}`.
    #[must_use]
    pub const fn both_mounts(mut self) -> Self {
        self.mounts = &[Mount::Company, Mount::User];
        self
    }
    /// Needs this power.
    #[must_use]
    pub const fn access(mut self, access: Access) -> Self {
        self.access = access;
        self
    }
    /// One line for OpenAPI.
    #[must_use]
    pub const fn summary(mut self, summary: &'static str) -> Self {
        self.summary = summary;
        self
    }
    /// A raw body of this media type, at most so many bytes.
    #[must_use]
    pub const fn consumes(mut self, media_type: &'static str, size_max: usize) -> Self {
        self.consumes = Some((media_type, size_max));
        self
    }
    /// An answer that is not JSON.
    #[must_use]
    pub const fn produces(mut self, media_type: &'static str) -> Self {
        self.produces = Some(media_type);
        self
    }
    /// Names the codes that it refuses with besides, for OpenAPI.
    #[must_use]
    pub const fn refuses(mut self, codes: &'static [Code]) -> Self {
        self.refuses = codes;
        self
    }
    /// Sets the check ahead of the body.
    #[must_use]
    pub const fn ahead(mut self, ahead: Ahead) -> Self {
        self.ahead = Some(ahead);
        self
    }
    /// A list in this style.
    #[must_use]
    pub const fn paging(mut self, paging: Paging) -> Self {
        self.paging = paging;
        self.walk(Walk::Page)
    }
    /// Reads more rows than its request names.
    #[must_use]
    pub const fn walk(mut self, walk: Walk) -> Self {
        self.walks = Some(walk);
        self
    }
}
