//! `GET /skill.md`: what this deployment can do, written from the manifests for an agent that
//! reads.

use std::fmt::Write as _;

use charter_adapters::public;
use charter_kernel::authority::Class;
use charter_kernel::manifest::{Manifest, Mount};
use charter_kernel::refusal::Refusal;
use charter_registry::served::template_at;
use charter_store::Txn;

use crate::app::App;
use crate::handler;
use crate::reply::Reply;
use crate::request::HostRequest;
use crate::route::HostRoute;

const HEAD: &str = "# Charter\n\nA governed real-world profile for each agent: the primitives below, behind one key.\n\n\
Base address: {base_url}. Send `Authorization: Bearer <key>`; {base_url}/register.md says how to get one. \
Each route below /v1 is served for the account's own profile and, as /v1/users/{user_id}/…, for each user. \
Changes take `Idempotency-Key`. Errors carry `code`, `message` and often a `hint`. The full description: {base_url}/openapi.json.\n";

/// The row of this route.
pub fn routes() -> Vec<HostRoute> {
    vec![
        HostRoute::get(Class::Open, "skill", "/skill.md", handler!(get_skill))
            .root()
            .open()
            .summary("Capability document")
            .produces("text/markdown; charset=utf-8"),
    ]
}

/// The document.
///
/// # Errors
/// None.
pub async fn get_skill(app: &App, _: &HostRequest, _: &mut Txn) -> Result<Reply, Refusal> {
    let mut text = HEAD.replace("{base_url}", &public::base(&app.adapters));
    for primitive in app.registry.current().primitives() {
        describe(&primitive.active().manifest, &mut text);
    }
    text.push_str("\n## The platform\n\n");
    for entry in app.routes.entries() {
        let route = &entry.route;
        let Some(mount) = route.mounts.first().filter(|mount| **mount != Mount::Operator) else {
            continue;
        };
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "* `{} {}`: {}",
            route.method,
            template_at(*mount, route.path),
            route.summary
        );
    }
    Ok(Reply::text("text/markdown; charset=utf-8", text))
}

fn describe(manifest: &Manifest, text: &mut String) {
    let _ = writeln!(
        text,
        "\n## {} (`{}` {})\n\n{}\n",
        manifest.title, manifest.name, manifest.version, manifest.summary
    );
    if !manifest.description.is_empty() {
        let _ = writeln!(text, "{}\n", manifest.description);
    }
    for operation in &manifest.operations {
        let Some(mount) = operation.mounts().first() else { continue };
        let path = template_at(*mount, &operation.path);
        let deprecated = manifest.deprecation.is_some() && operation.deprecated.unwrap_or(true);
        let mark = if deprecated { " (deprecated)" } else { "" };
        let _ = writeln!(text, "* `{} {path}`{mark}: {}", operation.method, operation.summary);
    }
}
