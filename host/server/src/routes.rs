//! The one list of the host's own routes. A route is declared here and nowhere else: router,
//! validation, OpenAPI and sweeps read this list. Knows no primitive.
//!
//! Adding one: a line in [`all`], and `async fn name(app: &App, request: &HostRequest, txn: &mut
//! Txn) -> Result<Reply, Refusal>` in `routes/<noun>.rs`. Whatever the handler writes goes into
//! `txn` and is committed by the pipeline together with the audit row and the idempotent answer; on
//! a conflict the handler is run again. A handler must therefore have no other effect that matters,
//! unless it is idempotent.

use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;

use charter_kernel::authority::Class;
use charter_kernel::manifest::{Access, Catalogue, Mount, Paging};
use charter_kernel::refusal::{Code, Refusal};
use charter_store::Txn;
pub use charter_tenancy::stored;
use http::HeaderMap;
use serde_json::Value;

use crate::app::App;
use crate::reply::Reply;
use crate::request::HostRequest;

pub mod addresses;
pub mod approvals;
pub mod audit;
pub mod auth;
pub mod events;
pub mod governance;
pub mod grants;
pub mod health;
pub mod holds;
pub mod hooks;
pub mod invitations;
pub mod jobs;
pub mod keys;
pub mod kits;
pub mod ledger;
pub mod limits;
mod links;
pub mod logs;
pub mod members;
pub mod metrics;
pub mod openapi;
pub mod operator;
pub mod organization;
pub mod pages;
pub mod passwords;
pub mod projects;
pub mod register_guide;
pub mod sessions;
pub mod shape;
pub mod skill;
pub mod spend;
pub mod status;
pub mod usage;
pub mod users;
pub mod webhooks;

/// A handler, as the list keeps it.
pub type Handler = for<'a> fn(
    &'a App,
    &'a HostRequest,
    &'a mut Txn,
) -> Pin<Box<dyn Future<Output = Result<Reply, Refusal>> + Send + 'a>>;

/// Makes a [`Handler`] of an `async fn(&App, &HostRequest, &mut Txn) -> Result<Reply, Refusal>`.
#[macro_export]
macro_rules! handler {
    ($function:path) => {
        |app, request, txn| Box::pin($function(app, request, txn))
    };
}

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
    /// A path parameter; empty if the route's path does not declare it.
    pub fn parameter(&self, name: &str) -> &str {
        self.parameters.iter().find(|(key, _)| key == name).map_or("", |(_, value)| value)
    }
}

/// What is asked ahead of the body: whether the client may try at all.
pub type Ahead =
    for<'a> fn(&'a App, Head<'a>) -> Pin<Box<dyn Future<Output = Result<(), Refusal>> + Send + 'a>>;

/// Makes an [`Ahead`] of an `async fn(&App, Head<'_>) -> Result<(), Refusal>`.
#[macro_export]
macro_rules! ahead {
    ($function:path) => {
        |app, head| Box::pin($function(app, head))
    };
}

/// What credential a host route asks for.
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
    /// Where it is served.
    pub mounts: &'static [Mount],
    /// What credential it asks for.
    pub auth: Auth,
    /// Who may call it.
    pub class: Class,
    /// What power it needs beyond what its class takes. Owning is checked by the handler.
    pub access: Access,
    /// Which catalogue its errors use.
    pub catalogue: Catalogue,
    /// One line for OpenAPI.
    pub summary: &'static str,
    /// JSON Schema of the query.
    pub query: Option<fn() -> Value>,
    /// JSON Schema of the body.
    pub body: Option<fn() -> Value>,
    /// JSON Schema of the successful answer.
    pub answer: Option<fn() -> Value>,
    /// The status of the successful answer.
    pub status: u16,
    /// Media type of a raw body, and its largest size in bytes.
    pub consumes: Option<(&'static str, usize)>,
    /// Media type of an answer that is not JSON.
    pub produces: Option<&'static str>,
    /// The list style.
    pub paging: Paging,
    /// What it refuses with, beside what its kind of route does anyway.
    pub refuses: &'static [Code],
    /// What is asked ahead of the body.
    pub ahead: Option<Ahead>,
    /// Who answers.
    pub handler: Handler,
}

