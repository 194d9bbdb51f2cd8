//! Components: install, activate, roll back, remove, look at.
//!
//! Each step commits by itself in the registry, its audit row with it, before the request's own
//! commit: taking it again changes nothing.

use std::collections::BTreeSet;

use charter_kernel::authority::Class;
use charter_kernel::refusal::{Code, Refusal};
use charter_registry::components::{
    Activated, ComponentDetail, ComponentReport, Consent, LifeCycleError, Upload, Version,
    VersionReport, digest_of,
};
use charter_store::Txn;
use charter_tenancy::operator::Act;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::app::App;
use crate::handler;
use crate::request::HostRequest;
use crate::route::HostRoute;
use crate::routes::shape::{Optional, Yes};
use crate::serve::{Answer, Body, Created, Params};

/// The actor's name in the activation's row.
const BY: &str = "operator";

/// The rows of components.
pub fn routes() -> Vec<HostRoute> {
    vec![
        HostRoute::get(
            Class::Operator,
            "operator.components.list",
            "/components",
            handler!(list_components),
        )
        .operator()
        .summary("Every primitive with its active version"),
        HostRoute::get(
            Class::Operator,
            "operator.components.get",
            "/components/{name}",
            handler!(get_component),
        )
        .operator()
        .summary("One primitive with all of its versions"),
        HostRoute::put(
            Class::Operator,
            "operator.components.put",
            "/components/{name}",
            handler!(put_component),
        )
        .operator()
        .summary("Install a component; with activate=true also swap to it")
        .consumes("application/wasm", charter_store::BLOB_BYTES_MAX)
        .refuses(&[Code::InvalidComponent]),
        HostRoute::post(
            Class::Operator,
            "operator.components.activate",
            "/components/{name}/activate",
            handler!(activate_component),
        )
        .operator()
        .summary("Swap to an installed version"),
        HostRoute::post(
            Class::Operator,
            "operator.components.rollback",
            "/components/{name}/rollback",
            handler!(rollback_component),
        )
        .operator()
        .summary("Go back to the version that served before"),
        HostRoute::delete(
            Class::Operator,
            "operator.components.delete",
            "/components/{name}/{digest}",
            handler!(delete_component),
        )
        .operator()
        .summary("Remove a version that does not serve"),
    ]
}

