//! Where the request acts: what it names by path and header is handed to the one resolver.

use charter_kernel::refusal::Refusal;
use charter_kernel::scope::Subject;
use http::{HeaderMap, HeaderName};

use super::identify::Identified;
use super::trail::Trail;
use crate::app::App;
use crate::place::Named;

/// Names the project.
pub const PROJECT: HeaderName = HeaderName::from_static("x-service-project-id");
/// Names the tenant user.
pub const USER: HeaderName = HeaderName::from_static("x-service-user-id");

/// A request whose place is known, where it has one.
pub struct Scoped {
    /// The stage before.
    pub identified: Identified,
}

/// Resolves the place of a request that has a credential of an organization.
pub async fn resolve(
    app: &App,
    trail: &mut Trail,
    identified: Identified,
) -> Result<Scoped, Refusal> {
    let identity = trail.identity.clone();
    let Some((principal, organization)) = identity.principal() else {
        return Ok(Scoped { identified });
    };
    let located = &identified.located;
    let headers = &located.accepted.headers;
    let project = match &located.project {
        Some(segment) => Some(segment.as_str()),
        None => text(headers, &PROJECT)?,
    };
    let user = match &located.user {
        Some(segment) => Some((segment.as_str(), Subject::Path)),
        None => text(headers, &USER)?.map(|text| (text, Subject::Header)),
    };
    let place = app.directory.place(principal, organization, Named { project, user }).await?;
    trail.place = Some(place);
    Ok(Scoped { identified })
}

fn text<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Result<Option<&'h str>, Refusal> {
    match headers.get(name).map(|value| value.to_str()) {
        None => Ok(None),
        Some(Ok(text)) => Ok(Some(text.trim())),
        Some(Err(_)) => Err(Refusal::invalid(name.as_str(), "must be visible ASCII")),
    }
}
