//! The organization of the credential, at `/v1/organization` and, as it was once called,
//! `/v1/company`.

use charter_governance::caps;
use charter_kernel::authority::Class;
use charter_kernel::id::{OrganizationId, ProjectId};
use charter_kernel::kit::Budget;
use charter_kernel::manifest::Access;
use charter_kernel::refusal::Refusal;
use charter_kernel::role::Role;
use charter_kernel::time::{Instant, Zone};
use charter_kernel::unit::{Guard, Reach};
use charter_store::Txn;
use charter_tenancy::place::Place;
use charter_tenancy::records::organization::{Loosening, Organization};
use charter_tenancy::records::{Record as _, name as names};
use charter_tenancy::stored;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::shape::{Name, Optional, check, present, refuse_faults};
use crate::app::App;
use crate::handler;
use crate::request::HostRequest;
use crate::route::HostRoute;
use crate::serve::{Answer, Body};

/// The rows of the organization, by both its names.
pub fn routes() -> Vec<HostRoute> {
    vec![
        HostRoute::get(
            Class::OrganizationName,
            "organization.get",
            "/organization",
            handler!(get_organization),
        )
        .summary("The organization"),
        HostRoute::get(
            Class::OrganizationName,
            "company.get",
            "/company",
            handler!(get_organization),
        )
        .summary("The organization, by its former name"),
        HostRoute::patch(
            Class::OrganizationChange,
            "organization.update",
            "/organization",
            handler!(update_organization),
        )
        .access(Access::Admin)
        .summary("Change the organization"),
        HostRoute::patch(
            Class::OrganizationChange,
            "company.update",
            "/company",
            handler!(update_organization),
        )
        .access(Access::Admin)
        .summary("Change the organization, by its former name"),
    ]
}

/// The organization.
#[derive(Serialize, JsonSchema)]
pub struct OrganizationAnswer {
    organization: OrganizationItem,
}

/// The organization, as far as the credential sees it.
#[derive(Serialize, JsonSchema)]
struct OrganizationItem {
    /// The organization's id.
    id: OrganizationId,
    /// Its name, for people.
    name: Name,
    /// The role of the credential.
    #[schemars(with = "Role")]
    role: Option<Role>,
    /// The part that a pinned key is not told.
    #[serde(flatten)]
    rest: Option<Rest>,
}

#[derive(Serialize, JsonSchema)]
struct Rest {
    /// The project of requests that name none.
    default_project_id: ProjectId,
    /// The moment of its creation.
    created_at: Instant,
    #[serde(flatten)]
    settings: Settings,
}

/// The settings that a change sets.
#[derive(Serialize, JsonSchema)]
struct Settings {
    /// The credentials that may loosen: an admin's key too, or a session alone.
    loosening: Loosening,
    /// The IANA time zone in which its days begin.
    #[schemars(length(min = 1, max = 64))]
    time_zone: String,
    /// The spend cap of all of the organization.
    budget: Option<Budget>,
}

impl Settings {
    fn of(organization: &Organization) -> Self {
        Self {
            loosening: organization.loosening,
            time_zone: organization.time_zone.clone(),
            budget: organization.budget,
        }
    }
}

impl OrganizationAnswer {
    fn of(organization: &Organization, request: &HostRequest, is_pinned: bool) -> Self {
        let rest = || Rest {
            default_project_id: organization.default_project.clone(),
            created_at: organization.created_at,
            settings: Settings::of(organization),
        };
        let organization = OrganizationItem {
            id: organization.id.clone(),
            name: organization.name.as_str().into(),
            role: request.identity.role(),
            rest: (!is_pinned).then(rest),
        };
        Self { organization }
    }
}

/// The body of a change.
#[derive(Deserialize, JsonSchema)]
pub struct OrganizationChange {
    /// Its name, for people.
    name: Optional<Name>,
    /// The credentials that may loosen: an admin's key too, or a session alone.
    loosening: Optional<Loosening>,
    /// The IANA time zone in which its days begin.
    #[schemars(length(min = 1, max = 64))]
    time_zone: Optional<String>,
    /// The spend cap of all of the organization; null for none.
    #[serde(default, deserialize_with = "present")]
    budget: Option<Option<Budget>>,
}

/// The details of a change, for its audit row.
fn note_of(organization: &Organization) -> Value {
    let mut note = json!(Settings::of(organization));
    note["name"] = json!(organization.name);
    note
}