impl HostRoute {
    const fn new(
        method: &'static str,
        id: &'static str,
        path: &'static str,
        class: Class,
        handler: Handler,
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
            query: None,
            body: None,
            answer: None,
            status: 200,
            consumes: None,
            produces: None,
            paging: Paging::None,
            refuses: &[],
            ahead: None,
            handler,
        }
    }
    /// A `GET` of this class.
    pub const fn get(class: Class, id: &'static str, path: &'static str, handler: Handler) -> Self {
        Self::new("GET", id, path, class, handler)
    }
    /// A `POST` of this class.
    pub const fn post(
        class: Class,
        id: &'static str,
        path: &'static str,
        handler: Handler,
    ) -> Self {
        Self::new("POST", id, path, class, handler)
    }
    /// A `PUT` of this class.
    pub const fn put(class: Class, id: &'static str, path: &'static str, handler: Handler) -> Self {
        Self::new("PUT", id, path, class, handler)
    }
    /// A `PATCH` of this class.
    pub const fn patch(
        class: Class,
        id: &'static str,
        path: &'static str,
        handler: Handler,
    ) -> Self {
        Self::new("PATCH", id, path, class, handler)
    }
    /// A `DELETE` of this class.
    pub const fn delete(
        class: Class,
        id: &'static str,
        path: &'static str,
        handler: Handler,
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
    /// The query's schema.
    #[must_use]
    pub const fn query(mut self, schema: fn() -> Value) -> Self {
        self.query = Some(schema);
        self
    }
    /// The body's schema.
    #[must_use]
    pub const fn body(mut self, schema: fn() -> Value) -> Self {
        self.body = Some(schema);
        self
    }
    /// The successful answer's status and schema.
    #[must_use]
    pub const fn answer(mut self, status: u16, schema: fn() -> Value) -> Self {
        self.status = status;
        self.answer = Some(schema);
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
    /// What else it refuses with, for OpenAPI.
    #[must_use]
    pub const fn refuses(mut self, codes: &'static [Code]) -> Self {
        self.refuses = codes;
        self
    }
    /// What is asked ahead of the body.
    #[must_use]
    pub const fn ahead(mut self, ahead: Ahead) -> Self {
        self.ahead = Some(ahead);
        self
    }
    /// A list in this style.
    #[must_use]
    pub const fn paging(mut self, paging: Paging) -> Self {
        self.paging = paging;
        self
    }
}

/// Every route of the host.
pub fn all() -> Vec<HostRoute> {
    let mut all = vec![
        HostRoute::get(Class::Open, "health", "/health", handler!(health::get))
            .root()
            .open()
            .summary("Health check")
            .answer(200, health::answer),
        HostRoute::get(Class::Open, "skill", "/skill.md", handler!(skill::get))
            .root()
            .open()
            .summary("Capability document")
            .produces("text/markdown; charset=utf-8"),
        HostRoute::get(
            Class::Open,
            "register_guide",
            "/register.md",
            handler!(register_guide::get),
        )
        .root()
        .open()
        .summary("Onboarding guide")
        .produces("text/markdown; charset=utf-8"),
        HostRoute::get(Class::Open, "openapi", "/openapi.json", handler!(openapi::get))
            .root()
            .open()
            .summary("This description")
            .produces("application/json"),
        HostRoute::get(Class::Operator, "metrics", "/metrics", handler!(metrics::get))
            .operator()
            .root()
            .summary("Metrics in the OpenMetrics text format")
            .produces(metrics::MEDIA_TYPE),
        HostRoute::get(Class::ProfileRead, "status", "/status", handler!(status::get))
            .summary("What this deployment can do")
            .answer(200, status::answer),
        HostRoute::get(Class::OrganizationRead, "usage", "/usage", handler!(usage::get))
            .summary("What the organization has used")
            .answer(200, usage::answer),
        HostRoute::get(Class::ProfileRead, "limits", "/limits", handler!(limits::get))
            .refuses(&[Code::NotFound])
            .summary("Limits and guarantees of this build")
            .query(limits::query)
            .answer(200, limits::answer),
        HostRoute::get(Class::DeskRead, "jobs.list", "/jobs", handler!(jobs::list))
            .both_mounts()
            .summary("Public jobs, newest first")
            .paging(Paging::Cursor)
            .query(jobs::list_query)
            .answer(200, jobs::list_answer),
        HostRoute::get(Class::DeskRead, "jobs.get", "/jobs/{id}", handler!(jobs::get))
            .both_mounts()
            .summary("One job")
            .answer(200, jobs::answer),
        HostRoute::delete(Class::DeskChange, "jobs.cancel", "/jobs/{id}", handler!(jobs::cancel))
            .both_mounts()
            .summary("Cancel a job that has not finished")
            .answer(200, jobs::answer),
    ];
    all.extend(accounts());
    all.extend(opened_by_mail());
    all.extend(tenancy());
    all.push(
        HostRoute::get(
            Class::OrganizationRead,
            "events.stream",
            "/events",
            handler!(events::stream),
        )
        .summary("What happens in the organization, as it happens")
        .query(events::query)
        .produces("text/event-stream"),
    );
    all.extend(told());
    all.extend(webhooks());
    all.extend(hooks());
    all.extend(governance());
    all.extend(operator::all());
    all.shrink_to_fit();
    all
}

/// Accounts, sessions, keys, the organization and its people.
fn accounts() -> Vec<HostRoute> {
    vec![
        HostRoute::post(Class::Open, "auth.register", "/auth/register", handler!(auth::register))
            .open()
            .summary("Register an account with an organization and its first API key")
            .body(auth::register_body)
            .ahead(ahead!(auth::may_register))
            .refuses(&[Code::DuplicateRecord, Code::RateLimited])
            .answer(201, auth::register_answer),
        HostRoute::post(Class::Open, "auth.login", "/auth/login", handler!(auth::login))
            .open()
            .summary("Sign in with e-mail and password")
            .body(auth::login_body)
            .refuses(&[Code::Unauthorized, Code::RateLimited])
            .answer(200, auth::login_answer),
        HostRoute::post(Class::Open, "auth.link", "/auth/link", handler!(auth::link))
            .open()
            .summary("Mail a one-time sign-in link")
            .body(addresses::asked_body)
            .refuses(&[Code::NotConfigured, Code::RateLimited])
            .answer(202, shape::taken),
        HostRoute::post(Class::Open, "auth.prove", "/auth/proof", handler!(addresses::ask))
            .open()
            .summary("Mail a one-time link that proves an address")
            .body(addresses::asked_body)
            .refuses(&[Code::NotConfigured, Code::RateLimited])
            .answer(202, shape::taken),
        HostRoute::post(
            Class::Open,
            "auth.confirm",
            "/auth/proof/confirm",
            handler!(addresses::confirm),
        )
        .open()
        .summary("Prove the address of an account by a mailed link")
        .body(addresses::confirm_body)
        .refuses(&[Code::NotFound, Code::RateLimited])
        .answer(200, addresses::confirm_answer),
        HostRoute::post(
            Class::Open,
            "auth.forget",
            "/auth/password/forgotten",
            handler!(passwords::forget),
        )
        .open()
        .summary("Mail a one-time link that sets a new password")
        .body(addresses::asked_body)
        .refuses(&[Code::NotConfigured, Code::RateLimited])
        .answer(202, shape::taken),
        HostRoute::post(
            Class::Open,
            "auth.reset",
            "/auth/password/reset",
            handler!(passwords::reset),
        )
        .open()
        .summary("Set a new password by a mailed link, and end all sessions")
        .body(passwords::reset_body)
        .refuses(&[Code::NotFound, Code::RateLimited])
        .answer(200, passwords::reset_answer),
        HostRoute::put(
            Class::OwnSession,
            "auth.change_password",
            "/auth/password",
            handler!(passwords::change),
        )
        .session()
        .summary("Change the own password, and end the other sessions")
        .body(passwords::change_body)
        .refuses(&[Code::RateLimited])
        .answer(200, passwords::change_answer),
        HostRoute::post(
            Class::Open,
            "auth.accept",
            "/auth/invitations/accept",
            handler!(invitations::accept),
        )
        .open()
        .summary("Accept an invitation")
        .body(invitations::accept_body)
        .refuses(&[
            Code::Unauthorized,
            Code::DuplicateRecord,
            Code::StateConflict,
            Code::RateLimited,
        ])
        .answer(201, invitations::accept_answer),
        HostRoute::get(Class::OwnSession, "session.get", "/auth/session", handler!(sessions::get))
            .session()
            .summary("The session and its CSRF token")
            .answer(200, sessions::answer),
        HostRoute::delete(
            Class::OwnSession,
            "session.end",
            "/auth/session",
            handler!(sessions::delete),
        )
        .session()
        .summary("Sign out")
        .answer(200, sessions::ended),
        HostRoute::get(
            Class::OwnSession,
            "sessions.list",
            "/auth/sessions",
            handler!(sessions::list),
        )
        .session()
        .summary("The sessions of the person")
        .answer(200, sessions::list_answer),
        HostRoute::delete(
            Class::OwnSession,
            "sessions.revoke",
            "/auth/sessions/{id}",
            handler!(sessions::revoke),
        )
        .session()
        .summary("End a session of the person")
        .refuses(&[Code::NotFound])
        .answer(200, shape::deleted),
        HostRoute::delete(
            Class::OwnSession,
            "sessions.revoke_others",
            "/auth/sessions",
            handler!(sessions::revoke_others),
        )
        .session()
        .summary("End all other sessions of the person")
        .answer(200, sessions::revoked_answer),
        HostRoute::post(
            Class::OwnSession,
            "session.switch_company",
            "/auth/session/switch-company",
            handler!(sessions::switch_company),
        )
        .session()
        .summary("Move the session to another organization of the person")
        .body(sessions::switch_body)
        .answer(200, sessions::answer),
        HostRoute::post(Class::OwnCredential, "keys.create", "/auth/keys", handler!(keys::create))
            .refuses(&[Code::NotFound])
            .summary("Create an API key; it is shown once")
            .body(keys::create_body)
            .answer(201, keys::create_answer),
        HostRoute::get(Class::DeskRead, "keys.list", "/auth/keys", handler!(keys::list))
            .summary("List API keys")
            .paging(Paging::Offset)
            .answer(200, keys::list_answer),
        HostRoute::delete(
            Class::OwnCredential,
            "keys.revoke",
            "/auth/keys/{id}",
            handler!(keys::delete),
        )
        .summary("Revoke an API key and the keys it made")
        .answer(200, keys::deleted),
        HostRoute::get(
            Class::OrganizationName,
            "organization.get",
            "/organization",
            handler!(organization::get),
        )
        .summary("The organization")
        .answer(200, organization::answer),
        HostRoute::get(
            Class::OrganizationName,
            "company.get",
            "/company",
            handler!(organization::get),
        )
        .summary("The organization, by its former name")
        .answer(200, organization::answer),
        HostRoute::patch(
            Class::OrganizationChange,
            "organization.update",
            "/organization",
            handler!(organization::patch),
        )
        .access(Access::Admin)
        .summary("Change the organization")
        .body(organization::change_body)
        .answer(200, organization::answer),
        HostRoute::patch(
            Class::OrganizationChange,
            "company.update",
            "/company",
            handler!(organization::patch),
        )
        .access(Access::Admin)
        .summary("Change the organization, by its former name")
        .body(organization::change_body)
        .answer(200, organization::answer),
        HostRoute::get(
            Class::OrganizationRead,
            "members.list",
            "/organization/members",
            handler!(members::list),
        )
        .summary("List members")
        .paging(Paging::Offset)
        .answer(200, members::list_answer),
        HostRoute::get(
            Class::OrganizationRead,
            "members.get",
            "/organization/members/{id}",
            handler!(members::get),
        )
        .summary("One member")
        .answer(200, members::answer),
        HostRoute::post(
            Class::Loosening,
            "members.invite",
            "/organization/members",
            handler!(invitations::create),
        )
        .summary("Invite somebody into the organization")
        .body(invitations::create_body)
        .ahead(ahead!(invitations::may_invite))
        .refuses(&[Code::RateLimited])
        .answer(201, invitations::create_answer),
        HostRoute::patch(
            Class::Loosening,
            "members.update",
            "/organization/members/{id}",
            handler!(members::patch),
        )
        .summary("Give a member another role")
        .body(members::change_body)
        .answer(200, members::change_answer),
        HostRoute::delete(
            Class::Membership,
            "members.remove",
            "/organization/members/{id}",
            handler!(members::delete),
        )
        .summary("Remove a member, or leave")
        .answer(200, members::deleted),
        HostRoute::get(
            Class::OrganizationRead,
            "invitations.list",
            "/organization/invitations",
            handler!(invitations::list),
        )
        .summary("List invitations that were not accepted")
        .paging(Paging::Offset)
        .answer(200, invitations::list_answer),
        HostRoute::delete(
            Class::OrganizationChange,
            "invitations.revoke",
            "/organization/invitations/{id}",
            handler!(invitations::delete),
        )
        .access(Access::Admin)
        .summary("Take an invitation back")
        .answer(200, shape::deleted),
    ]
}

/// The pages that the links of mails lead to: opening one changes nothing, its form does.
fn opened_by_mail() -> Vec<HostRoute> {
    use pages::{FORM, FORM_BYTES_MAX, HTML};
    let routes = [
        HostRoute::get(
            Class::Open,
            "pages.approval",
            "/approvals/{id}",
            handler!(pages::approval::show),
        )
        .summary("What a mailed approval link asks")
        .query(pages::query)
        .refuses(&[Code::NotFound, Code::StateConflict, Code::RateLimited]),
        HostRoute::post(
            Class::Open,
            "pages.decide",
            "/approvals/{id}",
            handler!(pages::approval::decide),
        )
        .summary("Decide by a mailed approval link")
        .consumes(FORM, FORM_BYTES_MAX)
        .refuses(&[Code::NotFound, Code::StateConflict, Code::RateLimited]),
        HostRoute::get(
            Class::Open,
            "pages.sign_in",
            pages::sign_in::PATH,
            handler!(pages::sign_in::show),
        )
        .summary("Whom a mailed sign-in link is for")
        .query(pages::query)
        .refuses(&[Code::NotFound, Code::RateLimited]),
        HostRoute::post(
            Class::Open,
            "pages.open_session",
            pages::sign_in::PATH,
            handler!(pages::sign_in::open),
        )
        .summary("Sign in by a mailed link")
        .consumes(FORM, FORM_BYTES_MAX)
        .refuses(&[Code::NotFound, Code::RateLimited]),
        HostRoute::get(
            Class::Open,
            "pages.address",
            pages::address::PATH,
            handler!(pages::address::show),
        )
        .summary("Who has the address that a mailed link proves")
        .query(pages::query)
        .refuses(&[Code::NotFound, Code::RateLimited]),
        HostRoute::post(
            Class::Open,
            "pages.prove",
            pages::address::PATH,
            handler!(pages::address::choose),
        )
        .summary("Prove an address by a mailed link, or register with it")
        .consumes(FORM, FORM_BYTES_MAX)
        .refuses(&[Code::NotFound, Code::DuplicateRecord, Code::RateLimited]),
        HostRoute::get(
            Class::Open,
            "pages.password",
            pages::password::PATH,
            handler!(pages::password::show),
        )
        .summary("Whose password a mailed link sets")
        .query(pages::query)
        .refuses(&[Code::NotFound, Code::RateLimited]),
        HostRoute::post(
            Class::Open,
            "pages.reset",
            pages::password::PATH,
            handler!(pages::password::set),
        )
        .summary("Set a new password by a mailed link")
        .consumes(FORM, FORM_BYTES_MAX)
        .refuses(&[Code::NotFound, Code::RateLimited]),
        HostRoute::get(
            Class::Open,
            "pages.invitation",
            pages::invitation::PATH,
            handler!(pages::invitation::show),
        )
        .summary("What a mailed invitation offers")
        .query(pages::query)
        .refuses(&[Code::NotFound, Code::RateLimited]),
        HostRoute::post(
            Class::Open,
            "pages.accept",
            pages::invitation::PATH,
            handler!(pages::invitation::accept),
        )
        .summary("Accept a mailed invitation")
        .consumes(FORM, FORM_BYTES_MAX)
        .refuses(&[
            Code::Unauthorized,
            Code::DuplicateRecord,
            Code::StateConflict,
            Code::RateLimited,
        ]),
    ];
    routes.into_iter().map(|route| route.root().open().produces(HTML)).collect()
}

/// Projects, tenant users and account kits.
fn tenancy() -> Vec<HostRoute> {
    vec![
        HostRoute::post(
            Class::OrganizationChange,
            "projects.create",
            "/projects",
            handler!(projects::create),
        )
        .access(Access::Admin)
        .summary("Create a project")
        .body(projects::create_body)
        .answer(201, projects::answer),
        HostRoute::get(Class::ProjectRead, "projects.list", "/projects", handler!(projects::list))
            .summary("List projects")
            .paging(Paging::Offset)
            .answer(200, projects::list_answer),
        HostRoute::get(
            Class::ProjectRead,
            "projects.get",
            "/projects/{id}",
            handler!(projects::get),
        )
        .summary("One project")
        .answer(200, projects::answer),
        HostRoute::patch(
            Class::ProjectChange,
            "projects.update",
            "/projects/{id}",
            handler!(projects::patch),
        )
        .summary("Change a project")
        .body(projects::change_body)
        .answer(200, projects::answer),
        HostRoute::delete(
            Class::Loosening,
            "projects.delete",
            "/projects/{id}",
            handler!(projects::delete),
        )
        .summary("Delete an empty project")
        .answer(200, shape::deleted),
        HostRoute::post(Class::ProjectChange, "users.create", "/users", handler!(users::create))
            .refuses(&[Code::NotFound, Code::ResourceNotFound, Code::DuplicateRecord])
            .summary("Create a tenant user")
            .body(users::create_body)
            .answer(201, users::answer),
        HostRoute::get(Class::ProjectRead, "users.list", "/users", handler!(users::list))
            .summary("List tenant users")
            .paging(Paging::Offset)
            .query(users::list_query)
            .answer(200, users::list_answer),
        HostRoute::get(Class::ProfileRead, "users.get", "/users/{id}", handler!(users::get))
            .summary("One tenant user")
            .answer(200, users::answer),
        HostRoute::patch(
            Class::ProjectChange,
            "users.update",
            "/users/{id}",
            handler!(users::patch),
        )
        .summary("Change a tenant user")
        .body(users::change_body)
        .answer(200, users::answer),
        HostRoute::delete(
            Class::ProjectChange,
            "users.delete",
            "/users/{id}",
            handler!(users::delete),
        )
        .summary("Delete a tenant user")
        .answer(200, shape::deleted),
        HostRoute::post(
            Class::ProjectChange,
            "users.revoke",
            "/users/{id}/revoke",
            handler!(users::revoke),
        )
        .summary("Revoke a tenant user: its changes are refused from the next request on")
        .body(users::revoke_body)
        .answer(200, users::answer),
        HostRoute::post(
            Class::Loosening,
            "users.restore",
            "/users/{id}/restore",
            handler!(users::restore),
        )
        .summary("Lift the revocation of a tenant user")
        .answer(200, users::answer),
        HostRoute::post(Class::ProjectChange, "kits.create", "/kits", handler!(kits::create))
            .summary("Create an account kit")
            .body(kits::create_body)
            .answer(201, kits::answer),
        HostRoute::get(Class::ProjectRead, "kits.list", "/kits", handler!(kits::list))
            .summary("List account kits")
            .paging(Paging::Offset)
            .answer(200, kits::list_answer),
        HostRoute::get(Class::ProjectRead, "kits.get", "/kits/{id}", handler!(kits::get))
            .summary("One account kit")
            .answer(200, kits::answer),
        HostRoute::patch(Class::ProjectChange, "kits.update", "/kits/{id}", handler!(kits::patch))
            .summary("Change an account kit for all of its users")
            .body(kits::change_body)
            .answer(200, kits::answer),
        HostRoute::delete(
            Class::ProjectChange,
            "kits.delete",
            "/kits/{id}",
            handler!(kits::delete),
        )
        .summary("Delete an account kit that nobody is assigned to")
        .answer(200, shape::deleted),
    ]
}

/// What was done, and the proof of it: an organization's, and the deployment's own.
fn told() -> Vec<HostRoute> {
    let of = |deployment: bool, own: HostRoute, operators: &'static str| match deployment {
        true => HostRoute { id: operators, ..own.operator() },
        false => own,
    };
    let both = [false, true].into_iter().flat_map(|deployment| {
        let logs = HostRoute::get(Class::ProjectRead, "logs.list", "/logs", handler!(logs::list))
            .summary("The audit log, newest first")
            .paging(Paging::Cursor)
            .query(logs::query)
            .answer(200, logs::answer);
        let checkpoint = HostRoute::get(
            Class::OrganizationRead,
            "audit.checkpoint",
            "/audit/checkpoint",
            handler!(audit::checkpoint),
        )
        .summary("The signed checkpoint of the audit log")
        .query(audit::checkpoint_query)
        .refuses(&[Code::ResourceNotFound])
        .answer(200, audit::checkpoint_answer);
        let proof = HostRoute::get(
            Class::OrganizationRead,
            "audit.proof",
            "/audit/proof",
            handler!(audit::proof),
        )
        .summary("Proof that a row is in the audit log, or that the log only grew")
        .query(audit::proof_query)
        .refuses(&[Code::ResourceNotFound])
        .answer(200, audit::proof_answer);
        let export = HostRoute::get(
            Class::OrganizationRead,
            "audit.export",
            "/audit/export",
            handler!(audit::export),
        )
        .summary("The audit log, a line of JSON a row, for `charter audit verify`")
        .query(audit::export_query)
        .produces("application/x-ndjson");
        [
            of(deployment, logs, "operator.logs"),
            of(deployment, checkpoint, "operator.audit.checkpoint"),
            of(deployment, proof, "operator.audit.proof"),
            of(deployment, export, "operator.audit.export"),
        ]
    });
    both.collect()
}

