//! `GET /v1/usage`: what the organization has, counted where it lies.

use charter_kernel::refusal::Refusal;
use charter_kernel::unit::{FactKind, Reach};
use charter_store::Txn;
use serde_json::{Value, json};

use super::shape::{id, object};
use super::stored::{self, reading};
use crate::app::App;
use crate::records::key::ApiKey;
use crate::records::member::Member;
use crate::records::project::Project;
use crate::records::user::User;
use crate::reply::Reply;
use crate::request::HostRequest;

/// What is answered.
pub fn answer() -> Value {
    let number = json!({"type": "integer", "minimum": 0});
    let counts = object(&[
        ("projects", number.clone()),
        ("members", number.clone()),
        ("api_keys", number.clone()),
        ("users", number.clone()),
        ("audit_rows", number),
    ]);
    object(&[("organization_id", id()), ("project_id", id()), ("usage", counts)])
}

/// Counts of the organization, and of the selected project's users.
///
/// # Errors
/// When the store cannot be asked; 404 for a key that is pinned to one user.
pub async fn get(app: &App, request: &HostRequest, txn: &mut Txn) -> Result<Reply, Refusal> {
    let place = request.place()?;
    let organization = Reach::organization(place.organization.id.as_str());
    let project = Reach::project(place.project.id.as_str());
    let audited = app
        .store
        .facts_head(FactKind::Audit, place.organization.id.as_str())
        .await
        .map_err(reading)?;
    Ok(Reply::ok(&json!({
        "organization_id": place.organization.id,
        "project_id": place.project.id,
        "usage": {
            "projects": stored::count::<Project>(txn, &organization, &[]).await?,
            "members": stored::count::<Member>(txn, &organization, &[]).await?,
            "api_keys": stored::count::<ApiKey>(txn, &organization, &[]).await?,
            "users": stored::count::<User>(txn, &project, &[]).await?,
            "audit_rows": audited,
        },
    })))
}