/// A digest of a component, with or without its algorithm.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
struct Digest(#[schemars(regex(pattern = "^(sha256:)?[0-9a-f]{64}$"))] String);

/// Everything that the operator agrees to: `*`, or parts of what the component asks for with commas
/// between.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(transparent)]
struct Agreement(#[schemars(length(max = 4_096))] String);

/// The query of an upload.
#[derive(Deserialize, JsonSchema)]
pub struct UploadQuery {
    /// Whether it serves at once.
    #[serde(default)]
    activate: bool,
    #[serde(default)]
    agree: Agreement,
}

/// The body of an activation.
#[derive(Deserialize, JsonSchema)]
pub struct Activation {
    digest: Digest,
    #[serde(default)]
    agree: Agreement,
}

/// The body of a rollback.
#[derive(Deserialize, JsonSchema)]
pub struct Rollback {
    /// The version that serves: another one is not rolled back.
    from: Optional<Digest>,
}

/// Every primitive.
#[derive(Serialize, JsonSchema)]
pub struct ComponentList {
    components: Vec<ComponentReport>,
}

#[derive(Serialize, JsonSchema)]
struct ComponentItem {
    #[serde(flatten)]
    detail: ComponentDetail,
    /// The largest memory of one call, in bytes.
    memory_bytes_max: usize,
}

/// One primitive.
#[derive(Serialize, JsonSchema)]
pub struct ComponentAnswer {
    component: ComponentItem,
}

/// A version that was installed or activated.
#[derive(Serialize, JsonSchema)]
pub struct VersionAnswer {
    component: VersionReport,
    /// The digest that served before, where a version was activated.
    #[serde(skip_serializing_if = "Option::is_none")]
    previous: Option<Option<String>>,
    /// Whether it was not so already.
    changed: bool,
}

/// The answer to a removal.
#[derive(Serialize, JsonSchema)]
pub struct RemovedVersion {
    digest: Digest,
    deleted: Yes,
}

/// `GET /v1/operator/components`
pub async fn list_components(
    app: &App,
    _: &HostRequest,
    _: &mut Txn,
) -> Result<Answer<ComponentList>, Refusal> {
    Ok(Answer::of(&ComponentList { components: app.registry.list() }))
}

/// `GET /v1/operator/components/{name}`
pub async fn get_component(
    app: &App,
    request: &HostRequest,
    _: &mut Txn,
) -> Result<Answer<ComponentAnswer>, Refusal> {
    let name = request.parameter("name");
    let detail =
        app.registry.describe(name).ok_or_else(|| LifeCycleError::Absent(name.to_owned()))?;
    let memory_bytes_max = app.config.engine.memory_bytes_max;
    Ok(Answer::of(&ComponentAnswer { component: ComponentItem { detail, memory_bytes_max } }))
}

/// `PUT /v1/operator/components/{name}`
pub async fn put_component(
    app: &App,
    request: &HostRequest,
    _: &mut Txn,
    Params(asked): Params<UploadQuery>,
) -> Result<Created<VersionAnswer>, Refusal> {
    let signature = request
        .headers
        .get("x-component-signature")
        .and_then(|value| value.to_str().ok())
        .map(str::to_owned);
    let name = request.parameter("name");
    let upload = Upload { name: Some(name.to_owned()), bytes: request.bytes.clone(), signature };
    let kept = act(request, "operator.components.put", 201);
    let installed = app.registry.install(upload, &kept).await?;
    let version = installed.version;
    if asked.activate {
        let consent = Consent::read(&asked.agree.0);
        let act = act(request, "operator.components.activate", 201);
        let (name, digest) = (&version.name, &version.digest);
        let activated = app.registry.activate(name, digest, BY, &consent, &act).await?;
        return Ok(Created::of(&answer(&activated)).mark_audited());
    }
    app.registry.build(&version.name, &version.digest).await?;
    let component = VersionReport::of(&version, &BTreeSet::new());
    let answer = VersionAnswer { component, previous: None, changed: installed.fresh };
    Ok(Created::of(&answer).mark_audited())
}

/// `POST /v1/operator/components/{name}/activate`
pub async fn activate_component(
    app: &App,
    request: &HostRequest,
    _: &mut Txn,
    Body(body): Body<Activation>,
) -> Result<Answer<VersionAnswer>, Refusal> {
    let (name, digest) = (request.parameter("name"), digest_of(&body.digest.0));
    let consent = Consent::read(&body.agree.0);
    let act = act(request, "operator.components.activate", 200);
    let activated = app.registry.activate(name, &digest, BY, &consent, &act).await?;
    Ok(Answer::of(&answer(&activated)).mark_audited())
}

/// `POST /v1/operator/components/{name}/rollback`
pub async fn rollback_component(
    app: &App,
    request: &HostRequest,
    _: &mut Txn,
    Body(body): Body<Rollback>,
) -> Result<Answer<VersionAnswer>, Refusal> {
    let from = body.from.0.as_ref().map(|digest| digest_of(&digest.0));
    let act = act(request, "operator.components.rollback", 200);
    let name = request.parameter("name");
    let activated = app.registry.rollback(name, from.as_deref(), BY, &act).await?;
    Ok(Answer::of(&answer(&activated)).mark_audited())
}

/// `DELETE /v1/operator/components/{name}/{digest}`
pub async fn delete_component(
    app: &App,
    request: &HostRequest,
    _: &mut Txn,
) -> Result<Answer<RemovedVersion>, Refusal> {
    let digest = digest_of(request.parameter("digest"));
    let act = act(request, "operator.components.delete", 200);
    app.registry.remove(request.parameter("name"), &digest, &act).await?;
    Ok(Answer::of(&RemovedVersion { digest: Digest(digest), deleted: Yes }).mark_audited())
}

fn answer(activated: &Activated) -> VersionAnswer {
    VersionAnswer {
        component: VersionReport::of(&activated.active, &BTreeSet::new()),
        previous: Some(activated.previous.clone()),
        changed: activated.changed,
    }
}

/// The audit row and the guards of a step, whether or not it changes anything.
fn act(
    request: &HostRequest,
    operation: &'static str,
    status: u16,
) -> impl Fn(&Version, bool) -> Option<Act> {
    move |version, _| {
        let details = json!({"version": version.version, "digest": version.digest});
        super::act(request, operation, status, ("component", &version.name), &details).ok()
    }
}