/// Who is told of events by HTTP.
fn webhooks() -> Vec<HostRoute> {
    let routes = [
        HostRoute::get(
            Class::ProfileRead,
            "webhooks.event_types",
            "/webhooks/event-types",
            handler!(webhooks::list_event_types),
        )
        .summary("The events that webhooks can hear")
        .answer(200, webhooks::event_types_answer),
        HostRoute::post(
            Class::DeskChange,
            "webhooks.create",
            "/webhooks",
            handler!(webhooks::create),
        )
        .summary("Tell an address of events; its secret is shown this once")
        .body(webhooks::create_body)
        .answer(201, webhooks::made_answer),
        HostRoute::get(Class::DeskRead, "webhooks.list", "/webhooks", handler!(webhooks::list))
            .summary("List webhooks")
            .paging(Paging::Offset)
            .answer(200, webhooks::list_answer),
        HostRoute::get(Class::DeskRead, "webhooks.get", "/webhooks/{id}", handler!(webhooks::get))
            .summary("One webhook")
            .answer(200, webhooks::answer),
        HostRoute::patch(
            Class::DeskChange,
            "webhooks.update",
            "/webhooks/{id}",
            handler!(webhooks::update),
        )
        .summary("Change a webhook, or switch it off and on")
        .body(webhooks::update_body)
        .answer(200, webhooks::answer),
        HostRoute::delete(
            Class::DeskChange,
            "webhooks.delete",
            "/webhooks/{id}",
            handler!(webhooks::delete),
        )
        .summary("Delete a webhook")
        .answer(200, shape::deleted),
        HostRoute::post(
            Class::DeskChange,
            "webhooks.test",
            "/webhooks/{id}/test",
            handler!(webhooks::test),
        )
        .summary("Deliver a signed test event")
        .answer(202, webhooks::delivery_answer),
        HostRoute::post(
            Class::DeskChange,
            "webhooks.rotate",
            "/webhooks/{id}/rotate",
            handler!(webhooks::rotate),
        )
        .summary("Give a webhook a new secret; the former one signs beside it for a day")
        .answer(200, webhooks::made_answer),
        HostRoute::get(
            Class::DeskRead,
            "webhooks.deliveries",
            "/webhooks/{id}/deliveries",
            handler!(webhooks::deliveries),
        )
        .summary("What was delivered, and what came of it, newest first")
        .paging(Paging::Cursor)
        .answer(200, webhooks::deliveries_answer),
        HostRoute::post(
            Class::DeskChange,
            "webhooks.redeliver",
            "/webhooks/{id}/deliveries/{delivery_id}/redeliver",
            handler!(webhooks::redeliver),
        )
        .summary("Deliver an event once more")
        .answer(202, webhooks::delivery_answer),
    ];
    routes.into_iter().map(HostRoute::both_mounts).collect()
}

