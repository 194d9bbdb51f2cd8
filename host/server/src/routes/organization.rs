//! The organization of the credential, at `/v1/organization` and, as it was once called, `/v1/company`.

use charter_kernel::refusal::Refusal;
use charter_store::Txn;
use serde::Deserialize;
use serde_json::{Value, json};

use super::shape::{check, checked, id, instant, name, object};
use super::stored;
use crate::app::App;
use crate::authority::{loosen, organization_wide, role};
use crate::records::name as names;
use crate::records::organization::{Loosening, Organization};
use crate::reply::Reply;
use crate::request::HostRequest;

fn loosening() -> Value {
    json!({"enum": ["key", "session"]})
}

/// The answer of these routes.
pub fn answer() -> Value {
    object(&[(
        "organization",
        object(&[
            ("id", id()),
            ("name", name()),
            ("default_project_id", id()),
            ("loosening", loosening()),
            ("role", json!({"type": "string"})),
            ("created_at", instant()),
        ]),
    )])
}

fn view(organization: &Organization, request: &HostRequest) -> Value {
    json!({"organization": {
        "id": organization.id,
        "name": organization.name,
        "default_project_id": organization.default_project,
        "loosening": organization.loosening,
        "role": role(&request.identity),
        "created_at": organization.created_at,
    }})
}

async fn own(request: &HostRequest, txn: &mut Txn) -> Result<Organization, Refusal> {
    let id = &request.place()?.organization.id;
    let found = stored::get::<Organization>(txn, &Organization::address(id)).await?;
    Ok(found.ok_or_else(Refusal::not_found)?.record)
}

/// The organization.
///
/// # Errors
/// When the store cannot be asked.
pub async fn get(_: &App, request: &HostRequest, txn: &mut Txn) -> Result<Reply, Refusal> {
    let organization = own(request, txn).await?;
    Ok(Reply::ok(&view(&organization, request)))
}

#[derive(Deserialize)]
struct Change {
    name: Option<String>,
    loosening: Option<Loosening>,
}

/// The body of a change.
pub fn change_body() -> Value {
    object(&[("name?", name()), ("loosening?", loosening())])
}

/// Changes the organization.
///
/// # Errors
/// 403 where the caller may not.
pub async fn patch(_: &App, request: &HostRequest, txn: &mut Txn) -> Result<Reply, Refusal> {
    organization_wide(&request.identity)?;
    let body: Change = request.body_as()?;
    let mut faults = Vec::new();
    check(&mut faults, "name", body.name.as_deref().and_then(names::fault));
    checked(faults)?;
    let mut organization = own(request, txn).await?;
    let before = json!({"name": organization.name, "loosening": organization.loosening});
    if let Some(wanted) = body.loosening.filter(|wanted| *wanted != organization.loosening) {
        // Asking for a session is a tightening; no longer asking for one takes one.
        if wanted == Loosening::Key {
            loosen(&request.identity, &request.place()?.organization)?;
        }
        organization.loosening = wanted;
    }
    if let Some(name) = body.name {
        organization.name = name;
    }
    stored::replace(txn, &organization, "name").await?;
    let note = json!({"before": before, "after": {"name": organization.name, "loosening": organization.loosening}});
    Ok(Reply::ok(&view(&organization, request)).about("organization", organization.id.to_string()).noting(note))
}
