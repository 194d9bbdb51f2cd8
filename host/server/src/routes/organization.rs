//! The organization of the credential, at `/v1/organization` and, as it was once called,
//! `/v1/company`.

use charter_kernel::kit::Budget;
use charter_kernel::refusal::Refusal;
use charter_kernel::time::Zone;
use charter_kernel::unit::Reach;
use charter_store::Txn;
use serde::Deserialize;
use serde_json::{Value, json};

use super::shape::{budget, check, checked, id, instant, name, nullable, object, present};
use super::stored;
use crate::app::App;
use crate::governance::caps;
use crate::records::name as names;
use crate::records::organization::{Loosening, Organization};
use crate::reply::Reply;
use crate::request::HostRequest;

fn loosening() -> Value {
    json!({"enum": ["key", "session"]})
}

fn time_zone() -> Value {
    json!({"type": "string", "minLength": 1, "maxLength": 64})
}

/// The answer of these routes.
pub fn answer() -> Value {
    object(&[(
        "organization",
        object(&[
            ("id", id()),
            ("name", name()),
            ("role", json!({"type": "string"})),
            // A key that is pinned to a project is told the name alone.
            ("default_project_id?", id()),
            ("loosening?", loosening()),
            ("time_zone?", time_zone()),
            ("budget?", nullable(&budget())),
            ("created_at?", instant()),
        ]),
    )])
}

fn view(organization: &Organization, request: &HostRequest) -> Value {
    json!({"organization": {
        "id": organization.id,
        "name": organization.name,
        "default_project_id": organization.default_project,
        "loosening": organization.loosening,
        "time_zone": organization.time_zone,
        "budget": organization.budget,
        "role": request.identity.role(),
        "created_at": organization.created_at,
    }})
}

/// What a change is noted by.
fn told(organization: &Organization) -> Value {
    json!({
        "name": organization.name,
        "loosening": organization.loosening,
        "time_zone": organization.time_zone,
        "budget": organization.budget,
    })
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
    if request.principal()?.is_pinned() {
        let named = json!({
            "id": organization.id,
            "name": organization.name,
            "role": request.identity.role(),
        });
        return Ok(Reply::ok(&json!({"organization": named})));
    }
    Ok(Reply::ok(&view(&organization, request)))
}

#[derive(Deserialize)]
struct Change {
    name: Option<String>,
    loosening: Option<Loosening>,
    time_zone: Option<String>,
    #[serde(default, deserialize_with = "present")]
    budget: Option<Option<Budget>>,
}

/// The body of a change.
pub fn change_body() -> Value {
    object(&[
        ("name?", name()),
        ("loosening?", loosening()),
        ("time_zone?", time_zone()),
        ("budget?", nullable(&budget())),
    ])
}

/// Changes the organization.
///
/// # Errors
/// 403 where the caller may not.
pub async fn patch(_: &App, request: &HostRequest, txn: &mut Txn) -> Result<Reply, Refusal> {
    let body: Change = request.body_as()?;
    let mut faults = Vec::new();
    check(&mut faults, "name", body.name.as_deref().and_then(names::fault));
    let no_zone = body.time_zone.as_deref().is_some_and(|zone| Zone::named(zone).is_none());
    check(
        &mut faults,
        "time_zone",
        no_zone.then_some("must be the name of an IANA time zone, such as Europe/Zurich"),
    );
    checked(faults)?;
    let mut organization = own(request, txn).await?;
    let before = told(&organization);
    if let Some(wanted) = body.loosening.filter(|wanted| *wanted != organization.loosening) {
        // Asking for a session is a tightening; no longer asking for one takes one.
        if wanted == Loosening::Key {
            request.place()?.may_loosen()?;
        }
        organization.loosening = wanted;
    }
    // Where days begin decides how much of a budget is left.
    if let Some(zone) = body.time_zone.filter(|zone| *zone != organization.time_zone) {
        request.place()?.may_loosen()?;
        organization.time_zone = zone;
    }
    if let Some(wanted) = body.budget {
        if Budget::loosens(organization.budget, wanted) {
            request.place()?.may_loosen()?;
        }
        if organization.budget.is_none() && wanted.is_some() {
            caps::begin(txn, "organization", &Reach::organization(organization.id.as_str()))
                .await?;
        }
        organization.budget = wanted;
    }
    if let Some(name) = body.name {
        organization.name = name;
    }
    stored::replace(txn, &organization, "name").await?;
    let note = json!({"before": before, "after": told(&organization)});
    Ok(Reply::ok(&view(&organization, request))
        .about("organization", organization.id.to_string())
        .noting(note))
}