/// What primitives are told by HTTP. A call is believed by what its hook says of it.
fn hooks() -> Vec<HostRoute> {
    let routes = [
        HostRoute::post(Class::Inbound, "hooks.receive", "/hooks/{id}", handler!(hooks::receive))
            .summary("Call an inbound URL")
            .ahead(ahead!(hooks::exists)),
        HostRoute::post(
            Class::Inbound,
            "hooks.provider",
            "/hooks/providers/{binding}",
            handler!(hooks::provider),
        )
        .summary("Call the address of a provider's own webhooks")
        .ahead(ahead!(hooks::provider_exists)),
    ];
    let declared = |route: HostRoute| {
        let route =
            route.open().consumes("*/*", crate::hooks::BODY_BYTES_MAX).answer(200, hooks::answer);
        route.refuses(&[Code::Unauthorized, Code::NotFound, Code::RateLimited])
    };
    routes.into_iter().map(declared).collect()
}

/// Policy, and what it would say.
fn governance() -> Vec<HostRoute> {
    vec![
        HostRoute::get(
            Class::OrganizationRead,
            "governance.policy.get",
            "/governance/policy",
            handler!(governance::policy),
        )
        .summary("The organization's policy")
        .answer(200, governance::policy_answer),
        HostRoute::put(
            Class::OrganizationChange,
            "governance.policy.put",
            "/governance/policy",
            handler!(governance::put_policy),
        )
        .access(Access::Admin)
        .summary("Replace the organization's policy")
        .body(governance::policy_body)
        .refuses(&[Code::VersionConflict])
        .answer(200, governance::policy_answer),
        HostRoute::get(
            Class::OrganizationRead,
            "governance.limits.get",
            "/governance/limits",
            handler!(governance::get_limits),
        )
        .summary("How often, and for how much, users may take which actions")
        .answer(200, governance::limits_schema),
        HostRoute::put(
            Class::OrganizationChange,
            "governance.limits.put",
            "/governance/limits",
            handler!(governance::put_limits),
        )
        .access(Access::Admin)
        .summary("Replace the organization's limits")
        .body(governance::limits_schema)
        .answer(200, governance::limits_schema),
        HostRoute::post(
            Class::Loosening,
            "governance.grants.create",
            "/governance/grants",
            handler!(grants::create),
        )
        .summary("Give a user leave for a time, in place of a person's approval")
        .body(grants::create_body)
        .refuses(&[Code::ResourceNotFound])
        .answer(201, grants::answer),
        HostRoute::get(
            Class::OrganizationRead,
            "governance.grants.list",
            "/governance/grants",
            handler!(grants::list),
        )
        .summary("List grants")
        .paging(Paging::Offset)
        .query(grants::list_query)
        .answer(200, grants::list_answer),
        HostRoute::delete(
            Class::OrganizationChange,
            "governance.grants.delete",
            "/governance/grants/{id}",
            handler!(grants::delete),
        )
        .summary("Take a grant back")
        .answer(200, shape::deleted),
        HostRoute::get(
            Class::OrganizationRead,
            "governance.holds.list",
            "/governance/holds",
            handler!(holds::list),
        )
        .summary("Money that is held, was captured or voided, or is in doubt")
        .paging(Paging::Cursor)
        .query(holds::list_query)
        .answer(200, holds::list_answer),
        HostRoute::post(
            Class::Deciding,
            "governance.holds.resolve",
            "/governance/holds/{id}/resolve",
            handler!(holds::resolve),
        )
        .summary("Say what became of a hold that is in doubt")
        .body(holds::resolve_body)
        .answer(200, holds::answer),
        HostRoute::get(
            Class::ProfileRead,
            "ledger.accounts",
            "/ledger/accounts",
            handler!(ledger::accounts),
        )
        .both_mounts()
        .summary("The accounts of a tenant, and the organization's credit")
        .paging(Paging::Cursor)
        .answer(200, ledger::accounts_answer),
        HostRoute::get(
            Class::ProfileRead,
            "ledger.statement",
            "/ledger/statement",
            handler!(ledger::statement),
        )
        .both_mounts()
        .summary("What moved on an account, as JSON or CSV")
        .query(ledger::statement_query)
        .refuses(&[Code::ResourceNotFound])
        .answer(200, ledger::statement_answer),
        HostRoute::get(Class::ProjectRead, "spend.list", "/spend", handler!(spend::list))
            .summary("What each tenant has spent in its window, with its cap")
            .paging(Paging::Offset)
            .answer(200, spend::answer),
        HostRoute::get(
            Class::OrganizationRead,
            "governance.spend",
            "/governance/spend",
            handler!(spend::sums),
        )
        .summary("What the organization has spent, by action, user, primitive, component or day")
        .query(spend::sums_query)
        .answer(200, spend::sums_answer),
        HostRoute::get(
            Class::ProfileRead,
            "teams.tenants.cost",
            "/teams/{team}/tenants/{tenant_user_id}/cost",
            handler!(spend::cost),
        )
        .summary("One tenant's cost report")
        .query(spend::cost_query)
        .answer(200, spend::cost_answer),
        HostRoute::get(Class::DeskRead, "approvals.list", "/approvals", handler!(approvals::list))
            .summary("What waits for people, and what became of it, newest first")
            .paging(Paging::Cursor)
            .query(approvals::list_query)
            .answer(200, approvals::list_answer),
        HostRoute::get(
            Class::DeskRead,
            "approvals.get",
            "/approvals/{id}",
            handler!(approvals::get),
        )
        .summary("One approval")
        .answer(200, approvals::answer),
        HostRoute::post(
            Class::Deciding,
            "approvals.approve",
            "/approvals/{id}/approve",
            handler!(approvals::approve),
        )
        .summary("Approve: the request is made, once, as who asked for it")
        .body(approvals::decide_body)
        .answer(200, approvals::answer),
        HostRoute::post(
            Class::Deciding,
            "approvals.deny",
            "/approvals/{id}/deny",
            handler!(approvals::deny),
        )
        .summary("Deny: the request is not made, and its funds are free again")
        .body(approvals::decide_body)
        .answer(200, approvals::answer),
        HostRoute::post(
            Class::ProfileRead,
            "governance.simulate",
            "/governance/simulate",
            handler!(governance::simulate),
        )
        .summary("What would become of a regulated action now, without effect")
        .body(governance::simulate_body)
        .refuses(&[Code::ResourceNotFound])
        .answer(200, governance::simulate_answer),
    ]
}

#[cfg(test)]
mod tests;
