//! `GET /v1/usage`: what the organization has, counted where it lies.

use charter_kernel::authority::Class;
use charter_kernel::id::{OrganizationId, ProjectId};
use charter_kernel::refusal::Refusal;
use charter_kernel::unit::{FactKind, Reach};
use charter_store::Txn;
use charter_tenancy::records::key::ApiKey;
use charter_tenancy::records::member::Member;
use charter_tenancy::records::project::Project;
use charter_tenancy::records::user::User;
use charter_tenancy::stored::{self, reading};
use schemars::JsonSchema;
use serde::Serialize;

use crate::app::App;
use crate::handler;
use crate::request::HostRequest;
use crate::route::{HostRoute, Walk};
use crate::serve::Answer;

/// The row of this route.
pub fn routes() -> Vec<HostRoute> {
    vec![
        HostRoute::get(Class::OrganizationRead, "usage", "/usage", handler!(get_usage))
            .walk(Walk::All)
            .summary("What the organization has used"),
    ]
}

/// The organization's numbers.
#[derive(Serialize, JsonSchema)]
pub struct Usage {
    /// The organization.
    organization_id: OrganizationId,
    /// The project whose users are counted.
    project_id: ProjectId,
    usage: Counts,
}

/// How many records of each kind there are.
#[derive(Serialize, JsonSchema)]
struct Counts {
    projects: u64,
    members: u64,
    api_keys: u64,
    users: u64,
    audit_rows: u64,
}

/// Counts of the organization, and of the selected project's users.
///
/// # Errors
/// When the store cannot be asked; 404 for a key that is pinned to one user.
pub async fn get_usage(
    app: &App,
    request: &HostRequest,
    txn: &mut Txn,
) -> Result<Answer<Usage>, Refusal> {
    let place = request.place()?;
    let organization = Reach::organization(place.organization().id.as_str());
    let project = Reach::project(place.project().id.as_str());
    let audited = app
        .store
        .facts_head(FactKind::Audit, place.organization().id.as_str())
        .await
        .map_err(reading)?;
    let usage = Counts {
        projects: stored::count::<Project>(txn, &organization, &[]).await?,
        members: stored::count::<Member>(txn, &organization, &[]).await?,
        api_keys: stored::count::<ApiKey>(txn, &organization, &[]).await?,
        users: stored::count::<User>(txn, &project, &[]).await?,
        audit_rows: audited,
    };
    let (organization_id, project_id) =
        (place.organization().id.clone(), place.project().id.clone());
    Ok(Answer::of(&Usage { organization_id, project_id, usage }))
}