async fn find(request: &HostRequest, txn: &mut Txn) -> Result<Organization, Refusal> {
    let id = &request.place()?.organization().id;
    let found = stored::get::<Organization>(txn, &Organization::address(id)).await?;
    Ok(found.ok_or_else(Refusal::not_found)?.record)
}

/// The organization.
///
/// # Errors
/// When the store cannot be asked.
pub async fn get_organization(
    _: &App,
    request: &HostRequest,
    txn: &mut Txn,
) -> Result<Answer<OrganizationAnswer>, Refusal> {
    let organization = find(request, txn).await?;
    let is_pinned = request.principal()?.is_pinned();
    Ok(Answer::of(&OrganizationAnswer::of(&organization, request, is_pinned)))
}

/// Changes the organization.
///
/// # Errors
/// 403 where the caller may not.
pub async fn update_organization(
    _: &App,
    request: &HostRequest,
    txn: &mut Txn,
    Body(body): Body<OrganizationChange>,
) -> Result<Answer<OrganizationAnswer>, Refusal> {
    let mut faults = Vec::new();
    check(&mut faults, "name", body.name.0.as_deref().and_then(names::fault));
    let no_zone = body.time_zone.0.as_deref().is_some_and(|zone| Zone::parse(zone).is_none());
    check(
        &mut faults,
        "time_zone",
        no_zone.then_some("must be the name of an IANA time zone, such as Europe/Zurich"),
    );
    refuse_faults(faults)?;
    let mut organization = find(request, txn).await?;
    let before = note_of(&organization);
    if let Some(wanted) = body.loosening.0.filter(|wanted| *wanted != organization.loosening) {
        // Asking for a session is a tightening; no longer asking for one takes one.
        if wanted == Loosening::Key {
            request.place()?.may_loosen()?;
        }
        organization.loosening = wanted;
        organization.loosening_since = Some(request.now);
    }
    // The zone in which days begin decides how much of a budget is left.
    if let Some(zone) = body.time_zone.0.filter(|zone| *zone != organization.time_zone) {
        request.place()?.may_loosen()?;
        organization.time_zone = zone;
    }
    if let Some(wanted) = body.budget {
        let place = request.place()?;
        organization.budget_agreed =
            is_agreed(place, organization.budget, organization.budget_agreed);
        let scope = ("organization", Reach::organization(organization.id.as_str()));
        change_budget(txn, place, scope, &mut organization.budget, wanted).await?;
    }
    if let Some(name) = body.name.0 {
        organization.name = name.0;
    }
    stored::replace(txn, &organization, "name").await?;
    let note = json!({"before": before, "after": note_of(&organization)});
    Ok(Answer::of(&OrganizationAnswer::of(&organization, request, false))
        .about("organization", organization.id.to_string())
        .noting(note))
}

/// Changes a budget. A looser one takes the authority to loosen; spending is counted from the first
/// one on.
///
/// # Errors
/// 403 `loosening_not_allowed`.
pub async fn change_budget(
    txn: &mut Txn,
    place: &Place,
    (scope, reach): (&str, Reach),
    budget: &mut Option<Budget>,
    wanted: Option<Budget>,
) -> Result<(), Refusal> {
    if Budget::loosens(*budget, wanted) {
        place.may_loosen()?;
    }
    if budget.is_none() && wanted.is_some() {
        caps::begin(txn, scope, &reach).await?;
    }
    *budget = wanted;
    Ok(())
}

/// Whether somebody who may loosen has agreed to a budget, once this caller has changed it.
pub fn is_agreed(place: &Place, before: Option<Budget>, was_agreed: bool) -> bool {
    place.may_loosen().is_ok() || (before.is_some() && was_agreed)
}

/// Whether the caller may make what has a cap of its own: where no cap of the organization, set by
/// who may loosen, bounds all of them together it is more room, and takes that authority.
///
/// # Errors
/// 403 `loosening_not_allowed`.
pub async fn may_open_room(txn: &mut Txn, place: &Place) -> Result<(), Refusal> {
    let key = Organization::address(&place.organization().id);
    let row = txn.get_relaxed(&key).await.map_err(stored::reading)?;
    let row = row.ok_or_else(Refusal::not_found)?;
    // Many make users at once: nobody waits for the organization's row, and it is as it was read.
    txn.guard(Guard::Unchanged { key, version: row.version });
    let organization = Organization::read(&row).map_err(stored::unreadable)?;
    match organization.budget.is_some() && organization.budget_agreed {
        true => Ok(()),
        false => place.may_loosen(),
    }
}
