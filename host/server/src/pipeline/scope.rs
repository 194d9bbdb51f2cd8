//! The place of the request: the names in its path and headers are handed to the one resolver.

use std::sync::Arc;

use charter_kernel::refusal::Refusal;
use charter_kernel::scope::Subject;
use charter_tenancy::place::Named;
use http::{HeaderMap, HeaderName};

use super::accept::{PROJECT, USER};
use super::caller::Caller;
use super::family::Located;
use super::identify::Identified;
use super::trail::Trail;
use crate::app::App;

/// Resolves who asks, and where: the project and user that the request names by path or header.
///
/// # Errors
/// As [`Caller::resolve`].
pub async fn resolve<'a>(
    app: &App,
    trail: &mut Trail,
    identified: Identified<'a>,
) -> Result<(Located<'a>, Arc<Caller>), Refusal> {
    let (located, identity) = identified.into_parts();
    let headers = &located.accepted.headers;
    // Nothing that names a place counts, nor need it be well formed, where there is none.
    let named = match identity.principal() {
        Some(_) => names(&located, headers)?,
        None => Named::default(),
    };
    let caller = Arc::new(Caller::resolve(app, identity, named).await?);
    trail.caller = Some(caller.clone());
    Ok((located, caller))
}

fn names<'a>(located: &'a Located<'_>, headers: &'a HeaderMap) -> Result<Named<'a>, Refusal> {
    let project = match &located.project {
        Some(segment) => Some(segment.as_str()),
        None => text(headers, &PROJECT)?,
    };
    let user = match &located.user {
        Some(segment) => Some((segment.as_str(), Subject::Path)),
        None => text(headers, &USER)?.map(|text| (text, Subject::Header)),
    };
    Ok(Named { project, user })
}

fn text<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Result<Option<&'h str>, Refusal> {
    match headers.get(name).map(|value| value.to_str()) {
        None => Ok(None),
        Some(Ok(text)) => Ok(Some(text.trim())),
        Some(Err(_)) => Err(Refusal::invalid(name.as_str(), "must be visible ASCII")),
    }
}
